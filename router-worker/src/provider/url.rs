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
            match endpoint.chat_path.strip_suffix(':') {
                // The address names the model itself.
                Some(path) => url.extend([path, ":", method]),
                None => push_model(&mut url, &endpoint.chat_path, model, method),
            }
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

/// True when a URL leads to the scheme, host and port of a base, and names nobody who calls.
pub(super) fn lies_at(url: &Uri, base: &str) -> bool {
    base.parse::<Uri>().is_ok_and(|base| {
        base.authority() == url.authority()
            && base.scheme() == url.scheme()
            && url.host().is_some_and(|host| !host.is_empty())
            && url.authority().is_some_and(|place| !place.as_str().contains('@'))
    })
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
    fn servers_of_the_openai_api_have_what_is_no_chat_beside_it() {
        for (chat_path, dialect, path) in [
            ("/v1/chat/completions", Dialect::Chat, "/v1/chat/completions"),
            ("/v1/chat/completions", Dialect::Completions, "/v1/completions"),
            ("/chat/completions", Dialect::Embeddings, "/embeddings"),
            ("/own/chat", Dialect::Responses, "/own/responses"),
        ] {
            let url = of(ProviderKind::OpenaiCompat, chat_path, dialect, true);
            assert_eq!(url, format!("http://host/base{path}"));
        }
    }

    #[test]
    fn the_model_is_in_a_url_only_where_the_api_wants_it_there() {
        let of = |kind, path, stream| of(kind, path, Dialect::Messages, stream);
        let anthropic = of(ProviderKind::Anthropic, "/v1/messages", true);
        assert_eq!(anthropic, "http://host/base/v1/messages");

        let gemini = "http://host/base/v1beta/models/a%20b@1%2Fc%3Fd";
        let path = "/v1beta/models";
        let whole = of(ProviderKind::Gemini, path, false);
        assert_eq!(whole, format!("{gemini}:generateContent"));
        let stream = of(ProviderKind::Gemini, path, true);
        assert_eq!(stream, format!("{gemini}:streamGenerateContent?alt=sse"));

        let path = "/v1/projects/p/publishers/anthropic/models";
        let vertex = format!("http://host/base{path}/models%2Fa%20b@1%2Fc%3Fd");
        let whole = of(ProviderKind::Vertex, path, false);
        assert_eq!(whole, format!("{vertex}:rawPredict"));
        let stream = of(ProviderKind::Vertex, path, true);
        assert_eq!(stream, format!("{vertex}:streamRawPredict"));

        let whole = of(ProviderKind::Vertex, "/v1:", false);
        assert_eq!(whole, "http://host/base/v1:rawPredict");
        let stream = of(ProviderKind::Vertex, "/v1:", true);
        assert_eq!(stream, "http://host/base/v1:streamRawPredict");
    }

    #[test]
    fn a_path_that_leads_to_another_host_is_found_out() {
        let lies = |url: &str, base: &str| lies_at(&url.parse().expect("a URL"), base);

        assert!(lies(
            "https://host:8443/base/v1?x=@evil",
            "https://host:8443/base"
        ));
        for (url, base) in [
            ("https://host@evil.example/v1", "https://host"),
            ("https://host.evil.example/v1", "https://host"),
            ("https://host:80/v1", "https://host"),
            ("http://host/v1", "https://host"),
            ("https://me:pass@host/v1", "https://me:pass@host"),
        ] {
            assert!(!lies(url, base), "{url}");
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
