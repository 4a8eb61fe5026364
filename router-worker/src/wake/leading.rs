//! One round of waking a backend: either this node claims it and does it, or it hears from the bucket how another one
//! fares. A claim is written again while its holder lives; one that is not is gone, and somebody else takes it.

use std::time::Duration;

use bus::{BusError, Expected, Kv, Revision};
use bytes::Bytes;
use schemas::event::health::WakeEnded;
use schemas::id::BackendId;
use schemas::subject::WAKE_BUCKET;
use schemas::wake::record::{CLAIM_EVERY, Outcome, Record, record_key};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::plan::Candidate;
use crate::state::Shared;

use super::asking;

/// How long a write or a read may take before the bus counts as silent.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// How often is looked at another one's claim that nothing is heard of: it may be gone, which no watch tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A round.
pub(super) struct Round<'a> {
    shared: &'a Shared,
    candidate: &'a Candidate,
    backend: BackendId,
    news: watch::Receiver<u64>,
    until: Instant,
}

/// Whose the round is.
enum Claim {
    /// This node's.
    Mine(Revision),
    /// Nobody can be asked: this node's, without the others knowing.
    Alone,
    /// Another node's.
    Anothers,
    /// It is over.
    Over(Outcome),
}

impl<'a> Round<'a> {
    pub(super) fn new(shared: &'a Shared, candidate: &'a Candidate, news: watch::Receiver<u64>) -> Self {
        let bound = asking::bound(&candidate.endpoint);
        Self {
            shared,
            backend: candidate.backend_id(),
            candidate,
            news,
            until: Instant::now() + bound,
        }
    }

    /// Runs it to its outcome.
    pub(super) async fn run(mut self) -> Outcome {
        while Instant::now() < self.until {
            self.news.mark_unchanged();
            match self.claim().await {
                Claim::Mine(revision) => return self.lead(Some(revision)).await,
                Claim::Alone => return self.lead(None).await,
                Claim::Over(outcome) => return outcome,
                Claim::Anothers => {
                    // Whether there is news or not, the bucket says how it stands.
                    let _ = timeout(LOOK_EVERY, self.news.changed()).await;
                }
            }
        }
        Outcome::Late
    }

    async fn claim(&self) -> Claim {
        let Some(kv) = &self.shared.kv else {
            return Claim::Alone;
        };
        let key = record_key(&self.backend);
        let Ok(Ok(found)) = timeout(ANSWER_WAIT, kv.get(WAKE_BUCKET, &key)).await else {
            return Claim::Alone;
        };
        let expected = match &found {
            None => Expected::Absent,
            Some(entry) => {
                if let Some(record) = entry.value.as_deref().and_then(Record::decode)
                    && let Some(claim) = self.believed(record.outcome).await
                {
                    return claim;
                }
                // What cannot be read, or is not so any more, is as good as nothing, but it has to be replaced.
                Expected::Revision(entry.revision)
            }
        };
        match self.write(kv.as_ref(), None, expected).await {
            Ok(revision) => Claim::Mine(revision),
            Err(Some(BusError::Conflict)) => Claim::Anothers,
            Err(_) => Claim::Alone,
        }
    }

    /// Whose the round is by what was written; `None` where that counts no more: whoever was awake may sleep again.
    async fn believed(&self, outcome: Option<Outcome>) -> Option<Claim> {
        match outcome {
            None => Some(Claim::Anothers),
            Some(Outcome::Awake) => {
                let is_awake = asking::is_awake(self.shared, self.candidate).await;
                is_awake.then_some(Claim::Over(Outcome::Awake))
            }
            Some(outcome) => Some(Claim::Over(outcome)),
        }
    }

    async fn write(
        &self,
        kv: &dyn Kv,
        outcome: Option<Outcome>,
        expected: Expected,
    ) -> Result<Revision, Option<BusError>> {
        let record = Record {
            backend: self.backend.clone(),
            endpoint_id: self.candidate.endpoint.id.clone(),
            outcome,
            node: self.shared.config.node.clone(),
        };
        let bytes = Bytes::from(record.encode().map_err(|_| None)?);
        let key = record_key(&self.backend);
        let put = kv.put_for((WAKE_BUCKET, &key), bytes, expected, record.life());
        let written = timeout(ANSWER_WAIT, put).await.map_err(|_| None)?;
        written.map_err(Some)
    }

    /// Wakes the backend, and tells the others.
    async fn lead(&self, claim: Option<Revision>) -> Outcome {
        let started_ms = self.shared.clock.monotonic_ms();
        let work = timeout_at(self.until, asking::wake(self.shared, self.candidate));
        let outcome = tokio::select! {
            outcome = work => outcome.unwrap_or(Outcome::Late),
            never = self.hold(claim) => never,
        };
        if let Some(kv) = &self.shared.kv {
            // Those who do not hear it see that the claim is gone.
            let _ = self.write(kv.as_ref(), Some(outcome), Expected::Any).await;
        }
        self.tell(outcome, started_ms);
        outcome
    }

    /// Keeps a claim alive. Never returns.
    async fn hold(&self, claim: Option<Revision>) -> Outcome {
        let (Some(kv), Some(mut revision)) = (&self.shared.kv, claim) else {
            return std::future::pending().await;
        };
        loop {
            sleep(CLAIM_EVERY).await;
            let again = self.write(kv.as_ref(), None, Expected::Revision(revision)).await;
            revision = again.unwrap_or(revision);
        }
    }

    fn tell(&self, outcome: Outcome, started_ms: u64) {
        let took_ms = self.shared.clock.monotonic_ms().saturating_sub(started_ms);
        let kind = self
            .candidate
            .endpoint
            .wake
            .as_deref()
            .map_or("", |wake| wake.kind());
        if outcome == Outcome::Awake {
            info!(backend.id = %self.backend, wake.kind = kind, took_ms, "{} was woken", self.backend);
        } else {
            warn!(
                backend.id = %self.backend, wake.kind = kind, took_ms, outcome = outcome.as_str(),
                "{} was told to wake and is not up", self.backend
            );
        }
        (self.shared.wakes.woken)(&WakeEnded {
            endpoint_id: self.candidate.endpoint.id.clone(),
            backend: self.backend.clone(),
            kind: kind.into(),
            outcome,
            took_ms,
            at: self.shared.clock.now(),
            node: self.shared.config.node.clone(),
        });
    }
}
