//! Connections: those to upstreams that die while they idle, many at once, and callers who stop reading.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Answer, Behaviour, End, Http2Upstream, Model, PRICE, Scene, Transcript, Upstream, chat, chat_streamed,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::retries::tireless;
use crate::rows::{assert_free, endpoint, tried};

/// Callers who race with an idle close, and how often.
const RACING_CALLERS: usize = 20;
const RACING_ROUNDS: usize = 250;
const RACING_CALLS: usize = RACING_CALLERS * RACING_ROUNDS;
/// How long a caller may wait for an upstream over HTTP/2 that has gone silent.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// What an upstream over HTTP/2 says.
const WORDS: &str = Http2Upstream::WORDS;
/// Streams at once.
const STREAMS: usize = 450;

#[tokio::test]
async fn bug_case_35_calls_that_race_with_an_upstreams_idle_close_all_succeed_and_run_once() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("answer {call}").idle_close(Duration::from_millis(50)));
    // All call at about the same time, so that each has a connection that idles until the next round.
    let body = chat("m");
    let call = async |gap_millis: usize| {
        sleep(Duration::from_millis(gap_millis as u64)).await;
        let answer = scene.client.post_chat(&body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.content()
    };
    let mut contents = Vec::new();
    for round in 0..RACING_ROUNDS {
        let gaps = (0..RACING_CALLERS).map(|caller| 45 + (round * 7 + caller * 3) % 11);
        contents.extend(join_all(gaps.map(&call)).await);
    }

    let different: BTreeSet<&String> = contents.iter().collect();
    assert_eq!(
        (contents.len(), different.len()),
        (RACING_CALLS, RACING_CALLS),
        "an answer was given twice"
    );
    assert_eq!(scene.o1.calls(), RACING_CALLS, "the upstream ran a call twice");
    assert_eq!(scene.o2.calls(), 0);
    let connections = scene.o1.accepted();
    assert!(
        connections > RACING_CALLS / 20,
        "only {connections} connections: hardly any closed while it idled"
    );
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_35_a_request_on_a_reused_connection_that_is_reset_is_sent_again_once() {
    let mut scene = Scene::start().await;
    scene.pin();

    for streamed in [false, true] {
        let before = (scene.o1.calls(), scene.o1.resets());
        scene.o1.script([
            Behaviour::chat("first"),
            Behaviour::chat("second {call}").reset_on_request_if_reused(),
        ]);
        let body = if streamed { chat_streamed("m") } else { chat("m") };
        assert_eq!(scene.client.post_chat(&chat("m")).await.content(), "first");
        let second = scene.client.stream_chat(&body).await.collect().await;

        assert_eq!(second.status, 200, "{}", String::from_utf8_lossy(&second.raw));
        let word = scene.o1.call(before.0 + 1).word;
        assert!(String::from_utf8_lossy(&second.raw).contains(&word));
        assert_eq!(
            (scene.o1.calls(), scene.o1.resets()),
            (before.0 + 2, before.1 + 1)
        );
        let row = scene.row(second.request_id()).await;
        assert_eq!(
            (&row["outcome"], row["attempts"].as_array().map(Vec::len)),
            (&json!("ok"), Some(1)),
            "{row}"
        );
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_request_that_died_on_a_fresh_connection_is_not_sent_there_again() {
    let scene = Scene::start().await;

    for (number, death) in [Behaviour::reset(), Behaviour::closed()].into_iter().enumerate() {
        scene.o1.script([death.close_after_response()]);
        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!(answer.content(), format!("ok {}", scene.o2.call(number).word));
        assert_eq!((scene.o1.calls(), scene.o2.calls()), (number + 1, number + 1));
    }
    scene.finish().await;
}

#[tokio::test]
async fn connections_to_upstreams_are_kept_and_used_again() {
    let mut scene = Scene::start().await;
    scene.pin();

    for _ in 0..10 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }

    assert_eq!(scene.o1.accepted(), 1);
    scene.finish().await;
}

/// A scene whose models are both served over HTTP/2: `m` with the second upstream as a fallback, `alone` without.
async fn http2_scene(two: &Http2Upstream) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let leg = |model: &str| Model::new(model).leg_at(&two.url(), 0).set_leg("http2", true);
    let models = [leg("m").leg(&o2, 1), leg("alone")];
    let mut scene = Scene::start_on(o1, o2, |node| tireless(node).models(&models)).await;
    scene.pin();
    scene.price("alone", Some(PRICE));
    scene
}

/// One whole and one streamed call of a model at once.
async fn both(scene: &Scene, model: &str) -> (Answer, Transcript) {
    let (body, streamed) = (chat(model), chat_streamed(model));
    tokio::join!(scene.client.post_chat(&body), async {
        scene.client.stream_chat(&streamed).await.collect().await
    })
}

#[tokio::test]
async fn bug_case_35_calls_to_an_http2_upstream_that_goes_silent_move_on_or_fail_and_the_next_connect_anew() {
    let two = Http2Upstream::start().await;
    let scene = http2_scene(&two).await;
    assert_eq!(scene.client.post_chat(&chat("m")).await.content(), WORDS);
    let (whole, streamed) = both(&scene, "alone").await;
    assert_eq!(
        (whole.content(), streamed.whole()),
        (WORDS.to_owned(), WORDS.to_owned())
    );
    assert_eq!(two.calls(), [0, 0, 0], "one connection carries them all");

    two.silence();
    let started = Instant::now();
    let ((whole, streamed), (failed, failed_stream)) = tokio::join!(both(&scene, "m"), both(&scene, "alone"));

    let took = started.elapsed();
    assert!(took <= SILENCE_MAX, "{took:?}");
    assert_eq!(
        (two.accepted(), two.calls().len()),
        (1, 3),
        "nothing went there again"
    );
    let leg = |model: &str| format!("{model}:local-{}", two.addr().port());
    assert_eq!((whole.status, streamed.status, scene.o2.calls()), (200, 200, 2));
    let words: BTreeSet<String> = [whole.content(), streamed.whole()].into();
    let said = |number| format!("ok {}", scene.o2.call(number).word);
    assert_eq!(words, [said(0), said(1)].into());
    for id in [whole.request_id(), streamed.request_id()] {
        let row = scene.row(id).await;
        let expected = json!([
            [leg("m"), null, "upstream_error", "upstream_error"],
            [endpoint("m", &scene.o2), 200, "ok", null],
        ]);
        assert_eq!((&row["outcome"], tried(&row)), (&json!("ok"), expected), "{row}");
    }
    assert_eq!(
        (failed.status, failed.error_code().as_str()),
        (502, "upstream_error")
    );
    assert_eq!(failed_stream.status, 502);
    assert_eq!(failed_stream.error()["code"], "upstream_error");
    for id in [failed.request_id(), failed_stream.request_id()] {
        assert_free(&scene.row(id).await, "upstream_error", 502, "upstream_error");
    }

    for model in ["m", "alone"] {
        assert_eq!(scene.client.post_chat(&chat(model)).await.content(), WORDS);
    }
    assert_eq!(two.calls(), [0, 0, 0, 1, 1], "a new connection, and one for both");
    scene.finish().await;
}

#[tokio::test]
async fn an_http2_upstream_that_goes_silent_while_it_idles_is_found_before_the_next_call() {
    let two = Http2Upstream::start().await;
    let scene = http2_scene(&two).await;
    assert_eq!(scene.client.post_chat(&chat("alone")).await.content(), WORDS);

    two.silence();
    sleep(SILENCE_MAX).await;
    let answer = scene.client.post_chat(&chat("alone")).await;

    assert_eq!(answer.content(), WORDS);
    assert!(answer.took < Duration::from_secs(2), "{:?}", answer.took);
    assert_eq!(two.calls(), [0, 1]);
    scene.finish().await;
}

#[tokio::test]
async fn streams_by_the_hundred_at_once_are_all_whole() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("")
            .chunks(10, Duration::from_millis(150))
            .usage(9, 10),
    );
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let client = if number % 3 == 0 {
            scene.client.http2()
        } else {
            scene.client.clone()
        };
        streams.spawn(async move {
            client
                .stream_chat(&chat_streamed("m"))
                .await
                .collect()
                .await
                .whole()
        });
    }

    let texts = streams.join_all().await;

    assert_eq!(texts.len(), STREAMS);
    assert!(texts.iter().all(|text| text == "t1 t2 t3 t4 t5 t6 t7 t8 t9 t10"));
    assert!(
        scene.o1.open_max() > STREAMS / 2,
        "{} at once",
        scene.o1.open_max()
    );
    assert_eq!(scene.o2.calls(), 0);
    let rows = scene.node.wait_rows("outcome=ok", STREAMS).await;
    assert_eq!(rows.len(), STREAMS);
    scene.finish().await;
}

