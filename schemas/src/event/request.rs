//! Facts about requests. `request.settled` is the waybill: who sent it, which way it went, what it cost.

use std::sync::Arc;

use chrono::NaiveDate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auto::record::Routed;
use crate::balance::decision::Decision;
use crate::failure::FailureCode;
use crate::id::{BackendId, EndpointId, KeyId, ModelName, NodeId, RequestId, TenantId, UserId};
use crate::limit::Reservation;
use crate::limit::layers::Name;
use crate::money::{NanoUsd, Price, PriceVersion};
use crate::outcome::Outcome;
use crate::time::{Timestamp, deserialize_day, serialize_day};
use crate::usage::{Metering, UsageFlag, UsageSource};

/// The path family a request came in on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `/api/v1/proxy/{endpoint}/…`: whatever is sent passes as it is.
    Proxy,
}

impl Surface {
    /// The word used in rows and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Proxy => "proxy",
        }
    }
}

/// Who a request belongs to, as far as the books are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Payer {
    /// Who pays.
    pub tenant: TenantId,
    /// The member, where the key belongs to one.
    pub user: Option<UserId>,
    /// The virtual key.
    pub key_id: KeyId,
    /// Its name.
    pub key_name: Arc<str>,
    /// The job that a grant is for, as whoever runs it calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Arc<str>>,
}

/// One try of one request on one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// The endpoint tried.
    pub endpoint_id: EndpointId,
    /// The backend of it.
    pub backend: BackendId,
    /// The provider label.
    pub provider: Arc<str>,
    /// The upstream's status, `None` when there was no answer.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub error_code: Option<FailureCode>,
    /// When it began.
    pub started_at: Timestamp,
    /// Milliseconds to the first byte of the answer's body.
    pub first_byte_ms: Option<u64>,
    /// Milliseconds to its end.
    pub latency_ms: u64,
}

/// What one quota counts of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaCharge {
    /// The name of its record: whose it is, which limit, which period.
    pub name: Name,
    /// How much, in calls, tokens or nano-dollars.
    pub amount: u64,
}

/// `request.accepted`: published only for requests that are still open after one second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestAccepted {
    /// The request.
    pub request_id: RequestId,
    /// Who pays.
    #[serde(flatten)]
    pub payer: Payer,
    /// The path family.
    pub surface: Surface,
    /// The model asked for.
    pub model: ModelName,
    /// What it holds.
    pub reservation: Reservation,
    /// The prices in force.
    pub price_version: PriceVersion,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// The node that admitted it.
    pub node: NodeId,
}

