//! Responses that callers let us keep: gone on from, shown, listed and forgotten, by their tenant alone.

use std::time::Duration;

use bytes::Bytes;
use harness::{ADMIN_KEY, Answer, Behaviour, Client, Model, OTHER_KEY, Said, Scene, Surface};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::surfaces::scene_of;

/// How long what is kept after its caller left may take to be there.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

fn ask(input: &str) -> Value {
    json!({"model": "m", "input": input})
}

fn going_on(previous: &Value, input: &str) -> Value {
    json!({"model": "m", "previous_response_id": previous, "input": input})
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

async fn respond(client: &Client, body: &Value) -> Value {
    let answer = client.post(Surface::Responses, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(&format!("/v1/responses/{path}")).await
}

async fn delete(client: &Client, id: &str) -> Answer {
    let path = format!("/v1/responses/{id}");
    let deleted = client.call("DELETE", &path, Bytes::new()).await;
    deleted.expect("an answer")
}

/// The texts that the upstream's last call was sent, each with its role.
fn last_sent(scene: &Scene) -> Vec<(String, String)> {
    let body = scene.o1.call(scene.o1.calls() - 1).request.json();
    let messages = body["messages"].as_array().expect("messages").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = |message: &Value| (text(&message["role"]), text(&message["content"]));
    messages.iter().map(said).collect()
}

fn said(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

/// A refusal without what differs between any two: its status, its body, and its headers.
fn refusal(answer: &Answer, id: &str) -> (u16, String, Vec<String>) {
    let own = answer.request_id();
    let without = |text: &str| text.replace(own, "REQUEST").replace(id, "ASKED");
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| format!("{name}: {}", without(value.to_str().expect("text"))))
        .collect();
    headers.sort();
    (answer.status, without(&answer.text()), headers)
}

#[tokio::test]
async fn a_request_goes_on_from_a_response_with_all_that_was_said_and_the_answer_names_it() {
    let scene = Scene::start().await;
    scene.o1.script([
        Behaviour::chat("first answer"),
        Behaviour::chat("second answer"),
        Behaviour::chat("third answer"),
    ]);

    let first = respond(&scene.client, &ask("one")).await;
    let mut second = going_on(&first["id"], "two");
    second["instructions"] = json!("be brief");
    let second = respond(&scene.client, &second).await;
    let sent_second = last_sent(&scene);
    let third = respond(&scene.client, &going_on(&second["id"], "three")).await;

    assert_eq!(first["previous_response_id"], json!(null));
    assert_eq!(first["store"], json!(true));
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(second["instructions"], "be brief");
    assert_eq!(
        sent_second,
        [
            said("system", "be brief"),
            said("user", "one"),
            said("assistant", "first answer"),
            said("user", "two"),
        ]
    );
    // Instructions are of their own request alone.
    assert_eq!(
        last_sent(&scene),
        [
            said("user", "one"),
            said("assistant", "first answer"),
            said("user", "two"),
            said("assistant", "second answer"),
            said("user", "three"),
        ]
    );
    let body = scene.o1.call(1).request.json();
    assert_eq!(body.get("previous_response_id"), None);
    let shown = get(&scene.client, third["id"].as_str().expect("an id")).await;
    assert_eq!((shown.status, shown.json()), (200, third));
    scene.finish().await;
}

#[tokio::test]
async fn calls_of_an_upstream_that_counts_those_of_each_answer_are_gone_on_from() {
    let scene = Scene::start().await;
    let called = || Behaviour::chat("").tool_calls(&[("call_0", "look", "{}")]);
    scene.o1.script([called(), called(), Behaviour::chat("seen")]);
    let result = |previous: &Value, text: &str| {
        let mut body = going_on(previous, "");
        body["input"] = json!([{"type": "function_call_output", "call_id": "call_0", "output": text}]);
        body
    };

    let first = respond(&scene.client, &ask("one")).await;
    let second = respond(&scene.client, &result(&first["id"], "first")).await;
    respond(&scene.client, &result(&second["id"], "second")).await;

    let sent = scene.o1.call(2).request.json();
    let messages = sent["messages"].as_array().expect("messages");
    let told = |message: &Value| {
        let id = message["tool_call_id"].as_str();
        id.or(message["tool_calls"][0]["id"].as_str()).map(str::to_owned)
    };
    let ids: Vec<String> = messages.iter().filter_map(told).collect();
    assert_eq!(ids, ["call_0", "call_0", "call_0_2", "call_0_2"]);
    assert_eq!(last_sent(&scene).last(), Some(&said("tool", "second")));
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_is_gone_on_from_as_soon_as_its_last_event_is_there_and_every_event_names_the_one_before() {
    let scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("a b c"));

    let mut previous = json!(null);
    for turn in 0..8 {
        let body = match &previous {
            Value::Null => streamed(ask("one")),
            id => streamed(going_on(id, "more")),
        };
        let mut stream = scene.client.stream(Surface::Responses, &body).await;
        let mut skeletons = Vec::new();
        // Asked for again before the connection of the first has ended.
        loop {
            match stream.next_said().await {
                Some(Said::Chunk(event)) if event["response"].is_object() => {
                    skeletons.push(event["response"].clone());
                    if event["type"] == "response.completed" {
                        break;
                    }
                }
                Some(Said::Chunk(_)) => {}
                other => panic!("turn {turn}: {other:?}"),
            }
        }
        assert_eq!(skeletons.len(), 3, "created, in_progress, completed");
        for skeleton in &skeletons {
            assert_eq!(skeleton["previous_response_id"], previous, "turn {turn}");
            assert_eq!(skeleton["id"], skeletons[0]["id"]);
        }
        previous = skeletons[0]["id"].clone();
        let shown = get(&scene.client, previous.as_str().expect("an id")).await;
        assert_eq!((shown.status, &shown.json()), (200, &skeletons[2]));
        stream.collect().await;
    }
    assert_eq!(last_sent(&scene).len(), 15, "eight questions and seven answers");
    scene.finish().await;
}

#[tokio::test]
async fn a_failed_stream_names_the_one_before_and_is_not_kept() {
    let scene = Scene::start().await;
    let first = respond(&scene.client, &ask("one")).await;
    scene.o1.script([Behaviour::chat("a b c d").cut_after_chunks(2)]);

    let stream = scene
        .client
        .stream(Surface::Responses, &streamed(going_on(&first["id"], "two")))
        .await;
    let failed = stream.collect().await;

    let harness::End::ErrorEvent(event) = &failed.end else {
        panic!("{:?}", failed.end);
    };
    assert_eq!(event["response"]["status"], "failed");
    assert_eq!(event["response"]["previous_response_id"], first["id"]);
    let begun = failed.chunks()[0]["response"]["id"].clone();
    assert_eq!(event["response"]["id"], begun);
    let shown = get(&scene.client, begun.as_str().expect("an id")).await;
    assert_eq!((shown.status, &*shown.error_code()), (404, "not_found"));
    scene.finish().await;
}

#[tokio::test]
async fn what_is_another_tenants_is_answered_byte_for_byte_like_what_never_was() {
    let scene = Scene::start().await;
    let own = respond(&scene.client, &ask("one")).await;
    let id = own["id"].as_str().expect("an id");
    let nothing = "resp_00000000000000000000000000000000";
    let other = scene.client.with_key(OTHER_KEY);

    for key in [OTHER_KEY, ADMIN_KEY] {
        let client = scene.client.with_key(key);
        let asked = async |id: &str| {
            let chained = client
                .post(Surface::Responses, &going_on(&json!(id), "two"))
                .await;
            [
                refusal(&chained, id),
                refusal(&get(&client, id).await, id),
                refusal(&delete(&client, id).await, id),
                refusal(&get(&client, &format!("{id}/input_items")).await, id),
            ]
        };
        let foreign = asked(id).await;
        let unknown = asked(nothing).await;
        assert_eq!(foreign, unknown);
        assert!(foreign.iter().all(|(status, ..)| *status == 404));
    }

    let chained = other.post(Surface::Responses, &going_on(&json!(id), "two")).await;
    let error = chained.json()["error"].clone();
    assert_eq!(error["message"], format!("Previous response '{id}' not found"));
    assert_eq!(error["code"], "previous_response_not_found");
    assert_eq!(error["param"], "previous_response_id");
    let shown = get(&scene.client, id).await;
    assert_eq!(shown.json(), own, "its own tenant has it still");
    assert_eq!(scene.o1.calls(), 1, "nobody else's request went on");
    scene.finish().await;
}

#[tokio::test]
async fn what_its_caller_does_not_want_kept_is_not_there() {
    let scene = Scene::start().await;
    let mut body = ask("one");
    body["store"] = json!(false);

    let whole = respond(&scene.client, &body).await;
    let stream = scene.client.stream(Surface::Responses, &streamed(body)).await;
    let stream = stream.collect().await;

    let last = stream.chunks().last().expect("an event")["response"].clone();
    for response in [whole, last] {
        assert_eq!(response["store"], json!(false), "{response}");
        let id = response["id"].as_str().expect("an id");
        assert_eq!(get(&scene.client, id).await.status, 404);
        let chained = scene
            .client
            .post(Surface::Responses, &going_on(&response["id"], "two"))
            .await;
        assert_eq!(
            (chained.status, &*chained.error_code()),
            (404, "previous_response_not_found")
        );
    }
    // Not kept itself, but it may go on from what is.
    let kept = respond(&scene.client, &ask("one")).await;
    let mut next = going_on(&kept["id"], "two");
    next["store"] = json!(false);
    let next = respond(&scene.client, &next).await;
    assert_eq!(
        (&next["previous_response_id"], &next["store"]),
        (&kept["id"], &json!(false))
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_response_lists_what_its_request_was_given_and_is_gone_once_it_is_deleted() {
    let scene = Scene::start().await;
    let first = respond(&scene.client, &ask("one")).await;
    let input = json!([
        {"role": "user", "content": "two"},
        {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
    ]);
    let second = json!({"model": "m", "previous_response_id": first["id"], "input": input});
    let second = respond(&scene.client, &second).await;
    let id = second["id"].as_str().expect("an id");

    let oldest = get(&scene.client, &format!("{id}/input_items?order=asc&limit=1")).await;
    let newest = get(&scene.client, &format!("{id}/input_items")).await.json();
    let deleted = delete(&scene.client, id).await;

    let oldest = oldest.json();
    assert_eq!(
        (
            &oldest["object"],
            &oldest["has_more"],
            &oldest["data"][0]["content"]
        ),
        (&json!("list"), &json!(true), &json!("two"))
    );
    assert_eq!(oldest["data"][0]["type"], "message");
    assert_eq!(
        newest["data"].as_array().map(Vec::len),
        Some(2),
        "without the history"
    );
    assert_eq!(newest["data"][0]["content"][0]["text"], "three");
    assert_eq!(newest["last_id"], oldest["first_id"]);
    assert_eq!(
        (deleted.status, deleted.json()),
        (200, json!({"id": id, "object": "response", "deleted": true}))
    );
    for answer in [get(&scene.client, id).await, delete(&scene.client, id).await] {
        assert_eq!((answer.status, &*answer.error_code()), (404, "not_found"));
    }
    let first = first["id"].as_str().expect("an id");
    assert_eq!(
        get(&scene.client, first).await.status,
        200,
        "the one before stays"
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_whose_caller_leaves_is_kept_as_far_as_it_came() {
    let scene = Scene::start().await;
    scene
        .o1
        .script([Behaviour::chat("so far and no further").stall_after(2)]);
    let mut stream = scene
        .client
        .stream(Surface::Responses, &streamed(ask("one")))
        .await;
    let (mut id, mut text) = (String::new(), String::new());
    while text != "so far" {
        let Some(Said::Chunk(event)) = stream.next_said().await else {
            panic!("the stream ended after {text:?}");
        };
        if let Some(begun) = event["response"]["id"].as_str() {
            begun.clone_into(&mut id);
        }
        if event["type"] == "response.output_text.delta" {
            text.push_str(event["delta"].as_str().expect("a text"));
            text.truncate(text.trim_end().len());
            if text == "so" {
                text.push(' ');
            }
        }
    }
    stream.close();

    let deadline = Instant::now() + KEPT_WITHIN;
    let kept = loop {
        let shown = get(&scene.client, &id).await;
        if shown.status == 200 {
            break shown.json();
        }
        assert!(Instant::now() < deadline, "{}", shown.text());
        sleep(Duration::from_millis(20)).await;
    };

    assert_eq!(kept["status"], "incomplete");
    assert_eq!(kept["incomplete_details"], json!({"reason": "interrupted"}));
    let said = kept["output"][0]["content"][0]["text"].as_str().expect("a text");
    assert_eq!(said.trim_end(), "so far");
    let next = respond(&scene.client, &going_on(&json!(id), "go on")).await;
    assert_eq!(next["previous_response_id"], json!(id));
    let sent = last_sent(&scene);
    assert_eq!(sent[1].0, "assistant");
    assert_eq!(sent[1].1.trim_end(), "so far");
    scene.finish().await;
}

#[tokio::test]
async fn what_is_kept_elsewhere_or_done_later_is_refused_by_name() {
    let scene = scene_of(|o1, _| {
        let model = |id: &str| Model::new(id).leg(o1, 0);
        vec![model("m").set_leg("responses", "native"), model("chat")]
    })
    .await;
    let own = respond(&scene.client, &ask("one")).await;
    let with = |member: &str, value: Value| {
        let mut body = ask("two");
        body[member] = value;
        body
    };

    for (body, param) in [
        (with("background", json!(true)), "background"),
        (with("conversation", json!("conv_1")), "conversation"),
        (
            with("input", json!([{"id": "msg_1", "status": "completed"}])),
            "input.0.id",
        ),
        (
            with(
                "tools",
                json!([{"type": "file_search", "vector_store_ids": ["vs_1"]}]),
            ),
            "tools.0.vector_store_ids",
        ),
        (with("prompt", json!({"id": "pmpt_1"})), "prompt"),
        (
            with(
                "input",
                json!([{"type": "item_reference", "id": "msg_1", "role": "user"}]),
            ),
            "input.0.type",
        ),
    ] {
        for model in ["m", "chat"] {
            let mut body = body.clone();
            body["model"] = json!(model);
            let answer = scene.client.post(Surface::Responses, &body).await;
            let error = answer.json()["error"].clone();
            assert_eq!(
                (answer.status, &error["code"], &error["param"]),
                (400, &json!("unsupported_parameter"), &json!(param))
            );
        }
    }
    assert_eq!(scene.o1.calls(), 1, "nothing was sent");
    let mut background = with("background", json!(false));
    background["model"] = json!("chat");
    assert_eq!(
        respond(&scene.client, &background).await["background"],
        json!(false)
    );
    let id = own["id"].as_str().expect("an id");
    let streamed = get(&scene.client, &format!("{id}?stream=true")).await;
    assert_eq!(
        (streamed.status, &*streamed.error_code()),
        (400, "unsupported_parameter")
    );
    scene.finish().await;
}

#[tokio::test]
async fn files_of_the_providers_account_are_refused_by_name() {
    let scene = scene_of(|o1, _| vec![Model::new("chat").leg(o1, 0)]).await;
    let file = json!({"type": "file", "file_id": "file-1"});
    for (surface, content, param) in [
        (
            Surface::Chat,
            json!([{"type": "file", "file": file}]),
            "messages.0.content.0.file.file_id",
        ),
        (
            Surface::Messages,
            json!([{"type": "document", "source": file}]),
            "messages.0.content.0.source.file_id",
        ),
    ] {
        let mut body = surface.ask("chat");
        body["messages"] = json!([{"role": "user", "content": content}]);
        let answer = scene.client.post(surface, &body).await;
        let message = answer.json()["error"]["message"].clone();
        let names_it = message.as_str().expect("a text").contains(&format!("'{param}'"));
        assert_eq!((answer.status, names_it), (400, true), "{message}");
    }
    assert_eq!(scene.o1.calls(), 0, "nothing was sent");
    scene.finish().await;
}

#[tokio::test]
async fn what_is_kept_survives_a_crash_of_the_node() {
    let mut scene = Scene::start().await;
    let first = respond(&scene.client, &ask("one")).await;

    scene.kill_and_restart().await;

    let id = first["id"].as_str().expect("an id");
    let shown = get(&scene.client, id).await;
    assert_eq!((shown.status, &shown.json()), (200, &first));
    let next = respond(&scene.client, &going_on(&first["id"], "two")).await;
    assert_eq!(next["previous_response_id"], first["id"]);
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_that_speaks_responses_is_sent_the_history_and_not_what_it_is_called() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("responses", "native")]).await;
    scene.o1.default(Behaviour::chat("an answer"));

    let first = respond(&scene.client, &ask("one")).await;
    let second = respond(&scene.client, &going_on(&first["id"], "two")).await;
    let third = streamed(going_on(&second["id"], "three"));
    let third = scene.client.stream(Surface::Responses, &third).await;
    let third = third.collect().await;

    assert_eq!(second["previous_response_id"], first["id"]);
    let skeletons: Vec<&Value> = third
        .chunks()
        .into_iter()
        .filter(|event| event["response"].is_object())
        .map(|event| &event["response"])
        .collect();
    assert!(skeletons.len() >= 2, "{skeletons:?}");
    for skeleton in skeletons {
        assert_eq!(skeleton["previous_response_id"], second["id"]);
    }
    let sent = scene.o1.call(2).request;
    assert_eq!(sent.target, "/v1/responses");
    let sent = sent.json();
    assert_eq!(sent.get("previous_response_id"), None);
    assert_eq!(sent["store"], json!(false), "the upstream keeps nothing");
    let items = sent["input"].as_array().expect("items");
    let roles: Vec<_> = items.iter().map(|item| item["role"].as_str()).collect();
    let (user, assistant) = (Some("user"), Some("assistant"));
    assert_eq!(roles, [user, assistant, user, assistant, user]);
    assert_eq!(items[4]["content"][0]["text"], "three");
    assert_eq!(third.told().text, "an answer");
    let shown = get(&scene.client, second["id"].as_str().expect("an id")).await;
    assert_eq!((shown.status, shown.json()), (200, second));
    scene.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_item_is_told_by_its_place_in_what_the_caller_sent() {
    let scene = Scene::start().await;
    let first = respond(&scene.client, &ask("one")).await;
    let mut body = going_on(&first["id"], "two");
    body["input"] = json!([
        {"role": "user", "content": "two"},
        {"type": "function_call_output", "call_id": "never", "output": "x"},
    ]);

    let refused = scene.client.post(Surface::Responses, &body).await;

    assert_eq!(refused.status, 400, "{}", refused.text());
    let error = &refused.json()["error"];
    assert_eq!(error["param"], "input.1.call_id");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("'input.1.call_id'"), "{message}");
    scene.finish().await;
}

#[tokio::test]
async fn a_tenant_who_keeps_more_than_there_is_room_for_pushes_out_nothing_of_another() {
    let scene = Scene::start().await;
    let small = respond(&scene.client, &ask("one")).await;
    let large = scene.client.with_key(OTHER_KEY);

    let input = "x".repeat(1 << 20);
    let first = respond(&large, &ask(&input)).await;
    let mut last = Value::Null;
    for _ in 0..34 {
        last = respond(&large, &ask(&input)).await;
    }

    let shown = async |client: &Client, response: &Value| {
        get(client, response["id"].as_str().expect("an id")).await.status
    };
    assert_eq!(shown(&scene.client, &small).await, 200);
    let next = respond(&scene.client, &going_on(&small["id"], "two")).await;
    assert_eq!(next["previous_response_id"], small["id"]);
    assert_eq!(shown(&large, &last).await, 200);
    if !harness::cluster::wanted() {
        assert_eq!(shown(&large, &first).await, 404, "its own oldest went");
    }
    scene.finish().await;
}
