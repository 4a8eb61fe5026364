//! Requests of real clients, and of callers who do what the dialect allows.

use serde_json::json;

use super::*;
use crate::superset::request::{Effort, Format, Media, Member, ProofMaker, Role};
use crate::superset::tool::{Input, ToolChoice};

macro_rules! client {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/requests/", $name, ".json"))
    };
}

const CLIENTS: [&str; 18] = [
    client!("langchain-js/chat_tools"),
    client!("langchain-python/chat_stream"),
    client!("langchain-python/chat_structured"),
    client!("llm-cli/prompt_stream"),
    client!("llm-cli/schema"),
    client!("openai-node/chat_minimal"),
    client!("openai-node/chat_stream_usage"),
    client!("openai-python/chat_all_params"),
    client!("openai-python/chat_minimal"),
    client!("openai-python/chat_multimodal"),
    client!("openai-python/chat_parse_structured"),
    client!("openai-python/chat_retry"),
    client!("openai-python/chat_tool_history"),
    client!("opencode/main_chat"),
    client!("opencode/title_chat"),
    client!("opencode/tool_followup_chat"),
    client!("vercel-ai-sdk/compat_options"),
    client!("vercel-ai-sdk/openrouter_stream"),
];

fn body(client: &str) -> Value {
    let whole: Value = serde_json::from_str(client).expect("JSON");
    whole.get("body").unwrap_or(&whole).clone()
}

fn names(members: &[crate::superset::request::Member]) -> Vec<&str> {
    members.iter().map(|member| &*member.name).collect()
}

