//! Repairs of a request that passes as it came, for servers that refuse what others let through: instructions that
//! are not one message at the front, and earlier calls whose arguments are not the text of a JSON object. Everything
//! else stays byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::arguments;
use crate::splice::{Edit, splice};

/// What stands between instructions that were apart.
const BETWEEN: &str = "\n\n";
const SYSTEM: &str = "\"system\"";
const DEVELOPER: &str = "\"developer\"";

type Told<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Told<'a>,
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
    function_call: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
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

/// The request repaired, `None` when there is nothing to repair. With `one_system` several instructions, or late ones,
/// become one message at the front, their texts joined by blank lines, and it is the system's; with `arguments`
/// arguments of earlier calls that are an object become its text, and what is no object becomes an empty one.
pub fn mend(body: &Bytes, one_system: bool, arguments: bool) -> Option<Bytes> {
    let list = serde_json::from_slice::<Body<'_>>(body).ok()?.messages?;
    let raws: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let read = raws.iter().map(|raw| serde_json::from_str(raw.get()));
    let messages: Vec<Message<'_>> = read.collect::<Result<_, _>>().ok()?;
    let mut edits = Vec::new();
    if arguments {
        for message in &messages {
            argument_edits(body, message, &mut edits);
        }
    }
    if one_system && let Some(together) = Together::of(&messages) {
        match together {
            Together::Role(role) => edits.insert(0, edit(body, role, SYSTEM.to_owned())),
            Together::Text(text) => {
                let rest = raws
                    .iter()
                    .zip(&messages)
                    .filter(|(_, message)| !message.instructs());
                let rest = rest.map(|(raw, _)| spliced(body, span(body, raw), &edits));
                edits = vec![edit(body, list, joined(&text, rest))];
            }
        }
    }
    (!edits.is_empty()).then(|| splice(body, &edits))
}

/// What is to be done about instructions.
enum Together<'a> {
    /// Only the name of the one who gives them is not known everywhere.
    Role(&'a RawValue),
    /// They are to be one message of this text.
    Text(String),
}

impl<'a> Together<'a> {
    fn of(messages: &[Message<'a>]) -> Option<Self> {
        let count = messages.iter().filter(|message| message.instructs()).count();
        let first = messages.first()?;
        match count {
            0 => None,
            1 if first.is(DEVELOPER) => first.role.map(Self::Role),
            1 if first.is(SYSTEM) => None,
            _ => {
                let texts = messages
                    .iter()
                    .filter(|message| message.instructs())
                    .map(Message::text);
                let mut texts = texts.collect::<Option<Vec<String>>>()?;
                texts.retain(|text| !text.is_empty());
                Some(Self::Text(texts.join(BETWEEN)))
            }
        }
    }
}

/// The list of messages with `text` at its front.
fn joined(text: &str, rest: impl Iterator<Item = Bytes>) -> BytesMut {
    #[derive(Serialize)]
    struct System<'a> {
        role: &'static str,
        content: &'a str,
    }
    let system = System {
        role: "system",
        content: text,
    };
    let mut list = BytesMut::from(&b"["[..]);
    // Text always serializes.
    list.put_slice(&serde_json::to_vec(&system).unwrap_or_default());
    for message in rest {
        list.put_u8(b',');
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mended(body: &str, one_system: bool, arguments: bool) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        mend(&body, one_system, arguments).map(|body| String::from_utf8(body.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn instructions_become_one_message_at_the_front_and_nothing_else_changes() {
        let body = r#"{ "seed":1.0, "messages":[ {"role":"user","content":"a \u00e9"} , {"role":"system","content":"one"},
            {"role": "assistant","content":null }, {"content":[{"type":"text","text":"two"},{"type":"text","text":"three"}],"role":"developer"} ], "x" : 1e2 }"#;

        let expected = r#"{ "seed":1.0, "messages":[{"role":"system","content":"one\n\ntwo\n\nthree"},{"role":"user","content":"a \u00e9"},{"role": "assistant","content":null }], "x" : 1e2 }"#;
        assert_eq!(mended(body, true, true).as_deref(), Some(expected));
        assert_eq!(mended(body, false, true), None);
        assert_eq!(mended(expected, true, true), None);
    }

    #[test]
    fn one_leading_message_of_a_developer_is_the_systems() {
        let body = r#"{"messages":[{"role":"developer","content":[{"type":"text","text":"x"}],"name":"d"},{"role":"user","content":"y"}]}"#;

        let expected = body.replace("developer", "system");
        assert_eq!(mended(body, true, false), Some(expected));
    }

    #[test]
    fn instructions_that_are_more_than_text_are_left_alone() {
        let body = r#"{"messages":[{"role":"system","content":"x"},{"role":"system","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}"#;

        assert_eq!(mended(body, true, true), None);
    }

    #[test]
    fn arguments_of_earlier_calls_become_the_text_of_an_object() {
        let call = |arguments: &str| {
            format!(
                r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"arguments": {arguments}, "name":"f"}}}}]}},{{"role":"system","content":"s"}}]}}"#
            )
        };

        for (written, read) in [
            (r#""{""#, r#""{}""#),
            (r#""""#, r#""{}""#),
            (r#""[\"x\"]""#, r#""{}""#),
            ("null", r#""{}""#),
            (r#"{ "a" : 1.0 }"#, r#""{ \"a\" : 1.0 }""#),
        ] {
            let expected = if written == "null" { None } else { Some(call(read)) };
            assert_eq!(mended(&call(written), false, true), expected);
            assert_eq!(mended(&call(written), false, false), None);
        }
        assert_eq!(mended(&call(r#""{\"a\":1}""#), false, true), None);
        let both = mended(&call(r#""{""#), true, true).expect("mended");
        assert!(both.starts_with(r#"{"messages":[{"role":"system","content":"s"},{"role":"assistant""#));
        assert!(both.contains(r#""arguments": "{}", "name""#));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_and_what_was_mended_needs_no_more(
            roles in proptest::collection::vec((0_usize..5, "[a-z\"\\\\\n]{0,6}", 0_usize..6), 0..6),
        ) {
            const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
            const ARGUMENTS: [&str; 6] = ["{}", "\"{}\"", "\"{\"", "[1]", "7", "null"];
            let messages: Vec<String> = roles.iter().map(|(role, text, arguments)| {
                let content = serde_json::to_string(text).expect("text");
                format!(
                    r#"{{"role":"{}","content":{content},"tool_calls":[{{"function":{{"arguments":{}}}}}]}}"#,
                    ROLES[*role], ARGUMENTS[*arguments],
                )
            }).collect();
            let body = format!(r#"{{"messages":[{}],"tail":0}}"#, messages.join(" , "));

            let once = mended(&body, true, true).unwrap_or(body);

            prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok(), "{once}");
            prop_assert_eq!(mended(&once, true, true), None);
        }
    }
}
