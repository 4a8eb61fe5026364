//! Requests of Anthropic Messages, to and from the superset.

use crate::superset::request::{Conversation, Encoded, Refusal, Target, Unmappable};

mod blocks;
mod decode;
mod history;
mod options;

/// Reads a request.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    decode::decode(body)
}

/// Writes a request for an upstream.
pub fn encode(_conversation: &Conversation, _target: &Target<'_>) -> Result<Encoded, Unmappable> {
    Ok(Encoded::default())
}

#[cfg(test)]
mod tests;
