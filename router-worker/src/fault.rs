//! Why an attempt failed, and what follows from it: what it says about the backend, what to try next, and
//! what the caller is told. Upstream text reaches callers only if it passes the allow-list here.

use chrono::DateTime;
use dialects::chat::error::{UpstreamError, is_context_overflow, parse_upstream_error};
use dialects::gemini;
use dialects::messages;
use dialects::superset::answer::Broken;
use dialects::superset::request::{Refusal as Rejection, Unmappable};
use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use schemas::circuit::{Verdict, classify};
use schemas::event::request::Surface;
use schemas::failure::{Failure, FailureCode};
use schemas::outcome::Outcome;
use schemas::wake::tells_of_sleep;

use crate::plan::{RETRY_AFTER_SECONDS, none_available};

mod words;

/// Longest wait that is passed on from an upstream, in seconds.
const RETRY_AFTER_SECONDS_MAX: u64 = 3_600;
/// When to try again where every credential is kept for others: that is as its operator wants it, and lasts.
const RESERVED_SECONDS: u64 = 60;
/// The status of a failure inside an answer that says nothing that is known.
const UNNAMED_STATUS: u16 = 502;
/// The status by which Anthropic's API says that it has too much to do.
const OVERLOADED: u16 = 529;
/// What a status of 400 about the gateway's own key amounts to.
const UNAUTHORIZED: u16 = 401;
/// What one about the account behind it amounts to.
const PAYMENT_REQUIRED: u16 = 402;

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection, or it died before an answer.
    Unreachable,
    /// No connection in time: nothing was sent.
    Unconnected,
    /// One of our clocks ended it.
    TimedOut,
    /// The upstream said no.
    Refused(Box<Refusal>),
    /// The upstream pointed elsewhere, where no credential of ours goes.
    Redirected,
    /// The answer ended before its end.
    Cut,
    /// The answer is none.
    Unusable(Unusable),
    /// The endpoint cannot be called as it is configured: nothing was sent.
    Misconfigured,
    /// The endpoint's dialect cannot say what was asked for: nothing was sent.
    Unmappable(Box<Unmappable>),
    /// The request cannot be read, as it had to be for this endpoint: nothing was sent.
    Rejected(Box<Rejection>),
    /// Every credential that the caller may use is muted, because the upstream limits its rate: nothing was sent.
    Exhausted {
        /// Whole seconds until one of them is used again.
        seconds: u64,
    },
    /// The same, because the upstream does not accept them.
    Disowned,
    /// As many calls run with the credential as its provider bears, and none ended in time: nothing was sent.
    Saturated,
    /// Every credential is kept for others: nothing was sent.
    Reserved,
    /// It waited longer than it may while another leg is kept for calls that do.
    Waited(Waited),
}

/// What a request waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Its turn with a credential: nothing was sent.
    Queue,
    /// The first token.
    Engine,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// Not of the dialect.
    Malformed,
    /// It has no choices, or nothing was generated and nothing finished.
    Empty,
    /// It has fewer vectors than there were inputs.
    Partial,
    /// The upstream itself says that generation failed.
    Aborted,
    /// It, one of its events, or what comes before its first content, is larger than the cap.
    TooLarge,
    /// It is not coded as its head says.
    Coding,
}

/// An upstream's no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status, the one that the error inside a 200 names, or the one that it amounts to.
    pub(crate) status: u16,
    /// The error came inside an answer of status 200.
    pub(crate) inside: bool,
    /// The prompt is longer than this upstream's model can take.
    pub(crate) overflow: bool,
    /// The service sleeps, or is not up yet.
    pub(crate) asleep: bool,
    /// When to try again.
    pub(crate) retry_after_seconds: Option<u64>,
    /// What it says.
    pub(crate) told: Option<UpstreamError>,
}

