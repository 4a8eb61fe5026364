//! What one request holds of its limits, from admission to its end.

use std::time::Duration;

use schemas::limit::Now;
use schemas::limit::holdings::demand::{Charge, Exit, Used};
use schemas::outcome::Outcome;
use tokio::time::timeout;
use tracing::error;

use super::Limiter;
use super::machine::Machine;
use crate::standing::{Least, is_told};

/// How long a request that used more than it reserved waits for the rest, before it pays what can be had.
const COVER_WAIT: Duration = Duration::from_secs(1);

/// What a request holds. It ends by [`Self::settle`] once its waybill is in the spool, or by [`Self::release`] when it
/// pays for nothing; dropping it is the last net, for defects of ours.
#[must_use = "what is held is to be settled or released"]
pub(crate) struct Held(Option<Open>);

struct Open {
    limiter: Limiter,
    grant: u64,
    is_charged: bool,
}

impl Held {
    /// What a request holds that nothing bounds.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    pub(super) fn new(limiter: &Limiter, grant: u64) -> Self {
        Self(Some(Open {
            limiter: limiter.clone(),
            grant,
            is_charged: false,
        }))
    }

    /// True when nothing bounds the request.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// How those limits of the request stand that its answer tells.
    pub(crate) fn standings(&self) -> Least {
        let standings = |open: &Open| {
            open.with(|machine, grant, now| {
                let standings = machine.holdings.standings(grant, now, |bound| is_told(bound.key));
                Least::of(standings.map(|(bound, standing)| (bound.key, standing)))
            })
        };
        self.0.as_ref().map_or_else(Least::default, standings)
    }

    /// Returns once what a request used beyond its reservation is in hand, or cannot be had, or after a second. To be
    /// awaited before [`Self::charge`] wherever that can be: what is not covered by then is absorbed. `None` where
    /// nothing has to be asked, as for one that used no more than it reserved. The future borrows nothing.
    pub(crate) fn cover(&self, used: Used) -> Option<impl Future<Output = ()> + Send + use<>> {
        let open = self.0.as_ref()?;
        let lacks = open.with(|machine, grant, now| machine.holdings.lacks(grant, used, now));
        let (limiter, grant) = (open.limiter.clone(), open.grant);
        lacks.then_some(async move {
            // Whoever does not get an answer pays what is in hand.
            let _ = timeout(COVER_WAIT, covered(&limiter, grant, used)).await;
        })
    }

    /// Fixes what the request is charged, for its waybill. The waybill is to be appended to the spool at once, then
    /// [`Self::settle`] or, when the spool did not take it, [`Self::uncharge`]. Charging twice changes nothing.
    pub(crate) fn charge(&mut self, used: Used) -> Charge {
        let charge = self.0.as_mut().and_then(|open| {
            open.is_charged = true;
            open.with(|machine, grant, _| machine.holdings.charge(grant, used))
        });
        charge.unwrap_or(Charge {
            nano_usd: used.nano_usd,
            ..Charge::default()
        })
    }

    /// The spool did not take the waybill: what was charged is reserved again, for a later try.
    pub(crate) fn uncharge(&mut self) {
        if let Some(open) = &mut self.0 {
            open.is_charged = false;
            open.with(|machine, grant, _| machine.holdings.uncharge(grant));
        }
    }

    /// The request has ended, and its waybill is at this place in the spool.
    pub(crate) fn settle(mut self, outcome: Outcome, sequence: u64) {
        let panics = |open: &Open| open.limiter.0.settings.planted.panics(open.grant);
        assert!(
            !self.0.as_ref().is_some_and(panics),
            "a panic that a test asked for"
        );
        if let Some(open) = self.0.take() {
            open.end(|machine, grant, now| {
                machine
                    .holdings
                    .settle(grant, Exit::Settled(outcome), sequence, now);
            });
        }
    }

    /// The request was not sent anywhere, or pays and counts for nothing: all of it is given back.
    pub(crate) fn release(mut self) {
        if let Some(open) = self.0.take() {
            open.end(|machine, grant, now| machine.holdings.give_back(grant, now));
        }
    }
}

impl Open {
    fn with<T>(&self, act: impl FnOnce(&mut Machine, u64, Now) -> T) -> T {
        let now = self.limiter.now();
        act(&mut self.limiter.0.machine.lock(), self.grant, now)
    }

    fn end(self, act: impl FnOnce(&mut Machine, u64, Now)) {
        let is_awaited = self.with(|machine, grant, now| {
            act(machine, grant, now);
            machine.is_awaited()
        });
        if is_awaited {
            self.limiter.0.wake.notify_one();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else {
            return;
        };
        error!(charged = open.is_charged, "a request ended without saying so");
        let is_charged = open.is_charged;
        open.end(|machine, grant, now| {
            if is_charged {
                // Its waybill may be in the spool: rather too much counted than too little.
                machine.holdings.settle(grant, Exit::Panicked, 0, now);
            } else {
                machine.holdings.give_back(grant, now);
            }
        });
    }
}

/// Returns once nothing is lacking that could still be had.
async fn covered(limiter: &Limiter, grant: u64, used: Used) {
    loop {
        let learned = limiter.0.learned.notified();
        let now = limiter.now();
        let lacks = limiter.0.machine.lock().holdings.lacks(grant, used, now);
        if !lacks {
            return;
        }
        limiter.0.wake.notify_one();
        learned.await;
    }
}
