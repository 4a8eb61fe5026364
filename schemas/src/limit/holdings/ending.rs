//! How a request ends: what it held is given back or charged, exactly once.

use super::demand::{Charge, Exit, Used};
use super::shelf::{Limit, Place};
use super::{Grant, Held, Holdings, SETTLED_MAX, Settled, counted};
use crate::limit::Now;
use crate::limit::layers::Name;
use crate::limit::limits::Unit;
use crate::limit::planted::Bug;
use crate::limit::rate::Permit;
use crate::limit::window::Calendar;
use crate::outcome::Outcome;

impl Holdings {
    /// Gives back what a request held that is not sent anywhere, or that pays and counts for nothing. Saying so
    /// twice changes nothing.
    pub fn give_back(&mut self, grant: u64, now: Now) {
        let Some(ended) = self.end(grant) else {
            return;
        };
        for (place, _) in &ended.held {
            if let Some(quota) = self.shelf.quota(*place) {
                // It may have wished for more than it reserved.
                quota.cancel(grant);
            }
        }
        self.return_all(&ended.held, now);
    }

    pub(super) fn return_all(&mut self, held: &[(Place, Held)], now: Now) {
        for (place, held) in held.iter().rev() {
            match (self.shelf.stir(*place), held) {
                (Some(Limit::Rate(rate)), Held::Rate(_, permit)) => rate.give_back(*permit, now),
                (Some(Limit::Slots(slots)), Held::Slot) => slots.give_back(now),
                (Some(Limit::Quota(quota)), Held::Quota(_, amount)) => quota.give_back(*amount),
                _ => {}
            }
        }
    }

    /// Whether a request used more than it reserved and the fleet may still have it: [`Self::charge`] it once
    /// something was answered, or after a while all the same.
    pub fn lacks(&mut self, grant: u64, used: Used, now: Now) -> bool {
        let Some(open) = self.grants.get(&grant) else {
            return false;
        };
        let mut lacks = false;
        for (place, held) in &open.held {
            if let Held::Quota(unit, reserved) = *held
                && used.amount(unit) > reserved
                && let Some(Limit::Quota(quota)) = self.shelf.touch(*place)
            {
                lacks |= quota.wish(grant, reserved, used.amount(unit), now);
            }
        }
        lacks
    }

    /// Fixes what a request is charged: what it used, as far as its reservations and what the limits have in hand
    /// here allow it; of each unit the least that any layer allows, so that all count the same. `None` for a request
    /// that has ended or was charged already.
    pub fn charge(&mut self, grant: u64, used: Used) -> Option<Charge> {
        let open = self
            .grants
            .get_mut(&grant)
            .filter(|open| open.charges.is_none())?;
        let mut least = |unit: Unit| {
            let wanted = used.amount(unit);
            let payable = open.held.iter().filter_map(|(place, held)| match held {
                // What is reserved can be had.
                Held::Quota(of, reserved) if *of == unit && wanted > *reserved => {
                    let quota = self.shelf.quota(*place);
                    Some(quota.map_or(*reserved, |quota| quota.payable(*reserved)))
                }
                _ => None,
            });
            payable.fold(wanted, u64::min)
        };
        let (calls, tokens, nano_usd) = (least(Unit::Calls), least(Unit::Tokens), least(Unit::NanoUsd));
        let amounts = Used {
            calls,
            tokens,
            nano_usd,
        };
        let mut charge = Charge {
            nano_usd,
            absorbed_nano_usd: used.nano_usd - nano_usd,
            quotas: Vec::with_capacity(open.held.len()),
        };
        let mut charges = Vec::with_capacity(open.held.len());
        for (name, (place, held)) in open.names.iter().zip(&open.held) {
            let amount = match *held {
                Held::Slot => 0,
                Held::Rate(unit, permit) => used.amount(unit).min(permit.amount),
                Held::Quota(unit, reserved) => {
                    let amount = amounts.amount(unit);
                    if let Some(quota) = self.shelf.quota(*place) {
                        quota.cancel(grant);
                        quota.fix(reserved, amount);
                    }
                    charge.quotas.push((name.clone(), amount));
                    amount
                }
            };
            charges.push(amount);
        }
        open.charges = Some(charges);
        Some(charge)
    }

    /// The spool did not take the waybill of a request whose charge is fixed: it is only reserved again.
    pub fn uncharge(&mut self, grant: u64) {
        let Some(open) = self.grants.get_mut(&grant) else {
            return;
        };
        let charges = open.charges.take().into_iter().flatten();
        for ((place, held), charge) in open.held.iter_mut().zip(charges) {
            if let Held::Quota(_, reserved) = held {
                *reserved = charge;
                if let Some(quota) = self.shelf.quota(*place) {
                    quota.unfix();
                }
            }
        }
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
            mut names,
            charges: Some(charges),
        }) = self.end(grant)
        else {
            return;
        };
        if self.planted.has(Bug::WindowFixedAtSettle) {
            let calendar = Calendar::at(&chrono::Utc, now.wall);
            names = bounds.iter().map(|bound| counted(bound, &calendar)).collect();
            for (name, (place, _)) in names.iter().zip(&mut held) {
                *place = self.shelf.place(name).unwrap_or(Place::NOWHERE);
            }
        }
        for ((name, (place, held)), charge) in names.iter().zip(held).zip(charges) {
            match (held, &exit) {
                // The call was made, and counts.
                (Held::Rate(Unit::Calls | Unit::NanoUsd, _), _) => continue,
                (Held::Slot, Exit::Panicked) if self.planted.has(Bug::SlotLeakedOnPanic) => continue,
                (Held::Quota(..), _) => self.note_settled(name, sequence, charge),
                _ => {}
            }
            match (self.shelf.stir(place), held) {
                // Of its tokens others may use what it did not.
                (Some(Limit::Rate(rate)), Held::Rate(_, permit)) => {
                    let amount = permit.amount - charge.min(permit.amount);
                    rate.give_back(Permit { amount, ..permit }, now);
                }
                (Some(Limit::Slots(slots)), Held::Slot) => slots.give_back(now),
                (Some(Limit::Quota(quota)), Held::Quota(..)) => quota.settle(charge, sequence),
                _ => {}
            }
        }
    }

    fn note_settled(&mut self, name: &Name, sequence: u64, amount: u64) {
        if self.settled.len() >= SETTLED_MAX
            && let Some(oldest) = self.settled.pop_front()
        {
            self.forgotten_up_to = self.forgotten_up_to.max(oldest.sequence);
        }
        self.settled.push_back(Settled {
            name: name.clone(),
            sequence,
            amount,
        });
    }

    /// Takes a grant away, so that nothing is given back twice.
    fn end(&mut self, grant: u64) -> Option<Grant> {
        if self.planted.has(Bug::GivenBackTwice) {
            return self.grants.get(&grant).cloned();
        }
        self.grants.remove(&grant)
    }
}
