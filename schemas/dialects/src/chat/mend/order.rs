//! Calls and their results in strict order: each call is answered by a message right behind its turn, and each result
//! answers such a call. Pure: which messages stay, which lose calls, which become the user's.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::value::RawValue;

use super::{Message, Told};
use crate::chat::schema::members;

const ASSISTANT: &str = "\"assistant\"";
const TOOL: &str = "\"tool\"";
const CALLS: &str = "tool_calls";

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// It stays.
    Keep(usize),
    /// Only these of its calls stay, none for a turn that is left without any.
    Without {
        /// Which message.
        place: usize,
        /// Its calls that stay, by their place.
        kept: Vec<usize>,
    },
    /// Its content is told by the user.
    User(usize),
}

/// The messages in strict order; `None` where they are.
pub(super) fn of(messages: &[Message<'_>]) -> Option<Vec<Step>> {
    let mut steps = Vec::with_capacity(messages.len());
    let mut place = 0;
    while let Some(message) = messages.get(place) {
        let results = results_behind(messages, place + 1);
        if message.is(TOOL) {
            // It follows no call, and neither do those behind it.
            let orphans = place..=place + results;
            steps.extend(orphans.map(Step::User));
        } else if message.is(ASSISTANT) {
            turn(messages, place, results, &mut steps);
        } else {
            // What follows is looked at by itself.
            steps.push(Step::Keep(place));
            place += 1;
            continue;
        }
        place += 1 + results;
    }
    let same = steps.iter().enumerate().all(|(at, step)| *step == Step::Keep(at));
    (!same).then_some(steps)
}

/// All messages as they are.
pub(super) fn unchanged(count: usize) -> Vec<Step> {
    (0..count).map(Step::Keep).collect()
}

/// How many messages of tools follow each other from `place` on.
fn results_behind(messages: &[Message<'_>], place: usize) -> usize {
    let rest = messages.get(place..).unwrap_or_default();
    rest.iter().take_while(|message| message.is(TOOL)).count()
}

/// A turn of the model and the results behind it.
fn turn(messages: &[Message<'_>], place: usize, results: usize, steps: &mut Vec<Step>) {
    let calls = messages
        .get(place)
        .and_then(|message| message.tool_calls.as_deref());
    let ids: Vec<Told<'_>> = calls.unwrap_or_default().iter().map(|call| call.id).collect();
    let mut answered = vec![false; ids.len()];
    let (mut own, mut orphans) = (Vec::new(), Vec::new());
    for at in place + 1..=place + results {
        let told = messages.get(at).and_then(|message| text(message.tool_call_id));
        let open = |(n, id): (usize, &Told<'_>)| !answered[n] && told.is_some() && text(*id) == told;
        match ids.iter().enumerate().position(open) {
            Some(n) => {
                answered[n] = true;
                own.push(Step::Keep(at));
            }
            None => orphans.push(Step::User(at)),
        }
    }
    steps.push(if answered.iter().all(|answered| *answered) {
        Step::Keep(place)
    } else {
        let kept = answered.iter().enumerate().filter(|(_, answered)| **answered);
        Step::Without {
            place,
            kept: kept.map(|(n, _)| n).collect(),
        }
    });
    steps.append(&mut own);
    // Behind the results, which must follow their calls at once.
    steps.append(&mut orphans);
}

fn text(told: Told<'_>) -> Option<Cow<'_, str>> {
    serde_json::from_str::<String>(told?.get()).ok().map(Cow::Owned)
}

impl Step {
    /// Which message.
    pub(super) const fn place(&self) -> usize {
        match self {
            Self::Keep(place) | Self::User(place) | Self::Without { place, .. } => *place,
        }
    }

    /// Calls that are gone, by their place.
    pub(super) fn dropped(&self, message: &Message<'_>) -> Vec<Cow<'static, str>> {
        let Self::Without { place, kept } = self else {
            return Vec::new();
        };
        let calls = message.tool_calls.as_ref().map_or(0, Vec::len);
        let gone = (0..calls).filter(|call| !kept.contains(call));
        gone.map(|call| Cow::Owned(format!("messages.{place}.{CALLS}.{call}")))
            .collect()
    }

    /// The message as it is written; `None` for one that has nothing left to say. `as_it_is` gives the bytes of a part
    /// of the request with what else is repaired in it.
    pub(super) fn written(
        &self,
        raw: &RawValue,
        message: &Message<'_>,
        as_it_is: &dyn Fn(&RawValue) -> Bytes,
    ) -> Option<Bytes> {
        match self {
            Self::Keep(_) => Some(as_it_is(raw)),
            Self::User(_) => {
                let mut out = BytesMut::from(&br#"{"role":"user","content":"#[..]);
                match message.content.filter(|content| content.get() != "null") {
                    Some(content) => out.put_slice(&as_it_is(content)),
                    None => out.put_slice(b"\"\""),
                }
                out.put_u8(b'}');
                Some(out.freeze())
            }
            Self::Without { kept, .. } => {
                let silent = message
                    .content
                    .is_none_or(|content| matches!(content.get(), "null" | "\"\"" | "[]"));
                if kept.is_empty() && silent {
                    return None;
                }
                without(raw, kept, as_it_is)
            }
        }
    }
}

/// The message with these of its calls.
fn without(raw: &RawValue, kept: &[usize], as_it_is: &dyn Fn(&RawValue) -> Bytes) -> Option<Bytes> {
    let mut out = BytesMut::new();
    for (name, value) in members(raw.get())? {
        let value = if name != CALLS {
            as_it_is(value)
        } else if kept.is_empty() {
            continue;
        } else {
            calls(value, kept, as_it_is)?
        };
        out.put_u8(if out.is_empty() { b'{' } else { b',' });
        // Text always serializes.
        out.put_slice(&serde_json::to_vec(&name).unwrap_or_default());
        out.put_u8(b':');
        out.put_slice(&value);
    }
    out.put_u8(b'}');
    Some(out.freeze())
}

fn calls(list: &RawValue, kept: &[usize], as_it_is: &dyn Fn(&RawValue) -> Bytes) -> Option<Bytes> {
    let calls: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let mut out = BytesMut::new();
    for call in kept.iter().filter_map(|place| calls.get(*place)) {
        out.put_u8(if out.is_empty() { b'[' } else { b',' });
        out.put_slice(&as_it_is(call));
    }
    out.put_u8(b']');
    Some(out.freeze())
}
