//! The benchmark's runner: every system in turn through every case, round by round, then medians, ratios and targets.
//!
//! Systems are the mock itself (`direct`), nginx if installed, the bare proxy and Waybill. Mock and load generator share one
//! core, the system under test has another. What counts are ratios taken within one round; absolute figures hold for one
//! machine and one evening.

mod arguments;
mod case;
mod machine;
#[path = "../measure.rs"]
mod measure;
mod report;
mod results;
mod system;
mod target;

use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use crate::arguments::Arguments;
use crate::case::{Case, Placement};
use crate::machine::Machine;
use crate::results::{Idle, Results, Row};
use crate::system::{Kind, System};

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let machine = Machine::new(arguments.realtime)?;
    let workplace = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mock = system::start_mock(&machine, workplace.path())?;
    let systems = start(&arguments, &machine, workplace.path(), &mock)?;

    let mut results = Results::default();
    for system in systems.iter().filter(|system| system.kind != Kind::Direct) {
        results
            .rss_idle_kib
            .insert(system.kind, machine::rss_kib(&system.pids()));
    }
    measure_cases(&arguments, &machine, &systems, &mock, &mut results)?;
    measure_idle(&arguments, &machine, &systems, &mock, &mut results)?;

    let targets = target::judge(&results);
    report::print(&results, &targets, machine.is_pinned());
    if let Some(folder) = arguments.out.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(
        &arguments.out,
        report::json(&results, &targets, machine.is_pinned())?,
    )
    .with_context(|| format!("cannot write {}", arguments.out.display()))?;
    eprintln!("report written to {}", arguments.out.display());
    let failed = arguments.strict
        && targets
            .iter()
            .any(|judged| judged.verdict != target::Verdict::Pass);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Starts what was asked for; a system that is not installed is left out with a word about it.
fn start(
    arguments: &Arguments,
    machine: &Machine,
    folder: &std::path::Path,
    mock: &System,
) -> anyhow::Result<Vec<System>> {
    let mut systems = Vec::new();
    for kind in Kind::ALL {
        if !arguments.wants(kind) {
            continue;
        }
        match system::start(kind, machine, folder, mock, arguments) {
            Ok(Some(system)) => systems.push(system),
            Ok(None) => eprintln!("{kind} is not there: left out"),
            Err(error) => return Err(error.context(format!("cannot start {kind}"))),
        }
    }
    Ok(systems)
}

fn measure_cases(
    arguments: &Arguments,
    machine: &Machine,
    systems: &[System],
    mock: &System,
    results: &mut Results,
) -> anyhow::Result<()> {
    for round in 0..arguments.rounds() {
        for case in case::CASES.iter().filter(|case| arguments.wants_case(case.name)) {
            mock.configure(&format!("delay_ms={}&chunks=32&stall_after=0", case.delay_ms))?;
            for system in systems {
                let measurement = measure(arguments, machine, system, case)
                    .with_context(|| format!("case {} of {}", case.name, system.kind))?;
                eprintln!(
                    "round {} {:<6} {:<8} {:>9.0}/s {:>8.1} us CPU {} errors",
                    round + 1,
                    case.name,
                    system.kind,
                    measurement.requests_per_second,
                    results::cpu_us(&measurement),
                    measurement.errors,
                );
                if let Some(error) = &measurement.first_error {
                    eprintln!("  first error: {error}");
                }
                results.rows.push(Row {
                    round,
                    case: case.name,
                    system: system.kind,
                    measurement,
                });
            }
        }
    }
    Ok(())
}

fn measure(
    arguments: &Arguments,
    machine: &Machine,
    system: &System,
    case: &Case,
) -> anyhow::Result<measure::Measurement> {
    let pids = system.pids();
    if case.placement == Placement::OneCore {
        machine.pin_running(&pids, machine::LOAD_CORE);
    }
    let flags = case.flags(arguments.secs());
    let measurement = machine.load(&system.url, &pids, &flags);
    if case.placement == Placement::OneCore {
        machine.pin_running(&pids, machine::SYSTEM_CORE);
    }
    measurement
}

fn measure_idle(
    arguments: &Arguments,
    machine: &Machine,
    systems: &[System],
    mock: &System,
    results: &mut Results,
) -> anyhow::Result<()> {
    if arguments.idle_streams == 0 {
        return Ok(());
    }
    mock.configure("delay_ms=0&chunks=32&stall_after=1")?;
    for system in systems.iter().filter(|system| system.kind != Kind::Direct) {
        let flags = ["--idle-streams".to_owned(), arguments.idle_streams.to_string()];
        let measurement = machine.load(&system.url, &system.pids(), &flags)?;
        results.idle.push(Idle {
            system: system.kind,
            wanted: arguments.idle_streams,
            measurement,
        });
    }
    mock.configure("stall_after=0")
}
