//! Thoughts of earlier answers in a request that passes.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::frame::{Told, text, word};
use super::super::proof::{self, Read};
use crate::member::members;
use crate::passage::hidden::{list_edit, place};
use crate::passage::history::{Edits, Fate, left};
use crate::splice::{Edit, json_string};
use crate::superset::request::ProofMaker;

/// What a model that may not think is told.
const DISABLED: &[u8] = br#"{"type":"disabled"}"#;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Told<'a>,
    thinking: Told<'a>,
    context_management: Told<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    role: Told<'a>,
    content: Told<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
    signature: Told<'a>,
    data: Told<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Management<'a> {
    #[serde(borrow)]
    edits: Told<'a>,
}

/// The edits that take thoughts out of a request: `all`, or those that are proved by a mark of ours. `None` where there
/// are none.
pub(crate) fn edits(body: &[u8], all: bool) -> Option<Edits> {
    let request: Request<'_> = serde_json::from_slice(body).ok()?;
    let messages = request.messages?;
    let mut found = Edits::default();
    let messages_left = left(messages, |message| turn(message.get(), all, &mut found))?;
    if thinks_by_budget(request.thinking) && lacks_thoughts(&messages_left) {
        do_not_think(body, &request, &mut found);
    }
    found.edits.push(Edit {
        range: place(body, messages)?,
        with: Bytes::from(format!("[{}]", messages_left.join(","))),
    });
    Some(found)
}

/// What becomes of a message. One that had nothing but thoughts goes: nothing may be empty.
fn turn(message: &str, all: bool, found: &mut Edits) -> Fate {
    let content = members(message.as_bytes())
        .unwrap_or_default()
        .into_iter()
        .find(|member| member.name == "content")
        .map(|member| member.value);
    let list = content
        .clone()
        .and_then(|at| serde_json::from_str::<&RawValue>(message.get(at)?).ok());
    let blocks = list.and_then(|list| left(list, |block| fate(block.get(), all, found)));
    let (Some(at), Some(blocks)) = (content, blocks) else {
        return Fate::Stays;
    };
    if blocks.is_empty() {
        return Fate::Goes;
    }
    let (before, after) = (message.get(..at.start), message.get(at.end..));
    Fate::Becomes(format!(
        "{}[{}]{}",
        before.unwrap_or_default(),
        blocks.join(","),
        after.unwrap_or_default()
    ))
}

fn fate(block: &str, all: bool, found: &mut Edits) -> Fate {
    let Ok(read) = serde_json::from_str::<Block<'_>>(block) else {
        return Fate::Stays;
    };
    let (name, redacted, raw) = match word(read.kind) {
        "thinking" => ("messages.content.thinking", false, read.signature),
        "redacted_thinking" => ("messages.content.redacted_thinking", true, read.data),
        _ => return Fate::Stays,
    };
    let told = text(raw).unwrap_or_default();
    if !all {
        if !proof::is_ours(&told) {
            return Fate::Stays;
        }
        if let (Read::Thought(own), Some(at)) = (
            proof::read(&told, redacted),
            raw.and_then(|raw| place(block.as_bytes(), raw)),
        ) && own.maker == ProofMaker::Anthropic
        {
            let quoted = json_string(&own.text);
            return Fate::Becomes(format!(
                "{}{}{}",
                block.get(..at.start).unwrap_or_default(),
                String::from_utf8_lossy(&quoted),
                block.get(at.end..).unwrap_or_default()
            ));
        }
    }
    found.drop(name);
    Fate::Goes
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
}

fn kind(raw: &RawValue) -> Option<String> {
    let typed: Typed<'_> = serde_json::from_str(raw.get()).ok()?;
    text(typed.kind).map(std::borrow::Cow::into_owned)
}

fn thinks_by_budget(thinking: Told<'_>) -> bool {
    thinking.and_then(kind).is_some_and(|kind| kind == "enabled")
}

/// True when the conversation goes on with results of calls and no thought is left before the calls: whoever thinks by
/// budget wants it there.
fn lacks_thoughts(messages: &[String]) -> bool {
    let mut calls = false;
    for message in messages.iter().rev() {
        let Ok(message) = serde_json::from_str::<Message<'_>>(message) else {
            return false;
        };
        let blocks = message
            .content
            .and_then(|content| serde_json::from_str::<Vec<&RawValue>>(content.get()).ok());
        let kinds: Vec<String> = blocks.unwrap_or_default().into_iter().filter_map(kind).collect();
        let has = |names: &[&str]| kinds.iter().any(|kind| names.contains(&kind.as_str()));
        match word(message.role) {
            "assistant" if has(&["thinking", "redacted_thinking"]) => return false,
            "assistant" => calls |= has(&["tool_use"]),
            _ if has(&["tool_result"]) => {}
            _ => break,
        }
    }
    calls
}

/// The model does not think, and nothing of the request needs that it does.
fn do_not_think(body: &[u8], request: &Request<'_>, found: &mut Edits) {
    let Some(range) = request.thinking.and_then(|thinking| place(body, thinking)) else {
        return;
    };
    found.drop("thinking");
    found.edits.push(Edit {
        range,
        with: Bytes::from_static(DISABLED),
    });
    let management = request
        .context_management
        .and_then(|raw| serde_json::from_str::<Management<'_>>(raw.get()).ok())
        .unwrap_or_default();
    let clears = |edit: &RawValue| kind(edit).is_some_and(|kind| kind.starts_with("clear_thinking"));
    if let Some(edit) = list_edit(body, management.edits, clears) {
        found.drop("context_management.edits");
        found.edits.push(edit);
    }
}
