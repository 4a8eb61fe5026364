//! The loop, against a log in memory and SQLite.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bus::{Expected, Kv};
use bytes::Bytes;
use chrono::NaiveDate;
use schemas::event::request::RequestAccepted;
use schemas::id::RequestId;
use schemas::query::{
    Adjustments, LogAnswer, LogQuery, LogsAnswer, LogsQuery, RebuildAnswer, UsageQuery, UsageRow,
};
use schemas::subject::MARK_BUCKET;
use tempfile::TempDir;

use super::*;
use crate::fixture::memory::MemoryBus;
use crate::fixture::{SOURCE, books, envelope, settled, sums_of};
use crate::record::{Adjustment, Waybill};
use crate::store::sqlite::SqliteStore;
use crate::store::{Applied, AuditRange, Batch, Store};

/// A ledger that can be stopped and started on the same log and books.
struct Scene {
    bus: Arc<MemoryBus>,
    store: Arc<dyn Store>,
    _dir: TempDir,
}

/// A ledger at work.
struct Running {
    shutdown: CancellationToken,
    state: Arc<State>,
    progress: crate::Progress,
    tasks: tokio::task::JoinSet<Result<(), Error>>,
}

impl Scene {
    async fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
        Self {
            bus: Arc::new(MemoryBus::default()),
            store,
            _dir: dir,
        }
    }

    fn append(&self, sequences: impl IntoIterator<Item = u64>) {
        self.bus.append(sequences.into_iter().map(waybill));
    }

    fn start(&self) -> Running {
        let ports = Ports::new(self.bus.clone(), self.bus.clone(), Arc::clone(&self.store));
        let progress = ports.progress();
        let (state, shutdown) = (Arc::clone(&ports.state), CancellationToken::new());
        let config = Config {
            mark_interval_ms: 20,
            ..Config::default()
        };
        let applier = Applier::new(config, ports);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(applier.run(shutdown.clone()));
        Running {
            shutdown,
            state,
            progress,
            tasks,
        }
    }

    fn mark(&self) -> Option<u64> {
        self.bus.value(MARK_BUCKET, "spool-a")?.parse().ok()
    }

    async fn rows(&self) -> usize {
        let (rows, sums) = books(&*self.store).await;
        assert_eq!(sums, sums_of(&rows));
        rows.len()
    }
}

impl Running {
    async fn stop(mut self) {
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no panic").expect("a clean end");
        }
    }
}

fn waybill(sequence: u64) -> Bytes {
    envelope(SOURCE, sequence, settled(sequence))
}

/// Waits until `condition` holds; a test that waits for long has failed.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test]
async fn events_become_rows_and_then_marks_and_progress_move() {
    let scene = Scene::new().await;
    scene.append(1..=1_200);
    let running = scene.start();

    until("the mark moves", || scene.mark() == Some(1_200)).await;
    assert_eq!(running.progress.applied(), 1_200);
    scene.append([1_201]);
    until("the mark moves on", || scene.mark() == Some(1_201)).await;

    let state = running.state.read();
    assert_eq!(
        (state.events_applied, state.cursor, state.database_connected),
        (1_201, 1_201, true)
    );
    running.stop().await;
    assert_eq!(scene.rows().await, 1_201);
}

#[tokio::test]
async fn a_shutdown_applies_what_is_in_the_log() {
    let scene = Scene::new().await;
    let running = scene.start();
    scene.append(1..=1_000);

    running.stop().await;

    assert_eq!(scene.rows().await, 1_000);
    assert_eq!(scene.mark(), Some(1_000));
}

#[tokio::test]
async fn a_restart_goes_on_from_the_cursor_although_the_log_forgot() {
    let scene = Scene::new().await;
    scene.append(1..=10);
    scene.start().stop().await;
    scene.bus.trim(8);
    scene.append(11..=20);

    let running = scene.start();
    until("the mark moves", || scene.mark() == Some(20)).await;

    assert_eq!(running.state.read().events_applied, 10);
    running.stop().await;
    assert_eq!(scene.rows().await, 20);
}

