//! What one node holds of all limits: it admits a request by all its layers or by none, and whatever a request held it
//! gives back exactly once, however the request ends. All names of one request begin with its tenant, so a node may
//! keep one of these per group of tenants, each behind a lock of its own.
//!
//! The order is that of [`super::limits::LimitKey`]. A layer that has to ask the fleet makes the request wait; a layer
//! that refuses gives back what the ones before it granted. What is to be asked is told by [`Holdings::steps`].

pub mod demand;
mod ending;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use chrono::NaiveDate;

use super::layers::{Bound, Name, NameMap, NameSet};
use super::limits::{Kind, Slice, Unit};
use super::planted::Planted;
use super::quota::{Quota, Replayed, Spent};
use super::rate::{Permit, Rate};
use super::slots::Slots;
use super::window::Calendar;
use super::{Now, Shortage, Standing, Take};
use crate::failure::FailureCode;
use crate::id::SpoolId;
use crate::time::Timestamp;

use demand::{Admission, Demand, Refusal};

/// Seconds after which a refused call may try again where nothing says more.
const RETRY_SECONDS: u64 = 1;

/// Sets of bounds whose names are remembered.
const COUNTED_MAX: usize = 4_096;

/// Settlements that are remembered for the comparison with the books.
const SETTLED_MAX: usize = 20_000;

/// What one node holds.
#[derive(Debug)]
pub struct Holdings {
    source: SpoolId,
    boot: Arc<str>,
    rates: NameMap<Rate>,
    slots: NameMap<Slots>,
    quotas: NameMap<Quota>,
    counted: Counted,
    waiting: BTreeMap<u64, Ticket>,
    /// For which limit each of them waits.
    waits: BTreeSet<(Name, u64)>,
    /// Limits of which there may be more now than those that wait know.
    stirred: NameSet,
    grants: BTreeMap<u64, Grant>,
    last: u64,
    /// Views of quotas that there ever were.
    views: u64,
    /// Names about which there may be something to ask.
    touched: NameSet,
    replay: BTreeMap<Name, Vec<Replayed>>,
    settled: VecDeque<Settled>,
    /// Settlements up to this place may be missing in it.
    forgotten_up_to: u64,
    /// Since when the bus is away.
    cut: Option<Now>,
    /// When it was last noticed that the counters of a slice were made anew, on the wall clock.
    counters_anew: BTreeMap<Slice, Timestamp>,
    planted: Planted,
}

/// A request that waits.
#[derive(Debug)]
struct Ticket {
    demand: Demand,
    /// Under which name each bound is counted.
    names: Arc<[Name]>,
    held: Vec<Held>,
}

impl Ticket {
    /// What it waits for.
    fn next(&self) -> Option<&Bound> {
        self.demand.bounds.get(self.held.len())
    }

    fn name(&self) -> Option<Name> {
        self.names.get(self.held.len()).cloned()
    }

    /// What it holds, with the names it is counted under.
    fn named(&self) -> impl DoubleEndedIterator<Item = (&Name, Held)> {
        self.names.iter().zip(self.held.iter().copied())
    }
}

/// A request that was admitted.
#[derive(Debug, Clone)]
struct Grant {
    bounds: Arc<[Bound]>,
    /// Under which name each bound is counted.
    names: Arc<[Name]>,
    /// What it holds of each bound.
    held: Vec<Held>,
    /// What each of `held` is charged, once that is fixed.
    charges: Option<Vec<u64>>,
}

/// What was counted of a quota, for the comparison with the books.
#[derive(Debug)]
struct Settled {
    name: Name,
    sequence: u64,
    amount: u64,
}

/// What a request holds of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Rate(Unit, Permit),
    Slot,
    Quota(Unit, u64),
}

impl Holdings {
    /// What the process `boot` of a source holds: nothing. `replay` is what the spool holds of each quota.
    pub fn new(
        source: SpoolId,
        boot: Arc<str>,
        replay: BTreeMap<Name, Vec<Replayed>>,
        planted: Planted,
    ) -> Self {
        let mut holdings = Self {
            source,
            boot,
            rates: NameMap::default(),
            slots: NameMap::default(),
            quotas: NameMap::default(),
            counted: Counted::default(),
            waiting: BTreeMap::new(),
            waits: BTreeSet::new(),
            stirred: NameSet::default(),
            grants: BTreeMap::new(),
            last: 0,
            views: 0,
            touched: NameSet::default(),
            replay,
            settled: VecDeque::new(),
            forgotten_up_to: 0,
            cut: None,
            counters_anew: BTreeMap::new(),
            planted,
        };
        let names: Vec<Name> = holdings.replay.keys().cloned().collect();
        for name in &names {
            // Their limit is learned from the first request; until then nothing is taken.
            holdings.quota(name, 0);
        }
        holdings
    }

