//! The choices of a chunk or an answer, read without keeping them: whether there is generated content, how
//! much, and which choices have ended.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

mod any;

use any::{Presence, Text, Weight};

use super::chunk::{Fault, Finish};
use super::ends::Called;

/// The last index of a choice that is told from others where they are counted.
const LAST_INDEX: u64 = 127;

/// What was found in the choices.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// There is a list, perhaps an empty one.
    pub(super) listed: bool,
    pub(super) choices: usize,
    /// Index of the first one, and bytes of generated text in it.
    pub(super) first: Option<(u64, usize)>,
    pub(super) content: bool,
    pub(super) output_bytes: usize,
    pub(super) finish: Option<Finish>,
    pub(super) fault: Option<Fault>,
    /// Address and length of the last content that is a string without escapes.
    pub(super) text_at: Option<(usize, usize)>,
    /// Choices that call tools.
    pub(super) called: Called,
    /// Choices that ended; those from 127 on are one.
    pub(super) ended: Called,
    /// Choices that ended at a natural end, and address and length of the reason, quotes included.
    pub(super) stopped: Vec<(u64, (usize, usize))>,
    /// The choice that is being read calls tools.
    calls: bool,
}

impl Found {
    /// Counts generated text.
    fn text(&mut self, bytes: usize) {
        self.content |= bytes > 0;
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }

    /// Notes a choice's end; a failure outweighs any other.
    fn end(&mut self, finish: Finish) {
        if self.finish != Some(Finish::Failed) {
            self.finish = Some(finish);
        }
    }
}

/// Implements a seed that reads whatever value comes, by its visitor.
macro_rules! reads_any {
    ($name:ty => $value:ty) => {
        impl<'de> DeserializeSeed<'de> for $name {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

/// The list of choices; null is an empty one.
pub(super) struct Choices<'f>(pub(super) &'f mut Found);
reads_any!(Choices<'_> => ());

impl<'de> Visitor<'de> for Choices<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of choices")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        self.0.listed = true;
        while list.next_element_seed(Choice(&mut *self.0))?.is_some() {
            self.0.choices += 1;
        }
        Ok(())
    }
}

/// One choice.
struct Choice<'f>(&'f mut Found);
reads_any!(Choice<'_> => ());

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ChoiceField {
    Index,
    #[serde(alias = "message")]
    Delta,
    Text,
    FinishReason,
    Logprobs,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Choice<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a choice")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let found = self.0;
        found.calls = false;
        let (mut index, mut indexed, mut stopped, mut ended) = (0, false, None, false);
        while let Some(field) = map.next_key::<ChoiceField>()? {
            match field {
                ChoiceField::Index => {
                    let raw = map.next_value::<&RawValue>()?.get();
                    indexed = !matches!(raw, "null" | "\"\"");
                    index = raw.parse().unwrap_or(0);
                }
                ChoiceField::Delta => map.next_value_seed(Delta(&mut *found))?,
                ChoiceField::Text => found.text(map.next_value_seed(Weight)?),
                ChoiceField::FinishReason => {
                    if let Some((finish, at)) = map.next_value_seed(Reason)? {
                        found.end(finish);
                        ended = true;
                        stopped = at.filter(|_| finish == Finish::Stop);
                    }
                }
                ChoiceField::Logprobs => found.content |= map.next_value_seed(Logprobs)?,
                ChoiceField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !indexed {
            found.fault = found.fault.or(Some(Fault::ChoiceWithoutIndex));
        }
        // All that was found so far is of this one, if there was none before.
        found.first = found.first.or(Some((index, found.output_bytes)));
        if found.calls {
            found.called.add(index);
        }
        if ended {
            found.ended.add(index.min(LAST_INDEX));
        }
        found.stopped.extend(stopped.map(|at| (index, at)));
        Ok(())
    }
}

/// What a choice adds: a delta of a stream, or the whole message.
struct Delta<'f>(&'f mut Found);
reads_any!(Delta<'_> => ());

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum DeltaField {
    #[serde(alias = "refusal")]
    Content,
    #[serde(alias = "reasoning_content")]
    Reasoning,
    ReasoningDetails,
    ToolCalls,
    FunctionCall,
    Audio,
    Images,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Delta<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delta or message")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let found = self.0;
        // Upstreams repeat the same reasoning under several names: it counts once.
        let (mut reasoning, mut details) = (0, 0);
        while let Some(field) = map.next_key::<DeltaField>()? {
            match field {
                DeltaField::Content => {
                    let (bytes, at) = map.next_value_seed(Text)?;
                    found.text(bytes);
                    found.text_at = at.map(|at| (at, bytes));
                }
                DeltaField::FunctionCall => found.text(map.next_value_seed(Weight)?),
                DeltaField::Reasoning => reasoning = reasoning.max(map.next_value_seed(Weight)?),
                DeltaField::ReasoningDetails => details = map.next_value_seed(Weight)?,
                DeltaField::ToolCalls => map.next_value_seed(ToolCalls(&mut *found))?,
                DeltaField::Audio => {
                    let (present, transcript) = map.next_value_seed(Audio)?;
                    found.content |= present;
                    found.text(transcript);
                }
                DeltaField::Images => found.content |= map.next_value_seed(Presence)?,
                DeltaField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        found.text(if reasoning > 0 { reasoning } else { details });
        Ok(())
    }
}

/// The list of tool calls, or pieces of them.
struct ToolCalls<'f>(&'f mut Found);
reads_any!(ToolCalls<'_> => ());

impl<'de> Visitor<'de> for ToolCalls<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of tool calls")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while list.next_element_seed(ToolCall(&mut *self.0))?.is_some() {
            self.0.content = true;
            self.0.calls = true;
        }
        Ok(())
    }
}

