//! The credentials of one endpoint: which of them a request uses next. Pure; times are milliseconds on the router's
//! own monotonic clock.
//!
//! The most reserved credential that a caller may use comes first, then the others as declared; a caller stays with
//! the one he was given for [`BINDING_MS`]. A credential that fails is passed over within its request while another is
//! left, and is muted only when none is. One that upstreams refuse repeatedly, or limit for a time they name, is
//! asked last for a while. The only usable credential of an endpoint is muted late and briefly: a dead credential and
//! none at all are the same to a caller, a limit that has passed is not.

mod pools;

use std::collections::HashMap;
use std::sync::Arc;

use schemas::catalog::{CredentialRef, Role};
use schemas::id::TenantId;
use schemas::secret::Secret;

use crate::fault::Flaw;

pub(crate) use pools::{Declared, News, Pools};

/// How long a credential is muted.
const MUTE_MS: u64 = 20_000;
/// How long the only usable credential is muted at first; each further failure doubles it, up to [`MUTE_MS`].
const SOLE_MUTE_MS: u64 = 15_000;
/// Failures in a row that the only usable credential has free, and after which a refused one is asked last.
const FREE_FAILURES: u32 = 2;
/// How long a caller stays with a credential.
const BINDING_MS: u64 = 300_000;
/// How often an operator is told of the same refused credential.
const ALARM_EVERY_MS: u64 = 60_000;
/// Callers that are remembered; beyond, all are forgotten.
const BINDINGS_MAX: usize = 10_000;

/// Who asks for a credential. Callers of a tenant with the same role are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    /// Whose request it is.
    pub(crate) tenant: TenantId,
    /// What he may do.
    pub(crate) role: Role,
}

/// Leave to use a credential. Dropped, it says nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The credential's place in the endpoint's list.
    pub(crate) place: usize,
    /// Which slot it is, for ever.
    slot: u64,
}

/// Why there is no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All are kept for others.
    Reserved,
    /// All that the caller may use are muted, or were tried by this request.
    Muted {
        /// The one that failed last was refused: waiting is of no use.
        refused: bool,
        /// Whole seconds until one of them is asked again, at least 1.
        seconds: u64,
    },
}

/// What an operator is to be told of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Which one.
    pub(crate) reference: CredentialRef,
    /// Its upstream's verdict is another than the one he was told last.
    pub(crate) changed: bool,
}

/// What a failure led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Nothing: the credential stays what it was.
    Free,
    /// It is asked last for a while.
    Last,
    /// It is not asked for a while.
    Muted,
}

/// A credential as it is declared now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declaration {
    /// Its name.
    pub(crate) reference: CredentialRef,
    /// What is sent: with another one it is another credential, of which nothing is known.
    pub(crate) secret: Arc<Secret<String>>,
    /// Its place in the endpoint's list; those that are sealed come after the others.
    pub(crate) place: usize,
    /// The lowest role that may use it.
    pub(crate) role: Role,
}

/// A credential that a request may use, and leave to do so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// The leave.
    pub(crate) lease: Lease,
    /// The credential.
    pub(crate) declaration: Arc<Declaration>,
}

impl Alarm {
    /// The credential is accepted again.
    pub(crate) const fn of(reference: CredentialRef) -> Self {
        Self {
            reference,
            changed: true,
        }
    }
}

#[derive(Debug)]
struct Slot {
    id: u64,
    declaration: Arc<Declaration>,
    /// Failures in a row.
    failures: u32,
    muted_until_ms: u64,
    last_until_ms: u64,
    /// When it failed last.
    failed_at_ms: u64,
    /// It failed last because it was refused.
    refused: bool,
    /// An operator was told that it is refused, and not that it is accepted again.
    alarmed: bool,
    /// From when on he may be told that it is refused.
    alarm_from_ms: u64,
}

impl Slot {
    /// Whole milliseconds until it is asked again.
    const fn wait_ms(&self, now_ms: u64) -> u64 {
        self.muted_until_ms.saturating_sub(now_ms)
    }
}

#[derive(Debug, Clone, Copy)]
struct Binding {
    slot: u64,
    until_ms: u64,
}

