//! Nodes see each other, and a node that falls silent is gone.

use super::*;
use crate::clock::SystemClock;
use crate::embedded::{Embedded, Options};
use schemas::id::{NodeId, PoolName};
use schemas::time::Timestamp;

fn record(boot: &str, roles: &[NodeRole]) -> NodeRecord {
    NodeRecord {
        node: NodeId::from(boot),
        boot: boot.into(),
        spool: SpoolId::from(format!("spool-{boot}").as_str()),
        roles: roles.to_vec(),
        pool: PoolName::from("default"),
        version: "0".into(),
        address: None,
        started_at: Timestamp::from_micros(0),
        catalog_revision: 0,
        configuration: None,
        database_connected: roles.contains(&NodeRole::Ledger).then_some(true),
    }
}

fn entry(boot: &str, revision: u64) -> Entry {
    let value = serde_json::to_vec(&record(boot, &[NodeRole::Gateway])).expect("a record");
    Entry {
        key: format!("node.{boot}"),
        value: Some(value.into()),
        revision,
    }
}

#[test]
fn a_node_is_there_until_its_record_has_not_changed_for_ten_seconds() {
    let mut roster = Roster::default();
    let spool = SpoolId::from("spool-a");
    roster.apply(&entry("a", 1), 1_000);

    // The same revision told again is no sign of life.
    roster.apply(&entry("a", 1), 9_000);
    assert!(roster.publishes(&spool, 11_000));
    assert!(!roster.publishes(&spool, 11_001));

    roster.apply(&entry("a", 2), 20_000);
    assert!(roster.publishes(&spool, 30_000));
}

#[test]
fn a_source_that_was_declared_gone_counts_again_when_it_comes_back() {
    let mut roster = Roster::default();
    let spool = SpoolId::from("spool-a");
    let gone = Entry {
        key: "gone.spool-a".to_owned(),
        value: Some(Bytes::from_static(b"{}")),
        revision: 1,
    };
    roster.apply(&gone, 0);
    assert!(roster.forgotten(&spool, 0));

    roster.apply(&entry("a", 2), 1_000);
    assert!(!roster.forgotten(&spool, 1_000));
}

#[test]
fn a_record_that_is_silent_for_a_day_is_swept() {
    let mut roster = Roster::default();
    roster.apply(&entry("a", 7), 0);
    assert!(roster.outdated(FORGET_MS).is_empty());
    assert_eq!(roster.outdated(FORGET_MS + 1), [("node.a".to_owned(), 7)]);
}

#[tokio::test]
async fn nodes_see_each_other_and_one_that_ends_in_order_is_gone_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let kv = Embedded::open(dir.path(), Options::default(), Arc::clone(&clock)).expect("opened");
    let (ours, theirs) = (Nodes::new(Arc::clone(&clock)), Nodes::new(clock));
    let (stop, stop_theirs) = (CancellationToken::new(), CancellationToken::new());
    let telling =
        |boot: &'static str, roles: &'static [NodeRole]| -> Telling { Box::new(move || record(boot, roles)) };
    let one = run(
        kv.clone(),
        ours.clone(),
        telling("a", &[NodeRole::Gateway]),
        stop.clone(),
    );
    let other = run(
        kv.clone(),
        theirs.clone(),
        telling("b", &[NodeRole::Ledger]),
        stop_theirs.clone(),
    );
    let seen = |nodes: &Nodes| -> Vec<String> {
        let live = nodes.live();
        live.iter().map(|record| record.node.to_string()).collect()
    };
    let test = async {
        while seen(&ours) != ["a", "b"] || seen(&theirs) != ["a", "b"] {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(ours.database_connected(), Some(true));
        stop_theirs.cancel();
        while seen(&ours) != ["a"] {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(ours.database_connected(), None);
        stop.cancel();
    };
    let all = async { tokio::join!(one, other, test) };
    let (one, other, ()) = timeout(Duration::from_secs(10), all).await.expect("in time");
    one.and(other).expect("ended in order");
}

#[test]
fn a_node_of_the_same_name_is_another_one_by_its_spool_and_while_it_is_there() {
    let mut roster = Roster::default();
    roster.apply(&entry("a", 1), 1_000);
    let own = record("a", &[NodeRole::Gateway]);
    assert!(roster.namesake(&own, 2_000).is_none(), "itself");

    let later_boot = NodeRecord {
        boot: "b".into(),
        ..own.clone()
    };
    assert!(roster.namesake(&later_boot, 2_000).is_none(), "its own last run");
    let another = NodeRecord {
        spool: SpoolId::from("spool-b"),
        ..own
    };
    assert!(roster.namesake(&another, 2_000).is_some());
    assert!(roster.namesake(&another, 11_001).is_none(), "it has gone");
}
