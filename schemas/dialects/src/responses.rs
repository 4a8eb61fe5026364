//! OpenAI Responses.

pub mod error;
mod item;
pub mod mend;
mod object;
pub mod passage;
mod proof;
pub mod request;
pub mod response;
pub mod stateless;
pub mod stream;
mod told;
mod usage;
