//! `GET /api/v1/audit`: who changed what, over all records and for as long as the books are kept. Operators read all of
//! it, administrators what was changed of their own tenant, whoever changed it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemas::catalog::Role;
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{EventId, TenantId};
use schemas::query::audit::{AuditAnswer, AuditFilter, AuditQuery};
use schemas::query::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX};
use schemas::subject::QUERY_AUDIT;
use schemas::time::Timestamp;
use serde_json::value::RawValue;

use super::openapi::{Operation, Parameter};
use super::page::page_size;
use super::{Parameters, READ_WITHIN, answered, ask, id, invalid, number, parameters, rights, word};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// What a list may be narrowed by.
const FILTERS: &[Parameter] = &[
    Parameter::new::<String>("tenant", "Of records of this tenant."),
    Parameter::new::<String>("actor", "By this member, or with this key, by id."),
    Parameter::new::<Kind>("kind", "Of records of this kind."),
    Parameter::new::<String>("id", "Of the record of this id."),
    Parameter::new::<Timestamp>("from", "Made at or after."),
    Parameter::new::<Timestamp>("to", "Made before."),
    Parameter::new::<u32>("limit", "Changes of the page.").like(page_size),
    Parameter::new::<EventId>("after", "Where the page before ended: what it said as `next`."),
];

/// What the path does.
pub(crate) const LIST: Operation =
    Operation::read::<AuditAnswer>("Tells who changed what, the newest first").taking(FILTERS);

/// A page of changes.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let read = async {
        rights::administers(&caller)?;
        let query = query(&parameters(given)?, &caller)?;
        ask::<_, Box<RawValue>>(&state, QUERY_AUDIT, &query, READ_WITHIN).await
    };
    answered(&arrival, read.await)
}

/// The question behind the parameters of a URL. Only operators ask for every tenant.
fn query(given: &[(String, String)], caller: &Caller) -> Result<AuditQuery, Failure> {
    let mut query = AuditQuery {
        filter: AuditFilter::default(),
        limit: PAGE_ROWS_DEFAULT,
        after: None,
    };
    let filter = &mut query.filter;
    let time = |name: &str, value: &str| {
        Timestamp::parse(value).ok_or_else(|| invalid(name, "expected an RFC 3339 time"))
    };
    for (name, value) in given {
        match name.as_str() {
            "tenant" => filter.tenant = Some(TenantId::from(value.as_str())),
            "actor" => filter.actor = Some(Arc::from(value.as_str())),
            "kind" => filter.kind = Some(word(name, value)?),
            "id" => filter.id = Some(Arc::from(value.as_str())),
            "from" => filter.from = Some(time(name, value)?),
            "to" => filter.to = Some(time(name, value)?),
            "limit" => query.limit = number(name, value, 1, PAGE_ROWS_MAX)?,
            "after" => query.after = Some(EventId(id(name, value)?)),
            _ => return Err(invalid(name, "there is no such parameter")),
        }
    }
    if caller.role() != Role::Operator {
        filter.tenant = Some(rights::tenant(
            caller,
            filter.tenant.as_ref().map(TenantId::as_str),
        )?);
    }
    Ok(query)
}
