//! What callers and upstreams speak, as pure functions over bytes: one framer for event streams, one skim
//! of a request, one skim of an answer, and edits by byte range. Nothing here does I/O or waits.
//!
//! Guarantees: no function panics on any input, each is linear in its input, and what is not edited
//! passes byte for byte.

pub mod chat;
pub mod estimate;
mod scan;
pub mod skim;
pub mod splice;
pub mod sse;
