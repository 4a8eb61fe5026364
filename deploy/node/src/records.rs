//! `waybill tenants`, `users`, `endpoints`, `routes`, `prices` and `grants`: records of the management API of a running
//! node. What can be typed of a kind, and what is asked of the API then, stands in the kind's own file; how it is asked,
//! and how the outcome is told, as a table or as JSON, is the same for all.

use std::fmt::Write as _;

use bus::clock::{Clock as _, SystemClock};
use clap::Args;
use reqwest::Method;
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::UsageError;
use crate::command_line::{Flags, Output};
use crate::config::Config;
use crate::management::{Error, OPERATOR, RunningNode};

pub mod endpoints;
pub mod grants;
pub mod prices;
pub mod routes;
pub mod tenants;
pub mod users;

/// Records of one page.
const PAGE: usize = 1_000;
/// Times a change is made anew after somebody else's.
const TRIES_MAX: usize = 16;

/// Under which member limits of single models stand.
const PER_MODEL: &str = "per_model";

/// A kind of record.
#[derive(Debug)]
pub struct Kind {
    /// Where its records are in the management API.
    pub path: &'static str,
    /// How they are told.
    pub columns: &'static [Column],
    /// The variables of the environment with the credential that is presented where no flag gives one.
    pub credential: &'static [&'static str],
}

impl Kind {
    /// One whose path takes an operator's key, or an administrator's.
    pub const fn of(path: &'static str, columns: &'static [Column]) -> Self {
        Self {
            path,
            columns,
            credential: OPERATOR,
        }
    }

    /// Makes a record.
    pub fn create(&self, body: Map<String, Value>) -> Step {
        Step::Call {
            method: Method::POST,
            path: self.path.to_owned(),
            body: Some(Value::Object(body)),
        }
    }

    /// Lists records, of one tenant where one is named.
    pub fn list(&self, tenant: Option<&str>) -> Step {
        let query = tenant.map(|tenant| format!("&tenant={}", encoded(tenant)));
        Step::List(query.unwrap_or_default())
    }

    /// Where the record of an id is.
    pub fn at(&self, id: &str) -> String {
        format!("{}/{}", self.path, encoded(id))
    }

    /// Shows a record.
    pub fn show(&self, id: &str) -> Step {
        show(self.at(id))
    }

    /// Removes a record.
    pub fn remove(&self, id: &str) -> Step {
        Step::Remove(self.at(id))
    }

    /// Revokes a record, which stays.
    pub fn revoke(&self, id: &str) -> Step {
        Step::Call {
            method: Method::DELETE,
            path: self.at(id),
            body: None,
        }
    }
}

/// Shows the record at a path.
pub const fn show(path: String) -> Step {
    Step::Call {
        method: Method::GET,
        path,
        body: None,
    }
}

/// Has all calls with a record refused, or served again.
pub fn disable(path: String, disabled: bool) -> Step {
    let members = Map::from_iter([("disabled".to_owned(), json!(disabled))]);
    change(path, members, &Said::default())
}

/// Changes what is named of a record.
pub fn change(path: String, members: Map<String, Value>, said: &Said) -> Step {
    Step::Change {
        path,
        members,
        said: said.clone(),
    }
}

/// What is asked of the management API.
#[derive(Debug, Clone)]
pub enum Step {
    /// The records, narrowed by a query that begins with `&`.
    List(String),
    /// The changes of the record at a path.
    History(String),
    /// The removal of the record at a path.
    Remove(String),
    /// One call that answers with a record.
    Call {
        /// How.
        method: Method,
        /// Where.
        path: String,
        /// With what.
        body: Option<Value>,
    },
    /// A change of the record at a path.
    Change {
        /// Where.
        path: String,
        /// What is put in the place of its own.
        members: Map<String, Value>,
        /// Its name and the limits that are different.
        said: Said,
    },
}

/// What can be typed of one kind of record.
pub trait Action {
    /// Which kind.
    const KIND: Kind;

    /// What is asked then.
    fn step(&self) -> anyhow::Result<Step>;

    /// What it answered, where that is no record of the kind.
    fn told(&self, _: &Value) -> Option<String> {
        None
    }
}

