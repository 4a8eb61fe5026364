//! The credentials of a request's attempts: taken from the endpoint's pool, with room among the calls that may run with
//! them, and judged by how the attempts end.

use schemas::catalog::Endpoint;
use schemas::event::health::CredentialChanged;
use tokio::time::Instant;
use tracing::warn;

use crate::attempt::Ending;
use crate::attempt::clocks::{Interruption, Timer, deadline, earlier, wait};
use crate::fault::{Fault, Waited};
use crate::keypool::{Alarm, Asker, Declared, Held, Lack, Lease, News};
use crate::limiter::{Door, Slot};
use crate::metrics::KeyEvent;
use crate::plan::Candidate;
use crate::relay::Stop;
use crate::state::Shared;

use super::Request;

/// What an attempt is made with.
#[derive(Debug)]
pub(super) struct Seat {
    /// The credential, none for endpoints without.
    pub(super) held: Option<Held>,
    /// Its place among the calls that may run at once.
    pub(super) slot: Slot,
}

/// Why there is no seat.
#[derive(Debug)]
pub(super) enum NoSeat {
    /// The endpoint has none.
    Fault(Fault),
    /// The session was stopped while it waited.
    Stopped(Stop),
}

impl From<Fault> for NoSeat {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Request {
    fn asker(&self) -> Asker {
        Asker {
            tenant: self.offer.tenant.clone(),
            role: self.offer.role,
        }
    }

    /// The seat for the first attempt at a candidate: with the credential whose turn it is, with another one that has
    /// room right now, or with the first after a wait.
    pub(super) async fn seat(&self, shared: &Shared, candidate: &Candidate) -> Result<Seat, NoSeat> {
        let held = self.lease(shared, candidate, &[])?;
        if let Some(seat) = self.seat_at_hand(shared, candidate, (held.clone(), &[])) {
            return Ok(seat);
        }
        let full = || {
            shared.metrics.saturated(&candidate.endpoint.id);
            NoSeat::Fault(Fault::Saturated)
        };
        let mut waiter = door(shared, candidate, held.as_ref()).queue().ok_or_else(full)?;
        let mut timer = Timer::default();
        let patience = self.offloading.patience(candidate);
        let wait_max = shared.limiter.wait_max();
        let is_short = patience.is_some_and(|wait| wait_max.is_none_or(|most| wait < most));
        let turn = deadline(Instant::now(), if is_short { patience } else { wait_max });
        timer.set(earlier(turn, self.stream_deadline));
        match wait(&self.relay, &mut timer, |context| waiter.poll(context)).await {
            Ok(slot) => Ok(Seat { held, slot }),
            Err(Interruption::Stopped(stop)) => Err(NoSeat::Stopped(stop)),
            Err(Interruption::TimedOut) if is_short => Err(Fault::Waited(Waited::Queue).into()),
            Err(Interruption::TimedOut) => Err(full()),
        }
    }

    /// The seat for another attempt at the same candidate, with another credential that has room, where the budget has
    /// a repetition left.
    pub(super) fn next_seat(&self, shared: &Shared, candidate: &Candidate, tried: &[Lease]) -> Option<Seat> {
        let endpoint = &candidate.endpoint.id;
        if !self.has_other(shared, candidate, tried) || !self.may_go_on(shared) {
            return None;
        }
        let held = self.lease(shared, candidate, tried).ok()?;
        let seat = self.seat_at_hand(shared, candidate, (held, tried))?;
        shared.metrics.key(endpoint, KeyEvent::Rotated);
        Some(seat)
    }

    /// A seat with a credential or, where no room is left, with one that was neither tried nor is full.
    fn seat_at_hand(
        &self,
        shared: &Shared,
        candidate: &Candidate,
        (mut held, tried): (Option<Held>, &[Lease]),
    ) -> Option<Seat> {
        let mut passed: Vec<Lease> = Vec::new();
        loop {
            if let Some(slot) = door(shared, candidate, held.as_ref()).enter() {
                return Some(Seat { held, slot });
            }
            if passed.is_empty() {
                passed.extend_from_slice(tried);
            }
            passed.push(held?.lease);
            if !self.has_other(shared, candidate, &passed) {
                return None;
            }
            held = self.lease(shared, candidate, &passed).ok()?;
        }
    }

    fn has_other(&self, shared: &Shared, candidate: &Candidate, tried: &[Lease]) -> bool {
        let now_ms = shared.clock.monotonic_ms();
        let endpoint = &candidate.endpoint.id;
        shared.pools.has_other(endpoint, &self.asker(), tried, now_ms)
    }

