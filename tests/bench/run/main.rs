//! The benchmark's runner: every system in turn through every case, round by round, then medians, ratios and targets.
//!
//! Systems are the mock itself (`direct`), nginx if installed, the bare proxy and Waybill. Mock and load generator share one
//! core, the system under test has another. What counts are ratios taken within one round; absolute figures hold for one
//! machine and one evening. When these have ended come the nodes of a cluster (`together`, `bus`), then its ledger
//! (`ledger-postgres`); what fails there is told, and the report has the rest.

mod arguments;
mod case;
mod cluster;
mod events;
mod kind;
mod ledger;
mod machine;
#[path = "../measure.rs"]
mod measure;
#[path = "../load/process.rs"]
mod process;
mod report;
mod results;
mod stream;
mod system;
mod target;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::arguments::Arguments;
use crate::case::{Case, Placement};
use crate::cluster::{Nodes, Services};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::process::Watch;
use crate::results::{Idle, Results, Row};
use crate::system::System;

/// How long a system is looked at that should rest, and how often at most: fifteen seconds.
const REST: Duration = Duration::from_millis(100);
const RESTS_MAX: u32 = 150;
/// What a system uses in that time that does nothing, at most, in microseconds.
const REST_CPU_US: f64 = 10_000.0;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let machine = Machine::new(arguments.realtime)?;
    let workplace = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mock = system::start_mock(&machine, workplace.path())?;

    let mut results = Results::default();
    measure_alone(&arguments, &machine, workplace.path(), &mock, &mut results)?;
    let bus = measure_cluster(&arguments, &machine, workplace.path(), &mock, &mut results);
    drop(mock);
    let ledger = measure_ledger(&arguments, &machine, workplace.path(), &mut results);
    let whole = [(Kind::Bus, bus), (Kind::Ledger, ledger)].map(|(kind, outcome)| told(kind, &outcome));

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
    let missed = arguments.strict && !targets.iter().all(|judged| judged.verdict.is_fine());
    Ok(if missed || whole.contains(&false) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Says what went wrong, if anything did.
fn told(kind: Kind, outcome: &anyhow::Result<()>) -> bool {
    if let Err(error) = outcome {
        eprintln!("{kind} could not be measured: {error:#}");
    }
    outcome.is_ok()
}

/// Everything about the systems that stand alone.
fn measure_alone(
    arguments: &Arguments,
    machine: &Machine,
    folder: &Path,
    mock: &System,
    results: &mut Results,
) -> anyhow::Result<()> {
    let systems = start(arguments, machine, folder, mock)?;
    for system in systems.iter().filter(|system| system.kind != Kind::Direct) {
        let kib = machine::rss_kib(&system.pids());
        results.rss_idle_kib.insert(system.kind, kib);
    }
    measure_cases(arguments, machine, &systems, mock, results)?;
    measure_idle(arguments, machine, &systems, mock, results)
}

/// The cases of a cluster, by a node that is gateway and router, and by two over the bus.
fn measure_cluster(
    arguments: &Arguments,
    machine: &Machine,
    folder: &Path,
    mock: &System,
    results: &mut Results,
) -> anyhow::Result<()> {
    if let Some(why) = cluster::left_out(arguments, machine) {
        eprintln!("{} left out: {why}", Kind::Bus);
        return Ok(());
    }
    let services = Services::start()?;
    let nodes = Nodes {
        machine,
        services: &services,
        program: arguments.waybill(machine),
        folder: folder.join("cluster"),
    };
    let (systems, _ledger) = cluster::start(arguments, &nodes, mock.address())?;
    measure_cases(arguments, machine, &systems, mock, results)
}

fn measure_ledger(
    arguments: &Arguments,
    machine: &Machine,
    folder: &Path,
    results: &mut Results,
) -> anyhow::Result<()> {
    if let Some(why) = ledger::left_out(arguments, machine) {
        eprintln!("{} left out: {why}", Kind::Ledger);
        return Ok(());
    }
    results.booked = ledger::measure(arguments, machine, folder)?;
    Ok(())
}

/// Starts what was asked for; a system that is not installed is left out with a word about it.
fn start(
    arguments: &Arguments,
    machine: &Machine,
    folder: &Path,
    mock: &System,
) -> anyhow::Result<Vec<System>> {
    let mut systems = Vec::new();
    for kind in Kind::ALONE {
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
            for system in systems.iter().filter(|system| case.is_for(system.kind)) {
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
    rest(system.kind, &pids);
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

/// Waits until what the last window left is done: books are written behind calls, and a case must not pay for another.
fn rest(kind: Kind, pids: &[u32]) {
    for _ in 0..RESTS_MAX {
        let mut watch = Watch::new(pids);
        watch.sample();
        std::thread::sleep(REST);
        watch.sample();
        let cpu_us = watch
            .report(1)
            .iter()
            .fold(0.0, |sum, process| sum + process.cpu_us);
        if cpu_us < REST_CPU_US {
            return;
        }
    }
    eprintln!("{kind} is still busy with what came before");
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
        let streams = arguments.idle_streams.to_string();
        let flags = ["--key", machine::KEY, "--idle-streams", &streams].map(str::to_owned);
        let measurement = machine.load(&system.url, &system.pids(), &flags)?;
        results.idle.push(Idle {
            system: system.kind,
            wanted: arguments.idle_streams,
            measurement,
        });
    }
    mock.configure("stall_after=0")
}
