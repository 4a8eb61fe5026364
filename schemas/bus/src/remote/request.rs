//! A request that is run elsewhere, as its gateway sees it: what was offered, who runs it, what was handed on, and
//! how it ends. Pure: time and messages come in, steps and directives come out.

mod ending;
mod hearing;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use schemas::event::request::Attempt;
use schemas::failure::Failure;
use schemas::id::EndpointId;
use schemas::time::Timestamp;
use tokio::time::Instant;

use super::code::{Order, Piece, Wish};
use super::window::Window;
use super::{FAREWELL, OFFER_WAIT};
use crate::dispatch::{End, Frame};

/// The first pause before a request is offered again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(2);
/// The longest pause before a request is offered again.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The time, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// For durations.
    pub(super) at: Instant,
    /// For records.
    pub(super) wall: Timestamp,
}

/// Why nobody runs a request yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The bus is away, or does not carry offers.
    BusAway,
    /// No router listens.
    Nobody,
    /// Every router that was asked is full.
    Busy,
}

/// Why a request is ended from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The caller has left.
    CallerGone,
    /// The node is at its drain limit.
    Interrupted,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Step {
    /// Hand this frame on, and tell the router what goes with it.
    Hand(Frame, Option<Directive>),
    /// Offer the request on a new lane, then call [`Request::offered`].
    Offer,
    /// Nothing until a message comes, or this moment.
    Wait(Option<Instant>),
}

/// An order, and the process it goes to.
#[derive(Debug, Clone)]
pub(super) struct Directive {
    /// The router's process.
    pub(super) boot: Arc<str>,
    /// What it is told.
    pub(super) order: Order,
    /// It is the word to go: if it reaches nobody, the request runs nowhere.
    pub(super) go: bool,
}

/// What a message calls for.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The session has something to look at.
    pub(super) wake: bool,
    /// Somebody must be told something.
    pub(super) directive: Option<Directive>,
    /// A router must be sent something of the body.
    pub(super) wanted: Option<Wanted>,
}

/// What of a body a router is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The router's process.
    pub(super) boot: Arc<str>,
    /// Which bytes.
    pub(super) bytes: Range<usize>,
}

/// What the request is made of, as far as it matters here.
#[derive(Debug)]
pub(super) struct Facts {
    /// When it was admitted.
    pub(super) started_at: Timestamp,
    /// The endpoint it can only go to, where there is just one.
    pub(super) endpoint: Option<EndpointId>,
    /// Attempts that may be made.
    pub(super) attempts_max: u32,
    /// How long it may wait for a router.
    pub(super) patience: Patience,
    /// Bytes of its body.
    pub(super) body_bytes: usize,
}

/// How long a request waits for a router.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// While nobody listens.
    pub(super) absent: Duration,
    /// While those that are there are full, or the bus is away.
    pub(super) hindered: Duration,
}

impl Patience {
    fn with(self, trouble: Trouble) -> Duration {
        match trouble {
            Trouble::Nobody => self.absent,
            Trouble::Busy | Trouble::BusAway => self.hindered,
        }
    }
}

/// The state of a request that is run elsewhere.
#[derive(Debug)]
pub(super) struct Request {
    facts: Facts,
    phase: Phase,
    lane: u64,
    stop: Option<(Stop, Instant)>,
    /// Why and since when nobody runs it.
    trouble: Option<(Trouble, Instant)>,
    pause: Duration,
    handed: Handed,
    /// Attempts of routers that were lost.
    lost: Vec<Attempt>,
}

#[derive(Debug)]
enum Phase {
    /// To be offered, not before the moment.
    Open(Option<Instant>),
    /// Offered; no answer yet.
    Offered(Instant),
    /// A router has the word to go.
    Running(Box<Running>),
    /// It ends with this.
    Ending(Box<End>),
    /// The end was handed on.
    Ended,
}

#[derive(Debug)]
struct Running {
    boot: Arc<str>,
    window: Window,
    began: Now,
    /// The first byte of the body that was not sent.
    sent: usize,
    /// When the router was last heard; `None` before the first time.
    heard_at: Option<Instant>,
    gone: bool,
}

/// What was handed on.
#[derive(Debug, Default)]
struct Handed {
    head: bool,
    content: bool,
    ttft_ms: Option<u64>,
}

