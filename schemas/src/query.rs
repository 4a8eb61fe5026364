//! Reads of the books: questions that travel over the bus to a ledger worker, and its answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::circuit::CircuitState;
use crate::engine;
use crate::event::request::RequestSettled;
use crate::health::Spared;
use crate::id::{BackendId, EndpointId, KeyId, ModelName, RequestId, TenantId, UserId};
use crate::limit::layers::Name;
use crate::limit::quota::Spent;
use crate::outcome::Outcome;
use crate::time::Timestamp;

pub mod audit;
pub mod export;
pub mod feed;

/// Rows on a page when the caller does not say.
pub const PAGE_ROWS_DEFAULT: u32 = 50;
/// Most rows on a page.
pub const PAGE_ROWS_MAX: u32 = 1_000;

/// Which rows: all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogFilter {
    /// Admitted at or after.
    pub from: Option<Timestamp>,
    /// Admitted before.
    pub to: Option<Timestamp>,
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this member.
    pub user: Option<UserId>,
    /// Of this key, by id.
    pub key: Option<KeyId>,
    /// Called for this job, by a grant.
    #[serde(default)]
    pub job: Option<Arc<str>>,
    /// Of this model.
    pub model: Option<ModelName>,
    /// Answered by this model, as rows have it.
    #[serde(default)]
    pub served_model: Option<String>,
    /// Served by this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Ended so.
    pub outcome: Option<Outcome>,
    /// With this status.
    pub status: Option<u16>,
    /// This request.
    pub request_id: Option<RequestId>,
}

/// A page of the request log, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsQuery {
    /// Which rows.
    pub filter: LogFilter,
    /// 1 to [`PAGE_ROWS_MAX`].
    pub limit: u32,
    /// Only rows older than this one: the `next` of the page before.
    pub after: Option<RequestId>,
}

/// One row of the request log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The waybill.
    #[serde(flatten)]
    pub settled: RequestSettled,
    /// Source of the event the row came from.
    pub source: String,
    /// Its sequence there.
    pub source_sequence: u64,
}

/// Answer to [`LogsQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogsAnswer {
    /// The rows.
    pub data: Vec<Row>,
    /// Where the next page begins, `None` on the last.
    pub next: Option<RequestId>,
    /// How far rows were adjusted, by request; those that were not are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub adjustments: BTreeMap<RequestId, Adjustments>,
}

/// The adjustments of one request together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Adjustments {
    /// The number of the last.
    pub last: u32,
    /// By how much they change what the row says, in nano-dollars.
    pub amount_nano_usd: i64,
}

/// One request with the event it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// The request.
    pub request_id: RequestId,
    /// Only if it is of this tenant.
    pub tenant: Option<TenantId>,
    /// Only if it is of this key.
    pub key: Option<KeyId>,
}

/// Answer to [`LogQuery`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogAnswer {
    /// The row, `None` when there is none.
    pub row: Option<Row>,
    /// The raw envelope the row came from.
    pub event: Option<Box<serde_json::value::RawValue>>,
}

/// A field that usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The tenant.
    Tenant,
    /// The member.
    User,
    /// The key, by id.
    Key,
    /// The model asked for.
    Model,
    /// The model that answered, as rows have it.
    ServedModel,
    /// The endpoint that served.
    Endpoint,
    /// The provider that served.
    Provider,
}

/// Width of a usage bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// An hour of the asked time zone.
    Hour,
    /// A day of it.
    Day,
}

/// Most places of one [`QuotasQuery`].
pub const QUOTA_EVENTS_MAX: u64 = 500;

/// What a source charged to quotas, by the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotasQuery {
    /// The source, as it stands in events.
    pub source: String,
    /// Of events beyond this place.
    pub after: u64,
    /// Up to this one: at most [`QUOTA_EVENTS_MAX`] more.
    pub upto: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuotasAnswer {
    /// What was charged, by quota.
    pub quotas: BTreeMap<Name, u64>,
}

/// Most quotas of one [`PeerQuery::Settled`].
pub const PEER_QUOTAS_MAX: usize = 1_000;

