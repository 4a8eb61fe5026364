//! Answers as Gemini writes them, whole or in pieces: the same object. Members that nobody here reads may be anything.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::superset::answer::{Broken, Finish};

/// Text, borrowed where it can be.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// An answer, or a piece of one.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    pub(super) prompt_feedback: Option<Feedback<'a>>,
    pub(super) usage_metadata: Option<&'a RawValue>,
    pub(super) response_id: Option<Text<'a>>,
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Candidate<'a> {
    pub(super) index: Option<u32>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    pub(super) finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<Piece<'a>>>,
}

/// A part of an answer.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    pub(super) thought: Option<bool>,
    pub(super) thought_signature: Option<Text<'a>>,
    pub(super) function_call: Option<Called<'a>>,
    // What no other dialect can say, and nobody here asks for.
    inline_data: Option<&'a RawValue>,
    file_data: Option<&'a RawValue>,
    executable_code: Option<&'a RawValue>,
    code_execution_result: Option<&'a RawValue>,
}

impl Piece<'_> {
    /// True for an image, code that was run, and the like: without it the answer would not be whole.
    pub(super) fn is_foreign(&self) -> bool {
        [
            self.inline_data,
            self.file_data,
            self.executable_code,
            self.code_execution_result,
        ]
        .into_iter()
        .flatten()
        .any(|raw| raw.get() != "null")
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Called<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) args: Option<&'a RawValue>,
    // Arguments in pieces, which nobody here asks for.
    partial_args: Option<&'a RawValue>,
    will_continue: Option<bool>,
}

impl Called<'_> {
    /// True when the arguments are not all of them.
    pub(super) fn is_partial(&self) -> bool {
        self.will_continue == Some(true) || self.partial_args.is_some_and(|raw| raw.get() != "null")
    }
}

/// What is said of the prompt.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Feedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Option<Text<'a>>,
}

/// Why a candidate ended; `None` where that is not said.
pub(super) fn finish(reason: &str) -> Result<Option<Finish>, Broken> {
    Ok(Some(match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => return Ok(None),
        "MAX_TOKENS" => Finish::Length,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" | "ESCALATION" | "NO_IMAGE" => Finish::Refused,
        _ if reason.starts_with("IMAGE_") => Finish::Refused,
        "OTHER" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MISSING_THOUGHT_SIGNATURE" => {
            return Err(Broken::Aborted);
        }
        _ if reason.starts_with("MALFORMED_") => return Err(Broken::Aborted),
        // Reasons of the future end an answer well.
        _ => Finish::Stop,
    }))
}

/// The generation of a model by its name: 3 for `gemini-3-pro`. `None` for a name that does not tell.
pub(super) fn generation(model: &str) -> Option<u32> {
    let (_, rest) = model.split_once("gemini-")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_from_a_name_that_tells_it() {
        for (model, expected) in [
            ("gemini-2.5-flash", Some(2)),
            ("models/gemini-3-pro-preview", Some(3)),
            ("gemini-10.1", Some(10)),
            ("gemini-flash-latest", None),
            ("gemma-3", None),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
    }

    #[test]
    fn every_reason_has_its_meaning() {
        for (reason, expected) in [
            ("STOP", Ok(Some(Finish::Stop))),
            ("MAX_TOKENS", Ok(Some(Finish::Length))),
            ("SAFETY", Ok(Some(Finish::Refused))),
            ("IMAGE_SAFETY", Ok(Some(Finish::Refused))),
            ("MALFORMED_FUNCTION_CALL", Err(Broken::Aborted)),
            ("OTHER", Err(Broken::Aborted)),
            ("FINISH_REASON_UNSPECIFIED", Ok(None)),
            ("NEWER", Ok(Some(Finish::Stop))),
        ] {
            assert_eq!(finish(reason), expected, "{reason}");
        }
    }
}
