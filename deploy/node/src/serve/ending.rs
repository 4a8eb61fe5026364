//! How a node ends: signals, the order of the roles, and what is waited for.

use std::time::Duration;

use anyhow::Context as _;
use bus::spool::Spool;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{FINISH_WAIT, Stages};
use crate::drain::{DRAIN_WAIT, emptied};
use crate::supervisor::Supervisor;

/// What takes requests, and ends first.
const INTAKE: [&str; 2] = ["gateway", "intake"];
/// How long it may take to end at once.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// The signals that end a node.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal, for `drain`, or for a failure, then ends the roles in order. A node that was asked to drain
/// stays until the books have all of its events.
pub(super) async fn finish(
    signals: &mut Signals,
    drain: CancellationToken,
    (stages, spool): (&Stages, &Spool),
    mut supervisor: Supervisor,
) -> anyhow::Result<()> {
    let (first, mut outcome) = tokio::select! {
        () = signals.next() => (None, Ok(())),
        () = drain.cancelled() => (None, Ok(())),
        ended = supervisor.ended() => match ended {
            Some((name, Err(error))) => (Some(name), Err(error.context(format!("{name} failed")))),
            Some((name, Ok(()))) => (Some(name), Err(anyhow::anyhow!("{name} ended on its own"))),
            None => (None, Err(anyhow::anyhow!("no role runs"))),
        },
    };
    info!("draining");
    stages.intake.cancel();
    let left: Vec<&str> = INTAKE
        .into_iter()
        .filter(|name| first != Some(*name) && supervisor.has(name))
        .collect();
    let drained = end_intake(signals, stages, &mut supervisor, &left).await;
    outcome = outcome.and(drained);
    if matches!(first, Some("wb-log" | "ledger")) {
        stages.ledger.cancel();
    } else if outcome.is_ok() && drain.is_cancelled() {
        empty(signals, spool).await;
    }
    stages.publisher.cancel();
    let rest = async {
        let mut outcome = Ok(());
        while let Some((name, result)) = supervisor.ended().await {
            outcome = outcome.and(result.map_err(|error| error.context(format!("{name} failed"))));
        }
        outcome
    };
    if let Ok(ended) = timeout(FINISH_WAIT, rest).await {
        outcome = outcome.and(ended);
    } else {
        warn!("roles did not end in time; what is spooled is read at the next start");
    }
    info!("stopped");
    outcome
}

/// Waits until what takes requests has drained; a second signal ends it at once.
async fn end_intake(
    signals: &mut Signals,
    stages: &Stages,
    supervisor: &mut Supervisor,
    names: &[&str],
) -> anyhow::Result<()> {
    let mut left = names.to_vec();
    tokio::select! {
        drained = supervisor.wait_for(&mut left) => return drained,
        () = signals.next() => {}
    }
    info!("a second signal ends the node at once");
    stages.kill.cancel();
    let ended = timeout(KILL_WAIT, supervisor.wait_for(&mut left)).await;
    ended.unwrap_or(Ok(()))
}

/// Waits until the books have all that is in the spool; a signal or too long a time ends the waiting.
async fn empty(signals: &mut Signals, spool: &Spool) {
    info!(events = spool.appended() - spool.marked(), "emptying the spool");
    tokio::select! {
        () = emptied(spool) => info!("the spool is empty"),
        () = sleep(DRAIN_WAIT) => error!(
            events = spool.appended() - spool.marked(),
            "the books do not take the events: they stay in the spool"
        ),
        () = signals.next() => warn!("a signal ends the node before its spool is empty"),
    }
}
