//! Items of kept responses that a request names by their ids instead of sending them again.

use bytes::Bytes;
use harness::{ADMIN_KEY, Behaviour, Model, OTHER_KEY, Surface};
use serde_json::{Value, json};

use super::surfaces::scene_of;

const CALL: (&str, &str, &str) = ("call_1", "weather", r#"{"city":"Oslo"}"#);

fn reference(item: &Value) -> Value {
    json!({"type": "item_reference", "id": item["id"]})
}

#[tokio::test]
async fn an_item_that_is_named_is_sent_upstream_in_its_place_on_whatever_surface_it_serves() {
    for kind in ["chat", "native"] {
        let scene = scene_of(|o1, _| {
            let model = Model::new("m").leg(o1, 0);
            vec![if kind == "native" {
                model.set_leg("responses", kind)
            } else {
                model
            }]
        })
        .await;
        scene.o1.script([
            Behaviour::chat("let me look ").tool_calls(&[CALL]),
            Behaviour::chat("cold"),
            Behaviour::chat("bye"),
        ]);
        let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
        let respond = async |input: &Value| {
            let body = json!({"model": "m", "input": input, "tools": tools});
            let answer = scene.client.post(Surface::Responses, &body).await;
            assert_eq!(answer.status, 200, "{kind}: {}", answer.text());
            answer.json()
        };

        let question = json!({"role": "user", "content": "weather?"});
        let first = respond(&json!([question])).await;
        let said = first["output"].as_array().expect("items").clone();
        let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "4 degrees"});
        let mut input = vec![question];
        input.extend(said.iter().map(reference));
        input.push(result);
        let second = respond(&json!(input)).await;
        // The last turn names what both said, one of them without a type.
        input.push(json!({"id": second["output"][0]["id"]}));
        input.push(json!({"role": "user", "content": "thanks"}));
        respond(&json!(input)).await;

        assert_eq!(said.len(), 2, "{kind}: {said:?}");
        let sent = scene.o1.call(2).request;
        let body = sent.json();
        assert!(
            !sent.json().to_string().contains("item_reference"),
            "{kind}: {body}"
        );
        if kind == "native" {
            let kinds: Vec<_> = body["input"].as_array().expect("items").iter().collect();
            assert_eq!(kinds.len(), 6, "{body}");
            assert_eq!(kinds[1]["content"][0]["text"], "let me look ");
            assert_eq!(
                (&kinds[2]["call_id"], &kinds[2]["arguments"]),
                (&json!("call_1"), &json!(CALL.2))
            );
            assert_eq!(kinds[4]["content"][0]["text"], "cold");
        } else {
            let messages = body["messages"].as_array().expect("messages");
            let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str()).collect();
            let expected = ["user", "assistant", "tool", "assistant", "user"].map(Some);
            assert_eq!(roles, expected, "{body}");
            assert_eq!(messages[1]["content"], "let me look ");
            assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], CALL.2);
            assert_eq!(messages[3]["content"], "cold");
        }
        scene.finish().await;
    }
}

#[tokio::test]
async fn an_item_that_its_caller_sent_without_an_id_is_named_by_the_one_that_it_is_listed_with() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "native")]).await;
    let question = json!({"role": "user", "content": "weather?"});
    let other = json!({"role": "user", "content": "in Oslo"});
    let body = json!({"model": "m", "input": [question, other]});
    let first = scene.client.post(Surface::Responses, &body).await.json();
    let path = format!(
        "/v1/responses/{}/input_items?order=asc",
        first["id"].as_str().expect("an id")
    );
    let listed = scene.client.get(&path).await.json();
    let [one, two] = [&listed["data"][0], &listed["data"][1]];
    assert_ne!(one["id"], two["id"]);

    let body =
        json!({"model": "m", "input": [reference(two), reference(&first["output"][0]), reference(one)]});
    let second = scene.client.post(Surface::Responses, &body).await;

    assert_eq!(second.status, 200, "{}", second.text());
    let sent = scene.o1.call(1).request.json();
    assert_eq!(
        [&sent["input"][0], &sent["input"][2]],
        [&other, &question],
        "{sent}"
    );
    let foreign = scene
        .client
        .with_key(OTHER_KEY)
        .post(Surface::Responses, &body)
        .await;
    assert_eq!(
        (foreign.status, foreign.error_code().as_str()),
        (404, "not_found")
    );
    scene.finish().await;
}

#[tokio::test]
async fn an_item_of_another_tenant_is_told_like_one_that_never_was_and_goes_with_its_response() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "native")]).await;
    let body = json!({"model": "m", "input": "one"});
    let own = scene.client.post(Surface::Responses, &body).await.json();
    let named = |item: &Value| json!({"model": "m", "input": [reference(item), {"role": "user", "content": "go on"}]});
    let nothing = json!({"id": "msg_nothing"});
    let told = async |key: &str, item: &Value| {
        let client = scene.client.with_key(key);
        let answer = client.post(Surface::Responses, &named(item)).await;
        let id = item["id"].as_str().expect("an id");
        let body = answer.text().replace(answer.request_id(), "REQUEST");
        (answer.status, body.replace(id, "ASKED"))
    };

    let unknown = told(harness::CALLER_KEY, &nothing).await;
    for key in [OTHER_KEY, ADMIN_KEY] {
        assert_eq!(told(key, &own["output"][0]).await, unknown);
    }
    assert_eq!(scene.o1.calls(), 1, "nobody else's request went on");
    let error: Value = serde_json::from_str(&unknown.1).expect("JSON");
    let error = &error["error"];
    assert_eq!(
        (unknown.0, &error["code"], &error["param"], &error["message"]),
        (
            404,
            &json!("not_found"),
            &json!("input"),
            &json!("Item 'ASKED' not found")
        )
    );

    let path = format!("/v1/responses/{}", own["id"].as_str().expect("an id"));
    let deleted = scene.client.call("DELETE", &path, Bytes::new()).await;
    assert_eq!(deleted.expect("an answer").status, 200);
    assert_eq!(told(harness::CALLER_KEY, &own["output"][0]).await, unknown);
    assert_eq!(scene.o1.calls(), 1, "what is forgotten is named by nobody");
    scene.finish().await;
}

#[tokio::test]
async fn an_input_that_is_there_twice_is_refused() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "native")]).await;
    let body = r#"{"model":"m","input":[{"id":"msg_1"}],"input":"x"}"#;

    let answer = scene
        .client
        .post_inference("/v1/responses", body.to_owned())
        .await;

    let answer = answer.expect("an answer");
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (400, "invalid_request")
    );
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}
