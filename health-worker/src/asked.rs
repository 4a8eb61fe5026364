//! One backend that is asked: what is due, and what follows from an answer. Pure but for what it is told.

use schemas::circuit::record::Opening;
use schemas::health::Probed;
use schemas::id::NodeId;
use schemas::time::Timestamp;

use crate::seen::Known;
use crate::target::Target;
use crate::verdict::{DOWN_EVERY_MS, Recovery, Watch};

/// How often an engine is asked for its figures, in milliseconds.
const FIGURES_EVERY_MS: u64 = 5_000;
/// How often a server is that answered and is none, in milliseconds.
const OTHERS_EVERY_MS: u64 = 60_000;
/// Not before it is said again.
const NEVER: u64 = u64::MAX;

/// What a server said of its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figures {
    /// They are an engine's.
    Told,
    /// It answered, and is no engine that is known.
    Others,
    /// It did not answer.
    Silent,
}

/// One backend. Times are milliseconds on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) target: Target,
    /// With a check.
    watch: Option<Watch>,
    /// What was told of it last: whether it is left out.
    told_out: bool,
    /// The revision on which what is wanted builds.
    base: u64,
    writing: bool,
    figures_due_ms: u64,
    alive_due_ms: u64,
    recovery: Recovery,
}

/// What the record of a backend is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) record: Probed,
    /// The revision that it replaces; `None` where there is none.
    pub(crate) expected: Option<u64>,
}

impl Asked {
    /// A backend that is first asked at `now_ms`. `known` is what is written of it, `now` the wall clock; `started`: it was
    /// there before whoever asks began to.
    pub(crate) fn new(
        target: Target,
        known: Option<&Known>,
        (now_ms, now, started): (u64, Timestamp, bool),
    ) -> Self {
        let out = known.is_some_and(|known| known.out);
        let watch = target.check.as_ref().map(|check| {
            let created_at = check.created_at.filter(|_| started);
            let age_ms = created_at.map_or(0, |created_at| now.millis_since(created_at));
            Watch::new(&check.terms, out, age_ms, now_ms)
        });
        Self {
            figures_due_ms: target.figures.as_ref().map_or(NEVER, |_| now_ms),
            alive_due_ms: now_ms,
            told_out: out,
            base: known.map_or(0, |known| known.revision),
            writing: false,
            recovery: Recovery::default(),
            watch,
            target,
        }
    }

    /// Since when it is due to be asked for its figures.
    pub(crate) fn figures_due(&self, now_ms: u64) -> Option<u64> {
        (self.figures_due_ms <= now_ms).then_some(self.figures_due_ms)
    }

    /// It is being asked for its figures.
    pub(crate) const fn begin_figures(&mut self) {
        self.figures_due_ms = NEVER;
    }

    /// How that went which began at `began_ms`.
    pub(crate) fn end_figures(&mut self, said: Figures, (began_ms, now_ms): (u64, u64)) {
        let every_ms = match said {
            Figures::Told | Figures::Silent => FIGURES_EVERY_MS,
            Figures::Others => OTHERS_EVERY_MS,
        };
        self.figures_due_ms = began_ms.saturating_add(every_ms).max(now_ms);
    }

    /// Whether it is to be asked if it lives: as its check says, and each second while its circuit is open.
    pub(crate) fn is_probe_due(&self, is_open: bool, now_ms: u64) -> bool {
        let checked = self.watch.is_some_and(|watch| watch.is_due(now_ms));
        self.alive_due_ms != NEVER && (checked || (is_open && self.alive_due_ms <= now_ms))
    }

    /// It is being asked if it lives.
    pub(crate) fn begin_probe(&mut self) {
        self.alive_due_ms = NEVER;
        if let Some(watch) = &mut self.watch {
            watch.begin();
        }
    }

    /// How that went which began at `began_ms`. True when it is to be told that it recovered, of the `opening` that its
    /// circuit is in.
    pub(crate) fn end_probe(
        &mut self,
        passed: bool,
        opening: Option<&Opening>,
        (began_ms, now_ms): (u64, u64),
    ) -> bool {
        self.alive_due_ms = began_ms.saturating_add(DOWN_EVERY_MS).max(now_ms);
        if let (Some(watch), Some(check)) = (&mut self.watch, &self.target.check) {
            watch.end(&check.terms, passed, (began_ms, now_ms));
        }
        opening.is_some_and(|opening| passed && self.recovery.passed(opening.number, now_ms))
    }

    /// What is to be written, given what is; `None` when that is as it should be. A record that somebody else changed for
    /// the better meanwhile is believed: a call succeeded.
    pub(crate) fn wanted(
        &mut self,
        known: Option<&Known>,
        (node, now, now_ms): (&NodeId, Timestamp, u64),
    ) -> Option<Wanted> {
        let (Some(watch), Some(check)) = (&mut self.watch, &self.target.check) else {
            return None;
        };
        if self.writing {
            return None;
        }
        let healed = known.is_some_and(|known| !known.out && known.revision > self.base);
        if healed && watch.is_out() {
            watch.healed(&check.terms, now_ms);
            self.told_out = false;
        }
        if let Some(known) = known {
            self.base = known.revision;
        }
        let out = watch.is_out();
        if known.map_or(!out, |known| known.out == out) {
            return None;
        }
        self.writing = true;
        Some(Wanted {
            record: Probed {
                backend: self.target.backend.clone(),
                endpoint_id: self.target.endpoint_id.clone(),
                out,
                failures: watch.failures(),
                changed_by: node.clone(),
                changed_at: now,
            },
            expected: known.map(|known| known.revision),
        })
    }

    /// What was to be written is, under a revision; or it is not, or nobody knows.
    pub(crate) const fn wrote(&mut self, revision: Option<u64>) {
        self.writing = false;
        if let Some(revision) = revision {
            self.base = revision;
        }
    }

    /// Whether it is left out, the first time that is written otherwise than it was told.
    pub(crate) fn news(&mut self, known: Option<&Known>) -> Option<(bool, u32)> {
        let out = known.is_some_and(|known| known.out);
        let watch = self
            .watch
            .filter(|watch| watch.is_out() == out && self.told_out != out)?;
        self.told_out = out;
        Some((out, watch.failures()))
    }
}

#[cfg(test)]
mod tests;
