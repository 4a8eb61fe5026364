//! In whose words a refusal is said: told by the path a request came in on, before anything else of it is known, so
//! that every answer to it, whatever goes wrong, is one its client can read.

use http::{HeaderMap, HeaderName};
use schemas::event::request::Surface;

/// Says that the client is one of Anthropic's API.
pub(crate) static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

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
    /// Of a request to `path`. The listing of models is shared: there the client's header tells.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let below = |prefix: &str| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let shared = || below("/v1/models") && headers.contains_key(&ANTHROPIC_VERSION);
        if below("/v1/messages") || below("/anthropic") || shared() {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }

    /// Of what is said on a surface.
    pub(crate) const fn of_surface(surface: Surface) -> Self {
        match surface {
            Surface::Messages => Self::Anthropic,
            Surface::Chat | Surface::Completions | Surface::Embeddings | Surface::Responses => Self::OpenAi,
        }
    }
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
        ] {
            assert_eq!(of(path), Shape::Anthropic, "{path}");
        }
        for path in [
            "/",
            "/v1/chat/completions",
            "/v1/messagess",
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
    }
}
