//! Proofs carried through clients of Responses in the `encrypted_content` of reasoning items, which they send back as
//! it came. What OpenAI made stands there as it is; what others made is marked with a prefix of ours.
//!
//! Guarantee: what is read is what was written, and nothing with the prefix is taken for something of OpenAI's.

use std::borrow::Cow;

use crate::superset::request::{Proof, ProofMaker};

/// What every proof of ours begins with.
const PREFIX: &str = "waybill.";
/// What the proof of a call begins with.
const CALL: &str = "waybill.call.";
const MAKERS: [ProofMaker; 3] = [ProofMaker::Anthropic, ProofMaker::Gemini, ProofMaker::OpenAi];

/// The proof of a thought as clients see it.
pub(super) fn written(maker: ProofMaker, text: &str) -> Cow<'_, str> {
    match maker {
        ProofMaker::OpenAi => text.into(),
        ProofMaker::Anthropic | ProofMaker::Gemini => format!("{PREFIX}{}.{text}", word(maker)).into(),
    }
}

/// The proof of a call, for a reasoning item of its own.
pub(super) fn written_for_call(maker: ProofMaker, call_id: &str, text: &str) -> String {
    format!("{CALL}{}.{}.{call_id}{text}", word(maker), call_id.len())
}

/// What a client sent back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told<'a> {
    /// The proof of a thought: who made it, and it.
    Thought(ProofMaker, &'a str),
    /// The proof of the call with this id.
    Call(&'a str, Proof),
    /// Of no use.
    Nothing,
}

/// True for a mark of ours, whatever it proves.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Reads what a client sent back.
pub(super) fn told(text: &str) -> Told<'_> {
    if let Some(rest) = text.strip_prefix(CALL) {
        return of_call(rest).unwrap_or(Told::Nothing);
    }
    match text.strip_prefix(PREFIX).map(maker) {
        None if text.is_empty() => Told::Nothing,
        None => Told::Thought(ProofMaker::OpenAi, text),
        Some(Some((maker, proof))) if !proof.is_empty() => Told::Thought(maker, proof),
        Some(_) => Told::Nothing,
    }
}

fn of_call(text: &str) -> Option<Told<'_>> {
    let (maker, rest) = maker(text)?;
    let (bytes, rest) = rest.split_once('.')?;
    let (call_id, text) = rest.split_at_checked(bytes.parse().ok()?)?;
    let proof = Proof {
        maker,
        text: text.to_owned(),
        redacted: false,
    };
    Some(Told::Call(call_id, proof))
}

/// The maker named first, and the rest.
fn maker(text: &str) -> Option<(ProofMaker, &str)> {
    let (named, rest) = text.split_once('.')?;
    let maker = MAKERS.into_iter().find(|maker| word(*maker) == named)?;
    Some((maker, rest))
}

const fn word(maker: ProofMaker) -> &'static str {
    match maker {
        ProofMaker::Anthropic => "anthropic",
        ProofMaker::Gemini => "gemini",
        ProofMaker::OpenAi => "openai",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_proof_is_read_as_it_was_written(maker in 0_usize..3, text in "[a-zA-Z0-9+/=]{1,30}", id in ".{1,12}") {
            let maker = MAKERS[maker];
            let proof = Proof { maker, text: text.clone(), redacted: false };

            let thought = written(maker, &text);
            prop_assert_eq!(told(&thought), Told::Thought(maker, &text));
            let call = written_for_call(maker, &id, &text);
            prop_assert_eq!(told(&call), Told::Call(&id, proof));
        }

        #[test]
        fn anything_can_be_read(text in "(waybill\\.)?(call\\.)?(gemini\\.)?([0-9]\\.)?.{0,8}") {
            let _ = told(&text);
        }
    }

    #[test]
    fn a_prefix_of_ours_without_a_proof_is_nothing_of_openais() {
        for text in [
            "",
            "waybill.",
            "waybill.gemini.",
            "waybill.call.gemini.99.x",
            "waybill.other.x",
        ] {
            assert_eq!(told(text), Told::Nothing, "{text}");
        }
    }
}
