//! Requests of Gemini's generateContent, to and from the superset.

use crate::superset::request::{Conversation, Encoded, Target, Unmappable};

/// Writes a request for an upstream.
pub fn encode(_conversation: &Conversation, _target: &Target<'_>) -> Result<Encoded, Unmappable> {
    Ok(Encoded::default())
}
