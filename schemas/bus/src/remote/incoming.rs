//! A body that is too large for an offer, on its way to a router: fetched in pieces, as much at once as there is room
//! for, each asked for until it is there.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::WINDOW_BYTES;
use super::code::Need;
use super::driver::Lane;

/// How long is waited for a piece before it is asked for again.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two looks whether the body is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// How long a body may stand still; then its request is given up.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);

/// A body that arrives.
#[derive(Debug)]
pub(super) struct Incoming {
    collected: Mutex<Collected>,
    arrived: Notify,
    /// Its share of the memory for bodies, held as long as the lane is there.
    _room: OwnedSemaphorePermit,
}

/// What of a body is there: always its beginning.
#[derive(Debug)]
struct Collected {
    bytes: BytesMut,
    whole_bytes: usize,
}

impl Collected {
    /// Takes a piece in that goes on where the bytes end; any other is a double, or comes after one that is missing.
    fn take(&mut self, offset: u32, piece: &[u8]) -> bool {
        let goes_on = usize::try_from(offset).is_ok_and(|offset| offset == self.bytes.len());
        let fits = self.bytes.len().saturating_add(piece.len()) <= self.whole_bytes;
        if goes_on && fits {
            self.bytes.extend_from_slice(piece);
        }
        goes_on && fits && !piece.is_empty()
    }
}

/// How far a body is.
enum Progress {
    Whole(Bytes),
    Here(usize),
}

impl Incoming {
    /// A body of so many bytes of which nothing is there.
    pub(super) fn new(whole_bytes: usize, room: OwnedSemaphorePermit) -> Self {
        Self {
            collected: Mutex::new(Collected {
                bytes: BytesMut::new(),
                whole_bytes,
            }),
            arrived: Notify::new(),
            _room: room,
        }
    }

    /// Takes a piece in.
    pub(super) fn take(&self, offset: u32, piece: &[u8]) {
        if self.collected.lock().take(offset, piece) {
            self.arrived.notify_one();
        }
    }

    fn progress(&self) -> Progress {
        let mut collected = self.collected.lock();
        let here = collected.bytes.len();
        if here == collected.whole_bytes {
            return Progress::Whole(std::mem::take(&mut collected.bytes).freeze());
        }
        Progress::Here(here)
    }

    /// The whole body, asked for by `ask`; `None` when the request is not wanted any more, or its gateway sends nothing.
    pub(super) async fn whole(&self, lane: &Lane, ask: impl Fn(Need)) -> Option<Bytes> {
        let (mut granted, mut moved) = (0_usize, (0, Instant::now()));
        let mut asked_at: Option<Instant> = None;
        loop {
            let here = match self.progress() {
                Progress::Whole(body) => return Some(body),
                Progress::Here(here) => here,
            };
            let now = Instant::now();
            if here > moved.0 {
                moved = (here, now);
            }
            if lane.is_stopped() || now >= moved.1 + STANDSTILL_MAX {
                return None;
            }
            let again = asked_at.is_some_and(|at| now >= at.max(moved.1) + PATIENCE);
            let is_low = granted.saturating_sub(here) <= WINDOW_BYTES / 2;
            if asked_at.is_none() || again || is_low {
                granted = here + WINDOW_BYTES;
                asked_at = Some(now);
                ask(Need {
                    from: number(here),
                    until: number(granted),
                    again,
                });
            }
            // Whether a piece came or not is looked up above.
            let _ = timeout(LOOK, self.arrived.notified()).await;
        }
    }
}

/// A place in a body, which is far below what fits.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::conformance::script::dispatch;
    use crate::remote::code::{Order, Wish};

    fn incoming(bytes: usize) -> Incoming {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("room");
        Incoming::new(bytes, room)
    }

    fn lane() -> Lane {
        Lane::new(dispatch("m", 1), None, Instant::now())
    }

    #[test]
    fn pieces_are_taken_once_in_their_order_and_never_beyond_the_end() {
        let mut collected = Collected {
            bytes: BytesMut::new(),
            whole_bytes: 6,
        };
        let taken = [
            (0, "ab"),
            (4, "ef"),
            (0, "ab"),
            (2, "cd"),
            (4, "efg"),
            (4, "ef"),
            (6, "g"),
        ]
        .map(|(offset, piece)| collected.take(offset, piece.as_bytes()));
        assert_eq!(taken, [true, false, false, true, false, true, false]);
        assert_eq!(&collected.bytes[..], b"abcdef");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_under_way_than_the_window_and_what_is_lost_is_asked_for_again() {
        let whole: Vec<u8> = (0..5_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let (incoming, lane) = (incoming(whole.len()), lane());
        let needs = Mutex::new(Vec::new());
        let (sent, is_lost) = (Mutex::new(0), Mutex::new(false));
        // As a gateway does: what is on its way is not sent again unless that is asked for.
        let ask = |need: Need| {
            needs.lock().push(need);
            let (from, until) = (need.from as usize, (need.until as usize).min(whole.len()));
            let mut sent = sent.lock();
            let mut at = if need.again { from } else { from.max(*sent) };
            while at < until {
                let to = (at + 100_000).min(until);
                // One piece is lost on its way.
                if at < 2_000_000 || std::mem::replace(&mut *is_lost.lock(), true) {
                    incoming.take(u32::try_from(at).expect("fits"), &whole[at..to]);
                }
                at = to;
            }
            *sent = until.max(*sent);
        };

        let body = incoming.whole(&lane, ask).await.expect("the body");

        assert_eq!(body, whole);
        let needs = needs.lock();
        assert!(
            needs
                .iter()
                .all(|need| (need.until - need.from) as usize == WINDOW_BYTES)
        );
        assert_eq!(needs.iter().filter(|need| need.again).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_nobody_sends_or_nobody_wants_is_given_up() {
        let began = Instant::now();
        assert!(incoming(9).whole(&lane(), |_| {}).await.is_none());
        assert!(began.elapsed() >= STANDSTILL_MAX && began.elapsed() < STANDSTILL_MAX * 2);

        let (left, began) = (lane(), Instant::now());
        let order = |wish| Order {
            lane: 1,
            received: 0,
            granted: 16,
            wish,
            resume: false,
        };
        left.order(&order(Wish::Run), Instant::now());
        left.order(&order(Wish::Cancel), Instant::now());
        assert!(incoming(9).whole(&left, |_| {}).await.is_none());
        assert!(began.elapsed() <= LOOK);
    }
}
