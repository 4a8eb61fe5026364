//! The load generator's command line.

use clap::{Parser, ValueEnum};
use http::Uri;

/// What the load generator speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic Messages.
    Messages,
}

/// What a call is named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Named {
    /// An idempotency key of its own.
    Key,
    /// A session: one after the other of a hundred.
    Session,
}

/// A load generator for chat completions, and for streams of Messages.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Arguments {
    /// Where to send requests; plain `http` only.
    #[arg(long)]
    pub(crate) url: Uri,
    /// Bearer key.
    #[arg(long, default_value = "sk-bench-none-needed")]
    pub(crate) key: String,
    /// Model to ask for.
    #[arg(long, default_value = "bench-model")]
    pub(crate) model: String,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 16)]
    pub(crate) concurrency: u32,
    /// Length of the measured window, in seconds.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) secs: f64,
    /// Load before the window, in seconds.
    #[arg(long, default_value_t = 0.4)]
    pub(crate) warmup: f64,
    /// What to speak: chat at the url, or Messages at `/v1/messages` of its host.
    #[arg(long, default_value = "chat")]
    pub(crate) dialect: Dialect,
    /// Name each call in a header.
    #[arg(long)]
    pub(crate) named: Option<Named>,
    /// Ask for streams.
    #[arg(long)]
    pub(crate) stream: bool,
    /// Ask for the usage event of a stream.
    #[arg(long)]
    pub(crate) include_usage: bool,
    /// Content events a whole stream has; 0 does not count them.
    #[arg(long, default_value_t = 0)]
    pub(crate) expect_chunks: usize,
    /// Length of the user message, in bytes.
    #[arg(long, default_value_t = 150)]
    pub(crate) prompt_bytes: usize,
    /// Open loop: requests due per second; latency counts from the due time.
    #[arg(long)]
    pub(crate) rate: Option<u32>,
    /// A process to watch; may be given several times.
    #[arg(long)]
    pub(crate) pid: Vec<u32>,
    /// Open so many streams, hold them, report memory; needs an upstream that stalls.
    #[arg(long, default_value_t = 0)]
    pub(crate) idle_streams: u32,
    /// How long idle streams are held before memory is read, in seconds.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) hold_secs: f64,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