/// What to try after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Another credential of the endpoint, then another endpoint.
    NextCredential,
    /// Another endpoint.
    NextEndpoint,
    /// An endpoint whose model takes longer prompts.
    WiderEndpoint,
    /// Nothing: the request itself is at fault.
    Report,
}

/// What a refusal says about the credential it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It is not accepted.
    Refused,
    /// It has called too often.
    Limited {
        /// For so many seconds, where the upstream tells.
        seconds: Option<u64>,
    },
}

impl Refusal {
    /// An answer whose status is an error.
    pub(crate) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let told = parse_upstream_error(body);
        let means_key = told.as_ref().and_then(UpstreamError::amounts_to) == Some(UNAUTHORIZED);
        let refuses_key = status == 400 && (means_key || gemini::error::refuses_key(body));
        let is_spent = status == 400 && messages::error::tells_of_spent_account(body);
        let wait = retry_after(headers).or_else(|| gemini::error::retry_after_seconds(body));
        let moderated = told.as_ref().map_or(status, |told| told.moderates(status));
        Self {
            status: match (refuses_key, is_spent) {
                (true, _) => UNAUTHORIZED,
                (false, true) => PAYMENT_REQUIRED,
                (false, false) => moderated,
            },
            inside: false,
            asleep: tells_of_sleep(status, body),
            overflow: !refuses_key && is_context_overflow(status, body),
            retry_after_seconds: wait.map(|seconds| seconds.clamp(1, RETRY_AFTER_SECONDS_MAX)),
            told,
        }
    }

    /// An error inside an answer of status 200.
    pub(crate) fn inside(told: UpstreamError) -> Self {
        let status = told.amounts_to().unwrap_or(UNNAMED_STATUS);
        Self {
            status,
            inside: true,
            asleep: false,
            overflow: matches!(status, 400 | 404 | 413 | 422) && told.speaks_of_overflow(),
            retry_after_seconds: None,
            told: Some(told),
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Unmappable> for Fault {
    fn from(unmappable: Unmappable) -> Self {
        Self::Unmappable(Box::new(unmappable))
    }
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(Box::new(rejection))
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Told(told) => Refusal::inside(*told).into(),
            Broken::Malformed => Self::Unusable(Unusable::Malformed),
            Broken::Aborted => Self::Unusable(Unusable::Aborted),
            Broken::Empty => Self::Unusable(Unusable::Empty),
            Broken::Cut => Self::Cut,
            Broken::TooLarge => Self::Unusable(Unusable::TooLarge),
        }
    }
}

impl Fault {
    /// The status that counts, `None` for failures without one.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// What it says about the backend.
    pub(crate) const fn verdict(&self) -> Verdict {
        match self {
            Self::Misconfigured
            | Self::Unmappable(_)
            | Self::Rejected(_)
            | Self::Exhausted { .. }
            | Self::Disowned
            | Self::Saturated
            | Self::Waited(_)
            | Self::Reserved => Verdict::Neutral,
            _ => classify(self.status()),
        }
    }

    /// What to try next, while nothing was handed over.
    pub(crate) const fn remedy(&self) -> Remedy {
        let Self::Refused(refusal) = self else {
            return Remedy::NextEndpoint;
        };
        match refusal.status {
            _ if refusal.overflow => Remedy::WiderEndpoint,
            401..=403 | 425 | 429 => Remedy::NextCredential,
            400 | 413 | 422 if !refusal.inside => Remedy::Report,
            _ => Remedy::NextEndpoint,
        }
    }

    /// True when it says something about the request itself.
    pub(crate) const fn concerns_request(&self) -> bool {
        matches!(self.status(), Some(400 | 404 | 413 | 422))
    }

    /// True when the service may be asleep: nobody takes connections there, or the answer says so.
    pub(crate) const fn suggests_sleep(&self, was_sent: bool) -> bool {
        match self {
            Self::Unreachable | Self::Unconnected => !was_sent,
            Self::Refused(refusal) => refusal.asleep,
            _ => false,
        }
    }

