//! How streams end: whole ones with one end mark, broken ones visibly broken and free of charge.

use std::time::Duration;

use harness::{Behaviour, End, Model, Scene, Then, Transcript, Upstream, chat_streamed};
use serde_json::json;

use crate::rows::{
    assert_billed, assert_free, assert_row, chunk, endpoint, events, finish, prompt_estimate, text_estimate,
    tried,
};

#[tokio::test]
async fn bug_case_21_a_stream_that_breaks_off_ends_in_an_error_event_and_costs_nothing() {
    let mut scene = Scene::start().await;
    scene.pin();
    let sixty = || Behaviour::chat("").chunks(60, Duration::ZERO);
    let cases = [
        ("closed", sixty().stop_after(40, Then::Cut)),
        ("reset", sixty().stop_after(40, Then::Reset)),
        ("framed well, unfinished", sixty().cut_after_chunks(40)),
        (
            "without a length, closed",
            sixty().cut_after_chunks(40).until_close(),
        ),
    ];
    for (case, behaviour) in cases {
        // Circuits count these faults, so a good call comes between them.
        scene.o1.script([behaviour, Behaviour::chat("good")]);
        let streamed = stream(&scene).await;
        stream(&scene).await.whole();

        assert_interrupted(&streamed, case);
        if case != "reset" {
            // A reset may destroy what was sent just before it.
            assert_eq!(streamed.text().split_whitespace().count(), 40, "{case}");
        }
        let row = scene.row(streamed.request_id()).await;
        assert_free(&row, "upstream_cut", 200, "stream_interrupted");
        let at = endpoint("m", &scene.o1);
        assert_eq!(
            tried(&row),
            json!([[at, 200, "upstream_cut", "stream_interrupted"]]),
            "{case}"
        );
    }
    assert_eq!(scene.o2.calls(), 0, "content had been sent");
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_cut_inside_an_event_keeps_that_event_back() {
    let scene = Scene::start().await;
    for behaviour in [
        Behaviour::chat("one two three four five").cut_after_bytes(700),
        Behaviour::chat("one two three four five").drop_last_bytes(420),
    ] {
        scene.o1.script([behaviour, Behaviour::chat("good")]);
        let streamed = stream(&scene).await;
        stream(&scene).await.whole();

        assert_interrupted(&streamed, "inside an event");
        let text = streamed.text();
        assert!(
            !text.is_empty() && "one two three four five".starts_with(&text),
            "{text}"
        );
        let row = scene.row(streamed.request_id()).await;
        assert_free(&row, "upstream_cut", 200, "stream_interrupted");
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_a_broken_stream_cost_us_is_noted_though_the_caller_pays_nothing() {
    let scene = Scene::start().await;
    scene.o1.script([Behaviour::chat("")
        .chunks(60, Duration::ZERO)
        .usage(9, 60)
        .usage_every_chunk()
        .stop_after(5, Then::Cut)]);

    let streamed = stream(&scene).await;

    assert_interrupted(&streamed, "with usage");
    assert_row(
        &scene.row(streamed.request_id()).await,
        &json!({
            "outcome": "upstream_cut", "cost_nano_usd": 0, "usage_source": "upstream",
            "input_tokens": 9, "output_tokens": 5, "upstream_cost_nano_usd": 9 * 2_000 + 5 * 8_000,
        }),
    );
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_10_the_text_of_an_error_is_never_billed_and_the_retry_is_its_own_request() {
    let scene = Scene::start().await;
    let words = "calamity ".repeat(3_000);
    let error = json!({"error": {"message": words, "type": "server_error", "code": "oops"}});
    scene.o1.script([
        Behaviour::chat("")
            .chunks(60, Duration::ZERO)
            .error_after(5, error),
        Behaviour::chat("whole now").usage(9, 20),
    ]);

    let failed = stream(&scene).await;
    let retried = stream(&scene).await;

    assert_interrupted(&failed, "an error event");
    assert_eq!(failed.text(), "t1 t2 t3 t4 t5 ");
    assert!(!String::from_utf8_lossy(&failed.raw).contains("calamity"));
    let row = scene.row(failed.request_id()).await;
    assert_free(&row, "upstream_error", 200, "stream_interrupted");
    assert_eq!(retried.whole(), "whole now");
    assert_billed(&scene.row(retried.request_id()).await, 9, 20, 178_000);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_10_a_call_that_delivered_nothing_is_an_http_error_and_free() {
    let mut scene = one_leg_scene().await;
    // Circuits count these faults, so a good call comes between them, on the node that knows of them.
    scene.pin();
    let blank = chunk("", "");
    for behaviour in [
        events(&[]),
        events(&[&blank, &blank, &blank]),
        Behaviour::chat("never").stop_after(0, Then::Cut),
        Behaviour::closed(),
    ] {
        // A request on a connection that served before may be sent twice; these are to be the first.
        scene
            .o1
            .script([behaviour, Behaviour::chat("good").close_after_response()]);
        let streamed = stream(&scene).await;
        stream(&scene).await.whole();

        assert_eq!((streamed.status, &streamed.end), (502, &End::Whole));
        assert_eq!(streamed.error()["code"], "upstream_error");
        let row = scene.row(streamed.request_id()).await;
        assert_free(&row, "upstream_error", 502, "upstream_error");
        assert_row(
            &row,
            &json!({"ttft_ms": null, "endpoint_id": null, "upstream_cost_nano_usd": null}),
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_error_before_the_first_byte_is_an_http_error_with_a_json_body() {
    let scene = Scene::start().await;
    scene
        .o1
        .script([Behaviour::error(400, "temperature is out of range")]);

    let streamed = stream(&scene).await;

    assert_eq!((streamed.status, &streamed.end), (400, &End::Whole));
    assert_eq!(streamed.headers["content-type"], "application/json");
    let error = streamed.error();
    assert_eq!(error["code"], "upstream_rejected_request");
    assert_eq!(error["message"], "temperature is out of range");
    assert_eq!(error["request_id"], streamed.request_id());
    let row = scene.row(streamed.request_id()).await;
    assert_free(&row, "upstream_error", 400, "upstream_rejected_request");
    let at = endpoint("m", &scene.o1);
    assert_eq!(
        tried(&row),
        json!([[at, 400, "upstream_error", "upstream_rejected_request"]])
    );
    assert_eq!(scene.o2.calls(), 0, "the request itself is at fault");
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_21_one_broken_event_is_dropped_and_counted_and_the_rest_flows() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("one two three").usage(9, 20).broken_json_after(2));
    let before = scene.metric("waybill_upstream_events_dropped_total").await;

    let streamed = stream(&scene).await;

    assert_eq!(streamed.whole(), "one two three");
    assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    let after = scene.metric("waybill_upstream_events_dropped_total").await;
    assert!(
        (after - before - 1.0).abs() < f64::EPSILON,
        "{before} then {after}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_21_an_end_mark_without_usage_makes_a_whole_answer_with_an_estimate() {
    let scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("one two three").no_usage());

    let streamed = stream(&scene).await;

    assert_eq!(streamed.whole(), "one two three");
    let (input, output) = (prompt_estimate(), text_estimate("one two three"));
    assert_row(
        &scene.row(streamed.request_id()).await,
        &json!({
            "outcome": "ok", "usage_source": "estimated", "input_tokens": input, "output_tokens": output,
            "cost_nano_usd": input * 2_000 + output * 8_000,
        }),
    );
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_21_a_finish_reason_makes_a_whole_answer_and_the_end_mark_is_ours() {
    let scene = Scene::start().await;
    let good = || Behaviour::chat("one two three").usage(9, 20);
    for (case, behaviour) in [
        ("no end mark", good().no_done()),
        (
            "no end mark, no last newline",
            good().no_done().drop_last_bytes(1),
        ),
        (
            "no end mark, no last newlines",
            good().no_done().drop_last_bytes(2),
        ),
        ("an end mark with one newline", good().drop_last_bytes(1)),
        ("an end mark without newlines", good().drop_last_bytes(2)),
    ] {
        scene.o1.script([behaviour]);
        let streamed = stream(&scene).await;

        assert_eq!(streamed.whole(), "one two three", "{case}");
        assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    }
    scene.o1.script([good().no_usage().no_done().drop_last_bytes(2)]);
    let bare = stream(&scene).await;
    assert_eq!(bare.whole(), "one two three");
    assert_eq!(bare.finish_reason().as_deref(), Some("stop"));
    scene.finish().await;
}

#[tokio::test]
async fn usage_is_awaited_a_second_after_the_finish_reason_and_not_longer() {
    let scene = Scene::start().await;
    let good = || Behaviour::chat("one two three").usage(9, 20);
    scene.o1.script([
        good().usage_delay(Duration::from_millis(300)),
        good().usage_delay(Duration::from_secs(20)),
    ]);

    let patient = stream(&scene).await;
    let started = tokio::time::Instant::now();
    let impatient = stream(&scene).await;
    let took = started.elapsed();

    assert_eq!(patient.whole(), "one two three");
    assert_billed(&scene.row(patient.request_id()).await, 9, 20, 178_000);
    assert_eq!(impatient.whole(), "one two three");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let row = scene.row(impatient.request_id()).await;
    assert_row(&row, &json!({"outcome": "ok", "usage_source": "estimated"}));
    scene.o1.wait_left(1).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_over_http2_gets_the_same_streams() {
    let scene = Scene::start().await;
    let client = scene.client.http2();
    scene.o1.script([
        Behaviour::chat("one two").usage(9, 20),
        Behaviour::chat("one two").cut_after_chunks(1),
    ]);

    let whole = client.stream_chat(&chat_streamed("m")).await.collect().await;
    let broken = client.stream_chat(&chat_streamed("m")).await.collect().await;

    assert_eq!(whole.whole(), "one two");
    assert_billed(&scene.row(whole.request_id()).await, 9, 20, 178_000);
    assert_interrupted(&broken, "over HTTP/2");
    scene.finish().await;
}

#[tokio::test]
async fn an_error_of_null_beside_content_is_no_error() {
    let scene = Scene::start().await;
    let finished = finish(r#","error":null"#);
    scene
        .o1
        .script([events(&[&chunk("fine", r#","error":null"#), &finished, "[DONE]"])]);

    assert_eq!(stream(&scene).await.whole(), "fine");

    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_31_parallel_tool_calls_arrive_whole_streamed_and_plain() {
    let scene = Scene::start().await;
    let long = json!({"text": "a \"quoted\" | piped | 漢字 \u{1f642} ".repeat(60)}).to_string();
    let calls = [
        ("call_a", "get_weather", r#"{"city":"Zürich"}"#),
        ("call_b", "write_file", long.as_str()),
        ("call_c", "noop", "{}"),
    ];
    scene
        .o1
        .default(Behaviour::chat("").tool_calls(&calls).usage(9, 20));

    let streamed = stream(&scene).await;
    let plain = scene.client.post_chat(&harness::chat("m")).await;

    assert_eq!(streamed.end, End::Done);
    assert_eq!(streamed.finish_reason().as_deref(), Some("tool_calls"));
    let expected = calls.map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.to_owned()));
    assert_eq!(streamed.tool_calls(), expected);
    let told = plain.json()["choices"][0]["message"]["tool_calls"].clone();
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        assert_eq!(told[index]["id"], *id);
        assert_eq!(
            told[index]["function"],
            json!({"name": name, "arguments": arguments})
        );
    }
    scene.finish().await;
}

/// A streamed call of model `m`, read to its end.
async fn stream(scene: &Scene) -> Transcript {
    scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await
}

/// A scene without a fallback.
async fn one_leg_scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0);
    Scene::start_on(o1, o2, |node| node.models(&[model])).await
}

/// Panics unless the stream began well and ended in an error event of the one shape.
fn assert_interrupted(streamed: &Transcript, case: &str) {
    assert_eq!(streamed.status, 200, "{case}");
    assert!(
        matches!(streamed.end, End::ErrorEvent(_)),
        "{case}: {:?}",
        streamed.end
    );
    let error = streamed.error();
    assert_eq!(error["code"], "stream_interrupted", "{case}");
    assert_eq!(error["request_id"], streamed.request_id(), "{case}");
    let members: Vec<&String> = error.as_object().expect("an object").keys().collect();
    assert_eq!(
        members,
        ["code", "message", "param", "request_id", "type"],
        "{case}"
    );
}
