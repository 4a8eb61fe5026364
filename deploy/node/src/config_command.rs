//! `waybill config`, `waybill export` and `waybill import`: through the management API of the node that runs on the data
//! directory.

use std::io::Read as _;
use std::path::Path;

use reqwest::Method;
use schemas::configuration::shown;
use serde_json::{Value, json};

use crate::UsageError;
use crate::command_line::{ConfigAction, Flags, Output};
use crate::config::Config;
use crate::management::{OPERATOR, RunningNode};
use crate::records::{self, Column, text};
use crate::yaml::Document;

const PATH: &str = "/admin/config";
/// The word for a document that comes from stdin.
const STDIN: &str = "-";
/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

const NODES: [Column; 6] = [
    ("NODE", |node| text(&node["node"])),
    ("CATALOG", |node| text(&node["catalog_revision"])),
    ("FILES", |node| text(&node["configuration"]["set"])),
    ("SINCE", |node| text(&node["configuration"]["since"])),
    ("ERRORS", |node| text(&node["configuration"]["errors"])),
    ("RESTARTS", |node| text(&node["configuration"]["restarts"])),
];

const PROBLEMS: [Column; 4] = [
    ("SEVERITY", |problem| text(&problem["severity"])),
    ("WHERE", |problem| match problem["line"].as_u64() {
        Some(line) => format!("{}:{line}", text(&problem["file"])),
        None => text(&problem["file"]),
    }),
    ("KEY", |problem| match problem["key"].as_str() {
        Some("") | None => "-".to_owned(),
        Some(key) => key.to_owned(),
    }),
    ("WHAT", |problem| {
        format!("{}; {}", text(&problem["message"]), text(&problem["remedy"]))
    }),
];

const REVISIONS: [Column; 6] = [
    ("NUMBER", |revision| text(&revision["number"])),
    ("AT", |revision| text(&revision["at"])),
    ("NODE", |revision| text(&revision["node"])),
    ("WHY", |revision| {
        let why = text(&revision["cause"]["kind"]);
        match revision["cause"]["to"].as_u64() {
            Some(to) => format!("{why} to {to}"),
            None => why,
        }
    }),
    ("CHANGED", |revision| text(&revision["changed"])),
    ("BY", |revision| text(&revision["actor"]["key_name"])),
];

const CHANGES: [Column; 4] = [
    ("KIND", |change| text(&change["kind"])),
    ("ID", |change| text(&change["id"])),
    ("CHANGE", |change| {
        let word = match (change["from"].is_null(), change["to"].is_null()) {
            (true, _) => "made",
            (_, true) => "gone",
            _ => "changed",
        };
        word.to_owned()
    }),
    ("WHAT", differences),
];

/// Carries out an action and returns what to print.
pub async fn run(
    action: ConfigAction,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let as_json = output.json;
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let get = async |path: &str| node.call(Method::GET, &format!("{PATH}{path}"), None).await;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match &action {
        ConfigAction::Show => {
            let standing = get("").await?;
            if as_json {
                return Ok(format!("{standing:#}\n"));
            }
            Ok(records::printed(&NODES, &list(&standing["nodes"]), false))
        }
        ConfigAction::Problems => {
            let problems = get("/problems").await?;
            Ok(records::printed(&PROBLEMS, &list(&problems["data"]), as_json))
        }
        ConfigAction::History => {
            let revisions = records::all(&node, &format!("{PATH}/history"), "").await?;
            Ok(records::printed(&REVISIONS, &revisions, as_json))
        }
        ConfigAction::Diff { from, to } => {
            let found = get(&format!("/diff?from={from}&to={to}")).await?;
            Ok(records::printed(&CHANGES, &list(&found["changes"]), as_json))
        }
        ConfigAction::Rollback { to } => {
            let body = Some(json!({"to": to}));
            let done = node.call(Method::POST, &format!("{PATH}/rollback"), body).await?;
            if as_json {
                return Ok(format!("{done:#}\n"));
            }
            let mut told = format!("{} records were put back", text(&done["changed"]));
            for left in list(&done["left"]) {
                told = format!(
                    "{told}\n{} {} stays as it is: {}",
                    text(&left["kind"]),
                    text(&left["id"]),
                    text(&left["why"])
                );
            }
            Ok(format!("{told}\n{}\n", text(&done["notice"])))
        }
    }
}

