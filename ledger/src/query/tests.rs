//! Questions over the bus to a running ledger.

use std::time::Duration;

use schemas::query::feed::FeedFilter;
use schemas::query::{GroupBy, LogFilter};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::fixture::memory::MemoryBus;
use crate::fixture::{SOURCE, envelope, full, request_id, settled};
use crate::store::sqlite::SqliteStore;
use crate::{Config, Ports};

/// A ledger with three rows, and somebody to ask it.
struct Scene {
    bus: Arc<MemoryBus>,
    shutdown: CancellationToken,
    ledger: JoinSet<Result<(), crate::Error>>,
    _dir: TempDir,
}

impl Scene {
    async fn new() -> Self {
        Self::with([
            envelope(SOURCE, 1, settled(1)),
            envelope(SOURCE, 2, full(2)),
            envelope(SOURCE, 3, settled(3)),
        ])
        .await
    }

    async fn with<const N: usize>(events: [Bytes; N]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
        let bus = Arc::new(MemoryBus::default());
        bus.append(events);
        let ports = Ports::new(bus.clone(), bus.clone(), store);
        let mut progress = ports.progress();
        let shutdown = CancellationToken::new();
        let mut ledger = JoinSet::new();
        let config = Config {
            mark_interval_ms: 1,
            ..Config::default()
        };
        ledger.spawn(crate::run(config, ports, shutdown.clone()));
        while progress.applied() < N as u64 {
            progress.moved().await.expect("a running ledger");
        }
        Self {
            bus,
            shutdown,
            ledger,
            _dir: dir,
        }
    }

    async fn ask_raw<A: DeserializeOwned>(&self, subject: &str, question: &[u8]) -> Result<A, QueryError> {
        let question = Bytes::copy_from_slice(question);
        let answer = self
            .bus
            .ask(subject, question, Duration::from_secs(10))
            .await
            .expect("an answer");
        serde_json::from_slice(&answer).expect("an answer or a reason")
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &impl Serialize,
    ) -> Result<A, QueryError> {
        self.ask_raw(subject, &serde_json::to_vec(question).expect("a question"))
            .await
    }
}

fn page(limit: u32) -> LogsQuery {
    LogsQuery {
        filter: LogFilter::default(),
        limit,
        after: None,
    }
}

#[tokio::test]
async fn pages_requests_sums_and_state_are_answered() {
    let mut scene = Scene::new().await;

    let logs: LogsAnswer = scene.ask(QUERY_LOGS, &page(2)).await.expect("a page");
    assert_eq!(logs.data.len(), 2);
    assert_eq!(logs.next, Some(request_id(2)));

    let query = LogQuery {
        request_id: request_id(2),
        tenant: None,
        key: None,
    };
    let log: LogAnswer = scene.ask(QUERY_LOG, &query).await.expect("a row");
    assert_eq!(log.row.expect("a row").settled, full(2));
    assert!(
        log.event
            .expect("its event")
            .get()
            .contains("waybill.request.settled.v1")
    );

    let query = UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![GroupBy::Model],
        interval: None,
        tz: "UTC".to_owned(),
    };
    let usage: UsageAnswer = scene.ask(QUERY_USAGE, &query).await.expect("sums");
    assert_eq!(
        (usage.data[0].requests, usage.data[0].ok, usage.data[0].errors),
        (3, 2, 1)
    );

    let state: LedgerState = scene.ask_raw(QUERY_LEDGER, b"").await.expect("a state");
    assert_eq!(
        (state.events_applied, state.cursor, state.database_connected),
        (3, 3, true)
    );

    let rebuilt: RebuildAnswer = scene.ask_raw(QUERY_REBUILD, b"{}").await.expect("a rebuild");
    assert_eq!(rebuilt, RebuildAnswer { events: 3, rows: 3 });

    scene.shutdown.cancel();
    scene
        .ledger
        .join_next()
        .await
        .expect("the ledger")
        .expect("no panic")
        .expect("a clean end");
}

#[tokio::test]
async fn what_a_bus_does_not_carry_at_once_is_answered_page_by_page_or_refused() {
    const FAT: usize = 300;
    let event = |n: usize| {
        let n = n as u64 + 1;
        let fat = schemas::event::request::RequestSettled {
            model: schemas::id::ModelName::new(format!("{n}-{}", "m".repeat(4_000))),
            ..settled(n)
        };
        envelope(SOURCE, n, fat)
    };
    let scene = Box::pin(Scene::with::<FAT>(std::array::from_fn(event))).await;

    let mut query = page(1_000);
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let answer: LogsAnswer = scene.ask(QUERY_LOGS, &query).await.expect("a page");
        let bytes = serde_json::to_vec(&answer).expect("an answer").len();
        assert!(bytes < PAGE_BYTES_MAX + 1_024, "{bytes} bytes");
        found.extend(answer.data.iter().map(|row| row.settled.request_id));
        pages += 1;
        query.after = answer.next;
        if query.after.is_none() {
            break;
        }
    }
    let all: Vec<_> = (1..=FAT as u64).rev().map(request_id).collect();
    assert_eq!(found, all);
    assert!((3..10).contains(&pages), "{pages} pages");

    let query = UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![GroupBy::Model],
        interval: None,
        tz: "UTC".to_owned(),
    };
    let refused: Result<UsageAnswer, QueryError> = scene.ask(QUERY_USAGE, &query).await;
    assert!(matches!(refused, Err(QueryError::Invalid(reason)) if reason.contains("ask for less")));
}

