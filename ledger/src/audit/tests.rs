//! Pages of changes over the books in SQLite.

use schemas::event::audit::Kind;
use schemas::query::audit::AuditFilter;
use schemas::time::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::fixture::{NOON, SOURCE, apply, audited};
use crate::store::sqlite::SqliteStore;

/// Ten changes of two tenants, one minute after the other; the even ones are of members.
async fn books() -> (TempDir, SqliteStore) {
    let dir = TempDir::new().expect("a directory");
    let store = SqliteStore::open(dir.path()).await.expect("a store");
    let records: Vec<Record> = (1..=10).map(|n| audited(n, (SOURCE, n))).collect();
    apply(&store, &records).await.expect("apply");
    (dir, store)
}

fn query(limit: u32, filter: AuditFilter) -> AuditQuery {
    AuditQuery {
        filter,
        limit,
        after: None,
    }
}

/// Which changes the pages show, and how many pages there are.
async fn walked(store: &SqliteStore, query: AuditQuery, (step, scan): (usize, usize)) -> (Vec<u64>, usize) {
    walked_within(store, query, (step, scan, usize::MAX)).await
}

/// The same with a bound to the bytes of a page.
async fn walked_within(
    store: &SqliteStore,
    mut query: AuditQuery,
    bounds: (usize, usize, usize),
) -> (Vec<u64>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = looked_for(store, &query, bounds).await.expect("a page");
        assert!(page.data.len() <= query.limit as usize);
        found.extend(page.data.iter().map(|audited| audited.revision));
        pages += 1;
        query.after = page.next;
        if query.after.is_none() {
            return (found, pages);
        }
    }
}

#[tokio::test]
async fn pages_walk_every_change_once_the_newest_first() {
    let (_dir, store) = books().await;

    let (found, pages) = walked(&store, query(3, AuditFilter::default()), (4, 100)).await;

    assert_eq!((found, pages), ((1..=10).rev().collect(), 4));
}

#[tokio::test]
async fn pages_are_cut_by_bytes_and_go_on_where_they_were_cut() {
    let (_dir, store) = books().await;
    let first = query(1, AuditFilter::default());
    let one = looked_for(&store, &first, (4, 100, usize::MAX))
        .await
        .expect("a page");
    let row = written(&one.data[0]);
    let all: Vec<u64> = (1..=10).rev().collect();

    for (bytes_max, expected) in [(row * 5 / 2, 5), (0, 10)] {
        let of_ten = query(10, AuditFilter::default());
        let (found, pages) = walked_within(&store, of_ten, (4, 100, bytes_max)).await;
        assert_eq!(found, all);
        assert_eq!(pages, expected, "{bytes_max} bytes");
    }
}

#[tokio::test]
async fn filters_select_and_are_joined() {
    let (_dir, store) = books().await;
    let of = async |filter: AuditFilter| walked(&store, query(50, filter), (1_000, 20_000)).await.0;
    let minute = |n: i64| Some(Timestamp::from_micros(NOON.micros() + n * 60_000_000));

    let filter = AuditFilter::default();
    assert_eq!(
        of(AuditFilter {
            tenant: Some("acme".into()),
            ..filter.clone()
        })
        .await,
        [10, 9, 8, 7, 6]
    );
    assert_eq!(
        of(AuditFilter {
            kind: Some(Kind::User),
            ..filter.clone()
        })
        .await,
        [10, 8, 6, 4, 2]
    );
    assert_eq!(
        of(AuditFilter {
            id: Some("r3".into()),
            ..filter.clone()
        })
        .await,
        [3]
    );
    assert_eq!(
        of(AuditFilter {
            actor: Some("olive".into()),
            ..filter.clone()
        })
        .await,
        [9, 6, 3]
    );
    assert_eq!(
        of(AuditFilter {
            actor: Some("key_ops".into()),
            ..filter.clone()
        })
        .await
        .len(),
        10
    );
    assert_eq!(
        of(AuditFilter {
            actor: Some("nobody".into()),
            ..filter.clone()
        })
        .await,
        [0_u64; 0]
    );
    assert_eq!(
        of(AuditFilter {
            from: minute(4),
            to: minute(7),
            ..filter.clone()
        })
        .await,
        [6, 5, 4]
    );
    let joined = AuditFilter {
        tenant: Some("acme".into()),
        kind: Some(Kind::User),
        actor: Some("olive".into()),
        ..filter
    };
    assert_eq!(of(joined).await, [6]);
}

#[tokio::test]
async fn a_question_that_finds_little_looks_at_so_much_and_says_where_to_go_on() {
    let (_dir, store) = books().await;
    let filter = AuditFilter {
        id: Some("r2".into()),
        ..AuditFilter::default()
    };

    let first = looked_for(&store, &query(5, filter.clone()), (2, 4, usize::MAX))
        .await
        .expect("a page");
    assert!(first.data.is_empty() && first.next.is_some());
    assert_eq!(walked(&store, query(5, filter), (2, 4)).await, (vec![2], 3));
}
