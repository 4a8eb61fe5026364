//! What one node holds of all limits: it admits a request by all its layers or by none, and whatever a request held it
//! gives back exactly once, however the request ends. All names of one request begin with its tenant, so a node may
//! keep one of these per group of tenants, each behind a lock of its own.
//!
//! The order is that of [`super::limits::LimitKey`]. A layer that has to ask the fleet makes the request wait; a layer
//! that refuses gives back what the ones before it granted. What is to be asked is told by [`Holdings::steps`].

mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::layers::{Bound, Name, Scope};
use super::limits::{Kind, LimitKey, Span, Unit};
use super::planted::{Bug, Planted};
use super::quota::{Quota, Replayed};
use super::rate::{Permit, Rate};
use super::slots::Slots;
use super::window::Calendar;
use super::{Now, Shortage, Standing, Take};
use crate::failure::FailureCode;
use crate::id::{ModelName, SpoolId};
use crate::outcome::Outcome;
use crate::time::Timestamp;

pub use steps::{Answer, Ask};

/// Seconds after which a refused call may try again where nothing says more.
const RETRY_SECONDS: u64 = 1;

/// What a request needs of its limits.
#[derive(Debug, Clone)]
pub struct Demand {
    /// All that bounds it, in order: see [`super::layers::Subjects::bounds`].
    pub bounds: Arc<[Bound]>,
    /// Tokens of prompt and answer that it may use at most.
    pub tokens: u64,
    /// Nano-dollars that it may cost at most.
    pub nano_usd: u64,
    /// The day and month it is admitted in: it is settled in these.
    pub calendar: Calendar,
}

impl Demand {
    fn amount(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => 1,
            Unit::Tokens => self.tokens,
            Unit::NanoUsd => self.nano_usd,
        }
    }
}

/// What a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Calls: 1, or 0 for one that does not count.
    pub calls: u64,
    /// Tokens of prompt and answer.
    pub tokens: u64,
    /// Nano-dollars.
    pub nano_usd: u64,
}

impl Used {
    const fn amount(self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => self.calls,
            Unit::Tokens => self.tokens,
            Unit::NanoUsd => self.nano_usd,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Every layer grants it. End it with [`Holdings::settle`] or [`Holdings::give_back`] under this number.
    Granted(u64),
    /// Some layer asks the fleet: [`Holdings::resume`] it under this number when something was answered, or
    /// [`Holdings::abandon`] it.
    Waiting(u64),
    /// Some layer refuses it; nothing is held.
    Refused(Refusal),
}

/// Why a request is refused, with all that a 429 says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: FailureCode,
    /// The limit that refuses.
    pub key: LimitKey,
    /// Of whom.
    pub scope: Scope,
    /// For calls of this model only.
    pub model: Option<ModelName>,
    /// How it stands.
    pub standing: Standing,
    /// When it is whole again, as far as that is known.
    pub reset_at: Option<Timestamp>,
    /// Whole seconds after which a retry makes sense.
    pub retry_after_seconds: u64,
}

/// What a request is charged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Charge {
    /// Nano-dollars that it pays.
    pub nano_usd: u64,
    /// Nano-dollars that no limit allows to charge.
    pub absorbed_nano_usd: u64,
    /// What each quota counts, for the event: after a restart it tells what the records do not hold yet.
    pub quotas: Vec<(Name, u64)>,
}

/// How a request ended whose charge is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Its waybill is in the spool.
    Settled(Outcome),
    /// The same, after a defect of ours ended it.
    Panicked,
}

/// What one node holds.
#[derive(Debug)]
pub struct Holdings {
    source: SpoolId,
    boot: Arc<str>,
    rates: BTreeMap<Name, Rate>,
    slots: BTreeMap<Name, Slots>,
    quotas: BTreeMap<Name, Quota>,
    waiting: BTreeMap<u64, Ticket>,
    grants: BTreeMap<u64, Grant>,
    last: u64,
    /// Names about which there may be something to ask.
    touched: BTreeSet<Name>,
    replay: BTreeMap<Name, Vec<Replayed>>,
    cut: bool,
    planted: Planted,
}

/// A request that waits.
#[derive(Debug)]
struct Ticket {
    demand: Demand,
    held: Vec<Held>,
}

/// A request that was admitted.
#[derive(Debug, Clone)]
struct Grant {
    bounds: Arc<[Bound]>,
    held: Vec<Held>,
    /// What each of `held` is charged, once that is fixed.
    charges: Option<Vec<u64>>,
}

/// What a request holds of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    Rate(Name, Permit),
    Slot(Name),
    Quota(Name, Unit, u64),
}

