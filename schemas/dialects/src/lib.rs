//! What callers and upstreams speak, as pure functions over bytes: one framer for event streams, one skim
//! of a request, one skim of an answer, edits by byte range, and one codec per dialect around one superset. Nothing
//! here does I/O or waits.
//!
//! Guarantees: no function panics on any input, each is linear in its input, and what is not edited
//! passes byte for byte.

pub mod account;
pub mod chat;
pub mod completions;
pub mod dialect;
pub mod embeddings;
pub mod estimate;
pub mod gemini;
pub mod member;
pub mod messages;
mod object;
pub mod parameter;
pub mod passage;
pub mod processor;
pub mod profile;
pub mod provider;
pub mod raw;
pub mod responses;
mod scan;
pub mod skim;
pub mod splice;
pub mod sse;
pub mod superset;
#[cfg(test)]
mod testing;
pub mod translate;
