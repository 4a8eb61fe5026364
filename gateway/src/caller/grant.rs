//! Credentials that reach less than their role: keys of endpoints and grants only call models, on paths that are
//! listed whole. And the token by which whoever hands out grants is known.

use axum::extract::{FromRef, FromRequestParts};
use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use schemas::catalog::grant::Reach;
use schemas::catalog::{Key, KeyDigest};
use schemas::failure::{Failure, FailureCode};
use schemas::id::KeyId;

use super::{Caller, Digester, admin, credential};
use crate::arrival::Arrival;
use crate::path;
use crate::state::Shared;

/// What those are called who hand out grants, in histories.
const DISPATCH: &str = "grant-dispatch";

/// Where a request goes, as far as it matters to narrow credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Door {
    /// A model is asked for an answer, or its prompt is counted.
    Answers,
    /// A model is asked, on a path that is not for grants.
    Calls,
    /// Something passes to an endpoint as it is.
    Passes,
    /// Anything else.
    #[default]
    Other,
}

impl Door {
    /// The door of a path without slashes that mean nothing.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions"
            | "/v1/completions"
            | "/v1/messages"
            | "/v1/messages/count_tokens"
            | "/v1/responses"
            | "/anthropic/v1/messages"
            | "/anthropic/v1/messages/count_tokens" => Self::Answers,
            _ if crate::inference::call::Call::of(path).is_some() || path::COUNTS.contains(&path) => {
                Self::Calls
            }
            _ if path.starts_with(crate::proxy::PREFIX) => Self::Passes,
            _ => Self::Other,
        }
    }

    /// May a credential go through?
    fn lets_in(self, reach: &Reach) -> bool {
        match reach {
            Reach::Member => true,
            Reach::Endpoint(_) => self != Self::Other,
            Reach::Grant(_) => self == Self::Answers,
        }
    }
}

/// The caller, if his credential reaches as far as the door.
pub(super) fn within_reach(caller: Caller, door: Door) -> Result<Caller, Failure> {
    if door.lets_in(&caller.key.reach) {
        return Ok(caller);
    }
    let text = "the credential calls models and nothing else, and not on this path";
    Err(Failure::new(FailureCode::InsufficientScope, text))
}

/// The digest of a token that may be blank, which is none.
pub(super) fn token(digester: &Digester, token: Option<&str>) -> Option<KeyDigest> {
    let token = token.map(str::trim).filter(|token| !token.is_empty());
    token.map(|token| digester.digest(token))
}

/// Whoever hands out grants: known by a token of its own, which is good for nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for Dispatch
where
    Shared: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let arrival = Arrival::of(&parts.extensions);
        let known = dispatcher(&Shared::from_ref(state), &parts.headers);
        let failure = match known {
            Some(true) => return Ok(Self(caller())),
            Some(false) => {
                let _ = Caller::from_request_parts(parts, state).await?;
                Failure::new(
                    FailureCode::InsufficientScope,
                    "only whoever hands out grants may do this",
                )
            }
            None => Failure::new(FailureCode::NotFound, "there is no such path"),
        };
        Err(arrival.refuse_unread(&failure))
    }
}

/// Whether a request brings the token of whoever hands out grants; `None` where nobody does.
fn dispatcher(state: &Shared, headers: &HeaderMap) -> Option<bool> {
    let own = state.doorkeeper.dispatch?;
    // Digests are compared, never tokens: how long that takes tells nothing about the token.
    let brings = credential(headers).is_some_and(|token| state.doorkeeper.digest(token) == own);
    Some(brings && !state.stale())
}

fn caller() -> Caller {
    Caller {
        key: std::sync::Arc::new(Key {
            id: KeyId::from(DISPATCH),
            name: DISPATCH.into(),
            ..admin()
        }),
    }
}

#[cfg(test)]
mod tests {
    use schemas::id::EndpointId;

    use super::*;

    fn lets_in(path: &str) -> (bool, bool) {
        let door = Door::of(&path::plain(path));
        let endpoint = Reach::Endpoint(EndpointId::from("e"));
        assert!(door.lets_in(&Reach::Member), "{path}");
        (door.lets_in(&Reach::Grant("job".into())), door.lets_in(&endpoint))
    }

    #[test]
    fn grants_ask_models_on_whole_paths_and_endpoints_keys_may_embed_as_well() {
        for path in [
            "/v1/chat/completions",
            "/v1/chat/completions/",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/v1/responses/",
            "/anthropic/v1/messages",
            "/anthropic/v1/messages/count_tokens",
        ] {
            assert_eq!(lets_in(path), (true, true), "{path}");
        }
        for path in [
            "/v1/embeddings",
            "/completion",
            "/api/v1/proxy/e/v1/chat/completions",
        ] {
            assert_eq!(lets_in(path), (false, true), "{path}");
        }
        for path in [
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/input_items",
            "/v1/chat/completions/x",
            "/v1/models",
            "/v1/models/m",
            "/anthropic/user/balance",
            "/api/v1/logs",
            "/api/v1/users",
            "/routing",
            "/health/deep",
            "/internal/agent-grants",
            "/V1/CHAT/COMPLETIONS",
            "/v1/chat%2Fcompletions",
            "/v1/batches",
            "/",
        ] {
            assert_eq!(lets_in(path), (false, false), "{path}");
        }
    }
}
