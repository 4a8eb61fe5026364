//! Settings and tools of a request.

use super::*;
use crate::superset::request::{Effort, Format};
use crate::superset::tool::{Input, ToolChoice};

fn told(members: &Value) -> Conversation {
    read(&with(members)).expect("a request")
}

fn refuses(members: &Value) -> (String, bool) {
    refused(&with(members))
}

#[test]
fn what_only_a_provider_itself_can_do_is_refused_by_name() {
    for (members, param) in [
        (json!({"background": true}), "background"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
        (json!({"max_tool_calls": 3}), "max_tool_calls"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"reasoning": {"mode": "pro"}}), "reasoning.mode"),
        (
            json!({"text": {"format": {"type": "grammar"}}}),
            "text.format.type",
        ),
        (json!({"tools": [{"type": "file_search"}]}), "tools.0.type"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        (
            json!({"tools": [{"type": "web_search_preview", "external_web_access": true}]}),
            "tools.0.type",
        ),
        (
            json!({"tools": [{"type": "mcp", "server_label": "x"}]}),
            "tools.0.type",
        ),
        (json!({"tools": [{"type": "local_shell"}]}), "tools.0.type"),
        (
            json!({"tools": [{"type": "namespace", "name": "g", "tools": [{"type": "mcp"}]}]}),
            "tools.0.tools.0.type",
        ),
        (
            json!({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "web_search"}}),
            "tool_choice.type",
        ),
    ] {
        assert_eq!(refuses(&members), unsupported(param), "{members}");
    }
}