/// The credentials of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// In the order in which they are asked.
    slots: Vec<Slot>,
    bindings: HashMap<Asker, Binding>,
    slots_made: u64,
}

impl Pool {
    /// Takes over what is declared now. What is known of a credential stays; callers are let go only where the
    /// credential they were given is gone or is kept for another role than before.
    pub(crate) fn declare(&mut self, declarations: Vec<Declaration>) {
        let mut known = std::mem::take(&mut self.slots);
        let mut moved: Vec<u64> = Vec::new();
        for declaration in declarations {
            let same = |slot: &Slot| {
                let known = &slot.declaration;
                known.reference == declaration.reference && known.secret == declaration.secret
            };
            let slot = match known.iter().position(same).map(|place| known.swap_remove(place)) {
                Some(mut slot) => {
                    if slot.declaration.role != declaration.role {
                        moved.push(slot.id);
                    }
                    slot.declaration = Arc::new(declaration);
                    slot
                }
                None => self.slot(declaration),
            };
            self.slots.push(slot);
        }
        moved.extend(known.into_iter().map(|slot| slot.id));
        self.bindings.retain(|_, binding| !moved.contains(&binding.slot));
        // Stable: within a role the order is the one declared.
        self.slots
            .sort_by_key(|slot| std::cmp::Reverse(slot.declaration.role));
    }

    fn slot(&mut self, declaration: Declaration) -> Slot {
        self.slots_made += 1;
        Slot {
            id: self.slots_made,
            declaration: Arc::new(declaration),
            failures: 0,
            muted_until_ms: 0,
            last_until_ms: 0,
            failed_at_ms: 0,
            refused: false,
            alarmed: false,
            alarm_from_ms: 0,
        }
    }

    /// The credential for the next attempt of a request that has tried some.
    pub(crate) fn acquire(&mut self, asker: &Asker, tried: &[Lease], now_ms: u64) -> Result<Lease, Lack> {
        let bound = self
            .bindings
            .get(asker)
            .filter(|binding| tried.is_empty() && now_ms < binding.until_ms)
            .map(|binding| binding.slot);
        let mut visible = 0;
        let mut best: Option<(u8, &Slot)> = None;
        for slot in self.visible(asker) {
            visible += 1;
            if now_ms < slot.muted_until_ms || tried.iter().any(|lease| lease.slot == slot.id) {
                continue;
            }
            let rank = match (now_ms < slot.last_until_ms, bound == Some(slot.id)) {
                (false, true) => 0,
                (false, false) => 1,
                (true, _) => 2,
            };
            if best.is_none_or(|(other, _)| rank < other) {
                best = Some((rank, slot));
            }
        }
        let Some((rank, slot)) = best else {
            return Err(self.lack(asker, now_ms));
        };
        let lease = Lease {
            place: slot.declaration.place,
            slot: slot.id,
        };
        if visible > 1 && rank > 0 && tried.is_empty() {
            self.bind(asker, lease.slot, now_ms);
        }
        Ok(lease)
    }

    /// What a lease is for.
    pub(crate) fn held(&self, lease: Lease) -> Option<Held> {
        let slot = self.slots.iter().find(|slot| slot.id == lease.slot)?;
        let declaration = Arc::clone(&slot.declaration);
        Some(Held { lease, declaration })
    }

    /// The one that is asked first.
    pub(crate) fn first(&self) -> Option<Held> {
        let slot = self.slots.first()?;
        self.held(Lease {
            place: slot.declaration.place,
            slot: slot.id,
        })
    }

    /// Why the caller has none to use now.
    fn lack(&self, asker: &Asker, now_ms: u64) -> Lack {
        let failed_last = self.visible(asker).max_by_key(|slot| slot.failed_at_ms);
        let wait_ms = self.visible(asker).map(|slot| slot.wait_ms(now_ms)).min();
        match (failed_last, wait_ms) {
            (Some(slot), Some(wait_ms)) => Lack::Muted {
                refused: slot.refused,
                seconds: wait_ms.div_ceil(1_000).max(1),
            },
            _ => Lack::Reserved,
        }
    }

