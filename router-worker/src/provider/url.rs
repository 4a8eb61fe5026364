//! Where requests go: the URL on a backend, by kind of provider and by what is asked for. A model's name is in it only
//! where the API wants it there, and then every byte that could mean something in a URL is coded.

use dialects::dialect::Dialect;
use http::Uri;
use schemas::catalog::{Backend, Endpoint, ProviderKind};

use super::{Error, Purpose};

/// What chat completions are called at the end of their path.
const CHAT: &str = "/chat/completions";

/// True when the model's name is a part of the kind's URLs.
pub(super) const fn names_model(kind: ProviderKind) -> bool {
    matches!(kind, ProviderKind::Gemini | ProviderKind::Vertex)
}

/// The URL on a backend.
pub(super) fn url(
    endpoint: &Endpoint,
    backend: &Backend,
    model: &str,
    purpose: Purpose,
) -> Result<Uri, Error> {
    let mut url = backend.base_url.trim_end_matches('/').to_owned();
    let mut query = endpoint.query.clone();
    match endpoint.kind {
        ProviderKind::Echo => return Err(Error::InProcess),
        ProviderKind::OpenaiCompat | ProviderKind::Openrouter => {
            url.push_str(&openai_path(endpoint, purpose.dialect));
        }
        ProviderKind::Anthropic => url.push_str(&endpoint.chat_path),
        ProviderKind::Vertex => {
            let method = if purpose.stream {
                "streamRawPredict"
            } else {
                "rawPredict"
            };
            push_model(&mut url, &endpoint.chat_path, model, method);
        }
        ProviderKind::Gemini => {
            let model = model.strip_prefix("models/").unwrap_or(model);
            let method = if purpose.stream {
                let mark = if query.is_empty() { "" } else { "&" };
                query = format!("alt=sse{mark}{query}");
                "streamGenerateContent"
            } else {
                "generateContent"
            };
            push_model(&mut url, &endpoint.chat_path, model, method);
        }
    }
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query);
    }
    url.parse().map_err(Error::Url)
}

/// The path of a server of the OpenAI API: what is no chat lies beside it.
fn openai_path(endpoint: &Endpoint, dialect: Dialect) -> String {
    let chat = endpoint.chat_path.as_str();
    let beside = |name: &str| {
        let root = chat
            .strip_suffix(CHAT)
            .or_else(|| chat.rsplit_once('/').map(|(root, _)| root))
            .unwrap_or_default();
        format!("{root}/{name}")
    };
    match dialect {
        Dialect::Completions => beside("completions"),
        Dialect::Embeddings if endpoint.embeddings_path.is_empty() => beside("embeddings"),
        Dialect::Embeddings => endpoint.embeddings_path.clone(),
        Dialect::Responses => beside("responses"),
        Dialect::Chat | Dialect::Messages | Dialect::Gemini => chat.to_owned(),
    }
}

/// Appends `path/model:method`.
fn push_model(url: &mut String, path: &str, model: &str, method: &str) {
    url.push_str(path);
    url.push('/');
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let digits = b"0123456789ABCDEF";
            url.push('%');
            url.push(char::from(digits[usize::from(byte >> 4)]));
            url.push(char::from(digits[usize::from(byte & 15)]));
        }
    }
    url.push(':');
    url.push_str(method);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    fn of(kind: ProviderKind, chat_path: &str, dialect: Dialect, stream: bool) -> String {
        let endpoint = Endpoint {
            kind,
            chat_path: chat_path.to_owned(),
            ..endpoint("e", &["http://host/base"])
        };
        let purpose = Purpose { dialect, stream };
        url(&endpoint, &endpoint.backends[0], "models/a b@1/c?d", purpose)
            .expect("a URL")
            .to_string()
    }

    #[test]
    fn every_kind_has_its_own_urls() {
        use ProviderKind::{Anthropic, Gemini, OpenaiCompat, Vertex};
        let gemini = "http://host/base/v1beta/models/a%20b@1%2Fc%3Fd";
        let vertex = "http://host/base/v1/projects/p/publishers/anthropic/models/models%2Fa%20b@1%2Fc%3Fd";
        let place = "/v1/projects/p/publishers/anthropic/models";
        for (kind, path, dialect, stream, expected) in [
            (
                OpenaiCompat,
                "/v1/chat/completions",
                Dialect::Chat,
                true,
                "http://host/base/v1/chat/completions".to_owned(),
            ),
            (
                OpenaiCompat,
                "/v1/chat/completions",
                Dialect::Completions,
                true,
                "http://host/base/v1/completions".to_owned(),
            ),
            (
                OpenaiCompat,
                "/chat/completions",
                Dialect::Embeddings,
                false,
                "http://host/base/embeddings".to_owned(),
            ),
            (
                OpenaiCompat,
                "/own/chat",
                Dialect::Responses,
                false,
                "http://host/base/own/responses".to_owned(),
            ),
            (
                Anthropic,
                "/v1/messages",
                Dialect::Messages,
                true,
                "http://host/base/v1/messages".to_owned(),
            ),
            (
                Gemini,
                "/v1beta/models",
                Dialect::Gemini,
                false,
                format!("{gemini}:generateContent"),
            ),
            (
                Gemini,
                "/v1beta/models",
                Dialect::Gemini,
                true,
                format!("{gemini}:streamGenerateContent?alt=sse"),
            ),
            (
                Vertex,
                place,
                Dialect::Messages,
                false,
                format!("{vertex}:rawPredict"),
            ),
            (
                Vertex,
                place,
                Dialect::Messages,
                true,
                format!("{vertex}:streamRawPredict"),
            ),
        ] {
            assert_eq!(of(kind, path, dialect, stream), expected);
        }
    }

    #[test]
    fn a_configured_path_of_embeddings_and_a_query_are_kept() {
        let endpoint = Endpoint {
            embeddings_path: "/v2/embed".to_owned(),
            query: "api-version=1".to_owned(),
            ..endpoint("e", &["http://host/"])
        };
        let purpose = Purpose {
            dialect: Dialect::Embeddings,
            stream: false,
        };

        let url = url(&endpoint, &endpoint.backends[0], "m", purpose).expect("a URL");

        assert_eq!(url.to_string(), "http://host/v2/embed?api-version=1");
    }
}
