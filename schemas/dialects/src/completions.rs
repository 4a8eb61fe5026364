//! OpenAI's older completions, of a prompt instead of messages.

pub mod request;
pub mod response;
pub mod stream;
