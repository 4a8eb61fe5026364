//! Calls that leave the choice of a model to the gateway: whose may, by what is chosen, and which model is asked first.
//! Everything here is pure. Whoever decides has looked every model up that the caller may see and says of each whether
//! it can take the call, what that would cost and how soon it would answer; what comes back is an order, and why others
//! are out.

pub mod choice;
pub mod record;

use crate::catalog::policy::{Inference, KeyRouting, Purpose, Strategy};
use crate::event::request::{Attempt, Surface};
use crate::failure::FailureCode;
use crate::frame::Report;
use crate::outcome::Outcome;

/// The name by which a model is left to the gateway.
pub const NAME: &str = "auto";
/// Who owns it, in listings.
pub const OWNER: &str = "waybill-router";
/// The header that says which model answers.
pub const MODEL_HEADER: &str = "x-routed-model";
/// The header that says that nobody said of it what it is for.
pub const FALLBACK_HEADER: &str = "x-routing-purpose-fallback";
/// Its value.
pub const UNLABELED: &str = "unlabeled";
/// Most models of one call that are sent anything.
pub const MODELS_MAX: u32 = 3;
/// Tokens that an answer is taken to have whose caller names no maximum and of whose model nothing is known.
pub const ANSWER_TOKENS: u64 = 512;

/// By what a model is chosen for the calls of a key; `None` where they may not leave the choice. What the key says
/// counts before what holds for all, and without either nothing is left to the gateway.
pub fn strategy(key: Option<&KeyRouting>, all: Option<&Inference>) -> Option<Strategy> {
    let enabled = key
        .and_then(|key| key.auto_routing_enabled)
        .unwrap_or_else(|| all.is_some_and(|all| all.auto_routing_enabled));
    let own = key.and_then(|key| key.strategy);
    let strategy = own.or_else(|| all.map(|all| all.auto_routing_strategy));
    enabled.then(|| strategy.unwrap_or_default())
}

/// What a model must be for to serve a surface.
pub const fn purpose(surface: Surface) -> Purpose {
    match surface {
        Surface::Chat | Surface::Messages | Surface::Responses | Surface::Proxy => Purpose::Chat,
        Surface::Completions => Purpose::Completion,
        Surface::Embeddings => Purpose::Embedding,
    }
}

/// The statuses from 400 to 499 by which a backend says nothing of the call: that it does not accept the gateway's own
/// credential or wants it paid (401, 402, 403, 407), and that it waited too long (408). Every other one is the answer.
pub const PASSING: [u16; 5] = [401, 402, 403, 407, 408];

/// True for an attempt whose backend refused the call itself. Some servers say with 400 that they do not accept the
/// gateway's credential: what the attempt failed of tells.
fn is_refused(attempt: &Attempt) -> bool {
    let refuses = |status| (400..500).contains(&status) && !PASSING.contains(&status);
    let of_credential = attempt.error_code == Some(FailureCode::UpstreamRejectedCredential);
    attempt.status.is_some_and(refuses) && !of_credential
}

/// Whether another model is asked after this one ended so, given that nothing of an answer has left: not when it served,
/// not when the call was ended from outside, and not when its backend itself refuses the call. What was sent to no
/// backend at all says nothing about the call as others take it.
pub fn moves_on(report: &Report) -> bool {
    let failed = matches!(
        report.outcome,
        Outcome::UpstreamError | Outcome::Timeout | Outcome::Rejected
    );
    let status = report.failure.as_ref().map_or(500, |failure| failure.status);
    let stopped = report
        .failure
        .as_ref()
        .is_some_and(|failure| failure.code == FailureCode::StreamInterrupted);
    let refused = report
        .attempts
        .last()
        .is_some_and(|last| status < 500 || is_refused(last));
    failed && !stopped && !report.delivered.content && !refused
}

/// The attempts that one model may use up of those that are left, so that each of `others` can have one.
pub fn share(left: u32, others: u32) -> u32 {
    left.saturating_sub(others).max(1)
}

#[cfg(test)]
mod tests;
