//! Answers as upstreams write them, as far as they are read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::superset::answer::{Broken, Finish};

/// A member that may be anything.
pub(super) type Told<'a> = Option<&'a RawValue>;

/// Text, borrowed where it has no escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The text of a value that is some, not empty.
pub(super) fn text(raw: Told<'_>) -> Option<Cow<'_, str>> {
    let Text(text) = serde_json::from_str(raw?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// The text of what a model said: none where there is no string. One that is no valid text, as with half a character
/// in it, can neither be given on nor be left out.
pub(super) fn words(raw: Told<'_>) -> Result<Cow<'_, str>, Broken> {
    match raw.map(RawValue::get) {
        Some(string) if string.starts_with('"') => serde_json::from_str(string)
            .map(|Text(text)| text)
            .map_err(|_| Broken::Malformed),
        _ => Ok(Cow::default()),
    }
}

/// A response object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) status: Told<'a>,
    pub(super) incomplete_details: Option<Details<'a>>,
    pub(super) output: Option<Vec<Item<'a>>>,
    pub(super) usage: Told<'a>,
}

/// Why a response is incomplete.
#[derive(Debug, Deserialize)]
pub(super) struct Details<'a> {
    #[serde(borrow, default)]
    pub(super) reason: Told<'a>,
}

/// An item of any kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Told<'a>,
    pub(super) id: Told<'a>,
    pub(super) call_id: Told<'a>,
    pub(super) name: Told<'a>,
    pub(super) namespace: Told<'a>,
    pub(super) arguments: Told<'a>,
    pub(super) input: Told<'a>,
    pub(super) content: Told<'a>,
    pub(super) summary: Told<'a>,
    pub(super) encrypted_content: Told<'a>,
}

/// A part of an item.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    text: Told<'a>,
    refusal: Told<'a>,
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    /// With a tool that takes free text, or without.
    Call {
        custom: bool,
    },
    /// Of an upstream's own tools: not for callers.
    Other,
}

impl Item<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self.kind.map(RawValue::get) {
            Some("\"message\"") => Kind::Message,
            Some("\"reasoning\"") => Kind::Reasoning,
            Some("\"function_call\"") => Kind::Call { custom: false },
            Some("\"custom_tool_call\"") => Kind::Call { custom: true },
            _ => Kind::Other,
        }
    }

    /// The texts of a message, and its refusals.
    pub(super) fn said(&self) -> Result<(String, String), Broken> {
        let (mut said, mut refused) = (String::new(), String::new());
        for piece in pieces(self.content) {
            said.push_str(&words(piece.text)?);
            refused.push_str(&words(piece.refusal)?);
        }
        Ok((said, refused))
    }

    /// A thought as it is summed up.
    pub(super) fn summary(&self) -> Result<String, Broken> {
        joined(self.summary)
    }

    /// A thought as it was.
    pub(super) fn thought(&self) -> Result<String, Broken> {
        joined(self.content)
    }

    /// A thought as it was, else as it is summed up.
    pub(super) fn any_thought(&self) -> Result<String, Broken> {
        let thought = self.thought()?;
        if thought.is_empty() {
            return self.summary();
        }
        Ok(thought)
    }

    /// The arguments of a call, or its free text. An object that is not text is taken as it was written.
    pub(super) fn arguments(&self, custom: bool) -> Result<Cow<'_, str>, Broken> {
        let raw = if custom { self.input } else { self.arguments };
        match raw.map(RawValue::get) {
            Some(object) if object.starts_with('{') => Ok(object.into()),
            _ => words(raw),
        }
    }
}

/// The parts of a member that is a list of some; those of another shape are left out.
fn pieces(list: Told<'_>) -> Vec<Piece<'_>> {
    fn read(raw: &RawValue) -> Option<Piece<'_>> {
        // What is read of an object may also be read of a list: it must be an object.
        let text = Some(raw.get()).filter(|text| text.starts_with('{'))?;
        serde_json::from_str(text).ok()
    }

    let list = list.and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
    list.unwrap_or_default().into_iter().filter_map(read).collect()
}

/// What stands between the parts of a thought.
pub(super) const BETWEEN: &str = "\n\n";

fn joined(list: Told<'_>) -> Result<String, Broken> {
    let mut texts = Vec::new();
    for piece in pieces(list) {
        texts.push(words(piece.text)?);
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts.join(BETWEEN))
}

/// How a response ended, told by its `status` or, without one, by the event that ended it.
pub(super) fn finish(
    response: &Response<'_>,
    event: Option<&str>,
    has_calls: bool,
    refused: bool,
) -> Result<Finish, Broken> {
    let status = text(response.status);
    match status.as_deref().or(event) {
        Some("completed") | None => Ok(if has_calls {
            Finish::ToolCalls
        } else if refused {
            Finish::Refused
        } else {
            Finish::Stop
        }),
        Some("incomplete") => {
            let reason = response
                .incomplete_details
                .as_ref()
                .and_then(|details| text(details.reason));
            let filtered = reason.as_deref() == Some("content_filter");
            Ok(if filtered { Finish::Refused } else { Finish::Length })
        }
        Some(_) => Err(Broken::Aborted),
    }
}
