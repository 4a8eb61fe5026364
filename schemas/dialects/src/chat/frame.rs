//! The top level that a chunk and a whole answer share, read in one pass.

use std::fmt;
use std::ops::Range;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::choices::{Choices, Found};
use super::chunk::Fault;
use super::ends::Ends;
use super::error::{self, UpstreamError};
use super::halves;
use super::usage::UsageFacts;

/// What was found in a chunk or answer.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) model_span: Option<Range<usize>>,
    pub(super) found: Found,
    /// The last content, where it is a string without escapes.
    pub(super) content_span: Option<Range<usize>>,
    pub(super) usage: Option<UsageFacts>,
    /// The usage is of one choice, whatever others there are.
    pub(super) usage_of_one: bool,
    pub(super) error: Option<UpstreamError>,
    pub(super) ends: Ends,
}

/// Members as they are read.
#[derive(Default)]
struct Draft<'a> {
    model: Option<&'a RawValue>,
    found: Found,
    usage: Option<UsageFacts>,
    groq_usage: Option<UsageFacts>,
    timings: Option<UsageFacts>,
    error: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
}

/// Reads one JSON object.
pub(super) fn read(text: &str) -> Result<Frame, serde_json::Error> {
    let read = read_whole(text);
    if read.is_ok() {
        return read;
    }
    // As long as it, so what stands where in the one stands there in the other.
    halves::replaced(text).map_or(read, |whole| read_whole(&whole))
}

fn read_whole(text: &str) -> Result<Frame, serde_json::Error> {
    let mut draft = Draft::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(FrameVisitor(&mut draft))?;
    deserializer.end()?;
    let error = match (
        draft.error.and_then(|raw| error::of_member(raw.get())),
        draft.object,
    ) {
        (None, Some(object)) if object.get() == "\"error\"" => error::parse_upstream_error(text.as_bytes()),
        (error, _) => error,
    };
    let span = |(address, length): (usize, usize)| {
        let start = address.saturating_sub(text.as_ptr().addr());
        start..start + length
    };
    let model = draft
        .model
        .map(|raw| (raw.get().as_ptr().addr(), raw.get().len()));
    let stopped = std::mem::take(&mut draft.found.stopped);
    let ends = Ends {
        ended: draft.found.ended,
        called: draft.found.called,
        stopped: stopped.into_iter().map(|(index, at)| (index, span(at))).collect(),
    };
    Ok(Frame {
        ends,
        model_span: model.map(span),
        content_span: draft.found.text_at.map(span),
        found: draft.found,
        usage_of_one: draft.timings.is_some(),
        usage: draft.usage.or(draft.groq_usage).or(draft.timings),
        error,
    })
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Model,
    Object,
    Choices,
    Usage,
    XGroq,
    Timings,
    Error,
    #[serde(other)]
    Other,
}

impl<'a> Draft<'a> {
    fn member<M: MapAccess<'a>>(&mut self, field: &Field, map: &mut M) -> Result<(), M::Error> {
        match field {
            Field::Model => self.model(map.next_value()?),
            Field::Object => self.object = Some(map.next_value()?),
            Field::Choices => map.next_value_seed(Choices(&mut self.found))?,
            Field::Usage => self.usage = UsageFacts::read(raw(map)?).or(self.usage),
            Field::XGroq => self.groq_usage = UsageFacts::read_groq(raw(map)?),
            Field::Timings => self.timings = UsageFacts::read_timings(raw(map)?),
            Field::Error => self.error = Some(map.next_value()?),
            Field::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn model(&mut self, raw: &'a RawValue) {
        if !raw.get().starts_with('"') {
            return;
        }
        if self.model.is_some() {
            self.found.fault = Some(Fault::SecondModel);
        }
        self.model = Some(raw);
    }
}

/// The text of a member's value.
fn raw<'a, M: MapAccess<'a>>(map: &mut M) -> Result<&'a str, M::Error> {
    map.next_value::<&'a RawValue>().map(RawValue::get)
}

struct FrameVisitor<'d, 'a>(&'d mut Draft<'a>);

impl<'a> Visitor<'a> for FrameVisitor<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(field) = map.next_key::<Field>()? {
            self.0.member(&field, &mut map)?;
        }
        Ok(())
    }
}
