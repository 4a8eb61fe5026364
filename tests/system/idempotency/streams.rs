//! Streams are replayed byte for byte, and are streams of their dialect.

use std::time::Duration;

use harness::{Behaviour, End, Scene, Surface};
use serde_json::{Value, json};

use super::{is_replay, keyed};

/// Every path that streams, with a body for it.
fn calls() -> Vec<(&'static str, Value)> {
    let mut calls: Vec<(&'static str, Value)> = Surface::ALL
        .into_iter()
        .map(|surface| (surface.path(), surface.ask_streamed_with_usage("m")))
        .collect();
    calls.push(("/anthropic/v1/messages", Surface::Messages.ask_streamed("m")));
    calls.push(("/completion", Surface::Completions.ask_streamed("m")));
    calls
}

fn words() -> Behaviour {
    Behaviour::chat("one two three four").usage(60, 40)
}

#[tokio::test]
async fn streams_of_all_six_surfaces_are_replayed_byte_for_byte() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(words().reasoning("hm").pace(Duration::from_millis(5)));
    for (number, (path, body)) in calls().into_iter().enumerate() {
        let client = keyed(&scene.client, &format!("k-{number}"));

        let first = client
            .post_inference(path, body.to_string())
            .await
            .expect("a stream");
        let replay = client
            .post_inference(path, body.to_string())
            .await
            .expect("a stream");

        assert_eq!((first.status, replay.status), (200, 200), "{path}");
        assert!(is_replay(&replay), "{path}: {}", replay.text());
        assert_eq!(first.text(), replay.text(), "{path}");
        for name in ["content-type", "cache-control", "x-accel-buffering"] {
            assert_eq!(first.header(name), replay.header(name), "{path}: {name}");
        }
        assert!(replay.header("content-type").starts_with("text/event-stream"));
        assert_eq!(scene.o1.calls(), number + 1);
        let row = scene.row(replay.request_id()).await;
        let told = (
            &row["idempotency"],
            &row["stream"],
            &row["outcome"],
            &row["cost_nano_usd"],
        );
        assert_eq!(
            told,
            (&json!("replay"), &json!(true), &json!("ok"), &json!(0)),
            "{row}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_replayed_stream_is_whole_in_the_eyes_of_a_strict_client() {
    let scene = Scene::start().await;
    scene.o1.default(words());
    for surface in Surface::ALL {
        let client = keyed(&scene.client, &format!("{surface:?}"));
        let body = surface.ask_streamed_with_usage("m");

        let first = client.stream(surface, &body).await.collect().await;
        let replay = client.stream(surface, &body).await.collect().await;

        assert_eq!((&first.end, &replay.end), (&End::Done, &End::Done), "{surface:?}");
        assert_eq!(replay.headers["x-idempotent-replay"], "true");
        assert_eq!(first.told(), replay.told(), "{surface:?}");
        assert_eq!(replay.text(), "one two three four", "{surface:?}");
    }
    assert_eq!(scene.o1.calls(), 4);
    scene.finish().await;
}

#[tokio::test]
async fn comments_that_kept_a_silent_stream_alive_are_no_part_of_its_replay() {
    let scene = Scene::start_with(|node| node.setting("keepalive_seconds", 1)).await;
    scene
        .o1
        .default(words().first_event_delay(Duration::from_millis(2_500)));
    for surface in [Surface::Chat, Surface::Messages] {
        let client = keyed(&scene.client, &format!("{surface:?}"));
        let body = surface.ask_streamed("m");

        let first = client.stream(surface, &body).await.collect().await;
        let replay = client.stream(surface, &body).await.collect().await;

        let first = String::from_utf8_lossy(&first.raw).into_owned();
        assert!(first.starts_with(": keepalive\n\n"), "{first}");
        let said = first.replace(": keepalive\n\n", "");
        assert_eq!(String::from_utf8_lossy(&replay.raw), said, "{surface:?}");
        assert_eq!(replay.end, End::Done);
    }
    scene.finish().await;
}
