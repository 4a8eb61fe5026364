//! The targets of request path and ledger, and how the measured figures stand against them.

use serde::Serialize;

use crate::kind::Kind;
use crate::results::{self, Results};

const KIB_PER_MIB: f64 = 1_024.0;

/// How a figure stands against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Within the limit.
    Pass,
    /// Beyond the limit.
    Miss,
    /// Beyond what is acceptable at all.
    Alarm,
    /// A figure is missing.
    Unmeasured,
    /// There is nothing to meet.
    Informational,
}

impl Verdict {
    /// Whether nothing is amiss.
    pub(crate) fn is_fine(self) -> bool {
        matches!(self, Self::Pass | Self::Informational)
    }
}

/// A target and its figure.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    /// What is measured, unit last.
    pub(crate) name: &'static str,
    /// The figure.
    pub(crate) value: Option<f64>,
    /// The bound, and which side of it is good.
    pub(crate) limit: Limit,
    /// The bound of what is acceptable.
    pub(crate) alarm: Option<f64>,
    /// How it stands.
    pub(crate) verdict: Verdict,
}

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Good is at most this.
    AtMost(f64),
    /// Good is at least this.
    AtLeast(f64),
    /// Nothing is asked for.
    Informational,
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Informational => true,
        }
    }
}

fn verdict(value: Option<f64>, limit: Limit, alarm: Option<f64>) -> Verdict {
    match value {
        None => Verdict::Unmeasured,
        Some(_) if limit == Limit::Informational => Verdict::Informational,
        Some(value) if limit.holds(value) => Verdict::Pass,
        Some(value) if alarm.is_some_and(|alarm| value > alarm) => Verdict::Alarm,
        Some(_) => Verdict::Miss,
    }
}

/// Every target with its figure.
pub(crate) fn judge(results: &Results) -> Vec<Judged> {
    let mut judged = Vec::from(work(results));
    judged.extend(time(results));
    judged.extend(memory(results));
    judged.extend(extras(results));
    let kinds = [Kind::Waybill, Kind::Together, Kind::Bus];
    let measured = results.rows.iter().any(|row| kinds.contains(&row.system));
    let errors = kinds.iter().map(|kind| f64::from(results.errors(*kind)));
    let failed = measured.then(|| errors.sum());
    judged.push(row("failed requests", failed, Limit::AtMost(0.0), None));
    judged.extend(cluster(results));
    judged
}

/// What a cluster adds and does.
fn cluster(results: &Results) -> [Judged; 4] {
    let added = |case| results.added(case, (Kind::Bus, Kind::Together), results::latency_p50);
    let first_byte = results.added("s1", (Kind::Bus, Kind::Together), results::first_byte_p50);
    let booked = results.booked(|booked| booked.events_per_second);
    [
        row(
            "bus dispatch, plain call, added p50, us (c1)",
            added("c1"),
            Limit::Informational,
            None,
        ),
        row(
            "bus dispatch, 32-chunk stream, added p50, us (s1)",
            added("s1"),
            Limit::Informational,
            None,
        ),
        row(
            "first byte p50 through a router elsewhere, us more (s1)",
            first_byte,
            Limit::AtMost(1_500.0),
            None,
        ),
        row(
            "ledger on PostgreSQL, events per second",
            booked,
            Limit::AtLeast(8_000.0),
            None,
        ),
    ]
}

fn row(name: &'static str, value: Option<f64>, limit: Limit, alarm: Option<f64>) -> Judged {
    Judged {
        name,
        value,
        limit,
        alarm,
        verdict: verdict(value, limit, alarm),
    }
}

