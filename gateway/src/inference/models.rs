//! `GET /v1/models` and `/v1/models/{id}`: what the caller may see, and nothing of where it is served. Names may hold
//! slashes, plain or escaped. Clients of Anthropic's API get the listing in their own shape, in pages. Who may leave the
//! choice of a model to the gateway finds that first, as a model `auto`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use schemas::auto;
use schemas::catalog::Model;
use serde::Serialize;

use crate::arrival::Arrival;
use crate::caller::Visitor;
use crate::gate;
use crate::manage::json;
use crate::shape::Shape;
use crate::state::Shared;

mod page;

/// Who owns every model, as far as callers are concerned.
const OWNER: &str = "waybill";

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Auto(Auto),
    Model(Item<'a>),
}

/// The choice of a model by the gateway.
#[derive(Serialize)]
struct Auto {
    id: &'static str,
    object: &'static str,
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

/// Every model the caller may see, in the shape of his client.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Response {
    let catalog = state.ports.catalog.load();
    let key = visitor.0.as_ref().map(|caller| &*caller.key);
    let models = gate::all_visible(&catalog, key).into_iter();
    let seen: Vec<Arc<Model>> = models.map(|model| model.priced(arrival.at).0).collect();
    let chooses = crate::auto::strategy(&catalog, key, auto::NAME).is_some();
    match arrival.shape {
        Shape::OpenAi => {
            let first = chooses.then_some(Entry::Auto(AUTO));
            let models = seen.iter().map(|model| Entry::Model(item(model)));
            json(&List {
                object: "list",
                data: first.into_iter().chain(models).collect(),
            })
        }
        Shape::Anthropic => match page::read(query.as_deref().unwrap_or_default()) {
            Ok(asked) => {
                let first = chooses.then(page::auto);
                let models = seen.iter().map(|model| page::item(model));
                json(&page::of(first.into_iter().chain(models).collect(), &asked))
            }
            Err(failure) => arrival.refuse(&failure),
        },
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
