//! Lists and declarations over a bucket of nodes that beat, and of some that do not.

use std::sync::Arc;

use bus::embedded::{Embedded, Options};
use schemas::id::{NodeId, PoolName};
use schemas::node::NodeRole;
use schemas::time::Timestamp;

use super::*;

fn record(name: &str, boot: &str, spool: &str) -> NodeRecord {
    NodeRecord {
        node: NodeId::from(name),
        boot: boot.into(),
        spool: SpoolId::from(spool),
        roles: vec![NodeRole::Gateway, NodeRole::Router],
        pool: PoolName::from("default"),
        version: "1".into(),
        address: None,
        started_at: Timestamp::default(),
        catalog_revision: 0,
        configuration: None,
        database_connected: None,
    }
}

fn entry(record: &NodeRecord, revision: u64) -> Entry {
    Entry {
        key: format!("{}{}", node::NODE, record.boot),
        value: Some(Bytes::from(serde_json::to_vec(record).expect("serialize"))),
        revision,
    }
}

fn watched(entries: impl IntoIterator<Item = Entry>) -> Watched {
    let mut watched = Watched::default();
    for entry in entries {
        watched.apply(entry);
    }
    watched
}

#[test]
fn a_node_lives_once_its_record_was_renewed_under_the_eyes_of_the_watch() {
    let (one, two) = (record("n1", "b1", "s1"), record("n2", "b2", "s2"));

    let watched = watched([entry(&one, 1), entry(&two, 2), entry(&two, 3)]);

    assert!(!watched.all_beat());
    let text = listed(&watched);
    assert!(
        text.contains("n1\tgateway,router\tdefault\tsilent\t-\t1\ts1\tb1\n"),
        "{text}"
    );
    assert!(text.contains("n2\tgateway,router\tdefault\talive\t"), "{text}");
}

#[test]
fn a_spool_lives_when_a_later_run_publishes_from_it() {
    let (old, new) = (record("n", "b1", "s1"), record("n", "b2", "s1"));
    let lost = record("n", "b0", "s0");

    let watched = watched([entry(&old, 1), entry(&new, 2), entry(&lost, 3), entry(&new, 4)]);

    let spools = watched.spools("n");
    assert_eq!(spools.get(&SpoolId::from("s1")), Some(&true));
    assert_eq!(spools.get(&SpoolId::from("s0")), Some(&false));
    assert_eq!(watched.spools("b1").get(&SpoolId::from("s1")), Some(&true));
    assert!(watched.spools("other").is_empty());
}

async fn bucket(records: &[NodeRecord]) -> (tempfile::TempDir, Arc<Embedded>) {
    let directory = tempfile::tempdir().expect("directory");
    let kv =
        Embedded::open(directory.path(), Options::default(), Arc::new(SystemClock::new())).expect("open");
    for record in records {
        let Entry { key, value, .. } = entry(record, 0);
        let value = value.expect("a value");
        kv.put(NODE_BUCKET, &key, value, Expected::Any)
            .await
            .expect("put");
    }
    (directory, kv)
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_declared_gone_by_its_spool() {
    let (_directory, kv) = bucket(&[record("n", "b", "s")]).await;

    let text = forget(&*kv, "n", false).await.expect("forget");

    assert!(text.contains("source s "), "{text}");
    let gone = kv.get(NODE_BUCKET, "gone.s").await.expect("get");
    assert!(gone.is_some_and(|entry| entry.value.is_some()));
    let unknown = forget(&*kv, "m", false).await.expect_err("no such node");
    assert!(unknown.is::<UsageError>());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_beats_is_not_declared_gone_without_force() {
    let alive = record("n", "b", "s");
    let (_directory, kv) = bucket(std::slice::from_ref(&alive)).await;
    let beating = async {
        loop {
            tokio::time::sleep(Duration::from_secs(BEAT_SECONDS)).await;
            let Entry { key, value, .. } = entry(&alive, 0);
            let value = value.expect("a value");
            kv.put(NODE_BUCKET, &key, value, Expected::Any)
                .await
                .expect("put");
        }
    };
    let trying = async {
        let refused = forget(&*kv, "n", false).await.expect_err("alive");
        assert!(refused.is::<Alive>());
        forget(&*kv, "n", true).await.expect("forced");
    };
    tokio::select! {
        () = beating => {}
        () = trying => {}
    }
    assert!(kv.get(NODE_BUCKET, "gone.s").await.expect("get").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_only_its_mark_knows_can_be_declared_gone() {
    let (_directory, kv) = bucket(&[]).await;
    kv.put(MARK_BUCKET, "s9", Bytes::from_static(b"7"), Expected::Any)
        .await
        .expect("put");

    forget(&*kv, "s9", false).await.expect("known by its mark");
    assert!(forget(&*kv, "s8", false).await.is_err());
    forget(&*kv, "s8", true).await.expect("forced");
}
