//! Callers who do not want to see thoughts: they see none on any surface, whether their answer passes or is translated,
//! and nothing else is lost.

use harness::{Behaviour, Model, Scene, Surface, Upstream};
use serde_json::{Value, json};

const THOUGHT: &str = "thought-of-nobodys-concern";

/// What the upstream does: a thought, a text and a call.
fn thinking() -> Behaviour {
    Behaviour::chat("the answer")
        .reasoning(THOUGHT)
        .tool_calls(&[("call_1", "look", r#"{"at":"it"}"#)])
        .usage(9, 20)
}

/// A body that allows the call.
fn body(surface: Surface, stream: bool) -> Value {
    let mut body = if stream {
        surface.ask_streamed("m")
    } else {
        surface.ask("m")
    };
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    body["tools"] = match surface {
        Surface::Messages => json!([{"name": "look", "input_schema": schema}]),
        Surface::Responses => json!([{"type": "function", "name": "look", "parameters": schema}]),
        Surface::Chat | Surface::Completions => {
            json!([{"type": "function", "function": {"name": "look", "parameters": schema}}])
        }
    };
    body
}

/// A scene whose model is served in the surface's own dialect, or in another.
async fn scene(surface: Surface, passing: bool) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0);
    let model = match (surface, passing) {
        (Surface::Messages, true) | (Surface::Chat | Surface::Responses, false) => model
            .set_leg("kind", "anthropic")
            .set_leg("base_url", o1.root_url()),
        (Surface::Responses, true) => model.set_leg("responses", "native"),
        _ => model,
    };
    let scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.o1.default(thinking());
    scene
}

#[tokio::test]
async fn who_does_not_want_to_see_thoughts_sees_none_and_loses_nothing_else() {
    for surface in Surface::RICH {
        for passing in [true, false] {
            let scene = scene(surface, passing).await;
            let quiet = scene.client.with_header("x-reasoning-passthrough", "false");
            for stream in [false, true] {
                let case = format!("{surface:?}, passing: {passing}, stream: {stream}");
                let body = body(surface, stream);
                let (shown, hidden) = if stream {
                    let shown = scene.client.stream(surface, &body).await.collect().await;
                    let hidden = quiet.stream(surface, &body).await.collect().await;
                    let raw = String::from_utf8_lossy(&hidden.raw);
                    assert!(
                        !raw.contains(THOUGHT) && !raw.contains("thinking"),
                        "{case}: {raw}"
                    );
                    (shown.told(), hidden.told())
                } else {
                    let shown = scene.client.post(surface, &body).await;
                    let hidden = quiet.post(surface, &body).await;
                    let raw = hidden.text();
                    assert!(
                        !raw.contains(THOUGHT) && !raw.contains("thinking"),
                        "{case}: {raw}"
                    );
                    (shown.told(surface), hidden.told(surface))
                };
                assert_eq!(shown.reasoning.trim(), THOUGHT, "{case}");
                assert_eq!(
                    (hidden.reasoning.as_str(), hidden.text.as_str()),
                    ("", "the answer"),
                    "{case}"
                );
                assert_eq!(hidden.calls.len(), 1, "{case}");
                assert_eq!(hidden.calls[0].arguments, r#"{"at":"it"}"#, "{case}");
                assert_eq!(
                    (hidden.finish, hidden.usage),
                    (shown.finish, shown.usage),
                    "{case}"
                );
            }
            scene.finish().await;
        }
    }
}

/// A conversation whose model thought aloud before it spoke, and a proof of the thought in Anthropic's own form where
/// there is one.
fn thoughtful(surface: Surface, model: &str, proof: Option<&str>) -> Value {
    let mut body = surface.ask(model);
    let turns = match surface {
        Surface::Messages => json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": THOUGHT, "signature": proof.unwrap_or_default()},
                {"type": "text", "text": "a"},
            ]},
            {"role": "user", "content": "n"},
        ]),
        Surface::Responses => json!([
            {"role": "user", "content": "q"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "n"},
        ]),
        Surface::Chat | Surface::Completions => {
            let mut said = json!({"role": "assistant", "content": "a", "reasoning_content": THOUGHT});
            if let Some(proof) = proof {
                let format = "anthropic-claude-v1";
                said["reasoning_details"] = json!([{"type": "reasoning.text", "text": THOUGHT, "signature": proof, "format": format}]);
            }
            json!([{"role": "user", "content": "q"}, said, {"role": "user", "content": "n"}])
        }
    };
    let place = if surface == Surface::Responses {
        "input"
    } else {
        "messages"
    };
    body[place] = turns;
    body
}

