//! What `waybill tenants` and `waybill users` have in common: records of the management API of a running node, listed
//! page by page, changed against their revision, and shown as a table or as JSON.

use std::fmt::Write as _;

use reqwest::Method;
use schemas::limit::limits::Limits;
use serde_json::{Map, Value, json};

use crate::UsageError;
use crate::command_line::Said;
use crate::management::{Error, RunningNode};

/// Records of one page.
const PAGE: usize = 1_000;
/// Times a change is made anew after somebody else's.
const TRIES_MAX: usize = 4;

/// A column of a table: its title, and what stands in it for a record.
pub type Column = (&'static str, fn(&Value) -> String);

/// Every record of a list. `query` narrows it, without `?`.
pub async fn all(node: &RunningNode, path: &str, query: &str) -> anyhow::Result<Vec<Value>> {
    let mut records = Vec::new();
    let mut after = String::new();
    loop {
        let page = node
            .call(Method::GET, &format!("{path}?limit={PAGE}{query}{after}"), None)
            .await?;
        records.extend(page["data"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else {
            return Ok(records);
        };
        after = format!("&after={}", encoded(next));
    }
}

/// Changes a record: `members` are put in the place of its own, and of its limits those that are `said`. Somebody
/// else's change in between is kept, unless it is of the same.
pub async fn change(
    node: &RunningNode,
    path: &str,
    members: &Map<String, Value>,
    said: &Said,
) -> anyhow::Result<Value> {
    let limits = changed_limits(&said.limits)?;
    let mut tries = 1..=TRIES_MAX;
    loop {
        let found = node.call(Method::GET, path, None).await?;
        let mut wanted = members.clone();
        if let Some(name) = &said.name {
            wanted.insert("name".to_owned(), json!(name));
        }
        if !limits.is_empty() {
            wanted.insert("limits".to_owned(), merged(&found["limits"], &limits));
        }
        let revision = found["revision"].as_u64();
        let changed = node.call_if(Method::PATCH, path, Some(Value::Object(wanted)), revision);
        match changed.await {
            Err(Error::Refused { status: 409, .. }) if tries.next().is_some() => {}
            changed => return Ok(changed?),
        }
    }
}

/// What is said of a record that is to be made.
pub fn described(said: &Said, members: &[(&str, Option<Value>)]) -> Result<Value, UsageError> {
    let limits = limits(&said.limits)?;
    let mut body = Map::new();
    let limits = (!limits.is_empty()).then(|| Value::Object(limits.into()));
    let own = [
        ("name", said.name.as_ref().map(|name| json!(name))),
        ("limits", limits),
    ];
    for (field, value) in own.into_iter().chain(members.iter().cloned()) {
        if let Some(value) = value {
            body.insert(field.to_owned(), value);
        }
    }
    Ok(Value::Object(body))
}

/// Limits given as `KEY=AMOUNT`.
pub fn limits(given: &[String]) -> Result<Limits, UsageError> {
    read(pairs(given)?)
}

/// The same where `KEY=` takes a limit away: by key, null for what goes.
fn changed_limits(given: &[String]) -> Result<Map<String, Value>, UsageError> {
    let (gone, set): (Map<_, _>, Map<_, _>) = pairs(given)?.into_iter().partition(|(_, amount)| amount == "");
    let mut changed = Map::from(read(set)?);
    changed.extend(gone.into_iter().map(|(key, _)| (key, Value::Null)));
    Ok(changed)
}

fn pairs(given: &[String]) -> Result<Map<String, Value>, UsageError> {
    let mut members = Map::new();
    for text in given {
        let parts = text.split_once('=');
        let (key, amount) =
            parts.ok_or_else(|| UsageError(format!("\"{text}\" is not KEY=AMOUNT, such as rpm=60")))?;
        if members.insert(key.to_owned(), amount.into()).is_some() {
            return Err(UsageError(format!("the limit {key} is given twice")));
        }
    }
    Ok(members)
}

fn read(members: Map<String, Value>) -> Result<Limits, UsageError> {
    Limits::try_from(members).map_err(|problem| UsageError(format!("--limit {problem}")))
}

/// Limits after a change.
fn merged(found: &Value, changed: &Map<String, Value>) -> Value {
    let mut limits = found.as_object().cloned().unwrap_or_default();
    for (key, amount) in changed {
        if amount.is_null() {
            limits.remove(key);
        } else {
            limits.insert(key.clone(), amount.clone());
        }
    }
    Value::Object(limits)
}

/// Records as they are printed: a table, or JSON for programs.
pub fn printed(columns: &[Column], records: &[Value], as_json: bool) -> String {
    if as_json {
        return format!("{:#}\n", Value::from(records.to_vec()));
    }
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rows = records
        .iter()
        .map(|record| columns.iter().map(|(_, cell)| cell(record)).collect());
    aligned(&std::iter::once(titles).chain(rows).collect::<Vec<Vec<String>>>())
}

/// The same of one record.
pub fn printed_one(columns: &[Column], record: &Value, as_json: bool) -> String {
    if as_json {
        return format!("{record:#}\n");
    }
    printed(columns, std::slice::from_ref(record), false)
}

/// The changes of a record as they are printed, the newest first.
pub fn printed_changes(history: &Value, as_json: bool) -> String {
    const COLUMNS: [Column; 3] = [
        ("AT", |change| text(&change["at"])),
        ("BY", |change| text(&change["actor"]["key_name"])),
        ("WHAT", |change| {
            let fields = change["fields"].as_object().into_iter().flatten();
            let told = fields.map(|(name, field)| format!("{name}: {} -> {}", field["from"], field["to"]));
            told.collect::<Vec<_>>().join(", ")
        }),
    ];
    let changes = history["data"].as_array().cloned().unwrap_or_default();
    printed(&COLUMNS, &changes, as_json)
}

/// Rows whose columns begin below each other.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A member of a record in a cell; `-` for none.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Limits in a cell.
pub fn limits_cell(record: &Value) -> String {
    let limits = record["limits"].as_object().into_iter().flatten();
    let told: Vec<String> = limits
        .map(|(key, amount)| format!("{key}={}", text(amount)))
        .collect();
    if told.is_empty() {
        "-".to_owned()
    } else {
        told.join(" ")
    }
}

/// Whether its calls are served, in a cell.
pub fn state_cell(record: &Value) -> String {
    let disabled = record["disabled"].as_bool().unwrap_or(false);
    let state = if disabled { "disabled" } else { "active" };
    state.to_owned()
}

/// A text as a segment of a path or a value of a query.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(limits: &[&str]) -> Vec<String> {
        limits.iter().map(|limit| (*limit).to_owned()).collect()
    }

    #[test]
    fn limits_that_are_not_named_stay_and_those_without_an_amount_go() {
        let found = json!({"rpm": 5, "tpm": 7, "per_model": {"m": {"rpm": 1}}});
        let changed = changed_limits(&given(&["rpm=", "daily_usd=1.5", "tpm=8"])).expect("limits");

        assert_eq!(
            merged(&found, &changed),
            json!({"tpm": 8, "daily_usd": "1.500000000", "per_model": {"m": {"rpm": 1}}})
        );
    }

    #[test]
    fn what_is_no_limit_is_told() {
        for (limits, told) in [
            (&["rpm"][..], "KEY=AMOUNT"),
            (&["rpm=1", "rpm=2"], "twice"),
            (&["rpm=x"], "--limit rpm"),
            (&["qqs=1"], "--limit qqs"),
        ] {
            let problem = changed_limits(&given(limits)).expect_err("no limit").to_string();
            assert!(problem.contains(told), "{limits:?}: {problem}");
        }
        assert!(
            limits(&given(&["rpm="])).is_err(),
            "nothing is taken from what is new"
        );
    }

    #[test]
    fn columns_begin_below_each_other_and_lines_end_without_blanks() {
        const COLUMNS: [Column; 2] = [("ID", |record| text(&record["id"])), ("LIMITS", limits_cell)];
        let records = [
            json!({"id": "a"}),
            json!({"id": "\u{e9}t\u{e9}", "limits": {"rpm": 5, "daily_usd": "1.5"}}),
        ];

        assert_eq!(
            printed(&COLUMNS, &records, false),
            "ID   LIMITS\na    -\n\u{e9}t\u{e9}  daily_usd=1.5 rpm=5\n"
        );
        assert_eq!(printed(&COLUMNS, &[], false), "ID  LIMITS\n");
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(encoded("a-b.c_1~"), "a-b.c_1~");
        assert_eq!(encoded("o'neil/\u{d6} ?"), "o%27neil%2F%C3%96%20%3F");
    }
}
