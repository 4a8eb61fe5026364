//! The router's side of dispatch over the bus: takes offers of a pool while there is room, holds a place for the word
//! to go, and runs what got it. One task takes in what arrives and beats; each running request has a task of its own,
//! which ends with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::command::Offer;
use schemas::id::PoolName;
use schemas::subject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::code::{self, ORDERS_MAX, Offered, Order, Place, Wish};
use super::driver::{self, Lane, Ordered, Seen};
use super::incoming::Incoming;
use super::outbox::{Outbox, Outgoing};
use super::sight::Sight;
use super::{ARRIVALS_MAX, BEAT, BEAT_WORD, BODIES_BYTES_MAX, BODY_BYTES_MAX, GROUP, LOOK};
use crate::BusError;
use crate::dispatch::{Dispatch, Dispatcher};
use crate::waiting::once_there;
use crate::wire::{Delivery, Wire};

/// How long an offer may wait for the router's catalogue to be as new as the offer's.
const CATALOG_WAIT: Duration = Duration::from_millis(300);
/// Time between two looks at the catalogue.
const CATALOG_LOOK: Duration = Duration::from_millis(5);
/// Most offers that wait for the catalogue.
const BEHIND_MAX: usize = 256;
/// The unit in which room for bodies is counted, in bytes.
const ROOM_BYTES: usize = 1024;
/// How long interrupted requests may take to report.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// What a router takes.
#[derive(Debug, Clone)]
pub struct Config {
    /// The pool whose offers it takes.
    pub pool: PoolName,
    /// This run of its process: the word in the subject where it listens for orders.
    pub boot: Arc<str>,
    /// Most requests that it holds or runs at once; beyond them it answers that it is busy.
    pub sessions_max: usize,
    /// How long running requests may go on after the shutdown began; then they are interrupted.
    pub drain: Duration,
}

/// The router's side of dispatch over the bus.
#[derive(Debug)]
pub struct Intake;

/// Names a lane among those of all gateways.
type LaneKey = (Arc<str>, u64);

/// What the intake's tasks share. A lane's lock is never taken under that of `lanes`.
struct Shared {
    config: Config,
    wire: Arc<dyn Wire>,
    dispatcher: Arc<dyn Dispatcher>,
    sight: Sight,
    lanes: Mutex<HashMap<LaneKey, Arc<Lane>>>,
    /// Room for bodies that do not come with offers, in units of [`ROOM_BYTES`].
    room: Arc<Semaphore>,
    outbox: Outbox,
}

/// An offer that may be accepted.
struct Taken {
    key: LaneKey,
    reply: String,
    dispatch: Dispatch,
    body: Body,
}

/// Where the body of an offer is.
enum Body {
    /// It came with the offer.
    Here,
    /// It is to be fetched: its bytes, and the room for it.
    Fetched(usize, OwnedSemaphorePermit),
}

