//! What an upstream of Responses is sent.

use super::*;
use crate::superset::request::{
    Call, Effort, Format, Media, Member, Proof, ProofMaker, Reasoning, Role, Sampling,
};
use crate::superset::tool::{Input, Tool, ToolChoice};
use crate::{chat, messages};
use serde_json::value::RawValue;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("JSON")
}

fn text(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
        cache: None,
    }
}

fn turn(role: Role, parts: Vec<Part>) -> Turn {
    Turn {
        role,
        name: None,
        parts,
    }
}

fn says(turns: Vec<Turn>) -> Conversation {
    Conversation {
        turns,
        ..Conversation::default()
    }
}

fn call(id: &str, name: &str) -> Call {
    Call {
        id: id.to_owned(),
        name: name.to_owned(),
        namespace: None,
        arguments: "{\"a\": 1}".to_owned(),
        custom: false,
        proof: None,
    }
}

fn refused(conversation: &Conversation) -> String {
    encode(conversation, &target())
        .expect_err("refused")
        .param
        .into_owned()
}

#[test]
fn a_chat_request_becomes_items_and_flat_tools_and_nothing_is_kept() {
    let chat = json!({"model": "m", "stream": true, "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ==", "detail": "high"}}]},
        {"role": "assistant", "content": "I look", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
        "max_tokens": 9, "temperature": 0.5, "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}});
    let conversation = chat::request::decode(chat.to_string().as_bytes()).expect("a request");

    let (body, dropped) = sent(&conversation);

    assert_eq!(
        body,
        json!({"model": "upstream", "instructions": "be brief", "stream": true, "store": false,
            "include": ["reasoning.encrypted_content"],
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "see"},
                    {"type": "input_image", "image_url": "data:image/png;base64,YQ==", "detail": "high"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look", "annotations": []}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "function_call_output", "call_id": "c1", "output": "r"}],
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": false}],
            "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
            "max_output_tokens": 9, "temperature": 0.5, "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": false}}})
    );
    assert!(dropped.is_empty(), "{dropped:?}");
}

#[test]
fn a_messages_request_keeps_its_order_and_its_late_instructions() {
    let messages = json!({"model": "m", "max_tokens": 9, "system": "s", "messages": [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "late"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "of-claude"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"z": 1, "a": 2}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": "no"},
            {"type": "text", "text": "go on"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}]});
    let conversation = messages::request::decode(messages.to_string().as_bytes()).expect("a request");

    let (body, _) = sent(&conversation);

    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "late"}]},
            {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": "{\"a\":2,\"z\":1}"},
            {"type": "function_call_output", "call_id": "toolu_1", "output": "Error: no"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}])
    );
    assert_eq!(body["instructions"], "s");
}

#[test]
fn a_thought_goes_back_to_openai_and_to_nobody_else() {
    let proof = |maker, redacted| {
        Some(Proof {
            maker,
            text: "p".to_owned(),
            redacted,
        })
    };
    let thought = |text: &str, proof| {
        let part = Part::Thinking {
            text: text.to_owned(),
            proof,
        };
        let conversation = says(vec![
            turn(Role::User, vec![]),
            turn(Role::Assistant, vec![part, Part::ToolCall(call("c", "f"))]),
        ]);
        sent(&conversation).0
    };

    let own = thought("t", proof(ProofMaker::OpenAi, false));
    assert_eq!(
        own["input"][1],
        json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "p"})
    );
    assert_eq!(own["include"], json!(["reasoning.encrypted_content"]));
    let redacted = thought("", proof(ProofMaker::OpenAi, true));
    assert_eq!(
        redacted["input"][1],
        json!({"type": "reasoning", "summary": [], "encrypted_content": "p"})
    );
    for foreign in [
        proof(ProofMaker::Anthropic, false),
        proof(ProofMaker::Gemini, false),
        None,
    ] {
        let body = thought("t", foreign);
        assert_eq!(body["input"][1]["type"], "function_call");
        assert_eq!(body.get("include"), None);
    }
}

