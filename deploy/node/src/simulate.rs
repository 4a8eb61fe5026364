//! `waybill simulate`: policies compared on mock engines, recorded requests decided again, and traces that are made up.
//! Nothing of a running node is needed or touched.

mod drawing;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use router_worker::simulate::generate::{Shape, trace};
use router_worker::simulate::replay::{Policy, Replay, Replayed};
use router_worker::simulate::report::Report;
use router_worker::simulate::scenario::{Scenario, Wrong};
use router_worker::simulate::trace::Trace;
use schemas::balance::Algorithm;
use serde_json::{Value, json};

use crate::UsageError;
use crate::records::{Column, printed};
use crate::yaml::{Document, Problem};

/// Largest trace, in bytes.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub enum SimulateAction {
    /// Compare policies on mock engines, or decide recorded requests again.
    Routing(Routing),
    /// Make up a trace of conversations and print it.
    Trace(Making),
}

/// A comparison, or a replay.
#[derive(Debug, Args)]
pub struct Routing {
    /// The scenario, YAML.
    #[arg(required_unless_present = "replay", conflicts_with = "replay")]
    pub scenario: Option<PathBuf>,
    /// Another trace than the scenario's.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub trace: Option<PathBuf>,
    /// Another seed than the scenario's.
    #[arg(long, value_name = "NUMBER", conflicts_with = "replay")]
    pub seed: Option<u64>,
    /// Write a drawing of the outcome, SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub svg: Option<PathBuf>,
    /// Recorded requests, one a line: events, or answers of `GET /api/v1/logs/{id}` as an operator sees them.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Decide them by this algorithm.
    #[arg(long, value_name = "WORD", requires = "replay")]
    pub algorithm: Option<String>,
    /// Decide them without looking for sessions.
    #[arg(long, requires = "replay")]
    pub without_sessions: bool,
    /// JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// What a made-up trace is like. Means are those of geometric draws.
#[derive(Debug, Args)]
pub struct Making {
    /// What luck is drawn from.
    #[arg(long, default_value_t = Shape::default().seed)]
    pub seed: u64,
    /// Conversations.
    #[arg(long, default_value_t = Shape::default().sessions)]
    pub sessions: u64,
    /// Milliseconds from the start of one to that of the next, in the mean.
    #[arg(long, default_value_t = Shape::default().gap_ms)]
    pub gap_ms: u64,
    /// Turns of one, in the mean.
    #[arg(long, default_value_t = Shape::default().turns)]
    pub turns: u64,
    /// Different instructions.
    #[arg(long, default_value_t = Shape::default().instructions)]
    pub instructions: u64,
    /// Blocks of instructions.
    #[arg(long, default_value_t = Shape::default().instruction_blocks)]
    pub instruction_blocks: u64,
    /// Tokens that a user says in a turn, in the mean.
    #[arg(long, default_value_t = Shape::default().user_tokens)]
    pub user_tokens: u64,
    /// Tokens of an answer, in the mean.
    #[arg(long, default_value_t = Shape::default().output_tokens)]
    pub output_tokens: u64,
    /// Milliseconds from an answer to the next turn, in the mean.
    #[arg(long, default_value_t = Shape::default().think_ms)]
    pub think_ms: u64,
    /// Tokens of a block.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub block_tokens: u64,
}

impl Making {
    const fn shape(&self) -> Shape {
        Shape {
            seed: self.seed,
            sessions: self.sessions,
            gap_ms: self.gap_ms,
            turns: self.turns,
            instructions: self.instructions,
            instruction_blocks: self.instruction_blocks,
            user_tokens: self.user_tokens,
            output_tokens: self.output_tokens,
            think_ms: self.think_ms,
        }
    }
}

/// Carries it out and returns what to print.
pub fn run(action: &SimulateAction) -> anyhow::Result<String> {
    match action {
        SimulateAction::Trace(making) => made(making),
        SimulateAction::Routing(routing) => match (&routing.scenario, &routing.replay) {
            (Some(scenario), None) => compared(scenario, routing),
            (None, Some(events)) => replayed(events, routing),
            _ => Err(UsageError("name a scenario, or events with --replay".to_owned()).into()),
        },
    }
}

fn made(making: &Making) -> anyhow::Result<String> {
    let shape = making.shape();
    if let Some(wrong) = shape.wrong() {
        let key = wrong.path.rsplit('.').next().unwrap_or_default();
        let flag = key.replace('_', "-");
        return Err(UsageError(format!("--{flag} {}", wrong.message)).into());
    }
    Ok(trace(&shape, making.block_tokens).written()?)
}

fn compared(file: &Path, routing: &Routing) -> anyhow::Result<String> {
    let scenario = scenario(file, routing)?;
    let requests = match (&scenario.trace.file, &scenario.trace.generate) {
        (None, Some(shape)) => trace(shape, scenario.trace.block_tokens),
        (Some(named), _) => read_trace(&beside(file, named), scenario.trace.block_tokens)?,
        (None, None) => Trace::default(),
    };
    let report =
        router_worker::simulate::run(&scenario, &requests).map_err(|error| UsageError(error.to_string()))?;
    if let Some(svg) = &routing.svg {
        let drawing = drawing::draw(&report);
        fs::write(svg, drawing).with_context(|| format!("cannot write {}", svg.display()))?;
    }
    if routing.json {
        return Ok(format!("{:#}\n", json!(report)));
    }
    Ok(table(&report))
}

/// The scenario with what was said beside it.
fn scenario(file: &Path, routing: &Routing) -> anyhow::Result<Scenario> {
    let name = file.display().to_string();
    let text =
        fs::read_to_string(file).map_err(|error| UsageError(format!("cannot read {name}: {error}")))?;
    let document = Document::verbatim(&name, &text)?;
    let mut scenario: Scenario = document.read()?;
    if let Some(trace) = &routing.trace {
        // Told from where the command is given, not from where the scenario lies.
        scenario.trace.file = Some(std::path::absolute(trace)?);
        scenario.trace.generate = None;
    }
    scenario.seed = routing.seed.unwrap_or(scenario.seed);
    let told = |wrong: Wrong| -> Problem { document.problem(&wrong.path, wrong.message, wrong.remedy) };
    match scenario.wrong().map(told) {
        Some(problem) => Err(problem.into()),
        None => Ok(scenario),
    }
}

fn beside(file: &Path, named: &Path) -> PathBuf {
    file.parent()
        .map_or_else(|| named.to_owned(), |folder| folder.join(named))
}

fn read_trace(file: &Path, block_tokens: u64) -> anyhow::Result<Trace> {
    let name = file.display();
    let cannot = |error: std::io::Error| UsageError(format!("cannot read {name}: {error}"));
    let bytes = fs::metadata(file).map_err(cannot)?.len();
    if bytes > TRACE_BYTES_MAX {
        return Err(UsageError(format!("{name} is larger than {TRACE_BYTES_MAX} bytes")).into());
    }
    let text = fs::read_to_string(file).map_err(cannot)?;
    let trace = Trace::parse(&text, block_tokens);
    Ok(trace.map_err(|error| UsageError(format!("{name}: {error}")))?)
}

fn table(report: &Report) -> String {
    const COLUMNS: [Column; 10] = [
        ("POLICY", |one| text(&one["policy"])),
        ("TTFT MEAN", |one| ms(&one["ttft_ms"]["mean"])),
        ("P50", |one| ms(&one["ttft_ms"]["p50"])),
        ("P95", |one| ms(&one["ttft_ms"]["p95"])),
        ("P99", |one| ms(&one["ttft_ms"]["p99"])),
        ("GOOD", |one| percent(&one["good_share"])),
        ("GOOD/S", |one| decimals(&one["goodput_per_second"], 2)),
        ("CACHED", |one| percent(&one["cached_share"])),
        ("OF IDEAL", |one| percent(&one["cached_of_ideal"])),
        ("COST USD", |one| text(&one["cost_usd"])),
    ];
    let rows: Vec<Value> = report.policies.iter().map(|outcome| json!(outcome)).collect();
    format!(
        "{} requests, {} tokens of prompts; good: first token within {} ms, the others within {} ms each\n{}",
        report.requests,
        report.prompt_tokens,
        report.slo_ttft_ms,
        report.slo_token_ms,
        printed(&COLUMNS, &rows, false)
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn decimals(value: &Value, places: usize) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |number| format!("{number:.places$}"))
}

fn ms(value: &Value) -> String {
    format!("{} ms", decimals(value, 0))
}

fn percent(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn replayed(file: &Path, routing: &Routing) -> anyhow::Result<String> {
    let algorithm = routing.algorithm.as_deref().map(|word| {
        Algorithm::parse(word)
            .ok_or_else(|| UsageError(format!("--algorithm has to be one of {}", Algorithm::words())))
    });
    let mut replay = Replay::new(Policy {
        algorithm: algorithm.transpose()?,
        without_sessions: routing.without_sessions,
    });
    let name = file.display();
    let cannot = |error: std::io::Error| UsageError(format!("cannot read {name}: {error}"));
    for line in BufReader::new(fs::File::open(file).map_err(cannot)?).lines() {
        let read = replay.line(&line.map_err(cannot)?);
        read.map_err(|error| UsageError(format!("{name}: {error}")))?;
    }
    let replayed = replay.end();
    if routing.json {
        return Ok(format!("{:#}\n", json!(replayed)));
    }
    Ok(table_of_replay(&replayed))
}

fn table_of_replay(replayed: &Replayed) -> String {
    const COLUMNS: [Column; 5] = [
        ("BACKEND", |one| text(&one["backend"])),
        ("REQUESTS", |one| one["requests"].to_string()),
        ("THEN", |one| one["requests_then"].to_string()),
        ("TOKENS", |one| one["tokens"].to_string()),
        ("THEN", |one| one["tokens_then"].to_string()),
    ];
    let rows = replayed.backends.iter().map(|(backend, moved)| {
        let mut row = json!(moved);
        row["backend"] = Value::from(backend.as_str());
        row
    });
    let rows: Vec<Value> = rows.collect();
    let mut told = format!(
        "{} requests, {} of them with a choice: {} would have gone elsewhere\n",
        replayed.lines, replayed.decisions, replayed.differ
    );
    if replayed.as_recorded < replayed.decisions {
        // Writing to a String cannot fail.
        let _ = writeln!(
            told,
            "{} do not come out as recorded even where nothing is changed: their events are not whole",
            replayed.decisions - replayed.as_recorded
        );
    }
    if replayed.incomplete > 0 {
        let _ = writeln!(
            told,
            "of {} something is not recorded that the policy looks at: it decided without",
            replayed.incomplete
        );
    }
    told + &printed(&COLUMNS, &rows, false)
}

#[cfg(test)]
mod tests;
