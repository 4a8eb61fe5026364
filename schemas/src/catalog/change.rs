//! Who changed a record, when, and what of it: every record that people change carries the newest of its changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::id::{KeyId, RequestId, TenantId, UserId};
use crate::seal::Sealed;
use crate::time::Timestamp;

/// Changes that a record keeps; older ones are in the log alone.
pub const HISTORY_MAX: usize = 16;
/// Bytes of the changes that a record keeps beside the newest.
const HISTORY_BYTES_MAX: usize = 64 * 1024;
/// What of a record is no change of its own: when a change was made stands beside it.
const CREATED_AT: &str = "created_at";
/// What of a record is a secret, though nobody but a router can read it.
const SEALED: &str = "sealed";

/// Who changed something: the credential that was presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// The credential's tenant.
    pub tenant: TenantId,
    /// The member it belongs to.
    pub user: Option<UserId>,
    /// Its id.
    pub key_id: KeyId,
    /// Its name.
    pub key_name: Arc<str>,
}

/// One change of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The request that asked for it.
    pub id: RequestId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// The revision that it replaced; `None` for a record that was not there.
    pub replaced: Option<u64>,
    /// What is different now, by field.
    pub fields: BTreeMap<String, Difference>,
}

/// What became of a field; null for one that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What it said.
    pub from: Value,
    /// What it says.
    pub to: Value,
}

/// Under which idempotency key a record was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Where the key's own record lies.
    pub key: Digest,
    /// What was asked for.
    pub asked: Digest,
}

/// A record as it lies in its bucket, with what the roles that follow it do not need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept<T> {
    /// What it says.
    #[serde(flatten)]
    pub record: T,
    /// By which call it was made, where that call could be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// Its newest changes, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Change>,
    /// What a file says of it, where that was changed at run time: it is so again once the change is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Value>,
}

/// What a change is told of beside its fields.
#[derive(Debug, Clone)]
pub struct Author {
    /// The request that asks for it.
    pub id: RequestId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
}

impl<T: Serialize> Kept<T> {
    /// A record that is new.
    pub fn new(record: T, made: Option<Made>, author: Author) -> Self {
        let fields = differences(&Map::new(), &fields(&record));
        Self {
            record,
            made,
            history: vec![author.change(None, fields)],
            file: None,
        }
    }

    /// What is told of a record that goes, having stood at `revision`.
    pub fn removed(&self, revision: u64, author: Author) -> Change {
        let fields = differences(&fields(&self.record), &Map::new());
        author.change(Some(revision), fields)
    }

    /// The same after it was changed to `record`, having stood at `revision`; `None` where nothing is different.
    #[must_use]
    pub fn changed(&self, record: T, revision: u64, author: Author) -> Option<Self> {
        let fields = differences(&fields(&self.record), &fields(&record));
        if fields.is_empty() {
            return None;
        }
        let mut history = self.history.clone();
        history.push(author.change(Some(revision), fields));
        Some(Self {
            record,
            made: self.made,
            history: newest(history),
            file: self.file.clone().or_else(|| of_file(&self.record)),
        })
    }

    /// The same as its file has it; `None` where no file says anything of it.
    pub fn restored(&self, revision: u64, author: Author) -> Option<Self>
    where
        T: DeserializeOwned,
    {
        let record: T = serde_json::from_value(self.file.clone()?).ok()?;
        let fields = differences(&fields(&self.record), &fields(&record));
        let mut history = self.history.clone();
        history.push(author.change(Some(revision), fields));
        Some(Self {
            record,
            made: self.made,
            history: newest(history),
            file: None,
        })
    }
}

impl Author {
    fn change(self, replaced: Option<u64>, fields: BTreeMap<String, Difference>) -> Change {
        Change {
            id: self.id,
            at: self.at,
            actor: self.actor,
            replaced,
            fields,
        }
    }
}

/// What a record says, if a file says it.
fn of_file<T: Serialize>(record: &T) -> Option<Value> {
    let said = serde_json::to_value(record).ok()?;
    (said.get("origin")? == "file").then_some(said)
}

/// The members of a record; none for what is no object.
fn fields<T: Serialize>(record: &T) -> Map<String, Value> {
    match serde_json::to_value(record) {
        Ok(Value::Object(mut fields)) => {
            fields.remove(CREATED_AT);
            if let Some(sealed) = fields.get_mut(SEALED) {
                redact(sealed);
            }
            fields
        }
        _ => Map::new(),
    }
}

/// Puts names in the place of what is sealed: whoever reads of a change need not have it, and what was voided is gone.
fn redact(sealed: &mut Value) {
    for one in sealed.as_array_mut().into_iter().flatten() {
        let name = Sealed::deserialize(&*one).map(|sealed| sealed.name());
        *one = name.map_or(Value::Null, Value::from);
    }
}

