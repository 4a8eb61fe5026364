//! Changes of the catalogue over a bus that loses answers: what was written is found, told of, and made once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::Bytes;
use schemas::event::audit::Audited;
use schemas::subject::{AUDIT, CATALOG_BUCKET};
use serde_json::json;
use tokio::sync::mpsc;

use crate::scene::{OPERATOR, Scene, one_of, request};

#[derive(Default)]
struct Faults {
    /// So many writes are done and said to have had no answer.
    unanswered: AtomicUsize,
    /// So many writes are done and said to have come too late.
    conflicting: AtomicUsize,
    /// Nothing can be read.
    unread: AtomicBool,
}

/// The embedded buckets, of which the catalogue's is bent.
struct Bent {
    inner: Arc<Embedded>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Kv for Bent {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        if bucket == CATALOG_BUCKET && self.faults.unread.load(Ordering::Relaxed) {
            return Err(BusError::Timeout);
        }
        self.inner.get(bucket, key).await
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let done = self.inner.put(bucket, key, value, expected).await?;
        if bucket == CATALOG_BUCKET && one_of(&self.faults.unanswered) {
            return Err(BusError::Timeout);
        }
        if bucket == CATALOG_BUCKET && one_of(&self.faults.conflicting) {
            return Err(BusError::Conflict);
        }
        Ok(done)
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        self.inner.put_for(place, value, expected, life).await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.inner.delete(bucket, key, expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        self.inner.watch(bucket).await
    }
}

async fn scene() -> (Scene, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let bent = faults.clone();
    let wrap = move |inner| Arc::new(Bent { inner, faults: bent }) as Arc<dyn Kv>;
    (Scene::on(wrap, |_| {}).await, faults)
}

/// The changes that the spool tells of, once there are `count`: their ids, and the name each gave.
async fn told(scene: &Scene, count: usize) -> Vec<(String, String)> {
    let mut events: Vec<Audited> = scene.events(AUDIT);
    for _ in 0..400 {
        if events.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        events = scene.events(AUDIT);
    }
    events
        .iter()
        .map(|event| {
            let name = event.change.fields["name"].to.as_str();
            (event.change.id.to_string(), name.unwrap_or_default().to_owned())
        })
        .collect()
}

async fn rename(scene: &Scene, name: &str) -> u16 {
    let body = json!({"name": name}).to_string();
    scene
        .call("PATCH /api/v1/tenants/acme", OPERATOR, &body)
        .await
        .status
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_found_and_told_of_once() {
    let (scene, faults) = scene().await;

    for (lost, name) in [(&faults.unanswered, "first"), (&faults.conflicting, "second")] {
        lost.store(1, Ordering::Relaxed);
        assert_eq!(rename(&scene, name).await, 200);
    }

    let names: Vec<String> = told(&scene, 2).await.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["first", "second"]);
    let history = scene
        .call("GET /api/v1/tenants/acme/history", OPERATOR, "")
        .await
        .json();
    assert_eq!(history["data"].as_array().map(Vec::len), Some(2), "{history}");
}

#[tokio::test]
async fn a_change_of_which_nobody_can_say_whether_it_was_made_is_told_of_when_it_is_asked_for_again() {
    let (scene, faults) = scene().await;
    faults.unanswered.store(1, Ordering::Relaxed);
    faults.unread.store(true, Ordering::Relaxed);
    let body = json!({"id": "nova", "name": "Nova"}).to_string();
    let sent = request(
        "POST /api/v1/tenants",
        OPERATOR,
        "idempotency-key: once\r\nconnection: close\r\n",
        &body,
    );
    let lost = scene.raw(&sent).await;
    assert_eq!((lost.status, &*lost.code()), (503, "store_unavailable"));
    assert!(lost.header("retry-after").is_some());

    faults.unread.store(false, Ordering::Relaxed);
    let again = scene.raw(&sent).await;

    assert_eq!(
        (again.status, again.header("x-idempotent-replay")),
        (201, Some("true"))
    );
    let first = told(&scene, 1).await;
    assert_eq!(first.len(), 1, "the change of the first call");
    // Saying of the tenant what it says already is no change, and may be the repetition of one.
    let same = json!({"name": "Nova"}).to_string();
    let same = scene.call("PATCH /api/v1/tenants/nova", OPERATOR, &same).await;
    assert_eq!(same.status, 200);
    assert_eq!(told(&scene, 2).await, [first[0].clone(), first[0].clone()]);
}

#[tokio::test]
async fn while_the_bus_does_not_answer_tenants_are_read_and_not_changed() {
    let (scene, faults) = scene().await;
    faults.unread.store(true, Ordering::Relaxed);

    assert_eq!(rename(&scene, "other").await, 503);
    let shown = scene.call("GET /api/v1/tenants/acme", OPERATOR, "").await;

    assert_eq!((shown.status, shown.json()["id"].as_str()), (200, Some("acme")));
    assert_eq!(told(&scene, 0).await, []);
}
