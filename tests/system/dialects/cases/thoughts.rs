//! Thoughts of a model: kept by default, absent where the caller does not want them.

use harness::{Behaviour, Told};

use super::super::shapes::{self, rich_pairs};

const THOUGHT: &str = "the user wants hi, so";

#[tokio::test]
async fn thoughts_are_kept_in_streams_and_plain_answers_on_every_surface() {
    let scene = shapes::scene().await;
    scene
        .o1
        .default(Behaviour::chat("hi there").reasoning(THOUGHT).usage(9, 20));
    for (surface, shape) in rich_pairs() {
        for body in [surface.ask(shape.model()), surface.ask_streamed(shape.model())] {
            let told = told(&scene, surface, &body).await.0;
            let case = format!("{surface:?} of {shape:?}, {}", body["stream"]);
            assert_eq!(
                (told.reasoning.as_str(), told.text.as_str()),
                (THOUGHT, "hi there"),
                "{case}"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_who_does_not_want_thoughts_gets_none_and_the_text_is_whole() {
    let mut scene = shapes::scene().await;
    scene.client = scene.client.with_header("x-reasoning-passthrough", "false");
    scene
        .o1
        .default(Behaviour::chat("hi there").reasoning(THOUGHT).usage(9, 20));
    for (surface, shape) in rich_pairs() {
        for body in [surface.ask(shape.model()), surface.ask_streamed(shape.model())] {
            let (told, raw) = told(&scene, surface, &body).await;
            let case = format!("{surface:?} of {shape:?}, {}: {raw}", body["stream"]);
            assert_eq!(
                (told.reasoning.as_str(), told.text.as_str()),
                ("", "hi there"),
                "{case}"
            );
            for trace in [
                "reasoning_content",
                "\"thinking",
                "\"type\":\"reasoning\"",
                "wants",
            ] {
                assert!(!raw.contains(trace), "{trace} in {case}");
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_of_thoughts_alone_is_an_empty_text_for_a_caller_who_does_not_want_them() {
    let mut scene = shapes::scene().await;
    scene.client = scene.client.with_header("x-reasoning-passthrough", "false");
    scene
        .o1
        .default(Behaviour::chat("").reasoning(THOUGHT).usage(9, 20));
    for (surface, shape) in rich_pairs() {
        for body in [surface.ask(shape.model()), surface.ask_streamed(shape.model())] {
            let (told, raw) = told(&scene, surface, &body).await;
            let case = format!("{surface:?} of {shape:?}, {}: {raw}", body["stream"]);
            assert_eq!((told.reasoning.as_str(), told.text.as_str()), ("", ""), "{case}");
            assert_eq!(told.finish, "stop", "{case}");
            assert!(!raw.contains("wants"), "{case}");
            if surface == harness::Surface::Chat && body["stream"].is_null() {
                let body: serde_json::Value = serde_json::from_str(&raw).expect("JSON");
                assert_eq!(body["choices"][0]["message"]["content"], "", "{case}");
            }
        }
    }
    scene.finish().await;
}

/// What a call is told, and all bytes of it.
async fn told(scene: &harness::Scene, surface: harness::Surface, body: &serde_json::Value) -> (Told, String) {
    if body["stream"] == true {
        let streamed = shapes::streamed(scene, surface, body).await;
        streamed.whole();
        return (
            streamed.told(),
            String::from_utf8_lossy(&streamed.raw).into_owned(),
        );
    }
    let answer = scene.client.post(surface, body).await;
    (answer.told(surface), answer.text())
}
