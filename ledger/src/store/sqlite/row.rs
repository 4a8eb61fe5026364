//! Rows of `api_logs`: their columns, how a row is written, how it is read back.

use std::sync::Arc;

use chrono::NaiveDate;
use schemas::event::request::RequestSettled;
use schemas::id::{BackendId, EndpointId, KeyId, ModelName, NodeId, RequestId, TenantId, UserId};
use schemas::money::{NanoUsd, PriceVersion};
use schemas::query::Row;
use schemas::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as WordError, StrDeserializer};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::statement::Values;
use crate::fold::{Group, Origin, Standing, Sums, bucket};
use crate::record::Waybill;
use crate::store::StoreError;

/// The columns, in the order in which [`put`] writes them.
pub(super) const COLUMNS: &[&str] = &[
    "request_id",
    "client_request_id",
    "tenant",
    "\"user\"",
    "key_id",
    "key_name",
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

/// Writes a row.
pub(super) fn put(values: &mut Values, waybill: &Arc<Waybill>) {
    let row = &waybill.row;
    let settled = &row.settled;
    put_parties(values, settled);
    put_course(values, settled);
    put_figures(values, settled);
    values.put(settled.session_id.clone());
    values.put(settled.affinity.clone());
    values.put(settled.idempotency.clone());
    values.put(Arc::clone(&settled.node.0));
    values.put(Arc::clone(&settled.config_revision));
    values.put(day(settled.waybill_day));
    values.put(day(settled.billing_day));
    values.put(day(settled.billing_month));
    values.put(row.source.as_str());
    values.put_count(row.source_sequence);
    values.put(Arc::clone(&waybill.event_id));
    values.put(i64::from(waybill.provisional));
}

fn put_parties(values: &mut Values, settled: &RequestSettled) {
    values.put(settled.request_id.to_string());
    values.put(settled.client_request_id.clone());
    values.put(Arc::clone(&settled.tenant.0));
    values.put(settled.user.as_ref().map(|user| Arc::clone(&user.0)));
    values.put(Arc::clone(&settled.key_id.0));
    values.put(Arc::clone(&settled.key_name));
    values.put(settled.end_user.clone());
    values.put(settled.surface.as_str());
    values.put(Arc::clone(&settled.model.0));
    values.put(settled.served_model.clone());
    values.put(settled.provider.clone());
    values.put(
        settled
            .endpoint_id
            .as_ref()
            .map(|endpoint| Arc::clone(&endpoint.0)),
    );
    values.put(settled.backend.as_ref().map(|backend| Arc::clone(&backend.0)));
}

fn put_course(values: &mut Values, settled: &RequestSettled) {
    values.put(json(&settled.attempts));
    values.put(settled.outcome.as_str());
    values.put(i64::from(settled.status));
    values.put(settled.error_code.map(schemas::failure::FailureCode::as_str));
    values.put(i64::from(settled.stream));
    values.put(settled.started_at.to_string());
    values.put(settled.ended_at.to_string());
    values.put(settled.ttft_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)));
    values.put_count(settled.latency_ms);
}

fn put_figures(values: &mut Values, settled: &RequestSettled) {
    values.put_count(settled.input_tokens);
    values.put_count(settled.cached_tokens);
    values.put_count(settled.cache_write_tokens);
    values.put_count(settled.output_tokens);
    values.put_count(settled.reasoning_tokens);
    values.put_count(settled.images);
    values.put(settled.usage_source.as_str());
    values.put(json(&settled.usage_flags));
    values.put(Arc::clone(&settled.price_version.0));
    values.put(settled.prices.as_ref().map(json));
    values.put(settled.cost_nano_usd.0);
    values.put(settled.cost_usd.as_str());
    values.put(settled.upstream_cost_nano_usd.map(|cost| cost.0));
    values.put(settled.absorbed_nano_usd.0);
}

/// Plain data as JSON text. Every type written here serializes.
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn day(day: NaiveDate) -> String {
    day.to_string()
}

/// Reads a whole row back.
pub(super) fn read(row: &SqliteRow) -> Result<Row, StoreError> {
    Ok(Row {
        settled: settled(row)?,
        source: text(row, "source")?.to_owned(),
        source_sequence: count(row, "source_sequence")?,
    })
}

