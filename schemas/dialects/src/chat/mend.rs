//! Repairs of a request that passes as it came, for servers that refuse what others let through: instructions that
//! are not one message at the front or a developer's, earlier calls whose arguments are not the text of a JSON object, calls and results
//! that are apart, names, tools without a schema, and schemas of a form of their own. Everything else stays byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::arguments;
use crate::member::removals;
use crate::passage::request::Suspicion;
use crate::profile::Profile;
use crate::splice::{Edit, splice};

mod order;
mod tools;

/// What stands between instructions that were apart.
const BETWEEN: &str = "\n\n";
const SYSTEM: &str = "\"system\"";
const DEVELOPER: &str = "\"developer\"";
/// Roles of those who may have a name.
const SPEAKERS: [&str; 4] = [SYSTEM, DEVELOPER, "\"user\"", "\"assistant\""];
/// Their names' member.
const NAME: &str = "name";

type Told<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Told<'a>,
    tools: Told<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Told<'a>,
    #[serde(borrow)]
    content: Told<'a>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow)]
    tool_call_id: Told<'a>,
    #[serde(borrow)]
    function_call: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Told<'a>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Told<'a>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    text: Option<String>,
}

impl Message<'_> {
    fn is(&self, role: &str) -> bool {
        self.role.is_some_and(|told| told.get() == role)
    }

    fn instructs(&self) -> bool {
        self.is(SYSTEM) || self.is(DEVELOPER)
    }

    /// Its text, `None` when there is more in it.
    fn text(&self) -> Option<String> {
        let Some(content) = self.content else {
            return Some(String::new());
        };
        if let Ok(text) = serde_json::from_str(content.get()) {
            return Some(text);
        }
        let parts: Vec<Part<'_>> = serde_json::from_str(content.get()).ok()?;
        let texts = parts
            .into_iter()
            .map(|part| part.text.filter(|_| part.kind == "text"));
        Some(texts.collect::<Option<Vec<String>>>()?.join(BETWEEN))
    }
}

/// What the server of a request refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one server and one request"
)]
pub struct Needs {
    /// Several instructions, or late ones: they become one message at the front, their texts joined by blank lines,
    /// and it is the system's.
    pub one_system: bool,
    /// Messages of the role `developer`: they are the system's.
    pub roles: bool,
    /// Arguments of earlier calls that are no text of an object: an object becomes its text, anything else an empty
    /// one.
    pub arguments: bool,
    /// Calls whose results do not follow at once, and results that follow no call: the former are dropped, the latter
    /// become the user's.
    pub results_follow: bool,
    /// Names of speakers: they are dropped.
    pub names: bool,
    /// Tools without a schema: they get an empty one.
    pub parameters: bool,
    /// Schemas with a `type` beside `anyOf`: it goes into the branches.
    pub types_in_branches: bool,
}

impl Needs {
    /// What of it the server of `profile` wants done about a request that is suspected of so much.
    pub fn of(profile: &Profile, suspicion: Suspicion, body: &[u8]) -> Self {
        let has = |text: &[u8]| memmem::find(body, text).is_some();
        Self {
            one_system: suspicion.systems && profile.one_system,
            roles: !profile.developer && suspicion.developer,
            arguments: suspicion.arguments,
            results_follow: profile.results_follow && (has(b"\"tool_calls\"") || has(b"\"tool\"")),
            names: profile.drops.contains(&NAME) && has(b"\"name\""),
            parameters: profile.parameters_required && has(b"\"tools\""),
            types_in_branches: profile.types_in_branches && has(b"\"anyOf\""),
        }
    }

    /// True where nothing is to be done.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A request that was repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// It.
    pub body: Bytes,
    /// What was dropped: calls by their place, and names of speakers.
    pub dropped: Vec<Cow<'static, str>>,
}

/// The request repaired as far as it `needs`, `None` when there is nothing to repair.
pub fn mend(body: &Bytes, needs: Needs) -> Option<Mended> {
    let request = serde_json::from_slice::<Body<'_>>(body).ok()?;
    let mut edits = Vec::new();
    let mut dropped = Vec::new();
    if let Some(list) = request.messages {
        messages(body, list, needs, (&mut edits, &mut dropped));
    }
    if let Some(tools) = request
        .tools
        .filter(|_| needs.parameters || needs.types_in_branches)
    {
        tools::edits(body, tools, needs, &mut edits);
    }
    edits.sort_by_key(|edit| edit.range.start);
    (!edits.is_empty()).then(|| Mended {
        body: splice(body, &edits),
        dropped,
    })
}

