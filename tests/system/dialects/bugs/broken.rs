//! Answers that break: visibly so on every surface, whatever the upstream speaks; never billed, error texts least of
//! all; and what only seems broken is whole.

use std::time::Duration;

use harness::{Behaviour, End, Model, Scene, Surface, Then, Transcript};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, pairs, rich_pairs, stream};
use super::super::surfaces::scene_of;
use crate::retries::tireless;
use crate::rows::{assert_billed, assert_free, assert_row, endpoint, text_estimate};

/// A word of an upstream's error that no caller may see.
const CALAMITY: &str = "calamity";

#[tokio::test]
async fn the_text_of_an_error_is_shown_to_nobody_and_billed_to_nobody() {
    let scene = shapes::scene_with(tireless).await;
    let words = format!("{CALAMITY} ").repeat(3_000);
    for (surface, shape) in pairs() {
        let case = format!("{surface:?} of {shape:?}");
        scene.o1.script([
            Behaviour::chat("")
                .chunks(60, Duration::ZERO)
                .failure_after(5, 500, &words),
            Behaviour::chat("whole now").usage(9, 20),
        ]);

        let failed = stream(&scene, surface, shape.model()).await;
        let retried = stream(&scene, surface, shape.model()).await;

        assert_broken(&failed, "stream_interrupted", &case);
        assert_eq!(failed.told().text, "t1 t2 t3 t4 t5 ", "{case}");
        assert!(!String::from_utf8_lossy(&failed.raw).contains(CALAMITY), "{case}");
        assert_unbilled(&scene, failed.request_id(), "upstream_error", 10).await;
        retried.whole();
        assert_eq!(retried.told().text, "whole now", "{case}");
        assert_billed(&scene.row(retried.request_id()).await, 9, 20, 178_000);
    }
    assert_eq!(scene.o2.calls(), 0, "content had been sent");
    scene.finish().await;
}

