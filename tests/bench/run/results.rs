//! What was measured, and the medians and ratios taken from it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kind::Kind;
use crate::ledger::Booked;
use crate::measure::{IdleStreams, Measurement};

/// Threads of Waybill whose work is the log's and the ledger's, not the request path's, by the start of their name.
const BOOKS_THREADS: [&str; 3] = ["wb-log", "ledger", "sqlx-sqlite"];

/// One window of load.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Round, from 0.
    pub(crate) round: u32,
    /// Name of the case.
    pub(crate) case: &'static str,
    /// The system under test.
    pub(crate) system: Kind,
    /// What the load generator measured.
    pub(crate) measurement: Measurement,
}

/// Memory of a system that holds idle streams.
#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    /// The system under test.
    pub(crate) system: Kind,
    /// Streams that should be open.
    pub(crate) wanted: u32,
    /// What the load generator measured.
    pub(crate) measurement: IdleStreams,
}

/// Everything measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Every window, in order.
    pub(crate) rows: Vec<Row>,
    /// Memory after the start, in KiB.
    pub(crate) rss_idle_kib: BTreeMap<Kind, f64>,
    /// Idle streams, if asked for.
    pub(crate) idle: Vec<Idle>,
    /// Rounds of the ledger.
    pub(crate) booked: Vec<Booked>,
}

impl Results {
    /// The median over rounds of `quantity`; nothing without a round in which requests ended.
    pub(crate) fn median(&self, case: &str, system: Kind, quantity: fn(&Measurement) -> f64) -> Option<f64> {
        median(self.by_round(case, system, quantity).into_values().collect())
    }

    /// The median over rounds of the quotient of `system` and `base`, each taken within one round.
    pub(crate) fn ratio(
        &self,
        case: &str,
        (system, base): (Kind, Kind),
        quantity: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        self.joined((case, system), (case, base), quantity, quotient)
    }

    /// The median over rounds of what one case is to another of the same system, each taken within one round.
    pub(crate) fn between(
        &self,
        (case, base): (&str, &str),
        system: Kind,
        quantity: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        self.joined((case, system), (base, system), quantity, quotient)
    }

    /// The median over rounds of one case minus another of the same system, each taken within one round.
    pub(crate) fn added_between(
        &self,
        (case, base): (&str, &str),
        system: Kind,
        quantity: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        self.joined((case, system), (base, system), quantity, difference)
    }

    /// The median over rounds of `system` minus `base`, each taken within one round.
    pub(crate) fn added(
        &self,
        case: &str,
        (system, base): (Kind, Kind),
        quantity: fn(&Measurement) -> f64,
    ) -> Option<f64> {
        self.joined((case, system), (case, base), quantity, difference)
    }

    /// The median over rounds of what the ledger did.
    pub(crate) fn booked(&self, quantity: fn(&Booked) -> f64) -> Option<f64> {
        median(self.booked.iter().map(quantity).collect())
    }

    /// All errors of a system.
    pub(crate) fn errors(&self, system: Kind) -> u32 {
        self.rows
            .iter()
            .filter(|row| row.system == system)
            .map(|row| row.measurement.errors)
            .sum()
    }

    /// The errors of a system in one case.
    pub(crate) fn errors_in(&self, case: &str, system: Kind) -> u32 {
        let rows = self
            .rows
            .iter()
            .filter(|row| row.case == case && row.system == system);
        rows.map(|row| row.measurement.errors).sum()
    }

    /// Memory while streams idle, in KiB, if all of them stayed open.
    pub(crate) fn idle_rss_kib(&self, system: Kind) -> Option<f64> {
        let idle = self.idle.iter().find(|idle| idle.system == system)?;
        (idle.measurement.open == idle.wanted).then_some(idle.measurement.rss_kib)
    }

    fn by_round(&self, case: &str, system: Kind, quantity: fn(&Measurement) -> f64) -> BTreeMap<u32, f64> {
        self.rows
            .iter()
            .filter(|row| row.case == case && row.system == system && row.measurement.requests > 0)
            .map(|row| (row.round, quantity(&row.measurement)))
            .collect()
    }

    fn joined(
        &self,
        (case, system): (&str, Kind),
        (base_case, base): (&str, Kind),
        quantity: fn(&Measurement) -> f64,
        join: fn(f64, f64) -> Option<f64>,
    ) -> Option<f64> {
        let left = self.by_round(case, system, quantity);
        let right = self.by_round(base_case, base, quantity);
        median(
            left.iter()
                .filter_map(|(round, value)| join(*value, *right.get(round)?))
                .collect(),
        )
    }
}

