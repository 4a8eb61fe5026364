//! Refusals, fallbacks, circuits, pins and callers that leave.

use std::sync::Arc;
use std::time::Duration;

use bus::dispatch::{Dispatcher as _, Frame};
use schemas::catalog::CredentialRef;
use schemas::circuit::CircuitState;
use schemas::outcome::Outcome;

use crate::config::Concurrency;
use crate::testing::{
    Act, PLAIN, Played, STREAM, Scene, Server, chat, chunk, config, endpoint, events, frame, model, response,
    route,
};

const GIVEN_UP: Duration = Duration::from_secs(5);

fn refusing(status: &str, body: &str) -> Vec<Act> {
    vec![Act::Send(response(status, "application/json", body.as_bytes()))]
}

async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GIVEN_UP, reached).await.expect("in time");
}

#[tokio::test]
async fn a_dead_first_endpoint_does_not_hide_what_the_second_says_about_the_request() {
    let dead = Server::always(vec![Act::Close]).await;
    let body = r#"{"error":{"message":"temperature must be below 2","param":"temperature"}}"#;
    let strict = Server::always(refusing("400 Bad Request", body)).await;
    let scene = Scene::over(&[&dead, &strict]).await;

    for request in [PLAIN, STREAM] {
        let played = scene.call(request).await;

        let failure = played.end().report.failure.clone().expect("a failure");
        assert_eq!(failure.status, 400);
        assert_eq!(failure.message, "temperature must be below 2");
        assert_eq!(failure.param.as_deref(), Some("temperature"));
        assert_eq!(played.statuses(), [None, Some(400)]);
        assert_eq!(played.end().report.outcome, Outcome::UpstreamError);
    }
}

#[tokio::test]
async fn a_refused_request_is_not_tried_elsewhere_and_opens_nothing() {
    let strict = Server::always(refusing("422 Unprocessable", r#"{"detail":"no"}"#)).await;
    let other = Server::always(vec![Act::Send(chat("hi"))]).await;
    let scene = Scene::over(&[&strict, &other]).await;

    for _ in 0..10 {
        assert_eq!(scene.call(PLAIN).await.code(), Some("upstream_rejected_request"));
    }

    assert_eq!((strict.calls(), other.calls()), (10, 0));
    assert!(scene.changes.lock().is_empty());
}

#[tokio::test]
async fn a_prompt_that_is_too_long_goes_to_a_wider_endpoint_only() {
    let overflow = r#"{"error":{"message":"maximum context length is 8192 tokens","code":400}}"#;
    let narrow = Server::always(refusing("400 Bad Request", overflow)).await;
    let same = Server::always(vec![Act::Send(chat("never"))]).await;
    let wide = Server::always(vec![Act::Send(chat("wide"))]).await;
    let endpoints = [
        endpoint("e1", &[&narrow.url()]),
        endpoint("e2", &[&same.url()]),
        endpoint("e3", &[&wide.url()]),
    ];
    let mut routes = vec![route("e1", 0), route("e2", 1), route("e3", 2)];
    routes[2].context_length = 262_144;
    let scene = Scene::new(config(), &endpoints, &model(routes)).await;

    let played = scene.call(PLAIN).await;

    assert!(played.text().contains("wide"));
    assert_eq!(same.calls(), 0);
}

#[tokio::test]
async fn credentials_rotate_within_a_request_and_the_first_stays_first() {
    let server = Server::start(|call| {
        if call % 2 == 0 {
            refusing("429 Too Many Requests", "{}")
        } else {
            vec![Act::Send(chat("hi"))]
        }
    })
    .await;
    let mut endpoint = endpoint("e1", &[&server.url()]);
    endpoint.credentials = vec![CredentialRef("k1".to_owned()), CredentialRef("k2".to_owned())];
    let scene = Scene::new(config(), &[endpoint], &model(vec![route("e1", 0)])).await;

    for _ in 0..5 {
        let played = scene.call(PLAIN).await;
        assert_eq!(played.end().report.outcome, Outcome::Ok);
        assert_eq!(played.statuses(), [Some(429), Some(200)]);
    }

    let keys: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.contains("secret-k2"))
        .collect();
    assert_eq!(keys, [false, true].repeat(5));
    assert!(scene.changes.lock().is_empty(), "the endpoint is not to blame");
}

#[tokio::test]
async fn a_credential_that_is_refused_is_ours_to_mend() {
    let canary = r#"{"error":{"message":"Incorrect API key provided: sk-canary"}}"#;
    let server = Server::always(refusing("401 Unauthorized", canary)).await;
    let scene = Scene::over(&[&server]).await;

    let mut last = scene.call(PLAIN).await;
    assert!(!format!("{last:?}").contains("canary"));
    assert_eq!(last.code(), Some("upstream_rejected_credential"));
    for _ in 0..3 {
        last = scene.call(PLAIN).await;
    }

    assert_eq!(
        last.code(),
        Some("all_circuits_open"),
        "401 counts against the endpoint"
    );
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn three_failures_open_the_circuit_and_the_next_call_is_not_sent() {
    let server = Server::always(refusing("500 Internal Server Error", "{}")).await;
    let scene = Scene::over(&[&server]).await;

    for _ in 0..3 {
        assert_eq!(scene.call(PLAIN).await.code(), Some("upstream_error"));
    }
    let fourth = scene.call(PLAIN).await;

    let failure = fourth.end().report.failure.clone().expect("a failure");
    assert_eq!(
        (failure.code.as_str(), failure.status),
        ("all_circuits_open", 503)
    );
    assert!(
        failure
            .retry_after_seconds
            .is_some_and(|seconds| (25..=30).contains(&seconds))
    );
    assert_eq!(server.calls(), 3);
    let changes = scene.changes.lock();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].to, CircuitState::Open);
    assert_eq!(changes[0].last_error_status, Some(500));
}

