//! The management API. Reads of the books are questions over the bus that the ledger answers; changes go to the
//! catalogue by compare-and-set. Nobody sees or grants more than he has.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::Response;
use bus::BusError;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use schemas::failure::{Failure, FailureCode};
use schemas::query::{LogFilter, QueryError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arrival::Arrival;
use crate::caller::{Caller, session};
use crate::state::Shared;
use schemas::catalog::Role;

mod again;
pub(crate) mod aliases;
pub(crate) mod audit;
pub(crate) mod config;
pub(crate) mod counters;
mod creation;
mod credentials;
pub(crate) mod description;
pub(crate) mod endpoint_keys;
pub(crate) mod endpoint_test;
pub(crate) mod endpoints;
pub(crate) mod feed;
mod former;
pub(crate) mod grants;
pub(crate) mod keys;
pub(crate) mod logs;
pub(crate) mod model_routes;
pub(crate) mod models;
pub(crate) mod nodes;
pub(crate) mod openapi;
mod page;
pub(crate) mod policies;
pub(crate) mod prices;
pub(crate) mod providers;
pub(crate) mod records;
pub(crate) mod reprice;
pub(crate) mod resource;
pub(crate) mod rights;
mod sealing;
pub(crate) mod settings;
pub(crate) mod system;
pub(crate) mod temperatures;
pub(crate) mod tenants;
mod upsert;
pub(crate) mod usage;
pub(crate) mod users;

/// How long the ledger may take to answer a read.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The parameters of a URL, in order.
pub(crate) type Parameters = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// An answer of status 200.
pub(crate) fn json<T: Serialize>(value: &T) -> Response {
    // Our own types always serialize.
    raw_json(serde_json::to_vec(value).unwrap_or_default())
}

/// The same of JSON that is written already.
pub(crate) fn raw_json(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The answer to a call that reads something.
fn answered<T: Serialize>(arrival: &Arrival, read: Result<T, Failure>) -> Response {
    match read {
        Ok(value) => json(&value),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Asks whoever serves `subject` and reads his answer.
pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(
    state: &Shared,
    subject: &str,
    question: &Q,
    wait: Duration,
) -> Result<A, Failure> {
    let question = serde_json::to_vec(question).map_err(|_| internal())?;
    let answered = state.ports.bus.ask(subject, question.into(), wait).await;
    let answer = answered.map_err(|problem| match problem {
        BusError::Timeout => unavailable("the answer took too long"),
        _ => unavailable("nobody answers this at the moment"),
    })?;
    let answer: Result<A, QueryError> = serde_json::from_slice(&answer).map_err(|_| internal())?;
    answer.map_err(|problem| match problem {
        QueryError::Invalid(text) => Failure::new(FailureCode::InvalidRequest, text),
        QueryError::Unavailable => unavailable("the books are not available at the moment"),
    })
}

fn unavailable(text: &'static str) -> Failure {
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(2)
}

fn internal() -> Failure {
    Failure::new(FailureCode::Internal, "the answer cannot be read")
}

/// A parameter that is not what it should be.
fn invalid(param: impl Into<String>, text: &'static str) -> Failure {
    Failure::new(FailureCode::InvalidRequest, text).param(param.into())
}

fn scope(text: &'static str) -> Failure {
    Failure::new(FailureCode::InsufficientScope, text)
}

/// Narrows a filter to what the caller may read: operators everything, administrators their tenant, others their key.
fn narrow(filter: &mut LogFilter, caller: &Caller) -> Result<(), Failure> {
    if caller.role() == Role::Operator {
        return Ok(());
    }
    let tenant = filter.tenant.get_or_insert_with(|| caller.tenant().clone());
    if tenant != caller.tenant() {
        return Err(scope("the key may not read other tenants").param("tenant"));
    }
    if caller.role() == Role::Admin {
        return Ok(());
    }
    if let Some((_, user)) = session::member(caller) {
        // Whoever signed in reads what his keys did.
        return match filter.user.get_or_insert_with(|| user.clone()) {
            asked if asked == user => Ok(()),
            _ => Err(scope("nobody may read what other members did").param("user")),
        };
    }
    let key = filter.key.get_or_insert_with(|| caller.key.id.clone());
    if *key != caller.key.id {
        return Err(scope("the key may not read other keys").param("key"));
    }
    Ok(())
}

/// The parameters of a URL; one that is said twice is an error.
pub(crate) fn parameters(parameters: Parameters) -> Result<Vec<(String, String)>, Failure> {
    let text = "the query of the URL does not parse";
    let Query(pairs) = parameters.map_err(|_| Failure::new(FailureCode::InvalidRequest, text))?;
    for (index, (name, _)) in pairs.iter().enumerate() {
        if pairs[..index].iter().any(|(other, _)| other == name) {
            return Err(invalid(name, "the parameter is given twice"));
        }
    }
    Ok(pairs)
}

/// Reads a parameter that filters rows. `None` when it is none of those.
fn filtered(filter: &mut LogFilter, name: &str, value: &str) -> Option<Result<(), Failure>> {
    use schemas::id::{EndpointId, KeyId, ModelName, RequestId, TenantId, UserId};
    use schemas::time::Timestamp;

    let time = || Timestamp::parse(value).ok_or_else(|| invalid(name, "expected an RFC 3339 time"));
    let read = match name {
        "from" => time().map(|time| filter.from = Some(time)),
        "to" => time().map(|time| filter.to = Some(time)),
        "tenant" => {
            filter.tenant = Some(TenantId::from(value));
            Ok(())
        }
        "user" => {
            filter.user = Some(UserId::from(value));
            Ok(())
        }
        "key" => {
            filter.key = Some(KeyId::from(value));
            Ok(())
        }
        "job" => {
            filter.job = Some(value.into());
            Ok(())
        }
        "model" => {
            filter.model = Some(ModelName::from(value));
            Ok(())
        }
        "served_model" => {
            filter.served_model = Some(value.to_owned());
            Ok(())
        }
        "endpoint" => {
            filter.endpoint = Some(EndpointId::from(value));
            Ok(())
        }
        "outcome" => word(name, value).map(|outcome| filter.outcome = Some(outcome)),
        "status" => number(name, value, 100, 599).map(|status| filter.status = u16::try_from(status).ok()),
        "request_id" => id(name, value).map(|id| filter.request_id = Some(RequestId(id))),
        _ => return None,
    };
    Some(read)
}

/// A word of a closed list.
fn word<T: DeserializeOwned>(name: &str, value: &str) -> Result<T, Failure> {
    let quoted = serde_json::to_string(value).unwrap_or_default();
    serde_json::from_str(&quoted).map_err(|_| invalid(name, "the value is not one of the known ones"))
}

/// A whole number within bounds.
fn number(name: &str, value: &str, min: u32, max: u32) -> Result<u32, Failure> {
    let number = value.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| {
        let text = format!("expected a whole number from {min} to {max}");
        Failure::new(FailureCode::InvalidRequest, text).param(name.to_owned())
    })
}

/// A request's id.
fn id(name: &str, value: &str) -> Result<uuid::Uuid, Failure> {
    value.parse().map_err(|_| invalid(name, "expected a request id"))
}

#[cfg(test)]
mod tests;