/// One tool call, or a piece of it.
struct ToolCall<'f>(&'f mut Found);
reads_any!(ToolCall<'_> => ());

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ToolCallField {
    Index,
    #[serde(alias = "custom")]
    Function,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for ToolCall<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tool call")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut indexed = false;
        while let Some(field) = map.next_key::<ToolCallField>()? {
            match field {
                ToolCallField::Index => indexed = map.next_value_seed(Presence)?,
                ToolCallField::Function => self.0.text(map.next_value_seed(Weight)?),
                ToolCallField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !indexed {
            self.0.fault = self.0.fault.or(Some(Fault::ToolCallWithoutIndex));
        }
        Ok(())
    }
}

/// Generated audio: whether there is some, and the bytes of its transcript.
struct Audio;
reads_any!(Audio => (bool, usize));

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum AudioField {
    Data,
    Transcript,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Audio {
    type Value = (bool, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("audio")
    }

    fn visit_unit<E>(self) -> Result<(bool, usize), E> {
        Ok((false, 0))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(bool, usize), M::Error> {
        let (mut present, mut transcript) = (false, 0);
        while let Some(field) = map.next_key::<AudioField>()? {
            match field {
                AudioField::Data => present |= map.next_value_seed(Presence)?,
                AudioField::Transcript => transcript = map.next_value_seed(Weight)?,
                AudioField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((present, transcript))
    }
}

/// Whether log probabilities of some token are there.
struct Logprobs;
reads_any!(Logprobs => bool);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum LogprobsField {
    #[serde(alias = "refusal", alias = "tokens")]
    Content,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Logprobs {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log probabilities")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        let mut present = false;
        while let Some(field) = map.next_key::<LogprobsField>()? {
            match field {
                LogprobsField::Content => present |= map.next_value_seed(Presence)?,
                LogprobsField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(present)
    }
}

/// Why a choice ended, and address and length of the word with its quotes where it has no escapes; nothing while the
/// choice goes on.
struct Reason;

/// A reason, and where it stands.
type Placed = Option<(Finish, Option<(usize, usize)>)>;

reads_any!(Reason => Placed);

impl<'de> Visitor<'de> for Reason {
    type Value = Placed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a finish reason")
    }

    fn visit_unit<E>(self) -> Result<Placed, E> {
        Ok(None)
    }

    fn visit_borrowed_str<E>(self, word: &'de str) -> Result<Placed, E> {
        let at = (word.as_ptr().addr().saturating_sub(1), word.len() + 2);
        Ok(Finish::of_word(word).map(|finish| (finish, Some(at))))
    }

    fn visit_str<E>(self, word: &str) -> Result<Placed, E> {
        Ok(Finish::of_word(word).map(|finish| (finish, None)))
    }
}
