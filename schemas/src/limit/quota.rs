//! So much per period: calls, tokens, money. A node takes parts of a quota in a shared record and reserves from them
//! without asking; what it took and does not need it gives back. Never is more taken than the limit, so never is more
//! reserved or spent, with the bus or without.
//!
//! A node takes what waiting requests miss, and ahead of them what it used in [`RECENT_MS`], a quarter of its part of
//! what remains at most; nothing where what remains would not last as long as that. So near the end everybody takes
//! exactly what is missing.
//!
//! What a node may use is the least of what the record says it took, and of what any write under way or in doubt says.
//! A node that was started again counts what its spool settled beyond the record, and uses nothing before a write of
//! its own has won: until then what it read may be old, and a late write of its predecessor may still be applied.

pub mod record;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::planted::{Bug, Planted};
use super::shared::{Outcome, Shared, Step};
use super::wishes::Wishes;
use super::{Now, Shortage, Standing, Take};
use crate::id::SpoolId;
use record::{Holder, Record};

/// Use that counts as recent, in milliseconds.
pub const RECENT_MS: u64 = 30_000;
/// A refusal stands on a record that was the newest so long ago at most.
const FRESH_MS: u64 = 1_000;
/// What is spent is told this late at most.
const TELL_MS: u64 = 5_000;
/// Parts are taken ahead or given back this often at most.
const TRIM_MS: u64 = 1_000;
/// What is idle here is given back this often at most when less than that is left for all.
const SCARCE_MS: u64 = 100;
/// A node holds this part of its part of what remains, at most.
const PARTS: u64 = 4;

/// Something settled, as the spool tells it after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Its place in the spool.
    pub sequence: u64,
    /// What was charged.
    pub amount: u64,
}

/// What one node settled of a quota: more than the record says of it, until it has told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    source: SpoolId,
    here: u64,
    /// What of it the base held when this was learned.
    gone: u64,
    others: u128,
}

impl Spent {
    /// What is spent in all, as far as this node knows.
    pub fn alone(&self) -> u128 {
        self.others + u128::from(self.here)
    }

    /// What this node settled beyond what a reading of the record says of it.
    fn beyond(&self, record: &Record) -> u64 {
        let told = record.holders.get(&self.source).map_or(0, |own| own.spent);
        let gone = record.gone.get(&self.source).map_or(0, |gone| gone.spent);
        let here = self.here.saturating_sub(gone.saturating_sub(self.gone));
        here.saturating_sub(told)
    }
}

/// What is spent in all, by a reading of the record and by what nodes, each once, say that they settled.
pub fn spent_by_all<'s>(record: &Record, nodes: impl IntoIterator<Item = &'s Spent>) -> u128 {
    let beyond = nodes.into_iter().map(|node| u128::from(node.beyond(record)));
    record.spent() + beyond.sum::<u128>()
}

/// One node's side of a quota in one period.
#[derive(Debug, Clone)]
pub struct Quota {
    source: SpoolId,
    by: Arc<str>,
    limit: u64,
    shared: Shared<Record>,
    /// Settled, and up to which place in the spool.
    spent: u64,
    sequence: u64,
    /// The first place of what was settled here that the record does not count, as far as that is known.
    untold_from: Option<u64>,
    /// Reserved and not settled.
    reserved: u64,
    /// Charges that are fixed and have no place in the spool yet.
    fixed: u64,
    wishes: Wishes,
    recent: Recent,
    /// What the spool says of the time before this process, until a write of this process has won.
    replay: Option<Vec<Replayed>>,
    /// What the record's base holds of this source.
    gone: record::Gone,
    wrote_ms: Option<u64>,
    used_ms: u64,
    /// The process ends.
    is_retired: bool,
    planted: Planted,
}

impl Quota {
    /// A quota of `limit` as a node sees it, by whose `source` it is charged; `by` names this view of it, and was never
    /// the name of another one. `replay` is what the spool holds of it.
    pub fn new(
        (source, by): (SpoolId, Arc<str>),
        limit: u64,
        replay: Vec<Replayed>,
        planted: Planted,
    ) -> Self {
        Self {
            source,
            by,
            limit,
            shared: Shared::new(planted),
            spent: 0,
            sequence: 0,
            untold_from: None,
            reserved: 0,
            fixed: 0,
            wishes: Wishes::default(),
            recent: Recent::default(),
            replay: Some(replay),
            gone: record::Gone::default(),
            wrote_ms: None,
            used_ms: 0,
            is_retired: false,
            planted,
        }
    }

