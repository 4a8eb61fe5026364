//! The waybill of a request. Building it is pure: what was admitted, what the router reports and the time give the
//! record. Writing it is the edge: into the spool before the last byte leaves, then the reservation goes back.

use std::sync::Arc;

use bus::spool::{self, Appended, Orphan, Spool};
use chrono::{Datelike as _, NaiveDate, TimeZone as _};
use chrono_tz::Tz;
use dialects::estimate;
use schemas::catalog::Model;
use schemas::event::request::{QuotaCharge, RequestAccepted, RequestLost, RequestSettled};
use schemas::failure::FailureCode;
use schemas::frame::{Delivered, Report};
use schemas::id::{EndpointId, RequestId};
use schemas::limit::holdings;
use schemas::limit::holdings::demand::Used;
use schemas::money::{self, NanoUsd, Price};
use schemas::outcome::{Charge, Outcome};
use schemas::time::Timestamp;
use schemas::usage::{Metering, TOKENS_MAX, Usage, UsageFlag, UsageSource};
use tracing::{error, warn};

use crate::gate::Wishes;
use crate::limits::Held;
use crate::state::State;

/// The status of a caller who left before one was sent.
const STATUS_GONE: u16 = 499;

/// What admission fixed for the bill, beside the accepted facts.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The model, with the prices in force.
    pub(crate) model: Arc<Model>,
    /// What the caller said about himself.
    pub(crate) wishes: Wishes,
    /// He asked for a stream.
    pub(crate) stream: bool,
    /// Estimated tokens of the prompt.
    pub(crate) prompt_tokens: u64,
    /// Images of the prompt.
    pub(crate) images: u64,
    /// The most tokens of its answers, where its limits count them.
    pub(crate) output_tokens_held: Option<u64>,
    /// Where the books put it.
    pub(crate) days: Days,
    /// What is not told of its usage can be estimated; else it is one call and no tokens.
    pub(crate) is_measured: bool,
}

/// The days of a request, fixed at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Days {
    /// The UTC day of its id.
    pub(crate) waybill: NaiveDate,
    /// The day in the billing time zone.
    pub(crate) billing: NaiveDate,
}

impl Days {
    /// The days of a request admitted at `started_at`.
    pub(crate) fn new(request_id: RequestId, started_at: Timestamp, billing_tz: Tz) -> Self {
        let local = billing_tz.from_utc_datetime(&started_at.to_utc().naive_utc());
        Self {
            waybill: request_id.minted_at().unwrap_or(started_at).day(),
            billing: local.date_naive(),
        }
    }

    fn month(self) -> NaiveDate {
        self.billing.with_day(1).unwrap_or(self.billing)
    }
}

/// How a request ended, as the gateway knows it.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    /// The router's last word.
    pub(crate) report: Report,
    /// The status that was sent, `None` when none was.
    pub(crate) sent: Option<u16>,
    /// The caller left before the end.
    pub(crate) gone: bool,
}

impl Ending {
    fn outcome(&self) -> Outcome {
        match self.report.outcome {
            Outcome::Ok if self.gone => Outcome::ClientGone,
            outcome => outcome,
        }
    }

    /// Who pays for what.
    fn charge(&self) -> Charge {
        self.outcome().charge(self.report.delivered.content)
    }

    fn error_code(&self, outcome: Outcome) -> Option<FailureCode> {
        match outcome {
            Outcome::Ok => None,
            Outcome::ClientGone => Some(FailureCode::ClientGone),
            _ => Some(
                self.report
                    .failure
                    .as_ref()
                    .map_or(FailureCode::Internal, |failure| failure.code),
            ),
        }
    }

    /// The status the caller saw, or would have seen.
    fn status(&self, outcome: Outcome) -> u16 {
        let told = match outcome {
            Outcome::ClientGone => STATUS_GONE,
            Outcome::Ok => 200,
            _ => self.report.failure.as_ref().map_or(500, |failure| failure.status),
        };
        self.sent.or(self.report.passed).unwrap_or(told)
    }
}

/// The figures of a bill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bill {
    usage: Usage,
    source: UsageSource,
    flags: Vec<UsageFlag>,
    prices: Option<Price>,
    cost: NanoUsd,
    upstream_cost: Option<NanoUsd>,
}

/// A waybill, and what its request used as far as limits count it: nothing of what nobody pays for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// The waybill.
    pub(crate) settled: RequestSettled,
    /// What was used.
    pub(crate) used: Used,
}

