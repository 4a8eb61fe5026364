//! From entries of models.yaml to records of the catalogue. Pure: everything that is odd becomes a problem
//! with its place, and only what cannot be understood stops the start.

use std::collections::BTreeMap;

use schemas::catalog::{
    Backend, CredentialRef, Endpoint, Modalities, Model, Origin, ProviderKind, Role, Route,
};
use schemas::id::{BackendId, EndpointId, ModelName, PoolName, TenantId};
use schemas::money::Price;
use schemas::secret::Secret;
use schemas::time::Timestamp;

use super::file::{Entry, Leg, ModelsFile};
use super::provider::{self, Support};
use super::{Compiled, endpoint_id, price};
use crate::yaml::{Document, Problem};

/// Tokens of prompt and answer together when the file does not say.
const CONTEXT_LENGTH_DEFAULT: u64 = 8_192;
/// Tokens of an answer when the file does not say.
const MAX_OUTPUT_LENGTH_DEFAULT: u64 = 4_096;
/// Millionths in a weight of 1.
const MICRO: f64 = 1_000_000.0;

/// Compiles a models file. `now` becomes the models' creation time.
pub fn compile(file: &ModelsFile, document: &Document, now: Timestamp) -> Result<Compiled, Problem> {
    let mut out = Compiled::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (n, entry) in file.models.iter().enumerate() {
        let path = format!("models[{n}]");
        check_names(entry, &path, &mut names, document)?;
        let context = Context {
            entry,
            path: &path,
            document,
        };
        context.compile(n, now, &mut out)?;
    }
    Ok(out)
}

fn check_names(
    entry: &Entry,
    path: &str,
    names: &mut BTreeMap<String, String>,
    document: &Document,
) -> Result<(), Problem> {
    if entry.id.is_empty() || entry.id.len() > schemas::id::MODEL_NAME_BYTES_MAX {
        let message = "a model needs an id of 1 to 256 bytes";
        return Err(document.problem(&format!("{path}.id"), message, "give it one"));
    }
    for name in std::iter::once(&entry.id).chain(&entry.aliases) {
        if let Some(first) = names.insert(name.clone(), path.to_owned()) {
            let message = format!("the name \"{name}\" is already taken by {first}");
            return Err(document.problem(&format!("{path}.id"), message, "rename one of them"));
        }
    }
    Ok(())
}

struct Context<'a> {
    entry: &'a Entry,
    path: &'a str,
    document: &'a Document,
}

/// A leg that can be served.
struct Ready {
    route: Route,
    endpoint: Endpoint,
    secrets: Vec<(CredentialRef, Secret<String>)>,
    leg: Leg,
}

/// What became of a leg.
enum Compiling {
    Ready(Box<Ready>),
    /// Left out; the problem says why.
    LeftOut(Problem),
    /// A blank variable on a leg that is not optional: the whole model is left out.
    ModelLeftOut(Problem),
}

