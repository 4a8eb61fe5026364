//! Files seed the catalogue: each record that comes from a file is written by compare-and-set when it differs
//! from what is there; a model or endpoint that left the files is deleted, a key is revoked. Records made at
//! run time are left alone, and so is a key of a file that was revoked at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::passage::{Passage, Write};
use bus::revisions::Revisions;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::Bytes;
use schemas::configuration::{self, RecordChange};
use schemas::subject::{CATALOG_BUCKET, catalog};
use serde_json::Value;
use tokio::time::timeout;
use tracing::warn;

use crate::patience::Passing;

/// How long the bucket may take to tell what is in it.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// A record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bucket refused.
    #[error("the catalogue cannot be written")]
    Bus(#[from] BusError),
    /// A record cannot be turned into JSON.
    #[error("a catalogue record cannot be written as JSON")]
    Record(#[from] serde_json::Error),
}

impl Passing for Error {
    fn passes(&self) -> bool {
        matches!(self, Self::Bus(problem) if problem.passes())
    }
}

/// The member of a record that was changed at run time which has what its file says.
const FILE: &str = "file";

/// Records by their key in the bucket.
pub type Records = BTreeMap<String, Value>;

/// Adds a record.
pub fn record<T: serde::Serialize>(records: &mut Records, key: String, value: &T) -> Result<(), Error> {
    records.insert(key, serde_json::to_value(value)?);
    Ok(())
}

/// Everything in the bucket now.
pub async fn current(kv: &dyn Kv) -> Result<BTreeMap<String, Entry>, Error> {
    let told = timeout(READ_WITHIN, entries(kv)).await;
    Ok(told.unwrap_or(Err(BusError::Timeout))?)
}

async fn entries(kv: &dyn Kv) -> Result<BTreeMap<String, Entry>, BusError> {
    let mut changes = kv.watch(CATALOG_BUCKET).await?;
    let mut entries = BTreeMap::new();
    while let Some(change) = changes.recv().await {
        match change {
            Change::Entry(entry) => entries.insert(entry.key.clone(), entry),
            Change::Current => {
                entries.retain(|_, entry| entry.value.is_some());
                return Ok(entries);
            }
        };
    }
    // Half of a bucket would look as if the rest had been deleted.
    Err(BusError::Timeout)
}

/// What a change of the bucket is to be.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Put(String, Value, Expected),
    Delete(String, Expected),
}

/// What becomes of a change is kept here, with this said of it.
pub struct Keeper {
    /// Where.
    pub revisions: Revisions,
    /// What is said; its number and what it changed are filled in.
    pub told: configuration::Revision,
}

/// Makes the bucket say what the files say. `complete` prefixes lose records of files that are no longer there. All of it
/// counts together. [`BusError::Conflict`] when somebody else wrote in between: to be tried again, which then finds less
/// to do. Gives the revision with which all of it is in force; `None` where nothing had to be written.
pub async fn apply(
    kv: &dyn Kv,
    records: Records,
    complete: &[&str],
    keeper: &Keeper,
) -> Result<Option<Revision>, Error> {
    if changes(records.clone(), &current(kv).await?, complete).is_empty() {
        return Ok(None);
    }
    let passage = Passage::begin(kv).await?;
    // Another node may have written the same meanwhile.
    let wanted = changes(records, &current(kv).await?, complete);
    if wanted.is_empty() {
        return Ok(Some(passage.end().await?));
    }
    let (changes, writes): (Vec<RecordChange>, Vec<Write>) = wanted.into_iter().unzip();
    // What cannot be kept counts all the same: who changes a file wants it in force.
    let begun = keeper.revisions.begin(keeper.told.clone(), &changes).await;
    let written = passage.write(writes).await;
    let last = passage.end().await;
    written?;
    let last = last?;
    let kept = match begun {
        Ok(begun) => keeper.revisions.finish(begun, last).await.map(drop),
        Err(problem) => Err(problem),
    };
    if let Err(problem) = kept {
        warn!(
            error = &problem as &dyn std::error::Error,
            "what the files changed is in force and is not kept: it cannot be put back"
        );
    }
    Ok(Some(last))
}