impl Intake {
    /// Takes offers until `shutdown`, then finishes what runs: to its end, or to the drain limit. Each request is
    /// run by `dispatcher`. An offer of a newer catalogue than the router follows waits a moment, then is left to another
    /// router; one that follows none takes the offers that tell it what it must know. Fails when the wire ends.
    pub async fn run(
        config: Config,
        wire: Arc<dyn Wire>,
        dispatcher: Arc<dyn Dispatcher>,
        sight: impl Into<Sight>,
        shutdown: CancellationToken,
    ) -> Result<(), BusError> {
        let pool = config.pool.as_str();
        let (control, run) = (subject::control(pool, &config.boot), subject::run(pool));
        let body = subject::body(pool, &config.boot);
        let hear = || async {
            let (orders, bodies) = (wire.subscribe(&control).await?, wire.subscribe(&body).await?);
            Ok((orders, bodies, wire.share(&run, GROUP).await?))
        };
        let (orders, bodies, offers) = tokio::select! {
            biased;
            heard = once_there("requests of other nodes are not taken", hear) => heard?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let shared = Arc::new(Shared {
            config,
            wire,
            dispatcher,
            sight: sight.into(),
            lanes: Mutex::default(),
            room: Arc::new(Semaphore::new(BODIES_BYTES_MAX / ROOM_BYTES)),
            outbox: Outbox::default(),
        });
        let mut serving = Serving {
            shared: Arc::clone(&shared),
            offers,
            orders,
            bodies,
            running: JoinSet::new(),
            behind: JoinSet::new(),
        };
        let unsent = |_| {};
        let served = tokio::select! {
            biased;
            served = serving.serve(&shutdown) => served,
            () = shared.outbox.run(&*shared.wire, &unsent) => Ok(()),
        };
        shared.outbox.send(&*shared.wire, &unsent).await;
        served
    }
}

struct Serving {
    shared: Arc<Shared>,
    offers: mpsc::Receiver<Delivery>,
    orders: mpsc::Receiver<Delivery>,
    bodies: mpsc::Receiver<Delivery>,
    running: JoinSet<()>,
    behind: JoinSet<()>,
}

impl Serving {
    async fn serve(&mut self, shutdown: &CancellationToken) -> Result<(), BusError> {
        let shared = Arc::clone(&self.shared);
        let mut connected = shared.wire.connected();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // When the drain ends; `None` before the shutdown.
        let mut drained_at: Option<Instant> = None;
        while drained_at.is_none() || !shared.lanes.lock().is_empty() {
            tokio::select! {
                biased;
                Some(_) = self.running.join_next() => {}
                Some(_) = self.behind.join_next() => {}
                changed = connected.changed() => {
                    changed.map_err(|_| BusError::Closed)?;
                    if *connected.borrow_and_update() {
                        shared.beat();
                    }
                }
                _ = beats.tick() => shared.beat(),
                _ = looks.tick() => {
                    self.hear_what_is_there();
                    shared.look();
                    if let Some(limit) = drained_at.map(|at| at + shared.config.drain)
                        && shared.enforce(limit)
                    {
                        return Ok(());
                    }
                }
                () = shutdown.cancelled(), if drained_at.is_none() => {
                    drained_at = Some(Instant::now());
                    self.close();
                }
                delivery = self.orders.recv() => self.hear_orders(delivery.ok_or(BusError::Closed)?),
                delivery = self.bodies.recv() => self.shared.hear_body(delivery.ok_or(BusError::Closed)?),
                delivery = self.offers.recv(), if drained_at.is_none() => {
                    self.hear_offer(delivery.ok_or(BusError::Closed)?);
                }
            }
        }
        Ok(())
    }

    /// Takes in the orders that have arrived: they count before anybody is called silent.
    fn hear_what_is_there(&mut self) {
        for _ in 0..ARRIVALS_MAX {
            let Ok(delivery) = self.orders.try_recv() else {
                return;
            };
            self.hear_orders(delivery);
        }
    }

    /// Takes no more offers; those on their way go elsewhere.
    fn close(&mut self) {
        self.offers.close();
        while let Ok(delivery) = self.offers.try_recv() {
            if let Some(reply) = delivery.reply {
                self.shared.answer(reply, code::busy());
            }
        }
        self.behind.abort_all();
    }

    fn hear_offer(&mut self, delivery: Delivery) {
        let Some(reply) = delivery.reply else {
            return;
        };
        let offered = match code::read_offer(delivery.payload) {
            Ok(read) => read,
            Err(problem) => return unreadable(&delivery.subject, &problem),
        };
        let Some(key) = key(&reply) else {
            return;
        };
        let Some(body) = self.shared.room_for(&offered) else {
            return self.shared.answer(reply, code::busy());
        };
        let knows = self.shared.knows(&offered.offer, &offered.part);
        let taken = Taken {
            key,
            reply,
            dispatch: Dispatch::new(offered.offer, offered.body),
            body,
        };
        match knows {
            Ok(true) => self.shared.accept(taken),
            Ok(false) if self.behind.len() < BEHIND_MAX => {
                let shared = Arc::clone(&self.shared);
                self.behind.spawn(async move { shared.catch_up(taken).await });
            }
            Ok(false) => self.shared.answer(taken.reply, code::busy()),
            Err(problem) => {
                unreadable(&delivery.subject, &problem);
                self.shared.answer(taken.reply, code::busy());
            }
        }
    }