    /// True when the request may try another credential.
    pub(crate) fn has_other(&self, asker: &Asker, tried: &[Lease], now_ms: u64) -> bool {
        self.usable(asker, now_ms)
            .any(|slot| tried.iter().all(|lease| lease.slot != slot.id))
    }

    /// An attempt with the credential went well. Gives its name where an operator was told that it is refused.
    pub(crate) fn succeeded(&mut self, lease: Lease) -> Option<CredentialRef> {
        let slot = self.slots.iter_mut().find(|slot| slot.id == lease.slot)?;
        slot.failures = 0;
        slot.muted_until_ms = 0;
        slot.last_until_ms = 0;
        let alarmed = std::mem::take(&mut slot.alarmed);
        alarmed.then(|| slot.declaration.reference.clone())
    }

    /// A credential was refused: what an operator is to be told of it now, which is something once a minute.
    pub(crate) fn alarm(&mut self, lease: Lease, now_ms: u64) -> Option<Alarm> {
        let slot = self.slots.iter_mut().find(|slot| slot.id == lease.slot)?;
        if now_ms < slot.alarm_from_ms {
            return None;
        }
        slot.alarm_from_ms = now_ms.saturating_add(ALARM_EVERY_MS);
        Some(Alarm {
            reference: slot.declaration.reference.clone(),
            changed: !std::mem::replace(&mut slot.alarmed, true),
        })
    }

    /// Credentials of which an operator was told that they are refused.
    pub(crate) fn alarmed(&self) -> usize {
        self.slots.iter().filter(|slot| slot.alarmed).count()
    }

    /// An attempt with the last of the credentials `tried` failed for a reason that may lie in it.
    pub(crate) fn failed(&mut self, asker: &Asker, tried: &[Lease], flaw: Flaw, now_ms: u64) -> Consequence {
        let Some(lease) = tried.last() else {
            return Consequence::Free;
        };
        let untried = self.has_other(asker, tried, now_ms);
        let others = self.usable(asker, now_ms).any(|slot| slot.id != lease.slot);
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == lease.slot) else {
            return Consequence::Free;
        };
        slot.failures = slot.failures.saturating_add(1);
        slot.failed_at_ms = now_ms;
        slot.refused = flaw == Flaw::Refused;
        if untried {
            let last_ms = match flaw {
                Flaw::Refused if slot.failures >= FREE_FAILURES => MUTE_MS,
                Flaw::Limited { seconds } => seconds.unwrap_or(0).saturating_mul(1_000).min(MUTE_MS),
                Flaw::Refused => 0,
            };
            slot.last_until_ms = now_ms.saturating_add(last_ms);
            return if last_ms > 0 {
                Consequence::Last
            } else {
                Consequence::Free
            };
        }
        let mute_ms = if others {
            MUTE_MS
        } else {
            sole_mute_ms(slot.failures)
        };
        slot.muted_until_ms = now_ms.saturating_add(mute_ms);
        if mute_ms > 0 {
            Consequence::Muted
        } else {
            Consequence::Free
        }
    }

    /// What the caller may use.
    fn visible(&self, asker: &Asker) -> impl Iterator<Item = &Slot> {
        let role = asker.role;
        self.slots
            .iter()
            .filter(move |slot| slot.declaration.role <= role)
    }

    /// What he could use now, whether tried or not.
    fn usable(&self, asker: &Asker, now_ms: u64) -> impl Iterator<Item = &Slot> {
        self.visible(asker)
            .filter(move |slot| slot.muted_until_ms <= now_ms)
    }

    fn bind(&mut self, asker: &Asker, slot: u64, now_ms: u64) {
        if self.bindings.len() >= BINDINGS_MAX {
            self.bindings.clear();
        }
        let until_ms = now_ms.saturating_add(BINDING_MS);
        self.bindings.insert(asker.clone(), Binding { slot, until_ms });
    }
}

/// How long the only usable credential is muted after so many failures in a row.
fn sole_mute_ms(failures: u32) -> u64 {
    let Some(doublings) = failures.checked_sub(FREE_FAILURES + 1) else {
        return 0;
    };
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    SOLE_MUTE_MS.saturating_mul(factor).min(MUTE_MS)
}

#[cfg(test)]
mod tests;
