//! From entries of models.yaml to records of the catalogue. Pure: everything that is odd becomes a problem
//! with its place, and only what cannot be understood stops the start.

mod address;
mod choice;
mod credential;
mod endpoint;
mod inert;
mod price;
mod router;
mod takes;
mod unsaid;
mod wake;
mod watched;

use std::collections::BTreeMap;
use std::io;

use dialects::provider::{self, Kind};
use schemas::catalog::modality::Modalities;
use schemas::catalog::replica::replicas;
use schemas::catalog::{Endpoint, Model, Origin, Role, Route};
use schemas::id::{EndpointId, ModelName, PoolName, TenantId};
use schemas::time::Timestamp;
use schemas::wake::command_reference;

use super::file::{Entry, Leg, ModelsFile};
use super::{Compiled, endpoint_id};
use crate::config::cluster::is_pool;
use crate::yaml::{Document, Problem};

use credential::Credential;
use endpoint::Found;
use wake::Waking;

/// Tokens of prompt and answer together when the file does not say.
const CONTEXT_LENGTH_DEFAULT: u64 = 8_192;
/// Tokens of an answer when the file does not say.
const MAX_OUTPUT_LENGTH_DEFAULT: u64 = 4_096;
/// Types of models.
const TYPES: [&str; 2] = ["chat", EMBEDDING];
/// The type of models that give embeddings.
const EMBEDDING: &str = "embedding";
/// Millionths in a weight of 1.
const MICRO: f64 = 1_000_000.0;

/// Who holds credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// This node.
    Here,
    /// Others: one that is blank counts as there, so that what comes out is what its holders would say.
    Elsewhere,
}

/// Where credentials come from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Who holds them.
    pub held: Held,
    /// The file that Google's own tools would read, where the environment names one.
    pub application_credentials: Option<&'a str>,
    /// Reads a file that holds one.
    pub read: &'a dyn Fn(&str) -> io::Result<String>,
}