#[test]
fn requests_of_real_clients_are_read_and_their_messages_come_out_as_they_were() {
    for client in CLIENTS {
        let request = body(client);
        let conversation = read(&request);

        assert!(!conversation.turns.is_empty());
        let refusable = ["logprobs", "top_logprobs"];
        if names(&conversation.demands)
            .iter()
            .any(|name| refusable.contains(name))
        {
            continue;
        }
        let (written, _) = through(&request, "openrouter");
        for (was, is) in request["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .zip(written["messages"].as_array().expect("messages"))
        {
            assert_eq!(was["role"], is["role"]);
            if !was["content"].is_null() {
                assert_eq!(was["content"], is["content"]);
            }
            assert_eq!(was["tool_calls"], is["tool_calls"]);
        }
        assert_eq!(request["tools"], written["tools"]);
        assert_eq!(request["response_format"], written["response_format"]);
    }
}

#[test]
fn every_documented_parameter_is_read() {
    let conversation = read(&body(client!("openai-python/chat_all_params")));

    assert_eq!(conversation.turns[0].role, Role::Developer);
    assert_eq!(
        names(&conversation.demands),
        [
            "service_tier",
            "logprobs",
            "top_logprobs",
            "logit_bias",
            "prediction",
            "chat_template_kwargs"
        ]
    );
    assert_eq!(
        names(&conversation.hints),
        [
            "store",
            "metadata",
            "verbosity",
            "safety_identifier",
            "prompt_cache_key"
        ]
    );
    assert_eq!(conversation.max_tokens, Some(10));
    assert_eq!(conversation.stop, ["x"]);
    assert_eq!(
        (conversation.sampling.top_k, conversation.sampling.seed),
        (Some(4), Some(1))
    );
    assert_eq!(conversation.reasoning.effort, Some(Effort::Low));
    assert!(matches!(conversation.format, Format::JsonObject));
    assert_eq!(conversation.tool_choice, Some(ToolChoice::Auto));
    assert_eq!(conversation.parallel_tool_calls, Some(false));
    assert_eq!(conversation.tools[0].strict, Some(true));
    assert_eq!(conversation.user.as_deref(), Some("u"));
}

#[test]
fn what_means_nothing_vanishes() {
    let conversation = read(&json!({
        "model": "m", "messages": [{"role": "user", "content": "x", "annotations": [], "refusal": null}],
        "n": 1, "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "modalities": ["text"], "audio": null,
        "frequency_penalty": 0, "presence_penalty": 0.0, "stop": null, "tools": [], "top_k": -1, "min_p": 0,
        "response_format": {"type": "text"}, "repetition_penalty": 1.0, "stream_options": null,
    }));

    assert_eq!(names(&conversation.demands), Vec::<&str>::new());
    assert_eq!(names(&conversation.hints), Vec::<&str>::new());
    assert!(conversation.sampling.frequency_penalty.is_none() && conversation.sampling.top_k.is_none());
}

#[test]
fn what_means_something_elsewhere_is_a_demand() {
    let conversation = read(&json!({
        "model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2, "logprobs": true, "logit_bias": {"1": 1},
        "modalities": ["text", "audio"], "audio": {"voice": "v"}, "web_search_options": {}, "service_tier": "flex",
        "custom_thing": 1,
    }));

    assert_eq!(
        names(&conversation.demands),
        [
            "service_tier",
            "n",
            "logprobs",
            "logit_bias",
            "modalities",
            "audio",
            "web_search_options"
        ]
    );
    assert_eq!(names(&conversation.hints), ["custom_thing"]);
}

#[test]
fn parts_of_all_kinds_are_read() {
    let conversation = read(&json!({"model": "m", "messages": [{"role": "user", "content": [
        "bare",
        {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:;base64,/9j/4AAQ"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
        {"type": "file", "file": {"file_id": "f-1"}},
    ]}]}));

    let inline = |media_type: &str, data: &str| Media::Inline {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    };
    let parts = &conversation.turns[0].parts;
    assert_eq!(text(&parts[0]), "bare");
    assert!(
        matches!(&parts[1], Part::Text { cache: Some(cache), .. } if cache.get() == r#"{"type":"ephemeral"}"#)
    );
    assert!(
        matches!(&parts[2], Part::Image { source, detail: Some(detail) } if *source == inline("image/png", "AAAA") && detail == "low")
    );
    assert!(
        matches!(&parts[3], Part::Image { source: Media::Url(url), .. } if url == "https://x.invalid/a.png")
    );
    assert!(matches!(&parts[4], Part::Image { source, .. } if *source == inline("image/jpeg", "/9j/4AAQ")));
    assert!(matches!(&parts[5], Part::Audio { format, data } if format == "wav" && data == "AAAA"));
    assert!(
        matches!(&parts[6], Part::File { source, name: Some(name) } if *source == inline("application/pdf", "JVBE") && name == "a.pdf")
    );
    assert!(matches!(&parts[7], Part::File { source: Media::Id(id), name: None } if id == "f-1"));
}

#[test]
fn calls_and_their_results_are_read_in_both_forms() {
    let conversation = read(&json!({"model": "m", "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.0}"}},
            {"id": "b", "type": "custom", "custom": {"name": "g", "input": "free"}},
            {"id": "c", "function": {"name": "h", "arguments": {"y": 2}}, "extra_content": {"google": {"thought_signature": "s"}}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "3"},
    ]}));

    let calls: Vec<_> = conversation.turns[1]
        .parts
        .iter()
        .map(|part| match part {
            Part::ToolCall(call) => (call.id.as_str(), call.arguments.as_str(), call.custom),
            _ => ("", "", false),
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("a", r#"{"x": 1.0}"#, false),
            ("b", "free", true),
            ("c", r#"{"y":2}"#, false)
        ]
    );
    assert!(
        matches!(&conversation.turns[1].parts[2], Part::ToolCall(call) if call.proof.as_ref().is_some_and(|proof| proof.maker == ProofMaker::Gemini))
    );
    assert_eq!(
        (conversation.turns[2].role, conversation.turns[2].parts.len()),
        (Role::Tool, 2)
    );
    let (Part::ToolCall(call), Part::ToolResult { id, .. }) =
        (&conversation.turns[3].parts[0], &conversation.turns[4].parts[0])
    else {
        panic!("a call and its result");
    };
    assert_eq!(&call.id, id);
}

#[test]
fn ids_that_start_again_become_unique_and_results_follow_them() {
    let turn = |result: &str| {
        [
            json!({"role": "assistant", "tool_calls": [
                {"id": "call_0", "function": {"name": "f", "arguments": "{}"}},
                {"id": "call_0", "function": {"name": "g", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "call_0", "content": format!("f{result}")}),
            json!({"role": "tool", "tool_call_id": "call_0", "content": format!("g{result}")}),
        ]
    };
    let messages: Vec<Value> = turn("1").into_iter().chain(turn("2")).collect();

    let conversation = read(&json!({"model": "m", "messages": messages}));

    let mut ids = Vec::new();
    let mut answered = Vec::new();
    for part in conversation.turns.iter().flat_map(|turn| &turn.parts) {
        match part {
            Part::ToolCall(call) => ids.push(call.id.clone()),
            Part::ToolResult { id, .. } => answered.push(id.clone()),
            _ => {}
        }
    }
    assert_eq!(ids, answered);
    assert_eq!(ids[0], "call_0");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn broken_arguments_of_earlier_calls_are_repaired_and_reported() {
    let conversation = read(
        &json!({"model": "m", "messages": [{"role": "assistant", "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{"}},
            {"id": "b", "function": {"name": "f", "arguments": ""}},
            {"id": "c", "function": {"name": "f", "arguments": "[\"x\"]"}},
        ]}]}),
    );

    for part in &conversation.turns[0].parts {
        assert!(matches!(part, Part::ToolCall(call) if call.arguments == "{}"));
    }
    assert_eq!(
        names(&conversation.hints),
        [
            "messages.0.tool_calls.0.function.arguments",
            "messages.0.tool_calls.2.function.arguments"
        ]
    );
}

#[test]
fn thoughts_are_read_with_what_proves_them() {
    let thoughts = |message: Value| {
        let conversation = read(&json!({"model": "m", "messages": [message]}));
        let parts = conversation.turns[0].parts.iter().filter_map(|part| match part {
            Part::Thinking { text, proof } => Some((
                text.clone(),
                proof.as_ref().map(|proof| (proof.text.clone(), proof.redacted)),
            )),
            _ => None,
        });
        parts.collect::<Vec<_>>()
    };
    let signed = |text: &str| (text.to_owned(), Some(("sig".to_owned(), false)));

    assert_eq!(
        thoughts(json!({"role": "assistant", "content": "x", "reasoning_content": "hm"})),
        [("hm".to_owned(), None)]
    );
    assert_eq!(
        thoughts(
            json!({"role": "assistant", "content": "x", "reasoning_content": "hm", "reasoning_details": [
                {"type": "reasoning.text", "signature": "sig", "format": "anthropic-claude-v1", "index": 0},
                {"type": "reasoning.encrypted", "data": "sealed", "format": "anthropic-claude-v1", "index": 1},
            ]})
        ),
        [signed("hm"), (String::new(), Some(("sealed".to_owned(), true)))]
    );
    assert_eq!(
        thoughts(
            json!({"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_details": [
                {"type": "reasoning.text", "text": "hm", "signature": "sig", "format": "google-gemini-v1"},
                {"type": "reasoning.text", "text": "ha", "signature": "other", "format": "unknown"},
            ]})
        ),
        [signed("hm"), ("ha".to_owned(), None)]
    );
}

#[test]
fn tools_and_choices_are_read_in_all_their_forms() {
    let tools = |extra: Value| {
        let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "b": 1, "a": 2}}, "cache_control": {"type": "ephemeral"}},
            {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "d"}}}},
            {"type": "custom", "custom": {"name": "h", "format": {"type": "text"}}},
        ], "functions": [{"name": "old"}]});
        for (name, value) in extra.as_object().expect("an object") {
            request[name] = value.clone();
        }
        read(&request)
    };
    let choice = |choice: Value| tools(json!({"tool_choice": choice})).tool_choice;

    let conversation = tools(json!({"function_call": {"name": "old"}}));
    assert_eq!(
        conversation.tool_choice,
        Some(ToolChoice::Named("old".to_owned()))
    );
    assert!(matches!(&conversation.tools[0].input, Input::Schema(Some(_))));
    assert!(matches!(&conversation.tools[1].input, Input::Text(Some(_))));
    assert!(matches!(&conversation.tools[2].input, Input::Text(None)));
    assert!(matches!(&conversation.tools[3].input, Input::Schema(None)));
    assert!(conversation.tools[0].cache.is_some());
    assert_eq!(choice(json!("required")), Some(ToolChoice::Required));
    assert_eq!(choice(json!("none")), Some(ToolChoice::Never));
    assert_eq!(
        choice(json!({"type": "function", "function": {"name": "f"}})),
        Some(ToolChoice::Named("f".to_owned()))
    );
    assert_eq!(
        choice(json!({"type": "custom", "custom": {"name": "g"}})),
        Some(ToolChoice::Named("g".to_owned()))
    );
    assert_eq!(
        choice(
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}})
        ),
        Some(ToolChoice::Allowed {
            names: vec!["f".to_owned()],
            required: true
        })
    );
}