    fn hear_orders(&mut self, delivery: Delivery) {
        let (inbox, orders) = match code::read_orders(delivery.payload) {
            Ok(read) => read,
            Err(problem) => return unreadable(&delivery.subject, &problem),
        };
        let inbox: Arc<str> = inbox.into();
        for order in orders {
            self.obey((Arc::clone(&inbox), order.lane), &order);
        }
    }

    fn obey(&mut self, key: LaneKey, order: &Order) {
        let lane = self.shared.lanes.lock().get(&key).cloned();
        let ordered = lane.as_ref().map(|lane| lane.order(order, Instant::now()));
        match (lane, ordered) {
            (Some(lane), Some(Ordered::Go(dispatch))) => self.go(key, lane, *dispatch),
            (_, Some(Ordered::Taken)) | (None, Some(Ordered::Go(_))) => {}
            (_, Some(Ordered::Forget) | None) => {
                self.shared.lanes.lock().remove(&key);
                if order.wish != Wish::Release {
                    self.shared.answer(subject_of(&key), code::unknown());
                }
            }
        }
    }

    fn go(&mut self, key: LaneKey, lane: Arc<Lane>, mut dispatch: Dispatch) {
        let shared = Arc::clone(&self.shared);
        let wire = Arc::clone(&shared.wire);
        let subject = subject_of(&key);
        let listed = Listed {
            shared: Arc::clone(&shared),
            key,
        };
        if lane.incoming().is_none() {
            let session = shared.dispatcher.dispatch(dispatch);
            self.running.spawn(async move {
                let _listed = listed;
                driver::drive(lane, session, wire, subject).await;
            });
            return;
        }
        self.running.spawn(async move {
            let _listed = listed;
            match shared.fetch(&lane, &subject).await {
                Some(body) => dispatch.body = body,
                None => return shared.answer(subject, code::unknown()),
            }
            let session = shared.dispatcher.dispatch(dispatch);
            driver::drive(lane, session, wire, subject).await;
        });
    }
}

/// Takes a lane off the list when its task ends, also in a panic.
struct Listed {
    shared: Arc<Shared>,
    key: LaneKey,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.lanes.lock().remove(&self.key);
        if std::thread::panicking() {
            error!("a session has panicked");
            self.shared.answer(subject_of(&self.key), code::unknown());
        }
    }
}

impl Shared {
    /// Room for an offer: for one whose body is to be fetched, that of the body; `None` when there is none.
    fn room_for(&self, offered: &Offered) -> Option<Body> {
        let bytes = offered.body_bytes;
        if self.lanes.lock().len() >= self.config.sessions_max || bytes > BODY_BYTES_MAX {
            return None;
        }
        if offered.body.len() == bytes {
            return Some(Body::Here);
        }
        let units = u32::try_from(bytes.div_ceil(ROOM_BYTES)).ok()?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(units).ok()?;
        Some(Body::Fetched(bytes, room))
    }

    /// Whether the catalogue is as new as an offer's.
    fn knows(&self, offer: &Offer, part: &Bytes) -> Result<bool, code::Malformed> {
        match &self.sight {
            Sight::Followed(_) => Ok(self.is_current(offer)),
            Sight::Told(learned) => learned.hear(offer, part).map(|()| true),
        }
    }

    fn is_current(&self, offer: &Offer) -> bool {
        match &self.sight {
            Sight::Followed(view) => view.peek().revision >= offer.catalog_revision,
            Sight::Told(_) => true,
        }
    }

    /// Takes a piece of a body in.
    fn hear_body(&self, delivery: Delivery) {
        let sent = match code::read_piece(delivery.payload) {
            Ok(read) => read,
            Err(problem) => return unreadable(&delivery.subject, &problem),
        };
        let key: LaneKey = (sent.inbox.into(), sent.lane);
        let lane = self.lanes.lock().get(&key).cloned();
        if let Some(incoming) = lane.as_ref().and_then(|lane| lane.incoming()) {
            incoming.take(sent.offset, &sent.bytes);
        }
    }

