//! Gemini's generateContent: spoken by upstreams, never by callers. `docs/dialects.md` tells what is carried, what is
//! refused, and what is dropped.

pub mod error;
pub mod request;
pub mod response;
pub mod stream;

pub(crate) mod usage;
mod wire;
