//! Answers and chunks as upstreams write them, read where they stand: text is borrowed unless it has escapes, and
//! what no server is known to send is passed over. One choice is read, that of index 0.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::chat::request::parts;
use crate::superset::request::{Proof, ProofMaker};

/// A value, `None` when it is missing or null.
pub(in crate::chat) type Told<'a> = Option<&'a RawValue>;

/// An answer, or a chunk of one.
#[derive(Deserialize)]
pub(in crate::chat) struct Frame<'a> {
    #[serde(borrow, default)]
    pub(in crate::chat) id: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) object: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) choices: Choices<'a>,
    #[serde(borrow)]
    pub(in crate::chat) usage: Told<'a>,
    #[serde(borrow)]
    pub(in crate::chat) x_groq: Told<'a>,
    #[serde(borrow)]
    pub(in crate::chat) timings: Told<'a>,
    #[serde(borrow)]
    pub(in crate::chat) error: Told<'a>,
}

/// The choices: whether there is a list, and the choice that counts.
#[derive(Default)]
pub(in crate::chat) struct Choices<'a> {
    pub(in crate::chat) listed: bool,
    pub(in crate::chat) first: Option<Choice<'a>>,
}

/// A choice.
#[derive(Deserialize)]
pub(in crate::chat) struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    pub(in crate::chat) delta: Option<Said<'a>>,
    #[serde(borrow)]
    pub(in crate::chat) message: Option<Said<'a>>,
    /// That of completions.
    #[serde(borrow, default)]
    pub(in crate::chat) text: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) finish_reason: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) stop_reason: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) matched_stop: Text<'a>,
}

/// What is said: a delta or a message.
#[derive(Deserialize)]
pub(in crate::chat) struct Said<'a> {
    #[serde(borrow, default)]
    pub(in crate::chat) content: Content<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) refusal: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) reasoning: Text<'a>,
    #[serde(borrow)]
    pub(in crate::chat) reasoning_details: Option<Vec<Detail<'a>>>,
    #[serde(borrow)]
    pub(in crate::chat) tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow)]
    pub(in crate::chat) function_call: Option<Function<'a>>,
}

/// An entry of `reasoning_details`.
#[derive(Deserialize)]
pub(in crate::chat) struct Detail<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(in crate::chat) kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    summary: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    data: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) format: Text<'a>,
}

impl Detail<'_> {
    /// The thought in words.
    pub(in crate::chat) fn words(&self) -> &str {
        first([&self.text, &self.summary])
    }

    /// What proves the thought, where its maker is known.
    pub(in crate::chat) fn proof(&self) -> Option<Proof> {
        let maker = parts::maker(&self.format.0)?;
        let text = first([&self.signature, &self.data]);
        (!text.is_empty()).then(|| Proof {
            maker,
            text: text.to_owned(),
            redacted: self.kind.0 == "reasoning.encrypted",
        })
    }
}

/// The first text that is not empty.
pub(in crate::chat) fn first<'t, const N: usize>(texts: [&'t Text<'_>; N]) -> &'t str {
    let found = texts.into_iter().find(|text| !text.is_empty());
    found.map_or("", |text| text.0.as_ref())
}

/// A call, or a piece of one.
#[derive(Deserialize)]
pub(in crate::chat) struct Call<'a> {
    pub(in crate::chat) index: Option<u64>,
    #[serde(borrow, default)]
    pub(in crate::chat) id: Text<'a>,
    #[serde(borrow)]
    pub(in crate::chat) function: Option<Function<'a>>,
    #[serde(borrow)]
    pub(in crate::chat) custom: Option<Custom<'a>>,
    #[serde(borrow)]
    pub(in crate::chat) extra_content: Option<Extra<'a>>,
}

/// The function that is called.
#[derive(Deserialize)]
pub(in crate::chat) struct Function<'a> {
    #[serde(borrow, default)]
    pub(in crate::chat) name: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) arguments: Text<'a>,
}