#[tokio::test]
async fn what_a_translation_leaves_out_of_earlier_thoughts_is_told_in_its_callers_words() {
    let (o1, o2) = (Upstream::start().strict(), Upstream::start().strict());
    let models = [
        Model::new("forgets").leg(&o1, 0),
        Model::new("remembers").leg(&o1, 0).set_leg("profile", "vllm"),
        Model::new("proves")
            .leg(&o2, 0)
            .set_leg("kind", "anthropic")
            .set_leg("base_url", o2.root_url()),
    ];
    let scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    let [chat, messages, responses] = [
        "messages.reasoning_content",
        "messages.content.thinking",
        "input.reasoning",
    ];
    let cases = [
        (Surface::Messages, "forgets", Some("sig-x"), messages),
        (Surface::Messages, "forgets", None, messages),
        (Surface::Messages, "remembers", Some("sig-x"), ""),
        (Surface::Responses, "forgets", None, responses),
        (Surface::Responses, "remembers", None, ""),
        (Surface::Responses, "proves", None, responses),
        (Surface::Chat, "proves", None, chat),
        (Surface::Chat, "proves", Some("sig-x"), ""),
        // Its upstream does not accept the proof, so it is asked again without.
        (Surface::Chat, "proves", Some("Foreign"), chat),
    ];
    for (surface, model, proof, told) in cases {
        let case = format!("{surface:?} to {model}, proof: {proof:?}");
        let upstream = if model == "proves" { &scene.o2 } else { &scene.o1 };
        let mut body = thoughtful(surface, model, proof);

        let whole = scene.client.post(surface, &body).await;
        let first = upstream.calls() - 1;
        body["stream"] = json!(true);
        let streamed = scene.client.stream(surface, &body).await.collect().await;

        let statuses = (whole.status, streamed.status);
        assert_eq!(statuses, (200, 200), "{case}: {}", whole.text());
        assert_eq!(whole.header("x-waybill-dropped"), told, "{case}");
        let header = streamed.headers.get("x-waybill-dropped");
        let header = header.map_or("", |value| value.to_str().expect("text"));
        assert_eq!(header, told, "{case}");
        for call in [first, upstream.calls() - 1] {
            let sent = upstream.call(call).request.json().to_string();
            assert_eq!(sent.contains(THOUGHT), told.is_empty(), "{case}: {sent}");
        }
    }
    scene.finish().await;
}

/// A turn of Messages after an answer whose thought has this proof.
fn after_thought(signature: &str) -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": signature},
            {"type": "text", "text": "a"},
        ]},
        {"role": "user", "content": "n"},
    ]})
}

/// The answer in the history, as each call told it.
fn histories(upstream: &Upstream) -> Vec<Value> {
    let told = |call: &harness::Call| call.request.json()["messages"][1]["content"].clone();
    upstream.recorded().iter().map(told).collect()
}

/// The history of a conversation whose upstream does not know the thoughts in it.
fn bare() -> Value {
    json!([{"type": "text", "text": "a"}])
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_passes_after_an_answer_from_elsewhere() {
    let upstream = Upstream::start().strict();
    let model = Model::new("m").leg(&upstream, 0);
    let model = model
        .set_leg("kind", "anthropic")
        .set_leg("base_url", upstream.root_url());
    let scene = Scene::start_on(upstream, Upstream::start(), |node| node.models(&[model])).await;
    scene.o1.default(Behaviour::chat("b").usage(9, 2));
    let ask = async |signature: &str| {
        scene
            .client
            .post(Surface::Messages, &after_thought(signature))
            .await
    };

    let marked = ask("waybill.none").await;
    let own = ask("waybill.anthropic.sig-x").await;
    let foreign = ask("Foreign").await;

    for answer in [&marked, &own, &foreign] {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(marked.header("x-waybill-dropped"), "messages.content.thinking");
    assert_eq!(own.header("x-waybill-dropped"), "");
    assert_eq!(foreign.header("x-waybill-dropped"), "messages.content.thinking");
    let kept = |signature: &str| after_thought(signature)["messages"][1]["content"].clone();
    assert_eq!(
        histories(&scene.o1),
        [bare(), kept("sig-x"), kept("Foreign"), bare()]
    );
    scene.finish().await;
}
