//! So many at once. Nodes hold slots in a shared record under a lease, and hand them out without asking. Small limits
//! are taken one by one; of a large one a node keeps a share in hand, so that most requests cost no message.
//!
//! A lease lasts [`LEASE_MS`] from the moment an observer first sees the holder's newest beat, on the observer's own
//! clock; a holder stops handing out at nine tenths, counted from *sending* that beat. A request that outlives its
//! node's lease may overlap with new ones elsewhere: the only use beyond the limit that there is, and only when a node
//! is cut off.
//!
//! Whoever has less than his part and is refused says so in the record, now and then; whoever has more gives one
//! back at its next release. A refused wish itself writes nothing.

pub mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::planted::{Bug, Planted};
use super::shared::{Outcome, Shared, Step};
use super::wishes::Wishes;
use super::{Now, Shortage, Standing, Take};
use record::{Holder, Record};

/// How long a holder is heeded that shows no new beat, in milliseconds.
pub const LEASE_MS: u64 = 15_000;
/// A lease is renewed this often.
const RENEW_MS: u64 = LEASE_MS / 3;
/// A holder hands nothing out so long after it sent its newest beat.
const USE_MS: u64 = LEASE_MS - LEASE_MS / 10;
/// A slot that is not used is kept this long, so that one request after another costs no message.
const IDLE_MS: u64 = 60;
/// A refusal stands on a record that was the newest so long ago at most.
const FRESH_MS: u64 = 100;
/// Wants are written this often at most, and end so long after the last refusal.
const WANT_MS: u64 = 1_000;
/// What is in doubt is settled, and what the dead left is cleared away, by another write after so long.
const SETTLE_MS: u64 = 1_000;
/// Beats whose sending is remembered.
const SENT_MAX: usize = 64;
/// A share is kept this long without use.
const SHARE_MS: u64 = LEASE_MS;

/// One node's side of a concurrency.
#[derive(Debug, Clone)]
pub struct Slots {
    boot: Arc<str>,
    limit: u64,
    shared: Shared<Record>,
    in_use: u64,
    wishes: Wishes,
    beat: u64,
    /// When the beats were sent that the record may hold.
    sent: BTreeMap<u64, u64>,
    /// When each holder's newest beat was first seen.
    seen: BTreeMap<Arc<str>, (u64, u64)>,
    /// The record was lost: nothing is taken before this moment.
    held_back_until_ms: u64,
    /// The last use and release, refusal, and the last time that a want was written.
    used_ms: u64,
    refused_ms: Option<u64>,
    wanted_ms: Option<u64>,
    wrote_ms: Option<u64>,
    /// The process ends.
    is_retired: bool,
    planted: Planted,
}

impl Slots {
    /// A concurrency of `limit`, seen by the process that `boot` names.
    pub fn new(boot: Arc<str>, limit: u64, planted: Planted) -> Self {
        Self {
            boot,
            limit,
            shared: Shared::new(planted),
            in_use: 0,
            wishes: Wishes::default(),
            beat: 0,
            sent: BTreeMap::new(),
            seen: BTreeMap::new(),
            held_back_until_ms: 0,
            used_ms: 0,
            refused_ms: None,
            wanted_ms: None,
            wrote_ms: None,
            is_retired: false,
            planted,
        }
    }

