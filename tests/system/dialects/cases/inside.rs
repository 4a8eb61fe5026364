//! Failures that are told in words inside an answer of status 200: what they say about the request reaches the caller
//! with its true status, and closes no model for others; what nobody knows is the upstream's own failure.

use harness::{Behaviour, Model, Scene, Surface, Upstream};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, stream};
use crate::retries::tireless;
use crate::rows::assert_free;

/// What upstreams say of a prompt that they do not take.
const TOO_LONG: &str = "prompt is too long: 205000 tokens > 200000 maximum";
const ODD: &str = "messages must not be empty";

/// The model whose upstream speaks Responses.
const RESPONSES: &str = "rm";

/// A scene of one leg for each of the models that have words for failures, whose circuits open as they do by default.
async fn scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Shape::Chat.leg(Model::new(Shape::Chat.model()), &o1, 0),
        Shape::Messages.leg(Model::new(Shape::Messages.model()), &o1, 0),
        Model::new(RESPONSES).leg(&o1, 0).set_leg("responses", "only"),
    ];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.pin();
    scene
}

/// How an upstream fails: the first event of its stream, and its whole answer.
fn failing(model: &str, (kind, code, message): (&str, Value, &str)) -> (Value, Value) {
    if model == RESPONSES {
        let whole = json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "failed", "model": "m",
            "output": [], "error": {"code": code, "message": message}});
        let event = json!({"type": "response.failed", "sequence_number": 0, "response": whole});
        return (event, whole);
    }
    let error = if model == Shape::Messages.model() {
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
    } else {
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    };
    (error.clone(), error)
}

/// Has the model fail in each of its places: the first event, the whole answer, and a document in place of a stream.
async fn told(scene: &Scene, (surface, model): (Surface, &str), failure: (Value, Value)) -> Vec<Told> {
    let (event, whole) = failure;
    scene.o1.script([
        Behaviour::error_in_200(event),
        Behaviour::status(200, whole.clone()),
        Behaviour::status(200, whole),
    ]);
    let streamed = stream(scene, surface, model).await;
    let instead = stream(scene, surface, model).await;
    let plain = ask(scene, surface, model).await;
    vec![
        (
            streamed.status,
            streamed.error(),
            streamed.request_id().to_owned(),
        ),
        (instead.status, instead.error(), instead.request_id().to_owned()),
        (
            plain.status,
            plain.json()["error"].clone(),
            plain.request_id().to_owned(),
        ),
    ]
}

/// Status, error and request id of an answer.
type Told = (u16, Value, String);

const MODELS: [&str; 3] = [Shape::Chat.model(), Shape::Messages.model(), RESPONSES];

#[tokio::test]
async fn what_an_upstream_refuses_inside_its_answer_is_the_callers_fault_and_closes_no_model() {
    let scene = scene().await;
    for (code, message, told_code) in [
        (
            json!("context_length_exceeded"),
            TOO_LONG,
            "context_length_exceeded",
        ),
        (json!("invalid_prompt"), ODD, "upstream_rejected_request"),
    ] {
        for model in MODELS {
            for surface in Surface::ALL {
                let failure = failing(model, ("invalid_request_error", code.clone(), message));
                for (status, error, id) in told(&scene, (surface, model), failure).await {
                    let case = format!("{surface:?} of {model}, {code}: {error}");
                    assert_eq!(status, 400, "{case}");
                    assert_eq!(error["type"], "invalid_request_error", "{case}");
                    assert_eq!(error["message"], message, "{case}");
                    if surface != Surface::Messages {
                        assert_eq!(error["code"], told_code, "{case}");
                    }
                    assert_free(&scene.row(&id).await, "upstream_error", 400, told_code);
                }
            }
        }
    }
    for model in MODELS {
        let answer = ask(&scene, Surface::Chat, model).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    }
    scene.finish().await;
}

#[tokio::test]
async fn every_word_that_upstreams_share_for_a_failure_has_its_status() {
    let scene = shapes::one_leg_scene(tireless).await;
    let cases = [
        ("authentication_error", 502, "upstream_rejected_credential"),
        ("permission_error", 502, "upstream_rejected_credential"),
        ("billing_error", 502, "upstream_rejected_credential"),
        ("request_too_large", 413, "upstream_rejected_request"),
        ("rate_limit_error", 429, "upstream_rate_limited"),
        ("not_found_error", 502, "upstream_error"),
        ("api_error", 502, "upstream_error"),
        ("timeout_error", 504, "upstream_timeout"),
        ("overloaded_error", 503, "upstream_error"),
    ];
    for (kind, status, code) in cases {
        for shape in [Shape::Chat, Shape::Messages] {
            let failure = failing(shape.model(), (kind, Value::Null, "no"));
            for (told, error, id) in told(&scene, (Surface::Responses, shape.model()), failure).await {
                assert_eq!((told, &error["code"]), (status, &json!(code)), "{kind}: {error}");
                assert_free(&scene.row(&id).await, "upstream_error", status, code);
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_word_that_nobody_knows_is_the_upstreams_failure_and_charged_to_it() {
    let scene = scene().await;
    for model in [Shape::Chat.model(), RESPONSES] {
        let failure = failing(model, ("odd", json!("engine_on_fire"), "no"));
        for (status, error, _) in told(&scene, (Surface::Chat, model), failure).await {
            assert_eq!(
                (status, &error["code"]),
                (502, &json!("upstream_error")),
                "{model}"
            );
        }
        let calls = scene.o1.calls();
        let refused = ask(&scene, Surface::Chat, model).await;
        assert_eq!(refused.error_code(), "all_circuits_open", "{model}");
        assert_eq!(scene.o1.calls(), calls, "{model}");
    }
    scene.finish().await;
}
