//! Requests that pass as they are, and their answers: which dialect they are of, which models they name, what is used,
//! and where a stream ends. Nothing here changes a byte.

use schemas::event::request::Surface;

use crate::dialect::Dialect;

pub mod hearing;
pub mod named;
pub mod outflow;
pub mod target;

/// The dialect of a request by method and path, without query; `None` for what is none of ours. A path is read as the
/// most tolerant server would: decoded, in whatever case, without a slash at its end and what stands behind semicolons.
pub fn dialect(method: &str, path: &str) -> Option<Dialect> {
    if method != "POST" {
        return None;
    }
    let path = tolerant(path);
    let ends = |words: &[&str]| words.iter().any(|word| path.ends_with(word));
    if ends(&["/chat/completions"]) {
        Some(Dialect::Chat)
    } else if ends(&["/completions"]) {
        Some(Dialect::Completions)
    } else if ends(&["/embeddings"]) {
        Some(Dialect::Embeddings)
    } else if ends(&["/responses"]) {
        Some(Dialect::Responses)
    } else if ends(&["/v1/messages", ":rawpredict", ":streamrawpredict"]) {
        Some(Dialect::Messages)
    } else if ends(&[":generatecontent", ":streamgeneratecontent"]) {
        Some(Dialect::Gemini)
    } else {
        None
    }
}

fn tolerant(path: &str) -> String {
    let path = target::decoded(path).unwrap_or_default();
    let segments = path.trim_end_matches('/').split('/').map(target::name);
    segments.collect::<Vec<_>>().join("/").to_ascii_lowercase()
}

/// The surface on which callers speak a dialect; `None` for one that they do not speak.
pub const fn surface(dialect: Dialect) -> Option<Surface> {
    match dialect {
        Dialect::Chat => Some(Surface::Chat),
        Dialect::Completions => Some(Surface::Completions),
        Dialect::Embeddings => Some(Surface::Embeddings),
        Dialect::Responses => Some(Surface::Responses),
        Dialect::Messages => Some(Surface::Messages),
        Dialect::Gemini => None,
    }
}

/// True for paths that ask for a stream, whatever the body says.
pub fn streams(path: &str) -> bool {
    let path = tolerant(path);
    [":streamgeneratecontent", ":streamrawpredict"]
        .iter()
        .any(|word| path.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_dialect_and_other_methods_have_none() {
        for (path, expected) in [
            ("/v1/chat/completions", Some(Dialect::Chat)),
            ("/openai/deployments/d/chat/completions", Some(Dialect::Chat)),
            ("/v1/completions", Some(Dialect::Completions)),
            ("/v1/engines/e/completions", Some(Dialect::Completions)),
            ("/openai/deployments/d/completions", Some(Dialect::Completions)),
            ("/openai/responses", Some(Dialect::Responses)),
            ("/v1/embeddings", Some(Dialect::Embeddings)),
            ("/v1/responses", Some(Dialect::Responses)),
            ("/v1/messages", Some(Dialect::Messages)),
            ("/v1beta/models/g:generateContent", Some(Dialect::Gemini)),
            ("/v1beta/models/g:streamGenerateContent", Some(Dialect::Gemini)),
            ("/v1/chat/completions/", Some(Dialect::Chat)),
            ("/V1/Chat/%43ompletions;a=1", Some(Dialect::Chat)),
            ("/v1/threads/t/messages", None),
            ("/v1/responses/resp_1", None),
            ("/v1/messages/count_tokens", None),
            ("/tokenize", None),
        ] {
            assert_eq!(dialect("POST", path), expected, "{path}");
            assert_eq!(dialect("GET", path), None, "{path}");
        }
        assert!(streams("/v1beta/models/g:streamGenerateContent"));
        assert!(!streams("/v1beta/models/g:generateContent"));
    }
}