impl Holdings {
    /// What the process `boot` of a source holds: nothing. `replay` is what the spool holds of each quota.
    pub fn new(source: SpoolId, boot: Arc<str>, replay: BTreeMap<Name, Vec<Replayed>>, planted: Planted) -> Self {
        let mut holdings = Self {
            source,
            boot,
            rates: BTreeMap::new(),
            slots: BTreeMap::new(),
            quotas: BTreeMap::new(),
            waiting: BTreeMap::new(),
            grants: BTreeMap::new(),
            last: 0,
            touched: BTreeSet::new(),
            replay,
            cut: false,
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
            demand,
            held: Vec::new(),
        };
        self.ask(self.last, ticket, now)
    }

    /// Asks again for a request that waits; one that is not known is refused nothing and waits no more.
    pub fn resume(&mut self, id: u64, now: Now) -> Option<Admission> {
        let ticket = self.waiting.remove(&id)?;
        Some(self.ask(id, ticket, now))
    }

    /// The numbers of the requests that wait, in the order they came.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    /// Takes a waiting request back. What it waited for is told, for the caller's answer.
    pub fn abandon(&mut self, id: u64, now: Now) -> Option<Bound> {
        let ticket = self.waiting.remove(&id)?;
        let bound = ticket.demand.bounds.get(ticket.held.len()).cloned();
        if let Some(bound) = &bound {
            self.cancel(bound, &ticket.demand, id);
        }
        self.return_all(ticket.held, now);
        bound
    }

    fn ask(&mut self, id: u64, mut ticket: Ticket, now: Now) -> Admission {
        if ticket.held.iter().any(|held| self.has_lapsed(held, now)) {
            // While it waited, a lease ran out: others may have its slot now.
            if let Some(bound) = ticket.demand.bounds.get(ticket.held.len()) {
                self.cancel(bound, &ticket.demand, id);
            }
            self.return_all(std::mem::take(&mut ticket.held), now);
        }
        let bounds = Arc::clone(&ticket.demand.bounds);
        for bound in bounds.iter().skip(ticket.held.len()) {
            let (take, held) = self.take(id, bound, &ticket.demand, now);
            match take {
                Take::Granted => ticket.held.push(held),
                Take::Waiting => {
                    self.waiting.insert(id, ticket);
                    return Admission::Waiting(id);
                }
                Take::Refused(shortage) => {
                    let refusal = self.refusal(bound, shortage, &ticket.demand, now);
                    self.return_all(ticket.held, now);
                    return Admission::Refused(refusal);
                }
            }
        }
        let grant = Grant {
            bounds,
            held: ticket.held,
            charges: None,
        };
        self.grants.insert(id, grant);
        Admission::Granted(id)
    }

    fn has_lapsed(&self, held: &Held, now: Now) -> bool {
        let Held::Slot(name) = held else {
            return false;
        };
        let slots = self.slots.get(name);
        slots.is_none_or(|slots| slots.usable(now) < slots.in_use())
    }

    fn take(&mut self, id: u64, bound: &Bound, demand: &Demand, now: Now) -> (Take, Held) {
        let name = counted(bound, &demand.calendar);
        self.touched.insert(name.clone());
        match bound.key.kind() {
            Kind::Rate(slice, unit) => {
                let amount = demand.amount(unit);
                let cut = self.cut;
                let rate = self.rates.entry(name.clone()).or_insert_with(|| Rate::new(slice, bound.limit));
                rate.limit_to(bound.limit);
                if cut {
                    rate.cut(now);
                }
                let take = rate.take(id, amount, now);
                (take, Held::Rate(name, rate.permit(amount)))
            }
            Kind::Concurrency => {
                let (boot, planted) = (&self.boot, self.planted);
                let slots = self.slots.entry(name.clone());
                let slots = slots.or_insert_with(|| Slots::new(Arc::clone(boot), bound.limit, planted));
                slots.limit_to(bound.limit);
                (slots.take(id, now), Held::Slot(name))
            }
            Kind::Quota(_, unit) => {
                let amount = demand.amount(unit);
                let take = self.quota(&name, bound.limit).reserve(id, amount, now);
                (take, Held::Quota(name, unit, amount))
            }
        }
    }

    /// The quota of a name, made when it is first asked for.
    fn quota(&mut self, name: &Name, limit: u64) -> &mut Quota {
        self.touched.insert(name.clone());
        let (source, boot, planted) = (&self.source, &self.boot, self.planted);
        let replay = &mut self.replay;
        let quota = self.quotas.entry(name.clone()).or_insert_with(|| {
            let replay = replay.remove(name).unwrap_or_default();
            Quota::new((source.clone(), Arc::clone(boot)), limit, replay, planted)
        });
        if limit > 0 {
            quota.limit_to(limit);
        }
        quota
    }

