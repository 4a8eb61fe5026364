//! Tests of how revisions of the configuration are numbered, kept and dropped.

use schemas::configuration::Cause;
use schemas::id::NodeId;
use schemas::time::Timestamp;
use serde_json::json;

use super::*;
use crate::clock::SystemClock;
use crate::embedded::{Embedded, Options};

fn open() -> (tempfile::TempDir, Revisions) {
    let directory = tempfile::tempdir().expect("a directory");
    let bus = Embedded::open(directory.path(), Options::default(), Arc::new(SystemClock::new()));
    let revisions = Revisions::new(bus.expect("a bus"));
    (directory, revisions)
}

fn told() -> Revision {
    Revision {
        number: 0,
        at: Timestamp::from_micros(1),
        node: NodeId::from("n1"),
        cause: Cause::Start,
        actor: None,
        set: "abc".into(),
        files: Vec::new(),
        changed: 0,
        pieces: 0,
        catalog_revision: None,
    }
}

fn changes(count: usize, bytes: usize) -> Vec<RecordChange> {
    let change = |n| RecordChange {
        key: format!("model.{n}"),
        from: None,
        to: Some(json!("x".repeat(bytes))),
    };
    (0..count).map(change).collect()
}

#[tokio::test]
async fn a_revision_is_numbered_kept_and_read_back() {
    let (_directory, revisions) = open();

    let first = revisions
        .begin(told(), &changes(5, 100_000))
        .await
        .expect("begun");
    let second = revisions.begin(told(), &changes(1, 10)).await.expect("begun");
    revisions.finish(first, 17).await.expect("finished");

    let all = revisions.all().await.expect("revisions");
    let shown: Vec<_> = all
        .iter()
        .map(|revision| (revision.number, revision.changed, revision.catalog_revision))
        .collect();
    assert_eq!(shown, [(1, 5, Some(17)), (2, 1, None)]);
    assert_eq!(second.number(), 2);
    assert_eq!(
        revisions.changes(&all[0]).await.expect("read"),
        Some(changes(5, 100_000))
    );
}

#[tokio::test]
async fn the_oldest_makes_room_for_the_newest_with_all_of_its_pieces() {
    let (_directory, revisions) = open();
    let large = revisions
        .begin(told(), &changes(5, 100_000))
        .await
        .expect("begun");
    let large = revisions.finish(large, 1).await.expect("finished");
    for _ in 1..=REVISIONS_MAX {
        revisions.begin(told(), &changes(1, 10)).await.expect("begun");
    }

    let all = revisions.all().await.expect("revisions");

    let numbers: Vec<_> = all.iter().map(|revision| revision.number).collect();
    assert_eq!(numbers, (2..=REVISIONS_MAX + 1).collect::<Vec<_>>());
    assert_eq!(revisions.changes(&large).await.expect("read"), None);
    assert_eq!(
        revisions.changes(&all[31]).await.expect("read"),
        Some(changes(1, 10))
    );
}

#[tokio::test]
async fn nodes_that_begin_at_once_get_numbers_of_their_own() {
    let (_directory, revisions) = open();
    let begin = || async {
        let begun = revisions.begin(told(), &changes(1, 10)).await;
        begun.expect("begun").number()
    };

    let (one, two, three) = tokio::join!(begin(), begin(), begin());

    let mut numbers = [one, two, three];
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
}