#[tokio::test]
async fn a_malformed_question_is_told_what_is_wrong() {
    let scene = Scene::new().await;
    let invalid = |result: Result<LogsAnswer, QueryError>| match result {
        Err(QueryError::Invalid(reason)) => reason,
        other => panic!("{other:?}"),
    };

    assert!(invalid(scene.ask(QUERY_LOGS, &page(0)).await).starts_with("limit: "));
    assert!(invalid(scene.ask(QUERY_LOGS, &page(1_001)).await).starts_with("limit: "));
    assert!(invalid(scene.ask_raw(QUERY_LOGS, b"{\"filter\":{}}").await).contains("limit"));
    invalid(scene.ask_raw(QUERY_LOGS, b"\xff").await);
    invalid(
        scene
            .ask_raw(QUERY_LOGS, &vec![b' '; QUESTION_BYTES_MAX + 1])
            .await,
    );
    let mars = UsageQuery {
        filter: LogFilter::default(),
        group_by: vec![],
        interval: None,
        tz: "Mars".to_owned(),
    };
    let refused: Result<UsageAnswer, QueryError> = scene.ask(QUERY_USAGE, &mars).await;
    assert!(matches!(refused, Err(QueryError::Invalid(reason)) if reason.starts_with("tz: ")));
}

#[tokio::test]
async fn a_rebuild_without_a_running_ledger_also_reads_what_only_the_log_has() {
    let dir = TempDir::new().expect("a directory");
    let store = SqliteStore::open(dir.path()).await.expect("a store");
    let bus = MemoryBus::default();
    bus.append((1..=1_100).map(|n| envelope(SOURCE, n, settled(n))));
    bus.trim(101);

    let answer = crate::rebuild::run(&store, &bus).await.expect("a rebuild");
    let again = crate::rebuild::run(&store, &bus).await.expect("another");

    assert_eq!(
        answer,
        RebuildAnswer {
            events: 1_000,
            rows: 1_000
        }
    );
    assert_eq!(again, answer);
    assert_eq!(
        store.cursor().await.expect("cursor").expect("moved").sequence,
        1_100
    );
    assert_eq!(store.coverage().await.expect("coverage").missing(), 100);
}

#[tokio::test]
async fn usage_is_told_as_it_is_booked() {
    let scene = Scene::new().await;
    let ask = |filter: FeedFilter, after: Option<u64>, limit: u32| FeedQuery { filter, after, limit };
    let all = FeedFilter::default;

    let end: FeedAnswer = scene
        .ask(QUERY_FEED, &ask(all(), None, 10))
        .await
        .expect("the end");
    assert!(end.events.is_empty() && !end.more);
    let answer: FeedAnswer = scene
        .ask(QUERY_FEED, &ask(all(), Some(0), 2))
        .await
        .expect("events");
    assert!(answer.more);
    let places: Vec<u64> = answer.events.iter().map(|event| event.place).collect();
    assert_eq!(places.last(), Some(&answer.place));
    assert_eq!(answer.events[0].kind, "waybill.request.settled.v1");
    assert_eq!(
        answer.events[1].envelope.get().as_bytes(),
        &envelope(SOURCE, 2, full(2))[..]
    );
    let rest: FeedAnswer = scene
        .ask(QUERY_FEED, &ask(all(), Some(answer.place), 2))
        .await
        .expect("events");
    assert_eq!((rest.events.len(), rest.more, rest.place), (1, false, end.place));

    // What is not asked for is passed over, and the place moves on.
    let theirs = FeedFilter {
        user: full(2).user,
        ..all()
    };
    let answer: FeedAnswer = scene
        .ask(QUERY_FEED, &ask(theirs, Some(0), 10))
        .await
        .expect("events");
    let told: Vec<_> = answer
        .events
        .iter()
        .map(|event| event.envelope.get().contains(&request_id(2).to_string()))
        .collect();
    assert_eq!((told, answer.place), (vec![true], end.place));
    let nobody = FeedFilter {
        tenant: Some("nobody".into()),
        ..all()
    };
    let answer: FeedAnswer = scene
        .ask(QUERY_FEED, &ask(nobody, Some(1), 10))
        .await
        .expect("events");
    assert_eq!((answer.events.len(), answer.place), (0, 1));

    for limit in [0, FEED_EVENTS_MAX + 1] {
        let refused = scene
            .ask::<FeedAnswer>(QUERY_FEED, &ask(all(), Some(0), limit))
            .await;
        assert!(matches!(refused, Err(QueryError::Invalid(_))), "{limit}");
    }
}
