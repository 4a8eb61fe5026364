//! Callers who leave and come again: the call goes on without them, and is there when they are back.

use std::time::Duration;

use harness::{Behaviour, Scene, Surface, chat};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{IN_PROGRESS, OVER_MAX, after_progress, billed, is_replay, keyed};

fn slow() -> Behaviour {
    Behaviour::chat("")
        .chunks(20, Duration::from_millis(50))
        .usage(60, 40)
}

#[tokio::test]
async fn a_caller_who_leaves_amid_a_stream_gets_all_of_it_when_he_comes_again() {
    let scene = Scene::start().await;
    scene.o1.default(slow());
    for surface in Surface::ALL {
        for http2 in [false, true] {
            let client = keyed(&scene.client, &format!("{surface:?} {http2}"));
            let client = if http2 { client.http2() } else { client };
            let body = surface.ask_streamed("m");
            let calls = scene.o1.calls();
            let mut stream = client.stream(surface, &body).await;
            stream.read_content(3).await;
            let id = stream.request_id().to_owned();
            stream.close();

            let running = client.post(surface, &body).await;
            assert_eq!(running.status, 409, "{}", running.text());
            let start = Instant::now();
            let replay = loop {
                let again = client.stream(surface, &body).await.collect().await;
                if again.status == 200 {
                    break again;
                }
                assert!(start.elapsed() < OVER_MAX, "it still runs");
                sleep(Duration::from_millis(200)).await;
            };

            assert_eq!(replay.headers["x-idempotent-replay"], "true");
            assert_eq!(replay.told().text.split_whitespace().count(), 20, "{surface:?}");
            assert_eq!(scene.o1.calls(), calls + 1);
            let row = scene.row(&id).await;
            let told = (
                &row["outcome"],
                &row["status"],
                &row["cost_nano_usd"],
                &row["idempotency"],
            );
            assert_eq!(
                told,
                (&json!("ok"), &json!(200), &json!(440_000), &json!("first")),
                "{row}"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_gives_up_before_anything_came_is_answered_later_and_billed_once() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat("late")
            .usage(60, 40)
            .first_byte_delay(Duration::from_secs(2)),
    );
    for streamed in [false, true] {
        let client = keyed(&scene.client, &format!("k-{streamed}"));
        let mut body = chat("m");
        body["stream"] = json!(streamed);
        let calls = scene.o1.calls();
        client.leave_chat_after(&body, Duration::from_millis(300)).await;

        for _ in 0..3 {
            let running = client.post_chat(&body).await;
            assert_eq!(
                (running.status, running.error_code().as_str()),
                (409, IN_PROGRESS),
                "{}",
                running.text()
            );
        }
        let replay = after_progress(&client, &body).await;

        assert!(is_replay(&replay), "{}", replay.text());
        assert!(replay.text().contains("late"), "{}", replay.text());
        assert_eq!(scene.o1.calls(), calls + 1);
    }
    let (cost, rows) = billed(&scene, 4).await;
    assert_eq!((cost, rows.len()), (880_000, 2), "{rows:?}");
    scene.finish().await;
}

#[tokio::test]
async fn a_call_without_a_key_still_ends_with_its_caller() {
    let scene = Scene::start().await;
    scene.o1.default(slow());

    let mut stream = scene.client.stream_chat(&harness::chat_streamed("m")).await;
    stream.read_content(3).await;
    let id = stream.request_id().to_owned();
    stream.close();

    let row = scene.row(&id).await;
    assert_eq!(row["outcome"], "client_gone", "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn a_drained_node_hears_out_what_its_caller_left() {
    let mut scene = Scene::start().await;
    scene.pin();
    scene.o1.default(slow());
    let client = keyed(&scene.client, "k-1");
    let body = harness::chat_streamed("m");
    let mut stream = client.stream_chat(&body).await;
    stream.read_content(3).await;
    let id = stream.request_id().to_owned();
    stream.close();

    assert_eq!(scene.node.stop().await, Some(0));
    scene.restart().await;
    let replay = keyed(&scene.client, "k-1")
        .stream_chat(&body)
        .await
        .collect()
        .await;

    assert_eq!(replay.status, 200, "{}", String::from_utf8_lossy(&replay.raw));
    assert_eq!(replay.headers["x-idempotent-replay"], "true");
    assert_eq!(scene.o1.calls(), 1);
    let row = scene.row(&id).await;
    assert_eq!(row["cost_nano_usd"], 440_000, "{row}");
    scene.finish().await;
}
