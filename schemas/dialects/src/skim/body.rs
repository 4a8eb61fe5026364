//! The top level of a request of any dialect. Values are read into the types they must have; which member was being
//! read when the parser gave up tells a wrong value from broken JSON.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use schemas::parameter::Parameters;

use super::prompt::{Content, Prompt, Tools};
use super::spot::Spot;
use super::{CHOICES_MAX, Error, Limits, Skim};

/// The members of a dialect's requests that decide something, the others being one that is not read.
pub(super) trait Members<'a>: Copy + Deserialize<'a> {
    /// The member's name; empty for those that are not read.
    fn name(self) -> &'static str;

    /// Its place among the members, `None` for those that are not read.
    fn place(self) -> Option<u32>;

    /// Reads its value.
    fn read<M: MapAccess<'a>>(self, draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error>;

    /// Checks what only the whole tells, the model's name apart.
    fn check(draft: &Draft<'a>) -> Result<(), Error>;

    /// What is said of a member that is not there.
    fn missing(param: &'static str) -> Error {
        Error::Missing { param }
    }
}

/// Declares the members of a dialect, each with its name.
macro_rules! members {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// Members that decide something. The others are not read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
        #[serde(field_identifier)]
        pub(super) enum Field {
            $(#[serde(rename = $text)] $name,)*
            #[serde(other)]
            Other,
        }

        impl Field {
            const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other => "",
                }
            }

            const fn bit(self) -> Option<u32> {
                match self {
                    Self::Other => None,
                    field => Some(field as u32),
                }
            }
        }
    };
}
pub(super) use members;

/// What was read so far.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one request"
)]
pub(super) struct Draft<'a> {
    pub(super) model: Option<&'a RawValue>,
    pub(super) stream: bool,
    pub(super) stream_options: Option<&'a RawValue>,
    /// Usage is told on every stream of the dialect.
    pub(super) tells_usage: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) max_tokens_otherwise: u64,
    pub(super) choices: Option<u64>,
    pub(super) choices_otherwise: u64,
    pub(super) prompts_embedded: u64,
    pub(super) echoes: bool,
    pub(super) tools: bool,
    pub(super) structured: bool,
    pub(super) asks: Parameters,
    pub(super) user: Option<&'a RawValue>,
    pub(super) prompt: Prompt,
    /// Why it is refused, where the member being read and its type do not say it.
    fault: Option<Error>,
    /// Members seen, a bit each.
    seen: u32,
}

/// A draft with what its reader must know when it stops.
struct Reading<'a, F> {
    draft: Draft<'a>,
    /// The member being read.
    member: Option<F>,
}

/// Reads a body, whose nesting was checked, by the members of its dialect.
pub(super) fn read<'a, F: Members<'a>>(text: &'a str, limits: &Limits) -> Result<Skim, Error> {
    let insert_at = match text.find(|character: char| !character.is_ascii_whitespace()) {
        Some(at) if text.as_bytes().get(at) == Some(&b'{') => Some(at + 1),
        _ => None,
    };
    let mut reading = Reading::<F> {
        draft: Draft::default(),
        member: None,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = match insert_at {
        Some(_) => Body(&mut reading).deserialize(&mut deserializer),
        None => IgnoredAny::deserialize(&mut deserializer).map(drop),
    };
    parsed
        .and_then(|()| deserializer.end())
        .map_err(|error| reading.refusal(&error))?;
    let insert_at = insert_at.ok_or(Error::NotAnObject)?;
    let model = name::<F>(&reading.draft, limits)?;
    F::check(&reading.draft)?;
    reading.draft.finish(text, insert_at, model)
}

/// The model's name.
fn name<'a, F: Members<'a>>(draft: &Draft<'a>, limits: &Limits) -> Result<String, Error> {
    let model = draft
        .model
        .filter(|raw| raw.get() != "null")
        .ok_or(F::missing("model"))?;
    let name: String = decode(model.get(), "model")?;
    if name.is_empty() {
        return Err(F::missing("model"));
    }
    if name.len() > limits.model_bytes_max {
        return Err(Error::InvalidField { param: "model" });
    }
    Ok(name)
}

impl<'a, F: Members<'a>> Reading<'a, F> {
    /// Notes that the member occurs; false when it did before.
    fn is_first(&mut self, field: F) -> bool {
        let bit = field.place().map_or(0, |place| 1_u32 << place);
        let first = self.draft.seen & bit == 0;
        self.draft.seen |= bit;
        first
    }

    /// Why the parser stopped.
    fn refusal(&self, error: &serde_json::Error) -> Error {
        match (self.draft.fault, self.member) {
            (Some(fault), _) => fault,
            (None, Some(field)) if error.is_data() => match (field.name(), self.draft.prompt.spot) {
                (param, Spot::Whole) => Error::InvalidField { param },
                (param, spot) => Error::InvalidEntry { param, spot },
            },
            _ => Error::InvalidJson {
                line: error.line(),
                column: error.column(),
            },
        }
    }
}

