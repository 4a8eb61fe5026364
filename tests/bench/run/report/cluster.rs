//! What the report says of clusters: what the bus adds to a call, whose work it is, and how fast the ledger is.

use serde_json::{Value, json};

use crate::case::{CASES, Case};
use crate::kind::Kind;
use crate::ledger::Booked;
use crate::measure::Measurement;
use crate::results::{self, Results};

/// A figure of each of the processes of a system, in the order of [`Kind::parts`].
const CPU_AT: [fn(&Measurement) -> f64; 3] = [
    results::cpu_us_at::<0>,
    results::cpu_us_at::<1>,
    results::cpu_us_at::<2>,
];

/// Lines of the printed report; none for what was not measured.
pub(super) fn lines(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = CASES
        .iter()
        .filter_map(|case| added_line(results, case))
        .collect();
    for kind in [Kind::Together, Kind::Bus] {
        lines.extend(CASES.iter().filter_map(|case| cpu_line(results, case, kind)));
    }
    lines.extend(ledger_line(results));
    lines
}

/// The median over rounds of what a call over the bus takes more than one within a node.
fn added(results: &Results, case: &Case, quantity: fn(&Measurement) -> f64) -> Option<f64> {
    results.added(case.name, (Kind::Bus, Kind::Together), quantity)
}

fn added_line(results: &Results, case: &Case) -> Option<String> {
    let p50 = added(results, case, results::latency_p50)?;
    let p99 = added(results, case, results::latency_p99)?;
    let first = added(results, case, results::first_byte_p50).filter(|_| case.streaming);
    let first = first.map_or_else(String::new, |first| format!(", first byte p50 {first:+.0} us"));
    Some(format!(
        "bus over together {:<4} p50 {p50:+.0} us, p99 {p99:+.0} us{first}",
        case.name
    ))
}

/// CPU per call of each process.
fn parts(results: &Results, case: &Case, kind: Kind) -> Option<Vec<(&'static str, f64)>> {
    let names = kind.parts().iter().copied();
    let figures = CPU_AT.map(|quantity| results.median(case.name, kind, quantity));
    names
        .zip(figures)
        .map(|(name, figure)| Some((name, figure?)))
        .collect()
}

fn cpu_line(results: &Results, case: &Case, kind: Kind) -> Option<String> {
    let parts = parts(results, case, kind)?;
    let told: Vec<String> = parts
        .iter()
        .map(|(name, cpu_us)| format!("{name} {cpu_us:.1}"))
        .collect();
    Some(format!(
        "CPU us per call {kind:<8} {:<4} {}",
        case.name,
        told.join(", ")
    ))
}

fn ledger_line(results: &Results) -> Option<String> {
    let figure = |quantity: fn(&Booked) -> f64| results.booked(quantity);
    Some(format!(
        "ledger on PostgreSQL: {:.0} events/s, {} events in {:.1} s from the start; CPU us per event: ledger {:.1}, \
         postgres {:.1}, nats {:.1}",
        figure(|booked| booked.events_per_second)?,
        results.booked.first()?.events,
        figure(|booked| booked.seconds_from_start)?,
        figure(|booked| booked.ledger_cpu_us)?,
        figure(|booked| booked.postgres_cpu_us)?,
        figure(|booked| booked.nats_cpu_us)?,
    ))
}

/// The same of the bus for programs, a case each.
pub(super) fn bus_json(results: &Results) -> Vec<Value> {
    let cases = CASES.iter().filter(|case| case.clustered);
    let told = cases.filter_map(|case| {
        let by_part = |kind| -> Option<serde_json::Map<String, Value>> {
            let parts = parts(results, case, kind)?;
            let named = parts
                .into_iter()
                .map(|(name, cpu_us)| (name.to_owned(), json!(cpu_us)));
            Some(named.collect())
        };
        let (apart, together) = (by_part(Kind::Bus), by_part(Kind::Together));
        (apart.is_some() || together.is_some()).then(|| {
            json!({
                "case": case.name,
                "added_p50_us": added(results, case, results::latency_p50),
                "added_p99_us": added(results, case, results::latency_p99),
                "added_first_byte_p50_us":
                    added(results, case, results::first_byte_p50).filter(|_| case.streaming),
                "cpu_us": apart,
                "together_cpu_us": together,
            })
        })
    });
    told.collect()
}

/// The same of the ledger; null if it was not measured.
pub(super) fn ledger_json(results: &Results) -> Option<Value> {
    let events_per_second = results.booked(|booked| booked.events_per_second)?;
    Some(json!({"events_per_second": events_per_second, "rounds": results.booked}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Percentiles, Process};
    use crate::results::Row;

    fn row(system: Kind, p50: f64, cpu_us: &[f64]) -> Row {
        let process = |cpu_us: &f64| Process {
            cpu_us: *cpu_us,
            ..Process::default()
        };
        let measurement = Measurement {
            requests: 1,
            latency_us: Percentiles {
                p50,
                p90: p50,
                p99: 2.0 * p50,
            },
            processes: cpu_us.iter().map(process).collect(),
            ..Measurement::default()
        };
        Row {
            round: 0,
            case: "c1",
            system,
            measurement,
        }
    }

    #[test]
    fn the_bus_is_told_by_what_it_adds_and_whose_work_it_is() {
        let mut results = Results::default();
        results.rows.push(row(Kind::Together, 100.0, &[60.0, 5.0]));
        results.rows.push(row(Kind::Bus, 350.0, &[70.0, 80.0, 40.0]));

        assert_eq!(
            lines(&results),
            [
                "bus over together c1   p50 +250 us, p99 +500 us",
                "CPU us per call together c1   node 60.0, nats 5.0",
                "CPU us per call bus      c1   gateway 70.0, router 80.0, nats 40.0",
            ]
        );
        assert_eq!(bus_json(&results)[0]["cpu_us"]["router"], 80.0);
    }

    #[test]
    fn the_ledger_is_told_by_its_median() {
        let booked = |events_per_second| Booked {
            events: 7,
            events_per_second,
            ..Booked::default()
        };
        let mut results = Results::default();
        assert!(lines(&results).is_empty());
        assert_eq!(ledger_json(&results), None);

        results.booked = vec![booked(9_000.0), booked(1_000.0), booked(8_000.0)];

        assert!(lines(&results)[0].starts_with("ledger on PostgreSQL: 8000 events/s, 7 events"));
    }
}
