//! The answer side of OpenAI chat completions: chunks of a stream, whole answers, errors and usage.
//! Everything is read where it stands; an answer is changed only by byte range.

pub mod answer;
pub mod chunk;
pub mod error;
pub mod usage;

mod choices;
mod frame;

#[cfg(test)]
mod tests;