/// The tool that is given free text.
#[derive(Deserialize)]
pub(in crate::chat) struct Custom<'a> {
    #[serde(borrow, default)]
    pub(in crate::chat) name: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::chat) input: Text<'a>,
}

/// What comes with a call.
#[derive(Deserialize)]
pub(in crate::chat) struct Extra<'a> {
    #[serde(borrow)]
    pub(in crate::chat) google: Option<Signature<'a>>,
    #[serde(borrow)]
    pub(in crate::chat) anthropic: Option<Signature<'a>>,
    #[serde(borrow)]
    pub(in crate::chat) openai: Option<Signature<'a>>,
}

/// What proves a call.
#[derive(Deserialize)]
pub(in crate::chat) struct Signature<'a> {
    #[serde(borrow, default)]
    pub(in crate::chat) thought_signature: Text<'a>,
}

impl Extra<'_> {
    /// The signature in it.
    pub(in crate::chat) fn proof(&self) -> Option<Proof> {
        let makers = [
            (&self.google, ProofMaker::Gemini),
            (&self.anthropic, ProofMaker::Anthropic),
            (&self.openai, ProofMaker::OpenAi),
        ];
        makers.into_iter().find_map(|(signature, maker)| {
            let text = signature.as_ref()?.thought_signature.0.as_ref();
            (!text.is_empty()).then(|| Proof {
                maker,
                text: text.to_owned(),
                redacted: false,
            })
        })
    }
}

/// Reads an answer or a chunk.
pub(in crate::chat) fn read(data: &[u8]) -> Result<Frame<'_>, serde_json::Error> {
    serde_json::from_slice(data)
}

/// A text; empty where there is none. What is no text is its JSON.
#[derive(Default)]
pub(in crate::chat) struct Text<'a>(pub(in crate::chat) Cow<'a, str>);

impl Text<'_> {
    pub(in crate::chat) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(text.to_owned().into()))
    }

    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    /// Arguments that are an object, not its text.
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Text<'de>, M::Error> {
        let mut text = "{".to_owned();
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(name.get());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        Ok(Text(text.into()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Text<'de>, S::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }
}

/// Content: a text, or a list of parts of which some are thoughts.
#[derive(Default)]
pub(in crate::chat) struct Content<'a> {
    pub(in crate::chat) thoughts: Cow<'a, str>,
    pub(in crate::chat) text: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
        Ok(Content {
            thoughts: Cow::Borrowed(""),
            text: text.into(),
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
        Ok(Content {
            thoughts: Cow::Borrowed(""),
            text: text.to_owned().into(),
        })
    }

    fn visit_unit<E>(self) -> Result<Content<'de>, E> {
        Ok(Content::default())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Content<'de>, S::Error> {
        let mut content = Content::default();
        while let Some(part) = list.next_element::<Part<'_>>()? {
            content.text.to_mut().push_str(&part.text.0);
            content.thoughts.to_mut().push_str(&part.thinking.0);
        }
        Ok(content)
    }
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Words<'a>,
}

/// Thoughts in a part: a text, or a list of parts.
#[derive(Default)]
struct Words<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('"') {
            let text: String = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
            return Ok(Self(text.into()));
        }
        let words: Vec<Word<'a>> = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(words.iter().map(|word| word.text.0.as_ref()).collect()))
    }
}

#[derive(Deserialize)]
struct Word<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoicesVisitor)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of choices")
    }

    fn visit_unit<E>(self) -> Result<Choices<'de>, E> {
        Ok(Choices::default())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Choices<'de>, S::Error> {
        let mut choices = Choices {
            listed: true,
            first: None,
        };
        while let Some(choice) = list.next_element::<Choice<'de>>()? {
            if choices.first.is_none() && choice.index.unwrap_or(0) == 0 {
                choices.first = Some(choice);
            }
        }
        Ok(choices)
    }
}
