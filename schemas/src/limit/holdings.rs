//! What one node holds of all limits: it admits a request by all its layers or by none, and whatever a request held it
//! gives back exactly once, however the request ends. All names of one request begin with its tenant, so a node may
//! keep one of these per group of tenants, each behind a lock of its own.
//!
//! The order is that of [`super::limits::LimitKey`]. A layer that has to ask the fleet makes the request wait; a layer
//! that refuses gives back what the ones before it granted. What is to be asked is told by [`Holdings::steps`].

mod counted;
pub mod demand;
mod ending;
mod shelf;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::layers::{Bound, Name};
use super::limits::{Kind, Slice, Unit};
use super::planted::Planted;
use super::quota::{Quota, Replayed, Spent};
use super::rate::{Permit, Rate};
use super::slots::Slots;
use super::{Now, Shortage, Standing, Take};
use crate::failure::FailureCode;
use crate::id::SpoolId;
use crate::time::Timestamp;

use counted::{Counted, counted};
use demand::{Admission, Demand, Refusal};
use shelf::{Limit, Place, Shelf};

/// Seconds after which a refused call may try again where nothing says more.
const RETRY_SECONDS: u64 = 1;

/// Settlements that are remembered for the comparison with the books.
const SETTLED_MAX: usize = 20_000;

/// What one node holds.
#[derive(Debug)]
pub struct Holdings {
    fresh: Fresh,
    shelf: Shelf,
    counted: Counted,
    waiting: BTreeMap<u64, Ticket>,
    /// For which limit each of them waits.
    waits: BTreeSet<(Place, u64)>,
    grants: BTreeMap<u64, Grant>,
    last: u64,
    settled: VecDeque<Settled>,
    /// Settlements up to this place may be missing in it.
    forgotten_up_to: u64,
    /// Since when the bus is away.
    cut: Option<Now>,
    planted: Planted,
}

/// What a limit is made of that is asked for the first time.
#[derive(Debug)]
struct Fresh {
    source: SpoolId,
    boot: Arc<str>,
    /// Views of quotas that there ever were.
    views: u64,
    replay: BTreeMap<Name, Vec<Replayed>>,
    /// When it was last noticed that the counters of a slice were made anew, on the wall clock.
    counters_anew: BTreeMap<Slice, Timestamp>,
    planted: Planted,
}

impl Fresh {
    fn limit(&mut self, kind: Kind, name: &Name, limit: u64) -> Limit {
        match kind {
            Kind::Rate(slice, _) => {
                let mut rate = Rate::new(slice, limit);
                if let Some(noticed) = self.counters_anew.get(&slice) {
                    rate.sit_out(*noticed);
                }
                Limit::Rate(rate)
            }
            Kind::Concurrency => self.slots(limit),
            Kind::Quota(..) => self.quota(name, limit),
        }
    }

    fn slots(&self, limit: u64) -> Limit {
        Limit::Slots(Slots::new(Arc::clone(&self.boot), limit, self.planted))
    }

    fn quota(&mut self, name: &Name, limit: u64) -> Limit {
        let replay = self.replay.remove(name).unwrap_or_default();
        self.views += 1;
        let by = format!("{}.{}", self.boot, self.views).into();
        Limit::Quota(Quota::new((self.source.clone(), by), limit, replay, self.planted))
    }
}

/// A request that waits.
#[derive(Debug)]
struct Ticket {
    demand: Demand,
    /// Under which name each bound is counted.
    names: Arc<[Name]>,
    /// What it holds of each bound so far.
    held: Vec<(Place, Held)>,
    /// What it waits for.
    awaited: Place,
}

impl Ticket {
    /// What it waits for.
    fn next(&self) -> Option<&Bound> {
        self.demand.bounds.get(self.held.len())
    }
}

