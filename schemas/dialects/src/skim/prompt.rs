//! Messages and tools of a request: how many tokens they are about, and which kinds of input they hold.
//! Text is weighed where it stands; payloads of images, audio, video and files are passed over.

use std::fmt;

use schemas::catalog::modality::Modalities;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::spot::Spot;
use crate::estimate;

/// What was found in messages and tools.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    /// Messages, items or inputs; `None` when there is no such member, or null.
    pub(super) messages: Option<u64>,
    /// Estimated tokens.
    pub(super) tokens: u64,
    /// Images among them.
    pub(super) images: u64,
    /// Kinds of input.
    pub(super) modalities: Modalities,
    /// What of a list is being read.
    pub(super) spot: Spot,
}

impl Prompt {
    /// Weighs text.
    pub(super) fn text(&mut self, text: &str) {
        self.modalities = self.modalities | Modalities::TEXT;
        self.add(estimate::text_tokens(text));
    }

    /// JSON that is part of the prompt, such as the arguments of a call.
    fn json(&mut self, raw: &RawValue) {
        if raw.get() != "null" {
            self.add(estimate::text_tokens(raw.get()));
        }
    }

    /// Reads the entries of a list one by one until there is none left; how many there were. Where it fails, the spot is
    /// that of the entry at fault.
    fn each<E>(&mut self, mut next: impl FnMut(&mut Self) -> Result<bool, E>) -> Result<u64, E> {
        let spot = self.spot;
        let mut count = 0;
        self.spot = spot.entry(0);
        while next(self)? {
            count += 1;
            self.spot = spot.entry(count);
        }
        self.spot = spot;
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Reads a member of a message as content.
    fn content<'de, M: MapAccess<'de>>(&mut self, name: &'static str, map: &mut M) -> Result<(), M::Error> {
        let spot = self.spot;
        self.spot = spot.member(name);
        map.next_value_seed(Content(self))?;
        self.spot = spot;
        Ok(())
    }

    /// Adds tokens.
    pub(super) fn add(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

/// Implements a seed that reads whatever value comes, by its visitor.
macro_rules! reads_any {
    ($name:ident -> $value:ty) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

/// The list of messages.
pub(super) struct Messages<'p>(pub(super) &'p mut Prompt);
reads_any!(Messages -> ());

/// What a request of Responses is given: text, or a list of items, which are weighed as messages are.
pub(super) struct Items<'p>(pub(super) &'p mut Prompt);
reads_any!(Items -> ());

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or an array of items")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        self.0.messages = Some(1);
        self.0.add(estimate::MESSAGE_TOKENS);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<(), S::Error> {
        Messages(self.0).visit_seq(list)
    }
}

/// What is completed: text, tokens, or a list of either.
pub(super) struct Inputs<'p>(pub(super) &'p mut Prompt);
reads_any!(Inputs -> ());

impl<'de> Visitor<'de> for Inputs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, tokens, or a list of either")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        self.0.messages = Some(1);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let count = self
            .0
            .each(|prompt| Ok(list.next_element_seed(Input(prompt))?.is_some()))?;
        self.0.modalities = self.0.modalities | Modalities::TEXT;
        self.0.messages = Some(count);
        Ok(())
    }
}

/// One of them: text, a token, or a list of tokens.
struct Input<'p>(&'p mut Prompt);
reads_any!(Input -> ());

impl<'de> Visitor<'de> for Input<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a token, or a list of tokens")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.0.add(1);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while list.next_element::<u64>()?.is_some() {
            self.0.add(1);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let count = self
            .0
            .each(|prompt| Ok(list.next_element_seed(Message(prompt))?.is_some()))?;
        self.0.add(estimate::MESSAGE_TOKENS.saturating_mul(count));
        self.0.messages = Some(count);
        Ok(())
    }
}

/// One message.
struct Message<'p>(&'p mut Prompt);
reads_any!(Message -> ());

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum MessageField {
    Content,
    Output,
    Summary,
    #[serde(alias = "reasoning")]
    ReasoningContent,
    Name,
    #[serde(alias = "function_call", alias = "arguments", alias = "input")]
    ToolCalls,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(field) = map.next_key::<MessageField>()? {
            match field {
                MessageField::Content => self.0.content("content", &mut map)?,
                MessageField::Output => self.0.content("output", &mut map)?,
                MessageField::Summary => self.0.content("summary", &mut map)?,
                MessageField::ReasoningContent | MessageField::Name | MessageField::ToolCalls => {
                    self.0.json(map.next_value()?);
                }
                MessageField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The content of a message: text, blocks, or one bare block.
pub(super) struct Content<'p>(pub(super) &'p mut Prompt);
reads_any!(Content -> ());

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or content blocks")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        self.0
            .each(|prompt| Ok(list.next_element_seed(Part(prompt))?.is_some()))
            .map(drop)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<(), M::Error> {
        Block::default().read(self.0, map)
    }
}

/// One of several blocks, or a bare text in the place of one.
struct Part<'p>(&'p mut Prompt);
reads_any!(Part -> ());

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a content block")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<(), M::Error> {
        Block::default().read(self.0, map)
    }
}

