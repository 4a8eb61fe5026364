//! Rows of `api_logs` and sums of `usage_rollup`, the same for every adapter: their columns, the order in which the
//! values of a row are written, how a row is read back. An adapter says how one value is written and read.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::event::request::RequestSettled;
use schemas::id::{BackendId, EndpointId, KeyId, ModelName, NodeId, RequestId, TenantId, UserId};
use schemas::money::{NanoUsd, PriceVersion};
use schemas::query::{GroupBy, Row};
use schemas::subject;
use schemas::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as WordError, StrDeserializer};

use super::StoreError;
use crate::fold::{Group, Origin, Standing, Sums, bucket};
use crate::record::Waybill;

/// The columns, in the order in which [`put`] writes them.
pub(super) const COLUMNS: &[&str] = &[
    "request_id",
    "client_request_id",
    "tenant",
    "\"user\"",
    "key_id",
    "key_name",
    "job_id",
    "end_user",
    "surface",
    "model",
    "served_model",
    "provider",
    "endpoint_id",
    "backend",
    "attempts",
    "outcome",
    "status",
    "error_code",
    "stream",
    "started_at",
    "ended_at",
    "ttft_ms",
    "latency_ms",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "images",
    "usage_source",
    "usage_flags",
    "price_version",
    "prices",
    "cost_nano_usd",
    "cost_usd",
    "upstream_cost_nano_usd",
    "absorbed_nano_usd",
    "session_id",
    "affinity",
    "idempotency",
    "node",
    "config_revision",
    "waybill_day",
    "billing_day",
    "billing_month",
    "source",
    "source_sequence",
    "event_id",
    "provisional",
];

/// The columns that [`standing`] reads.
pub(super) const STANDING_COLUMNS: &str = "request_id, provisional, source, source_sequence, event_id, started_at, \
     billing_day, tenant, \"user\", key_id, model, endpoint_id, provider, outcome, input_tokens, cached_tokens, \
     cache_write_tokens, output_tokens, cost_nano_usd";

/// The columns of [`Sums`], in the order of [`figures`].
pub(super) const FIGURES: [&str; 8] = [
    "requests",
    "ok",
    "errors",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "cost_nano_usd",
];

/// Where the values of a row go, one after the other.
pub(super) trait Sink {
    /// A text, or NULL.
    fn text(&mut self, value: Option<&str>);
    /// A text that others hold, too, or NULL.
    fn shared(&mut self, value: Option<&Arc<str>>) {
        self.text(value.map(|text| &**text));
    }
    /// JSON text, or NULL.
    fn json(&mut self, value: Option<String>);
    /// An integer, or NULL.
    fn integer(&mut self, value: Option<i64>);
    /// Yes or no.
    fn truth(&mut self, value: bool);
    /// A point in time.
    fn time(&mut self, value: Timestamp);
    /// A day.
    fn day(&mut self, value: NaiveDate);
    /// A request's id.
    fn id(&mut self, value: RequestId);
    /// A count; what does not fit the column is cut to its largest.
    fn count(&mut self, value: u64) {
        self.integer(Some(capped(value)));
    }
}

