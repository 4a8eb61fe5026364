//! Idempotency keys on a bus that loses answers, is slow, is full, or goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bus::embedded::Embedded;
use bus::{Bus as _, BusError, Change, Entry, Expected, Kv as _, Revision};
use bytes::Bytes;
use schemas::outcome::Outcome;
use schemas::subject::IDEMPOTENCY_BUCKET;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::bent::{self, Bend};
use crate::scene::{Answer, CALLER, OPERATOR, PLAIN, Scene, one_of, request};
use crate::script::{Step, whole};

/// The embedded buckets, of which that of keys can be bent.
#[derive(Default)]
struct Faults {
    /// So many writes are done and not answered.
    answers_lost: AtomicUsize,
    /// So many writes are not answered, and done half a second later.
    late: AtomicUsize,
    /// Nothing is reached.
    away: AtomicBool,
    /// What replaces a record finds no room.
    replaces_nothing: AtomicBool,
    /// Milliseconds that a write takes.
    slow_ms: AtomicU64,
    writes: AtomicUsize,
    tasks: TaskTracker,
}

impl Faults {
    fn reach(&self, bucket: &str) -> Result<(), BusError> {
        if bucket == IDEMPOTENCY_BUCKET && self.away.load(Ordering::Relaxed) {
            return Err(BusError::Unavailable("bent".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Bend for Faults {
    async fn get(&self, inner: &Arc<Embedded>, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        self.reach(bucket)?;
        inner.get(bucket, key).await
    }

    async fn put_for(
        &self,
        inner: &Arc<Embedded>,
        (bucket, key): (&str, &str),
        (value, life): (Bytes, Duration),
        expected: Expected,
    ) -> Result<Revision, BusError> {
        self.reach(bucket)?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(self.slow_ms.load(Ordering::Relaxed))).await;
        let replaces = matches!(expected, Expected::Revision(_));
        if replaces && self.replaces_nothing.load(Ordering::Relaxed) {
            return Err(BusError::Full);
        }
        if one_of(&self.late) {
            let (inner, bucket, key) = (inner.clone(), bucket.to_owned(), key.to_owned());
            self.tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let _ = inner.put_for((&bucket, &key), value, expected, life).await;
            });
            return Err(BusError::Timeout);
        }
        let done = inner.put_for((bucket, key), value, expected, life).await;
        if done.is_ok() && one_of(&self.answers_lost) {
            return Err(BusError::Timeout);
        }
        done
    }
}

async fn scene() -> (Scene, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let scene = Scene::on(bent::by(&faults), |config| config.admit_wait_seconds = 1).await;
    (scene, faults)
}

async fn ask(scene: &Scene, key: &str) -> Answer {
    let headers = format!("idempotency-key: {key}\r\nconnection: close\r\n");
    let sent = request("POST /v1/chat/completions", CALLER, &headers, PLAIN);
    scene.raw(&sent).await
}

fn calls(scene: &Scene) -> usize {
    scene.script.told().dispatched.len()
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("x-idempotent-replay") == Some("true")
}

/// What a call is answered once the first one with its key is over.
async fn after_progress(scene: &Scene, key: &str) -> Answer {
    for _ in 0..100 {
        let answer = ask(scene, key).await;
        if answer.status != 409 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the first call is never over");
}

#[tokio::test]
async fn a_claim_or_an_end_whose_answer_is_lost_is_the_requests_all_the_same() {
    for lost in [1, 2, 3] {
        let (scene, faults) = scene().await;
        scene.script.push(whole("{\"n\":1}"));
        faults.answers_lost.store(lost, Ordering::Relaxed);

        let first = ask(&scene, "k").await;
        let again = ask(&scene, "k").await;

        assert_eq!((first.status, &*first.body), (200, "{\"n\":1}"), "{lost}");
        assert!(!is_replay(&first));
        assert!(is_replay(&again), "{lost}: {again:?}");
        assert_eq!(again.body, first.body);
        assert_eq!(calls(&scene), 1);
    }
}

#[tokio::test]
async fn a_bus_that_is_away_refuses_the_claim_and_what_comes_late_of_it_locks_nobody_out() {
    let (scene, faults) = scene().await;
    faults.late.store(1, Ordering::Relaxed);
    let going = async {
        // After the write was sent, before it is read back.
        while faults.writes.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        faults.away.store(true, Ordering::Relaxed);
    };
    let began = Instant::now();
    let (refused, ()) = tokio::join!(ask(&scene, "k"), going);

    assert_eq!((refused.status, &*refused.code()), (503, "store_unavailable"));
    assert!(refused.header("retry-after").is_some());
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "it waits as long as admission may"
    );
    assert_eq!(calls(&scene), 0);
    faults.away.store(false, Ordering::Relaxed);
    scene.script.push(whole("{\"n\":1}"));
    let first = after_progress(&scene, "k").await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(!is_replay(&first));
    assert!(is_replay(&ask(&scene, "k").await));
}

#[tokio::test]
async fn an_end_that_cannot_be_written_holds_the_answer_for_a_second_and_is_written_later() {
    let (scene, faults) = scene().await;
    scene.script.push(
        [vec![Step::Wait(Duration::from_millis(200))], whole("{\"n\":1}")]
            .into_iter()
            .flatten()
            .collect(),
    );
    let going = async {
        while calls(&scene) == 0 {
            tokio::task::yield_now().await;
        }
        faults.away.store(true, Ordering::Relaxed);
    };
    let began = Instant::now();
    let (first, ()) = tokio::join!(ask(&scene, "k"), going);

    let took = began.elapsed();
    assert_eq!((first.status, &*first.body), (200, "{\"n\":1}"));
    assert!(
        took >= Duration::from_millis(1_200) && took < Duration::from_secs(3),
        "{took:?}"
    );
    assert_eq!(scene.rows(1).await[0].outcome, Outcome::Ok);
    faults.away.store(false, Ordering::Relaxed);
    let again = after_progress(&scene, "k").await;
    assert!(is_replay(&again), "{again:?}");
    assert_eq!((again.body, calls(&scene)), (first.body, 1));
}

#[tokio::test]
async fn an_answer_that_finds_no_room_is_done_and_not_kept() {
    let (scene, faults) = scene().await;
    scene.script.push(whole("{\"n\":1}"));
    // The lock has room, an answer has not, and an end without its answer neither: it is tried again.
    faults.replaces_nothing.store(true, Ordering::Relaxed);

    let first = ask(&scene, "k").await;
    assert_eq!((first.status, &*first.body), (200, "{\"n\":1}"));
    assert_eq!(ask(&scene, "k").await.code(), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    faults.replaces_nothing.store(false, Ordering::Relaxed);

    for _ in 0..60 {
        let again = ask(&scene, "k").await;
        assert_eq!(again.status, 409, "{again:?}");
        if again.code() == "IDEMPOTENCY_REPLAY_UNAVAILABLE" {
            assert_eq!(again.header("x-should-retry"), Some("false"));
            assert_eq!(calls(&scene), 1);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the end is never written");
}

#[tokio::test]
async fn a_caller_who_leaves_while_his_key_is_claimed_leaves_it_free() {
    let (scene, faults) = scene().await;
    faults.slow_ms.store(300, Ordering::Relaxed);
    let mut socket = scene.connect().await;
    let sent = request(
        "POST /v1/chat/completions",
        CALLER,
        "idempotency-key: k\r\n",
        PLAIN,
    );
    socket.write_all(&sent).await.expect("write");
    while faults.writes.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    drop(socket);

    tokio::time::sleep(Duration::from_millis(800)).await;
    faults.slow_ms.store(0, Ordering::Relaxed);
    assert_eq!(calls(&scene), 0, "nobody waits for it");
    scene.script.push(whole("{\"n\":1}"));
    let first = ask(&scene, "k").await;
    assert_eq!((first.status, is_replay(&first)), (200, false), "{first:?}");
}

#[tokio::test]
async fn what_another_node_answered_is_published_again_by_whoever_replays_it() {
    let (scene, _) = scene().await;
    scene.script.push(whole("{\"n\":1}"));
    let first = ask(&scene, "k").await;
    assert_eq!(first.status, 200);
    let keys: Vec<Entry> = {
        let mut changes = scene.bus.watch(IDEMPOTENCY_BUCKET).await.expect("a watch");
        let mut all = Vec::new();
        while let Some(Change::Entry(entry)) = changes.recv().await {
            all.push(entry);
        }
        all
    };
    let [entry] = &*keys else {
        panic!("one key: {keys:?}");
    };
    assert!(entry.key.starts_with("acme."), "{}", entry.key);
    assert_eq!(entry.key.len(), "acme.".len() + 43, "a digest: {}", entry.key);
    let state = scene.bus.state().await.expect("a state");
    assert!(is_replay(&ask(&scene, "k").await));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        scene.bus.state().await.expect("a state").last,
        state.last,
        "its own spool does that"
    );

    // As another node would have left it.
    let mut value = entry.value.clone().expect("a value").to_vec();
    let own = scene.spool.id().as_str().as_bytes();
    while let Some(at) = value.windows(own.len()).position(|bytes| bytes == own) {
        value[at..at + own.len()].fill(b'f');
    }
    let expected = Expected::Revision(entry.revision);
    scene
        .bus
        .put(IDEMPOTENCY_BUCKET, &entry.key, value.into(), expected)
        .await
        .expect("put");
    assert!(is_replay(&ask(&scene, "k").await));

    let published = scene
        .bus
        .read(state.last + 1, 10, Duration::from_secs(5))
        .await
        .expect("read");
    let [stored] = &*published else {
        panic!("one event: {published:?}");
    };
    assert_eq!(stored.message.subject, "wb.ev.request.acme");
    let event: serde_json::Value = serde_json::from_slice(&stored.message.payload).expect("an event");
    assert_eq!(event["type"], "waybill.request.settled.v1");
    assert_eq!(event["id"], stored.message.id.as_str());
    assert_eq!(event["sourcesequence"], 1);
    assert_eq!(event["data"]["idempotency"], "first");
    assert_eq!(
        Some(event["data"]["request_id"].as_str().expect("an id")),
        first.header("x-request-id")
    );
    assert_eq!(calls(&scene), 1);
}

/// An answer of 2 KiB.
static LARGE: [u8; 2 << 10] = [b'1'; 2 << 10];

#[tokio::test]
async fn a_tenant_that_fills_the_bucket_leaves_room_for_the_keys_of_others() {
    let scene = Scene::on(
        |inner| inner,
        |config| {
            config.admit_wait_seconds = 1;
            config.idempotency_bytes_max = 64 << 10;
        },
    )
    .await;
    let call = async |credential: &str, key: &str| {
        let headers = format!("idempotency-key: {key}\r\nconnection: close\r\n");
        let sent = request("POST /v1/chat/completions", credential, &headers, PLAIN);
        scene.raw(&sent).await
    };
    let answer = std::str::from_utf8(&LARGE).expect("digits");
    let mut done = 0_usize;
    let refused = loop {
        scene.script.push(whole(answer));
        let told = call(CALLER, &format!("k{done}")).await;
        if told.status != 200 {
            break told;
        }
        done += 1;
        assert!(done < 1_000, "a bucket of 64 KiB has no end");
    };

    assert_eq!((refused.status, &*refused.code()), (503, "store_unavailable"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(
        calls(&scene),
        done,
        "nothing was sent upstream for the refused one"
    );
    let first = call(CALLER, "k0").await;
    assert!(is_replay(&first) && first.body == answer, "{first:?}");
    let last = call(CALLER, &format!("k{}", done - 1)).await;
    assert_eq!(
        (last.status, &*last.code()),
        (409, "IDEMPOTENCY_REPLAY_UNAVAILABLE"),
        "its answer found no room, and it is used up all the same"
    );
    let other = call(OPERATOR, "k0").await;
    assert_eq!((other.status, &*other.body), (200, answer), "{other:?}");
    assert!(!is_replay(&other));
    assert!(is_replay(&call(OPERATOR, "k0").await));
}
