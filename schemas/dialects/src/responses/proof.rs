//! Proofs among clients of Responses, in the `encrypted_content` of reasoning items, which they send back as it came.
//! What OpenAI made stands there as it is.

use crate::superset::proof;
use crate::superset::request::ProofMaker;

pub(super) use crate::superset::proof::{Told, is_ours, written_for_call};

/// The proof of a thought as clients see it.
pub(super) fn written(maker: ProofMaker, text: &str) -> String {
    proof::written(maker, text, ProofMaker::OpenAi)
}

/// Reads what a client sent back.
pub(super) fn told(text: &str) -> Told<'_> {
    proof::told(text, ProofMaker::OpenAi)
}
