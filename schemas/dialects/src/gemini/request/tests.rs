//! What Gemini is sent for what was asked.

use serde_json::{Value, json};

use super::*;
use crate::chat;
use crate::profile;
use crate::superset::request::{Call, Part, Proof, ProofMaker, Role, Turn};

fn target(model: &str) -> Target<'_> {
    Target {
        model,
        profile: &profile::DEFAULT,
        max_tokens_default: 100,
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
