//! `waybill verify`: the seals of days, computed again from the books. It opens the books itself, beside a node that runs
//! or without one, and changes nothing.

use std::path::Path;

use bus::clock::{Clock as _, SystemClock};
use clap::Args;
use ledger::sealing::verify::{self, Report, Unsealed};
use ledger::store::sqlite;
use schemas::time::Timestamp;
use serde_json::{Value, json};

use crate::command_line::Output;
use crate::config::{Config, cluster};
use crate::reconcile::file::is_day;
use crate::records::{Column, printed, text};
use crate::{UsageError, adapters};

/// The words of the command.
#[derive(Debug, Args)]
pub struct Asked {
    /// Seals of this tenant alone.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Seals of this UTC day alone, such as 2026-12-01.
    #[arg(long)]
    pub day: Option<String>,
}

/// The books are not as they were sealed. What was found has been printed.
#[derive(Debug, thiserror::Error)]
#[error("the books are not as they were sealed")]
pub struct Unsound;

/// Verifies; what to print, and whether all is as it was sealed.
pub async fn run(
    asked: &Asked,
    output: &Output,
    config: &Config,
) -> anyhow::Result<(String, Result<(), Unsound>)> {
    let day = match &asked.day {
        Some(day) if is_day(day) => Timestamp::parse(&format!("{day}T00:00:00Z")).map(Timestamp::day),
        Some(day) => return Err(UsageError(format!("--day {day} is no day, such as 2026-12-01")).into()),
        None => None,
    };
    let asked = verify::Asked {
        tenant: asked.tenant.as_deref().map(Into::into),
        day,
    };
    if config.store == cluster::Store::Sqlite {
        there(&config.data_dir)?;
    }
    let store = adapters::open_store(config, &config.data_dir).await?;
    let report = verify::run(&*store, &asked, SystemClock::new().now()).await?;
    let sound = if report.is_sound() { Ok(()) } else { Err(Unsound) };
    Ok((told(&report, output.json), sound))
}

/// Books that are not there are not made.
fn there(data_dir: &Path) -> Result<(), UsageError> {
    let file = data_dir.join(sqlite::FILE_NAME);
    if file.is_file() {
        return Ok(());
    }
    Err(UsageError(format!("there are no books at {}", file.display())))
}

/// What was found, for people or for programs.
fn told(report: &Report, as_json: bool) -> String {
    const COLUMNS: [Column; 4] = [
        ("TENANT", |found| text(&found["tenant"])),
        ("DAY", |found| text(&found["day"])),
        ("FAULT", |found| text(&found["fault"])),
        ("REQUESTS", |found| {
            let requests = found["requests"].as_array().into_iter().flatten();
            requests.map(text).collect::<Vec<_>>().join(", ")
        }),
    ];
    if as_json {
        let mut whole = json!(report);
        whole["sound"] = Value::Bool(report.is_sound());
        return format!("{whole:#}\n");
    }
    let mut told = format!("{} seals of {} rows", report.seals, report.rows);
    told.push_str(if report.is_sound() {
        " are as they were made\n"
    } else {
        ", and not all is as it was sealed\n"
    });
    if !report.faults.is_empty() {
        let faults: Vec<Value> = report.faults.iter().map(|fault| json!(fault)).collect();
        told.push_str(&printed(&COLUMNS, &faults, false));
    }
    let unsealed = |of: &Unsealed| format!("not sealed: {} rows of {} on {}\n", of.rows, of.tenant, of.day);
    told.extend(report.unsealed.iter().map(unsealed));
    told
}