impl Request {
    /// A request that was not offered yet.
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            facts,
            phase: Phase::Open(None),
            lane: 0,
            stop: None,
            trouble: None,
            pause: PAUSE,
            handed: Handed::default(),
            lost: Vec::new(),
        }
    }

    /// Ends it without another try, if nobody runs it.
    pub(super) fn refuse(&mut self, failure: Failure) {
        if matches!(self.phase, Phase::Open(_) | Phase::Offered(_)) {
            self.phase = Phase::Ending(self.failed(failure));
        }
    }

    /// Ends it because there is no more room to wait.
    pub(super) fn refuse_waiting(&mut self) {
        let trouble = self.trouble.map_or(Trouble::BusAway, |(trouble, _)| trouble);
        self.refuse(ending::untaken(trouble));
    }

    /// Nobody runs it, and it waits for somebody.
    pub(super) fn waits(&self) -> bool {
        self.trouble.is_some() && matches!(self.phase, Phase::Open(_) | Phase::Offered(_))
    }

    /// The lane of its newest offer.
    pub(super) fn lane(&self) -> u64 {
        self.lane
    }

    /// Attempts that a router may still make.
    pub(super) fn attempts_max(&self) -> u32 {
        self.facts.attempts_max
    }

    /// It was offered on `lane`.
    pub(super) fn offered(&mut self, lane: u64, now: Now) {
        self.lane = lane;
        self.phase = Phase::Offered(now.at);
    }

    /// The caller has left, or the node is at its drain limit; the first reason stays.
    pub(super) fn stop(&mut self, stop: Stop, now: Now) -> Option<Directive> {
        if self.stop.is_some() {
            return None;
        }
        self.stop = Some((stop, now.at));
        match &self.phase {
            Phase::Running(running) if !running.window.ended() => Some(self.directive(running, false)),
            _ => None,
        }
    }

    /// The session is dropped: whoever runs it must stop.
    pub(super) fn leave(&mut self, now: Now) -> Option<Directive> {
        let directive = self.stop(Stop::CallerGone, now);
        self.phase = Phase::Ended;
        directive
    }

    /// What to do now. Not to be called after the end was handed on.
    pub(super) fn step(&mut self, now: Now) -> Step {
        if !matches!(self.phase, Phase::Running(_) | Phase::Ending(_) | Phase::Ended)
            && let Some((stop, _)) = self.stop
        {
            self.phase = Phase::Ending(self.stopped(stop));
        }
        loop {
            match &mut self.phase {
                Phase::Open(pause) => {
                    let pause = *pause;
                    let Some(step) = self.step_open(pause, now) else {
                        continue;
                    };
                    return step;
                }
                Phase::Offered(since) => {
                    let until = *since + OFFER_WAIT;
                    if now.at < until {
                        return Step::Wait(Some(until));
                    }
                    self.trouble(Trouble::BusAway, now);
                }
                Phase::Running(_) => {
                    if let Some(step) = self.step_running(now) {
                        return step;
                    }
                }
                Phase::Ending(_) => {
                    if let Phase::Ending(end) = std::mem::replace(&mut self.phase, Phase::Ended) {
                        return Step::Hand(Frame::End(end), None);
                    }
                }
                Phase::Ended => return Step::Wait(None),
            }
        }
    }

    fn step_open(&mut self, pause: Option<Instant>, now: Now) -> Option<Step> {
        if let Some((trouble, since)) = self.trouble {
            let deadline = since + self.facts.patience.with(trouble);
            if now.at >= deadline {
                self.phase = Phase::Ending(self.failed(ending::untaken(trouble)));
                return None;
            }
            if let Some(until) = pause.filter(|until| now.at < *until) {
                return Some(Step::Wait(Some(until.min(deadline))));
            }
        }
        Some(Step::Offer)
    }

    /// `None` when the phase has changed.
    fn step_running(&mut self, now: Now) -> Option<Step> {
        let Phase::Running(running) = &mut self.phase else {
            return None;
        };
        let started = self.handed.head;
        if running.gone && !started && !running.window.ended() {
            self.lose(now);
            return None;
        }
        if !running.window.is_lone_head()
            && let Some((piece, told)) = running.window.take()
        {
            return self.hand(piece, told, now);
        }
        if running.gone {
            self.lose(now);
            return None;
        }
        let farewell = self.stop.map(|(stop, at)| (stop, at + FAREWELL));
        match farewell {
            Some((stop, until)) if now.at >= until => {
                self.count_lost(now);
                self.phase = Phase::Ending(self.stopped(stop));
                None
            }
            farewell => Some(Step::Wait(farewell.map(|(_, until)| until))),
        }
    }

    /// Hands a piece on; `None` when there is nothing in it for the caller.
    fn hand(&mut self, piece: Piece, told: bool, now: Now) -> Option<Step> {
        let frame = match piece {
            Piece::Head(_) if self.handed.head => return None,
            Piece::Head(head) => {
                self.handed.head = true;
                Frame::Head(head)
            }
            Piece::Chunk(bytes) => {
                self.handed.head = true;
                self.handed.content = true;
                self.handed
                    .ttft_ms
                    .get_or_insert_with(|| now.wall.millis_since(self.facts.started_at));
                Frame::Chunk(bytes)
            }
            Piece::Tail(_) => return None,
            Piece::End(last, tail) => {
                self.phase = Phase::Ending(self.reported(*last, tail, now));
                return None;
            }
        };
        let directive = match &self.phase {
            Phase::Running(running) if told => Some(self.directive(running, false)),
            _ => None,
        };
        Some(Step::Hand(frame, directive))
    }

    /// Nobody took the offer: it is made again after a pause.
    pub(super) fn trouble(&mut self, trouble: Trouble, now: Now) {
        let since = self.trouble.map_or(now.at, |(_, since)| since);
        self.trouble = Some((trouble, since));
        self.phase = Phase::Open(Some(now.at + self.pause));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn directive(&self, running: &Running, go: bool) -> Directive {
        Directive {
            go,
            ..self.resuming(running, false)
        }
    }

    fn resuming(&self, running: &Running, resume: bool) -> Directive {
        let wish = match self.stop {
            None => Wish::Run,
            Some((Stop::CallerGone, _)) => Wish::Cancel,
            Some((Stop::Interrupted, _)) => Wish::Interrupt,
        };
        Directive {
            boot: Arc::clone(&running.boot),
            order: running.window.order(self.lane, wish, resume),
            go: false,
        }
    }
}

#[cfg(test)]
mod tests;
