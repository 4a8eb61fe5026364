//! Waiting for the bus: a server that was just started has no leader yet, and a record that somebody else changed is
//! read again. Whoever waits says so.

use std::future::Future;
use std::time::Duration;

use bus::BusError;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// How long a start waits for a service that is not there.
pub const START_WAIT: Duration = Duration::from_secs(30);
/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a failure says about trying again.
pub trait Passing {
    /// True when the same may succeed later.
    fn passes(&self) -> bool;
}

impl Passing for BusError {
    fn passes(&self) -> bool {
        matches!(
            self,
            Self::Conflict | Self::Timeout | Self::Unavailable(_) | Self::NoResponder { .. }
        )
    }
}

/// Tries until it succeeds, or fails in a way that does not pass, or `wait` is over; the last failure is returned.
pub async fn until<T, E, F>(what: &str, wait: Duration, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: Passing + std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + wait;
    let mut pause = PAUSE_MIN;
    let mut told = false;
    loop {
        let problem = match attempt().await {
            Err(problem) if problem.passes() && Instant::now() + pause < deadline => problem,
            ended => return ended,
        };
        if pause == PAUSE_MAX && !told {
            told = true;
            warn!(
                error = &problem as &dyn std::error::Error,
                seconds_max = wait.as_secs(),
                "waiting: {what}"
            );
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_tried_again_and_what_does_not_is_told_at_once() {
        let tries = Cell::new(0);
        let third = until("a test", START_WAIT, || {
            tries.set(tries.get() + 1);
            std::future::ready(if tries.get() < 3 {
                Err(BusError::Timeout)
            } else {
                Ok(tries.get())
            })
        });
        assert_eq!(third.await.expect("the third"), 3);

        let closed: Result<(), _> =
            until("a test", START_WAIT, || std::future::ready(Err(BusError::Closed))).await;
        assert!(matches!(closed, Err(BusError::Closed)));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let begun = Instant::now();

        let away: Result<(), _> = until("a test", START_WAIT, || {
            std::future::ready(Err(BusError::Timeout))
        })
        .await;

        assert!(matches!(away, Err(BusError::Timeout)));
        assert!(begun.elapsed() <= START_WAIT && begun.elapsed() > START_WAIT / 2);
    }
}
