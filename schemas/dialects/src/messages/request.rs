//! Requests of Anthropic Messages, to and from the superset.

use crate::superset::request::{Conversation, Encoded, Refusal, Target, Unmappable};

/// Reads a request.
pub fn decode(_body: &[u8]) -> Result<Conversation, Refusal> {
    Err(Refusal::InvalidJson)
}

/// Writes a request for an upstream.
pub fn encode(_conversation: &Conversation, _target: &Target<'_>) -> Result<Encoded, Unmappable> {
    Ok(Encoded::default())
}