#[tokio::test]
async fn after_the_cooldown_exactly_one_of_eight_probes_and_its_success_closes_the_circuit() {
    let server = Server::start(|call| match call {
        0..3 => refusing("500 Internal Server Error", "{}"),
        3 => vec![Act::Wait(Duration::from_millis(50)), Act::Send(chat("hi"))],
        _ => vec![Act::Send(chat("hi"))],
    })
    .await;
    let mut config = config();
    config.circuit.cooldown_ms = 200;
    let scene = Scene::with(config, &[&server]).await;
    for _ in 0..3 {
        scene.call(PLAIN).await;
    }
    tokio::time::sleep(Duration::from_millis(210)).await;

    let played: Vec<Played> = futures_util::future::join_all((0..8).map(|_| scene.call(PLAIN))).await;

    let answered = played.iter().filter(|played| played.code().is_none()).count();
    assert_eq!((answered, server.calls()), (1, 4));
    assert_eq!(scene.call(PLAIN).await.code(), None);
    let states: Vec<CircuitState> = scene.changes.lock().iter().map(|changed| changed.to).collect();
    assert_eq!(
        states,
        [CircuitState::Open, CircuitState::HalfOpen, CircuitState::Closed]
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::always(vec![Act::Send(chat("stolen"))]).await;
    let location = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}/v1/chat/completions\r\ncontent-length: 0\r\n\r\n",
        elsewhere.url()
    );
    let server = Server::always(vec![Act::Send(location.into_bytes())]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(played.code(), Some("upstream_error"));
    assert_eq!(elsewhere.calls(), 0);
}

#[tokio::test]
async fn a_pin_is_the_only_one_asked_and_an_unknown_one_is_an_error() {
    let first = Server::always(vec![Act::Send(chat("first"))]).await;
    let second = Server::always(refusing("500 Internal Server Error", "{}")).await;
    let scene = Scene::over(&[&first, &second]).await;
    let mut pinned = scene.offer(PLAIN);
    pinned.offer.pin = Some("provider-of-e2".into());
    let mut unknown = scene.offer(PLAIN);
    unknown.offer.pin = Some("nobody".into());

    assert_eq!(scene.play(pinned).await.code(), Some("upstream_error"));
    assert_eq!(scene.play(unknown).await.code(), Some("pin_not_found"));

    assert_eq!((first.calls(), second.calls()), (0, 1));
}

