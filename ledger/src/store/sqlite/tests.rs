//! The suite against SQLite, and what is particular to a file: it survives being reopened, its tables are the same
//! column for column after a rebuild, and many events are cheap.

use proptest::prelude::*;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, ValueRef as _};
use tempfile::TempDir;

use super::*;
use crate::fixture::{self, SOURCE, apply, books, full, lost, record, settled};
use crate::fold::tests::{any_event, record_of};
use crate::record::Record;
use crate::store::conformance;

async fn open() -> (TempDir, SqliteStore) {
    let dir = TempDir::new().expect("a directory");
    let store = SqliteStore::open(dir.path()).await.expect("a store");
    (dir, store)
}

conformance::every_promise!(open);

/// Every value of every column of the projections, in the order of their keys.
async fn dump(store: &SqliteStore) -> Vec<String> {
    let mut reader = store.reader().await.expect("a reader");
    let mut lines = Vec::new();
    for text in [
        "SELECT * FROM api_logs ORDER BY 1",
        "SELECT * FROM usage_rollup ORDER BY 1, 2, 3, 4, 5, 6, 7, 8",
        "SELECT * FROM open_requests ORDER BY 1",
    ] {
        let rows = sqlx::query(text).fetch_all(&mut *reader).await.expect("rows");
        lines.extend(rows.iter().map(line));
    }
    lines
}

fn line(row: &SqliteRow) -> String {
    let value = |column: usize| match row.try_get_raw(column).expect("a column") {
        raw if raw.is_null() => "NULL".to_owned(),
        _ => row.try_get_unchecked::<String, _>(column).expect("a value"),
    };
    (0..row.len()).map(value).collect::<Vec<_>>().join("|")
}

#[tokio::test]
async fn books_survive_being_reopened() {
    let (dir, store) = open().await;
    apply(
        &store,
        &[record(1, settled(1)), record(2, full(2)), record(4, lost(4))],
    )
    .await
    .expect("apply");
    let before = (
        books(&store).await,
        store.cursor().await.expect("cursor"),
        store.coverage().await.expect("coverage"),
    );
    drop(store);

    let store = SqliteStore::open(dir.path()).await.expect("the store again");

    let after = (
        books(&store).await,
        store.cursor().await.expect("cursor"),
        store.coverage().await.expect("coverage"),
    );
    assert_eq!(before, after);
    assert_eq!(after.2.mark(SOURCE), 2);
}

#[tokio::test]
async fn a_rebuild_mends_tables_that_somebody_changed() {
    let (_dir, store) = open().await;
    let records: Vec<Record> = (1..=20).map(|n| record(n, full(n))).collect();
    apply(&store, &records).await.expect("apply");
    let before = dump(&store).await;
    let damage = "DELETE FROM api_logs WHERE source_sequence < 5; UPDATE api_logs SET cost_nano_usd = 1; \
         DELETE FROM usage_rollup; INSERT INTO usage_rollup VALUES ('x','x','x','x','x','x','x','x',1,1,1,1,1,1,1,1)";
    let mut connection = store.options.connect().await.expect("a connection");
    sqlx::raw_sql(damage)
        .execute(&mut connection)
        .await
        .expect("damage");
    assert_ne!(dump(&store).await, before);

    store.rebuild().await.expect("rebuild");

    assert_eq!(dump(&store).await, before);
}

#[tokio::test]
async fn batches_go_on_while_a_rebuild_runs() {
    let (_dir, store) = open().await;
    let records: Vec<Record> = (1..=2_000).map(|n| record(n, settled(n))).collect();
    apply(&store, &records[..1_500]).await.expect("apply");

    let more = async {
        for batch in records[1_500..].chunks(50) {
            apply(&store, batch).await.expect("apply");
        }
    };
    let (rebuilt, again, ()) = tokio::join!(store.rebuild(), store.rebuild(), more);

    assert!(rebuilt.expect("rebuild").rows >= 1_500);
    assert!(again.expect("rebuild again").rows >= 1_500);
    let (rows, sums) = books(&store).await;
    assert_eq!(rows.len(), 2_000);
    assert_eq!(sums, fixture::sums_of(&rows));
}

#[tokio::test]
async fn pages_are_read_while_a_batch_is_being_written() {
    let (_dir, store) = open().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let mut writer = store.options.connect().await.expect("a connection");
    sqlx::raw_sql("BEGIN IMMEDIATE; DELETE FROM api_logs")
        .execute(&mut writer)
        .await
        .expect("a write");

    assert_eq!(books(&store).await.0.len(), 1);
    assert!(store.healthy().await);
}

