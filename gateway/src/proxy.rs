//! Calls that pass to one endpoint as they are, decided purely: where they go, whose endpoint that is, which model they
//! count as, and what of their head goes with them.
//!
//! Guarantees: the bytes that are judged are the bytes that are sent; another's endpoint is answered like one that is
//! not there; a model that is not there for a caller is not there on this path either; no credential of a caller goes
//! anywhere.

pub(crate) mod access;
mod headers;

use std::sync::Arc;

use dialects::dialect::Dialect;
use dialects::raw::named::{self, Named, Parts};
use dialects::raw::target;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::request;
use http::{HeaderMap, HeaderValue, Method};
use schemas::command::Raw;
use schemas::failure::{Failure, FailureCode};
use schemas::idempotency;

use crate::caller;

/// What stands before the name of an endpoint.
pub(crate) const PREFIX: &str = "/api/v1/proxy/";
/// Methods that pass.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// The protocol to which clients of HTTP/1.1 offer to change without needing it.
const CLEARTEXT_HTTP2: &[u8] = b"h2c";
/// Names by which credentials stand in queries.
const CREDENTIALS: [&str; 6] = ["key", "api_key", "api-key", "apikey", "access_token", "x-api-key"];

/// A call as its head tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The endpoint, by its id or its name.
    pub(crate) endpoint: String,
    /// The path behind it, as it stands.
    path: String,
    /// The query, without its mark and without credentials.
    query: String,
    method: Method,
    headers: Vec<(String, String)>,
    content_type: String,
    /// What it speaks, where that is known by its path.
    pub(crate) dialect: Option<Dialect>,
}

impl Ask {
    /// Reads the head of a request.
    pub(crate) fn read(parts: &request::Parts) -> Result<Self, Failure> {
        if !METHODS.contains(&parts.method) {
            let text = "the path does not take this method";
            return Err(Failure::new(FailureCode::MethodNotAllowed, text));
        }
        no_upgrade(&parts.headers)?;
        if parts.headers.contains_key(idempotency::HEADER) {
            let text = "calls that pass as they are take no Idempotency-Key: nobody knows what they do";
            return Err(Failure::new(FailureCode::InvalidRequest, text).param(idempotency::HEADER));
        }
        let (endpoint, path) = split(parts.uri.path()).ok_or_else(crate::layers::no_path)?;
        target::judge(path).map_err(|crooked| {
            Failure::new(FailureCode::InvalidRequest, crooked.to_string()).param("path")
        })?;
        let credential = caller::credential(&parts.headers);
        let query = target::query(parts.uri.query().unwrap_or_default(), |name, value| {
            is_credential(name, value, credential)
        });
        let content_type = content_type(&parts.headers)?;
        Ok(Self {
            dialect: dialects::raw::dialect(parts.method.as_str(), path),
            endpoint,
            path: path.to_owned(),
            query,
            method: parts.method.clone(),
            headers: headers::passing(&parts.headers, credential),
            content_type,
        })
    }

    /// The models that it names, with its body.
    pub(crate) fn named(&self, body: &[u8]) -> Result<Named, Failure> {
        let parts = Parts {
            path: &self.path,
            query: &self.query,
            content_type: &self.content_type,
            body,
        };
        named::models(parts).map_err(|problem| {
            let code = match problem {
                named::Error::InvalidJson | named::Error::Coding => FailureCode::InvalidJson,
                _ => FailureCode::InvalidRequest,
            };
            let failure = Failure::new(code, problem.to_string());
            match problem {
                named::Error::Duplicate | named::Error::NoText | named::Error::Differs => {
                    failure.param("model")
                }
                _ => failure,
            }
        })
    }

    /// True where its path alone asks for a stream.
    pub(crate) fn streams(&self) -> bool {
        dialects::raw::streams(&self.path)
    }

