//! What differs between kinds of providers: URL, headers, authentication, and members of the body. Nothing
//! of a caller is in a URL or a header.

pub(crate) mod call;
pub(crate) mod echo;
pub(crate) mod header;
mod openrouter;
mod raw;
mod url;
mod vertex;

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use dialects::dialect::Dialect;
use dialects::member;
use dialects::splice::{Spliced, chat_upstream_body};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use schemas::catalog::{Endpoint, ProviderKind, ResponsesUse};
use schemas::command::Splice;
use schemas::event::request::Surface;
use schemas::id::BackendId;
use schemas::secret::Secret;

use crate::credential::google::Tokens;
use crate::plan::Candidate;
use crate::upstream::{Route, Target, Trust};

/// How we introduce ourselves.
pub(crate) const OUR_USER_AGENT: &str = concat!("waybill/", env!("CARGO_PKG_VERSION"));
/// Targets that are kept; beyond, all are made anew.
const TARGETS_MAX: usize = 10_000;

/// An endpoint cannot be called as it is configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The endpoint has no backend.
    #[error("the endpoint has no backend")]
    NoBackend,
    /// The URL made of base, path and query is none.
    #[error("the backend's URL is not valid")]
    Url(#[source] http::uri::InvalidUri),
    /// A header's name is none.
    #[error("the name of a header is not valid")]
    HeaderName(#[source] http::header::InvalidHeaderName),
    /// A header's value has bytes that no header may have.
    #[error("the value of a header is not valid")]
    HeaderValue(#[source] http::header::InvalidHeaderValue),
    /// Path and query would lead to another place than the backend's, or its URL says who calls.
    #[error("the URL leads elsewhere than to its backend")]
    Elsewhere,
    /// Another kind of upstream answers in process.
    #[error("the endpoint is not called over the wire")]
    InProcess,
}

/// What an upstream is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Purpose {
    /// In which dialect.
    pub(crate) dialect: Dialect,
    /// A streamed answer.
    pub(crate) stream: bool,
}

/// What an endpoint speaks with callers of a surface. Where it is not the surface's own dialect, somebody has to
/// translate.
pub(crate) const fn dialect(endpoint: &Endpoint, surface: Surface) -> Dialect {
    match endpoint.kind {
        ProviderKind::Anthropic | ProviderKind::Vertex => Dialect::Messages,
        ProviderKind::Gemini => Dialect::Gemini,
        ProviderKind::Echo => Dialect::Chat,
        ProviderKind::OpenaiCompat | ProviderKind::Openrouter => match surface {
            Surface::Embeddings => Dialect::Embeddings,
            _ => match (endpoint.responses, surface) {
                (ResponsesUse::Only, _) | (ResponsesUse::Native, Surface::Responses) => Dialect::Responses,
                (_, Surface::Completions) => Dialect::Completions,
                _ => Dialect::Chat,
            },
        },
    }
}

/// What a route depends on; the model only where it is in the URL.
type Place = (BackendId, Purpose, Option<Arc<str>>);

/// Routes, made once per backend, purpose and configuration, and tokens, made of credentials.
#[derive(Default)]
pub(crate) struct Targets {
    known: DashMap<Place, (Arc<Endpoint>, Arc<Route>)>,
    /// What credentials of Google are changed into.
    tokens: Tokens,
}

impl Targets {
    /// Where a request to `candidate` goes, authenticated with `credential`; headers of the request alone are the
    /// caller's to add.
    pub(crate) fn target(
        &self,
        candidate: &Candidate,
        purpose: Purpose,
        credential: Option<&Secret<String>>,
    ) -> Result<Target, Error> {
        let route = self.route(candidate, purpose)?;
        let proof = credential.map(|credential| proof(&candidate.endpoint, credential));
        Ok(Target {
            route,
            credential: proof.transpose()?,
            extra: Vec::new(),
        })
    }

    fn route(&self, candidate: &Candidate, purpose: Purpose) -> Result<Arc<Route>, Error> {
        let model = url::names_model(candidate.endpoint.kind).then(|| Arc::clone(&candidate.upstream_model));
        let place = (candidate.backend_id(), purpose, model);
        if let Some(known) = self.known.get(&place)
            && Arc::ptr_eq(&known.0, &candidate.endpoint)
        {
            return Ok(Arc::clone(&known.1));
        }
        let route = Arc::new(route(candidate, purpose)?);
        if self.known.len() >= TARGETS_MAX {
            self.known.clear();
        }
        let entry = (Arc::clone(&candidate.endpoint), Arc::clone(&route));
        self.known.insert(place, entry);
        Ok(route)
    }
}

/// The header that proves to an endpoint who calls.
pub(crate) fn proof(
    endpoint: &Endpoint,
    credential: &Secret<String>,
) -> Result<(HeaderName, HeaderValue), Error> {
    let name = HeaderName::from_bytes(endpoint.auth_header.as_bytes()).map_err(Error::HeaderName)?;
    let text = endpoint.auth_format.replace("{api_key}", credential.reveal());
    let mut value = HeaderValue::from_str(&text).map_err(Error::HeaderValue)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Headers that say where a message ends and what becomes of its connection: never taken from configuration.
const FRAMING: [HeaderName; 6] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

fn route(candidate: &Candidate, purpose: Purpose) -> Result<Route, Error> {
    let endpoint = candidate.endpoint.as_ref();
    let backend = candidate
        .backend
        .and_then(|index| endpoint.backends.get(index))
        .ok_or(Error::NoBackend)?;
    let uri = url::url(endpoint, backend, &candidate.upstream_model, purpose)?;
    let trust = Trust::of(endpoint);
    if trust == Trust::Egress && !url::lies_at(&uri, &backend.base_url) {
        return Err(Error::Elsewhere);
    }
    let mut headers = HeaderMap::with_capacity(8 + endpoint.extra_headers.len());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT));
    for (name, value) in &endpoint.extra_headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::HeaderName)?;
        let value = HeaderValue::from_str(value).map_err(Error::HeaderValue)?;
        if !FRAMING.contains(&name) {
            headers.insert(name, value);
        }
    }
    if !endpoint.is_keyless() {
        // The credential's header stands in the place of one that is configured.
        headers.remove(endpoint.auth_header.as_str());
    }
    Ok(Route::new(uri, headers, endpoint.http2, trust))
}

