//! The skim over recorded requests, and over requests that are wrong.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

mod surfaces;

const RECORDED: [&str; 12] = [
    include_str!("../../tests/requests/openai-python/chat_minimal.json"),
    include_str!("../../tests/requests/openai-python/chat_all_params.json"),
    include_str!("../../tests/requests/openai-python/chat_multimodal.json"),
    include_str!("../../tests/requests/openai-python/chat_tool_history.json"),
    include_str!("../../tests/requests/openai-python/chat_stream_usage.json"),
    include_str!("../../tests/requests/openai-node/chat_stream_usage.json"),
    include_str!("../../tests/requests/opencode/main_chat.json"),
    include_str!("../../tests/requests/opencode/tool_followup_chat.json"),
    include_str!("../../tests/requests/langchain-js/chat_tools.json"),
    include_str!("../../tests/requests/langchain-python/chat_structured.json"),
    include_str!("../../tests/requests/vercel-ai-sdk/openrouter_stream.json"),
    include_str!("../../tests/requests/llm-cli/schema.json"),
];

fn skim(body: &str) -> Result<Skim, Error> {
    skim_chat(body.as_bytes(), &Limits::default())
}

/// A request with more members; they start with a comma.
fn with(members: &str) -> Result<Skim, Error> {
    skim(&format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{members}}}"#
    ))
}

fn with_content(content: &str) -> Skim {
    skim(&format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#
    ))
    .expect("valid")
}

fn invalid(param: &'static str) -> Error {
    Error::InvalidField { param }
}

#[test]
fn recorded_requests_are_read_as_a_full_parser_reads_them() {
    for body in RECORDED {
        let skim = skim(body).unwrap_or_else(|error| panic!("{error}: {body}"));

        let full: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(skim.model, full["model"], "{body}");
        assert_eq!(body[skim.model_span.clone()], full["model"].to_string());
        assert_eq!(skim.stream, full["stream"] == true);
        assert_eq!(
            skim.include_usage,
            full["stream_options"]["include_usage"] == true
        );
        let options = skim.stream_options_span.map_or(Value::Null, |span| {
            serde_json::from_str(&body[span]).expect("JSON")
        });
        assert_eq!(options, full["stream_options"]);
        assert_eq!(
            skim.tools,
            full["tools"].is_array() || full["tool_choice"].is_string()
        );
        assert_eq!(skim.response_format, full["response_format"].is_object());
        let max_tokens = full["max_completion_tokens"]
            .as_u64()
            .or(full["max_tokens"].as_u64());
        assert_eq!(skim.max_tokens, max_tokens);
        assert_eq!(&body[..skim.insert_at], "{");
        assert_eq!(skim.n, 1);
    }
}

#[test]
fn a_minimal_request_needs_no_more_than_model_and_messages() {
    let body = r#" { "messages" : [ {"role":"user","content":"hi"} ] , "model" : "a/b:c" } "#;

    let skim = skim(body).expect("valid");

    assert_eq!(skim.model, "a/b:c");
    assert_eq!(&body[skim.model_span.clone()], "\"a/b:c\"");
    assert_eq!(skim.insert_at, 2);
    assert_eq!(skim.prompt_tokens_estimate, 1 + crate::estimate::MESSAGE_TOKENS);
    assert_eq!(skim.modalities, Modalities::TEXT);
    let quiet = (skim.stream, skim.include_usage, skim.tools, skim.response_format);
    assert_eq!(quiet, (false, false, false, false));
    assert_eq!(
        (skim.n, skim.max_tokens, skim.stream_options_span),
        (1, None, None)
    );
}

