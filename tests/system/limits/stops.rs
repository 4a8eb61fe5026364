//! Answers that run on beyond what they hold of their limits: the stream ends as one that ran into its maximum, in every
//! dialect, its upstream is left, and the waybill says what was paid for.

use std::time::Duration;

use harness::{Behaviour, Model, Scene, Surface, Upstream, chat};
use serde_json::json;

use super::under::{keys, refused, scene};

/// The most tokens of each answer.
const TOKENS_MAX: u64 = 20;

/// A scene whose model is served in one kind of dialect, and whose upstream does not stop.
async fn endless(change: impl FnOnce(Model) -> Model) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [change(Model::new("m").leg(&o1, 0))];
    let keys = keys(&json!({"daily_usd": "1.00"}));
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models).setting("keys", keys)).await;
    scene.price("m", None);
    scene
        .o1
        .default(Behaviour::chat("word").chunks(2_000, Duration::from_millis(5)));
    scene
}

async fn stops(scene: Scene, surface: Surface) {
    let mut body = surface.ask_streamed_with_usage("m");
    let maximum = match surface {
        Surface::Responses => "max_output_tokens",
        _ => "max_tokens",
    };
    body[maximum] = TOKENS_MAX.into();

    let stream = scene.client.stream(surface, &body).await;
    let id = stream.request_id().to_owned();
    let transcript = stream.collect().await;

    let told = transcript.told();
    assert_eq!(told.finish, "length", "{surface:?}");
    let bytes = told.text.len();
    assert!((60..400).contains(&bytes), "{surface:?}: {}", told.text);
    scene.o1.wait_left(0).await;
    let row = scene.row(&id).await;
    assert_eq!(
        (&row["outcome"], &row["status"]),
        (&json!("ok"), &json!(200)),
        "{row}"
    );
    assert_eq!(row["output_tokens"], TOKENS_MAX, "{surface:?}: {row}");
    assert_eq!(row["absorbed_nano_usd"], 0);
    let prompt = row["input_tokens"].as_i64().expect("a count");
    assert_eq!(row["cost_nano_usd"], prompt * 2_000 + 20 * 8_000);
    if let Some(usage) = told.usage {
        assert_eq!(usage.output, TOKENS_MAX, "{surface:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_that_runs_on_ends_at_its_length_before_an_upstream_of_chat() {
    for surface in Surface::ALL {
        stops(endless(|model| model).await, surface).await;
    }
}

#[tokio::test]
async fn a_stream_that_runs_on_ends_at_its_length_before_an_upstream_of_messages() {
    for surface in [Surface::Messages, Surface::Chat] {
        stops(endless(|model| model.set_leg("kind", "anthropic")).await, surface).await;
    }
}

#[tokio::test]
async fn a_stream_that_runs_on_ends_at_its_length_before_an_upstream_of_gemini() {
    for surface in [Surface::Chat, Surface::Messages, Surface::Responses] {
        stops(endless(|model| model.set_leg("kind", "gemini")).await, surface).await;
    }
}

#[tokio::test]
async fn a_stream_that_runs_on_ends_at_its_length_before_an_upstream_of_responses() {
    let native = endless(|model| model.set_leg("responses", "native"));
    stops(native.await, Surface::Responses).await;
}

#[tokio::test]
async fn a_stream_of_completions_that_runs_on_is_ended_whatever_it_says_of_repeating_its_prompt() {
    let scene = endless(|model| model).await;
    for (number, (echo, bytes)) in [
        (json!(false), 60..400),
        (json!(null), 60..400),
        (json!(true), 400..4_000),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = Surface::Completions.ask_streamed_with_usage("m");
        body["max_tokens"] = TOKENS_MAX.into();
        body["echo"] = echo.clone();

        let stream = scene.client.stream(Surface::Completions, &body).await;
        let transcript = stream.collect().await;

        let told = transcript.told();
        assert_eq!(told.finish, "length", "{echo}");
        let said = told.text.len();
        assert!(bytes.contains(&said), "{echo}: {said}");
        scene.o1.wait_left(number).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn completions_that_ask_for_no_answer_reserve_one_since_some_servers_do_not_stop_at_none() {
    let scene = scene(json!({"daily_tokens": 200})).await;
    let mut body = Surface::Completions.ask("m");
    body["max_tokens"] = 0.into();
    for echo in [false, true] {
        body["echo"] = echo.into();

        let answer = scene.client.post(Surface::Completions, &body).await;

        refused(&answer, "DAILY_TOKENS_EXCEEDED");
    }
    body["max_tokens"] = 20.into();
    let answer = scene.client.post(Surface::Completions, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    body["prompt_embeds"] = json!(["YQ=="]);
    let answer = scene.client.post(Surface::Completions, &body).await;
    refused(&answer, "DAILY_TOKENS_EXCEEDED");
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_within_its_maximum_is_never_cut_however_long_its_words_are() {
    let scene = scene(json!({"daily_usd": "1.00"})).await;
    let text = ["incomprehensibilities"; 20].join(" ");
    scene.o1.default(Behaviour::chat(&text).usage(3, 20));
    let mut body = Surface::Chat.ask_streamed_with_usage("m");
    body["max_tokens"] = TOKENS_MAX.into();

    let transcript = scene.client.stream_chat(&body).await.collect().await;

    assert_eq!(transcript.text(), text);
    assert_eq!(transcript.finish_reason().as_deref(), Some("stop"));
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_names_no_maximum_is_sent_that_of_its_key() {
    let mut keys = keys(&json!({"daily_usd": "1.00"}));
    keys[2]["output_default_max"] = json!(50);
    let scene = Scene::start_with(|node| node.setting("keys", keys)).await;
    scene.o1.default(Behaviour::chat("hi"));
    let surfaces = [Surface::Chat, Surface::Completions, Surface::Responses];

    for (number, surface) in surfaces.into_iter().enumerate() {
        let answer = scene.client.post(surface, &surface.ask("m")).await;
        assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
        let sent = scene.o1.call(number).request.json();
        assert_eq!(sent["max_tokens"], 50, "{surface:?}: {sent}");
    }
    let mut named = chat("m");
    named["max_tokens"] = json!(7);
    scene.client.post_chat(&named).await;
    assert_eq!(scene.o1.call(3).request.json()["max_tokens"], 7);
    scene.finish().await;
}

#[tokio::test]
async fn a_key_without_limits_is_never_cut() {
    let scene = Scene::start().await;
    let text = ["word"; 60].join(" ");
    scene.o1.default(Behaviour::chat(&text));
    let mut body = Surface::Chat.ask_streamed("m");
    body["max_tokens"] = TOKENS_MAX.into();

    let transcript = scene.client.stream_chat(&body).await.collect().await;

    assert_eq!(transcript.text(), text);
    scene.finish().await;
}
