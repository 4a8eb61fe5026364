//! Proofs of thoughts among clients of Messages, who send `signature`s and redacted thoughts back as they came.
//!
//! Guarantee: nothing of another maker's ever reaches Anthropic, which accepts only what it signed itself.

use crate::superset::proof::{self, Told};
use crate::superset::request::{Proof, ProofMaker};

pub(super) use crate::superset::proof::{is_ours, written_for_call as write_call};

/// The signature of a thought that nobody proved.
pub(super) const UNPROVED: &str = "waybill.none";

/// A proof as a client sees it.
pub(super) fn write(maker: ProofMaker, text: &str) -> String {
    proof::written(maker, text, ProofMaker::Anthropic)
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

/// Reads what a client sent back. `redacted`: the thought itself is only in there.
pub(super) fn read(text: &str, redacted: bool) -> Read<'_> {
    match proof::told(text, ProofMaker::Anthropic) {
        Told::Thought(maker, text) => Read::Thought(Proof {
            maker,
            text: text.to_owned(),
            redacted,
        }),
        Told::Call(id, proof) => Read::Call(id, proof),
        Told::Nothing => Read::Unproved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_anthropic_signed_is_its_own_and_the_mark_of_nobody_proves_nothing() {
        let proof = |maker, redacted| {
            Read::Thought(Proof {
                maker,
                text: "c2ln".to_owned(),
                redacted,
            })
        };

        assert_eq!(read("c2ln", true), proof(ProofMaker::Anthropic, true));
        assert_eq!(write(ProofMaker::Anthropic, "c2ln"), "c2ln");
        let written = write(ProofMaker::Gemini, "c2ln");
        assert_eq!(read(&written, false), proof(ProofMaker::Gemini, false));
        assert_eq!(read(UNPROVED, false), Read::Unproved);
        assert!(is_ours(UNPROVED) && is_ours(&written) && !is_ours("c2ln"));
    }
}