    /// True when another dialect stood between the request and the endpoint: another endpoint may take it as it is.
    pub(crate) const fn concerns_translation(&self) -> bool {
        matches!(self, Self::Unmappable(_) | Self::Rejected(_))
    }

    /// True when the upstream does not accept what proves an earlier thought.
    pub(crate) fn doubts_thoughts(&self) -> bool {
        let Self::Refused(refusal) = self else {
            return false;
        };
        let told = refusal.told.as_ref().and_then(|told| told.message.as_deref());
        let named = told.is_some_and(|text| text.contains("signature") || text.contains("thinking"));
        refusal.status == 400 && !refusal.inside && named
    }

    /// What it says about the credential. An error inside an answer of status 200 says nothing: the credential was
    /// accepted.
    pub(crate) const fn flaw(&self) -> Option<Flaw> {
        let Self::Refused(refusal) = self else {
            return None;
        };
        match refusal.status {
            _ if refusal.inside => None,
            401..=403 => Some(Flaw::Refused),
            425 | 429 => Some(Flaw::Limited {
                seconds: refusal.retry_after_seconds,
            }),
            _ => None,
        }
    }

    /// How the attempt ended.
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::TimedOut | Self::Unconnected | Self::Waited(_) => Outcome::Timeout,
            Self::Cut => Outcome::UpstreamCut,
            _ => Outcome::UpstreamError,
        }
    }

    /// What the attempt failed of, which may say more than its caller is told.
    pub(crate) fn code(&self) -> FailureCode {
        match self {
            Self::Unconnected => FailureCode::UpstreamConnectTimeout,
            _ => self.failure().code,
        }
    }

    /// What the caller is told when nothing was handed over.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Refused(refusal) => refusal.failure(),
            Self::TimedOut | Self::Waited(Waited::Engine) => Failure::new(
                FailureCode::UpstreamTimeout,
                "the model's provider did not answer in time",
            ),
            Self::Unconnected => Failure::new(
                FailureCode::UpstreamTimeout,
                "the model's provider did not take a connection in time",
            ),
            Self::Unreachable => upstream_error("the model's provider cannot be reached"),
            Self::Redirected => upstream_error("the model's provider answered with a redirect"),
            Self::Cut => upstream_error("the model's provider broke off its answer"),
            Self::Misconfigured => {
                upstream_error("the model's provider cannot be called as it is configured")
            }
            Self::Unusable(unusable) => upstream_error(unusable.text()),
            Self::Unmappable(unmappable) => {
                Failure::new(FailureCode::UnsupportedParameter, unmappable.to_string())
                    .param(unmappable.param.clone())
            }
            Self::Rejected(rejection) => rejected(rejection),
            Self::Exhausted { seconds } => rate_limited(*seconds),
            Self::Disowned => rejected_credential(),
            Self::Saturated | Self::Waited(Waited::Queue) => overloaded(RETRY_AFTER_SECONDS),
            Self::Reserved => none_available().retry_after(RESERVED_SECONDS),
        }
    }

    /// The same to a caller on a surface: clients of Messages know an overload by a status of its own.
    pub(crate) fn failure_on(&self, surface: Surface) -> Failure {
        let is_overload = matches!(self, Self::Saturated | Self::Waited(Waited::Queue))
            || self.status() == Some(OVERLOADED);
        if surface == Surface::Messages && is_overload {
            self.failure().with_status(OVERLOADED)
        } else {
            self.failure()
        }
    }

    /// What ends a stream of which a part was handed over. What says when, or how, to ask again is kept.
    pub(crate) fn interruption(&self) -> Failure {
        match self {
            Self::Refused(refusal)
                if refusal.overflow || matches!(refusal.status, 429 | 503 | OVERLOADED) =>
            {
                refusal.failure()
            }
            Self::TimedOut => Failure::new(
                FailureCode::UpstreamTimeout,
                "the model's provider stopped answering",
            ),
            _ => Failure::new(
                FailureCode::StreamInterrupted,
                "the model's provider broke off its answer",
            ),
        }
    }
}

