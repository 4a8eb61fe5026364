//! What a request that is run elsewhere hears, and what it notices when it hears nothing.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Directive, Heard, Now, PAUSE, Phase, Request, Running, Trouble, Wanted};
use crate::remote::code::{Need, Piece, Reply, Wish};
use crate::remote::window::{Arrival, Window};
use crate::remote::{GATEWAY_SILENCE_MAX, ROUTER_SILENCE_MAX, WINDOW_BYTES};

impl Request {
    /// The offer could not be sent.
    pub(in crate::remote) fn unsent(&mut self, lane: u64, now: Now) -> bool {
        let offered = self.lane == lane && matches!(self.phase, Phase::Offered(_));
        if offered {
            self.trouble(Trouble::BusAway, now);
        }
        offered
    }

    /// What was sent with `lane` as its reply reached nobody.
    pub(in crate::remote) fn unheard(&mut self, lane: u64, now: Now) -> bool {
        if self.lane != lane {
            return false;
        }
        match &self.phase {
            Phase::Offered(_) => {}
            // The word to go: the router has gone before it heard it.
            Phase::Running(running) if running.heard_at.is_none() => {}
            _ => return false,
        }
        self.trouble(Trouble::Nobody, now);
        true
    }

    /// Hears a router about `lane`.
    pub(in crate::remote) fn hear(&mut self, lane: u64, reply: Reply, now: Now) -> Heard {
        if self.lane != lane {
            return Heard::default();
        }
        match reply {
            Reply::Accepted(boot) => self.accepted(boot.into(), now),
            Reply::Busy if matches!(self.phase, Phase::Offered(_)) => {
                self.trouble(Trouble::Busy, now);
                Heard::woken()
            }
            Reply::Busy => Heard::default(),
            Reply::Unknown => match &mut self.phase {
                Phase::Running(running) if !running.window.ended() => {
                    running.gone = true;
                    Heard::woken()
                }
                _ => Heard::default(),
            },
            Reply::Frame(sequence, piece) => self.arrive(sequence, piece, now),
            Reply::Need(need) => Heard {
                wanted: self.wanted(need, now),
                ..Heard::default()
            },
        }
    }

    fn accepted(&mut self, boot: Arc<str>, now: Now) -> Heard {
        match &self.phase {
            Phase::Offered(_) if self.stop.is_none() => {
                self.trouble = None;
                self.pause = PAUSE;
                let running = Box::new(Running {
                    boot,
                    window: Window::default(),
                    began: now,
                    sent: 0,
                    heard_at: None,
                    gone: false,
                });
                let directive = Some(self.directive(&running, true));
                self.phase = Phase::Running(running);
                // The session's clock is another one from now on.
                Heard {
                    wake: true,
                    directive,
                    wanted: None,
                }
            }
            Phase::Running(running) if running.boot == boot => Heard::default(),
            _ => Heard {
                wake: false,
                wanted: None,
                directive: Some(Directive {
                    boot,
                    order: Window::default().order(self.lane, Wish::Release, false),
                    go: false,
                }),
            },
        }
    }

    fn arrive(&mut self, sequence: u32, piece: Piece, now: Now) -> Heard {
        let Phase::Running(running) = &mut self.phase else {
            return Heard::default();
        };
        running.heard_at = Some(now.at);
        let arrival = running.window.arrive(sequence, piece, now.at);
        running.gone |= arrival == Arrival::Excess;
        let resume = arrival == Arrival::Missing;
        let tell = resume || matches!(arrival, Arrival::Told | Arrival::NewsAndTold);
        let wake = matches!(arrival, Arrival::News | Arrival::NewsAndTold | Arrival::Excess);
        let directive = match &self.phase {
            Phase::Running(running) if tell => Some(self.resuming(running, resume)),
            _ => None,
        };
        Heard {
            wake,
            directive,
            wanted: None,
        }
    }

    /// What its router is to be sent of the body: not what is on its way already, unless that was lost.
    fn wanted(&mut self, need: Need, now: Now) -> Option<Wanted> {
        let Phase::Running(running) = &mut self.phase else {
            return None;
        };
        running.heard_at = Some(now.at);
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        // Whatever a router wants, no more is under way to it.
        let window = place(need.from).saturating_add(WINDOW_BYTES);
        let until = place(need.until).min(window).min(self.facts.body_bytes);
        let from = if need.again {
            place(need.from)
        } else {
            running.sent.max(place(need.from))
        };
        if from >= until {
            return None;
        }
        running.sent = until;
        Some(Wanted {
            boot: Arc::clone(&running.boot),
            bytes: from..until,
        })
    }

    /// Hears in a beat that the router is before frame `next` of `lane`.
    pub(in crate::remote) fn beat(&mut self, lane: u64, next: u32, now: Now) -> Option<Directive> {
        if self.lane != lane {
            return None;
        }
        let Phase::Running(running) = &mut self.phase else {
            return None;
        };
        running.heard_at = Some(now.at);
        let missing = running.window.hear(next, now.at);
        match &self.phase {
            Phase::Running(running) if missing => Some(self.resuming(running, true)),
            _ => None,
        }
    }

    /// Its router, and when it was last heard about this request.
    pub(in crate::remote) fn heard(&self) -> Option<(Arc<str>, Instant)> {
        match &self.phase {
            Phase::Running(running) => Some((Arc::clone(&running.boot), running.heard_at?)),
            _ => None,
        }
    }

    /// Looks whether its router has become silent; `routers` tells when each was last heard about anything. Silence before `connected_since` counts only up to the time after
    /// which the router has given up, too. Once it has, the session has something to look at, and the router is told
    /// to stop, should it hear that.
    pub(in crate::remote) fn look(
        &mut self,
        connected_since: Option<Instant>,
        routers: &HashMap<Arc<str>, Instant>,
        now: Now,
    ) -> Option<Directive> {
        let Phase::Running(running) = &mut self.phase else {
            return None;
        };
        if running.gone || running.window.ended() {
            return None;
        }
        let mut heard_at = running.heard_at.unwrap_or(running.began.at);
        if let Some(at) = routers.get(&running.boot) {
            heard_at = heard_at.max(*at);
        }
        let silent = connected_since.is_some_and(|since| now.at >= heard_at.max(since) + ROUTER_SILENCE_MAX);
        running.gone = silent || now.at >= heard_at + GATEWAY_SILENCE_MAX;
        running.gone.then(|| Directive {
            boot: Arc::clone(&running.boot),
            order: running.window.order(self.lane, Wish::Cancel, false),
            go: false,
        })
    }

    /// Nobody hears its router any more.
    pub(in crate::remote) fn abandon(&mut self) {
        if let Phase::Running(running) = &mut self.phase {
            running.gone = !running.window.ended();
        }
    }

    /// What its router is told each beat.
    pub(in crate::remote) fn pulse(&self, resume: bool) -> Option<Directive> {
        match &self.phase {
            Phase::Running(running) if !running.gone && !running.window.ended() => {
                Some(self.resuming(running, resume))
            }
            _ => None,
        }
    }
}

impl Heard {
    fn woken() -> Self {
        Self {
            wake: true,
            ..Self::default()
        }
    }
}
