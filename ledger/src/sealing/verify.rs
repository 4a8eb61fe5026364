//! The seals computed again from the books: what was changed, dropped, added or swapped since is found, and where the log
//! still tells it, which rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::event::ledger::Sealed;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use serde::Serialize;

use super::chain::Chain;
use super::dropped::{There, dropped};
use super::{Adjusted, Rows, Total, covers, due_days, is_told, is_told_so, place, read};
use crate::store::{Store, StoreError};

/// Rows that one finding names.
const ROWS_NAMED_MAX: usize = 100;

/// What is verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Seals of this tenant alone.
    pub tenant: Option<Arc<str>>,
    /// Of this UTC day alone.
    pub day: Option<NaiveDate>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// Seals that were computed again.
    pub seals: u64,
    /// Rows that they cover.
    pub rows: u64,
    /// Adjustments that they cover.
    #[serde(skip_serializing_if = "is_none")]
    pub adjustments: u64,
    /// What is not as it was sealed.
    pub faults: Vec<Finding>,
    /// Days of tenants with rows that no seal covers although they could be sealed.
    pub unsealed: Vec<Unsealed>,
}

/// Something that is not as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whose rows.
    pub tenant: Arc<str>,
    /// Their UTC day.
    pub day: NaiveDate,
    /// What is wrong.
    pub fault: Fault,
    /// The rows that no event tells as they are, and those that were dropped and that events tell, at most a hundred.
    pub requests: Vec<RequestId>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The rows are not those that were sealed.
    Rows,
    /// A seal does not continue the chain: one before it was changed or taken away.
    Chain,
    /// Rows that no seal covers are not as their events tell them.
    Untold,
}

/// Rows without a seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsealed {
    /// Whose rows.
    pub tenant: Arc<str>,
    /// Their UTC day.
    pub day: NaiveDate,
    /// How many.
    pub rows: u64,
    /// Likewise adjustments of its rows.
    #[serde(skip_serializing_if = "is_none")]
    pub adjustments: u64,
}

/// Computes the seals again; `now` tells which days could be sealed.
pub async fn run(store: &dyn Store, asked: &Asked, now: Timestamp) -> Result<Report, StoreError> {
    let mut by_tenant: BTreeMap<Arc<str>, Vec<Sealed>> = BTreeMap::new();
    for record in store.seals(asked.tenant.as_deref()).await? {
        if let Some(seal) = read(&record) {
            by_tenant
                .entry(Arc::clone(&seal.tenant.0))
                .or_default()
                .push(seal);
        }
    }
    let mut chains: BTreeMap<Arc<str>, Chain> = by_tenant
        .into_iter()
        .map(|(tenant, seals)| (tenant, Chain::of(seals)))
        .collect();
    let sealed = chains
        .values()
        .flat_map(|chain| &chain.seals)
        .map(|seal| seal.day);
    let adjusted = store.adjusted_days().await?;
    let days_adjusted = adjusted.iter().map(|(day, ..)| *day);
    let days_adjusted = days_adjusted.filter(|day| Some(*day) <= due_days(now).last());
    let days: BTreeSet<NaiveDate> = sealed.chain(due_days(now)).chain(days_adjusted).collect();
    let mut report = Report::default();
    for (tenant, chain) in &chains {
        report.broken(tenant, chain);
    }
    for day in days {
        if asked.day.is_some_and(|asked| asked != day) {
            continue;
        }
        let mut tenants: BTreeSet<Arc<str>> = chains
            .iter()
            .filter(|(_, chain)| chain.parts(day).next().is_some())
            .map(|(tenant, _)| Arc::clone(tenant))
            .collect();
        tenants.extend(
            store
                .rows_of_day(day)
                .await?
                .into_iter()
                .map(|(tenant, _)| tenant),
        );
        let of_day = adjusted.iter().filter(|(of, ..)| *of == day);
        tenants.extend(of_day.map(|(_, tenant, _)| Arc::clone(tenant)));
        tenants.retain(|tenant| asked.tenant.as_ref().is_none_or(|asked| asked == tenant));
        for tenant in tenants {
            let chain = chains.entry(Arc::clone(&tenant)).or_default();
            report.day(store, chain, (&tenant, day)).await?;
        }
    }
    Ok(report)
}

