//! Two who change one credential at once, each within the other at every write: there is never more than one good
//! secret, and what was answered holds.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{BusError, Expected, Kv as _, Revision};
use bytes::Bytes;
use schemas::subject::CATALOG_BUCKET;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::bent::{self, Bend};
use crate::scene::{ADMIN, Answer, OPERATOR, PLAIN, Scene, one_of};
use crate::script::whole;

const KEYS: &str = "/api/v1/tenant/api-keys";
const ENDPOINT_KEYS: &str = "/api/v1/endpoint-keys";
/// How long a write is held for whoever waits for it himself.
const HELD: Duration = Duration::from_millis(150);

#[derive(Default)]
struct Faults {
    /// The write of this number is held, counted from 1; 0 holds none.
    hold: AtomicUsize,
    /// It is held after it was done, not before.
    after: AtomicBool,
    reached: Notify,
    go: Notify,
    /// So many new records are not made, nor said to be.
    unmade: AtomicUsize,
    late: Mutex<Option<(String, Bytes)>>,
}

impl Faults {
    async fn hold(&self) {
        self.reached.notify_one();
        // Whoever waits for this write himself waits no longer than this.
        let _ = timeout(HELD, self.go.notified()).await;
    }
}

/// Writes of the catalogue can be held.
#[async_trait]
impl Bend for Faults {
    async fn put(
        &self,
        inner: &Arc<Embedded>,
        (bucket, key): (&str, &str),
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        if bucket != CATALOG_BUCKET {
            return inner.put(bucket, key, value, expected).await;
        }
        if matches!(expected, Expected::Absent) && one_of(&self.unmade) {
            *self.late.lock().expect("a lock") = Some((key.to_owned(), value));
            return Err(BusError::Timeout);
        }
        let held = one_of(&self.hold) && self.hold.load(Ordering::SeqCst) == 0;
        let after = self.after.load(Ordering::SeqCst);
        if held && !after {
            self.hold().await;
        }
        let done = inner.put(bucket, key, value, expected).await;
        if held && after {
            self.hold().await;
        }
        done
    }
}

async fn scene() -> (Scene, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (Scene::on(bent::by(&faults), |_| {}).await, faults)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Rotate,
    Revoke,
    Patch,
}