    /// Asks every layer for a request.
    pub fn admit(&mut self, demand: Demand, now: Now) -> Admission {
        self.last += 1;
        let ticket = Ticket {
            names: self.counted.names(&demand),
            held: Vec::with_capacity(demand.bounds.len()),
            demand,
        };
        self.ask(self.last, ticket, now)
    }

    /// Asks again for a request that waits; `None` for one that does not.
    pub fn resume(&mut self, id: u64, now: Now) -> Option<Admission> {
        let mut ticket = self.leave(id)?;
        if ticket.named().any(|held| self.has_lapsed(held, now)) {
            // While it waited, a lease ran out: others may have its slot now.
            self.cancel(&ticket, id);
            self.return_all((&ticket.names, &ticket.held), now);
            ticket.held.clear();
        }
        Some(self.ask(id, ticket, now))
    }

    /// The numbers of waiting requests about whose limits something was learned, in the order they came: to be asked
    /// for again.
    pub fn ready(&mut self) -> Vec<u64> {
        let mut ready = Vec::new();
        for name in std::mem::take(&mut self.stirred) {
            let waits = self.waits.range((name.clone(), 0)..=(name, u64::MAX));
            ready.extend(waits.map(|(_, id)| *id));
        }
        ready.sort_unstable();
        ready
    }

    /// Takes a waiting request back: it is refused, because nobody could say in time whether there is enough of what it
    /// waited for. `None` for one that does not wait.
    pub fn abandon(&mut self, id: u64, now: Now) -> Option<Refusal> {
        let ticket = self.leave(id)?;
        self.cancel(&ticket, id);
        let bound = ticket.next().cloned();
        let refusal = bound.map(|bound| self.refusal(&bound, Shortage::Away, &ticket.demand, now));
        self.return_all((&ticket.names, &ticket.held), now);
        refusal
    }

    fn leave(&mut self, id: u64) -> Option<Ticket> {
        let ticket = self.waiting.remove(&id)?;
        if let Some(name) = ticket.name() {
            self.waits.remove(&(name, id));
        }
        Some(ticket)
    }

    fn ask(&mut self, id: u64, mut ticket: Ticket, now: Now) -> Admission {
        let bounds = Arc::clone(&ticket.demand.bounds);
        let names = Arc::clone(&ticket.names);
        for (bound, name) in bounds.iter().zip(&*names).skip(ticket.held.len()) {
            let (take, held) = self.take(id, (bound, name), &ticket.demand, now);
            match take {
                Take::Granted => ticket.held.push(held),
                Take::Waiting => {
                    self.waits.extend(ticket.name().map(|name| (name, id)));
                    self.waiting.insert(id, ticket);
                    return Admission::Waiting(id);
                }
                Take::Refused(shortage) => {
                    let refusal = self.refusal(bound, shortage, &ticket.demand, now);
                    self.return_all((&names, &ticket.held), now);
                    return Admission::Refused(refusal);
                }
            }
        }
        let grant = Grant {
            bounds,
            names,
            held: ticket.held,
            charges: None,
        };
        self.grants.insert(id, grant);
        Admission::Granted(id)
    }

    fn has_lapsed(&self, (name, held): (&Name, Held), now: Now) -> bool {
        let slots = self.slots.get(name);
        held == Held::Slot && slots.is_none_or(|slots| slots.usable(now) < slots.in_use())
    }

    fn take(&mut self, id: u64, (bound, name): (&Bound, &Name), demand: &Demand, now: Now) -> (Take, Held) {
        note(&mut self.touched, name);
        match bound.key.kind() {
            Kind::Rate(slice, unit) => {
                let amount = demand.amount(unit);
                let (cut, anew) = (self.cut, self.counters_anew.get(&slice).copied());
                let fresh = || {
                    let mut rate = Rate::new(slice, bound.limit);
                    anew.inspect(|noticed| rate.sit_out(*noticed));
                    rate
                };
                let rate = match self.rates.get_mut(name) {
                    Some(rate) => rate,
                    None => self.rates.entry(name.clone()).or_insert_with(fresh),
                };
                rate.limit_to(bound.limit);
                cut.inspect(|since| rate.cut(*since));
                let take = rate.take(id, amount, now);
                (take, Held::Rate(unit, rate.permit(amount)))
            }
            Kind::Concurrency => {
                let slots = self.concurrency(name, bound.limit);
                (slots.take(id, now), Held::Slot)
            }
            Kind::Quota(_, unit) => {
                let amount = demand.amount(unit);
                let take = self.quota(name, bound.limit).reserve(id, amount, now);
                (take, Held::Quota(unit, amount))
            }
        }
    }

