//! What a node has to ask the fleet for, and what it is answered.

use super::Holdings;
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
        for name in std::mem::take(&mut self.touched) {
            if let Some(rate) = self.rates.get_mut(&name) {
                asks.extend(rate.next(now).map(|add| Ask::Add(name, add)));
            } else if let Some(slots) = self.slots.get_mut(&name) {
                asks.extend(slots.next(now).map(|step| Ask::Slots(name, step)));
            } else if let Some(quota) = self.quotas.get_mut(&name) {
                asks.extend(quota.next(now).map(|step| Ask::Quota(name, step)));
            }
        }
        asks
    }

    /// Has every limit looked at by the next [`Self::steps`], for what only time changes (each 50 ms will do), and
    /// forgets those of which nothing is held.
    pub fn tick(&mut self, now: Now) {
        self.rates.retain(|_, rate| !rate.is_idle(now));
        self.slots.retain(|_, slots| !slots.is_idle());
        self.quotas.retain(|_, quota| !quota.is_idle(now));
        let rates = self.rates.keys();
        let names = rates.chain(self.slots.keys()).chain(self.quotas.keys());
        self.touched = names.cloned().collect();
        self.stirred
            .extend(self.waits.iter().map(|(name, _)| name.clone()));
    }

    /// Learns an answer.
    pub fn answer(&mut self, answer: Answer, now: Now) {
        let name = answer.name().clone();
        match answer {
            Answer::Added(_, value) => {
                if let Some(rate) = self.rates.get_mut(&name) {
                    rate.added(value, now);
                }
            }
            Answer::NotAdded(_) => {
                if let Some(rate) = self.rates.get_mut(&name) {
                    rate.failed();
                }
            }
            Answer::SlotsAre(_, found) => {
                if found
                    .as_ref()
                    .is_some_and(|(_, record)| !record.holders.is_empty())
                {
                    // A lease is counted from when its beat is first seen, be it before the first request.
                    self.concurrency(&name, 0);
                }
                if let Some(slots) = self.slots.get_mut(&name) {
                    slots.observe(found, false, now);
                }
            }
            Answer::QuotaIs(_, found) => {
                if found.as_ref().is_some_and(|(_, record)| self.inherits(record)) {
                    // Their limit is learned from the next request; until then nothing is taken.
                    self.quota(&name, 0);
                }
                if let Some(quota) = self.quotas.get_mut(&name) {
                    quota.observe(found, false, now);
                }
            }
            Answer::NotRead(_) => {
                if let Some(slots) = self.slots.get_mut(&name) {
                    slots.unread();
                } else if let Some(quota) = self.quotas.get_mut(&name) {
                    quota.unread();
                }
            }
            Answer::Wrote(_, outcome) => {
                if let Some(slots) = self.slots.get_mut(&name) {
                    slots.wrote(outcome, now);
                } else if let Some(quota) = self.quotas.get_mut(&name) {
                    quota.wrote(outcome, now);
                }
            }
        }
        self.stir(&name);
    }

    /// True for what this source holds by a record, be it left by an earlier process: nobody else may give it back, so
    /// every record is to be told to a process that was started.
    fn inherits(&self, record: &quota::record::Record) -> bool {
        let own = record.holders.get(&self.source);
        own.is_some_and(|own| own.taken > own.spent)
    }

    /// The bus is away: rates are handed out by shares, from the next slice on.
    pub fn cut(&mut self, now: Now) {
        let since = *self.cut.get_or_insert(now);
        for rate in self.rates.values_mut() {
            rate.cut(since);
        }
    }

    /// The bus is back. `anew`: of which slices the counters may have been made anew since, so that the running one is
    /// sat out; the same after a start into a running fleet whose counters are young.
    pub fn restore(&mut self, anew: &[Slice], now: Now) {
        self.cut = None;
        for slice in anew {
            self.counters_anew.insert(*slice, now.wall);
        }
        for (name, rate) in &mut self.rates {
            rate.restore();
            if anew.contains(&rate.slice()) {
                rate.sit_out(now.wall);
            }
            self.touched.insert(name.clone());
            self.stirred.insert(name.clone());
        }
    }

    /// Learns an answer out of a bucket that was made anew: what it says now about a limit, or that it says nothing.
    pub fn answer_anew(&mut self, answer: Answer, now: Now) {
        let name = answer.name().clone();
        match answer {
            Answer::SlotsAre(_, found) => {
                if let Some(slots) = self.slots.get_mut(&name) {
                    slots.observe(found, true, now);
                }
            }
            Answer::QuotaIs(_, found) => {
                if let Some(quota) = self.quotas.get_mut(&name) {
                    quota.observe(found, true, now);
                }
            }
            other => return self.answer(other, now),
        }
        self.stir(&name);
    }

    /// The process ends: nothing is held any more that is not in use, and what is spent is told at once.
    pub fn retire(&mut self) {
        for slots in self.slots.values_mut() {
            slots.retire();
        }
        for quota in self.quotas.values_mut() {
            quota.retire();
        }
    }
}
