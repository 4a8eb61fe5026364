//! What real clients send, cut down to what names a session, and the order of its places.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The session that headers name themselves.
fn session<'a>(header: impl Fn(&'static str) -> Option<&'a [u8]>) -> Option<String> {
    Spoken::read(header).session.as_deref().map(str::to_owned)
}

/// The session that a program names.
fn hint<'a>(header: impl Fn(&'static str) -> Option<&'a [u8]>, facts: &Facts<'_>) -> Option<String> {
    Spoken::read(header).hint(facts)
}

/// One request as its client sends it.
struct Sent {
    headers: &'static [(&'static str, &'static str)],
    body: Value,
}

impl Sent {
    /// The member of the body, as a skim hands it over.
    fn text(&self, path: &str) -> Option<&str> {
        self.body.pointer(path)?.as_str()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            metadata_session: self.text("/metadata/session_id"),
            client_session: self.text("/client_metadata/session_id"),
            user_id: self.text("/metadata/user_id"),
            cache_key: self.text("/prompt_cache_key"),
            user: self.text("/user"),
            opening: Opening::default(),
        }
    }

    fn header(&self, name: &str) -> Option<&'static [u8]> {
        let line = self.headers.iter().find(|(known, _)| *known == name);
        line.map(|(_, value)| value.as_bytes())
    }

    fn session(&self) -> Option<String> {
        session(|name| self.header(name))
    }

    fn hint(&self) -> Option<String> {
        hint(|name| self.header(name), &self.facts())
    }
}

const CLAUDE_SESSION: &str = "5f0c1de2-9b1a-4c53-8a6e-0d4b8f3f2a11";

fn claude_code(headers: &'static [(&'static str, &'static str)]) -> Sent {
    Sent {
        headers,
        body: json!({
            "model": "claude-opus-4-8",
            "max_tokens": 64_000,
            "metadata": {"user_id": format!(
                "{{\"device_id\":\"d0d0\",\"account_uuid\":\"\",\"session_id\":\"{CLAUDE_SESSION}\"}}"
            )},
        }),
    }
}

#[test]
fn claude_code_names_its_session_in_a_header_of_its_own() {
    let sent = claude_code(&[
        ("user-agent", "claude-cli/2.1.197 (external, sdk-cli)"),
        ("x-app", "cli"),
        ("x-claude-code-session-id", "9d6c7a40-0000-4000-8000-000000000001"),
    ]);

    assert_eq!(sent.session(), None);
    assert_eq!(
        sent.hint().as_deref(),
        Some("9d6c7a40-0000-4000-8000-000000000001")
    );
}

#[test]
fn claude_code_behind_a_proxy_that_drops_headers_is_found_by_its_user_id() {
    assert_eq!(claude_code(&[]).hint().as_deref(), Some(CLAUDE_SESSION));
}

#[test]
fn older_claude_code_names_its_session_at_the_end_of_one_text() {
    let user_id = format!("user_0badcafe_account_{CLAUDE_SESSION}_session_{CLAUDE_SESSION}");
    let sent = Sent {
        headers: &[],
        body: json!({"metadata": {"user_id": user_id}}),
    };

    assert_eq!(sent.hint().as_deref(), Some(CLAUDE_SESSION));
}

#[test]
fn codex_names_its_session_in_headers_in_its_metadata_and_as_a_cache_key() {
    let mut sent = Sent {
        headers: &[
            ("originator", "codex_exec"),
            ("session-id", "0199-session"),
            ("thread-id", "0199-thread"),
            ("x-client-request-id", "0199-thread"),
            ("x-codex-window-id", "0199-thread:0"),
        ],
        body: json!({
            "model": "gpt-5-codex",
            "prompt_cache_key": "0199-cache",
            "client_metadata": {
                "session_id": "0199-body",
                "thread_id": "0199-thread",
                "x-codex-turn-metadata": "{\"session_id\":\"0199-session\"}",
            },
        }),
    };

    assert_eq!(sent.session(), None);
    assert_eq!(sent.hint().as_deref(), Some("0199-session"));
    assert_eq!(sent.facts().cache_key(), Some("0199-cache"));

    sent.headers = &[("thread-id", "0199-thread")];
    assert_eq!(sent.hint().as_deref(), Some("0199-thread"));
    sent.headers = &[];
    assert_eq!(sent.hint().as_deref(), Some("0199-body"));
}

