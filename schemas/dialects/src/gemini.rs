//! Gemini's generateContent: spoken by upstreams, never by callers.

pub mod request;
pub mod response;
pub mod stream;
