//! Plain answers and their ends: exact ones, and those that break off.

use harness::{Behaviour, End, Model, Scene, Surface, Upstream};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, pairs, stream};
use crate::retries::tireless;
use crate::rows::{assert_free, assert_row, endpoint};

#[tokio::test]
async fn a_chat_is_answered_exactly_whatever_serves_it() {
    let scene = shapes::scene().await;
    scene.o1.default(Behaviour::chat("contract-ok").usage(3, 2));
    for shape in Shape::ALL {
        let mut body = Surface::Chat.ask(shape.model());
        body["messages"][0]["content"] = json!("hi");
        let answer = scene.client.post(Surface::Chat, &body).await;

        let told = answer.json();
        assert_eq!(answer.status, 200, "{told}");
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(
            (&told["object"], &told["model"]),
            (&json!("chat.completion"), &json!(shape.model()))
        );
        assert!(
            told["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")),
            "{told}"
        );
        assert!(
            told["created"]
                .as_u64()
                .is_some_and(|created| created > 1_600_000_000),
            "{told}"
        );
        let choice = &told["choices"][0];
        assert_eq!(
            (&choice["index"], &choice["finish_reason"]),
            (&json!(0), &json!("stop"))
        );
        let message = &choice["message"];
        assert_eq!(
            (&message["role"], &message["content"]),
            (&json!("assistant"), &json!("contract-ok"))
        );
        let figure = |name: &str| told["usage"][name].as_u64();
        let usage = ["prompt_tokens", "completion_tokens", "total_tokens"].map(figure);
        assert_eq!(usage, [Some(3), Some(2), Some(5)], "{told}");
        assert!(!answer.text().contains("null,\"usage\""), "{told}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn every_surface_answers_in_its_own_form_whatever_serves_it() {
    let scene = shapes::scene().await;
    scene.o1.default(Behaviour::chat("contract-ok").usage(3, 2));
    for (surface, shape) in pairs() {
        let plain = ask(&scene, surface, shape.model()).await;
        let streamed = stream(&scene, surface, shape.model()).await;

        let case = format!("{surface:?} of {shape:?}");
        streamed.whole();
        for told in [plain.told(surface), streamed.told()] {
            assert_eq!(
                (told.text.as_str(), told.finish.as_str()),
                ("contract-ok", "stop"),
                "{case}"
            );
            assert_eq!(told.model, shape.model(), "{case}");
            assert!(told.id.starts_with(prefix(surface, shape)), "{case}: {}", told.id);
        }
        let kind = streamed.headers["content-type"].to_str().expect("text");
        assert!(kind.starts_with("text/event-stream"), "{case}: {kind}");
        let row = scene.row(streamed.request_id()).await;
        let name = format!("{surface:?}").to_lowercase();
        assert_row(
            &row,
            &json!({"surface": name, "stream": true, "model": shape.model()}),
        );
    }
    scene.finish().await;
}

/// How ids of answers begin; what passes keeps its upstream's.
fn prefix(surface: Surface, _: Shape) -> &'static str {
    match surface {
        Surface::Chat => "chatcmpl-",
        Surface::Completions => "cmpl-",
        Surface::Responses => "resp_",
        Surface::Messages => "msg_",
    }
}