#[test]
fn results_are_text_or_parts_and_those_that_failed_say_so() {
    let image = Part::Image {
        source: Media::Inline {
            media_type: "image/png".to_owned(),
            data: "YQ==".to_owned(),
        },
        detail: None,
    };
    let output = |parts: Vec<Part>, failed, custom| {
        let made = Call {
            custom,
            ..call("c", "f")
        };
        let result = Part::ToolResult {
            id: "c".to_owned(),
            parts,
            failed,
        };
        let conversation = says(vec![
            turn(Role::User, vec![text("x")]),
            turn(Role::Assistant, vec![Part::ToolCall(made)]),
            turn(Role::Tool, vec![result]),
        ]);
        let item = sent(&conversation).0["input"][2].clone();
        (item["type"].clone(), item["output"].clone())
    };
    let function = json!("function_call_output");

    assert_eq!(
        output(vec![text("r")], false, false),
        (function.clone(), json!("r"))
    );
    assert_eq!(
        output(vec![text("r")], true, true),
        (json!("custom_tool_call_output"), json!("Error: r"))
    );
    assert_eq!(output(vec![], false, false), (function.clone(), json!("")));
    assert_eq!(output(vec![], true, false), (function.clone(), json!("Error: ")));
    let pieces = json!([{"type": "input_text", "text": "Error: "}, {"type": "input_text", "text": "r"},
        {"type": "input_image", "image_url": "data:image/png;base64,YQ==", "detail": "auto"}]);
    assert_eq!(output(vec![text("r"), image], true, false), (function, pieces));
}

