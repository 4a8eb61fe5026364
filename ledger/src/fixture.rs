//! What tests are made of: waybills, envelopes, a log in memory, and the whole of the books for comparison.

pub(crate) mod memory;

use std::collections::BTreeMap;

use bus::{Message, Stored};
use bytes::Bytes;
use chrono::Datelike as _;
use schemas::catalog::change::{Actor, Change};
use schemas::envelope::{ContentType, Envelope, SpecVersion};
use schemas::event::Fact;
use schemas::event::audit::{Audited, Kind};
use schemas::event::ledger::{Adjusted, Reason};
use schemas::event::request::{Attempt, Payer, RequestAccepted, RequestLost, RequestSettled, Surface};
use schemas::failure::FailureCode;
use schemas::id::{EventId, KeyId, ModelName, NodeId, RequestId, TenantId};
use schemas::limit::Reservation;
use schemas::money::{NanoUsd, Price, PriceVersion};
use schemas::outcome::Outcome;
use schemas::query::{GroupBy, Interval, LogFilter, LogsQuery, Row, UsageQuery, UsageRow};
use schemas::time::Timestamp;
use schemas::usage::{UsageFlag, UsageSource};
use uuid::Uuid;

use crate::book::book;
use crate::record::Record;
use crate::store::{Applied, Cursor, Store, StoreError};

/// 2026-11-30T00:53:20Z
pub(crate) const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);
/// The source of most events.
pub(crate) const SOURCE: &str = "/waybill/main/spool-a";
/// Birth of the stream in tests that do not care.
pub(crate) const CREATED: i64 = 77;

/// The id of the `n`th request, minted `n` milliseconds after [`NOON`].
pub(crate) fn request_id(n: u64) -> RequestId {
    let millis = u128::try_from(NOON.millis()).expect("positive") + u128::from(n);
    RequestId(Uuid::from_u128(millis << 80 | 7 << 76 | 2 << 62 | u128::from(n)))
}

/// The waybill of the `n`th request: served, 9 tokens in, 20 out.
pub(crate) fn settled(n: u64) -> RequestSettled {
    let started_at = NOON.plus_micros(i64::try_from(n).expect("small") * 1_000);
    RequestSettled {
        request_id: request_id(n),
        client_request_id: None,
        tenant: TenantId::from("acme"),
        user: None,
        key_id: KeyId::from("key-1"),
        key_name: "first".into(),
        job_id: None,
        end_user: None,
        surface: Surface::Chat,
        model: ModelName::from("org/model"),
        served_model: Some("model-8b".into()),
        provider: Some("vllm".into()),
        endpoint_id: Some("org/model:local".into()),
        backend: Some("org/model:local".into()),
        attempts: Vec::new(),
        outcome: Outcome::Ok,
        status: 200,
        error_code: None,
        stream: true,
        started_at,
        ended_at: started_at.plus_micros(1_500_000),
        ttft_ms: Some(120),
        latency_ms: 1_500,
        input_tokens: 9,
        cached_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 20,
        reasoning_tokens: 0,
        images: 0,
        usage_source: UsageSource::Upstream,
        usage_flags: Vec::new(),
        price_version: PriceVersion("r1".into()),
        prices: None,
        cost_nano_usd: NanoUsd(178_000),
        cost_usd: "0.000178000".to_owned(),
        upstream_cost_nano_usd: None,
        absorbed_nano_usd: NanoUsd::ZERO,
        quotas: Vec::new(),
        session_id: None,
        affinity: None,
        decision: None,
        idempotency: None,
        metering: None,
        auto: None,
        node: NodeId::from("node-1"),
        config_revision: "r1".into(),
        waybill_day: started_at.day(),
        billing_day: started_at.day(),
        billing_month: started_at.day().with_day0(0).expect("first"),
    }
}

