//! Requests of Anthropic Messages, to and from the superset.

use crate::superset::request::{Conversation, Encoded, Refusal, Target, Unmappable};

mod blocks;
mod decode;
mod encode;
mod history;
mod material;
mod offer;
mod options;
mod said;
mod thought;

/// Reads a request.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    decode::decode(body)
}

/// Writes a request for an upstream.
pub fn encode(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    encode::encode(conversation, target)
}

#[cfg(test)]
mod tests;
