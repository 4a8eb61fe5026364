//! The one representation between dialects: everything a request, an answer or an event of a stream of any dialect
//! can say. Each dialect has one codec to and from it; no dialect knows another. Bodies whose dialect is the same on
//! both sides never come here: their bytes pass.
//!
//! Rules for codecs: a decoder keeps whatever means something, or refuses it by name; an encoder carries whatever it
//! is given, refuses it by name ([`request::Unmappable`]), or, for harmless hints alone, drops it and says so.

pub mod answer;
pub(crate) mod calls;
pub mod event;
pub(crate) mod proof;
pub mod request;
#[cfg(test)]
pub(crate) mod spoken;
pub mod tool;