/// What is to be done about messages; nothing where they cannot be read.
fn messages(
    body: &Bytes,
    list: &RawValue,
    needs: Needs,
    (edits, dropped): (&mut Vec<Edit>, &mut Vec<Cow<'static, str>>),
) {
    let Ok(raws) = serde_json::from_str::<Vec<&RawValue>>(list.get()) else {
        return;
    };
    let read = raws.iter().map(|raw| serde_json::from_str(raw.get()));
    let Ok(messages) = read.collect::<Result<Vec<Message<'_>>, _>>() else {
        return;
    };
    if needs.arguments {
        for message in &messages {
            argument_edits(body, message, edits);
        }
    }
    if needs.names {
        let before = edits.len();
        for (raw, message) in raws.iter().zip(&messages) {
            edits.extend(name_edits(body, raw, message));
        }
        if edits.len() > before {
            dropped.push(NAME.into());
            edits.sort_by_key(|edit| edit.range.start);
        }
    }
    if needs.roles {
        let developers = messages.iter().filter(|message| message.is(DEVELOPER));
        let roles = developers.filter_map(|message| message.role);
        edits.extend(roles.map(|role| edit(body, role, SYSTEM)));
        edits.sort_by_key(|edit| edit.range.start);
    }
    let text = needs.one_system.then(|| together(&messages)).flatten();
    let order = needs.results_follow.then(|| order::of(&messages)).flatten();
    if text.is_none() && order.is_none() {
        return;
    }
    let steps = order.unwrap_or_else(|| order::unchanged(messages.len()));
    let mut written = Vec::with_capacity(raws.len());
    for step in &steps {
        let place = step.place();
        let Some((raw, message)) = raws.get(place).zip(messages.get(place)) else {
            continue;
        };
        if text.is_some() && message.instructs() {
            continue;
        }
        let as_it_is = |raw: &RawValue| spliced(body, span(body, raw), edits);
        written.extend(step.written(raw, message, &as_it_is));
        dropped.extend(step.dropped(message));
    }
    *edits = vec![edit(body, list, joined(text.as_deref(), written))];
}

/// The text of the one message that instructions are to be; `None` where they are one at the front.
fn together(messages: &[Message<'_>]) -> Option<String> {
    let instructions = || messages.iter().filter(|message| message.instructs());
    let is_one = messages.first()?.instructs() && instructions().count() == 1;
    if is_one || instructions().next().is_none() {
        return None;
    }
    let mut texts = instructions()
        .map(Message::text)
        .collect::<Option<Vec<String>>>()?;
    texts.retain(|text| !text.is_empty());
    Some(texts.join(BETWEEN))
}

/// The list of messages, with `text` at its front.
fn joined(text: Option<&str>, rest: Vec<Bytes>) -> BytesMut {
    #[derive(Serialize)]
    struct System<'a> {
        role: &'static str,
        content: &'a str,
    }
    let system = text.map(|content| System {
        role: "system",
        content,
    });
    // Text always serializes.
    let system = system.map(|system| serde_json::to_vec(&system).unwrap_or_default().into());
    let mut list = BytesMut::from(&b"["[..]);
    for (place, message) in system.into_iter().chain(rest).enumerate() {
        if place > 0 {
            list.put_u8(b',');
        }
        list.put_slice(&message);
    }
    list.put_u8(b']');
    list
}

fn argument_edits(body: &Bytes, message: &Message<'_>, edits: &mut Vec<Edit>) {
    let calls = message.tool_calls.as_deref().unwrap_or_default();
    let functions = calls.iter().filter_map(|call| call.function.as_ref());
    let mut told: Vec<&RawValue> = functions
        .chain(&message.function_call)
        .filter_map(|function| function.arguments)
        .collect();
    told.sort_by_key(|raw| raw.get().as_ptr().addr());
    for raw in told {
        let (whole, _) = arguments::whole(raw.get());
        let same = raw.get().starts_with('"')
            && serde_json::from_str::<Cow<'_, str>>(raw.get()).is_ok_and(|text| text == whole);
        if !same {
            let quoted = serde_json::to_string(&whole).unwrap_or_default();
            edits.push(edit(body, raw, quoted));
        }
    }
}

/// Takes the name of a speaker out of what he says. That of a function is no speaker's.
fn name_edits(body: &Bytes, raw: &RawValue, message: &Message<'_>) -> Vec<Edit> {
    if !SPEAKERS.iter().any(|role| message.is(role)) {
        return Vec::new();
    }
    let start = span(body, raw).start;
    let inside = removals(raw.get().as_bytes(), &[NAME]).into_iter();
    let shifted = inside.map(|edit| Edit {
        range: start + edit.range.start..start + edit.range.end,
        with: edit.with,
    });
    shifted.collect()
}

/// Where a part of the body stands in it.
fn span(body: &Bytes, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr().saturating_sub(body.as_ptr().addr());
    start..start.saturating_add(raw.get().len())
}

fn edit(body: &Bytes, raw: &RawValue, with: impl Into<Vec<u8>>) -> Edit {
    Edit {
        range: span(body, raw),
        with: Bytes::from(with.into()),
    }
}

/// A part of the body with the edits that lie in it.
fn spliced(body: &Bytes, range: Range<usize>, edits: &[Edit]) -> Bytes {
    let from = edits.partition_point(|edit| edit.range.start < range.start);
    let inner = edits
        .iter()
        .skip(from)
        .take_while(|edit| edit.range.end <= range.end);
    let shifted: Vec<Edit> = inner
        .map(|edit| Edit {
            range: edit.range.start - range.start..edit.range.end - range.start,
            with: edit.with.clone(),
        })
        .collect();
    splice(&body.slice(range), &shifted)
}

#[cfg(test)]
mod tests;