impl Report {
    /// Whether everything is as it was sealed.
    pub const fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    /// Tells the seals that hang in the air.
    fn broken(&mut self, tenant: &Arc<str>, chain: &Chain) {
        self.faults.extend(chain.broken.iter().map(|seal| Finding {
            tenant: Arc::clone(tenant),
            day: seal.day,
            fault: Fault::Chain,
            requests: Vec::new(),
        }));
    }

    /// Verifies a day of a tenant.
    async fn day(
        &mut self,
        store: &dyn Store,
        chain: &Chain,
        (tenant, day): (&Arc<str>, NaiveDate),
    ) -> Result<(), StoreError> {
        let parts: Vec<&Sealed> = chain.parts(day).collect();
        let mut totals: Vec<Total> = parts.iter().map(|_| Total::default()).collect();
        let (mut late, mut late_adjustments, mut untold) = (0, 0, Vec::new());
        let mut rows = Rows::of(store, tenant, day);
        while let Some(waybill) = rows.next().await? {
            let part = parts
                .iter()
                .position(|seal| covers(&seal.through, place(&waybill)));
            let part = part.filter(|_| !waybill.provisional);
            if let Some(total) = part.and_then(|part| totals.get_mut(part)) {
                total.add(&waybill);
                continue;
            }
            late += u64::from(!waybill.provisional);
            if untold.len() < ROWS_NAMED_MAX && !is_told(store, &waybill).await? {
                untold.push(waybill.row.settled.request_id);
            }
        }
        let mut adjustments = Adjusted::of(store, tenant, day);
        while let Some(adjustment) = adjustments.next().await? {
            let place = (&*adjustment.source, adjustment.source_sequence);
            let part = parts.iter().position(|seal| covers(&seal.through, place));
            if let Some(total) = part.and_then(|part| totals.get_mut(part)) {
                total.adjust(&adjustment);
                continue;
            }
            late_adjustments += 1;
            if untold.len() < ROWS_NAMED_MAX && !is_told_so(store, &adjustment).await? {
                untold.push(adjustment.adjusted.request_id);
            }
        }
        self.seals += u64::try_from(parts.len()).unwrap_or(u64::MAX);
        self.rows += totals.iter().map(Total::rows).sum::<u64>();
        self.adjustments += totals.iter().map(|total| total.adjustments).sum::<u64>();
        let nothing = BTreeMap::new();
        let mut add = |fault, requests| {
            let tenant = Arc::clone(tenant);
            self.faults.push(Finding {
                tenant,
                day,
                fault,
                requests,
            });
        };
        if totals.iter().zip(&parts).any(|(total, seal)| !total.is_of(seal)) {
            let through = parts.last().map(|seal| &seal.through);
            let through = through.unwrap_or(&nothing);
            add(Fault::Rows, named(store, (tenant, day), through).await?);
        } else if !untold.is_empty() {
            add(Fault::Untold, untold);
        }
        if late + late_adjustments > 0 {
            self.unsealed.push(Unsealed {
                tenant: Arc::clone(tenant),
                day,
                rows: late,
                adjustments: late_adjustments,
            });
        }
        Ok(())
    }
}

/// The rows of a day that no event tells as they are, and those that events tell and that are not there.
async fn named(
    store: &dyn Store,
    of: (&Arc<str>, NaiveDate),
    through: &BTreeMap<String, u64>,
) -> Result<Vec<RequestId>, StoreError> {
    let (mut named, mut there) = (BTreeSet::new(), There::default());
    let mut rows = Rows::of(store, of.0, of.1);
    while let Some(waybill) = rows.next().await? {
        let id = waybill.row.settled.request_id;
        there.rows.insert(id);
        if named.len() < ROWS_NAMED_MAX && !is_told(store, &waybill).await? {
            named.insert(id);
        }
    }
    let mut adjustments = Adjusted::of(store, of.0, of.1);
    while let Some(adjustment) = adjustments.next().await? {
        let id = adjustment.adjusted.request_id;
        there.adjustments.insert((id, adjustment.adjusted.number));
        if named.len() < ROWS_NAMED_MAX && !is_told_so(store, &adjustment).await? {
            named.insert(id);
        }
    }
    let left = ROWS_NAMED_MAX.saturating_sub(named.len());
    named.extend(dropped(store, (of.0, of.1), (through, &there), left).await?);
    Ok(named.into_iter().collect())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}
