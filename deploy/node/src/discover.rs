//! Engines on this machine and providers whose key is in the environment: asked for their models at the
//! start, and entered into the catalogue like models of a file.

use std::time::Duration;

use futures_util::future::join_all;
use schemas::catalog::{
    Backend, CredentialRef, Endpoint, Modalities, Model, Origin, ProviderKind, Role, Route,
};
use schemas::id::{BackendId, EndpointId, ModelName, PoolName};
use schemas::money::Price;
use schemas::secret::Secret;
use schemas::time::Timestamp;
use serde::Deserialize;
use tracing::{info, warn};

use crate::environment::Environment;
use crate::models::{Compiled, price, provider};

/// How long an engine on this machine may take to tell its models.
const ENGINE_WAIT: Duration = Duration::from_millis(300);
/// How long a provider elsewhere may take.
const PROVIDER_WAIT: Duration = Duration::from_secs(5);
/// Largest list of models that is read, in bytes.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Place of discovered models in the listing: after those of files.
const POSITION: u32 = 1_000_000;

/// Engines by the port they listen on when nobody says otherwise.
const ENGINES: [(&str, u16); 5] = [
    ("ollama", 11434),
    ("vllm", 8000),
    ("llama_cpp", 8080),
    ("lm_studio", 1234),
    ("sglang", 30000),
];

/// Providers of the OpenAI chat API, by the variable that holds their key and the one that moves their address.
const PROVIDERS: [(&str, &str, &str, &str); 2] = [
    (
        "openrouter",
        "OPENROUTER_API_KEY",
        "OPENROUTER_BASE_URL",
        "https://openrouter.ai/api/v1",
    ),
    (
        "openai",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com/v1",
    ),
];

/// Variables of providers that a later version serves.
const LATER: [(&str, &str); 2] = [("anthropic", "ANTHROPIC_API_KEY"), ("gemini", "GEMINI_API_KEY")];

#[derive(Debug, Deserialize)]
struct List {
    data: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    #[serde(default)]
    context_length: Option<u64>,
    #[serde(default)]
    max_model_len: Option<u64>,
    #[serde(default)]
    pricing: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A server to ask.
struct Source {
    label: &'static str,
    base_url: String,
    key: Option<Secret<String>>,
    local: bool,
}

/// Asks engines on loopback ports; each has 300 ms.
pub async fn engines(client: &reqwest::Client, now: Timestamp) -> Compiled {
    let ask = |(label, port): (&'static str, u16)| async move {
        let base_url = format!("http://127.0.0.1:{port}");
        let source = Source {
            label,
            base_url,
            key: None,
            local: true,
        };
        let list = list(client, &source, ENGINE_WAIT).await?;
        info!(
            engine = label,
            port,
            models = list.data.len(),
            "found {label} on port {port}"
        );
        Some(compiled(&source, list, now))
    };
    merged(join_all(ENGINES.map(ask)).await)
}

/// Asks providers whose key is set.
pub async fn providers(client: &reqwest::Client, environment: &Environment, now: Timestamp) -> Compiled {
    for (label, variable) in LATER {
        if environment.get(variable).is_some() {
            warn!(
                provider = label,
                "{variable} is set, but this version does not serve {label}"
            );
        }
    }
    let ask = |(label, key, address, default): (&'static str, &str, &str, &str)| {
        let key = environment.get(key).map(|key| Secret::new(key.trim().to_owned()));
        let base_url = environment
            .get(address)
            .unwrap_or(default)
            .trim_end_matches('/')
            .to_owned();
        async move {
            let source = Source {
                label,
                base_url,
                key: Some(key?),
                local: false,
            };
            let Some(list) = list(client, &source, PROVIDER_WAIT).await else {
                warn!(
                    provider = label,
                    "{label} does not tell its models; none of them is served"
                );
                return None;
            };
            info!(
                provider = label,
                models = list.data.len(),
                "{label} serves its models"
            );
            Some(compiled(&source, list, now))
        }
    };
    merged(join_all(PROVIDERS.map(ask)).await)
}

fn merged(found: impl IntoIterator<Item = Option<Compiled>>) -> Compiled {
    let mut all = Compiled::default();
    for compiled in found.into_iter().flatten() {
        all.extend(compiled);
    }
    all
}

async fn list(client: &reqwest::Client, source: &Source, wait: Duration) -> Option<List> {
    let path = if source.base_url.ends_with("/v1") {
        "/models"
    } else {
        "/v1/models"
    };
    let request = client.get(format!("{}{path}", source.base_url)).timeout(wait);
    let request = match &source.key {
        Some(key) => request.bearer_auth(key.reveal()),
        None => request,
    };
    let response = request.send().await.ok()?.error_for_status().ok()?;
    if response
        .content_length()
        .is_some_and(|length| length > LIST_BYTES_MAX as u64)
    {
        return None;
    }
    let body = response.bytes().await.ok()?;
    serde_json::from_slice(&body).ok()
}

fn compiled(source: &Source, list: List, now: Timestamp) -> Compiled {
    let mut out = Compiled::default();
    for listed in list.data {
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
        let reference = source
            .key
            .as_ref()
            .map(|_| CredentialRef(format!("provider/{}", source.label)));
        if let (Some(reference), Some(key)) = (&reference, &source.key) {
            out.credentials.insert(reference.clone(), key.clone());
        }
        out.models.push(model(source, &listed, &id, now));
        out.endpoints.push(endpoint(source, id, reference));
    }
    out
}

fn endpoint(source: &Source, id: String, credential: Option<CredentialRef>) -> Endpoint {
    let openrouter = source.label == "openrouter";
    Endpoint {
        kind: if openrouter {
            ProviderKind::Openrouter
        } else {
            ProviderKind::OpenaiCompat
        },
        provider: source.label.into(),
        backends: vec![Backend {
            id: BackendId::from(id.as_str()),
            base_url: source.base_url.clone(),
        }],
        chat_path: provider::chat_path("openai_compat", None, &source.base_url),
        embeddings_path: String::new(),
        responses: false,
        profile: String::new(),
        processor: String::new(),
        drop_params: false,
        query: String::new(),
        auth_header: "authorization".into(),
        auth_format: "Bearer {api_key}".into(),
        extra_headers: Vec::new(),
        extra_body: if openrouter {
            r#""usage":{"include":true}"#.into()
        } else {
            String::new()
        },
        credentials: credential.into_iter().collect(),
        credential_roles: Vec::new(),
        single_backend_rescue: false,
        http2: false,
        disabled: false,
        id: EndpointId::new(id),
    }
}

fn model(source: &Source, listed: &Listed, endpoint_id: &str, now: Timestamp) -> Model {
    let context_length = listed.context_length.or(listed.max_model_len).unwrap_or(131_072);
    let media = Modalities::TEXT | Modalities::IMAGE | Modalities::AUDIO | Modalities::VIDEO;
    let price = if source.local {
        Some(Price::default())
    } else {
        listed.pricing.as_ref().and_then(price_per_token)
    };
    Model {
        id: ModelName::from(listed.id.as_str()),
        name: listed.id.as_str().into(),
        aliases: Vec::new(),
        position: POSITION,
        input_modalities: media,
        output_modalities: Modalities::TEXT,
        quantization: "unknown".into(),
        context_length,
        max_output_length: context_length,
        supports_tools: true,
        supports_structured_output: true,
        embeds: false,
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
            price,
        }],
        origin: Origin::File,
    }
}

