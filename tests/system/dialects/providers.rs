//! Providers as files and the environment name them: where their requests go, what proves who calls, and what each of
//! them needs changed.

use harness::{Behaviour, Model, Scene, Upstream};
use serde_json::Value;

mod discovery;
mod kinds;
mod openrouter;
mod profiles;

/// A scene with these models, whose upstreams refuse what their providers would refuse.
async fn scene(bend: impl FnOnce(&Upstream) -> Vec<Model>) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = bend(&o1);
    Scene::start_on(o1, o2, |node| node.models(&models)).await
}

/// The model `m` with one leg of a kind.
fn of_kind(upstream: &Upstream, kind: &str) -> Model {
    Model::new("m").leg(upstream, 0).set_leg("kind", kind)
}

/// A header of an upstream's call.
fn header(upstream: &Upstream, call: usize, name: &str) -> Option<String> {
    upstream.call(call).request.header(name).map(str::to_owned)
}

/// The body of an upstream's call.
fn sent(upstream: &Upstream, call: usize) -> Value {
    upstream.call(call).request.json()
}

/// An answer with what OpenRouter tells of its cost.
fn costing(usage: &str) -> Behaviour {
    let usage: Value = serde_json::from_str(usage).expect("JSON");
    Behaviour::chat("fine").usage_object(usage)
}
