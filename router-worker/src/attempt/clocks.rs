//! Waiting with an end: every wait of an attempt ends when its step is done, when its deadline has passed,
//! or when the session is stopped. The timer is armed once and moved only when it fires early, so that a
//! stream with an idle clock costs no timer operation per event.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::relay::{Relay, Stop};

/// Why a wait ended without its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The deadline has passed.
    TimedOut,
    /// The session was stopped.
    Stopped(Stop),
}

/// One timer for all deadlines of an attempt.
#[derive(Default)]
pub(crate) struct Timer {
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    /// Ends waits at `deadline` from now on; `None` never.
    pub(crate) fn set(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// Polls `step` until it is done; a stop goes before everything, a step that is done before the deadline.
pub(crate) async fn wait<T>(
    relay: &Relay,
    timer: &mut Timer,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, Interruption> {
    poll_fn(|context| {
        if let Some(stop) = relay.stopped() {
            return Poll::Ready(Err(Interruption::Stopped(stop)));
        }
        if let Poll::Ready(done) = step(context) {
            return Poll::Ready(Ok(done));
        }
        timer.poll(context).map(|()| Err(Interruption::TimedOut))
    })
    .await
}

/// `after` later than `from`; `None` when the clock is off.
pub(crate) fn deadline(from: Instant, after: Option<Duration>) -> Option<Instant> {
    from.checked_add(after?)
}

/// The earlier of two deadlines.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moved_on_is_honored_without_being_armed_again() {
        let (relay, mut timer) = (Relay::default(), Timer::default());
        let start = Instant::now();
        timer.set(Some(start + Duration::from_secs(1)));
        let mut polls = 0;

        let waited = wait(&relay, &mut timer, |_| {
            polls += 1;
            Poll::<()>::Pending
        });
        let early = tokio::time::timeout(Duration::from_millis(500), waited).await;
        timer.set(Some(start + Duration::from_secs(3)));
        let late = wait(&relay, &mut timer, |_| Poll::<()>::Pending).await;

        assert!(early.is_err());
        assert_eq!(late, Err(Interruption::TimedOut));
        assert_eq!(start.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_deadline_only_the_step_ends_a_wait() {
        let (relay, mut timer) = (Relay::default(), Timer::default());

        let done = wait(&relay, &mut timer, |_| Poll::Ready(7)).await;

        assert_eq!(done, Ok(7));
    }
}
