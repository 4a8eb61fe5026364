//! What a body says of the session it belongs to, for endpoints on which sessions stay: a pass of its own, since most
//! requests do not need it. The body was skimmed before, so nothing is refused here: what is not of the expected type
//! says nothing.

use std::borrow::Cow;
use std::fmt;

use schemas::affinity::hint::Facts;
use schemas::affinity::opening::{Opening, Speaker, Text};
use schemas::event::request::Surface;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Limits, checked};

/// What of a session stands in a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// `metadata.session_id`.
    pub metadata_session: Option<String>,
    /// `client_metadata.session_id`.
    pub client_session: Option<String>,
    /// `metadata.user_id`.
    pub user_id: Option<String>,
    /// `prompt_cache_key`.
    pub cache_key: Option<String>,
    /// `user`.
    pub user: Option<String>,
    /// How its conversation begins.
    pub opening: Opening,
}

impl Session {
    /// The same as affinity takes it.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            metadata_session: self.metadata_session.as_deref(),
            client_session: self.client_session.as_deref(),
            user_id: self.user_id.as_deref(),
            cache_key: self.cache_key.as_deref(),
            user: self.user.as_deref(),
            opening: self.opening,
        }
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    client_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow)]
    user: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
}

/// Reads what a request of a surface says of its session. Nothing, where the body is none.
pub fn session(surface: Surface, body: &[u8], limits: &Limits) -> Session {
    let read = checked(body, limits).map(serde_json::from_str::<Body<'_>>);
    let Ok(Ok(body)) = read else {
        return Session::default();
    };
    let metadata = body.metadata.and_then(parse::<Metadata<'_>>);
    let client_metadata = body.client_metadata.and_then(parse::<Metadata<'_>>);
    let (session_id, user_id) = metadata.map_or((None, None), |told| (told.session_id, told.user_id));
    Session {
        metadata_session: session_id.and_then(parse),
        client_session: client_metadata.and_then(|told| told.session_id).and_then(parse),
        user_id: user_id.and_then(parse),
        cache_key: body.prompt_cache_key.and_then(parse),
        user: body.user.and_then(parse),
        opening: opening(surface, &body),
    }
}

/// A value of the type that it should have.
fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn opening(surface: Surface, body: &Body<'_>) -> Opening {
    let (instructions, messages) = match surface {
        Surface::Chat => (None, body.messages),
        Surface::Messages => (body.system, body.messages),
        Surface::Responses => (body.instructions, body.input),
        // A prompt has no turns, nothing is generated from embeddings, and what passes as it is is not read for this.
        Surface::Completions | Surface::Embeddings | Surface::Proxy => (None, None),
    };
    let mut opening = Opening::default();
    if let Some(instructions) = instructions {
        opening.instruct(text_of(instructions));
    }
    if let Some(messages) = messages {
        let mut deserializer = serde_json::Deserializer::from_str(messages.get());
        // It stops where enough is known, which the parser takes for an error.
        let _ = Conversation(&mut opening).deserialize(&mut deserializer);
    }
    opening
}

/// The messages of a conversation, up to the first that the model said.
struct Conversation<'o>(&'o mut Opening);

impl<'de> DeserializeSeed<'de> for Conversation<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl<'de> Visitor<'de> for Conversation<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages, or text")
    }

    /// A prompt of Responses that is one text.
    fn visit_str<E>(self, said: &str) -> Result<(), E> {
        let mut text = Text::default();
        text.add(said);
        self.0.message(Speaker::User, text);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while self.0.l2().is_none() {
            let Some(message) = list.next_element::<&RawValue>()? else {
                break;
            };
            let Some(message) = parse::<Message<'_>>(message) else {
                continue;
            };
            if let (Some(role), Some(content)) = (message.role, message.content) {
                self.0.message(Speaker::of_role(&role), text_of(content));
            }
        }
        Ok(())
    }
}

/// What is said in a content: its text, or the texts of its blocks.
fn text_of(content: &RawValue) -> Text {
    let mut text = Text::default();
    let mut deserializer = serde_json::Deserializer::from_str(content.get());
    // What is neither says nothing.
    let _ = Content(&mut text).deserialize(&mut deserializer);
    text
}

/// A content: text, or blocks, one at a time.
struct Content<'t>(&'t mut Text);

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or blocks")
    }

    fn visit_str<E>(self, said: &str) -> Result<(), E> {
        self.0.add(said);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(block) = list.next_element::<&RawValue>()? {
            let said = parse::<Block<'_>>(block).and_then(|block| parse::<Cow<'_, str>>(block.text?));
            if let Some(said) = said {
                self.0.add(&said);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