/// What one gateway asks another: what that one knows and the shared records or the books do not have yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerQuery {
    /// What it settled of these quotas, [`PEER_QUOTAS_MAX`] at most.
    Settled(Vec<Name>),
    /// Whether the books have all that it has answered so far; it waits a moment for them.
    Booked,
    /// Whether the books have all that the runs before this one left in its spool.
    Recovered,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerAnswer {
    /// By quota; none for those of which it holds nothing that it has not told.
    Settled(BTreeMap<Name, Spent>),
    /// Whether it is so.
    Booked(bool),
    /// Whether it is so.
    Recovered(bool),
}

/// Sums of usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// Which rows: only `from`, `to`, `tenant`, `user`, `key`, `model`, `served_model`, `endpoint` are honoured.
    pub filter: LogFilter,
    /// Grouped by these, in this order.
    pub group_by: Vec<GroupBy>,
    /// In buckets of this width; `None` is one bucket for all.
    pub interval: Option<Interval>,
    /// IANA name of the time zone of the buckets.
    pub tz: String,
}

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UsageRow {
    /// The tenant, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The member, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The key, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The model, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model that answered, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
    /// The endpoint, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The provider, when grouped by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Start of the bucket, RFC 3339 in the asked time zone; absent without an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Requests that ended.
    pub requests: u64,
    /// Those that ended well.
    pub ok: u64,
    /// Those that did not.
    pub errors: u64,
    /// Fresh input tokens.
    pub input_tokens: u64,
    /// Cached input tokens.
    pub cached_tokens: u64,
    /// Input tokens written to a cache.
    pub cache_write_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// What callers pay, as it was settled.
    pub cost_nano_usd: i64,
    /// By how much that was adjusted afterwards.
    #[serde(default)]
    pub adjusted_nano_usd: i64,
    /// What callers pay with all adjustments.
    #[serde(default)]
    pub total_nano_usd: i64,
}

/// Answer to [`UsageQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageAnswer {
    /// The sums, oldest bucket first, then by group.
    pub data: Vec<UsageRow>,
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum QueryError {
    /// The question is malformed; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The database is away.
    #[error("the ledger's database is not available")]
    Unavailable,
}

/// Answer to a rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RebuildAnswer {
    /// Events read from the log.
    pub events: u64,
    /// Rows in the request log afterwards.
    pub rows: u64,
}

/// The health of one backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendHealth {
    /// State of its circuit.
    pub circuit_state: CircuitState,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// The status of the last failure that had one.
    pub last_error_status: Option<u16>,
    /// What its engine says of itself, where that is known and not too old.
    pub engine: Option<EngineHealth>,
    /// Why it is left out: `unhealthy`, `hot_gpu`.
    #[serde(default)]
    pub exclusion_reasons: Vec<Spared>,
}

/// What an engine says of itself; null where it does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineHealth {
    /// What it is.
    pub kind: Option<engine::Kind>,
    /// Requests that it works on.
    pub running: Option<u64>,
    /// Requests in its queue.
    pub waiting: Option<u64>,
    /// How full its cache of keys and values is, in percent.
    pub kv_cache_percent: Option<f64>,
    /// Seconds since whoever tells this has known it.
    pub age_seconds: u64,
}

/// The health of one endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndpointHealth {
    /// Moving availability, 0 to 1: the best of its backends.
    pub availability: f64,
    /// Models whose routes here are not used.
    pub excluded_from_models: Vec<ModelName>,
    /// Why: `configured_zero`, `provider_disabled`; and `unhealthy`, `hot_gpu` where that keeps all of its backends out.
    pub exclusion_reasons: Vec<String>,
    /// By backend.
    pub backends: BTreeMap<BackendId, BackendHealth>,
}

/// Answer to the health query, by endpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HealthAnswer {
    /// By endpoint.
    pub endpoints: BTreeMap<EndpointId, EndpointHealth>,
}

/// How far the ledger is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerState {
    /// Events applied since the start.
    pub events_applied: u64,
    /// The last sequence of the stream that was applied.
    pub cursor: u64,
    /// The database answers.
    pub database_connected: bool,
    /// Events that are missing although later ones of their source are kept.
    #[serde(default)]
    pub events_missing: u64,
    /// Events read since the start that were not understood and only kept.
    #[serde(default)]
    pub events_unreadable: u64,
}
