//! Whole answers in both directions.

use serde_json::{Value, json};

use super::*;
use crate::responses::stream::tests::reply;
use crate::superset::answer::Finish;
use crate::superset::request::ProofMaker;

fn decoded(body: &Value) -> Answer {
    decode(body.to_string().as_bytes()).expect("an answer")
}

fn broken(body: &Value) -> Broken {
    decode(body.to_string().as_bytes()).expect_err("no answer")
}

fn said(answer: &Answer) -> Vec<String> {
    let parts = answer.parts.iter().map(|part| match part {
        Part::Text { text, .. } => format!("text {text}"),
        Part::Refusal(text) => format!("refusal {text}"),
        Part::Thinking { text, proof } => {
            let proof = proof
                .as_ref()
                .map(|proof| format!(" {:?} {} {}", proof.maker, proof.text, proof.redacted));
            format!("thought {text}{}", proof.unwrap_or_default())
        }
        Part::ToolCall(call) => format!(
            "call {} {} {:?} {} {}",
            call.id, call.name, call.namespace, call.arguments, call.custom
        ),
        other => format!("{other:?}"),
    });
    parts.collect()
}

#[test]
fn answers_of_servers_are_read_whole() {
    let plain = decode(include_bytes!(
        "../../../tests/transcripts/llama.cpp/responses.json"
    ))
    .expect("an answer");
    assert_eq!(said(&plain), ["text Say hi.<|im_end|>"]);
    assert_eq!(plain.finish, Finish::Stop);
    let usage = plain.usage.expect("usage");
    assert_eq!(
        (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens),
        (Some(234), Some(8), Some(0))
    );

    let calls = decode(include_bytes!(
        "../../../tests/transcripts/llama.cpp/responses_tool.json"
    ))
    .expect("an answer");
    assert_eq!(
        said(&calls)[1],
        "call call_KEX53b4VI100az1MOQxB2BUqj9AWr87S get_weather None {\"city\": \"Paris\"} false"
    );
    assert_eq!(calls.finish, Finish::ToolCalls);

    let cut = decode(include_bytes!("../../../tests/transcripts/vllm/responses.json")).expect("an answer");
    assert_eq!(said(&cut), ["text TIONCHialish"]);
    assert_eq!(cut.finish, Finish::Length);
}

#[test]
fn items_of_every_kind_are_read_in_their_order() {
    let answer = decoded(&json!({"status": "completed", "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            "encrypted_content": "gAAA"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBBB"},
        {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "sum"}],
            "content": [{"type": "reasoning_text", "text": "all of it"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "one "}, {"type": "output_text", "text": "two"},
            {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "namespace": "g", "arguments": "{}"},
        {"type": "function_call", "id": "fc_2", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call", "id": "fc_3", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "p", "input": "*** x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"}]}));

    assert_eq!(
        said(&answer),
        [
            "thought a\n\nb OpenAi gAAA false",
            "thought  OpenAi gBBB true",
            "thought all of it",
            "text one two",
            "refusal no",
            "call c f Some(\"g\") {} false",
            "call call_1_c f None {\"a\":1} false",
            "call fc_3 f None {} false",
            "call d p None *** x true",
        ]
    );
    assert_eq!(answer.finish, Finish::ToolCalls);
}

#[test]
fn why_an_answer_ended_is_read_from_the_whole_of_it() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "x"}]});
    let finish = |members: Value| {
        let mut body = json!({"output": [message]});
        for (name, value) in members.as_object().expect("members") {
            body[name] = value.clone();
        }
        decoded(&body).finish
    };

    assert_eq!(finish(json!({"status": "completed"})), Finish::Stop);
    assert_eq!(finish(json!({})), Finish::Stop);
    assert_eq!(
        finish(json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})),
        Finish::Length
    );
    assert_eq!(
        finish(json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}})),
        Finish::Refused
    );
    assert_eq!(
        finish(json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]})),
        Finish::Refused
    );
    assert_eq!(
        broken(&json!({"status": "cancelled", "output": [message]})),
        Broken::Aborted
    );
    assert_eq!(
        broken(&json!({"status": "in_progress", "output": []})),
        Broken::Aborted
    );
}

#[test]
fn an_answer_that_failed_says_how_and_what_is_none_is_malformed() {
    let told = |body: Value| match broken(&body) {
        Broken::Told(error) => error.message,
        other => panic!("{other:?}"),
    };
    let message = Some("too much".to_owned());

    assert_eq!(
        told(
            json!({"status": "failed", "output": [], "error": {"code": "server_error", "message": "too much"}})
        ),
        message
    );
    assert_eq!(
        told(json!({"error": {"message": "too much", "code": 429}})),
        message
    );
    assert_eq!(told(json!({"status": "failed", "output": []})), None);
    assert_eq!(broken(&json!({"id": "resp_1"})), Broken::Malformed);
    assert_eq!(
        broken(&json!({"output": [{"type": "function_call", "call_id": "c"}]})),
        Broken::Malformed
    );
    assert_eq!(decode(b"<html>").expect_err("no answer"), Broken::Malformed);
}