/// A request that was admitted.
#[derive(Debug, Clone)]
struct Grant {
    bounds: Arc<[Bound]>,
    /// Under which name each bound is counted.
    names: Arc<[Name]>,
    /// What it holds of each bound.
    held: Vec<(Place, Held)>,
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
        let names: Vec<Name> = replay.keys().cloned().collect();
        let mut holdings = Self {
            fresh: Fresh {
                source,
                boot,
                views: 0,
                replay,
                counters_anew: BTreeMap::new(),
                planted,
            },
            shelf: Shelf::default(),
            counted: Counted::default(),
            waiting: BTreeMap::new(),
            waits: BTreeSet::new(),
            grants: BTreeMap::new(),
            last: 0,
            settled: VecDeque::new(),
            forgotten_up_to: 0,
            cut: None,
            planted,
        };
        for name in &names {
            // Their limit is learned from the first request; until then nothing is taken.
            holdings.hear_of(name, |fresh, name| fresh.quota(name, 0));
        }
        holdings
    }

    /// Asks every layer for a request.
    pub fn admit(&mut self, demand: Demand, now: Now) -> Admission {
        self.last += 1;
        let (names, mut places) = self.counted.take(&demand);
        let ticket = Ticket {
            names,
            held: Vec::with_capacity(demand.bounds.len()),
            awaited: Place::NOWHERE,
            demand,
        };
        let bounds = Arc::clone(&ticket.demand.bounds);
        let admission = self.ask(self.last, ticket, &mut places, now);
        self.counted.put_back(&bounds, places);
        admission
    }

    /// Asks again for a request that waits; `None` for one that does not.
    pub fn resume(&mut self, id: u64, now: Now) -> Option<Admission> {
        let mut ticket = self.leave(id)?;
        if ticket.held.iter().any(|held| self.has_lapsed(*held, now)) {
            // While it waited, a lease ran out: others may have its slot now.
            self.cancel(&ticket, id);
            self.return_all(&ticket.held, now);
            ticket.held.clear();
        }
        let mut places = vec![Place::NOWHERE; ticket.demand.bounds.len()];
        Some(self.ask(id, ticket, &mut places, now))
    }

    /// The numbers of waiting requests about whose limits something was learned, in the order they came: to be asked
    /// for again.
    pub fn ready(&mut self) -> Vec<u64> {
        let mut ready = Vec::new();
        for place in self.shelf.take_stirred() {
            let waits = self.waits.range((place, 0)..=(place, u64::MAX));
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
        self.return_all(&ticket.held, now);
        refusal
    }

    fn leave(&mut self, id: u64) -> Option<Ticket> {
        let ticket = self.waiting.remove(&id)?;
        self.waits.remove(&(ticket.awaited, id));
        Some(ticket)
    }

    /// Asks the layers that did not grant yet. `places`: where their limits were found the last time; and are now.
    fn ask(&mut self, id: u64, mut ticket: Ticket, places: &mut [Place], now: Now) -> Admission {
        let bounds = Arc::clone(&ticket.demand.bounds);
        let names = Arc::clone(&ticket.names);
        let layers = bounds.iter().zip(&*names).zip(places);
        for ((bound, name), place) in layers.skip(ticket.held.len()) {
            *place = self.place(*place, bound, name);
            let (take, held) = self.take(id, (bound, *place), &ticket.demand, now);
            match take {
                Take::Granted => ticket.held.push((*place, held)),
                Take::Waiting => {
                    ticket.awaited = *place;
                    self.waits.insert((*place, id));
                    self.waiting.insert(id, ticket);
                    return Admission::Waiting(id);
                }
                Take::Refused(shortage) => {
                    let refusal = self.refusal(bound, shortage, &ticket.demand, now);
                    self.return_all(&ticket.held, now);
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

    /// Where the limit of a bound is, which is made when it is asked for the first time.
    fn place(&mut self, known: Place, bound: &Bound, name: &Name) -> Place {
        if let Some(place) = self.shelf.place_near(known, name) {
            return place;
        }
        let limit = self.fresh.limit(bound.key.kind(), name, bound.limit);
        self.shelf.put(name.clone(), limit)
    }

    fn has_lapsed(&self, (place, held): (Place, Held), now: Now) -> bool {
        let slots = match self.shelf.entry(place).map(|entry| &entry.limit) {
            Some(Limit::Slots(slots)) => Some(slots),
            _ => None,
        };
        held == Held::Slot && slots.is_none_or(|slots| slots.usable(now) < slots.in_use())
    }

    fn take(&mut self, id: u64, (bound, place): (&Bound, Place), demand: &Demand, now: Now) -> (Take, Held) {
        let unit = match bound.key.kind() {
            Kind::Rate(_, unit) | Kind::Quota(_, unit) => unit,
            Kind::Concurrency => Unit::Calls,
        };
        let amount = demand.amount(unit);
        match self.shelf.touch(place) {
            Some(Limit::Rate(rate)) => {
                rate.limit_to(bound.limit);
                self.cut.inspect(|since| rate.cut(*since));
                let take = rate.take(id, amount, now);
                (take, Held::Rate(unit, rate.permit(amount)))
            }
            Some(Limit::Slots(slots)) => {
                slots.limit_to(bound.limit);
                (slots.take(id, now), Held::Slot)
            }
            Some(Limit::Quota(quota)) => {
                quota.limit_to(bound.limit);
                (quota.reserve(id, amount, now), Held::Quota(unit, amount))
            }
            // Its limit was made just now. What is not here grants nothing.
            None => (Take::Refused(Shortage::Away), Held::Slot),
        }
    }

    /// The limit of a name, made when it is first told of: how much it is is not known before it is asked for.
    fn hear_of(&mut self, name: &Name, make: impl FnOnce(&mut Fresh, &Name) -> Limit) {
        if self.shelf.place(name).is_none() {
            let limit = make(&mut self.fresh, name);
            let place = self.shelf.put(name.clone(), limit);
            self.shelf.touch(place);
        }
    }

    fn cancel(&mut self, ticket: &Ticket, id: u64) {
        match self.shelf.stir(ticket.awaited) {
            Some(Limit::Rate(rate)) => rate.cancel(id),
            Some(Limit::Slots(slots)) => slots.cancel(id),
            Some(Limit::Quota(quota)) => quota.cancel(id),
            None => {}
        }
    }

    /// How limits of a granted request stand, in order: those whose bounds are `wanted`.
    pub fn standings(
        &self,
        grant: u64,
        now: Now,
        wanted: impl Fn(&Bound) -> bool,
    ) -> impl Iterator<Item = (&Bound, Standing)> {
        let with = self.grants.get(&grant).into_iter();
        let with = with.flat_map(|grant| grant.bounds.iter().zip(&grant.held));
        let with = with.filter(move |(bound, _)| wanted(bound));
        with.map(move |(bound, (place, _))| {
            let limit = self.shelf.entry(*place).map(|entry| &entry.limit);
            (bound, standing(bound, limit, now))
        })
    }

    fn refusal(&self, bound: &Bound, shortage: Shortage, demand: &Demand, now: Now) -> Refusal {
        let name = counted(bound, &demand.calendar);
        let limit = self.shelf.named(&name);
        let reset_at = match (bound.key.kind(), limit) {
            (Kind::Rate(..), Some(Limit::Rate(rate))) => {
                Some(now.wall.plus_micros(rate.resets_in_micros(now)))
            }
            (Kind::Rate(..) | Kind::Concurrency, _) => None,
            (Kind::Quota(span, _), _) => demand.calendar.resets_at(span),
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
            standing: standing(bound, limit, now),
            reset_at,
            retry_after_seconds: until_ms.div_ceil(1_000).max(RETRY_SECONDS),
        }
    }

    /// What a granted request holds of rates, by name: the slices in which it counts.
    pub fn permits(&self, grant: u64) -> Vec<(Name, Permit)> {
        let grant = self.grants.get(&grant).into_iter();
        let named = grant.flat_map(|grant| grant.names.iter().zip(&grant.held));
        let permits = named.filter_map(|(name, (_, held))| match held {
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
        let reserved = self.quotas().map(|(name, quota)| (name, quota.reserved()));
        reserved.filter(|(_, amount)| *amount > 0)
    }

    /// What is held of all quotas beyond what is spent, by name.
    pub fn held(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.quotas().map(|(name, quota)| (name, quota.held()))
    }

    /// Slots that this node holds by the newest records, by name.
    pub fn slots_held(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.slots().map(|(name, slots)| (name, slots.held()))
    }

    /// Slots in use, by name.
    pub fn slots_in_use(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.slots().map(|(name, slots)| (name, slots.in_use()))
    }

    fn quotas(&self) -> impl Iterator<Item = (&Name, &Quota)> {
        self.shelf.entries().filter_map(|entry| match &entry.limit {
            Limit::Quota(quota) => Some((&entry.name, quota)),
            Limit::Rate(_) | Limit::Slots(_) => None,
        })
    }

    fn slots(&self) -> impl Iterator<Item = (&Name, &Slots)> {
        self.shelf.entries().filter_map(|entry| match &entry.limit {
            Limit::Slots(slots) => Some((&entry.name, slots)),
            Limit::Rate(_) | Limit::Quota(_) => None,
        })
    }

    /// The revision of the record of a name that is known here; `None` where there is no record.
    pub fn revision(&self, name: &Name) -> Option<u64> {
        match self.shelf.named(name)? {
            Limit::Rate(_) => None,
            Limit::Slots(slots) => slots.revision(),
            Limit::Quota(quota) => quota.revision(),
        }
    }

    /// What was settled here of a quota, to be put in the place of what its record says of this node; `None` for one
    /// that nobody asked about.
    pub fn spent_by(&self, name: &Name) -> Option<Spent> {
        match self.shelf.named(name)? {
            Limit::Quota(quota) if quota.is_known() => Some(quota.spent_here()),
            _ => None,
        }
    }

    /// How a rate or a concurrency stands; `None` for one that nobody asked about.
    pub fn flow(&self, name: &Name, now: Now) -> Option<Standing> {
        match self.shelf.named(name)? {
            Limit::Rate(rate) => Some(rate.standing_at(now)),
            Limit::Slots(slots) => Some(slots.standing(now)),
            Limit::Quota(_) => None,
        }
    }

    /// Up to which place the spool may be trimmed as far as quotas are concerned; `None` for all of it.
    pub fn told_up_to(&self) -> Option<u64> {
        self.quotas().filter_map(|(_, quota)| quota.told_up_to()).min()
    }
}

/// How a limit stands; one that nobody asked about is whole.
fn standing(bound: &Bound, limit: Option<&Limit>, now: Now) -> Standing {
    match limit {
        Some(Limit::Rate(rate)) => rate.standing_at(now),
        Some(Limit::Slots(slots)) => slots.standing(now),
        Some(Limit::Quota(quota)) => quota.standing(),
        None => Standing::left(bound.limit, bound.limit),
    }
}

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;
