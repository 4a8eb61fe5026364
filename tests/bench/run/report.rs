//! The report: a table for people, JSON for programs.

mod cluster;

use std::collections::BTreeMap;

use serde_json::json;

use crate::case::CASES;
use crate::kind::Kind;
use crate::measure::Measurement;
use crate::results::{self, Results};
use crate::target::{Judged, Limit, Verdict};

/// Prints all figures and the targets to standard output.
#[expect(clippy::print_stdout, reason = "the result of a command line program")]
pub(crate) fn print(results: &Results, targets: &[Judged], pinned: bool) {
    if !pinned {
        println!("no pinning on this machine: figures are rough");
    }
    println!("{}", header());
    for case in &CASES {
        for kind in Kind::ALL {
            if let Some(line) = line(results, case.name, kind) {
                println!("{line}");
            }
        }
    }
    for (kind, kib) in &results.rss_idle_kib {
        println!("memory after start {kind:<8} {:>7.1} MiB", kib / 1_024.0);
    }
    for idle in &results.idle {
        let measured = &idle.measurement;
        println!(
            "{} of {} idle streams {:<8} {:>7.1} MiB (before {:.1})",
            measured.open,
            idle.wanted,
            idle.system,
            measured.rss_kib / 1_024.0,
            measured.rss_before_kib / 1_024.0
        );
    }
    for (name, cpu_us) in threads(results) {
        println!("waybill c16, thread {name:<16} {cpu_us:>7.1} us");
    }
    for line in cluster::lines(results) {
        println!("{line}");
    }
    for target in targets {
        println!("{}", judged_line(target));
    }
}

/// Names of the columns after case and system.
const COLUMNS: [&str; 13] = [
    "per s", "CPU us", "no books", "x nginx", "x bare", "p50 us", "p99 us", "+p50", "+p99", "first50",
    "first99", "RSS MiB", "errors",
];

fn header() -> String {
    table_line("case", "system", &COLUMNS.map(str::to_owned))
}

fn table_line(case: &str, system: &str, cells: &[String]) -> String {
    let start = format!("{case:<6} {system:<8}");
    cells.iter().fold(start, |line, cell| format!("{line} {cell:>8}"))
}

/// One system in one case; nothing if it was not measured.
fn line(results: &Results, case: &str, kind: Kind) -> Option<String> {
    let show = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let figure = |quantity: fn(&Measurement) -> f64| results.median(case, kind, quantity);
    // Work and memory are those of a proxy, times to the first byte those of a stream; elsewhere they are zero.
    let used = |quantity: fn(&Measurement) -> f64| figure(quantity).filter(|value| *value > 0.0);
    let ratio = |base| {
        results
            .ratio(case, (kind, base), results::path_cpu_us)
            .filter(|value| *value > 0.0)
    };
    let added = |quantity: fn(&Measurement) -> f64| {
        results
            .added(case, (kind, Kind::Direct), quantity)
            .filter(|_| kind != Kind::Direct)
    };
    let cells = [
        show(Some(figure(results::rate)?), 0),
        show(used(results::cpu_us), 1),
        show(used(results::path_cpu_us), 1),
        show(ratio(Kind::Nginx), 2),
        show(ratio(Kind::Bare), 2),
        show(figure(results::latency_p50), 0),
        show(figure(results::latency_p99), 0),
        show(added(results::latency_p50), 0),
        show(added(results::latency_p99), 0),
        show(used(results::first_byte_p50), 0),
        show(used(results::first_byte_p99), 0),
        show(used(results::rss_kib).map(|kib| kib / 1_024.0), 1),
        results.errors_in(case, kind).to_string(),
    ];
    Some(table_line(case, &kind.to_string(), &cells))
}

fn judged_line(target: &Judged) -> String {
    let verdict = match target.verdict {
        Verdict::Pass => "pass",
        Verdict::Miss => "MISS",
        Verdict::Alarm => "ALARM",
        Verdict::Unmeasured => "-",
        Verdict::Informational => "info",
    };
    let value = target.value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let limit = match target.limit {
        Limit::AtMost(limit) => format!("<= {limit}"),
        Limit::AtLeast(limit) => format!(">= {limit}"),
        Limit::Informational => String::new(),
    };
    let line = format!("{verdict:<5} {:<58} {value:>9} {limit:>8}", target.name);
    line.trim_end().to_owned()
}

/// CPU per plain call by thread of Waybill, averaged over rounds.
fn threads(results: &Results) -> BTreeMap<&str, f64> {
    let windows: Vec<&Measurement> = results
        .rows
        .iter()
        .filter(|row| row.case == "c16" && row.system == Kind::Waybill)
        .map(|row| &row.measurement)
        .collect();
    let count = f64::from(u32::try_from(windows.len()).unwrap_or(u32::MAX)).max(1.0);
    let mut threads = BTreeMap::new();
    for (name, cpu_us) in windows
        .iter()
        .flat_map(|window| &window.processes)
        .flat_map(|process| &process.threads)
    {
        *threads.entry(name.as_str()).or_default() += cpu_us / count;
    }
    threads
}

/// Everything measured and judged, as one JSON document.
pub(crate) fn json(results: &Results, targets: &[Judged], pinned: bool) -> serde_json::Result<String> {
    let mut medians = Vec::new();
    for case in &CASES {
        for kind in Kind::ALL {
            let figure = |quantity: fn(&Measurement) -> f64| results.median(case.name, kind, quantity);
            let Some(requests_per_second) = figure(results::rate) else {
                continue;
            };
            medians.push(json!({
                "case": case.name,
                "system": kind,
                "requests_per_second": requests_per_second,
                "cpu_us": figure(results::cpu_us),
                "path_cpu_us": figure(results::path_cpu_us),
                "path_cpu_by_nginx": results.ratio(case.name, (kind, Kind::Nginx), results::path_cpu_us),
                "path_cpu_by_bare": results.ratio(case.name, (kind, Kind::Bare), results::path_cpu_us),
                "latency_p50_us": figure(results::latency_p50),
                "latency_p99_us": figure(results::latency_p99),
                "added_p50_us": results.added(case.name, (kind, Kind::Direct), results::latency_p50),
                "added_p99_us": results.added(case.name, (kind, Kind::Direct), results::latency_p99),
                "first_byte_p50_us": figure(results::first_byte_p50),
                "first_byte_p99_us": figure(results::first_byte_p99),
                "rss_kib": figure(results::rss_kib),
            }));
        }
    }
    serde_json::to_string_pretty(&json!({
        "pinned": pinned,
        "targets": targets,
        "medians": medians,
        "rss_idle_kib": results.rss_idle_kib,
        "idle_streams": results.idle,
        "waybill_c16_threads_us": threads(results),
        "bus": cluster::bus_json(results),
        "ledger_postgres": cluster::ledger_json(results),
        "windows": results.rows,
    }))
}
