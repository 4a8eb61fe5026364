//! Gateways without routers of their own: requests travel over the bus to routers that may die, and back to gateways
//! that may.

use std::time::Duration;

use harness::{Behaviour, End, Plan, Scene, chat, chat_streamed};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How long routers may run on for a gateway that is dead.
const CANCEL_MAX: Duration = Duration::from_secs(3);
/// Streams at once over an interrupted bus.
const STREAMS: usize = 50;

/// A cluster whose routers stand apart, only the first of them running.
async fn scene() -> Scene {
    let plan = Plan {
        routers_apart: true,
        proxied: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node).await;
    let second = scene.cluster().node("router-2").stop().await;
    assert_eq!(second, Some(0));
    scene
}

async fn exchange_routers(scene: &mut Scene) {
    scene.cluster().node("router-2").restart().await;
    scene.cluster().node("router-1").kill().await;
}

#[tokio::test]
async fn calls_without_a_router_in_the_gateway_are_answered_and_booked() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("one two three").usage(9, 20));

    for _ in 0..2 {
        let plain = scene.client.post_chat(&chat("m")).await;
        let streamed = scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await;

        assert_eq!((plain.status, plain.content()), (200, "one two three".to_owned()));
        assert_eq!(streamed.whole(), "one two three");
        for id in [plain.request_id(), streamed.request_id()] {
            let row = scene.row(id).await;
            assert_eq!(
                (&row["outcome"], &row["cost_nano_usd"]),
                (&json!("ok"), &json!(178_000)),
                "{row}"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_router_that_dies_before_the_first_content_is_replaced_and_the_call_billed_once() {
    let mut scene = scene().await;
    scene.o1.script([Behaviour::hang()]);
    scene.o1.default(Behaviour::chat("from the other").usage(9, 20));
    let client = scene.client.clone();
    let mut call = JoinSet::new();
    call.spawn(async move { client.stream_chat(&chat_streamed("m")).await.collect().await });
    scene.o1.wait_calls(1).await;

    exchange_routers(&mut scene).await;

    let transcript = call.join_all().await.remove(0);
    assert_eq!(transcript.whole(), "from the other");
    let row = scene.row(transcript.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("ok"), &json!(178_000)),
        "{row}"
    );
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 2, "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn a_router_that_dies_amid_an_answer_breaks_it_visibly_and_costs_nothing() {
    let mut scene = scene().await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(400, Duration::from_millis(20)));
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(3).await;

    exchange_routers(&mut scene).await;

    let transcript = stream.collect().await;
    assert!(
        matches!(transcript.end, End::ErrorEvent(_) | End::Broken(_)),
        "{:?}",
        transcript.end
    );
    assert!(!String::from_utf8_lossy(&transcript.raw).contains("[DONE]"));
    let row = scene.row(transcript.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("upstream_cut"), &json!(0)),
        "{row}"
    );
    assert_eq!(scene.o1.calls(), 1, "nothing was sent twice");
    scene.finish().await;
}

#[tokio::test]
async fn routers_end_the_calls_of_a_dead_gateway() {
    let mut scene = scene().await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("").chunks(1_000, Duration::from_millis(20)));
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(3).await;

    scene.node.kill().await;
    let killed = Instant::now();
    scene.o1.wait_left(0).await;

    assert!(killed.elapsed() < CANCEL_MAX, "{:?}", killed.elapsed());
    let transcript = stream.collect().await;
    assert!(matches!(transcript.end, End::Broken(_)), "{:?}", transcript.end);
    scene.restart().await;
    let row = scene.row(transcript.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("lost"), &json!(0)),
        "{row}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_leaves_frees_the_upstream_behind_a_router_elsewhere() {
    let scene = scene().await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(1_000, Duration::from_millis(20)));
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(3).await;
    let id = stream.request_id().to_owned();

    let left = Instant::now();
    stream.close();
    scene.o1.wait_left(0).await;

    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    let row = scene.row(&id).await;
    assert_eq!(row["outcome"], "client_gone", "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn streams_over_a_bus_that_is_cut_for_a_second_end_whole() {
    let mut scene = scene().await;
    scene.o1.default(
        Behaviour::chat("")
            .chunks(40, Duration::from_millis(60))
            .usage(9, 40),
    );
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        let client = scene.client.clone();
        streams.spawn(async move { client.stream_chat(&chat_streamed("m")).await.collect().await });
    }
    scene.o1.wait_calls(STREAMS).await;
    sleep(Duration::from_millis(400)).await;

    let proxy = &scene.cluster().services.nats_proxy;
    proxy.cut();
    sleep(Duration::from_secs(1)).await;
    proxy.heal();

    let mut texts = Vec::new();
    for transcript in streams.join_all().await {
        texts.push(transcript.whole());
    }
    let whole = texts.iter().filter(|text| text.split(' ').count() == 40).count();
    assert_eq!(whole, STREAMS);
    scene.finish().await;
}

#[tokio::test]
async fn a_body_too_large_for_one_message_travels_in_pieces() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("one two three").usage(9, 20));
    let mut body = chat("m");
    body["messages"][0]["content"] = Value::from("x".repeat(3 << 20));

    let answer = scene.client.post_chat(&body).await;

    assert_eq!(
        (answer.status, answer.content().as_str()),
        (200, "one two three"),
        "{}",
        answer.text()
    );
    assert_eq!(scene.o1.call(0).request.json()["messages"], body["messages"]);
    scene.finish().await;
}
