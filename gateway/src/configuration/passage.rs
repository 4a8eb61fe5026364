//! In which order changes of the catalogue are written. Records are written one after another while calls run, and a
//! call that was admitted with one state is planned with a later one. So whoever is named comes before who names him, and
//! what goes is still there for a while for those who were admitted to it.

use std::time::Duration;

use schemas::configuration::RecordChange;
use schemas::subject::catalog;
use serde_json::{Value, json};

/// How long a call that was admitted may take until it is planned, and a change until every node knows of it.
const GRACE: Duration = Duration::from_secs(2);

/// A record to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Its place in the bucket.
    pub key: String,
    /// What it is to say; `None` where it is to be deleted.
    pub value: Option<Value>,
}

/// Changes in their order. A record may be in both parts: what it says in the first is for the time between.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// What is written at once.
    pub first: Vec<Write>,
    /// What is written after [`Self::grace`].
    pub last: Vec<Write>,
    /// True when a record already says what is for the time between: somebody else is at these changes.
    pub is_under_way: bool,
}

impl Passage {
    pub(super) fn of(changes: &[RecordChange]) -> Self {
        let kept: Vec<&Value> = changes.iter().filter_map(|change| change.to.as_ref()).collect();
        let (mut endpoints, mut models, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last_models, mut last_endpoints) = (Vec::new(), Vec::new());
        let mut is_under_way = false;
        for change in changes {
            let (key, write) = (&change.key, whole(change));
            if key.starts_with(catalog::ENDPOINT) {
                let place = if write.value.is_some() {
                    &mut endpoints
                } else {
                    &mut last_endpoints
                };
                place.push(write);
            } else if !key.starts_with(catalog::MODEL) {
                others.push(write);
            } else {
                let between = between(change, &kept);
                let is_gone = write.value.is_none();
                match between {
                    Some(value) => {
                        is_under_way |= change.from.as_ref() == Some(&value);
                        models.push(Write {
                            key: key.clone(),
                            value: Some(value),
                        });
                        last_models.push(write);
                    }
                    None if is_gone => last_models.push(write),
                    None => models.push(write),
                }
            }
        }
        let first = [endpoints, models, others].concat();
        // What routes lead to goes after all of them.
        last_models.sort_by_key(|write| write.value.is_none());
        Self {
            first,
            last: [last_models, last_endpoints].concat(),
            is_under_way,
        }
    }

    /// How long is waited before the last part; nothing where there is none.
    pub const fn grace(&self) -> Duration {
        if self.last.is_empty() {
            Duration::ZERO
        } else {
            GRACE
        }
    }
}

fn whole(change: &RecordChange) -> Write {
    Write {
        key: change.key.clone(),
        value: change.to.clone(),
    }
}

/// What a model says for the time between.
fn between(change: &RecordChange, kept: &[&Value]) -> Option<Value> {
    let from = change.from.as_ref()?;
    match &change.to {
        Some(to) => bridged(from, to),
        None => withdrawn(from, kept),
    }
}

/// The new model with the routes that leave it as its last resort: who was admitted to them finds them.
fn bridged(from: &Value, to: &Value) -> Option<Value> {
    let (before, after) = (from["routes"].as_array()?, to["routes"].as_array()?);
    let stays = |route: &&Value| {
        after
            .iter()
            .any(|other| other["endpoint_id"] == route["endpoint_id"])
    };
    let mut routes = after.clone();
    for route in before.iter().filter(|route| !stays(route)) {
        let mut route = route.as_object()?.clone();
        route.insert("priority".into(), json!(i32::MAX));
        routes.push(Value::Object(route));
    }
    let leaves = routes.len() > after.len();
    leaves.then(|| with(to, [("routes", Value::Array(routes))]))?
}

/// A model that goes, for nobody: calls to it are refused as if it were gone, and those admitted before are served.
/// Operators reach what no tenant does, so it does not do what it did either. `None` where others take its names, for
/// whom it would be in the way.
fn withdrawn(from: &Value, kept: &[&Value]) -> Option<Value> {
    let names = |model: &Value| -> Vec<Value> {
        let aliases = model["aliases"].as_array().into_iter().flatten();
        aliases.chain(model.get("id")).cloned().collect()
    };
    let own = names(from);
    let taken = kept
        .iter()
        .any(|model| names(model).iter().any(|name| own.contains(name)));
    if taken {
        return None;
    }
    if from["tenants"].as_array().is_some_and(Vec::is_empty) {
        return Some(from.clone());
    }
    let embeds = from["embeds"] == true;
    with(from, [("tenants", json!([])), ("embeds", json!(!embeds))])
}