/// A row that was read. Every value is asked for by the column's name.
pub(super) trait Fields {
    /// A text, or NULL.
    fn optional_text(&self, name: &'static str) -> Result<Option<Cow<'_, str>>, StoreError>;
    /// An integer, or NULL.
    fn optional_integer(&self, name: &'static str) -> Result<Option<i64>, StoreError>;
    /// Yes or no.
    fn truth(&self, name: &'static str) -> Result<bool, StoreError>;
    /// A point in time.
    fn time(&self, name: &'static str) -> Result<Timestamp, StoreError>;
    /// A day.
    fn day(&self, name: &'static str) -> Result<NaiveDate, StoreError>;
    /// A request's id.
    fn id(&self, name: &'static str) -> Result<RequestId, StoreError>;
}

/// Writes a row: a value for each of [`COLUMNS`].
pub(super) fn put(sink: &mut impl Sink, waybill: &Arc<Waybill>) {
    let row = &waybill.row;
    let settled = &row.settled;
    put_parties(sink, settled);
    put_course(sink, settled);
    put_figures(sink, settled);
    sink.shared(settled.session_id.as_ref());
    sink.shared(settled.affinity.as_ref());
    sink.shared(settled.idempotency.as_ref());
    sink.shared(Some(&settled.node.0));
    sink.shared(Some(&settled.config_revision));
    sink.day(settled.waybill_day);
    sink.day(settled.billing_day);
    sink.day(settled.billing_month);
    sink.text(Some(&row.source));
    sink.count(row.source_sequence);
    sink.shared(Some(&waybill.event_id));
    sink.truth(waybill.provisional);
}

fn put_parties(sink: &mut impl Sink, settled: &RequestSettled) {
    sink.id(settled.request_id);
    sink.shared(settled.client_request_id.as_ref());
    sink.shared(Some(&settled.tenant.0));
    sink.shared(settled.user.as_ref().map(|user| &user.0));
    sink.shared(Some(&settled.key_id.0));
    sink.shared(Some(&settled.key_name));
    sink.shared(settled.job_id.as_ref());
    sink.shared(settled.end_user.as_ref());
    sink.text(Some(settled.surface.as_str()));
    sink.shared(Some(&settled.model.0));
    sink.shared(settled.served_model.as_ref());
    sink.shared(settled.provider.as_ref());
    sink.shared(settled.endpoint_id.as_ref().map(|endpoint| &endpoint.0));
    sink.shared(settled.backend.as_ref().map(|backend| &backend.0));
}

fn put_course(sink: &mut impl Sink, settled: &RequestSettled) {
    sink.json(Some(json(&settled.attempts)));
    sink.text(Some(settled.outcome.as_str()));
    sink.integer(Some(i64::from(settled.status)));
    sink.text(settled.error_code.map(schemas::failure::FailureCode::as_str));
    sink.truth(settled.stream);
    sink.time(settled.started_at);
    sink.time(settled.ended_at);
    sink.integer(settled.ttft_ms.map(capped));
    sink.count(settled.latency_ms);
}

fn put_figures(sink: &mut impl Sink, settled: &RequestSettled) {
    sink.count(settled.input_tokens);
    sink.count(settled.cached_tokens);
    sink.count(settled.cache_write_tokens);
    sink.count(settled.output_tokens);
    sink.count(settled.reasoning_tokens);
    sink.count(settled.images);
    sink.text(Some(settled.usage_source.as_str()));
    sink.json(Some(json(&settled.usage_flags)));
    sink.shared(Some(&settled.price_version.0));
    sink.json(settled.prices.as_ref().map(json));
    sink.integer(Some(settled.cost_nano_usd.0));
    sink.text(Some(&settled.cost_usd));
    sink.integer(settled.upstream_cost_nano_usd.map(|cost| cost.0));
    sink.integer(Some(settled.absorbed_nano_usd.0));
}

/// Plain data as JSON text. Every type written here serializes.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A count as a column holds it: what does not fit is cut to the largest.
pub(super) fn capped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Reads a whole row back.
pub(super) fn read(row: &impl Fields) -> Result<Row, StoreError> {
    Ok(Row {
        settled: settled(row)?,
        source: text(row, "source")?.into_owned(),
        source_sequence: count(row, "source_sequence")?,
    })
}

/// Reads a row back with the event that it came from.
pub(super) fn waybill(row: &impl Fields) -> Result<Waybill, StoreError> {
    Ok(Waybill {
        row: read(row)?,
        event_id: text(row, "event_id")?.into(),
        provisional: row.truth("provisional")?,
    })
}

fn settled(row: &impl Fields) -> Result<RequestSettled, StoreError> {
    Ok(RequestSettled {
        request_id: row.id("request_id")?,
        client_request_id: shared(row, "client_request_id")?,
        tenant: TenantId(text(row, "tenant")?.into()),
        user: shared(row, "user")?.map(UserId),
        key_id: KeyId(text(row, "key_id")?.into()),
        key_name: text(row, "key_name")?.into(),
        job_id: shared(row, "job_id")?,
        end_user: shared(row, "end_user")?,
        surface: word(row, "surface")?,
        model: ModelName(text(row, "model")?.into()),
        served_model: shared(row, "served_model")?,
        provider: shared(row, "provider")?,
        endpoint_id: shared(row, "endpoint_id")?.map(EndpointId),
        backend: shared(row, "backend")?.map(BackendId),
        attempts: parsed(row, "attempts")?,
        outcome: word(row, "outcome")?,
        status: u16::try_from(count(row, "status")?).map_err(|_| unreadable("status"))?,
        error_code: optional_word(row, "error_code")?,
        stream: row.truth("stream")?,
        started_at: row.time("started_at")?,
        ended_at: row.time("ended_at")?,
        ttft_ms: optional_count(row, "ttft_ms")?,
        latency_ms: count(row, "latency_ms")?,
        input_tokens: count(row, "input_tokens")?,
        cached_tokens: count(row, "cached_tokens")?,
        cache_write_tokens: count(row, "cache_write_tokens")?,
        output_tokens: count(row, "output_tokens")?,
        reasoning_tokens: count(row, "reasoning_tokens")?,
        images: count(row, "images")?,
        usage_source: word(row, "usage_source")?,
        usage_flags: parsed(row, "usage_flags")?,
        price_version: PriceVersion(text(row, "price_version")?.into()),
        prices: optional_parsed(row, "prices")?,
        cost_nano_usd: NanoUsd(integer(row, "cost_nano_usd")?),
        cost_usd: text(row, "cost_usd")?.into_owned(),
        upstream_cost_nano_usd: row.optional_integer("upstream_cost_nano_usd")?.map(NanoUsd),
        absorbed_nano_usd: NanoUsd(integer(row, "absorbed_nano_usd")?),
        quotas: Vec::new(),
        session_id: shared(row, "session_id")?,
        affinity: shared(row, "affinity")?,
        decision: None,
        idempotency: shared(row, "idempotency")?,
        metering: None,
        auto: None,
        node: NodeId(text(row, "node")?.into()),
        config_revision: text(row, "config_revision")?.into(),
        waybill_day: row.day("waybill_day")?,
        billing_day: row.day("billing_day")?,
        billing_month: row.day("billing_month")?,
    })
}

/// Reads what a fold needs to know of a row.
pub(super) fn standing(row: &impl Fields) -> Result<(RequestId, Standing), StoreError> {
    let or_none = |value: Option<Arc<str>>| value.unwrap_or_else(|| "".into());
    let tokens = [
        count(row, "input_tokens")?,
        count(row, "cached_tokens")?,
        count(row, "cache_write_tokens")?,
        count(row, "output_tokens")?,
    ];
    let standing = Standing {
        origin: Origin {
            provisional: row.truth("provisional")?,
            source: text(row, "source")?.into(),
            source_sequence: count(row, "source_sequence")?,
            event_id: text(row, "event_id")?.into(),
        },
        group: Group {
            bucket: bucket(row.time("started_at")?),
            billing_day: row.day("billing_day")?,
            tenant: text(row, "tenant")?.into(),
            user: or_none(shared(row, "user")?),
            key_id: text(row, "key_id")?.into(),
            model: text(row, "model")?.into(),
            endpoint_id: or_none(shared(row, "endpoint_id")?),
            provider: or_none(shared(row, "provider")?),
        },
        sums: Sums::of_row(word(row, "outcome")?, tokens, integer(row, "cost_nano_usd")?),
    };
    Ok((row.id("request_id")?, standing))
}

/// The condition that an event tells the end of a request, with the types as literals.
pub(super) fn ended() -> String {
    format!(
        "type IN ('{}', '{}')",
        subject::REQUEST_SETTLED,
        subject::REQUEST_LOST
    )
}

/// The figures of sums, in the order of [`FIGURES`].
pub(super) const fn figures(sums: &Sums) -> [i64; 8] {
    [
        sums.requests,
        sums.ok,
        sums.errors,
        sums.input_tokens,
        sums.cached_tokens,
        sums.cache_write_tokens,
        sums.output_tokens,
        sums.cost_nano_usd,
    ]
}

/// Reads sums.
pub(super) fn sums(row: &impl Fields) -> Result<Sums, StoreError> {
    Ok(Sums {
        requests: integer(row, "requests")?,
        ok: integer(row, "ok")?,
        errors: integer(row, "errors")?,
        input_tokens: integer(row, "input_tokens")?,
        cached_tokens: integer(row, "cached_tokens")?,
        cache_write_tokens: integer(row, "cache_write_tokens")?,
        output_tokens: integer(row, "output_tokens")?,
        cost_nano_usd: integer(row, "cost_nano_usd")?,
        adjusted_nano_usd: 0,
    })
}

/// Reads what adjustments come to.
pub(super) fn adjusted(row: &impl Fields) -> Result<Sums, StoreError> {
    Ok(Sums {
        adjusted_nano_usd: integer(row, "adjusted_nano_usd")?,
        ..Sums::default()
    })
}

/// The column of a dimension, as it stands in a statement.
pub(super) const fn dimension(group: GroupBy) -> &'static str {
    match group {
        GroupBy::Tenant => "tenant",
        GroupBy::User => "\"user\"",
        GroupBy::Key => "key_id",
        GroupBy::Model => "model",
        GroupBy::ServedModel => "served_model",
        GroupBy::Endpoint => "endpoint_id",
        GroupBy::Provider => "provider",
    }
}

/// Reads the values of the dimensions that sums were grouped by.
pub(super) fn names(row: &impl Fields, group_by: &[GroupBy]) -> Result<crate::usage::Group, StoreError> {
    let name = |group: &GroupBy| text(row, dimension(*group).trim_matches('"')).map(Cow::into_owned);
    group_by.iter().map(name).collect()
}

/// What cannot be understood.
pub(super) const fn unreadable(column: &'static str) -> StoreError {
    StoreError::Unreadable { column }
}

/// A text that is never NULL.
pub(super) fn text<'r>(row: &'r impl Fields, name: &'static str) -> Result<Cow<'r, str>, StoreError> {
    row.optional_text(name)?.ok_or_else(|| unreadable(name))
}

/// An integer that is never NULL.
pub(super) fn integer(row: &impl Fields, name: &'static str) -> Result<i64, StoreError> {
    row.optional_integer(name)?.ok_or_else(|| unreadable(name))
}

/// An integer that is neither NULL nor negative.
pub(super) fn count(row: &impl Fields, name: &'static str) -> Result<u64, StoreError> {
    u64::try_from(integer(row, name)?).map_err(|_| unreadable(name))
}

fn optional_count(row: &impl Fields, name: &'static str) -> Result<Option<u64>, StoreError> {
    let value = row.optional_integer(name)?;
    value
        .map(|value| u64::try_from(value).map_err(|_| unreadable(name)))
        .transpose()
}

pub(super) fn shared(row: &impl Fields, name: &'static str) -> Result<Option<Arc<str>>, StoreError> {
    Ok(row.optional_text(name)?.map(Arc::from))
}

/// One of a closed list of words.
pub(super) fn word<T: for<'de> Deserialize<'de>>(
    row: &impl Fields,
    name: &'static str,
) -> Result<T, StoreError> {
    read_word(&text(row, name)?).ok_or_else(|| unreadable(name))
}

fn optional_word<T: for<'de> Deserialize<'de>>(
    row: &impl Fields,
    name: &'static str,
) -> Result<Option<T>, StoreError> {
    let value = row.optional_text(name)?;
    value
        .map(|value| read_word(&value).ok_or_else(|| unreadable(name)))
        .transpose()
}

fn read_word<T: for<'de> Deserialize<'de>>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<WordError>::new(word)).ok()
}

pub(super) fn parsed<T: DeserializeOwned>(row: &impl Fields, name: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(&text(row, name)?).map_err(|_| unreadable(name))
}

fn optional_parsed<T: DeserializeOwned>(
    row: &impl Fields,
    name: &'static str,
) -> Result<Option<T>, StoreError> {
    let value = row.optional_text(name)?;
    value
        .map(|value| serde_json::from_str(&value).map_err(|_| unreadable(name)))
        .transpose()
}