impl<'a> Draft<'a> {
    /// The member occurred, whatever its value.
    pub(super) fn has<F: Members<'a>>(&self, field: F) -> bool {
        field
            .place()
            .is_some_and(|place| self.seen & (1_u32 << place) != 0)
    }

    /// Ends the reading with this fault.
    pub(super) fn refuse<T, E: serde::de::Error>(&mut self, fault: Error) -> Result<T, E> {
        self.fault = Some(fault);
        Err(E::custom(fault))
    }

    /// Reads `stream`.
    pub(super) fn read_stream<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        self.stream = map.next_value::<Option<bool>>()?.unwrap_or(false);
        Ok(())
    }

    /// Reads a limit of tokens.
    pub(super) fn read_max_tokens<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        let count = map.next_value::<Option<Count>>()?.map(|count| count.0);
        self.max_tokens = self.max_tokens.max(count);
        Ok(())
    }

    /// Reads what single servers take in the place of the maximum. Whatever is no count has no end there.
    pub(super) fn read_max_tokens_otherwise<M: MapAccess<'a>>(
        &mut self,
        map: &mut M,
    ) -> Result<(), M::Error> {
        self.max_tokens_otherwise = count_otherwise(map.next_value()?);
        Ok(())
    }

    /// Reads what single servers take in the place of `n`, or make beside it.
    pub(super) fn read_choices_otherwise<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        let count = count_otherwise(map.next_value()?);
        self.choices_otherwise = self.choices_otherwise.max(count);
        Ok(())
    }

    /// Reads a number from 0 to `max`, of which 1 stands for nothing.
    pub(super) fn read_share<M: MapAccess<'a>>(
        &mut self,
        parameter: Parameters,
        max: f64,
        map: &mut M,
    ) -> Result<(), M::Error> {
        let number: Option<f64> = map.next_value()?;
        in_range(number, max)?;
        if number.is_some_and(|number| (number - 1.0).abs() > f64::EPSILON) {
            self.asks = self.asks | parameter;
        }
        Ok(())
    }

    /// Reads a member that asks for something, unless its value is null or among those that stand for `nothing`.
    pub(super) fn read_ask<M: MapAccess<'a>>(
        &mut self,
        parameter: Parameters,
        nothing: &[&str],
        map: &mut M,
    ) -> Result<(), M::Error> {
        let value: &RawValue = map.next_value()?;
        if value.get() != "null" && !nothing.contains(&value.get()) {
            self.asks = self.asks | parameter;
        }
        Ok(())
    }

    /// Reads whether the model shall think.
    pub(super) fn read_thinking<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        #[derive(Deserialize)]
        struct Thinking<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<Cow<'a, str>>,
        }

        let value: &RawValue = map.next_value()?;
        let thinking: Option<Thinking<'_>> = serde_json::from_str(value.get()).unwrap_or_default();
        if thinking.is_some_and(|thinking| thinking.kind.as_deref() != Some("disabled")) {
            self.asks = self.asks | Parameters::EFFORT;
        }
        Ok(())
    }

    /// Reads a list of tools.
    pub(super) fn read_tools<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        self.tools |= map.next_value_seed(Tools(&mut self.prompt))?;
        Ok(())
    }

    /// Reads text that is part of the prompt, plain or in blocks.
    pub(super) fn read_text<M: MapAccess<'a>>(&mut self, map: &mut M) -> Result<(), M::Error> {
        map.next_value_seed(Content(&mut self.prompt))
    }

    /// The prompt as a member that must be there and hold something.
    pub(super) fn check_prompt(&self, param: &'static str, missing: Error) -> Result<(), Error> {
        match self.prompt.messages {
            None => Err(missing),
            Some(0) => Err(Error::InvalidField { param }),
            Some(_) => Ok(()),
        }
    }

    fn finish(self, text: &str, insert_at: usize, model: String) -> Result<Skim, Error> {
        let n = self.choices.unwrap_or(1);
        if n > CHOICES_MAX {
            return Err(Error::InvalidField { param: "n" });
        }
        let span = |raw: &RawValue| span(text, raw);
        let mut parameters = self.asks;
        for (parameter, is_asked) in [
            (Parameters::CHOICES, n > 1),
            (Parameters::TOOLS, self.tools),
            (Parameters::FORMAT, self.structured),
        ] {
            if is_asked {
                parameters = parameters | parameter;
            }
        }
        Ok(Skim {
            model,
            model_span: self.model.map(span).unwrap_or_default(),
            stream: self.stream,
            stream_options_span: self.stream_options.map(span),
            include_usage: self.tells_usage || include_usage(self.stream_options)?,
            insert_at,
            max_tokens: self.max_tokens,
            max_tokens_otherwise: self.max_tokens_otherwise,
            n,
            choices_most: n.max(self.choices_otherwise),
            prompts_embedded: self.prompts_embedded,
            echoes: self.echoes,
            tools: self.tools,
            response_format: self.structured,
            parameters,
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

/// The form of an answer.
#[derive(Deserialize)]
pub(super) struct Format<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

impl Format<'_> {
    /// It is not plain text.
    pub(super) fn is_structured(&self) -> bool {
        self.kind.as_deref() != Some("text")
    }
}

/// Refuses numbers outside 0 to `max`.
fn in_range<E: serde::de::Error>(value: Option<f64>, max: f64) -> Result<(), E> {
    match value {
        Some(number) if !(0.0..=max).contains(&number) => Err(E::custom("out of range")),
        _ => Ok(()),
    }
}

/// A count that its upstream reads in its own way: none where it is null, the most there is where it is no number.
fn count_otherwise(raw: &RawValue) -> u64 {
    let text = raw.get();
    if text == "null" {
        return 0;
    }
    let number: Option<f64> = serde_json::from_str(text).ok();
    number.filter(|&number| number >= 0.0).map_or(u64::MAX, |number| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and beyond the range it is the most there is"
        )]
        let count = number.ceil() as u64;
        count
    })
}

/// An integer of at least 1; a float without fraction is one too.
pub(super) struct Count(pub(super) u64);

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
struct Body<'d, 'a, F>(&'d mut Reading<'a, F>);

impl<'a, F: Members<'a>> DeserializeSeed<'a> for Body<'_, 'a, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, F: Members<'a>> Visitor<'a> for Body<'_, 'a, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(field) = map.next_key::<F>()? {
            if !self.0.is_first(field) {
                return self.0.draft.refuse(Error::DuplicateField { param: field.name() });
            }
            self.0.member = Some(field);
            field.read(&mut self.0.draft, &mut map)?;
            self.0.member = None;
        }
        Ok(())
    }
}
