//! What of a request's headers goes with it: nothing that proves or tells who calls, nothing of the hop or of those
//! before it, nothing by which a server would do something else than what was judged, and nothing that chooses an
//! account of the endpoint's.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName};

/// Headers that stay behind.
const STAY: [&str; 40] = [
    "accept-encoding",
    "anthropic-workspace-id",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "max-forwards",
    "openai-organization",
    "openai-project",
    "origin",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "via",
    "x-api-key",
    "x-auth-token",
    "x-client-ip",
    "x-end-user",
    "x-goog-user-project",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-reasoning-passthrough",
    "x-request-id",
    "x-route-pin",
    "x-session-id",
];
/// Beginnings of others.
const STAY_BY: [&str; 11] = [
    "access-control-",
    "cf-",
    "proxy-",
    "sec-",
    "x-envoy-",
    "x-forwarded-",
    "x-goog-api-",
    "x-middleware-",
    "x-original-",
    "x-rewrite-",
    "x-waybill-",
];

/// The headers that pass, in their order. `credential`: what the caller proved himself with.
pub(super) fn passing(headers: &HeaderMap, credential: Option<&str>) -> Vec<(String, String)> {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let passes = |name: &HeaderName| {
        let name = name.as_str();
        !STAY.contains(&name)
            && !STAY_BY.iter().any(|prefix| name.starts_with(prefix))
            && !named.iter().any(|own| own == name)
    };
    headers
        .iter()
        .filter(|(name, _)| passes(name))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .filter(|(_, value)| credential.is_none_or(|credential| !value.contains(credential)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn nothing_passes_that_proves_redirects_or_belongs_to_the_hop() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("x-goog-api-key", "k"),
            ("cookie", "a=b"),
            ("host", "us"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("x-forwarded-host", "evil.example"),
            ("x-original-url", "/admin"),
            ("x-http-method-override", "DELETE"),
            ("openai-organization", "org"),
            ("x-custom-auth", "the-credential"),
            ("content-type", "audio/wav"),
            ("anthropic-version", "2023-06-01"),
            ("range", "bytes=0-1"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }

        let passed = passing(&headers, Some("the-credential"));

        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "anthropic-version", "range"]);
    }
}
