//! The invariant checker: goes through the books after a test. What must always be true: each answered
//! request has one row and its event, costs and sums are exact, every outcome is of the closed list and
//! agrees with what the client saw, nothing stays reserved, upstream connections are idle, and no canary
//! stands in a log, event, table or page. The judgement is a pure function over gathered facts.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::log::{Answered, End};
use crate::node::config::Price;

pub mod canary;
pub mod gather;
pub mod violation;

use canary::{Canary, Text};
use violation::Violation;

/// Outcomes of the closed list.
const OUTCOMES: [&str; 7] = [
    "ok",
    "client_gone",
    "upstream_error",
    "upstream_cut",
    "timeout",
    "rejected",
    "lost",
];
/// Statuses of refusals that leave no row: the caller is not known yet.
const STATUSES_WITHOUT_ROW: [u16; 3] = [401, 413, 431];
/// Refusals a key gets as rows in a minute; those beyond are only counted.
const REFUSED_ROWS_MAX: usize = 10;

/// What a row of the request log says, as far as it is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowFacts {
    /// The request.
    pub request_id: String,
    /// The model asked for.
    pub model: String,
    /// The endpoint that served; empty if none did.
    pub endpoint_id: String,
    /// How it ended.
    pub outcome: String,
    /// The status the caller saw.
    pub status: i64,
    /// The error code; empty if there is none.
    pub error_code: String,
    /// Marks of the usage, as JSON text.
    pub usage_flags: String,
    /// Tokens and cost.
    pub sums: Sums,
}

/// Figures that are summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests.
    pub requests: i64,
    /// Fresh input tokens.
    pub input_tokens: i64,
    /// Cached input tokens.
    pub cached_tokens: i64,
    /// Input tokens written to a cache.
    pub cache_write_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// What callers pay.
    pub cost_nano_usd: i64,
}

impl Sums {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            input_tokens: self.input_tokens + other.input_tokens,
            cached_tokens: self.cached_tokens + other.cached_tokens,
            cache_write_tokens: self.cache_write_tokens + other.cache_write_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            cost_nano_usd: self.cost_nano_usd + other.cost_nano_usd,
        }
    }
}

/// An event of the ledger's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFacts {
    /// The CloudEvents type.
    pub kind: String,
    /// The request it is about; empty if it is about none.
    pub request_id: String,
}

/// Everything the judgement needs.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// What clients were answered.
    pub answered: Vec<Answered>,
    /// Calls that got no head of an answer; `None` when calls were made that no client log knows.
    pub unanswered: Option<usize>,
    /// Rows of the table `api_logs`.
    pub rows: Vec<RowFacts>,
    /// Request ids that `GET /api/v1/logs` lists; `None` when the node did not run.
    pub listed: Option<Vec<String>>,
    /// Sums over the table `usage_rollup`.
    pub rollup: Sums,
    /// Sums of `GET /api/v1/usage`; `None` when the node did not run.
    pub usage: Option<Sums>,
    /// The table `event_log`.
    pub events: Vec<EventFacts>,
    /// The metric of open reservations; `None` when the node did not run.
    pub reservations_open: Option<f64>,
    /// Upstream connections that still carry a call, by the name of the upstream.
    pub busy_connections: BTreeMap<String, usize>,
    /// What upstreams found wrong with what they were sent.
    pub upstream_faults: Vec<String>,
    /// Prices by model.
    pub prices: BTreeMap<String, Price>,
    /// What could not be read although the node runs.
    pub silent: Vec<String>,
    /// What must not be found.
    pub canaries: Vec<Canary>,
    /// Where it is looked for.
    pub texts: Vec<Text>,
}

/// Judges the facts; empty when all is well.
pub fn check(facts: &Facts) -> Vec<Violation> {
    let mut found = check_books(facts);
    found.extend(canary::find(&facts.canaries, &facts.texts));
    found
}