#[tokio::test]
async fn a_busy_database_may_be_asked_again_and_keeps_its_books() {
    let dir = TempDir::new().expect("a directory");
    let mut store = SqliteStore::open(dir.path()).await.expect("a store");
    let mut other = store.options.connect().await.expect("a connection");
    store.options = store.options.clone().busy_timeout(Duration::ZERO);
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .expect("the lock");

    let refused = apply(&store, &[record(1, settled(1))]).await;
    assert!(
        matches!(&refused, Err(problem) if problem.retryable()),
        "{refused:?}"
    );

    sqlx::raw_sql("ROLLBACK")
        .execute(&mut other)
        .await
        .expect("the lock is free");
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    store.sync().await.expect("sync");
    assert_eq!(books(&store).await.0.len(), 1);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = TempDir::new().expect("a directory");
    std::fs::write(
        dir.path().join(FILE_NAME),
        "this is certainly no database file, but it is long enough",
    )
    .expect("write");

    let refused = SqliteStore::open(dir.path()).await;

    assert!(
        matches!(&refused, Err(problem) if !problem.retryable()),
        "{refused:?}"
    );
}

#[tokio::test]
async fn money_is_kept_in_integers_and_views_have_their_columns() {
    let (_dir, store) = open().await;
    apply(&store, &[record(1, settled(1)), record(2, full(2))])
        .await
        .expect("apply");
    let mut reader = store.reader().await.expect("a reader");
    let mut one = async |text: &'static str| -> String {
        let row = sqlx::query(text).fetch_one(&mut *reader).await.expect("a row");
        line(&row)
    };

    assert_eq!(
        one("SELECT DISTINCT typeof(cost_nano_usd) FROM api_logs").await,
        "integer"
    );
    assert_eq!(
        one("SELECT DISTINCT typeof(cost_nano_usd) FROM usage_rollup").await,
        "integer"
    );
    assert_eq!(
        one("SELECT sum(requests), sum(cost_nano_usd) FROM usage_hourly").await,
        "2|356000"
    );
    assert_eq!(
        one("SELECT billing_day, sum(requests) FROM usage_daily").await,
        "2026-11-30|2"
    );
    assert_eq!(
        one("SELECT provider, prompt_tokens, total_tokens, status_code, error FROM api_logs_compat ORDER BY request_id DESC")
            .await,
        "vllm|12|32|499|client_gone"
    );
}

#[test]
fn only_what_may_succeed_later_is_retryable() {
    assert!(sort(sqlx::Error::PoolTimedOut).retryable());
    assert!(!sort(sqlx::Error::RowNotFound).retryable());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn tables_are_the_same_in_any_order_and_after_a_rebuild(
        (events, shuffled) in prop::collection::vec(any_event(), 1..60).prop_flat_map(|events| {
            let twice: Vec<_> = events.iter().chain(&events).copied().collect();
            (Just(events), Just(twice).prop_shuffle())
        }),
        batch_events in 1usize..20,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (_dir, whole) = open().await;
            let (_other_dir, other) = open().await;
            let records = |events: Vec<_>| events.into_iter().map(record_of).collect::<Vec<Record>>();
            apply(&whole, &records(events)).await.expect("apply");
            for batch in records(shuffled).chunks(batch_events) {
                apply(&other, batch).await.expect("apply");
            }

            let before = dump(&whole).await;
            assert_eq!(dump(&other).await, before);
            assert_eq!(other.coverage().await.expect("coverage"), whole.coverage().await.expect("coverage"));
            other.rebuild().await.expect("rebuild");
            assert_eq!(dump(&other).await, before);
        });
    }
}

/// Not a test but a measurement: run it in release with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn how_long_an_event_takes() {
    const EVENTS: u32 = 50_000;
    const BATCH_EVENTS: usize = 500;
    let (_dir, store) = open().await;
    let messages: Vec<bus::Stored> = (1..=u64::from(EVENTS))
        .map(|n| {
            let mut row = full(n);
            row.key_id = format!("key-{}", n % 50).into_boxed_str().as_ref().into();
            fixture::stored(n, fixture::envelope(SOURCE, n, row))
        })
        .collect();
    let mut coverage = Coverage::default();
    let mut cursor = None;
    let (mut reading, mut writing) = (Duration::ZERO, Duration::ZERO);
    for batch in messages.chunks(BATCH_EVENTS) {
        let begun = tokio::time::Instant::now();
        let records: Vec<Record> = batch.iter().map(Record::read).collect();
        for record in &records {
            record.cover(&mut coverage);
        }
        reading += begun.elapsed();
        let begun = tokio::time::Instant::now();
        let last = records.last().expect("a record").sequence;
        let next = Cursor {
            stream_created: fixture::CREATED,
            sequence: last,
        };
        crate::book::book(&store, &records, &coverage, (cursor, next))
            .await
            .expect("apply");
        cursor = Some(next);
        writing += begun.elapsed();
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(EVENTS);
    let text = format!(
        "{:.1} µs to read, {:.1} µs to write an event\n",
        micros(reading),
        micros(writing)
    );
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).expect("write");
}