#[test]
fn what_is_out_of_its_range_is_refused_by_its_path() {
    for (members, param) in [
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": "many"}), "max_output_tokens"),
        (json!({"temperature": 2.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": -0.1}), "top_p"),
        (json!({"stream": 1}), "stream"),
        (json!({"store": "no"}), "store"),
        (json!({"truncation": "some"}), "truncation"),
        (json!({"reasoning": {"effort": "extreme"}}), "reasoning.effort"),
        (json!({"reasoning": 3}), "reasoning"),
        (json!({"text": {"format": {"type": "yaml"}}}), "text.format.type"),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n"}}}),
            "text.format.schema",
        ),
        (json!({"include": "all"}), "include"),
        (json!({"tools": [{"name": "f"}]}), "tools.0.type"),
        (json!({"tools": [{"type": "function"}]}), "tools.0.name"),
        (
            json!({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}),
            "tools.0.parameters",
        ),
        (
            json!({"tools": [{"type": "custom", "name": "f", "format": {"type": "x"}}]}),
            "tools.0.format.type",
        ),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (
            json!({"tools": [{"type": "function", "name": "f"}], "tool_choice": "some"}),
            "tool_choice",
        ),
        (
            json!({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "g"}}),
            "tool_choice.name",
        ),
    ] {
        assert_eq!(refuses(&members), invalid(param), "{members}");
    }
}

#[test]
fn what_is_so_anyway_changes_nothing() {
    let conversation = told(
        &json!({"background": false, "truncation": "disabled", "store": true, "include": ["reasoning.encrypted_content"],
            "n": 1, "top_logprobs": 0, "logprobs": false, "logit_bias": {}, "modalities": [], "frequency_penalty": 0,
            "previous_response_id": null, "conversation": null, "stream_options": {"include_obfuscation": false},
            "reasoning": {"effort": null, "summary": null}, "text": {}, "tool_choice": "none", "tools": []}),
    );

    assert!(conversation.demands.is_empty(), "{:?}", conversation.demands);
    assert!(conversation.hints.is_empty(), "{:?}", conversation.hints);
    assert_eq!(conversation.tool_choice, None);
    assert!(conversation.sampling.frequency_penalty.is_none());
}

#[test]
fn members_without_influence_are_hints_and_others_demands() {
    let conversation = told(
        &json!({"metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "auto",
            "x_vendor": 1, "text": {"verbosity": "low", "new": 1}, "reasoning": {"context": "x"},
            "stream_options": {"include_obfuscation": true}}),
    );
    assert_eq!(
        names(&conversation.hints),
        [
            "reasoning.context",
            "verbosity",
            "text.new",
            "stream_options.include_obfuscation",
            "metadata",
            "prompt_cache_key",
            "safety_identifier",
            "service_tier",
            "x_vendor"
        ]
    );
    assert!(conversation.demands.is_empty());

    let conversation = told(
        &json!({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "service_tier": "flex", "top_logprobs": 2, "n": 2}),
    );
    assert_eq!(
        names(&conversation.demands),
        ["include", "n", "service_tier", "top_logprobs"]
    );
}

#[test]
fn figures_are_kept_as_they_were_written() {
    let body = br#"{"model":"m","input":"x","temperature":0.70,"top_p":1e-1,"max_output_tokens":12,"seed":-3,"presence_penalty":0.50,"stop":"END","user":"u"}"#;

    let conversation = decode(body).expect("a request");

    let sampling = &conversation.sampling;
    assert_eq!(sampling.temperature.as_ref().map(|raw| raw.get()), Some("0.70"));
    assert_eq!(sampling.top_p.as_ref().map(|raw| raw.get()), Some("1e-1"));
    assert_eq!(
        sampling.presence_penalty.as_ref().map(|raw| raw.get()),
        Some("0.50")
    );
    assert_eq!((sampling.seed, conversation.max_tokens), (Some(-3), Some(12)));
    assert_eq!(
        (conversation.stop, conversation.user),
        (vec!["END".to_owned()], Some("u".to_owned()))
    );
}

#[test]
fn how_much_to_think_and_what_of_it_to_show_are_two_things() {
    for (reasoning, effort, shown) in [
        (json!({"effort": "none"}), Some(Effort::Off), None),
        (json!({"effort": "minimal"}), Some(Effort::Minimal), None),
        (json!({"effort": "xhigh"}), Some(Effort::ExtraHigh), None),
        (json!({"summary": "auto"}), None, Some(true)),
        (
            json!({"summary": "none", "effort": "max"}),
            Some(Effort::Max),
            Some(false),
        ),
        (json!({"generate_summary": "concise"}), None, Some(true)),
    ] {
        let conversation = told(&json!({"reasoning": reasoning}));
        assert_eq!(
            (conversation.reasoning.effort, conversation.reasoning.shown),
            (effort, shown),
            "{reasoning}"
        );
    }
}

#[test]
fn forms_of_the_answer_are_read() {
    let form = |format: Value| told(&json!({"text": {"format": format}})).format;

    assert!(matches!(form(json!({"type": "text"})), Format::Text));
    assert!(matches!(form(json!({"type": "json_object"})), Format::JsonObject));
    assert!(matches!(
        form(json!({"type": "json_schema", "description": "d", "schema": {"type": "object"}})),
        Format::JsonSchema { name, description: Some(description), strict: None, schema }
            if (name.as_str(), description.as_str(), schema.get()) == ("output", "d", r#"{"type":"object"}"#)
    ));
}

#[test]
fn functions_are_strict_where_they_say_so_or_can_be_and_custom_tools_take_text() {
    let conversation = told(
        &json!({"tools": [{"type": "function", "name": "f", "parameters": {"z": 1, "a": 2}, "defer_loading": true},
            {"type": "function", "name": "g", "strict": false, "defer_loading": false},
            {"type": "custom", "name": "p", "format": {"type": "text"}},
            {"type": "custom", "name": "q", "format": {"type": "grammar", "syntax": "regex", "definition": "a"}}],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}]},
            "parallel_tool_calls": false}),
    );

    let strict: Vec<Option<bool>> = conversation.tools.iter().map(|tool| tool.strict).collect();
    assert_eq!(strict, [Some(false), Some(false), None, None]);
    assert!(
        matches!(&conversation.tools[0].input, Input::Schema(Some(schema)) if schema.get() == r#"{"a":2,"z":1}"#)
    );
    assert!(matches!(&conversation.tools[1].input, Input::Schema(None)));
    assert!(matches!(&conversation.tools[2].input, Input::Text(None)));
    assert!(matches!(&conversation.tools[3].input, Input::Text(Some(_))));
    let allowed = ToolChoice::Allowed {
        names: vec!["f".to_owned(), "p".to_owned()],
        required: true,
    };
    assert_eq!(conversation.tool_choice, Some(allowed));
    assert_eq!(conversation.parallel_tool_calls, Some(false));
    assert_eq!(names(&conversation.hints), ["tools.defer_loading"]);
}

#[test]
fn a_function_that_says_nothing_is_strict_only_where_its_schema_leaves_nothing_open() {
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": false});
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let strict = |members: &Value| {
        let mut tool = json!({"type": "function", "name": "f"});
        for (name, value) in members.as_object().expect("members") {
            tool[name] = value.clone();
        }
        told(&json!({"tools": [tool]})).tools[0].strict
    };

    assert_eq!(strict(&json!({"parameters": closed})), Some(true));
    assert_eq!(strict(&json!({"parameters": closed, "strict": null})), Some(true));
    assert_eq!(
        strict(&json!({"parameters": closed, "strict": false})),
        Some(false)
    );
    assert_eq!(strict(&json!({"parameters": open})), Some(false));
    assert_eq!(strict(&json!({"parameters": open, "strict": true})), Some(true));
    assert_eq!(strict(&json!({})), Some(false));
}

#[test]
fn members_of_a_choice_that_are_not_known_are_told() {
    let tools = json!([{"type": "function", "name": "f"}]);
    let named = told(&json!({"tools": tools, "tool_choice": {"type": "function", "name": "f", "zork": 1}}));
    assert_eq!(names(&named.hints), ["tool_choice.zork"]);

    let allowed = told(
        &json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "mode": "auto", "zork": 1,
        "tools": [{"type": "function", "name": "f", "blip": 1}]}}),
    );
    assert_eq!(
        names(&allowed.hints),
        ["tool_choice.zork", "tool_choice.tools.blip"]
    );
}