/// The waybill of a request that was admitted and dispatched.
pub(crate) fn waybill(accepted: &RequestAccepted, terms: &Terms, ending: Ending, now: Timestamp) -> Written {
    let pays = ending.charge() == Charge::Usage;
    let outcome = ending.outcome();
    let (status, error_code) = (ending.status(outcome), ending.error_code(outcome));
    let bill = bill(terms, &ending.report, outcome);
    let metering = metering(terms, &ending, &bill);
    let Report {
        attempts,
        served,
        delivered,
        session,
        affinity,
        decision,
        ..
    } = ending.report;
    let mut settled = blank(accepted, terms.days, now);
    settled
        .client_request_id
        .clone_from(&terms.wishes.client_request_id);
    settled.end_user.clone_from(&terms.wishes.end_user);
    settled.session_id = terms.wishes.session_id.clone().or(session);
    settled.affinity = affinity;
    settled.decision = decision;
    if let Some(served) = served {
        settled.served_model = Some(served.model);
        settled.provider = Some(served.provider);
        settled.endpoint_id = Some(served.endpoint_id);
        settled.backend = Some(served.backend);
    }
    settled.attempts = attempts;
    settled.outcome = outcome;
    settled.status = status;
    settled.error_code = error_code;
    settled.stream = terms.stream;
    settled.images = terms.images;
    settled.ttft_ms = delivered.ttft_ms;
    settled.metering = metering;
    let used = if pays { bill.used() } else { Used::default() };
    enter(&mut settled, bill);
    Written { settled, used }
}

/// What a request that ended so uses of its limits.
pub(crate) fn foreseen(terms: &Terms, report: &Report) -> Used {
    match report.outcome.charge(report.delivered.content) {
        Charge::Usage => bill(terms, report, report.outcome).used(),
        Charge::Nothing => Used::default(),
    }
}

impl Bill {
    fn used(&self) -> Used {
        let usage = &self.usage;
        let input = [usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens];
        Used {
            calls: 1,
            tokens: input
                .iter()
                .fold(usage.output_tokens, |sum, part| sum.saturating_add(*part)),
            nano_usd: u64::try_from(self.cost.0).unwrap_or(0),
        }
    }
}

/// Enters what the limits of a request allow to charge.
fn charge(settled: &mut RequestSettled, charge: holdings::demand::Charge) {
    if charge.absorbed_nano_usd > 0 {
        warn!(
            request.id = %settled.request_id,
            absorbed_nano_usd = charge.absorbed_nano_usd,
            "a call cost more than its limits allow to charge"
        );
    }
    let money = |nano_usd: u64| NanoUsd(i64::try_from(nano_usd).unwrap_or(i64::MAX));
    settled.cost_nano_usd = money(charge.nano_usd);
    settled.cost_usd = settled.cost_nano_usd.usd();
    settled.absorbed_nano_usd = money(charge.absorbed_nano_usd);
    let counted = charge.quotas.into_iter();
    settled.quotas = counted
        .map(|(name, amount)| QuotaCharge { name, amount })
        .collect();
}

fn enter(settled: &mut RequestSettled, bill: Bill) {
    settled.input_tokens = bill.usage.input_tokens;
    settled.cached_tokens = bill.usage.cached_tokens;
    settled.cache_write_tokens = bill.usage.cache_write_tokens;
    settled.output_tokens = bill.usage.output_tokens;
    settled.reasoning_tokens = bill.usage.reasoning_tokens;
    settled.usage_source = bill.source;
    settled.usage_flags = bill.flags;
    settled.prices = bill.prices;
    settled.cost_nano_usd = bill.cost;
    settled.cost_usd = bill.cost.usd();
    settled.upstream_cost_nano_usd = bill.upstream_cost;
}

