//! The gateway's side of dispatch over the bus: a [`Dispatcher`] whose sessions are polled like those in process, and
//! one task for all of them ([`run`]) that takes in what arrives, beats, and notices who has become silent.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use schemas::id::PoolName;
use schemas::pool::Part;
use schemas::subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::code::{self, ORDERS_MAX, Order};
use super::outbox::{Outbox, Outgoing};
use super::request::{Directive, Heard, Now, Request, Wanted};
use super::session::RemoteSession;
use super::{ARRIVALS_MAX, BEAT, BEAT_WORD, LOOK, PIECE_BYTES, STANDSTILL};
use crate::BusError;
use crate::clock::Clock;
use crate::dispatch::{Dispatch, Dispatcher, Session};
use crate::mint::Mint;
use crate::waiting::once_there;
use crate::wire::{Delivery, Wire};

/// How a gateway offers requests.
#[derive(Debug, Clone)]
pub struct Config {
    /// The pool of routers that requests are offered to.
    pub pool: PoolName,
    /// How long a request may wait for a router.
    pub admit_wait: Duration,
    /// Most requests that wait for a router at once.
    pub waiting_max: usize,
}

impl Config {
    /// The usual waits, for a pool.
    pub fn new(pool: PoolName) -> Self {
        Self {
            pool,
            admit_wait: Duration::from_secs(12),
            waiting_max: 1_000,
        }
    }
}

/// Has requests run by routers elsewhere, as long as [`run`] runs. Cheap to clone.
///
/// Its sessions keep the promises of [`crate::dispatch`]. A body that is too large for an offer follows in pieces, as the
/// router asks for them; one larger than [`BODY_BYTES_MAX`](super::BODY_BYTES_MAX) ends with `no_backends_available`. A
/// request that no router takes within [`Config::admit_wait`] ends with `store_unavailable` (the bus is away),
/// `no_backends_available` (nobody listens) or `overloaded` (all are full). A router lost before the first content is
/// replaced as long as attempts are left; after it the session ends with `upstream_cut`.
#[derive(Clone)]
pub struct RemoteDispatcher {
    shared: Arc<Shared>,
}

impl RemoteDispatcher {
    /// A dispatcher over `wire`; nothing is sent before [`run`] runs.
    pub fn new(config: Config, wire: Arc<dyn Wire>, clock: Arc<dyn Clock>, mint: &Mint) -> Self {
        let shared = Shared {
            waiting: Arc::new(Semaphore::new(config.waiting_max.min(Semaphore::MAX_PERMITS))),
            lanes_drawn: Drawn::new(mint),
            connected: wire.connected(),
            lanes: Mutex::default(),
            outbox: Outbox::default(),
            open: AtomicBool::new(true),
            config,
            wire,
            clock,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Requests that are offered or running.
    pub fn open(&self) -> usize {
        self.shared.lanes.lock().len()
    }
}

impl RemoteDispatcher {
    /// The pool whose routers run what names none.
    pub fn pool(&self) -> &PoolName {
        &self.shared.config.pool
    }

    /// Has a request run by the routers of a pool.
    pub fn dispatch_to(&self, target: Target, dispatch: Dispatch) -> Box<dyn Session> {
        Box::new(RemoteSession::new(Arc::clone(&self.shared), target, dispatch))
    }
}

impl Dispatcher for RemoteDispatcher {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        let target = Target {
            pool: self.pool().clone(),
            part: None,
            is_last: true,
        };
        self.dispatch_to(target, dispatch)
    }
}

/// Who is to run a request.
#[derive(Debug, Clone)]
pub struct Target {
    /// The pool.
    pub pool: PoolName,
    /// What its routers must know of the catalogue, where they do not follow that.
    pub part: Option<Arc<Part>>,
    /// Nobody else can run it: it is worth waiting for.
    pub is_last: bool,
}

/// A request, and who polls it.
pub(super) struct Call {
    pub(super) request: Mutex<Request>,
    pub(super) waker: AtomicWaker,
    /// The pool that runs it.
    pub(super) pool: PoolName,
    /// Its body.
    pub(super) body: Bytes,
}

impl Call {
    pub(super) fn new(request: Request, pool: PoolName, body: Bytes) -> Self {
        Self {
            request: Mutex::new(request),
            waker: AtomicWaker::new(),
            pool,
            body,
        }
    }
}

/// The numbers of lanes: none of them tells another, nor those of another run of this node. Whoever knows one of his own
/// can still not speak for the router of a request of others.
struct Drawn {
    keyed: RandomState,
    count: AtomicU64,
}

impl Drawn {
    fn new(mint: &Mint) -> Self {
        Self {
            keyed: RandomState::new(),
            count: AtomicU64::new(mint.draw()),
        }
    }

