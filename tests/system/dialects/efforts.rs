//! How much a model shall think: in its own words, whatever its caller said it in.

use harness::{Model, Surface};
use serde_json::{Value, json};

use super::surfaces::scene_of;

/// A model that knows two words of effort.
fn two_words(id: &str) -> Model {
    Model::new(id).set("reasoning_efforts", json!(["low", "high"]))
}

#[tokio::test]
async fn a_budget_becomes_a_word_that_the_model_takes() {
    let scene = scene_of(|o1, _| {
        let own = two_words("m").leg(o1, 0);
        let responses = two_words("r").leg(o1, 0).set_leg("responses", "only");
        let gemini = two_words("g").leg_at(&o1.root_url(), 0);
        let gemini = gemini
            .set_leg("kind", "gemini")
            .set_leg("provider_model_id", "gemini-3-pro");
        let claude = two_words("c").leg_at(&o1.root_url(), 0);
        let claude = claude
            .set_leg("kind", "anthropic")
            .set_leg("provider_model_id", "claude-opus-4-8");
        let finer = Model::new("f").set("reasoning_efforts", json!(["medium", "max"]));
        vec![own, responses, gemini, claude, finer.leg(o1, 0)]
    })
    .await;
    let budget = |tokens: u64| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}});
    let reasoning = |tokens: u64| json!({"reasoning": {"max_tokens": tokens}});
    let chat = |sent: &Value| sent["reasoning_effort"].clone();

    for (surface, model, more, read, word) in [
        (
            Surface::Messages,
            "m",
            budget(2_000),
            chat as fn(&Value) -> Value,
            "low",
        ),
        // In tokens this would be `medium`, which the model does not take.
        (Surface::Messages, "m", budget(9_000), chat, "low"),
        (Surface::Messages, "m", budget(20_000), chat, "high"),
        // Nothing is below, so it is the next above.
        (Surface::Messages, "f", budget(2_000), chat, "medium"),
        (
            Surface::Messages,
            "f",
            json!({"output_config": {"effort": "max"}}),
            chat,
            "max",
        ),
        (
            Surface::Messages,
            "r",
            budget(9_000),
            |sent| sent["reasoning"]["effort"].clone(),
            "low",
        ),
        (Surface::Messages, "g", budget(9_000), level, "low"),
        (Surface::Chat, "g", reasoning(20_000), level, "high"),
        (
            Surface::Chat,
            "c",
            reasoning(9_000),
            |sent| sent["output_config"]["effort"].clone(),
            "low",
        ),
    ] {
        let mut body = surface.ask(model);
        body["max_tokens"] = json!(16_000);
        for (name, value) in more.as_object().expect("members") {
            body[name] = value.clone();
        }

        let answer = scene.client.post(surface, &body).await;

        assert_eq!(answer.status, 200, "{model} {more}: {}", answer.text());
        assert_eq!(answer.header("x-waybill-dropped"), "", "{model} {more}");
        let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
        assert_eq!(read(&sent), word, "{model} {more}: {sent}");
    }
    scene.finish().await;
}

fn level(sent: &Value) -> Value {
    sent["generationConfig"]["thinkingConfig"]["thinkingLevel"].clone()
}

#[tokio::test]
async fn a_word_that_the_model_does_not_take_is_found_wherever_a_caller_of_chat_writes_it() {
    let scene = scene_of(|o1, _| {
        let binding = two_words("binding").set("effort_binding", true);
        vec![two_words("m").leg(o1, 0), binding.leg(o1, 0)]
    })
    .await;
    let asking = |model: &str, effort: &str| {
        let mut body = Surface::Chat.ask(model);
        body["reasoning"] = json!({"effort": effort});
        body
    };

    let other = scene.client.post(Surface::Chat, &asking("m", "medium")).await;
    assert_eq!(
        (other.status, other.header("x-waybill-dropped")),
        (200, "reasoning.effort")
    );
    let sent = scene.o1.call(0).request.json();
    assert_eq!(sent.get("reasoning"), None, "{sent}");
    let refused = scene
        .client
        .post(Surface::Chat, &asking("binding", "medium"))
        .await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["param"]),
        (400, &json!("reasoning.effort"))
    );
    let taken = scene.client.post(Surface::Chat, &asking("binding", "high")).await;
    assert_eq!((taken.status, taken.header("x-waybill-dropped")), (200, ""));
    assert_eq!(
        scene.o1.call(1).request.json()["reasoning"],
        json!({"effort": "high"})
    );
    scene.finish().await;
}