#[tokio::test]
async fn when_every_endpoint_failed_the_callers_own_retry_is_discouraged() {
    let first = Server::always(refusing("500 Internal Server Error", "{}")).await;
    let second = Server::always(refusing("503 Service Unavailable", "{}")).await;
    let scene = Scene::over(&[&first, &second]).await;

    let played = scene.call(STREAM).await;

    let failure = played.end().report.failure.clone().expect("a failure");
    assert!(failure.exhausted);
    assert_eq!(failure.status, 502);
    assert_eq!(played.statuses(), [Some(500), Some(503)]);
}

#[tokio::test]
async fn a_caller_who_leaves_closes_a_silent_upstream_at_once() {
    for request in [PLAIN, STREAM] {
        let server = Server::always(vec![Act::Hang]).await;
        let scene = Scene::over(&[&server]).await;
        let mut session = scene.router.dispatch(scene.offer(request));
        let silent = tokio::time::timeout(Duration::from_millis(100), frame(session.as_mut())).await;
        assert!(silent.is_err());

        session.cancel();
        let last = tokio::time::timeout(GIVEN_UP, frame(session.as_mut()))
            .await
            .expect("a report");

        let Frame::End(end) = last else {
            panic!("the report is next");
        };
        assert_eq!(end.report.outcome, Outcome::ClientGone);
        assert_eq!(end.report.attempts.len(), 1);
        assert!(!end.report.delivered.content);
        until(|| server.closed() == 1).await;
        assert!(scene.changes.lock().is_empty());
    }
}