fn settled(row: &SqliteRow) -> Result<RequestSettled, StoreError> {
    Ok(RequestSettled {
        request_id: request_id(row)?,
        client_request_id: shared(row, "client_request_id")?,
        tenant: TenantId::from(text(row, "tenant")?),
        user: shared(row, "user")?.map(UserId),
        key_id: KeyId::from(text(row, "key_id")?),
        key_name: text(row, "key_name")?.into(),
        end_user: shared(row, "end_user")?,
        surface: word(row, "surface")?,
        model: ModelName::from(text(row, "model")?),
        served_model: shared(row, "served_model")?,
        provider: shared(row, "provider")?,
        endpoint_id: shared(row, "endpoint_id")?.map(EndpointId),
        backend: shared(row, "backend")?.map(BackendId),
        attempts: parsed(row, "attempts")?,
        outcome: word(row, "outcome")?,
        status: u16::try_from(count(row, "status")?).map_err(|_| unreadable("status"))?,
        error_code: optional_word(row, "error_code")?,
        stream: count(row, "stream")? != 0,
        started_at: time(row, "started_at")?,
        ended_at: time(row, "ended_at")?,
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
        cost_usd: text(row, "cost_usd")?.to_owned(),
        upstream_cost_nano_usd: column::<Option<i64>>(row, "upstream_cost_nano_usd")?.map(NanoUsd),
        absorbed_nano_usd: NanoUsd(integer(row, "absorbed_nano_usd")?),
        session_id: shared(row, "session_id")?,
        affinity: shared(row, "affinity")?,
        idempotency: shared(row, "idempotency")?,
        node: NodeId::from(text(row, "node")?),
        config_revision: text(row, "config_revision")?.into(),
        waybill_day: date(row, "waybill_day")?,
        billing_day: date(row, "billing_day")?,
        billing_month: date(row, "billing_month")?,
    })
}

/// Reads what a fold needs to know of a row.
pub(super) fn standing(row: &SqliteRow) -> Result<(RequestId, Standing), StoreError> {
    let or_none = |value: Option<Arc<str>>| value.unwrap_or_else(|| "".into());
    let tokens = [
        count(row, "input_tokens")?,
        count(row, "cached_tokens")?,
        count(row, "cache_write_tokens")?,
        count(row, "output_tokens")?,
    ];
    let standing = Standing {
        origin: Origin {
            provisional: count(row, "provisional")? != 0,
            source: text(row, "source")?.into(),
            source_sequence: count(row, "source_sequence")?,
            event_id: text(row, "event_id")?.into(),
        },
        group: Group {
            bucket: bucket(time(row, "started_at")?),
            billing_day: date(row, "billing_day")?,
            tenant: text(row, "tenant")?.into(),
            user: or_none(shared(row, "user")?),
            key_id: text(row, "key_id")?.into(),
            model: text(row, "model")?.into(),
            endpoint_id: or_none(shared(row, "endpoint_id")?),
            provider: or_none(shared(row, "provider")?),
        },
        sums: Sums::of_row(word(row, "outcome")?, tokens, integer(row, "cost_nano_usd")?),
    };
    Ok((request_id(row)?, standing))
}

fn unreadable(column: &'static str) -> StoreError {
    StoreError::Unreadable { column }
}

fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(name).map_err(|_| unreadable(name))
}

/// A text that is never NULL.
pub(super) fn text<'r>(row: &'r SqliteRow, name: &'static str) -> Result<&'r str, StoreError> {
    column(row, name)
}

/// An integer.
pub(super) fn integer(row: &SqliteRow, name: &'static str) -> Result<i64, StoreError> {
    column(row, name)
}

/// An integer that is not negative.
pub(super) fn count(row: &SqliteRow, name: &'static str) -> Result<u64, StoreError> {
    u64::try_from(integer(row, name)?).map_err(|_| unreadable(name))
}

/// A point in time.
pub(super) fn time(row: &SqliteRow, name: &'static str) -> Result<Timestamp, StoreError> {
    Timestamp::parse(text(row, name)?).ok_or_else(|| unreadable(name))
}

fn request_id(row: &SqliteRow) -> Result<RequestId, StoreError> {
    Uuid::try_parse(text(row, "request_id")?)
        .map(RequestId)
        .map_err(|_| unreadable("request_id"))
}

fn shared(row: &SqliteRow, name: &'static str) -> Result<Option<Arc<str>>, StoreError> {
    Ok(column::<Option<&str>>(row, name)?.map(Arc::from))
}

fn optional_count(row: &SqliteRow, name: &'static str) -> Result<Option<u64>, StoreError> {
    let value: Option<i64> = column(row, name)?;
    value
        .map(|value| u64::try_from(value).map_err(|_| unreadable(name)))
        .transpose()
}

fn date(row: &SqliteRow, name: &'static str) -> Result<NaiveDate, StoreError> {
    text(row, name)?.parse().map_err(|_| unreadable(name))
}

/// One of a closed list of words.
fn word<T: for<'de> Deserialize<'de>>(row: &SqliteRow, name: &'static str) -> Result<T, StoreError> {
    read_word(text(row, name)?).ok_or_else(|| unreadable(name))
}

fn optional_word<T: for<'de> Deserialize<'de>>(
    row: &SqliteRow,
    name: &'static str,
) -> Result<Option<T>, StoreError> {
    let value: Option<&str> = column(row, name)?;
    value
        .map(|value| read_word(value).ok_or_else(|| unreadable(name)))
        .transpose()
}

fn read_word<T: for<'de> Deserialize<'de>>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<WordError>::new(word)).ok()
}

fn parsed<T: DeserializeOwned>(row: &SqliteRow, name: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(text(row, name)?).map_err(|_| unreadable(name))
}

fn optional_parsed<T: DeserializeOwned>(
    row: &SqliteRow,
    name: &'static str,
) -> Result<Option<T>, StoreError> {
    let value: Option<&str> = column(row, name)?;
    value
        .map(|value| serde_json::from_str(value).map_err(|_| unreadable(name)))
        .transpose()
}