fn quotient(left: f64, right: f64) -> Option<f64> {
    (right > 0.0).then(|| left / right)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a way to join two figures, as `quotient` is"
)]
fn difference(left: f64, right: f64) -> Option<f64> {
    Some(left - right)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// CPU per request of all processes of the system, in microseconds.
pub(crate) fn cpu_us(measured: &Measurement) -> f64 {
    measured
        .processes
        .iter()
        .fold(0.0, |sum, process| sum + process.cpu_us)
}

/// CPU per request of the process at this place, in microseconds.
pub(crate) fn cpu_us_at<const PLACE: usize>(measured: &Measurement) -> f64 {
    measured
        .processes
        .get(PLACE)
        .map_or(0.0, |process| process.cpu_us)
}

/// The same of all without the threads of the log and the ledger.
pub(crate) fn path_cpu_us(measured: &Measurement) -> f64 {
    cpu_us(measured) - books_cpu_us(measured)
}

fn books_cpu_us(measured: &Measurement) -> f64 {
    measured
        .processes
        .iter()
        .flat_map(|process| &process.threads)
        .filter(|(name, _)| BOOKS_THREADS.iter().any(|start| name.starts_with(start)))
        .fold(0.0, |sum, (_, cpu_us)| sum + cpu_us)
}

/// Whole answers per second.
pub(crate) fn rate(measured: &Measurement) -> f64 {
    measured.requests_per_second
}

/// The same of what is left of the core without the threads of the log and the ledger, which in a cluster are elsewhere.
pub(crate) fn path_rate(measured: &Measurement) -> f64 {
    let path_us = path_cpu_us(measured);
    if path_us > 0.0 {
        rate(measured) * cpu_us(measured) / path_us
    } else {
        rate(measured)
    }
}

/// Median latency, in microseconds.
pub(crate) fn latency_p50(measured: &Measurement) -> f64 {
    measured.latency_us.p50
}

/// 99th percentile of latency, in microseconds.
pub(crate) fn latency_p99(measured: &Measurement) -> f64 {
    measured.latency_us.p99
}

/// Median time to the first byte of a stream, in microseconds.
pub(crate) fn first_byte_p50(measured: &Measurement) -> f64 {
    measured.first_byte_us.map_or(0.0, |first| first.p50)
}

/// 99th percentile of the time to the first byte of a stream, in microseconds.
pub(crate) fn first_byte_p99(measured: &Measurement) -> f64 {
    measured.first_byte_us.map_or(0.0, |first| first.p99)
}

/// Memory at the end of the window, in KiB.
pub(crate) fn rss_kib(measured: &Measurement) -> f64 {
    measured
        .processes
        .iter()
        .fold(0.0, |sum, process| sum + process.rss_kib)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Process;

    fn row(round: u32, system: Kind, threads: &[(&str, f64)]) -> Row {
        let threads: BTreeMap<String, f64> = threads
            .iter()
            .map(|(name, cpu)| ((*name).to_owned(), *cpu))
            .collect();
        let process = Process {
            cpu_us: threads.values().sum(),
            threads,
            ..Process::default()
        };
        let measurement = Measurement {
            requests: 1,
            processes: vec![process],
            ..Measurement::default()
        };
        Row {
            round,
            case: "c16",
            system,
            measurement,
        }
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let pairs = [(10.0, 20.0), (100.0, 300.0), (1.0, 4.0)];
        let mut results = Results::default();
        for (round, (nginx, waybill)) in (0..).zip(pairs) {
            results.rows.push(row(round, Kind::Nginx, &[("nginx", nginx)]));
            results.rows.push(row(round, Kind::Waybill, &[("node", waybill)]));
        }

        assert!(close(
            results.ratio("c16", (Kind::Waybill, Kind::Nginx), cpu_us),
            3.0
        ));
        assert!(close(
            results.added("c16", (Kind::Waybill, Kind::Nginx), cpu_us),
            10.0
        ));
        assert_eq!(results.ratio("c16", (Kind::Waybill, Kind::Bare), cpu_us), None);
    }

    #[test]
    fn one_case_is_compared_with_another_of_the_same_system() {
        let mut results = Results::default();
        for (round, (base, other)) in (0..).zip([(10.0, 20.0), (100.0, 150.0), (1.0, 4.0)]) {
            results.rows.push(row(round, Kind::Waybill, &[("node", base)]));
            results.rows.push(Row {
                case: "t16",
                ..row(round, Kind::Waybill, &[("node", other)])
            });
        }

        let ratio = |pair| results.between(pair, Kind::Waybill, cpu_us);
        let added = results.added_between(("t16", "c16"), Kind::Waybill, cpu_us);
        assert!(close(added, 10.0));
        assert!(close(ratio(("t16", "c16")), 2.0));
        assert_eq!(ratio(("t16", "s16")), None);
    }

    #[test]
    fn the_books_threads_are_no_part_of_the_request_path() {
        let mut results = Results::default();
        let threads = [
            ("tokio-rt-worker", 20.0),
            ("wb-log", 5.0),
            ("ledger-fold", 7.0),
            ("sqlx-sqlite-wor", 9.0),
        ];
        results.rows.push(row(0, Kind::Waybill, &threads));

        assert!(close(results.median("c16", Kind::Waybill, cpu_us), 41.0));
        assert!(close(results.median("c16", Kind::Waybill, path_cpu_us), 20.0));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert!(close(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
