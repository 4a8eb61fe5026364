//! Who of several processes leads, at the edge: the record in the bucket is looked at and written as
//! [`schemas::health::lead`] says, and the work is dropped where it stands once its time is over.

use std::future::Future;
use std::time::Duration;

use bus::{BusError, Expected};
use bytes::Bytes;
use schemas::health::lead::{LOOK_MS, Lead, Leader, Step};
use schemas::health::{decode, encode};
use schemas::id::NodeId;
use schemas::subject::{HEALTH_BUCKET, health::LEADER};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::Ports;

/// How long one look or one write may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How often a leader looks whether there is something to do.
const TURN_EVERY: Duration = Duration::from_millis(LOOK_MS / 2);
const LOOK_EVERY: Duration = Duration::from_millis(LOOK_MS);

/// Does `work` while this process leads, and stands by otherwise. Never returns.
pub(crate) async fn run<W: Future<Output = ()>>(ports: &Ports, node: &NodeId, work: impl Fn() -> W) {
    let mut candidate = Candidate {
        ports,
        leader: Leader {
            boot: ports.boot.clone(),
            node: node.clone(),
        },
        lead: Lead::new(ports.boot.clone()),
    };
    loop {
        while !candidate.leads() {
            candidate.turn().await;
            if !candidate.leads() {
                sleep(LOOK_EVERY).await;
            }
        }
        info!("this node looks after the health of upstreams");
        tokio::select! {
            () = candidate.hold() => warn!("this node no longer looks after the health of upstreams"),
            () = work() => {}
        }
    }
}

/// Takes the record away when it is this process's own, so that another need not wait.
pub(crate) async fn leave(ports: &Ports) {
    let left = async {
        let found = ports.kv.get(HEALTH_BUCKET, LEADER).await?;
        let Some(entry) = found else {
            return Ok(());
        };
        let leader: Option<Leader> = entry.value.as_deref().and_then(decode);
        if leader.is_some_and(|leader| leader.boot == ports.boot) {
            let expected = Expected::Revision(entry.revision);
            ports.kv.delete(HEALTH_BUCKET, LEADER, expected).await?;
        }
        Ok::<(), BusError>(())
    };
    // If it stays, it counts as silent soon.
    let _ = timeout(ANSWER_WITHIN, left).await;
}

struct Candidate<'a> {
    ports: &'a Ports,
    leader: Leader,
    lead: Lead,
}

impl Candidate<'_> {
    fn now_ms(&self) -> u64 {
        self.ports.clock.monotonic_ms()
    }

    fn leads(&self) -> bool {
        self.lead.leads(self.now_ms())
    }

    /// Writes the record again and again; returns when this process leads no longer.
    async fn hold(&mut self) {
        while let Some(left) = self.left() {
            // However long an answer takes, the time that is left is all there is.
            let _ = timeout(left, self.turn()).await;
            sleep(TURN_EVERY.min(self.left().unwrap_or_default())).await;
        }
    }

    /// How long it leads if nothing more is written; `None` when it does not.
    fn left(&self) -> Option<Duration> {
        let left_ms = self.lead.until_ms()?.checked_sub(self.now_ms())?;
        (left_ms > 0).then(|| Duration::from_millis(left_ms))
    }

    /// Does what is to be done now.
    async fn turn(&mut self) {
        match self.lead.step(self.now_ms()) {
            Step::Wait => {}
            Step::Look => self.look().await,
            Step::Write(revision) => self.write(revision).await,
        }
    }

    async fn look(&mut self) {
        match timeout(ANSWER_WITHIN, self.ports.kv.get(HEALTH_BUCKET, LEADER)).await {
            Ok(Ok(entry)) => {
                let now_ms = self.now_ms();
                let nobody = || Leader {
                    boot: "".into(),
                    node: NodeId::from(""),
                };
                // What cannot be read is another's, who may be silent.
                let found = entry.filter(|entry| entry.value.is_some()).map(|entry| {
                    let leader = entry.value.as_deref().and_then(decode);
                    (entry.revision, leader.unwrap_or_else(nobody))
                });
                let found = found.as_ref().map(|(revision, leader)| (*revision, leader));
                self.lead.saw(found, now_ms);
            }
            Ok(Err(problem)) => debug!(
                error = &problem as &dyn std::error::Error,
                "nobody tells who looks after the health of upstreams"
            ),
            Err(_) => {}
        }
    }

    async fn write(&mut self, revision: Option<u64>) {
        // Plain data has no way to fail.
        let Ok(bytes) = encode(&self.leader) else {
            return;
        };
        let expected = revision.map_or(Expected::Absent, Expected::Revision);
        let sent_ms = self.now_ms();
        // Before it is sent: when this future is dropped, nobody knows.
        self.lead.failed();
        let put = self
            .ports
            .kv
            .put(HEALTH_BUCKET, LEADER, Bytes::from(bytes), expected);
        if let Ok(Ok(revision)) = timeout(ANSWER_WITHIN, put).await {
            self.lead.wrote(revision, sent_ms);
        }
    }
}

#[cfg(test)]
mod tests;
