//! What is read ahead, and when it is used.

use tempfile::TempDir;

use super::*;
use crate::fixture::memory::MemoryBus;
use crate::fixture::{SOURCE, envelope, settled};
use crate::store::sqlite::SqliteStore;
use crate::{Config, Ports};

/// A ledger that is about to read a log with so many events.
async fn applier(events: u64) -> (TempDir, Arc<MemoryBus>, Applier) {
    let dir = TempDir::new().expect("a directory");
    let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
    let bus = Arc::new(MemoryBus::default());
    bus.append((1..=events).map(|n| envelope(SOURCE, n, settled(n))));
    let ports = Ports::new(bus.clone(), bus.clone(), store);
    let mut applier = Applier::new(Config::default(), ports);
    applier.resume().await.expect("the log is there");
    (dir, bus, applier)
}

async fn step(applier: &mut Applier) -> usize {
    let records = applier.gather().await.expect("events");
    assert_eq!(applier.take(&records).await.expect("applied"), Course::On);
    records.len()
}

fn ahead(applier: &Applier) -> Option<(u64, usize)> {
    let ahead = applier.ahead.as_ref();
    ahead.map(|ahead| (ahead.from, ahead.records.len()))
}

#[tokio::test]
async fn behind_a_full_batch_the_next_one_is_there_once_it_is_written() {
    let (_dir, bus, mut applier) = applier(700).await;

    assert_eq!(step(&mut applier).await, 500);
    assert_eq!(ahead(&applier), Some((501, 200)));
    bus.trim(701);
    assert_eq!(step(&mut applier).await, 200, "it is not read a second time");

    assert_eq!((applier.reached, ahead(&applier)), (700, None));
}

#[tokio::test]
async fn nothing_is_read_ahead_of_a_log_that_is_caught_up_with() {
    let (_dir, _bus, mut applier) = applier(10).await;

    assert_eq!(step(&mut applier).await, 10);

    assert_eq!(ahead(&applier), None);
}

#[tokio::test]
async fn what_was_read_ahead_is_not_used_where_reading_goes_on_elsewhere() {
    let (_dir, bus, mut applier) = applier(700).await;
    step(&mut applier).await;

    bus.make_anew(99);
    bus.append([envelope(SOURCE, 501, settled(501))]);
    applier.check(false).await.expect("the log is there");

    assert_eq!((applier.from, ahead(&applier)), (1, None));
    assert_eq!(step(&mut applier).await, 1);
}