/// Carries out an action and returns what to print.
pub async fn run<A: Action>(
    action: &A,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let step = action.step()?;
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, A::KIND.credential)?;
    let record = match step {
        Step::List(query) => {
            let records = all(&node, A::KIND.path, &query).await?;
            return Ok(printed(A::KIND.columns, &records, output.json));
        }
        Step::History(path) => {
            let history = node.call(Method::GET, &path, None).await?;
            return Ok(printed_changes(&history, output.json));
        }
        Step::Remove(path) => {
            let record = node.call(Method::DELETE, &path, None).await?;
            return Ok(printed_removed(&record, output.json));
        }
        Step::Call { method, path, body } => node.call(method, &path, body).await?,
        Step::Change { path, members, said } => changed(&node, &path, &members, &said).await?,
    };
    let told = action.told(&record).filter(|_| !output.json);
    Ok(told.unwrap_or_else(|| printed_one(A::KIND.columns, &record, output.json)))
}

/// What can be said of whatever has a name and limits.
#[derive(Debug, Clone, Default, Args)]
pub struct Said {
    /// The name people read.
    #[arg(long)]
    pub name: Option<String>,
    /// What it may use, such as `rpm=60`, `daily_usd=1.50` or, of one model, `rpm@MODEL=10`; repeatable. `set` takes a
    /// limit away that has no amount.
    #[arg(long = "limit", value_name = "KEY[@MODEL]=AMOUNT")]
    pub limits: Vec<String>,
}

impl Said {
    /// What is said of a record that is to be made.
    pub fn described(&self) -> Result<Map<String, Value>, UsageError> {
        let limits = limits(&self.limits)?;
        let limits = (!limits.is_empty()).then(|| Value::Object(limits.into()));
        let name = self.name.as_ref().map(|name| json!(name));
        Ok(given([("name", name), ("limits", limits)]))
    }
}

/// Members that are there.
pub fn given<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let members = members.into_iter();
    members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// A text that may not be there, as a member.
pub fn member(text: Option<&String>) -> Option<Value> {
    text.map(|text| json!(text))
}

