//! What one run of the load generator measured: written by it, read by the runner.
//!
//! Times are microseconds, memory is KiB, CPU is time on a core (user and kernel) divided by the requests that ended in the window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The result of one window of load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Length of the window, in seconds.
    pub(crate) seconds: f64,
    /// Whole, correct answers that ended in the window.
    pub(crate) requests: u32,
    /// Requests that failed in the window: no answer, another status than 200, a stream that was not whole.
    pub(crate) errors: u32,
    /// What the first failure of the whole run was.
    pub(crate) first_error: Option<String>,
    /// `requests` by `seconds`.
    pub(crate) requests_per_second: f64,
    /// From sending (open loop: from the due time) to the last byte.
    pub(crate) latency_us: Percentiles,
    /// From sending (open loop: from the due time) to the first byte of a stream's body.
    pub(crate) first_byte_us: Option<Percentiles>,
    /// The watched processes, in the order given.
    pub(crate) processes: Vec<Process>,
}

/// Three percentiles of one quantity, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Half of the values are at most this.
    pub(crate) p50: f64,
    /// Nine in ten are at most this.
    pub(crate) p90: f64,
    /// Ninety-nine in a hundred are at most this.
    pub(crate) p99: f64,
}

/// A watched process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Process id.
    pub(crate) pid: u32,
    /// Resident memory at the end of the window, in KiB.
    pub(crate) rss_kib: f64,
    /// CPU per request, all threads, in microseconds.
    pub(crate) cpu_us: f64,
    /// The same by name of the threads, trailing numbers cut off.
    pub(crate) threads: BTreeMap<String, f64>,
}

/// What many idle streams cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IdleStreams {
    /// Streams that had their first event and stayed open.
    pub(crate) open: u32,
    /// Streams that failed to open, or ended while they should idle.
    pub(crate) failed: u32,
    /// What the first failure was.
    pub(crate) first_error: Option<String>,
    /// Resident memory of all watched processes before the first stream, in KiB.
    pub(crate) rss_before_kib: f64,
    /// The same while the streams idle.
    pub(crate) rss_kib: f64,
}
