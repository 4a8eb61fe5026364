//! How a request ends: what it held is given back or charged, exactly once.

use super::demand::{Charge, Exit, Used};
use super::{Grant, Held, Holdings, SETTLED_MAX, Settled, counted, note};
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
        for (name, held) in ended.names.iter().zip(&ended.held) {
            if let Held::Quota(..) = held
                && let Some(quota) = self.quotas.get_mut(name)
            {
                // It may have wished for more than it reserved.
                quota.cancel(grant);
            }
        }
        self.return_all((&ended.names, &ended.held), now);
    }

    pub(super) fn return_all(&mut self, (names, held): (&[Name], &[Held]), now: Now) {
        for (name, held) in names.iter().zip(held).rev() {
            match held {
                Held::Rate(_, permit) => {
                    if let Some(rate) = self.rates.get_mut(name) {
                        rate.give_back(*permit, now);
                    }
                    self.stir(name);
                }
                Held::Slot => self.free(name, now),
                Held::Quota(_, amount) => {
                    if let Some(quota) = self.quotas.get_mut(name) {
                        quota.give_back(*amount);
                    }
                    self.stir(name);
                }
            }
        }
    }

    fn free(&mut self, name: &Name, now: Now) {
        if let Some(slots) = self.slots.get_mut(name) {
            slots.give_back(now);
        }
        self.stir(name);
    }

    /// Whether a request used more than it reserved and the fleet may still have it: [`Self::charge`] it once
    /// something was answered, or after a while all the same.
    pub fn lacks(&mut self, grant: u64, used: Used, now: Now) -> bool {
        let Some(open) = self.grants.get(&grant) else {
            return false;
        };
        let mut lacks = false;
        for (name, held) in open.names.iter().zip(&open.held) {
            if let Held::Quota(unit, reserved) = *held
                && used.amount(unit) > reserved
                && let Some(quota) = self.quotas.get_mut(name)
            {
                lacks |= quota.wish(grant, reserved, used.amount(unit), now);
                note(&mut self.touched, name);
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
        let least = |unit: Unit| {
            let wanted = used.amount(unit);
            let payable = open
                .names
                .iter()
                .zip(&open.held)
                .filter_map(|(name, held)| match held {
                    // What is reserved can be had.
                    Held::Quota(of, reserved) if *of == unit && wanted > *reserved => Some(
                        self.quotas
                            .get(name)
                            .map_or(*reserved, |quota| quota.payable(*reserved)),
                    ),
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
            quotas: Vec::new(),
        };
        let mut charges = Vec::with_capacity(open.held.len());
        for (name, held) in open.names.iter().zip(&open.held) {
            let amount = match *held {
                Held::Slot => 0,
                Held::Rate(unit, permit) => used.amount(unit).min(permit.amount),
                Held::Quota(unit, reserved) => {
                    let amount = amounts.amount(unit);
                    if let Some(quota) = self.quotas.get_mut(name) {
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
        for ((name, held), charge) in open.names.iter().zip(&mut open.held).zip(charges) {
            if let Held::Quota(_, reserved) = held {
                *reserved = charge;
                if let Some(quota) = self.quotas.get_mut(name) {
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
            held,
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
        }
        for ((name, held), charge) in names.iter().zip(held).zip(charges) {
            match held {
                // The call was made; of its tokens others may use what it did not.
                Held::Rate(Unit::Tokens, permit) => {
                    let amount = permit.amount - charge.min(permit.amount);
                    if let Some(rate) = self.rates.get_mut(name) {
                        rate.give_back(Permit { amount, ..permit }, now);
                    }
                    self.stir(name);
                }
                Held::Rate(..) => {}
                Held::Slot if exit == Exit::Panicked && self.planted.has(Bug::SlotLeakedOnPanic) => {}
                Held::Slot => self.free(name, now),
                Held::Quota(..) => {
                    if let Some(quota) = self.quotas.get_mut(name) {
                        quota.settle(charge, sequence);
                    }
                    self.note_settled(name, sequence, charge);
                    self.stir(name);
                }
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
