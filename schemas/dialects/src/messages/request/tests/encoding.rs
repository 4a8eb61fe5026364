//! What an upstream of Messages is sent.

use serde_json::{Value, json};

use super::*;
use crate::profile;
use crate::superset::request::Member;
use crate::superset::tool::Tool;

pub(super) fn target(model: &str, drop_params: bool) -> Target<'_> {
    Target {
        model,
        profile: &profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 4096,
        max_tokens_limit: None,
        drop_params,
    }
}

pub(super) fn said(role: Role, parts: Vec<Part>) -> Turn {
    Turn {
        role,
        name: None,
        parts,
    }
}

pub(super) fn plain(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
        cache: None,
    }
}

pub(super) fn hello() -> Conversation {
    Conversation {
        model: "m".to_owned(),
        turns: vec![said(Role::User, vec![plain("hello")])],
        ..Conversation::default()
    }
}

pub(super) fn call(id: &str, arguments: &str) -> Part {
    Part::ToolCall(Call {
        id: id.to_owned(),
        name: "look".to_owned(),
        namespace: None,
        arguments: arguments.to_owned(),
        custom: false,
        proof: None,
    })
}

pub(super) fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        id: id.to_owned(),
        parts: vec![plain(text)],
        failed: false,
    }
}

pub(super) fn thought(text: &str, maker: ProofMaker) -> Part {
    Part::Thinking {
        text: text.to_owned(),
        proof: Some(Proof {
            maker,
            text: "c2ln".to_owned(),
            redacted: false,
        }),
    }
}

pub(super) fn raw(text: &str) -> Box<serde_json::value::RawValue> {
    serde_json::from_str(text).expect("JSON")
}

pub(super) fn tool(name: &str, input: Input) -> Tool {
    Tool {
        name: name.to_owned(),
        namespace: None,
        description: None,
        input,
        strict: None,
        cache: None,
    }
}

pub(super) fn sent(conversation: &Conversation) -> (Value, Encoded) {
    sent_to("claude-haiku-4-5", conversation)
}

pub(super) fn sent_to(model: &str, conversation: &Conversation) -> (Value, Encoded) {
    let encoded = encode(conversation, &target(model, false)).unwrap_or_else(|refused| panic!("{refused}"));
    (serde_json::from_slice(&encoded.body).expect("JSON"), encoded)
}

pub(super) fn refused(conversation: &Conversation) -> String {
    match encode(conversation, &target("claude-haiku-4-5", false)) {
        Ok(_) => panic!("not refused"),
        Err(refused) => refused.param.into_owned(),
    }
}

pub(super) fn header<'e>(encoded: &'e Encoded, name: &str) -> Option<&'e str> {
    let mut found = encoded.headers.iter().filter(|(key, _)| *key == name);
    found.next().map(|(_, value)| value.as_str())
}

#[test]
fn a_plain_request_has_what_must_be_there() {
    let (body, encoded) = sent(&hello());

    assert_eq!(
        String::from_utf8(encoded.body.to_vec()).expect("text"),
        r#"{"model":"claude-haiku-4-5","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#
    );
    assert_eq!(header(&encoded, "anthropic-version"), Some("2023-06-01"));
    assert_eq!(header(&encoded, "anthropic-beta"), None);
    assert_eq!(body["stream"], Value::Null);
    assert!(encoded.dropped.is_empty() && encoded.names.is_empty());
}