    /// The slots of a name, made when they are first asked for or told of; a limit of 0 is not known.
    fn concurrency(&mut self, name: &Name, limit: u64) -> &mut Slots {
        note(&mut self.touched, name);
        let (boot, planted) = (&self.boot, self.planted);
        let slots = self.slots.entry(name.clone());
        let slots = slots.or_insert_with(|| Slots::new(Arc::clone(boot), limit, planted));
        if limit > 0 {
            slots.limit_to(limit);
        }
        slots
    }

    /// The quota of a name, made when it is first asked for.
    fn quota(&mut self, name: &Name, limit: u64) -> &mut Quota {
        note(&mut self.touched, name);
        let (source, boot, planted) = (&self.source, &self.boot, self.planted);
        let (replay, views) = (&mut self.replay, &mut self.views);
        let quota = self.quotas.entry(name.clone()).or_insert_with(|| {
            let replay = replay.remove(name).unwrap_or_default();
            *views += 1;
            let by = format!("{boot}.{views}").into();
            Quota::new((source.clone(), by), limit, replay, planted)
        });
        if limit > 0 {
            quota.limit_to(limit);
        }
        quota
    }

    fn cancel(&mut self, ticket: &Ticket, id: u64) {
        let Some(name) = ticket.name() else {
            return;
        };
        if let Some(rate) = self.rates.get_mut(&name) {
            rate.cancel(id);
        } else if let Some(slots) = self.slots.get_mut(&name) {
            slots.cancel(id);
        } else if let Some(quota) = self.quotas.get_mut(&name) {
            quota.cancel(id);
        }
        self.stir(&name);
    }

    /// Something changed about a limit: there may be something to ask, and those that wait may go on.
    fn stir(&mut self, name: &Name) {
        note(&mut self.touched, name);
        note(&mut self.stirred, name);
    }

    /// How every limit of a granted request stands, in order.
    pub fn standings(&self, grant: u64, now: Now) -> impl Iterator<Item = (&Bound, Standing)> {
        let with = self.grants.get(&grant).into_iter();
        let with = with.flat_map(|grant| grant.bounds.iter().zip(&*grant.names));
        with.map(move |(bound, name)| (bound, self.standing(bound, name, now)))
    }

    fn standing(&self, bound: &Bound, name: &Name, now: Now) -> Standing {
        let standing = match bound.key.kind() {
            Kind::Rate(..) => self.rates.get(name).map(|rate| rate.standing_at(now)),
            Kind::Concurrency => self.slots.get(name).map(|slots| slots.standing(now)),
            Kind::Quota(..) => self.quotas.get(name).map(Quota::standing),
        };
        standing.unwrap_or_else(|| Standing::left(bound.limit, bound.limit))
    }

    fn refusal(&self, bound: &Bound, shortage: Shortage, demand: &Demand, now: Now) -> Refusal {
        let name = counted(bound, &demand.calendar);
        let reset_at = match bound.key.kind() {
            Kind::Rate(..) => self
                .rates
                .get(&name)
                .map(|rate| now.wall.plus_micros(rate.resets_in_micros(now))),
            Kind::Concurrency => None,
            Kind::Quota(span, _) => demand.calendar.resets_at(span),
        };
        let until_ms = match shortage {
            Shortage::Used => reset_at.map_or(0, |at| at.millis_since(now.wall)),
            // What is away or crowded may be well again long before the period ends.
            Shortage::Away | Shortage::Crowded => 0,
        };
        Refusal {
            code: match shortage {
                Shortage::Used => bound.key.code(),
                Shortage::Away => FailureCode::StoreUnavailable,
                Shortage::Crowded => FailureCode::Overloaded,
            },
            key: bound.key,
            scope: bound.scope,
            model: bound.model.clone(),
            standing: self.standing(bound, &name, now),
            reset_at,
            retry_after_seconds: until_ms.div_ceil(1_000).max(RETRY_SECONDS),
        }
    }

    /// What a granted request holds of rates, by name: the slices in which it counts.
    pub fn permits(&self, grant: u64) -> Vec<(Name, Permit)> {
        let grant = self.grants.get(&grant).into_iter();
        let named = grant.flat_map(|grant| grant.names.iter().zip(&grant.held));
        let permits = named.filter_map(|(name, held)| match held {
            Held::Rate(_, permit) => Some((name.clone(), *permit)),
            Held::Slot | Held::Quota(..) => None,
        });
        permits.collect()
    }

