//! The same reads under the paths of consoles: `/admin/..` for administrators, `/user/..` for whoever calls, of what is
//! his own. They only say for whom the question is; whoever answers it is the same.

use axum::extract::{Query, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::failure::Failure;
use serde::Serialize;

use super::openapi::Operation;
use super::{Parameters, invalid, json, keys, logs, parameters, rights, usage};
use crate::arrival::Arrival;
use crate::caller::{Caller, session};
use crate::inference::call::Call;
use crate::state::Shared;

/// What a node can do, for clients that look before they call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Capabilities")]
pub(crate) struct Capabilities {
    /// The program's version.
    version: &'static str,
    /// The paths on which models are called.
    surfaces: Vec<&'static str>,
    /// The version of OpenAPI in which the management API is described.
    openapi: &'static str,
}

/// What the paths do.
pub(crate) const CAPABILITIES: Operation =
    Operation::read::<Capabilities>("Tells what the node can do").of_everybody();
pub(crate) const RECENT: Operation = logs::LIST.of_administrators();
pub(crate) const STATS: Operation = usage::SUMS.of_administrators();
pub(crate) const OWN_RECENT: Operation = logs::LIST.taking(logs::OWN_FILTERS);
pub(crate) const OWN_USAGE: Operation = usage::SUMS.taking(usage::OWN_PARAMETERS);
pub(crate) const OF_TENANT: Operation = usage::SUMS.of_administrators();
pub(crate) const OWN_KEYS: Operation =
    Operation::list::<keys::Shown<'static>>("Lists the caller's own keys, by id").of_callers();

/// What the node can do.
pub(crate) async fn capabilities() -> Response {
    json(&Capabilities {
        version: env!("CARGO_PKG_VERSION"),
        surfaces: Call::PATHS.iter().map(|(path, _)| *path).collect(),
        openapi: "3.1.0",
    })
}

/// The request log, for administrators.
pub(crate) async fn recent(
    state: State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    match rights::administers(&caller) {
        Ok(()) => logs::list(state, arrival, caller, given).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Sums of usage, for administrators.
pub(crate) async fn stats(
    state: State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    match rights::administers(&caller) {
        Ok(()) => usage::sums(state, arrival, caller, given).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Sums of the usage of one tenant: the caller's own unless he names another.
pub(crate) async fn of_tenant(
    state: State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let asked = rights::administers(&caller).and_then(|()| of_own_tenant(&caller, given));
    match asked {
        Ok(given) => usage::sums(state, arrival, caller, Ok(Query(given))).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The caller's own requests.
pub(crate) async fn own_recent(
    state: State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    match of_himself(&caller, given) {
        Ok(given) => logs::list(state, arrival, caller, Ok(Query(given))).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Sums of the caller's own usage.
pub(crate) async fn own_usage(
    state: State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    match of_himself(&caller, given) {
        Ok(given) => usage::sums(state, arrival, caller, Ok(Query(given))).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The parameters with the tenant that is asked about.
fn of_own_tenant(caller: &Caller, given: Parameters) -> Result<Vec<(String, String)>, Failure> {
    let mut given = parameters(given)?;
    if !given.iter().any(|(name, _)| name == "tenant") {
        given.push(("tenant".to_owned(), caller.tenant().to_string()));
    }
    Ok(given)
}

/// The parameters with whose requests they are about: those of the member who signed in, or of the key. Whoever names
/// somebody is refused, since he would be asked about twice.
fn of_himself(caller: &Caller, given: Parameters) -> Result<Vec<(String, String)>, Failure> {
    let mut given = parameters(given)?;
    for (name, _) in &given {
        if ["tenant", "user", "key"].contains(&name.as_str()) {
            return Err(invalid(name.clone(), "there is no such parameter"));
        }
    }
    given.push(("tenant".to_owned(), caller.tenant().to_string()));
    given.push(match session::member(caller) {
        Some((_, user)) => ("user".to_owned(), user.to_string()),
        None => ("key".to_owned(), caller.key.id.to_string()),
    });
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{caller, pairs, session};
    use super::*;
    use schemas::catalog::Role;

    #[test]
    fn whoever_asks_for_himself_asks_for_nobody_else() {
        let asked = |given: &[(&str, &str)], caller: &Caller| {
            of_himself(caller, Ok(Query(pairs(given)))).map_err(|refused| refused.param)
        };

        let key = asked(&[("limit", "3")], &caller(Role::Operator));
        assert_eq!(
            key,
            Ok(pairs(&[("limit", "3"), ("tenant", "acme"), ("key", "k1")]))
        );
        let member = asked(&[], &session("ann", Role::Free));
        assert_eq!(member, Ok(pairs(&[("tenant", "acme"), ("user", "ann")])));
        for name in ["tenant", "user", "key"] {
            assert_eq!(
                asked(&[(name, "x")], &caller(Role::Operator)),
                Err(Some(name.into()))
            );
        }
    }

    #[test]
    fn sums_of_a_tenant_are_of_the_callers_own_unless_he_names_another() {
        let asked = |given: &[(&str, &str)]| {
            of_own_tenant(&caller(Role::Operator), Ok(Query(pairs(given)))).expect("parameters")
        };

        assert_eq!(asked(&[]), pairs(&[("tenant", "acme")]));
        assert_eq!(asked(&[("tenant", "beta")]), pairs(&[("tenant", "beta")]));
    }
}
