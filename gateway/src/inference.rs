//! The paths that callers of models know. Every handler shows all it needs in its signature.

pub(crate) mod chat;
pub(crate) mod models;
