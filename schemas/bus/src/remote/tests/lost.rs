//! Somebody dies: the router before and after the first content, the gateway, a session.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use schemas::failure::FailureCode;
use schemas::outcome::Outcome;
use tokio::time::{Instant, advance, sleep};

use super::{Stage, code, finish, settle, stream, text, to_content};
use crate::conformance::dispatch::{frame, rest};
use crate::conformance::script::Act;
use crate::wire::Wire as _;
use crate::wire::local::Fate;

fn hangs() -> Vec<Act> {
    vec![Act::Stay]
}

fn breaks() -> Vec<Act> {
    vec![Act::Head, Act::Chunk(Bytes::from_static(b"first")), Act::Stay]
}

#[tokio::test(start_paused = true)]
async fn a_router_that_dies_before_the_first_content_is_replaced_and_stands_on_the_waybill() {
    let mut stage = Stage::new().await;
    let first = stage.router(|_| hangs()).await;
    let session = stage.begin(1);
    let (played, second) = tokio::join!(finish(session), async {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(first.script.open(), 1);
        first.kill().await;
        stage.router(|_| stream(3, Duration::ZERO)).await
    });

    assert_eq!(played.outcome(), Some(Outcome::Ok));
    assert_eq!(played.text(), text(3));
    assert_eq!(second.script.begun(), 1);
    let attempts = &played.end().expect("an end").report.attempts;
    let outcomes: Vec<Outcome> = attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Outcome::Lost, Outcome::Ok]);
    assert_eq!(attempts[0].error_code, Some(FailureCode::NodeLost));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_dies_after_the_first_content_breaks_the_answer_visibly() {
    let mut stage = Stage::new().await;
    let first = stage.router(|_| breaks()).await;
    let other = stage.router(|_| breaks()).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let killed = if first.script.open() == 1 { &first } else { &other };
    let at = Instant::now();
    killed.kill().await;

    rest(session.as_mut(), &mut played).await.expect("an end");

    assert!(at.elapsed() <= Duration::from_millis(1_800), "{:?}", at.elapsed());
    assert_eq!(played.outcome(), Some(Outcome::UpstreamCut));
    assert_eq!(code(&played), Some("stream_interrupted"));
    let end = played.end().expect("an end");
    assert!(end.report.delivered.content && end.tail.is_empty());
    assert_eq!((end.report.usage, end.report.attempts.len()), (None, 1));
    assert_eq!(first.script.begun() + other.script.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_routers_all_die_ends_when_its_attempts_do() {
    let mut stage = Stage::new().await;
    let session = stage.begin(1);
    let (played, begun) = tokio::join!(finish(session), async {
        let mut begun = 0;
        for _ in 0..4 {
            let router = stage.router(|_| hangs()).await;
            sleep(Duration::from_millis(600)).await;
            begun += router.script.begun();
            router.kill().await;
            sleep(Duration::from_secs(2)).await;
        }
        begun
    });

    assert_eq!(begun, 3);
    assert_eq!(code(&played), Some("upstream_error"));
    assert_eq!(played.end().expect("an end").report.attempts.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_panics_is_run_again_at_once() {
    let mut stage = Stage::new().await;
    let begun = AtomicUsize::new(0);
    let router = stage
        .router(move |_| match begun.fetch_add(1, Ordering::Relaxed) {
            0 => vec![Act::Panic],
            _ => stream(3, Duration::ZERO),
        })
        .await;
    let at = Instant::now();

    let played = stage.play().await;

    assert_eq!((played.text(), router.script.begun()), (text(3), 2));
    assert_eq!(played.end().expect("an end").report.attempts.len(), 2);
    assert!(at.elapsed() < Duration::from_millis(100), "{:?}", at.elapsed());
    assert_eq!(router.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_router_that_was_given_up_and_lives_is_told_to_stop() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| breaks()).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let inbox = stage.wire.inbox().to_owned();
    stage.network.decide(move |subject, _| {
        if subject.starts_with(&inbox) {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });

    rest(session.as_mut(), &mut played).await.expect("an end");
    settle().await;

    assert_eq!(played.outcome(), Some(Outcome::UpstreamCut));
    assert_eq!(router.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stood_still_does_not_take_its_routers_for_dead() {
    let mut stage = Stage::new().await;
    let _router = stage.router(|_| stream(60, Duration::from_millis(50))).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let inbox = stage.wire.inbox().to_owned();
    // What came meanwhile is read only after the first look.
    stage.network.decide(move |subject, _| {
        if subject.starts_with(&inbox) {
            Fate::Late(Duration::from_millis(5))
        } else {
            Fate::Pass
        }
    });

    advance(Duration::from_secs(2)).await;
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert_eq!(played.outcome(), Some(Outcome::Ok));
    assert_eq!(played.text(), text(60));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_dies_has_its_requests_canceled_within_three_seconds() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| breaks()).await;
    let mut sessions = Vec::new();
    for number in 0..20 {
        let mut session = stage.begin(number);
        to_content(session.as_mut()).await;
        sessions.push(session);
        sleep(Duration::from_millis(37)).await;
    }
    assert_eq!(router.script.open(), 20);

    stage.kill_gateway();
    sleep(Duration::from_secs(2)).await;
    let after_two = router.script.open();
    sleep(Duration::from_secs(1)).await;

    assert_eq!((after_two, router.script.open()), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_dropped_is_canceled_also_when_nobody_hears_it() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| breaks()).await;
    let mut session = stage.begin(1);
    to_content(session.as_mut()).await;
    stage.network.decide(|subject, _| {
        if subject.starts_with("wb.ctl.") {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    drop(session);
    settle().await;
    assert_eq!((router.script.open(), stage.dispatcher.open()), (1, 0));

    stage.network.pass();
    sleep(Duration::from_secs(3)).await;

    assert_eq!(router.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_router_that_drains_finishes_what_runs_and_takes_nothing_new() {
    let mut stage = Stage::new().await;
    let first = stage.router(|_| stream(50, Duration::from_millis(100))).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;

    first.shutdown.cancel();
    settle().await;
    let other = stage.router(|_| stream(3, Duration::ZERO)).await;
    let later = stage.play().await;
    rest(session.as_mut(), &mut played).await.expect("an end");
    settle().await;

    assert_eq!(played.text(), text(50));
    assert_eq!((later.text(), other.script.begun()), (text(3), 1));
    assert!(first.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_router_at_its_drain_limit_interrupts_and_reports() {
    let mut stage = Stage::new().await;
    let limit = Duration::from_secs(5);
    let router = stage
        .router_with(
            |_| breaks(),
            |config| config.drain = limit,
            super::CatalogView::default(),
        )
        .await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let at = Instant::now();

    router.shutdown.cancel();
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert!(at.elapsed() >= limit && at.elapsed() < limit + Duration::from_millis(600));
    assert_eq!(played.outcome(), Some(Outcome::Timeout));
    assert_eq!(played.end().expect("an end").report.attempts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_are_open_when_the_gateways_task_ends_do_not_hang() {
    let mut stage = Stage::new().await;
    let _router = stage.router(|_| breaks()).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;

    stage.shutdown.cancel();
    rest(session.as_mut(), &mut played).await.expect("an end");
    let refused = stage.play().await;

    assert_eq!(played.outcome(), Some(Outcome::UpstreamCut));
    assert_eq!(code(&refused), Some("store_unavailable"));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_does_not_report_after_a_cancel_is_not_waited_for() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| breaks()).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let at = Instant::now();
    router.wire.cut(true);

    session.cancel();
    let last = frame(session.as_mut()).await;
    played.take(last);

    assert!(at.elapsed() <= Duration::from_secs(1));
    assert_eq!(played.outcome(), Some(Outcome::ClientGone));
    assert!(played.end().expect("an end").report.delivered.content);
}
