//! Events and characters cut by packet borders: wherever an upstream's bytes are parted and however it
//! spells its events, the caller puts together the same text and the bill is the same.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Answer, Behaviour, CALLER_KEY, End, Model, PRICE, Scene, Upstream, chat, chat_streamed,
    chat_streamed_with_usage, raw,
};
use serde_json::{Value, json};

use crate::rows::assert_billed;

/// Words with characters of one to four bytes.
const TEXT: &str = "漢字 é \u{1f642} ok";
const REASONING: &str = "思考 \u{1f914}";
const ARGUMENTS: &str = r#"{"城市":"北京 \"x\" 🏙"}"#;
/// What 700 and 30 tokens cost.
const COST_NANO_USD: i64 = 1_640_000;
/// The other name of the model `renamed`.
const UPSTREAM_NAME: &str = "a-name-of-another-length";
/// Calls at once.
const BATCH: usize = 64;

/// What a caller puts together.
#[derive(Debug, PartialEq, Eq, Clone, Default)]
struct Assembled {
    models: Vec<String>,
    text: String,
    reasoning: String,
    arguments: String,
    finish: String,
    done: usize,
}

#[tokio::test]
async fn bug_case_29_a_stream_is_the_same_wherever_its_bytes_are_parted() {
    let scene = scene().await;
    let length = recorded_length(&scene, "m").await;

    every_offset(&scene, &chat_streamed("m"), length, |answer| {
        assert_eq!(assembled(&answer.body), tool_stream("m"));
    })
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_whose_model_is_renamed_is_the_same_wherever_its_bytes_are_parted() {
    let scene = scene().await;
    let length = recorded_length(&scene, UPSTREAM_NAME).await;

    every_offset(&scene, &chat_streamed("renamed"), length, |answer| {
        assert_eq!(assembled(&answer.body), tool_stream("renamed"));
    })
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_29_a_plain_answer_is_the_same_wherever_its_bytes_are_parted() {
    let scene = scene().await;
    let whole = scene.client.post_chat(&chat("m")).await;

    every_offset(&scene, &chat("m"), whole.body.len(), |answer| {
        let message = &answer.json()["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], REASONING);
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], ARGUMENTS);
    })
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_29_one_byte_a_packet_makes_the_same_answers() {
    let scene = scene().await;
    let millisecond = Duration::from_millis(1);
    scene.o1.on(move |request| {
        let parted = recorded().dribble(1, millisecond);
        if request.json()["seed"] == 1 {
            parted.line_ending("\r").bom()
        } else {
            parted
        }
    });
    let bodies = [chat("m"), chat_streamed("m"), chat_streamed("renamed")];
    let odd = ["m", "renamed"].map(|model| {
        let mut body = chat_streamed(model);
        body["seed"] = json!(1);
        body
    });
    let calls = bodies.iter().chain(&odd).map(|body| post(&scene, body));

    let answers = join_all(calls).await;

    assert_eq!(
        answers[0].json()["choices"][0]["message"]["reasoning_content"],
        REASONING
    );
    for (answer, model) in answers[1..].iter().zip(["m", "renamed", "m", "renamed"]) {
        assert_eq!(assembled(&answer.body), tool_stream(model));
    }
    for answer in &answers {
        assert_billed(&scene.row(answer.request_id()).await, 700, 30, COST_NANO_USD);
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_29_every_spelling_of_events_makes_the_same_text() {
    let scene = scene().await;
    for model in ["m", "renamed"] {
        for spelling in 0..24 {
            scene
                .o1
                .script([spelled(spelling, Behaviour::chat(TEXT).usage(700, 30))]);
            let answer = post(&scene, &chat_streamed(model)).await;

            let told = assembled(&answer.body);
            assert_eq!(
                (told.text.as_str(), told.done),
                (TEXT, 1),
                "{model}, spelling {spelling}"
            );
            assert_eq!(told.models, [model], "spelling {spelling}");
            assert_billed(&scene.row(answer.request_id()).await, 700, 30, COST_NANO_USD);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_legal_line_of_ten_megabytes_passes() {
    let scene = scene().await;
    let long = "漢".repeat(10 << 20 >> 2);
    scene.o1.script([Behaviour::chat(&long).usage(700, 30)]);

    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert!(
        streamed.whole() == long,
        "{} bytes of {}",
        streamed.text().len(),
        long.len()
    );
    assert_billed(&scene.row(streamed.request_id()).await, 700, 30, COST_NANO_USD);
    scene.finish().await;
}

/// One of 24 ways to write events: line ending, blank after the field name, data lines, byte order mark.
fn spelled(number: usize, behaviour: Behaviour) -> Behaviour {
    let mut behaviour = behaviour.line_ending(["\n", "\r\n", "\r"][number % 3]);
    if number / 3 % 2 == 1 {
        behaviour = behaviour.no_space_after_data();
    }
    if number / 6 % 2 == 1 {
        behaviour = behaviour.two_data_lines();
    }
    if number / 12 % 2 == 1 {
        behaviour = behaviour.bom();
    }
    behaviour
}

/// The stream that is cut: reasoning and a tool call, in several scripts.
fn recorded() -> Behaviour {
    Behaviour::chat("")
        .reasoning(REASONING)
        .tool_calls(&[("call_1", "weather", ARGUMENTS)])
        .usage(700, 30)
}

/// A scene of two models on one upstream, one of them under another name there.
async fn scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let renamed = Model::new("renamed").leg(&o1, 0);
    let models = [
        Model::new("m").leg(&o1, 0),
        renamed.set_leg("provider_model_id", UPSTREAM_NAME),
    ];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.price("renamed", Some(PRICE));
    scene.o1.on(|request| match request.json()["seed"].as_u64() {
        Some(offset) => recorded().split_at(usize::try_from(offset).expect("a small offset")),
        None => recorded(),
    });
    scene
}

/// Bytes of the recorded stream as it leaves the upstream under this name of the model.
async fn recorded_length(scene: &Scene, upstream_model: &str) -> usize {
    let body = chat_streamed_with_usage("m");
    let whole = scene.client.stream_chat(&body).await.collect().await;
    assert_eq!(whole.end, End::Done);
    whole.raw.len() + whole.chunks().len() * (upstream_model.len() - "m".len())
}

/// Makes the call once for each place at which the upstream's bytes can be parted.
async fn every_offset(scene: &Scene, body: &Value, length: usize, check: impl Fn(&Answer)) {
    let offsets: Vec<usize> = (1..length).collect();
    for batch in offsets.chunks(BATCH) {
        let calls = batch.iter().map(|offset| {
            let mut body = body.clone();
            body["seed"] = json!(offset);
            async move { (*offset, post(scene, &body).await) }
        });
        for (offset, answer) in join_all(calls).await {
            assert_eq!(answer.status, 200, "parted at {offset}: {}", answer.text());
            check(&answer);
        }
    }
    let rows = scene.node.wait_rows("", length).await;
    assert_eq!(rows.len(), length, "the first call and one for each offset");
    for row in &rows {
        assert_billed(row, 700, 30, COST_NANO_USD);
    }
}

/// A call whose answer is read as bytes, streamed or not.
async fn post(scene: &Scene, body: &Value) -> Answer {
    let path = "/v1/chat/completions";
    scene
        .client
        .post_inference(path, body.to_string())
        .await
        .expect("a whole answer")
}

fn tool_stream(model: &str) -> Assembled {
    Assembled {
        models: vec![model.to_owned()],
        text: String::new(),
        reasoning: REASONING.to_owned(),
        arguments: ARGUMENTS.to_owned(),
        finish: "tool_calls".to_owned(),
        done: 1,
    }
}

/// Reads a stream as the standard of server-sent events says, in any spelling of it.
fn assembled(body: &[u8]) -> Assembled {
    let text = std::str::from_utf8(body).expect("UTF-8");
    assert!(!text.contains('\u{fffd}'), "a replacement character in {text}");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    assert!(
        unified.ends_with("\n\n"),
        "the last event is not ended: {unified:?}"
    );
    let mut told = Assembled::default();
    for event in unified.split("\n\n").filter(|event| !event.is_empty()) {
        let data: Vec<&str> = event
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
        let data = data.join("\n");
        if data == "[DONE]" {
            told.done += 1;
            continue;
        }
        assert_eq!(told.done, 0, "an event after the end mark: {data}");
        let chunk: Value = serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error} in {data}"));
        take_in(&mut told, &chunk);
    }
    told
}

fn take_in(told: &mut Assembled, chunk: &Value) {
    let model = chunk["model"].as_str().expect("a model").to_owned();
    if !told.models.contains(&model) {
        told.models.push(model);
    }
    let choice = &chunk["choices"][0];
    let delta = &choice["delta"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    told.text.push_str(&text(&delta["content"]));
    told.reasoning.push_str(&text(&delta["reasoning_content"]));
    told.arguments
        .push_str(&text(&delta["tool_calls"][0]["function"]["arguments"]));
    told.finish.push_str(&text(&choice["finish_reason"]));
}

#[tokio::test]
async fn a_request_without_one_host_is_refused_as_malformed_and_its_connection_closed() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = chat("m").to_string();
    let ask = |version: &str, hosts: &str| {
        format!(
            "POST /v1/chat/completions HTTP/{version}\r\n{hosts}authorization: Bearer {CALLER_KEY}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for hosts in ["", "host: a\r\nhost: b\r\n", "host: a\r\nHost: a\r\n"] {
        let answer = raw(scene.client.addr(), ask("1.1", hosts).as_bytes()).await;

        assert_eq!(
            (answer.status(), answer.closed),
            (400, true),
            "{hosts:?}: {}",
            answer.text()
        );
        let told: Value = serde_json::from_str(&answer.body()).expect("JSON");
        assert_eq!(told["error"]["code"], "invalid_request", "{told}");
        assert_eq!(told["error"]["request_id"], answer.header("x-request-id"));
    }
    assert_eq!(scene.o1.calls(), 0);

    let blank = raw(
        scene.client.addr(),
        ask("1.1", "host:\r\nconnection: close\r\n").as_bytes(),
    )
    .await;
    let old = ask("1.0", "");
    let old = raw(scene.client.addr(), old.as_bytes()).await;

    assert_eq!(blank.status(), 200, "{}", blank.text());
    assert!(old.text().starts_with("HTTP/1.0 200 "), "{}", old.text());
    scene.finish().await;
}