/// What is to be changed, each with how it is written.
fn changes(
    records: Records,
    present: &BTreeMap<String, Entry>,
    complete: &[&str],
) -> Vec<(RecordChange, Write)> {
    let steps = steps(records, present, complete).into_iter();
    steps.map(|step| (step.change(present), step.write())).collect()
}

impl Step {
    fn change(&self, present: &BTreeMap<String, Entry>) -> RecordChange {
        let (key, to) = match self {
            Self::Put(key, value, _) => (key, Some(value.clone())),
            Self::Delete(key, _) => (key, None),
        };
        RecordChange {
            key: key.clone(),
            from: present.get(key).and_then(parsed),
            to,
        }
    }

    fn write(self) -> Write {
        let (key, value, expected) = match self {
            Self::Put(key, value, expected) => (key, Some(value), expected),
            Self::Delete(key, expected) => (key, None, expected),
        };
        Write {
            key,
            value: value.map(|value| Bytes::from(value.to_string())),
            expected,
        }
    }
}

fn steps(records: Records, present: &BTreeMap<String, Entry>, complete: &[&str]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (key, entry) in present {
        let gone = !records.contains_key(key) && complete.iter().any(|prefix| key.starts_with(prefix));
        let Some(mut old) = gone.then(|| parsed(entry)).flatten() else {
            continue;
        };
        if old.get("origin").is_some_and(|origin| origin != "file") {
            steps.extend(without_file(key, old, entry.revision));
            continue;
        }
        let expected = Expected::Revision(entry.revision);
        if !key.starts_with(catalog::KEY) {
            steps.push(Step::Delete(key.clone(), expected));
        } else if old.get("revoked") != Some(&Value::Bool(true)) {
            old["revoked"] = Value::Bool(true);
            steps.push(Step::Put(key.clone(), old, expected));
        }
    }
    for (key, mut value) in records {
        let old = present
            .get(&key)
            .and_then(|entry| Some((parsed(entry)?, entry.revision)));
        if let Some(made) = old.as_ref().and_then(|(old, _)| old.get("created_at")) {
            value["created_at"] = made.clone();
        }
        match old {
            Some((old, _)) if old == value => {}
            Some((old, _)) if key.starts_with(catalog::KEY) && revoked_at_run_time(&old) => {
                warn!(
                    key.id = old["id"].as_str().unwrap_or_default(),
                    "a key of waybill.yaml was revoked and stays so; remove it there, or give another"
                );
            }
            Some((old, revision)) if !key.starts_with(catalog::KEY) && old["origin"] == "runtime" => {
                if differs(&old, &value) {
                    warn!(
                        record.key = key,
                        "what waybill.yaml says of it was changed at run time and stays as it was changed"
                    );
                }
                steps.extend(beneath(key, (old, revision), value));
            }
            Some((_, revision)) => steps.push(Step::Put(key, value, Expected::Revision(revision))),
            None => steps.push(Step::Put(key, value, Expected::Absent)),
        }
    }
    steps
}

/// Puts what a file says beneath what was made of its record at run time, for when that is dropped.
fn beneath(key: String, (mut old, revision): (Value, Revision), file: Value) -> Option<Step> {
    let is_overlaid = [catalog::TENANT, catalog::USER]
        .iter()
        .any(|kind| key.starts_with(kind));
    if !is_overlaid || old.get(FILE) == Some(&file) {
        return None;
    }
    old[FILE] = file;
    Some(Step::Put(key, old, Expected::Revision(revision)))
}

/// Forgets what a file said of a record that was changed at run time.
fn without_file(key: &str, mut old: Value, revision: Revision) -> Option<Step> {
    old.as_object_mut()?.remove(FILE)?;
    Some(Step::Put(key.to_owned(), old, Expected::Revision(revision)))
}

/// True for a key that an administrator revoked, be it from a file or not.
fn revoked_at_run_time(key: &Value) -> bool {
    key["revoked"] == true && key["origin"] == "runtime"
}

/// True when a file says something else than what was made of its record at run time.
fn differs(old: &Value, file: &Value) -> bool {
    let said = file.as_object().into_iter().flatten();
    said.filter(|(name, _)| *name != "origin" && *name != "created_at")
        .any(|(name, value)| old.get(name) != Some(value))
}

/// True for a record that a file says.
pub fn is_of_file(entry: &Entry) -> bool {
    parsed(entry).is_some_and(|record| record["origin"] == "file" && record["revoked"] != true)
}

