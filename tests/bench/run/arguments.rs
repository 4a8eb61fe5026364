//! The runner's command line.

use std::path::PathBuf;

use clap::Parser;

use crate::system::Kind;

/// Compares Waybill with nginx, a bare proxy and no proxy at all.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// Rounds; every figure is the median over them.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of one measured window, in seconds.
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// One short round: a check that everything runs, no figures to keep.
    #[arg(long)]
    quick: bool,
    /// Only this system (direct, nginx, bare, waybill); may be given several times.
    #[arg(long)]
    only: Vec<Kind>,
    /// Only this case; may be given several times.
    #[arg(long)]
    case: Vec<String>,
    /// Idle streams to open at the end; 0 leaves that out. Each takes two files of the system under test.
    #[arg(long, default_value_t = 0)]
    pub(crate) idle_streams: u32,
    /// Waybill's program; default: beside this one.
    #[arg(long)]
    pub(crate) waybill: Option<PathBuf>,
    /// Where the JSON report goes.
    #[arg(long, default_value = "target/bench/report.json")]
    pub(crate) out: PathBuf,
    /// Run everything with a real-time priority (`chrt`), for a machine that has other work; that work then waits.
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Fail unless every target is met.
    #[arg(long)]
    pub(crate) strict: bool,
}

impl Arguments {
    /// Rounds to run.
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    /// Seconds of one window.
    pub(crate) fn secs(&self) -> f64 {
        if self.quick { 0.5 } else { self.secs }
    }

    /// Whether this system takes part.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }

    /// Whether this case is run.
    pub(crate) fn wants_case(&self, name: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|wanted| wanted == name)
    }
}
