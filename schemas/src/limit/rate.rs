//! So much per second or minute. Each slice of the calendar has a counter that all nodes add to; a node takes chunks
//! by one atomic addition and hands them out without asking again. What an addition brought beyond the limit is not
//! had, so the sum of what is handed out never exceeds it, in whatever order nodes come.
//!
//! Without the bus a node hands out, in the running slice, what it has in hand, and from the next one on the limit's
//! share of one node, for [`CUT_MS_MAX`]: the only use beyond the limit that there is. What it used of a share is added
//! to the counter when the node is back within the slice. After the counters were made anew, their slice is sat out.

use super::limits::Slice;
use super::wishes::Wishes;
use super::{Now, Shortage, Standing, Take};
use crate::time::Timestamp;

/// How long a node that is cut off hands out its share, in milliseconds.
pub const CUT_MS_MAX: u64 = 30_000;
/// A chunk is this part of what the limit still seems to have.
const CHUNKS: u64 = 16;
/// How far the wall clocks of nodes may be apart without harm, in microseconds.
const SKEW_MICROS: i64 = 250_000;

/// An addition to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Add {
    /// Which stream of counters.
    pub slice: Slice,
    /// The slice's number since 1970.
    pub index: i64,
    /// What to add.
    pub amount: u64,
}

/// A permit that was granted, and where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// The slice's number since 1970.
    pub index: i64,
    /// How much.
    pub amount: u64,
    /// It came out of the share of a node that is cut off, not out of the counter.
    pub share: bool,
}

/// One node's side of a rate.
#[derive(Debug, Clone)]
pub struct Rate {
    slice: Slice,
    limit: u64,
    /// The running slice.
    index: i64,
    in_hand: u64,
    /// The highest value of the counter that was seen in this slice.
    seen: u64,
    /// The limit is reached: not asked again in this slice.
    full: bool,
    /// The last slice in which the limit was lowered: what was counted under the higher one is not handed out in it.
    lowered: i64,
    /// The last slice whose counter may have forgotten something: neither it nor an earlier one is asked.
    sat_out: i64,
    asked: Option<Asked>,
    wishes: Wishes,
    cut: Option<Cut>,
    /// The last slice in which a share was used, and how much of it.
    share: (i64, u64),
    /// The last permit came out of a share.
    shared: bool,
    /// What was used of a share and is in no counter.
    unreported: u64,
    used_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    index: i64,
    /// What is asked for.
    chunk: u64,
    /// What of the amount is only reported.
    reported: u64,
}

/// Since when the node is cut off.
#[derive(Debug, Clone, Copy)]
struct Cut {
    since_ms: u64,
    index: i64,
}

impl Rate {
    /// A rate of `limit` per slice.
    pub fn new(slice: Slice, limit: u64) -> Self {
        Self {
            slice,
            limit,
            index: i64::MIN,
            in_hand: 0,
            seen: 0,
            full: false,
            lowered: i64::MIN,
            sat_out: i64::MIN,
            asked: None,
            wishes: Wishes::default(),
            cut: None,
            share: (i64::MIN, 0),
            shared: false,
            unreported: 0,
            used_ms: 0,
        }
    }

    /// The slices in which it is counted.
    pub const fn slice(&self) -> Slice {
        self.slice
    }

    /// Takes over another limit from now on. Of a lower one others may have used everything since this node asked, so
    /// what it has in hand is no good any more.
    pub fn limit_to(&mut self, limit: u64) {
        if self.limit != limit {
            if limit < self.limit {
                self.lowered = self.index;
                self.in_hand = 0;
            }
            self.limit = limit;
            self.full = self.seen >= limit;
        }
    }

    /// Wishes for `amount` in the running slice.
    pub fn take(&mut self, wish: u64, amount: u64, now: Now) -> Take {
        self.roll(now);
        self.used_ms = now.mono_ms;
        self.shared = false;
        let needed = self.wishes.before(wish).saturating_add(amount);
        if needed <= self.in_hand {
            self.in_hand -= amount;
            self.wishes.remove(wish);
            return Take::Granted;
        }
        let take = if let Some(cut) = self.cut {
            self.take_share(cut, amount, now)
        } else if self.is_ruled_out(amount) {
            Take::Refused(Shortage::Used)
        } else {
            Take::Waiting
        };
        match take {
            Take::Waiting if !self.wishes.put(wish, amount) => Take::Refused(Shortage::Crowded),
            Take::Waiting => Take::Waiting,
            Take::Granted | Take::Refused(_) => {
                self.wishes.remove(wish);
                take
            }
        }
    }

    /// True when the counter cannot give so much any more, as far as it was seen.
    fn is_ruled_out(&self, amount: u64) -> bool {
        let missing = amount.saturating_sub(self.in_hand);
        let left = self.limit.saturating_sub(self.seen);
        amount > self.limit || (!self.is_sat_out() && (self.full || left < missing))
    }

    /// Takes from the share of a node that is cut off.
    fn take_share(&mut self, cut: Cut, amount: u64, now: Now) -> Take {
        let share = self.limit / now.fleet();
        if amount > self.limit {
            return Take::Refused(Shortage::Used);
        }
        if now.since(cut.since_ms) > CUT_MS_MAX {
            return Take::Refused(Shortage::Away);
        }
        // Neither in the slice in which it was cut off, nor in one that a clock has gone back to.
        if self.index <= cut.index || self.index < self.share.0 || self.is_sat_out() {
            return Take::Waiting;
        }
        if self.index > self.share.0 {
            self.share = (self.index, 0);
        }
        if share.saturating_sub(self.share.1) < amount {
            return Take::Refused(Shortage::Used);
        }
        self.shared = true;
        self.share.1 += amount;
        self.unreported = self.unreported.saturating_add(amount);
        Take::Granted
    }

