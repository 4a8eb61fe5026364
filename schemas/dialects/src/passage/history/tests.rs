//! Requests that pass without thoughts that their upstream did not prove.

use super::*;

fn freed(dialect: Dialect, body: &str) -> Option<(String, Vec<&'static str>)> {
    let freed = without_our_proofs(dialect, &Bytes::copy_from_slice(body.as_bytes()))?;
    Some((
        String::from_utf8(freed.body.to_vec()).expect("text"),
        freed.dropped,
    ))
}

const THINKING: &str = "messages.content.thinking";
const REDACTED: &str = "messages.content.redacted_thinking";

#[test]
fn thoughts_under_a_mark_of_ours_are_taken_out_of_messages_and_the_rest_stays() {
    let body = r#"{"model":"m", "messages":[{"role":"user","content":"say waybill.none"}, {"role":"assistant" ,"content":[{"type":"thinking","thinking":"t","signature":"waybill.none"},{"type":"text","text":"a" },{"type":"thinking","thinking":"u","signature":"RWFs"},{"type":"redacted_thinking","data":"waybill.call.gemini.6.call_1c2ln"},{"type":"tool_use","id":"call_1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"waybill."}]}],"max_tokens":9}"#;
    let expected = r#"{"model":"m", "messages":[{"role":"user","content":"say waybill.none"},{"role":"assistant" ,"content":[{"type":"text","text":"a" },{"type":"thinking","thinking":"u","signature":"RWFs"},{"type":"tool_use","id":"call_1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"waybill."}]}],"max_tokens":9}"#;

    assert_eq!(
        freed(Dialect::Messages, body),
        Some((expected.to_owned(), vec![THINKING, REDACTED]))
    );
}

#[test]
fn the_upstreams_own_proof_under_a_mark_of_ours_stands_there_as_it_made_it() {
    let body = r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"waybill.anthropic.U0lH"},{"type":"redacted_thinking","data":"waybill.anthropic.REFU"}]}]}"#;
    let expected = r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"U0lH"},{"type":"redacted_thinking","data":"REFU"}]}]}"#;
    assert_eq!(
        freed(Dialect::Messages, body),
        Some((expected.to_owned(), Vec::new()))
    );

    let body = r#"{"input":[{"type":"reasoning","summary":[],"encrypted_content":"waybill.openai.Z0FB"}]}"#;
    let expected = r#"{"input":[{"type":"reasoning","summary":[],"encrypted_content":"Z0FB"}]}"#;
    assert_eq!(
        freed(Dialect::Responses, body),
        Some((expected.to_owned(), Vec::new()))
    );
}

#[test]
fn a_message_of_nothing_but_such_thoughts_goes() {
    let body = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"waybill.gemini.Zw=="}]},{"role":"user","content":"n"}]}"#;
    let expected = r#"{"messages":[{"role":"user","content":"q"},{"role":"user","content":"n"}]}"#;

    assert_eq!(
        freed(Dialect::Messages, body),
        Some((expected.to_owned(), vec![THINKING]))
    );
}

#[test]
fn a_model_that_thinks_by_budget_does_not_where_calls_lost_their_thoughts() {
    let request = |thinking: &str, kept: &str, edits: &str| {
        format!(
            r#"{{"thinking":{thinking},"context_management":{{"edits":[{edits}{{"type":"clear_tool_uses_20250919"}}]}},"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":[{kept}{{"type":"tool_use","id":"c","name":"f","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c","content":"r"}},{{"type":"text","text":"x"}}]}}]}}"#
        )
    };
    let budget = r#"{"type":"enabled","budget_tokens":1024}"#;
    let ours = r#"{"type":"thinking","thinking":"t","signature":"waybill.none"},"#;
    let own = r#"{"type":"thinking","thinking":"t","signature":"RWFs"},"#;
    let clears = r#"{"type":"clear_thinking_20251015","keep":"all"},"#;

    assert_eq!(
        freed(Dialect::Messages, &request(budget, ours, clears)),
        Some((
            request(r#"{"type":"disabled"}"#, "", ""),
            vec![THINKING, "thinking", "context_management.edits"]
        ))
    );
    let adaptive = r#"{"type":"adaptive"}"#;
    assert_eq!(
        freed(Dialect::Messages, &request(adaptive, ours, clears)),
        Some((request(adaptive, "", clears), vec![THINKING]))
    );
    assert_eq!(
        freed(
            Dialect::Messages,
            &request(budget, &format!("{own}{ours}"), clears)
        ),
        Some((request(budget, own, clears), vec![THINKING]))
    );
}

#[test]
fn thoughts_under_a_mark_of_ours_are_taken_out_of_responses() {
    let body = r#"{"model":"m","input":[{"role":"user","content":"q"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"waybill.anthropic.SIG=="},{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"waybill.call.gemini.1.cc2ln"},{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":"gAAA"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"waybill."}]}],"store":false}"#;
    let expected = r#"{"model":"m","input":[{"role":"user","content":"q"},{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":"gAAA"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"waybill."}]}],"store":false}"#;

    assert_eq!(
        freed(Dialect::Responses, body),
        Some((expected.to_owned(), vec!["input.reasoning"]))
    );
}

#[test]
fn requests_without_such_proofs_are_left_alone() {
    for (dialect, body) in [
        (
            Dialect::Messages,
            r#"{"messages":[{"role":"user","content":"waybill.none"}]}"#,
        ),
        (Dialect::Messages, r#"{"messages":"waybill."}"#),
        (Dialect::Messages, r#"["waybill."]"#),
        (Dialect::Responses, r#"{"input":"waybill.none"}"#),
        (
            Dialect::Chat,
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"waybill.none"}]}]}"#,
        ),
    ] {
        assert_eq!(freed(dialect, body), None, "{body}");
    }
}

#[test]
fn all_earlier_thoughts_are_taken_out_when_a_server_does_not_accept_them() {
    let body = Bytes::from_static(
        br#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"Rm9y"},{"type":"text","text":"a"},{"type":"redacted_thinking","data":"x"}]},{"role":"user","content":"n"}]}"#,
    );

    let freed = without_thoughts(&body).expect("thoughts");

    assert_eq!(
        freed.body,
        r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":"n"}]}"#
    );
    assert_eq!(freed.dropped, [THINKING, REDACTED]);
    assert_eq!(without_thoughts(&freed.body), None);
}
