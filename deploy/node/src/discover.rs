//! Engines on this machine and providers whose key is in the environment: asked for their models at the
//! start, and entered into the catalogue like models of a file. A key is in headers only, never in a URL.

mod list;

use std::sync::Arc;
use std::time::Duration;

use dialects::profile::{self, Profile};
use futures_util::future::join_all;
use reqwest::Url;
use router_worker::{ReadError, Reader};
use schemas::catalog::modality::Modalities;
use schemas::catalog::{Backend, CredentialRef, Endpoint, Model, Origin, ProviderKind, Role, Route};
use schemas::id::{BackendId, EndpointId, ModelName, PoolName};
use schemas::money::Price;
use schemas::secret::Secret;
use schemas::time::Timestamp;
use tracing::{info, warn};

use crate::catalog_files::attribute;
use crate::environment::Environment;
use crate::models::Compiled;
use dialects::provider::{self, Kind};

use list::Listed;

/// How long an engine on this machine may take to tell its models.
const ENGINE_WAIT: Duration = Duration::from_millis(300);
/// How long a provider elsewhere may take for one page.
const PROVIDER_WAIT: Duration = Duration::from_secs(5);
/// Largest page of a list that is read, in bytes.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most pages that are read of one list.
const PAGES_MAX: usize = 20;
/// Place of discovered models in the listing: after those of files.
const POSITION: u32 = 1_000_000;
/// Numbered keys that join the one without a number.
const KEYS_MAX: u32 = 20;
/// The version of Anthropic's API in which its list is asked for.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Tokens of prompt and answer together where a list does not tell.
const CONTEXT_LENGTH: u64 = 131_072;
/// The same of Claude.
const CLAUDE_CONTEXT_LENGTH: u64 = 200_000;
/// Tokens that Claude may answer with where its list does not tell: what callers who say nothing ask for.
const CLAUDE_OUTPUT_LENGTH: u64 = 32_000;
/// The same of the models that are named so.
const CLAUDE_3: (&str, u64) = ("claude-3-", 4_096);

/// Engines by the port they listen on when nobody says otherwise, and their profiles.
const ENGINES: [(&str, u16, &str); 5] = [
    ("ollama", 11434, "ollama"),
    ("vllm", 8000, "vllm"),
    ("llama_cpp", 8080, "llama.cpp"),
    ("lm_studio", 1234, "lmstudio"),
    ("sglang", 30000, "sglang"),
];

/// Providers by their kind, the variable that holds their key and the one that moves their address.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    ("gemini", "GEMINI_API_KEY", "GEMINI_BASE_URL"),
];

/// A server to ask.
struct Source {
    label: &'static str,
    api: ProviderKind,
    profile: Option<&'static Profile>,
    base_url: String,
    keys: Vec<Secret<String>>,
    local: bool,
}

/// Asks engines on loopback ports; each has 300 ms.
pub async fn engines(reader: &Reader, now: Timestamp) -> Compiled {
    let ask = |(label, port, profile): (&'static str, u16, &'static str)| async move {
        let source = Source {
            label,
            api: ProviderKind::OpenaiCompat,
            profile: profile::named(profile),
            base_url: format!("http://127.0.0.1:{port}"),
            keys: Vec::new(),
            local: true,
        };
        let models = models(reader, &source, ENGINE_WAIT).await.ok()?;
        info!(
            engine = label,
            port,
            models = models.len(),
            "found {label} on port {port}"
        );
        Some(compiled(&source, models, now))
    };
    merged(join_all(ENGINES.map(ask)).await)
}

/// Asks providers whose key is set.
pub async fn providers(reader: &Reader, environment: &Environment, now: Timestamp) -> Compiled {
    let ask = |(label, key, address): (&'static str, &str, &str)| {
        let source = source(environment, label, (key, address));
        async move {
            let source = source?;
            match models(reader, &source, PROVIDER_WAIT).await {
                Ok(models) => {
                    info!(
                        provider = label,
                        models = models.len(),
                        "{label} serves its models"
                    );
                    Some(compiled(&source, models, now))
                }
                Err(problem) => {
                    warn!(
                        provider = label,
                        error = &problem as &dyn std::error::Error,
                        "{label} does not tell its models; none of them is served"
                    );
                    None
                }
            }
        }
    };
    let mut found = merged(join_all(PROVIDERS.map(ask)).await);
    attribute(&mut found, environment);
    found
}