/// `request.settled`: the waybill. Field names are those of the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestSettled {
    /// The request.
    pub request_id: RequestId,
    /// The caller's own `X-Request-Id`.
    pub client_request_id: Option<Arc<str>>,
    /// Who pays.
    pub tenant: TenantId,
    /// The member, where the key belongs to one.
    pub user: Option<UserId>,
    /// The virtual key.
    pub key_id: KeyId,
    /// Its name.
    pub key_name: Arc<str>,
    /// The job that it was called for, by a grant; absent for every other credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Arc<str>>,
    /// The caller's own customer: `X-End-User`, else the body's `user`.
    pub end_user: Option<Arc<str>>,
    /// The path family.
    pub surface: Surface,
    /// The model asked for.
    pub model: ModelName,
    /// The upstream's name of the model that served.
    pub served_model: Option<Arc<str>>,
    /// Provider label of the endpoint that served.
    pub provider: Option<Arc<str>>,
    /// The endpoint that served.
    pub endpoint_id: Option<EndpointId>,
    /// The backend that served.
    pub backend: Option<BackendId>,
    /// Every try, in order.
    pub attempts: Vec<Attempt>,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status the caller saw (499 for a caller that left before one was sent).
    pub status: u16,
    /// Why it failed.
    pub error_code: Option<FailureCode>,
    /// True for a streamed answer.
    pub stream: bool,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// When it settled.
    pub ended_at: Timestamp,
    /// Milliseconds to the first content byte.
    pub ttft_ms: Option<u64>,
    /// Milliseconds from admission to settlement.
    pub latency_ms: u64,
    /// Fresh input tokens.
    pub input_tokens: u64,
    /// Input tokens read from a cache.
    pub cached_tokens: u64,
    /// Input tokens written to a cache.
    pub cache_write_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Reasoning tokens, a part of the output.
    pub reasoning_tokens: u64,
    /// Images in the prompt.
    pub images: u64,
    /// Where the figures came from.
    pub usage_source: UsageSource,
    /// What to know about them.
    pub usage_flags: Vec<UsageFlag>,
    /// Which prices applied.
    pub price_version: PriceVersion,
    /// The prices of the endpoint that served, `None` when it is unpriced or nothing served.
    pub prices: Option<Price>,
    /// What the caller pays, in nano-dollars.
    pub cost_nano_usd: NanoUsd,
    /// The same as a decimal string of US dollars.
    pub cost_usd: String,
    /// What the call cost us as upstreams tell it, over all attempts, or as it is reckoned where the caller pays nothing;
    /// `None` when nothing of it is known. A flag says when an attempt's is missing.
    pub upstream_cost_nano_usd: Option<NanoUsd>,
    /// What the call cost beyond what limits allowed to charge.
    pub absorbed_nano_usd: NanoUsd,
    /// What each quota counts of it: after a restart this tells what the records do not hold yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaCharge>,
    /// The session, where the caller names one.
    pub session_id: Option<Arc<str>>,
    /// How affinity decided.
    pub affinity: Option<Arc<str>>,
    /// What the router decided about whom to ask, and from what; absent where there was one way and nobody was left out.
    /// No column: the event alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<Decision>>,
    /// `first` or `replay` for calls with an idempotency key.
    pub idempotency: Option<Arc<str>>,
    /// Its figures, where they are not those of a good answer whose upstream told them. Absent where nothing ran, and where
    /// nobody knows what did. No column: the event alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metering: Option<Metering>,
    /// How its model was chosen, where its caller left that to the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Box<Routed>>,
    /// The node that admitted it.
    pub node: NodeId,
    /// The catalogue revision it was admitted under.
    pub config_revision: Arc<str>,
    /// The UTC day of the request id.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub waybill_day: NaiveDate,
    /// The day in the billing time zone, fixed at admission.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub billing_day: NaiveDate,
    /// The first day of the month in the billing time zone.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub billing_month: NaiveDate,
}

/// `request.lost`: provisional, amount 0, superseded by the node's own settlement if it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestLost {
    /// The accepted facts it stands for.
    #[serde(flatten)]
    pub accepted: RequestAccepted,
    /// When it was declared.
    pub declared_at: Timestamp,
    /// The UTC day of the request id.
    pub waybill_day: NaiveDate,
    /// The day in the billing time zone.
    pub billing_day: NaiveDate,
    /// The first day of the month in the billing time zone.
    pub billing_month: NaiveDate,
}

impl RequestLost {
    /// The row of a request that nobody else settled: nothing was measured and nothing is charged.
    pub fn into_row(self) -> RequestSettled {
        let accepted = self.accepted;
        RequestSettled {
            request_id: accepted.request_id,
            client_request_id: None,
            tenant: accepted.payer.tenant,
            user: accepted.payer.user,
            key_id: accepted.payer.key_id,
            key_name: accepted.payer.key_name,
            job_id: accepted.payer.job_id,
            end_user: None,
            surface: accepted.surface,
            model: accepted.model,
            served_model: None,
            provider: None,
            endpoint_id: None,
            backend: None,
            attempts: Vec::new(),
            outcome: Outcome::Lost,
            status: FailureCode::NodeLost.status(),
            error_code: Some(FailureCode::NodeLost),
            stream: false,
            started_at: accepted.started_at,
            ended_at: self.declared_at,
            ttft_ms: None,
            latency_ms: self.declared_at.millis_since(accepted.started_at),
            input_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            images: 0,
            usage_source: UsageSource::None,
            usage_flags: Vec::new(),
            config_revision: accepted.price_version.revision().into(),
            price_version: accepted.price_version,
            prices: None,
            cost_nano_usd: NanoUsd::ZERO,
            cost_usd: NanoUsd::ZERO.usd(),
            upstream_cost_nano_usd: None,
            absorbed_nano_usd: NanoUsd::ZERO,
            quotas: Vec::new(),
            session_id: None,
            affinity: None,
            decision: None,
            idempotency: None,
            metering: None,
            auto: None,
            node: accepted.node,
            waybill_day: self.waybill_day,
            billing_day: self.billing_day,
            billing_month: self.billing_month,
        }
    }
}
