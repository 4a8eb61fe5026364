//! The one who seals: looks which days are due and have rows that no seal covers, and tells the seal through its node's
//! spool. One seal of a tenant is under way at a time, so that the next can name it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::clock::Clock;
use bus::spool::Spool;
use chrono::NaiveDate;
use schemas::event::ledger::Sealed;
use schemas::id::{NodeId, TenantId};
use schemas::merkle::{FORMAT, FORMAT_ADJUSTED, seal_digest};
use schemas::money::NanoUsd;
use schemas::time::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use super::chain::Chain;
use super::{Adjusted, Rows, Total, covers, due_days, event_id, is_told, is_told_so, place, read};
use crate::Ports;
use crate::state::State;
use crate::store::Store;

/// Between two looks while seals are under way.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks when nothing was found.
const PAUSE_IDLE: Duration = Duration::from_mins(1);
/// How long a day in which everything is sealed is left alone: only rows that come late are missing then.
const SEALED_REST: Duration = Duration::from_hours(6);

/// How long it is known which days have adjustments.
const ADJUSTED_REST: Duration = Duration::from_mins(10);

/// How many there are, by tenant.
type Counts = BTreeMap<Arc<str>, u64>;

/// What a ledger needs to seal.
#[derive(Clone)]
pub struct Sealing {
    /// The node's own spool: seals are published from there.
    pub spool: Spool,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// The node.
    pub node: NodeId,
}

/// Seals days.
pub(crate) struct Sealer {
    sealing: Sealing,
    store: Arc<dyn Store>,
    state: Arc<State>,
    /// Of which days and tenants how many adjustments there are.
    adjusted: BTreeMap<NaiveDate, Counts>,
    /// Until when that is known.
    adjusted_until: Option<Instant>,
    /// Until when a day is not looked at.
    resting: BTreeMap<NaiveDate, Instant>,
    /// Told, and not seen in the books yet: by tenant the day and its part.
    told: BTreeMap<TenantId, (NaiveDate, u32)>,
    /// Tenants whose chain is broken and of whom that was said.
    warned: BTreeSet<Arc<str>>,
    away: bool,
}

/// Why there is no seal now; it is tried again.
type Problem = Box<dyn std::error::Error + Send + Sync>;

impl Sealer {
    /// `None` for a ledger that seals nothing.
    pub(crate) fn new(ports: &Ports) -> Option<Self> {
        Some(Self {
            sealing: ports.sealing.clone()?,
            store: Arc::clone(&ports.store),
            state: Arc::clone(&ports.state),
            adjusted: BTreeMap::new(),
            adjusted_until: None,
            resting: BTreeMap::new(),
            told: BTreeMap::new(),
            warned: BTreeSet::new(),
            away: false,
        })
    }

