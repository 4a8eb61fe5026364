//! Bodies of real clients, cut down to what names a session, and bodies that say nothing.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn of(surface: Surface, body: &Value) -> Session {
    session(surface, body.to_string().as_bytes(), &Limits::default())
}

fn opening(surface: Surface, body: &Value) -> (Option<[u8; 16]>, Option<[u8; 16]>) {
    let opening = of(surface, body).opening;
    (opening.l1(), opening.l2())
}

#[test]
fn what_names_a_session_is_read_wherever_it_stands() {
    let codex = json!({
        "model": "gpt-5-codex",
        "input": "hi",
        "prompt_cache_key": "cache-1",
        "client_metadata": {"thread_id": "t", "session_id": "s-1", "turn_id": "u"},
    });
    let read = of(Surface::Responses, &codex);
    assert_eq!(read.client_session.as_deref(), Some("s-1"));
    assert_eq!(read.cache_key.as_deref(), Some("cache-1"));
    assert_eq!(
        (read.user, read.user_id, read.metadata_session),
        (None, None, None)
    );

    let identity = "{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"s-2\"}";
    let claude = json!({
        "messages": [],
        "metadata": {"user_id": identity, "session_id": "s-\u{e9}"},
        "user": "shop-9",
    });
    let read = of(Surface::Messages, &claude);
    assert_eq!(read.user_id.as_deref(), Some(identity));
    assert_eq!(read.metadata_session.as_deref(), Some("s-é"));
    assert_eq!(read.facts().user, Some("shop-9"));
    assert_eq!(read.facts().user_id, Some(identity));
}

#[test]
fn what_is_of_another_type_says_nothing() {
    let body = json!({
        "messages": {"role": "user"},
        "metadata": "m",
        "client_metadata": {"session_id": 7},
        "prompt_cache_key": ["k"],
        "user": null,
    });

    assert_eq!(of(Surface::Chat, &body), Session::default());
    for body in [&b""[..], b"{", b"[]", b"\xff", br#"{"user":"a","user":"b"}"#] {
        let read = session(Surface::Chat, body, &Limits::default());
        assert_eq!(read, Session::default());
    }
}

#[test]
fn the_turns_of_a_chat_begin_alike() {
    let first = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is a waybill?"},
    ]});
    let second = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"content": [{"type": "text", "text": "What is a waybill?"}], "role": "user"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "assistant", "content": "A record."},
        {"role": "user", "content": "And a ledger?"},
    ]});

    let (l1, l2) = opening(Surface::Chat, &first);
    assert!(l1.is_some() && l2.is_none());
    let (later_l1, later_l2) = opening(Surface::Chat, &second);
    assert_eq!(later_l1, l1);
    assert!(later_l2.is_some());
}

/// Claude Code marks the last block for the cache and counts its version up in the first.
#[test]
fn the_turns_of_claude_code_begin_alike_although_marks_move() {
    let turn = |version: &str, mark: bool, more: &[Value]| {
        let mut last = json!({"type": "text", "text": "hi"});
        if mark {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
        let mut messages =
            vec![json!({"role": "user", "content": [{"type": "text", "text": "reminder"}, last]})];
        messages.extend_from_slice(more);
        json!({
            "messages": messages,
            "system": [
                {"type": "text", "text": format!("x-anthropic-billing-header: cc_version={version};")},
                {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            ],
        })
    };
    let answer = json!({"role": "assistant", "content": [{"type": "text", "text": "Hello."}]});

    let (first, none) = opening(Surface::Messages, &turn("2.1.0df", true, &[]));
    let (second, l2) = opening(Surface::Messages, &turn("2.1.9aa", false, &[answer]));

    assert_eq!((first.is_some(), none, l2.is_some()), (true, None, true));
    assert_eq!(first, second);
}

#[test]
fn items_of_responses_are_turns_and_a_text_is_one() {
    let text = json!({"instructions": "Be brief.", "input": "hi"});
    let items = json!({"instructions": "Be brief.", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    ]});
    let developer = json!({"input": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]});

    let (one, _) = opening(Surface::Responses, &text);
    let (other, l2) = opening(Surface::Responses, &items);
    assert!(one.is_some() && l2.is_some());
    assert_eq!(one, other);
    assert_ne!(opening(Surface::Responses, &developer).0, one);
}

#[test]
fn prompts_and_inputs_to_embed_have_no_beginning() {
    let body =
        json!({"prompt": "hi", "input": "hi", "messages": [{"role": "user", "content": "hi"}], "user": "u"});

    for surface in [Surface::Completions, Surface::Embeddings] {
        assert_eq!(opening(surface, &body), (None, None), "{surface:?}");
        assert_eq!(of(surface, &body).user.as_deref(), Some("u"));
    }
}

#[test]
fn what_is_spelled_differently_is_said_alike() {
    let plain = br#"{"messages":[{"role":"user","content":"caf\u00e9 \ud83d\ude80"}]}"#;
    let spelled = "{\"messages\": [ {\"content\":\"café 🚀\" , \"role\":\"user\"} ]}";

    let one = session(Surface::Chat, plain, &Limits::default());
    let other = session(Surface::Chat, spelled.as_bytes(), &Limits::default());
    assert!(one.opening.l1().is_some());
    assert_eq!(one, other);
}

#[test]
fn a_body_that_nests_too_deep_says_nothing() {
    let deep = format!("{{\"user\":\"u\",\"x\":{}{}}}", "[".repeat(100), "]".repeat(100));

    let read = session(Surface::Chat, deep.as_bytes(), &Limits::default());

    assert_eq!(read, Session::default());
}

proptest! {
    #[test]
    fn whatever_comes_is_read_or_passed_over(body in "\\PC{0,60}", cut in 0..200_usize) {
        let whole = json!({"messages": [{"role": "user", "content": body}], "user": body}).to_string();
        let cut = &whole.as_bytes()[..cut.min(whole.len())];

        for bytes in [body.as_bytes(), cut] {
            let read = session(Surface::Chat, bytes, &Limits::default());
            prop_assert!(bytes.len() == whole.len() || read == Session::default());
        }
        let read = session(Surface::Chat, whole.as_bytes(), &Limits::default());
        prop_assert_eq!(read.user.as_deref(), Some(body.as_str()));
        prop_assert_eq!(read.opening.l1().is_some(), !body.is_empty());
    }
}
