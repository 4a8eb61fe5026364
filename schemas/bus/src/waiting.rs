//! Waiting for a bus that is away, for what a role needs before it can begin.

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::BusError;

/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Tries until the bus is there, however long that takes: a role that begins while the bus is away begins late and does
/// not end its node. Any other failure is returned. Dropped, it has no effect.
pub async fn once_there<T, F>(what: &'static str, mut attempt: impl FnMut() -> F) -> Result<T, BusError>
where
    F: Future<Output = Result<T, BusError>> + Send,
{
    let mut pause = PAUSE_MIN;
    let mut told = false;
    loop {
        let problem = match attempt().await {
            Err(problem @ (BusError::Timeout | BusError::Unavailable(_))) => problem,
            ended => {
                if told {
                    info!("the bus is there: {what}");
                }
                return ended;
            }
        };
        if !std::mem::replace(&mut told, true) {
            warn!(
                error = &problem as &dyn std::error::Error,
                "waiting for the bus: {what}"
            );
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bus_that_is_away_is_waited_for_and_what_it_refuses_is_told_at_once() {
        let begun = Instant::now();
        let tries = Cell::new(0);
        let there = once_there("a test", || {
            tries.set(tries.get() + 1);
            std::future::ready(if begun.elapsed() < Duration::from_hours(1) {
                Err(BusError::Timeout)
            } else {
                Ok(())
            })
        });
        there.await.expect("there");
        assert!(tries.get() > 3_600, "{}", tries.get());

        let refused: Result<(), _> = once_there("a test", || {
            let reason = "no".to_owned();
            std::future::ready(Err(BusError::Refused { reason }))
        })
        .await;
        assert!(matches!(refused, Err(BusError::Refused { .. })));
    }
}
