//! The publisher loses nothing, doubles nothing and leaves nothing behind.

mod lost;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use schemas::event::limit::LimitRefused;
use schemas::failure::FailureCode;
use schemas::id::{KeyId, NodeId, TenantId};
use schemas::time::Timestamp;
use tokio::task::JoinSet;

use super::*;
use crate::clock::SystemClock;
use crate::embedded::{Embedded, Options};
use crate::mint::Mint;
use crate::spool::{self, Durability};
use crate::{Expected, LogState, Question, Stored};

/// A bus that fails every publish but each third one.
struct Flaky {
    bus: Arc<Embedded>,
    calls: AtomicUsize,
}

#[async_trait]
impl Bus for Flaky {
    async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        match self.calls.fetch_add(1, Ordering::AcqRel) % 3 {
            0 => Err(BusError::Timeout),
            // Stored, but the answer is lost.
            1 => self.bus.publish(messages).await.and(Err(BusError::Timeout)),
            _ => self.bus.publish(messages).await,
        }
    }

    async fn read(&self, from: u64, messages_max: usize, wait: Duration) -> Result<Vec<Stored>, BusError> {
        self.bus.read(from, messages_max, wait).await
    }

    async fn state(&self) -> Result<LogState, BusError> {
        self.bus.state().await
    }

    async fn ask(&self, subject: &str, question: Bytes, wait: Duration) -> Result<Bytes, BusError> {
        self.bus.ask(subject, question, wait).await
    }

    async fn serve(&self, subject: &str) -> Result<mpsc::Receiver<Question>, BusError> {
        self.bus.serve(subject).await
    }
}

#[test]
fn a_log_has_lost_something_when_its_end_goes_back_or_stays_too_early() {
    let mut log = Log {
        place_before: 10,
        ..Log::default()
    };
    let ends = [4, 8, 8, 10, 9];
    assert_eq!(
        ends.map(|end| log.shrinks(end)),
        [false, false, false, false, true]
    );
    log.place_before = 12;
    log.short_looks = 0;
    assert_eq!(
        [11, 11, 11, 11].map(|end| log.shrinks(end)),
        [false, false, false, true]
    );
}

fn open_spool(dir: &Path) -> Spool {
    let options = spool::Options {
        dir: dir.join("spool"),
        cluster: "test".to_owned(),
        bytes_max: 256 << 10,
        durability: Durability::Process,
    };
    let mint = Arc::new(Mint::new().expect("randomness"));
    Spool::open(options, Arc::new(SystemClock::new()), mint)
        .expect("spool")
        .0
}

fn open_bus(dir: &Path) -> Arc<Embedded> {
    Embedded::open(&dir.join("bus"), Options::default(), Arc::new(SystemClock::new())).expect("bus")
}

fn append(spool: &Spool, count: u64) -> Vec<String> {
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    let fact = |count| LimitRefused {
        tenant: TenantId::from("acme"),
        key_id: KeyId::from("key_1"),
        code: FailureCode::QpsExceeded,
        minute: time,
        count,
        node: NodeId::from("node-1"),
    };
    let append = |count| {
        spool
            .append(&TenantId::from("acme"), time, &fact(count))
            .expect("append")
            .id
            .to_string()
    };
    (0..count).map(append).collect()
}

async fn log(bus: &dyn Bus, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let from = u64::try_from(ids.len()).expect("small") + 1;
        let read = bus.read(from, 500, Duration::from_secs(10)).await.expect("read");
        assert!(!read.is_empty(), "{} of {count}", ids.len());
        ids.extend(read.into_iter().map(|stored| stored.message.id));
    }
    ids
}

#[tokio::test]
async fn every_event_is_in_the_log_once_and_in_order_however_the_bus_fails() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, bus) = (open_spool(dir.path()), open_bus(dir.path()));
    let flaky = Arc::new(Flaky {
        bus: Arc::clone(&bus),
        calls: AtomicUsize::new(0),
    });
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut ids = append(&spool, 300);
    tasks.spawn(run(spool.clone(), flaky, Arc::clone(&bus) as _, shutdown.clone()));

    ids.extend(append(&spool, 300));
    assert_eq!(log(&*bus, 600).await, ids);

    ids.extend(append(&spool, 10));
    assert_eq!(log(&*bus, 610).await, ids);
    shutdown.cancel();
    tasks
        .join_next()
        .await
        .expect("task")
        .expect("no panic")
        .expect("ended well");
}