    fn cancel(&mut self, bound: &Bound, demand: &Demand, id: u64) {
        let name = counted(bound, &demand.calendar);
        if let Some(rate) = self.rates.get_mut(&name) {
            rate.cancel(id);
        } else if let Some(slots) = self.slots.get_mut(&name) {
            slots.cancel(id);
        } else if let Some(quota) = self.quotas.get_mut(&name) {
            quota.cancel(id);
        }
    }

    /// Gives back what a request held that is not sent anywhere, or that pays and counts for nothing. Saying so
    /// twice changes nothing.
    pub fn give_back(&mut self, grant: u64, now: Now) {
        if let Some(grant) = self.end(grant) {
            self.return_all(grant.held, now);
        }
    }

    fn return_all(&mut self, held: Vec<Held>, now: Now) {
        for held in held.into_iter().rev() {
            match held {
                Held::Rate(name, permit) => {
                    if let Some(rate) = self.rates.get_mut(&name) {
                        rate.give_back(permit, now);
                    }
                }
                Held::Slot(name) => self.free(name, now),
                Held::Quota(name, _, amount) => {
                    if let Some(quota) = self.quotas.get_mut(&name) {
                        quota.give_back(amount);
                    }
                    self.touched.insert(name);
                }
            }
        }
    }

    fn free(&mut self, name: Name, now: Now) {
        if let Some(slots) = self.slots.get_mut(&name) {
            slots.give_back(now);
        }
        self.touched.insert(name);
    }

    /// Whether a request used more than it reserved and the fleet may still have it: [`Self::charge`] it once
    /// something was answered, or after a while all the same.
    pub fn lacks(&mut self, grant: u64, used: Used, now: Now) -> bool {
        let Some(held) = self.grants.get(&grant).map(|grant| grant.held.clone()) else {
            return false;
        };
        let mut lacks = false;
        for held in held {
            if let Held::Quota(name, unit, reserved) = held
                && let Some(quota) = self.quotas.get_mut(&name)
            {
                lacks |= quota.wish(grant, reserved, used.amount(unit), now);
                self.touched.insert(name);
            }
        }
        lacks
    }

    /// Fixes what a request is charged: what it used, as far as its reservations and what the limits have in hand
    /// here allow it; of money the least that any layer allows, so that all count the same. `None` for a request that
    /// has ended or was charged already.
    pub fn charge(&mut self, grant: u64, used: Used) -> Option<Charge> {
        let open = self.grants.get(&grant).filter(|open| open.charges.is_none())?;
        let payable = |held: &Held| match held {
            Held::Quota(name, unit, reserved) => {
                Some((*unit, self.quotas.get(name).map_or(*reserved, |quota| quota.payable(*reserved))))
            }
            _ => None,
        };
        let allowed: Vec<(Unit, u64)> = open.held.iter().filter_map(payable).collect();
        let least = |unit: Unit| {
            let of_unit = allowed.iter().filter(|(of, _)| *of == unit);
            of_unit.fold(used.amount(unit), |least, (_, payable)| least.min(*payable))
        };
        let money = least(Unit::NanoUsd);
        let amounts = [(Unit::Calls, least(Unit::Calls)), (Unit::Tokens, least(Unit::Tokens)), (Unit::NanoUsd, money)];
        let amount = |unit: Unit| amounts.iter().find(|(of, _)| *of == unit).map_or(0, |(_, amount)| *amount);

        let held = open.held.clone();
        let mut charge = Charge {
            nano_usd: money,
            absorbed_nano_usd: used.nano_usd - money,
            quotas: Vec::new(),
        };
        let mut charges = Vec::with_capacity(held.len());
        for held in held {
            let Held::Quota(name, unit, reserved) = held else {
                charges.push(0);
                continue;
            };
            if let Some(quota) = self.quotas.get_mut(&name) {
                quota.cancel(grant);
                quota.fix(reserved, amount(unit));
            }
            charges.push(amount(unit));
            charge.quotas.push((name, amount(unit)));
        }
        if let Some(open) = self.grants.get_mut(&grant) {
            open.charges = Some(charges);
        }
        Some(charge)
    }

