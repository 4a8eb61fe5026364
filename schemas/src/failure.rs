//! The closed list of reasons a caller may see. A failure carries a code, a status and a message that is
//! safe to show: nothing an upstream, a library or a store said travels here unless it is on an allow-list.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::id::ModelName;
use crate::limit::Standing;
use crate::limit::layers::Scope;
use crate::limit::limits::LimitKey;
use crate::money::NanoUsd;

/// Declares the codes with the text that callers see and the status that goes with them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $kind:literal;)*) => {
        /// Why a call was refused or failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum FailureCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl FailureCode {
            /// Every code, in the order of this file.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as callers and rows see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that usually goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The OpenAI error `type`.
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$name => $kind,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    InvalidJson = "invalid_json", 400, "invalid_request_error";
    /// The body is JSON of a wrong shape.
    InvalidRequest = "invalid_request", 400, "invalid_request_error";
    /// A parameter that the model or this gateway does not support.
    UnsupportedParameter = "unsupported_parameter", 400, "invalid_request_error";
    /// The prompt does not fit the model.
    ContextLengthExceeded = "context_length_exceeded", 400, "invalid_request_error";
    /// A kind of input the model does not take.
    UnsupportedModality = "unsupported_modality", 400, "invalid_request_error";
    /// The body is larger than the limit.
    BodyTooLarge = "body_too_large", 413, "invalid_request_error";
    /// The headers are larger than the limit.
    HeadersTooLarge = "headers_too_large", 431, "invalid_request_error";
    /// No credential, or one that is not valid.
    InvalidApiKey = "invalid_api_key", 401, "authentication_error";
    /// The address of mail or the password is wrong: one answer for both.
    WrongPassword = "wrong_password", 401, "authentication_error";
    /// Whoever tries to sign in has tried too often.
    TooManyAttempts = "too_many_attempts", 429, "rate_limit_error";
    /// The credential is good but may not do this.
    InsufficientScope = "insufficient_scope", 403, "permission_error";
    /// The model is unknown, hidden, forbidden, disabled or out of scope: one answer for all.
    ModelNotFound = "model_not_found", 404, "invalid_request_error";
    /// No such path or object.
    NotFound = "not_found", 404, "invalid_request_error";
    /// No such response for the caller to go on from.
    PreviousResponseNotFound = "previous_response_not_found", 404, "invalid_request_error";
    /// The path exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405, "invalid_request_error";
    /// There is one of that name.
    AlreadyExists = "already_exists", 409, "invalid_request_error";
    /// Somebody else changed it first.
    Conflict = "conflict", 409, "invalid_request_error";
    /// Calls per second.
    QpsExceeded = "QPS_EXCEEDED", 429, "rate_limit_error";
    /// Calls per minute.
    RpmExceeded = "RPM_EXCEEDED", 429, "rate_limit_error";
    /// Tokens per minute.
    TokensPerMinuteExceeded = "TOKENS_PER_MINUTE_EXCEEDED", 429, "rate_limit_error";
    /// Calls at once.
    ConcurrencyExceeded = "CONCURRENCY_EXCEEDED", 429, "rate_limit_error";
    /// Calls per day.
    DailyLimitExceeded = "DAILY_LIMIT_EXCEEDED", 429, "rate_limit_error";
    /// Calls per month.
    MonthlyQuotaExceeded = "MONTHLY_QUOTA_EXCEEDED", 429, "rate_limit_error";
    /// Tokens per day.
    DailyTokensExceeded = "DAILY_TOKENS_EXCEEDED", 429, "rate_limit_error";
    /// Tokens per month.
    MonthlyTokensExceeded = "MONTHLY_TOKENS_EXCEEDED", 429, "rate_limit_error";
    /// Money per day.
    DailySpendExceeded = "DAILY_SPEND_EXCEEDED", 429, "rate_limit_error";
    /// Money per month.
    MonthlySpendExceeded = "MONTHLY_SPEND_EXCEEDED", 429, "rate_limit_error";
    /// Money in all.
    TotalSpendExceeded = "TOTAL_SPEND_EXCEEDED", 429, "rate_limit_error";
    /// The first request with this idempotency key still runs.
    IdempotencyInProgress = "IDEMPOTENCY_REQUEST_IN_PROGRESS", 409, "idempotency_error";
    /// The idempotency key was used with another body.
    IdempotencyBodyMismatch = "IDEMPOTENCY_KEY_BODY_MISMATCH", 422, "idempotency_error";
    /// The first request with this idempotency key is over, but its answer was not kept: it was too large, or is lost.
    IdempotencyNotReplayable = "IDEMPOTENCY_REPLAY_UNAVAILABLE", 409, "idempotency_error";
    /// Every circuit of the model is open.
    AllCircuitsOpen = "all_circuits_open", 503, "server_error";
    /// Nothing is configured that could serve this.
    NoBackendsAvailable = "no_backends_available", 503, "server_error";
    /// A sleeping backend is being woken.
    ServiceWaking = "service_waking", 503, "server_error";
    /// The graphics processor is lent to another service.
    WakeQueuedGpuBorrowed = "wake_queued_gpu_borrowed", 503, "server_error";
    /// The machine of the backend is off.
    WakeFailedNodeOffline = "wake_failed_node_offline", 503, "server_error";
    /// Automatic routing found no candidate.
    NoAutoCandidates = "no_auto_candidates", 503, "server_error";
    /// Automatic routing found no candidate for the purpose.
    NoAutoCandidatesForPurpose = "no_auto_candidates_for_purpose", 503, "server_error";
    /// Every candidate of automatic routing failed.
    AutoRoutingAllFailed = "auto_routing_all_failed", 502, "server_error";
    /// The endpoint's protocol has no such path.
    UnsupportedEndpoint = "unsupported_endpoint_for_upstream_protocol", 400, "invalid_request_error";
    /// The upstream failed or answered with an error.
    UpstreamError = "upstream_error", 502, "server_error";
    /// The upstream refused the request as malformed.
    UpstreamRejectedRequest = "upstream_rejected_request", 400, "invalid_request_error";
    /// The upstream limits its rate.
    UpstreamRateLimited = "upstream_rate_limited", 429, "rate_limit_error";
    /// The upstream was too slow.
    UpstreamTimeout = "upstream_timeout", 504, "server_error";
    /// The upstream took no connection in time; of attempts alone: callers are told that it was too slow.
    UpstreamConnectTimeout = "upstream_connect_timeout", 504, "server_error";
    /// The upstream does not accept our credential.
    UpstreamRejectedCredential = "upstream_rejected_credential", 502, "server_error";
    /// A started stream was ended by the gateway or broke off.
    StreamInterrupted = "stream_interrupted", 502, "server_error";
    /// Too much is running.
    Overloaded = "overloaded", 503, "server_error";
    /// The node is shutting down.
    Draining = "draining", 503, "server_error";
    /// A store that must be asked is away.
    StoreUnavailable = "store_unavailable", 503, "server_error";
    /// The spool cannot take another record.
    SpoolFull = "spool_full", 503, "server_error";
    /// The pinned provider does not serve the model.
    PinNotFound = "pin_not_found", 400, "invalid_request_error";
    /// The caller left.
    ClientGone = "client_gone", 499, "client_gone";
    /// The node died.
    NodeLost = "node_lost", 500, "server_error";
    /// A defect of ours.
    Internal = "internal", 500, "server_error";
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure as a caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason.
    pub code: FailureCode,
    /// The HTTP status; usually the code's own, an upstream's where it says more.
    pub status: u16,
    /// Safe text: written by us, or an upstream message that passed the allow-list.
    pub message: Cow<'static, str>,
    /// The parameter at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<Cow<'static, str>>,
    /// Whole seconds after which a retry makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// True once every leg was tried: the client's own retry would only repeat it.
    #[serde(default)]
    pub exhausted: bool,
    /// The limit that a refused call exceeds. Only its own gateway tells of it.
    #[serde(skip)]
    pub exceeded: Option<Box<Exceeded>>,
}

