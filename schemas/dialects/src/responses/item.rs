//! Items and their parts as they are written: one shape for all kinds, of which each item has the members of its kind.

use std::borrow::Cow;

use serde::Serialize;

/// An item of a request's input or of an answer's output.
#[derive(Debug, Default, Serialize)]
pub(super) struct Item<'a> {
    /// `message`, `reasoning`, `function_call`, …
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    /// `in_progress`, `completed` or `incomplete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Vec<Piece<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Vec<Piece<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encrypted_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'a str>,
    /// Of a call of a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a str>,
    /// Of a call of a tool that takes free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<&'a str>,
    /// Of the result of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<Output<'a>>,
}

/// The result of a call.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Output<'a> {
    /// Text alone.
    Text(Cow<'a, str>),
    /// Anything.
    Pieces(Vec<Piece<'a>>),
}

/// A part of an item.
#[derive(Debug, Default, Serialize)]
pub(super) struct Piece<'a> {
    /// `output_text`, `refusal`, `summary_text`, `input_text`, …
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<[(); 0]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<[(); 0]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_url: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_data: Option<Cow<'a, str>>,
}

impl<'a> Piece<'a> {
    /// A part that is text of a kind.
    pub(super) fn text(kind: &'static str, text: &'a str) -> Self {
        Self {
            kind,
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// What a model said.
    pub(super) fn said(text: &'a str) -> Self {
        Self {
            annotations: Some([]),
            logprobs: Some([]),
            ..Self::text("output_text", text)
        }
    }

    /// A model's no.
    pub(super) fn refusal(refusal: &'a str) -> Self {
        Self {
            kind: "refusal",
            refusal: Some(refusal),
            ..Self::default()
        }
    }
}
