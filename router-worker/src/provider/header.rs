//! Headers of one request. Nothing of a caller reaches an upstream but the two headers of Anthropic's own API, and
//! those only where the upstream speaks it.

use std::borrow::Cow;

use dialects::dialect::Dialect;
use http::{HeaderName, HeaderValue};
use schemas::catalog::{Endpoint, ProviderKind};
use schemas::command::Told;

/// The version of Anthropic's API that requests are in when nobody says otherwise.
pub(crate) const ANTHROPIC_VERSION: &str = "2023-06-01";
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// Betas that Claude on Vertex takes; it refuses a request that names another.
const VERTEX_BETAS: [&str; 9] = [
    "claude-code-20250219",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14",
    "output-128k-2025-02-19",
    "token-efficient-tools-2025-02-19",
    "tool-search-tool-2025-10-19",
    "web-search-2025-03-05",
];
/// Longest header of a caller that is passed on, in bytes.
const PASSED_BYTES_MAX: usize = 4_096;

/// Headers of one request, and what was left out of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Extra {
    /// Them.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Betas that the upstream does not take: `anthropic-beta:NAME`.
    pub(crate) dropped: Vec<Cow<'static, str>>,
}

/// The headers of a request in `dialect` to `endpoint`: of a body that passes as the caller of the same dialect wrote
/// it, with what he `told`, or of a body that was translated, with the headers that were `encoded` for it.
pub(crate) fn of_request(
    endpoint: &Endpoint,
    dialect: Dialect,
    told: Option<&Told>,
    encoded: &[(&'static str, String)],
) -> Extra {
    let mut extra = Extra::default();
    if dialect != Dialect::Messages {
        let others = encoded
            .iter()
            .filter_map(|(name, value)| Some((*name, value_of(value)?)));
        others.for_each(|(name, value)| extra.push(endpoint, HeaderName::from_static(name), value));
        return extra;
    }
    let encoded = |name: &HeaderName| {
        let found = encoded.iter().find(|(known, _)| *known == name.as_str());
        found.map(|(_, value)| value.as_str())
    };
    let version = encoded(&VERSION).or_else(|| told.and_then(|told| told.anthropic_version.as_deref()));
    let beta = encoded(&BETA).or_else(|| told.and_then(|told| told.anthropic_beta.as_deref()));
    if endpoint.kind == ProviderKind::Vertex {
        if let Some(value) = beta.and_then(|beta| vertex_betas(beta, &mut extra.dropped)) {
            extra.push(endpoint, BETA, value);
        }
        return extra;
    }
    let version = version.and_then(value_of);
    let version = version.unwrap_or(HeaderValue::from_static(ANTHROPIC_VERSION));
    extra.push(endpoint, VERSION, version);
    if let Some(value) = beta.and_then(value_of) {
        extra.push(endpoint, BETA, value);
    }
    extra
}

impl Extra {
    /// Adds a header, unless the endpoint is configured with its own.
    fn push(&mut self, endpoint: &Endpoint, name: HeaderName, value: HeaderValue) {
        let configured = endpoint
            .extra_headers
            .iter()
            .any(|(own, _)| own.eq_ignore_ascii_case(name.as_str()));
        if !configured {
            self.headers.push((name, value));
        }
    }
}

fn value_of(text: &str) -> Option<HeaderValue> {
    let text = text.trim();
    if text.is_empty() || text.len() > PASSED_BYTES_MAX {
        return None;
    }
    HeaderValue::from_str(text).ok()
}

fn vertex_betas(betas: &str, dropped: &mut Vec<Cow<'static, str>>) -> Option<HeaderValue> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let names = betas.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (taken, left): (Vec<&str>, Vec<&str>) = names.partition(|name| VERTEX_BETAS.contains(name));
    let shown = left
        .iter()
        .filter(|name| name.len() <= 100 && name.bytes().all(plain));
    dropped.extend(shown.map(|name| Cow::Owned(format!("anthropic-beta:{name}"))));
    value_of(&taken.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    fn of_kind(kind: ProviderKind) -> Endpoint {
        Endpoint {
            kind,
            ..endpoint("e", &["http://h"])
        }
    }

    fn told(version: &str, beta: &str) -> Told {
        Told {
            anthropic_version: Some(version.into()),
            anthropic_beta: Some(beta.into()),
            hides_thinking: false,
        }
    }

    fn text(extra: &Extra) -> Vec<(&str, &str)> {
        extra
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect()
    }

    #[test]
    fn version_and_betas_of_a_passing_request_stay_as_they_are() {
        let endpoint = of_kind(ProviderKind::Anthropic);
        let extra = of_request(
            &endpoint,
            Dialect::Messages,
            Some(&told("2026-10-21", "a-1,b-2")),
            &[],
        );

        assert_eq!(
            text(&extra),
            [("anthropic-version", "2026-10-21"), ("anthropic-beta", "a-1,b-2")]
        );
        assert!(extra.dropped.is_empty());
    }

    #[test]
    fn a_version_is_always_told_and_an_odd_one_is_replaced() {
        let endpoint = of_kind(ProviderKind::Anthropic);
        let default = [("anthropic-version", ANTHROPIC_VERSION)];

        assert_eq!(
            text(&of_request(&endpoint, Dialect::Messages, None, &[])),
            default
        );
        let odd = of_request(&endpoint, Dialect::Messages, Some(&told("a\nb", "")), &[]);
        assert_eq!(text(&odd), default);
    }

    #[test]
    fn claude_on_vertex_is_told_no_version_and_only_betas_that_it_knows() {
        let endpoint = of_kind(ProviderKind::Vertex);
        let beta = "context-1m-2025-08-07, files-api-2025-04-14, <x>";
        let extra = of_request(&endpoint, Dialect::Messages, Some(&told("2023-06-01", beta)), &[]);

        assert_eq!(text(&extra), [("anthropic-beta", "context-1m-2025-08-07")]);
        assert_eq!(extra.dropped, ["anthropic-beta:files-api-2025-04-14"]);
    }

    #[test]
    fn other_upstreams_hear_nothing_of_these_headers() {
        let endpoint = of_kind(ProviderKind::OpenaiCompat);

        assert_eq!(
            of_request(&endpoint, Dialect::Chat, Some(&told("1", "b")), &[]),
            Extra::default()
        );
    }

    #[test]
    fn configured_headers_win_over_those_of_a_request() {
        let mut endpoint = of_kind(ProviderKind::Anthropic);
        endpoint.extra_headers = vec![("anthropic-version".to_owned(), "x".to_owned())];
        let encoded = [("anthropic-beta", "b".to_owned())];

        let extra = of_request(&endpoint, Dialect::Messages, None, &encoded);

        assert_eq!(text(&extra), [("anthropic-beta", "b")]);
    }
}
