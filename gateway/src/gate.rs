//! The gate, pure: may this caller use this model for this body? Unknown, hidden and forbidden models get one answer,
//! the same bytes for all, so that nobody learns what he may not see.

use std::sync::Arc;

use dialects::account;
use dialects::messages::version;
use dialects::parameter::told;
use dialects::skim::{self, Skim};
use dialects::superset::request::Refusal;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemas::affinity::hint::Spoken;
use schemas::catalog::modality::Modalities;
use schemas::catalog::{Catalog, Key, Model, Role, Route};
use schemas::command::Told;
use schemas::event::request::Surface;
use schemas::failure::{Failure, FailureCode};
use schemas::parameter::Parameters;

use crate::arrival;
use crate::caller::Caller;
use crate::shape::ANTHROPIC_VERSION;

/// Longest header that is handed on to an upstream, in bytes.
const TOLD_BYTES_MAX: usize = 2_048;
/// The one text for a model that is not there for the caller.
const NO_MODEL: &str = "The model does not exist or you do not have access to it.";

static X_ROUTE_PIN: HeaderName = HeaderName::from_static("x-route-pin");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static X_END_USER: HeaderName = HeaderName::from_static("x-end-user");
static X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
static X_REASONING_PASSTHROUGH: HeaderName = HeaderName::from_static("x-reasoning-passthrough");
static ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// What a caller asks for beside the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Only this endpoint or provider: heard from those who run the platform, ignored from others.
    pub(crate) pin: Option<Arc<str>>,
    /// His own id of the request.
    pub(crate) client_request_id: Option<Arc<str>>,
    /// His own customer.
    pub(crate) end_user: Option<Arc<str>>,
    /// His session, as the books have it.
    pub(crate) session_id: Option<Arc<str>>,
    /// What his headers say of it.
    pub(crate) spoken: Spoken,
}

/// Reads the headers that decide something.
pub(crate) fn wishes(headers: &HeaderMap, caller: &Caller) -> Wishes {
    let pin = arrival::label(headers, &X_ROUTE_PIN);
    let tells = headers.keys().any(|name| Spoken::is_told_by(name.as_str()));
    let spoken = tells.then(|| Spoken::read(|name| headers.get(name).map(HeaderValue::as_bytes)));
    let spoken = spoken.unwrap_or_default();
    let session_id = arrival::label(headers, &X_SESSION_ID);
    Wishes {
        pin: pin.filter(|_| caller.operates()),
        client_request_id: arrival::label(headers, &X_REQUEST_ID),
        end_user: arrival::label(headers, &X_END_USER),
        session_id: session_id.or_else(|| arrival::kept(spoken.name()?)),
        spoken,
    }
}

/// Reads what his upstream, or what reads its answer, must know.
pub(crate) fn told(headers: &HeaderMap) -> Result<Told, Failure> {
    let hides_thinking = headers
        .get(&X_REASONING_PASSTHROUGH)
        .is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"false"));
    Ok(Told {
        anthropic_version: list(headers, &ANTHROPIC_VERSION)?,
        anthropic_beta: list(headers, &ANTHROPIC_BETA)?,
        hides_thinking,
    })
}

/// The values of a header as one.
fn list(headers: &HeaderMap, name: &'static HeaderName) -> Result<Option<Arc<str>>, Failure> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let unusable = || {
        let text = format!("the header '{name}' is too long or not text");
        Failure::new(FailureCode::InvalidRequest, text).param(name.as_str())
    };
    let mut all = first.to_str().map_err(|_| unusable())?.trim().to_owned();
    for value in values {
        all.push(',');
        all.push_str(value.to_str().map_err(|_| unusable())?.trim());
    }
    if all.len() > TOLD_BYTES_MAX {
        return Err(unusable());
    }
    Ok((!all.is_empty()).then(|| all.into()))
}

/// The model that `name` means to `key`, if that may see it: the operators' where it is shared with his tenant, else his
/// tenant's own. Operators cross over to what else is called so.
pub(crate) fn visible<'c>(catalog: &'c Catalog, key: Option<&Key>, name: &str) -> Option<&'c Arc<Model>> {
    let model = match key {
        None => catalog.model(name),
        Some(key) => catalog.model_for(&key.tenant, name).or_else(|| {
            let crosses = key.role == Role::Operator;
            crosses.then(|| catalog.model_anywhere(name)).flatten()
        }),
    };
    model.filter(|model| sees(key, model) && key.is_none_or(|key| catalog.reaches(key, model)))
}

/// Every model that `key` may see, in the order of the listing: each name once, and for what it means to him.
pub(crate) fn all_visible<'c>(catalog: &'c Catalog, key: Option<&Key>) -> Vec<&'c Arc<Model>> {
    let mut seen: Vec<&Arc<Model>> = catalog.all_models();
    seen.retain(|model| {
        visible(catalog, key, model.id.as_str()).is_some_and(|meant| Arc::ptr_eq(meant, model))
    });
    seen
}

/// May the holder of `key` see and call the model? Nobody in particular counts as the lowest role of no tenant.
pub(crate) fn sees(key: Option<&Key>, model: &Model) -> bool {
    let counts = key.map_or(Role::Free, Key::counts);
    let of_tenant = key.map_or(model.tenants.is_none(), |key| model.is_shared_with(&key.tenant));
    let models = key.and_then(|key| key.models.as_deref());
    let of_key = models.is_none_or(|models| {
        models
            .iter()
            .any(|name| *name == model.id || model.aliases.contains(name))
    });
    counts >= model.required_role && (of_tenant || counts == Role::Operator) && of_key
}

