//! Edits of a body by byte ranges. What is not edited stays as it came, and need not be copied: a body is a row of
//! pieces until somebody wants it whole.

use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use schemas::command::Splice;
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The options of a stream that reports usage.
const WITH_USAGE: &str = r#"{"include_usage":true}"#;

/// One range of a body, and what to put in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Bytes of the body to replace; empty to insert.
    pub range: Range<usize>,
    /// What stands there afterwards.
    pub with: Bytes,
}

/// A body in pieces that follow each other: what was not edited is a part of the body it came from, uncopied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spliced(Vec<Bytes>);

impl Spliced {
    /// Bytes of all pieces together.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// The pieces in their order, none of them empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }

    /// The whole, copied unless it is one piece.
    pub fn joined(&self) -> Bytes {
        if let [whole] = self.0.as_slice() {
            return whole.clone();
        }
        let mut joined = BytesMut::with_capacity(self.bytes());
        self.0.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.0.push(piece);
        }
    }
}

impl From<Bytes> for Spliced {
    fn from(whole: Bytes) -> Self {
        let mut spliced = Self::default();
        spliced.push(whole);
        spliced
    }
}

/// The body with `edits` applied. They are in rising order and do not overlap; one that does not fit is
/// left out.
pub fn splice(body: &Bytes, edits: &[Edit]) -> Bytes {
    pieces(body, edits).joined()
}

/// The same in pieces.
fn pieces(body: &Bytes, edits: &[Edit]) -> Spliced {
    let mut spliced = Spliced(Vec::with_capacity(2 * edits.len() + 1));
    let mut taken = 0;
    for edit in edits {
        let fits = (taken..=edit.range.end).contains(&edit.range.start) && edit.range.end <= body.len();
        if !fits {
            continue;
        }
        spliced.push(body.slice(taken..edit.range.start));
        spliced.push(edit.with.clone());
        taken = edit.range.end;
    }
    spliced.push(body.slice(taken..));
    spliced
}

/// The body of a chat request as the upstream shall see it: its own name for the model, where that differs,
/// and, for a stream with `inject_usage`, a request for usage.
pub fn chat_upstream_body(body: &Bytes, skim: &Splice, upstream_model: &str, inject_usage: bool) -> Spliced {
    let mut edits = Vec::new();
    if let Some(edit) = model_edit(body, skim.model, upstream_model) {
        edits.push(edit);
    }
    if inject_usage && skim.stream && !skim.include_usage {
        usage_edits(body, skim, &mut edits);
    }
    edits.sort_by_key(|edit| edit.range.start);
    pieces(body, &edits)
}

/// The model's value replaced, when it reads otherwise.
fn model_edit(body: &Bytes, (start, end): (usize, usize), upstream_model: &str) -> Option<Edit> {
    let current = body.get(start..end)?;
    if serde_json::from_slice::<std::borrow::Cow<'_, str>>(current).is_ok_and(|name| name == upstream_model) {
        return None;
    }
    Some(Edit {
        range: start..end,
        with: json_string(upstream_model),
    })
}

/// Text as a JSON string, quotes included.
pub fn json_string(text: &str) -> Bytes {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    // Text always serializes, and memory does not refuse to be written.
    let written = serde_json::to_writer(&mut quoted, text);
    debug_assert!(written.is_ok(), "text serializes");
    Bytes::from(quoted)
}

/// Sets `stream_options.include_usage`, keeping the other options.
fn usage_edits(body: &Bytes, skim: &Splice, edits: &mut Vec<Edit>) {
    let Some((start, end)) = skim.stream_options else {
        let member = Bytes::from(format!(r#""stream_options":{WITH_USAGE},"#));
        edits.push(Edit {
            range: skim.insert_at..skim.insert_at,
            with: member,
        });
        return;
    };
    let options = body
        .get(start..end)
        .and_then(|text| std::str::from_utf8(text).ok())
        .unwrap_or_default();
    match option_spans(options) {
        None => edits.push(Edit {
            range: start..end,
            with: Bytes::from_static(WITH_USAGE.as_bytes()),
        }),
        Some(found) if found.include_usage.is_empty() => {
            let member = if found.empty {
                r#""include_usage":true"#
            } else {
                r#""include_usage":true,"#
            };
            let at = start + 1;
            edits.push(Edit {
                range: at..at,
                with: Bytes::from_static(member.as_bytes()),
            });
        }
        Some(found) => edits.extend(found.include_usage.into_iter().map(|span| Edit {
            range: start + span.start..start + span.end,
            with: Bytes::from_static(b"true"),
        })),
    }
}

/// Where `include_usage` stands in the options of a stream.
struct OptionSpans {
    /// Each value it has, in the order of the text.
    include_usage: Vec<Range<usize>>,
    /// There are no options.
    empty: bool,
}

/// Reads the options; `None` when they are no object.
fn option_spans(options: &str) -> Option<OptionSpans> {
    let mut deserializer = serde_json::Deserializer::from_str(options);
    deserializer.deserialize_map(OptionsVisitor(options)).ok()
}

struct OptionsVisitor<'a>(&'a str);

impl<'a> Visitor<'a> for OptionsVisitor<'a> {
    type Value = OptionSpans;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<OptionSpans, M::Error> {
        let mut found = OptionSpans {
            include_usage: Vec::new(),
            empty: true,
        };
        while let Some(key) = map.next_key::<std::borrow::Cow<'a, str>>()? {
            found.empty = false;
            if key != "include_usage" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            let start = value.get().as_ptr().addr().saturating_sub(self.0.as_ptr().addr());
            found.include_usage.push(start..start + value.get().len());
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