    /// Forgets a wish.
    pub fn cancel(&mut self, wish: u64) {
        self.wishes.remove(wish);
    }

    /// The permit that was granted just now.
    pub const fn permit(&self, amount: u64) -> Permit {
        Permit {
            index: self.index,
            amount,
            share: self.shared,
        }
    }

    /// Gives back what was not used; of a slice that is over nothing is worth keeping.
    pub fn give_back(&mut self, permit: Permit, now: Now) {
        self.roll(now);
        if permit.index != self.index {
            return;
        }
        if permit.share && self.unreported >= permit.amount {
            self.unreported -= permit.amount;
            self.share.1 = self.share.1.saturating_sub(permit.amount);
        } else if !permit.share && self.index != self.lowered {
            self.in_hand = self.in_hand.saturating_add(permit.amount);
        }
    }

    /// What to ask for now.
    pub fn next(&mut self, now: Now) -> Option<Add> {
        self.roll(now);
        if self.asked.is_some() || self.cut.is_some() || self.is_sat_out() || self.full {
            return None;
        }
        let first = self.wishes.amounts().next()?;
        let missing = first.checked_sub(self.in_hand).filter(|missing| *missing > 0)?;
        let left = self.limit.saturating_sub(self.seen);
        let chunk = missing.max(left / CHUNKS);
        let reported = std::mem::take(&mut self.unreported);
        self.asked = Some(Asked {
            index: self.index,
            chunk,
            reported,
        });
        Some(Add {
            slice: self.slice,
            index: self.index,
            amount: chunk.saturating_add(reported),
        })
    }

    /// The addition was made, and `value` is what the counter says now.
    pub fn added(&mut self, value: u64, now: Now) {
        self.roll(now);
        let Some(asked) = self.asked.take().filter(|asked| asked.index == self.index) else {
            return;
        };
        if value < self.seen {
            // A counter that has forgotten.
            self.sit_out(now.wall);
        }
        if self.is_sat_out() {
            return;
        }
        let before = value.saturating_sub(asked.chunk);
        let had = self.limit.saturating_sub(before).min(asked.chunk);
        self.in_hand = self.in_hand.saturating_add(had);
        self.seen = value;
        self.full = value >= self.limit;
    }

    /// The addition was not answered: what it may have brought is lost.
    pub fn failed(&mut self) {
        if let Some(asked) = self.asked.take().filter(|asked| asked.index == self.index) {
            self.unreported = self.unreported.saturating_add(asked.reported);
        }
    }

    /// The bus is away, since this moment.
    pub fn cut(&mut self, since: Now) {
        let index = self.index_of(since);
        self.cut.get_or_insert(Cut {
            since_ms: since.mono_ms,
            index,
        });
    }

    /// The bus is back.
    pub fn restore(&mut self) {
        self.cut = None;
    }

    /// The counters were made anew, or their server was started again, and it was noticed at this time of the wall
    /// clock: what they say of its slice cannot be trusted.
    pub fn sit_out(&mut self, noticed: Timestamp) {
        // Others may be in the next slice already.
        let last = noticed.plus_micros(SKEW_MICROS).micros();
        self.sat_out = self.sat_out.max(last.div_euclid(self.slice.micros()));
    }

    const fn is_sat_out(&self) -> bool {
        self.index <= self.sat_out
    }

    /// How it stood when it was last asked.
    pub fn standing(&self) -> Standing {
        let left = self.limit.saturating_sub(self.seen);
        Standing::left(self.limit, left.saturating_add(self.in_hand))
    }

    /// How it stands: a slice that has begun since then is whole.
    pub fn standing_at(&self, now: Now) -> Standing {
        if self.index_of(now) == self.index {
            self.standing()
        } else {
            Standing::left(self.limit, self.limit)
        }
    }

    /// Microseconds until the slice is over.
    pub fn resets_in_micros(&self, now: Now) -> i64 {
        let micros = self.slice.micros();
        micros - now.wall.micros().rem_euclid(micros)
    }

    /// True when nothing is lost by forgetting it.
    pub fn is_idle(&self, now: Now) -> bool {
        self.asked.is_none()
            && self.wishes.is_empty()
            && self.cut.is_none()
            && self.index_of(now) > self.index
            && now.since(self.used_ms) > 2 * CUT_MS_MAX
    }

    fn index_of(&self, now: Now) -> i64 {
        now.wall.micros().div_euclid(self.slice.micros())
    }

    /// Begins the running slice, where it is another one than before.
    fn roll(&mut self, now: Now) {
        let micros = self.slice.micros();
        let since = now
            .wall
            .micros()
            .saturating_sub(self.index.saturating_mul(micros));
        if (0..micros).contains(&since) {
            // Most often, and without a division.
            return;
        }
        let index = self.index_of(now);
        if index != self.index {
            self.index = index;
            self.in_hand = 0;
            self.seen = 0;
            self.full = false;
            self.unreported = 0;
        }
    }
}

#[cfg(test)]
mod tests;