#[test]
fn turns_change_sides_and_results_come_first_right_after_their_calls() {
    let conversation = Conversation {
        turns: vec![
            said(Role::System, vec![plain("one")]),
            said(Role::Developer, vec![plain("two"), plain(" ")]),
            said(Role::User, vec![plain("a")]),
            said(Role::User, vec![plain(""), plain("b")]),
            said(Role::Assistant, vec![plain("c")]),
            said(
                Role::Assistant,
                vec![call("t:1", r#"{"b":1,"a":2.50}"#), call("t2", "{")],
            ),
            said(Role::User, vec![plain("steer")]),
            said(Role::Tool, vec![result("t:1", "x")]),
            said(Role::Tool, vec![result("t2", "y")]),
        ],
        ..hello()
    };

    let (body, encoded) = sent(&conversation);

    let id = crate::messages::id::of_call("t:1");
    assert_eq!(
        body["system"],
        json!([{"type":"text","text":"one"},{"type":"text","text":"two"}])
    );
    assert_eq!(
        body["messages"],
        json!([
            {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
            {"role":"assistant","content":[
                {"type":"text","text":"c"},
                {"type":"tool_use","id":id,"name":"look","input":{"b":1,"a":2.5}},
                {"type":"tool_use","id":"t2","name":"look","input":{}}]},
            {"role":"user","content":[
                {"type":"tool_result","tool_use_id":id,"content":[{"type":"text","text":"x"}]},
                {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"y"}]},
                {"type":"text","text":"steer"}]},
        ])
    );
    let text = String::from_utf8(encoded.body.to_vec()).expect("text");
    assert!(
        text.contains(r#"{"b":1,"a":2.50}"#),
        "arguments as they were written"
    );
    assert_eq!(encoded.dropped, ["messages.tool_calls.arguments"]);
}

#[test]
fn conversations_that_no_upstream_takes_are_refused() {
    let calls = || said(Role::Assistant, vec![call("t1", "{}")]);
    let ask = || said(Role::User, vec![plain("a")]);
    let cases = [
        vec![],
        vec![said(Role::System, vec![plain("a")])],
        vec![said(Role::Assistant, vec![plain("a")])],
        vec![said(Role::User, vec![plain(" ")])],
        vec![ask(), calls()],
        vec![ask(), calls(), ask()],
        vec![ask(), calls(), said(Role::Tool, vec![result("t2", "x")])],
        vec![
            ask(),
            calls(),
            said(Role::Tool, vec![result("t1", "x"), result("t1", "x")]),
        ],
        vec![
            ask(),
            calls(),
            said(Role::System, vec![plain("s")]),
            said(Role::Tool, vec![result("t1", "x")]),
        ],
    ];
    for turns in cases {
        let shown = format!("{turns:?}");
        assert_eq!(refused(&Conversation { turns, ..hello() }), "messages", "{shown}");
    }
}

#[test]
fn late_instructions_stay_where_they_are_and_the_upstream_is_told() {
    let conversation = Conversation {
        turns: vec![
            said(Role::User, vec![plain("a")]),
            said(Role::System, vec![plain("late")]),
        ],
        ..hello()
    };

    let (body, encoded) = sent(&conversation);

    assert_eq!(
        body["messages"][1],
        json!({"role":"system","content":[{"type":"text","text":"late"}]})
    );
    assert_eq!(
        header(&encoded, "anthropic-beta"),
        Some("mid-conversation-system-2026-04-07")
    );
}

#[test]
fn images_and_documents_are_told_by_what_they_are() {
    let image = |source| Part::Image {
        source,
        detail: Some("high".to_owned()),
    };
    let inline = |media_type: &str, data: &str| Media::Inline {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    };
    let file = |source| Part::File {
        source,
        name: Some("n".to_owned()),
    };
    let of = |part| Conversation {
        turns: vec![said(Role::User, vec![part])],
        ..hello()
    };

    let parts = vec![
        image(inline("image/jpg", "iVBORw0KGgoAAAA=")),
        image(inline("image/webp", "AAAA")),
        image(Media::Url("data:image/gif;base64,/9j/AAAA".to_owned())),
        image(Media::Url("https://example.com/a.png".to_owned())),
        file(inline("application/pdf", "AAAA")),
        file(Media::Text("t".to_owned())),
        file(inline("text/plain", "aGk=")),
        file(inline("text/csv;charset=utf-8", "YSxi")),
    ];
    let (body, encoded) = sent(&Conversation {
        turns: vec![said(Role::User, parts)],
        ..hello()
    });

    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgoAAAA="}},
            {"type":"image","source":{"type":"base64","media_type":"image/webp","data":"AAAA"}},
            {"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/AAAA"}},
            {"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"},"title":"n"},
            {"type":"document","source":{"type":"text","media_type":"text/plain","data":"t"},"title":"n"},
            {"type":"document","source":{"type":"text","media_type":"text/plain","data":"hi"},"title":"n"},
            {"type":"document","source":{"type":"text","media_type":"text/plain","data":"a,b"},"title":"n"},
        ])
    );
    assert_eq!(encoded.dropped, ["detail"]);
    let cases = [
        (image(inline("image/bmp", "Qk0=")), "image_url"),
        (
            image(Media::Url("http://example.com/a.png".to_owned())),
            "image_url",
        ),
        (file(Media::Id("f".to_owned())), "file_id"),
        (file(inline("application/zip", "AAAA")), "file"),
        (file(inline("text/plain", "no base64")), "file"),
        (file(inline("text/plain", "/w==")), "file"),
        (file(inline("text/plain", "")), "file"),
        (
            Part::Audio {
                format: "wav".to_owned(),
                data: "AAAA".to_owned(),
            },
            "input_audio",
        ),
    ];
    for (part, param) in cases {
        assert_eq!(refused(&of(part)), param);
    }
}

