//! A bucket that is watched for good: a watch that ends, or cannot be had, is made anew after a pause. Whoever keeps a
//! copy of a bucket is told when it is told everything from the start, so that it can let go of what has gone meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::{BusError, Change, Entry, Kv};

/// The first and the longest pause before the bucket is watched again: doubled from the first to the second while no
/// watch tells anything.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What is told of a bucket.
#[derive(Debug)]
pub enum Told {
    /// A watch has begun: every entry that there is follows, then [`Told::Current`].
    Begun,
    /// An entry as it stands, or a change (deletions have no value).
    Entry(Entry),
    /// Everything there was has been told; changes follow.
    Current,
    /// The watch has ended; the next one is on its way.
    Ended,
    /// The bucket cannot be watched. Told once, until it can.
    Away(BusError),
}

type Asking = Pin<Box<dyn Future<Output = Result<mpsc::Receiver<Change>, BusError>> + Send>>;

enum State {
    /// Nothing is asked before this time.
    Pausing(Instant),
    Asking(Asking),
    Watching(mpsc::Receiver<Change>),
}

/// Watches one bucket as long as it lives.
pub struct Watched {
    kv: Arc<dyn Kv>,
    bucket: &'static str,
    state: State,
    pause: Duration,
    /// The bucket cannot be watched, and that was told.
    away: bool,
}

impl Watched {
    /// Of `bucket`, from the first call of [`Watched::next`] on.
    pub fn new(kv: Arc<dyn Kv>, bucket: &'static str) -> Self {
        Self {
            state: State::Asking(ask(&kv, bucket)),
            kv,
            bucket,
            pause: PAUSE_MIN,
            away: false,
        }
    }

    /// What is told next. Nothing is lost when the call is given up: the next one goes on where it was.
    pub async fn next(&mut self) -> Told {
        loop {
            match &mut self.state {
                State::Pausing(until) => {
                    sleep_until(*until).await;
                    self.state = State::Asking(ask(&self.kv, self.bucket));
                }
                State::Asking(asking) => match asking.await {
                    Ok(changes) => {
                        self.away = false;
                        self.state = State::Watching(changes);
                        return Told::Begun;
                    }
                    Err(problem) => {
                        self.rest();
                        if !std::mem::replace(&mut self.away, true) {
                            return Told::Away(problem);
                        }
                    }
                },
                State::Watching(changes) => {
                    let change = changes.recv().await;
                    return self.told(change);
                }
            }
        }
    }

    /// True while a watch runs.
    pub const fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching(_))
    }

    /// True when something was told that [`Watched::next`] has not given out yet.
    pub fn has_more(&self) -> bool {
        matches!(&self.state, State::Watching(changes) if !changes.is_empty())
    }

    fn told(&mut self, change: Option<Change>) -> Told {
        let Some(change) = change else {
            self.rest();
            return Told::Ended;
        };
        self.pause = PAUSE_MIN;
        match change {
            Change::Entry(entry) => Told::Entry(entry),
            Change::Current => Told::Current,
        }
    }

    fn rest(&mut self) {
        self.state = State::Pausing(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

fn ask(kv: &Arc<dyn Kv>, bucket: &'static str) -> Asking {
    let kv = Arc::clone(kv);
    Box::pin(async move { kv.watch(bucket).await })
}

#[cfg(test)]
mod tests;
