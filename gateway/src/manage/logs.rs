//! `GET /api/v1/logs` and `/api/v1/logs/{id}`: the request log, newest first.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::balance::decision::Decision;
use schemas::balance::explain::{Explanation, explain};
use schemas::failure::{Failure, FailureCode};
use schemas::id::RequestId;
use schemas::outcome::Outcome;
use schemas::query::export::Format;
use schemas::query::{
    LogAnswer, LogFilter, LogQuery, LogsAnswer, LogsQuery, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, Row,
};
use schemas::subject::{QUERY_LOG, QUERY_LOGS};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::openapi::{Operation, Parameter};
use super::page::page_size;
use super::{Parameters, READ_WITHIN, answered, ask, filtered, id, invalid, narrow, number, parameters};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

pub(crate) mod export;

/// All parameters: how a file is written, whose rows, which of them, and which page of a list.
const PARAMETERS: &[Parameter] = &[
    Parameter::new::<Format>("format", "How rows are written; ndjson where it is left out."),
    Parameter::new::<String>("tenant", "Of this tenant."),
    Parameter::new::<String>("user", "Of this member."),
    Parameter::new::<String>("key", "Of this key, by id."),
    Parameter::new::<String>("job", "Called for this job, by a grant."),
    Parameter::new::<Timestamp>("from", "Admitted at or after."),
    Parameter::new::<Timestamp>("to", "Admitted before."),
    Parameter::new::<String>("model", "Of this model."),
    Parameter::new::<String>("served_model", "Answered by this model, as rows have it."),
    Parameter::new::<String>("endpoint", "Served by this endpoint."),
    Parameter::new::<Outcome>("outcome", "Ended so."),
    Parameter::new::<u16>("status", "With this status.").like(a_status),
    Parameter::new::<RequestId>("request_id", "This request."),
    Parameter::new::<u32>("limit", "Rows of the page.").like(page_size),
    Parameter::new::<RequestId>("after", "Where the page before ended: what it said as `next`."),
];
/// Those of a list.
const FILTERS: &[Parameter] = PARAMETERS.split_at(1).1;
/// The same for who asks for his own.
pub(super) const OWN_FILTERS: &[Parameter] = FILTERS.split_at(3).1;
/// Those of a file.
const OF_FILES: &[Parameter] = PARAMETERS.split_at(PARAMETERS.len() - 2).0;

/// What the paths of the request log do.
pub(crate) const LIST: Operation =
    Operation::read::<LogsAnswer>("Lists requests that ended, the newest first")
        .taking(FILTERS)
        .of_callers();
pub(crate) const SHOW: Operation = Operation::find::<Shown>(
    "Shows one request, with the event that it came from and why it went where it went",
)
.of_callers();

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
    /// The envelope as it stands in the log; without what others did at backends and models, for those who do not operate
    /// the platform.
    event: Option<Box<RawValue>>,
    /// Why the call went where it went, as its event tells; null where it had one way and nobody was left out.
    explain: Option<Explanation>,
}

/// What is read of an event to explain it.
#[derive(Deserialize)]
struct Told {
    data: Settled,
}

#[derive(Deserialize)]
struct Settled {
    #[serde(default)]
    decision: Option<Decision>,
}

/// An event as it is told to somebody. Nobody but who operates the platform learns what others do at its backends, and at
/// its models.
pub(super) fn told_to(event: Box<RawValue>, operates: bool) -> Box<RawValue> {
    let measured = ["\"decision\"", "\"auto\""];
    if operates || !measured.iter().any(|member| event.get().contains(member)) {
        return event;
    }
    without_measures(&event).unwrap_or(event)
}

/// An event as it is told to somebody, and the explanation that it gives.
fn explained(event: Option<Box<RawValue>>, operates: bool) -> (Option<Box<RawValue>>, Option<Explanation>) {
    let told = event
        .as_ref()
        .and_then(|event| serde_json::from_str::<Told>(event.get()).ok());
    let decision = told.and_then(|told| told.data.decision);
    let shown = event.map(|event| told_to(event, operates));
    (shown, decision.map(|decision| explain(&decision, operates)))
}

