//! Calls that end badly, one test for each way: what the upstream told, what was counted here, what the caller got, and
//! by which of them he pays stand in the event of the row, and nobody pays for what he did not get.

use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, End, OPERATOR_KEY, Plan, Scene, Then, chat, chat_streamed, settings};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Between two pieces of a slow answer.
const PACE: Duration = Duration::from_millis(20);
/// Nano-dollars of a token of the prompt, and of one of the answer.
const INPUT: u64 = 2_000;
const OUTPUT: u64 = 8_000;

/// The row of a request, and the figures in its event.
async fn told(scene: &Scene, request_id: &str) -> (Value, Value) {
    let row = scene.row(request_id).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let shown = operator.get(&format!("/api/v1/logs/{request_id}")).await.json();
    (row, shown["event"]["data"]["metering"].clone())
}

/// Nobody pays, and the figures say so: so much was delivered, and so much was told.
fn assert_free((row, metering): &(Value, Value), outcome: &str, delivered: &str, reported: &Value) {
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!(outcome), &json!(0)),
        "{row}"
    );
    assert_eq!(
        (
            &metering["charge"],
            &metering["delivered_bytes"],
            &metering["reported"]
        ),
        (&json!("nothing"), &json!(delivered.len()), reported),
        "{metering}"
    );
    let counted = metering["counted_output_tokens"].as_u64().expect("a number");
    assert_eq!(counted == 0, delivered.is_empty(), "{metering}");
    assert!(
        metering["counted_input_tokens"]
            .as_u64()
            .is_some_and(|tokens| tokens > 0),
        "{metering}"
    );
}

/// The caller pays what was counted here, as nothing was told.
fn assert_counted((row, metering): &(Value, Value), outcome: &str) {
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let (input, output) = (
        number(metering, "counted_input_tokens"),
        number(metering, "counted_output_tokens"),
    );
    assert_eq!(
        (
            &row["outcome"],
            &row["usage_source"],
            &metering["charge"],
            &metering["reported"]
        ),
        (
            &json!(outcome),
            &json!("estimated"),
            &json!("usage"),
            &Value::Null
        ),
        "{row} {metering}"
    );
    assert_eq!(
        (number(row, "input_tokens"), number(row, "output_tokens")),
        (input, output),
        "{row} {metering}"
    );
    assert!(
        output > 0 && number(metering, "delivered_bytes") >= output,
        "{metering}"
    );
    assert_eq!(
        number(row, "cost_nano_usd"),
        input * INPUT + output * OUTPUT,
        "{row}"
    );
}

/// One leg, so that nothing hides what becomes of it.
async fn scene(env: &[(&str, &str)]) -> Scene {
    Scene::start_with(|node| {
        let node = node.setting("attempts_max", 1);
        env.iter().fold(node, |node, (name, value)| node.env(name, value))
    })
    .await
}

/// A stream without end.
fn endless() -> Behaviour {
    Behaviour::chat("").chunks(1_000, PACE)
}