#[test]
fn opencode_names_its_session_itself() {
    let chat = Sent {
        headers: &[
            ("user-agent", "opencode/1.18.33 ai-sdk/provider-utils/4.0.23"),
            ("x-session-affinity", "ses_7f"),
            ("x-session-id", "ses_7f"),
        ],
        body: json!({"model": "m", "stream": true}),
    };
    let responses = Sent {
        headers: &[
            ("session-id", "ses_7f"),
            ("x-session-affinity", "ses_7f"),
            ("x-session-id", "ses_7f"),
        ],
        body: json!({"model": "m", "prompt_cache_key": "ses_7f"}),
    };

    for sent in [chat, responses] {
        assert_eq!(sent.session().as_deref(), Some("ses_7f"));
        assert_eq!(sent.hint().as_deref(), Some("ses_7f"));
    }
}

#[test]
fn the_first_place_that_names_a_session_counts() {
    let lines = [
        ("session-id", "1"),
        ("session_id", "2"),
        ("thread-id", "3"),
        ("conversation_id", "4"),
        ("x-session-affinity", "5"),
        ("x-opencode-session", "6"),
        ("metadata", "7"),
        ("client_metadata", "8"),
        ("x-claude-code-session-id", "9"),
        ("user_id", "10"),
    ];
    for first in 0..lines.len() {
        let rest = &lines[first..];
        let told = |name: &str| {
            let line = rest.iter().find(|(known, _)| *known == name);
            line.map(|(_, value)| *value)
        };
        let user_id = told("user_id").map(|value| format!("{{\"session_id\":\"{value}\"}}"));
        let facts = Facts {
            metadata_session: told("metadata"),
            client_session: told("client_metadata"),
            user_id: user_id.as_deref(),
            ..Facts::default()
        };

        let hint = hint(|name| told(name).map(str::as_bytes), &facts);

        assert_eq!(hint.as_deref(), Some(lines[first].1));
    }
    assert_eq!(hint(|_| None, &Facts::default()), None);
}

#[test]
fn a_row_has_the_plainest_name_that_headers_say() {
    let lines = [
        ("x-session-id", "1"),
        ("thread-id", "2"),
        ("x-claude-code-session-id", "3"),
    ];
    for first in 0..lines.len() {
        let spoken = Spoken::read(|name| {
            let line = lines[first..].iter().find(|(known, _)| *known == name);
            line.map(|(_, value)| value.as_bytes())
        });

        assert_eq!(spoken.name().map(AsRef::as_ref), Some(lines[first].1));
    }
    assert_eq!(Spoken::default().name(), None);
}

#[test]
fn what_is_no_name_is_passed_over() {
    let long = "x".repeat(129);
    let wide = "é".repeat(128);
    for bad in ["", "  ", "a\tb", "a\u{7f}b", "a\u{85}b", &long] {
        let told = |name: &str| match name {
            "session-id" => Some(bad.as_bytes()),
            "thread-id" => Some(b" good ".as_slice()),
            _ => None,
        };
        assert_eq!(hint(told, &Facts::default()).as_deref(), Some("good"), "{bad:?}");
        assert_eq!(session(|_| Some(bad.as_bytes())), None, "{bad:?}");
    }
    assert_eq!(session(|_| Some(b"\xff\xfe".as_slice())), None);
    assert_eq!(session(|_| Some(wide.as_bytes())), Some(wide));
}

#[test]
fn a_user_id_without_a_session_is_a_user() {
    let long = format!("{{\"session_id\":\"s\",\"x\":\"{}\"}}", "x".repeat(1_024));
    for user_id in [
        "user-17",
        "{\"device_id\":\"d\"}",
        "{\"session_id\":7}",
        "{\"session_id\":\"\"}",
        "{broken",
        "user_1_session_2",
        "a_account_b_session_c",
        "user_1_account_2_session_",
        &long,
    ] {
        assert_eq!(session_of_user_id(user_id), None, "{user_id}");
    }
    let facts = |user_id, user| Facts {
        user_id: Some(user_id),
        user,
        ..Facts::default()
    };
    assert_eq!(facts("user-17", None).user(), Some("user-17"));
    assert_eq!(facts("user-17", Some("shop-9")).user(), Some("shop-9"));
    assert_eq!(facts("user-17", Some(" ")).user(), Some("user-17"));
    assert_eq!(facts(&long, None).user(), None);
}

proptest! {
    #[test]
    fn whatever_is_sent_a_hint_is_a_plain_short_name(
        header in prop::collection::vec(any::<u8>(), 0..200),
        user_id in "\\PC{0,200}",
        body in "\\PC{0,200}",
    ) {
        let facts = Facts { user_id: Some(&user_id), client_session: Some(&body), ..Facts::default() };

        if let Some(hint) = hint(|_| Some(&header), &facts) {
            prop_assert!(!hint.is_empty() && hint.chars().count() <= NAME_CHARS_MAX);
            prop_assert!(!hint.chars().any(char::is_control));
        }
    }
}
