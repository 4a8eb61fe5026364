//! `GET /v1/models` and `/v1/models/{id}`: what the caller may see, and nothing of where it is served. Names may hold
//! slashes, plain or escaped. Clients of Anthropic's API get the listing in their own shape, in pages. Who may leave the
//! choice of a model to the gateway finds that first, as a model `auto`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::auto;
use schemas::catalog::Model;
use schemas::time::Timestamp;
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::{Caller, Visitor};
use crate::gate;
use crate::manage::json;
use crate::manage::openapi::Operation;
use crate::shape::Shape;
use crate::state::Shared;

mod page;

/// Who owns every model, as far as callers are concerned.
const OWNER: &str = "waybill";

/// What `/user/models` does.
pub(crate) const OWN: Operation =
    Operation::read::<List<'static>>("Lists the models that the caller may use").of_callers();

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CallableModels")]
pub(crate) struct List<'a> {
    /// Always `list`.
    object: &'static str,
    /// The choice of a model by the gateway first, for whoever has it; then models, by name.
    data: Vec<Entry<'a>>,
}

/// What can be called.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Callable")]
enum Entry<'a> {
    Auto(Auto),
    Model(Item<'a>),
}

/// The choice of a model by the gateway.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CallableAuto")]
struct Auto {
    /// Always `auto`.
    id: &'static str,
    /// Always `model`.
    object: &'static str,
    /// Seconds since 1970; 0.
    created: i64,
    owned_by: &'static str,
}

const AUTO: Auto = Auto {
    id: auto::NAME,
    object: "model",
    created: 0,
    owned_by: auto::OWNER,
};

/// A model in the listing.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CallableModel")]
struct Item<'a> {
    id: &'a str,
    /// Always `model`.
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    owned_by: &'static str,
    name: &'a str,
    input_modalities: Vec<&'static str>,
    output_modalities: Vec<&'static str>,
    context_length: u64,
    max_output_length: u64,
    quantization: &'a str,
    /// Decimal strings of USD, as they hold now.
    #[schemars(with = "BTreeMap<String, String>")]
    pricing: Pricing<'a>,
    supported_sampling_parameters: &'a [String],
    supported_features: Vec<&'static str>,
}

/// Prices as a JSON object, in the order of the file.
struct Pricing<'a>(&'a [(String, String)]);

impl Serialize for Pricing<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, price)| (name, price)))
    }
}

/// Every model the caller may see, in the shape of his client.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Response {
    let seen = Seen::of(&state, visitor.0.as_ref(), arrival.at);
    match arrival.shape {
        Shape::OpenAi => json(&seen.listed()),
        Shape::Anthropic => match page::read(query.as_deref().unwrap_or_default()) {
            Ok(asked) => {
                let first = seen.chooses.then(page::auto);
                let models = seen.models.iter().map(|model| page::item(model));
                json(&page::of(first.into_iter().chain(models).collect(), &asked))
            }
            Err(failure) => arrival.refuse(&failure),
        },
    }
}

/// Every model that whoever presents a credential may use.
pub(crate) async fn list_own(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    json(&Seen::of(&state, Some(&caller), arrival.at).listed())
}

/// What somebody may see.
struct Seen {
    /// He may leave the choice of a model to the gateway.
    chooses: bool,
    /// Models, with the prices of a moment.
    models: Vec<Arc<Model>>,
}

impl Seen {
    fn of(state: &Shared, caller: Option<&Caller>, at: Timestamp) -> Self {
        let catalog = state.ports.catalog.load();
        let key = caller.map(|caller| &*caller.key);
        let models = gate::all_visible(&catalog, key).into_iter();
        Self {
            chooses: crate::auto::strategy(&catalog, key, auto::NAME).is_some(),
            models: models.map(|model| model.priced(at).0).collect(),
        }
    }

    fn listed(&self) -> List<'_> {
        let first = self.chooses.then_some(Entry::Auto(AUTO));
        let models = self.models.iter().map(|model| Entry::Model(item(model)));
        List {
            object: "list",
            data: first.into_iter().chain(models).collect(),
        }
    }
}

/// One model, by its name or an alias.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    visitor: Visitor,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    // A name that is not even text is the name of nothing.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    let catalog = state.ports.catalog.load();
    let key = visitor.0.as_ref().map(|caller| &*caller.key);
    let chooses = crate::auto::strategy(&catalog, key, &id).is_some();
    match (gate::visible(&catalog, key, &id), arrival.shape) {
        (None, Shape::OpenAi) if chooses => json(&AUTO),
        (None, Shape::Anthropic) if chooses => json(&page::auto()),
        (Some(model), Shape::OpenAi) => json(&item(&model.priced(arrival.at).0)),
        (Some(model), Shape::Anthropic) => json(&page::item(model)),
        (None, _) => arrival.refuse(&gate::no_model()),
    }
}

fn item(model: &Arc<Model>) -> Item<'_> {
    let features = [
        (model.supports_tools, "tools"),
        (model.supports_structured_output, "json_mode"),
        (model.supports_structured_output, "structured_outputs"),
    ];
    Item {
        id: model.id.as_str(),
        object: "model",
        created: model.created_at.millis() / 1_000,
        owned_by: OWNER,
        name: &model.name,
        input_modalities: model.input_modalities.words(),
        output_modalities: model.output_modalities.words(),
        context_length: model.context_length,
        max_output_length: model.max_output_length,
        quantization: &model.quantization,
        pricing: Pricing(&model.pricing),
        supported_sampling_parameters: &model.supported_params,
        supported_features: features
            .into_iter()
            .filter_map(|(has, word)| has.then_some(word))
            .collect(),
    }
}
