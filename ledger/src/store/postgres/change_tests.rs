//! Tables that change: migrations and rebuilds beside readers and appliers.

use schemas::query::LogFilter;
use sqlx::migrate::{Migration, MigrationType};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

use super::tests::{connection, dump, execute, fresh, migrating, texts};
use super::*;
use crate::fixture::{self, apply, books, record, settled};
use crate::record::Record;

/// Longest that a reader may be held up: a change waits a second for its locks, and machines are busy.
const HELD_UP_MAX: Duration = Duration::from_millis(2_500);

/// What this program knows, and one migration more that locks the request log.
fn known_and_one() -> Vec<Migration> {
    let mut migrations = migrate::known().to_vec();
    let text = "ALTER TABLE api_logs ADD COLUMN later TEXT";
    migrations.push(Migration::new(
        9_000,
        "later".into(),
        MigrationType::Simple,
        AssertSqlSafe(text).into_sql_str(),
        false,
    ));
    migrations
}

async fn read_one(store: &PostgresStore) -> usize {
    let query = LogsQuery {
        filter: LogFilter::default(),
        limit: 1,
        after: None,
    };
    store.logs(&query).await.expect("a page").data.len()
}

#[tokio::test]
async fn a_database_without_tables_is_refused_and_left_alone_until_it_is_migrated() {
    let url = test_server::database().await;
    let program = migrate::known().last().expect("a migration").version;

    let refused = PostgresStore::connect(&url, Options::default())
        .await
        .expect_err("no tables");
    assert!(
        matches!(&refused, StoreError::Outdated { database: 0, .. }),
        "{refused:?}"
    );
    assert!(!refused.retryable());
    assert!(
        refused.to_string().ends_with("run `waybill migrate`"),
        "{refused}"
    );
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    assert!(texts(&mut connection(&url).await, tables).await.is_empty());

    let (one, other) = tokio::join!(PostgresStore::migrate(&url), PostgresStore::migrate(&url));
    let (one, other) = (one.expect("migrated"), other.expect("migrated"));
    assert_eq!((one.to, other.to), (program, program));
    assert_eq!(one.from.min(other.from), 0);
    let again = PostgresStore::migrate(&url).await.expect("nothing to do");
    assert_eq!(
        again,
        Migrated {
            from: program,
            to: program
        }
    );
    PostgresStore::connect(&url, Options::default())
        .await
        .expect("a store");
}

#[tokio::test]
async fn tables_of_a_newer_program_are_refused_before_anything_is_changed() {
    let url = test_server::database().await;
    let server = session::server(&url).expect("a URL");
    migrate::run(&server, &known_and_one())
        .await
        .expect("the newer program");
    let before = dump(&url).await;

    for refused in [
        PostgresStore::connect(&url, Options::default()).await.map(drop),
        PostgresStore::connect(&url, migrating()).await.map(drop),
        PostgresStore::migrate(&url).await.map(drop),
    ] {
        let refused = refused.expect_err("newer tables");
        assert!(
            matches!(refused, StoreError::Newer { database: 9_000, .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("version 9000"), "{refused}");
    }
    assert_eq!(dump(&url).await, before);
}

#[tokio::test]
async fn tables_from_another_file_of_the_same_version_are_refused() {
    let (url, store) = fresh().await;
    drop(store);
    execute(
        &mut connection(&url).await,
        "UPDATE _sqlx_migrations SET checksum = 'x'",
    )
    .await;

    let refused = PostgresStore::connect(&url, migrating())
        .await
        .expect_err("another file");

    assert!(matches!(refused, StoreError::Migration(_)), "{refused:?}");
}

#[tokio::test]
async fn a_migration_waits_for_a_long_reader_without_holding_up_the_others() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let mut long = connection(&url).await;
    execute(&mut long, "BEGIN; SELECT count(*) FROM api_logs").await;
    let server = session::server(&url).expect("a URL");
    let known = known_and_one();

    let migrated = migrate::run(&server, &known);
    let readers = async {
        let begun = Instant::now();
        let mut longest = Duration::ZERO;
        while begun.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            assert_eq!(read_one(&store).await, 1);
            longest = longest.max(asked.elapsed());
        }
        execute(&mut long, "COMMIT").await;
        longest
    };
    let (migrated, longest) = tokio::join!(migrated, readers);

    assert_eq!(migrated.expect("migrated").to, 9_000);
    assert!(longest < HELD_UP_MAX, "{longest:?}");
    // A ledger of the older program that runs goes on.
    apply(&store, &[record(2, settled(2))]).await.expect("apply");
    assert_eq!(books(&store).await.0.len(), 2);
}