#[tokio::test]
async fn a_mark_trims_and_a_restart_publishes_what_is_not_marked() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, bus) = (open_spool(dir.path()), open_bus(dir.path()));
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(run(
        spool.clone(),
        Arc::clone(&bus) as _,
        Arc::clone(&bus) as _,
        shutdown.clone(),
    ));
    let ids = append(&spool, 200);
    log(&*bus, 200).await;
    assert_eq!(spool.marked(), 0, "what the log has is not yet in the books");

    let put = |key: String, mark: &'static str| {
        let bus = Arc::clone(&bus);
        async move {
            bus.put(MARK_BUCKET, &key, Bytes::from(mark), Expected::Any)
                .await
                .expect("put")
        }
    };
    put("another spool".to_owned(), "7").await;
    put(spool.id().to_string(), "no number").await;
    put(spool.id().to_string(), "150").await;
    while spool.marked() < 150 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(spool.read(1, 1).expect("read")[0].0 > 1);
    shutdown.cancel();
    tasks
        .join_next()
        .await
        .expect("task")
        .expect("no panic")
        .expect("ended well");
    drop(spool);

    // Another log: only what the books do not have is published again.
    let (spool, other) = (open_spool(dir.path()), open_bus(&dir.path().join("other")));
    tasks.spawn(run(
        spool.clone(),
        Arc::clone(&other) as _,
        Arc::clone(&bus) as _,
        CancellationToken::new(),
    ));
    assert_eq!(log(&*other, 50).await, ids[150..]);
    assert_eq!(spool.marked(), 150);
}

#[tokio::test]
async fn a_shutdown_publishes_what_is_there() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, bus) = (open_spool(dir.path()), open_bus(dir.path()));
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let ids = append(&spool, 300);

    run(
        spool.clone(),
        Arc::clone(&bus) as _,
        Arc::clone(&bus) as _,
        shutdown,
    )
    .await
    .expect("run");

    let seen = bus.state().await.expect("state").last;
    assert_eq!(seen, 300, "a reader that looks now must see it");
    assert_eq!(log(&*bus, 300).await, ids);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_bus_that_is_away() {
    let dir = tempfile::tempdir().expect("dir");
    let (spool, bus) = (open_spool(dir.path()), open_bus(dir.path()));
    let full = Options {
        log_bytes_max: 10,
        ..Options::default()
    };
    let away = Embedded::open(&dir.path().join("away"), full, Arc::new(SystemClock::new())).expect("bus");
    append(&spool, 1);
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let started = Instant::now();

    run(spool.clone(), away, bus, shutdown).await.expect("run");

    assert_eq!(started.elapsed(), FAREWELL);
    assert_eq!(spool.appended(), 1);
}

#[tokio::test]
async fn more_events_than_the_log_has_room_for_are_published_in_parts() {
    let dir = tempfile::tempdir().expect("dir");
    let options = Options {
        log_bytes_max: 48 << 10,
        ..Options::default()
    };
    let bus = Embedded::open(&dir.path().join("bus"), options, Arc::new(SystemClock::new())).expect("bus");
    let spool = open_spool(dir.path());
    let ids = append(&spool, 250);
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(run(spool, bus.clone(), bus.clone(), shutdown.clone()));

    // A reader that lets the log forget what it has.
    let mut read = Vec::new();
    while read.len() < ids.len() {
        let from = u64::try_from(read.len()).expect("small") + 1;
        let more = bus.read(from, 500, Duration::from_secs(10)).await.expect("read");
        assert!(!more.is_empty(), "{} of {}", read.len(), ids.len());
        bus.release(more.last().expect("one").sequence);
        read.extend(more.into_iter().map(|stored| stored.message.id));
    }

    assert_eq!(read, ids);
    shutdown.cancel();
    tasks.join_all().await;
}
