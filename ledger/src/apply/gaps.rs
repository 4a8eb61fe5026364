//! Gaps in the books, as a pure observer: an event that is missing for a moment is only late; one that stays away is
//! reported, looked for in the log ever more rarely, and reported again when it has come.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::coverage::Hole;

/// How long an event may be late before it counts as missing.
pub(super) const LATE: Duration = Duration::from_secs(2);
/// By how much the pause between two looks into the log grows, and how long it is at most.
const PAUSE_FACTOR: u32 = 8;
const PAUSE_MAX: Duration = Duration::from_hours(1);

/// The gaps there are.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    known: Vec<Gap>,
}

#[derive(Debug, Clone)]
struct Gap {
    hole: Hole,
    /// When the log is read for it, and the pause after that.
    next: Instant,
    pause: Duration,
    reported: bool,
}

/// What changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Gaps to report.
    pub(super) opened: Vec<Hole>,
    /// Reported gaps that are filled.
    pub(super) closed: Vec<Hole>,
    /// Sources to look for in the log: where they went on, or for the second of each pair from its oldest.
    pub(super) wanted: Vec<(Arc<str>, bool)>,
}

impl Gaps {
    /// Looks at the holes as they are at `now`.
    pub(super) fn look(&mut self, now: Instant, holes: impl Iterator<Item = Hole>) -> Findings {
        let mut findings = Findings::default();
        let mut kept = Vec::new();
        for hole in holes {
            // What is left of a gap that is filled in part is as old as the gap.
            let parent = self.known.iter().find(|gap| gap.holds(&hole));
            let mut gap = parent.map_or_else(
                || Gap {
                    hole: hole.clone(),
                    next: now + LATE,
                    pause: LATE,
                    reported: false,
                },
                |parent| Gap {
                    hole: hole.clone(),
                    ..parent.clone()
                },
            );
            if gap.next <= now {
                if !gap.reported {
                    gap.reported = true;
                    findings.opened.push(hole.clone());
                }
                let whole = gap.pause > LATE;
                match findings
                    .wanted
                    .iter_mut()
                    .find(|(source, _)| *source == hole.source)
                {
                    Some((_, wanted)) => *wanted |= whole,
                    None => findings.wanted.push((hole.source, whole)),
                }
                gap.pause = (gap.pause * PAUSE_FACTOR).min(PAUSE_MAX);
                gap.next = now + gap.pause;
            }
            kept.push(gap);
        }
        let before = std::mem::replace(&mut self.known, kept);
        let left = |gap: &Gap| self.known.iter().any(|kept| gap.holds(&kept.hole));
        let closed = before.into_iter().filter(|gap| gap.reported && !left(gap));
        findings.closed = closed.map(|gap| gap.hole).collect();
        findings
    }
}

impl Gap {
    fn holds(&self, hole: &Hole) -> bool {
        self.hole.source == hole.source && self.hole.from <= hole.from && hole.to <= self.hole.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(from: u64, to: u64) -> Hole {
        Hole {
            source: "a".into(),
            from,
            to,
        }
    }

    #[test]
    fn a_late_event_is_no_gap_and_a_missing_one_is_reported_once_and_looked_for_ever_more_rarely() {
        let start = Instant::now();
        let mut gaps = Gaps::default();
        let mut look =
            |millis, holes: Vec<Hole>| gaps.look(start + Duration::from_millis(millis), holes.into_iter());

        assert_eq!(look(0, vec![hole(3, 3)]), Findings::default());
        assert_eq!(look(1_000, vec![]), Findings::default());
        assert_eq!(look(2_000, vec![hole(5, 8)]), Findings::default());
        assert_eq!(look(3_900, vec![hole(5, 8)]), Findings::default());
        let found = look(4_000, vec![hole(5, 8)]);
        assert_eq!(found.opened, [hole(5, 8)]);
        assert_eq!(found.wanted, [("a".into(), false)]);
        assert_eq!(look(19_000, vec![hole(5, 8)]), Findings::default());
        let again = look(20_000, vec![hole(5, 6), hole(8, 8)]);
        assert_eq!(again.opened, [], "what is left of it was reported");
        assert_eq!(again.wanted, [("a".into(), true)], "now from the oldest");
        assert_eq!(look(21_000, vec![hole(8, 8)]).closed, [hole(5, 6)]);
        assert_eq!(look(22_000, vec![]).closed, [hole(8, 8)]);
    }
}