#[tokio::test]
async fn bug_case_16_6_a_column_of_another_type_costs_no_read_and_each_connection_one_try() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    // As many connections as there may be, each with its statements prepared.
    let readers = || futures_util::future::join_all((0..16).map(|_| read_one(&store)));
    readers().await;
    let mut other = connection(&url).await;

    for column in ["end_user", "tenant"] {
        let text = format!("ALTER TABLE api_logs ALTER COLUMN {column} TYPE VARCHAR(200) COLLATE \"C\"");
        execute(&mut other, &text).await;
        assert!(readers().await.into_iter().all(|rows| rows == 1), "{column}");
    }

    // The writer looks for rows that are there: the one that had its statement prepared fails once.
    let again = |n| [record(n, settled(1)), record(n + 1, settled(n))];
    let refused = apply(&store, &again(10)).await;
    if let Err(problem) = refused {
        assert!(matches!(problem, StoreError::Refused(_)), "{problem:?}");
        apply(&store, &again(10)).await.expect("apply");
    }
    apply(&store, &again(20)).await.expect("apply");
    assert_eq!(books(&store).await.0.len(), 3);
}

#[tokio::test]
async fn one_process_at_a_time_changes_tables() {
    let (url, store) = fresh().await;
    let mut other = connection(&url).await;
    assert!(migrate::try_lock(&mut other).await.expect("the lock"));

    let rebuilt = store.rebuild();
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let answer = migrate::unlock(&mut other).await;
        answer.expect("unlocked");
    };
    let (rebuilt, ()) = tokio::join!(rebuilt, unlock);

    assert_eq!(rebuilt.expect("rebuild").rows, 0);
}

#[tokio::test]
async fn batches_go_on_while_a_rebuild_runs() {
    let (_url, store) = fresh().await;
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
async fn a_rebuild_waits_for_a_long_reader_who_sees_the_old_rows_to_the_end() {
    let (url, store) = fresh().await;
    let records: Vec<Record> = (1..=600).map(|n| record(n, settled(n))).collect();
    apply(&store, &records).await.expect("apply");
    execute(
        &mut connection(&url).await,
        "DELETE FROM api_logs WHERE source_sequence > 599",
    )
    .await;
    let mut long = connection(&url).await;
    execute(&mut long, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let count = "SELECT count(*)::text FROM api_logs";
    assert_eq!(texts(&mut long, count).await, ["599"]);

    let readers = async {
        let begun = Instant::now();
        let mut longest = Duration::ZERO;
        while begun.elapsed() < Duration::from_secs(2) {
            let asked = Instant::now();
            assert_eq!(read_one(&store).await, 1);
            longest = longest.max(asked.elapsed());
        }
        assert_eq!(texts(&mut long, count).await, ["599"]);
        execute(&mut long, "COMMIT").await;
        longest
    };
    let (rebuilt, longest) = tokio::join!(store.rebuild(), readers);

    assert_eq!(rebuilt.expect("rebuild").rows, 600);
    assert!(longest < HELD_UP_MAX, "{longest:?}");
    assert_eq!(texts(&mut long, count).await, ["600"]);
}

#[tokio::test]
async fn what_an_interrupted_rebuild_left_is_no_hindrance() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let left = "CREATE SCHEMA waybill_rebuild; CREATE TABLE waybill_rebuild.api_logs (day DATE)";
    execute(&mut connection(&url).await, left).await;

    assert_eq!(store.rebuild().await.expect("rebuild").rows, 1);
}
