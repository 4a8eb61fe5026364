//! OpenAI chat completions. What passes from upstream to caller in this dialect is read where it stands and changed
//! only by byte range (`chunk`, `answer`); what is translated goes through `request`, `response` and `stream`.

pub mod answer;
pub mod chunk;
pub mod ends;
pub mod error;
pub mod mend;
pub mod numbers;
pub mod request;
pub mod response;
pub mod shares;
pub mod stream;
pub mod usage;

pub(crate) mod arguments;
mod choices;
mod frame;
mod halves;
pub(crate) mod mint;
mod schema;
pub(crate) mod signed;
pub(crate) mod thoughts;

#[cfg(test)]
mod tests;