/// An event without what was measured of backends and models; `None` where it has nothing of that.
fn without_measures(event: &RawValue) -> Option<Box<RawValue>> {
    let mut event: Value = serde_json::from_str(event.get()).ok()?;
    let data = event.get_mut("data")?;
    let mut gone = false;
    if let Some(decision) = data.get_mut("decision").and_then(Value::as_object_mut) {
        gone |= decision.remove("snapshot").is_some();
    }
    let candidates = data.pointer_mut("/auto/candidates").and_then(Value::as_array_mut);
    for candidate in candidates.into_iter().flatten() {
        if let Some(candidate) = candidate.as_object_mut() {
            gone |= candidate.remove("scores").is_some();
        }
    }
    gone.then(|| RawValue::from_string(event.to_string()).ok())?
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
        let (event, explain) = explained(event, caller.operates());
        Ok(Shown { row, event, explain })
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

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"id":"1","data":{"b":1,"decision":{"order":["e#1","e#0"],"snapshot":{"legs":[{"endpoint":"e","algorithm":"least_connections"}],"candidates":[{"backend":"e#0","leg":0,"calls":7},{"backend":"e#1","leg":0,"calls":2}],"draw":5},"excluded":[{"endpoint":"f","reason":"provider_disabled"}]}}}"#;

    fn event(text: &str) -> Option<Box<RawValue>> {
        RawValue::from_string(text.to_owned()).ok()
    }

    #[test]
    fn an_operator_sees_what_was_measured_and_the_event_as_it_stands() {
        let (shown, explanation) = explained(event(EVENT), true);

        assert_eq!(shown.expect("there").get(), EVENT);
        let explanation = explanation.expect("a decision");
        assert_eq!(explanation.candidates[0].score, Some(7));
        assert_eq!(explanation.excluded[0].reason, "provider_disabled");
    }

    #[test]
    fn nobody_else_learns_what_others_do_at_a_backend() {
        let (shown, explanation) = explained(event(EVENT), false);

        let shown: Value = serde_json::from_str(shown.expect("there").get()).expect("JSON");
        let order = serde_json::json!(["e#1", "e#0"]);
        assert_eq!(shown["data"]["decision"]["order"], order);
        assert_eq!(shown["data"]["decision"].get("snapshot"), None);
        assert_eq!(shown["data"]["b"], 1);
        let explanation = explanation.expect("a decision");
        assert_eq!(explanation.candidates[0].score, None);
        assert_eq!(explanation.candidates[1].backend.as_str(), "e#1");
    }

    #[test]
    fn nobody_else_learns_how_models_do_that_a_call_was_left_to() {
        let text = r#"{"data":{"auto":{"strategy":"latency","candidates":[{"model":"a","scores":{"score_micro":1,"ttft_ms":40},"failed":"upstream_error"},{"model":"b","scores":{"score_micro":1}}],"excluded":[{"model":"c","reason":"tools"}]}}}"#;
        let (shown, _) = explained(event(text), false);

        let shown: Value = serde_json::from_str(shown.expect("there").get()).expect("JSON");
        let auto = serde_json::json!({
            "strategy": "latency", "candidates": [{"model": "a", "failed": "upstream_error"}, {"model": "b"}],
            "excluded": [{"model": "c", "reason": "tools"}],
        });
        assert_eq!(shown["data"]["auto"], auto);
        assert_eq!(explained(event(text), true).0.expect("there").get(), text);
    }

    #[test]
    fn an_event_without_a_decision_is_shown_as_it_stands() {
        for text in [
            r#"{"data":{}}"#,
            r#"{"data":{"decision":null,"auto":null}}"#,
            "{}",
        ] {
            let (shown, explanation) = explained(event(text), false);
            assert_eq!(shown.expect("there").get(), text);
            assert!(explanation.is_none());
        }
        assert!(explained(None, true).0.is_none());
    }
}