impl Context<'_> {
    fn compile(&self, position: usize, now: Timestamp, out: &mut Compiled) -> Result<(), Problem> {
        if self
            .entry
            .model_type
            .as_deref()
            .is_some_and(|kind| kind != "chat")
        {
            let message = format!(
                "\"{}\" is not a chat model and is not served by this version",
                self.entry.id
            );
            out.problems
                .push(self.problem("type", message, "nothing, or remove it"));
            return Ok(());
        }
        self.note_what_has_no_effect(&mut out.problems);
        let own = [Leg::default()];
        let legs = self.entry.route.as_deref().unwrap_or(&own);
        let mut ready = Vec::new();
        for (n, leg) in legs.iter().enumerate() {
            match self.leg(n, leg)? {
                Compiling::Ready(leg) => ready.push(*leg),
                Compiling::LeftOut(problem) => out.problems.push(problem),
                Compiling::ModelLeftOut(problem) => {
                    out.problems.push(problem);
                    return Ok(());
                }
            }
        }
        self.tell_apart(&mut ready, &mut out.problems);
        if ready.iter().all(|leg| leg.route.weight_micro == 0) {
            let message = format!(
                "\"{}\" has no leg with a weight above 0 and is not served",
                self.entry.id
            );
            out.problems
                .push(self.problem("route", message, "give one leg a weight"));
            return Ok(());
        }
        out.models.push(self.model(position, now, &ready)?);
        for leg in ready {
            out.credentials.extend(leg.secrets);
            if !out.endpoints.iter().any(|known| known.id == leg.endpoint.id) {
                out.endpoints.push(leg.endpoint);
            }
        }
        Ok(())
    }

    fn problem(&self, key: &str, message: impl Into<String>, remedy: &str) -> Problem {
        self.document
            .problem(&format!("{}.{key}", self.path), message, remedy)
    }

    fn note_what_has_no_effect(&self, problems: &mut Vec<Problem>) {
        let entry = self.entry;
        let inert = [
            ("pricing_schedule", entry.pricing_schedule.is_some()),
            ("processor", entry.processor.is_some()),
            ("priority_scheduling", entry.priority_scheduling.is_some()),
            ("router_params", !entry.router_params.is_empty()),
            (
                "router",
                entry.router.as_deref().is_some_and(|router| router != "fixed"),
            ),
        ];
        for (key, _) in inert.iter().filter(|(_, set)| *set) {
            problems.push(self.problem(
                key,
                "this version reads it without effect",
                "nothing, or remove it",
            ));
        }
    }

    fn leg(&self, n: usize, leg: &Leg) -> Result<Compiling, Problem> {
        let entry = self.entry;
        let key = if entry.route.is_some() {
            format!("route[{n}]")
        } else {
            "provider".to_owned()
        };
        let kind = leg.kind.as_deref().or(entry.provider.as_deref());
        let Some(kind) = kind else {
            return Err(self.problem(
                &key,
                "neither the model nor the leg says what kind of provider it is",
                "add `provider` or `kind`",
            ));
        };
        let api = match provider::support(kind) {
            Support::Served(api) => api,
            Support::Later => {
                let message = format!("legs of kind \"{kind}\" are not served by this version");
                return Ok(Compiling::LeftOut(self.problem(
                    &key,
                    message,
                    "nothing, or remove the leg",
                )));
            }
            Support::Unknown => {
                let message = format!("\"{kind}\" is not a kind of provider");
                return Err(self.problem(&key, message, "use openai_compat for a server of the OpenAI API"));
            }
        };
        let addresses = match self.addresses(leg, api, &key)? {
            Ok(addresses) => addresses,
            Err(problem) => return Ok(left_out(leg, problem)),
        };
        let secrets = match self.secrets(leg, &key)? {
            Ok(secrets) => secrets,
            Err(problem) => return Ok(left_out(leg, problem)),
        };
        let id = leg.endpoint.clone().unwrap_or_else(|| {
            endpoint_id::derive(&entry.id, kind, addresses.first().map_or("", String::as_str))
        });
        let references = (0..secrets.len()).map(|n| CredentialRef(format!("{id}#{n}")));
        let secrets: Vec<_> = references.zip(secrets).collect();
        let endpoint = self.endpoint(leg, (kind, api), id, (&addresses, &secrets));
        let route = self.route(leg, &key, &endpoint)?;
        Ok(Compiling::Ready(Box::new(Ready {
            route,
            endpoint,
            secrets,
            leg: leg.clone(),
        })))
    }

    /// Base URLs without trailing slashes, or what is blank.
    fn addresses(
        &self,
        leg: &Leg,
        api: ProviderKind,
        key: &str,
    ) -> Result<Result<Vec<String>, Problem>, Problem> {
        if api == ProviderKind::Echo {
            return Ok(Ok(Vec::new()));
        }
        let written: Vec<String> = match (&leg.backends, &leg.base_url, &self.entry.base_url) {
            (Some(backends), None, _) if !backends.is_empty() => {
                backends.iter().map(|backend| backend.url().to_owned()).collect()
            }
            (Some(_), _, _) => {
                return Err(self.problem(
                    key,
                    "give either one `base_url` or a list of `backends`",
                    "remove one of them",
                ));
            }
            (None, Some(url), _) | (None, None, Some(url)) => vec![url.clone()],
            (None, None, None) if api == ProviderKind::Openrouter => {
                vec!["https://openrouter.ai/api/v1".to_owned()]
            }
            (None, None, None) => return Err(self.problem(key, "the leg has no address", "add `base_url`")),
        };
        let mut addresses = Vec::new();
        for url in written {
            let url = url.trim().trim_end_matches('/').to_owned();
            if url.is_empty() {
                let message = format!("the address of \"{}\" is blank", self.entry.id);
                return Ok(Err(self.problem(key, message, "set the variable it refers to")));
            }
            let valid = url
                .parse::<reqwest::Url>()
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            if !valid {
                return Err(self.problem(
                    key,
                    "the address is not an http or https URL",
                    "write it as http://HOST:PORT/PATH",
                ));
            }
            addresses.push(url);
        }
        Ok(Ok(addresses))
    }

    /// Credentials in order, each once; or what is blank.
    fn secrets(&self, leg: &Leg, key: &str) -> Result<Result<Vec<Secret<String>>, Problem>, Problem> {
        if leg.api_key.is_some() && leg.api_keys.is_some() {
            return Err(self.problem(key, "`api_key` and `api_keys` are both given", "keep one of them"));
        }
        let own = leg.api_key.is_some() || leg.api_keys.is_some();
        let written: Vec<&String> = match (own, &leg.api_key, &leg.api_keys) {
            (true, Some(one), _) => vec![one],
            (true, None, Some(many)) => many.iter().collect(),
            _ => self
                .entry
                .api_key
                .iter()
                .chain(self.entry.api_keys.iter().flatten())
                .collect(),
        };
        let mut secrets: Vec<Secret<String>> = Vec::new();
        for text in written
            .iter()
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
        {
            let secret = Secret::new(text.to_owned());
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
        if !written.is_empty() && secrets.is_empty() {
            let message = format!("the credential of \"{}\" is blank", self.entry.id);
            return Ok(Err(self.problem(key, message, "set the variable it refers to")));
        }
        Ok(Ok(secrets))
    }

    fn endpoint(
        &self,
        leg: &Leg,
        (kind, api): (&str, ProviderKind),
        id: String,
        (addresses, secrets): (&[String], &[(CredentialRef, Secret<String>)]),
    ) -> Endpoint {
        let entry = self.entry;
        let first = addresses.first().map_or("", String::as_str);
        let profile = leg
            .provider_profile
            .as_deref()
            .or(entry.provider_profile.as_deref());
        let path = leg.chat_path.clone().or_else(|| entry.chat_path.clone());
        let headers = leg.extra_headers.as_ref().unwrap_or(&entry.extra_headers);
        let query = leg.extra_query.as_ref().unwrap_or(&entry.extra_query);
        let bearer = leg.use_bearer_auth.or(entry.use_bearer_auth).unwrap_or(true);
        let header = leg.auth_header_name.as_ref().or(entry.auth_header_name.as_ref());
        let format = leg.auth_format.as_ref().or(entry.auth_format.as_ref());
        let (default_header, default_format) = if bearer {
            ("authorization", "Bearer {api_key}")
        } else {
            ("x-api-key", "{api_key}")
        };
        Endpoint {
            kind: api,
            provider: leg
                .provider
                .as_deref()
                .unwrap_or_else(|| kind.split('[').next().unwrap_or(kind))
                .into(),
            backends: backends(&id, addresses),
            chat_path: path.unwrap_or_else(|| provider::chat_path(kind, profile, first)),
            query: query
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("&"),
            auth_header: header.map_or(default_header.to_owned(), |name| name.to_ascii_lowercase()),
            auth_format: format.map_or(default_format.to_owned(), Clone::clone),
            extra_headers: headers
                .iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                .collect(),
            extra_body: self.extra_body(leg, kind),
            credentials: secrets.iter().map(|(reference, _)| reference.clone()).collect(),
            single_backend_rescue: leg.single_backend_rescue.unwrap_or(false),
            http2: leg.http2.unwrap_or(false),
            disabled: false,
            id: EndpointId::new(id),
        }
    }

    fn extra_body(&self, leg: &Leg, kind: &str) -> String {
        let sort = leg
            .openrouter_sort
            .as_deref()
            .or(self.entry.openrouter_sort.as_deref());
        let pinned = leg
            .openrouter_pinned_provider
            .as_deref()
            .or(self.entry.openrouter_pinned_provider.as_deref());
        let mut members = provider::extra_body(kind, sort, pinned);
        members.extend(
            leg.extra_body
                .clone()
                .unwrap_or_else(|| self.entry.extra_body.clone()),
        );
        if members.is_empty() {
            return String::new();
        }
        let text = serde_json::Value::Object(members).to_string();
        text[1..text.len() - 1].to_owned()
    }

    fn route(&self, leg: &Leg, key: &str, endpoint: &Endpoint) -> Result<Route, Problem> {
        let entry = self.entry;
        let upstream = leg
            .provider_model_id
            .as_ref()
            .or(entry.provider_model_id.as_ref())
            .unwrap_or(&entry.id);
        Ok(Route {
            endpoint_id: endpoint.id.clone(),
            upstream_model: upstream.as_str().into(),
            priority: leg.priority.unwrap_or(0),
            weight_micro: weight_micro(leg.weight.unwrap_or(1.0)).ok_or_else(|| {
                self.problem(
                    &format!("{key}.weight"),
                    "a weight is a number that is not negative",
                    "correct it",
                )
            })?,
            pool: PoolName::from(leg.pool.as_deref().unwrap_or("default")),
            context_length: leg
                .context_length
                .or(entry.context_length)
                .unwrap_or(CONTEXT_LENGTH_DEFAULT),
            input_modalities: self.modalities(
                leg.input_modalities
                    .as_deref()
                    .or(entry.input_modalities.as_deref()),
                key,
            )?,
            price: self.price(leg, key, endpoint)?,
        })
    }

    fn price(&self, leg: &Leg, key: &str, endpoint: &Endpoint) -> Result<Option<Price>, Problem> {
        if endpoint.kind == ProviderKind::Echo && leg.pricing.is_none() && self.entry.pricing.is_none() {
            return Ok(Some(Price::default()));
        }
        let Some(block) = leg.pricing.as_ref().or(self.entry.pricing.as_ref()) else {
            return Ok(None);
        };
        let key = if leg.pricing.is_some() {
            format!("{key}.pricing")
        } else {
            "pricing".to_owned()
        };
        price::read(block)
            .map_err(|error| self.problem(&key, error.to_string(), "write prices as decimal strings of USD"))
    }

    fn modalities(&self, words: Option<&[String]>, key: &str) -> Result<Modalities, Problem> {
        let mut set = Modalities::TEXT;
        for word in words.unwrap_or_default() {
            let one = Modalities::of_word(word).ok_or_else(|| {
                self.problem(
                    key,
                    format!("\"{word}\" is not a modality"),
                    "use text, image, audio or video",
                )
            })?;
            set = set | one;
        }
        Ok(set)
    }

    /// Legs that would share a name and are not the same endpoint each get their host and port as suffix.
    fn tell_apart(&self, legs: &mut [Ready], problems: &mut Vec<Problem>) {
        let mut given: Vec<String> = Vec::new();
        let names: Vec<EndpointId> = legs.iter().map(|leg| leg.endpoint.id.clone()).collect();
        for (n, leg) in legs.iter_mut().enumerate() {
            let shared = names
                .iter()
                .enumerate()
                .any(|(other, name)| other != n && *name == names[n]);
            if !shared || leg.leg.endpoint.is_some() {
                continue;
            }
            let url = leg
                .endpoint
                .backends
                .first()
                .map_or("", |backend| backend.base_url.as_str());
            let suffixed = format!("{}{}", names[n], endpoint_id::suffix(url));
            let twin = given.iter().filter(|name| **name == suffixed).count();
            let id = if twin > 0 {
                format!("{suffixed}.{twin}")
            } else {
                suffixed.clone()
            };
            given.push(suffixed);
            let message = format!("two legs would be named \"{}\"; this one is \"{id}\"", names[n]);
            problems.push(self.problem(
                &format!("route[{n}]"),
                message,
                "nothing, or name it with `endpoint`",
            ));
            rename(leg, &id);
        }
    }

    fn model(&self, position: usize, now: Timestamp, legs: &[Ready]) -> Result<Model, Problem> {
        let entry = self.entry;
        let union = legs
            .iter()
            .fold(Modalities::TEXT, |set, leg| set | leg.route.input_modalities);
        let support = |own: Option<bool>, leg: fn(&Leg) -> Option<bool>| {
            legs.iter().any(|ready| leg(&ready.leg).or(own).unwrap_or(false))
        };
        let output = legs
            .iter()
            .map(|ready| {
                ready
                    .leg
                    .max_output_length
                    .or(entry.max_output_length)
                    .unwrap_or(MAX_OUTPUT_LENGTH_DEFAULT)
            })
            .min();
        let default_params = || ["temperature", "top_p", "max_tokens"].map(str::to_owned).to_vec();
        Ok(Model {
            id: ModelName::from(entry.id.as_str()),
            name: entry.name.as_deref().unwrap_or(&entry.id).into(),
            aliases: entry
                .aliases
                .iter()
                .map(|alias| ModelName::from(alias.as_str()))
                .collect(),
            position: u32::try_from(position).unwrap_or(u32::MAX),
            input_modalities: union,
            output_modalities: self.modalities(entry.output_modalities.as_deref(), "output_modalities")?,
            quantization: entry.quantization.as_deref().unwrap_or("bf16").into(),
            context_length: legs
                .iter()
                .map(|leg| leg.route.context_length)
                .min()
                .unwrap_or(CONTEXT_LENGTH_DEFAULT),
            max_output_length: output.unwrap_or(MAX_OUTPUT_LENGTH_DEFAULT),
            supports_tools: support(entry.supports_tools, |leg| leg.supports_tools),
            supports_structured_output: support(entry.supports_structured_output, |leg| {
                leg.supports_structured_output
            }),
            supported_params: entry.supported_params.clone().unwrap_or_else(default_params),
            required_role: self.required_role()?,
            tenants: self.tenants()?,
            pricing: listed_pricing(entry, legs),
            created_at: now,
            routes: legs.iter().map(|leg| leg.route.clone()).collect(),
            origin: Origin::File,
        })
    }

    fn required_role(&self) -> Result<Role, Problem> {
        let Some(word) = self.entry.required_role.as_deref() else {
            return Ok(if self.entry.admin_only.unwrap_or(false) {
                Role::Admin
            } else {
                Role::Free
            });
        };
        crate::keys::role(word).ok_or_else(|| {
            self.problem(
                "required_role",
                format!("\"{word}\" is not a role"),
                "use free, pro, internal or admin",
            )
        })
    }

    fn tenants(&self) -> Result<Option<Vec<TenantId>>, Problem> {
        let Some(names) = &self.entry.tenants else {
            return Ok(None);
        };
        let parse = |name: &String| {
            TenantId::parse(name).ok_or_else(|| {
                self.problem("tenants", format!("\"{name}\" is not a tenant id"), "correct it")
            })
        };
        names.iter().map(parse).collect::<Result<_, _>>().map(Some)
    }
}

