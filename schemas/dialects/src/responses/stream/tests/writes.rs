//! What callers are sent.

use serde_json::{Value, json};

use super::*;
use crate::responses::response;
use crate::superset::answer::Answer;
use crate::superset::request::Part;

#[test]
fn a_stream_opens_items_in_order_and_ends_with_all_of_them() {
    let said = [
        Said::Begin,
        Said::Thinking("hm".to_owned()),
        text("Let me "),
        text("look."),
        call(0, "f", false),
        call(1, "patch", true),
        arguments(1, "*** x"),
        arguments(0, "{\"a\""),
        arguments(0, ":1}"),
        Said::Finish(Finish::ToolCalls, None),
    ];

    let stream = written(&said, reply());
    let response = accepted(&stream);

    let kinds: Vec<Value> = parsed(&stream)
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    let kinds: Vec<&str> = kinds
        .iter()
        .filter_map(|kind| kind.as_str()?.strip_prefix("response."))
        .collect();
    assert_eq!(
        kinds,
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(
        response["output"],
        json!([
            {"type": "reasoning", "id": "rs_07_0", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "id": "msg_07_1", "status": "completed", "role": "assistant", "content": [
                {"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_07_2", "status": "completed", "call_id": "call_0", "name": "f",
                "arguments": "{\"a\":1}"},
            {"type": "custom_tool_call", "id": "ctc_07_3", "status": "completed", "call_id": "call_1",
                "name": "patch", "input": "*** x"},
        ])
    );
}

#[test]
fn a_call_waits_until_the_one_before_is_whole_and_its_proof_until_it_has_closed() {
    let said = [
        Said::Begin,
        call(0, "f", false),
        Said::CallProof(0, ProofMaker::Gemini, "p".to_owned()),
        call(1, "g", false),
        arguments(1, "{\"b\":"),
        arguments(0, "{\"a\":"),
        text("and"),
        arguments(0, "1}"),
    ];

    let kinds = |said: &[Said]| -> Vec<String> {
        let told = parsed(&written_so_far(said)).into_iter().skip(2);
        told.map(|event| {
            let kind = event["type"].as_str().expect("a type");
            let delta = event["delta"].as_str().or(event["item"]["type"].as_str());
            format!(
                "{} {}",
                kind.rsplit('.').next().expect("a word"),
                delta.unwrap_or_default()
            )
        })
        .collect()
    };

    assert_eq!(kinds(&said[..7]), ["added function_call", "delta {\"a\":"]);
    assert_eq!(
        kinds(&said),
        [
            "added function_call",
            "delta {\"a\":",
            "delta 1}",
            "done ",
            "done function_call",
            "added reasoning",
            "done reasoning",
            "added function_call",
            "delta {\"b\":",
        ]
    );
}

/// What is written before the answer has ended.
fn written_so_far(said: &[Said]) -> String {
    let (mut encoder, mut out) = (Encoder::new(reply()), BytesMut::new());
    for said in said {
        encoder.event(said.event(), &mut out);
    }
    String::from_utf8(out.to_vec()).expect("text")
}

#[test]
fn a_response_repeats_its_request_and_tells_usage_always() {
    let said = [
        Said::Begin,
        text("four letters"),
        Said::Finish(Finish::Stop, None),
    ];

    let response = accepted(&written(&said, reply()));

    assert_eq!(
        (&response["id"], &response["model"]),
        (&json!("resp_07"), &json!("public"))
    );
    assert_eq!(
        (&response["created_at"], &response["status"]),
        (&json!(5), &json!("completed"))
    );
    assert_eq!(response["tools"], json!([{"type": "function", "name": "f"}]));
    assert_eq!(
        (&response["temperature"], &response["top_p"]),
        (&json!(0.70), &json!(1.0))
    );
    assert_eq!(
        (&response["store"], &response["metadata"]),
        (&json!(false), &json!({}))
    );
    assert_eq!(response["text"], json!({"format": {"type": "text"}}));
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 7})
    );
}

#[test]
fn how_an_answer_ended_is_told_by_the_last_event_and_by_its_items() {
    let ending = |contents: &[Said], finish| {
        let said = [&[Said::Begin], contents, &[Said::Finish(finish, None)]].concat();
        let response = accepted(&written(&said, reply()));
        let reason = response["incomplete_details"]["reason"]
            .as_str()
            .map(str::to_owned);
        (
            reason,
            response["output"][0]["status"].as_str().map(str::to_owned),
        )
    };
    let told = |reason: &str, status: &str| (Some(reason.to_owned()), Some(status.to_owned()));

    assert_eq!(
        ending(&[text("x")], Finish::Length),
        told("max_output_tokens", "incomplete")
    );
    assert_eq!(
        ending(&[text("x")], Finish::Refused),
        told("content_filter", "incomplete")
    );
    let refusal = Said::Refusal("no".to_owned());
    assert_eq!(
        ending(&[refusal], Finish::Refused),
        (None, Some("completed".to_owned()))
    );
    let cut = [call(0, "f", false), arguments(0, "{\"a")];
    assert_eq!(
        ending(&cut, Finish::Length),
        told("max_output_tokens", "incomplete")
    );
}

#[test]
fn hidden_thoughts_leave_no_item() {
    let hidden = Reply {
        hides_thinking: true,
        ..reply()
    };
    let said = [
        Said::Begin,
        Said::Thinking("secret".to_owned()),
        Said::Proof(ProofMaker::Anthropic, "p".to_owned(), false),
        call(0, "f", false),
        Said::CallProof(0, ProofMaker::Gemini, "q".to_owned()),
        Said::Finish(Finish::ToolCalls, None),
    ];

    let stream = written(&said, hidden);

    assert_eq!(accepted(&stream)["output"].as_array().map(Vec::len), Some(1));
    assert!(!stream.contains("secret") && !stream.contains("waybill."));
}

#[test]
fn a_call_of_a_group_and_a_call_without_arguments_are_told_whole() {
    let grouped = Said::Call(0, "c".to_owned(), "f".to_owned(), Some("g".to_owned()), false);

    let response = accepted(&written(
        &[Said::Begin, grouped, Said::Finish(Finish::ToolCalls, None)],
        reply(),
    ));

    let call = &response["output"][0];
    assert_eq!(
        (&call["namespace"], &call["arguments"]),
        (&json!("g"), &json!("{}"))
    );
}

#[test]
fn a_whole_answer_is_the_object_that_ends_its_stream_and_is_read_back() {
    let said = [
        Said::Begin,
        Said::Thinking("hm".to_owned()),
        Said::Proof(ProofMaker::Anthropic, "sig".to_owned(), false),
        text("x"),
        call(0, "f", false),
        arguments(0, "{}"),
        Said::CallProof(0, ProofMaker::Gemini, "q".to_owned()),
        Said::Finish(Finish::ToolCalls, None),
    ];
    let end = accepted(&written(&said, reply()));

    let answer = response::decode(end.to_string().as_bytes()).expect("an answer");
    let again: Value = serde_json::from_slice(&response::encode(&answer, &reply())).expect("json");

    assert_eq!(again["output"], end["output"]);
    assert_eq!(answer.finish, Finish::ToolCalls);
    let Answer { parts, .. } = answer;
    assert!(
        matches!(&parts[0], Part::Thinking { text, proof: Some(proof) } if text == "hm" && proof.text == "sig")
    );
    assert!(
        matches!(&parts[2], Part::ToolCall(call) if call.proof.as_ref().is_some_and(|proof| proof.maker == ProofMaker::Gemini))
    );
}