    /// The next credential for attempts at a candidate, none for endpoints without.
    fn lease(&self, shared: &Shared, candidate: &Candidate, tried: &[Lease]) -> Result<Option<Held>, Fault> {
        let endpoint = &candidate.endpoint;
        if endpoint.is_keyless() {
            return Ok(None);
        }
        let book = (endpoint, shared.credentials.as_ref());
        let now_ms = shared.clock.monotonic_ms();
        let declared = shared.pools.acquire(book, &self.asker(), tried, now_ms);
        if !endpoint.sealed.is_empty() {
            tell_of_sealed(shared, endpoint);
        }
        match declared {
            Declared::Keyless => Ok(None),
            Declared::Key(held) => Ok(Some(held)),
            // What does not open is as good as refused: nothing was sent, and nobody else gets it.
            Declared::Unknown if !endpoint.sealed.is_empty() => Err(Fault::Disowned),
            Declared::Unknown => Err(Fault::Misconfigured),
            Declared::Lacking(Lack::Reserved) => Err(Fault::Reserved),
            Declared::Lacking(Lack::Muted { refused, seconds }) => {
                shared.metrics.key(&candidate.endpoint.id, KeyEvent::Exhausted);
                Err(if refused {
                    Fault::Disowned
                } else {
                    Fault::Exhausted { seconds }
                })
            }
        }
    }

    /// Notes what the ending of an attempt says about its credential, the last of those `tried`.
    pub(super) fn judge(&self, shared: &Shared, candidate: &Candidate, (tried, ending): (&[Lease], &Ending)) {
        let Some(lease) = tried.last() else {
            return;
        };
        let endpoint = &candidate.endpoint.id;
        let pool = (endpoint, &shared.metrics);
        match ending {
            Ending::Whole { .. } => {
                if let Some(credential) = shared.pools.succeeded(pool, *lease) {
                    tell(shared, candidate, (Alarm::of(credential), None));
                }
            }
            Ending::Failed(fault) => {
                let Some(flaw) = fault.flaw() else {
                    return;
                };
                let now_ms = shared.clock.monotonic_ms();
                let asker = self.asker();
                let alarm = shared.pools.failed(pool, &asker, tried, (flaw, now_ms));
                if let Some(alarm) = alarm {
                    tell(shared, candidate, (alarm, fault.status()));
                }
            }
            Ending::Told(_) | Ending::Stopped(_) => {}
        }
    }
}

/// Where calls to a candidate with a credential enter.
fn door(shared: &Shared, candidate: &Candidate, held: Option<&Held>) -> Door {
    let endpoint = candidate.endpoint.as_ref();
    let backend = candidate.backend.and_then(|index| endpoint.backends.get(index));
    match backend {
        Some(backend) => {
            let credential = held.map(|held| {
                let declaration = held.declaration.as_ref();
                (&declaration.reference, declaration.secret.as_ref())
            });
            shared.limiter.door(endpoint, &backend.base_url, credential)
        }
        None => Door::open(),
    }
}

/// Tells operators of sealed credentials that do not open, or open again.
pub(crate) fn tell_of_sealed(shared: &Shared, endpoint: &Endpoint) {
    for News { reference, problem } in shared.pools.news(&endpoint.id) {
        if let Some(problem) = problem {
            warn!(
                endpoint.id = %endpoint.id,
                credential.name = %reference.0,
                error = &problem as &dyn std::error::Error,
                "a sealed credential does not open"
            );
        }
        (shared.alert)(&CredentialChanged {
            endpoint_id: endpoint.id.clone(),
            credential: reference,
            accepted: problem.is_none(),
            status: None,
            at: shared.clock.now(),
            node: shared.config.node.clone(),
        });
    }
}

/// Tells operators of a credential: refused with `status`, or accepted again.
fn tell(shared: &Shared, candidate: &Candidate, (alarm, status): (Alarm, Option<u16>)) {
    let endpoint = &candidate.endpoint.id;
    if let Some(status) = status {
        warn!(
            endpoint.id = %endpoint,
            credential.name = %alarm.reference.0,
            status,
            "an upstream does not accept a credential"
        );
    }
    if alarm.changed {
        (shared.alert)(&CredentialChanged {
            endpoint_id: endpoint.clone(),
            credential: alarm.reference,
            accepted: status.is_none(),
            status,
            at: shared.clock.now(),
            node: shared.config.node.clone(),
        });
    }
}
