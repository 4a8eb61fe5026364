//! The seals of one tenant as a chain, pure. Each names the digest of the one before; of several for one part of a day
//! the first that continues the chain counts, as two ledgers may both have told one.

use std::collections::HashSet;

use chrono::NaiveDate;
use schemas::digest::Digest;
use schemas::event::ledger::Sealed;
use schemas::merkle::seal_digest;

/// The seals that count, and those that hang in the air.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// In the order of the log.
    pub(super) seals: Vec<Sealed>,
    /// Seals whose predecessor is not in the log, or that stand beside the chain without another for their part.
    pub(super) broken: Vec<Sealed>,
    last: Option<Digest>,
}

impl Chain {
    /// Of the seals of one tenant, in the order of the log.
    pub(super) fn of(seals: impl IntoIterator<Item = Sealed>) -> Self {
        let mut chain = Self::default();
        let mut digests = HashSet::new();
        let mut beside = Vec::new();
        for seal in seals {
            let digest = seal_digest(&seal);
            digests.insert(digest);
            let follows = seal.previous == chain.last && seal.part == chain.next_part(seal.day);
            if follows {
                chain.last = Some(digest);
                chain.seals.push(seal);
            } else {
                beside.push(seal);
            }
        }
        beside.retain(|seal| {
            let is_known = seal.previous.is_none_or(|previous| digests.contains(&previous));
            !is_known || !chain.has(seal)
        });
        chain.broken = beside;
        chain
    }

    fn has(&self, seal: &Sealed) -> bool {
        let same = |held: &Sealed| held.day == seal.day && held.part == seal.part;
        self.seals.iter().any(same)
    }

    /// The digest of the last seal that counts.
    pub(super) fn last(&self) -> Option<Digest> {
        self.last
    }

    /// The parts of a day, in order.
    pub(super) fn parts(&self, day: NaiveDate) -> impl Iterator<Item = &Sealed> {
        self.seals.iter().filter(move |seal| seal.day == day)
    }

    /// The number of the next part of a day.
    pub(super) fn next_part(&self, day: NaiveDate) -> u32 {
        u32::try_from(self.parts(day).count()).map_or(u32::MAX, |parts| parts.saturating_add(1))
    }
}
