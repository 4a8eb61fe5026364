//! Whole answers of Gemini's generateContent, to and from the superset.

use crate::superset::answer::{Answer, Broken};

/// Reads an upstream's answer.
pub fn decode(_body: &[u8]) -> Result<Answer, Broken> {
    Err(Broken::Malformed)
}