/// A kind of content, by the name of the block's type or of the member that carries it.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum BlockWord {
    Type,
    Detail,
    #[serde(alias = "content", alias = "thinking", alias = "refusal")]
    Text,
    #[serde(alias = "image", alias = "input_image")]
    ImageUrl,
    #[serde(alias = "audio", alias = "audio_url")]
    InputAudio,
    #[serde(alias = "video", alias = "input_video")]
    VideoUrl,
    #[serde(alias = "input_file", alias = "document")]
    File,
    #[serde(alias = "arguments")]
    Input,
    #[serde(other)]
    Other,
}

/// What one block holds, named by its type or by a member that is not null.
#[derive(Default)]
struct Block {
    media: Modalities,
    file: bool,
    low_detail: bool,
}

impl Block {
    fn read<'de, M: MapAccess<'de>>(mut self, prompt: &mut Prompt, mut map: M) -> Result<(), M::Error> {
        while let Some(word) = map.next_key::<BlockWord>()? {
            match word {
                BlockWord::Type => {
                    let kind: Option<BlockWord> = map.next_value()?;
                    self.note(kind.unwrap_or(BlockWord::Other));
                }
                BlockWord::Detail => {
                    let detail: &RawValue = map.next_value()?;
                    self.low_detail |= detail.get() == "\"low\"";
                }
                BlockWord::Text => map.next_value_seed(Content(&mut *prompt))?,
                BlockWord::Input => prompt.json(map.next_value()?),
                BlockWord::Other => drop(map.next_value::<IgnoredAny>()?),
                media => {
                    if map.next_value_seed(Payload(&mut self.low_detail))? {
                        self.note(media);
                    }
                }
            }
        }
        self.weigh(prompt);
        Ok(())
    }

    fn note(&mut self, word: BlockWord) {
        match word {
            BlockWord::ImageUrl => self.media = self.media | Modalities::IMAGE,
            BlockWord::InputAudio => self.media = self.media | Modalities::AUDIO,
            BlockWord::VideoUrl => self.media = self.media | Modalities::VIDEO,
            BlockWord::File => self.file = true,
            BlockWord::Type | BlockWord::Detail | BlockWord::Text | BlockWord::Input | BlockWord::Other => {}
        }
    }

    fn weigh(&self, prompt: &mut Prompt) {
        prompt.modalities = prompt.modalities | self.media;
        prompt.images += u64::from(self.media.contains(Modalities::IMAGE));
        let image = if self.low_detail {
            estimate::IMAGE_TOKENS_MIN
        } else {
            estimate::IMAGE_TOKENS_MAX
        };
        let parts = [
            (self.media.contains(Modalities::IMAGE), image),
            (self.media.contains(Modalities::AUDIO), estimate::AUDIO_TOKENS),
            (self.media.contains(Modalities::VIDEO), estimate::VIDEO_TOKENS),
            (self.file, estimate::FILE_TOKENS),
        ];
        prompt.add(
            parts
                .iter()
                .filter(|(held, _)| *held)
                .map(|(_, tokens)| tokens)
                .sum(),
        );
    }
}

/// The member that carries an image, audio, video or file: passed over, but for its detail.
/// True when there is something.
struct Payload<'p>(&'p mut bool);
reads_any!(Payload -> bool);

impl<'de> Visitor<'de> for Payload<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a url")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(true)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        while let Some(word) = map.next_key::<BlockWord>()? {
            if matches!(word, BlockWord::Detail) {
                let detail: &RawValue = map.next_value()?;
                *self.0 |= detail.get() == "\"low\"";
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(true)
    }
}

/// The list of tools or functions; true when there is one.
pub(super) struct Tools<'p>(pub(super) &'p mut Prompt);
reads_any!(Tools -> bool);

impl<'de> Visitor<'de> for Tools<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of tools")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        let count = self.0.each(|prompt| {
            let Some(tool) = list.next_element::<&RawValue>()? else {
                return Ok(false);
            };
            if !tool.get().starts_with('{') {
                return Err(S::Error::custom("not a tool"));
            }
            let bytes = u64::try_from(tool.get().len()).unwrap_or(u64::MAX);
            prompt.add(estimate::TOOL_TOKENS.saturating_add(estimate::schema_tokens(bytes)));
            Ok(true)
        })?;
        Ok(count > 0)
    }
}