fn left_out(leg: &Leg, problem: Problem) -> Compiling {
    if leg.optional.unwrap_or(false) {
        Compiling::LeftOut(problem)
    } else {
        Compiling::ModelLeftOut(problem)
    }
}

fn rename(leg: &mut Ready, id: &str) {
    let urls: Vec<String> = leg
        .endpoint
        .backends
        .iter()
        .map(|backend| backend.base_url.clone())
        .collect();
    leg.endpoint.id = EndpointId::from(id);
    leg.endpoint.backends = backends(id, &urls);
    leg.route.endpoint_id = leg.endpoint.id.clone();
    for (n, (reference, _)) in leg.secrets.iter_mut().enumerate() {
        *reference = CredentialRef(format!("{id}#{n}"));
    }
    leg.endpoint.credentials = leg
        .secrets
        .iter()
        .map(|(reference, _)| reference.clone())
        .collect();
}

fn backends(id: &str, addresses: &[String]) -> Vec<Backend> {
    let name = |n: usize| {
        if addresses.len() == 1 {
            id.to_owned()
        } else {
            format!("{id}#{n}")
        }
    };
    let backend = |(n, url): (usize, &String)| Backend {
        id: BackendId::new(name(n)),
        base_url: url.clone(),
    };
    addresses.iter().enumerate().map(backend).collect()
}

/// A weight in millionths; a weight above 0 never becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded just before"
)]
fn weight_micro(weight: f64) -> Option<u64> {
    if !weight.is_finite() || !(0.0..=1e9).contains(&weight) {
        return None;
    }
    let micro = (weight * MICRO).round() as u64;
    Some(if weight > 0.0 { micro.max(1) } else { 0 })
}

fn listed_pricing(entry: &Entry, legs: &[Ready]) -> Vec<(String, String)> {
    let block = entry
        .pricing
        .as_ref()
        .or_else(|| legs.first().and_then(|leg| leg.leg.pricing.as_ref()));
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    block
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

#[cfg(test)]
mod tests;
