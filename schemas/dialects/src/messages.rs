//! Anthropic Messages. What passes from upstream to caller in this dialect is read where it stands (`passage`); what
//! is translated goes through `request`, `response` and `stream`.

pub mod count;
pub mod error;
pub mod passage;
pub mod request;
pub mod response;
pub mod stream;
pub mod version;

mod call;
mod frame;
mod id;
mod proof;
mod reason;
mod usage;
mod wrapped;