/// Who pays what: the upstream's figures, else an estimate of what was sent and delivered, at the price of the
/// endpoint that served.
fn bill(terms: &Terms, report: &Report, outcome: Outcome) -> Bill {
    let charge = outcome.charge(report.delivered.content);
    let estimated = || (charge == Charge::Usage).then(|| estimated(terms, report.delivered));
    let (usage, source) = match (report.usage, estimated()) {
        (Some(told), _) => (told, UsageSource::Upstream),
        (None, Some(_)) if !terms.is_measured => (Usage::default(), UsageSource::None),
        (None, Some(estimated)) => (estimated, UsageSource::Estimated),
        (None, None) => {
            let bill = Bill {
                upstream_cost: report.upstream_cost_nano_usd,
                ..Bill::default()
            };
            return marked(bill, report.attempts_of_unknown_cost);
        }
    };
    let served = report.served.as_ref().map(|served| &served.endpoint_id);
    let prices = served.and_then(|served| price(&terms.model, served));
    let mut bill = Bill {
        usage,
        source,
        flags: report.usage_flags.clone(),
        prices,
        upstream_cost: report.upstream_cost_nano_usd,
        ..Bill::default()
    };
    let whole = prices.map(|prices| money::cost(&prices, &usage, terms.images));
    match whole {
        None => bill.flags.push(UsageFlag::Unpriced),
        Some(None) => bill.flags.push(UsageFlag::CostOverflow),
        Some(Some(_)) => {}
    }
    let mut unknown = report.attempts_of_unknown_cost;
    match (charge, whole.flatten()) {
        (Charge::Usage, cost) => bill.cost = cost.unwrap_or_default(),
        // What the upstream itself tells counts for more than what we reckon for the attempt that served.
        (Charge::Nothing, Some(cost)) if bill.upstream_cost.is_none() => {
            bill.upstream_cost = Some(cost);
            unknown = unknown.saturating_sub(1);
        }
        (Charge::Nothing, _) => {}
    }
    marked(bill, unknown)
}

/// The bill with a mark when what it cost us lacks the cost of some attempts: a part is no sum.
fn marked(bill: Bill, unknown: u64) -> Bill {
    let mut bill = bill;
    if bill.upstream_cost.is_some() && unknown > 0 {
        bill.flags.push(UsageFlag::UpstreamCostPartial);
    }
    bill
}

/// Tokens as we count them ourselves, no more than an upstream would be believed.
/// Nor more than the request may have: its upstream was told so.
fn estimated(terms: &Terms, delivered: Delivered) -> Usage {
    let most = terms.output_tokens_held.unwrap_or(TOKENS_MAX).min(TOKENS_MAX);
    Usage {
        input_tokens: terms.prompt_tokens.min(TOKENS_MAX),
        output_tokens: estimate::bytes_tokens(delivered.output_bytes).min(most),
        ..Usage::default()
    }
}

/// The figures of a request, but for a good answer whose upstream told them: those are its row's.
fn metering(terms: &Terms, ending: &Ending, bill: &Bill) -> Option<Metering> {
    if ending.outcome() == Outcome::Ok && bill.source == UsageSource::Upstream {
        return None;
    }
    let counted = estimated(terms, ending.report.delivered);
    Some(Metering {
        reported: ending.report.usage,
        counted_input_tokens: counted.input_tokens,
        counted_output_tokens: counted.output_tokens,
        delivered_bytes: ending.report.delivered.output_bytes,
        charge: ending.charge(),
    })
}

/// What the endpoint charges for the model; `None` is unpriced.
fn price(model: &Model, endpoint_id: &EndpointId) -> Option<Price> {
    let route = model
        .routes
        .iter()
        .find(|route| route.endpoint_id == *endpoint_id)?;
    route.price
}

/// A waybill without an answer: no attempt, no tokens, no money, outcome `lost`.
fn blank(accepted: &RequestAccepted, days: Days, now: Timestamp) -> RequestSettled {
    let lost = RequestLost {
        accepted: accepted.clone(),
        declared_at: now,
        waybill_day: days.waybill,
        billing_day: days.billing,
        billing_month: days.month(),
    };
    lost.into_row()
}

/// The waybill of a request that was refused: amount 0, no tokens.
pub(crate) fn rejected(
    accepted: &RequestAccepted,
    wishes: Wishes,
    failure: (FailureCode, u16),
    billing_tz: Tz,
    now: Timestamp,
) -> RequestSettled {
    let told = Told {
        outcome: Outcome::Rejected,
        error_code: Some(failure.0),
        status: failure.1,
    };
    ended(accepted, wishes, told, billing_tz, now)
}

/// What the caller of a request was told that nothing ran for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Why it failed.
    pub(crate) error_code: Option<FailureCode>,
    /// The status that was sent.
    pub(crate) status: u16,
}