/// CPU per request and throughput.
fn work(results: &Results) -> [Judged; 8] {
    let nginx = (Kind::Waybill, Kind::Nginx);
    let cpu = |case| results.ratio(case, nginx, results::path_cpu_us);
    let all = results.ratio("c16", nginx, results::cpu_us);
    let bare = (Kind::Waybill, Kind::Bare);
    let rate = results.ratio("c64", bare, results::rate);
    let path_rate = results.ratio("c64", bare, results::path_rate);
    let translated = results.between(("t16", "s16"), Kind::Waybill, results::path_cpu_us);
    [
        row(
            "plain call, CPU without books, x nginx (c16)",
            cpu("c16"),
            Limit::AtMost(2.5),
            Some(3.5),
        ),
        row(
            "plain call, CPU of everything, x nginx (c16)",
            all,
            Limit::AtMost(4.5),
            None,
        ),
        row(
            "calls per second without books, x bare (c64)",
            path_rate,
            Limit::AtLeast(0.5),
            None,
        ),
        row(
            "calls per second with books on the same core, x bare (c64)",
            rate,
            Limit::Informational,
            None,
        ),
        row(
            "32-chunk stream, CPU without books, x nginx (s16)",
            cpu("s16"),
            Limit::AtMost(1.7),
            Some(2.5),
        ),
        row(
            "Messages to chat, CPU without books, x passing (t16)",
            translated,
            Limit::AtMost(2.5),
            None,
        ),
        row(
            "paced stream, CPU without books, x nginx (sp64)",
            cpu("sp64"),
            Limit::AtMost(1.5),
            Some(2.0),
        ),
        row(
            "32 KiB prompt, CPU without books, x nginx (p32k)",
            cpu("p32k"),
            Limit::AtMost(2.0),
            Some(3.0),
        ),
    ]
}

/// What calls cost that ask for more than an answer, by plain ones of the same node.
fn extras(results: &Results) -> [Judged; 4] {
    let cpu = |case| results.between((case, "c16"), Kind::Waybill, results::path_cpu_us);
    let added = results.added_between(("l1one", "c1one"), Kind::Waybill, results::latency_p50);
    [
        row(
            "limits on three layers, CPU without books, x plain (l16)",
            cpu("l16"),
            Limit::AtMost(1.1),
            None,
        ),
        row(
            "limits on three layers, added p50, us (l1one)",
            added,
            Limit::AtMost(20.0),
            None,
        ),
        row(
            "idempotency keys, CPU without books, x plain (k16)",
            cpu("k16"),
            Limit::Informational,
            None,
        ),
        row(
            "sessions on two backends, CPU without books, x plain (a16)",
            cpu("a16"),
            Limit::Informational,
            None,
        ),
    ]
}

/// Added latency.
fn time(results: &Results) -> [Judged; 2] {
    let first_byte = results.added("s1", (Kind::Waybill, Kind::Nginx), results::first_byte_p50);
    [
        row(
            "added p50, one connection, one core, x nginx's",
            added_ratio(results),
            Limit::AtMost(3.0),
            None,
        ),
        row(
            "first byte p50 over nginx's, us (s1)",
            first_byte,
            Limit::AtMost(100.0),
            Some(1_000.0),
        ),
    ]
}

fn memory(results: &Results) -> [Judged; 2] {
    let started = results
        .rss_idle_kib
        .get(&Kind::Waybill)
        .map(|kib| kib / KIB_PER_MIB);
    let streams = results.idle_rss_kib(Kind::Waybill).map(|kib| kib / KIB_PER_MIB);
    [
        row("memory idle, MiB", started, Limit::AtMost(40.0), Some(128.0)),
        row(
            "memory with idle streams, MiB",
            streams,
            Limit::AtMost(500.0),
            None,
        ),
    ]
}

/// Waybill's added median latency by nginx's.
fn added_ratio(results: &Results) -> Option<f64> {
    let waybill = results.added("c1one", (Kind::Waybill, Kind::Direct), results::latency_p50)?;
    let nginx = results.added("c1one", (Kind::Nginx, Kind::Direct), results::latency_p50)?;
    (nginx > 0.0).then(|| waybill / nginx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_passes_misses_or_alarms() {
        let limit = Limit::AtMost(2.5);

        assert_eq!(verdict(Some(2.5), limit, Some(3.5)), Verdict::Pass);
        assert_eq!(verdict(Some(3.0), limit, Some(3.5)), Verdict::Miss);
        assert_eq!(verdict(Some(3.6), limit, Some(3.5)), Verdict::Alarm);
        assert_eq!(verdict(None, limit, Some(3.5)), Verdict::Unmeasured);
        assert_eq!(verdict(Some(0.4), Limit::AtLeast(0.5), None), Verdict::Miss);
        let informational = verdict(Some(0.4), Limit::Informational, None);
        assert_eq!(informational, Verdict::Informational);
        assert!(informational.is_fine() && !Verdict::Unmeasured.is_fine());
    }

    #[test]
    fn nothing_measured_is_no_pass() {
        let judged = judge(&Results::default());

        assert!(judged.iter().all(|judged| judged.verdict == Verdict::Unmeasured));
    }
}