/// A waybill in which no field is empty.
pub(crate) fn full(n: u64) -> RequestSettled {
    RequestSettled {
        client_request_id: Some("theirs-1".into()),
        user: Some("user-1".into()),
        job_id: Some("job \u{1F600}".into()),
        end_user: Some("customer ' \" \u{0} \u{1F600}".into()),
        attempts: vec![Attempt {
            endpoint_id: "org/model:local".into(),
            backend: "org/model:local#1".into(),
            provider: "vllm".into(),
            status: Some(503),
            outcome: Outcome::UpstreamError,
            error_code: Some(FailureCode::UpstreamError),
            started_at: NOON,
            first_byte_ms: Some(3),
            latency_ms: 4,
        }],
        outcome: Outcome::ClientGone,
        status: 499,
        error_code: Some(FailureCode::ClientGone),
        cached_tokens: 1,
        cache_write_tokens: 2,
        reasoning_tokens: 3,
        images: 4,
        usage_source: UsageSource::Estimated,
        usage_flags: vec![UsageFlag::Clamped, UsageFlag::Unpriced],
        prices: Some(Price {
            input: 1,
            cached: 2,
            cache_write: 3,
            output: 4,
            request: 5,
            image: 6,
        }),
        upstream_cost_nano_usd: Some(NanoUsd(5)),
        absorbed_nano_usd: NanoUsd(6),
        quotas: Vec::new(),
        session_id: Some("session".into()),
        affinity: Some("hit".into()),
        decision: None,
        idempotency: Some("first".into()),
        metering: None,
        auto: None,
        ..settled(n)
    }
}

/// The `n`th request declared lost.
pub(crate) fn lost(n: u64) -> RequestLost {
    let settled = settled(n);
    RequestLost {
        accepted: RequestAccepted {
            request_id: settled.request_id,
            payer: Payer {
                tenant: settled.tenant,
                user: settled.user,
                key_id: settled.key_id,
                key_name: settled.key_name,
                job_id: settled.job_id,
            },
            surface: settled.surface,
            model: settled.model,
            reservation: Reservation::default(),
            price_version: settled.price_version,
            started_at: settled.started_at,
            node: settled.node,
        },
        declared_at: settled.started_at.plus_micros(600_000_000),
        waybill_day: settled.waybill_day,
        billing_day: settled.billing_day,
        billing_month: settled.billing_month,
    }
}

/// An adjustment of a row by an amount: the `number`th, after the earlier ones came to `before`.
pub(crate) fn adjusted(settled: &RequestSettled, (number, before): (u32, i64), amount: i64) -> Adjusted {
    let was = settled.cost_nano_usd.0 + before;
    Adjusted {
        request_id: settled.request_id,
        number,
        tenant: settled.tenant.clone(),
        user: settled.user.clone(),
        key_id: settled.key_id.clone(),
        job_id: settled.job_id.clone(),
        model: settled.model.clone(),
        served_model: settled.served_model.clone(),
        provider: settled.provider.clone(),
        endpoint_id: settled.endpoint_id.clone(),
        started_at: settled.started_at,
        billing_day: settled.billing_day,
        billing_month: settled.billing_month,
        was_nano_usd: NanoUsd(was),
        cost_nano_usd: NanoUsd(was + amount),
        amount_nano_usd: NanoUsd(amount),
        prices: Price {
            input: 1,
            ..Price::default()
        },
        price_version: PriceVersion("r2 \u{0} \u{1a}".into()),
        reason: Reason::Repriced,
        actor: Actor {
            tenant: "default".into(),
            user: None,
            key_id: "key_ops".into(),
            key_name: "ops \u{0}".into(),
        },
        adjusted_at: NOON.plus_micros(86_400_000_000),
        node: "node-1".into(),
    }
}

/// The envelope of a fact. Its id is made of source and sequence.
pub(crate) fn envelope<F: Fact>(source: &str, sequence: u64, fact: F) -> Bytes {
    let name = source
        .bytes()
        .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let id = Uuid::from_u64_pair(name, sequence);
    envelope_of((id, source, sequence), "acme", fact)
}

/// The envelope of a fact about a tenant.
fn envelope_of<F: Fact>((id, source, sequence): (Uuid, &str, u64), tenant: &str, fact: F) -> Bytes {
    let envelope = Envelope {
        specversion: SpecVersion::V1,
        id: EventId(id),
        source: source.to_owned(),
        kind: F::KIND.to_owned(),
        subject: tenant.to_owned(),
        time: NOON,
        datacontenttype: ContentType::Json,
        sourcesequence: sequence,
        data: fact,
    };
    serde_json::to_vec(&envelope).expect("envelope").into()
}