impl Doing {
    async fn run(self, scene: &Scene, of: &str) -> Answer {
        match self {
            Self::Rotate => scene.call(&format!("POST {of}/rotate"), OPERATOR, "").await,
            Self::Revoke => scene.call(&format!("DELETE {of}"), OPERATOR, "").await,
            Self::Patch => {
                let line = format!("PATCH {of}");
                scene.call(&line, OPERATOR, r#"{"models":["vectors"]}"#).await
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The status of a chat with a key: 401 where it is not good, 404 where it may not use the model.
async fn chat(scene: &Scene, key: &str) -> u16 {
    scene.script.clear();
    scene.script.push(whole(r#"{"id":"x"}"#));
    scene.call("POST /v1/chat/completions", key, PLAIN).await.status
}

/// A credential: its path and its secret.
async fn minted(scene: &Scene, path: &str, wanted: &Value) -> (String, String) {
    let line = format!("POST {path}");
    let made = scene.call(&line, OPERATOR, &wanted.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    (format!("{path}/{}", text(&made["id"])), text(&made["key"]))
}

/// Runs `second` whole while the write of number `hold` of `first` is held; true when there was such a write.
async fn within(
    (scene, faults): (&Scene, &Faults),
    of: &str,
    (first, second): (Doing, Doing),
    hold: usize,
) -> ([Answer; 2], bool) {
    faults.hold.store(hold, Ordering::SeqCst);
    let outer = async {
        let answer = first.run(scene, of).await;
        faults.reached.notify_one();
        answer
    };
    let inner = async {
        faults.reached.notified().await;
        let met = faults.hold.swap(0, Ordering::SeqCst) == 0;
        let answer = second.run(scene, of).await;
        faults.go.notify_one();
        (answer, met)
    };
    let (outer, (inner, met)) = tokio::join!(outer, inner);
    // What is left of an earlier round is no word of the next one.
    let _ = timeout(Duration::ZERO, faults.reached.notified()).await;
    let _ = timeout(Duration::ZERO, faults.go.notified()).await;
    ([outer, inner], met)
}

async fn judge(scene: &Scene, old: &str, doing: [Doing; 2], answers: &[Answer; 2], told: &str) {
    let done = |wanted: Doing| {
        let each = doing.iter().zip(answers);
        each.filter(move |(doing, answer)| **doing == wanted && answer.status < 300)
            .map(|(_, answer)| answer)
    };
    let rotated: Vec<String> = done(Doing::Rotate)
        .map(|answer| text(&answer.json()["key"]))
        .collect();
    let mut good = Vec::new();
    for secret in rotated.iter().map(String::as_str).chain([old]) {
        let status = chat(scene, secret).await;
        if status != 401 {
            good.push((secret, status));
        }
    }
    for (doing, answer) in doing.iter().zip(answers) {
        assert!(
            answer.status < 300 || answer.status == 409,
            "{told}: {doing:?} {answer:?}"
        );
        assert!(
            *doing != Doing::Revoke || answer.status == 200,
            "{told}: {answer:?}"
        );
    }
    let wanted = usize::from(done(Doing::Revoke).next().is_none());
    assert_eq!(good.len(), wanted, "{told}: {answers:?}");
    if let [(secret, status)] = &*good {
        assert!(rotated.is_empty() || *secret != old, "{told}");
        let patched = done(Doing::Patch).next().is_some();
        assert!(!patched || *status == 404, "{told}: {answers:?}");
    }
}

async fn all_within(path: &str, wanted: &Value, all: &[Doing], setting: (&Scene, &Faults)) {
    let (scene, faults) = setting;
    let mut held_rounds = 0;
    for first in all {
        for second in all {
            for (hold, after) in [(1, false), (1, true), (2, false), (2, true)] {
                let (of, old) = minted(scene, path, wanted).await;
                faults.after.store(after, Ordering::SeqCst);
                let (answers, held) = within(setting, &of, (*first, *second), hold).await;
                let told = format!("{second:?} within {first:?} at {hold}, after: {after}, held: {held}");
                judge(scene, &old, [*first, *second], &answers, &told).await;
                held_rounds += usize::from(held);
                if held && (hold, after) != (2, true) && (first, second) == (&Doing::Rotate, &Doing::Rotate) {
                    let mut statuses = answers.each_ref().map(|answer| answer.status);
                    statuses.sort_unstable();
                    assert_eq!(statuses, [201, 409], "{told}");
                }
            }
        }
    }
    assert!(held_rounds >= 2 * all.len() * all.len(), "{held_rounds}");
}

#[tokio::test]
async fn of_two_changes_of_one_key_at_once_what_was_answered_holds() {
    let (scene, faults) = scene().await;
    let wanted = json!({"name": "ci", "tenant": "acme"});
    let all = [Doing::Rotate, Doing::Revoke, Doing::Patch];
    all_within(KEYS, &wanted, &all, (&scene, &faults)).await;
}

#[tokio::test]
async fn of_two_changes_of_one_endpoints_key_at_once_what_was_answered_holds() {
    let (scene, faults) = scene().await;
    let endpoint =
        json!({"name": "e", "kind": "openai_compat", "backends": [{"url": "https://upstream.example"}]});
    let made = scene
        .call("POST /api/v1/endpoints", OPERATOR, &endpoint.to_string())
        .await
        .json();
    let wanted = json!({"name": "shared", "endpoint": made["id"]});
    let all = [Doing::Rotate, Doing::Revoke];
    all_within(ENDPOINT_KEYS, &wanted, &all, (&scene, &faults)).await;
}

#[tokio::test]
async fn a_key_whose_new_secret_was_not_made_is_refused_and_given_another() {
    let (scene, faults) = scene().await;
    let (of, old) = minted(&scene, KEYS, &json!({"name": "ci", "tenant": "acme"})).await;
    faults.unmade.store(1, Ordering::SeqCst);
    let lost = Doing::Rotate.run(&scene, &of).await;
    assert_eq!((lost.status, &*lost.code()), (503, "store_unavailable"));
    assert_eq!(chat(&scene, &old).await, 401);
    let shown = scene.call(&format!("GET {of}"), ADMIN, "").await.json();
    assert_eq!(shown["revoked"], json!(true));
    let patched = Doing::Patch.run(&scene, &of).await;
    assert_eq!((patched.status, &*patched.code()), (409, "conflict"));

    let again = Doing::Rotate.run(&scene, &of).await;

    assert_eq!(again.status, 201, "{again:?}");
    let new = text(&again.json()["key"]);
    assert_eq!((chat(&scene, &old).await, chat(&scene, &new).await), (401, 200));
    // What was not made then finds its place taken.
    let (place, value) = faults.late.lock().expect("a lock").take().expect("a write");
    let late = scene
        .bus
        .put(CATALOG_BUCKET, &place, value, Expected::Absent)
        .await;
    assert!(matches!(late, Err(BusError::Conflict)), "{late:?}");
    assert_eq!(Doing::Revoke.run(&scene, &of).await.status, 200);
    assert_eq!(chat(&scene, &new).await, 401);
}

#[tokio::test]
async fn a_key_that_is_revoked_while_its_new_secret_is_not_made_gets_none_any_more() {
    let (scene, faults) = scene().await;
    let (of, _) = minted(&scene, KEYS, &json!({"name": "ci", "tenant": "acme"})).await;
    faults.unmade.store(1, Ordering::SeqCst);
    assert_eq!(Doing::Rotate.run(&scene, &of).await.status, 503);

    assert_eq!(Doing::Revoke.run(&scene, &of).await.status, 200);

    assert_eq!(Doing::Rotate.run(&scene, &of).await.status, 409);
    let (place, value) = faults.late.lock().expect("a lock").take().expect("a write");
    let late = scene
        .bus
        .put(CATALOG_BUCKET, &place, value, Expected::Absent)
        .await;
    assert!(matches!(late, Err(BusError::Conflict)), "{late:?}");
}
