//! The books behind the embedded bus: from the spool through the log into rows, and back by the mark.

use std::sync::Arc;
use std::time::Duration;

use bus::clock::{Clock, SystemClock};
use bus::embedded::{self, Embedded};
use bus::mint::Mint;
use bus::spool::{self, Spool};
use bus::{Bus, publisher};
use bytes::Bytes;
use ledger::store::sqlite::SqliteStore;
use ledger::{Config, Ports};
use schemas::event::limit::LimitRefused;
use schemas::failure::FailureCode;
use schemas::id::TenantId;
use schemas::query::{LedgerState, QueryError};
use schemas::subject::QUERY_LEDGER;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Events in the spool before anything runs.
const EVENTS: u64 = 1_500;

fn fill(spool: &Spool, clock: &dyn Clock) -> Result<(), spool::Error> {
    let tenant = TenantId::from("acme");
    for count in 1..=EVENTS {
        let fact = LimitRefused {
            tenant: tenant.clone(),
            key_id: "key-1".into(),
            code: FailureCode::QpsExceeded,
            minute: clock.now(),
            count,
            node: "node-1".into(),
        };
        spool.append(&tenant, clock.now(), &fact)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spool_is_emptied_by_the_mark_of_the_books() {
    let dir = TempDir::new().expect("a directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mint = Arc::new(Mint::new().expect("randomness"));
    let options = spool::Options {
        dir: dir.path().join("spool"),
        cluster: "main".to_owned(),
        bytes_max: 1 << 24,
        durability: spool::Durability::Process,
    };
    let (spool, _) = Spool::open(options, clock.clone(), mint).expect("a spool");
    fill(&spool, &*clock).expect("room in the spool");
    let log = Embedded::open(&dir.path().join("bus"), embedded::Options::default(), clock).expect("a bus");
    let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
    let ports = Ports::new(log.clone(), log.clone(), store);
    let progress = ports.progress();
    let (publishing, keeping) = (CancellationToken::new(), CancellationToken::new());
    let (mut publisher, mut ledger) = (JoinSet::new(), JoinSet::new());
    publisher.spawn(publisher::run(
        spool.clone(),
        log.clone(),
        log.clone(),
        publishing.clone(),
    ));
    ledger.spawn(ledger::run(Config::default(), ports, keeping.clone()));

    let emptied = async {
        while spool.marked() < EVENTS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), emptied)
        .await
        .expect("the mark reaches the spool");

    assert_eq!(progress.applied(), EVENTS);
    let answer = log
        .ask(QUERY_LEDGER, Bytes::new(), Duration::from_secs(5))
        .await
        .expect("an answer");
    let state: Result<LedgerState, QueryError> = serde_json::from_slice(&answer).expect("an answer");
    let state = state.expect("a state");
    assert_eq!(
        (
            state.events_applied,
            state.events_missing,
            state.database_connected
        ),
        (EVENTS, 0, true)
    );
    publishing.cancel();
    publisher
        .join_next()
        .await
        .expect("the publisher")
        .expect("no panic")
        .expect("a clean end");
    keeping.cancel();
    ledger
        .join_next()
        .await
        .expect("the ledger")
        .expect("no panic")
        .expect("a clean end");
}
