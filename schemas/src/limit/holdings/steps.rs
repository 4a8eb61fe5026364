//! What a node has to ask the fleet for, and what it is answered.

use super::Holdings;
use super::shelf::Limit;
use crate::limit::layers::Name;
use crate::limit::limits::Slice;
use crate::limit::rate::Add;
use crate::limit::shared::{Outcome, Step};
use crate::limit::{Now, quota, slots};

/// Something to ask, about the limit of this name. Each is to be answered once: whoever gets no answer in time says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Add to a counter: see [`Name::slice`].
    Add(Name, Add),
    /// Read or write a record of slots.
    Slots(Name, Step<slots::record::Record>),
    /// Read or write a record of a quota.
    Quota(Name, Step<quota::record::Record>),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The counter's value after the addition.
    Added(Name, u64),
    /// The addition was not answered.
    NotAdded(Name),
    /// A record of slots as it was read or told, or that there is none.
    SlotsAre(Name, Option<(u64, slots::record::Record)>),
    /// A record of a quota as it was read or told, or that there is none.
    QuotaIs(Name, Option<(u64, quota::record::Record)>),
    /// A record was not read.
    NotRead(Name),
    /// What became of a write.
    Wrote(Name, Outcome),
}

impl Answer {
    /// Whose it is.
    pub const fn name(&self) -> &Name {
        let (Self::Added(name, _)
        | Self::NotAdded(name)
        | Self::SlotsAre(name, _)
        | Self::QuotaIs(name, _)
        | Self::NotRead(name)
        | Self::Wrote(name, _)) = self;
        name
    }
}

impl Holdings {
    /// What is to be asked now, about the limits that something happened to.
    pub fn steps(&mut self, now: Now) -> Vec<Ask> {
        let mut asks = Vec::new();
        for place in self.shelf.take_touched() {
            let Some(entry) = self.shelf.entry_mut(place) else {
                continue;
            };
            let name = || entry.name.clone();
            asks.extend(match &mut entry.limit {
                Limit::Rate(rate) => rate.next(now).map(|add| Ask::Add(name(), add)),
                Limit::Slots(slots) => slots.next(now).map(|step| Ask::Slots(name(), step)),
                Limit::Quota(quota) => quota.next(now).map(|step| Ask::Quota(name(), step)),
            });
        }
        asks
    }

    /// Has every limit looked at by the next [`Self::steps`], for what only time changes (each 50 ms will do), and
    /// forgets those of which nothing is held.
    pub fn tick(&mut self, now: Now) {
        self.shelf.sweep(|limit| match limit {
            Limit::Rate(rate) => rate.is_idle(now),
            Limit::Slots(slots) => slots.is_idle(),
            Limit::Quota(quota) => quota.is_idle(now),
        });
        for (place, _) in &self.waits {
            self.shelf.stir(*place);
        }
    }

    /// Learns an answer.
    pub fn answer(&mut self, answer: Answer, now: Now) {
        match &answer {
            // A lease is counted from when its beat is first seen, be it before the first request.
            Answer::SlotsAre(name, Some((_, record))) if !record.holders.is_empty() => {
                self.hear_of(name, |fresh, _| fresh.slots(0));
            }
            Answer::QuotaIs(name, Some((_, record))) if self.inherits(record) => {
                self.hear_of(name, |fresh, name| fresh.quota(name, 0));
            }
            _ => {}
        }
        self.learn(answer, false, now);
    }

    /// `anew`: out of a bucket that was made anew.
    fn learn(&mut self, answer: Answer, anew: bool, now: Now) {
        let place = self.shelf.place(answer.name());
        let Some(limit) = place.and_then(|place| self.shelf.stir(place)) else {
            return;
        };
        match (limit, answer) {
            (Limit::Rate(rate), Answer::Added(_, value)) => rate.added(value, now),
            (Limit::Rate(rate), Answer::NotAdded(_)) => rate.failed(),
            (Limit::Slots(slots), Answer::SlotsAre(_, found)) => slots.observe(found, anew, now),
            (Limit::Slots(slots), Answer::NotRead(_)) => slots.unread(),
            (Limit::Slots(slots), Answer::Wrote(_, outcome)) => slots.wrote(outcome, now),
            (Limit::Quota(quota), Answer::QuotaIs(_, found)) => quota.observe(found, anew, now),
            (Limit::Quota(quota), Answer::NotRead(_)) => quota.unread(),
            (Limit::Quota(quota), Answer::Wrote(_, outcome)) => quota.wrote(outcome, now),
            // Nobody asks that of such a limit.
            _ => {}
        }
    }

    /// True for what this source holds by a record, be it left by an earlier process: nobody else may give it back, so
    /// every record is to be told to a process that was started.
    fn inherits(&self, record: &quota::record::Record) -> bool {
        let own = record.holders.get(&self.fresh.source);
        own.is_some_and(|own| own.taken > own.spent)
    }

    /// The bus is away: rates are handed out by shares, from the next slice on.
    pub fn cut(&mut self, now: Now) {
        let since = *self.cut.get_or_insert(now);
        for limit in self.shelf.limits_mut() {
            if let Limit::Rate(rate) = limit {
                rate.cut(since);
            }
        }
    }

    /// The bus is back. `anew`: of which slices the counters may have been made anew since, so that the running one is
    /// sat out; the same after a start into a running fleet whose counters are young.
    pub fn restore(&mut self, anew: &[Slice], now: Now) {
        self.cut = None;
        for slice in anew {
            self.fresh.counters_anew.insert(*slice, now.wall);
        }
        for place in self.shelf.places() {
            let Some(rate) = self.shelf.rate(place) else {
                continue;
            };
            rate.restore();
            if anew.contains(&rate.slice()) {
                rate.sit_out(now.wall);
            }
            self.shelf.stir(place);
        }
    }

    /// Learns an answer out of a bucket that was made anew: what it says now about a limit, or that it says nothing.
    pub fn answer_anew(&mut self, answer: Answer, now: Now) {
        self.learn(answer, true, now);
    }

    /// The process ends: nothing is held any more that is not in use, and what is spent is told at once.
    pub fn retire(&mut self) {
        for limit in self.shelf.limits_mut() {
            match limit {
                Limit::Rate(_) => {}
                Limit::Slots(slots) => slots.retire(),
                Limit::Quota(quota) => quota.retire(),
            }
        }
    }
}
