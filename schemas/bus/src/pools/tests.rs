//! Pool after pool, over the wire in process.

use std::time::Duration;

use parking_lot::Mutex;
use schemas::id::EndpointId;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SystemClock;
use crate::conformance::dispatch::{Played, frame, play, rest};
use crate::conformance::script::{Act, Script, dispatch};
use crate::follow::CatalogView;
use crate::mint::Mint;
use crate::remote::gateway::{self, RemoteDispatcher};
use crate::remote::intake::{self, Intake};
use crate::wire::local::{Local, Network};

/// A gateway with a router of pool `default` in its node, and routers of other pools elsewhere.
struct Scene {
    network: Network,
    here: Script,
    pools: Pools,
    tasks: JoinSet<()>,
    /// What routers elsewhere were offered.
    offers: Arc<Mutex<Vec<Offer>>>,
}

fn answering(text: &'static str) -> Vec<Act> {
    vec![Act::Head, Act::Chunk(Bytes::from(text)), Act::End(Bytes::new())]
}

impl Scene {
    async fn new(here: impl Fn(&Dispatch) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let network = Network::new();
        let wire = network.connect();
        let mint = Mint::new().expect("randomness");
        let config = gateway::Config::new(PoolName::from("default"));
        let remote = RemoteDispatcher::new(config, wire, Arc::new(SystemClock::new()), &mint);
        let mut tasks = JoinSet::new();
        let run = gateway::run(remote.clone(), CancellationToken::new());
        tasks.spawn(async move { run.await.expect("a wire") });
        let here = Script::new(here);
        let pools = Pools::new(
            PoolName::from("default"),
            Some(Arc::new(here.clone())),
            Some(remote),
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
        Self {
            network,
            here,
            pools,
            tasks,
            offers: Arc::default(),
        }
    }

    /// A router of another pool.
    async fn router(
        &mut self,
        pool: &str,
        sessions_max: usize,
        acts: impl Fn() -> Vec<Act> + Send + Sync + 'static,
    ) -> (Arc<Local>, Script) {
        let config = intake::Config {
            pool: PoolName::from(pool),
            boot: format!("boot-{pool}").into(),
            sessions_max,
            drain: Duration::from_secs(1),
        };
        let offers = Arc::clone(&self.offers);
        let script = Script::new(move |dispatch| {
            offers.lock().push(dispatch.offer.clone());
            acts()
        });
        let wire = self.network.connect();
        let run = Intake::run(
            config,
            wire.clone(),
            Arc::new(script.clone()),
            CatalogView::default(),
            CancellationToken::new(),
        );
        self.tasks.spawn(async move { run.await.expect("a wire") });
        tokio::time::sleep(Duration::from_millis(1)).await;
        (wire, script)
    }

    async fn play(&self, ways: &[(&str, &str)]) -> Played {
        play(&self.pools, on(ways)).await.expect("an end")
    }
}

/// A request on these ways: a pool and an endpoint each.
fn on(ways: &[(&str, &str)]) -> Dispatch {
    let mut asked = dispatch("m", 1);
    asked.ways = ways
        .iter()
        .map(|(pool, endpoint)| Way {
            pool: PoolName::from(*pool),
            candidates: [EndpointId::from(*endpoint)].into(),
            part: None,
        })
        .collect();
    asked
}

fn code(played: &Played) -> Option<FailureCode> {
    Some(played.end()?.report.failure.as_ref()?.code)
}

/// Who was left out, and why.
fn excluded(played: &Played) -> Vec<(String, Exclusion)> {
    let decision = played.end().and_then(|end| end.report.decision.as_ref());
    let excluded = decision.into_iter().flat_map(|decision| &decision.excluded);
    excluded
        .map(|out| (out.endpoint.to_string(), out.reason))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_way_is_run_by_its_pool_alone_and_told_of_its_own_candidates() {
    let mut scene = Scene::new(|_| answering("here")).await;
    let (_wire, gpu) = scene.router("gpu", 9, || answering("gpu")).await;

    let own = scene.play(&[]).await;
    let there = scene.play(&[("gpu", "e2"), ("default", "e1")]).await;

    assert_eq!((&own.text()[..], &there.text()[..]), (&b"here"[..], &b"gpu"[..]));
    assert_eq!((scene.here.begun(), gpu.begun()), (1, 1));
    let offers = scene.offers.lock();
    assert_eq!(offers[0].candidates[..], [EndpointId::from("e2")]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_in_which_nobody_listens_is_passed_at_once_and_named() {
    let scene = Scene::new(|_| answering("here")).await;
    let at = Instant::now();

    let played = scene.play(&[("gpu", "e2"), ("default", "e1")]).await;

    assert_eq!(&played.text()[..], b"here");
    assert!(at.elapsed() < Duration::from_millis(250), "{:?}", at.elapsed());
    assert_eq!(excluded(&played), [("e2".to_owned(), Exclusion::PoolAway)]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_routers_are_full_is_passed_after_a_moment() {
    let mut scene = Scene::new(|_| answering("here")).await;
    let (_wire, full) = scene.router("gpu", 0, || answering("gpu")).await;
    let at = Instant::now();

    let played = scene.play(&[("gpu", "e2"), ("default", "e1")]).await;

    assert_eq!((&played.text()[..], full.begun()), (&b"here"[..], 0));
    assert!(at.elapsed() < Duration::from_millis(400), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_a_further_way_an_empty_pool_is_waited_for_and_never_for_long() {
    let scene = Scene::new(|_| answering("here")).await;
    let at = Instant::now();

    let played = scene.play(&[("gpu", "e2")]).await;

    assert_eq!(code(&played), Some(FailureCode::NoBackendsAvailable));
    assert!(at.elapsed() <= Duration::from_millis(2_300), "{:?}", at.elapsed());
    assert_eq!(scene.here.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_failed_before_any_content_is_followed_by_the_next_with_all_attempts_on_record() {
    let mut scene = Scene::new(|_| answering("here")).await;
    let (_wire, _gpu) = scene.router("gpu", 9, || vec![Act::Fail]).await;

    let played = scene.play(&[("gpu", "e2"), ("default", "e1")]).await;

    assert_eq!(&played.text()[..], b"here");
    let attempts = &played.end().expect("an end").report.attempts;
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].outcome, Outcome::UpstreamError);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_over_all_pools() {
    let mut scene = Scene::new(|dispatch| {
        assert_eq!(dispatch.offer.attempts_before, 1);
        vec![Act::Fail]
    })
    .await;
    let (_wire, gpu) = scene.router("gpu", 9, || vec![Act::Fail]).await;
    let mut asked = on(&[("gpu", "e2"), ("default", "e1"), ("gpu", "e3")]);
    asked.offer.attempts_max = 2;

    let played = play(&scene.pools, asked).await.expect("an end");

    assert_eq!((gpu.begun(), scene.here.begun()), (1, 1));
    assert_eq!(played.end().expect("an end").report.attempts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_killed_before_the_first_content_is_followed_by_the_next_way_and_one_after_it_is_not() {
    let mut scene = Scene::new(|_| answering("here")).await;
    let (wire, gpu) = scene.router("gpu", 9, || vec![Act::Head, Act::Stay]).await;
    let killed = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.cut(true);
    };
    let (played, ()) = tokio::join!(scene.play(&[("gpu", "e2"), ("default", "e1")]), killed);
    assert_eq!((&played.text()[..], gpu.begun()), (&b"here"[..], 1));
    let end = played.end().expect("an end");
    assert_eq!(end.report.attempts[0].outcome, Outcome::Lost);
    assert_eq!(end.report.outcome, Outcome::Ok);

    let begun = || vec![Act::Head, Act::Chunk(Bytes::from("some")), Act::Stay];
    let (wire, _other) = scene.router("other", 9, begun).await;
    let mut session = scene.pools.dispatch(on(&[("other", "e3"), ("default", "e1")]));
    let mut played = Played::default();
    while played.chunks.is_empty() {
        played.take(frame(session.as_mut()).await);
    }
    wire.cut(true);
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert_eq!(played.outcome(), Some(Outcome::UpstreamCut));
    assert_eq!((&played.chunks[..], scene.here.begun()), (&b"some"[..], 1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_left_is_taken_to_no_further_pool() {
    let mut scene = Scene::new(|_| answering("here")).await;
    let (_wire, gpu) = scene.router("gpu", 9, || vec![Act::Stay]).await;
    let mut session = scene.pools.dispatch(on(&[("gpu", "e2"), ("default", "e1")]));
    let waited = tokio::time::timeout(Duration::from_millis(100), frame(session.as_mut())).await;
    assert!(waited.is_err() && gpu.open() == 1);

    session.cancel();
    let mut played = Played::default();
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert_eq!(played.outcome(), Some(Outcome::ClientGone));
    assert_eq!((gpu.open(), scene.here.begun()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn on_a_bus_in_this_process_no_other_pool_is_reached() {
    let here = Script::new(|_| answering("here"));
    let pools = Pools::new(PoolName::from("default"), Some(Arc::new(here.clone())), None);

    let next = play(&pools, on(&[("gpu", "e2"), ("default", "e1")])).await;
    let nobody = play(&pools, on(&[("gpu", "e2")])).await;

    assert_eq!(&next.expect("an end").text()[..], b"here");
    assert_eq!(
        code(&nobody.expect("an end")),
        Some(FailureCode::NoBackendsAvailable)
    );
}
