//! `waybill prices import`: entries of LiteLLM's list for what this deployment serves. An entry is one of a model when
//! it has the model's name, or the name that its upstream knows it by, with or without a provider before it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use reqwest::Method;
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

/// Makes a version of the price of every model that the list knows.
pub(super) async fn run(
    node: &RunningNode,
    file: &Path,
    from: Option<&str>,
    dry_run: bool,
) -> anyhow::Result<Imported> {
    let from = from.map(moment).transpose()?;
    let unreadable = || format!("{} cannot be read", file.display());
    let bytes = std::fs::metadata(file).with_context(unreadable)?.len();
    if bytes > LIST_BYTES_MAX {
        return Err(UsageError(format!("{} is too large", file.display())).into());
    }
    let text = std::fs::read_to_string(file).with_context(unreadable)?;
    let list = litellm::read(&text).map_err(|problem| UsageError(problem.to_string()))?;
    let models = records::all(node, "/api/v1/models", "").await?;
    let mut imported = Imported {
        is_dry: dry_run,
        ..Imported::default()
    };
    for model in &models {
        let (name, tenant) = (records::text(&model["id"]), records::text(&model["tenant"]));
        let Some((entry, prices)) = entry_of(&list, model) else {
            imported.notes.push(format!("{name}: the list does not know it"));
            continue;
        };
        let prices = match prices {
            Ok(prices) => prices,
            Err(problem) => {
                imported.notes.push(format!("{name}: {problem} in {entry}"));
                continue;
            }
        };
        if !prices.other.is_empty() {
            let other = prices.other.join(", ");
            imported
                .notes
                .push(format!("{name}: {other} of {entry} have no place in a price"));
        }
        if prices.pricing.is_empty() {
            imported.notes.push(format!("{name}: nothing is left of {entry}"));
            continue;
        }
        let mut body = json!({"model": name, "tenant": tenant, "pricing": prices.pricing});
        if let Some(from) = from {
            body["effective_from"] = json!(from);
        }
        let made = if dry_run {
            body
        } else {
            node.call(Method::POST, super::PriceAction::KIND.path, Some(body))
                .await?
        };
        imported.made.push(made);
    }
    Ok(imported)
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
    let Imported { is_dry, made, notes } = imported;
    if as_json {
        let name = if *is_dry { "would_make" } else { "made" };
        return format!("{:#}\n", json!({name: made, "notes": notes}));
    }
    let mut text = records::printed(columns, made, false);
    if *is_dry {
        text.push_str("nothing was made: this is what would be\n");
    }
    for note in notes {
        text.push_str(note);
        text.push('\n');
    }
    text
}
