//! Callers who leave before the end, on every surface: one row each, the upstream is freed at once, and what was
//! delivered is paid for whatever the upstream speaks.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, PROMPT_CANARY, Scene, Surface};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::shapes::{self, Shape, pairs};

/// How long upstreams may stay busy, and reservations open, after their callers left.
const FREED_MAX: Duration = Duration::from_secs(1);
const GIVEN_BACK_MAX: Duration = Duration::from_secs(2);

/// A body whose prompt is more than 50 tokens by any count.
fn body(surface: Surface, shape: Shape, streams: bool) -> Value {
    let prompt = format!(
        "{PROMPT_CANARY} {}",
        "tell me more of it, please, and take your time. ".repeat(10)
    );
    let mut body = surface.ask(shape.model());
    body["stream"] = json!(streams);
    match surface {
        Surface::Chat | Surface::Messages => body["messages"][0]["content"] = json!(prompt),
        Surface::Completions => body["prompt"] = json!(prompt),
        Surface::Responses => body["input"] = json!(prompt),
    }
    body
}

/// Words of more than a token each.
fn words(count: usize) -> String {
    let words: Vec<String> = (0..count).map(|number| format!("word{number:04}")).collect();
    words.join(" ")
}

/// Waits until no upstream is busy and nothing is reserved.
async fn freed(scene: &Scene, since: Instant) {
    scene.o1.wait_quiet().await;
    let took = since.elapsed();
    assert!(took <= FREED_MAX, "the upstream was busy for {took:?}");
    while scene.metric("waybill_reservations_open").await != 0.0 {
        assert!(since.elapsed() < GIVEN_BACK_MAX, "a reservation is still open");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Begins a call of every pair, reads twelve pieces of content of each, waits and leaves all of them; gives their ids.
async fn leave_all(scene: &Scene, pairs: &[(Surface, Shape)], wait: Duration) -> Vec<String> {
    let calls = pairs.iter().map(|(surface, shape)| async move {
        let body = body(*surface, *shape, true);
        let mut stream = scene.client.stream(*surface, &body).await;
        assert_eq!(
            stream.read_content(12).await.len(),
            12,
            "{surface:?} of {shape:?}"
        );
        stream
    });
    let streams = join_all(calls).await;
    sleep(wait).await;
    let left = Instant::now();
    let ids = streams
        .iter()
        .map(|stream| stream.request_id().to_owned())
        .collect();
    for (number, stream) in streams.into_iter().enumerate() {
        if number % 2 == 0 {
            stream.close();
        } else {
            stream.reset();
        }
    }
    freed(scene, left).await;
    ids
}

#[tokio::test]
async fn leaving_amid_a_stream_costs_what_was_delivered_on_every_surface() {
    let scene = shapes::scene().await;
    let slow = Behaviour::chat(&words(200)).pace(Duration::from_millis(20));
    scene.o1.default(slow.usage(50, 200));
    let pairs: Vec<_> = pairs().collect();

    let ids = leave_all(&scene, &pairs, Duration::ZERO).await;

    for ((surface, shape), id) in pairs.iter().zip(ids) {
        let row = scene.row(&id).await;
        let case = format!("{surface:?} of {shape:?}: {row:#}");
        assert_eq!(
            (&row["outcome"], &row["status"]),
            (&json!("client_gone"), &json!(200)),
            "{case}"
        );
        assert!(row["input_tokens"].as_i64() >= Some(50), "{case}");
        assert!(row["output_tokens"].as_i64() >= Some(12), "{case}");
        assert!(row["output_tokens"].as_i64() < Some(190), "{case}");
        assert!(row["cost_nano_usd"].as_i64() >= Some(196_000), "{case}");
        // Gemini tells its usage with every piece; the others have told none of the output, or a figure of no worth.
        let source = if *shape == Shape::Gemini {
            "upstream"
        } else {
            "estimated"
        };
        let marked = row["usage_source"] == source
            || (row["usage_source"] == "upstream" && row["usage_flags"] != json!([]));
        assert!(marked, "{case}");
        if *shape == Shape::Messages {
            let marks = (&row["usage_source"], &row["usage_flags"]);
            assert_eq!(marks, (&json!("upstream"), &json!(["partial"])), "{case}");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn leaving_after_the_last_word_but_before_the_end_has_the_upstreams_figure_on_every_surface() {
    let scene = shapes::scene().await;
    let whole = Behaviour::chat("")
        .chunks(12, Duration::from_millis(5))
        .usage(50, 200);
    scene.o1.default(whole.usage_delay(Duration::from_millis(300)));
    // Gemini and Responses tell their usage with the finish reason, and then it is the end.
    let pairs: Vec<_> = pairs()
        .filter(|(_, shape)| matches!(shape, Shape::Chat | Shape::Messages))
        .collect();

    let ids = leave_all(&scene, &pairs, Duration::from_millis(60)).await;

    for ((surface, shape), id) in pairs.iter().zip(ids) {
        let row = scene.row(&id).await;
        let case = format!("{surface:?} of {shape:?}: {row:#}");
        assert_eq!(row["outcome"], "client_gone", "{case}");
        let figures = (&row["input_tokens"], &row["output_tokens"], &row["usage_source"]);
        assert_eq!(figures, (&json!(50), &json!(200), &json!("upstream")), "{case}");
        assert_eq!(row["cost_nano_usd"], 1_700_000, "{case}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn leaving_before_the_first_word_is_free_on_every_surface() {
    let scene = shapes::scene().await;
    let pairs: Vec<_> = pairs().collect();
    let mut rows = 0;
    for (streams, behaviour) in [
        (false, Behaviour::hang()),
        (
            true,
            Behaviour::chat("late").first_event_delay(Duration::from_secs(20)),
        ),
        (true, Behaviour::chat("late").stop_after(0, harness::Then::Hang)),
    ] {
        scene.o1.default(behaviour);
        let wait = Duration::from_millis(200);
        let sent = Instant::now();
        let bodies: Vec<_> = pairs
            .iter()
            .map(|(surface, shape)| body(*surface, *shape, streams))
            .collect();
        let calls = pairs.iter().zip(&bodies);
        let calls = calls.map(|((surface, _), body)| scene.client.leave_after(*surface, body, wait));
        join_all(calls).await;

        freed(&scene, sent + wait).await;

        rows += pairs.len();
        for row in scene.node.wait_rows("outcome=client_gone", rows).await {
            let figures = (&row["status"], &row["output_tokens"], &row["cost_nano_usd"]);
            assert_eq!(figures, (&json!(499), &json!(0), &json!(0)), "{row:#}");
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
async fn leaving_in_the_moment_of_the_end_leaves_exactly_one_row_on_every_surface() {
    let scene = shapes::scene().await;
    scene.o1.default(Behaviour::chat("a b c d").usage(50, 4));
    let mut ids = Vec::new();
    for round in 0..4_u64 {
        for (surface, shape) in pairs() {
            let mut stream = scene.client.stream(surface, &body(surface, shape, true)).await;
            ids.push(stream.request_id().to_owned());
            stream.read_content(4).await;
            // From at once to well after the end.
            sleep(Duration::from_micros(250 * round)).await;
            stream.close();
        }
    }

    for id in ids {
        let row = scene.row(&id).await;
        let outcome = row["outcome"].as_str().unwrap_or_default();
        assert!(["ok", "client_gone"].contains(&outcome), "{row}");
        if outcome == "ok" {
            let figures = (&row["output_tokens"], &row["cost_nano_usd"]);
            assert_eq!(figures, (&json!(4), &json!(132_000)), "{row}");
        }
    }
    assert_eq!(scene.o1.calls(), 4 * pairs().count());
    scene.finish().await;
}
