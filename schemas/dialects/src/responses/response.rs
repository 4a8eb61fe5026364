//! Whole answers of OpenAI Responses, to and from the superset.

use bytes::Bytes;

use crate::superset::answer::{Answer, Broken};
use crate::superset::event::Reply;

/// Reads an upstream's answer.
pub fn decode(_body: &[u8]) -> Result<Answer, Broken> {
    Err(Broken::Malformed)
}

/// Writes an answer for a caller.
pub fn encode(_answer: &Answer, _reply: &Reply) -> Bytes {
    Bytes::new()
}
