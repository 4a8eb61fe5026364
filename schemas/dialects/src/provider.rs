//! Kinds of providers: what each of them is called, where it is, and what it presets. The kinds of OpenAI-compatible
//! servers are the profiles of [`crate::profile`], and a few older words.

use schemas::catalog::ProviderKind;

use crate::profile::{self, Profile};

/// Words for servers of the OpenAI chat API of which nothing more is known.
const COMPATIBLE: [&str; 5] = ["openai_compat", "staging", "chutes", "featherless", "cliproxy"];
/// Where Anthropic's API is.
const ANTHROPIC: &str = "https://api.anthropic.com";
/// Where Gemini's API is.
const GEMINI: &str = "https://generativelanguage.googleapis.com";
/// Versions of Gemini's API that an address may end with.
const GEMINI_VERSIONS: [&str; 3] = ["/v1beta", "/v1alpha", "/v1"];

/// A kind, as `kind` or `provider` names it.
#[derive(Debug, Clone, Copy)]
pub struct Kind<'a> {
    /// The word.
    pub word: &'a str,
    /// The kind of API.
    pub api: ProviderKind,
    /// What its servers tolerate, where the word tells.
    pub profile: Option<&'static Profile>,
}

/// What proves to an upstream who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The header.
    pub header: &'static str,
    /// Its value, `{api_key}` being replaced.
    pub format: &'static str,
}

const BEARER: Proof = Proof {
    header: "authorization",
    format: "Bearer {api_key}",
};

impl<'a> Kind<'a> {
    /// The kind of a word, `None` for a word that is none. `openrouter[<slug>]` pins a provider behind OpenRouter.
    pub fn named(word: &'a str) -> Option<Self> {
        let of = |api, profile| Some(Self { word, api, profile });
        match word {
            "echo" => return of(ProviderKind::Echo, None),
            "anthropic" => return of(ProviderKind::Anthropic, None),
            "claude" => return of(ProviderKind::Vertex, None),
            "gemini" => return of(ProviderKind::Gemini, None),
            _ if pinned(word).is_some() => return of(ProviderKind::Openrouter, profile::named("openrouter")),
            _ if COMPATIBLE.contains(&word) => return of(ProviderKind::OpenaiCompat, None),
            _ => {}
        }
        let known = profile::named(word).filter(|known| known.name != profile::DEFAULT.name)?;
        let api = if known.name == "openrouter" {
            ProviderKind::Openrouter
        } else {
            ProviderKind::OpenaiCompat
        };
        of(api, Some(known))
    }

    /// Where its API is when nobody says otherwise.
    pub fn base_url(&self) -> Option<&'static str> {
        match self.api {
            ProviderKind::Anthropic => Some(ANTHROPIC),
            ProviderKind::Gemini => Some(GEMINI),
            ProviderKind::OpenaiCompat | ProviderKind::Openrouter => {
                let known = self.profile.map(|profile| profile.base_url);
                known.filter(|base_url| !base_url.is_empty())
            }
            ProviderKind::Vertex | ProviderKind::Echo => None,
        }
    }

    /// True for servers of OpenAI's own family.
    pub const fn is_openai(&self) -> bool {
        matches!(self.api, ProviderKind::OpenaiCompat | ProviderKind::Openrouter)
    }

    /// The word without a pin.
    pub fn label(&self) -> &'a str {
        self.word.split('[').next().unwrap_or(self.word)
    }
}

/// Every word for a kind.
pub fn words() -> String {
    let native = ["openrouter[SLUG]", "anthropic", "claude", "gemini", "echo"];
    let profiles = profile::names().filter(|name| *name != profile::DEFAULT.name);
    let all: Vec<&str> = COMPATIBLE.into_iter().chain(profiles).chain(native).collect();
    all.join(", ")
}

/// The slug of `openrouter[<slug>]`.
pub fn pinned(kind: &str) -> Option<&str> {
    let slug = kind.strip_prefix("openrouter[")?.strip_suffix(']')?;
    is_slug(slug).then_some(slug)
}

/// True for the name of a provider behind OpenRouter.
pub fn is_slug(slug: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/');
    !slug.is_empty() && slug.bytes().all(valid)
}

/// The path behind a base URL: of chat completions, of Messages, or of the models whose names follow it. A version that
/// the address ends with is not doubled.
pub fn path(api: ProviderKind, profile: Option<&Profile>, base_url: &str) -> String {
    let ends = |version: &str| base_url.ends_with(version);
    let path = match api {
        ProviderKind::Echo => "",
        ProviderKind::OpenaiCompat | ProviderKind::Openrouter if ends("/v1") => "/chat/completions",
        ProviderKind::OpenaiCompat | ProviderKind::Openrouter => {
            profile.unwrap_or(&profile::DEFAULT).chat_path
        }
        ProviderKind::Anthropic if ends("/v1") => "/messages",
        ProviderKind::Anthropic => "/v1/messages",
        ProviderKind::Gemini if GEMINI_VERSIONS.iter().any(|version| ends(version)) => "/models",
        ProviderKind::Gemini => "/v1beta/models",
        // The method alone follows: the model is named by the address.
        ProviderKind::Vertex => "/v1:",
    };
    path.to_owned()
}

