//! Proofs of other upstreams, carried through Messages clients: they send `signature`s and redacted thoughts back
//! as they came, so what another upstream wants to see again travels in them, marked with a prefix of ours.
//!
//! Guarantee: nothing with the prefix ever reaches Anthropic, which accepts only what it signed itself.

use crate::superset::request::{Proof, ProofMaker};

/// What every proof of ours begins with.
const PREFIX: &str = "waybill.";
/// The signature of a thought that nobody proved.
pub(super) const UNPROVED: &str = "waybill.none";
/// What the proof of a call begins with, in a redacted thought of its own.
const CALL: &str = "call.";

/// A proof as a client sees it.
pub(super) fn write(maker: ProofMaker, text: &str) -> String {
    match maker {
        ProofMaker::Anthropic => text.to_owned(),
        ProofMaker::Gemini | ProofMaker::OpenAi => format!("{PREFIX}{}.{text}", tag(maker)),
    }
}

/// The proof of a call, for a redacted thought.
pub(super) fn write_call(maker: ProofMaker, call_id: &str, text: &str) -> String {
    format!("{PREFIX}{CALL}{}.{}.{call_id}{text}", tag(maker), call_id.len())
}

/// What a client sent back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// Of a thought.
    Thought(Proof),
    /// Of the call with this id.
    Call(&'a str, Proof),
    /// Of nothing.
    Unproved,
}

/// True for a mark of ours, whatever it proves.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Reads what a client sent back. `redacted`: the thought itself is only in there.
pub(super) fn read(text: &str, redacted: bool) -> Read<'_> {
    let proof = |maker, text: &str, redacted| Proof {
        maker,
        text: text.to_owned(),
        redacted,
    };
    let Some(ours) = text.strip_prefix(PREFIX) else {
        return if text.is_empty() {
            Read::Unproved
        } else {
            Read::Thought(proof(ProofMaker::Anthropic, text, redacted))
        };
    };
    if let Some((maker, rest)) = ours.strip_prefix(CALL).and_then(maker) {
        let parts = rest.split_once('.').and_then(|(length, rest)| {
            let length = length.parse().ok()?;
            rest.split_at_checked(length)
        });
        return match parts {
            Some((id, text)) => Read::Call(id, proof(maker, text, false)),
            None => Read::Unproved,
        };
    }
    match maker(ours) {
        Some((maker, text)) if !text.is_empty() => Read::Thought(proof(maker, text, redacted)),
        _ => Read::Unproved,
    }
}

/// The maker named at the beginning, and what follows it.
fn maker(text: &str) -> Option<(ProofMaker, &str)> {
    [ProofMaker::Anthropic, ProofMaker::Gemini, ProofMaker::OpenAi]
        .into_iter()
        .find_map(|maker| {
            let rest = text.strip_prefix(tag(maker))?.strip_prefix('.')?;
            Some((maker, rest))
        })
}

const fn tag(maker: ProofMaker) -> &'static str {
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

    fn maker() -> impl Strategy<Value = ProofMaker> {
        prop_oneof![
            Just(ProofMaker::Anthropic),
            Just(ProofMaker::Gemini),
            Just(ProofMaker::OpenAi)
        ]
    }

    proptest! {
        #[test]
        fn a_proof_comes_back_as_it_left(maker in maker(), text in "[a-zA-Z0-9+/=]{1,40}", redacted: bool) {
            let proof = Proof { maker, text, redacted };
            let written = write(maker, &proof.text);

            prop_assert_eq!(read(&written, redacted), Read::Thought(proof));
        }

        #[test]
        fn the_proof_of_a_call_comes_back_with_its_call(maker in maker(), id in ".{1,20}", text in ".{0,40}") {
            let proof = Proof { maker, text, redacted: false };
            let written = write_call(maker, &id, &proof.text);

            prop_assert_eq!(read(&written, true), Read::Call(&id, proof));
        }

        #[test]
        fn anything_can_be_read(text in "(waybill\\.)?(call\\.)?(gemini\\.)?.{0,10}", redacted: bool) {
            read(&text, redacted);
        }
    }

    #[test]
    fn a_mark_of_ours_without_a_proof_proves_nothing() {
        assert_eq!(read(UNPROVED, false), Read::Unproved);
        assert_eq!(read("waybill.call.gemini.99.x", true), Read::Unproved);
        assert_eq!(read("", false), Read::Unproved);
    }
}
