//! Requests as Codex sends them, their prose left out.

use super::*;
use crate::superset::request::{Call, Effort, Format, Role};
use crate::superset::tool::{Input, ToolChoice};
use crate::{chat, gemini, messages};

const FIRST: &str = include_str!("../../../../tests/requests/codex/exec_first_turn.json");
const FOLLOWUP: &str = include_str!("../../../../tests/requests/codex/exec_tool_followup.json");
const SCHEMA: &str = include_str!("../../../../tests/requests/codex/output_schema.json");
const EFFORT: &str = include_str!("../../../../tests/requests/codex/reasoning_verbosity.json");

fn decoded(request: &str) -> Conversation {
    decode(request.as_bytes()).expect("a request")
}

#[test]
fn a_turn_with_a_call_and_its_result_is_read_whole() {
    let conversation = decoded(FOLLOWUP);

    let roles: Vec<Role> = conversation.turns.iter().map(|turn| turn.role).collect();
    let (developer, user) = (Role::Developer, Role::User);
    assert_eq!(
        roles,
        [developer, developer, user, user, Role::Assistant, Role::Tool]
    );
    assert_eq!(texts(&conversation.turns[1]).len(), 2);
    assert_eq!(texts(&conversation.turns[3]), ["run echo hi"]);
    let call = Call {
        id: "call_stub1".to_owned(),
        name: "exec_command".to_owned(),
        namespace: None,
        arguments: "{\"cmd\": \"echo hi\"}".to_owned(),
        custom: false,
        proof: None,
    };
    assert!(matches!(&conversation.turns[4].parts[..], [Part::ToolCall(made)] if *made == call));
    assert!(matches!(
        &conversation.turns[5].parts[..],
        [Part::ToolResult { id, parts, failed: false }]
            if id == "call_stub1" && matches!(&parts[..], [Part::Text { text, .. }] if text == "Exit code: 0\nOutput:\nhi\n")
    ));
    assert!(conversation.stream && conversation.include_usage);
    assert_eq!(conversation.tool_choice, Some(ToolChoice::Auto));
    assert_eq!(conversation.parallel_tool_calls, Some(true));
    assert_eq!(
        (conversation.reasoning.effort, conversation.reasoning.shown),
        (None, Some(true))
    );
    assert_eq!(
        names(&conversation.hints),
        [
            "tools.web_search",
            "reasoning.summary",
            "prompt_cache_key",
            "client_metadata"
        ]
    );
    assert!(conversation.demands.is_empty());
}

#[test]
fn tools_of_a_group_keep_their_names_and_what_is_said_of_the_group() {
    let conversation = decoded(FIRST);

    let tools: Vec<(&str, Option<&str>)> = conversation
        .tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.namespace.as_deref()))
        .collect();
    let group = Some("multi_agent_v1");
    assert_eq!(
        tools,
        [
            ("exec_command", None),
            ("write_stdin", None),
            ("request_user_input", None),
            ("view_image", None),
            ("close_agent", group),
            ("resume_agent", group),
            ("send_input", group),
            ("spawn_agent", group),
            ("wait_agent", group),
            ("get_goal", None),
            ("create_goal", None),
            ("update_goal", None),
        ]
    );
    let descriptions: Vec<&str> = conversation.tools[3..6]
        .iter()
        .filter_map(|tool| tool.description.as_deref())
        .collect();
    assert_eq!(
        descriptions,
        [
            "What it is for.",
            "What it is for.\n\nWhat it is for.",
            "What it is for."
        ]
    );
    assert!(conversation.tools.iter().all(|tool| tool.strict == Some(false)));
}

#[test]
fn a_schema_an_effort_and_a_tool_with_a_grammar_are_read() {
    let schema = decoded(SCHEMA);
    let effort = decoded(EFFORT);

    assert!(matches!(
        &schema.format,
        Format::JsonSchema { name, strict: Some(true), schema, .. }
            if name == "codex_output_schema" && schema.get().starts_with(r#"{"type":"object","properties":{"a""#)
    ));
    assert_eq!(
        (effort.reasoning.effort, effort.reasoning.shown),
        (Some(Effort::High), None)
    );
    let patch = effort
        .tools
        .iter()
        .find(|tool| tool.name == "apply_patch")
        .expect("the tool");
    assert!(matches!(&patch.input, Input::Text(Some(format)) if format.get().contains(r#""syntax":"lark""#)));
    assert_eq!(
        names(&effort.hints),
        [
            "tools.tool_search",
            "tools.web_search",
            "verbosity",
            "prompt_cache_key",
            "client_metadata"
        ]
    );
}

#[test]
fn every_request_can_be_written_for_every_upstream_and_what_is_dropped_is_told() {
    for request in [FIRST, FOLLOWUP, SCHEMA, EFFORT] {
        let conversation = decoded(request);
        for (upstream, encoded) in [
            ("chat", chat::request::encode(&conversation, &target())),
            ("responses", encode(&conversation, &target())),
            ("messages", messages::request::encode(&conversation, &target())),
            ("gemini", gemini::request::encode(&conversation, &target())),
        ] {
            let encoded = encoded.unwrap_or_else(|refused| panic!("{upstream}: {refused}"));
            for dropped in ["tools.web_search", "client_metadata"] {
                assert!(
                    encoded.dropped.iter().any(|name| name == dropped),
                    "{upstream} is silent about '{dropped}': {:?}",
                    encoded.dropped
                );
            }
            let text = String::from_utf8_lossy(&encoded.body);
            assert!(!text.contains("web_search"), "{upstream}: {text}");
            assert!(text.contains("exec_command"), "{upstream}: {text}");
        }
    }
}

#[test]
fn an_upstream_without_groups_gets_other_names_and_the_caller_gets_his_own_back() {
    let conversation = decoded(FIRST);

    let encoded = chat::request::encode(&conversation, &target()).expect("sent");
    let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");

    let sent = &body["tools"][4]["function"]["name"];
    assert_eq!(sent, "multi_agent_v1__close_agent");
    let known = encoded.names.known("multi_agent_v1__close_agent").expect("known");
    assert_eq!(
        (known.name.as_str(), known.namespace.as_deref()),
        ("close_agent", Some("multi_agent_v1"))
    );
    assert_eq!(encoded.names.known("exec_command"), None);
}
