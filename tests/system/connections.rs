//! Connections: those to upstreams that die while they idle, many at once, and callers who stop reading.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::{Behaviour, End, Scene, chat, chat_streamed};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Streams at once.
const STREAMS: usize = 450;

#[tokio::test]
async fn calls_that_race_with_an_upstreams_idle_close_all_succeed_and_run_once() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("answer {call}").idle_close(Duration::from_millis(50)));
    let mut callers = JoinSet::new();
    for caller in 0..4_u64 {
        let client = scene.client.clone();
        callers.spawn(async move {
            let mut contents = Vec::new();
            for call in 0..50_u64 {
                sleep(Duration::from_millis(45 + (call * 7 + caller * 3) % 11)).await;
                let answer = client.post_chat(&chat("m")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                contents.push(answer.content());
            }
            contents
        });
    }

    let contents: Vec<String> = callers.join_all().await.into_iter().flatten().collect();

    let different: BTreeSet<&String> = contents.iter().collect();
    assert_eq!(
        (contents.len(), different.len()),
        (200, 200),
        "an answer was given twice"
    );
    assert_eq!(scene.o1.calls(), 200, "the upstream ran a call twice");
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_request_on_a_reused_connection_that_is_reset_is_sent_again_once() {
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
