//! Requests of OpenAI completions, to and from the superset.

use crate::superset::request::{Conversation, Refusal};

/// Reads a request.
pub fn decode(_body: &[u8]) -> Result<Conversation, Refusal> {
    Err(Refusal::InvalidJson)
}
