//! The composition root: configuration, adapters, and which roles run in this process. No business rules.

pub mod adapters;
pub mod agreement;
pub mod catalog_files;
pub mod check;
pub mod command_line;
pub mod config;
pub mod config_command;
pub mod control;
pub mod counters;
pub mod data;
pub mod decimal;
pub mod discover;
pub mod drain;
pub mod environment;
pub mod exit;
pub mod files;
mod joining;
pub mod key_command;
pub mod keys;
pub mod litellm;
pub mod management;
pub mod manifest;
pub mod migrate;
pub mod models;
pub mod node_command;
mod numbering;
mod orphans;
pub mod patience;
pub mod reconcile;
pub mod records;
pub mod reload;
pub mod replay;
pub mod reprice;
pub mod sealing;
pub mod secrets;
pub mod seed;
pub mod serve;
pub mod settings;
pub mod simulate;
pub mod status;
pub mod supervisor;
pub mod telemetry;
pub mod verify;
pub mod watch;
pub mod yaml;

/// A command was typed wrongly; the text says how it is right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