/// The model a request is admitted to. One that embeds is not there for those who want answers, nor the other way.
pub(crate) fn admit<'c>(
    catalog: &'c Catalog,
    caller: &Caller,
    (skim, body): (&Skim, &[u8]),
    surface: Surface,
) -> Result<&'c Arc<Model>, Failure> {
    let model = visible(catalog, Some(&caller.key), &skim.model)
        .filter(|model| serves(model, surface))
        .ok_or_else(no_model)?;
    match unfit(catalog, model, skim) {
        None => Ok(model),
        Some(unfit) => Err(unfit.failure(model, surface, body)),
    }
}

/// Does the model give what is asked for on a surface: embeddings there, answers on the others?
pub(crate) fn serves(model: &Model, surface: Surface) -> bool {
    model.embeds == (surface == Surface::Embeddings)
}

/// What a request asks of a model that this does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Tools.
    Tools,
    /// Structured output.
    Format,
    /// A parameter.
    Parameter(Parameters),
    /// A kind of input, by its word.
    Modality(&'static str),
}

/// The first that a model does not have.
pub(crate) fn unfit(catalog: &Catalog, model: &Model, skim: &Skim) -> Option<Unfit> {
    let drops = || model.routes.iter().any(|route| drops(catalog, route));
    if skim.tools && !model.supports_tools && !drops() {
        return Some(Unfit::Tools);
    }
    if skim.response_format && !model.supports_structured_output && !drops() {
        return Some(Unfit::Format);
    }
    if let Some(parameter) = refused(catalog, model, skim.parameters) {
        return Some(Unfit::Parameter(parameter));
    }
    let foreign = skim.modalities.without(model.input_modalities | Modalities::TEXT);
    foreign.words().first().map(|word| Unfit::Modality(word))
}

impl Unfit {
    /// What the caller is told, in the words of his dialect.
    fn failure(self, model: &Model, surface: Surface, body: &[u8]) -> Failure {
        let name = |parameter| told::called(surface, body, parameter);
        match self {
            Self::Tools => unsupported("the model does not support tools", name(Parameters::TOOLS)),
            Self::Format => unsupported(
                "the model does not support structured output",
                name(Parameters::FORMAT),
            ),
            Self::Parameter(parameter) => {
                let param = name(parameter);
                let text = format!("the model does not support the parameter '{param}'");
                Failure::new(FailureCode::UnsupportedParameter, text).param(param)
            }
            Self::Modality(word) => {
                let text = format!("Model '{}' does not support {word} input", model.id);
                Failure::new(FailureCode::UnsupportedModality, text).param(prompt_of(surface))
            }
        }
    }
}

/// The first parameter that none of the model's routes takes or drops; `None` when one of them can do with all.
fn refused(catalog: &Catalog, model: &Model, asks: Parameters) -> Option<Parameters> {
    let mut first = None;
    for route in &model.routes {
        let refused = route.takes.refused(asks, false);
        if refused.is_empty() || drops(catalog, route) {
            return None;
        }
        first = first.or_else(|| refused.each().next());
    }
    first
}

/// The route drops what cannot be done there instead of refusing it.
fn drops(catalog: &Catalog, route: &Route) -> bool {
    catalog
        .endpoint(&route.endpoint_id)
        .is_some_and(|endpoint| endpoint.drop_params)
}

/// What the prompt is called.
pub(crate) const fn prompt_of(surface: Surface) -> &'static str {
    match surface {
        Surface::Chat | Surface::Messages => "messages",
        Surface::Completions => "prompt",
        Surface::Embeddings | Surface::Responses => "input",
        Surface::Proxy => "body",
    }
}

/// The one answer for a model that is not there for the caller.
pub(crate) fn no_model() -> Failure {
    Failure::new(FailureCode::ModelNotFound, NO_MODEL).param("model")
}

/// What the caller is told of a body that cannot be read.
pub(crate) fn malformed(problem: &skim::Error) -> Failure {
    let code = match problem {
        skim::Error::InvalidJson { .. } => FailureCode::InvalidJson,
        _ => FailureCode::InvalidRequest,
    };
    let failure = Failure::new(code, problem.to_string());
    match problem.param() {
        Some(param) => failure.param(param),
        None => failure,
    }
}

/// Refuses what the version of the dialect that a caller speaks does not have.
pub(crate) fn of_version(surface: Surface, told: &Told, body: &[u8]) -> Result<(), Failure> {
    if surface != Surface::Messages {
        return Ok(());
    }
    version::check(told.anthropic_version.as_deref(), body).map_err(|refusal| {
        let failure = Failure::new(FailureCode::UnsupportedParameter, refusal.to_string());
        match refusal {
            Refusal::Unsupported { param, .. } | Refusal::Invalid { param, .. } => failure.param(param),
            Refusal::InvalidJson => failure,
        }
    })
}

/// Refuses what a provider keeps in its account: that is open to all whom the account serves.
pub(crate) fn of_account(surface: Surface, body: &[u8]) -> Result<(), Failure> {
    let Some(param) = account::named(surface, body) else {
        return Ok(());
    };
    let text = format!(
        "the parameter '{param}' is not supported: what a provider keeps cannot be named, send what it stands for"
    );
    Err(Failure::new(FailureCode::UnsupportedParameter, text).param(param))
}

fn unsupported(text: &'static str, param: &'static str) -> Failure {
    Failure::new(FailureCode::UnsupportedParameter, text).param(param)
}

#[cfg(test)]
pub(crate) mod tests;