/// The same without a search for canaries, which takes long where there is much to read.
pub fn check_books(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    check_rows(facts, &mut found);
    check_events(facts, &mut found);
    check_costs(facts, &mut found);
    check_sums(facts, &mut found);
    if let Some(open) = facts.reservations_open
        && open != 0.0
    {
        found.push(Violation::ReservationOpen(open));
    }
    for (upstream, connections) in facts.busy_connections.iter().filter(|(_, busy)| **busy > 0) {
        found.push(Violation::ConnectionLeaked {
            upstream: upstream.clone(),
            connections: *connections,
        });
    }
    found.extend(
        facts
            .upstream_faults
            .iter()
            .cloned()
            .map(Violation::UpstreamFault),
    );
    found.extend(facts.silent.iter().cloned().map(Violation::Silent));
    found
}

fn check_rows(facts: &Facts, found: &mut Vec<Violation>) {
    let mut rows: BTreeMap<&str, &RowFacts> = BTreeMap::new();
    for row in &facts.rows {
        if rows.insert(&row.request_id, row).is_some() {
            found.push(Violation::DoubledRow(row.request_id.clone()));
        }
        if !OUTCOMES.contains(&row.outcome.as_str()) {
            let (request_id, outcome) = (row.request_id.clone(), row.outcome.clone());
            found.push(Violation::UnknownOutcome { request_id, outcome });
        }
    }
    for answered in &facts.answered {
        if answered.request_id.is_empty() {
            found.push(Violation::NoRequestId(answered.clone()));
            continue;
        }
        match rows.get(answered.request_id.as_str()) {
            None if row_is_due(facts, answered) => found.push(Violation::MissingRow(answered.clone())),
            None => {}
            Some(row) if agrees(row, answered) => {}
            Some(row) => found.push(Violation::Contradiction {
                request_id: row.request_id.clone(),
                outcome: row.outcome.clone(),
                status: row.status,
                seen: answered.clone(),
            }),
        }
    }
    check_strays(facts, found);
    check_listing(facts, found);
}

/// Whether an answer without a row is a fault.
fn row_is_due(facts: &Facts, answered: &Answered) -> bool {
    if STATUSES_WITHOUT_ROW.contains(&answered.status) || answered.code.as_deref() == Some("spool_full") {
        return false;
    }
    // Errors of Messages have no code, so that any may be meant.
    let code = answered.code.as_deref();
    let refused = facts
        .rows
        .iter()
        .filter(|row| row.outcome == "rejected" && code.is_none_or(|code| row.error_code == code))
        .count();
    answered.status < 400 || refused < REFUSED_ROWS_MAX
}

/// Whether a row says what the client saw.
fn agrees(row: &RowFacts, answered: &Answered) -> bool {
    let status = row.status == i64::from(answered.status);
    match &answered.end {
        End::Done => row.outcome == "ok",
        End::Whole if answered.status == 200 => row.outcome == "ok" && status,
        End::Whole => row.outcome != "ok" && status,
        End::ErrorEvent(_) => matches!(
            row.outcome.as_str(),
            "upstream_error" | "upstream_cut" | "timeout" | "lost"
        ),
        End::EofWithoutDone | End::Broken(_) => row.outcome != "rejected",
        End::Left => true,
    }
}

fn check_strays(facts: &Facts, found: &mut Vec<Violation>) {
    let Some(unanswered) = facts.unanswered else {
        return;
    };
    let known: BTreeSet<&str> = facts
        .answered
        .iter()
        .map(|answered| answered.request_id.as_str())
        .collect();
    let ids: BTreeSet<&str> = facts.rows.iter().map(|row| row.request_id.as_str()).collect();
    let strays: Vec<String> = ids.difference(&known).map(|id| (*id).to_owned()).collect();
    if strays.len() > unanswered {
        found.push(Violation::StrayRows {
            rows: strays,
            calls: unanswered,
        });
    }
}

