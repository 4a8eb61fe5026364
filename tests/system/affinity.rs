//! Sessions that stay on one backend: turn by turn, under load, when their backend fails, and when they end. Calls go to
//! the gateways of a cluster in turn.

mod fleet;
mod moves;
mod stays;

use harness::{Answer, Model, NodeBuilder, Scene, Surface, Upstream};
use serde_json::{Value, json};

/// Model `m` with two legs of one weight on which sessions stay.
fn staying(o1: &Upstream, o2: &Upstream) -> Model {
    alike(o1, o2)
        .set_leg("session_affinity", true)
        .set_leg_of(0, "session_affinity", true)
}

/// Model `m` with two legs of one weight.
fn alike(o1: &Upstream, o2: &Upstream) -> Model {
    Model::new("m").leg(o1, 0).leg(o2, 0)
}

/// A scene whose model `m` has two legs on which sessions stay.
async fn scene() -> Scene {
    scene_with(staying, |node| node).await
}

/// A scene of which something is different. On a machine that is busy with other tests a bus may take its time.
async fn scene_with(
    model: impl FnOnce(&Upstream, &Upstream) -> Model,
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, &o2);
    let patient = |node: NodeBuilder| change(node.models(&[model]).env("ROUTING_AFFINITY_WAIT_MS", "5000"));
    Scene::start_on(o1, o2, patient).await
}

/// A body of a conversation: what was said so far, the caller first, then the model, and so on.
fn body(surface: Surface, said: &[String]) -> Value {
    let roles = ["user", "assistant"].iter().cycle();
    let messages = || -> Vec<Value> {
        let turns = roles.clone().zip(said);
        turns
            .map(|(role, text)| json!({"role": role, "content": text}))
            .collect()
    };
    match surface {
        Surface::Chat => json!({"model": "m", "messages": messages()}),
        Surface::Messages => json!({"model": "m", "max_tokens": 64, "messages": messages()}),
        Surface::Responses => json!({"model": "m", "store": false, "input": messages()}),
        Surface::Completions => json!({"model": "m", "prompt": said.join("\n")}),
    }
}

/// How affinity decided about an answer.
fn verdict(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-session-affinity").to_owned()
}