#[tokio::test]
async fn a_body_cut_inside_its_json_is_an_upstream_error_and_charged_to_the_endpoint_on_every_surface() {
    let mut scene = shapes::one_leg_scene(|node| node).await;
    scene.pin();
    // Three failures in a row open a circuit, so that each shape has three surfaces and then none.
    for shape in Shape::ALL {
        for surface in Surface::RICH {
            scene
                .o1
                .script([Behaviour::chat("a long enough answer").drop_last_bytes(40)]);
            let answer = ask(&scene, surface, shape.model()).await;

            assert_eq!(answer.status, 502, "{surface:?} of {shape:?}: {}", answer.text());
            assert_free(
                &scene.row(answer.request_id()).await,
                "upstream_error",
                502,
                "upstream_error",
            );
        }
        assert_charged(&scene, shape).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn frames_that_just_stop_are_an_upstream_error_and_charged_to_the_endpoint_on_every_surface() {
    let mut scene = shapes::one_leg_scene(|node| node).await;
    scene.pin();
    for shape in Shape::ALL {
        for surface in Surface::RICH {
            scene
                .o1
                .script([Behaviour::chat("one two three four").cut_after_chunks(3)]);
            let streamed = stream(&scene, surface, shape.model()).await;

            let case = format!("{surface:?} of {shape:?}");
            assert!(
                matches!(streamed.end, End::ErrorEvent(_)),
                "{case}: {:?}",
                streamed.end
            );
            assert_eq!(streamed.told().text, "one two three ", "{case}");
            assert_eq!(streamed.told().finish, "", "{case}");
            let row = scene.row(streamed.request_id()).await;
            assert_row(&row, &json!({"outcome": "upstream_cut", "cost_nano_usd": 0}));
        }
        assert_charged(&scene, shape).await;
    }
    scene.finish().await;
}

/// Panics unless the circuit of the shape's endpoint is open: the next call does not reach it.
async fn assert_charged(scene: &Scene, shape: Shape) {
    let calls = scene.o1.calls();
    let refused = ask(scene, Surface::Chat, shape.model()).await;
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (503, "all_circuits_open"),
        "{shape:?}"
    );
    assert_eq!(scene.o1.calls(), calls, "{shape:?}");
}

#[tokio::test]
async fn hybrid_case_25_an_answer_without_choices_is_a_failure_and_the_fallback_serves_every_surface() {
    let scene = shapes::scene_with(tireless).await;
    for (surface, shape) in pairs() {
        scene.o1.script([Behaviour::status(200, nothing(shape))]);
        scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);
        let answer = ask(&scene, surface, shape.model()).await;

        assert_eq!(
            answer.told(surface).text,
            "from the second",
            "{surface:?} of {shape:?}"
        );
        let row = scene.row(answer.request_id()).await;
        assert_row(
            &row,
            &json!({"endpoint_id": endpoint(shape.model(), &scene.o2), "cost_nano_usd": 178_000}),
        );
    }
    scene.finish().await;
}

/// An answer of the shape that holds none.
fn nothing(shape: Shape) -> Value {
    match shape {
        Shape::Chat => {
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []})
        }
        Shape::Messages => json!({"type": "message", "role": "assistant", "model": "am"}),
        Shape::Gemini => json!({"candidates": [], "modelVersion": "gm"}),
        Shape::Responses => {
            json!({"id": "resp_1", "object": "response", "status": "completed", "model": "rm"})
        }
    }
}

#[tokio::test]
async fn what_an_upstream_of_responses_says_passes_and_is_translated() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("rm").leg(&o1, 0).set_leg("responses", "only");
    let mut scene = shapes::started(o1, o2, &[model], |node| node).await;
    scene.price("rm", Some(harness::PRICE));
    scene.o1.default(Behaviour::chat("contract-ok").usage(9, 20));

    for surface in Surface::ALL {
        let plain = ask(&scene, surface, "rm").await;
        let streamed = stream(&scene, surface, "rm").await;

        streamed.whole();
        for told in [plain.told(surface), streamed.told()] {
            assert_eq!(
                (told.text.as_str(), told.finish.as_str()),
                ("contract-ok", "stop"),
                "{surface:?}"
            );
        }
        for id in [plain.request_id(), streamed.request_id()] {
            crate::rows::assert_billed(&scene.row(id).await, 9, 20, 178_000);
        }
    }
    let paths: Vec<String> = scene
        .o1
        .recorded()
        .into_iter()
        .map(|call| call.request.target)
        .collect();
    assert!(paths.iter().all(|path| path.ends_with("/responses")), "{paths:?}");
    scene.finish().await;
}
