//! A request that passes as it is: to the root of a backend, with the endpoint's credential in the place of its
//! caller's. What is configured for the endpoint goes before what its caller says.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use schemas::catalog::{Backend, Endpoint, ProviderKind};
use schemas::command::Raw;
use schemas::secret::Secret;
use schemas::wake;

use super::{Error, FRAMING, OUR_USER_AGENT, proof, url};
use crate::plan::Candidate;

/// The request as its upstream gets it.
pub(crate) fn request(
    candidate: &Candidate,
    raw: &Raw,
    credential: Option<&Secret<String>>,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, Error> {
    let endpoint = candidate.endpoint.as_ref();
    if endpoint.kind == ProviderKind::Echo {
        return Err(Error::InProcess);
    }
    let backend = candidate
        .backend
        .and_then(|index| endpoint.backends.get(index))
        .ok_or(Error::NoBackend)?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::from_bytes(raw.method.as_bytes()).map_err(|_| Error::Elsewhere)?;
    *request.uri_mut() = uri(endpoint, backend, &raw.target)?;
    let headers = request.headers_mut();
    for (name, value) in &raw.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::HeaderName)?;
        if !FRAMING.contains(&name) && name != HOST && !is_of_endpoint(endpoint, &name) {
            headers.append(&name, HeaderValue::from_str(value).map_err(Error::HeaderValue)?);
        }
    }
    if !headers.contains_key(USER_AGENT) {
        headers.insert(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT));
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &endpoint.extra_headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::HeaderName)?;
        if !FRAMING.contains(&name) {
            headers.insert(name, HeaderValue::from_str(value).map_err(Error::HeaderValue)?);
        }
    }
    if let Some(credential) = credential {
        let (name, value) = proof(endpoint, credential)?;
        headers.insert(name, value);
    }
    Ok(request)
}

/// True for headers that are the endpoint's to set.
fn is_of_endpoint(endpoint: &Endpoint, name: &HeaderName) -> bool {
    let is = |own: &str| own.eq_ignore_ascii_case(name.as_str());
    is(&endpoint.auth_header) || endpoint.extra_headers.iter().any(|(own, _)| is(own))
}

/// Where it goes: below the root of the backend, with the endpoint's own query behind what was asked.
fn uri(endpoint: &Endpoint, backend: &Backend, target: &str) -> Result<Uri, Error> {
    let root = wake::root(&backend.base_url);
    let (path, asked) = target.split_once('?').unwrap_or((target, ""));
    let asked = dialects::raw::target::query(asked, |name, _| {
        let mut own = endpoint.query.split('&').filter_map(dialects::raw::target::pair);
        own.any(|(own, _)| own == name)
    });
    let queries = [asked.as_str(), endpoint.query.as_str()];
    let queries: Vec<&str> = queries.into_iter().filter(|query| !query.is_empty()).collect();
    let mark = if queries.is_empty() { "" } else { "?" };
    let text = format!("{root}{path}{mark}{}", queries.join("&"));
    let uri: Uri = text.parse().map_err(Error::Url)?;
    let base: Uri = root.parse().map_err(Error::Url)?;
    let below = uri.path().starts_with(base.path().trim_end_matches('/')) && path.starts_with('/');
    if !below || !url::lies_at(&uri, root) {
        return Err(Error::Elsewhere);
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::endpoint;

    fn sent(
        endpoint: Endpoint,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<Request<Full<Bytes>>, Error> {
        let candidate = Candidate {
            endpoint: Arc::new(endpoint),
            backend: Some(0),
            upstream_model: "m".into(),
            context_length: 0,
            takes: Arc::default(),
            bypass: false,
        };
        let raw = Raw {
            method: "PATCH".into(),
            target: target.into(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            upstream_model: "m".into(),
        };
        let credential = Secret::new("the endpoint's".to_owned());
        request(&candidate, &raw, Some(&credential), Bytes::from_static(b"x"))
    }

    fn url_of(base: &str, query: &str, target: &str) -> Option<String> {
        let endpoint = Endpoint {
            query: query.to_owned(),
            ..endpoint("e", &[base])
        };
        let sent = sent(endpoint, target, &[]).ok()?;
        Some(sent.uri().to_string())
    }

    #[test]
    fn a_target_lies_below_the_root_of_its_backend() {
        for (base, query, target, expected) in [
            ("http://h:1/v1", "", "/v1/models", "http://h:1/v1/models"),
            (
                "http://h:1",
                "",
                "/v1/models?a=%20&b",
                "http://h:1/v1/models?a=%20&b",
            ),
            ("https://h/api/v1", "", "/v1/x", "https://h/api/v1/x"),
            ("https://h/", "v=1", "/x", "https://h/x?v=1"),
            ("https://h/", "v=1", "/x?v=2&w=3", "https://h/x?w=3&v=1"),
            ("https://h", "", "/@evil.example/", "https://h/@evil.example/"),
        ] {
            assert_eq!(
                url_of(base, query, target).as_deref(),
                Some(expected),
                "{base} {target}"
            );
        }
        for target in ["@evil.example/", ".evil.example/", ":80/x", "", "?x"] {
            assert_eq!(url_of("https://h", "", target), None, "{target}");
        }
    }

    #[test]
    fn what_is_the_endpoints_goes_before_what_the_caller_says() {
        let endpoint = Endpoint {
            extra_headers: vec![("x-org".to_owned(), "ours".to_owned())],
            ..endpoint("e", &["http://h"])
        };
        let headers = [
            ("authorization", "Bearer theirs"),
            ("x-org", "theirs"),
            ("x-other", "a"),
            ("x-other", "b"),
            ("user-agent", "their agent"),
            ("accept-encoding", "br"),
            ("host", "evil.example"),
            ("transfer-encoding", "chunked"),
        ];
        let sent = sent(endpoint, "/x", &headers).expect("a request");

        let of = |name: &str| -> Vec<&str> {
            let values = sent.headers().get_all(name).iter();
            values.map(|value| value.to_str().expect("text")).collect()
        };
        assert_eq!(of("authorization"), ["Bearer the endpoint's"]);
        assert_eq!(of("x-org"), ["ours"]);
        assert_eq!(of("x-other"), ["a", "b"]);
        assert_eq!(of("user-agent"), ["their agent"]);
        assert_eq!(of("accept-encoding"), ["identity"]);
        assert!(of("host").is_empty() && of("transfer-encoding").is_empty());
        assert_eq!(sent.method(), Method::PATCH);
    }
}