    /// Takes over another limit from now on.
    pub const fn limit_to(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Wishes to reserve `amount`.
    pub fn reserve(&mut self, wish: u64, amount: u64, now: Now) -> Take {
        self.used_ms = now.mono_ms;
        let ahead = self.wishes.before(wish);
        if ahead.saturating_add(amount) <= self.available() {
            self.reserved = self.reserved.saturating_add(amount);
            self.recent.add(amount, now);
            self.wishes.remove(wish);
            return Take::Granted;
        }
        let fresh = self.shared.is_fresh(now, FRESH_MS) && !self.shared.is_busy();
        if amount > self.limit || (fresh && amount > self.room().saturating_sub(self.needed())) {
            self.wishes.remove(wish);
            return Take::Refused(Shortage::Used);
        }
        if self.wishes.put(wish, amount) {
            Take::Waiting
        } else {
            Take::Refused(Shortage::Crowded)
        }
    }

    /// Forgets a wish.
    pub fn cancel(&mut self, wish: u64) {
        self.wishes.remove(wish);
    }

    /// Gives a reservation back of which nothing is charged.
    pub const fn give_back(&mut self, amount: u64) {
        self.reserved = self.reserved.saturating_sub(amount);
    }

    /// What a request could be charged that reserved so much: more than that only out of what is in hand.
    pub fn payable(&self, reserved: u64) -> u64 {
        reserved.saturating_add(self.available())
    }

    /// Wishes for what a request used beyond its reservation; true while [`Self::payable`] may still grow by it.
    pub fn wish(&mut self, wish: u64, reserved: u64, used: u64, now: Now) -> bool {
        let missing = used.saturating_sub(reserved);
        if missing <= self.available() {
            self.wishes.remove(wish);
            return false;
        }
        let left = self.room().saturating_sub(self.needed());
        let fresh = self.shared.is_fresh(now, FRESH_MS) && !self.shared.is_busy();
        if fresh && left <= self.available() {
            self.wishes.remove(wish);
            return false;
        }
        let wanted = if fresh { missing.min(left) } else { missing };
        self.wishes.put(wish, wanted)
    }

    /// Fixes a charge and returns it: what is wished for, [`Self::payable`] at most. The reservation becomes it. The
    /// record is not written until it is settled, so that what the record says is spent never leaves out a place
    /// before its last one.
    pub fn fix(&mut self, reserved: u64, charge: u64) -> u64 {
        let charge = charge.min(self.payable(reserved));
        self.reserved = self.reserved.saturating_sub(reserved).saturating_add(charge);
        self.fixed += 1;
        charge
    }

    /// The spool did not take it: the charge is only reserved again.
    pub const fn unfix(&mut self) {
        self.fixed = self.fixed.saturating_sub(1);
    }

    /// The charge has a place in the spool.
    pub fn settle(&mut self, charge: u64, sequence: u64) {
        self.fixed = self.fixed.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(charge);
        self.spent = self.spent.saturating_add(charge);
        self.sequence = self.sequence.max(sequence);
        let first = self.untold_from.unwrap_or(sequence);
        self.untold_from = Some(first.min(sequence));
    }

    /// Whether its record was ever read.
    pub const fn is_known(&self) -> bool {
        self.shared.is_known()
    }

    /// The revision of the known record; `None` where there is none.
    pub const fn revision(&self) -> Option<u64> {
        self.shared.revision()
    }

    /// What is reserved and not settled.
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// What is spent or reserved here.
    const fn needed(&self) -> u64 {
        self.spent.saturating_add(self.reserved)
    }

    /// What can be reserved without asking.
    pub fn available(&self) -> u64 {
        let taken = self.shared.versions().map(|record| self.own(record));
        let taken = taken.min().unwrap_or(0);
        taken.min(self.room()).saturating_sub(self.needed())
    }

    /// What this view has confirmed to have taken, by one record.
    fn own(&self, record: &Record) -> u64 {
        let own = record.holders.get(&self.source);
        own.filter(|own| own.by == self.by).map_or(0, |own| own.taken)
    }

    /// What this node may have taken at most, by what the others have.
    fn room(&self) -> u64 {
        let others = self.shared.record().others(&self.source);
        u64::try_from(u128::from(self.limit).saturating_sub(others)).unwrap_or(u64::MAX)
    }

    /// What is to be done about the record now.
    pub fn next(&mut self, now: Now) -> Option<Step<Record>> {
        if self.shared.is_busy() {
            return None;
        }
        if self.shared.is_stale() {
            let open = self.held() > 0 || self.shared.is_in_doubt() || !self.is_told();
            let concerned = open || !self.wishes.is_empty();
            return concerned.then(|| self.shared.read());
        }
        let taken = self.desired(now);
        if self.fixed == 0 && self.is_due(taken, now) {
            return Some(self.write(taken, now));
        }
        let read = !self.wishes.is_empty() && !self.shared.is_fresh(now, FRESH_MS);
        read.then(|| self.shared.read())
    }

    /// What this node would have taken.
    fn desired(&self, now: Now) -> u64 {
        let needed = self.needed();
        let mut free = self.room().saturating_sub(needed);
        let mut waiting = 0_u64;
        for amount in self.wishes.amounts() {
            // What cannot be had any more is refused when it asks again.
            if amount <= free {
                free -= amount;
                waiting += amount;
            }
        }
        let recent = if self.is_retired {
            0
        } else {
            self.recent.amount(now)
        };
        // What does not last as long as that is not for one node to keep.
        let ahead = if recent > free {
            0
        } else {
            recent.min(free / now.fleet().saturating_mul(PARTS))
        };
        needed.saturating_add(waiting).saturating_add(ahead)
    }

    fn is_due(&self, taken: u64, now: Now) -> bool {
        let age_ms = self.wrote_ms.map_or(u64::MAX, |at_ms| now.since(at_ms));
        // What is in doubt is settled by another write.
        let doubted = self.shared.is_in_doubt() && age_ms >= TRIM_MS;
        let Some(own) = self.shared.record().holders.get(&self.source) else {
            return taken > 0 || doubted || self.is_replaying();
        };
        let foreign = own.by != self.by;
        let waiting = !self.wishes.is_empty() && taken > own.taken;
        if foreign || doubted || own.taken < self.needed() || waiting {
            return true;
        }
        if self.is_retired && (own.taken > taken || !self.is_told()) {
            return true;
        }
        let (needed, idle) = (self.needed(), own.taken.saturating_sub(self.needed()));
        let wished = taken.saturating_sub(needed);
        let trim = idle < wished / 2 || idle > wished.saturating_mul(2);
        // Near the end others are refused what is idle here.
        let left = self.room().saturating_sub(own.taken);
        let rest_ms = if idle - wished.min(idle) > left {
            SCARCE_MS
        } else {
            TRIM_MS
        };
        (age_ms >= rest_ms && trim) || (age_ms >= TELL_MS && !self.is_told())
    }

    fn write(&mut self, taken: u64, now: Now) -> Step<Record> {
        let mut record = self.shared.record().clone();
        let own = Holder {
            taken,
            spent: self.spent,
            seq: self.sequence,
            by: Arc::clone(&self.by),
        };
        record.holders.insert(self.source.clone(), own);
        self.wrote_ms = Some(now.mono_ms);
        self.shared.write(record)
    }

    /// The process ends: nothing is held any more that is not reserved, and what is spent is told at once.
    pub const fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Learns what became of the write under way.
    pub fn wrote(&mut self, outcome: Outcome, now: Now) {
        self.shared.wrote(outcome, now);
        self.learn();
    }

    /// The question for the record was not answered.
    pub fn unread(&mut self) {
        self.shared.unread();
    }

    /// Learns of a record and its revision, or that there is none. `anew`: the bucket was made anew.
    pub fn observe(&mut self, found: Option<(u64, Record)>, anew: bool, now: Now) {
        // What a bucket forgot, every node that remembers can tell: all numbers are absolute.
        let known = (anew && found.is_none()).then(|| self.shared.record().clone());
        self.shared.observe(found, anew, now);
        if let Some(known) = known {
            self.shared.restore(known);
        }
        self.learn();
    }

    /// Draws from the record what it says about this source.
    fn learn(&mut self) {
        if !self.shared.is_known() {
            return;
        }
        let record = self.shared.record();
        let gone = record.gone.get(&self.source).copied().unwrap_or_default();
        let own = record.holders.get(&self.source);
        if own.is_some_and(|own| own.by == self.by) {
            self.replay = None;
        } else if let Some(replay) = &self.replay {
            // Whatever the predecessor wrote last: the record up to its place, and the spool from there on.
            let (spent, place) = own.map_or((0, gone.seq), |own| (own.spent, own.seq));
            let counted = if self.planted.has(Bug::DuplicateEventCounted) {
                0
            } else {
                place
            };
            let later = replay.iter().filter(|settled| settled.sequence > counted);
            self.spent = later
                .clone()
                .fold(spent, |sum, settled| sum.saturating_add(settled.amount));
            self.sequence = later.fold(place, |last, settled| last.max(settled.sequence));
        }
        // Declared gone while it was there: what the base holds is not this source's any more.
        if self.replay.is_none() {
            let more = gone.spent.saturating_sub(self.gone.spent);
            self.spent = self.spent.saturating_sub(more);
        }
        self.gone = gone;
        let told = self.own_place();
        let beyond = |first: u64| first.max(told.saturating_add(1));
        self.untold_from = self
            .untold_from
            .map(beyond)
            .filter(|first| *first <= self.sequence);
    }

    /// The last place that the record counts for this view.
    fn own_place(&self) -> u64 {
        let own = self.shared.record().holders.get(&self.source);
        own.filter(|own| own.by == self.by).map_or(0, |own| own.seq)
    }

    /// The last place in the spool up to which the record is known to count everything that was settled here; `None`
    /// when it counts all. What comes after it must stay in the spool.
    pub fn told_up_to(&self) -> Option<u64> {
        if self.is_told() {
            return None;
        }
        let own = self.shared.record().holders.get(&self.source);
        let counted = own.map_or(0, |own| own.seq);
        // A charge without a place may turn out to be before all others.
        let settled = self.fixed == 0 && !self.is_replaying();
        let before = self
            .untold_from
            .filter(|_| settled)
            .map(|first| first.saturating_sub(1));
        Some(before.map_or(counted, |before| before.max(counted)))
    }

    fn is_told(&self) -> bool {
        if self.is_replaying() {
            return false;
        }
        let own = self.shared.record().holders.get(&self.source);
        let told = match own {
            Some(own) => own.by == self.by && own.spent == self.spent && own.seq == self.sequence,
            None => self.spent == 0,
        };
        told && self.fixed == 0
    }

    /// Whether no write of this view has told yet what the spool holds from before it.
    fn is_replaying(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| !replay.is_empty())
    }

