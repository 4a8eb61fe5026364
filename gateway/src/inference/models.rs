//! `GET /v1/models` and `/v1/models/{id}`: what the caller may see, and nothing of where it is served. Names may hold
//! slashes, plain or escaped.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use schemas::catalog::Model;
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::Visitor;
use crate::error;
use crate::gate;
use crate::manage::json;
use crate::state::Shared;

/// Who owns every model, as far as callers are concerned.
const OWNER: &str = "waybill";

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Item<'a>>,
}

/// A model in the listing.
#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    name: &'a str,
    input_modalities: Vec<&'static str>,
    output_modalities: Vec<&'static str>,
    context_length: u64,
    max_output_length: u64,
    quantization: &'a str,
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

/// Every model the caller may see.
pub(crate) async fn list(State(state): State<Shared>, visitor: Visitor) -> Response {
    let catalog = state.ports.catalog.load();
    let key = visitor.0.as_ref().map(|caller| &*caller.key);
    let seen = catalog
        .models()
        .into_iter()
        .filter(|model| gate::sees(key, model));
    json(&List {
        object: "list",
        data: seen.map(item).collect(),
    })
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
    match gate::visible(&catalog, key, &id) {
        Some(model) => json(&item(model)),
        None => error::response(&gate::no_model(), arrival.request_id),
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