/// The caller's body, in his own dialect, as the upstream of `candidate` shall see it.
pub(crate) fn body(candidate: &Candidate, dialect: Dialect, body: &Bytes, facts: &Splice) -> Spliced {
    // Some always tell usage, and refuse to be asked for it.
    let refuses = || {
        let profile = dialects::profile::named(&candidate.endpoint.profile);
        profile.is_some_and(|profile| profile.drops.contains(&"stream_options"))
    };
    let tells_usage = matches!(dialect, Dialect::Chat | Dialect::Completions) && !refuses();
    let spliced = chat_upstream_body(body, facts, &candidate.upstream_model, tells_usage);
    complete(candidate, dialect, spliced)
}

/// What of a caller's body would choose where his request goes behind the upstream, by name: that is the operator's.
pub(crate) fn choices(endpoint: &Endpoint, body: &[u8]) -> Vec<&'static str> {
    if endpoint.kind == ProviderKind::Openrouter {
        openrouter::choices(body)
    } else {
        Vec::new()
    }
}

/// A body without the members that a server refuses although they are harmless to leave out, and the names of those
/// that it had.
pub(crate) fn without(body: Bytes, names: &[&'static str]) -> (Bytes, Vec<&'static str>) {
    let members = member::members(&body).unwrap_or_default();
    let present = |name: &&&'static str| members.iter().any(|member| member.name == **name);
    let gone: Vec<&'static str> = names.iter().filter(present).copied().collect();
    if gone.is_empty() {
        return (body, gone);
    }
    (member::without(&body, &gone), gone)
}

/// A body in the upstream's dialect, with the upstream's name of the model, and with what its kind and its endpoint
/// add to every body.
pub(crate) fn complete(candidate: &Candidate, dialect: Dialect, body: Spliced) -> Spliced {
    let endpoint = &candidate.endpoint;
    let asks_openrouter =
        endpoint.kind == ProviderKind::Openrouter && matches!(dialect, Dialect::Chat | Dialect::Completions);
    let own = if asks_openrouter { openrouter::MEMBERS } else { "" };
    let additions = [endpoint.extra_body.as_str(), own];
    let adds = additions.iter().any(|members| !members.is_empty());
    if !adds && endpoint.kind != ProviderKind::Vertex && endpoint.kind != ProviderKind::Openrouter {
        return body;
    }
    let mut whole = body.joined();
    if endpoint.kind == ProviderKind::Openrouter {
        whole = openrouter::without_choices(&openrouter::without_nulls(whole));
        whole = openrouter::preferring(&whole, &endpoint.extra_body);
    }
    if asks_openrouter {
        whole = openrouter::counting(whole);
    }
    if adds {
        let missing = member::missing(&whole, &additions);
        whole = member::with(whole, &missing);
    }
    if asks_openrouter && dialect == Dialect::Chat && !endpoint.drop_params {
        whole = openrouter::requiring(whole);
    }
    if endpoint.kind == ProviderKind::Vertex {
        whole = vertex::body(&whole);
    }
    whole.into()
}

#[cfg(test)]
mod tests;
