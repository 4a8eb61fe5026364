//! Numbers and ids that servers leave out of answers that pass: clients put the pieces of a call together by its number,
//! and go on from it by its id. Calls are told apart as where answers are translated.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chunk::Fault;
use super::mint;
use crate::member::members;
use crate::passage::hidden::place;
use crate::splice::Edit;

/// Most calls of a stream that are told apart.
const CALLS_MAX: usize = 1024;
/// What is in every piece that may begin a call.
const NAME: &[u8] = b"\"name\"";

/// The calls of a stream so far.
#[derive(Debug, Default)]
pub struct Numbers {
    calls: Vec<Call>,
    /// Some call has another number than its server gave it.
    differs: bool,
}

#[derive(Debug)]
struct Call {
    choice: u64,
    /// The number that its server gave it.
    told: Option<u64>,
    /// The number that it has.
    number: u64,
    /// Its id; empty while there is none.
    id: String,
    named: bool,
    /// It has arguments.
    speaks: bool,
}

#[derive(Deserialize)]
struct Choices<'a> {
    #[serde(borrow, default)]
    choices: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "message")]
    delta: Option<Said<'a>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    tool_calls: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "custom")]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "input")]
    arguments: Option<&'a RawValue>,
}

/// The text of a value that says something.
fn filled(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get)
        .filter(|text| !matches!(*text, "null" | "\"\""))
}

/// A string, whose escapes may differ from piece to piece; other values as they are written.
fn text(json: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(json).map_or(Cow::Borrowed(json), |text| text.0)
}

fn number(raw: Option<&RawValue>) -> Option<u64> {
    raw.and_then(|raw| raw.get().parse().ok())
}

impl Numbers {
    /// What makes a chunk with pieces of calls, or one with this fault, say what its server left out, in rising order.
    pub(crate) fn edits(&mut self, data: &[u8], fault: Option<Fault>) -> Vec<Edit> {
        let lacks = matches!(
            fault,
            Some(Fault::ChoiceWithoutIndex | Fault::ToolCallWithoutIndex)
        );
        if !lacks && !self.differs && memmem::find(data, NAME).is_none() {
            return Vec::new();
        }
        let mut edits = Vec::new();
        for (position, raw) in (0..).zip(choices(data)) {
            let Ok(choice) = serde_json::from_str::<Choice<'_>>(raw.get()) else {
                continue;
            };
            let index = number(choice.index).unwrap_or(position);
            if filled(choice.index).is_none() {
                edits.extend(with(data, raw, &[("index", index.to_string())]));
            }
            let calls = choice.delta.and_then(|delta| delta.tool_calls);
            for raw in calls.unwrap_or_default() {
                if let Ok(piece) = serde_json::from_str::<Piece<'_>>(raw.get()) {
                    let lacking = self.lacking(index, &piece, data);
                    edits.extend(with(data, raw, &lacking));
                }
            }
        }
        edits.sort_by_key(|edit| edit.range.start);
        edits
    }

    /// Members that a piece of a call lacks, or has with another value.
    fn lacking(&mut self, choice: u64, piece: &Piece<'_>, data: &[u8]) -> Vec<(&'static str, String)> {
        let mut lacking = Vec::new();
        let told = number(piece.index);
        let name = piece.function.as_ref().and_then(|function| filled(function.name));
        let arguments = piece
            .function
            .as_ref()
            .and_then(|function| filled(function.arguments));
        let id = filled(piece.id).map(text);
        let Some(at) = self.call(choice, told, (id.as_deref(), name.is_some())) else {
            return lacking;
        };
        let Some(call) = self.calls.get_mut(at) else {
            return lacking;
        };
        if told != Some(call.number) {
            lacking.push(("index", call.number.to_string()));
        }
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            call.id = id.into_owned();
        }
        if call.id.is_empty() && name.is_some() {
            let event = String::from_utf8_lossy(data);
            let id = mint::call_id(&[&event, &choice.to_string(), &call.number.to_string()]);
            lacking.push(("id", format!("\"{id}\"")));
            call.id = id;
        }
        call.named |= name.is_some();
        call.speaks |= arguments.is_some();
        lacking
    }

    /// The call that a piece belongs to.
    fn call(&mut self, choice: u64, told: Option<u64>, (id, named): (Option<&str>, bool)) -> Option<usize> {
        let found = self
            .calls
            .iter()
            .rposition(|call| call.choice == choice && (told.is_none() || call.told == told));
        let is_other = |call: &Call| match id {
            Some(id) => named && !call.id.is_empty() && call.id != id,
            None => named && told.is_none() && call.named && call.speaks,
        };
        if let Some(at) = found
            && self.calls.get(at).is_some_and(|call| !is_other(call))
        {
            return Some(at);
        }
        if self.calls.len() >= CALLS_MAX {
            return None;
        }
        let mut own = self.calls.iter().filter(|call| call.choice == choice);
        let next = own.clone().map(|call| call.number + 1).max().unwrap_or(0);
        let number = told
            .filter(|told| own.all(|call| call.number != *told))
            .unwrap_or(next);
        self.differs |= told != Some(number);
        self.calls.push(Call {
            choice,
            told,
            number,
            id: String::new(),
            named: false,
            speaks: false,
        });
        Some(self.calls.len() - 1)
    }
}

/// What gives the calls of a whole answer the ids that they lack, in rising order.
pub(crate) fn ids(body: &[u8]) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (position, raw) in (0..).zip(choices(body)) {
        let choice = serde_json::from_str::<Choice<'_>>(raw.get()).ok();
        let calls = choice.and_then(|choice| choice.delta?.tool_calls);
        for (number, raw) in (0..).zip(calls.unwrap_or_default()) {
            let piece = serde_json::from_str::<Piece<'_>>(raw.get());
            if piece.is_ok_and(|piece| filled(piece.id).is_none()) {
                let text = String::from_utf8_lossy(body);
                let id = mint::call_id(&[&text, &format!("{position}.{number}")]);
                edits.extend(with(body, raw, &[("id", format!("\"{id}\""))]));
            }
        }
    }
    edits
}

fn choices(data: &[u8]) -> Vec<&RawValue> {
    serde_json::from_slice::<Choices<'_>>(data).map_or_else(|_| Vec::new(), |told| told.choices)
}

/// What gives an object members with these values.
fn with(data: &[u8], object: &RawValue, values: &[(&str, String)]) -> Vec<Edit> {
    let (Some(at), Some(own)) = (place(data, object), members(object.get().as_bytes())) else {
        return Vec::new();
    };
    let mut edits = Vec::new();
    let mut new = String::new();
    for (name, value) in values {
        match own.iter().find(|member| member.name == *name) {
            Some(member) => edits.push(Edit {
                range: within(&at, &member.value),
                with: Bytes::from(value.clone()),
            }),
            None => {
                for piece in ["\"", name, "\":", value, ","] {
                    new.push_str(piece);
                }
            }
        }
    }
    if !new.is_empty() {
        if own.is_empty() {
            new.pop();
        }
        edits.push(Edit {
            range: at.start + 1..at.start + 1,
            with: Bytes::from(new),
        });
    }
    edits
}

/// A range of a range.
const fn within(outer: &Range<usize>, inner: &Range<usize>) -> Range<usize> {
    outer.start + inner.start..outer.start + inner.end
}

#[cfg(test)]
mod tests;
