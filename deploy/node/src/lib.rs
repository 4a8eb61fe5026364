//! The composition root.

pub mod environment;
pub mod yaml;
