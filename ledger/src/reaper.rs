//! Requests of nodes that are gone. A request that was accepted and has no row, whose node has been silent for ten
//! minutes and which cannot live any more by the clocks of the gateways, is declared lost: a row with amount 0, which
//! the node's own word supersedes if it comes, in either order. So a machine's clock that is wrong does no harm.
//! A source that an operator declared gone is not waited for.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bus::clock::Clock;
use bus::registry::Nodes;
use bus::spool::Spool;
use chrono::{Datelike as _, TimeZone as _};
use chrono_tz::Tz;
use schemas::event::request::{RequestAccepted, RequestLost};
use schemas::id::{EventId, RequestId, SpoolId};
use schemas::time::Timestamp;
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use crate::state::State;
use crate::store::{Store, StoreError};
use crate::{Config, Ports};

/// Requests of one source that are declared lost at a time.
const REQUESTS_MAX: usize = 256;
/// Told apart from the request's own id; the same for every ledger, so that two of them say the same.
const LOST: u128 = 0x0011_1057_0011_1057_0011_1057_0011_1057;

/// What a ledger needs to declare requests lost.
#[derive(Clone)]
pub struct Reaping {
    /// The node's own spool: what is declared is published from there.
    pub spool: Spool,
    /// Who is there.
    pub nodes: Nodes,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// The time zone of billing days.
    pub billing_tz: Tz,
}

/// Declares requests lost.
pub(crate) struct Reaper {
    reaping: Reaping,
    store: Arc<dyn Store>,
    state: Arc<State>,
    gone_after: Duration,
    life_max: i64,
    pause: Duration,
    /// Since when a source with open requests has had no node.
    absent: BTreeMap<Arc<str>, Instant>,
    /// Declared, and not yet seen in the books.
    declared: HashSet<RequestId>,
    warned: bool,
}

/// What is known of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// Its node is there, or may be.
    There,
    /// Its node has been gone for long.
    Gone,
    /// An operator said that it will not come back.
    Forgotten,
}

impl Reaper {
    /// `None` for a ledger that declares nothing.
    pub(crate) fn new(config: &Config, ports: &Ports) -> Option<Self> {
        let reaping = ports.reaping.clone()?;
        let micros = config.request_seconds_max.saturating_mul(1_000_000);
        Some(Self {
            reaping,
            store: Arc::clone(&ports.store),
            state: Arc::clone(&ports.state),
            gone_after: Duration::from_secs(config.gone_seconds),
            life_max: i64::try_from(micros).unwrap_or(i64::MAX),
            pause: Duration::from_millis(config.reap_interval_ms.max(1)),
            absent: BTreeMap::new(),
            declared: HashSet::new(),
            warned: false,
        })
    }

    /// Looks at intervals. Never returns.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(self.pause).await;
            match self.look().await {
                Ok(()) => self.warned = false,
                Err(problem) if !std::mem::replace(&mut self.warned, true) => warn!(
                    error = &*problem,
                    "requests of nodes that are gone cannot be declared lost"
                ),
                Err(_) => {}
            }
        }
    }

    async fn look(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        // A ledger that hears nobody, not even its own node, does not see who is gone.
        if self.reaping.nodes.live().is_empty() {
            self.absent.clear();
            return Ok(());
        }
        let sources = self.store.open_sources().await?;
        self.absent.retain(|source, _| sources.contains(source));
        let mut open = HashSet::new();
        for source in &sources {
            let presence = self.presence(source, Instant::now());
            if presence == Presence::There || !self.state.applying() {
                continue;
            }
            open.extend(self.reap(source, presence).await?);
        }
        self.declared.retain(|request| open.contains(request));
        Ok(())
    }

    /// Whether the node of a source is there, by this node's own clock.
    fn presence(&mut self, source: &Arc<str>, now: Instant) -> Presence {
        let Some((_, spool)) = source.rsplit_once('/') else {
            return Presence::There;
        };
        let spool = SpoolId::from(spool);
        let nodes = &self.reaping.nodes;
        if spool == *self.reaping.spool.id() || nodes.publishes(&spool) {
            self.absent.remove(source);
            return Presence::There;
        }
        let since = *self.absent.entry(Arc::clone(source)).or_insert(now);
        if nodes.forgotten(&spool) {
            Presence::Forgotten
        } else if now.saturating_duration_since(since) >= self.gone_after {
            Presence::Gone
        } else {
            Presence::There
        }
    }

    /// Declares what is due of one source, and returns what is open.
    async fn reap(
        &mut self,
        source: &str,
        presence: Presence,
    ) -> Result<Vec<RequestId>, Box<dyn std::error::Error + Send + Sync>> {
        let now = self.reaping.clock.now();
        let open = self.open(source).await?;
        let mut count = 0_u64;
        for accepted in &open {
            let due =
                presence == Presence::Forgotten || accepted.started_at.plus_micros(self.life_max) <= now;
            if !due || self.declared.contains(&accepted.request_id) {
                continue;
            }
            let lost = lost(accepted, now, self.reaping.billing_tz);
            let tenant = &accepted.payer.tenant;
            self.reaping
                .spool
                .append_as(event_id(accepted.request_id), tenant, now, &lost)?;
            self.declared.insert(accepted.request_id);
            count += 1;
        }
        if count > 0 {
            warn!(
                source,
                requests = count,
                "requests of a node that is gone are declared lost"
            );
        }
        Ok(open.into_iter().map(|accepted| accepted.request_id).collect())
    }

    async fn open(&self, source: &str) -> Result<Vec<RequestAccepted>, StoreError> {
        self.store.open_requests(source, REQUESTS_MAX).await
    }
}

/// The id of the event that declares a request lost: made of the request's.
fn event_id(request: RequestId) -> EventId {
    let made = request.0.as_u128() ^ LOST;
    EventId(uuid::Builder::from_custom_bytes(Uuid::from_u128(made).into_bytes()).into_uuid())
}

/// The declaration; days are those of the admission.
fn lost(accepted: &RequestAccepted, now: Timestamp, billing_tz: Tz) -> RequestLost {
    let started_at = accepted.started_at;
    let local = billing_tz.from_utc_datetime(&started_at.to_utc().naive_utc());
    let billing_day = local.date_naive();
    RequestLost {
        accepted: accepted.clone(),
        declared_at: now,
        waybill_day: accepted.request_id.minted_at().unwrap_or(started_at).day(),
        billing_day,
        billing_month: billing_day.with_day(1).unwrap_or(billing_day),
    }
}

#[cfg(test)]
mod tests;
