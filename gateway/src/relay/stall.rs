//! The clock of keep-alives: a stream that is silent for too long gets a comment, so that no proxy takes it for
//! dead. A frame costs one reading of the clock; the timer moves only when it fires.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Watches a stream for silence.
pub(super) struct Silence {
    longest: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    /// Silent for `longest` is too long; zero watches nothing.
    pub(super) fn new(longest: Duration) -> Option<Self> {
        let since = Instant::now();
        (!longest.is_zero()).then(|| Self {
            longest,
            since,
            timer: Box::pin(sleep_until(since + longest)),
        })
    }

    /// Something was sent at `now`.
    pub(super) fn broken(&mut self, now: Instant) {
        self.since = now;
    }

    /// Ready once the stream was silent for too long; counts anew from then.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let due = self.since + self.longest;
            let now = Instant::now();
            if now >= due {
                self.since = now;
                self.timer.as_mut().reset(now + self.longest);
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_each_time_it_lasts_too_long_and_counts_from_the_last_byte() {
        let began = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(15)).expect("a clock");

        tokio::time::advance(Duration::from_secs(10)).await;
        silence.broken(Instant::now());
        poll_fn(|context| silence.poll(context)).await;
        let first = began.elapsed();
        poll_fn(|context| silence.poll(context)).await;

        // The timer's own grain is a millisecond.
        assert_eq!(first.as_secs(), 25);
        assert_eq!(began.elapsed().as_secs(), 40);
    }

    #[test]
    fn zero_watches_nothing() {
        assert!(Silence::new(Duration::ZERO).is_none());
    }
}
