//! Paths as clients write them: a slash too many, at the end or in between, is what naive joins of a base URL and a
//! path make, and means nothing else.

use std::borrow::Cow;

use axum::extract::Request;
use http::Uri;
use http::uri::PathAndQuery;

use crate::inference::call::Call;

/// Where models are listed.
pub(crate) const MODELS: [&str; 4] = [
    "/v1/models",
    "/models",
    "/openrouter/models",
    "/anthropic/v1/models",
];
/// Where tokens are counted.
pub(crate) const COUNTS: [&str; 2] = ["/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"];
/// Where a caller asks what he may still spend.
pub(crate) const BALANCE: &str = "/anthropic/user/balance";

/// The path without slashes that mean nothing.
pub(crate) fn plain(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && (path.len() == 1 || !path.ends_with('/')) {
        return Cow::Borrowed(path);
    }
    let mut plain = String::with_capacity(path.len());
    for word in path.split('/').filter(|word| !word.is_empty()) {
        plain.push('/');
        plain.push_str(word);
    }
    if plain.is_empty() {
        plain.push('/');
    }
    Cow::Owned(plain)
}

/// Lets a request that has slashes too many go where it meant to go, if that is a path that clients of models know. In
/// names of models slashes have a meaning: those stay.
pub(crate) fn mend(request: &mut Request) {
    let uri = request.uri();
    let Cow::Owned(plain) = plain(uri.path()) else {
        return;
    };
    let listed = MODELS.iter().chain(&COUNTS).chain([&BALANCE]);
    let calls = Call::PATHS.iter().map(|(path, _)| path);
    if !listed.chain(calls).any(|known| *known == plain) {
        return;
    }
    let path = match uri.query() {
        Some(query) => format!("{plain}?{query}"),
        None => plain,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(path).ok();
    if let Ok(mended) = Uri::from_parts(parts) {
        *request.uri_mut() = mended;
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn slashes_that_mean_nothing_are_left_out() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/v1/models", "/v1/models"),
            ("/v1/models/", "/v1/models"),
            ("//v1///chat/completions//", "/v1/chat/completions"),
        ] {
            assert_eq!(plain(path), expected, "{path}");
        }
    }

    #[test]
    fn known_paths_are_mended_with_their_query_and_names_of_models_are_not() {
        for (uri, expected) in [
            ("//v1/messages/?beta=true", "/v1/messages?beta=true"),
            ("/v1/models/?limit=5", "/v1/models?limit=5"),
            ("/v1/messages//count_tokens", "/v1/messages/count_tokens"),
            ("/v1/models/org//m", "/v1/models/org//m"),
            ("/v1/models/m/", "/v1/models/m/"),
            ("/health/", "/health/"),
        ] {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = uri.parse().expect("a URI");

            mend(&mut request);

            assert_eq!(request.uri().to_string(), expected);
        }
    }
}
