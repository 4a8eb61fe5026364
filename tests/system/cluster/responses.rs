//! What one node keeps of a response, every other one knows.

use bytes::Bytes;
use harness::{Behaviour, Client, Plan, Scene, Surface};
use serde_json::{Value, json};

async fn respond(client: &Client, body: &Value) -> Value {
    let answer = client.post(Surface::Responses, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_response_of_one_node_is_gone_on_from_shown_and_deleted_on_the_other() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let (a, b) = (scene.client.at(a), scene.client.at(b));
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("an answer"));
    }
    let streamed = json!({"model": "m", "input": "one", "stream": true});

    let first = a.stream(Surface::Responses, &streamed).await.collect().await;
    let first = first.chunks().last().expect("an event")["response"].clone();
    let id = first["id"].as_str().expect("an id");
    let path = format!("/v1/responses/{id}");
    let shown = b.get(&path).await;
    let next = json!({"model": "m", "previous_response_id": id, "input": "two"});
    let second = respond(&b, &next).await;
    let third = json!({"model": "m", "previous_response_id": second["id"], "input": "three"});
    respond(&a, &third).await;
    let deleted = b.call("DELETE", &path, Bytes::new()).await.expect("an answer");

    assert_eq!((shown.status, shown.json()), (200, first.clone()));
    assert_eq!(second["previous_response_id"], first["id"]);
    let sent = scene.o1.call(2).request.json();
    let texts: Vec<_> = sent["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| message["content"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(texts, ["one", "an answer", "two", "an answer", "three"]);
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(a.get(&path).await.status, 404);
    let gone = a.post(Surface::Responses, &next).await;
    assert_eq!(
        (gone.status, &*gone.error_code()),
        (404, "previous_response_not_found")
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_is_away_keeps_nothing_and_costs_no_answer() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node).await;
    scene.wait_ready().await;
    let before = scene.metric("waybill_responses_unkept_total").await;

    scene.cluster().services.nats_proxy.cut();
    let body = json!({"model": "m", "input": "one"});
    let whole = respond(&scene.client, &body).await;
    let streamed = json!({"model": "m", "input": "one", "stream": true});
    let streamed = scene.client.stream(Surface::Responses, &streamed).await;
    let last = streamed.collect().await.chunks().last().expect("an event")["type"].clone();
    let gone = json!({"model": "m", "previous_response_id": whole["id"], "input": "two"});
    let away = scene.client.post(Surface::Responses, &gone).await;
    let unkept = scene.metric("waybill_responses_unkept_total").await;
    scene.cluster().services.nats_proxy.heal();

    assert_eq!(
        (&whole["status"], last),
        (&json!("completed"), json!("response.completed"))
    );
    assert_eq!(
        (away.status, &*away.error_code()),
        (503, "store_unavailable"),
        "nobody can tell whether it is there"
    );
    assert!((unkept - before - 2.0).abs() < f64::EPSILON, "{before} {unkept}");
    scene.finish().await;
}
