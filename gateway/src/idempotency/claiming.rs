//! One request on its way to its key. A bus that does not answer is waited for as long as admission may wait.

use std::sync::Arc;
use std::time::Duration;

use schemas::idempotency::claim::{Claim, Step};
use schemas::idempotency::record::Running;
use schemas::idempotency::release::{self, Release};
use schemas::idempotency::{Read, Refusal, Scope};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Claimed, books, holding, store};
use crate::state::{Shared, State};

/// Rest before a bus that did not answer is asked again.
const AGAIN: Duration = Duration::from_millis(250);

/// Claims the key whose record is at `place`.
pub(super) async fn run(
    state: Shared,
    scope: Scope,
    place: Arc<str>,
    mine: Running,
) -> Result<Claimed, Refusal> {
    let deadline = Instant::now() + state.config.claim_wait();
    let mut waiting = None;
    let now_ms = || state.ports.clock.monotonic_ms();
    let (mut claim, mut step) = Claim::start(mine, state.config.idempotency, now_ms());
    loop {
        step = match step {
            Step::Write(write) => match timeout_at(deadline, store::write(&state, &place, &write)).await {
                Ok(written) => claim.wrote(written, now_ms()),
                Err(_) => claim.give_up(),
            },
            Step::Read => {
                let reading = read(&state, &place, &mut waiting);
                match timeout_at(deadline, reading).await {
                    Ok(read) => claim.read(read, now_ms()),
                    Err(_) => claim.give_up(),
                }
            }
            Step::Ask(held) => {
                let end = books::end_of(&state, &scope, &held).await;
                claim.told(end, now_ms())
            }
            Step::Run(hold) => return Ok(Claimed::Held(holding::begin(&state, place, *hold))),
            Step::Replay(done) => return Ok(Claimed::Replay(done)),
            Step::Refuse(refusal, release) => {
                if let Some(release) = release {
                    let clearing = clear(state.clone(), place, *release);
                    state.keys.clearing.spawn(clearing);
                }
                return Err(refusal);
            }
        };
    }
}

/// Reads until the bus answers; at once where too many wait for that already.
async fn read<'a>(state: &'a State, place: &str, waiting: &mut Option<SemaphorePermit<'a>>) -> Read {
    loop {
        let read = store::read(state, place).await;
        if read != Read::Failed {
            return read;
        }
        if waiting.is_none() {
            *waiting = state.keys.waiting.try_acquire().ok();
        }
        if waiting.is_none() {
            return read;
        }
        sleep(AGAIN).await;
    }
}

/// Sees to it that nothing of a claim that was given up comes later.
async fn clear(state: Shared, place: Arc<str>, mut release: Release) {
    let now_ms = || state.ports.clock.monotonic_ms();
    let mut step = release.tick();
    loop {
        step = match step {
            release::Step::Read => release.read(store::read(&state, &place).await, now_ms()),
            release::Step::Write(write) => {
                release.wrote(store::write(&state, &place, &write).await, now_ms())
            }
            release::Step::Rest { until_ms } => {
                sleep(Duration::from_millis(until_ms.saturating_sub(now_ms()))).await;
                release.tick()
            }
            release::Step::Ended => return,
        };
    }
}
