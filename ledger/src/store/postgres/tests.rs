//! The suite against a PostgreSQL server, and what is particular to one: tables that are the same column for column
//! after a rebuild, partitions, and texts that it cannot hold.

use proptest::prelude::*;
use schemas::id::RequestId;
use sqlx::AssertSqlSafe;

use super::*;
use crate::fixture::{self, apply, books, full, record, settled};
use crate::fold::tests::{any_event, record_of};
use crate::record::Record;
use crate::store::conformance;

/// Options of tests: the tables are made.
pub(super) fn migrating() -> Options {
    Options {
        migrate: true,
        ..Options::default()
    }
}

/// A store in a new database, and the database's URL.
pub(super) async fn fresh() -> (String, PostgresStore) {
    let url = test_server::database().await;
    let store = PostgresStore::connect(&url, migrating()).await.expect("a store");
    (url, store)
}

pub(super) async fn connection(url: &str) -> PgConnection {
    let server = session::server(url).expect("a URL");
    session::open(&server, Purpose::Build)
        .await
        .expect("a connection")
}

/// Runs statements.
pub(super) async fn execute(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
        .execute(connection)
        .await
        .expect("a statement");
}

/// The texts of a column.
pub(super) async fn texts(connection: &mut PgConnection, text: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(text.to_owned()))
        .fetch_all(connection)
        .await
        .expect("texts")
}

/// Every value of every column of the projections, in the order of their keys.
pub(super) async fn dump(url: &str) -> Vec<String> {
    let mut connection = connection(url).await;
    let mut lines = Vec::new();
    for table in ["api_logs", "usage_rollup", "open_requests"] {
        let text = format!("SELECT {table}::text COLLATE \"C\" FROM {table} ORDER BY 1");
        lines.extend(texts(&mut connection, &text).await);
    }
    lines
}

conformance::every_promise!(fresh);

#[tokio::test]
async fn a_rebuild_mends_tables_that_somebody_changed() {
    let (url, store) = fresh().await;
    let records: Vec<Record> = (1..=20).map(|n| record(n, full(n))).collect();
    apply(&store, &records).await.expect("apply");
    let before = dump(&url).await;
    let damage = "DELETE FROM api_logs WHERE source_sequence < 5; UPDATE api_logs SET cost_nano_usd = 1; \
         DELETE FROM usage_rollup; INSERT INTO open_requests SELECT gen_random_uuid(), 'x', 1, 'x'";
    execute(&mut connection(&url).await, damage).await;
    assert_ne!(dump(&url).await, before);

    store.rebuild().await.expect("rebuild");

    assert_eq!(dump(&url).await, before);
}

#[tokio::test]
async fn after_a_rebuild_the_tables_are_as_a_migration_makes_them() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let mut connection = connection(&url).await;
    let shape = "SELECT concat_ws(' ', n.nspname, c.relname, c.relkind, c.relispartition, c.reloptions::text, \
         pg_get_expr(c.relpartbound, c.oid), pg_get_indexdef(c.oid), (SELECT count(*) FROM pg_constraint \
         WHERE conrelid = c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' AND c.relkind <> 't' ORDER BY 1";
    let before = texts(&mut connection, shape).await;

    for _ in 0..2 {
        store.rebuild().await.expect("rebuild");
    }

    assert_eq!(texts(&mut connection, shape).await, before);
    assert!(before.len() > 40, "{before:?}");
}

