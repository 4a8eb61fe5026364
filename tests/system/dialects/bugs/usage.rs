//! What calls cost: the same streamed or not, on every surface and whatever the upstream speaks; usage that comes in
//! pieces counts once; nothing that costs is ever free in silence.

use harness::{Answer, Behaviour, Counts, Model, PRICE, Surface};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, pairs, stream, streamed};
use crate::rows::{assert_billed, assert_row};

#[tokio::test]
async fn calls_cost_the_same_streamed_or_plain_on_every_surface_of_every_upstream() {
    let alias = |shape: Shape| format!("{}-latest", shape.model());
    let bend = |shape, model: Model| model.set("aliases", json!([alias(shape)]));
    let mut scene = shapes::scene_of(bend, |node| node).await;
    for shape in Shape::ALL {
        scene.price(&alias(shape), Some(PRICE));
    }
    scene.o1.default(Behaviour::chat("nine and twenty").usage(9, 20));
    let counts = Counts {
        fresh: 9,
        output: 20,
        ..Counts::default()
    };

    for (surface, shape) in pairs() {
        let model = shape.model();
        let plain = ask(&scene, surface, model).await;
        let silent = stream(&scene, surface, model).await;
        let telling = streamed(&scene, surface, &surface.ask_streamed_with_usage(model)).await;

        let case = format!("{surface:?} of {shape:?}");
        let told = plain.told(surface);
        assert_eq!(
            (told.text.as_str(), told.model.as_str()),
            ("nine and twenty", model),
            "{case}"
        );
        assert_eq!(told.usage, Some(counts), "{case}");
        silent.whole();
        let silent_told = silent.told();
        assert_eq!(silent_told.text, "nine and twenty", "{case}");
        let tells_unasked = matches!(surface, Surface::Messages | Surface::Responses);
        assert_eq!(silent_told.usage, tells_unasked.then_some(counts), "{case}");
        telling.whole();
        assert_eq!(telling.told().usage, Some(counts), "{case}");
        let other = ask(&scene, surface, &alias(shape)).await;
        assert_eq!(other.told(surface).model, alias(shape), "{case}");
        let ids = [&plain, &other].map(Answer::request_id);
        for id in ids.into_iter().chain([silent.request_id(), telling.request_id()]) {
            assert_billed(&scene.row(id).await, 9, 20, 178_000);
        }
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_model_without_a_price_is_served_and_marked_on_every_surface() {
    let bend = |_, model: Model| model.set("pricing", Value::Null);
    let mut scene = shapes::scene_of(bend, |node| node).await;
    scene.o1.default(Behaviour::chat("for now").usage(9, 20));
    for shape in Shape::ALL {
        scene.price(shape.model(), None);
    }

    for (surface, shape) in pairs() {
        let plain = ask(&scene, surface, shape.model()).await;
        let streamed = stream(&scene, surface, shape.model()).await;

        assert_eq!(plain.status, 200, "{}", plain.text());
        streamed.whole();
        for id in [plain.request_id(), streamed.request_id()] {
            let row = scene.row(id).await;
            let expected = json!({"outcome": "ok", "input_tokens": 9, "output_tokens": 20, "cost_nano_usd": 0,
                "usage_flags": ["unpriced"]});
            assert_row(&row, &expected);
        }
    }
    scene.finish().await;
}

/// A stream of Messages whose usage is told as `start` and then as each of `deltas`.
fn told_in_pieces(start: &Value, deltas: &[Value]) -> Behaviour {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "am", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": start});
    let mut told = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "counted once"}}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    for (place, usage) in deltas.iter().enumerate() {
        let reason = (place + 1 == deltas.len()).then_some("end_turn");
        told.push(
            json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": usage}),
        );
    }
    told.push(json!({"type": "message_stop"}));
    let lines = told.iter().map(|event| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    });
    let body: String = lines.collect();
    Behaviour::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}"
    ))
}

/// The same figures as chat tells them.
fn told_as_chat(counts: Counts) -> Behaviour {
    let input = counts.fresh + counts.cached + counts.written;
    let usage = json!({"prompt_tokens": input, "completion_tokens": counts.output,
        "total_tokens": input + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": counts.written}});
    Behaviour::chat("counted once").usage_object(usage)
}

/// Flows of usage: what the start tells, what the deltas tell, what was used, what it costs.
fn flows() -> Vec<(&'static str, Value, Vec<Value>, Counts, i64)> {
    let zero = json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0});
    let all = json!({"input_tokens": 3_000, "output_tokens": 25, "cache_creation_input_tokens": 4_000,
        "cache_read_input_tokens": 500});
    let begun = json!({"input_tokens": 100, "output_tokens": 1});
    let output = |count: u64| json!({"output_tokens": count});
    let both = |count: u64| json!({"input_tokens": 100, "output_tokens": count});
    let cached = Counts {
        fresh: 3_000,
        cached: 500,
        written: 4_000,
        output: 25,
    };
    let plain = Counts {
        fresh: 100,
        output: 25,
        ..Counts::default()
    };
    vec![
        ("all at the end", zero, vec![all], cached, 16_300_000),
        (
            "growing",
            begun.clone(),
            vec![output(10), output(25)],
            plain,
            400_000,
        ),
        ("repeated", begun, vec![both(10), both(25)], plain, 400_000),
    ]
}

