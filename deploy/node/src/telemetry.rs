//! Log lines go to stderr, as text or JSON. Events are the log of requests; lines are for operators.

use tracing::level_filters::LevelFilter;

use crate::config::{Config, LogFormat};

/// Sets up log lines for this process. An unknown level means `info`.
pub fn start(config: &Config) {
    let level: LevelFilter = config.log_level.parse().unwrap_or(LevelFilter::INFO);
    let plain = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // A subscriber that is already there stays: a test process starts several nodes.
    let _ = if config.log_format == LogFormat::Json {
        plain.json().try_init()
    } else {
        plain.with_ansi(false).try_init()
    };
}
