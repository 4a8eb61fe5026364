//! `GET /api/v1/logs` and `/api/v1/logs/{id}`: the request log, newest first.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::failure::{Failure, FailureCode};
use schemas::id::RequestId;
use schemas::outcome::Outcome;
use schemas::query::{
    LogAnswer, LogFilter, LogQuery, LogsAnswer, LogsQuery, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, Row,
};
use schemas::subject::{QUERY_LOG, QUERY_LOGS};
use schemas::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::openapi::{Operation, Parameter};
use super::page::page_size;
use super::{Parameters, READ_WITHIN, answered, ask, filtered, id, invalid, narrow, number, parameters};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// The parameters that filter rows: first whose they are.
const FILTERS: &[Parameter] = &[
    Parameter::new::<String>("tenant", "Of this tenant."),
    Parameter::new::<String>("user", "Of this member."),
    Parameter::new::<String>("key", "Of this key, by id."),
    Parameter::new::<Timestamp>("from", "Admitted at or after."),
    Parameter::new::<Timestamp>("to", "Admitted before."),
    Parameter::new::<String>("model", "Of this model."),
    Parameter::new::<String>("endpoint", "Served by this endpoint."),
    Parameter::new::<Outcome>("outcome", "Ended so."),
    Parameter::new::<u16>("status", "With this status.").like(a_status),
    Parameter::new::<RequestId>("request_id", "This request."),
    Parameter::new::<u32>("limit", "Rows of the page.").like(page_size),
    Parameter::new::<RequestId>("after", "Where the page before ended: what it said as `next`."),
];
/// The same for who asks for his own.
pub(super) const OWN_FILTERS: &[Parameter] = FILTERS.split_at(3).1;

/// What the paths of the request log do.
pub(crate) const LIST: Operation =
    Operation::read::<LogsAnswer>("Lists requests that ended, the newest first")
        .taking(FILTERS)
        .of_callers();
pub(crate) const SHOW: Operation =
    Operation::find::<Shown>("Shows one request, with the event that it came from").of_callers();

fn a_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 100, "maximum": 599})
}

/// A page of rows.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let read = async {
        let query = query(&parameters(given)?, &caller)?;
        ask::<_, Box<RawValue>>(&state, QUERY_LOGS, &query, READ_WITHIN).await
    };
    answered(&arrival, read.await)
}

/// A row with the event it came from.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RowWithEvent")]
struct Shown {
    #[serde(flatten)]
    row: Row,
    /// The envelope as it stands in the log.
    event: Option<Box<RawValue>>,
}

/// One row.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request_id: Result<Path<String>, PathRejection>,
) -> Response {
    let read = async {
        let none = || Failure::new(FailureCode::NotFound, "there is no such request");
        let Path(request_id) = request_id.map_err(|_| none())?;
        let request_id = RequestId(request_id.parse().map_err(|_| none())?);
        let mut filter = LogFilter::default();
        narrow(&mut filter, &caller)?;
        let query = LogQuery {
            request_id,
            tenant: filter.tenant,
            key: filter.key,
        };
        let LogAnswer { row, event } = ask(&state, QUERY_LOG, &query, READ_WITHIN).await?;
        let is_theirs = |row: &Row| filter.user.is_none() || row.settled.user == filter.user;
        let row = row.filter(is_theirs).ok_or_else(none)?;
        Ok(Shown { row, event })
    };
    answered(&arrival, read.await)
}

/// The question behind the parameters of a URL.
pub(super) fn query(given: &[(String, String)], caller: &Caller) -> Result<LogsQuery, Failure> {
    let mut query = LogsQuery {
        filter: LogFilter::default(),
        limit: PAGE_ROWS_DEFAULT,
        after: None,
    };
    for (name, value) in given {
        match name.as_str() {
            "limit" => query.limit = number(name, value, 1, PAGE_ROWS_MAX)?,
            "after" => query.after = Some(RequestId(id(name, value)?)),
            _ => filtered(&mut query.filter, name, value)
                .unwrap_or_else(|| Err(invalid(name, "there is no such parameter")))?,
        }
    }
    narrow(&mut query.filter, caller)?;
    Ok(query)
}