#[test]
fn arguments_that_are_no_object_are_of_no_use_unless_they_mean_one() {
    let call = |arguments: Value| json!({"output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]});

    for none in ["true", "[1]", "\"x\""] {
        assert_eq!(broken(&call(json!(none))), Broken::Malformed, "{none}");
    }
    for (meant, object) in [("null", "{}"), ("\"{}\"", "{}"), ("", "")] {
        let answer = decoded(&call(json!(meant)));
        let arguments = answer.calls().next().map(|call| call.arguments.clone());
        assert_eq!(arguments.as_deref(), Some(object), "{meant}");
    }
}

#[test]
fn an_answer_is_written_with_all_members_that_clients_demand() {
    let answer = Answer {
        parts: vec![
            Part::Thinking {
                text: "hm".to_owned(),
                proof: Some(Proof {
                    maker: ProofMaker::Gemini,
                    text: "p".to_owned(),
                    redacted: false,
                }),
            },
            Part::Text {
                text: "x".to_owned(),
                cache: None,
            },
            Part::Refusal("no".to_owned()),
            Part::ToolCall(Call {
                id: "c".to_owned(),
                name: "f".to_owned(),
                namespace: Some("g".to_owned()),
                arguments: String::new(),
                custom: false,
                proof: None,
            }),
        ],
        finish: Finish::ToolCalls,
        ..Answer::default()
    };

    let body: Value = serde_json::from_slice(&encode(&answer, &reply())).expect("JSON");

    assert_eq!(
        body,
        json!({"id": "resp_07", "object": "response", "created_at": 5, "status": "completed", "background": false,
            "error": null, "incomplete_details": null, "model": "public",
            "usage": {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 5},
            "output": [
                {"type": "reasoning", "id": "rs_07_0", "summary": [{"type": "summary_text", "text": "hm"}],
                    "encrypted_content": "waybill.gemini.p"},
                {"type": "message", "id": "msg_07_1", "status": "completed", "role": "assistant", "content": [
                    {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "no"}]},
                {"type": "function_call", "id": "fc_07_2", "status": "completed", "call_id": "c", "name": "f",
                    "namespace": "g", "arguments": "{}"}],
            "max_tool_calls": null, "previous_response_id": null, "instructions": null, "max_output_tokens": null,
            "metadata": {}, "parallel_tool_calls": true, "prompt_cache_key": null,
            "reasoning": {"effort": null, "summary": null}, "safety_identifier": null, "service_tier": "default",
            "store": false, "temperature": 0.70, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
            "tools": [{"type": "function", "name": "f"}], "top_p": 1.0, "truncation": "disabled", "user": null})
    );
}

#[test]
fn an_answer_that_was_cut_short_says_so_and_so_do_its_items() {
    let answer = |finish| Answer {
        parts: vec![Part::Text {
            text: "x".to_owned(),
            cache: None,
        }],
        finish,
        ..Answer::default()
    };
    let written =
        |finish| -> Value { serde_json::from_slice(&encode(&answer(finish), &reply())).expect("JSON") };

    for (finish, reason) in [
        (Finish::Length, "max_output_tokens"),
        (Finish::ContextFull, "max_output_tokens"),
        (Finish::Refused, "content_filter"),
    ] {
        let body = written(finish);
        assert_eq!(body["status"], "incomplete", "{finish:?}");
        assert_eq!(body["incomplete_details"], json!({"reason": reason}));
        assert_eq!(body["output"][0]["status"], "incomplete");
    }
    assert_eq!(written(Finish::StopSequence)["status"], "completed");
    let nothing: Value = serde_json::from_slice(&encode(&Answer::default(), &reply())).expect("JSON");
    assert_eq!(nothing["output"], json!([]));
}

#[test]
fn half_a_character_breaks_a_whole_answer() {
    let items = [
        r#"{"type":"message","content":[{"type":"output_text","text":"a\ud83d"}]}"#,
        r#"{"type":"message","content":[{"type":"refusal","refusal":"\ud83d"}]}"#,
        r#"{"type":"reasoning","content":[{"text":"\ud83d"}]}"#,
        r#"{"type":"reasoning","summary":[{"text":"\ude42"}]}"#,
        r#"{"type":"function_call","call_id":"c","name":"f","arguments":"\ud83d"}"#,
        r#"{"type":"custom_tool_call","call_id":"c","name":"f","input":"\ud83d"}"#,
    ];
    for item in items {
        let body = format!(r#"{{"status":"completed","output":[{item}]}}"#);
        assert_eq!(decode(body.as_bytes()).expect_err(item), Broken::Malformed);
    }
}