/// The waybill of a request that nothing ran for: amount 0, no tokens.
pub(crate) fn ended(
    accepted: &RequestAccepted,
    wishes: Wishes,
    told: Told,
    billing_tz: Tz,
    now: Timestamp,
) -> RequestSettled {
    let days = Days::new(accepted.request_id, accepted.started_at, billing_tz);
    RequestSettled {
        outcome: told.outcome,
        error_code: told.error_code,
        status: told.status,
        client_request_id: wishes.client_request_id,
        end_user: wishes.end_user,
        session_id: wishes.session_id,
        ..blank(accepted, days, now)
    }
}

/// A waybill that is in the spool.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Its event. The sequence is what to wait for, where the answer must survive the machine.
    pub(crate) appended: Appended,
    /// As it is there.
    pub(crate) settled: RequestSettled,
}

/// Writes a waybill: in the spool, the reservation given back, counted. One that the disk refuses is kept as [`unrecorded`] and written when it can be; the
/// intent stays open until then.
pub(crate) fn close(
    state: &State,
    accepted: &RequestAccepted,
    (written, mut held): (Written, Held),
    sent: Option<u16>,
) -> Result<Recorded, spool::Error> {
    let spool = &state.ports.spool;
    let Written { mut settled, used } = written;
    charge(&mut settled, held.charge(used));
    let written = spool.settle(settled.ended_at, &settled);
    spool.give_back(accepted.reservation);
    state.open.close(accepted.request_id);
    match written {
        Ok(appended) => {
            held.settle(settled.outcome, appended.sequence);
            count(state, &settled);
            Ok(Recorded { appended, settled })
        }
        Err(problem) => {
            error!(request.id = %accepted.request_id, error = &problem as &dyn std::error::Error, "a waybill cannot be written");
            held.uncharge();
            let mut settled = unrecorded(settled, sent);
            count(state, &settled);
            if matches!(problem, spool::Error::Disk(_)) {
                let used = if settled.outcome == Outcome::Lost {
                    Used::default()
                } else {
                    used
                };
                charge(&mut settled, held.charge(used));
                state.unwritten.keep(settled, held);
            } else {
                held.release();
            }
            Err(problem)
        }
    }
}

/// Counts a waybill. Tokens without a price are told of in the log, once a model: they are given away.
fn count(state: &State, settled: &RequestSettled) {
    let catalog = state.ports.catalog.peek();
    state.metrics.settled(&catalog, settled);
    let is_unpriced = settled.usage_flags.contains(&UsageFlag::Unpriced);
    if is_unpriced && state.metrics.unpriced(&catalog, &settled.model) {
        let endpoint = settled.endpoint_id.as_ref().map(tracing::field::display);
        warn!(model = %settled.model.0, endpoint.id = endpoint, "requests are served without a price: they cost their callers nothing");
    }
}

/// The waybill of a request whose own could not be written: the caller was told so in the place of the answer's end,
/// and pays nothing for an answer that had none. `sent` is the status that had left before.
fn unrecorded(settled: RequestSettled, sent: Option<u16>) -> RequestSettled {
    let was_whole = settled.outcome == Outcome::Ok;
    let mut settled = settled;
    if was_whole {
        settled.outcome = Outcome::Lost;
        let reckoned = Some(settled.cost_nano_usd).filter(|_| settled.prices.is_some());
        settled.upstream_cost_nano_usd = settled.upstream_cost_nano_usd.or(reckoned);
        settled.cost_nano_usd = NanoUsd::ZERO;
        settled.cost_usd = NanoUsd::ZERO.usd();
    }
    if was_whole || (sent.is_none() && settled.outcome != Outcome::ClientGone) {
        settled.error_code = Some(FailureCode::SpoolFull);
        settled.status = sent.unwrap_or_else(|| FailureCode::SpoolFull.status());
    }
    settled
}

/// Settles the requests that were running when the process before this one died: outcome `lost`, amount 0. Returns
/// how many there were.
pub fn recover(
    spool: &Spool,
    orphans: Vec<Orphan>,
    billing_tz: Tz,
    now: Timestamp,
) -> Result<usize, spool::Error> {
    let count = orphans.len();
    for Orphan { accepted } in orphans {
        let days = Days::new(accepted.request_id, accepted.started_at, billing_tz);
        spool.settle(now, &blank(&accepted, days, now))?;
    }
    Ok(count)
}

#[cfg(test)]
pub(crate) mod tests;
