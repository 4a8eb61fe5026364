//! What was changed of records that are no more. Their own histories went with them; the log has kept every change, and
//! the books tell of it for as long as they are kept.

use std::sync::Arc;

use schemas::catalog::Role;
use schemas::catalog::change::Change;
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::query::PAGE_ROWS_MAX;
use schemas::query::audit::{AuditAnswer, AuditFilter, AuditQuery};
use schemas::subject::QUERY_AUDIT;

use super::records::{self, History};
use super::resource::Act;
use super::{READ_WITHIN, ask};
use crate::peers;

/// Questions that one history asks of the books.
const PAGES_MAX: usize = 8;

/// Who changed a record that was, and what, as far as the caller might have seen it: operators all, administrators what
/// was their tenant's. The newest change is that it went. 404 for what never was, and for what is another tenant's.
pub(super) async fn history(act: &Act<'_>, kind: Kind, id: &Arc<str>) -> Result<History, Failure> {
    let filter = AuditFilter {
        tenant: (act.caller.role() != Role::Operator).then(|| act.caller.tenant().clone()),
        kind: Some(kind),
        id: Some(Arc::clone(id)),
        ..AuditFilter::default()
    };
    let mut told = changes(act, &filter).await?;
    if !told.first().is_some_and(is_of_removal) {
        // What was changed a moment ago may be under way.
        peers::booked(act.state).await;
        told = changes(act, &filter).await?;
    }
    if told.is_empty() {
        return Err(records::nothing());
    }
    Ok(History::of(told))
}

/// The changes that are asked for, the newest first.
async fn changes(act: &Act<'_>, filter: &AuditFilter) -> Result<Vec<Change>, Failure> {
    let mut query = AuditQuery {
        filter: filter.clone(),
        limit: PAGE_ROWS_MAX,
        after: None,
    };
    let mut told = Vec::new();
    for _ in 0..PAGES_MAX {
        let AuditAnswer { data, next } = ask(act.state, QUERY_AUDIT, &query, READ_WITHIN).await?;
        told.extend(data.into_iter().map(|audited| audited.change));
        query.after = next;
        if next.is_none() {
            break;
        }
    }
    Ok(told)
}

/// True for a change after which nothing is left.
fn is_of_removal(change: &Change) -> bool {
    !change.fields.is_empty() && change.fields.values().all(|field| field.to.is_null())
}
