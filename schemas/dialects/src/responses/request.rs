//! Requests of OpenAI Responses, to and from the superset.
//!
//! Reading keeps all that means something, or refuses it by name. A hosted tool that the caller himself has switched
//! off, hints, and marks that only the server that made them can read are dropped; hints are reported.

use crate::superset::request::{Conversation, Encoded, Refusal, Target, Unmappable};

mod input;
mod items;
mod output;
mod parts;
mod settings;
mod strict;
mod tell;
mod tools;
mod wrap;

pub(crate) use settings::SUMMARY;

/// Reads a request. Its `previous_response_id` was resolved before: one that is still there is refused.
pub fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    input::read(body)
}

/// Writes a request for an upstream, which is to keep nothing.
pub fn encode(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    output::write(conversation, target)
}

#[cfg(test)]
mod tests;
