//! What the spool promises, with the process killed, the disk torn and bits flipped.

mod crash;
mod room;

use std::path::Path;
use std::time::Duration;

use chrono::NaiveDate;
use schemas::envelope::Envelope;
use schemas::event::request::{Payer, Surface};
use schemas::id::{KeyId, ModelName, NodeId};
use schemas::money::{NanoUsd, PriceVersion};
use schemas::outcome::Outcome;
use schemas::usage::UsageSource;

use super::*;
use crate::clock::SystemClock;

fn options(dir: &Path) -> Options {
    Options {
        dir: dir.to_path_buf(),
        cluster: "test".to_owned(),
        bytes_max: 64 << 20,
        durability: Durability::Process,
    }
}

fn open_with(options: Options) -> (Spool, Recovered) {
    let mint = Mint::new().expect("randomness");
    Spool::open(options, Arc::new(SystemClock::new()), Arc::new(mint)).expect("open")
}

fn open(dir: &Path) -> (Spool, Recovered) {
    open_with(options(dir))
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000)
}

fn accepted(spool: &Spool) -> RequestAccepted {
    RequestAccepted {
        request_id: spool.shared.mint.request_id(now()),
        payer: Payer {
            tenant: TenantId::from("acme"),
            user: None,
            key_id: KeyId::from("key_1"),
            key_name: "laptop \"one\"".into(),
            job_id: None,
        },
        surface: Surface::Chat,
        model: ModelName::from("org/model:1"),
        reservation: Reservation {
            spool_bytes: SPOOL_RESERVATION_BYTES,
        },
        price_version: PriceVersion("1".into()),
        started_at: now(),
        node: NodeId::from("node-1"),
    }
}

fn settled(accepted: &RequestAccepted) -> RequestSettled {
    let day = NaiveDate::default();
    RequestSettled {
        request_id: accepted.request_id,
        client_request_id: None,
        tenant: accepted.payer.tenant.clone(),
        user: None,
        key_id: accepted.payer.key_id.clone(),
        key_name: accepted.payer.key_name.clone(),
        job_id: accepted.payer.job_id.clone(),
        end_user: None,
        surface: Surface::Chat,
        model: accepted.model.clone(),
        served_model: None,
        provider: None,
        endpoint_id: None,
        backend: None,
        attempts: Vec::new(),
        outcome: Outcome::Ok,
        status: 200,
        error_code: None,
        stream: false,
        started_at: accepted.started_at,
        ended_at: now(),
        ttft_ms: None,
        latency_ms: 5,
        input_tokens: 1,
        cached_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 2,
        reasoning_tokens: 0,
        images: 0,
        usage_source: UsageSource::Upstream,
        usage_flags: Vec::new(),
        price_version: accepted.price_version.clone(),
        prices: None,
        cost_nano_usd: NanoUsd(3),
        cost_usd: NanoUsd(3).usd(),
        upstream_cost_nano_usd: None,
        absorbed_nano_usd: NanoUsd::ZERO,
        quotas: Vec::new(),
        session_id: None,
        affinity: None,
        decision: None,
        idempotency: None,
        metering: None,
        auto: None,
        node: accepted.node.clone(),
        config_revision: "1".into(),
        waybill_day: day,
        billing_day: day,
        billing_month: day,
    }
}

/// Runs one request to its end.
fn serve(spool: &Spool) -> RequestId {
    let accepted = accepted(spool);
    spool.intend(&accepted).expect("intend");
    spool.settle(now(), &settled(&accepted)).expect("settle");
    accepted.request_id
}

