//! Kinds of providers: which of them this version serves, and what each of them presets.

use schemas::catalog::ProviderKind;

/// What a kind means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Served, as this kind of API.
    Served(ProviderKind),
    /// Known, served by a later version.
    Later,
    /// Not a kind.
    Unknown,
}

/// Kinds of OpenAI-compatible servers.
const COMPATIBLE: [&str; 13] = [
    "openai",
    "openai_compat",
    "staging",
    "vllm",
    "sglang",
    "ollama",
    "chutes",
    "featherless",
    "cliproxy",
    "deepseek",
    "zai",
    "kimi",
    "minimax",
];

/// Looks a kind up; `openrouter[<slug>]` pins a provider behind OpenRouter.
pub fn support(kind: &str) -> Support {
    match kind {
        "echo" => Support::Served(ProviderKind::Echo),
        "claude" | "gemini" | "anthropic" => Support::Later,
        _ if COMPATIBLE.contains(&kind) => Support::Served(ProviderKind::OpenaiCompat),
        _ if kind == "openrouter" || pinned(kind).is_some() => Support::Served(ProviderKind::Openrouter),
        _ => Support::Unknown,
    }
}

/// The slug of `openrouter[<slug>]`.
pub fn pinned(kind: &str) -> Option<&str> {
    let slug = kind.strip_prefix("openrouter[")?.strip_suffix(']')?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/');
    (!slug.is_empty() && slug.bytes().all(valid)).then_some(slug)
}

/// Path of chat completions for a base URL: the version is not doubled.
pub fn chat_path(kind: &str, profile: Option<&str>, base_url: &str) -> String {
    let zai = kind == "zai" || profile == Some("zai");
    let path = if zai || base_url.ends_with("/v1") {
        "/chat/completions"
    } else {
        "/v1/chat/completions"
    };
    path.to_owned()
}

/// Members that a kind adds to each request body, as JSON.
pub fn extra_body(
    kind: &str,
    sort: Option<&str>,
    pinned_provider: Option<&str>,
) -> serde_json::Map<String, serde_json::Value> {
    let mut body = serde_json::Map::new();
    if !matches!(support(kind), Support::Served(ProviderKind::Openrouter)) {
        return body;
    }
    body.insert("usage".into(), serde_json::json!({ "include": true }));
    if let Some(slug) = pinned(kind).or(pinned_provider) {
        body.insert(
            "provider".into(),
            serde_json::json!({ "order": [slug], "allow_fallbacks": false }),
        );
    } else if let Some(sort) = sort {
        body.insert("provider".into(), serde_json::json!({ "sort": sort }));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_served_later_or_unknown() {
        assert_eq!(support("vllm"), Support::Served(ProviderKind::OpenaiCompat));
        assert_eq!(
            support("openrouter[deepinfra/fp8]"),
            Support::Served(ProviderKind::Openrouter)
        );
        assert_eq!(support("openrouter[a b]"), Support::Unknown);
        assert_eq!(support("gemini"), Support::Later);
        assert_eq!(support("nonsense"), Support::Unknown);
    }

    #[test]
    fn the_version_in_a_base_url_is_not_doubled() {
        assert_eq!(chat_path("vllm", None, "http://h/v1"), "/chat/completions");
        assert_eq!(chat_path("vllm", None, "http://h"), "/v1/chat/completions");
        assert_eq!(
            chat_path("zai", None, "http://h/api/paas/v4"),
            "/chat/completions"
        );
    }
}
