//! What Gemini is sent for what was asked.

use serde_json::{Value, json};

use super::*;
use crate::chat;
use crate::profile;
use crate::superset::request::{Call, Effort, Media, Part, Proof, ProofMaker, Reasoning, Role, Turn};

fn target(model: &str) -> Target<'_> {
    Target {
        model,
        profile: &profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 100,
        max_tokens_limit: None,
        drop_params: false,
    }
}

/// What is sent for a chat request.
fn sent(model: &str, chat: &Value) -> Result<(Value, Vec<String>), Unmappable> {
    let conversation = chat::request::decode(chat.to_string().as_bytes()).expect("a chat request");
    let encoded = encode(&conversation, &target(model))?;
    let body = serde_json::from_slice(&encoded.body).expect("JSON");
    let dropped = encoded.dropped.iter().map(ToString::to_string).collect();
    Ok((body, dropped))
}

fn refused(chat: &Value) -> String {
    let mut whole = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    let members = chat.as_object().expect("an object").clone();
    whole.as_object_mut().expect("an object").extend(members);
    sent("gemini-2.5-flash", &whole)
        .expect_err("refused")
        .param
        .into_owned()
}

#[test]
fn a_conversation_with_calls_keeps_its_order_names_and_ids() {
    let chat = json!({"model": "m", "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{\"city\":\"A\"}"}},
            {"id": "c2", "type": "function", "function": {"name": "w", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c2", "content": "{\"t\":1}"},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": "thanks"},
        {"role": "system", "content": "be briefer"}],
        "tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}]});

    let (body, dropped) = sent("gemini-2.5-flash", &chat).expect("sent");

    assert_eq!(
        body,
        json!({
            "systemInstruction": {"parts": [{"text": "be brief"}, {"text": "be briefer"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "weather?"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"id": "c1", "name": "w", "args": {"city": "A"}}},
                    {"functionCall": {"id": "c2", "name": "w", "args": {}}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "c2", "name": "w", "response": {"t": 1}}},
                    {"functionResponse": {"id": "c1", "name": "w", "response": {"result": "sunny"}}}]},
                {"role": "user", "parts": [{"text": "thanks"}]}],
            "tools": [{"functionDeclarations": [
                {"name": "w", "parametersJsonSchema": {"type": "object", "properties": {}}}]}],
            "generationConfig": {}
        })
    );
    assert!(dropped.is_empty());
}

#[test]
fn settings_have_their_places() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ=="}}]}],
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 10, "stop": ["a", "b"],
        "presence_penalty": 0.1, "user": "u", "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": 1, "a": 2}}}});

    let (body, dropped) = sent("gemini-2.5-flash", &chat).expect("sent");

    assert_eq!(
        body["contents"][0]["parts"][1],
        json!({"inlineData": {"mimeType": "image/png", "data": "YQ=="}})
    );
    assert_eq!(
        body["generationConfig"],
        json!({
            "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 10, "stopSequences": ["a", "b"], "seed": 7,
            "presencePenalty": 0.1, "responseMimeType": "application/json",
            "responseJsonSchema": {"b": 1, "a": 2},
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 1024}
        })
    );
    assert_eq!(dropped, ["user"]);
}

#[test]
fn thinking_is_told_as_the_generation_takes_it() {
    let config = |model: &str, effort: &str| {
        let chat =
            json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "reasoning_effort": effort});
        let (body, dropped) = sent(model, &chat).expect("sent");
        (body["generationConfig"]["thinkingConfig"].clone(), dropped)
    };

    assert_eq!(config("gemini-2.5-flash", "none").0, json!({"thinkingBudget": 0}));
    assert_eq!(config("gemini-2.5-pro", "none").0, json!({"thinkingBudget": 128}));
    let high = json!({"includeThoughts": true, "thinkingLevel": "high"});
    assert_eq!(config("gemini-3-pro", "high").0, high);
    let low = json!({"includeThoughts": true, "thinkingLevel": "low"});
    assert_eq!(config("gemini-3-pro", "minimal").0, low);
    assert_eq!(
        config("gemini-2.0-flash", "high"),
        (Value::Null, vec!["reasoning_effort".to_owned()])
    );
}

