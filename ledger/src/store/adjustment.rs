//! Adjustments as the tables hold them, the same for every adapter.

use std::sync::Arc;

use chrono::NaiveDate;
use schemas::event::ledger::{Adjusted, Reason};
use schemas::id::{EndpointId, KeyId, ModelName, NodeId, RequestId, TenantId, UserId};
use schemas::money::{NanoUsd, PriceVersion};
use schemas::query::Adjustments;
use schemas::time::Timestamp;

use super::StoreError;
use super::row::{Fields, Sink, count, integer, json, parsed, shared, text, unreadable, word};
use crate::record::Adjustment;

/// The columns, in the order in which [`put`] writes them, each with its type in PostgreSQL.
pub(super) const COLUMNS: [(&str, &str); 26] = [
    ("request_id", "uuid"),
    ("number", "bigint"),
    ("day", "date"),
    ("tenant", "text"),
    ("\"user\"", "text"),
    ("key_id", "text"),
    ("job_id", "text"),
    ("model", "text"),
    ("served_model", "text"),
    ("provider", "text"),
    ("endpoint_id", "text"),
    ("started_at", "timestamptz"),
    ("billing_day", "date"),
    ("billing_month", "date"),
    ("was_nano_usd", "bigint"),
    ("cost_nano_usd", "bigint"),
    ("amount_nano_usd", "bigint"),
    ("prices", "text"),
    ("price_version", "text"),
    ("reason", "text"),
    ("actor", "text"),
    ("adjusted_at", "timestamptz"),
    ("node", "text"),
    ("source", "text"),
    ("source_sequence", "bigint"),
    ("event_id", "text"),
];

/// The names of the columns, with commas between them.
pub(super) fn columns() -> String {
    COLUMNS.map(|(name, _)| name).join(", ")
}

/// What happens to an adjustment whose place is taken: the one of the least origin stands. `held` is what the table is
/// called in the statement.
pub(super) fn least_stands(held: &str) -> String {
    let moved: Vec<String> = COLUMNS[2..]
        .iter()
        .map(|(name, _)| format!("{name} = excluded.{name}"))
        .collect();
    format!(
        "ON CONFLICT (request_id, number) DO UPDATE SET {} \
         WHERE (excluded.source, excluded.source_sequence, excluded.event_id) \
         < ({held}.source, {held}.source_sequence, {held}.event_id)",
        moved.join(", ")
    )
}

/// Writes an adjustment: a value for each of [`COLUMNS`].
pub(super) fn put(sink: &mut impl Sink, adjustment: &Arc<Adjustment>) {
    let adjusted = &adjustment.adjusted;
    sink.id(adjusted.request_id);
    sink.integer(Some(i64::from(adjusted.number)));
    sink.day(day_of(adjusted.request_id));
    sink.shared(Some(&adjusted.tenant.0));
    sink.shared(adjusted.user.as_ref().map(|user| &user.0));
    sink.shared(Some(&adjusted.key_id.0));
    sink.shared(adjusted.job_id.as_ref());
    sink.shared(Some(&adjusted.model.0));
    sink.shared(adjusted.served_model.as_ref());
    sink.shared(adjusted.provider.as_ref());
    sink.shared(adjusted.endpoint_id.as_ref().map(|endpoint| &endpoint.0));
    sink.time(adjusted.started_at);
    sink.day(adjusted.billing_day);
    sink.day(adjusted.billing_month);
    sink.integer(Some(adjusted.was_nano_usd.0));
    sink.integer(Some(adjusted.cost_nano_usd.0));
    sink.integer(Some(adjusted.amount_nano_usd.0));
    sink.json(Some(json(&adjusted.prices)));
    sink.shared(Some(&adjusted.price_version.0));
    sink.text(Some(adjusted.reason.as_str()));
    sink.json(Some(json(&adjusted.actor)));
    sink.time(adjusted.adjusted_at);
    sink.shared(Some(&adjusted.node.0));
    sink.shared(Some(&adjustment.source));
    sink.count(adjustment.source_sequence);
    sink.shared(Some(&adjustment.event_id));
}

/// Reads an adjustment back.
pub(super) fn read(row: &impl Fields) -> Result<Adjustment, StoreError> {
    let adjusted = Adjusted {
        request_id: row.id("request_id")?,
        number: number(row, "number")?,
        tenant: TenantId(text(row, "tenant")?.into()),
        user: shared(row, "user")?.map(UserId),
        key_id: KeyId(text(row, "key_id")?.into()),
        job_id: shared(row, "job_id")?,
        model: ModelName(text(row, "model")?.into()),
        served_model: shared(row, "served_model")?,
        provider: shared(row, "provider")?,
        endpoint_id: shared(row, "endpoint_id")?.map(EndpointId),
        started_at: row.time("started_at")?,
        billing_day: row.day("billing_day")?,
        billing_month: row.day("billing_month")?,
        was_nano_usd: NanoUsd(integer(row, "was_nano_usd")?),
        cost_nano_usd: NanoUsd(integer(row, "cost_nano_usd")?),
        amount_nano_usd: NanoUsd(integer(row, "amount_nano_usd")?),
        prices: parsed(row, "prices")?,
        price_version: PriceVersion(text(row, "price_version")?.into()),
        reason: word::<Reason>(row, "reason")?,
        actor: parsed(row, "actor")?,
        adjusted_at: row.time("adjusted_at")?,
        node: NodeId(text(row, "node")?.into()),
    };
    Ok(Adjustment {
        adjusted,
        source: text(row, "source")?.into(),
        source_sequence: count(row, "source_sequence")?,
        event_id: text(row, "event_id")?.into(),
    })
}

/// What is read of the adjustments of single requests: one column for each of what [`together`] reads.
pub(super) const TOGETHER: &str = "request_id, max(number) AS number";

/// Reads how far one request was adjusted.
pub(super) fn together(row: &impl Fields) -> Result<(RequestId, Adjustments), StoreError> {
    let adjustments = Adjustments {
        last: number(row, "number")?,
        amount_nano_usd: integer(row, "amount_nano_usd")?,
    };
    Ok((row.id("request_id")?, adjustments))
}

fn number(row: &impl Fields, name: &'static str) -> Result<u32, StoreError> {
    u32::try_from(integer(row, name)?).map_err(|_| unreadable(name))
}

/// The UTC day inside a request's id: that of its row, as seals count it.
pub(crate) fn day_of(id: RequestId) -> NaiveDate {
    let millis = i64::try_from(id.0.as_u128() >> 80).unwrap_or_default();
    Timestamp::from_micros(millis.saturating_mul(1_000)).day()
}
