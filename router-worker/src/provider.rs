//! What differs between kinds of providers: URL, headers, authentication, and members of the body. Nothing
//! of a caller is in a URL or a header.

pub(crate) mod echo;
mod openai;
mod openrouter;

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use dialects::splice::{Edit, Spliced, chat_upstream_body, splice};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use schemas::catalog::{Endpoint, ProviderKind};
use schemas::command::Splice;
use schemas::id::BackendId;
use schemas::secret::Secret;

use crate::plan::Candidate;
use crate::upstream::{Route, Target};

/// How we introduce ourselves.
const OUR_USER_AGENT: &str = concat!("waybill/", env!("CARGO_PKG_VERSION"));
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
    /// Another kind of upstream answers in process.
    #[error("the endpoint is not called over the wire")]
    InProcess,
}

/// Routes, without credentials, made once per backend and configuration.
#[derive(Default)]
pub(crate) struct Targets {
    known: DashMap<BackendId, (Arc<Endpoint>, Arc<Route>)>,
}

impl Targets {
    /// Where a request to `candidate` goes, authenticated with `credential`.
    pub(crate) fn target(
        &self,
        candidate: &Candidate,
        credential: Option<&Secret<String>>,
    ) -> Result<Target, Error> {
        let endpoint = &candidate.endpoint;
        let route = self.route(candidate)?;
        let mut header = None;
        if let Some(credential) = credential {
            let name = HeaderName::from_bytes(endpoint.auth_header.as_bytes()).map_err(Error::HeaderName)?;
            let text = endpoint.auth_format.replace("{api_key}", credential.reveal());
            let mut value = HeaderValue::from_str(&text).map_err(Error::HeaderValue)?;
            value.set_sensitive(true);
            header = Some((name, value));
        }
        Ok(Target {
            route,
            credential: header,
        })
    }

    fn route(&self, candidate: &Candidate) -> Result<Arc<Route>, Error> {
        let backend = candidate.backend_id();
        if let Some(known) = self.known.get(&backend)
            && Arc::ptr_eq(&known.0, &candidate.endpoint)
        {
            return Ok(Arc::clone(&known.1));
        }
        let route = Arc::new(route(candidate)?);
        if self.known.len() >= TARGETS_MAX {
            self.known.clear();
        }
        let entry = (Arc::clone(&candidate.endpoint), Arc::clone(&route));
        self.known.insert(backend, entry);
        Ok(route)
    }
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

fn route(candidate: &Candidate) -> Result<Route, Error> {
    let endpoint = candidate.endpoint.as_ref();
    let backend = candidate
        .backend
        .and_then(|index| endpoint.backends.get(index))
        .ok_or(Error::NoBackend)?;
    let uri = match endpoint.kind {
        ProviderKind::OpenaiCompat | ProviderKind::Openrouter => openai::url(endpoint, backend)?,
        ProviderKind::Echo | ProviderKind::Anthropic | ProviderKind::Vertex | ProviderKind::Gemini => {
            return Err(Error::InProcess);
        }
    };
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
    if !endpoint.credentials.is_empty() {
        // The credential's header stands in the place of one that is configured.
        headers.remove(endpoint.auth_header.as_str());
    }
    Ok(Route::new(uri, headers, endpoint.http2))
}

/// The caller's body as the upstream of `candidate` shall see it.
pub(crate) fn body(candidate: &Candidate, body: &Bytes, facts: &Splice) -> Spliced {
    let endpoint = &candidate.endpoint;
    let spliced = chat_upstream_body(body, facts, &candidate.upstream_model, true);
    let own = match endpoint.kind {
        ProviderKind::Openrouter => openrouter::MEMBERS,
        _ => "",
    };
    let additions = [endpoint.extra_body.as_str(), own];
    if additions.iter().all(|members| members.is_empty()) {
        return spliced;
    }
    let whole = spliced.joined();
    let missing = openai::missing_members(&whole, &additions);
    if missing.is_empty() {
        return whole.into();
    }
    let at = facts.insert_at..facts.insert_at;
    splice(
        &whole,
        &[Edit {
            range: at,
            with: Bytes::from(missing),
        }],
    )
    .into()
}

#[cfg(test)]
mod tests;