#[tokio::test]
async fn requests_are_in_the_partition_of_their_day_or_in_the_default_one() {
    let (url, store) = fresh().await;
    let mut connection = connection(&url).await;
    let day = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')";
    let today = texts(&mut connection, day).await.remove(0);
    let millis: Vec<String> = texts(
        &mut connection,
        "SELECT (extract(epoch FROM now()) * 1000)::bigint::text",
    )
    .await;
    let millis: u128 = millis[0].parse().expect("a number");
    let today_id = RequestId(uuid::Uuid::from_u128(millis << 80 | 7 << 76 | 2 << 62 | 1));
    let mut dated = settled(1);
    dated.request_id = today_id;
    let mut dateless = settled(2);
    dateless.request_id = RequestId(uuid::Uuid::from_u128(0xffff_ffff_ffff_4000_8000_0000_0000_0001));
    let mut far = settled(3);
    far.request_id = RequestId(uuid::Uuid::from_u128((1 << 47) << 80 | 7 << 76 | 2 << 62));
    let written = [dated, dateless, far];
    let records: Vec<Record> = written
        .iter()
        .cloned()
        .zip(1..)
        .map(|(row, n)| record(n, row))
        .collect();

    apply(&store, &records).await.expect("apply");
    apply(&store, &records).await.expect("apply again");

    let places = "SELECT tableoid::regclass || ' ' || source_sequence FROM api_logs ORDER BY source_sequence";
    assert_eq!(
        texts(&mut connection, places).await,
        [
            format!("api_logs_{today} 1"),
            "api_logs_default 2".to_owned(),
            "api_logs_default 3".to_owned()
        ]
    );
    let (rows, sums) = books(&store).await;
    let ids: Vec<RequestId> = rows.iter().map(|row| row.settled.request_id).collect();
    assert_eq!(ids, [written[2].request_id, today_id, written[1].request_id]);
    assert_eq!(sums, fixture::sums_of(&rows));
    let mut walked = Vec::new();
    let mut after = None;
    while walked.len() <= ids.len() {
        let query = LogsQuery {
            filter: schemas::query::LogFilter::default(),
            limit: 1,
            after,
        };
        let page = store.logs(&query).await.expect("a page");
        walked.extend(page.data.iter().map(|row| row.settled.request_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(walked, ids);
    for row in &written {
        let query = LogQuery {
            request_id: row.request_id,
            tenant: None,
            key: None,
        };
        let answer = store.log(&query).await.expect("an answer");
        assert_eq!(answer.row.expect("the row").settled, *row);
    }
}

#[tokio::test]
async fn a_day_with_rows_in_the_default_partition_stays_there_and_others_get_theirs() {
    let (url, store) = fresh().await;
    let mut connection = connection(&url).await;
    let partition = "SELECT 'api_logs_' || to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD')";
    let partition = texts(&mut connection, partition).await.remove(0);
    let other = "SELECT 'api_logs_' || to_char((now() AT TIME ZONE 'UTC')::date + 3, 'YYYYMMDD')";
    let other = texts(&mut connection, other).await.remove(0);
    execute(&mut connection, &format!("DROP TABLE {partition}, {other}")).await;
    apply(&store, &[record(1, settled(1))]).await.expect("apply");
    let moved = "INSERT INTO api_logs_default SELECT (jsonb_populate_record(row, \
         jsonb_build_object('day', (now() AT TIME ZONE 'UTC')::date + 2))).* FROM api_logs AS row";
    execute(&mut connection, moved).await;

    store.maintain().await.expect("maintenance");

    let made = format!(
        "SELECT name FROM unnest(ARRAY['{partition}', '{other}']) AS name \
         WHERE to_regclass(name) IS NOT NULL"
    );
    assert_eq!(texts(&mut connection, &made).await, [other]);
}

#[tokio::test]
async fn every_session_commits_durably_and_readers_cannot_write() {
    let (_url, store) = fresh().await;
    let show = |name: &'static str| {
        async move |connection: &mut PgConnection| {
            let shown: String = sqlx::query_scalar(AssertSqlSafe(format!("SHOW {name}")))
                .fetch_one(connection)
                .await
                .map_err(sort)?;
            Ok(shown)
        }
    };

    assert_eq!(
        store
            .writing(show("synchronous_commit"))
            .await
            .expect("a setting"),
        "on"
    );
    assert_eq!(
        store.writing(show("application_name")).await.expect("a setting"),
        "waybill-ledger"
    );
    assert_eq!(
        store.writing(show("lock_timeout")).await.expect("a setting"),
        "5s"
    );
    assert_eq!(
        store
            .reading(show("default_transaction_read_only"))
            .await
            .expect("a setting"),
        "on"
    );
    assert!(store.healthy().await);
}

#[tokio::test]
async fn views_have_their_columns_and_money_in_them_is_exact() {
    let (url, store) = fresh().await;
    apply(&store, &[record(1, settled(1)), record(2, full(2))])
        .await
        .expect("apply");
    let mut connection = connection(&url).await;
    let mut one = async |text: &str| texts(&mut connection, text).await.join("|");

    assert_eq!(
        one("SELECT concat_ws(',', sum(requests), sum(cost_nano_usd)) FROM usage_hourly").await,
        "2,356000"
    );
    assert_eq!(
        one("SELECT concat_ws(',', billing_day, sum(requests)) FROM usage_daily GROUP BY billing_day").await,
        "2026-11-30,2"
    );
    assert_eq!(
        one("SELECT concat_ws(',', provider, prompt_tokens, total_tokens, status_code, error, cost_usd, stream) \
             FROM api_logs_compat ORDER BY id DESC LIMIT 1")
            .await,
        "vllm,12,32,499,client_gone,0.000178000,t"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

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
            let (whole_url, whole) = fresh().await;
            let (other_url, other) = fresh().await;
            let records = |events: Vec<_>| events.into_iter().map(record_of).collect::<Vec<Record>>();
            apply(&whole, &records(events)).await.expect("apply");
            for batch in records(shuffled).chunks(batch_events) {
                apply(&other, batch).await.expect("apply");
            }

            let before = dump(&whole_url).await;
            assert_eq!(dump(&other_url).await, before);
            assert_eq!(other.coverage().await.expect("coverage"), whole.coverage().await.expect("coverage"));
            other.rebuild().await.expect("rebuild");
            assert_eq!(dump(&other_url).await, before);
        });
    }
}

#[tokio::test]
async fn an_envelope_that_is_told_again_among_new_ones_is_kept_once_and_its_batch_goes_on() {
    let (url, store) = fresh().await;
    let accepted = |n| record(n, fixture::lost(n).accepted);
    apply(&store, &[accepted(1), record(2, settled(2))])
        .await
        .expect("apply");

    // None of these requests has a row: only the key of the envelopes tells.
    let again = [accepted(1), accepted(3), record(4, settled(4))];
    let applied = apply(&store, &again).await.expect("apply again");
    let twice = [accepted(5), accepted(5), accepted(6)];
    let applied_twice = apply(&store, &twice).await.expect("apply twice");

    assert_eq!((applied.events, applied_twice.events), (2, 2));
    let kept = "SELECT source_sequence::text FROM event_log ORDER BY source_sequence";
    assert_eq!(
        texts(&mut connection(&url).await, kept).await,
        ["1", "2", "3", "4", "5", "6"]
    );
    assert_eq!(books(&store).await.0.len(), 2);
}