    /// A request whose charge is fixed has ended, and its waybill is at this place in the spool. Saying so twice
    /// changes nothing.
    pub fn settle(&mut self, grant: u64, exit: Exit, sequence: u64, now: Now) {
        if exit == Exit::Settled(Outcome::ClientGone) && self.planted.has(Bug::SettleSkippedOnClientGone) {
            return;
        }
        let Some(Grant {
            mut held,
            bounds,
            charges: Some(charges),
        }) = self.end(grant)
        else {
            return;
        };
        if self.planted.has(Bug::WindowFixedAtSettle) {
            move_to(&bounds, &mut held, now);
        }
        for (held, charge) in held.into_iter().zip(charges) {
            match held {
                Held::Rate(..) => {}
                Held::Slot(_) if exit == Exit::Panicked && self.planted.has(Bug::SlotLeakedOnPanic) => {}
                Held::Slot(name) => self.free(name, now),
                Held::Quota(name, ..) => {
                    if let Some(quota) = self.quotas.get_mut(&name) {
                        quota.settle(charge, sequence);
                    }
                    self.touched.insert(name);
                }
            }
        }
    }

    /// Takes a grant away, so that nothing is given back twice.
    fn end(&mut self, grant: u64) -> Option<Grant> {
        if self.planted.has(Bug::GivenBackTwice) {
            return self.grants.get(&grant).cloned();
        }
        self.grants.remove(&grant)
    }

    /// How every limit of a granted request stands, in order.
    pub fn standings(&self, grant: u64, now: Now) -> Vec<(Bound, Standing)> {
        let Some(grant) = self.grants.get(&grant) else {
            return Vec::new();
        };
        let with = grant.bounds.iter().zip(&grant.held);
        with.map(|(bound, held)| {
            let (Held::Rate(name, _) | Held::Slot(name) | Held::Quota(name, ..)) = held;
            (bound.clone(), self.standing(name, bound.limit, now))
        })
        .collect()
    }

    fn standing(&self, name: &Name, limit: u64, now: Now) -> Standing {
        let rate = self.rates.get(name).map(Rate::standing);
        let slots = || self.slots.get(name).map(|slots| slots.standing(now));
        let quota = || self.quotas.get(name).map(Quota::standing);
        let standing = rate.or_else(slots).or_else(quota);
        standing.unwrap_or_else(|| Standing::left(limit, limit))
    }

    fn refusal(&self, bound: &Bound, shortage: Shortage, demand: &Demand, now: Now) -> Refusal {
        let name = counted(bound, &demand.calendar);
        let reset_at = match bound.key.kind() {
            Kind::Rate(..) => self.rates.get(&name).map(|rate| now.wall.plus_micros(rate.resets_in_micros(now))),
            Kind::Concurrency => None,
            Kind::Quota(span, _) => demand.calendar.resets_at(span),
        };
        let until_ms = reset_at.map_or(0, |at| at.millis_since(now.wall));
        Refusal {
            code: match shortage {
                Shortage::Used => bound.key.code(),
                Shortage::Away => FailureCode::StoreUnavailable,
                Shortage::Crowded => FailureCode::Overloaded,
            },
            key: bound.key,
            scope: bound.scope,
            model: bound.model.clone(),
            standing: self.standing(&name, bound.limit, now),
            reset_at,
            retry_after_seconds: until_ms.div_ceil(1_000).max(RETRY_SECONDS),
        }
    }

    /// What a granted request holds of rates, by name: the slices in which it counts.
    pub fn permits(&self, grant: u64) -> Vec<(Name, Permit)> {
        let held = self.grants.get(&grant).map(|grant| grant.held.iter());
        let permits = held.into_iter().flatten().filter_map(|held| match held {
            Held::Rate(name, permit) => Some((name.clone(), *permit)),
            _ => None,
        });
        permits.collect()
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

    /// Slots in use, by name.
    pub fn slots_in_use(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.slots.iter().map(|(name, slots)| (name, slots.in_use()))
    }

    /// Up to which place the spool may be trimmed as far as quotas are concerned; `None` for all of it.
    pub fn told_up_to(&self) -> Option<u64> {
        self.quotas.values().filter_map(Quota::told_up_to).min()
    }
}

/// Moves what a request holds of quotas into the periods of now.
fn move_to(bounds: &[Bound], held: &mut [Held], now: Now) {
    let calendar = Calendar::at(&chrono::Utc, now.wall);
    for (bound, held) in bounds.iter().zip(held) {
        if let Held::Quota(name, ..) = held {
            *name = counted(bound, &calendar);
        }
    }
}

/// Under which name a bound is counted in a calendar.
fn counted(bound: &Bound, calendar: &Calendar) -> Name {
    match bound.key.kind() {
        Kind::Quota(span @ (Span::Day | Span::Month | Span::Total), _) => bound.name.of(calendar.period(span)),
        Kind::Rate(..) | Kind::Concurrency => bound.name.clone(),
    }
}

#[cfg(test)]
mod tests;
