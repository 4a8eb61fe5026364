//! A key that a request holds: a task of its own renews the lock and, at the end, puts in its place what the request
//! leaves. It goes on until that is written, however long the bus is away.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemas::digest::Digest;
use schemas::id::RequestId;
use schemas::idempotency::hold::{Hold, Standing, Step};
use schemas::idempotency::record::Done;
use schemas::idempotency::{Read, Written};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::store;
use crate::body::Permit;
use crate::state::{Shared, State};

/// Longest rest: the machine is asked again after it, which changes nothing.
const REST_MAX: Duration = Duration::from_hours(1);

/// A key that is a request's own. Dropped, it is freed.
pub(crate) struct Held {
    hold: Arc<Mutex<Hold>>,
    leave: Option<oneshot::Sender<Left>>,
    over: CancellationToken,
}

/// What a request leaves, and the room it takes until it is written.
type Left = (Box<Done>, Permit);

/// What a request left is written, or is somebody else's to write.
#[derive(Clone)]
pub(crate) struct Ended(CancellationToken);

impl Ended {
    /// Waits for it, at most so long.
    pub(crate) async fn within(self, wait: Duration) {
        // Later is good too: the task goes on.
        let _ = timeout(wait, self.0.cancelled()).await;
    }
}

impl Held {
    /// Whether a generation may be sent upstream now.
    pub(crate) fn sending(&self, state: &State) -> Standing {
        self.hold.lock().sending(state.ports.clock.monotonic_ms())
    }

    /// Whether what came back may be charged now.
    pub(crate) fn charging(&self, state: &State) -> Standing {
        self.hold.lock().charging(state.ports.clock.monotonic_ms())
    }

    /// Whose it is, and what that asked for.
    pub(crate) fn of(&self) -> (RequestId, Digest) {
        let hold = self.hold.lock();
        let mine = hold.running();
        (mine.request_id, mine.digest)
    }

    /// When the key is nobody's any more, or has its answer.
    pub(crate) fn ended(&self) -> Ended {
        Ended(self.over.clone())
    }

    /// Leaves an answer under the key.
    pub(crate) fn finish(mut self, done: Done, room: Permit) -> Ended {
        if let Some(leave) = self.leave.take() {
            // The task ends before only where the key was lost.
            let _ = leave.send((Box::new(done), room));
        }
        self.ended()
    }

    /// Frees the key: the next request may run.
    pub(crate) fn free(self) -> Ended {
        self.ended()
    }
}

/// Begins to hold the key whose record is at `place`.
pub(super) fn begin(state: &Shared, place: Arc<str>, hold: Hold) -> Held {
    let hold = Arc::new(Mutex::new(hold));
    let (leave, left) = oneshot::channel();
    let over = CancellationToken::new();
    let (end, holder) = (
        over.clone().drop_guard(),
        Holder {
            state: state.clone(),
            place,
            hold: hold.clone(),
        },
    );
    state.leaving.spawn(async move {
        holder.run(left).await;
        drop(end);
    });
    Held {
        hold,
        leave: Some(leave),
        over,
    }
}

/// What an operation came to.
enum News {
    Written(Written),
    Read(Read),
}

type Flight = Pin<Box<dyn Future<Output = News> + Send>>;

struct Holder {
    state: Shared,
    place: Arc<str>,
    hold: Arc<Mutex<Hold>>,
}

impl Holder {
    async fn run(self, mut left: oneshot::Receiver<Left>) {
        let mut flight: Option<Flight> = None;
        let (mut has_left, mut room) = (false, None);
        let mut step = self.hold.lock().tick(self.now_ms());
        loop {
            let until_ms = match step {
                Step::Rest { until_ms } => until_ms,
                Step::Write(_) | Step::Read => {
                    flight = self.flight(step);
                    u64::MAX
                }
                Step::Ended => {
                    drop(room);
                    return;
                }
                Step::Lost => {
                    warn!(request.id = %self.hold.lock().running().request_id, "an idempotency key is another request's now");
                    return;
                }
            };
            let rest = Duration::from_millis(until_ms.saturating_sub(self.now_ms())).min(REST_MAX);
            step = tokio::select! {
                news = landed(&mut flight) => {
                    flight = None;
                    self.hear(news)
                }
                answer = &mut left, if !has_left => {
                    has_left = true;
                    let (done, taken) = answer.ok().unzip();
                    room = taken;
                    self.leave(done)
                }
                () = sleep(rest), if flight.is_none() => self.hold.lock().tick(self.now_ms()),
            };
        }
    }

    fn now_ms(&self) -> u64 {
        self.state.ports.clock.monotonic_ms()
    }

    /// Begins what the machine asks for.
    fn flight(&self, step: Step) -> Option<Flight> {
        let (state, place) = (self.state.clone(), self.place.clone());
        match step {
            Step::Write(write) => Some(Box::pin(async move {
                News::Written(store::write(&state, &place, &write).await)
            })),
            Step::Read => Some(Box::pin(
                async move { News::Read(store::read(&state, &place).await) },
            )),
            Step::Rest { .. } | Step::Ended | Step::Lost => None,
        }
    }

    fn hear(&self, news: News) -> Step {
        let now_ms = self.now_ms();
        let mut hold = self.hold.lock();
        match news {
            News::Written(written) => hold.wrote(written, now_ms),
            News::Read(read) => hold.read(read, now_ms),
        }
    }

    /// The request is over.
    fn leave(&self, done: Option<Box<Done>>) -> Step {
        let now_ms = self.now_ms();
        let mut hold = self.hold.lock();
        match done {
            Some(done) => hold.finish(*done, now_ms),
            None => hold.free(now_ms),
        }
    }
}

/// What an operation under way comes to; never, where none is.
async fn landed(flight: &mut Option<Flight>) -> News {
    match flight {
        Some(flight) => flight.await,
        None => std::future::pending().await,
    }
}