/// The record of a change: the `n`th of a day, at a place of a source. Those up to 5 are of `beta`, the others of
/// `acme`; the even ones of members, every third is by `olive`.
pub(crate) fn audited(n: u64, (source, sequence): (&str, u64)) -> Record {
    let at = Timestamp::from_micros(NOON.micros() + i64::try_from(n).expect("small") * 60_000_000);
    let id = Uuid::from_u64_pair(
        (u64::try_from(at.millis()).expect("later") << 16) | 0x7000,
        (1 << 63) | n,
    );
    let tenant = if n <= 5 { "beta" } else { "acme" };
    let fact = Audited {
        kind: if n.is_multiple_of(2) {
            Kind::User
        } else {
            Kind::Tenant
        },
        tenant: tenant.into(),
        id: format!("r{n}").into(),
        revision: n,
        change: Change {
            id: RequestId(id),
            at,
            actor: Actor {
                tenant: "default".into(),
                user: n.is_multiple_of(3).then(|| "olive".into()),
                key_id: "key_ops".into(),
                key_name: "ops".into(),
            },
            replaced: None,
            fields: BTreeMap::new(),
        },
        node: "node-1".into(),
    };
    Record::read(&stored(
        sequence,
        envelope_of((id, source, sequence), tenant, fact),
    ))
}

/// A message at a place of the stream.
pub(crate) fn stored(sequence: u64, payload: Bytes) -> Stored {
    let message = Message {
        subject: "wb.ev.request.acme".to_owned(),
        id: format!("m{sequence}"),
        payload,
    };
    Stored { sequence, message }
}

/// The record of a fact of [`SOURCE`], at the same place of the stream as of its source.
pub(crate) fn record<F: Fact>(sequence: u64, fact: F) -> Record {
    Record::read(&stored(sequence, envelope(SOURCE, sequence, fact)))
}

/// Applies records as the ledger does, in one batch.
pub(crate) async fn apply(store: &dyn Store, records: &[Record]) -> Result<Applied, StoreError> {
    let cursor = store.cursor().await?;
    let mut coverage = store.coverage().await?;
    for record in records {
        record.cover(&mut coverage);
    }
    let last = records.iter().map(|record| record.sequence).max().unwrap_or(0);
    let sequence = last.max(cursor.map_or(0, |cursor| cursor.sequence));
    book(
        store,
        records,
        &coverage,
        (
            cursor,
            Cursor {
                stream_created: CREATED,
                sequence,
            },
        ),
    )
    .await
}

/// All that can be read of the books: every row, and every sum by every dimension.
pub(crate) async fn books(store: &dyn Store) -> (Vec<Row>, Vec<UsageRow>) {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let query = LogsQuery {
            filter: LogFilter::default(),
            limit: 7,
            after,
        };
        let page = store.logs(&query).await.expect("a page");
        rows.extend(page.data);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    (rows, store.usage(&by_everything()).await.expect("usage"))
}

/// A question for sums by every dimension and hour, UTC.
pub(crate) fn by_everything() -> UsageQuery {
    use GroupBy::{Endpoint, Key, Model, Provider, Tenant, User};
    UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![Tenant, User, Key, Model, Endpoint, Provider],
        interval: Some(Interval::Hour),
        tz: "UTC".to_owned(),
    }
}

/// The sums of rows by every dimension and hour, computed from the rows alone.
pub(crate) fn sums_of(rows: &[Row]) -> Vec<UsageRow> {
    const HOUR_MICROS: i64 = 3_600_000_000;
    let mut sums: BTreeMap<_, UsageRow> = BTreeMap::new();
    for Row { settled, .. } in rows {
        let hour = settled.started_at.micros().div_euclid(HOUR_MICROS) * HOUR_MICROS;
        let from = Timestamp::from_micros(hour)
            .to_utc()
            .to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        let text = |value: Option<&str>| Some(value.unwrap_or("").to_owned());
        let group = UsageRow {
            tenant: text(Some(settled.tenant.as_str())),
            user: text(settled.user.as_ref().map(schemas::id::UserId::as_str)),
            key: text(Some(settled.key_id.as_str())),
            model: text(Some(settled.model.as_str())),
            endpoint: text(settled.endpoint_id.as_ref().map(schemas::id::EndpointId::as_str)),
            provider: text(settled.provider.as_deref()),
            from: Some(from),
            ..UsageRow::default()
        };
        let key = (
            hour,
            [
                &group.tenant,
                &group.user,
                &group.key,
                &group.model,
                &group.endpoint,
                &group.provider,
            ]
            .map(Clone::clone),
        );
        let sum = sums.entry(key).or_insert(group);
        let ok = u64::from(settled.outcome == Outcome::Ok);
        sum.requests += 1;
        sum.ok += ok;
        sum.errors += 1 - ok;
        sum.input_tokens += settled.input_tokens;
        sum.cached_tokens += settled.cached_tokens;
        sum.cache_write_tokens += settled.cache_write_tokens;
        sum.output_tokens += settled.output_tokens;
        sum.cost_nano_usd += settled.cost_nano_usd.0;
        sum.total_nano_usd += settled.cost_nano_usd.0;
    }
    sums.into_values().collect()
}