fn parsed(entry: &Entry) -> Option<Value> {
    serde_json::from_slice(entry.value.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn present(entries: &[(&str, Value)]) -> BTreeMap<String, Entry> {
        let entry = |(n, (key, value)): (usize, &(&str, Value))| {
            let value = Some(Bytes::from(value.to_string()));
            (
                (*key).to_owned(),
                Entry {
                    key: (*key).to_owned(),
                    value,
                    revision: n as u64 + 1,
                },
            )
        };
        entries.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn unchanged_records_are_not_written_and_keep_their_time() {
        let old = present(&[(
            "model.61",
            json!({ "origin": "file", "created_at": "then", "name": "a" }),
        )]);
        let same = Records::from([(
            "model.61".into(),
            json!({ "origin": "file", "created_at": "now", "name": "a" }),
        )]);
        let other = Records::from([(
            "model.61".into(),
            json!({ "origin": "file", "created_at": "now", "name": "b" }),
        )]);

        assert_eq!(steps(same, &old, &["model."]), []);
        let expected = json!({ "origin": "file", "created_at": "then", "name": "b" });
        assert_eq!(
            steps(other, &old, &["model."]),
            [Step::Put("model.61".into(), expected, Expected::Revision(1))]
        );
    }

    #[test]
    fn a_key_comes_back_to_the_file_but_not_from_its_revocation() {
        let old = present(&[
            ("key.00", json!({ "origin": "file", "revoked": true })),
            ("key.01", json!({ "origin": "runtime", "revoked": true })),
        ]);
        let wanted = json!({ "origin": "file", "revoked": false });
        let records = Records::from([
            ("key.00".into(), wanted.clone()),
            ("key.01".into(), wanted.clone()),
        ]);

        assert_eq!(
            steps(records, &old, &["key."]),
            [Step::Put("key.00".into(), wanted, Expected::Revision(1))]
        );
    }

    #[test]
    fn what_was_changed_at_run_time_stays_as_it_was_changed() {
        let changed = json!({ "origin": "runtime", "limits": { "rpm": 5 }, "disabled": true });
        let old = present(&[
            ("tenant.acme", changed.clone()),
            ("user.acme.61", json!({ "origin": "file" })),
        ]);
        let of_file = json!({ "origin": "file", "limits": { "rpm": 1 }, "disabled": false });
        let records = Records::from([
            ("tenant.acme".into(), of_file.clone()),
            ("user.acme.61".into(), of_file.clone()),
        ]);
        let mut overlaid = changed.clone();
        overlaid["file"] = of_file.clone();

        assert_eq!(
            steps(records, &old, &["tenant.", "user."]),
            [
                Step::Put("tenant.acme".into(), overlaid.clone(), Expected::Revision(1)),
                Step::Put("user.acme.61".into(), of_file, Expected::Revision(2))
            ]
        );
        assert_eq!(steps(Records::new(), &old, &["tenant."]), []);
        let old = present(&[("tenant.acme", overlaid)]);
        assert_eq!(
            steps(Records::new(), &old, &["tenant."]),
            [Step::Put("tenant.acme".into(), changed, Expected::Revision(1))]
        );
    }

    #[test]
    fn a_file_that_says_the_same_as_run_time_needs_no_word() {
        let old = json!({ "origin": "runtime", "limits": { "rpm": 5 }, "name": "Acme" });

        assert!(!differs(
            &old,
            &json!({ "origin": "file", "limits": { "rpm": 5 } })
        ));
        assert!(differs(
            &old,
            &json!({ "origin": "file", "limits": { "rpm": 6 } })
        ));
    }

    #[test]
    fn what_left_the_files_is_deleted_and_keys_are_revoked() {
        let old = present(&[
            ("endpoint.61", json!({ "id": "a" })),
            ("key.00", json!({ "origin": "file", "revoked": false })),
            ("key.01", json!({ "origin": "runtime", "revoked": false })),
        ]);

        let steps = steps(Records::new(), &old, &["endpoint.", "key."]);

        let revoked = json!({ "origin": "file", "revoked": true });
        assert_eq!(
            steps,
            [
                Step::Delete("endpoint.61".into(), Expected::Revision(1)),
                Step::Put("key.00".into(), revoked, Expected::Revision(2)),
            ]
        );
    }
}
