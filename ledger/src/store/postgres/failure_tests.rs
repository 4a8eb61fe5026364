//! Several ledgers at one database, and a database that goes away or goes back.

use std::sync::atomic::AtomicU64;

use super::tests::{connection, dump, execute, fresh, migrating, texts};
use super::*;
use crate::book::book;
use crate::fixture::{self, SOURCE, apply, books, full, lost, record, settled};
use crate::record::Record;

const BATCH_EVENTS: usize = 100;

/// Applies all batches from where the books are, whoever else does the same; tries again what may be tried again.
/// Returns how many events were new.
async fn keep_books(store: &PostgresStore, records: &[Record], progress: &AtomicU64) -> u64 {
    let mut events = 0;
    loop {
        let Ok(cursor) = store.cursor().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let sequence = cursor.map_or(0, |cursor| cursor.sequence);
        progress.store(sequence, Ordering::Relaxed);
        let from = usize::try_from(sequence).expect("small");
        let Some(batch) = records
            .get(from..)
            .and_then(|rest| rest.chunks(BATCH_EVENTS).next())
        else {
            return events;
        };
        match apply(store, batch).await {
            Ok(applied) => events += applied.events,
            Err(problem) if problem.retryable() || matches!(problem, StoreError::Superseded) => {}
            Err(problem) => panic!("{problem:?}"),
        }
    }
}

async fn assert_exact(store: &PostgresStore, requests: usize) {
    let (rows, sums) = books(store).await;
    assert_eq!(rows.len(), requests);
    assert_eq!(sums, fixture::sums_of(&rows));
    let counted: u64 = sums.iter().map(|sum| sum.requests).sum();
    assert_eq!(counted, requests as u64);
}

#[tokio::test]
async fn of_two_ledgers_at_one_place_one_is_overtaken_and_has_changed_nothing() {
    let (url, one) = fresh().await;
    let other = PostgresStore::connect(&url, Options::default())
        .await
        .expect("a store");
    let coverage = Coverage::default();
    let next = Cursor {
        stream_created: fixture::CREATED,
        sequence: 1,
    };
    let (mine, theirs) = (
        [record(1, settled(1))],
        [record(1, settled(1)), record(2, settled(2))],
    );

    let (first, second) = tokio::join!(
        book(&one, &mine, &coverage, (None, next)),
        book(&other, &theirs, &coverage, (None, next)),
    );

    let winner = match (first, second) {
        (Ok(applied), Err(StoreError::Superseded)) | (Err(StoreError::Superseded), Ok(applied)) => applied,
        both => panic!("{both:?}"),
    };
    assert_eq!(books(&one).await.0.len() as u64, winner.events);
    assert_exact(&one, usize::try_from(winner.events).expect("small")).await;
}

/// Ledgers that read a part of the log again leave the cursor where it is, so that it tells nobody of the other's batch.
#[tokio::test]
async fn two_ledgers_that_read_the_log_again_move_sums_once() {
    let (url, one) = fresh().await;
    let other = PostgresStore::connect(&url, Options::default())
        .await
        .expect("a store");
    let at = Cursor {
        stream_created: fixture::CREATED,
        sequence: 3,
    };
    let coverage = Coverage::default();
    let provisional = [record(1, lost(1)), record(2, lost(2).accepted)];
    book(&one, &provisional, &coverage, (None, at))
        .await
        .expect("a first batch");
    let missing = [record(3, settled(1)), record(4, settled(2))];
    let mut holder = connection(&url).await;

    execute(&mut holder, "BEGIN; SELECT 1 FROM ledger_cursor FOR UPDATE").await;
    let release = async {
        let waiting = "SELECT pid::text FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        // The activity is a snapshot of the transaction's: it is looked at from another one.
        let mut observer = connection(&url).await;
        while texts(&mut observer, waiting).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        execute(&mut holder, "COMMIT").await;
    };
    let (first, second, ()) = tokio::join!(
        book(&one, &missing, &coverage, (Some(at), at)),
        book(&other, &missing, &coverage, (Some(at), at)),
        release,
    );

    assert_eq!(first.expect("one").events + second.expect("other").events, 2);
    assert_exact(&one, 2).await;
    assert!(one.open_sources().await.expect("sources").is_empty());
}

