//! `waybill reprice`: has the node that runs here compute what requests cost by prices that were corrected afterwards, page
//! by page. Whatever page it ends at, what was written counts, and the same words again go on where it stopped.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::UsageError;
use crate::command_line::{Flags, Output};
use crate::config::Config;
use crate::management::{OPERATOR, RunningNode};
use crate::reconcile::file::is_day;

/// Largest file of prices, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Where the node is asked.
const PATH: &str = "/api/v1/system/reprice";
/// What pages tell that is added up.
const FIGURES: [&str; 6] = [
    "rows",
    "adjusted",
    "unpriced",
    "before_nano_usd",
    "after_nano_usd",
    "difference_nano_usd",
];

/// The words of the command.
#[derive(Debug, Args)]
pub struct Asked {
    /// The first UTC day, such as 2026-12-01, or a time, such as 2026-12-01T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub from: String,
    /// The UTC day after the last, or the time from which on nothing is repriced.
    #[arg(long, value_name = "TIME")]
    pub to: String,
    /// Requests of this tenant alone.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Requests of this model alone.
    #[arg(long)]
    pub model: Option<String>,
    /// By the prices of this file, and only what they name: a JSON list of model, pricing and, optionally, tenant,
    /// endpoint, `pricing_schedule`, `effective_from`.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Say what would be adjusted, and adjust nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Reprices, and returns what to print.
pub async fn run(
    asked: &Asked,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let mut body = json!({
        "from": time("--from", &asked.from)?,
        "to": time("--to", &asked.to)?,
        "tenant": asked.tenant,
        "model": asked.model,
        "dry_run": asked.dry_run,
    });
    if let Some(file) = &asked.prices {
        body["prices"] = prices(file)?;
    }
    let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
    let mut sums = [0_i64; FIGURES.len()];
    let mut is_current = true;
    loop {
        let page = node.call(Method::POST, PATH, Some(body.clone())).await?;
        for (sum, figure) in sums.iter_mut().zip(FIGURES) {
            *sum = sum.saturating_add(page[figure].as_i64().unwrap_or_default());
        }
        is_current &= page["is_current"] == true;
        if page["next"].is_null() {
            return Ok(told(&sums, (is_current, asked.dry_run), output.json));
        }
        body["after"] = page["next"].clone();
    }
}

/// A day begins at its midnight.
fn time(flag: &str, text: &str) -> Result<String, UsageError> {
    if is_day(text) {
        return Ok(format!("{text}T00:00:00Z"));
    }
    schemas::time::Timestamp::parse(text)
        .map(|time| time.to_string())
        .ok_or_else(|| {
            UsageError(format!(
                "{flag} {text} is neither a day, such as 2026-12-01, nor a time, such as 2026-12-01T08:00:00Z"
            ))
        })
}

fn prices(file: &Path) -> Result<Value, UsageError> {
    let cannot = |error: std::io::Error| UsageError(format!("cannot read {}: {error}", file.display()));
    if std::fs::metadata(file).map_err(cannot)?.len() > FILE_BYTES_MAX {
        return Err(UsageError(format!(
            "{} is larger than {FILE_BYTES_MAX} bytes",
            file.display()
        )));
    }
    let text = std::fs::read(file).map_err(cannot)?;
    let value: Value = serde_json::from_slice(&text)
        .map_err(|problem| UsageError(format!("{} is no JSON: {problem}", file.display())))?;
    if value.is_array() {
        Ok(value)
    } else {
        Err(UsageError(format!(
            "{} is no list of prices: expected [{{\"model\": …, \"pricing\": {{…}}}}, …]",
            file.display()
        )))
    }
}

fn told(sums: &[i64; FIGURES.len()], (is_current, dry_run): (bool, bool), as_json: bool) -> String {
    if as_json {
        let mut shown: serde_json::Map<String, Value> = FIGURES
            .into_iter()
            .zip(sums)
            .map(|(name, sum)| (name.to_owned(), json!(sum)))
            .collect();
        shown.insert("is_current".to_owned(), json!(is_current));
        shown.insert("dry_run".to_owned(), json!(dry_run));
        return format!("{:#}\n", Value::Object(shown));
    }
    let [rows, adjusted, unpriced, before, after, difference] = sums;
    let would = if dry_run { "to be adjusted" } else { "adjusted" };
    let mut told = format!(
        "rows: {rows}, {would}: {adjusted}, without a price: {unpriced}\n\
         nano-dollars before: {before}, now: {after}, difference: {difference}\n"
    );
    if !is_current {
        told.push_str("the books may lack rows of some node yet: say it again later\n");
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_told_by_days_or_by_times() {
        assert_eq!(
            time("--from", "2026-12-01").ok().as_deref(),
            Some("2026-12-01T00:00:00Z")
        );
        assert_eq!(
            time("--to", "2026-12-01T08:00:00+01:00").ok().as_deref(),
            Some("2026-12-01T07:00:00.000000Z")
        );
        let problem = time("--to", "yesterday").expect_err("no time");
        assert!(problem.to_string().starts_with("--to yesterday is neither"));
    }

    #[test]
    fn what_was_adjusted_is_told_in_whole_nano_dollars() {
        let sums = [5, 2, 1, 1_000, 1_003, 3];
        let text = told(&sums, (true, false), false);
        assert_eq!(
            text,
            "rows: 5, adjusted: 2, without a price: 1\nnano-dollars before: 1000, now: 1003, difference: 3\n"
        );
        let text = told(&sums, (false, true), false);
        assert!(text.contains("to be adjusted: 2") && text.ends_with("say it again later\n"));
        let shown: Value = serde_json::from_str(&told(&sums, (true, true), true)).expect("JSON");
        assert_eq!(
            (&shown["after_nano_usd"], &shown["dry_run"]),
            (&json!(1_003), &json!(true))
        );
    }
}