/// A provider whose key is set: one, and those that are numbered from 1.
fn source(environment: &Environment, label: &'static str, (key, address): (&str, &str)) -> Option<Source> {
    let numbered = (1..=KEYS_MAX).map(|n| format!("{key}{n}"));
    let mut keys: Vec<Secret<String>> = Vec::new();
    for name in std::iter::once(key.to_owned()).chain(numbered) {
        let told = environment
            .get(&name)
            .map(|key| Secret::new(key.trim().to_owned()));
        keys.extend(told.filter(|key| !keys.contains(key)));
    }
    let kind = Kind::named(label).filter(|_| !keys.is_empty())?;
    let base_url = environment.get(address).or(kind.base_url())?;
    Some(Source {
        label,
        api: kind.api,
        profile: kind.profile,
        base_url: base_url.trim().trim_end_matches('/').to_owned(),
        keys,
        local: false,
    })
}

fn merged(found: impl IntoIterator<Item = Option<Compiled>>) -> Compiled {
    let mut all = Compiled::default();
    for compiled in found.into_iter().flatten() {
        all.extend(compiled);
    }
    all
}

/// A list could not be read.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("its address is not valid")]
    Address,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("its list of models is not understood")]
    Malformed,
}

/// Reads the pages of a list, with the first of the keys.
async fn models(reader: &Reader, source: &Source, wait: Duration) -> Result<Vec<Listed>, Error> {
    let mut headers = Vec::new();
    if let Some(key) = source.keys.first() {
        let proof = provider::proof(source.api, None, false);
        let value = proof.format.replace("{api_key}", key.reveal());
        headers.push((proof.header, Secret::new(value)));
    }
    if source.api == ProviderKind::Anthropic {
        headers.push(("anthropic-version", Secret::new(ANTHROPIC_VERSION.to_owned())));
    }
    let (mut models, mut skipped) = (Vec::new(), 0);
    let mut next = None;
    for _ in 0..PAGES_MAX {
        let url = list_url(source, next.as_deref()).ok_or(Error::Address)?;
        let body = reader.get(url.as_str(), &headers, (wait, LIST_BYTES_MAX)).await?;
        let page = list::page(source.api, &body).ok_or(Error::Malformed)?;
        models.extend(page.models);
        skipped += page.skipped;
        match page.next {
            Some(from) if next.as_ref() != Some(&from) => next = Some(from),
            _ => break,
        }
    }
    if skipped > 0 {
        let label = source.label;
        warn!(
            provider = label,
            skipped, "some of the models that {label} lists are not understood and not served"
        );
    }
    Ok(models)
}

fn list_url(source: &Source, from: Option<&str>) -> Option<Url> {
    let path = match source.api {
        ProviderKind::Gemini => provider::path(source.api, None, &source.base_url),
        _ if source.base_url.ends_with("/v1") => "/models".to_owned(),
        _ => "/v1/models".to_owned(),
    };
    let mut url: Url = format!("{}{path}", source.base_url).parse().ok()?;
    let query = list::query(source.api, from);
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Some(url)
}

fn compiled(source: &Source, models: Vec<Listed>, now: Timestamp) -> Compiled {
    let mut out = Compiled::default();
    let references: Vec<CredentialRef> = (0..source.keys.len())
        .map(|n| CredentialRef(format!("provider/{}#{n}", source.label)))
        .collect();
    let held = references.iter().cloned().zip(source.keys.iter().cloned());
    out.credentials.extend(held);
    for listed in models {
        if listed.id.is_empty() || listed.id.len() > schemas::id::MODEL_NAME_BYTES_MAX {
            continue;
        }
        let port = source.base_url.rsplit(':').next().unwrap_or_default();
        let place = if source.local {
            format!("local-{port}")
        } else {
            format!("{}-api", source.label)
        };
        let id = format!("{}:{place}", listed.id);
        out.models.push(model(source, &listed, &id, now));
        out.endpoints.push(endpoint(source, id, references.clone()));
    }
    out
}

