//! Who takes a request: offers, places, the word to go, and waiting when nobody does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use schemas::id::PoolName;
use schemas::subject::CATALOG_BUCKET;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{ADMIT_WAIT, CatalogView, POOL, Stage, code, finish, settle, stream, text};
use crate::conformance::dispatch::play;
use crate::conformance::script::{Act, dispatch};
use crate::faulty::Bent;
use crate::remote::code::{self as message, Order, Reply, Wish};
use crate::remote::gateway::Config;
use crate::wire::Wire as _;
use crate::wire::local::Fate;
use crate::{Expected, Kv as _};

fn short() -> Vec<Act> {
    stream(3, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn offers_that_are_lost_are_made_again() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| short()).await;
    let mut left = 2;
    stage.network.decide(move |subject, _| {
        if subject.starts_with("wb.run.") && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    let at = Instant::now();

    let played = stage.play().await;

    assert_eq!((played.text(), router.script.begun()), (text(3), 1));
    assert!(at.elapsed() < Duration::from_millis(1_200), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_not_used_for_a_second_is_free_again_and_its_request_never_runs() {
    let mut stage = Stage::new().await;
    let router = stage
        .router_with(
            |_| short(),
            |config| config.sessions_max = 1,
            CatalogView::default(),
        )
        .await;
    let stranger = stage.network.connect();
    let inbox = stranger.inbox().to_owned();
    let mut replies = stranger.subscribe(&format!("{inbox}.*")).await.expect("a wire");
    let lane = format!("{inbox}.{:016x}", 9);
    let asked = dispatch("m", 1);
    let offer = message::offer(&asked.offer, b"", &asked.body, true).expect("an offer");
    stranger
        .send("wb.run.default", Some(&lane), offer)
        .await
        .expect("a wire");
    let accepted = replies.recv().await.expect("a reply").payload;
    assert!(matches!(message::read_reply(accepted), Ok(Reply::Accepted(boot)) if &*boot == "boot-1"));

    sleep(Duration::from_millis(1_001)).await;
    let order = Order {
        lane: 9,
        received: 0,
        granted: 16,
        wish: Wish::Run,
        resume: false,
    };
    let orders = message::orders(&inbox, &[order]);
    stranger
        .send("wb.ctl.default.boot-1", None, orders)
        .await
        .expect("a wire");
    let unknown = replies.recv().await.expect("a reply").payload;

    assert!(matches!(message::read_reply(unknown), Ok(Reply::Unknown)));
    assert_eq!(router.script.begun(), 0);
    assert_eq!(stage.play().await.text(), text(3));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_is_full_is_passed_over() {
    let mut stage = Stage::new().await;
    let full = stage
        .router_with(
            |_| short(),
            |config| config.sessions_max = 0,
            CatalogView::default(),
        )
        .await;
    let free = stage.router(|_| short()).await;
    let at = Instant::now();

    let played = join_all((0..10).map(|number| finish(stage.begin(number)))).await;

    assert!(played.iter().all(|played| played.text() == text(3)));
    assert_eq!((full.script.begun(), free.script.begun()), (0, 10));
    assert!(at.elapsed() < Duration::from_millis(500), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn of_two_routers_that_accept_one_gets_the_word_to_go() {
    let mut stage = Stage::new().await;
    let one = stage
        .router_with(
            |_| short(),
            |config| config.sessions_max = 1,
            CatalogView::default(),
        )
        .await;
    let two = stage
        .router_with(
            |_| short(),
            |config| config.sessions_max = 1,
            CatalogView::default(),
        )
        .await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    stage.network.decide(move |subject, payload| {
        if payload.get(1) == Some(&2) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if subject.starts_with("wb.run.") {
            Fate::Double
        } else {
            Fate::Pass
        }
    });
    let at = Instant::now();

    for number in 1..=5 {
        let played = finish(stage.begin(number)).await;
        assert_eq!(played.text(), text(3));
        settle().await;
    }

    assert_eq!(accepted.load(Ordering::Relaxed), 10);
    assert_eq!(one.script.begun() + two.script.begun(), 5);
    // The place that was not used was given back at once.
    assert!(at.elapsed() < Duration::from_millis(500), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_listens_for_waits_and_is_then_refused() {
    let stage = Stage::new().await;
    let at = Instant::now();

    let played = stage.play().await;

    assert_eq!(code(&played), Some("no_backends_available"));
    assert_eq!(at.elapsed().as_secs(), ADMIT_WAIT.as_secs());
    let failure = played.end().and_then(|end| end.report.failure.as_ref());
    assert!(failure.is_some_and(|failure| failure.status == 503 && failure.retry_after_seconds.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_router_that_comes() {
    let mut stage = Stage::new().await;
    let session = stage.begin(1);
    let (played, _router) = tokio::join!(finish(session), async {
        sleep(Duration::from_secs(6)).await;
        stage.router(|_| short()).await
    });

    assert_eq!(played.text(), text(3));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_bus_and_is_then_refused() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| short()).await;
    stage.wire.cut(true);
    let (waited, at) = (stage.begin(1), Instant::now());
    let (back, ()) = tokio::join!(finish(waited), async {
        sleep(Duration::from_secs(5)).await;
        stage.wire.cut(false);
    });
    assert_eq!(back.text(), text(3));
    assert!(at.elapsed() < Duration::from_millis(5_500), "{:?}", at.elapsed());

    stage.wire.cut(true);
    let refused = stage.play().await;

    assert_eq!(code(&refused), Some("store_unavailable"));
    assert_eq!(router.script.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_every_router_is_too_full_for_is_refused_as_overloaded() {
    let mut stage = Stage::new().await;
    let _full = stage
        .router_with(
            |_| short(),
            |config| config.sessions_max = 0,
            CatalogView::default(),
        )
        .await;

    assert_eq!(code(&stage.play().await), Some("overloaded"));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_most_that_may_wait_a_request_is_refused_at_once() {
    let mut config = Config::new(PoolName::from(POOL));
    config.waiting_max = 3;
    config.admit_wait = ADMIT_WAIT;
    let stage = Stage::with(config).await;
    let at = Instant::now();

    let sessions = (0..5).map(|number| stage.begin(number));
    let played = join_all(sessions.map(|session| async {
        let played = finish(session).await;
        (code(&played), at.elapsed().as_secs())
    }))
    .await;

    let at_once = played.iter().filter(|(_, seconds)| *seconds == 0).count();
    assert_eq!(at_once, 2);
    assert!(
        played
            .iter()
            .all(|(code, _)| *code == Some("no_backends_available"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_router_with_an_older_catalogue_leaves_the_offer_to_others() {
    let mut stage = Stage::new().await;
    let old = stage.router(|_| short()).await;
    let mut newer = dispatch("m", 1);
    newer.offer.catalog_revision = 7;

    let played = play(&stage.dispatcher, newer).await.expect("an end");

    assert_eq!((code(&played), old.script.begun()), (Some("overloaded"), 0));
}

#[tokio::test(start_paused = true)]
async fn an_offer_of_a_newer_catalogue_waits_until_it_has_come() {
    let mut stage = Stage::new().await;
    let (view, bucket) = (CatalogView::default(), Arc::new(Bent::default()));
    let token = CancellationToken::new;
    let follow = crate::follow::run(bucket.clone(), view.clone(), token(), token());
    stage.tasks.spawn(async move { follow.await.expect("a watch") });
    let _router = stage.router_with(|_| short(), |_| {}, view).await;
    let mut newer = dispatch("m", 1);
    newer.offer.catalog_revision = 1;
    let at = Instant::now();

    let (played, ()) = tokio::join!(play(&stage.dispatcher, newer), async {
        sleep(Duration::from_millis(100)).await;
        let put = bucket.put(CATALOG_BUCKET, "tenant.acme", Bytes::from("{}"), Expected::Any);
        put.await.expect("a bucket");
    });

    assert_eq!(played.expect("an end").text(), text(3));
    assert!(at.elapsed() < Duration::from_millis(120), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_while_nobody_takes_his_request_is_reported_at_once() {
    let stage = Stage::new().await;
    let mut session = stage.begin(1);
    let waiting = tokio::time::timeout(
        Duration::from_secs(1),
        crate::conformance::dispatch::frame(session.as_mut()),
    )
    .await;
    assert!(waiting.is_err());
    let at = Instant::now();

    session.cancel();
    let played = finish(session).await;

    assert_eq!(code(&played), Some("client_gone"));
    assert!(at.elapsed().is_zero());
    assert_eq!(stage.dispatcher.open(), 0);
}