/// An answer of some megabytes that no socket buffer holds.
fn flood() -> Behaviour {
    let word = "x".repeat(16 * 1024);
    Behaviour::chat(&vec![word; 750].join(" ")).usage(9, 750)
}

#[tokio::test]
async fn a_caller_who_takes_no_byte_for_the_stall_limit_is_ended_with_his_row() {
    let scene = Scene::start_with(|node| node.setting("client_stall_seconds", 1)).await;
    scene.o1.default(flood());

    for client in [scene.client.small_buffers(), scene.client.http2().small_buffers()] {
        let number = scene.o1.calls();
        let mut stalled = client.stream_chat(&chat_streamed("m")).await;
        assert_eq!(stalled.read_content(1).await.len(), 1);
        let id = stalled.request_id().to_owned();
        let started = Instant::now();
        scene.o1.wait_left(number).await;

        assert!(
            started.elapsed() >= Duration::from_millis(900),
            "{:?}",
            started.elapsed()
        );
        assert!(
            started.elapsed() < Duration::from_secs(4),
            "{:?}",
            started.elapsed()
        );
        let row = scene.row(&id).await;
        assert_eq!(row["outcome"], "client_gone", "{row}");
        assert!(row["cost_nano_usd"].as_i64() > Some(0), "{row}");
        let sent = scene.o1.call(number).sent_bytes;
        assert!(sent < 8 << 20, "{sent} bytes were read ahead of the caller");
        drop(stalled);
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_slow_but_moving_caller_is_left_alone() {
    let scene = Scene::start_with(|node| {
        node.setting("client_stall_seconds", 1)
            .env("STREAM_IDLE_TIMEOUT_SECONDS", "1")
    })
    .await;
    let word = "x".repeat(16 * 1024);
    scene
        .o1
        .default(Behaviour::chat(&vec![word; 320].join(" ")).usage(9, 320));

    let mut slow = scene
        .client
        .small_buffers()
        .stream_chat(&chat_streamed("m"))
        .await;
    slow.read_rate(1 << 20);
    let transcript = slow.collect().await;

    assert_eq!(transcript.end, End::Done);
    assert_eq!(scene.row(transcript.request_id()).await["outcome"], "ok");
    scene.finish().await;
}
