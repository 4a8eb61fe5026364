//! What is embedded: a text, a list of tokens, or a list of either kind, and what of it no provider takes.

use std::fmt;

use schemas::catalog::modality::Modalities;
use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};

use super::prompt::Prompt;
use super::{INPUTS_MAX, InputFault};

/// Reads the input into the prompt. What is wrong with it goes into the fault, unless the type says it.
pub(super) struct Embedded<'p> {
    pub(super) prompt: &'p mut Prompt,
    pub(super) fault: &'p mut Option<InputFault>,
}

/// The kind of a list's member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Token,
    Tokens,
}

impl Embedded<'_> {
    fn again(&mut self) -> Embedded<'_> {
        Embedded {
            prompt: &mut *self.prompt,
            fault: &mut *self.fault,
        }
    }

    fn refuse<T, E: serde::de::Error>(self, fault: InputFault) -> Result<T, E> {
        *self.fault = Some(fault);
        Err(E::custom(fault))
    }

    fn text<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.is_empty() {
            return self.refuse(InputFault::EmptyText);
        }
        self.prompt.text(text);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Embedded<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Embedded<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, tokens, or a list of either")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.prompt.messages = Some(1);
        self.text(text)
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<(), S::Error> {
        let mut first = None;
        let mut count = 0;
        while let Some(kind) = list.next_element_seed(Member(self.again()))? {
            count += 1;
            if *first.get_or_insert(kind) != kind {
                return self.refuse(InputFault::Mixed);
            }
            if kind != Kind::Token && count > INPUTS_MAX {
                return self.refuse(InputFault::TooMany);
            }
        }
        self.prompt.modalities = self.prompt.modalities | Modalities::TEXT;
        self.prompt.messages = Some(count);
        Ok(())
    }
}

/// A member of the list: a text, a token, or a list of tokens.
struct Member<'p>(Embedded<'p>);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a token, or a list of tokens")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Kind, E> {
        self.0.text(text).map(|()| Kind::Text)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Kind, E> {
        self.0.prompt.add(1);
        Ok(Kind::Token)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Kind, E> {
        self.0.refuse(InputFault::NotAToken)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Kind, E> {
        self.0.refuse(InputFault::NotAToken)
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<Kind, S::Error> {
        let mut is_empty = true;
        while let Some(()) = list.next_element_seed(Token(self.0.again()))? {
            is_empty = false;
        }
        if is_empty {
            return self.0.refuse(InputFault::EmptyTokens);
        }
        Ok(Kind::Tokens)
    }
}

/// A token of a list in the list.
struct Token<'p>(Embedded<'p>);

impl<'de> DeserializeSeed<'de> for Token<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Token<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.0.prompt.add(1);
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.0.refuse(InputFault::NotAToken)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.0.refuse(InputFault::NotAToken)
    }

    // Whatever else stands where a token should is none either.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.0.refuse(InputFault::NotAToken)
    }
}
