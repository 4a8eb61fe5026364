//! A view follows its bucket over ends of the watch, and knows how old it is.

use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::{Key, KeyDigest, Origin, Role, key_key};
use schemas::id::{KeyId, TenantId};
use schemas::time::Timestamp;

use super::*;
use crate::clock::SystemClock;
use crate::embedded::{Embedded, Options};
use crate::passage::{LIFE, Passage};
use crate::{Revision, message};

/// Buckets that can be cut off: watches tell nothing more and nothing is written.
struct Cut {
    kv: Arc<Embedded>,
    cut: AtomicBool,
}

#[async_trait]
impl Kv for Cut {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<message::Entry>, BusError> {
        self.kv.get(bucket, key).await
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        if self.cut.load(Ordering::Acquire) {
            return Err(BusError::Timeout);
        }
        self.kv.put(bucket, key, value, expected).await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.kv.delete(bucket, key, expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let mut changes = self.kv.watch(bucket).await?;
        let (sender, receiver) = mpsc::channel(8);
        // Ends after the first change that follows `Current`: every change is told by a watch of its own.
        let mut current = false;
        let mut told = Vec::new();
        while let Ok(Some(change)) = tokio::time::timeout(Duration::from_millis(20), changes.recv()).await {
            current |= change == Change::Current;
            told.push(change);
            if current {
                break;
            }
        }
        for change in told {
            let _ = sender.send(change).await;
        }
        Ok(receiver)
    }
}

struct Scene {
    kv: Arc<Embedded>,
    clock: Arc<dyn Clock>,
    _dir: tempfile::TempDir,
}

fn scene() -> Scene {
    let dir = tempfile::tempdir().expect("a directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let kv = Embedded::open(dir.path(), Options::default(), Arc::clone(&clock)).expect("opened");
    Scene { kv, clock, _dir: dir }
}

async fn add_tenant(kv: &dyn Kv, name: &str) {
    let id = TenantId::from(name);
    let record = Tenant::new(id.clone(), Origin::Runtime);
    let value = Bytes::from(serde_json::to_vec(&record).expect("a record"));
    kv.put(CATALOG_BUCKET, &tenant_key(&id), value, Expected::Any)
        .await
        .expect("written");
}

async fn until(what: impl Fn() -> bool) {
    let seen = async {
        while !what() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen)
        .await
        .expect("it happens");
}

fn knows(view: &CatalogView, name: &str) -> bool {
    view.load().tenant(&TenantId::from(name)).is_some()
}

#[tokio::test]
async fn a_view_without_a_beat_is_never_old() {
    let view = CatalogView::default();
    assert_eq!(view.age_ms(u64::MAX), 0);
}

#[tokio::test]
async fn a_watch_that_ends_is_made_anew_and_misses_nothing() {
    let scene = scene();
    let kv = Arc::new(Cut {
        kv: Arc::clone(&scene.kv),
        cut: AtomicBool::new(false),
    });
    let (view, ready, shutdown) = (
        CatalogView::default(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    add_tenant(&*scene.kv, "before").await;
    let follow = run(kv, view.clone(), ready.clone(), shutdown.clone());
    let test = async {
        ready.cancelled().await;
        assert!(knows(&view, "before"));
        add_tenant(&*scene.kv, "after").await;
        until(|| knows(&view, "after")).await;
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(follow, test);
    followed.expect("ends in order");
}

#[tokio::test]
async fn a_view_is_as_old_as_the_last_beat_that_came_back() {
    let scene = scene();
    let kv = Arc::new(Cut {
        kv: Arc::clone(&scene.kv),
        cut: AtomicBool::new(false),
    });
    let beat = Beat {
        spool: SpoolId::from("spool"),
        boot: "boot".into(),
        clock: Arc::clone(&scene.clock),
    };
    let view = CatalogView::measured(beat);
    let (ready, shutdown) = (CancellationToken::new(), CancellationToken::new());
    let follow = run(kv.clone(), view.clone(), ready.clone(), shutdown.clone());
    let age = || view.age_ms(scene.clock.monotonic_ms());
    let test = async {
        ready.cancelled().await;
        let began = scene.clock.monotonic_ms();
        until(|| view.fresh.at_ms.load(Ordering::Relaxed) > began + 1).await;
        assert!(age() < 1_000, "{}", age());

        kv.cut.store(true, Ordering::Release);
        until(|| age() > 3_000).await;
        kv.cut.store(false, Ordering::Release);
        until(|| age() < 1_000).await;
        assert_eq!(view.load().revision, 0, "beats are no change of the catalogue");
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(follow, test);
    followed.expect("ends in order");
    let left = scene.kv.get(CATALOG_BUCKET, "beat.spool").await.expect("read");
    assert_eq!(left, None, "the beat goes with its run");
}

/// A bucket whose watch tells all it has at once, a beat after the marker last.
struct Hasty {
    kv: Arc<Embedded>,
    watches: parking_lot::Mutex<Vec<mpsc::Sender<Change>>>,
}

#[async_trait]
impl Kv for Hasty {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<message::Entry>, BusError> {
        self.kv.get(bucket, key).await
    }

    async fn put(&self, _: &str, _: &str, _: Bytes, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Timeout)
    }

    async fn delete(&self, _: &str, _: &str, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Timeout)
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let (sender, receiver) = mpsc::channel(8);
        let mut changes = self.kv.watch(bucket).await?;
        while let Some(change) = changes.recv().await {
            let last = change == Change::Current;
            sender.send(change).await.expect("room");
            if last {
                break;
            }
        }
        let beat = Entry {
            key: format!("{}other", subject::catalog::BEAT),
            value: Some(Bytes::from_static(b"boot 1")),
            revision: 99,
        };
        sender.send(Change::Entry(beat)).await.expect("room");
        self.watches.lock().push(sender);
        Ok(receiver)
    }
}

#[tokio::test]
async fn a_beat_right_behind_the_marker_does_not_hide_the_catalogue() {
    let scene = scene();
    add_tenant(&*scene.kv, "acme").await;
    let kv = Arc::new(Hasty {
        kv: Arc::clone(&scene.kv),
        watches: parking_lot::Mutex::default(),
    });
    let (view, ready) = (CatalogView::default(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(run(kv, view.clone(), ready.clone(), CancellationToken::new()));

    tokio::time::timeout(Duration::from_secs(5), ready.cancelled())
        .await
        .expect("the view is ready");

    assert!(knows(&view, "acme"));
}

#[tokio::test]
async fn changes_that_count_together_are_shown_together_and_those_of_no_end_after_a_while() {
    let scene = scene();
    let kv: &dyn Kv = &*scene.kv;
    let (view, ready, shutdown) = (
        CatalogView::default(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let follow = run(
        Arc::clone(&scene.kv) as Arc<dyn Kv>,
        view.clone(),
        ready.clone(),
        shutdown.clone(),
    );
    let test = async {
        ready.cancelled().await;
        add_tenant(kv, "before").await;
        until(|| knows(&view, "before")).await;

        let passage = Passage::begin(kv).await.expect("begun");
        for name in ["one", "other"] {
            add_tenant(kv, name).await;
            sleep(Duration::from_millis(20)).await;
            assert!(!knows(&view, name), "{name} is shown alone");
        }
        let over = passage.end().await.expect("ended");
        until(|| view.peek().revision == over).await;
        assert!(knows(&view, "one") && knows(&view, "other"));
        let recent = view.recent();
        let one = TenantId::from("one");
        assert!(recent[0].tenant(&TenantId::from("before")).is_some() && recent[0].tenant(&one).is_none());

        let left = Passage::begin(kv).await.expect("begun");
        let begun = Instant::now();
        add_tenant(kv, "late").await;
        drop(left);
        until(|| knows(&view, "late")).await;
        let elapsed = begun.elapsed();
        assert!(elapsed + Duration::from_millis(100) > LIFE, "{elapsed:?}");
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(follow, test);
    followed.expect("ends in order");
}

#[tokio::test(start_paused = true)]
async fn what_was_shown_stays_at_hand_for_a_while_and_not_all_of_it() {
    let view = CatalogView::default();
    let snapshot = |revision| {
        let mut catalog = Catalog::default();
        catalog
            .apply(revision, subject::catalog::CLUSTER, None)
            .expect("a record");
        Arc::new(catalog)
    };
    let recent = || view.recent().iter().map(|one| one.revision).collect::<Vec<_>>();
    assert_eq!(recent(), [0_u64; 0]);

    for revision in 1..=2 {
        view.show(snapshot(revision));
        tokio::time::advance(RECENT / 2).await;
    }
    assert_eq!((view.load().revision, recent()), (2, vec![1]));
    tokio::time::advance(RECENT).await;
    assert_eq!(recent(), [0_u64; 0]);

    for revision in 3..=30 {
        view.show(snapshot(revision));
    }
    assert_eq!(recent(), (22..=29).rev().collect::<Vec<_>>());
}

async fn add_key(kv: &dyn Kv, digest: &KeyDigest) {
    let record = Key {
        id: KeyId::from("key_1"),
        name: "caller".into(),
        tenant: TenantId::from("acme"),
        user: None,
        role: Role::Free,
        models: None,
        limits: schemas::limit::limits::Limits::default(),
        output_default_max: None,
        expires_at: None,
        revoked: false,
        created_at: Timestamp::from_micros(1),
        origin: Origin::File,
        prefix: "sk-".into(),
        reach: schemas::catalog::grant::Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: None,
        maker: None,
        seen_by: None,
    };
    let value = Bytes::from(serde_json::to_vec(&record).expect("a record"));
    kv.put(CATALOG_BUCKET, &key_key(digest), value, Expected::Any)
        .await
        .expect("written");
}

#[tokio::test]
async fn keys_that_a_bucket_has_lost_stay_known_until_there_are_others() {
    let scene = scene();
    let digests: [KeyDigest; 3] = [[1; 32], [2; 32], [3; 32]];
    for digest in &digests[..2] {
        add_key(&*scene.kv, digest).await;
    }
    let view = CatalogView::measured(Beat {
        spool: SpoolId::from("spool"),
        boot: "boot".into(),
        clock: Arc::clone(&scene.clock),
    });
    let (ready, shutdown) = (CancellationToken::new(), CancellationToken::new());
    let kv = Arc::clone(&scene.kv) as Arc<dyn Kv>;
    let follow = run(kv, view.clone(), ready.clone(), shutdown.clone());
    let knows = |digest: &KeyDigest| view.load().key(digest).is_some();
    let test = async {
        ready.cancelled().await;
        let began = scene.clock.monotonic_ms();
        until(|| view.fresh.at_ms.load(Ordering::Relaxed) > began + 1).await;
        for digest in &digests[..2] {
            let key = key_key(digest);
            let gone = scene.kv.delete(CATALOG_BUCKET, &key, Expected::Any);
            gone.await.expect("deleted");
            sleep(Duration::from_millis(20)).await;
            assert!(knows(&digests[0]) && knows(&digests[1]), "all is known as before");
        }
        let beat = Duration::from_secs(BEAT_SECONDS);
        sleep(beat + Duration::from_millis(200)).await;
        assert!(knows(&digests[0]) && knows(&digests[1]), "also after a beat");
        let age_ms = view.age_ms(scene.clock.monotonic_ms());
        assert!(age_ms >= 2_000, "and it grows old: {age_ms}");

        add_key(&*scene.kv, &digests[2]).await;
        until(|| knows(&digests[2]) && !knows(&digests[0])).await;
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(follow, test);
    followed.expect("ends in order");
}
