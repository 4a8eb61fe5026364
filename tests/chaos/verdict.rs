//! What came of a run, row by row: a figure, what it has to be, and whether it is.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::books::Columns;
use harness::{Call, Violation};
use serde_json::{Value, json};

use crate::schedule::{Entry, Fault};
use crate::workload::{Class, Made, RATE, SLOTS};

/// How long after a fault its traces may show: connections that are made anew, leaders that are found, leases.
const AFTER: Duration = Duration::from_secs(25);
/// How long a call may have been under way when a gateway ended.
const BEFORE: Duration = Duration::from_secs(1);
/// How long a call may be over before its upstream sees it: until its next piece, on a busy machine.
const UNSEEN: Duration = Duration::from_millis(400);
/// Minutes that calls may count in beside those of their rows.
const EDGES: usize = 1;
/// Failures that are told in full.
const TOLD_MAX: usize = 20;

/// A row of the report.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    name: &'static str,
    figure: Value,
    target: &'static str,
    pass: bool,
}

impl Row {
    /// A count that has to be nothing.
    pub(crate) fn zero(name: &'static str, count: usize) -> Self {
        Self {
            name,
            figure: json!(count),
            target: "0",
            pass: count == 0,
        }
    }

    /// Something that has to hold.
    pub(crate) fn holds(name: &'static str, figure: Value, target: &'static str, pass: bool) -> Self {
        Self {
            name,
            figure,
            target,
            pass,
        }
    }

    /// Whether it is as it has to be.
    pub(crate) const fn passes(&self) -> bool {
        self.pass
    }

    /// As the report has it.
    pub(crate) fn told(&self) -> Value {
        json!({"row": self.name, "figure": self.figure, "target": self.target, "pass": self.pass})
    }
}

/// What the checker found, by what it is about.
pub(crate) fn of_books(found: &[Violation]) -> Vec<Row> {
    let count = |of: fn(&Violation) -> bool| found.iter().filter(|one| of(one)).count();
    let is_missing = |one: &Violation| {
        matches!(
            one,
            Violation::MissingRow(_) | Violation::MissingEvent(_) | Violation::ListingDiffers { .. }
        )
    };
    let is_double = |one: &Violation| {
        matches!(
            one,
            Violation::DoubledRow(_) | Violation::DoubledEvent(_) | Violation::StrayRows { .. }
        )
    };
    let is_sum = |one: &Violation| matches!(one, Violation::WrongCost { .. } | Violation::WrongSum { .. });
    let is_false = |one: &Violation| matches!(one, Violation::Contradiction { .. });
    let is_open = |one: &Violation| {
        matches!(
            one,
            Violation::ReservationOpen(_) | Violation::ConnectionLeaked { .. }
        )
    };
    let known = [is_missing, is_double, is_sum, is_false, is_open];
    let others = found.iter().filter(|one| !known.iter().any(|of| of(one))).count();
    vec![
        Row::zero("answers without their row", count(is_missing)),
        Row::zero("requests that are in the books twice", count(is_double)),
        Row::zero("sums and costs that are wrong", count(is_sum)),
        Row::zero("answers that say something else than their row", count(is_false)),
        Row::zero(
            "reservations and upstream calls left open at rest",
            count(is_open),
        ),
        Row::zero("anything else that the books' checker found", others),
    ]
}

/// True where a call was under way when a fault was there, or soon after it.
fn touches(made: &Made, entries: &[Entry], of: impl Fn(Fault) -> bool) -> bool {
    entries.iter().any(|entry| {
        let (from, to) = (entry.at.saturating_sub(BEFORE), entry.at + entry.lasts + AFTER);
        of(entry.fault) && made.from <= to && made.to >= from
    })
}

/// Whether a call that was not answered whole may be so, by what is promised.
fn is_allowed(made: &Made, entries: &[Entry]) -> bool {
    let limited = matches!(made.class, Class::Slots | Class::Budget | Class::Rate);
    match made.status {
        // No head came, or the rest did not.
        None | Some(200) => touches(made, entries, Fault::hits_gateways),
        Some(429) => made.retry_after && (limited || touches(made, entries, Fault::hits_bus)),
        Some(503) => made.retry_after && touches(made, entries, Fault::hits_bus),
        Some(409) => made.class == Class::Keyed && made.code.starts_with("IDEMPOTENCY_REQUEST_IN_PROGRESS"),
        Some(402) => made.class == Class::Budget,
        Some(_) => false,
    }
}