#[test]
fn every_word_for_how_much_to_think_has_its_figure_or_level() {
    let thinking = |model: &str, effort: Effort| {
        let conversation = Conversation {
            turns: vec![turn(Role::User, vec![text_part("x")])],
            reasoning: Reasoning {
                effort: Some(effort),
                shown: Some(false),
            },
            ..Conversation::default()
        };
        let encoded = encode(&conversation, &target(model)).expect("sent");
        let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
        body["generationConfig"]["thinkingConfig"].clone()
    };
    let budgets = [
        (Effort::Off, 0),
        (Effort::Adaptive, -1),
        (Effort::Minimal, 512),
        (Effort::Low, 1_024),
        (Effort::Medium, 8_192),
        (Effort::High, 24_576),
        (Effort::Max, 24_576),
        (Effort::Budget(777), 777),
    ];
    for (effort, tokens) in budgets {
        let expected = json!({"thinkingBudget": tokens});
        assert_eq!(thinking("gemini-2.5-flash", effort), expected, "{effort:?}");
    }
    // What is beyond the model's bounds would be refused.
    for (model, asked, sent) in [
        ("gemini-2.5-flash", 31_999, 24_576),
        ("gemini-2.5-flash", 24_577, 24_576),
        ("gemini-2.5-flash", u64::MAX, 24_576),
        ("gemini-2.5-flash", 1, 1),
        ("gemini-flash-latest", 50_000, 24_576),
        ("gemini-2.5-flash-lite", 1, 512),
        ("gemini-2.5-flash-lite", 0, 0),
        ("gemini-2.5-flash-lite", 50_000, 24_576),
        ("gemini-2.5-pro", 31_999, 31_999),
        ("gemini-2.5-pro", 50_000, 32_768),
        ("gemini-2.5-pro", 1, 128),
    ] {
        let expected = json!({"thinkingBudget": sent});
        assert_eq!(
            thinking(model, Effort::Budget(asked)),
            expected,
            "{model} {asked}"
        );
    }
    let levels = [
        (Effort::Off, json!({"thinkingLevel": "minimal"})),
        (Effort::Adaptive, Value::Null),
        (Effort::Minimal, json!({"thinkingLevel": "minimal"})),
        (Effort::Low, json!({"thinkingLevel": "low"})),
        (Effort::Medium, json!({"thinkingLevel": "medium"})),
        (Effort::High, json!({"thinkingLevel": "high"})),
        (Effort::ExtraHigh, json!({"thinkingLevel": "high"})),
        (Effort::Budget(777), json!({"thinkingLevel": "low"})),
        (Effort::Budget(4_096), json!({"thinkingLevel": "low"})),
        (Effort::Budget(4_097), json!({"thinkingLevel": "medium"})),
        (Effort::Budget(16_384), json!({"thinkingLevel": "medium"})),
        (Effort::Budget(31_999), json!({"thinkingLevel": "high"})),
    ];
    for (effort, expected) in levels {
        assert_eq!(thinking("gemini-3-flash-preview", effort), expected, "{effort:?}");
    }
}

#[test]
fn what_gemini_reads_is_inline_or_at_an_address_of_its_own() {
    let part = |content: Value| {
        let chat = json!({"model": "m", "messages": [{"role": "user", "content": [content]}]});
        sent("gemini-2.5-flash", &chat).map(|(body, _)| body["contents"][0]["parts"][0].clone())
    };
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});

    let sound = json!({"type": "input_audio", "input_audio": {"data": "YQ==", "format": "mp3"}});
    assert_eq!(
        part(sound),
        Ok(json!({"inlineData": {"mimeType": "audio/mp3", "data": "YQ=="}}))
    );
    let pdf = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YQ=="}});
    assert_eq!(
        part(pdf),
        Ok(json!({"inlineData": {"mimeType": "application/pdf", "data": "YQ=="}}))
    );
    for own in ["https://www.youtube.com/watch?v=a", "https://youtu.be/a"] {
        assert_eq!(part(url(own)), Ok(json!({"fileData": {"fileUri": own}})));
    }
    for foreign in [
        "https://pictures.example/a.png",
        "http://youtu.be/a",
        // These are open to all whom the account serves.
        "gs://bucket/a.png",
        "https://generativelanguage.googleapis.com/v1beta/files/a",
        "https://youtube.com.example/a",
    ] {
        assert_eq!(part(url(foreign)).expect_err("refused").param, "image_url");
    }
    let by_id = json!({"type": "file", "file": {"file_id": "file-1"}});
    assert_eq!(part(by_id).expect_err("refused").param, "file");
}