impl Unusable {
    const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "the model's provider answered in a form that is not understood",
            Self::Empty => "the model's provider gave an empty answer",
            Self::Partial => "the model's provider left out a part of its answer",
            Self::Aborted => "the model's provider aborted its answer",
            Self::TooLarge => "the model's provider answered with more than the size limit",
            Self::Coding => "the model's provider answered in a coding that cannot be read",
        }
    }
}

impl Refusal {
    fn failure(&self) -> Failure {
        if self.overflow {
            let status = if self.status == 404 { 400 } else { self.status };
            let text = "the prompt is longer than the model's context";
            return self
                .explained(FailureCode::ContextLengthExceeded, text)
                .with_status(status);
        }
        match self.status {
            400 | 413 | 422 => self
                .explained(
                    FailureCode::UpstreamRejectedRequest,
                    "the model's provider rejected the request",
                )
                .with_status(self.status),
            401..=403 | 407 => rejected_credential(),
            408 | 504 => Failure::new(
                FailureCode::UpstreamTimeout,
                "the model's provider did not answer in time",
            ),
            429 => rate_limited(self.wait_seconds()),
            503 | OVERLOADED => overloaded(self.wait_seconds()),
            _ => upstream_error("the model's provider failed"),
        }
    }

    /// A failure about the request: with the upstream's own words where they are safe to show.
    fn explained(&self, code: FailureCode, text: &'static str) -> Failure {
        let told = self.told.as_ref();
        let message = told
            .and_then(|told| told.message.as_deref())
            .and_then(words::safe_message);
        let param = told
            .and_then(|told| told.param.as_deref())
            .and_then(words::safe_param);
        let failure = match message {
            Some(message) => Failure::new(code, message),
            None => Failure::new(code, text),
        };
        match param {
            Some(param) => failure.param(param),
            None => failure,
        }
    }

    fn wait_seconds(&self) -> u64 {
        self.retry_after_seconds.unwrap_or(RETRY_AFTER_SECONDS)
    }
}

/// A request that cannot be read, as its caller is told.
fn rejected(rejection: &Rejection) -> Failure {
    let message = rejection.to_string();
    match rejection {
        Rejection::InvalidJson => Failure::new(FailureCode::InvalidJson, message),
        Rejection::Invalid { param, .. } => {
            Failure::new(FailureCode::InvalidRequest, message).param(param.clone())
        }
        Rejection::Unsupported { param, .. } => {
            Failure::new(FailureCode::UnsupportedParameter, message).param(param.clone())
        }
    }
}

fn upstream_error(text: &'static str) -> Failure {
    Failure::new(FailureCode::UpstreamError, text)
}

fn rejected_credential() -> Failure {
    Failure::new(
        FailureCode::UpstreamRejectedCredential,
        "the model's provider does not accept the gateway's credential",
    )
}

fn rate_limited(wait_seconds: u64) -> Failure {
    Failure::new(
        FailureCode::UpstreamRateLimited,
        "the model's provider limits its rate",
    )
    .retry_after(wait_seconds)
}

fn overloaded(wait_seconds: u64) -> Failure {
    upstream_error("the model's provider is overloaded")
        .with_status(503)
        .retry_after(wait_seconds)
}

/// Whole seconds of a `Retry-After`. A date counts from the time at which the upstream itself says that it answered.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let wait = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = wait.parse::<u64>() {
        return Some(seconds);
    }
    let date = |text: &str| DateTime::parse_from_rfc2822(text).ok();
    let left = date(wait)? - date(text(DATE)?.trim())?;
    Some(u64::try_from(left.num_seconds()).unwrap_or(0))
}

#[cfg(test)]
mod tests;