/// OpenRouter lists dollars per token; a price that cannot be kept exactly is no price.
fn price_per_token(pricing: &serde_json::Map<String, serde_json::Value>) -> Option<Price> {
    let per_million = |key: &str| -> Option<Option<String>> {
        match pricing.get(key).and_then(serde_json::Value::as_str) {
            None => Some(None),
            Some(text) => shift_point(text, 6).map(Some),
        }
    };
    let mut block = std::collections::BTreeMap::new();
    for (ours, theirs) in [
        ("prompt", "prompt"),
        ("completion", "completion"),
        ("input_cache_reads", "input_cache_read"),
        ("input_cache_writes", "input_cache_write"),
    ] {
        if let Some(text) = per_million(theirs)? {
            block.insert(ours.to_owned(), serde_json::Value::String(text));
        }
    }
    for key in ["request", "image"] {
        if let Some(text) = pricing.get(key).and_then(serde_json::Value::as_str) {
            block.insert(key.to_owned(), serde_json::Value::String(text.to_owned()));
        }
    }
    price::read(&block).ok().flatten()
}

/// Moves the decimal point of a plain decimal number to the right.
fn shift_point(text: &str, places: usize) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let padded = format!("{fraction:0<places$}");
    let (moved, rest) = padded.split_at(places);
    let whole = format!("{whole}{moved}");
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if rest.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_per_token_become_dollars_per_million_exactly() {
        assert_eq!(shift_point("0.00000015", 6), Some("0.15".into()));
        assert_eq!(shift_point("0.0000025", 6), Some("2.5".into()));
        assert_eq!(shift_point("0", 6), Some("0".into()));
        assert_eq!(shift_point("1", 6), Some("1000000".into()));
        assert_eq!(shift_point("-1", 6), None);
    }

    #[test]
    fn a_found_engine_is_free_and_takes_everything() {
        let source = Source {
            label: "ollama",
            base_url: "http://127.0.0.1:11434".into(),
            key: None,
            local: true,
        };
        let list: List = serde_json::from_str(r#"{"data": [{"id": "a/b"}, {"id": ""}]}"#).expect("list");

        let compiled = compiled(&source, list, Timestamp::default());

        assert_eq!(compiled.models.len(), 1);
        assert_eq!(compiled.models[0].routes[0].price, Some(Price::default()));
        assert_eq!(compiled.endpoints[0].id.as_str(), "a/b:local-11434");
        assert_eq!(compiled.endpoints[0].chat_path, "/v1/chat/completions");
    }
}