#[test]
fn forms_of_answers_and_tools_are_told_in_full() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"},
        "top_k": 40, "frequency_penalty": -0.5,
        "tools": [{"type": "function", "function": {"name": "a.b/c", "description": "d",
            "parameters": {"$schema": "s", "type": "object", "additionalProperties": false, "properties": {"x": {"const": 1}}}}},
            {"type": "custom", "custom": {"name": "patch"}},
            {"type": "function", "function": {"name": "none"}}]});

    let (body, _) = sent("gemini-2.5-flash", &chat).expect("sent");

    let config = json!({"topK": 40, "frequencyPenalty": -0.5, "responseMimeType": "application/json"});
    assert_eq!(body["generationConfig"], config);
    let declared = &body["tools"][0]["functionDeclarations"];
    assert_eq!(
        declared[0]["parametersJsonSchema"],
        json!({"$schema": "s", "type": "object", "additionalProperties": false, "properties": {"x": {"const": 1}}})
    );
    assert_eq!(
        declared[1]["parametersJsonSchema"],
        json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})
    );
    assert_eq!(declared[2], json!({"name": "none"}));
    let name = declared[0]["name"].as_str().expect("a name");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    assert!(name.len() <= 64 && name.bytes().all(is_plain), "{name}");
}

#[test]
fn what_a_result_shows_comes_behind_all_results() {
    let image = Part::Image {
        source: Media::Inline {
            media_type: "image/png".to_owned(),
            data: "YQ==".to_owned(),
        },
        detail: None,
    };
    let result = |id: &str, parts: Vec<Part>| Part::ToolResult {
        id: id.to_owned(),
        parts,
        failed: false,
    };
    let conversation = Conversation {
        turns: vec![
            turn(Role::User, vec![]),
            turn(Role::Assistant, vec![call("a", None), call("b", None)]),
            turn(
                Role::Tool,
                vec![result("a", vec![image]), result("b", vec![text_part("[1]")])],
            ),
            turn(Role::User, vec![text_part("so?")]),
        ],
        ..Conversation::default()
    };

    let encoded = encode(&conversation, &target("gemini-2.5-pro")).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");

    assert_eq!(
        body["contents"].as_array().expect("contents")[1..],
        [
            json!({"role": "user", "parts": [
                {"functionResponse": {"id": "a", "name": "w", "response": {"result": ""}}},
                {"functionResponse": {"id": "b", "name": "w", "response": {"result": "[1]"}}}]}),
            json!({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "YQ=="}}, {"text": "so?"}]}),
        ]
    );
}

fn text_part(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
        cache: None,
    }
}

#[test]
fn tools_are_called_as_the_caller_chose() {
    let calling = |choice: &Value, strict: bool| {
        let chat = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "tool_choice": choice,
            "tools": [{"type": "function", "function": {"name": "w", "strict": strict}}]});
        let (body, _) = sent("gemini-2.5-flash", &chat).expect("sent");
        body["toolConfig"]["functionCallingConfig"].clone()
    };

    assert_eq!(calling(&json!("auto"), false), Value::Null);
    assert_eq!(calling(&json!("auto"), true), json!({"mode": "VALIDATED"}));
    assert_eq!(calling(&json!("required"), false), json!({"mode": "ANY"}));
    assert_eq!(calling(&json!("none"), false), json!({"mode": "NONE"}));
    let named = json!({"type": "function", "function": {"name": "w"}});
    let any = json!({"mode": "ANY", "allowedFunctionNames": ["w"]});
    assert_eq!(calling(&named, false), any);
}

#[test]
fn what_cannot_be_said_is_refused_by_name() {
    assert_eq!(refused(&json!({"n": 2})), "n");
    assert_eq!(refused(&json!({"logit_bias": {"1": 2}})), "logit_bias");
    assert_eq!(refused(&json!({"min_p": 0.1})), "min_p");
    assert_eq!(refused(&json!({"seed": 4_294_967_296_i64})), "seed");
    assert_eq!(refused(&json!({"stop": ["a", "b", "c", "d", "e", "f"]})), "stop");
    let tools = json!([{"type": "function", "function": {"name": "w"}}]);
    assert_eq!(
        refused(&json!({"tools": tools, "parallel_tool_calls": false})),
        "parallel_tool_calls"
    );
    let image = json!([{"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}]);
    assert_eq!(
        refused(&json!({"messages": [{"role": "user", "content": image}]})),
        "image_url"
    );
}

#[test]
fn a_route_that_drops_parameters_reports_them() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "min_p": 0.1, "logit_bias": {"1": 2}});
    let conversation = chat::request::decode(chat.to_string().as_bytes()).expect("a chat request");
    let target = Target {
        drop_params: true,
        ..target("gemini-2.5-flash")
    };

    let encoded = encode(&conversation, &target).expect("sent");

    assert_eq!(encoded.dropped, ["min_p", "logit_bias"]);
}

fn turn(role: Role, parts: Vec<Part>) -> Turn {
    Turn {
        role,
        name: None,
        parts,
    }
}

