//! Routers that share a bucket have one limit for a credential.

use std::time::Duration;

use bus::clock::SystemClock;
use schemas::catalog::CredentialRef;
use schemas::secret::Secret;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::affinity::{Affinity, fleet};
use crate::config::{Affinity as Settings, Concurrency};
use crate::limiter::{Door, Slot};
use crate::metrics::Metrics;
use crate::testing::{Bucket, endpoint};

/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than routers take to tell each other.
const SOON: Duration = Duration::from_millis(700);

/// One of the routers.
struct Router {
    limiter: Arc<Limiter>,
}

impl Router {
    fn start(number: usize, kv: &Arc<dyn Kv>, tasks: &mut JoinSet<()>) -> Self {
        let clock = Arc::new(SystemClock::new());
        let settings = Settings {
            alone: false,
            ..Settings::default()
        };
        let affinity = Affinity::new(settings, clock);
        let concurrency = Concurrency {
            initial: 4,
            max: 6,
            raise_after: 3,
            ..Concurrency::default()
        };
        let limiter = Arc::new(Limiter::new(Some(concurrency), Metrics::default()));
        let (kv, shared) = (Arc::clone(kv), Arc::clone(&limiter));
        tasks.spawn(async move {
            let boot = format!("n.{number}");
            let end = CancellationToken::new();
            fleet::run((&affinity, &shared), kv, (&boot, false), end).await;
        });
        Self { limiter }
    }

    fn door(&self) -> Door {
        let (reference, secret) = (CredentialRef("k".to_owned()), Secret::new("s".to_owned()));
        let url = "https://api.example.com";
        let credential = Some((&reference, &secret));
        self.limiter.door(&endpoint("e", &[url]), url, credential)
    }

    fn enter(&self) -> Option<Slot> {
        self.door().enter()
    }

    /// As many slots as there are at the moment.
    fn all(&self) -> Vec<Slot> {
        std::iter::from_fn(|| self.enter()).collect()
    }

    async fn has_room_for(&self, calls: usize) {
        let began = Instant::now();
        while self.all().len() != calls {
            assert!(began.elapsed() < PATIENCE, "{} and not {calls}", self.all().len());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn what_one_router_hears_of_a_provider_counts_for_all_and_what_it_runs_is_not_the_others() {
    let kv = Arc::new(Bucket::new(Duration::from_millis(1))) as Arc<dyn Kv>;
    let mut tasks = JoinSet::new();
    let [one, other] = [1, 2].map(|number| Router::start(number, &kv, &mut tasks));
    assert_eq!((one.all().len(), other.all().len()), (4, 4));

    one.enter().expect("room").answered(Some(429));
    other.has_room_for(3).await;
    let running = one.enter().expect("room");
    other.has_room_for(2).await;
    other.enter().expect("room").answered(Some(429));
    one.has_room_for(1).await;

    for _ in 0..3 {
        running.answered(Some(200));
    }
    other.has_room_for(2).await;
    drop(running);
    other.has_room_for(3).await;
    one.has_room_for(3).await;
    // One that comes later knows it from the start.
    let late = Router::start(3, &kv, &mut tasks);
    sleep(SOON).await;
    late.has_room_for(3).await;
}

#[tokio::test]
async fn calls_that_wait_at_one_router_get_what_another_leaves() {
    let kv = Arc::new(Bucket::new(Duration::from_millis(1))) as Arc<dyn Kv>;
    let mut tasks = JoinSet::new();
    let [one, other] = [1, 2].map(|number| Router::start(number, &kv, &mut tasks));
    let mut running = one.all();
    other.has_room_for(0).await;
    let mut waiters: Vec<_> = (0..5).map(|_| other.door().queue().expect("a place")).collect();
    sleep(SOON).await;

    running.truncate(1);
    assert_eq!(
        one.all().len(),
        1,
        "no more than its part of four while others wait"
    );
    let mut called = Vec::new();
    let began = Instant::now();
    while called.len() < 3 {
        assert!(began.elapsed() < PATIENCE, "{} are called", called.len());
        sleep(Duration::from_millis(20)).await;
        for waiter in &mut waiters {
            let turn = std::future::poll_fn(|context| waiter.poll(context));
            called.extend(futures_util::FutureExt::now_or_never(turn));
        }
    }

    sleep(SOON).await;
    assert!(one.all().is_empty(), "all four run");
}
