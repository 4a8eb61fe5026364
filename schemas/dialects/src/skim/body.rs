//! The top level of a chat request. Values are read into the types they must have; which member was being
//! read when the parser gave up tells a wrong value from broken JSON.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::prompt::{Messages, Prompt, Tools};
use super::{CHOICES_MAX, Skim, Error, Limits};

/// Members that decide something. The others are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Model,
    Messages,
    Stream,
    StreamOptions,
    Temperature,
    TopP,
    MaxTokens,
    MaxCompletionTokens,
    N,
    Tools,
    Functions,
    ToolChoice,
    FunctionCall,
    ResponseFormat,
    User,
    #[serde(other)]
    Other,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Messages => "messages",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::N => "n",
            Self::Tools => "tools",
            Self::Functions => "functions",
            Self::ToolChoice => "tool_choice",
            Self::FunctionCall => "function_call",
            Self::ResponseFormat => "response_format",
            Self::User => "user",
            Self::Other => "",
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Draft<'a> {
    model: Option<&'a RawValue>,
    stream: bool,
    stream_options: Option<&'a RawValue>,
    max_tokens: Option<u64>,
    choices: Option<u64>,
    tools: bool,
    response_format: Option<&'a RawValue>,
    user: Option<&'a RawValue>,
    prompt: Prompt,
    /// Members seen, a bit each.
    seen: u32,
    /// The member being read; `Other` between members.
    reading: Option<Field>,
    fault: Option<Error>,
}

/// Reads the body, whose nesting was checked.
pub(super) fn read(text: &str, limits: &Limits) -> Result<Skim, Error> {
    let insert_at = match text.find(|character: char| !character.is_ascii_whitespace()) {
        Some(at) if text.as_bytes().get(at) == Some(&b'{') => Some(at + 1),
        _ => None,
    };
    let mut draft = Draft::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = match insert_at {
        Some(_) => Body(&mut draft).deserialize(&mut deserializer),
        None => IgnoredAny::deserialize(&mut deserializer).map(drop),
    };
    parsed
        .and_then(|()| deserializer.end())
        .map_err(|error| draft.refusal(&error))?;
    draft.finish(text, insert_at.ok_or(Error::NotAnObject)?, limits)
}