#[test]
fn tools_are_named_and_chosen() {
    let namespaced = Tool {
        namespace: Some("files".to_owned()),
        strict: Some(true),
        ..tool("read.it", Input::Schema(None))
    };
    let conversation = Conversation {
        tools: vec![
            tool(
                "look",
                Input::Schema(Some(raw(r#"{"properties":{"b":{},"a":{}}}"#))),
            ),
            namespaced,
            tool("patch", Input::Text(Some(raw(r#"{"type":"grammar"}"#)))),
        ],
        tool_choice: Some(ToolChoice::Named("read.it".to_owned())),
        parallel_tool_calls: Some(false),
        ..hello()
    };

    let (body, encoded) = sent(&conversation);

    let tools = &body["tools"];
    assert_eq!(
        tools[0]["input_schema"],
        json!({"type":"object","properties":{"b":{},"a":{}}})
    );
    assert_eq!(tools[1]["input_schema"], json!({"type":"object","properties":{}}));
    assert_eq!(tools[1]["strict"], true);
    assert_eq!(tools[2]["input_schema"]["required"], json!(["input"]));
    let name = tools[1]["name"].as_str().expect("a name");
    assert_eq!(
        body["tool_choice"],
        json!({"type":"tool","name":name,"disable_parallel_tool_use":true})
    );
    let known = encoded.names.known(name).expect("a changed name");
    assert_eq!(
        (known.name.as_str(), known.namespace.as_deref()),
        ("read.it", Some("files"))
    );
    assert!(encoded.names.known("patch").is_some_and(|known| known.custom));
    assert_eq!(encoded.dropped, ["tools.2.format"]);
}

#[test]
fn choices_find_their_words() {
    let choice = |choice: Option<ToolChoice>, parallel| {
        let (body, _) = sent(&Conversation {
            tools: vec![
                tool("look", Input::Schema(None)),
                tool("other", Input::Schema(None)),
            ],
            tool_choice: choice,
            parallel_tool_calls: parallel,
            ..hello()
        });
        (
            body["tool_choice"].clone(),
            body["tools"].as_array().map(Vec::len),
        )
    };
    let allowed = |required| ToolChoice::Allowed {
        names: vec!["other".to_owned()],
        required,
    };

    assert_eq!(choice(None, None), (Value::Null, Some(2)));
    assert_eq!(
        choice(None, Some(false)),
        (json!({"type":"auto","disable_parallel_tool_use":true}), Some(2))
    );
    assert_eq!(
        choice(Some(ToolChoice::Auto), Some(true)),
        (json!({"type":"auto"}), Some(2))
    );
    assert_eq!(
        choice(Some(ToolChoice::Required), None),
        (json!({"type":"any"}), Some(2))
    );
    assert_eq!(
        choice(Some(ToolChoice::Never), Some(false)),
        (json!({"type":"none"}), Some(2))
    );
    assert_eq!(
        choice(Some(allowed(true)), None),
        (json!({"type":"any"}), Some(1))
    );
    assert_eq!(
        choice(Some(allowed(false)), None),
        (json!({"type":"auto"}), Some(1))
    );
    let without = Conversation {
        tool_choice: Some(ToolChoice::Required),
        ..hello()
    };
    assert_eq!(refused(&without), "tool_choice");
}

#[test]
fn what_cannot_be_said_is_refused_by_name_or_dropped_where_the_route_says_so() {
    let demand = |name: &'static str| Conversation {
        demands: vec![Member {
            name: name.into(),
            value: raw("2"),
        }],
        ..hello()
    };
    let sampled = |sampling: Sampling| Conversation { sampling, ..hello() };
    let plain = Sampling::default;
    let cases = [
        ("n", demand("n")),
        ("logprobs", demand("logprobs")),
        (
            "seed",
            sampled(Sampling {
                seed: Some(1),
                ..plain()
            }),
        ),
        (
            "min_p",
            sampled(Sampling {
                min_p: Some(raw("0.1")),
                ..plain()
            }),
        ),
        (
            "presence_penalty",
            sampled(Sampling {
                presence_penalty: Some(raw("1")),
                ..plain()
            }),
        ),
        (
            "temperature",
            sampled(Sampling {
                temperature: Some(raw("1.5")),
                ..plain()
            }),
        ),
        (
            "stop",
            Conversation {
                stop: vec!["\n".to_owned()],
                ..hello()
            },
        ),
        (
            "response_format",
            Conversation {
                format: Format::JsonObject,
                ..hello()
            },
        ),
    ];
    for (param, conversation) in cases {
        assert_eq!(refused(&conversation), param);

        let encoded = encode(&conversation, &target("m", true)).expect("dropped");

        assert_eq!(encoded.dropped, [param]);
        let body = String::from_utf8(encoded.body.to_vec()).expect("text");
        assert_eq!(
            body,
            String::from_utf8(encode(&hello(), &target("m", true)).expect("plain").body.to_vec())
                .expect("text")
        );
    }
}

#[test]
fn options_and_hints_find_their_places() {
    let hint = |name: &'static str, value: &str| Member {
        name: name.into(),
        value: raw(value),
    };
    let conversation = Conversation {
        stream: true,
        max_tokens: Some(10),
        stop: vec!["x".to_owned()],
        sampling: Sampling {
            temperature: Some(raw("0.50")),
            top_p: Some(raw("1.0")),
            top_k: Some(3),
            ..Sampling::default()
        },
        format: Format::JsonSchema {
            name: "n".to_owned(),
            description: None,
            schema: raw(r#"{"b":1,"a":2}"#),
            strict: None,
        },
        hints: vec![
            hint("safety_identifier", "\"u\""),
            hint("prompt_cache_key", "\"k\""),
            hint("store", "false"),
        ],
        ..hello()
    };

    let (body, encoded) = sent(&conversation);

    assert_eq!(body["metadata"], json!({"user_id":"u"}));
    assert_eq!(
        body["output_config"],
        json!({"format":{"type":"json_schema","schema":{"b":1,"a":2}}})
    );
    assert_eq!(
        (&body["stream"], &body["top_k"], &body["top_p"]),
        (&json!(true), &json!(3), &Value::Null)
    );
    assert_eq!(body["stop_sequences"], json!(["x"]));
    assert_eq!(encoded.dropped, ["prompt_cache_key", "store"]);
    assert_eq!(
        header(&encoded, "anthropic-beta"),
        Some("structured-outputs-2025-12-15")
    );
}

#[test]
fn only_four_marks_of_a_cache_are_kept() {
    let marked = |text: &str| Part::Text {
        text: text.to_owned(),
        cache: Some(raw(r#"{"type":"ephemeral"}"#)),
    };
    let parts = ["a", "b", "c", "d", "e"].map(marked).to_vec();

    let (_, encoded) = sent(&Conversation {
        turns: vec![said(Role::User, parts)],
        ..hello()
    });

    let text = String::from_utf8(encoded.body.to_vec()).expect("text");
    assert_eq!(text.matches("cache_control").count(), 4);
    assert_eq!(encoded.dropped, ["cache_control"]);
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read_back(
        texts in proptest::collection::vec("[a-zé\"\\\\\n]{1,8}x", 1..6),
        arguments in "\\{\"k\":(1\\.50|\"[a-z]*\"|\\[\\])\\}",
    ) {
        let mut turns = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let id = format!("t{index}");
            turns.push(said(Role::User, vec![plain(text)]));
            turns.push(said(Role::Assistant, vec![thought(text, ProofMaker::Anthropic), plain(text), call(&id, &arguments)]));
            turns.push(said(Role::Tool, vec![result(&id, text)]));
        }
        let conversation = Conversation { turns, max_tokens: Some(9), ..hello() };

        let encoded = encode(&conversation, &target("m", false)).expect("written");
        let back = decode(&encoded.body).expect("read");

        proptest::prop_assert_eq!(format!("{:?}", back.turns), format!("{:?}", conversation.turns));
        proptest::prop_assert!(back.hints.is_empty() && back.demands.is_empty());
    }

    #[test]
    fn no_body_makes_the_decoder_panic(body in "[\\[\\]{}\",:a-z0-9 ]{0,60}") {
        let _ = decode(body.as_bytes());
    }
}