    /// The body of a request that came without it.
    async fn fetch(&self, lane: &Lane, subject: &str) -> Option<Bytes> {
        let ask = |need| self.answer(subject.to_owned(), code::need(need));
        lane.incoming()?.whole(lane, ask).await
    }

    fn answer(&self, subject: String, payload: Bytes) {
        self.outbox.put(Outgoing {
            subject,
            reply: None,
            payload,
            offer: None,
        });
    }

    /// Holds a place for an offer and says so.
    fn accept(&self, taken: Taken) {
        let Taken {
            key,
            reply,
            dispatch,
            body,
        } = taken;
        let mut lanes = self.lanes.lock();
        if lanes.len() >= self.config.sessions_max {
            drop(lanes);
            return self.answer(reply, code::busy());
        }
        // An offer that came twice has its place already.
        lanes.entry(key).or_insert_with(|| {
            let incoming = match body {
                Body::Here => None,
                Body::Fetched(bytes, room) => Some(Incoming::new(bytes, room)),
            };
            Arc::new(Lane::new(dispatch, incoming, Instant::now()))
        });
        drop(lanes);
        self.answer(reply, code::accepted(&self.config.boot));
    }

    /// Waits until the catalogue is as new as the offer's, then accepts.
    async fn catch_up(&self, taken: Taken) {
        let until = Instant::now() + CATALOG_WAIT;
        while !self.is_current(&taken.dispatch.offer) {
            if Instant::now() >= until {
                debug!(
                    offer.revision = taken.dispatch.offer.catalog_revision,
                    "the catalogue is older than an offer's"
                );
                return self.answer(taken.reply, code::busy());
            }
            sleep(CATALOG_LOOK).await;
        }
        self.accept(taken);
    }

    fn lines(&self) -> Vec<(LaneKey, Arc<Lane>)> {
        let lanes = self.lanes.lock();
        lanes
            .iter()
            .map(|(key, lane)| (key.clone(), Arc::clone(lane)))
            .collect()
    }

    /// Tells every gateway how far its lanes are.
    fn beat(&self) {
        let now = Instant::now();
        let mut gateways: HashMap<Arc<str>, Vec<Place>> = HashMap::new();
        for ((inbox, number), lane) in self.lines() {
            if let Seen::Running(place) = lane.look(number, now) {
                gateways.entry(inbox).or_default().push(place);
            }
        }
        for (inbox, places) in gateways {
            for places in places.chunks(ORDERS_MAX) {
                self.answer(format!("{inbox}.{BEAT_WORD}"), code::beat(places));
            }
        }
    }

    /// Gives up what waited too long for the word to go, and what nobody is there to hear.
    fn look(&self) {
        let now = Instant::now();
        for (key, lane) in self.lines() {
            match lane.look(key.1, now) {
                Seen::Expired => drop(self.lanes.lock().remove(&key)),
                Seen::Silent => {
                    debug!(
                        inbox = &*key.0,
                        "a gateway has become silent: its request is canceled"
                    );
                    lane.abandon();
                }
                Seen::Waiting | Seen::Running(_) => {}
            }
        }
    }

    /// Interrupts what still runs at the drain limit; true when even the reports are overdue.
    fn enforce(&self, limit: Instant) -> bool {
        let now = Instant::now();
        if now >= limit {
            for (_, lane) in self.lines() {
                lane.interrupt();
            }
        }
        now >= limit + REPORT_WAIT
    }
}

fn subject_of((inbox, lane): &LaneKey) -> String {
    format!("{inbox}.{lane:016x}")
}

/// The lane that an offer's reply names.
fn key(reply: &str) -> Option<LaneKey> {
    let (inbox, lane) = reply.rsplit_once('.')?;
    Some((inbox.into(), u64::from_str_radix(lane, 16).ok()?))
}

fn unreadable(subject: &str, problem: &code::Malformed) {
    debug!(
        subject,
        error = problem as &dyn std::error::Error,
        "a message of dispatch is left out"
    );
}
