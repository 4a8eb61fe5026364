//! What was said, as Messages has it: instructions in front, then turns that change sides, in each of the user's the
//! results of calls first, all of them, and right after their calls.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::value::RawValue;

use super::encode::{Draft, unmappable};
use super::material::{self, Source};
use crate::chat::request::renamed::Renamed;
use crate::messages::id;
use crate::messages::wrapped::free_text;
use crate::superset::request::{
    Call, Conversation, Part, Proof, ProofMaker, Role, THOUGHTS, Turn, Unmappable,
};

/// A block of content as it is written.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    /// Text.
    Text {
        /// It.
        text: &'a str,
        /// A mark of a cache.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<&'a RawValue>,
    },
    /// An image.
    Image {
        /// Where it is.
        source: Source<'a>,
    },
    /// A document.
    Document {
        /// Where it is.
        source: Source<'a>,
        /// Its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    /// A thought.
    Thinking {
        /// In words.
        thinking: &'a str,
        /// What proves it.
        signature: &'a str,
    },
    /// A thought that only its maker can read.
    RedactedThinking {
        /// It.
        data: &'a str,
    },
    /// A call.
    ToolUse {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// An object.
        input: Cow<'a, RawValue>,
    },
    /// The result of a call.
    ToolResult {
        /// The call.
        tool_use_id: String,
        /// Texts and images.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        /// The call failed.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// One side's turn as it is written.
#[derive(Serialize)]
pub(super) struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// All that was said.
pub(super) struct Said<'a> {
    /// Instructions in front.
    pub(super) system: Vec<Block<'a>>,
    /// Turns.
    pub(super) messages: Vec<Message<'a>>,
}

/// Writes what was said.
pub(super) fn of<'a>(
    conversation: &'a Conversation,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<Said<'a>, Unmappable> {
    let is_system = |turn: &Turn| matches!(turn.role, Role::System | Role::Developer);
    let turns = &conversation.turns;
    let leading = turns.iter().take_while(|turn| is_system(turn)).count();
    let mut system = Vec::new();
    let mut messages: Vec<Message<'a>> = Vec::new();
    // The user said nothing, and nothing beside it yet.
    let mut silent = false;
    for (index, turn) in turns.iter().enumerate() {
        if turn.name.is_some() {
            draft.drop("name");
        }
        if index < leading {
            texts(&turn.parts, &mut system, draft);
            continue;
        }
        let (role, blocks) = match turn.role {
            Role::System | Role::Developer => {
                let mut blocks = Vec::new();
                texts(&turn.parts, &mut blocks, draft);
                if !blocks.is_empty() {
                    draft.late_system();
                }
                ("system", blocks)
            }
            Role::Assistant => ("assistant", answer(&turn.parts, renamed, draft)),
            Role::User | Role::Tool => ("user", question(&turn.parts, draft)?),
        };
        if blocks.is_empty() {
            silent |= role == "user" && messages.last().is_none_or(|last| last.role != "user");
            continue;
        }
        if silent && role == "assistant" {
            break;
        }
        silent &= role != "user";
        add(&mut messages, role, blocks);
    }
    if silent {
        return Err(unmappable("messages", "a message of the user says nothing"));
    }
    check(&messages)?;
    Ok(Said { system, messages })
}

/// Adds blocks to the last turn if it is of the same side: results before the rest.
fn add<'a>(messages: &mut Vec<Message<'a>>, role: &'static str, blocks: Vec<Block<'a>>) {
    match messages.last_mut() {
        Some(last) if last.role == role => {
            let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
            let (results, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
            let at = last.content.iter().take_while(|block| is_result(block)).count();
            last.content.splice(at..at, results);
            last.content.extend(rest);
        }
        _ => messages.push(Message {
            role,
            content: blocks,
        }),
    }
}

/// Refuses what no upstream takes: a beginning that is not the user's, calls without results, results without calls.
fn check(messages: &[Message<'_>]) -> Result<(), Unmappable> {
    let first = messages.iter().find(|message| message.role != "system");
    if first.is_none_or(|first| first.role != "user") {
        return Err(unmappable("messages", "the first message must be the user's"));
    }
    let mut open: HashSet<&str> = HashSet::new();
    for message in messages {
        let answered = message.content.iter().filter_map(|block| match block {
            Block::ToolResult { tool_use_id, .. } => Some(tool_use_id.as_str()),
            _ => None,
        });
        for id in answered {
            if !open.remove(id) {
                return Err(unmappable(
                    "messages",
                    "a result must follow its call at once, and only one",
                ));
            }
        }
        if !open.is_empty() {
            return Err(unmappable(
                "messages",
                "every call must be followed by its result",
            ));
        }
        open.extend(message.content.iter().filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.as_str()),
            _ => None,
        }));
    }
    if open.is_empty() {
        return Ok(());
    }
    Err(unmappable(
        "messages",
        "every call must be followed by its result",
    ))
}

