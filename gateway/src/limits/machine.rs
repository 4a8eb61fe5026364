//! The machines of all limits behind one lock, and those that wait for them. Nothing here awaits.

use std::collections::HashMap;

use schemas::failure::FailureCode;
use schemas::limit::holdings::Holdings;
use schemas::limit::holdings::demand::{Admission, Demand, Refusal};
use schemas::limit::layers::Bound;
use schemas::limit::{Now, Standing};
use tokio::sync::oneshot;

use super::{Held, Limiter};

/// How often in a row those that wait are asked again, before what there is to ask is asked.
const ROUNDS_MAX: usize = 16;

/// What a request that waited is told: the number of its grant, or why it is refused.
type Verdict = Result<u64, Box<Refusal>>;

/// All limits of this node.
pub(super) struct Machine {
    pub(super) holdings: Holdings,
    waiting: HashMap<u64, oneshot::Sender<Verdict>>,
}

/// The answer to a request.
pub(super) enum Asked {
    /// It is admitted under this number.
    Granted(u64),
    /// It is refused.
    Refused(Box<Refusal>),
    /// The fleet is asked.
    Waiting(Waiting),
}

impl Machine {
    pub(super) fn new(holdings: Holdings) -> Self {
        Self {
            holdings,
            waiting: HashMap::new(),
        }
    }

    /// Whether somebody waits.
    pub(super) fn is_awaited(&self) -> bool {
        self.holdings.waiting() > 0
    }

    /// Asks again for all that may go on, and tells those that are decided.
    pub(super) fn resume(&mut self, now: Now) {
        for _ in 0..ROUNDS_MAX {
            let ready = self.holdings.ready();
            if ready.is_empty() {
                return;
            }
            for id in ready {
                match self.holdings.resume(id, now) {
                    None | Some(Admission::Waiting(_)) => {}
                    Some(Admission::Granted(grant)) => self.tell(id, Ok(grant), now),
                    Some(Admission::Refused(refusal)) => self.tell(id, Err(Box::new(refusal)), now),
                }
            }
        }
    }

    fn tell(&mut self, id: u64, verdict: Verdict, now: Now) {
        let unheard = match self.waiting.remove(&id) {
            Some(sender) => sender.send(verdict).err(),
            None => Some(verdict),
        };
        if let Some(Ok(grant)) = unheard {
            self.holdings.give_back(grant, now);
        }
    }
}

/// A request that waits. Whoever drops it takes the request back.
pub(super) struct Waiting {
    limiter: Limiter,
    id: u64,
    bounds: std::sync::Arc<[Bound]>,
    verdict: oneshot::Receiver<Verdict>,
    is_told: bool,
}

impl Waiting {
    /// The verdict, once there is one; `None` when there will be none.
    pub(super) async fn answer(&mut self) -> Option<Result<Held, Refusal>> {
        let verdict = (&mut self.verdict).await.ok()?;
        self.is_told = true;
        Some(self.held(verdict))
    }

    /// Waits no longer: what was decided in the last moment counts.
    pub(super) fn give_up(mut self) -> Result<Held, Refusal> {
        let verdict = self.take_back();
        self.is_told = true;
        self.held(verdict.unwrap_or_else(|| Err(Box::new(self.undecided()))))
    }

    fn held(&self, verdict: Verdict) -> Result<Held, Refusal> {
        match verdict {
            Ok(grant) => Ok(Held::new(&self.limiter, grant)),
            Err(refusal) => Err(*refusal),
        }
    }

    /// Takes the request back, unless it was decided before; `None` when nobody knows of it.
    fn take_back(&mut self) -> Option<Verdict> {
        let now = self.limiter.now();
        let mut machine = self.limiter.0.machine.lock();
        machine.waiting.remove(&self.id);
        let refusal = machine.holdings.abandon(self.id, now);
        drop(machine);
        match refusal {
            Some(refusal) => Some(Err(Box::new(refusal))),
            None => self.verdict.try_recv().ok(),
        }
    }

    /// The refusal of a request that was lost on the way.
    fn undecided(&self) -> Refusal {
        let (key, scope, model, limit) = match self.bounds.first() {
            Some(bound) => (bound.key, bound.scope, bound.model.clone(), bound.limit),
            None => (
                schemas::limit::limits::LimitKey::Qps,
                schemas::limit::layers::Scope::Key,
                None,
                0,
            ),
        };
        Refusal {
            code: FailureCode::StoreUnavailable,
            key,
            scope,
            model,
            standing: Standing {
                limit,
                current: 0,
                remaining: limit,
            },
            reset_at: None,
            retry_after_seconds: 1,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        if let Some(Ok(grant)) = self.take_back() {
            let now = self.limiter.now();
            self.limiter.0.machine.lock().holdings.give_back(grant, now);
        }
        self.limiter.0.wake.notify_one();
    }
}

impl Limiter {
    /// Asks every layer for a request.
    pub(super) fn ask(&self, demand: Demand) -> Asked {
        let now = self.now();
        let bounds = std::sync::Arc::clone(&demand.bounds);
        let mut machine = self.0.machine.lock();
        match machine.holdings.admit(demand, now) {
            Admission::Granted(grant) => Asked::Granted(grant),
            Admission::Refused(refusal) => Asked::Refused(Box::new(refusal)),
            Admission::Waiting(id) => {
                let (sender, verdict) = oneshot::channel();
                machine.waiting.insert(id, sender);
                Asked::Waiting(Waiting {
                    limiter: self.clone(),
                    id,
                    bounds,
                    verdict,
                    is_told: false,
                })
            }
        }
    }
}