fn call(id: &str, proof: Option<ProofMaker>) -> Part {
    Part::ToolCall(Call {
        id: id.to_owned(),
        name: "w".to_owned(),
        namespace: None,
        arguments: "{}".to_owned(),
        custom: false,
        proof: proof.map(of),
    })
}

fn of(maker: ProofMaker) -> Proof {
    Proof {
        maker,
        text: "sig".to_owned(),
        redacted: false,
    }
}

fn answer_of(model: &str, parts: Vec<Part>) -> Value {
    let conversation = Conversation {
        turns: vec![turn(Role::Assistant, parts)],
        ..Conversation::default()
    };
    let encoded = encode(&conversation, &target(model)).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
    body["contents"][0]["parts"].clone()
}

#[test]
fn signatures_of_gemini_go_back_and_others_do_not() {
    let thought = |maker| Part::Thinking {
        text: "hm".to_owned(),
        proof: Some(of(maker)),
    };
    let text = || Part::Text {
        text: "so".to_owned(),
        cache: None,
    };

    assert_eq!(
        answer_of("gemini-2.5-pro", vec![thought(ProofMaker::Gemini), text()]),
        json!([{"text": "so", "thoughtSignature": "sig"}])
    );
    assert_eq!(
        answer_of("gemini-2.5-pro", vec![text(), thought(ProofMaker::Gemini)]),
        json!([{"text": "so"}, {"text": "", "thoughtSignature": "sig"}])
    );
    let parts = vec![
        thought(ProofMaker::Anthropic),
        text(),
        call("a", Some(ProofMaker::Anthropic)),
    ];
    assert_eq!(
        answer_of("gemini-2.5-pro", parts),
        json!([{"text": "so"}, {"functionCall": {"id": "a", "name": "w", "args": {}}}])
    );
}

#[test]
fn a_signature_in_the_id_of_a_call_goes_back_to_gemini_and_the_id_without_it() {
    let chat = json!({"model": "m", "messages": [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1__sig_c2ln-_8", "type": "function", "function": {"name": "w", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "w", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1__sig_c2ln-_8", "content": "sun"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"}]});

    let (body, _) = sent("gemini-3-pro", &chat).expect("sent");

    assert_eq!(
        body["contents"][1]["parts"],
        json!([
            {"functionCall": {"id": "c1", "name": "w", "args": {}}, "thoughtSignature": "c2ln+/8="},
            {"functionCall": {"id": "c2", "name": "w", "args": {}}}])
    );
    assert_eq!(
        body["contents"][2]["parts"][0]["functionResponse"],
        json!({"id": "c1", "name": "w", "response": {"result": "sun"}})
    );
}

#[test]
fn models_that_demand_signatures_are_told_where_there_is_none() {
    let parts = || {
        vec![
            call("a", None),
            call("b", Some(ProofMaker::Gemini)),
            call("c", None),
        ]
    };
    let signatures = |model: &str| -> Vec<Value> {
        let parts = answer_of(model, parts());
        let parts = parts.as_array().expect("parts");
        parts
            .iter()
            .map(|part| part["thoughtSignature"].clone())
            .collect()
    };

    assert_eq!(
        signatures("gemini-2.5-pro"),
        [Value::Null, json!("sig"), Value::Null]
    );
    assert_eq!(
        signatures("gemini-3-pro"),
        [
            json!("skip_thought_signature_validator"),
            json!("sig"),
            Value::Null
        ]
    );
}

#[test]
fn a_failed_result_says_so_and_one_without_a_call_is_refused() {
    let result = |id: &str| {
        turn(
            Role::Tool,
            vec![Part::ToolResult {
                id: id.to_owned(),
                parts: vec![Part::Text {
                    text: "no".to_owned(),
                    cache: None,
                }],
                failed: true,
            }],
        )
    };
    let conversation = |id: &str| Conversation {
        turns: vec![turn(Role::Assistant, vec![call("a", None)]), result(id)],
        ..Conversation::default()
    };

    let encoded = encode(&conversation("a"), &target("m")).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
    assert_eq!(
        body["contents"][1]["parts"][0]["functionResponse"]["response"],
        json!({"error": "no"})
    );
    assert!(encode(&conversation("b"), &target("m")).is_err());
}

#[test]
fn a_prompt_that_says_nothing_is_refused_by_name() {
    for content in [json!(""), json!([]), Value::Null] {
        let chat = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
        let refused = sent("gemini-2.5-flash", &chat);
        assert_eq!(refused.expect_err("refused").param, "messages", "{content}");
    }
}