/// Calls that failed where nothing allows it, beyond so many that a planted panic took; some of them in full.
pub(crate) fn failures(made: &[Made], entries: &[Entry], panics: usize) -> (Row, Vec<Value>) {
    let failed = made.iter().filter(|made| !made.whole);
    let unexplained: Vec<&Made> = failed.filter(|made| !is_allowed(made, entries)).collect();
    let (broken, others): (Vec<&Made>, Vec<&Made>) = unexplained
        .into_iter()
        .partition(|made| matches!(made.status, None | Some(200 | 500)));
    let count = others.len() + broken.len().saturating_sub(panics);
    let told = others.iter().chain(&broken).take(TOLD_MAX).map(|made| {
        json!({
            "at_ms": made.from.as_millis(),
            "took_ms": made.to.saturating_sub(made.from).as_millis(),
            "class": format!("{:?}", made.class),
            "status": made.status,
            "code": made.code,
            "request_id": made.request_id,
            "told": made.told,
        })
    });
    let told = if count > 0 { told.collect() } else { Vec::new() };
    (
        Row::zero("calls that failed where nothing allows it", count),
        told,
    )
}

/// How many calls of each class were answered with which status.
pub(crate) fn answers(made: &[Made]) -> Value {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for made in made {
        let status = match (made.whole, made.status) {
            (true, _) => "whole".to_owned(),
            (_, Some(200)) => "broken".to_owned(),
            (_, Some(status)) => status.to_string(),
            (_, None) => "none".to_owned(),
        };
        *counts.entry(format!("{:?} {status}", made.class)).or_default() += 1;
    }
    json!(counts)
}

/// The most calls that an upstream had under way at once, each without the end that its caller may have left before.
pub(crate) fn most_at_once(calls: &[Call]) -> u64 {
    let mut steps: Vec<(Duration, i64)> = Vec::new();
    let Some(first) = calls.iter().map(|call| call.at).min() else {
        return 0;
    };
    for call in calls {
        let from = call.at - first;
        let lasted = call.left_after().or_else(|| call.sent_at.last().copied());
        steps.push((from, 1));
        let lasted = lasted.unwrap_or_default().saturating_sub(UNSEEN);
        steps.push((from + lasted, -1));
    }
    // Of two at the same time the end counts first.
    steps.sort_unstable();
    let mut now = 0_i64;
    let mut most = 0_i64;
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or(0)
}

/// That never more calls ran at once than may.
pub(crate) fn slots(calls: &[Call]) -> Row {
    let most = most_at_once(calls);
    Row::holds(
        "calls at once of a key that may run 6",
        json!(most),
        "<= 6",
        most <= SLOTS,
    )
}

fn text<'a>(row: &'a Columns, name: &str) -> &'a str {
    row.get(name).and_then(Option::as_deref).unwrap_or_default()
}

fn of_key<'a>(rows: &'a [Columns], key: &str) -> impl Iterator<Item = &'a Columns> {
    let key = key.to_owned();
    rows.iter().filter(move |row| text(row, "key_name") == key)
}

/// Nano-dollars that the rows of a key cost, on a billing day or in all.
pub(crate) fn cost(rows: &[Columns], key: &str, day: Option<&str>) -> i64 {
    let rows = of_key(rows, key).filter(|row| day.is_none_or(|day| text(row, "billing_day") == day));
    let costs = rows.map(|row| text(row, "cost_nano_usd").parse::<i64>().unwrap_or(0));
    costs.sum()
}

/// That a key had no more calls admitted than the minutes of the run allow. A call counts in the minute in which it is let
/// in, which may be the one after that of its row: it may have waited for a bus that was away.
pub(crate) fn rate(rows: &[Columns], key: &str) -> Row {
    let mut minutes: BTreeMap<String, u64> = BTreeMap::new();
    for row in of_key(rows, key).filter(|row| text(row, "outcome") != "rejected") {
        let minute: String = text(row, "started_at").chars().take(16).collect();
        *minutes.entry(minute).or_default() += 1;
    }
    let (calls, touched): (u64, usize) = (minutes.values().sum(), minutes.len() + EDGES);
    Row::holds(
        "calls of a key that may make 60 a minute",
        json!({"calls": calls, "minutes": minutes}),
        "<= 60 for each minute and one more",
        calls <= RATE * touched as u64,
    )
}

/// That a key's rows of each idempotency key have been billed once at most.
pub(crate) fn once(rows: &[Columns], made: &[Made]) -> Row {
    let keyed = made
        .iter()
        .filter(|made| made.class == Class::Keyed && made.whole)
        .count();
    let mut billed: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| text(row, "cost_nano_usd") != "0") {
        let key = text(row, "end_user");
        if !key.is_empty() {
            *billed.entry(key).or_default() += 1;
        }
    }
    let double = billed.values().filter(|count| **count > 1).count();
    Row::holds(
        "idempotency keys that were billed more than once",
        json!({"double": double, "answers": keyed}),
        "0",
        double == 0,
    )
}