fn differences(old: &Map<String, Value>, new: &Map<String, Value>) -> BTreeMap<String, Difference> {
    let names = old.keys().chain(new.keys());
    let of = |fields: &Map<String, Value>, name: &str| fields.get(name).cloned().unwrap_or_default();
    names
        .map(|name| {
            let difference = Difference {
                from: of(old, name),
                to: of(new, name),
            };
            (name.clone(), difference)
        })
        .filter(|(_, difference)| difference.from != difference.to)
        .collect()
}

/// As many of the newest changes as a record keeps, and always the newest.
fn newest(mut history: Vec<Change>) -> Vec<Change> {
    let mut bytes = 0;
    let kept = history.iter().rev().skip(1).take(HISTORY_MAX - 1);
    let kept = kept.take_while(|change| {
        bytes += serde_json::to_vec(change).map_or(HISTORY_BYTES_MAX, |text| text.len());
        bytes <= HISTORY_BYTES_MAX
    });
    let gone = history.len().saturating_sub(1 + kept.count());
    history.drain(..gone);
    history
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::Origin;
    use crate::catalog::tenant::Tenant;

    fn author(at: i64) -> Author {
        Author {
            id: RequestId(uuid::Uuid::from_u128(u128::from(at.unsigned_abs()))),
            at: Timestamp::from_micros(at),
            actor: Actor {
                tenant: TenantId::from("default"),
                user: None,
                key_id: KeyId::from("k1"),
                key_name: "ops".into(),
            },
        }
    }

    fn tenant(name: &str) -> Tenant {
        Tenant {
            name: Some(name.into()),
            ..Tenant::new(TenantId::from("acme"), Origin::Runtime)
        }
    }

    fn told(change: &Change) -> Value {
        serde_json::to_value(&change.fields).expect("serialize")
    }

    #[test]
    fn a_change_tells_of_each_field_what_it_said_and_says() {
        let made = Kept::new(tenant("Acme"), None, author(1));
        let after = Tenant {
            disabled: true,
            name: None,
            ..tenant("")
        };

        let changed = made.changed(after, 7, author(2)).expect("a difference");

        assert_eq!(
            told(&changed.history[1]),
            json!({"disabled": {"from": false, "to": true}, "name": {"from": "Acme", "to": null}})
        );
        assert_eq!(changed.history[1].replaced, Some(7));
        assert_eq!(changed.history[0].fields["id"].to, json!("acme"));
        assert_eq!(changed.history[0].replaced, None);
    }

    #[test]
    fn what_a_file_says_is_kept_beneath_what_was_changed_and_comes_back() {
        let of_file: Kept<Tenant> =
            serde_json::from_str(r#"{"id":"acme","name":"Of the file","origin":"file"}"#).expect("read");

        let once = of_file
            .changed(tenant("One"), 7, author(1))
            .expect("a difference");
        let twice = once.changed(tenant("Two"), 8, author(2)).expect("a difference");
        let back = twice.restored(9, author(3)).expect("a file");

        assert_eq!(back.record, of_file.record);
        assert_eq!((back.file.is_none(), back.history.len()), (true, 3));
        assert_eq!(back.history[2].fields["name"].to, json!("Of the file"));
        assert_eq!(
            Kept::new(tenant("Made"), None, author(1)).restored(1, author(2)),
            None
        );
    }

    #[test]
    fn what_changes_nothing_is_no_change() {
        let made = Kept::new(tenant("Acme"), None, author(1));
        let of_another_time = Tenant {
            created_at: Some(Timestamp::from_micros(5)),
            ..tenant("Acme")
        };
        assert_eq!(made.changed(of_another_time, 7, author(2)), None);
    }

    #[test]
    fn a_record_is_read_back_and_by_whoever_knows_nothing_of_its_history() {
        let kept = Kept::new(tenant("Acme"), None, author(1));
        let text = serde_json::to_string(&kept).expect("serialize");

        assert_eq!(serde_json::from_str::<Kept<Tenant>>(&text).expect("read"), kept);
        assert_eq!(serde_json::from_str::<Tenant>(&text).expect("read"), kept.record);
        let of_a_file: Kept<Tenant> = serde_json::from_str(r#"{"id":"acme","origin":"file"}"#).expect("read");
        assert_eq!(of_a_file.history, []);
    }

    #[test]
    fn the_newest_changes_are_kept_and_of_large_ones_fewer() {
        let history = |name: &dyn Fn(i64) -> String| {
            let mut kept = Kept::new(tenant("first"), None, author(0));
            for at in 1..40 {
                kept = kept
                    .changed(tenant(&name(at)), 1, author(at))
                    .expect("a difference");
            }
            kept.history
        };

        let small = history(&|at| at.to_string());
        assert_eq!(small.len(), HISTORY_MAX);
        assert_eq!(small[HISTORY_MAX - 1].at, Timestamp::from_micros(39));
        let large = history(&|at| format!("{at}{}", "x".repeat(20_000)));
        assert_eq!(large.len(), 2, "one of forty thousand bytes beside the newest");
        let huge = history(&|at| format!("{at}{}", "x".repeat(70_000)));
        assert_eq!(huge.len(), 1);
    }
}
