//! Whole answers of Anthropic Messages, to and from the superset.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::frame::{Block, Message, Told, text, word};
use super::usage::{Figures, Tally};
use super::wrapped::free_text;
use super::{call, id, proof, reason};
use crate::chat::error::parse_upstream_error;
use crate::superset::answer::{Answer, Broken};
use crate::superset::event::Reply;
use crate::superset::request::{Call, Part, Proof, ProofMaker};

/// Reads an upstream's answer.
pub fn decode(body: &[u8]) -> Result<Answer, Broken> {
    let message: Message<'_> = serde_json::from_slice(body).map_err(|_| Broken::Malformed)?;
    if word(message.kind) == "error" || message.error.is_some() {
        let error = parse_upstream_error(body).unwrap_or_default();
        return Err(Broken::Told(Box::new(error)));
    }
    let blocks = message.content.ok_or(Broken::Malformed)?;
    let why = word(message.stop_reason);
    if why.is_empty() {
        return Err(Broken::Empty);
    }
    let mut ids = call::Ids::of(message.id);
    let mut parts = Vec::new();
    for block in blocks {
        parts.extend(part(&block, &mut ids)?);
    }
    let sequence = text(message.stop_sequence).ok_or(Broken::Malformed)?;
    Ok(Answer {
        parts,
        finish: reason::read(why, ids.any()),
        stop_sequence: (!sequence.is_empty()).then(|| sequence.into_owned()),
        usage: Tally::default().read(message.usage),
    })
}

/// What a block is; `None` for one of no interest to other dialects, or with nothing in it.
fn part(block: &Block<'_>, ids: &mut call::Ids) -> Result<Option<Part>, Broken> {
    let string = |raw| {
        text(raw)
            .ok_or(Broken::Malformed)
            .map(std::borrow::Cow::into_owned)
    };
    let proof = |text: String, redacted| {
        (!text.is_empty()).then_some(Proof {
            maker: ProofMaker::Anthropic,
            text,
            redacted,
        })
    };
    Ok(match word(block.kind) {
        "text" => Some(string(block.text)?)
            .filter(|text| !text.is_empty())
            .map(|text| Part::Text { text, cache: None }),
        "thinking" => {
            let (text, proof) = (string(block.thinking)?, proof(string(block.signature)?, false));
            (!text.is_empty() || proof.is_some()).then_some(Part::Thinking { text, proof })
        }
        "redacted_thinking" => proof(string(block.data)?, true).map(|proof| Part::Thinking {
            text: String::new(),
            proof: Some(proof),
        }),
        "tool_use" => {
            let name = string(block.name)?;
            if name.is_empty() {
                return Err(Broken::Malformed);
            }
            Some(Part::ToolCall(Call {
                id: ids.next(block.id)?.1,
                name,
                namespace: None,
                arguments: arguments(block.input)?,
                custom: false,
                proof: None,
            }))
        }
        _ => None,
    })
}

/// An input as it was written: an object, or none at all.
fn arguments(input: Told<'_>) -> Result<String, Broken> {
    match input.map(RawValue::get) {
        None => Ok("{}".to_owned()),
        Some(input) if input.starts_with('{') => Ok(input.to_owned()),
        Some(_) => Err(Broken::Malformed),
    }
}

#[derive(Serialize)]
struct Written<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Content<'a>>,
    stop_reason: &'static str,
    stop_sequence: Option<&'a str>,
    usage: Figures,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Box<RawValue>,
    },
}

/// Writes an answer for a caller.
pub fn encode(answer: &Answer, reply: &Reply) -> Bytes {
    let calls = answer.calls().next().is_some();
    let refused = answer.parts.iter().any(|part| matches!(part, Part::Refusal(_)));
    let word = reason::write(answer.finish, calls, refused);
    let mut content = Vec::with_capacity(answer.parts.len());
    for part in &answer.parts {
        write(part, reply.hides_thinking, &mut content);
    }
    let written = Written {
        id: format!("msg_{}", reply.id),
        r#type: "message",
        role: "assistant",
        model: &reply.model,
        content,
        stop_reason: word,
        stop_sequence: answer
            .stop_sequence
            .as_deref()
            .filter(|_| word == "stop_sequence"),
        usage: Figures::of(answer.usage, reply, answer.output_bytes()),
    };
    serde_json::to_vec(&written).unwrap_or_default().into()
}

fn write<'a>(part: &'a Part, hides_thinking: bool, content: &mut Vec<Content<'a>>) {
    match part {
        Part::Text { text, .. } | Part::Refusal(text) if !text.is_empty() => {
            content.push(Content::Text { text });
        }
        Part::Thinking { .. } if hides_thinking => {}
        Part::Thinking {
            text,
            proof: Some(proof),
        } if proof.redacted => {
            // Words that came with it are shown in a thought of their own: a redacted one has no room for them.
            if !text.is_empty() {
                content.push(thinking(text, None));
            }
            content.push(Content::RedactedThinking {
                data: proof::write(proof.maker, &proof.text),
            });
        }
        Part::Thinking { text, proof } => content.push(thinking(text, proof.as_ref())),
        Part::ToolCall(call) => {
            let id = id::of_call(&call.id);
            if let Some(proof) = &call.proof {
                content.push(Content::RedactedThinking {
                    data: proof::write_call(proof.maker, &id, &proof.text),
                });
            }
            content.push(Content::ToolUse {
                id,
                name: match &call.namespace {
                    Some(namespace) => id::of_tool(Some(namespace), &call.name),
                    None => call.name.clone(),
                },
                input: input(call),
            });
        }
        _ => {}
    }
}

fn thinking<'a>(text: &'a str, proof: Option<&Proof>) -> Content<'a> {
    Content::Thinking {
        thinking: text,
        signature: proof.map_or_else(
            || proof::UNPROVED.to_owned(),
            |proof| proof::write(proof.maker, &proof.text),
        ),
    }
}

/// The input of a call: an object whatever the upstream said.
fn input(call: &Call) -> Box<RawValue> {
    let arguments = if call.custom {
        free_text(&call.arguments)
    } else {
        call.arguments.clone()
    };
    match serde_json::from_str::<Box<RawValue>>(&arguments) {
        Ok(raw) if raw.get().starts_with('{') => raw,
        _ => RawValue::from_string("{}".to_owned()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
