//! Answers, whole and streamed, and the waybills they leave.

use std::time::Duration;

use schemas::failure::{Failure, FailureCode};
use schemas::money::NanoUsd;
use schemas::outcome::Outcome;
use schemas::usage::UsageSource;

use crate::scene::{CALLER, OPERATOR, PLAIN, STREAM, Scene, request};
use crate::script::{Step, begin, chunk, end, failed, report, whole};

#[tokio::test]
async fn an_unstreamed_answer_comes_whole_and_its_waybill_is_there() {
    let scene = Scene::new().await;
    scene.script.push(whole(r#"{"id":"x"}"#));

    let answer = scene.chat(PLAIN).await;

    assert_eq!((answer.status, &*answer.body), (200, r#"{"id":"x"}"#));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let row = scene.rows(1).await.remove(0);
    assert_eq!(answer.header("x-request-id"), Some(&*row.request_id.to_string()));
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    assert_eq!(answer.header("x-waybill-config"), Some(&*row.config_revision));
    assert_eq!((row.outcome, row.status, row.stream), (Outcome::Ok, 200, false));
    assert_eq!(
        (row.cost_nano_usd, row.usage_source),
        (NanoUsd(178_000), UsageSource::Upstream)
    );
    assert_eq!(
        (row.tenant.as_str(), row.key_id.as_str()),
        ("acme", "acme.caller")
    );
}

#[tokio::test]
async fn an_answer_and_its_row_name_the_revision_that_the_call_was_admitted_under() {
    let scene = Scene::new().await;
    let mut steps = whole(r#"{"id":"x"}"#);
    steps.insert(0, Step::Wait(Duration::from_millis(300)));
    scene.script.push(steps);
    let revision = |answer: &crate::scene::Answer| {
        let text = answer.header("x-waybill-config").expect("a revision");
        text.parse::<u64>().expect("a number")
    };
    let before = revision(&scene.call("GET /v1/models", CALLER, "").await);

    let changed = async {
        while scene.script.told().dispatched.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        scene
            .call("POST /api/v1/tenants", OPERATOR, r#"{"id": "later"}"#)
            .await
    };
    let (answer, changed) = tokio::join!(scene.chat(PLAIN), changed);

    assert_eq!((answer.status, changed.status), (200, 201));
    assert!(revision(&changed) > before);
    assert_eq!(revision(&answer), before);
    let row = scene.rows(1).await.remove(0);
    assert_eq!(
        (&*row.config_revision, row.price_version.revision()),
        (&*before.to_string(), &*before.to_string())
    );
}

#[tokio::test]
async fn a_streamed_answer_ends_with_the_mark_and_may_not_be_buffered() {
    let scene = Scene::new().await;
    scene.script.push(vec![
        begin(),
        chunk("data: {\"a\":1}\n\n"),
        chunk("data: {\"a\":2}\n\n"),
        end(report(Outcome::Ok, None), "data: [DONE]\n\n", None),
    ]);

    let answer = scene.chat(STREAM).await;

    assert_eq!(
        answer.body,
        "data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: [DONE]\n\n"
    );
    assert!(answer.complete);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(scene.rows(1).await[0].outcome, Outcome::Ok);
}

#[tokio::test]
async fn the_router_is_offered_what_the_caller_sent_and_the_model_as_he_wrote_it() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    let body = PLAIN.replace("\"m\"", "\"m-latest\"");

    let answer = scene.chat(&body).await;

    assert_eq!(answer.status, 200);
    let mut told = scene.script.told();
    let dispatch = told.dispatched.remove(0);
    assert_eq!(dispatch.body, body.as_bytes());
    assert_eq!(
        (dispatch.offer.model.as_str(), &*dispatch.offer.public_model),
        ("m", "m-latest")
    );
    assert_eq!(dispatch.offer.candidates[0].as_str(), "m:o1");
    assert_eq!(dispatch.offer.attempts_max, 4);
    assert_eq!(dispatch.offer.pin, None);
}

#[tokio::test]
async fn what_the_caller_says_of_himself_is_kept_and_a_pin_only_of_an_operator() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));
    scene.script.push(whole("{}"));
    let headers = "x-request-id: mine\r\nx-end-user: bob\r\nx-session-id: s1\r\nx-route-pin: o2\r\nconnection: close\r\n";

    scene
        .raw(&request("POST /v1/chat/completions", CALLER, headers, PLAIN))
        .await;
    scene
        .raw(&request("POST /v1/chat/completions", OPERATOR, headers, PLAIN))
        .await;

    let rows = scene.rows(2).await;
    assert_eq!(rows[0].client_request_id.as_deref(), Some("mine"));
    assert_eq!(
        (rows[0].end_user.as_deref(), rows[0].session_id.as_deref()),
        (Some("bob"), Some("s1"))
    );
    let told = scene.script.told();
    let pins: Vec<_> = told
        .dispatched
        .iter()
        .map(|dispatch| dispatch.offer.pin.as_deref())
        .collect();
    assert_eq!(pins, [None, Some("o2")]);
}

#[tokio::test]
async fn a_failure_before_content_keeps_its_status_streamed_or_not() {
    let scene = Scene::new().await;
    let mut failure =
        Failure::new(FailureCode::UpstreamRateLimited, "the upstream limits its rate").retry_after(7);
    failure.exhausted = true;
    scene.script.push(failed(failure.clone()));
    scene.script.push(failed(failure));

    for body in [PLAIN, STREAM] {
        let answer = scene.chat(body).await;

        assert_eq!((answer.status, &*answer.code()), (429, "upstream_rate_limited"));
        assert_eq!(answer.header("retry-after"), Some("7"));
        assert_eq!(answer.header("x-should-retry"), None);
        assert_eq!(
            answer.json()["error"]["request_id"],
            answer.header("x-request-id").expect("an id")
        );
    }
    let rows = scene.rows(2).await;
    assert!(
        rows.iter()
            .all(|row| (row.outcome, row.status) == (Outcome::UpstreamError, 429))
    );
    assert!(rows.iter().all(|row| row.cost_nano_usd == NanoUsd::ZERO));
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event_and_without_the_mark_and_its_connection_goes_on() {
    let scene = Scene::new().await;
    let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off");
    let mut broken = report(Outcome::UpstreamCut, Some(failure));
    broken.usage = None;
    scene.script.push(vec![
        begin(),
        chunk("data: {}\n\n"),
        end(broken, "data: [DONE]\n\n", None),
    ]);
    scene.script.push(whole("{}"));
    let mut socket = scene.connect().await;

    let (answer, next) = {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        socket
            .write_all(&request("POST /v1/chat/completions", CALLER, "", STREAM))
            .await
            .expect("write");
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n0\r\n\r\n") {
            let count = socket.read_buf(&mut bytes).await.expect("more");
            assert_ne!(count, 0, "closed: {}", String::from_utf8_lossy(&bytes));
        }
        let last = request(
            "POST /v1/chat/completions",
            CALLER,
            "connection: close\r\n",
            PLAIN,
        );
        socket.write_all(&last).await.expect("write");
        let mut next = String::new();
        socket.read_to_string(&mut next).await.expect("an end");
        (String::from_utf8(bytes).expect("text"), next)
    };

    assert!(next.starts_with("HTTP/1.1 200 OK\r\n"), "{next}");
    assert!(
        answer.contains("data: {\"error\":{\"message\":\"the answer broke off\""),
        "{answer}"
    );
    assert!(!answer.contains("[DONE]"));
    let row = scene.rows(2).await.remove(0);
    assert_eq!((row.outcome, row.status), (Outcome::UpstreamCut, 200));
    assert_eq!(row.error_code, Some(FailureCode::StreamInterrupted));
    assert_eq!(row.cost_nano_usd, NanoUsd::ZERO);
}

#[tokio::test]
async fn a_silent_stream_gets_comments_and_a_late_failure_an_error_event() {
    let scene = Scene::with(|config| config.keepalive_seconds = 1).await;
    let failure = Failure::new(FailureCode::UpstreamTimeout, "the upstream was too slow");
    let mut steps = vec![Step::Wait(Duration::from_millis(1_300))];
    steps.extend(failed(failure));
    scene.script.push(steps);

    let answer = scene.chat(STREAM).await;

    assert_eq!(answer.status, 200);
    assert!(
        answer.body.starts_with(": keepalive\n\ndata: {\"error\""),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("[DONE]"));
    let row = scene.rows(1).await.remove(0);
    assert_eq!(
        (row.status, row.error_code),
        (200, Some(FailureCode::UpstreamTimeout))
    );
}

#[tokio::test]
async fn a_request_open_for_more_than_a_second_is_told_to_the_log_first() {
    let scene = Scene::new().await;
    let mut slow = vec![Step::Wait(Duration::from_millis(1_400))];
    slow.extend(whole("{}"));
    scene.script.push(slow);
    scene.script.push(whole("{}"));

    scene.chat(PLAIN).await;
    scene.chat(PLAIN).await;

    let rows = scene.rows(2).await;
    let told: Vec<schemas::event::request::RequestAccepted> =
        scene.events(schemas::subject::REQUEST_ACCEPTED);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].request_id, rows[0].request_id);
}

#[tokio::test]
async fn a_router_that_panics_costs_one_answer_and_its_waybill_says_so() {
    let scene = Scene::new().await;
    scene.script.push(vec![Step::Panic]);
    scene.script.push(whole("{}"));

    let answer = scene.chat(PLAIN).await;

    assert_eq!((answer.status, &*answer.code()), (500, "internal"));
    assert_eq!(scene.chat(PLAIN).await.status, 200);
    let rows = scene.rows(2).await;
    let broken = rows.iter().find(|row| row.outcome == Outcome::UpstreamError);
    let told = broken.map(|row| (row.status, row.error_code, row.cost_nano_usd));
    assert_eq!(told, Some((500, Some(FailureCode::Internal), NanoUsd::ZERO)));
    assert_eq!(scene.spool.gauges().reservations_open, 0);
}