    /// Takes over another limit from now on.
    pub const fn limit_to(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Wishes for one slot.
    pub fn take(&mut self, wish: u64, now: Now) -> Take {
        let ahead = self.wishes.before(wish);
        if self.in_use.saturating_add(ahead) < self.usable(now) {
            self.in_use += 1;
            self.used_ms = now.mono_ms;
            self.wishes.remove(wish);
            return Take::Granted;
        }
        if self.limit == 0 || self.is_full(now) {
            self.refused_ms = Some(now.mono_ms);
            self.wishes.remove(wish);
            let held_back = now.mono_ms < self.held_back_until_ms;
            return Take::Refused(if held_back { Shortage::Away } else { Shortage::Used });
        }
        if self.wishes.put(wish, 1) {
            Take::Waiting
        } else {
            Take::Refused(Shortage::Crowded)
        }
    }

    /// Forgets a wish.
    pub fn cancel(&mut self, wish: u64) {
        self.wishes.remove(wish);
    }

    /// Gives one slot back.
    pub const fn give_back(&mut self, now: Now) {
        self.in_use = self.in_use.saturating_sub(1);
        self.used_ms = now.mono_ms;
    }

    /// Slots in use.
    pub const fn in_use(&self) -> u64 {
        self.in_use
    }

    /// How many this node holds, by the newest record.
    pub fn held(&self) -> u64 {
        self.shared.record().holder(&self.boot).count
    }

    /// How many this node may hand out in all: the least that any true record may say, while its lease lasts. After the
    /// limit was lowered, what others have in hand leaves less of it than that.
    pub fn usable(&self, now: Now) -> u64 {
        let counts = self
            .shared
            .versions()
            .map(|record| record.holder(&self.boot).count);
        let count = counts.min().unwrap_or(0).min(self.left_by_others(now));
        if self.is_leased(now) { count } else { 0 }
    }

    fn is_leased(&self, now: Now) -> bool {
        let own = self.shared.record().holder(&self.boot);
        let sent = self.sent.get(&own.beat);
        self.planted.has(Bug::LeaseUsedAfterExpiry) || sent.is_some_and(|sent| now.since(*sent) < USE_MS)
    }

    /// True when a fresh record leaves nothing to take. What is this node's own, and only has to be renewed, is left.
    fn is_full(&self, now: Now) -> bool {
        let own = self.shared.record().holder(&self.boot).count;
        let renewable = own > self.in_use && !self.is_leased(now);
        self.shared.is_fresh(now, FRESH_MS)
            && !self.shared.is_busy()
            && !renewable
            && (self.room(now) <= own.max(self.in_use) || self.is_content(now, own))
    }

    /// True when this node has its part, and others want theirs.
    fn is_content(&self, now: Now, own: u64) -> bool {
        own >= self.part(now) && self.others_want(now)
    }

    /// What is this node's when all want as much as they can get.
    fn part(&self, now: Now) -> u64 {
        (self.limit / now.fleet()).max(1)
    }

    /// What this node keeps in hand of a large limit.
    fn share(&self, now: Now) -> u64 {
        self.limit / now.fleet().saturating_mul(4)
    }

    /// How many this node may hold at most, by what the others hold.
    fn room(&self, now: Now) -> u64 {
        if now.mono_ms < self.held_back_until_ms {
            return 0;
        }
        self.left_by_others(now)
    }

    fn left_by_others(&self, now: Now) -> u64 {
        let others = self.others(now).map(|(_, holder)| holder.count);
        self.limit.saturating_sub(others.fold(0, u64::saturating_add))
    }

    fn others_want(&self, now: Now) -> bool {
        self.others(now).any(|(_, holder)| holder.wants)
    }

    /// The other holders, as long as they are heeded.
    fn others(&self, now: Now) -> impl Iterator<Item = (&Arc<str>, &Holder)> {
        let holders = self.shared.record().holders.iter();
        holders.filter(move |(boot, holder)| **boot != self.boot && self.is_heeded(boot, holder, now))
    }

    /// Holders whose lease has run out.
    fn dead(&self, now: Now) -> impl Iterator<Item = &Arc<str>> {
        let holders = self.shared.record().holders.iter();
        let dead = move |(boot, holder): &(&Arc<str>, &Holder)| {
            **boot != self.boot && !self.is_heeded(boot, holder, now)
        };
        holders.filter(dead).map(|(boot, _)| boot)
    }

    fn is_heeded(&self, boot: &Arc<str>, holder: &Holder, now: Now) -> bool {
        let lease_ms = if self.planted.has(Bug::ReleasedEarly) {
            LEASE_MS / 10
        } else {
            LEASE_MS
        };
        let seen = self.seen.get(boot).filter(|(beat, _)| *beat == holder.beat);
        seen.is_none_or(|(_, seen_ms)| now.since(*seen_ms) < lease_ms)
    }

    /// What is to be done about the record now.
    pub fn next(&mut self, now: Now) -> Option<Step<Record>> {
        if self.shared.is_busy() {
            return None;
        }
        if self.shared.is_stale() {
            let held = self.mine().is_some() || self.shared.is_in_doubt();
            let concerned = held || self.in_use > 0 || !self.wishes.is_empty();
            return concerned.then(|| self.shared.read());
        }
        let desired = self.desired(now);
        if !self.is_due(desired, now) {
            // Nobody can tell the waiting ones anything without a fresh record.
            let read = !self.wishes.is_empty() && !self.shared.is_fresh(now, FRESH_MS);
            return read.then(|| self.shared.read());
        }
        Some(self.write(desired, now))
    }

    fn mine(&self) -> Option<Holder> {
        self.shared.record().holders.get(&self.boot).copied()
    }

    /// How many this node would hold, and whether it would say that it wants more.
    fn desired(&self, now: Now) -> (u64, bool) {
        let own = self.shared.record().holder(&self.boot);
        let idle_ms = now.since(self.used_ms);
        let part = self.part(now);
        let is_used = |within_ms: u64| idle_ms < within_ms && !self.is_retired;
        let kept = if is_used(IDLE_MS) { own.count } else { 0 };
        let mut needed = self.in_use.saturating_add(self.wishes.count());
        if self.others_want(now) {
            needed = needed.max(kept).min(part);
        } else {
            let spare = if is_used(SHARE_MS) { self.share(now) } else { 0 };
            needed = needed.saturating_add(spare).max(kept);
        }
        let count = needed.min(self.room(now)).max(self.in_use);
        let refused = self.refused_ms.is_some_and(|at_ms| now.since(at_ms) < WANT_MS);
        (count, refused && count < part)
    }

    /// Whether what the record says of this node is to be changed now.
    fn is_due(&self, (count, wants): (u64, bool), now: Now) -> bool {
        let rested = self.wrote_ms.is_none_or(|at_ms| now.since(at_ms) >= SETTLE_MS);
        if rested && (self.shared.is_in_doubt() || self.dead(now).next().is_some()) {
            return true;
        }
        let Some(own) = self.mine() else {
            return count > 0 || (wants && self.may_want(now));
        };
        let age_ms = self.sent.get(&own.beat).map_or(u64::MAX, |sent| now.since(*sent));
        let empty = count == 0 && !wants;
        // A share is renewed as a whole, not with every request: only a wish or a third of it is worth a write.
        let short = count.saturating_sub(own.count);
        let grow =
            short > 0 && (!self.wishes.is_empty() || own.count < self.in_use || short * 2 > self.share(now));
        let shrink = (self.is_retired && own.count > count)
            || own.count.saturating_sub(count) > self.share(now) / 2
            || (own.count > count && self.others_want(now));
        let want = own.wants != wants && (self.may_want(now) || count > own.count);
        empty || grow || shrink || want || age_ms >= RENEW_MS
    }

    fn may_want(&self, now: Now) -> bool {
        self.wanted_ms.is_none_or(|at_ms| now.since(at_ms) >= WANT_MS)
    }

    fn write(&mut self, (count, wants): (u64, bool), now: Now) -> Step<Record> {
        self.wrote_ms = Some(now.mono_ms);
        let mut record = self.shared.record().clone();
        let dropped: Vec<Arc<str>> = self.dead(now).cloned().collect();
        for boot in dropped {
            record.holders.remove(&boot);
        }
        if wants || self.mine().is_some_and(|own| own.wants) {
            self.wanted_ms = Some(now.mono_ms);
        }
        if count == 0 && !wants {
            record.holders.remove(&self.boot);
        } else {
            // Never the same again, also after this was forgotten and begun anew.
            self.beat = now.mono_ms.max(self.beat + 1);
            self.sent.insert(self.beat, now.mono_ms);
            let beat = self.beat;
            record
                .holders
                .insert(Arc::clone(&self.boot), Holder { count, beat, wants });
        }
        self.shared.write(record)
    }

    /// The process ends: nothing is held any more that is not in use.
    pub const fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Learns what became of the write under way.
    pub fn wrote(&mut self, outcome: Outcome, now: Now) {
        self.shared.wrote(outcome, now);
        self.note(now);
    }

    /// The question for the record was not answered.
    pub fn unread(&mut self) {
        self.shared.unread();
    }

    /// Learns of a record and its revision, or that there is none. `anew`: the bucket was made anew, and has
    /// forgotten who holds what.
    pub fn observe(&mut self, found: Option<(u64, Record)>, anew: bool, now: Now) {
        if anew {
            // The others announce themselves within a lease.
            self.held_back_until_ms = now.mono_ms.saturating_add(LEASE_MS);
        }
        if self.shared.observe(found, anew, now) {
            self.note(now);
        }
    }

    /// Notes when beats were first seen, and forgets what no record can hold any more.
    fn note(&mut self, now: Now) {
        let record = self.shared.record();
        for (boot, holder) in &record.holders {
            if self.seen.get(boot).is_none_or(|(beat, _)| *beat != holder.beat) {
                self.seen.insert(Arc::clone(boot), (holder.beat, now.mono_ms));
            }
        }
        self.seen.retain(|boot, _| record.holders.contains_key(boot));
        let oldest = self
            .shared
            .versions()
            .map(|record| record.holder(&self.boot).beat)
            .min();
        self.sent.retain(|beat, _| Some(*beat) >= oldest);
        // Without the time of its beat a lease counts as run out.
        while self.sent.len() > SENT_MAX {
            self.sent.pop_first();
        }
    }

    /// The revision of the known record; `None` where there is none.
    pub const fn revision(&self) -> Option<u64> {
        self.shared.revision()
    }

    /// How it stands.
    pub fn standing(&self, now: Now) -> Standing {
        Standing::left(self.limit, self.room(now).saturating_sub(self.in_use))
    }

    /// True when this node holds nothing, nothing is under way, and nobody else is to be watched: a lease runs only
    /// while somebody counts.
    pub fn is_idle(&self) -> bool {
        let unused = self.in_use == 0 && self.wishes.is_empty() && !self.shared.is_busy();
        let nobody = self.shared.is_stale() || self.shared.record().holders.is_empty();
        let mut versions = self.shared.versions();
        unused && nobody && versions.all(|record| !record.holders.contains_key(&self.boot))
    }
}

#[cfg(test)]
mod tests;
