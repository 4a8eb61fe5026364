//! Anthropic Messages. What passes from upstream to caller in this dialect is read where it stands (`passage`); what
//! is translated goes through `request`, `response` and `stream`.

pub mod error;
pub mod request;
pub mod response;
pub mod stream;

mod json;
mod proof;
mod reason;
mod usage;