impl<'a> Draft<'a> {
    /// Reads the value of one member.
    fn member<M: MapAccess<'a>>(&mut self, field: Field, map: &mut M) -> Result<(), M::Error> {
        match field {
            Field::Model => self.model = Some(map.next_value()?),
            Field::Messages => map.next_value_seed(Messages(&mut self.prompt))?,
            Field::Stream => self.stream = map.next_value::<Option<bool>>()?.unwrap_or(false),
            Field::StreamOptions => self.stream_options = Some(map.next_value()?),
            Field::Temperature => in_range(map.next_value()?, 2.0)?,
            Field::TopP => in_range(map.next_value()?, 1.0)?,
            Field::MaxTokens | Field::MaxCompletionTokens => {
                let count = map.next_value::<Option<Count>>()?.map(|count| count.0);
                self.max_tokens = self.max_tokens.max(count);
            }
            Field::N => self.choices = map.next_value::<Option<Count>>()?.map(|count| count.0),
            Field::Tools | Field::Functions => {
                self.tools |= map.next_value_seed(Tools(&mut self.prompt))?;
            }
            Field::ToolChoice | Field::FunctionCall => {
                let choice: &RawValue = map.next_value()?;
                self.tools |= !matches!(choice.get(), "null" | "\"none\"");
            }
            Field::ResponseFormat => self.response_format = Some(map.next_value()?),
            Field::User => self.user = Some(map.next_value()?),
            Field::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    /// Notes that the member occurs; false when it did before.
    fn first_time(&mut self, field: Field) -> bool {
        let bit = if field == Field::Other {
            0
        } else {
            1_u32 << (field as u32)
        };
        let first = self.seen & bit == 0;
        self.seen |= bit;
        first
    }

    /// Why the parser stopped.
    fn refusal(&self, error: &serde_json::Error) -> Error {
        match (self.fault, self.reading) {
            (Some(fault), _) => fault,
            (None, Some(field)) if error.is_data() => Error::InvalidField { param: field.name() },
            _ => Error::InvalidJson {
                line: error.line(),
                column: error.column(),
            },
        }
    }

    /// Checks what only the whole tells.
    fn finish(self, text: &str, insert_at: usize, limits: &Limits) -> Result<Skim, Error> {
        let model = self
            .model
            .filter(|raw| raw.get() != "null")
            .ok_or(Error::MissingModel)?;
        let name: String = decode(model.get(), "model")?;
        if name.is_empty() {
            return Err(Error::MissingModel);
        }
        if name.len() > limits.model_bytes_max {
            return Err(Error::InvalidField { param: "model" });
        }
        if self.prompt.messages.is_none() {
            return Err(Error::MissingMessages);
        }
        if self.prompt.messages == Some(0) {
            return Err(Error::InvalidField { param: "messages" });
        }
        let n = self.choices.unwrap_or(1);
        if n > CHOICES_MAX {
            return Err(Error::InvalidField { param: "n" });
        }
        Ok(Skim {
            model: name,
            model_span: span(text, model),
            stream: self.stream,
            stream_options_span: self.stream_options.map(|raw| span(text, raw)),
            include_usage: include_usage(self.stream_options)?,
            insert_at,
            max_tokens: self.max_tokens,
            n,
            tools: self.tools,
            response_format: structured(self.response_format)?,
            // Whatever is not text is the upstream's to refuse.
            user: self.user.and_then(|raw| serde_json::from_str(raw.get()).ok()),
            modalities: self.prompt.modalities,
            images: self.prompt.images,
            prompt_tokens_estimate: self.prompt.tokens,
        })
    }
}

/// Where a value that was borrowed from `text` stands in it.
fn span(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + raw.get().len()
}

/// Decodes a value that is known to be JSON.
fn decode<'a, T: Deserialize<'a>>(raw: &'a str, param: &'static str) -> Result<T, Error> {
    serde_json::from_str(raw).map_err(|_| Error::InvalidField { param })
}

/// A value that must be an object or null: the object's text.
fn object<'a>(raw: Option<&'a RawValue>, param: &'static str) -> Result<Option<&'a str>, Error> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('{') => Ok(Some(text)),
        Some(_) => Err(Error::InvalidField { param }),
    }
}

/// Whether the options of a stream ask for usage.
fn include_usage(raw: Option<&RawValue>) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct StreamOptions {
        include_usage: Option<bool>,
    }

    let Some(text) = object(raw, "stream_options")? else {
        return Ok(false);
    };
    let options: StreamOptions = decode(text, "stream_options")?;
    Ok(options.include_usage.unwrap_or(false))
}

/// Whether an answer in a form other than plain text is asked for.
fn structured(raw: Option<&RawValue>) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<std::borrow::Cow<'a, str>>,
    }

    let Some(text) = object(raw, "response_format")? else {
        return Ok(false);
    };
    let format: Format<'_> = decode(text, "response_format")?;
    Ok(format.kind.as_deref() != Some("text"))
}

/// Refuses numbers outside 0 to `max`.
fn in_range<E: serde::de::Error>(value: Option<f64>, max: f64) -> Result<(), E> {
    match value {
        Some(number) if !(0.0..=max).contains(&number) => Err(E::custom("out of range")),
        _ => Ok(()),
    }
}

/// An integer of at least 1; a float without fraction is one too.
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer of at least 1")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Count, E> {
        if value == 0 {
            Err(E::custom("zero"))
        } else {
            Ok(Count(value))
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Count, E> {
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if value.fract() != 0.0 || !(1.0..=EXACT_MAX).contains(&value) {
            return Err(E::custom("not an integer"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, from 1 to 2^53"
        )]
        Ok(Count(value as u64))
    }
}

/// The body as an object, read into a draft.
struct Body<'d, 'a>(&'d mut Draft<'a>);

impl<'a> DeserializeSeed<'a> for Body<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Body<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(field) = map.next_key::<Field>()? {
            if !self.0.first_time(field) {
                self.0.fault = Some(Error::DuplicateField { param: field.name() });
                return Err(M::Error::custom("duplicate member"));
            }
            self.0.reading = Some(field);
            self.0.member(field, &mut map)?;
            self.0.reading = None;
        }
        Ok(())
    }
}
