//! Callers who leave, and callers who stop reading: their upstreams are closed and their waybills written.

use std::time::Duration;

use schemas::failure::FailureCode;
use schemas::money::NanoUsd;
use schemas::outcome::Outcome;
use schemas::usage::UsageSource;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::http2::Http2;
use crate::scene::{CALLER, PLAIN, STREAM, Scene, request};
use crate::script::{Step, begin, chunk};

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_pays_nothing() {
    for body in [PLAIN, STREAM] {
        let scene = Scene::new().await;
        scene.script.push(vec![Step::Hang]);
        let mut socket = scene.connect().await;
        let sent = request("POST /v1/chat/completions", CALLER, "", body);
        socket.write_all(&sent).await.expect("write");
        while scene.script.told().dispatched.is_empty() {
            tokio::task::yield_now().await;
        }

        drop(socket);

        let row = scene.rows(1).await.remove(0);
        assert_eq!((row.outcome, row.status), (Outcome::ClientGone, 499));
        assert_eq!(row.error_code, Some(FailureCode::ClientGone));
        assert_eq!(
            (row.cost_nano_usd, row.usage_source),
            (NanoUsd::ZERO, UsageSource::None)
        );
        assert_eq!(scene.script.told().canceled, 1);
        assert_eq!(scene.spool.gauges().reservations_open, 0);
    }
}

#[tokio::test]
async fn a_caller_who_leaves_a_stream_pays_what_was_delivered() {
    let scene = Scene::new().await;
    scene.script.push(vec![
        begin(),
        chunk("data: 36 bytes of an event's own wire\n\n"),
        Step::Hang,
    ]);
    let mut socket = scene.connect().await;
    let sent = request("POST /v1/chat/completions", CALLER, "", STREAM);
    socket.write_all(&sent).await.expect("write");
    let mut seen = String::new();
    while !seen.contains("own wire") {
        let mut bytes = [0; 1_024];
        let count = socket.read(&mut bytes).await.expect("read");
        seen.push_str(std::str::from_utf8(&bytes[..count]).expect("text"));
    }

    drop(socket);

    let row = scene.rows(1).await.remove(0);
    assert_eq!((row.outcome, row.status), (Outcome::ClientGone, 200));
    assert_eq!(row.usage_source, UsageSource::Estimated);
    assert!(row.output_tokens > 0 && row.cost_nano_usd > NanoUsd::ZERO);
    assert_eq!(scene.script.told().canceled, 1);
}

#[tokio::test]
async fn a_caller_who_resets_an_http2_stream_is_gone_and_his_other_requests_are_not() {
    let scene = Scene::new().await;
    scene
        .script
        .push(vec![begin(), chunk("data: {}\n\n"), Step::Hang]);
    scene.script.push(crate::script::whole("{\"second\":true}"));
    let mut caller = Http2::new(scene.connect().await).await;

    caller.post(1, CALLER, STREAM).await;
    assert_eq!(caller.data(1).await.as_deref(), Some("data: {}\n\n"));
    caller.reset(1).await;

    let row = scene.rows(1).await.remove(0);
    assert_eq!(row.outcome, Outcome::ClientGone);
    caller.post(3, CALLER, PLAIN).await;
    assert_eq!(caller.data(3).await.as_deref(), Some("{\"second\":true}"));
}

#[tokio::test]
async fn a_caller_who_takes_no_byte_is_ended() {
    const PIECE: &str =
        "data: a piece of an answer that nobody reads and that fills the sockets' buffers\n\n";
    let scene = Scene::with(|config| config.client_stall_seconds = 1).await;
    let mut steps = vec![begin()];
    let large: &'static str = Box::leak(PIECE.repeat(20_000).into_boxed_str());
    steps.extend((0..20).map(|_| chunk(large)));
    steps.push(Step::Hang);
    scene.script.push(steps);
    let mut socket = scene.connect().await;
    let sent = request("POST /v1/chat/completions", CALLER, "", STREAM);
    socket.write_all(&sent).await.expect("write");

    let row = scene.rows(1).await.remove(0);

    assert_eq!(row.outcome, Outcome::ClientGone);
    assert_eq!(scene.script.told().canceled, 1);
    drop(socket);
}

#[tokio::test]
async fn a_caller_who_waits_for_a_slow_upstream_is_not_stalled() {
    let scene = Scene::with(|config| config.client_stall_seconds = 1).await;
    let mut steps = vec![
        begin(),
        chunk("data: {}\n\n"),
        Step::Wait(Duration::from_millis(1_800)),
    ];
    steps.push(crate::script::end(
        crate::script::report(Outcome::Ok, None),
        "data: [DONE]\n\n",
        None,
    ));
    scene.script.push(steps);

    let answer = scene.chat(STREAM).await;

    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(scene.rows(1).await[0].outcome, Outcome::Ok);
}
