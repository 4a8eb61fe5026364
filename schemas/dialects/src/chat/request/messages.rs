//! What was said, for an upstream: instructions where its kind takes them, results of calls each in a message of
//! their own, what they show in the person's message that follows.

use std::borrow::Cow;

use serde::Serialize;

use super::encode::Draft;
use super::renamed::Renamed;
use super::said::{Block, Content, blocks, flat, texts};
use crate::chat::mint;
use crate::chat::response::details::{self, Detail};
use crate::superset::request::{Call, Part, Role, THOUGHTS, Turn, Unmappable};

/// Longest id of a call.
const CALL_ID_BYTES_MAX: usize = 40;
/// Letters and digits of a short id.
const SHORT_ID_CHARS: usize = 9;
/// What a failed call's result begins with.
const FAILED: &str = "Error: ";
/// What stands for a result without words.
const SHOWN: &str = "What it gave is shown in the next message.";

/// A message.
#[derive(Serialize, Default)]
pub(super) struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Detail<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<details::Extra<'a>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: String,
    arguments: Cow<'a, str>,
}

/// The messages of these turns.
pub(super) fn of<'a>(
    turns: &'a [Turn],
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<Vec<Message<'a>>, Unmappable> {
    let mut messages = Vec::with_capacity(turns.len() + 1);
    let instructs = |turn: &Turn| matches!(turn.role, Role::System | Role::Developer);
    let one_system = draft.profile().one_system;
    if one_system && turns.iter().any(instructs) {
        let instructions = turns.iter().filter(|turn| instructs(turn));
        let text = texts(instructions.flat_map(|turn| &turn.parts), draft)?;
        messages.push(Message {
            role: "system",
            content: Content::Text(text),
            ..Message::default()
        });
    }
    // What results of calls show belongs to the person's next message.
    let mut shown = Vec::new();
    for turn in turns {
        if turn.role != Role::User && turn.role != Role::Tool && !shown.is_empty() {
            messages.push(user(None, Content::Blocks(std::mem::take(&mut shown))));
        }
        match turn.role {
            Role::System | Role::Developer if one_system => {}
            Role::System | Role::Developer => messages.push(Message {
                role: if turn.role == Role::Developer && draft.profile().developer {
                    "developer"
                } else {
                    "system"
                },
                content: flat(&turn.parts, draft)?,
                name: name(turn, draft),
                ..Message::default()
            }),
            Role::User if shown.is_empty() => {
                let content = flat(&turn.parts, draft)?;
                messages.push(user(name(turn, draft), content));
            }
            Role::User => {
                shown.extend(blocks(&turn.parts, draft)?);
                messages.push(user(
                    name(turn, draft),
                    Content::Blocks(std::mem::take(&mut shown)),
                ));
            }
            Role::Assistant => messages.push(assistant(turn, renamed, draft)?),
            Role::Tool => results(turn, &mut messages, &mut shown, draft)?,
        }
    }
    if !shown.is_empty() {
        messages.push(user(None, Content::Blocks(shown)));
    }
    Ok(messages)
}

fn user<'a>(name: Option<&'a str>, content: Content<'a>) -> Message<'a> {
    Message {
        role: "user",
        content,
        name,
        ..Message::default()
    }
}

fn name<'a>(turn: &'a Turn, draft: &mut Draft<'_>) -> Option<&'a str> {
    let name = turn.name.as_deref()?;
    (!draft.drops("name")).then_some(name)
}

fn assistant<'a>(
    turn: &'a Turn,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<Message<'a>, Unmappable> {
    let profile = draft.profile();
    let said = |part: &&Part| !matches!(part, Part::Thinking { .. } | Part::ToolCall(_));
    let content = texts(turn.parts.iter().filter(said), draft)?;
    let mut message = Message {
        role: "assistant",
        content: Content::Text(content),
        name: name(turn, draft),
        ..Message::default()
    };
    let mut thoughts = String::new();
    for part in &turn.parts {
        match part {
            Part::Thinking { text, proof } => {
                let before = message.reasoning_details.len();
                thoughts.push_str(text);
                if profile.proofs_back {
                    details::push(&mut message.reasoning_details, text, proof.as_ref());
                }
                let in_words = profile.thoughts_back && !text.is_empty();
                if !in_words && message.reasoning_details.len() == before {
                    draft.drop(THOUGHTS);
                }
            }
            Part::ToolCall(call) => message.tool_calls.push(call_of(call, renamed, draft)),
            _ => {}
        }
    }
    if profile.thoughts_back && !thoughts.is_empty() {
        message.reasoning_content = Some(thoughts);
    }
    Ok(message)
}

fn call_of<'a>(call: &'a Call, renamed: &Renamed<'a>, draft: &Draft<'_>) -> ToolCall<'a> {
    #[derive(Serialize)]
    struct Free<'a> {
        input: &'a str,
    }
    let profile = draft.profile();
    let arguments = if call.custom {
        let mut text = Vec::new();
        super::encode::json(
            &mut text,
            &Free {
                input: &call.arguments,
            },
        );
        String::from_utf8(text).unwrap_or_default().into()
    } else if call.arguments.trim_ascii().is_empty() {
        Cow::Borrowed("{}")
    } else {
        Cow::Borrowed(call.arguments.as_str())
    };
    let proof = call.proof.as_ref().filter(|_| profile.proofs_back);
    ToolCall {
        id: id(&call.id, profile.short_call_ids),
        kind: "function",
        function: Function {
            name: renamed.sent(call.namespace.as_deref(), &call.name),
            arguments,
        },
        extra_content: proof.map(details::Extra::of),
    }
}

/// The id that an upstream takes in place of a call's.
fn id(id: &str, short: bool) -> Cow<'_, str> {
    let fits = if short {
        id.len() == SHORT_ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    } else {
        (1..=CALL_ID_BYTES_MAX).contains(&id.len())
    };
    if fits {
        id.into()
    } else if short {
        mint::letters(mint::digest(&[id]), SHORT_ID_CHARS).into()
    } else {
        mint::call_id(&[id]).into()
    }
}

fn results<'a>(
    turn: &'a Turn,
    messages: &mut Vec<Message<'a>>,
    shown: &mut Vec<Block<'a>>,
    draft: &mut Draft<'_>,
) -> Result<(), Unmappable> {
    let short = draft.profile().short_call_ids;
    for part in &turn.parts {
        let Part::ToolResult {
            id: call,
            parts,
            failed,
        } = part
        else {
            continue;
        };
        let is_text = |part: &&Part| matches!(part, Part::Text { .. } | Part::Refusal(_));
        let mut text = texts(parts.iter().filter(is_text), draft)?;
        let before = shown.len();
        for part in parts.iter().filter(|part| !is_text(part)) {
            shown.extend(blocks(std::slice::from_ref(part), draft)?);
        }
        if text.is_empty() && shown.len() > before {
            text = SHOWN.into();
        }
        if *failed {
            text = format!("{FAILED}{text}").into();
        }
        messages.push(Message {
            role: "tool",
            content: Content::Text(text),
            tool_call_id: Some(id(call, short)),
            ..Message::default()
        });
    }
    Ok(())
}