/// Prints the catalogue of a running node, as YAML or JSON.
pub async fn export(
    output: Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let document = node.call(Method::GET, &format!("{PATH}/export"), None).await?;
    if output.json {
        return Ok(format!("{document:#}\n"));
    }
    let mut text = String::new();
    yaml(&document, 0, &mut text);
    Ok(text)
}

/// Has a running node take in an exported catalogue.
pub async fn import(
    file: &Path,
    output: Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let mut content = String::new();
    if file == Path::new(STDIN) {
        std::io::stdin()
            .take(DOCUMENT_BYTES_MAX)
            .read_to_string(&mut content)?;
    } else {
        let opened = std::fs::File::open(file)
            .map_err(|problem| UsageError(format!("{} cannot be read: {problem}", file.display())))?;
        let read = opened.take(DOCUMENT_BYTES_MAX).read_to_string(&mut content);
        read.map_err(|problem| UsageError(format!("{} cannot be read: {problem}", file.display())))?;
    }
    // No variables: what was exported is what is meant.
    let name = file.display().to_string();
    let document: Value = Document::verbatim(&name, &content)?.read()?;
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let path = format!("{PATH}/import");
    let done = node.call(Method::POST, &path, Some(document)).await?;
    if output.json {
        return Ok(format!("{done:#}\n"));
    }
    let mut told = format!(
        "{} made, {} changed, {} as they were\n",
        text(&done["made"]),
        text(&done["changed"]),
        text(&done["unchanged"])
    );
    for left in done["left"].as_array().into_iter().flatten() {
        told = format!(
            "{told}{} was left alone: {}\n",
            text(&left["key"]),
            text(&left["why"])
        );
    }
    for key in done["without_credential"].as_array().into_iter().flatten() {
        let (_, endpoint) = shown::named(&text(key), None);
        told = format!(
            "{told}{endpoint} has no credential, which no document holds: waybill endpoints set {endpoint} \
             --credential-from FILE\n"
        );
    }
    Ok(told)
}

/// What is different in a record that was there and still is.
fn differences(change: &Value) -> String {
    let (Some(from), Some(to)) = (change["from"].as_object(), change["to"].as_object()) else {
        return "-".to_owned();
    };
    let names: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let told = names.into_iter().filter_map(|name| {
        let (before, after) = (from.get(name), to.get(name));
        let of = |value: Option<&Value>| value.map_or_else(|| "null".to_owned(), Value::to_string);
        (before != after).then(|| format!("{name}: {} -> {}", of(before), of(after)))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// A value as YAML: lists and mappings over several lines, scalars as in JSON, which is YAML.
fn yaml(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let key = json!(name);
                let plain =
                    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                let key = if plain { name.clone() } else { key.to_string() };
                entry(&format!("{indent}{key}:"), value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                entry(&format!("{indent}-"), item, depth + 1, out);
            }
        }
        scalar => {
            out.push_str(&indent);
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

fn entry(lead: &str, value: &Value, depth: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    out.push_str(lead);
    if is_block {
        out.push('\n');
        yaml(value, depth, out);
    } else {
        out.push(' ');
        out.push_str(&value.to_string());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_as_yaml_reads_back_as_it_was() {
        let document = json!({
            "catalog_revision": 7,
            "records": [
                {"key": "tenant.acme", "record": {"id": "acme", "name": "a: \"b\" ${C}\nd", "limits": {}, "list": []}},
                {"key": "user.acme.61", "record": {"nested": [[1, 2], {"a b": null}], "yes": "no"}},
            ],
        });
        let mut text = String::new();

        yaml(&document, 0, &mut text);

        let read: Value = Document::verbatim("export", &text)
            .and_then(|document| document.read())
            .expect("YAML");
        assert_eq!(read, document, "{text}");
    }

    #[test]
    fn of_a_record_that_stays_each_difference_is_told() {
        let change = json!({"from": {"a": 1, "b": 2}, "to": {"a": 1, "b": 3, "c": "x"}});
        assert_eq!(differences(&change), "b: 2 -> 3, c: null -> \"x\"");
        assert_eq!(differences(&json!({"from": null, "to": {"a": 1}})), "-");
    }
}
