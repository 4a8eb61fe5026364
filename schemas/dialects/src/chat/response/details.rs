//! What proves thoughts and calls, kept in answers so that a caller who gives it back lets the upstream read it:
//! `reasoning_details` beside a message, `extra_content` on a call.

use serde::Serialize;

use crate::superset::request::{Proof, ProofMaker};

/// An entry of `reasoning_details`.
#[derive(Serialize)]
#[serde(tag = "type")]
pub(in crate::chat) enum Detail<'a> {
    /// A thought in words; without them where they were told before.
    #[serde(rename = "reasoning.text")]
    Text {
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'static str>,
        index: usize,
    },
    /// A thought that only its maker can read.
    #[serde(rename = "reasoning.encrypted")]
    Encrypted {
        data: &'a str,
        format: &'static str,
        index: usize,
    },
}

impl<'a> Detail<'a> {
    /// The entry of a proof.
    pub(in crate::chat) fn proven(text: Option<&'a str>, proof: &'a Proof, index: usize) -> Self {
        Self::proof(proof.maker, &proof.text, proof.redacted, index).with(text)
    }

    /// The entry of a proof alone.
    pub(in crate::chat) const fn proof(
        maker: ProofMaker,
        proof: &'a str,
        redacted: bool,
        index: usize,
    ) -> Self {
        let format = format(maker);
        if redacted {
            Self::Encrypted {
                data: proof,
                format,
                index,
            }
        } else {
            Self::Text {
                text: None,
                signature: Some(proof),
                format: Some(format),
                index,
            }
        }
    }

    fn with(mut self, words: Option<&'a str>) -> Self {
        if let Self::Text { text, .. } = &mut self {
            *text = words;
        }
        self
    }
}

/// Adds the entries of a thought.
pub(in crate::chat) fn push<'a>(details: &mut Vec<Detail<'a>>, text: &'a str, proof: Option<&'a Proof>) {
    let unproven = proof.is_none_or(|proof| proof.redacted);
    if unproven && !text.is_empty() {
        details.push(Detail::Text {
            text: Some(text),
            signature: None,
            format: None,
            index: details.len(),
        });
    }
    if let Some(proof) = proof {
        details.push(Detail::proven(Some(text), proof, details.len()));
    }
}

const fn format(maker: ProofMaker) -> &'static str {
    match maker {
        ProofMaker::Anthropic => "anthropic-claude-v1",
        ProofMaker::Gemini => "google-gemini-v1",
        ProofMaker::OpenAi => "openai-responses-v1",
    }
}

/// `extra_content` of a call.
#[derive(Serialize, Default)]
pub(in crate::chat) struct Extra<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    google: Option<Signature<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic: Option<Signature<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    openai: Option<Signature<'a>>,
}

#[derive(Serialize)]
struct Signature<'a> {
    thought_signature: &'a str,
}

impl<'a> Extra<'a> {
    /// That of a proof.
    pub(in crate::chat) fn of(proof: &'a Proof) -> Self {
        Self::signed(proof.maker, &proof.text)
    }

    /// That of a proof's text.
    pub(in crate::chat) fn signed(maker: ProofMaker, text: &'a str) -> Self {
        let signature = Some(Signature {
            thought_signature: text,
        });
        match maker {
            ProofMaker::Gemini => Self {
                google: signature,
                ..Self::default()
            },
            ProofMaker::Anthropic => Self {
                anthropic: signature,
                ..Self::default()
            },
            ProofMaker::OpenAi => Self {
                openai: signature,
                ..Self::default()
            },
        }
    }
}
