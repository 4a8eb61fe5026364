//! OpenAI Responses.

pub mod request;
pub mod response;
pub mod stream;
