//! `waybill prices import`: entries of LiteLLM's list for what this deployment serves. An entry is one of a model when
//! it has the model's name, or the name that its upstream knows it by, with or without a provider before it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use bus::clock::{Clock as _, SystemClock};
use reqwest::Method;
use schemas::catalog::pricing::{self, Block};
use schemas::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::UsageError;
use crate::litellm::{self, Prices, Unusable};
use crate::management::RunningNode;
use crate::records::{self, Action as _, Column};

/// Largest list, in bytes.
const LIST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What became of a list.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// Whether it was only tried, and nothing was made.
    is_dry: bool,
    /// The versions of prices, those that would be made where it was only tried.
    made: Vec<Value>,
    /// Models whose price is the list's already.
    unchanged: Vec<String>,
    /// What was left out, and why.
    notes: Vec<String>,
}

/// Amounts as they are typed: `prompt=0.15`.
pub(super) fn amounts(usd: &[String]) -> Result<Map<String, Value>, UsageError> {
    let mut members = Map::new();
    for text in usd {
        let parts = text.split_once('=');
        let (name, amount) =
            parts.ok_or_else(|| UsageError(format!("\"{text}\" is not NAME=USD, such as prompt=0.15")))?;
        members.insert(name.to_owned(), json!(amount));
    }
    Ok(members)
}

/// Makes a version of the price of every model that the list knows and that has another price. All of them are looked at
/// before the first is made.
pub(super) async fn run(
    node: &RunningNode,
    file: &Path,
    from: Option<&str>,
    dry_run: bool,
) -> anyhow::Result<Imported> {
    let from = from.map(moment).transpose()?;
    let list = litellm::read(&read(file)?).map_err(|problem| UsageError(problem.to_string()))?;
    let models = records::all(node, "/api/v1/models", "").await?;
    let path = super::PriceAction::KIND.path;
    let versions = records::all(node, path, "").await?;
    let at = from.unwrap_or_else(|| SystemClock::new().now());
    let mut imported = Imported {
        is_dry: dry_run,
        ..Imported::default()
    };
    let mut wanted = Vec::new();
    for model in &models {
        let name = records::text(&model["id"]);
        let Some(pricing) = priced(&list, model, &mut imported.notes) else {
            continue;
        };
        if in_force(&versions, model, at) == Some(&json!(pricing)) {
            imported.unchanged.push(name);
            continue;
        }
        let mut body = json!({"model": name, "tenant": model["tenant"], "pricing": pricing});
        if let Some(from) = from {
            body["effective_from"] = json!(from);
        }
        wanted.push(body);
    }
    if dry_run {
        imported.made = wanted;
        return Ok(imported);
    }
    let count = wanted.len();
    for body in wanted {
        let name = records::text(&body["model"]);
        let done = imported.made.len();
        let made = node.call(Method::POST, path, Some(body)).await;
        imported.made.push(made.with_context(|| {
            format!("the price of {name} could not be made; {done} of {count} versions were made before it")
        })?);
    }
    Ok(imported)
}

fn read(file: &Path) -> Result<String, UsageError> {
    let told = |problem: String| UsageError(format!("{} {problem}", file.display()));
    let unreadable = |problem: std::io::Error| told(format!("cannot be read: {problem}"));
    let bytes = std::fs::metadata(file).map_err(unreadable)?.len();
    if bytes > LIST_BYTES_MAX {
        return Err(told(format!("is larger than {LIST_BYTES_MAX} bytes")));
    }
    std::fs::read_to_string(file).map_err(unreadable)
}

/// The price that a list has for a model, as it would be written; `None` where it has none that could be, with a note.
fn priced(
    list: &BTreeMap<String, Result<Prices, Unusable>>,
    model: &Value,
    notes: &mut Vec<String>,
) -> Option<Block> {
    let name = records::text(&model["id"]);
    let mut note = |text: String| notes.push(format!("{name}: {text}"));
    let Some((entry, prices)) = entry_of(list, model) else {
        note("the list does not know it".into());
        return None;
    };
    let prices = match prices {
        Ok(prices) => prices,
        Err(problem) => {
            note(format!("{problem} in {entry}"));
            return None;
        }
    };
    if !prices.other.is_empty() {
        let other = prices.other.join(", ");
        note(format!("{other} of {entry} have no place in a price"));
    }
    let amounts = prices.pricing.iter();
    let block: Block = amounts
        .map(|(name, usd)| ((*name).to_owned(), Value::from(usd.as_str())))
        .collect();
    match pricing::read(&block) {
        Ok(Some(price)) => Some(pricing::written(&price)),
        Ok(None) => {
            note(format!("nothing is left of {entry}"));
            None
        }
        Err(problem) => {
            note(format!("{problem} in {entry}"));
            None
        }
    }
}

/// What a model costs at a moment, by the versions of its price at all endpoints; `None` where none holds, or one with
/// other prices at some times of the day.
fn in_force<'v>(versions: &'v [Value], model: &Value, at: Timestamp) -> Option<&'v Value> {
    let moment = |version: &Value, name: &str| version[name].as_str().and_then(Timestamp::parse);
    let of_model = versions.iter().filter(|version| {
        version["model"] == model["id"]
            && version["tenant"] == model["tenant"]
            && version["endpoint"].is_null()
            && moment(version, "effective_from").is_some_and(|from| from <= at)
    });
    let newest =
        of_model.max_by_key(|version| (moment(version, "effective_from"), moment(version, "created_at")))?;
    newest["pricing_schedule"].is_null().then_some(&newest["pricing"])
}

/// A moment as it is typed.
fn moment(text: &str) -> Result<Timestamp, UsageError> {
    Timestamp::parse(text).ok_or_else(|| {
        UsageError(format!(
            "--from {text} is no moment, such as 2027-01-01T00:00:00Z"
        ))
    })
}

/// The entry of a model, and its name.
fn entry_of<'l>(
    list: &'l BTreeMap<String, Result<Prices, Unusable>>,
    model: &Value,
) -> Option<(&'l String, &'l Result<Prices, Unusable>)> {
    let upstream = model["routes"].as_array().into_iter().flatten();
    let upstream = upstream.map(|route| &route["upstream_model"]);
    let names = std::iter::once(&model["id"]).chain(upstream);
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let whole = names.iter().find_map(|name| list.get_key_value(*name));
    whole.or_else(|| {
        let mut bare = names.iter().filter_map(|name| Some(name.rsplit_once('/')?.1));
        bare.find_map(|name| list.get_key_value(name))
    })
}

/// What was made, or would be, as it is printed.
pub(super) fn told(imported: &Imported, columns: &[Column], as_json: bool) -> String {
    let Imported {
        is_dry,
        made,
        unchanged,
        notes,
    } = imported;
    if as_json {
        let name = if *is_dry { "would_make" } else { "made" };
        return format!(
            "{:#}\n",
            json!({name: made, "unchanged": unchanged, "notes": notes})
        );
    }
    let mut text = records::printed(columns, made, false);
    for name in unchanged {
        text.push_str(name);
        text.push_str(": its price is the list's already\n");
    }
    if *is_dry {
        text.push_str("nothing was made: this is what would be\n");
    }
    for note in notes {
        text.push_str(note);
        text.push('\n');
    }
    text
}