/// A text, unless there is nothing but space in it: upstreams refuse that.
fn text<'a>(text: &'a str, cache: Option<&'a RawValue>, draft: &mut Draft<'_>) -> Option<Block<'a>> {
    (!text.trim().is_empty()).then(|| Block::Text {
        text,
        cache_control: draft.mark(cache),
    })
}

fn texts<'a>(parts: &'a [Part], blocks: &mut Vec<Block<'a>>, draft: &mut Draft<'_>) {
    for part in parts {
        if let Part::Text { text: said, cache } = part {
            blocks.extend(text(said, cache.as_deref(), draft));
        }
    }
}

fn question<'a>(parts: &'a [Part], draft: &mut Draft<'_>) -> Result<Vec<Block<'a>>, Unmappable> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Text { text: said, cache } => blocks.extend(text(said, cache.as_deref(), draft)),
            Part::Refusal(said) => blocks.extend(text(said, None, draft)),
            Part::Image { source, detail } => {
                if detail.as_deref().is_some_and(|detail| detail != "auto") {
                    draft.drop("detail");
                }
                blocks.push(Block::Image {
                    source: material::image(source)?,
                });
            }
            Part::Audio { .. } => {
                return Err(unmappable("input_audio", "Anthropic's models hear nothing"));
            }
            Part::File { source, name } => blocks.push(Block::Document {
                source: material::document(source)?,
                title: name.as_deref().filter(|name| !name.is_empty()),
            }),
            Part::ToolResult { id, parts, failed } => blocks.push(Block::ToolResult {
                tool_use_id: id::of_call(id),
                content: question(parts, draft)?,
                is_error: *failed,
            }),
            Part::Thinking { .. } | Part::ToolCall(_) => {}
        }
    }
    Ok(blocks)
}

fn answer<'a>(parts: &'a [Part], renamed: &Renamed<'a>, draft: &mut Draft<'_>) -> Vec<Block<'a>> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Text { text: said, cache } => blocks.extend(text(said, cache.as_deref(), draft)),
            Part::Refusal(said) => blocks.extend(text(said, None, draft)),
            Part::Thinking { text, proof } => match thought(text, proof.as_ref()) {
                Some(block) => blocks.push(block),
                None => draft.drop(THOUGHTS),
            },
            Part::ToolCall(call) => blocks.push(Block::ToolUse {
                id: id::of_call(&call.id),
                name: renamed.sent(call.namespace.as_deref(), &call.name),
                input: input(call, draft),
            }),
            Part::Image { .. } | Part::Audio { .. } | Part::File { .. } | Part::ToolResult { .. } => {}
        }
    }
    blocks
}

/// A thought that Anthropic proved: it takes no other.
fn thought<'a>(text: &'a str, proof: Option<&'a Proof>) -> Option<Block<'a>> {
    let proof = proof.filter(|proof| proof.maker == ProofMaker::Anthropic && !proof.text.is_empty())?;
    Some(if proof.redacted {
        Block::RedactedThinking { data: &proof.text }
    } else {
        Block::Thinking {
            thinking: text,
            signature: &proof.text,
        }
    })
}

/// The input of a call; what is no object becomes one without members, and is reported.
fn input<'a>(call: &'a Call, draft: &mut Draft<'_>) -> Cow<'a, RawValue> {
    if call.custom {
        if let Ok(raw) = RawValue::from_string(free_text(&call.arguments)) {
            return Cow::Owned(raw);
        }
    } else if let Ok(raw) = serde_json::from_str::<&RawValue>(&call.arguments)
        && raw.get().starts_with('{')
    {
        return Cow::Borrowed(raw);
    }
    if !call.arguments.trim().is_empty() {
        draft.drop("messages.tool_calls.arguments");
    }
    Cow::Owned(RawValue::from_string("{}".to_owned()).unwrap_or_default())
}
