//! In whose words a refusal is said: told by the path a request came in on, before anything else of it is known, so
//! that every answer to it, whatever goes wrong, is one its client can read.

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proxy;

/// Says that the client is one of Anthropic's API.
pub(crate) static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// What clients of Anthropic's API call themselves, in the beginning of `user-agent`.
const CLIENTS: [&str; 4] = ["anthropic-", "anthropic/", "claude-cli", "claude-sdk"];

/// The form of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    /// `{"error":{"message","type","code","param","request_id"}}`
    #[default]
    OpenAi,
    /// `{"type":"error","error":{"type","message"},"request_id"}`
    Anthropic,
}

impl Shape {
    /// Of a request to `path`. The listing of models is shared: there the client tells by its headers.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let path = proxy::behind(path).unwrap_or(path);
        // A base URL that says the version twice leads nowhere, but whose it is can be told.
        let path = path
            .strip_prefix("/v1")
            .filter(|rest| rest.starts_with("/v1/"))
            .unwrap_or(path);
        let below = |prefix: &str| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let shared = || below("/v1/models") && is_anthropic(headers);
        if below("/v1/messages") || below("/anthropic") || shared() {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }
}

/// True for clients of Anthropic's API: they name its version, or themselves.
fn is_anthropic(headers: &HeaderMap) -> bool {
    let names_itself = |agent: &HeaderValue| {
        CLIENTS.iter().any(|client| {
            agent
                .as_bytes()
                .get(..client.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(client.as_bytes()))
        })
    };
    headers.contains_key(&ANTHROPIC_VERSION) || headers.get(USER_AGENT).is_some_and(names_itself)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_shape_also_where_it_leads_nowhere() {
        let of = |path| Shape::of(path, &HeaderMap::new());

        for path in [
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/messages/nothing",
            "/anthropic",
            "/anthropic/v1/v1/messages",
            "/v1/v1/messages",
            "/api/v1/proxy/e/v1/messages",
        ] {
            assert_eq!(of(path), Shape::Anthropic, "{path}");
        }
        for path in [
            "/",
            "/v1/chat/completions",
            "/v1/messagess",
            "/api/v1/proxy/e/v1/chat/completions",
            "/api/v1/proxy/v1/messages",
            "/v1/v1/chat/completions",
            "/anthropics",
            "/v1/models",
        ] {
            assert_eq!(of(path), Shape::OpenAi, "{path}");
        }
    }

    #[test]
    fn the_listing_answers_in_the_shape_of_the_client() {
        let mut headers = HeaderMap::new();
        headers.insert(&ANTHROPIC_VERSION, http::HeaderValue::from_static("2023-06-01"));

        assert_eq!(Shape::of("/v1/models/x", &headers), Shape::Anthropic);
        assert_eq!(Shape::of("/v1/chat/completions", &headers), Shape::OpenAi);
        for (agent, shape) in [
            ("Anthropic/Python 1.17.0", Shape::Anthropic),
            ("claude-cli/2.1 (external, sdk-cli)", Shape::Anthropic),
            ("OpenAI/Python 3.57.0", Shape::OpenAi),
            ("claude", Shape::OpenAi),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
            assert_eq!(Shape::of("/v1/models", &headers), shape, "{agent}");
        }
    }
}