/// Compiles a models file. `now` becomes the models' creation time.
pub fn compile(
    file: &ModelsFile,
    document: &Document,
    sources: Sources<'_>,
    now: Timestamp,
) -> Result<Compiled, Problem> {
    let mut out = Compiled::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (n, entry) in file.models.iter().enumerate() {
        let path = format!("models[{n}]");
        check_names(entry, &path, &mut names, document)?;
        let context = Context {
            entry,
            path: &path,
            document,
            sources,
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
    sources: Sources<'a>,
}

/// A leg that can be served.
struct Ready {
    route: Route,
    endpoint: Endpoint,
    credentials: Vec<Credential>,
    waking: Waking,
    leg: Leg,
    /// Its place in the file.
    place: usize,
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
        if let Some(word) = self
            .entry
            .model_type
            .as_deref()
            .filter(|word| !TYPES.contains(word))
        {
            let message = format!("\"{word}\" is not a type of model");
            return Err(self.problem(
                &self.at("", &["model_type", "type"]),
                message,
                "use chat or embedding",
            ));
        }
        self.note_what_has_no_effect(&mut out.problems);
        self.note_unknown_parameters(&mut out.problems);
        let router = self.router(&mut out.problems)?;
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
        if let Some(problem) = self.not_served(&ready, legs) {
            out.problems.push(problem);
            return Ok(());
        }
        self.note_tools(&ready, &mut out.problems);
        let model = self.model(position, now, &ready)?;
        out.models.push(Model {
            router: self.routed(router, &ready, &mut out.problems)?,
            ..model
        });
        for leg in ready {
            self.check_shared(&leg, out)?;
            let id = leg.endpoint.id.as_str();
            let held = leg
                .credentials
                .iter()
                .map(|one| (one.reference(id), one.secret.clone()));
            out.credentials.extend(held);
            out.credentials.extend(leg.waking.entry(&leg.endpoint.id));
            if !out.endpoints.iter().any(|known| known.id == leg.endpoint.id) {
                out.endpoints.push(leg.endpoint);
            }
        }
        Ok(())
    }

    /// Why nothing serves the model; `None` when a leg does. `legs` are those of the file, `ready` those that are left.
    fn not_served(&self, ready: &[Ready], legs: &[Leg]) -> Option<Problem> {
        if ready.iter().any(|leg| leg.route.weight_micro > 0) {
            return None;
        }
        let id = &self.entry.id;
        let (message, remedy) = if ready.is_empty() && !legs.is_empty() {
            (
                format!("every leg of \"{id}\" is left out, so it is not served"),
                "set the variables of one of them",
            )
        } else {
            (
                format!("\"{id}\" has no leg with a weight above 0 and is not served"),
                "give one leg a weight",
            )
        };
        Some(self.problem("route", message, remedy))
    }

    fn problem(&self, key: &str, message: impl Into<String>, remedy: &str) -> Problem {
        self.document
            .problem(&format!("{}.{key}", self.path), message, remedy)
    }

    /// Where something is written: the first of `names` that the leg or else its model has, else the leg itself.
    fn at(&self, key: &str, names: &[&str]) -> String {
        let of_leg = names.iter().map(|name| format!("{key}.{name}"));
        let of_model = names.iter().map(|name| (*name).to_owned());
        let mut paths = of_leg
            .chain(of_model)
            .map(|path| path.trim_start_matches('.').to_owned());
        let found = paths.find(|path| self.document.has(&format!("{}.{path}", self.path)));
        found.unwrap_or_else(|| key.to_owned())
    }

    fn embeds(&self) -> bool {
        self.entry.model_type.as_deref() == Some(EMBEDDING)
    }

    /// Refuses a shared endpoint that two legs describe differently: the credentials of one would go to the other's
    /// address.
    fn check_shared(&self, leg: &Ready, out: &Compiled) -> Result<(), Problem> {
        let id = leg.endpoint.id.as_str();
        let Some(known) = out.endpoints.iter().find(|known| known.id == leg.endpoint.id) else {
            return Ok(());
        };
        let same = |one: &Credential| {
            let held = out.credentials.get(&one.reference(id));
            held.is_none_or(|held| *held == one.secret)
        };
        let command = |reference| out.credentials.get(&reference);
        let same_command = command(command_reference(&known.id)) == leg.waking.command.as_ref();
        if *known == leg.endpoint && same_command && leg.credentials.iter().all(same) {
            return Ok(());
        }
        let message = format!(
            "the endpoint \"{}\" is described twice, and not in the same way",
            known.id
        );
        Err(self.problem(
            "route",
            message,
            "describe it the same way everywhere, or name it differently",
        ))
    }

    /// The pool that runs the calls of a leg: one word of a subject.
    fn pool(&self, leg: &Leg, key: &str) -> Result<PoolName, Problem> {
        let name = leg.pool.as_deref().unwrap_or("default");
        if is_pool(name) {
            return Ok(PoolName::from(name));
        }
        let remedy = "use letters, digits, hyphens and underscores, at most 63";
        Err(self.problem(&format!("{key}.pool"), "is not the name of a pool", remedy))
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
        let Some(kind) = Kind::named(kind) else {
            let message = format!("\"{kind}\" is not a kind of provider");
            let remedy = format!(
                "use openai_compat for a server of the OpenAI API, or one of {}",
                provider::words()
            );
            return Err(self.problem(&self.at(&key, &["kind", "provider"]), message, &remedy));
        };
        self.check_embeds(&kind, &key)?;
        self.check_openrouter(leg, &kind, &key)?;
        let place = self.place(leg, &kind, &key)?;
        let addresses = match self.addresses(leg, (&kind, place.as_ref()), &key)? {
            Ok(addresses) => addresses,
            Err(problem) => return Ok(left_out(leg, problem)),
        };
        let credentials = match self.credentials(leg, (&kind, place.as_ref()), &key)? {
            Ok(credentials) => credentials,
            Err(problem) => return Ok(left_out(leg, problem)),
        };
        let id = leg.endpoint.clone().unwrap_or_else(|| {
            let first = addresses.first().map_or("", String::as_str);
            endpoint_id::derive(&entry.id, kind.word, first)
        });
        let found = Found {
            kind,
            place,
            addresses,
            credentials,
        };
        let mut endpoint = self.endpoint(leg, id, &found, &key)?;
        let waking = self.waking(leg, &endpoint.backends, &key)?;
        endpoint.wake.clone_from(&waking.shown);
        let route = self.route(leg, (n, &key), &endpoint)?;
        Ok(Compiling::Ready(Box::new(Ready {
            route,
            endpoint,
            credentials: found.credentials,
            waking,
            leg: leg.clone(),
            place: n,
        })))
    }

    fn route(&self, leg: &Leg, (n, key): (usize, &str), endpoint: &Endpoint) -> Result<Route, Problem> {
        let entry = self.entry;
        // Legs of embeddings are tried in their order: vectors of two models are not for one draw.
        let in_order = || i32::try_from(n).unwrap_or(i32::MAX);
        let priority = leg
            .priority
            .unwrap_or_else(|| if self.embeds() { in_order() } else { 0 });
        let upstream = leg
            .provider_model_id
            .as_ref()
            .or(entry.provider_model_id.as_ref())
            .unwrap_or(&entry.id);
        let price = self.price(leg, key, endpoint)?;
        Ok(Route {
            endpoint_id: endpoint.id.clone(),
            upstream_model: upstream.as_str().into(),
            priority,
            weight_micro: weight_micro(leg.weight.unwrap_or(1.0)).ok_or_else(|| {
                self.problem(
                    &format!("{key}.weight"),
                    "a weight is a number that is not negative",
                    "correct it",
                )
            })?,
            pool: self.pool(leg, key)?,
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
            takes: takes::takes(entry, leg).into(),
            rates: self.rates(leg, key, price)?,
            price,
            origin: Origin::File,
        })
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
            embeds: self.embeds(),
            supports_structured_output: support(entry.supports_structured_output, |leg| {
                leg.supports_structured_output
            }),
            supported_params: entry.supported_params.clone().unwrap_or_else(default_params),
            required_role: self.required_role()?,
            tenants: self.tenants()?,
            pricing: price::listed(entry, legs),
            created_at: now,
            routes: legs.iter().map(|leg| leg.route.clone()).collect(),
            origin: Origin::File,
            owner: schemas::catalog::operators(),
            router: None,
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
    leg.endpoint.backends = replicas(&leg.endpoint.id, &urls);
    leg.route.endpoint_id = leg.endpoint.id.clone();
    leg.endpoint.credentials = leg.credentials.iter().map(|one| one.reference(id)).collect();
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

#[cfg(test)]
mod tests;
