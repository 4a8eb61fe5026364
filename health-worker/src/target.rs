//! Whom to ask what: pure. Every backend whose endpoint says how its health is asked for, and every one that may be an
//! engine on a machine of one's own. Hosted APIs have no figures, and are not asked for any.

use std::sync::Arc;

use schemas::catalog::{Catalog, Endpoint, Origin, ProviderKind};
use schemas::id::{BackendId, EndpointId};
use schemas::pool;
use schemas::time::Timestamp;

use crate::http::Question;
use crate::verdict::Terms;

/// What engines are called that tell figures, as kinds of endpoints and as profiles.
const ENGINES: [&str; 5] = ["vllm", "sglang", "llama.cpp", "tgi", "tensorrt_llm"];
/// Where they tell them.
const FIGURES: &str = "/metrics";
/// Where they say that they live.
const ALIVE: &str = "/health";
/// What base URLs end with that figures and health are not below.
const VERSION: &str = "/v1";

/// One backend that is asked something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) endpoint_id: EndpointId,
    pub(crate) backend: BackendId,
    /// How its health is asked for.
    pub(crate) check: Option<Check>,
    /// Where its figures are, if it may be an engine.
    pub(crate) figures: Option<Question>,
    /// Whoever calls it proves that: it may want to know as well who asks for figures.
    pub(crate) is_closed: bool,
    /// Where it is asked while its circuit is open.
    pub(crate) alive: Option<Question>,
}

/// How the health of a backend is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) question: Question,
    pub(crate) terms: Terms,
    /// When its endpoint was made; `None` for those of files, which do not say.
    pub(crate) created_at: Option<Timestamp>,
}

/// Everybody who is asked something. `engines`: whether those are asked of themselves who did not say that they want it.
pub(crate) fn targets(catalog: &Catalog, engines: bool) -> Vec<Target> {
    // What only a named pool reaches cannot be asked from here.
    let apart = pool::apart(catalog);
    let endpoints = catalog.endpoints().into_iter();
    endpoints
        .filter(|endpoint| !catalog.is_off(endpoint) && !apart.contains(&endpoint.id))
        .flat_map(|endpoint| of_endpoint(endpoint, engines))
        .collect()
}

fn of_endpoint(endpoint: &Endpoint, engines: bool) -> Vec<Target> {
    let guarded = endpoint.origin == Origin::Runtime;
    let all = endpoint.backends.iter().map(|backend| {
        let ask = |path: &str| Question {
            url: address(&backend.base_url, path),
            guarded,
        };
        let check = endpoint.health_check().map(|check| Check {
            question: ask(&check.path),
            terms: Terms::from(check),
            created_at: endpoint.registered.as_ref().map(|said| said.created_at),
        });
        let is_engine = engines && may_be_engine(endpoint, &backend.base_url);
        Target {
            endpoint_id: endpoint.id.clone(),
            backend: backend.id.clone(),
            figures: is_engine.then(|| ask(FIGURES)),
            is_closed: !endpoint.credentials.is_empty() || !endpoint.sealed.is_empty(),
            alive: match &check {
                Some(check) => Some(check.question.clone()),
                None => is_engine.then(|| ask(ALIVE)),
            },
            check,
        }
    });
    all.filter(|target| target.alive.is_some()).collect()
}

/// A server of OpenAI's API that is called an engine, or is reached in the clear, as nobody reaches a hosted one.
fn may_be_engine(endpoint: &Endpoint, base_url: &str) -> bool {
    let is_called = |word: &str| ENGINES.contains(&word);
    let word = endpoint.registered.as_ref().map(|said| &*said.kind);
    endpoint.kind == ProviderKind::OpenaiCompat
        && (base_url.starts_with("http://")
            || is_called(&endpoint.profile)
            || is_called(&endpoint.provider)
            || word.is_some_and(is_called))
}

/// A path of the server itself, beside its API.
fn address(base_url: &str, path: &str) -> Arc<str> {
    let root = base_url.strip_suffix(VERSION).unwrap_or(base_url);
    format!("{root}{path}").into()
}

#[cfg(test)]
pub(crate) mod tests;