#[test]
fn tools_of_a_group_stand_together_and_custom_tools_keep_their_grammar() {
    let tool = |name: &str, namespace: Option<&str>, input| Tool {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        description: None,
        input,
        strict: None,
        cache: None,
    };
    let conversation = Conversation {
        tools: vec![
            tool("a", Some("g"), Input::Schema(None)),
            tool(
                "p",
                None,
                Input::Text(Some(raw(r#"{"type":"grammar","syntax":"lark"}"#))),
            ),
            tool("b", Some("g"), Input::Schema(Some(raw(r#"{"z":1,"a":2}"#)))),
        ],
        tool_choice: Some(ToolChoice::Allowed {
            names: vec!["a".to_owned(), "p".to_owned()],
            required: false,
        }),
        ..says(vec![turn(Role::User, vec![text("x")])])
    };

    let encoded = encode(&conversation, &target()).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");

    let empty = json!({"type": "object", "properties": {}});
    assert_eq!(
        body["tools"],
        json!([
            {"type": "namespace", "name": "g", "description": "", "tools": [
                {"type": "function", "name": "a", "parameters": empty, "strict": false},
                {"type": "function", "name": "b", "parameters": {"z": 1, "a": 2}, "strict": false}]},
            {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark"}}])
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "a"}, {"type": "custom", "name": "p"}]})
    );
    assert!(
        String::from_utf8_lossy(&encoded.body).contains(r#"{"z":1,"a":2}"#),
        "the order of a schema is kept"
    );
}

#[test]
fn names_and_ids_that_the_dialect_does_not_take_are_changed_and_told_back() {
    let long = "n".repeat(70);
    let conversation = Conversation {
        tools: vec![Tool {
            name: "files.read/all".to_owned(),
            namespace: None,
            description: None,
            input: Input::Schema(None),
            strict: None,
            cache: None,
        }],
        ..says(vec![
            turn(Role::User, vec![text("x")]),
            turn(
                Role::Assistant,
                vec![Part::ToolCall(call(&long, "files.read/all"))],
            ),
            turn(
                Role::Tool,
                vec![Part::ToolResult {
                    id: long.clone(),
                    parts: vec![text("r")],
                    failed: false,
                }],
            ),
        ])
    };

    let encoded = encode(&conversation, &target()).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");

    let name = body["tools"][0]["name"].as_str().expect("a name");
    assert!(name.starts_with("files_read_all_") && name.len() <= 64, "{name}");
    assert_eq!(
        encoded.names.known(name).map(|known| known.name.as_str()),
        Some("files.read/all")
    );
    let (made, answered) = (&body["input"][1], &body["input"][2]);
    assert_eq!(made["name"], name);
    assert_eq!(made["call_id"], answered["call_id"]);
    assert!(made["call_id"].as_str().is_some_and(|id| id.len() <= 64));
}

#[test]
fn what_the_dialect_has_no_words_for_is_refused_by_name_or_reported() {
    let plain = || says(vec![turn(Role::User, vec![text("x")])]);
    let sampling = |sampling: Sampling| Conversation { sampling, ..plain() };
    let seed = Sampling {
        seed: Some(1),
        ..Sampling::default()
    };
    assert_eq!(refused(&sampling(seed)), "seed");
    let penalty = Sampling {
        frequency_penalty: Some(raw("1")),
        ..Sampling::default()
    };
    assert_eq!(refused(&sampling(penalty)), "frequency_penalty");
    let penalty = Sampling {
        presence_penalty: Some(raw("1")),
        ..Sampling::default()
    };
    assert_eq!(refused(&sampling(penalty)), "presence_penalty");
    let stops = Conversation {
        stop: vec!["END".to_owned()],
        ..plain()
    };
    assert_eq!(refused(&stops), "stop");
    let demand = Conversation {
        demands: vec![Member {
            name: "logit_bias".into(),
            value: raw(r#"{"1":2}"#),
        }],
        ..plain()
    };
    assert_eq!(refused(&demand), "logit_bias");
    let sound = Part::Audio {
        format: "wav".to_owned(),
        data: String::new(),
    };
    assert_eq!(refused(&says(vec![turn(Role::User, vec![sound])])), "input_audio");

    let target = Target {
        drop_params: true,
        ..target()
    };
    let encoded = encode(&stops, &target).expect("dropped");
    assert_eq!(encoded.dropped, ["stop"]);
}

#[test]
fn hints_have_their_places_or_are_reported() {
    let hint = |name: &'static str, value: &str| Member {
        name: name.into(),
        value: raw(value),
    };
    let conversation = Conversation {
        user: Some("u".to_owned()),
        hints: vec![
            hint("metadata", r#"{"a":"b"}"#),
            hint("safety_identifier", r#""s""#),
            hint("prompt_cache_key", r#""k""#),
            hint("prompt_cache_retention", r#""24h""#),
            hint("service_tier", r#""auto""#),
            hint("verbosity", r#""low""#),
            hint("client_metadata", "{}"),
            hint("store", "true"),
        ],
        demands: vec![hint("service_tier", r#""flex""#)],
        format: Format::JsonObject,
        ..says(vec![Turn {
            name: Some("n".to_owned()),
            ..turn(
                Role::User,
                vec![Part::Text {
                    text: "x".to_owned(),
                    cache: Some(raw("{}")),
                }],
            )
        }])
    };

    let (body, dropped) = sent(&conversation);

    for (name, value) in [
        ("metadata", json!({"a": "b"})),
        ("safety_identifier", json!("s")),
        ("prompt_cache_key", json!("k")),
        ("prompt_cache_retention", json!("24h")),
        ("service_tier", json!("flex")),
        ("user", json!("u")),
        (
            "text",
            json!({"format": {"type": "json_object"}, "verbosity": "low"}),
        ),
        ("store", json!(false)),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    assert_eq!(dropped, ["name", "cache_control", "client_metadata", "store"]);
}

#[test]
fn every_word_for_how_much_to_think_has_one_of_the_dialect() {
    for (effort, word) in [
        (Effort::Off, json!({"effort": "none"})),
        (Effort::Adaptive, Value::Null),
        (Effort::Minimal, json!({"effort": "minimal"})),
        (Effort::Medium, json!({"effort": "medium"})),
        (Effort::High, json!({"effort": "high"})),
        (Effort::ExtraHigh, json!({"effort": "xhigh"})),
        (Effort::Max, json!({"effort": "xhigh"})),
        (Effort::Budget(0), json!({"effort": "none"})),
        (Effort::Budget(1024), json!({"effort": "minimal"})),
        (Effort::Budget(4096), json!({"effort": "low"})),
        (Effort::Budget(16_384), json!({"effort": "medium"})),
        (Effort::Budget(16_385), json!({"effort": "high"})),
    ] {
        let conversation = Conversation {
            reasoning: Reasoning {
                effort: Some(effort),
                shown: None,
            },
            ..says(vec![turn(Role::User, vec![text("x")])])
        };
        assert_eq!(sent(&conversation).0["reasoning"], word, "{effort:?}");
    }
}

#[test]
fn documents_are_given_as_bytes_with_a_name_or_by_address() {
    let piece = |source: Media, name: Option<&str>| {
        let part = Part::File {
            source,
            name: name.map(str::to_owned),
        };
        let conversation = says(vec![turn(Role::User, vec![part])]);
        sent(&conversation).0["input"][0]["content"][0].clone()
    };
    let pdf = Media::Inline {
        media_type: "application/pdf".to_owned(),
        data: "YQ==".to_owned(),
    };

    assert_eq!(
        piece(pdf, None),
        json!({"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,YQ=="})
    );
    assert_eq!(
        piece(Media::Url("https://papers.example/a.pdf".to_owned()), None),
        json!({"type": "input_file", "file_url": "https://papers.example/a.pdf"})
    );
    assert_eq!(
        piece(Media::Text("words".to_owned()), Some("a.txt")),
        json!({"type": "input_text", "text": "a.txt\n\nwords"})
    );
}

#[test]
fn a_request_that_was_written_is_read_as_what_it_was() {
    let body = json!({"model": "m", "instructions": "i", "stream": true, "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "namespace": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"}],
        "tools": [{"type": "namespace", "name": "g", "tools": [{"type": "function", "name": "f", "strict": false}]},
            {"type": "custom", "name": "p"}],
        "tool_choice": "required", "reasoning": {"effort": "high", "summary": "auto"}, "max_output_tokens": 7});
    let (once, _) = sent(&read(&body).expect("a request"));
    let (twice, dropped) = sent(&read(&once).expect("a request"));

    assert_eq!(once, twice);
    assert!(dropped.is_empty(), "{dropped:?}");
}