#[test]
fn how_much_to_think_is_read_in_the_words_of_every_server() {
    let effort = |extra: Value| {
        let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        for (name, value) in extra.as_object().expect("an object") {
            request[name] = value.clone();
        }
        let reasoning = read(&request).reasoning;
        (reasoning.effort, reasoning.shown)
    };

    assert_eq!(
        effort(json!({"reasoning_effort": "none"})),
        (Some(Effort::Off), None)
    );
    assert_eq!(
        effort(json!({"reasoning": {"effort": "low", "exclude": true}})),
        (Some(Effort::Low), Some(false))
    );
    assert_eq!(
        effort(json!({"reasoning": {"max_tokens": 9}})),
        (Some(Effort::Budget(9)), None)
    );
    assert_eq!(
        effort(json!({"thinking": {"type": "enabled", "budget_tokens": 2048}})),
        (Some(Effort::Budget(2048)), None)
    );
    assert_eq!(
        effort(json!({"thinking": {"type": "disabled"}})),
        (Some(Effort::Off), None)
    );
    assert_eq!(
        effort(json!({"enable_thinking": false, "thinking_budget": 5})),
        (Some(Effort::Off), None)
    );
}

#[test]
fn what_is_no_request_is_refused_by_name() {
    let with = |messages: Value| json!({"model": "m", "messages": messages});

    assert_eq!(decode(b"{").expect_err("refused"), Refusal::InvalidJson);
    for (request, expected) in [
        (json!({"messages": []}), "the member 'model' is required"),
        (json!({"model": "m"}), "the member 'messages' is required"),
        (
            with(json!([])),
            "the member 'messages' must be an array of at least one message",
        ),
        (with(json!([7])), "the member 'messages.0' must be an object"),
        (
            with(json!([{"role": "alien"}])),
            "the member 'messages.0.role' must be one of system, developer, user, assistant, tool and function",
        ),
        (
            with(json!([{"role": "user", "content": 7}])),
            "the member 'messages.0.content' must be a string or an array of parts",
        ),
        (
            with(json!([{"role": "tool", "content": "x"}])),
            "the member 'messages.0.tool_call_id' is required",
        ),
        (
            with(json!([{"role": "user", "content": [{"type": "video_url"}]}])),
            "the parameter 'messages.0.content.0.type' is not supported: only parts of type text, refusal, image_url, input_audio and file are served",
        ),
    ] {
        assert_eq!(refused(&request), expected);
    }
    let tool = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search"}]});
    assert!(refused(&tool).starts_with("the parameter 'tools.0.type' is not supported"));
}

