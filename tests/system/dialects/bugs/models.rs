//! A key that may use one model: every other one is the one that does not exist, on every path, in every form of it,
//! by every name, streamed or not; and nobody upstream hears of it.

use bytes::Bytes;
use harness::{Answer, Client, Model, PRICE, Scene, Surface, Upstream, settings};
use serde_json::{Value, json};

use super::super::shapes::Shape;

/// A key for the model `m` alone.
const NARROW_KEY: &str = "sk-harness-canary-of-m-alone-3c1f7a";

/// A scene with a model of every shape and one of embeddings, each with an alias.
async fn scene() -> Scene {
    let mut keys = settings()["keys"].clone();
    let narrow = json!({"name": "narrow", "tenant": "acme", "key": NARROW_KEY, "models": ["m"]});
    keys.as_array_mut().expect("a list").push(narrow);
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let aliased = |name: &str| Model::new(name).set("aliases", json!([format!("{name}-latest")]));
    let mut models: Vec<Model> = Shape::ALL
        .map(|shape| shape.leg(aliased(shape.model()), &o1, 0))
        .into();
    models.push(aliased("e").set("model_type", "embedding").leg(&o1, 0));
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models).setting("keys", keys)).await;
    scene.price("m", Some(PRICE));
    scene
}

/// Paths on which a model is asked for something, each with the bodies that are legal there.
fn calls(model: &str) -> Vec<(&'static str, Vec<Value>)> {
    let both = |surface: Surface| vec![surface.ask(model), surface.ask_streamed(model)];
    vec![
        ("/v1/chat/completions", both(Surface::Chat)),
        ("/v1/completions", both(Surface::Completions)),
        ("/completion", both(Surface::Completions)),
        ("/completion", both(Surface::Chat)),
        ("/v1/responses", both(Surface::Responses)),
        ("/v1/messages", both(Surface::Messages)),
        ("/anthropic/v1/messages", both(Surface::Messages)),
        ("/v1/embeddings", vec![json!({"model": model, "input": "x"})]),
        (COUNT, vec![Surface::Messages.ask(model)]),
        (COUNT_PREFIXED, vec![Surface::Messages.ask(model)]),
    ]
}

const COUNT: &str = "/v1/messages/count_tokens";
const COUNT_PREFIXED: &str = "/anthropic/v1/messages/count_tokens";

/// Every form in which a path is taken.
fn forms(path: &str) -> [String; 5] {
    [
        path.to_owned(),
        format!("{path}/"),
        format!("/{path}"),
        path.replacen("/v1/", "/v1//", 1),
        format!("{path}?beta=true"),
    ]
}

/// A call; those that count tokens are no inference and leave no row.
async fn send(client: &Client, path: &str, body: &Value) -> Answer {
    let answer = if path.contains("count_tokens") {
        client.call("POST", path, Bytes::from(body.to_string())).await
    } else {
        client.post_inference(path, body.to_string()).await
    };
    answer.expect("a whole answer")
}

/// A refusal without what differs between any two.
fn bare(answer: &Answer) -> (u16, String, Vec<(String, String)>) {
    let own = answer.request_id();
    let headers = answer.headers.iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).replace(own, "ID");
        (name.to_string(), value)
    });
    (answer.status, answer.text().replace(own, "ID"), headers.collect())
}

#[tokio::test]
async fn a_model_that_is_not_the_keys_own_is_the_one_that_does_not_exist_on_every_form_of_every_path() {
    let scene = scene().await;
    let narrow = scene.client.with_key(NARROW_KEY);
    let others = [
        "am",
        "am-latest",
        "gm",
        "gm-latest",
        "rm",
        "rm-latest",
        "e",
        "e-latest",
        "M",
    ];
    for (path, bodies) in calls("MODEL") {
        for body in bodies {
            let asking = |model: &str| {
                let mut body = body.clone();
                body["model"] = json!(model);
                body
            };
            let reference = bare(&send(&narrow, path, &asking("nothing")).await);
            assert_eq!(reference.0, 404, "{path}: {}", reference.1);
            let told: Value = serde_json::from_str(&reference.1).expect("JSON");
            if path.contains("/messages") {
                let kinds = (&told["type"], &told["error"]["type"]);
                assert_eq!(kinds, (&json!("error"), &json!("not_found_error")), "{path}");
            } else {
                assert_eq!(told["error"]["code"], "model_not_found", "{path}: {told}");
            }
            for form in forms(path) {
                for model in others {
                    let refused = send(&narrow, &form, &asking(model)).await;
                    assert_eq!(bare(&refused), reference, "{form} of {model}");
                }
            }
        }
    }
    let shown = narrow.get("/v1/models/am").await;
    assert_eq!(bare(&shown), bare(&narrow.get("/v1/models/nothing").await));
    let list = narrow.get("/v1/models").await.json();
    let ids: Vec<&Value> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(ids, ["m"]);
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 0));
    scene.finish().await;
}

#[tokio::test]
async fn the_keys_own_model_is_served_on_every_form_of_every_path() {
    let scene = scene().await;
    let narrow = scene.client.with_key(NARROW_KEY);
    for (path, bodies) in calls("m") {
        if path == "/v1/embeddings" {
            continue;
        }
        for form in forms(path) {
            let before = scene.o1.calls();
            let served = send(&narrow, &form, &bodies[0]).await;
            assert_eq!(served.status, 200, "{form}: {}", served.text());
            let counts = path.contains("count_tokens");
            assert_eq!(scene.o1.calls() - before, usize::from(!counts), "{form}");
        }
    }
    scene.finish().await;
}
