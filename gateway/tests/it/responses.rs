//! Responses that are kept: gone on from at once, shown, listed and forgotten, by their tenant alone.

use bytes::Bytes;
use schemas::failure::{Failure, FailureCode};
use schemas::outcome::Outcome;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::scene::{ADMIN, Answer, CALLER, OPERATOR, Scene, request};
use crate::script::{Step, begin, chunk, end, report, whole};

const ASK: &str = r#"{"model":"m","input":"one"}"#;
const BODY: &str = r#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"first"}]}]}"#;
const COMPLETED: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"id\":\"msg_1\"}]}}\n\n";
const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[]}}\n\n";
const DELTA: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"output_index\":0,\"item_id\":\"msg_1\",\"delta\":\"so far\"}\n\n";

async fn ask(scene: &Scene, key: &str, body: &str) -> Answer {
    scene.call("POST /v1/responses", key, body).await
}

async fn get(scene: &Scene, key: &str, path: &str) -> Answer {
    scene.call(&format!("GET /v1/responses/{path}"), key, "").await
}

fn going_on(id: &str) -> String {
    json!({"model": "m", "previous_response_id": id, "input": "two"}).to_string()
}

/// The id of the response that an answer or a stream tells: one of ours.
fn own_id(told: &str) -> String {
    let id = told
        .split(r#""id":""#)
        .find_map(|rest| rest.strip_prefix("resp_"));
    let id = id.and_then(|rest| rest.split('"').next()).expect("an id");
    assert_eq!(id.len(), 32, "{told}");
    format!("resp_{id}")
}

fn streaming(body: &str) -> String {
    body.replacen('{', r#"{"stream":true,"#, 1)
}

fn last_input(scene: &Scene) -> Value {
    let told = scene.script.told();
    let body: &Bytes = &told.dispatched.last().expect("a dispatch").body;
    serde_json::from_slice::<Value>(body).expect("JSON")["input"].clone()
}

/// The refusal without what differs between any two.
fn refusal(answer: &Answer) -> (u16, Value) {
    let mut body = answer.json();
    body["error"]["request_id"].take();
    (answer.status, body)
}

#[tokio::test]
async fn a_whole_response_is_there_when_its_caller_has_it_and_can_be_gone_on_from() {
    let scene = Scene::new().await;
    scene.script.push(whole(BODY));
    scene.script.push(whole(BODY));

    let first = ask(&scene, CALLER, ASK).await;
    let id = own_id(&first.body);
    let shown = get(&scene, CALLER, &id).await;
    let second = ask(&scene, CALLER, &going_on(&id)).await;

    let told = BODY.replace("resp_1", &id);
    assert_eq!((first.status, &*first.body), (200, &*told));
    assert_eq!((shown.status, &*shown.body), (200, &*told));
    assert_ne!(
        own_id(&second.body),
        id,
        "though its upstream calls both the same"
    );
    assert_eq!(second.status, 200);
    let input = last_input(&scene);
    assert_eq!(input[0]["content"][0]["text"], "one");
    assert_eq!(input[1]["id"], "msg_1");
    assert_eq!(input[2]["content"][0]["text"], "two");
    let offer = scene.script.told().dispatched[1].offer.clone();
    let (start, end) = offer.splice.model;
    assert_eq!(&scene.script.told().dispatched[1].body[start..end], b"\"m\"");
}

#[tokio::test]
async fn a_stream_can_be_gone_on_from_as_soon_as_its_last_event_is_there() {
    let scene = Scene::new().await;
    scene.script.push(vec![
        begin(),
        chunk(CREATED),
        end(report(Outcome::Ok, None), COMPLETED, None),
    ]);
    scene.script.push(whole(BODY));
    let mut socket = scene.connect().await;
    socket
        .write_all(&request("POST /v1/responses", CALLER, "", &streaming(ASK)))
        .await
        .expect("write");
    let mut seen = String::new();
    while !seen.contains("response.completed") {
        let mut piece = [0; 4_096];
        let read = socket.read(&mut piece).await.expect("read");
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }

    let id = own_id(&seen);
    let next = ask(&scene, CALLER, &going_on(&id)).await;

    assert_eq!(next.status, 200);
    assert_eq!(last_input(&scene)[1]["id"], "msg_1");
    assert_eq!(get(&scene, CALLER, &id).await.json()["status"], "completed");
}

#[tokio::test]
async fn what_is_another_tenants_is_not_there_in_the_same_words_as_what_never_was() {
    let scene = Scene::new().await;
    scene.script.push(whole(BODY));
    let id = own_id(&ask(&scene, CALLER, ASK).await.body);

    let foreign = ask(&scene, OPERATOR, &going_on(&id)).await;
    let foreign_shown = get(&scene, OPERATOR, &id).await;
    let delete = format!("DELETE /v1/responses/{id}");
    let foreign_deleted = scene.call(&delete, OPERATOR, "").await;
    let colleague = get(&scene, ADMIN, &id).await;

    let (status, body) = refusal(&foreign);
    assert_eq!(
        (status, &body["error"]["code"]),
        (404, &json!("previous_response_not_found"))
    );
    let message = format!("Previous response '{id}' not found");
    assert_eq!(body["error"]["message"], *message);
    let unknown = ask(&scene, CALLER, &going_on("resp_2")).await;
    let (_, mut other) = refusal(&unknown);
    other["error"]["message"] = json!(message);
    assert_eq!(body, other);
    for answer in [foreign_shown, foreign_deleted] {
        let (status, body) = refusal(&answer);
        assert_eq!(
            (status, &body["error"]["message"]),
            (404, &json!(format!("Response '{id}' not found")))
        );
    }
    assert_eq!(colleague.status, 200);
    let none = get(&scene, CALLER, "..%2Fkeys").await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn what_its_caller_does_not_want_kept_is_not_there() {
    let scene = Scene::new().await;
    scene.script.push(whole(BODY));

    let answer = ask(&scene, CALLER, &ASK.replacen('{', r#"{"store":false,"#, 1)).await;

    assert_eq!(answer.status, 200);
    let id = own_id(&answer.body);
    assert_eq!(get(&scene, CALLER, &id).await.status, 404);
}

#[tokio::test]
async fn a_response_that_is_forgotten_is_gone() {
    let scene = Scene::new().await;
    scene.script.push(whole(BODY));
    let id = own_id(&ask(&scene, CALLER, ASK).await.body);

    let delete = format!("DELETE /v1/responses/{id}");
    let deleted = scene.call(&delete, CALLER, "").await;

    assert_eq!(
        deleted.json(),
        json!({"id": id, "object": "response", "deleted": true})
    );
    assert_eq!(get(&scene, CALLER, &id).await.status, 404);
    assert_eq!(ask(&scene, CALLER, &going_on(&id)).await.status, 404);
}

#[tokio::test]
async fn what_a_request_was_given_is_listed_without_its_history() {
    let scene = Scene::new().await;
    scene.script.push(whole(BODY));
    scene.script.push(whole(BODY));
    let first = own_id(&ask(&scene, CALLER, ASK).await.body);
    let second = own_id(&ask(&scene, CALLER, &going_on(&first)).await.body);

    let listed = get(&scene, CALLER, &format!("{second}/input_items?order=asc")).await;
    let listed = listed.json();

    assert_eq!(listed["object"], "list");
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["data"][0]["content"][0]["text"], "two");
    let wrong = get(&scene, CALLER, &format!("{second}/input_items?limit=x")).await;
    assert_eq!((wrong.status, &*wrong.code()), (400, "invalid_request"));
}

#[tokio::test]
async fn a_stream_whose_caller_leaves_is_kept_as_far_as_it_came() {
    let scene = Scene::new().await;
    scene
        .script
        .push(vec![begin(), chunk(CREATED), chunk(DELTA), Step::Hang]);
    let mut socket = scene.connect().await;
    socket
        .write_all(&request("POST /v1/responses", CALLER, "", &streaming(ASK)))
        .await
        .expect("write");
    let mut seen = String::new();
    while !seen.contains("so far") {
        let mut piece = [0; 4_096];
        let read = socket.read(&mut piece).await.expect("read");
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    drop(socket);
    let row = scene.rows(1).await.remove(0);
    assert_eq!(row.outcome, Outcome::ClientGone);

    let id = own_id(&seen);
    let mut kept = get(&scene, CALLER, &id).await;
    for _ in 0..200 {
        if kept.status == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        kept = get(&scene, CALLER, &id).await;
    }

    let kept = kept.json();
    assert_eq!(kept["status"], "incomplete");
    assert_eq!(kept["incomplete_details"]["reason"], "interrupted");
    assert_eq!(kept["output"][0]["content"][0]["text"], "so far");
}

#[tokio::test]
async fn a_stream_that_failed_is_not_kept() {
    let scene = Scene::new().await;
    let failure = Failure::new(FailureCode::StreamInterrupted, "the answer broke off");
    let cut = report(Outcome::UpstreamCut, Some(failure));
    scene
        .script
        .push(vec![begin(), chunk(CREATED), chunk(DELTA), end(cut, "", None)]);

    let answer = ask(&scene, CALLER, &streaming(ASK)).await;

    assert!(answer.body.contains("response.failed"));
    let id = own_id(&answer.body);
    assert_eq!(get(&scene, CALLER, &id).await.status, 404);
}

#[tokio::test]
async fn an_answer_that_has_no_form_to_be_kept_reaches_its_caller_all_the_same() {
    let scene = Scene::new().await;
    scene.script.push(whole("{}"));

    let answer = ask(&scene, CALLER, ASK).await;
    let metrics = scene.call("GET /metrics", CALLER, "").await;

    assert_eq!((answer.status, &*answer.body), (200, "{}"));
    assert!(metrics.body.contains("waybill_responses_unkept_total 1"));
}

#[tokio::test]
async fn work_in_the_background_is_refused_by_name_and_a_hidden_model_before_any_history() {
    let scene = Scene::new().await;

    let background = ask(&scene, CALLER, &ASK.replacen('{', r#"{"background":true,"#, 1)).await;
    let hidden = ask(
        &scene,
        CALLER,
        &going_on("resp_9").replace("\"m\"", "\"org/staff\""),
    )
    .await;

    assert_eq!(
        (background.status, &*background.code()),
        (400, "unsupported_parameter")
    );
    assert_eq!(background.json()["error"]["param"], "background");
    assert_eq!((hidden.status, &*hidden.code()), (404, "model_not_found"));
}

#[tokio::test]
async fn a_history_counts_as_part_of_the_body() {
    let scene = Scene::with(|config| config.body_bytes_max = 600).await;
    scene.script.push(whole(BODY));
    let long = json!({"model": "m", "input": "x".repeat(400)}).to_string();
    let id = own_id(&ask(&scene, CALLER, &long).await.body);

    let refused = ask(&scene, CALLER, &going_on(&id)).await;

    assert_eq!((refused.status, &*refused.code()), (413, "body_too_large"));
}
