//! Images where they cannot be seen: refused before anything is called, and never sent to a route without eyes.

use harness::{Behaviour, Model, Surface, Upstream};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape};
use crate::rows::assert_row;

/// A picture of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A body with a picture, in the way of the surface. `bare`: the content is the block itself rather than a list of it.
fn body(surface: Surface, model: &str, bare: bool) -> Value {
    let url = format!("data:image/png;base64,{PIXEL}");
    let block = match surface {
        Surface::Messages => {
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}})
        }
        Surface::Responses => json!({"type": "input_image", "image_url": url}),
        Surface::Chat | Surface::Completions => json!({"type": "image_url", "image_url": {"url": url}}),
    };
    let content = if bare { block } else { json!([block]) };
    let mut body = surface.ask(model);
    if surface == Surface::Responses {
        body["input"] = json!([{"role": "user", "content": content}]);
    } else {
        body["messages"][0]["content"] = content;
    }
    body
}

#[tokio::test]
async fn an_image_for_a_model_without_eyes_is_refused_before_anything_is_called() {
    let scene = shapes::scene().await;
    for surface in Surface::RICH {
        for shape in Shape::ALL {
            for bare in [false, true] {
                let body = body(surface, shape.model(), bare);
                let answer = scene.client.post(surface, &body).await;

                let case = format!("{surface:?} of {shape:?}, bare: {bare}: {}", answer.text());
                assert_eq!(answer.status, 400, "{case}");
                let error = answer.json()["error"].clone();
                let message = error["message"].as_str().unwrap_or_default();
                assert!(message.ends_with("does not support image input"), "{case}");
                assert_eq!(error["type"], "invalid_request_error", "{case}");
                if surface != Surface::Messages {
                    assert_eq!(error["code"], "unsupported_modality", "{case}");
                }
            }
        }
    }
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn an_image_goes_to_routes_with_eyes_only_even_when_they_are_down() {
    for shape in Shape::ALL {
        let (seeing, blind) = (Upstream::start(), Upstream::start());
        let model = shape
            .leg(Model::new(shape.model()), &blind, 0)
            .set("input_modalities", json!(["text", "image"]))
            .set_leg("input_modalities", json!(["text"]));
        let model = shape
            .leg(model, &seeing, 1)
            .set_leg("input_modalities", json!(["text", "image"]));
        let mut scene = shapes::started(blind, seeing, &[model], |node| node).await;
        scene.pin();
        let (blind, seeing) = (&scene.o1, &scene.o2);
        seeing.script([Behaviour::chat("I see a dot").usage(9, 20)]);
        for surface in Surface::RICH {
            let answer = scene
                .client
                .post(surface, &body(surface, shape.model(), false))
                .await;
            let case = format!("{surface:?} of {shape:?}: {}", answer.text());
            if surface == Surface::RICH[0] {
                assert_eq!(answer.told(surface).text, "I see a dot", "{case}");
                seeing.default(Behaviour::failure(503, "down"));
            } else {
                assert_eq!(answer.status, 503, "{case}");
                assert_row(
                    &scene.row(answer.request_id()).await,
                    &json!({"status": 503, "cost_nano_usd": 0}),
                );
            }
        }
        assert_eq!((blind.calls(), seeing.calls()), (0, 3), "{shape:?}");
        scene.finish().await;
    }
}
