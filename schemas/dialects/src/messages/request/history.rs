//! What was said: turns, calls and their results. Results come before everything else of their turn, ids of calls
//! are unique afterwards, and every result belongs to a call.

use serde_json::value::RawValue;

use super::decode::Draft;
use crate::object::{MISSING, Object, Path};
use crate::superset::calls::Calls;
use crate::superset::request::{Part, Refusal, Role, Turn};

/// Reads `messages`.
pub(super) fn read(draft: &mut Draft, raw: &RawValue, path: &Path<'_>) -> Result<(), Refusal> {
    let messages = path.list(raw)?;
    if messages.is_empty() {
        return Err(path.invalid("must not be empty"));
    }
    let mut calls = Calls::default();
    for (index, raw) in messages.into_iter().enumerate() {
        message(draft, &mut calls, raw, &path.element(index))?;
    }
    Ok(())
}

fn message(draft: &mut Draft, calls: &mut Calls, raw: &RawValue, path: &Path<'_>) -> Result<(), Refusal> {
    let mut members = Object::at(raw, path)?;
    let role_path = path.member("role");
    let role = match role_path.required_text(members.take("role"))?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => return Err(role_path.invalid("must be user, assistant or system")),
    };
    let content_path = path.member("content");
    let content = members
        .take("content")
        .ok_or_else(|| content_path.invalid(MISSING))?;
    calls.turn();
    let mut parts = match role {
        Role::System => draft.texts(content, &content_path)?,
        Role::Assistant => draft.answer(content, calls, &content_path)?,
        _ => draft.question(content, calls, &content_path)?,
    };
    draft.unknown(members, path);
    let results: Vec<Part> = parts
        .extract_if(.., |part| matches!(part, Part::ToolResult { .. }))
        .collect();
    let answered = !results.is_empty();
    if answered {
        push(draft, Role::Tool, results);
    }
    if parts.is_empty() && !answered && role == Role::User {
        parts.push(Part::Text {
            text: String::new(),
            cache: None,
        });
    }
    if !parts.is_empty() {
        push(draft, role, parts);
    }
    Ok(())
}

fn push(draft: &mut Draft, role: Role, parts: Vec<Part>) {
    draft.conversation.turns.push(Turn {
        role,
        name: None,
        parts,
    });
}

/// The text of a part that is one.
pub(super) fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text, .. } => Some(text),
        _ => None,
    }
}