/// Everything in the spool, the background sync having come round.
fn everything(spool: &Spool) -> Vec<(u64, Message)> {
    let mut all: Vec<(u64, Message)> = Vec::new();
    let deadline = 500;
    for _ in 0..deadline {
        if spool.readable() >= spool.appended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    loop {
        let from = all.last().map_or(1, |(sequence, _)| sequence + 1);
        let more = spool.read(from, 7).expect("read");
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

fn sequences(spool: &Spool) -> Vec<u64> {
    everything(spool).iter().map(|(sequence, _)| *sequence).collect()
}

#[test]
fn an_event_is_read_as_the_envelope_that_says_what_was_appended() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, recovered) = open(dir.path());
    assert!(recovered.orphans.is_empty() && recovered.lost.is_empty());
    let request = accepted(&spool);
    spool
        .append(&request.payer.tenant, now(), &request)
        .expect("append");
    let settled = settled(&request);
    let appended = spool.settle(now(), &settled).expect("settle");

    let read = everything(&spool);

    assert_eq!(read.len(), 2);
    let (sequence, message) = &read[1];
    let envelope: Envelope<RequestSettled> = serde_json::from_slice(&message.payload).expect("envelope");
    assert_eq!((*sequence, envelope.sourcesequence, appended.sequence), (2, 2, 2));
    assert_eq!(message.id, appended.id.to_string());
    assert_eq!(envelope.id, appended.id);
    assert_eq!(message.subject, "wb.ev.request.acme");
    assert_eq!(envelope.source, format!("/waybill/test/{}", spool.id()));
    assert_eq!(envelope.source, spool.source());
    assert_eq!(envelope.kind, RequestSettled::KIND);
    assert_eq!((envelope.subject.as_str(), envelope.time), ("acme", now()));
    assert_eq!(envelope.data, settled);
    let plain = serde_json::to_string(&envelope).expect("serialize");
    assert_eq!(
        plain.as_bytes(),
        &message.payload[..],
        "the bytes are those of the envelope's own form"
    );
}

#[test]
fn a_second_opener_is_refused_until_the_first_has_gone() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    let id = spool.id().clone();
    let mint = Arc::new(Mint::new().expect("randomness"));
    let second = Spool::open(options(dir.path()), Arc::new(SystemClock::new()), mint);
    assert!(matches!(second.map(|_| ()), Err(Error::Locked { dir: locked }) if locked == dir.path()));

    drop(spool);

    assert_eq!(open(dir.path()).0.id(), &id);
}

#[test]
fn records_without_the_id_of_their_spool_stop_the_start() {
    let dir = tempfile::tempdir().expect("dir");
    serve(&open(dir.path()).0);
    std::fs::remove_file(dir.path().join("spool.id")).expect("remove");
    let mint = Arc::new(Mint::new().expect("randomness"));
    let opened = Spool::open(options(dir.path()), Arc::new(SystemClock::new()), mint);
    assert!(matches!(opened.map(|_| ()), Err(Error::Identity { .. })));
}

#[test]
fn appends_from_many_threads_are_dense_and_whole() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(Options {
        bytes_max: 1 << 20,
        ..options(dir.path())
    });
    let mut ids: Vec<RequestId> = std::thread::scope(|scope| {
        let serve = || (0..100).map(|_| serve(&spool)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(serve)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("thread"))
            .collect()
    });

    let read = everything(&spool);

    assert!(read.iter().map(|(sequence, _)| *sequence).eq(1..=800));
    let mut settled: Vec<RequestId> = read
        .iter()
        .map(|(_, message)| {
            let envelope = serde_json::from_slice::<Envelope<RequestSettled>>(&message.payload);
            envelope.expect("envelope").data.request_id
        })
        .collect();
    ids.sort_unstable();
    settled.sort_unstable();
    assert_eq!(ids, settled);
}

#[test]
fn reading_resumes_anywhere_and_beside_the_writer() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(Options {
        bytes_max: 1 << 20,
        ..options(dir.path())
    });
    for _ in 0..300 {
        serve(&spool);
    }
    assert_eq!(everything(&spool).len(), 300);
    for from in [300, 1, 150, 151, 299, 2, 301] {
        let read = spool.read(from, 1).expect("read");
        assert_eq!(
            read.first().map(|(sequence, _)| *sequence),
            (from <= 300).then_some(from)
        );
    }
    for _ in 0..50 {
        serve(&spool);
    }
    assert!(sequences(&spool).into_iter().eq(1..=350));
}

#[tokio::test]
async fn under_machine_durability_a_record_is_synced_when_durable_returns() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(Options {
        durability: Durability::Machine,
        ..options(dir.path())
    });
    for _ in 0..5 {
        let request = accepted(&spool);
        let appended = spool.settle(now(), &settled(&request)).expect("settle");
        spool.durable(appended.sequence).await;
        assert!(spool.readable() >= appended.sequence);
    }
}

#[tokio::test]
async fn the_reader_is_woken_when_there_is_more() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open(dir.path());
    serve(&spool);
    while spool.readable() < 1 {
        spool.changed().await;
    }
    assert_eq!(spool.read(1, 10).expect("read").len(), 1);
}

#[test]
fn a_reader_beside_the_writer_misses_nothing_where_files_change() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, _) = open_with(Options {
        bytes_max: 64 << 10,
        ..options(dir.path())
    });
    let mut read: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                serve(&spool);
            }
        });
        while read.len() < 500 {
            let from = read.last().map_or(1, |last| last + 1);
            let more = spool.read(from, 50).expect("read");
            if more.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            read.extend(more.into_iter().map(|(sequence, _)| sequence));
            spool.trim(read.last().map_or(0, |last| last.saturating_sub(10)));
        }
    });
    assert!(read.into_iter().eq(1..=500));
    assert!(spool.gauges().bytes <= 64 << 10);
}