/// The path of Claude's models in a project of Google's.
pub fn vertex_path(project: &str, location: &str) -> String {
    format!("/v1/projects/{project}/locations/{location}/publishers/anthropic/models")
}

/// Where a location of Google's is.
pub fn vertex_base_url(location: &str) -> String {
    match location {
        "global" => "https://aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("https://aiplatform.{location}.rep.googleapis.com"),
        _ => format!("https://{location}-aiplatform.googleapis.com"),
    }
}

/// What proves who calls: as a bearer where that is asked for, else in the kind's own way.
pub fn proof(api: ProviderKind, bearer: Option<bool>, in_project: bool) -> Proof {
    let own = |header| Proof {
        header,
        format: "{api_key}",
    };
    match (api, bearer) {
        (_, Some(true)) => BEARER,
        (ProviderKind::Gemini, _) => own("x-goog-api-key"),
        (ProviderKind::Vertex, None) if in_project => BEARER,
        (ProviderKind::Vertex, _) => own("api-key"),
        (ProviderKind::Anthropic, _) | (_, Some(false)) => own("x-api-key"),
        (_, None) => BEARER,
    }
}

/// Members that OpenRouter's provider preferences add to each request body.
pub fn openrouter_body(
    sort: Option<&str>,
    pinned_provider: Option<&str>,
) -> serde_json::Map<String, serde_json::Value> {
    let mut body = serde_json::Map::new();
    if let Some(slug) = pinned_provider {
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

    fn api(word: &str) -> Option<ProviderKind> {
        Kind::named(word).map(|kind| kind.api)
    }

    #[test]
    fn every_kind_is_served() {
        for word in ["openai_compat", "staging", "chutes", "featherless", "cliproxy"] {
            assert_eq!(api(word), Some(ProviderKind::OpenaiCompat), "{word}");
        }
        assert_eq!(api("openrouter"), Some(ProviderKind::Openrouter));
        assert_eq!(api("openrouter[deepinfra/fp8]"), Some(ProviderKind::Openrouter));
        assert_eq!(api("anthropic"), Some(ProviderKind::Anthropic));
        assert_eq!(api("claude"), Some(ProviderKind::Vertex));
        assert_eq!(api("gemini"), Some(ProviderKind::Gemini));
        assert_eq!(api("echo"), Some(ProviderKind::Echo));
        for word in ["openrouter[a b]", "openrouter[]", "nonsense", "default", ""] {
            assert_eq!(api(word), None, "{word}");
        }
    }

    /// A new OpenAI-compatible provider is an entry of the table of profiles and nothing else: whatever stands there is
    /// a kind with its profile, its address and its path.
    #[test]
    fn a_profile_is_all_that_a_new_openai_compatible_provider_needs() {
        for name in profile::names().filter(|name| *name != "default") {
            let kind = Kind::named(name).unwrap_or_else(|| panic!("{name} is no kind"));
            let profile = kind.profile.expect("a profile");
            assert_eq!(profile.name, name);
            assert!(kind.is_openai(), "{name}");
            assert_eq!(
                kind.base_url(),
                Some(profile.base_url).filter(|url| !url.is_empty()),
                "{name}"
            );
            let chat = path(kind.api, Some(profile), profile.base_url);
            assert!(chat.ends_with("/chat/completions"), "{name}: {chat}");
            assert!(
                !format!("{}{chat}", profile.base_url).contains("/v1/v1"),
                "{name}: {chat}"
            );
            assert!(words().split(", ").any(|word| word == name), "{name}");
        }
    }

    #[test]
    fn the_version_in_a_base_url_is_not_doubled() {
        let zai = profile::named("zai");
        for (api, profile, base_url, expected) in [
            (
                ProviderKind::OpenaiCompat,
                None,
                "http://h/v1",
                "/chat/completions",
            ),
            (
                ProviderKind::OpenaiCompat,
                None,
                "http://h",
                "/v1/chat/completions",
            ),
            (
                ProviderKind::OpenaiCompat,
                zai,
                "http://h/api/paas/v4",
                "/chat/completions",
            ),
            (ProviderKind::Anthropic, None, "http://h", "/v1/messages"),
            (ProviderKind::Anthropic, None, "http://h/v1", "/messages"),
            (ProviderKind::Gemini, None, "http://h", "/v1beta/models"),
            (ProviderKind::Gemini, None, "http://h/v1beta", "/models"),
            (ProviderKind::Gemini, None, "http://h/v1", "/models"),
            (ProviderKind::Vertex, None, "http://h/claude", "/v1:"),
        ] {
            assert_eq!(path(api, profile, base_url), expected, "{api:?} {base_url}");
        }
    }

    #[test]
    fn locations_of_google_have_hosts_of_their_own() {
        for (location, host) in [
            ("global", "https://aiplatform.googleapis.com"),
            ("us-east5", "https://us-east5-aiplatform.googleapis.com"),
            ("eu", "https://aiplatform.eu.rep.googleapis.com"),
        ] {
            assert_eq!(vertex_base_url(location), host);
        }
    }
}