#[test]
fn what_would_change_an_answer_is_a_demand_and_what_nobody_knows_a_hint_even_if_it_is_empty() {
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
        "previous_response_id": "resp_1", "conversation": "conv_1", "prompt": {"id": "pmpt_1"}, "background": true,
        "truncation": "auto", "max_tool_calls": 3, "include": ["file_search_call.results"],
        "mcp_servers": [{"url": "https://tools.example"}], "container": "container_1", "speed": "fast",
        "x_object": {}, "x_text": "", "x_list": [], "x_number": 0,
        "response_format": {"type": "json_schema", "x_outer": 1,
            "json_schema": {"name": "n", "schema": {"type": "object"}, "x_inner": true}}});
    let nothing = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "previous_response_id": null,
        "background": false, "truncation": "disabled", "include": [], "mcp_servers": [], "speed": "standard"});
    let names = |members: &[Member]| -> Vec<String> {
        members.iter().map(|member| member.name.to_string()).collect()
    };

    let asked = read(&request);

    assert_eq!(
        names(&asked.demands),
        [
            "previous_response_id",
            "conversation",
            "prompt",
            "background",
            "truncation",
            "max_tool_calls",
            "include",
            "mcp_servers",
            "container",
            "speed"
        ]
    );
    assert_eq!(
        names(&asked.hints),
        [
            "response_format.json_schema.x_inner",
            "response_format.x_outer",
            "x_list",
            "x_number",
            "x_object",
            "x_text"
        ]
    );
    assert_eq!(names(&read(&nothing).demands), Vec::<String>::new());
}