fn check_listing(facts: &Facts, found: &mut Vec<Violation>) {
    let Some(listed) = &facts.listed else { return };
    let api: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    let table: BTreeSet<&str> = facts.rows.iter().map(|row| row.request_id.as_str()).collect();
    let only = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| -> Vec<String> {
        one.difference(other).map(|id| (*id).to_owned()).collect()
    };
    let (only_table, only_api) = (only(&table, &api), only(&api, &table));
    if !only_table.is_empty() || !only_api.is_empty() {
        found.push(Violation::ListingDiffers { only_table, only_api });
    }
    if listed.len() > api.len() {
        let mut seen = BTreeSet::new();
        let twice = listed.iter().filter(|id| !seen.insert(id.as_str()));
        found.extend(twice.cloned().map(Violation::DoubledRow));
    }
}

fn check_events(facts: &Facts, found: &mut Vec<Violation>) {
    let mut settled: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lost: BTreeSet<&str> = BTreeSet::new();
    for event in &facts.events {
        if event.kind.contains("request.settled") {
            *settled.entry(&event.request_id).or_default() += 1;
        } else if event.kind.contains("request.lost") {
            lost.insert(&event.request_id);
        }
    }
    for row in &facts.rows {
        let id = row.request_id.as_str();
        if !settled.contains_key(id) && !lost.contains(id) {
            found.push(Violation::MissingEvent(row.request_id.clone()));
        }
    }
    let doubled = settled.iter().filter(|(_, count)| **count > 1);
    found.extend(doubled.map(|(id, _)| Violation::DoubledEvent((*id).to_owned())));
    let rows: BTreeSet<&str> = facts.rows.iter().map(|row| row.request_id.as_str()).collect();
    let answered = |id: &str| Answered {
        request_id: id.to_owned(),
        status: 0,
        code: None,
        end: End::Left,
    };
    let missing = settled.keys().chain(&lost).filter(|id| !rows.contains(**id));
    found.extend(missing.map(|id| Violation::MissingRow(answered(id))));
}

fn check_costs(facts: &Facts, found: &mut Vec<Violation>) {
    for row in &facts.rows {
        let Some(price) = facts.prices.get(&row.model) else {
            continue;
        };
        let full = cost(price, &row.sums);
        let unpriced = row.usage_flags.contains("unpriced") || row.usage_flags.contains("cost_overflow");
        let should_be = match row.outcome.as_str() {
            _ if unpriced => vec![0],
            "ok" => vec![full],
            "client_gone" if row.sums.output_tokens > 0 => vec![full],
            "client_gone" => vec![0, full],
            _ => vec![0],
        };
        if !should_be.contains(&row.sums.cost_nano_usd) {
            let (request_id, is) = (row.request_id.clone(), row.sums.cost_nano_usd);
            found.push(Violation::WrongCost {
                request_id,
                is,
                should_be,
            });
        }
    }
}

fn check_sums(facts: &Facts, found: &mut Vec<Violation>) {
    let should_be = facts
        .rows
        .iter()
        .fold(Sums::default(), |sum, row| sum.plus(row.sums));
    for (of, is) in [
        ("usage_rollup", Some(facts.rollup)),
        ("GET /api/v1/usage", facts.usage),
    ] {
        if let Some(is) = is.filter(|is| *is != should_be) {
            found.push(Violation::WrongSum { of, is, should_be });
        }
    }
}

/// The cost of these tokens, rounded once to whole nano-dollars, half to even.
pub fn cost(price: &Price, sums: &Sums) -> i64 {
    const UNIT: i128 = 1_000_000;
    let part = |tokens: i64, price: i64| i128::from(tokens) * i128::from(price);
    let scaled = part(sums.input_tokens, price.input)
        + part(sums.cached_tokens, price.cached)
        + part(sums.cache_write_tokens, price.cache_write)
        + part(sums.output_tokens, price.output);
    let (whole, rest) = (scaled.div_euclid(UNIT), scaled.rem_euclid(UNIT));
    let up = rest * 2 > UNIT || (rest * 2 == UNIT && whole % 2 != 0);
    i64::try_from(whole + i128::from(up)).expect("a cost of a test fits 64 bits")
}

#[cfg(test)]
mod tests;