fn with<const N: usize>(model: &Value, members: [(&str, Value); N]) -> Option<Value> {
    let mut model = model.as_object()?.clone();
    model.extend(members.map(|(name, value)| (name.to_owned(), value)));
    Some(Value::Object(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, from: Value, to: Value) -> RecordChange {
        let some = |value: Value| (!value.is_null()).then_some(value);
        RecordChange {
            key: key.into(),
            from: some(from),
            to: some(to),
        }
    }

    fn model(name: &str, routes: &[(&str, i32)]) -> Value {
        let route =
            |(endpoint, priority): &(&str, i32)| json!({"endpoint_id": endpoint, "priority": priority});
        let routes: Vec<Value> = routes.iter().map(route).collect();
        json!({"id": name, "aliases": [], "tenants": null, "embeds": false, "routes": routes})
    }

    fn keys(writes: &[Write]) -> Vec<(&str, bool)> {
        writes
            .iter()
            .map(|write| (&*write.key, write.value.is_some()))
            .collect()
    }

    #[test]
    fn who_is_named_is_there_before_and_goes_after_who_names_him() {
        let (old, new) = (model("m", &[("old", 0)]), model("m", &[("new", 0)]));
        let changes = [
            change("endpoint.old", json!({}), Value::Null),
            change("model.gone", model("gone", &[("old", 0)]), Value::Null),
            change("model.m", old, new.clone()),
            change("endpoint.new", Value::Null, json!({})),
            change("tenant.acme", json!({}), Value::Null),
        ];

        let passage = Passage::of(&changes);

        assert_eq!(
            keys(&passage.first),
            [
                ("endpoint.new", true),
                ("model.gone", true),
                ("model.m", true),
                ("tenant.acme", false)
            ]
        );
        assert_eq!(
            keys(&passage.last),
            [("model.m", true), ("model.gone", false), ("endpoint.old", false)]
        );
        assert_eq!(passage.grace(), GRACE);
        let both = model("m", &[("new", 0), ("old", i32::MAX)]);
        assert_eq!(passage.first[2].value, Some(both.clone()));
        assert_eq!(passage.last[0].value, Some(new.clone()));
        assert!(!passage.is_under_way);
        assert!(Passage::of(&[change("model.m", both, new)]).is_under_way);
    }

    #[test]
    fn a_model_that_goes_is_there_for_nobody_while_its_names_are_free() {
        let gone = model("m", &[("old", 0)]);
        let passage = Passage::of(&[change("model.m", gone.clone(), Value::Null)]);
        let value = passage.first[0].value.clone().expect("a model");
        assert_eq!((&value["tenants"], &value["embeds"]), (&json!([]), &json!(true)));
        assert_eq!(value["routes"], gone["routes"]);
        let again = change("model.m", value, Value::Null);
        assert!(Passage::of(&[again]).is_under_way);

        let mut heir = model("n", &[("old", 0)]);
        heir["aliases"] = json!(["m"]);
        let changes = [
            change("model.m", gone, Value::Null),
            change("model.n", Value::Null, heir),
        ];
        let passage = Passage::of(&changes);
        assert_eq!(keys(&passage.first), [("model.n", true)]);
        assert_eq!(keys(&passage.last), [("model.m", false)]);
    }

    #[test]
    fn where_nothing_goes_nothing_is_waited_for() {
        let (old, mut new) = (model("m", &[("same", 0)]), model("m", &[("same", 3)]));
        new["name"] = json!("M");
        let passage = Passage::of(&[
            change("model.m", old, new),
            change("endpoint.same", json!({"backends": []}), json!({"backends": [1]})),
        ]);

        assert_eq!(keys(&passage.first), [("endpoint.same", true), ("model.m", true)]);
        assert_eq!((passage.last.len(), passage.grace()), (0, Duration::ZERO));
    }
}