#[tokio::test]
async fn a_ledger_that_froze_amid_its_rows_does_not_hold_the_cursor_for_ever() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("a batch");
    let mut frozen = connection(&url).await;
    execute(&mut frozen, "BEGIN; UPDATE ledger_cursor SET sequence = 7").await;
    let rows = frozen
        .copy_in_raw("COPY api_logs FROM STDIN (FORMAT binary)")
        .await;
    let mut other = connection(&url).await;

    let young = frozen::end(&mut other, frozen::SILENT_SECONDS_MAX).await;
    let old = frozen::end(&mut other, 0).await;

    assert_eq!((young.expect("a look"), old.expect("an end")), (0, 1));
    apply(&store, &[record(2, settled(2))])
        .await
        .expect("the next batch");
    assert_exact(&store, 2).await;
    let late = rows.expect("the rows were asked for").finish().await;
    assert!(late.is_err(), "what the other had half done is undone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ledgers_that_race_leave_exact_books() {
    let (url, one) = fresh().await;
    let other = PostgresStore::connect(&url, Options::default())
        .await
        .expect("a store");
    let records: Vec<Record> = (1..=3_000).map(|n| record(n, settled(n))).collect();
    let progress = AtomicU64::new(0);

    let (first, second) = tokio::join!(
        keep_books(&one, &records, &progress),
        keep_books(&other, &records, &progress),
    );

    assert_eq!(first + second, 3_000);
    assert_exact(&one, 3_000).await;
    assert_eq!(other.coverage().await.expect("coverage").mark(SOURCE), 3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn books_are_exact_although_the_server_is_stopped_while_batches_are_applied() {
    let server = test_server::Server::private();
    let store = PostgresStore::connect(&server.url("postgres"), migrating())
        .await
        .expect("a store");
    let records: Vec<Record> = (1..=6_000).map(|n| record(n, settled(n))).collect();
    let progress = AtomicU64::new(0);

    let stops = async {
        for place in [700, 2_200, 4_100] {
            while progress.load(Ordering::Relaxed) < place {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            tokio::task::block_in_place(|| server.stop());
            assert!(!store.healthy().await);
            tokio::task::block_in_place(|| server.restart());
        }
    };
    let (_, ()) = tokio::join!(keep_books(&store, &records, &progress), stops);

    assert_exact(&store, 6_000).await;
    assert_eq!(store.coverage().await.expect("coverage").missing(), 0);
    store.rebuild().await.expect("rebuild");
    assert_exact(&store, 6_000).await;
}

#[tokio::test]
async fn a_restored_backup_is_brought_up_to_date_exactly() {
    let (url, store) = fresh().await;
    let records: Vec<Record> = (1..=1_000).map(|n| record(n, full(n % 900))).collect();
    let progress = AtomicU64::new(0);
    keep_books(&store, &records[..450], &progress).await;
    store.readers.close().await;
    drop(store);
    let name = url
        .rsplit('/')
        .next()
        .expect("a name")
        .split('?')
        .next()
        .expect("a name");
    let (backup_url, _) = test_server::copy_of(name).await;
    let store = PostgresStore::connect(&url, Options::default())
        .await
        .expect("the store");
    keep_books(&store, &records, &progress).await;

    let backup = PostgresStore::connect(&backup_url, Options::default())
        .await
        .expect("the backup");
    assert_eq!(
        backup.cursor().await.expect("cursor").expect("a cursor").sequence,
        450
    );
    keep_books(&backup, &records, &progress).await;

    assert_eq!(dump(&backup_url).await, dump(&url).await);
    assert_exact(&backup, 900).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_may_be_asked_again() {
    let url = "postgres://nobody@127.0.0.1:1/nothing";
    let store = PostgresStore::new(url, Options::default()).expect("a store without a connection");

    let refused = store.cursor().await.expect_err("nobody answers");

    assert!(refused.retryable(), "{refused:?}");
    assert!(!store.healthy().await);
    let wrong = PostgresStore::new("no url at all", Options::default()).expect_err("no URL");
    assert!(!wrong.retryable());
}

#[tokio::test]
async fn a_ledger_that_froze_in_a_transaction_holds_up_the_other_for_a_bounded_time() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let mut frozen = connection(&url).await;
    execute(&mut frozen, "BEGIN; UPDATE ledger_cursor SET sequence = sequence").await;

    let refused = apply(&store, &[record(2, settled(2))])
        .await
        .expect_err("the cursor is locked");
    assert!(refused.retryable(), "{refused:?}");
    assert_eq!(books(&store).await.0.len(), 1);

    execute(&mut frozen, "ROLLBACK").await;
    apply(&store, &[record(2, settled(2))]).await.expect("apply");
    assert_exact(&store, 2).await;
}