#[tokio::test]
async fn a_log_made_anew_is_read_from_its_oldest() {
    let scene = Scene::new().await;
    scene.append(1..=10);
    scene.start().stop().await;
    scene.bus.make_anew(99);
    scene.append(8..=14);

    scene.start().stop().await;

    assert_eq!(scene.rows().await, 14);
    assert_eq!(
        scene.store.cursor().await.expect("cursor"),
        Some(Cursor {
            stream_created: 99,
            sequence: 7
        })
    );
}

#[tokio::test]
async fn a_log_made_anew_under_a_running_ledger_is_noticed() {
    let scene = Scene::new().await;
    scene.append(1..=10);
    let running = scene.start();
    until("the mark moves", || scene.mark() == Some(10)).await;

    scene.bus.make_anew(99);
    scene.append(11..=12);

    until("the mark moves on", || scene.mark() == Some(12)).await;
    running.stop().await;
    assert_eq!(scene.rows().await, 12);
}

#[tokio::test]
async fn a_hole_stops_the_mark_until_the_event_comes() {
    let scene = Scene::new().await;
    scene.append([1, 2, 5]);
    let running = scene.start();
    until("the mark moves", || scene.mark() == Some(2)).await;
    until("the hole is counted", || running.state.read().events_missing == 2).await;

    scene.append([4, 3]);

    until("the mark moves on", || scene.mark() == Some(5)).await;
    assert_eq!(running.state.read().events_missing, 0);
    running.stop().await;
}

#[tokio::test]
async fn books_that_lost_their_file_do_not_hold_the_spool_for_ever() {
    let scene = Scene::new().await;
    scene
        .bus
        .put(MARK_BUCKET, "spool-a", Bytes::from_static(b"40"), Expected::Any)
        .await
        .expect("a mark");
    scene.append(38..=45);

    scene.start().stop().await;

    assert_eq!(scene.mark(), Some(45));
    assert_eq!(scene.rows().await, 8);
}

