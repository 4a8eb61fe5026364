//! Passages are written one after another, whole or given up, and followers hear where they end.

use std::sync::Arc;

use super::*;
use crate::clock::SystemClock;
use crate::embedded::{Embedded, Options};

struct Scene {
    kv: Arc<Embedded>,
    _dir: tempfile::TempDir,
}

fn scene() -> Scene {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(SystemClock::new());
    let kv = Embedded::open(dir.path(), Options::default(), clock).expect("opened");
    Scene { kv, _dir: dir }
}

fn put(key: &str) -> Write {
    Write {
        key: key.into(),
        value: Some(Bytes::from_static(b"{}")),
        expected: Expected::Absent,
    }
}

fn mark(key: &str, number: u64) -> Entry {
    Entry {
        key: key.into(),
        value: Some(text(number)),
        revision: 1,
    }
}

#[tokio::test]
async fn who_is_named_is_written_before_who_names_him_and_goes_after() {
    let scene = scene();
    let kv: &dyn Kv = &*scene.kv;
    let passage = Passage::begin(kv).await.expect("begun");
    let old = ["endpoint.old", "model.old"].map(put);
    passage.write(old.into()).await.expect("written");
    passage.end().await.expect("ended");
    let mut changes = kv.watch(CATALOG_BUCKET).await.expect("a watch");
    while changes.recv().await != Some(crate::Change::Current) {}

    let gone = |key: &str| Write {
        value: None,
        expected: Expected::Any,
        ..put(key)
    };
    let writes = vec![
        gone("endpoint.old"),
        gone("model.old"),
        put("key.00"),
        put("model.new"),
        put("endpoint.new"),
    ];
    let passage = Passage::begin(kv).await.expect("begun");
    passage.write(writes).await.expect("written");
    let over = passage.end().await.expect("ended");

    let mut told = Vec::new();
    while told.last().is_none_or(|entry: &Entry| entry.revision < over) {
        match changes.recv().await {
            Some(crate::Change::Entry(entry)) => told.push(entry),
            other => panic!("{other:?}"),
        }
    }
    let order: Vec<_> = told
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.is_some()))
        .collect();
    assert_eq!(
        order,
        [
            (catalog::BEGUN, true),
            ("endpoint.new", true),
            ("model.new", true),
            ("key.00", true),
            ("model.old", false),
            ("endpoint.old", false),
            (catalog::OVER, true),
        ]
    );
    assert_eq!((number(&told[0]), number(&told[6])), (2, 2));
}

#[tokio::test]
async fn one_passage_waits_for_another_and_not_for_one_whose_writer_is_gone() {
    let scene = scene();
    let kv: &dyn Kv = &*scene.kv;
    let first = Passage::begin(kv).await.expect("begun");
    let second = async {
        let passage = Passage::begin(kv).await.expect("begun");
        (passage.number, Instant::now())
    };
    let end = async {
        sleep(LOOK * 3).await;
        first.end().await.expect("ended");
        Instant::now()
    };
    let ((number, begun), ended) = tokio::join!(second, end);
    assert_eq!(number, 2);
    assert!(begun + LOOK * 3 > ended, "it waited for the first");

    // The second was dropped without an end.
    let start = Instant::now();
    let third = Passage::begin(kv).await.expect("begun");
    assert_eq!(third.number, 3);
    assert!(start.elapsed() >= LIFE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn of_two_that_begin_at_once_one_is_first() {
    let scene = scene();
    let kv: &dyn Kv = &*scene.kv;
    let one = async {
        let passage = Passage::begin(kv).await.expect("begun");
        let number = passage.number;
        passage.end().await.expect("ended");
        number
    };
    let other = async {
        let passage = Passage::begin(kv).await.expect("begun");
        let number = passage.number;
        passage.end().await.expect("ended");
        number
    };
    let (one, other) = tokio::join!(one, other);
    assert_eq!((one.min(other), one.max(other)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_passage_holds_until_its_end_is_heard_and_no_longer_than_its_life() {
    let mut marks = Marks::default();
    let now = Instant::now();
    assert!(!marks.hear(&mark("model.00", 0), now) && !marks.holds());
    // What is over when it is first heard of holds nothing, whichever mark comes first.
    assert!(!marks.hear(&mark(catalog::OVER, 4), now));
    assert!(!marks.hear(&mark(catalog::BEGUN, 4), now) && !marks.holds());

    assert!(!marks.hear(&mark(catalog::BEGUN, 5), now) && marks.holds());
    assert!(!marks.hear(&mark(catalog::OVER, 4), now) && marks.holds());
    assert!(marks.hear(&mark(catalog::OVER, 5), now) && !marks.holds());

    marks.hear(&mark(catalog::BEGUN, 6), now);
    tokio::time::advance(LIFE / 2).await;
    // Another takes over: that does not begin the wait anew.
    marks.hear(&mark(catalog::BEGUN, 7), Instant::now());
    marks.given_up().await;
    assert_eq!((now.elapsed(), marks.holds()), (LIFE, false));
}