    /// Looks at intervals. Never returns.
    pub(crate) async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.look(self.sealing.clock.now()).await {
                Ok(waiting) => {
                    self.away = false;
                    if waiting { PAUSE } else { PAUSE_IDLE }
                }
                Err(problem) => {
                    if !std::mem::replace(&mut self.away, true) {
                        warn!(error = &*problem, "days cannot be sealed");
                    }
                    PAUSE_IDLE
                }
            };
        }
    }

    /// Another ledger applies from now on.
    #[cfg(test)]
    pub(super) fn stand_by(&self) {
        self.state.set_applying(false);
    }

    /// Seals what is due, one part of each tenant at most; true while one is under way.
    pub(super) async fn look(&mut self, now: Timestamp) -> Result<bool, Problem> {
        if !self.state.applying() {
            self.told.clear();
            return Ok(false);
        }
        self.resting.retain(|_, until| *until > Instant::now());
        self.look_for_adjustments(now).await?;
        let adjusted = self.adjusted.keys().copied();
        let days: BTreeSet<NaiveDate> = due_days(now).chain(adjusted).collect();
        for day in days {
            if self.resting.contains_key(&day) {
                continue;
            }
            let mut is_waiting = false;
            // A day that was adjusted has more to be sealed than its rows.
            let mut counts = self.adjusted.get(&day).cloned().unwrap_or_default();
            for (tenant, rows) in self.store.rows_of_day(day).await? {
                *counts.entry(tenant).or_default() += rows;
            }
            for (tenant, count) in counts {
                is_waiting |= self.seal((&TenantId(tenant), day), count, now).await?;
            }
            // Days are sealed in order: the next one names this one.
            if is_waiting {
                return Ok(true);
            }
            self.resting.insert(day, Instant::now() + SEALED_REST);
        }
        Ok(false)
    }

    /// Learns which days have adjustments, those among them that are too old for rows that come late.
    async fn look_for_adjustments(&mut self, now: Timestamp) -> Result<(), Problem> {
        if self.adjusted_until.is_some_and(|until| until > Instant::now()) {
            return Ok(());
        }
        let last = due_days(now).last();
        let mut days: BTreeMap<NaiveDate, Counts> = BTreeMap::new();
        for (day, tenant, count) in self.store.adjusted_days().await? {
            if Some(day) <= last {
                days.entry(day).or_default().insert(tenant, count);
            }
        }
        self.adjusted = days;
        self.adjusted_until = Some(Instant::now() + ADJUSTED_REST);
        Ok(())
    }

    /// Seals what is not sealed of a day's rows and their adjustments; true when there is more to come for the tenant.
    async fn seal(
        &mut self,
        (tenant, day): (&TenantId, NaiveDate),
        count: u64,
        now: Timestamp,
    ) -> Result<bool, Problem> {
        let events = self.store.seals(Some(tenant.as_str())).await?;
        let chain = Chain::of(events.iter().filter_map(read));
        if let Some((day, part)) = self.told.get(tenant) {
            if chain.next_part(*day) <= *part {
                return Ok(true);
            }
            self.told.remove(tenant);
        }
        if !chain.broken.is_empty() {
            if self.warned.insert(Arc::clone(&tenant.0)) {
                warn!(
                    tenant = tenant.as_str(),
                    "the chain of seals is broken: nothing is sealed of this tenant"
                );
            }
            return Ok(false);
        }
        let sealed: u64 = chain.parts(day).map(|seal| seal.rows + seal.adjustments).sum();
        if count <= sealed {
            return Ok(false);
        }
        let Some(seal) = self.seal_of(&chain, (tenant, day), now).await? else {
            return Ok(false);
        };
        let id = event_id(seal_digest(&seal));
        self.sealing.spool.append_as(id, tenant, now, &seal)?;
        info!(tenant = tenant.as_str(), %day, part = seal.part, rows = seal.rows, "rows are sealed");
        self.told.insert(tenant.clone(), (day, seal.part));
        Ok(true)
    }

    /// The next seal of a day: over the rows that no part covers and before whose events nothing is missing.
    async fn seal_of(
        &self,
        chain: &Chain,
        (tenant, day): (&TenantId, NaiveDate),
        now: Timestamp,
    ) -> Result<Option<Sealed>, Problem> {
        let store = &*self.store;
        // Before the rows: every row of an event up to a mark is there.
        let coverage = store.coverage().await?;
        let before = chain.parts(day).last();
        let mut through = before.map(|seal| seal.through.clone()).unwrap_or_default();
        let mut total = Total::default();
        let mut sources = BTreeSet::new();
        let mut rows = Rows::of(store, tenant.as_str(), day);
        while let Some(waybill) = rows.next().await? {
            let source = &waybill.row.source;
            let is_open =
                !waybill.provisional && !before.is_some_and(|seal| covers(&seal.through, place(&waybill)));
            if is_open
                && waybill.row.source_sequence <= coverage.mark(source)
                && (before.is_none() || is_told(store, &waybill).await?)
            {
                total.add(&waybill);
                sources.insert(source.clone());
            }
        }
        let mut adjustments = Adjusted::of(store, tenant.as_str(), day);
        while let Some(adjustment) = adjustments.next().await? {
            let (source, place) = (&adjustment.source, adjustment.source_sequence);
            if !before.is_some_and(|seal| covers(&seal.through, (source, place)))
                && place <= coverage.mark(source)
                && is_told_so(store, &adjustment).await?
            {
                total.adjust(&adjustment);
                sources.insert(source.to_string());
            }
        }
        let Some(root) = total.tree.root() else {
            return Ok(None);
        };
        for source in sources {
            let mark = coverage.mark(&source);
            through.insert(source, mark);
        }
        Ok(Some(Sealed {
            format: if total.adjustments > 0 {
                FORMAT_ADJUSTED
            } else {
                FORMAT
            },
            tenant: tenant.clone(),
            day,
            part: chain.next_part(day),
            rows: total.rows(),
            sum_nano_usd: NanoUsd(total.sum_nano_usd),
            adjustments: total.adjustments,
            adjusted_nano_usd: NanoUsd(total.adjusted_nano_usd),
            root,
            through,
            previous: chain.last(),
            sealed_at: now,
            node: self.sealing.node.clone(),
        }))
    }
}