#[tokio::test]
async fn bug_case_11_usage_of_messages_that_comes_in_pieces_counts_once_for_every_caller() {
    let scene = shapes::scene().await;
    for (flow, start, deltas, counts, cost) in flows() {
        for surface in Surface::ALL {
            scene.o1.script([told_in_pieces(&start, &deltas)]);
            let body = surface.ask_streamed_with_usage("am");
            let streamed = streamed(&scene, surface, &body).await;

            streamed.whole();
            let told = streamed.told();
            assert_eq!(told.text, "counted once", "{flow} for {surface:?}");
            assert_eq!(told.usage, Some(counts), "{flow} for {surface:?}");
            assert_counted(&scene.row(streamed.request_id()).await, counts, cost);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn every_caller_of_an_upstream_of_chat_is_told_each_class_of_tokens() {
    let scene = shapes::scene().await;
    for (flow, _, _, counts, cost) in flows() {
        for surface in Surface::ALL {
            scene.o1.script([told_as_chat(counts), told_as_chat(counts)]);
            let plain = ask(&scene, surface, "m").await;
            let body = surface.ask_streamed_with_usage("m");
            let streamed = streamed(&scene, surface, &body).await;

            assert_eq!(plain.told(surface).usage, Some(counts), "{flow} for {surface:?}");
            streamed.whole();
            assert_eq!(streamed.told().usage, Some(counts), "{flow} for {surface:?}");
            if surface == Surface::Messages {
                let raw = String::from_utf8_lossy(&streamed.raw).into_owned();
                assert_eq!(raw.matches("event: message_delta").count(), 1, "{raw}");
            }
            for id in [plain.request_id(), streamed.request_id()] {
                assert_counted(&scene.row(id).await, counts, cost);
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn text_for_which_an_upstream_counts_nothing_is_paid_for_by_an_estimate() {
    let scene = shapes::scene().await;
    scene.o1.default(Behaviour::chat("nine and twenty").usage(9, 0));

    for (surface, shape) in pairs() {
        let case = format!("{surface:?} of {shape:?}");
        let plain = ask(&scene, surface, shape.model()).await;
        let streamed = stream(&scene, surface, shape.model()).await;

        assert_eq!(plain.status, 200, "{case}: {}", plain.text());
        streamed.whole();
        for id in [plain.request_id(), streamed.request_id()] {
            let row = scene.row(id).await;
            assert_billed(&row, 9, 5, 58_000);
            assert_row(&row, &json!({"usage_flags": ["partial"]}));
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn thoughts_and_cached_tokens_of_gemini_and_responses_are_billed_in_their_classes() {
    let scene = shapes::scene().await;
    let of_gemini = json!({"promptTokenCount": 3_500, "cachedContentTokenCount": 500, "candidatesTokenCount": 10,
        "thoughtsTokenCount": 15, "totalTokenCount": 3_525});
    let of_responses = json!({"input_tokens": 3_500, "input_tokens_details": {"cached_tokens": 500},
        "output_tokens": 25, "output_tokens_details": {"reasoning_tokens": 15}, "total_tokens": 3_525});
    let counts = Counts {
        fresh: 3_000,
        cached: 500,
        written: 0,
        output: 25,
    };

    for (shape, usage) in [(Shape::Gemini, of_gemini), (Shape::Responses, of_responses)] {
        scene
            .o1
            .default(Behaviour::chat("thought about").usage_object(usage));
        for surface in Surface::ALL {
            let case = format!("{surface:?} of {shape:?}");
            let plain = ask(&scene, surface, shape.model()).await;
            let body = surface.ask_streamed_with_usage(shape.model());
            let streamed = streamed(&scene, surface, &body).await;

            assert_eq!(plain.told(surface).usage, Some(counts), "{case}");
            streamed.whole();
            assert_eq!(streamed.told().usage, Some(counts), "{case}");
            for id in [plain.request_id(), streamed.request_id()] {
                let row = scene.row(id).await;
                assert_counted(&row, counts, 6_000_000 + 100_000 + 200_000);
                assert_eq!(row["reasoning_tokens"], 15, "{case}: {row}");
            }
        }
    }
    scene.finish().await;
}

/// Panics unless the row holds these tokens by the upstream's word, at this cost.
fn assert_counted(row: &Value, counts: Counts, cost: i64) {
    assert_row(
        row,
        &json!({"outcome": "ok", "status": 200, "usage_source": "upstream", "input_tokens": counts.fresh,
            "cached_tokens": counts.cached, "cache_write_tokens": counts.written, "output_tokens": counts.output,
            "cost_nano_usd": cost}),
    );
}