    fn next(&self) -> u64 {
        self.keyed.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the sessions of a gateway and its task share. The lock of a call is never taken under that of `lanes`.
pub(super) struct Shared {
    pub(super) config: Config,
    wire: Arc<dyn Wire>,
    clock: Arc<dyn Clock>,
    lanes_drawn: Drawn,
    lanes: Mutex<HashMap<u64, Arc<Call>>>,
    outbox: Outbox,
    waiting: Arc<Semaphore>,
    connected: watch::Receiver<bool>,
    /// False once nobody hears what arrives any more.
    open: AtomicBool,
}

impl Shared {
    pub(super) fn now(&self) -> Now {
        Now {
            at: Instant::now(),
            wall: self.clock.now(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        *self.connected.borrow() && self.open.load(Ordering::Acquire)
    }

    pub(super) fn payload_bytes_max(&self) -> usize {
        self.wire.payload_bytes_max()
    }

    pub(super) fn next_lane(&self) -> u64 {
        self.lanes_drawn.next()
    }

    /// A place among those that wait, if there is one.
    pub(super) fn wait(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }

    pub(super) fn replace_lane(&self, old: u64, lane: u64, call: &Arc<Call>) {
        let mut lanes = self.lanes.lock();
        if lanes.get(&old).is_some_and(|there| Arc::ptr_eq(there, call)) {
            lanes.remove(&old);
        }
        lanes.insert(lane, Arc::clone(call));
    }

    pub(super) fn close_lane(&self, lane: u64) {
        self.lanes.lock().remove(&lane);
    }

    /// Sends an offer; false when it cannot be.
    pub(super) fn send_offer(&self, (pool, lane): (&PoolName, u64), payload: Bytes) -> bool {
        self.outbox.put(Outgoing {
            subject: subject::run(pool.as_str()),
            reply: Some(self.reply(lane)),
            payload,
            offer: Some(lane),
        })
    }

    /// Tells a router what it must know. May be lost: each beat says it again.
    pub(super) fn direct(&self, pool: &PoolName, directive: Option<Directive>) {
        let Some(Directive { boot, order, go }) = directive else {
            return;
        };
        self.outbox.put(Outgoing {
            subject: subject::control(pool.as_str(), &boot),
            reply: go.then(|| self.reply(order.lane)),
            payload: code::orders(self.wire.inbox(), &[order]),
            offer: None,
        });
    }

    /// Sends what a router wants of a body. What does not fit is asked for again.
    fn send_body(&self, (lane, call): (u64, &Call), wanted: &Wanted) {
        let subject = subject::body(call.pool.as_str(), &wanted.boot);
        let piece_bytes = PIECE_BYTES.min(self.payload_bytes_max() / 2).max(1);
        let wanted = wanted.bytes.clone();
        for from in wanted.clone().step_by(piece_bytes) {
            let until = wanted.end.min(from + piece_bytes);
            let (Some(piece), Ok(offset)) = (call.body.get(from..until), u32::try_from(from)) else {
                return;
            };
            let is_sent = self.outbox.put(Outgoing {
                subject: subject.clone(),
                reply: None,
                payload: code::piece(self.wire.inbox(), lane, offset, piece),
                offer: None,
            });
            if !is_sent {
                return;
            }
        }
    }

    fn reply(&self, lane: u64) -> String {
        format!("{}.{lane:016x}", self.wire.inbox())
    }

    fn call(&self, lane: u64) -> Option<Arc<Call>> {
        self.lanes.lock().get(&lane).cloned()
    }

    fn calls(&self) -> Vec<(u64, Arc<Call>)> {
        let lanes = self.lanes.lock();
        lanes
            .iter()
            .map(|(lane, call)| (*lane, Arc::clone(call)))
            .collect()
    }

    fn unsent(&self, lane: u64) {
        if let Some(call) = self.call(lane)
            && call.request.lock().unsent(lane, self.now())
        {
            call.waker.wake();
        }
    }

    /// Takes in what arrived.
    fn hear(&self, delivery: Delivery) {
        let word = delivery.subject.rsplit('.').next().unwrap_or_default();
        if word == BEAT_WORD {
            match code::read_beat(delivery.payload) {
                Ok(places) => self.hear_beat(&places),
                Err(problem) => unreadable(&delivery.subject, &problem),
            }
            return;
        }
        let lane = u64::from_str_radix(word, 16).ok();
        let Some((lane, call)) = lane.and_then(|lane| Some((lane, self.call(lane)?))) else {
            // It has ended here: the beats, which do not name it any more, say so.
            return;
        };
        let heard = if delivery.unheard {
            Heard {
                wake: call.request.lock().unheard(lane, self.now()),
                ..Heard::default()
            }
        } else {
            match code::read_reply(delivery.payload) {
                Ok(reply) => call.request.lock().hear(lane, reply, self.now()),
                Err(problem) => return unreadable(&delivery.subject, &problem),
            }
        };
        self.direct(&call.pool, heard.directive);
        if let Some(wanted) = &heard.wanted {
            self.send_body((lane, &call), wanted);
        }
        if heard.wake {
            call.waker.wake();
        }
    }

    fn hear_beat(&self, places: &[code::Place]) {
        let now = self.now();
        for place in places {
            if let Some(call) = self.call(place.lane) {
                let directive = call.request.lock().beat(place.lane, place.next, now);
                self.direct(&call.pool, directive);
            }
        }
    }

    /// Looks who has become silent, and tells it to stop: it may live after all. A router that is heard about one
    /// request lives for all of its requests.
    fn look(&self, connected_since: Option<Instant>) {
        let (calls, now) = (self.calls(), self.now());
        let mut routers: HashMap<Arc<str>, Instant> = HashMap::new();
        for (_, call) in &calls {
            if let Some((boot, at)) = call.request.lock().heard() {
                let heard_at = routers.entry(boot).or_insert(at);
                *heard_at = at.max(*heard_at);
            }
        }
        for (_, call) in calls {
            let lost = call.request.lock().look(connected_since, &routers, now);
            if lost.is_some() {
                self.direct(&call.pool, lost);
                call.waker.wake();
            }
        }
    }

    /// Nobody hears what arrives any more.
    fn close(&self) {
        self.open.store(false, Ordering::Release);
        for (_, call) in self.calls() {
            call.request.lock().abandon();
            call.waker.wake();
        }
    }

    /// Tells every router how far its lanes are.
    fn pulse(&self, resume: bool) {
        let mut routers: HashMap<String, Vec<Order>> = HashMap::new();
        for (_, call) in self.calls() {
            let directive = call.request.lock().pulse(resume);
            if let Some(Directive { boot, order, .. }) = directive {
                let subject = subject::control(call.pool.as_str(), &boot);
                routers.entry(subject).or_default().push(order);
            }
        }
        for (subject, orders) in routers {
            for orders in orders.chunks(ORDERS_MAX) {
                self.outbox.put(Outgoing {
                    subject: subject.clone(),
                    reply: None,
                    payload: code::orders(self.wire.inbox(), orders),
                    offer: None,
                });
            }
        }
    }
}

fn unreadable(subject: &str, problem: &code::Malformed) {
    debug!(
        subject,
        error = problem as &dyn std::error::Error,
        "a message of dispatch is left out"
    );
}

/// Serves the sessions of `dispatcher` until `shutdown`, which comes after the gateway has drained: sessions that are
/// still open then end as if their routers were lost. Fails when the wire ends.
pub async fn run(dispatcher: RemoteDispatcher, shutdown: CancellationToken) -> Result<(), BusError> {
    let shared = dispatcher.shared;
    let replies = format!("{}.*", shared.wire.inbox());
    let hear = || shared.wire.subscribe(&replies);
    let inbox = tokio::select! {
        biased;
        inbox = once_there("requests cannot be given to routers", hear) => inbox?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let unsent = |lane| shared.unsent(lane);
    let served = tokio::select! {
        biased;
        served = receive(&shared, inbox, &shutdown) => served,
        () = shared.outbox.run(&*shared.wire, &unsent) => Ok(()),
    };
    shared.close();
    // What sessions said last, cancels for instance, still leaves.
    shared.outbox.send(&*shared.wire, &unsent).await;
    served
}

async fn receive(
    shared: &Shared,
    mut inbox: mpsc::Receiver<Delivery>,
    shutdown: &CancellationToken,
) -> Result<(), BusError> {
    let mut connected = shared.wire.connected();
    let mut connected_since = connected.borrow_and_update().then(Instant::now);
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looked_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            changed = connected.changed() => {
                changed.map_err(|_| BusError::Closed)?;
                connected_since = connected.borrow_and_update().then(Instant::now);
                if connected_since.is_some() {
                    shared.pulse(true);
                }
            }
            _ = beats.tick() => shared.pulse(false),
            _ = looks.tick() => {
                // What has arrived counts before anybody is called silent.
                for _ in 0..ARRIVALS_MAX {
                    let Ok(delivery) = inbox.try_recv() else {
                        break;
                    };
                    shared.hear(delivery);
                }
                // Whoever stood still heard nobody meanwhile: silence counts from now on.
                if looked_at.elapsed() >= STANDSTILL {
                    connected_since = connected_since.map(|_| Instant::now());
                }
                looked_at = Instant::now();
                shared.look(connected_since);
            }
            delivery = inbox.recv() => shared.hear(delivery.ok_or(BusError::Closed)?),
        }
    }
}
