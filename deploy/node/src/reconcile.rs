//! `waybill reconcile`: a provider's bill beside the books, read from the node that runs here.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use schemas::money::NanoUsd;
use schemas::query::Row;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::UsageError;
use crate::command_line::{Flags, Output};
use crate::config::Config;
use crate::management::{OPERATOR, RunningNode};
use crate::records::{self, Column, printed, text};

pub mod compare;
pub mod file;

use compare::{Booked, Figures, Report};
use file::{Lines, Mapping, is_day};

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The words of the command.
#[derive(Debug, Args)]
pub struct Asked {
    /// The provider's export: CSV whose first line has the names of the columns.
    pub file: PathBuf,
    /// Whose it is, as rows have it.
    #[arg(long)]
    pub provider: String,
    /// What the columns are, separated by commas: `request_id`, or `day` and `model`; and `input`, `output`, `cost`. Columns
    /// with + between them are added up.
    #[arg(long, value_name = "FIELD=COLUMN", value_delimiter = ',', required = true)]
    pub map: Vec<String>,
    /// The first UTC day, such as 2026-12-01.
    #[arg(long, value_name = "DAY")]
    pub from: String,
    /// The UTC day after the last.
    #[arg(long, value_name = "DAY")]
    pub to: String,
    /// By how many US dollars the cost of each request, or of each model and day, may differ.
    #[arg(long, value_name = "USD", default_value = "0")]
    pub tolerance: String,
}

/// The two are not equal. What is different has been printed.
#[derive(Debug, thiserror::Error)]
#[error("the books and the file are not equal")]
pub struct Unequal;

/// Compares; what to print, and whether both are equal.
pub async fn run(
    asked: &Asked,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<(String, Result<(), Unequal>)> {
    let mapping = Mapping::parse(&asked.map)?;
    let tolerance = tolerance(&asked.tolerance)?;
    for (flag, day) in [("--from", &asked.from), ("--to", &asked.to)] {
        if !is_day(day) {
            return Err(UsageError(format!("{flag} {day} is no day, such as 2026-12-01")).into());
        }
    }
    if asked.from >= asked.to {
        return Err(UsageError(format!("--to {} is not after --from {}", asked.to, asked.from)).into());
    }
    let days = (asked.from.as_str(), asked.to.as_str());
    let Lines { lines, outside } = file::read(opened(&asked.file)?, &mapping, days)?;
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let booked = booked(&node, asked).await?;
    let report = compare::compare(&lines, &booked, mapping.figures(), tolerance)
        .map_err(|problem| UsageError(problem.to_string()))?;
    let equal = if report.is_equal() { Ok(()) } else { Err(Unequal) };
    Ok((told(&report, outside, output.json), equal))
}

fn tolerance(text: &str) -> Result<u64, UsageError> {
    let nano = NanoUsd::parse_usd(text);
    nano.map(|nano| nano.0.unsigned_abs())
        .map_err(|problem| UsageError(format!("--tolerance {text}: {problem}")))
}

fn opened(path: &Path) -> Result<File, UsageError> {
    let cannot = |error: std::io::Error| UsageError(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.len() > FILE_BYTES_MAX {
        return Err(UsageError(format!(
            "{} is larger than {FILE_BYTES_MAX} bytes",
            path.display()
        )));
    }
    Ok(file)
}

/// What the books have of the provider in these days.
async fn booked(node: &RunningNode, asked: &Asked) -> anyhow::Result<Vec<Booked>> {
    let query = format!("&from={}T00:00:00Z&to={}T00:00:00Z", asked.from, asked.to);
    let mut booked = Vec::new();
    let take = |record: Value| {
        let row = Row::deserialize(record)?;
        if row.settled.provider.as_deref() == Some(&*asked.provider) {
            booked.push(of(row)?);
        }
        Ok(())
    };
    records::each(node, "/api/v1/logs", &query, take).await?;
    Ok(booked)
}

/// What is compared of a row. What a call cost is what its provider told; where it told nothing, what the call costs at the
/// prices of the row.
fn of(row: Row) -> anyhow::Result<Booked> {
    let settled = row.settled;
    let input = settled.input_tokens + settled.cached_tokens + settled.cache_write_tokens;
    let at_prices = settled.cost_nano_usd.0.checked_add(settled.absorbed_nano_usd.0);
    let told = settled.upstream_cost_nano_usd.map(|cost| cost.0);
    let model = settled
        .served_model
        .unwrap_or_else(|| settled.model.as_str().into());
    Ok(Booked {
        request_id: settled.request_id.to_string(),
        client_request_id: settled.client_request_id.map(|id| id.to_string()),
        day: settled.waybill_day.to_string(),
        model: model.to_string(),
        figures: Figures {
            input_tokens: Some(i64::try_from(input)?),
            output_tokens: Some(i64::try_from(settled.output_tokens)?),
            cost_nano_usd: Some(told.or(at_prices).ok_or(compare::TooLarge)?),
        },
    })
}

fn told(report: &Report, outside: u64, as_json: bool) -> String {
    if as_json {
        let mut shown = json!(report);
        shown["outside"] = json!(outside);
        shown["equal"] = json!(report.is_equal());
        return format!("{shown:#}\n");
    }
    let mut lines = Vec::new();
    for (what, items) in [
        ("differs", &report.differing),
        ("missing in books", &report.missing_in_books),
        ("missing in file", &report.missing_in_file),
    ] {
        for item in items {
            let mut line = json!(item);
            line["what"] = json!(what);
            lines.push(line);
        }
    }
    let mut sums = json!(report.sums);
    sums["what"] = json!("sum");
    lines.push(sums);
    let ends = format!(
        "equal: {}, differing: {}, missing in books: {}, missing in file: {}, lines of other days: {outside}\n",
        report.matched,
        report.differing.len(),
        report.missing_in_books.len(),
        report.missing_in_file.len(),
    );
    printed(&COLUMNS, &lines, false) + &ends
}

const COLUMNS: [Column; 6] = [
    ("WHAT", |line| text(&line["what"])),
    ("OF", |line| match line["request_id"].as_str() {
        Some(id) => id.to_owned(),
        None => format!("{} {}", text(&line["day"]), text(&line["model"])),
    }),
    ("INPUT", |line| sides(line, "input_tokens")),
    ("OUTPUT", |line| sides(line, "output_tokens")),
    ("NANO USD", |line| sides(line, "cost_nano_usd")),
    ("THEY BILL MORE BY", |line| {
        text(&line["difference"]["cost_nano_usd"])
    }),
];

/// A figure of the books and the file's.
fn sides(line: &Value, figure: &str) -> String {
    format!(
        "{} / {}",
        text(&line["ours"][figure]),
        text(&line["theirs"][figure])
    )
}