#[test]
fn an_escaped_model_name_is_decoded_and_its_span_is_of_the_wire() {
    let body = r#"{"mod\u0065l":"m\u00e9\"🙂","messages":[{}]}"#;

    let skim = skim(body).expect("valid");

    assert_eq!(skim.model, "mé\"🙂");
    assert_eq!(&body[skim.model_span], r#""m\u00e9\"🙂""#);
}

#[test]
fn a_body_that_is_no_json_object_is_refused() {
    for body in [
        "",
        "{",
        r#"{"model":"m""#,
        r#"{"model":"m",}"#,
        "{}x",
        "nope",
        "{'model':1}",
        "\u{FEFF}{}",
    ] {
        assert!(
            matches!(skim(body), Err(Error::InvalidJson { .. })),
            "{body}: {:?}",
            skim(body)
        );
    }
    for body in ["[]", "null", "\"text\"", "1", " [ {} ] "] {
        assert_eq!(skim(body), Err(Error::NotAnObject), "{body}");
    }
    let not_utf8 = b"{\"model\":\"m\",\"x\":\"\xFF\",\"messages\":[{}]}";
    assert!(matches!(
        skim_chat(not_utf8, &Limits::default()),
        Err(Error::InvalidJson { .. })
    ));
}

#[test]
fn the_place_of_broken_json_is_told() {
    let error = skim("{\"model\":\"m\",\n  oops}").expect_err("broken");

    assert_eq!(error, Error::InvalidJson { line: 2, column: 3 });
    assert_eq!(
        error.to_string(),
        "the request body is not valid JSON (line 2, column 3)"
    );
}

#[test]
fn nesting_is_bounded_before_anything_is_parsed() {
    let nested = |depth: usize| {
        format!(
            r#"{{"model":"m","messages":[{{}}],"x":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(skim(&nested(63)).is_ok());
    assert_eq!(skim(&nested(64)), Err(Error::TooDeep));
    assert_eq!(skim(&nested(200_000)), Err(Error::TooDeep));
    assert_eq!(skim(&"{\"a\":".repeat(200_000)), Err(Error::TooDeep));
}

#[test]
fn nested_content_up_to_the_limit_is_weighed() {
    let content = format!("{}\"deep\"{}", r#"[{"content":"#.repeat(30), "}]".repeat(30));

    let skim = with_content(&content);

    assert_eq!(skim.prompt_tokens_estimate, 2 + 4);
}

#[test]
fn missing_model_and_messages_are_told_apart_from_wrong_ones() {
    assert_eq!(skim("{}"), Err(Error::Missing { param: "model" }));
    assert_eq!(
        skim(r#"{"model":null,"messages":[{}]}"#),
        Err(Error::Missing { param: "model" })
    );
    assert_eq!(
        skim(r#"{"model":"","messages":[{}]}"#),
        Err(Error::Missing { param: "model" })
    );
    assert_eq!(skim(r#"{"model":7,"messages":[{}]}"#), Err(invalid("model")));
    let long = format!(r#"{{"model":"{}","messages":[{{}}]}}"#, "m".repeat(257));
    assert_eq!(skim(&long), Err(invalid("model")));
    assert_eq!(
        skim(r#"{"model":"m"}"#),
        Err(Error::Missing { param: "messages" })
    );
    assert_eq!(
        skim(r#"{"model":"m","messages":null}"#),
        Err(Error::Missing { param: "messages" })
    );
    for messages in ["[]", "{}", "\"hi\""] {
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        assert_eq!(skim(&body), Err(invalid("messages")), "{messages}");
    }
    for (messages, spot) in [
        ("[1]", Spot::Entry(0)),
        ("[{},null]", Spot::Entry(1)),
        ("[\"hi\"]", Spot::Entry(0)),
        ("[{\"content\":1}]", Spot::Member(0, "content")),
        ("[{\"content\":[true]}]", Spot::Part(0, "content", 0)),
        ("[{\"content\":[\"a\",null]}]", Spot::Part(0, "content", 1)),
        (
            "[{\"content\":[{},{\"content\":[{},[]]}]}]",
            Spot::Part(0, "content", 1),
        ),
    ] {
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        let param = "messages";
        assert_eq!(
            skim(&body),
            Err(Error::InvalidEntry { param, spot }),
            "{messages}"
        );
    }
}

#[test]
fn members_out_of_their_range_or_type_are_named() {
    let wrong = [
        ("stream", r#""yes""#),
        ("stream", "1"),
        ("stream_options", "true"),
        ("stream_options", "[true]"),
        ("stream_options", r#"{"include_usage":1}"#),
        (
            "stream_options",
            r#"{"include_usage":true,"include_usage":false}"#,
        ),
        ("temperature", "2.1"),
        ("temperature", "-0.1"),
        ("temperature", r#""1""#),
        ("top_p", "1.5"),
        ("n", "0"),
        ("n", "-1"),
        ("n", "129"),
        ("n", "1.5"),
        ("n", r#""2""#),
        ("max_tokens", "0"),
        ("max_tokens", "-5"),
        ("max_tokens", "0.5"),
        ("max_completion_tokens", "[]"),
        ("tools", "{}"),
        ("functions", "1"),
        ("response_format", "\"json\""),
        ("response_format", r#"{"type":1}"#),
    ];
    for (param, value) in wrong {
        assert_eq!(
            with(&format!(",\"{param}\":{value}")),
            Err(invalid(param)),
            "{param}: {value}"
        );
    }
    assert_eq!(
        invalid("top_p").to_string(),
        "the member 'top_p' must be a number from 0 to 1"
    );
}

#[test]
fn members_in_their_range_or_null_are_fine() {
    for param in [
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "n",
        "max_tokens",
        "tools",
        "tool_choice",
        "response_format",
    ] {
        assert!(with(&format!(",\"{param}\":null")).is_ok(), "{param}");
    }
    for value in [
        "temperature\":0",
        "temperature\":2",
        "top_p\":1.0",
        "n\":128",
        "unknown\":{\"a\":[1e999]}",
    ] {
        assert!(with(&format!(",\"{value}")).is_ok(), "{value}");
    }
    assert_eq!(
        with(",\"max_tokens\":100.0").expect("valid").max_tokens,
        Some(100)
    );
    assert_eq!(
        with(",\"max_tokens\":18446744073709551615")
            .expect("valid")
            .max_tokens,
        Some(u64::MAX)
    );
}

#[test]
fn the_larger_of_two_maxima_is_what_may_be_generated() {
    let skim = with(r#","max_tokens":10,"max_completion_tokens":20"#).expect("valid");

    assert_eq!(skim.max_tokens, Some(20));
}

#[test]
fn a_deciding_member_may_occur_once() {
    for param in [
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "tools",
    ] {
        let body = format!(r#"{{"{param}":null,"x":1,"x":2,"{param}":null}}"#);
        assert_eq!(skim(&body), Err(Error::DuplicateField { param }), "{param}");
    }
    let escaped = r#"{"model":"a","mod\u0065l":"b","messages":[{}]}"#;
    assert_eq!(skim(escaped), Err(Error::DuplicateField { param: "model" }));
}

#[test]
fn tools_are_there_when_something_can_be_called() {
    let tool = r#"{"type":"function","function":{"name":"f"}}"#;
    for members in [
        format!(r#","tools":[{tool}]"#),
        format!(r#","tools":[{tool}],"tool_choice":"none""#),
        r#","functions":[{"name":"f"}]"#.to_owned(),
        r#","tool_choice":"required""#.to_owned(),
        r#","tool_choice":{"type":"function"}"#.to_owned(),
    ] {
        assert!(with(&members).expect("valid").tools, "{members}");
    }
    for members in [
        r#","tools":[]"#,
        r#","tools":null"#,
        r#","tool_choice":"none""#,
        r#","tool_choice":"auto""#,
        r#","tool_choice":null"#,
    ] {
        assert!(!with(members).expect("valid").tools, "{members}");
    }
}

#[test]
fn plain_text_is_no_response_format() {
    let format = |value: &str| {
        with(&format!(",\"response_format\":{value}"))
            .expect("valid")
            .response_format
    };
    assert!(!format("null"));
    assert!(!format(r#"{"type":"text"}"#));
    assert!(format(r#"{"type":"json_object"}"#));
    assert!(format(r#"{"type":"json_schema","json_schema":{}}"#));
    assert!(format("{}"));
}

#[test]
fn kinds_of_input_are_found_in_blocks_of_any_spelling() {
    let kinds = [
        (Modalities::IMAGE, ["image_url", "image", "input_image"]),
        (Modalities::AUDIO, ["input_audio", "audio", "audio_url"]),
        (Modalities::VIDEO, ["video_url", "video", "input_video"]),
    ];
    for (kind, words) in kinds {
        for word in words {
            for content in [
                format!(r#"[{{"type":"{word}","{word}":{{"url":"x"}}}}]"#),
                format!(r#"[{{"{word}":{{"url":"x"}},"type":"{word}"}}]"#),
                format!(r#"[{{"type":"{word}"}}]"#),
                format!(r#"[{{"{word}":"data:x"}}]"#),
                format!(r#"{{"type":"{word}","{word}":["x"]}}"#),
                format!(r#"[{{"type":"tool_result","content":[{{"type":"{word}"}}]}}]"#),
            ] {
                assert_eq!(with_content(&content).modalities, kind, "{content}");
            }
        }
    }
    let mixed = r#"["a",{"type":"text","text":"b","image_url":null},{"type":"video"}]"#;
    assert_eq!(
        with_content(mixed).modalities,
        Modalities::TEXT | Modalities::VIDEO
    );
    assert_eq!(with_content("null").modalities, Modalities::default());
}

#[test]
fn payloads_are_not_counted_as_text() {
    let image = |detail: &str| {
        let payload = "A".repeat(100_000);
        let url = format!(r#"{{"url":"data:image/png;base64,{payload}"{detail}}}"#);
        with_content(&format!(r#"[{{"type":"image_url","image_url":{url}}}]"#)).prompt_tokens_estimate
    };
    assert_eq!(image(""), 4 + 1_500);
    assert_eq!(image(r#","detail":"high""#), 4 + 1_500);
    assert_eq!(image(r#","detail":"low""#), 4 + 85);
    let audio = format!(
        r#"[{{"type":"input_audio","input_audio":{{"data":"{}"}}}}]"#,
        "A".repeat(100_000)
    );
    assert_eq!(with_content(&audio).prompt_tokens_estimate, 4 + 200);
}

#[test]
fn the_estimate_counts_text_messages_calls_and_tools() {
    let text = "x".repeat(36);
    let plain = with_content(&format!("\"{text}\"")).prompt_tokens_estimate;
    assert_eq!(plain, 10 + 4);
    assert_eq!(
        with_content(&format!(r#"[{{"type":"text","text":"{text}"}}]"#)).prompt_tokens_estimate,
        plain
    );
    assert_eq!(with_content(r#""漢\n漢\u6f22""#).prompt_tokens_estimate, 4 + 3);

    let history = format!(
        r#"{{"model":"m","messages":[{{"content":null,"tool_calls":"{}"}}]}}"#,
        "x".repeat(34)
    );
    assert_eq!(skim(&history).expect("valid").prompt_tokens_estimate, 10 + 4);
    let tools = with(&format!(r#","tools":[{{"x":"{}"}}]"#, "x".repeat(24))).expect("valid");
    assert_eq!(tools.prompt_tokens_estimate, 1 + 4 + 8 + 10);
}

#[test]
fn the_facts_for_the_splice_are_the_spans_as_pairs() {
    let body = r#"{"model":"m","messages":[{}],"stream":true,"stream_options":null}"#;

    let facts = splice_facts(&skim(body).expect("valid"));

    assert_eq!(&body[facts.model.0..facts.model.1], "\"m\"");
    assert_eq!(
        facts.stream_options.map(|(start, end)| &body[start..end]),
        Some("null")
    );
    assert_eq!(
        (facts.insert_at, facts.stream, facts.include_usage),
        (1, true, false)
    );
}

/// JSON values, some of them members that are read.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zé漢🙂\"\\\\\n]{0,12}".prop_map(Value::from),
        proptest::sample::select(vec!["image_url", "text", "none", "low"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let names = proptest::sample::select(vec![
            "model",
            "messages",
            "content",
            "type",
            "text",
            "image_url",
            "detail",
            "tool_calls",
            "stream",
            "n",
            "stream_options",
            "include_usage",
            "tools",
            "max_tokens",
            "other",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..6).prop_map(|members| Value::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_skimmed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(skim_chat(&bytes, &Limits::default()).is_err());
    }

    #[test]
    fn any_json_is_skimmed_without_a_panic(value in values(), model in "[a-zé漢🙂\"\\\\]{1,9}", content in values()) {
        let _ = skim(&value.to_string());
        let body = serde_json::json!({ "messages": [{ "content": content }], "model": model }).to_string();

        if let Ok(skim) = skim(&body) {
            prop_assert_eq!(skim.model, model.clone());
            prop_assert_eq!(&body[skim.model_span], Value::from(model).to_string());
        }
    }

    #[test]
    fn a_request_cut_anywhere_is_refused(which in 0..RECORDED.len(), cut in any::<prop::sample::Index>()) {
        let body = RECORDED[which].trim_end().as_bytes();

        let refused = skim_chat(&body[..cut.index(body.len())], &Limits::default());

        prop_assert!(matches!(refused, Err(Error::InvalidJson { .. })), "{:?}", refused);
    }
}

#[test]
fn images_are_counted_and_the_callers_customer_is_read_where_he_is_text() {
    let image = r#"{"type":"image_url","image_url":{"url":"data:x"}}"#;
    let two = format!(r#"{{"model":"m","user":"b\u006fb","messages":[{{"content":[{image},{image}]}}]}}"#);
    let number = r#"{"model":"m","user":7,"messages":[{"content":"hi"}]}"#;

    let skim = skim_chat(two.as_bytes(), &Limits::default()).expect("a request");
    let other = skim_chat(number.as_bytes(), &Limits::default()).expect("a request");

    assert_eq!((skim.images, skim.user.as_deref()), (2, Some("bob")));
    assert_eq!((other.images, other.user), (0, None));
}
