//! The head of an answer that passes: what of it is for the caller, and not for the gateway or for a browser that takes
//! the answer for one of the gateway's own pages.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName};

/// Headers that stay behind: framing and connections, what is said to browsers about their host, and what tells of the
/// account behind the endpoint.
const STAY: [&str; 31] = [
    "alt-svc",
    "anthropic-organization-id",
    "authentication-info",
    "clear-site-data",
    "connection",
    "content-encoding",
    "content-security-policy",
    "content-security-policy-report-only",
    "date",
    "keep-alive",
    "location",
    "nel",
    "openai-organization",
    "openai-project",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "request-id",
    "server",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
    "x-content-type-options",
    "x-request-id",
];
/// Beginnings of others.
const STAY_BY: [&str; 9] = [
    "access-control-",
    "anthropic-ratelimit-",
    "cf-",
    "proxy-",
    "x-accel-",
    "x-quota-",
    "x-ratelimit-",
    "x-session-",
    "x-waybill-",
];

/// The headers that pass, in their order. `without_body`: the length is of what would have come.
pub(super) fn passing(headers: &HeaderMap, without_body: bool) -> Vec<(String, String)> {
    let is_coded = headers.contains_key(CONTENT_ENCODING);
    // A hop may name further headers of its own.
    let named: Vec<String> = headers
        .get_all(http::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let passes = |name: &HeaderName| {
        if name == CONTENT_LENGTH {
            return without_body && !is_coded;
        }
        let name = name.as_str();
        !STAY.contains(&name)
            && !STAY_BY.iter().any(|prefix| name.starts_with(prefix))
            && !named.iter().any(|own| own == name)
    };
    let headers = headers.iter().filter(|(name, _)| passes(name));
    headers
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_is_of_the_hop_the_host_or_the_account_stays_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "audio/wav"),
            ("content-length", "7"),
            ("content-encoding", "gzip"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=b"),
            ("location", "http://inner/"),
            ("www-authenticate", "Basic"),
            ("access-control-allow-origin", "*"),
            ("openai-organization", "org"),
            ("x-ratelimit-limit-requests", "9"),
            ("x-waybill-config", "9"),
            ("etag", "\"1\""),
            ("x-own", "yes"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }

        let passed = passing(&headers, false);

        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "etag", "x-own"]);
        headers.remove("content-encoding");
        assert!(
            passing(&headers, true)
                .iter()
                .any(|(name, value)| name == "content-length" && value == "7")
        );
    }
}
