//! Histories for tests, in few words.

use super::request::{Call, Part, Role, Turn};

fn turn(role: Role, parts: Vec<Part>) -> Turn {
    Turn {
        role,
        name: None,
        parts,
    }
}

fn text(text: String) -> Part {
    Part::Text { text, cache: None }
}

/// A text.
pub(crate) fn says(role: Role, words: &str) -> Turn {
    turn(role, vec![text(words.to_owned())])
}

/// Calls with these ids.
pub(crate) fn asks(ids: &[&str]) -> Turn {
    let call = |id: &&str| {
        Part::ToolCall(Call {
            id: (*id).to_owned(),
            name: "f".into(),
            namespace: None,
            arguments: "{}".into(),
            custom: false,
            proof: None,
        })
    };
    turn(Role::Assistant, ids.iter().map(call).collect())
}

/// Results of calls with these ids.
pub(crate) fn gives(ids: &[&str]) -> Turn {
    let result = |id: &&str| Part::ToolResult {
        id: (*id).to_owned(),
        parts: vec![text(format!("of {id}"))],
        failed: false,
    };
    turn(Role::Tool, ids.iter().map(result).collect())
}

/// Turns as words: `?` for a call, `!` for a result.
pub(crate) fn words(turns: &[Turn]) -> Vec<String> {
    let word = |part: &Part| match part {
        Part::Text { text, .. } => text.clone(),
        Part::ToolCall(call) => format!("?{}", call.id),
        Part::ToolResult { id, .. } => format!("!{id}"),
        other => format!("{other:?}"),
    };
    let of = |turn: &Turn| {
        let parts: Vec<String> = turn.parts.iter().map(word).collect();
        format!("{:?} {}", turn.role, parts.join(" "))
    };
    turns.iter().map(of).collect()
}