    /// What goes with its body, as one of a model that the upstream calls so.
    pub(crate) fn raw(self, upstream_model: Arc<str>) -> Raw {
        let mark = if self.query.is_empty() { "" } else { "?" };
        Raw {
            method: self.method.as_str().into(),
            target: format!("{}{mark}{}", self.path, self.query).into(),
            headers: self.headers,
            upstream_model,
        }
    }
}

/// The endpoint of a path and what stands behind it.
fn split(path: &str) -> Option<(String, &str)> {
    let rest = path.strip_prefix(PREFIX)?;
    let (endpoint, behind) = rest.split_at(rest.find('/')?);
    let endpoint = target::decoded(endpoint)?.into_owned();
    (!endpoint.is_empty()).then_some((endpoint, behind))
}

/// What stands behind the endpoint of a path, where it is one of these.
pub(crate) fn behind(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(PREFIX)?;
    rest.get(rest.find('/')?..)
}

fn is_credential(name: &str, value: &str, credential: Option<&str>) -> bool {
    CREDENTIALS.iter().any(|own| name.eq_ignore_ascii_case(own))
        || credential.is_some_and(|credential| value.contains(credential))
}

/// What the body is said to be: once, so that nobody reads it as something else.
fn content_type(headers: &HeaderMap) -> Result<String, Failure> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let first = values.next().map_or(Ok(""), HeaderValue::to_str);
    if let (Ok(text), None) = (first, values.next()) {
        return Ok(text.to_owned());
    }
    let text = "the header 'content-type' may be there once, as text";
    Err(Failure::new(FailureCode::InvalidRequest, text).param("content-type"))
}

/// Refuses whoever wants to speak another protocol; an offer that needs no answer is none.
fn no_upgrade(headers: &HeaderMap) -> Result<(), Failure> {
    let wants = headers.get_all(UPGRADE).iter().any(|value| {
        !value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(CLEARTEXT_HTTP2)
    });
    if wants {
        let text = "connections are not upgraded here: no websockets pass";
        return Err(Failure::new(FailureCode::InvalidRequest, text)
            .param("upgrade")
            .with_status(501));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn ask(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Ask, Failure> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        Ask::read(&parts)
    }

    fn status(asked: Result<Ask, Failure>) -> u16 {
        asked.expect_err("a refusal").status
    }

    #[test]
    fn a_call_passes_as_it_stands_without_its_credential() {
        let headers = [
            ("authorization", "Bearer sk-mine-0123456789"),
            ("x-own", "1"),
            ("x-hidden", "sk-mine-0123456789"),
        ];
        let uri = "/api/v1/proxy/e%3A1/v1/files/%20x?a=%2F&KEY=1&b=sk-mine-0123456789&c";
        let asked = ask("DELETE", uri, &headers).expect("a call");

        assert_eq!(asked.endpoint, "e:1");
        let raw = asked.raw("m".into());
        assert_eq!(&*raw.target, "/v1/files/%20x?a=%2F&c");
        assert_eq!(&*raw.method, "DELETE");
        assert_eq!(raw.headers, [("x-own".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn odd_paths_methods_and_upgrades_are_refused() {
        assert_eq!(status(ask("TRACE", "/api/v1/proxy/e/x", &[])), 405);
        assert_eq!(status(ask("GET", "/api/v1/proxy/e/%2e%2e/x", &[])), 400);
        assert_eq!(status(ask("GET", "/api/v1/proxy/e//evil.example/", &[])), 400);
        assert_eq!(status(ask("GET", "/api/v1/proxy/e", &[])), 404);
        assert_eq!(status(ask("GET", "/api/v1/proxy//x", &[])), 404);
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
        assert_eq!(status(ask("GET", "/api/v1/proxy/e/x", &upgrade)), 501);
        assert!(ask("GET", "/api/v1/proxy/e/x", &[("upgrade", "h2c")]).is_ok());
        assert_eq!(
            status(ask("POST", "/api/v1/proxy/e/x", &[("idempotency-key", "k")])),
            400
        );
    }
}
