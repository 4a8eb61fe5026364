//! The paths that callers of models know. Every handler shows all it needs in its signature.

pub(crate) mod balance;
pub(crate) mod call;
pub(crate) mod count;
pub(crate) mod models;
pub(crate) mod responses;
