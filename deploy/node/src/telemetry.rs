//! Log lines go to stderr, as text or JSON. Events are the log of requests; lines are for operators.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat};

/// The client of the bus, which tells of every connection what we tell of those that matter, and of every message its
/// subject, in which the digest of a key may stand.
const CHATTY: &str = "async_nats";

/// Sets up log lines for this process. An unknown level means `info`.
pub fn start(config: &Config) {
    let level: LevelFilter = config.log_level.parse().unwrap_or(LevelFilter::INFO);
    let shown = Targets::new()
        .with_default(level)
        .with_target(CHATTY, level.min(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(shown);
    // A subscriber that is already there stays: a test process starts several nodes.
    let _ = if config.log_format == LogFormat::Json {
        registry.with(lines.json()).try_init()
    } else {
        registry.with(lines.with_ansi(false)).try_init()
    };
}