/// A column of a table: its title, and what stands in it for a record.
pub type Column = (&'static str, fn(&Value) -> String);

/// Every record of a list. `query` narrows it, without `?`.
pub async fn all(node: &RunningNode, path: &str, query: &str) -> anyhow::Result<Vec<Value>> {
    let mut records = Vec::new();
    let keep = |record| {
        records.push(record);
        Ok(())
    };
    each(node, path, query, keep).await?;
    Ok(records)
}

/// The same, one after the other: a page is held at a time.
pub async fn each(
    node: &RunningNode,
    path: &str,
    query: &str,
    mut take: impl FnMut(Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut after = String::new();
    loop {
        let mut page = node
            .call(Method::GET, &format!("{path}?limit={PAGE}{query}{after}"), None)
            .await?;
        let records = page["data"].as_array_mut().map(std::mem::take);
        records.into_iter().flatten().try_for_each(&mut take)?;
        let Some(next) = page["next"].as_str() else {
            return Ok(());
        };
        after = format!("&after={}", encoded(next));
    }
}

/// Changes a record: `members` are put in the place of its own, and of its limits those that are `said`. Somebody
/// else's change in between is kept, unless it is of the same.
pub async fn changed(
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

/// Limits given as `KEY=AMOUNT`, or `KEY@MODEL=AMOUNT` for calls of one model.
pub fn limits(given: &[String]) -> Result<Limits, UsageError> {
    let pairs = pairs(given)?;
    if let Some(pair) = pairs.iter().find(|pair| pair.amount.is_empty()) {
        return Err(UsageError(format!("the limit {} has no amount", pair.key)));
    }
    read(pairs.into_iter().collect())
}

/// The same where `KEY=` takes a limit away: by key, null for what goes.
fn changed_limits(given: &[String]) -> Result<Vec<Pair>, UsageError> {
    let pairs = pairs(given)?;
    let set = pairs.iter().filter(|pair| !pair.amount.is_empty());
    read(set.cloned().collect())?;
    Ok(pairs)
}

/// One limit as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    key: String,
    model: Option<String>,
    amount: String,
}

/// Limits as the management API reads them.
#[derive(Debug, Default)]
struct Members(Map<String, Value>);

impl Members {
    /// The limits among which one stands: all, or those of its model.
    fn of(&mut self, model: Option<&str>) -> Option<&mut Map<String, Value>> {
        let Some(model) = model else {
            return Some(&mut self.0);
        };
        let models = self.0.entry(PER_MODEL).or_insert_with(|| json!({}));
        let of_model = models.as_object_mut()?.entry(model).or_insert_with(|| json!({}));
        of_model.as_object_mut()
    }

    /// Puts a limit there, or takes it away.
    fn edit(&mut self, pair: &Pair) {
        let Some(limits) = self.of(pair.model.as_deref()) else {
            return;
        };
        if pair.amount.is_empty() {
            limits.remove(&pair.key);
        } else {
            limits.insert(pair.key.clone(), json!(pair.amount));
        }
    }
}

impl FromIterator<Pair> for Members {
    fn from_iter<I: IntoIterator<Item = Pair>>(pairs: I) -> Self {
        let mut members = Self::default();
        pairs.into_iter().for_each(|pair| members.edit(&pair));
        members
    }
}

fn pairs(given: &[String]) -> Result<Vec<Pair>, UsageError> {
    let mut pairs: Vec<Pair> = Vec::new();
    for text in given {
        // A model may have any name.
        let parts = text.rsplit_once('=');
        let (key, amount) =
            parts.ok_or_else(|| UsageError(format!("\"{text}\" is not KEY=AMOUNT, such as rpm=60")))?;
        let (name, model) = key
            .split_once('@')
            .map_or((key, None), |(name, model)| (name, Some(model)));
        let pair = Pair {
            key: name.to_owned(),
            model: model.map(str::to_owned),
            amount: amount.to_owned(),
        };
        if pairs
            .iter()
            .any(|other| (&other.key, &other.model) == (&pair.key, &pair.model))
        {
            return Err(UsageError(format!("the limit {key} is given twice")));
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

fn read(Members(members): Members) -> Result<Limits, UsageError> {
    Limits::try_from(members).map_err(|problem| UsageError(format!("--limit {problem}")))
}

/// Limits after a change.
fn merged(found: &Value, changed: &[Pair]) -> Value {
    let mut limits = Members(found.as_object().cloned().unwrap_or_default());
    for pair in changed {
        limits.edit(pair);
    }
    let Members(mut limits) = limits;
    if let Some(models) = limits.get_mut(PER_MODEL).and_then(Value::as_object_mut) {
        models.retain(|_, limits| limits.as_object().is_none_or(|limits| !limits.is_empty()));
        if models.is_empty() {
            limits.remove(PER_MODEL);
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

/// What is printed of a record that is no more.
fn printed_removed(record: &Value, as_json: bool) -> String {
    if as_json {
        return format!("{record:#}\n");
    }
    format!("removed {}\n", text(&record["id"]))
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

/// Limits in a cell, as they are typed.
pub fn limits_cell(record: &Value) -> String {
    let limits = record["limits"].as_object().into_iter().flatten();
    let own = limits.filter(|(key, _)| *key != PER_MODEL);
    let own = own.map(|(key, amount)| format!("{key}={}", text(amount)));
    let models = record["limits"][PER_MODEL].as_object().into_iter().flatten();
    let of_models = models.flat_map(|(model, limits)| {
        let limits = limits.as_object().into_iter().flatten();
        limits.map(move |(key, amount)| format!("{key}@{model}={}", text(amount)))
    });
    let told: Vec<String> = own.chain(of_models).collect();
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

/// Whether a key or a grant is good by itself, in a cell.
pub fn credential_cell(record: &Value) -> String {
    standing(record, SystemClock::new().now()).to_owned()
}

/// Whether a key or a grant is good at a moment.
fn standing(record: &Value, at: Timestamp) -> &'static str {
    let end = record["expires_at"].as_str().and_then(Timestamp::parse);
    if record["revoked"] == true {
        "revoked"
    } else if end.is_some_and(|end| end <= at) {
        "expired"
    } else {
        "active"
    }
}

/// Models that a key or a grant is narrowed to, in a cell.
pub fn models_cell(models: &Value) -> String {
    match models.as_array().map(Vec::as_slice) {
        None => "all".to_owned(),
        Some([]) => "none".to_owned(),
        Some(models) => models.iter().map(text).collect::<Vec<_>>().join(" "),
    }
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
mod tests;