fn endpoint(source: &Source, id: String, credentials: Vec<CredentialRef>) -> Endpoint {
    let proof = provider::proof(source.api, None, false);
    let backend = Backend {
        id: BackendId::from(id.as_str()),
        base_url: source.base_url.clone(),
    };
    Endpoint {
        backends: vec![backend],
        chat_path: provider::path(source.api, source.profile, &source.base_url),
        profile: source
            .profile
            .map_or_else(String::new, |profile| profile.name.to_owned()),
        auth_header: proof.header.to_owned(),
        auth_format: proof.format.to_owned(),
        credentials,
        ..Endpoint::of_file(EndpointId::new(id), source.api, source.label.into())
    }
}

/// Whether a model of a list is there to be asked for embeddings. Such lists do not say; names do.
fn is_embedder(api: ProviderKind, id: &str) -> bool {
    let is_openai = matches!(api, ProviderKind::OpenaiCompat | ProviderKind::Openrouter);
    is_openai && id.to_ascii_lowercase().contains("embed")
}

fn model(source: &Source, listed: &Listed, endpoint_id: &str, now: Timestamp) -> Model {
    let claude = source.api == ProviderKind::Anthropic;
    let context_length = listed.context_length.unwrap_or(if claude {
        CLAUDE_CONTEXT_LENGTH
    } else {
        CONTEXT_LENGTH
    });
    let max_output_length = listed.max_output_length.unwrap_or(match claude {
        true if listed.id.starts_with(CLAUDE_3.0) => CLAUDE_3.1,
        true => CLAUDE_OUTPUT_LENGTH,
        false => context_length,
    });
    let media = Modalities::TEXT | Modalities::IMAGE | Modalities::AUDIO | Modalities::VIDEO;
    let price = if source.local {
        Some(Price::default())
    } else {
        listed.price
    };
    Model {
        id: ModelName::from(listed.id.as_str()),
        name: listed.name.as_deref().unwrap_or(&listed.id).into(),
        aliases: Vec::new(),
        position: POSITION,
        input_modalities: media,
        output_modalities: Modalities::TEXT,
        quantization: "unknown".into(),
        context_length,
        max_output_length,
        supports_tools: true,
        supports_structured_output: true,
        embeds: is_embedder(source.api, &listed.id),
        supported_params: ["temperature", "top_p", "max_tokens"].map(str::to_owned).to_vec(),
        required_role: Role::Free,
        tenants: None,
        pricing: Vec::new(),
        created_at: now,
        routes: vec![Route {
            endpoint_id: EndpointId::from(endpoint_id),
            upstream_model: listed.id.as_str().into(),
            priority: 0,
            weight_micro: 1_000_000,
            pool: PoolName::from("default"),
            context_length,
            input_modalities: media,
            takes: Arc::default(),
            price,
            origin: Origin::File,
            rates: None,
        }],
        origin: Origin::File,
        owner: schemas::catalog::operators(),
        router: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_environment(pairs: &[(&str, &str)], label: &'static str) -> Option<Source> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let (_, key, address) = PROVIDERS.iter().find(|(known, _, _)| *known == label)?;
        source(&environment, label, (key, address))
    }

    fn listed(id: &str) -> Listed {
        Listed {
            id: id.to_owned(),
            ..Listed::default()
        }
    }

    #[test]
    fn a_found_engine_is_free_and_takes_everything() {
        let source = Source {
            label: "ollama",
            api: ProviderKind::OpenaiCompat,
            profile: profile::named("ollama"),
            base_url: "http://127.0.0.1:11434".into(),
            keys: Vec::new(),
            local: true,
        };

        let compiled = compiled(&source, vec![listed("a/b"), listed("")], Timestamp::default());

        assert_eq!(compiled.models.len(), 1);
        assert_eq!(compiled.models[0].routes[0].price, Some(Price::default()));
        assert_eq!(compiled.endpoints[0].id.as_str(), "a/b:local-11434");
        assert_eq!(compiled.endpoints[0].chat_path, "/v1/chat/completions");
        assert_eq!(compiled.endpoints[0].profile, "ollama");
    }

    #[test]
    fn a_model_that_is_called_an_embedder_is_asked_for_embeddings() {
        let is = is_embedder;

        assert!(is(ProviderKind::OpenaiCompat, "text-embedding-3-small"));
        assert!(is(ProviderKind::OpenaiCompat, "Nomic-Embed-Text:latest"));
        assert!(!is(ProviderKind::OpenaiCompat, "llama3.2:3b"));
        assert!(!is(ProviderKind::Gemini, "embedding-001"));
    }

    #[test]
    fn the_profiles_of_engines_are_there() {
        for (label, _, name) in ENGINES {
            assert_eq!(
                profile::named(name).map(|profile| profile.name),
                Some(name),
                "{label}"
            );
        }
    }

    #[test]
    fn lists_are_asked_for_at_the_usual_places_and_the_key_is_in_no_url() {
        for (label, variable, url) in [
            ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1/models"),
            (
                "openrouter",
                "OPENROUTER_API_KEY",
                "https://openrouter.ai/api/v1/models",
            ),
            (
                "anthropic",
                "ANTHROPIC_API_KEY",
                "https://api.anthropic.com/v1/models?limit=1000",
            ),
            (
                "gemini",
                "GEMINI_API_KEY",
                "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1000",
            ),
        ] {
            let source = of_environment(&[(variable, " k-1 ")], label).expect("a source");
            let asked = list_url(&source, None).expect("a URL");
            assert_eq!(asked.as_str(), url);
            assert_eq!(source.keys[0].reveal(), "k-1");
        }
        let moved = [
            ("ANTHROPIC_API_KEY", "k"),
            ("ANTHROPIC_BASE_URL", "http://h:1/v1/"),
        ];
        let source = of_environment(&moved, "anthropic").expect("a source");
        let asked = list_url(&source, Some("a&b")).expect("a URL");
        assert_eq!(asked.as_str(), "http://h:1/v1/models?limit=1000&after_id=a%26b");
        assert!(of_environment(&[("ANTHROPIC_API_KEY", " ")], "anthropic").is_none());
    }

    #[test]
    fn numbered_keys_join_the_pool_each_once() {
        let pairs = [
            ("OPENAI_API_KEY", "a"),
            ("OPENAI_API_KEY2", "b"),
            ("OPENAI_API_KEY20", "a"),
        ];
        let source = of_environment(&pairs, "openai").expect("a source");

        let compiled = compiled(&source, vec![listed("m")], Timestamp::default());

        assert_eq!(compiled.endpoints[0].credentials.len(), 2);
        assert_eq!(compiled.credentials.len(), 2);
        assert_eq!(compiled.endpoints[0].profile, "openai");
    }

    #[test]
    fn models_of_anthropic_and_gemini_are_called_in_their_own_dialects() {
        let anthropic = of_environment(&[("ANTHROPIC_API_KEY", "k")], "anthropic").expect("a source");
        let old = compiled(
            &anthropic,
            vec![listed("claude-x"), listed("claude-3-x")],
            Timestamp::default(),
        );
        assert_eq!(old.endpoints[0].kind, ProviderKind::Anthropic);
        assert_eq!(old.endpoints[0].chat_path, "/v1/messages");
        assert_eq!(old.endpoints[0].auth_header, "x-api-key");
        assert_eq!(old.models[0].max_output_length, 32_000);
        assert_eq!(old.models[1].max_output_length, 4_096);
        assert_eq!(old.models[0].routes[0].price, None, "nobody tells its price");

        let gemini = of_environment(&[("GEMINI_API_KEY", "k")], "gemini").expect("a source");
        let compiled = compiled(&gemini, vec![listed("gemini-x")], Timestamp::default());
        assert_eq!(compiled.endpoints[0].kind, ProviderKind::Gemini);
        assert_eq!(compiled.endpoints[0].chat_path, "/v1beta/models");
        assert_eq!(compiled.endpoints[0].auth_header, "x-goog-api-key");
    }
}
