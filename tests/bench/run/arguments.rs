//! The runner's command line, and what it asks for.

use std::path::PathBuf;

use clap::Parser;

use crate::kind::Kind;
use crate::machine::Machine;

/// Compares Waybill with nginx, a bare proxy and no proxy at all, a gateway and a router on a bus with a node that is
/// both, and measures the ledger.
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
    /// Only this: direct, nginx, bare, waybill, together, bus (brings together), ledger-postgres; may be given several times.
    #[arg(long)]
    only: Vec<Kind>,
    /// Only this case of calls; may be given several times.
    #[arg(long)]
    case: Vec<String>,
    /// Events that the ledger books in one round.
    #[arg(long, default_value_t = 100_000)]
    events: u32,
    /// Idle streams to open at the end; 0 leaves that out. Each takes two files of the system under test.
    #[arg(long, default_value_t = 0)]
    pub(crate) idle_streams: u32,
    /// Waybill's program; default: beside this one.
    #[arg(long)]
    waybill: Option<PathBuf>,
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

    /// Events of one round.
    pub(crate) fn events(&self) -> u32 {
        if self.quick { self.events / 10 } else { self.events }
    }

    /// Waybill's program.
    pub(crate) fn waybill(&self, machine: &Machine) -> PathBuf {
        let beside = || machine.program("waybill");
        self.waybill.clone().unwrap_or_else(beside)
    }

    /// Whether this takes part. The bus is nothing without what it is compared with.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        let compared = kind == Kind::Together && self.only.contains(&Kind::Bus);
        self.only.is_empty() || self.only.contains(&kind) || compared
    }

    /// Whether this case is run.
    pub(crate) fn wants_case(&self, name: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|wanted| wanted == name)
    }

    /// Whether the command line names cases of calls and does not name the ledger, which has none.
    pub(crate) fn wants_calls_only(&self) -> bool {
        !self.case.is_empty() && !self.only.contains(&Kind::Ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        Arguments::parse_from(std::iter::once("bench-run").chain(words.iter().copied()))
    }

    #[test]
    fn the_bus_brings_what_it_is_compared_with() {
        let only = arguments(&["--only", "bus"]);

        assert!(only.wants(Kind::Bus) && only.wants(Kind::Together));
        assert!(!only.wants(Kind::Waybill) && !only.wants(Kind::Ledger));
    }

    #[test]
    fn cases_are_about_calls_unless_the_ledger_is_named() {
        assert!(!arguments(&[]).wants_calls_only());
        assert!(arguments(&["--case", "c1"]).wants_calls_only());
        assert!(!arguments(&["--case", "c1", "--only", "ledger-postgres"]).wants_calls_only());
    }
}