#[tokio::test]
async fn a_response_of_a_server_that_numbers_nothing_begins_once_and_fails_under_its_name() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "only")]).await;
    for id in ["resp_theirs", "chatcmpl-theirs"] {
        let events = [
            json!({"type": "response.created", "response": {"id": id, "object": "response",
                "status": "in_progress", "model": "up", "output": []}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message",
                "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}}),
            json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
                "content_index": 0, "delta": "half"}),
        ];
        let body: String = events
            .map(|event| {
                format!(
                    "event: {}\ndata: {event}\n\n",
                    event["type"].as_str().unwrap_or_default()
                )
            })
            .concat();
        scene.o1.script([Behaviour::raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}"
        ))]);

        let client = scene.client.lenient();
        let asked = Surface::Responses.ask_streamed("m");
        let broken = client.stream(Surface::Responses, &asked).await.collect().await;

        let told = String::from_utf8_lossy(&broken.raw).into_owned();
        assert_eq!(told.matches("\"response.created\"").count(), 1, "{told}");
        let End::ErrorEvent(failed) = &broken.end else {
            panic!("{id}: {:?}", broken.end);
        };
        assert_eq!(failed["type"], "response.failed");
        let own = failed["response"]["id"].as_str().expect("an id");
        assert_ne!(own, id, "{told}");
        assert_eq!(
            told.matches(own).count(),
            2,
            "the one that it began under: {told}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_delivered_nothing_is_an_http_error_and_free_on_every_surface() {
    let mut scene = shapes::one_leg_scene(tireless).await;
    // What a node makes of faults one after another is its own: the good calls between them go to the same one.
    scene.pin();
    for (surface, shape) in pairs() {
        for (case, behaviour) in [
            ("cut", Behaviour::chat("never").stop_after(0, Then::Cut)),
            ("ended", Behaviour::chat("never").cut_after_chunks(0)),
            ("closed", Behaviour::closed().close_after_response()),
            ("comments", Behaviour::comments_only(Then::End)),
            ("an error first", Behaviour::failure_in_200(500, CALAMITY)),
        ] {
            let case = format!("{surface:?} of {shape:?}, {case}");
            // A request on a connection that served before may be sent twice; these are to be the first.
            scene
                .o1
                .script([behaviour, Behaviour::chat("good").close_after_response()]);
            let failed = stream(&scene, surface, shape.model()).await;
            stream(&scene, surface, shape.model()).await.whole();

            assert_eq!((failed.status, &failed.end), (502, &End::Whole), "{case}");
            assert_eq!(failed.headers["content-type"], "application/json", "{case}");
            assert_error(&failed, 502, "upstream_error", &case);
            assert!(!String::from_utf8_lossy(&failed.raw).contains(CALAMITY), "{case}");
            let row = scene.row(failed.request_id()).await;
            assert_free(&row, "upstream_error", 502, "upstream_error");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn blank_content_alone_is_no_answer() {
    let scene = shapes::one_leg_scene(tireless).await;
    for (surface, shape) in pairs() {
        scene.o1.script([blank(shape), Behaviour::chat("good")]);
        let failed = stream(&scene, surface, shape.model()).await;
        stream(&scene, surface, shape.model()).await.whole();

        let case = format!("{surface:?} of {shape:?}");
        assert_eq!((failed.status, &failed.end), (502, &End::Whole), "{case}");
        let row = scene.row(failed.request_id()).await;
        assert_free(&row, "upstream_error", 502, "upstream_error");
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_that_stays_silent_costs_nothing_on_any_surface() {
    let clocks = |node: harness::NodeBuilder| tireless(node).env("STREAM_IDLE_TIMEOUT_SECONDS", "0.3");
    let scene = shapes::one_leg_scene(clocks).await;
    scene
        .o1
        .default(Behaviour::chat("never").stop_after(0, Then::Hang));
    let scene_ref = &scene;
    // Where a stream has no opening its first byte is waited for, as long as a prefill may take.
    let opens = |(surface, shape): &(Surface, Shape)| match shape {
        Shape::Chat => *surface != Surface::Completions,
        Shape::Messages | Shape::Responses => true,
        Shape::Gemini => false,
    };
    let opened = pairs().filter(opens);
    let calls = opened
        .map(|(surface, shape)| async move { (surface, stream(scene_ref, surface, shape.model()).await) });

    for (surface, failed) in futures_util::future::join_all(calls).await {
        assert_eq!((failed.status, &failed.end), (504, &End::Whole), "{surface:?}");
        assert_error(&failed, 504, "upstream_timeout", &format!("{surface:?}"));
        let row = scene.row(failed.request_id()).await;
        assert_free(&row, "timeout", 504, "upstream_timeout");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_never_has_an_end_mark_and_costs_nothing() {
    let scene = shapes::scene_with(tireless).await;
    let sixty = || Behaviour::chat("").chunks(60, Duration::ZERO);
    for (surface, shape) in pairs() {
        for (case, behaviour) in [
            ("closed", sixty().stop_after(40, Then::Cut)),
            ("reset", sixty().stop_after(40, Then::Reset)),
            ("framed well, unfinished", sixty().cut_after_chunks(40)),
            ("without a length", sixty().cut_after_chunks(40).until_close()),
        ] {
            scene.o1.script([behaviour]);
            let streamed = stream(&scene, surface, shape.model()).await;

            let named = format!("{surface:?} of {shape:?}, {case}");
            assert_broken(&streamed, "stream_interrupted", &named);
            let words = streamed.told().text.split_whitespace().count();
            // A reset may destroy what was sent just before it.
            assert!(
                words == 40 || (case == "reset" && words <= 40),
                "{named}: {words}"
            );
            assert_unbilled(&scene, streamed.request_id(), "upstream_cut", 60).await;
        }
    }
    assert_eq!(scene.o2.calls(), 0, "content had been sent");
    scene.finish().await;
}

#[tokio::test]
async fn streams_that_break_off_open_the_circuit_of_every_shape() {
    let mut scene = shapes::scene().await;
    scene.pin();
    for (surface, shape) in Surface::RICH.into_iter().cycle().zip(Shape::ALL) {
        let first = scene.o1.calls();
        let broken = || Behaviour::chat("one two three four").cut_after_chunks(3);
        scene.o1.script([broken(), broken(), broken()]);
        for _ in 0..3 {
            assert_broken(
                &stream(&scene, surface, shape.model()).await,
                "stream_interrupted",
                "",
            );
        }

        let next = stream(&scene, surface, shape.model()).await;

        next.whole();
        assert_eq!(scene.o1.calls() - first, 3, "{shape:?}");
        let row = scene.row(next.request_id()).await;
        assert_row(&row, &json!({"endpoint_id": endpoint(shape.model(), &scene.o2)}));
    }
    scene.finish().await;
}

#[tokio::test]
async fn one_broken_event_is_dropped_and_counted_and_the_rest_flows_on_every_surface() {
    let mut scene = shapes::scene().await;
    scene.pin();
    for (surface, shape) in pairs() {
        let counted = "waybill_upstream_events_dropped_total";
        let before = scene.metric(counted).await;
        scene
            .o1
            .script([Behaviour::chat("one two three").usage(9, 20).broken_json_after(2)]);
        let streamed = stream(&scene, surface, shape.model()).await;

        let case = format!("{surface:?} of {shape:?}");
        streamed.whole();
        assert_eq!(streamed.told().text, "one two three", "{case}");
        assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
        let more = scene.metric(counted).await - before;
        assert!((more - 1.0).abs() < f64::EPSILON, "{case}: {more}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_lost_a_piece_never_ends_as_a_whole_one() {
    let scene = shapes::scene_with(tireless).await;
    let called = |arguments: &str| {
        Behaviour::chat("so")
            .tool_calls(&[("call_1", "look", arguments)])
            .usage(9, 20)
    };
    for (surface, shape) in rich_pairs().filter(|(_, shape)| *shape == Shape::Chat) {
        if surface == Surface::Chat {
            continue;
        }
        let case = format!("{surface:?} of {shape:?}");
        scene.o1.script([
            called(r#"{"at":"/ho"#),
            called(r#"{"at":"/ho"#).finish("length"),
            called(r#"{"at":"/home"}"#),
        ]);

        let cut = stream(&scene, surface, shape.model()).await;
        let short = stream(&scene, surface, shape.model()).await;
        let whole = stream(&scene, surface, shape.model()).await;

        assert_broken(&cut, "stream_interrupted", &case);
        assert_unbilled(&scene, cut.request_id(), "upstream_error", 20).await;
        short.whole();
        assert_eq!(short.told().finish, "length", "{case}");
        whole.whole();
        assert_eq!(whole.told().calls[0].arguments, r#"{"at":"/home"}"#, "{case}");
        assert_billed(&scene.row(whole.request_id()).await, 9, 20, 178_000);
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_end_mark_without_usage_makes_an_estimate_for_every_caller() {
    let scene = shapes::scene().await;
    scene
        .o1
        .default(Behaviour::chat("nobody counted this").no_usage());
    for (surface, shape) in pairs() {
        let streamed = stream(&scene, surface, shape.model()).await;
        streamed.whole();

        let row = scene.row(streamed.request_id()).await;
        let output = text_estimate("nobody counted this");
        let input = row["input_tokens"].as_u64().expect("a figure");
        assert!(input > 0, "{row}");
        let cost = input * 2_000 + output * 8_000;
        assert_row(
            &row,
            &json!({"outcome": "ok", "usage_source": "estimated", "output_tokens": output, "cost_nano_usd": cost}),
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_finish_reason_makes_a_whole_answer_and_the_end_mark_is_ours_on_every_surface() {
    let scene = shapes::scene().await;
    for (surface, shape) in pairs() {
        for (case, lost) in [("whole", 0), ("no last newline", 1), ("no last newlines", 2)] {
            let behaviour = Behaviour::chat("one two three").usage(9, 20);
            // Responses tells its finish reason in its end mark alone, and nowhere before.
            let behaviour = if shape == Shape::Responses {
                behaviour
            } else {
                behaviour.no_done()
            };
            scene.o1.script([behaviour.drop_last_bytes(lost)]);
            let streamed = stream(&scene, surface, shape.model()).await;

            let case = format!("{surface:?} of {shape:?}, {case}");
            assert_eq!(
                streamed.end,
                End::Done,
                "{case}: {}",
                String::from_utf8_lossy(&streamed.raw)
            );
            let told = streamed.told();
            assert_eq!(
                (told.text.as_str(), told.finish.as_str()),
                ("one two three", "stop"),
                "{case}"
            );
            assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn all_items_of_responses_without_their_end_mark_are_no_whole_answer() {
    let scene = shapes::scene_with(tireless).await;
    for surface in Surface::ALL {
        let unfinished = Behaviour::chat("one two three").usage(9, 20).no_done();
        scene.o1.script([unfinished]);
        let streamed = stream(&scene, surface, Shape::Responses.model()).await;

        let case = format!("{surface:?}");
        assert_broken(&streamed, "stream_interrupted", &case);
        assert_eq!(streamed.told().text, "one two three", "{case}");
        assert_unbilled(&scene, streamed.request_id(), "upstream_cut", 20).await;
    }
    assert_eq!(scene.o2.calls(), 0, "content had been sent");
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_cut_amid_thoughts_or_calls_is_broken_for_every_caller() {
    let scene = shapes::scene_with(tireless).await;
    let calls = [("call_a", "get_weather", r#"{"city":"Boston","days":[1,2,3]}"#)];
    for (surface, shape) in rich_pairs() {
        let thinking = Behaviour::chat("so").reasoning("let me think about it");
        // Gemini tells a call in one piece; elsewhere some of its arguments are there when the stream ends.
        let pieces = if shape == Shape::Gemini { 1 } else { 4 };
        let calling = Behaviour::chat("").tool_calls(&calls);
        for behaviour in [thinking.cut_after_chunks(3), calling.cut_after_chunks(pieces)] {
            scene.o1.script([behaviour]);
            let streamed = stream(&scene, surface, shape.model()).await;

            let case = format!("{surface:?} of {shape:?}");
            assert_broken(&streamed, "stream_interrupted", &case);
            assert_unbilled(&scene, streamed.request_id(), "upstream_cut", 20).await;
        }
    }
    scene.finish().await;
}

/// A stream of the shape whose content is empty, and which does not say how it finished.
fn blank(shape: Shape) -> Behaviour {
    let data = |event: Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    let events = match shape {
        Shape::Chat => vec![
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": "", "text": ""}, "text": "", "finish_reason": null}]}),
        ],
        Shape::Messages => vec![
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                "model": "am", "content": [], "stop_reason": null, "stop_sequence": null,
                "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}),
        ],
        Shape::Gemini => vec![json!({"candidates": [{"index": 0, "content": {"role": "model",
            "parts": [{"text": ""}]}}], "modelVersion": "gm"})],
        Shape::Responses => vec![
            json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1",
                "object": "response", "status": "in_progress", "model": "rm", "output": []}}),
            json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
                "item": {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress",
                "content": []}}),
            json!({"type": "response.content_part.added", "sequence_number": 2, "item_id": "msg_1",
                "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "",
                "annotations": []}}),
            json!({"type": "response.output_text.delta", "sequence_number": 3, "item_id": "msg_1",
                "output_index": 0, "content_index": 0, "delta": ""}),
        ],
    };
    let body: String = events.into_iter().map(data).collect();
    Behaviour::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}"
    ))
}

/// Panics unless the stream began well and ended in an error event of its dialect, without an end mark.
fn assert_broken(streamed: &Transcript, code: &str, case: &str) {
    assert_eq!(
        streamed.status,
        200,
        "{case}: {}",
        String::from_utf8_lossy(&streamed.raw)
    );
    assert!(
        matches!(streamed.end, End::ErrorEvent(_)),
        "{case}: {:?}",
        streamed.end
    );
    assert_error(streamed, 200, code, case);
    if let (Surface::Responses, End::ErrorEvent(event)) = (streamed.surface, &streamed.end) {
        let events = streamed.chunks().len();
        assert_eq!(event["sequence_number"], events, "{case}: {event}");
    }
    let raw = String::from_utf8_lossy(&streamed.raw);
    for mark in [
        "[DONE]",
        "message_stop",
        "response.completed",
        "response.incomplete",
    ] {
        assert!(!raw.contains(mark), "{case}: {mark} in {raw}");
    }
}

/// Panics unless the error says this in the words of its dialect.
fn assert_error(streamed: &Transcript, status: u16, code: &str, case: &str) {
    let error = streamed.error();
    let message = error["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{case}: {error}");
    if streamed.surface == Surface::Messages {
        let kind = if status == 503 {
            "overloaded_error"
        } else {
            "api_error"
        };
        assert_eq!(error["type"], kind, "{case}");
    } else {
        assert_eq!(error["code"], code, "{case}");
    }
}

/// Panics unless the row has this outcome, costs nothing and counts no more output than could be delivered: where an
/// upstream told only of the input, the output is estimated.
async fn assert_unbilled(scene: &Scene, request_id: &str, outcome: &str, output_max: u64) {
    let row = scene.row(request_id).await;
    assert_row(
        &row,
        &json!({"outcome": outcome, "status": 200, "error_code": "stream_interrupted", "cost_nano_usd": 0}),
    );
    assert!(row["output_tokens"].as_u64() <= Some(output_max), "{row}");
    let flags = row["usage_flags"].as_array().expect("a list of flags");
    assert!(!flags.contains(&json!("malformed")), "{row}");
}
