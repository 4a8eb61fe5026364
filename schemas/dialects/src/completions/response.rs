//! Whole answers of OpenAI completions, to and from the superset.

use bytes::Bytes;

use crate::superset::answer::Answer;
use crate::superset::event::Reply;

/// Writes an answer for a caller.
pub fn encode(_answer: &Answer, _reply: &Reply) -> Bytes {
    Bytes::new()
}