    /// What was counted of each quota by settlements beyond one place in the spool and up to another. What came before
    /// them is forgotten, and so are they. `None` when not all of it is remembered.
    pub fn counted_between(&mut self, after: u64, upto: u64) -> Option<BTreeMap<Name, u64>> {
        let is_whole = self.forgotten_up_to <= after;
        let mut sums: BTreeMap<Name, u64> = BTreeMap::new();
        self.settled.retain(|settled| {
            if after < settled.sequence && settled.sequence <= upto {
                *sums.entry(settled.name.clone()).or_default() += settled.amount;
            }
            settled.sequence > upto
        });
        is_whole.then_some(sums)
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that are admitted and not ended.
    pub fn open(&self) -> usize {
        self.grants.len()
    }

    /// What is reserved in all quotas, by name; nothing at rest.
    pub fn reserved(&self) -> impl Iterator<Item = (&Name, u64)> {
        let reserved = self.quotas.iter().map(|(name, quota)| (name, quota.reserved()));
        reserved.filter(|(_, amount)| *amount > 0)
    }

    /// What is held of all quotas beyond what is spent, by name.
    pub fn held(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.quotas.iter().map(|(name, quota)| (name, quota.held()))
    }

    /// Slots that this node holds by the newest records, by name.
    pub fn slots_held(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.slots.iter().map(|(name, slots)| (name, slots.held()))
    }

    /// Slots in use, by name.
    pub fn slots_in_use(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.slots.iter().map(|(name, slots)| (name, slots.in_use()))
    }

    /// The revision of the record of a name that is known here; `None` where there is no record.
    pub fn revision(&self, name: &Name) -> Option<u64> {
        let slots = self.slots.get(name).and_then(Slots::revision);
        slots.or_else(|| self.quotas.get(name).and_then(Quota::revision))
    }

    /// What was settled here of a quota, to be put in the place of what its record says of this node; `None` for one
    /// that nobody asked about.
    pub fn spent_by(&self, name: &Name) -> Option<Spent> {
        let quota = self.quotas.get(name).filter(|quota| quota.is_known())?;
        Some(quota.spent_here())
    }

    /// How a rate or a concurrency stands; `None` for one that nobody asked about.
    pub fn flow(&self, name: &Name, now: Now) -> Option<Standing> {
        let slots = || self.slots.get(name).map(|slots| slots.standing(now));
        self.rates
            .get(name)
            .map(|rate| rate.standing_at(now))
            .or_else(slots)
    }

    /// Up to which place the spool may be trimmed as far as quotas are concerned; `None` for all of it.
    pub fn told_up_to(&self) -> Option<u64> {
        self.quotas.values().filter_map(Quota::told_up_to).min()
    }
}

/// The names of many requests that have the same bounds.
#[derive(Debug, Default)]
struct Counted(HashMap<usize, OfDay>);

/// Under which names the bounds of a request are counted on one day.
#[derive(Debug)]
struct OfDay {
    /// Held, so that no others can be where they are.
    bounds: Arc<[Bound]>,
    day: NaiveDate,
    names: Arc<[Name]>,
}

impl Counted {
    fn names(&mut self, demand: &Demand) -> Arc<[Name]> {
        let (place, day) = (demand.bounds.as_ptr().addr(), demand.calendar.day());
        let known = self.0.get(&place).filter(|known| known.day == day);
        if let Some(known) = known.filter(|known| known.bounds.len() == demand.bounds.len()) {
            return Arc::clone(&known.names);
        }
        let names = demand.bounds.iter().map(|bound| counted(bound, &demand.calendar));
        let names: Arc<[Name]> = names.collect();
        if self.0.len() >= COUNTED_MAX {
            self.0.clear();
        }
        let known = OfDay {
            bounds: Arc::clone(&demand.bounds),
            day,
            names: Arc::clone(&names),
        };
        self.0.insert(place, known);
        names
    }
}

/// Notes a name, which mostly is noted already.
fn note(names: &mut NameSet, name: &Name) {
    if !names.contains(name) {
        names.insert(name.clone());
    }
}

/// Under which name a bound is counted in a calendar.
fn counted(bound: &Bound, calendar: &Calendar) -> Name {
    match bound.key.kind() {
        Kind::Quota(span, _) => bound.name.of(calendar.period(span)),
        Kind::Rate(..) | Kind::Concurrency => bound.name.clone(),
    }
}

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;
