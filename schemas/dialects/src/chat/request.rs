//! Requests of OpenAI chat completions, to and from the superset. `docs/dialects.md` tells what is carried, what is
//! refused, and what is dropped.

mod body;
mod encode;
mod messages;
mod offer;
mod order;
pub(super) mod parts;
mod reader;
pub(crate) mod renamed;
mod said;
mod tools;
mod turns;

use crate::superset::request::{Conversation, Encoded, ProofMaker, Refusal, Target, Unmappable};

/// Members of `extra_content` that hold signatures, and whose.
const VENDORS: &[(&str, ProofMaker)] = &[
    ("google", ProofMaker::Gemini),
    ("anthropic", ProofMaker::Anthropic),
    ("openai", ProofMaker::OpenAi),
];

/// Reads a request.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    body::read(body)
}

/// Writes a request for an upstream.
pub fn encode(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    encode::write(conversation, target)
}

#[cfg(test)]
mod tests;