/// A limit that a refused call exceeds, as its caller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub key: LimitKey,
    /// Of whom.
    pub scope: Scope,
    /// For calls of this model only.
    pub model: Option<ModelName>,
    /// How it stands.
    pub standing: Standing,
    /// When it is whole again, RFC 3339 in the billing time zone; `None` for what is never, and for calls at once.
    pub reset_at: Option<String>,
    /// Seconds until then.
    pub reset_seconds: Option<u64>,
    /// The call may use more than the limit allows at all: no later time is better for it.
    pub is_excessive: bool,
}

impl Exceeded {
    /// An amount as it is shown: a number, or US dollars as text.
    pub fn shown(&self, amount: u64) -> Amount {
        Amount::of(self.key, amount)
    }
}

/// An amount of a limit as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Amount {
    /// Calls or tokens.
    Count(u64),
    /// US dollars.
    Usd(String),
}

impl Amount {
    /// Of a limit, in its own unit.
    pub fn of(key: LimitKey, amount: u64) -> Self {
        if key.is_money() {
            Self::Usd(NanoUsd(i64::try_from(amount).unwrap_or(i64::MAX)).usd())
        } else {
            Self::Count(amount)
        }
    }

    /// Writes the same behind what `out` has.
    pub fn push(key: LimitKey, amount: u64, out: &mut String) {
        if key.is_money() {
            NanoUsd(i64::try_from(amount).unwrap_or(i64::MAX)).push_usd(out);
        } else {
            out.push_str(itoa::Buffer::new().format(amount));
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Usd(text) => f.write_str(text),
        }
    }
}

impl Serialize for Exceeded {
    /// The members that the body of a 429 has beside those of every error.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("Exceeded", 5)?;
        members.serialize_field("limit", &self.shown(self.standing.limit))?;
        members.serialize_field("current", &self.shown(self.standing.current))?;
        members.serialize_field("remaining", &self.shown(self.standing.remaining))?;
        members.serialize_field("scope", self.scope.as_str())?;
        members.serialize_field("reset_at", &self.reset_at)?;
        members.end()
    }
}

impl Failure {
    /// A failure with its code's usual status.
    pub fn new(code: FailureCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            status: code.status(),
            message: message.into(),
            param: None,
            retry_after_seconds: None,
            exhausted: false,
            exceeded: None,
        }
    }

    /// Names the parameter at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Overrides the status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_read_back_from_their_text() {
        for (index, code) in FailureCode::ALL.iter().enumerate() {
            let text = serde_json::to_string(code).expect("serialize");
            assert_eq!(serde_json::from_str::<FailureCode>(&text).expect("parse"), *code);
            assert!(
                FailureCode::ALL[index + 1..]
                    .iter()
                    .all(|other| other.as_str() != code.as_str())
            );
        }
    }
}