#[tokio::test]
async fn abort_1_a_caller_who_leaves_before_the_first_byte_pays_nothing() {
    let scene = scene(&[]).await;
    scene.o1.default(Behaviour::hang());

    scene
        .client
        .leave_chat_after(&chat_streamed("m"), Duration::from_millis(300))
        .await;

    let row = scene.node.wait_rows("", 1).await.remove(0);
    let told = told(&scene, row["request_id"].as_str().expect("an id")).await;
    assert_free(&told, "client_gone", "", &Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn abort_2_a_caller_who_leaves_after_the_first_byte_pays_what_he_got() {
    let scene = scene(&[]).await;
    scene.o1.default(endless());
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    let id = stream.request_id().to_owned();
    stream.read_content(5).await;

    stream.close();

    assert_counted(&told(&scene, &id).await, "client_gone");
    scene.finish().await;
}

#[tokio::test]
async fn abort_3_an_upstream_that_falls_silent_costs_the_caller_nothing() {
    let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", "0.5")]).await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(8, PACE).stop_after(3, Then::Hang));

    let transcript = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert!(
        matches!(transcript.end, End::ErrorEvent(_)),
        "{:?}",
        transcript.end
    );
    let text = transcript.text();
    assert!(!text.is_empty());
    assert_free(
        &told(&scene, transcript.request_id()).await,
        "timeout",
        &text,
        &Value::Null,
    );
    scene.finish().await;
}

#[tokio::test]
async fn abort_4_an_upstream_that_resets_costs_the_caller_nothing() {
    let scene = scene(&[]).await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(8, PACE).stop_after(3, Then::Reset));

    let transcript = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    let told = told(&scene, transcript.request_id()).await;
    assert_free(&told, "upstream_cut", &transcript.text(), &Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn abort_5_an_error_inside_a_good_status_costs_the_caller_nothing_whatever_was_told_before() {
    let scene = scene(&[]).await;
    let error = json!({"error": {"message": "no more", "code": 500}});
    scene.o1.default(
        Behaviour::chat("")
            .chunks(8, PACE)
            .usage_every_chunk()
            .usage(9, 8)
            .error_after(3, error),
    );

    let transcript = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert!(
        matches!(transcript.end, End::ErrorEvent(_)),
        "{:?}",
        transcript.end
    );
    let (row, metering) = told(&scene, transcript.request_id()).await;
    assert_eq!(row["cost_nano_usd"], 0, "{row}");
    assert_eq!(metering["charge"], "nothing", "{metering}");
    assert_eq!(metering["delivered_bytes"], transcript.text().len(), "{metering}");
    assert_eq!(metering["reported"]["input_tokens"], 9, "{metering}");
    scene.finish().await;
}

#[tokio::test]
async fn abort_6_where_no_usage_is_told_the_caller_pays_what_is_counted() {
    let scene = scene(&[]).await;
    scene
        .o1
        .default(Behaviour::chat("one two three four five").no_usage());

    for streamed in [false, true] {
        let id = if streamed {
            let transcript = scene
                .client
                .stream_chat(&chat_streamed("m"))
                .await
                .collect()
                .await;
            transcript.request_id().to_owned()
        } else {
            scene.client.post_chat(&chat("m")).await.request_id().to_owned()
        };
        let told = told(&scene, &id).await;
        assert_counted(&told, "ok");
        assert_eq!(
            told.1["delivered_bytes"],
            "one two three four five".len(),
            "{}",
            told.1
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn abort_7_a_call_that_takes_too_long_costs_nothing() {
    let scene = scene(&[("REQUEST_TIMEOUT_SECONDS", "0.5")]).await;
    scene.o1.default(Behaviour::hang());

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_free(
        &told(&scene, answer.request_id()).await,
        "timeout",
        "",
        &Value::Null,
    );
    scene.finish().await;
}

#[tokio::test]
async fn abort_8_of_a_call_whose_node_is_killed_nobody_knows_figures_and_nobody_pays() {
    let mut scene = scene(&[]).await;
    scene.pin();
    scene.o1.default(endless());
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    let id = stream.request_id().to_owned();
    stream.read_content(3).await;

    scene.node.kill().await;
    drop(stream);
    scene.node.restart().await;
    scene.turn_client();

    let (row, metering) = told(&scene, &id).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"], &metering),
        (&json!("lost"), &json!(0), &Value::Null),
        "{row}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn abort_9_a_router_that_is_killed_amid_an_answer_costs_the_caller_nothing() {
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node.setting("attempts_max", 1)).await;
    scene.o1.default(endless());
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(3).await;

    for name in ["router-1", "router-2"] {
        scene.cluster().node(name).kill().await;
    }
    let transcript = stream.collect().await;
    for name in ["router-1", "router-2"] {
        scene.cluster().node(name).restart().await;
    }

    let told = told(&scene, transcript.request_id()).await;
    assert_free(&told, "upstream_cut", &transcript.text(), &Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn abort_10_a_stream_that_is_cut_when_a_node_ends_costs_nothing() {
    let mut scene =
        Scene::start_with(|node| node.setting("attempts_max", 1).setting("drain_seconds", 1)).await;
    scene.pin();
    scene.o1.default(endless());
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(3).await;

    scene.node.terminate().await;
    let transcript = stream.collect().await;
    scene.node.ended().await;
    scene.node.restart().await;
    scene.turn_client();

    assert!(
        matches!(transcript.end, End::ErrorEvent(_) | End::Broken(_)),
        "{:?}",
        transcript.end
    );
    let (row, metering) = told(&scene, transcript.request_id()).await;
    assert_eq!(row["cost_nano_usd"], 0, "{row}");
    if row["outcome"] != "lost" {
        assert_eq!(metering["charge"], "nothing", "{metering}");
        assert!(
            metering["delivered_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0),
            "{metering}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn abort_11_a_duplicate_is_answered_from_the_first_and_pays_nothing() {
    let scene = scene(&[]).await;
    scene.o1.default(Behaviour::chat("hello").usage(9, 8));
    let client = scene.client.with_header("idempotency-key", "once");
    let first = client.post_chat(&chat("m")).await;

    let second = client.post_chat(&chat("m")).await;

    assert_eq!(second.header("x-idempotent-replay"), "true");
    let (row, metering) = told(&scene, second.request_id()).await;
    assert_eq!(
        (&row["idempotency"], &row["cost_nano_usd"], &metering),
        (&json!("replay"), &json!(0), &Value::Null),
        "{row}"
    );
    let (row, metering) = told(&scene, first.request_id()).await;
    assert_eq!(row["cost_nano_usd"], 9 * INPUT + 8 * OUTPUT, "{row}");
    assert_eq!(metering, Value::Null, "what a good answer told is in its row");
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn abort_12_a_call_that_is_refused_after_it_reserved_gives_all_of_it_back() {
    let mut keys = settings()["keys"].clone();
    for key in keys.as_array_mut().into_iter().flatten() {
        if key["key"] == CALLER_KEY {
            key["limits"] = json!({"daily_usd": "1", "concurrency": 1});
            key["output_default_max"] = json!(16);
        }
    }
    let scene = Scene::start_with(|node| node.setting("attempts_max", 1).setting("keys", keys)).await;
    scene
        .o1
        .default(Behaviour::error(400, "the prompt is not to our liking"));

    for _ in 0..3 {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        let (row, metering) = told(&scene, answer.request_id()).await;
        assert_eq!(row["cost_nano_usd"], 0, "{row}");
        assert_eq!(
            (&metering["charge"], &metering["delivered_bytes"]),
            (&json!("nothing"), &json!(0)),
            "{metering}"
        );
    }

    let balance = scene.client.get("/anthropic/user/balance").await.json();
    assert_eq!(
        balance["spent_today_usd"].as_f64().or(balance["spent_today_usd"]
            .as_str()
            .and_then(|text| text.parse().ok())),
        Some(0.0),
        "{balance}"
    );
    scene.o1.default(Behaviour::chat("hello").usage(9, 8));
    assert_eq!(
        scene.client.post_chat(&chat("m")).await.status,
        200,
        "its slot is free"
    );
    scene.finish().await;
}

#[tokio::test]
async fn abort_13_an_empty_answer_says_what_was_told_of_it() {
    let scene = scene(&[]).await;
    scene.o1.default(Behaviour::chat("").no_usage());

    let answer = scene.client.post_chat(&chat("m")).await;
    sleep(PACE).await;

    let (row, metering) = told(&scene, answer.request_id()).await;
    assert_eq!(
        (
            &metering["delivered_bytes"],
            &metering["counted_output_tokens"],
            &metering["reported"]
        ),
        (&json!(0), &json!(0), &Value::Null),
        "{row} {metering}"
    );
    assert_eq!(row["output_tokens"], 0, "{row}");
    scene.finish().await;
}
