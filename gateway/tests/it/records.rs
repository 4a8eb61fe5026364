//! Changes of the catalogue over a bus that loses answers: what was written is found, told of, and made once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Entry, Expected, Kv as _, Revision};
use bytes::Bytes;
use schemas::event::audit::Audited;
use schemas::subject::{AUDIT, CATALOG_BUCKET};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::bent::{self, Bend};
use crate::scene::{OPERATOR, Scene, one_of, request};

/// How long a write that is done takes to be answered.
const LATE: Duration = Duration::from_millis(200);
/// Calls that change one record at once.
const AT_ONCE: usize = 50;

#[derive(Default)]
struct Faults {
    /// So many writes are done and said to have had no answer.
    unanswered: AtomicUsize,
    /// So many writes are done and said to have come too late.
    conflicting: AtomicUsize,
    /// So many writes are done at once and answered late.
    late: AtomicUsize,
    /// Nothing can be read.
    unread: AtomicBool,
}

/// Of the catalogue's bucket.
#[async_trait]
impl Bend for Faults {
    async fn get(&self, inner: &Arc<Embedded>, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        if bucket == CATALOG_BUCKET && self.unread.load(Ordering::Relaxed) {
            return Err(BusError::Timeout);
        }
        inner.get(bucket, key).await
    }

    async fn put(
        &self,
        inner: &Arc<Embedded>,
        (bucket, key): (&str, &str),
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let done = inner.put(bucket, key, value, expected).await?;
        if bucket == CATALOG_BUCKET && one_of(&self.unanswered) {
            return Err(BusError::Timeout);
        }
        if bucket == CATALOG_BUCKET && one_of(&self.late) {
            tokio::time::sleep(LATE).await;
        }
        if bucket == CATALOG_BUCKET && one_of(&self.conflicting) {
            return Err(BusError::Conflict);
        }
        Ok(done)
    }
}

async fn scene() -> (Scene, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (Scene::on(bent::by(&faults), |_| {}).await, faults)
}

/// The changes that the spool tells of, once there are `count`.
async fn audited(scene: &Scene, count: usize) -> Vec<Audited> {
    let mut events: Vec<Audited> = scene.events(AUDIT);
    for _ in 0..1_000 {
        if events.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        events = scene.events(AUDIT);
    }
    events
}

/// The same: their ids, and the name each gave.
async fn told(scene: &Scene, count: usize) -> Vec<(String, String)> {
    let events = audited(scene, count).await;
    let name = |event: &Audited| {
        let name = event.change.fields.get("name");
        name.and_then(|name| name.to.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    events
        .iter()
        .map(|event| (event.change.id.to_string(), name(event)))
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

#[tokio::test]
async fn everybody_who_changes_something_of_one_record_at_once_has_his_change_made() {
    let scene = Scene::new().await;
    let member = json!({"tenant": "acme", "id": "ann"}).to_string();
    let made = scene.call("POST /api/v1/users", OPERATOR, &member).await;
    assert_eq!(made.status, 201, "{made:?}");
    let wanted = |n: usize| match n % 3 {
        0 => ("name", json!(format!("Ann {n}"))),
        1 => ("email", json!(format!("ann{n}@example.com"))),
        _ => ("limits", json!({"rpm": n})),
    };

    let calls = (0..AT_ONCE).map(|n| {
        let (field, value) = wanted(n);
        let body = json!({ field: value }).to_string();
        let scene = &scene;
        async move {
            let line = "PATCH /api/v1/users/ann?tenant=acme";
            scene.call(line, OPERATOR, &body).await
        }
    });
    let answers = futures_util::future::join_all(calls).await;

    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(
        refused.is_empty(),
        "{} refused: {:?}",
        refused.len(),
        refused.first()
    );
    // Each was made of what the one before left: what it did not name stayed as it was.
    let mut events = audited(&scene, AT_ONCE + 1).await;
    events.retain(|event| &*event.id == "ann" && event.change.replaced.is_some());
    assert_eq!(events.len(), AT_ONCE);
    let shown = scene
        .call("GET /api/v1/users/ann?tenant=acme", OPERATOR, "")
        .await
        .json();
    for field in ["name", "email", "limits"] {
        let of_field = events
            .iter()
            .filter(|event| event.change.fields.contains_key(field));
        let mut of_field: Vec<_> = of_field.map(|event| (event.revision, &event.change)).collect();
        of_field.sort_by_key(|(revision, _)| *revision);
        assert!(
            of_field.iter().all(|(_, change)| change.fields.len() == 1),
            "{of_field:?}"
        );
        let mut before = json!(null);
        for (_, change) in &of_field {
            if before != json!(null) {
                assert_eq!(change.fields[field].from, before, "{field}");
            }
            before = change.fields[field].to.clone();
        }
        assert_eq!(shown[field], before, "{field}");
    }
}

#[tokio::test]
async fn what_a_caller_asked_for_who_leaves_is_done_whole_and_told_of() {
    let (scene, faults) = scene().await;
    faults.late.store(3, Ordering::Relaxed);
    let endpoint = json!({"name": "gpu", "backends": [{"url": "https://gpu.example"}]}).to_string();
    let renamed = json!({"name": "left"}).to_string();

    for (line, body) in [
        ("PATCH /api/v1/tenants/acme", renamed),
        ("POST /api/v1/endpoints", endpoint),
    ] {
        let writes = faults.late.load(Ordering::Relaxed);
        let mut socket = scene.connect().await;
        let sent = request(line, OPERATOR, "", &body);
        socket.write_all(&sent).await.expect("write");
        while faults.late.load(Ordering::Relaxed) == writes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // It is written, and nobody has said so yet.
        drop(socket);
    }

    // Of the tenant, and of the route and the endpoint, of which either is nothing without the other.
    let names: Vec<String> = told(&scene, 3).await.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().any(|name| name == "left"), "{names:?}");
    let endpoints = scene.call("GET /api/v1/endpoints", OPERATOR, "").await.json();
    let endpoints = endpoints["data"].as_array().expect("a list");
    assert!(endpoints.iter().any(|one| one["name"] == "gpu"), "{endpoints:?}");
}
