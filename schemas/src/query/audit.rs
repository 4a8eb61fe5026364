//! Reads of who changed what: the events `waybill.audit.v1` as the books hold them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::audit::{Audited, Kind};
use crate::id::{EventId, TenantId};
use crate::time::Timestamp;

/// Which changes: all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditFilter {
    /// Of records of this tenant.
    pub tenant: Option<TenantId>,
    /// By this member, or with this key, by id.
    pub actor: Option<Arc<str>>,
    /// Of records of this kind.
    pub kind: Option<Kind>,
    /// Of the record of this id.
    pub id: Option<Arc<str>>,
    /// Made at or after.
    pub from: Option<Timestamp>,
    /// Made before.
    pub to: Option<Timestamp>,
}

impl AuditFilter {
    /// True for a change that is asked for.
    pub fn admits(&self, audited: &Audited) -> bool {
        let Audited { change, .. } = audited;
        let by = |actor: &Arc<str>| {
            let member = change.actor.user.as_ref().map(|user| &*user.0);
            *change.actor.key_id.0 == **actor || member == Some(&**actor)
        };
        self.tenant
            .as_ref()
            .is_none_or(|tenant| *tenant == audited.tenant)
            && self.actor.as_ref().is_none_or(by)
            && self.kind.is_none_or(|kind| kind == audited.kind)
            && self.id.as_ref().is_none_or(|id| *id == audited.id)
            && self.from.is_none_or(|from| change.at >= from)
            && self.to.is_none_or(|to| change.at < to)
    }
}

/// A page of changes, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditQuery {
    /// Which.
    pub filter: AuditFilter,
    /// 1 to [`super::PAGE_ROWS_MAX`].
    pub limit: u32,
    /// Only changes older than this one: the `next` of the page before.
    pub after: Option<EventId>,
}

/// Answer to [`AuditQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditAnswer {
    /// The changes, each once. A page whose filter lets few of many through may have fewer than were asked for, or
    /// none, and still be followed by another.
    pub data: Vec<Audited>,
    /// Where the next page begins; null on the last.
    pub next: Option<EventId>,
}
