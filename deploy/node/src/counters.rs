//! `waybill counters`: has the node that runs here compare the counters of quotas with the books.

use reqwest::Method;
use serde_json::Value;

use crate::command_line::{Flags, Output};
use crate::config::Config;
use crate::management::{OPERATOR, RunningNode};
use crate::records::{Column, printed, text};

/// Where the node is asked.
const PATH: &str = "/api/v1/system/counters";

const COLUMNS: [Column; 6] = [
    ("TENANT", |found| text(&found["tenant"])),
    ("SCOPE", |found| text(&found["scope"])),
    ("SUBJECT", |found| text(&found["subject"])),
    ("NAME", |found| text(&found["name"])),
    ("COUNTER", |found| text(&found["counter"])),
    ("BOOKS", |found| text(&found["books"])),
];

/// Counters and books are not equal. What is different has been printed.
#[derive(Debug, thiserror::Error)]
#[error("the counters of quotas and the books are not equal")]
pub struct Different;

/// Compares; what to print, and whether both are equal.
pub async fn run(
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<(String, Result<(), Different>)> {
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let found = node.call(Method::GET, PATH, None).await?;
    let equal = if found["different"] == 0 {
        Ok(())
    } else {
        Err(Different)
    };
    Ok((told(&found, output.json), equal))
}

fn told(found: &Value, as_json: bool) -> String {
    if as_json {
        return format!("{found:#}\n");
    }
    let mut told = format!(
        "counters: {}, different from the books: {}\n",
        text(&found["compared"]),
        text(&found["different"])
    );
    if let Some(differences) = found["differences"].as_array().filter(|found| !found.is_empty()) {
        told.push_str(&printed(&COLUMNS, differences, false));
    }
    if found["is_current"] != true {
        told.push_str("the books may lack what some node answered: say it again later\n");
    }
    told
}
