//! What a rollback puts back: pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::RecordChange;

/// What records said after a revision, as far as they were changed since: `later` are the changes of the revisions after
/// it, the oldest first. `None` for one that was not there.
pub fn before(later: impl IntoIterator<Item = RecordChange>) -> BTreeMap<String, Option<Value>> {
    let mut said = BTreeMap::new();
    for change in later {
        said.entry(change.key).or_insert(change.from);
    }
    said
}

/// What is different between two states of the files' records: `changes` are those of the revisions in between, the
/// oldest first. What was changed to and fro is no difference.
pub fn between(changes: impl IntoIterator<Item = RecordChange>) -> Vec<RecordChange> {
    let mut all: BTreeMap<String, RecordChange> = BTreeMap::new();
    for change in changes {
        match all.get_mut(&change.key) {
            Some(known) => known.to = change.to,
            None => {
                all.insert(change.key.clone(), change);
            }
        }
    }
    all.into_values()
        .filter(|change| change.from != change.to)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(key: &str, from: Option<u64>, to: Option<u64>) -> RecordChange {
        RecordChange {
            key: key.to_owned(),
            from: from.map(|n| json!(n)),
            to: to.map(|n| json!(n)),
        }
    }

    fn changes() -> Vec<RecordChange> {
        vec![
            change("model.a", Some(1), Some(2)),
            change("model.b", None, Some(1)),
            change("model.a", Some(2), Some(3)),
            change("model.b", Some(1), None),
            change("model.c", Some(7), None),
        ]
    }

    #[test]
    fn what_a_record_said_first_is_what_it_is_put_back_to() {
        let said = before(changes());
        assert_eq!(said["model.a"], Some(json!(1)));
        assert_eq!(said["model.b"], None);
        assert_eq!(said["model.c"], Some(json!(7)));
    }

    #[test]
    fn what_came_and_went_is_no_difference() {
        assert_eq!(
            between(changes()),
            [
                change("model.a", Some(1), Some(3)),
                change("model.c", Some(7), None)
            ]
        );
    }
}
