//! Requests of Messages: what is read, what is refused, and what is kept for a report.

use super::*;
use crate::object::MISSING;
use crate::superset::request::{Call, Effort, Format, Media, Part, Proof, ProofMaker, Role, Sampling, Turn};
use crate::superset::tool::{Input, ToolChoice};

mod effort;
mod encoding;
mod silence;

fn read(body: &str) -> Conversation {
    decode(body.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}: {body}"))
}

fn refused(body: &str) -> String {
    match decode(body.as_bytes()) {
        Ok(_) => panic!("not refused: {body}"),
        Err(refusal) => refusal.to_string(),
    }
}

/// A request with these messages and other members.
fn body(messages: &str, others: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":100,"messages":{messages}{others}}}"#)
}

fn names(members: &[crate::superset::request::Member]) -> Vec<&str> {
    members.iter().map(|member| member.name.as_ref()).collect()
}

fn roles(turns: &[Turn]) -> Vec<Role> {
    turns.iter().map(|turn| turn.role).collect()
}

fn text(part: &Part) -> &str {
    match part {
        Part::Text { text, .. } => text,
        other => panic!("no text: {other:?}"),
    }
}

const HELLO: &str = r#"[{"role":"user","content":"hello"}]"#;

#[test]
fn members_that_must_be_there_are_named() {
    for (member, body) in [
        ("model", r#"{"max_tokens":1,"messages":[]}"#),
        ("messages", r#"{"model":"m","max_tokens":1}"#),
        ("max_tokens", r#"{"model":"m","messages":[]}"#),
    ] {
        let refusal = decode(body.as_bytes()).expect_err("refused");

        let expected = Refusal::Invalid {
            param: member.into(),
            problem: MISSING.into(),
        };
        assert_eq!(refusal, expected);
    }
}

#[test]
fn what_is_wrong_is_named_by_its_path() {
    let cases = [
        ("[", "the request body is not valid JSON"),
        ("[]", "the request body is not valid JSON"),
        (
            r#"{"model":7,"max_tokens":1,"messages":[]}"#,
            "the member 'model' must be a string",
        ),
        (
            r#"{"model":"m","max_tokens":0,"messages":[]}"#,
            "the member 'max_tokens' must be a whole number of 1 or more",
        ),
        (&body("[]", ""), "the member 'messages' must not be empty"),
        (
            &body(r#"[{"role":"robot","content":"x"}]"#, ""),
            "the member 'messages.0.role' must be user, assistant or system",
        ),
        (
            &body(r#"[{"role":"user"}]"#, ""),
            "the member 'messages.0.content' is required",
        ),
        (
            &body(r#"[{"role":"user","content":[{"text":"x"}]}]"#, ""),
            "the member 'messages.0.content.0.type' is required",
        ),
        (
            &body(HELLO, r#","temperature":1.5"#),
            "the member 'temperature' must be a number from 0 to 1",
        ),
        (
            &body(HELLO, r#","thinking":{"type":"enabled"}"#),
            "the member 'thinking.budget_tokens' is required",
        ),
        (
            &body(
                r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}]"#,
                "",
            ),
            "the member 'messages.0.content.0.tool_use_id' is the id of no earlier call",
        ),
        (
            &body(
                r#"[{"role":"user","content":[{"type":"server_tool_use","id":"x"}]}]"#,
                "",
            ),
            "the parameter 'messages.0.content.0.type' is not supported: blocks of the type 'server_tool_use' cannot be translated here",
        ),
        (
            &body(HELLO, r#","tools":[{"type":"bash_20250124","name":"bash"}]"#),
            "the parameter 'tools.0.type' is not supported: tools of the type 'bash_20250124' run at the provider of another model",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(refused(body), message);
    }
}

#[test]
fn a_call_whose_id_was_used_in_an_earlier_turn_keeps_its_proof() {
    let turn = |proof: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"redacted_thinking","data":"waybill.call.gemini.1.t{proof}"}},{{"type":"tool_use","id":"t","name":"f","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t"}}]}}"#
        )
    };
    let conversation = read(&body(&format!("[{},{}]", turn("one"), turn("two")), ""));

    let calls = conversation.turns.iter().flat_map(|turn| &turn.parts);
    let proofs: Vec<(&str, &str)> = calls
        .filter_map(|part| match part {
            Part::ToolCall(call) => call
                .proof
                .as_ref()
                .map(|proof| (call.id.as_str(), proof.text.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(proofs, [("t", "one"), ("t_2", "two")]);
}

#[test]
fn instructions_keep_their_place_and_their_marks() {
    let conversation = read(&body(
        r#"[{"role":"user","content":"a"},{"role":"system","content":"late"},{"role":"assistant","content":"b"}]"#,
        r#","system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1"},{"type":"text","text":"one","cache_control":{"type":"ephemeral"}},{"type":"text","text":"two"}]"#,
    ));

    assert_eq!(
        roles(&conversation.turns),
        [Role::System, Role::User, Role::System, Role::Assistant]
    );
    let system = &conversation.turns[0].parts;
    assert_eq!(system.iter().map(text).collect::<Vec<_>>(), ["one", "two"]);
    assert!(
        matches!(&system[0], Part::Text { cache: Some(mark), .. } if mark.get() == r#"{"type":"ephemeral"}"#)
    );
    assert_eq!(names(&conversation.hints), ["system.0"]);
}

#[test]
fn results_come_before_the_rest_of_their_turn() {
    let conversation = read(&body(
        r#"[{"role":"user","content":"q"},
            {"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"look","input":{"a": 1.50}}]},
            {"role":"user","content":[
                {"type":"text","text":"and then?"},
                {"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[
                    {"type":"text","text":"sun"},
                    {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]"#,
        "",
    ));

    assert_eq!(
        roles(&conversation.turns),
        [Role::User, Role::Assistant, Role::Tool, Role::User]
    );
    let Part::ToolResult { id, parts, failed } = &conversation.turns[2].parts[0] else {
        panic!("no result");
    };
    assert_eq!((id.as_str(), *failed, parts.len()), ("t1", true, 2));
    let Part::ToolCall(call) = &conversation.turns[1].parts[0] else {
        panic!("no call");
    };
    assert_eq!(call.arguments, r#"{"a": 1.50}"#);
    assert_eq!(text(&conversation.turns[3].parts[0]), "and then?");
}

#[test]
fn an_id_that_comes_again_in_a_later_turn_is_made_unique() {
    let turn = r#"{"role":"assistant","content":[{"type":"tool_use","id":"call_0","name":"f","input":{}}]},
                  {"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0","content":"x"}]}"#;
    let conversation = read(&body(&format!("[{turn},{turn},{turn}]"), ""));

    let ids: Vec<&str> = conversation
        .turns
        .iter()
        .map(|turn| match &turn.parts[0] {
            Part::ToolCall(Call { id, .. }) | Part::ToolResult { id, .. } => id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();

    assert_eq!(ids[0], "call_0");
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[2], ids[3]);
    assert_eq!(ids[4], ids[5]);
    assert!(
        ids[0] != ids[2] && ids[2] != ids[4] && ids[0] != ids[4],
        "{ids:?}"
    );
}

#[test]
fn an_input_that_is_no_object_is_repaired_and_what_is_lost_is_reported() {
    let cases = [
        (r#""{}\"\"""#, "{}", false),
        (r#""{\"a\":1}""#, r#"{"a":1}"#, false),
        ("null", "{}", false),
        (r#""{""#, "{}", true),
        (r#"["x"]"#, "{}", true),
        ("7", "{}", true),
    ];
    for (input, arguments, reported) in cases {
        let conversation = read(&body(
            &format!(
                r#"[{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"f","input":{input}}}]}}]"#
            ),
            "",
        ));

        let Part::ToolCall(call) = &conversation.turns[0].parts[0] else {
            panic!("no call");
        };
        assert_eq!(call.arguments, arguments, "{input}");
        assert_eq!(!conversation.hints.is_empty(), reported, "{input}");
    }
}

#[test]
fn thoughts_keep_the_proofs_of_whoever_made_them() {
    let conversation = read(&body(
        r#"[{"role":"assistant","content":[
            {"type":"thinking","thinking":"a","signature":"c2ln"},
            {"type":"thinking","thinking":"b","signature":"waybill.none"},
            {"type":"thinking","thinking":"c","signature":"waybill.gemini.Zw=="},
            {"type":"redacted_thinking","data":"AAAA"},
            {"type":"redacted_thinking","data":"waybill.call.gemini.1.tU0lH"},
            {"type":"tool_use","id":"t","name":"f","input":{}}]}]"#,
        "",
    ));

    let proof = |maker, text: &str, redacted| {
        Some(Proof {
            maker,
            text: text.to_owned(),
            redacted,
        })
    };
    let parts = &conversation.turns[0].parts;
    let proofs: Vec<Option<Proof>> = parts
        .iter()
        .map(|part| match part {
            Part::Thinking { proof, .. } | Part::ToolCall(Call { proof, .. }) => proof.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        proofs,
        [
            proof(ProofMaker::Anthropic, "c2ln", false),
            None,
            proof(ProofMaker::Gemini, "Zw==", false),
            proof(ProofMaker::Anthropic, "AAAA", true),
            proof(ProofMaker::Gemini, "U0lH", false),
        ]
    );
}

#[test]
fn options_find_their_places() {
    let conversation = read(&body(
        HELLO,
        r#","stream":true,"stop_sequences":["x"],"temperature":0.50,"top_k":5,"top_p":1,
           "tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"eager_input_streaming":true,"defer_loading":false}],
           "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
           "thinking":{"type":"adaptive","display":"omitted"},
           "output_config":{"effort":"xhigh","format":{"type":"json_schema","schema":{"b":1,"a":2}}},
           "metadata":{"user_id":"u"},"service_tier":"auto","container":null,"mcp_servers":[]"#,
    ));

    assert!(conversation.stream && conversation.include_usage);
    assert_eq!(conversation.max_tokens, Some(100));
    assert_eq!(conversation.stop, ["x"]);
    let sampling = &conversation.sampling;
    assert_eq!(sampling.temperature.as_ref().map(|raw| raw.get()), Some("0.50"));
    assert_eq!(sampling.top_k, Some(5));
    assert_eq!(conversation.tool_choice, Some(ToolChoice::Named("f".to_owned())));
    assert_eq!(conversation.parallel_tool_calls, Some(false));
    assert_eq!(conversation.reasoning.effort, Some(Effort::ExtraHigh));
    assert_eq!(conversation.reasoning.shown, Some(false));
    assert!(
        matches!(&conversation.format, Format::JsonSchema { name, schema, strict: Some(true), .. }
        if name == "output" && schema.get() == r#"{"b":1,"a":2}"#)
    );
    assert_eq!(conversation.user.as_deref(), Some("u"));
    let tool = &conversation.tools[0];
    assert_eq!((tool.name.as_str(), tool.strict), ("f", Some(true)));
    assert!(matches!(&tool.input, Input::Schema(Some(schema)) if schema.get() == r#"{"type":"object"}"#));
    assert_eq!(
        names(&conversation.hints),
        ["tools.0.eager_input_streaming", "service_tier"]
    );
    assert_eq!(names(&conversation.demands), [""; 0]);
}

#[test]
fn what_only_one_provider_has_is_a_demand_and_what_means_nothing_a_hint() {
    let conversation = read(&body(
        HELLO,
        r#","container":"c","mcp_servers":[{"url":"u"}],"service_tier":"priority","speed":"fast","seed":1,
           "context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"cache_control":{"type":"ephemeral"},
           "diagnostics":{},"a_member_of_tomorrow":1,"output_config":{"task_budget":1}"#,
    ));

    assert_eq!(
        names(&conversation.demands),
        [
            "output_config.task_budget",
            "container",
            "mcp_servers",
            "service_tier",
            "speed",
            "seed",
            "context_management"
        ]
    );
    assert_eq!(
        names(&conversation.hints),
        ["cache_control", "diagnostics", "a_member_of_tomorrow"]
    );
    let kept = read(&body(
        HELLO,
        r#","context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#,
    ));
    assert_eq!(names(&kept.hints), ["context_management"]);
    assert_eq!(names(&kept.demands), [""; 0]);
}

#[test]
fn documents_and_search_results_become_files_and_texts() {
    let conversation = read(&body(
        r#"[{"role":"user","content":[
            {"type":"document","title":"t","context":"c","source":{"type":"text","media_type":"text/plain","data":"d"}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"},"citations":{"enabled":true}},
            {"type":"document","source":{"type":"content","content":[{"type":"text","text":"e"}]}},
            {"type":"document","source":{"type":"file","file_id":"f1"}},
            {"type":"search_result","title":"T","source":"S","content":[{"type":"text","text":"r"}],"citations":{"enabled":false}},
            {"type":"image","source":{"type":"url","url":"https://example.com/a.png"},"cache_control":{"type":"ephemeral"}}]}]"#,
        "",
    ));

    let parts = &conversation.turns[0].parts;
    assert_eq!(text(&parts[0]), "c");
    assert!(
        matches!(&parts[1], Part::File { source: Media::Text(data), name: Some(name) } if data == "d" && name == "t")
    );
    assert!(
        matches!(&parts[2], Part::File { source: Media::Inline { media_type, .. }, .. } if media_type == "application/pdf")
    );
    assert_eq!(text(&parts[3]), "e");
    assert!(matches!(&parts[4], Part::File { source: Media::Id(id), .. } if id == "f1"));
    assert_eq!(text(&parts[5]), "T\nS");
    assert_eq!(text(&parts[6]), "r");
    assert!(matches!(
        &parts[7],
        Part::Image {
            source: Media::Url(_),
            ..
        }
    ));
    assert_eq!(names(&conversation.demands), ["messages.0.content.1.citations"]);
    assert_eq!(names(&conversation.hints), ["cache_control"]);
}
