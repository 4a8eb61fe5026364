//! Callers who leave before the end: the upstream is freed at once, and the books say who pays for what.

use std::time::Duration;

use harness::{Behaviour, Client, PROMPT_CANARY, Scene, Then};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long an upstream may stay busy after its caller left.
const FREED_MAX: Duration = Duration::from_secs(1);
/// How long a reservation may outlive its caller.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(2);

/// How long a body may be on its way, and how often a slow caller sends a piece of it.
const BODY_MAX: Duration = Duration::from_secs(2);
const DRIBBLE_EVERY: Duration = Duration::from_millis(50);

/// A prompt of more than 50 tokens by any count.
fn body(stream: bool) -> Value {
    let prompt = format!(
        "{PROMPT_CANARY} {}",
        "tell me more of it, please, and take your time. ".repeat(10)
    );
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}]})
}

/// Words of more than a token each.
fn words(count: usize) -> String {
    let words: Vec<String> = (0..count).map(|number| format!("word{number:04}")).collect();
    words.join(" ")
}

fn versions(scene: &Scene) -> [(&'static str, Client); 2] {
    [
        ("HTTP/1.1", scene.client.clone()),
        ("HTTP/2", scene.client.http2()),
    ]
}

/// Waits until the upstream of a call is free and nothing is reserved, and says how long it took.
async fn freed(scene: &Scene, call: usize, since: Instant) -> Duration {
    scene.o1.wait_left(call).await;
    let took = since.elapsed();
    while scene.metric("waybill_reservations_open").await != 0.0 {
        assert!(since.elapsed() < GIVEN_BACK_MAX, "a reservation is still open");
        sleep(Duration::from_millis(10)).await;
    }
    took
}

#[tokio::test]
async fn bug_case_7_leaving_amid_a_stream_frees_the_upstream_and_costs_what_was_delivered() {
    let scene = Scene::start().await;
    scene.o1.default(
        Behaviour::chat(&words(200))
            .pace(Duration::from_millis(20))
            .usage(50, 200),
    );

    for (call, (version, client)) in versions(&scene).into_iter().enumerate() {
        for reset in [false, true] {
            let call = 2 * call + usize::from(reset);
            let mut stream = client.stream_chat(&body(true)).await;
            assert_eq!(stream.read_content(12).await.len(), 12);
            let id = stream.request_id().to_owned();
            let left = Instant::now();
            if reset {
                stream.reset();
            } else {
                stream.close();
            }

            let took = freed(&scene, call, left).await;

            assert!(took <= FREED_MAX, "{version}: {took:?}");
            let row = scene.row(&id).await;
            assert_eq!(
                (&row["outcome"], &row["status"]),
                (&json!("client_gone"), &json!(200)),
                "{row}"
            );
            assert!(row["input_tokens"].as_i64() >= Some(50), "{row}");
            assert!(row["output_tokens"].as_i64() >= Some(12), "{row}");
            assert!(row["output_tokens"].as_i64() < Some(150), "{row}");
            assert!(row["cost_nano_usd"].as_i64() >= Some(196_000), "{row}");
            assert_eq!(row["usage_source"], "estimated", "{row}");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_an_upstream_told_of_its_usage_is_charged_when_the_caller_leaves() {
    let scene = Scene::start().await;
    let usage = |behaviour: Behaviour| behaviour.usage(50, 200).usage_every_chunk();
    scene
        .o1
        .default(usage(Behaviour::chat("").chunks(200, Duration::from_millis(20))));

    for (version, client) in versions(&scene) {
        let mut stream = client.stream_chat(&body(true)).await;
        stream.read_content(12).await;
        let id = stream.request_id().to_owned();
        stream.close();

        let row = scene.row(&id).await;
        assert_eq!(
            (&row["outcome"], &row["usage_source"]),
            (&json!("client_gone"), &json!("upstream")),
            "{version}: {row}"
        );
        assert_eq!(row["input_tokens"], 50, "{row}");
        assert!(row["output_tokens"].as_i64() >= Some(12), "{row}");
        assert!(row["cost_nano_usd"].as_i64() >= Some(196_000), "{row}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_7_leaving_after_the_last_word_but_before_the_usage_still_has_the_upstreams_figure() {
    let scene = Scene::start().await;
    let behaviour = Behaviour::chat("")
        .chunks(12, Duration::from_millis(5))
        .usage(50, 200);
    scene
        .o1
        .default(behaviour.usage_delay(Duration::from_millis(300)));

    for (version, client) in versions(&scene) {
        let mut stream = client.stream_chat(&body(true)).await;
        assert_eq!(stream.read_content(12).await.len(), 12);
        let id = stream.request_id().to_owned();
        // The finish reason is on its way, the usage comes 300 ms after it.
        sleep(Duration::from_millis(50)).await;
        stream.close();

        let row = scene.row(&id).await;
        assert_eq!(row["outcome"], "client_gone", "{version}: {row}");
        let figures = (&row["input_tokens"], &row["output_tokens"], &row["usage_source"]);
        assert_eq!(
            figures,
            (&json!(50), &json!(200), &json!("upstream")),
            "{version}: {row}"
        );
        assert_eq!(row["cost_nano_usd"], 1_700_000, "{version}: {row}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_7_leaving_a_plain_call_or_a_stream_in_silent_prefill_frees_the_upstream_and_is_free() {
    let scene = Scene::start().await;
    let long = Duration::from_secs(20);
    let silences = [
        (
            "a plain call",
            false,
            Behaviour::chat("late").first_byte_delay(long),
        ),
        (
            "a stream without a head",
            true,
            Behaviour::chat("late").first_byte_delay(long),
        ),
        (
            "a stream without an event",
            true,
            Behaviour::chat("late").first_event_delay(long),
        ),
        (
            "a stream of comments",
            true,
            Behaviour::comments_only(Then::Forever(Duration::from_millis(20))),
        ),
        ("an upstream that hangs", false, Behaviour::hang()),
    ];
    let mut rows = 0;

    for (case, streamed, behaviour) in silences {
        for (version, client) in versions(&scene) {
            let call = scene.o1.calls();
            scene.o1.script([behaviour.clone()]);
            let wait = Duration::from_millis(150);
            let sent = Instant::now();
            client.leave_chat_after(&body(streamed), wait).await;

            let took = freed(&scene, call, sent + wait).await;

            assert!(took <= FREED_MAX, "{case}, {version}: {took:?}");
            rows += 1;
            let found = scene.node.wait_rows("outcome=client_gone", rows).await;
            let row = &found[0];
            let figures = (
                &row["status"],
                &row["output_tokens"],
                &row["cost_nano_usd"],
                &row["stream"],
            );
            assert_eq!(
                figures,
                (&json!(499), &json!(0), &json!(0), &json!(streamed)),
                "{case}, {version}: {row}"
            );
        }
    }
    assert_eq!(
        scene.o2.calls(),
        0,
        "a caller who left is not worth a second attempt"
    );
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_7_leaving_in_the_moment_of_the_end_mark_leaves_exactly_one_row() {
    let scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("a b c d").usage(50, 4));
    let mut ids = Vec::new();

    for number in 0..40_u64 {
        let (_, client) = versions(&scene)[usize::from(number % 2 == 1)].clone();
        let mut stream = client.stream_chat(&body(true)).await;
        ids.push(stream.request_id().to_owned());
        stream.read_content(4).await;
        // From at once to well after the end.
        sleep(Duration::from_micros(50 * number)).await;
        stream.close();
    }

    for id in ids {
        let row = scene.row(&id).await;
        let outcome = row["outcome"].as_str().unwrap_or_default();
        assert!(["ok", "client_gone"].contains(&outcome), "{row}");
        if row["usage_source"] == "upstream" {
            assert_eq!(
                (&row["output_tokens"], &row["cost_nano_usd"]),
                (&json!(4), &json!(132_000)),
                "{row}"
            );
        } else {
            assert_eq!(outcome, "client_gone", "{row}");
        }
    }
    assert_eq!(scene.o1.calls(), 40);
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_leaves_while_sending_his_body_is_no_request() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    for bytes in [0, 1, 500] {
        let mut socket = harness::RawSocket::connect(scene.client.addr()).await;
        let key = harness::CALLER_KEY;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\ncontent-length: 1000\r\n\r\n"
        );
        socket.send(head.as_bytes()).await;
        socket.send(&vec![b' '; bytes]).await;
    }

    assert_eq!(scene.client.post_chat(&body(false)).await.status, 200);
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_dribbles_his_body_is_refused_when_its_time_is_over() {
    let mut scene = Scene::start_with(|node| node.setting("body_seconds_max", BODY_MAX.as_secs())).await;
    scene.foreign_calls();
    let body = body(false).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        harness::CALLER_KEY,
        body.len()
    );
    let dribble = async |bytes: usize| {
        let mut socket = harness::RawSocket::connect(scene.client.addr()).await;
        let started = Instant::now();
        socket.send(head.as_bytes()).await;
        for piece in body.as_bytes().chunks(bytes) {
            if started.elapsed() > BODY_MAX.saturating_sub(DRIBBLE_EVERY * 3) {
                break;
            }
            socket.send(piece).await;
            sleep(DRIBBLE_EVERY).await;
        }
        (socket.read_to_end().await, started.elapsed())
    };

    let (refused, took) = dribble(1).await;
    let (served, _) = dribble(body.len() / 4).await;

    assert_eq!(refused.status(), 408, "{}", refused.text());
    assert!(took >= BODY_MAX && took < BODY_MAX * 3, "{took:?}");
    let told: Value = serde_json::from_str(&refused.body()).expect("JSON");
    assert_eq!(told["error"]["code"], "invalid_request");
    assert_eq!(
        told["error"]["message"],
        "the request body did not arrive in time"
    );
    assert_eq!((served.status(), scene.o1.calls()), (200, 1), "{}", served.text());
    scene.finish().await;
}