#[tokio::test]
async fn books_that_lost_their_file_move_the_mark_although_events_never_stop_coming() {
    let scene = Scene::new().await;
    let kept = Bytes::from_static(b"40");
    scene
        .bus
        .put(MARK_BUCKET, "spool-a", kept, Expected::Any)
        .await
        .expect("a mark");
    let running = scene.start();
    let bus = Arc::clone(&scene.bus);
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(async move {
        for sequence in 41_u64.. {
            bus.append([waybill(sequence)]);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });

    until("the mark moves", || scene.mark() > Some(41)).await;

    callers.shutdown().await;
    running.stop().await;
}

#[tokio::test]
async fn an_event_that_cannot_be_read_stops_nothing() {
    let scene = Scene::new().await;
    scene.bus.append([
        Bytes::from_static(b"{"),
        waybill(1),
        Bytes::from_static(b"\xff"),
        waybill(2),
    ]);
    let running = scene.start();

    until("the mark moves", || scene.mark() == Some(2)).await;

    assert_eq!(running.state.read().events_unreadable, 2);
    running.stop().await;
    assert_eq!(scene.rows().await, 2);
}

#[tokio::test]
async fn a_database_that_is_away_loses_nothing() {
    let mut scene = Scene::new().await;
    let flaky = Arc::new(Flaky {
        store: Arc::clone(&scene.store),
        failures: AtomicU32::new(5),
    });
    scene.store = flaky.clone();
    scene.append(1..=100);
    let running = scene.start();

    until("the mark moves", || scene.mark() == Some(100)).await;

    assert_eq!(flaky.failures.load(Ordering::Relaxed), 0);
    assert!(running.state.read().database_connected);
    running.stop().await;
    assert_eq!(scene.rows().await, 100);
}

#[tokio::test]
async fn two_ledgers_on_the_same_books_apply_every_event_once() {
    let scene = Scene::new().await;
    scene.append(1..=300);
    let (one, two) = (scene.start(), scene.start());
    scene.append(301..=900);

    until("the mark moves", || scene.mark() == Some(900)).await;

    one.stop().await;
    two.stop().await;
    assert_eq!(scene.rows().await, 900);
}

#[test]
fn reading_resumes_after_the_cursor_or_at_the_oldest() {
    let log = LogState {
        created_at_micros: 1,
        first: 5,
        last: 20,
    };
    let cursor = |stream_created, sequence| {
        Some(Cursor {
            stream_created,
            sequence,
        })
    };

    assert_eq!(resume_at(None, log), (5, 0));
    assert_eq!(resume_at(cursor(1, 12), log), (13, 12));
    assert_eq!(resume_at(cursor(1, 20), log), (21, 20));
    assert_eq!(
        resume_at(cursor(1, 21), log),
        (5, 0),
        "the log is shorter than the cursor says"
    );
    assert_eq!(resume_at(cursor(2, 12), log), (5, 0), "another log");
    assert_eq!(resume_at(None, LogState::default()), (1, 0));
}

/// A store whose writes fail a few times: before the commit, and after it.
struct Flaky {
    store: Arc<dyn Store>,
    failures: AtomicU32,
}

impl Flaky {
    fn fails(&self) -> bool {
        self.failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

#[async_trait]
impl Store for Flaky {
    async fn cursor(&self) -> Result<Option<Cursor>, StoreError> {
        self.store.cursor().await
    }

    async fn coverage(&self) -> Result<Coverage, StoreError> {
        self.store.coverage().await
    }

    async fn apply(&self, batch: &Batch<'_>) -> Result<Applied, StoreError> {
        if self.fails() {
            return Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut));
        }
        let applied = self.store.apply(batch).await;
        // The answer of a commit is lost.
        if self.fails() {
            Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut))
        } else {
            applied
        }
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.store.sync().await
    }

    async fn logs(&self, query: &LogsQuery) -> Result<LogsAnswer, StoreError> {
        self.store.logs(query).await
    }

    async fn log(&self, query: &LogQuery) -> Result<LogAnswer, StoreError> {
        self.store.log(query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.store.usage(query).await
    }

    async fn rebuild(&self) -> Result<RebuildAnswer, StoreError> {
        self.store.rebuild().await
    }

    async fn open_sources(&self) -> Result<Vec<Arc<str>>, StoreError> {
        self.store.open_sources().await
    }

    async fn open_requests(
        &self,
        source: &str,
        requests_max: usize,
    ) -> Result<Vec<RequestAccepted>, StoreError> {
        self.store.open_requests(source, requests_max).await
    }

    async fn event_ids(&self, source: &str, source_sequence: u64) -> Result<Vec<Arc<str>>, StoreError> {
        self.store.event_ids(source, source_sequence).await
    }

    async fn booked(
        &self,
        tenant: Option<&str>,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, Record)>, StoreError> {
        self.store.booked(tenant, after, events_max).await
    }

    async fn last_place(&self) -> Result<u64, StoreError> {
        self.store.last_place().await
    }

    async fn events_after(
        &self,
        source: &str,
        source_sequence: u64,
        events_max: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.events_after(source, source_sequence, events_max).await
    }

    async fn audits(&self, range: &AuditRange, events_max: usize) -> Result<Vec<Record>, StoreError> {
        self.store.audits(range, events_max).await
    }

    async fn seals(&self, tenant: Option<&str>) -> Result<Vec<Record>, StoreError> {
        self.store.seals(tenant).await
    }

    async fn rows_of_day(&self, day: NaiveDate) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        self.store.rows_of_day(day).await
    }

    async fn day_rows(
        &self,
        of: (&str, NaiveDate),
        after: Option<RequestId>,
        rows_max: usize,
    ) -> Result<Vec<Waybill>, StoreError> {
        self.store.day_rows(of, after, rows_max).await
    }

    async fn adjusted(&self, ids: &[RequestId]) -> Result<BTreeMap<RequestId, Adjustments>, StoreError> {
        self.store.adjusted(ids).await
    }

    async fn adjusted_days(&self) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError> {
        self.store.adjusted_days().await
    }

    async fn day_adjustments(
        &self,
        of: (&str, NaiveDate),
        after: Option<(RequestId, u32)>,
        most: usize,
    ) -> Result<Vec<Adjustment>, StoreError> {
        self.store.day_adjustments(of, after, most).await
    }

    async fn healthy(&self) -> bool {
        self.store.healthy().await
    }
}