#[tokio::test]
async fn a_session_that_is_interrupted_mid_stream_reports_a_timeout_with_what_was_delivered() {
    let body = chunk(r#"{"content":"four"}"#, "null");
    let server = Server::always(vec![Act::Send(events(&body)), Act::Hang]).await;
    let scene = Scene::over(&[&server]).await;
    let mut session = scene.router.dispatch(scene.offer(STREAM));
    let mut played = Played::default();
    played.take(frame(session.as_mut()).await);
    played.take(frame(session.as_mut()).await);

    session.interrupt();
    played.take(frame(session.as_mut()).await);

    let report = &played.end().report;
    assert_eq!(report.outcome, Outcome::Timeout);
    assert_eq!(played.code(), Some("stream_interrupted"));
    assert_eq!(report.delivered.output_bytes, 4);
    assert_eq!(played.served(), Some("e1"));
    until(|| server.closed() == 1).await;
}

#[tokio::test]
async fn a_dropped_session_closes_its_upstream_and_frees_the_probe() {
    let server = Server::start(|call| match call {
        0..3 => refusing("500 Internal Server Error", "{}"),
        3 => vec![Act::Hang],
        _ => vec![Act::Send(chat("hi"))],
    })
    .await;
    let mut config = config();
    config.circuit.cooldown_ms = 100;
    let scene = Scene::with(config, &[&server]).await;
    for _ in 0..3 {
        scene.call(PLAIN).await;
    }
    tokio::time::sleep(Duration::from_millis(110)).await;

    let mut session = scene.router.dispatch(scene.offer(PLAIN));
    let probing = tokio::time::timeout(Duration::from_millis(20), frame(session.as_mut())).await;
    assert!(probing.is_err());
    drop(session);

    until(|| server.closed() >= 1).await;
    assert_eq!(scene.call(PLAIN).await.code(), None);
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() {
    let server = Server::always(vec![Act::Send(chat("hi"))]).await;
    let scene = Scene::over(&[&server]).await;

    let session = scene.router.dispatch(scene.offer(PLAIN));
    tokio::time::sleep(Duration::from_millis(20)).await;

    assert_eq!(server.connections(), 0);
    drop(session);
}

#[tokio::test]
async fn backends_of_one_endpoint_share_its_calls_and_stand_in_for_each_other() {
    let servers = [
        Arc::new(Server::always(vec![Act::Send(chat("hi"))]).await),
        Arc::new(Server::always(vec![Act::Close]).await),
    ];
    let urls = [servers[0].url(), servers[1].url()];
    let endpoint = endpoint("e1", &[&urls[0], &urls[1]]);
    let mut settings = config();
    // A caller would stay with one of them.
    settings.affinity.callers = false;
    let scene = Scene::new(settings, &[endpoint], &model(vec![route("e1", 0)])).await;

    for _ in 0..40 {
        assert_eq!(scene.call(PLAIN).await.code(), None);
    }

    assert_eq!(
        servers[1].calls(),
        3,
        "its own circuit opened after three failures"
    );
    assert_eq!(servers[0].calls(), 40);
    assert_eq!(scene.changes.lock()[0].backend.as_str(), "e1#1");
}

#[tokio::test]
async fn an_upstream_that_accepts_and_never_answers_times_out_and_the_fallback_serves() {
    let silent = Server::always(vec![Act::Hang]).await;
    let good = Server::always(vec![Act::Send(chat("hi"))]).await;
    let mut config = config();
    config.clocks.request = Some(Duration::from_millis(50));
    let scene = Scene::with(config, &[&silent, &good]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(played.code(), None);
    assert_eq!(played.end().report.attempts[0].outcome, Outcome::Timeout);
    until(|| silent.closed() == 1).await;
}

#[tokio::test]
async fn a_caller_who_leaves_the_queue_of_a_credential_takes_no_slot_with_him() {
    let server = Server::start(|call| match call {
        0 => vec![Act::Wait(Duration::from_millis(300)), Act::Send(chat("first"))],
        _ => vec![Act::Send(chat("hi"))],
    })
    .await;
    let mut settings = config();
    settings.concurrency = Some(Concurrency {
        initial: 1,
        max: 1,
        local: true,
        ..Concurrency::default()
    });
    let scene = Scene::with(settings, &[&server]).await;
    let mut holder = scene.router.dispatch(scene.offer(PLAIN));
    let mut waiter = scene.router.dispatch(scene.offer(PLAIN));
    for session in [&mut holder, &mut waiter] {
        let silent = tokio::time::timeout(Duration::from_millis(50), frame(session.as_mut())).await;
        assert!(silent.is_err());
    }

    waiter.cancel();
    let Frame::End(left) = frame(waiter.as_mut()).await else {
        panic!("the report is next");
    };
    let Frame::End(whole) = frame(holder.as_mut()).await else {
        panic!("the answer is next");
    };

    assert_eq!(left.report.outcome, Outcome::ClientGone);
    assert_eq!(
        (left.report.attempts.len(), left.report.served.is_none()),
        (0, true)
    );
    assert_eq!(whole.report.outcome, Outcome::Ok);
    for _ in 0..3 {
        assert_eq!(scene.call(PLAIN).await.end().report.outcome, Outcome::Ok);
    }
    assert_eq!(server.calls(), 4);
}

#[tokio::test]
async fn operators_are_told_of_a_refused_credential_and_of_its_return() {
    let server = Server::start(|call| match call {
        0 | 1 => refusing("403 Forbidden", "{}"),
        _ => vec![Act::Send(chat("hi"))],
    })
    .await;
    let mut endpoint = endpoint("e1", &[&server.url()]);
    endpoint.credentials = vec![CredentialRef("k1".to_owned())];
    let scene = Scene::new(config(), &[endpoint], &model(vec![route("e1", 0)])).await;

    for _ in 0..4 {
        scene.call(PLAIN).await;
    }

    let told: Vec<(String, bool, Option<u16>)> = scene
        .alerts
        .lock()
        .iter()
        .map(|change| (change.credential.0.clone(), change.accepted, change.status))
        .collect();
    assert_eq!(
        told,
        [("k1".to_owned(), false, Some(403)), ("k1".to_owned(), true, None)]
    );
}
