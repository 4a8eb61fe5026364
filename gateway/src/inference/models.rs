//! `GET /v1/models` and `/v1/models/{id}`: what the caller may see, and nothing of where it is served. Names may hold
//! slashes, plain or escaped. Clients of Anthropic's API get the listing in their own shape, in pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemars::JsonSchema;
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
    /// By name.
    data: Vec<Item<'a>>,
}

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
    let seen = seen(&state, visitor.0.as_ref(), arrival.at);
    let seen: Vec<&Arc<Model>> = seen.iter().collect();
    match arrival.shape {
        Shape::OpenAi => json(&listed(&seen)),
        Shape::Anthropic => match page::read(query.as_deref().unwrap_or_default()) {
            Ok(asked) => json(&page::of(&seen, &asked)),
            Err(failure) => arrival.refuse(&failure),
        },
    }
}

/// Every model that whoever presents a credential may use.
pub(crate) async fn list_own(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    let seen = seen(&state, Some(&caller), arrival.at);
    json(&listed(&seen.iter().collect::<Vec<_>>()))
}

/// What somebody may see, with the prices of a moment.
fn seen(state: &Shared, caller: Option<&Caller>, at: Timestamp) -> Vec<Arc<Model>> {
    let catalog = state.ports.catalog.load();
    let models = gate::all_visible(&catalog, caller.map(|caller| &*caller.key)).into_iter();
    models.map(|model| model.priced(at).0).collect()
}

fn listed<'a>(seen: &[&'a Arc<Model>]) -> List<'a> {
    List {
        object: "list",
        data: seen.iter().copied().map(item).collect(),
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
    match (gate::visible(&catalog, key, &id), arrival.shape) {
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
