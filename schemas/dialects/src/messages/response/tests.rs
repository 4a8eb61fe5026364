//! Whole answers of Messages.

use serde_json::Value;

use super::*;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::Finish;
use crate::testing;

fn reply() -> Reply {
    Reply {
        id: "0123".to_owned(),
        created: 1,
        model: "public".to_owned(),
        prompt_tokens: 7,
        ..testing::reply()
    }
}

fn call(id: &str, arguments: &str) -> Part {
    Part::ToolCall(Call {
        id: id.to_owned(),
        name: "look".to_owned(),
        namespace: None,
        arguments: arguments.to_owned(),
        custom: false,
        proof: None,
    })
}

#[test]
fn an_answer_is_read() {
    let answer = decode(
        br#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
            {"type":"thinking","thinking":"hm","signature":"c2ln"},
            {"type":"redacted_thinking","data":"AAAA"},
            {"type":"web_search_tool_result","content":[]},
            {"type":"text","text":"a","citations":[]},{"type":"text","text":""},
            {"type":"tool_use","id":"t","name":"look","input":{"b": 1, "a": 2.50}},
            {"type":"tool_use","id":"t","name":"look"}],
            "stop_reason":"end_turn","stop_sequence":null,
            "usage":{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"output_tokens":5}}"#,
    )
    .expect("an answer");

    assert_eq!(answer.parts.len(), 5);
    assert!(matches!(&answer.parts[1], Part::Thinking { proof: Some(proof), .. } if proof.redacted));
    let calls: Vec<(&str, &str)> = answer
        .calls()
        .map(|call| (call.id.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(calls, [("t", r#"{"b": 1, "a": 2.50}"#), ("toolu_msg_1_1", "{}")]);
    assert_eq!(answer.finish, Finish::ToolCalls);
    assert_eq!(answer.usage.and_then(|usage| usage.prompt_tokens), Some(17));
}

#[test]
fn what_is_no_answer_is_none() {
    let malformed = [
        "x",
        "[]",
        "{}",
        r#"{"content":"x","stop_reason":"end_turn"}"#,
        r#"{"content":[{"type":"tool_use","id":"t","name":"f","input":true}],"stop_reason":"tool_use"}"#,
        r#"{"content":[{"type":"tool_use","id":"t","name":"","input":{}}],"stop_reason":"tool_use"}"#,
    ];
    for body in malformed {
        assert_eq!(
            decode(body.as_bytes()).map(drop),
            Err(Broken::Malformed),
            "{body}"
        );
    }
    assert_eq!(
        decode(br#"{"content":[],"stop_reason":null}"#).map(drop),
        Err(Broken::Empty)
    );
    let told = decode(br#"{"type":"error","error":{"type":"api_error","message":"m"}}"#);
    assert!(matches!(told, Err(Broken::Told(error)) if error.message.as_deref() == Some("m")));
}

#[test]
fn an_answer_is_written() {
    let answer = Answer {
        parts: vec![
            Part::Thinking {
                text: "hm".to_owned(),
                proof: None,
            },
            Part::Text {
                text: "a".to_owned(),
                cache: None,
            },
            call("t", r#"{"b":1,"a":2.50}"#),
            call("t:2", ""),
            call("t3", "true"),
        ],
        finish: Finish::Stop,
        stop_sequence: None,
        usage: Some(UsageFacts {
            prompt_tokens: Some(17),
            completion_tokens: Some(5),
            cached_tokens: Some(4),
            cache_write_tokens: Some(3),
            ..UsageFacts::default()
        }),
    };

    let body = encode(&answer, &reply());

    let second = id::of_call("t:2");
    assert_eq!(
        String::from_utf8(body.to_vec()).expect("text"),
        format!(
            r#"{{"id":"msg_0123","type":"message","role":"assistant","model":"public","content":[{{"type":"thinking","thinking":"hm","signature":"waybill.none"}},{{"type":"text","text":"a"}},{{"type":"tool_use","id":"t","name":"look","input":{{"b":1,"a":2.50}}}},{{"type":"tool_use","id":"{second}","name":"look","input":{{}}}},{{"type":"tool_use","id":"t3","name":"look","input":{{}}}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5}}}}"#
        )
    );
}

#[test]
fn an_empty_answer_has_no_content_and_usage_all_the_same() {
    let answer = Answer {
        finish: Finish::Length,
        ..Answer::default()
    };

    let body: Value = serde_json::from_slice(&encode(&answer, &reply())).expect("JSON");

    assert_eq!(body["content"], Value::Array(Vec::new()));
    assert_eq!(body["stop_reason"], "max_tokens");
    assert_eq!(
        (&body["usage"]["input_tokens"], &body["usage"]["output_tokens"]),
        (&7.into(), &0.into())
    );
}

#[test]
fn what_is_written_is_read_back() {
    let answer = Answer {
        parts: vec![
            Part::Thinking {
                text: "hm".to_owned(),
                proof: Some(Proof {
                    maker: ProofMaker::Anthropic,
                    text: "c2ln".to_owned(),
                    redacted: false,
                }),
            },
            Part::Text {
                text: "é\n".to_owned(),
                cache: None,
            },
        ],
        finish: Finish::StopSequence,
        stop_sequence: Some("x".to_owned()),
        usage: None,
    };

    let back = decode(&encode(&answer, &reply())).expect("an answer");

    assert_eq!(format!("{:?}", back.parts), format!("{:?}", answer.parts));
    assert_eq!(
        (back.finish, back.stop_sequence),
        (answer.finish, answer.stop_sequence)
    );
}