    /// What this node has in hand, by the newest record.
    pub fn held(&self) -> u64 {
        self.own(self.shared.record()).saturating_sub(self.spent)
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        Standing::left(self.limit, self.room().saturating_sub(self.needed()))
    }

    /// What is spent of this quota: what its record says of others, and what this node settled.
    pub fn spent(&self) -> u128 {
        self.spent_here().alone()
    }

    /// What this node settled, for whoever has another reading of the record.
    pub fn spent_here(&self) -> Spent {
        let record = self.shared.record();
        let told = record.holders.get(&self.source).map_or(0, |own| own.spent);
        Spent {
            source: self.source.clone(),
            here: self.spent,
            gone: self.gone.spent,
            others: record.spent() - u128::from(told),
        }
    }

    /// True when it was not used of late, nothing is open here, and the record says so.
    pub fn is_idle(&self, now: Now) -> bool {
        now.since(self.used_ms) > RECENT_MS
            && self.reserved == 0
            && self.fixed == 0
            && self.wishes.is_empty()
            && self.shared.is_settled()
            && self.is_told()
            && self.held() == 0
    }
}

/// How much was reserved of late: in the running half minute and the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    since_ms: u64,
    current: u64,
    previous: u64,
}

impl Recent {
    fn add(&mut self, amount: u64, now: Now) {
        *self = self.rolled(now);
        self.current = self.current.saturating_add(amount);
    }

    fn amount(self, now: Now) -> u64 {
        let rolled = self.rolled(now);
        let rest = RECENT_MS - now.since(rolled.since_ms).min(RECENT_MS);
        let previous = u128::from(rolled.previous) * u128::from(rest) / u128::from(RECENT_MS);
        rolled
            .current
            .saturating_add(u64::try_from(previous).unwrap_or(u64::MAX))
    }

    fn rolled(self, now: Now) -> Self {
        match now.since(self.since_ms) / RECENT_MS {
            0 => self,
            1 => Self {
                since_ms: self.since_ms + RECENT_MS,
                current: 0,
                previous: self.current,
            },
            _ => Self {
                since_ms: now.mono_ms,
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests;
