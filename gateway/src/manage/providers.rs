//! `/admin/providers`: operators switch a provider off, and none of its endpoints takes a call on any node until it is
//! switched on again.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::catalog::Catalog;
use schemas::catalog::setting::{Provider, provider_key};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, EndpointId, TenantId};
use serde::{Deserialize, Serialize};

use super::openapi::Operation;
use super::page::Asked;
use super::records::{self, History, Match, Place};
use super::{Parameters, description, json, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// What of a provider is to be different.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProviderPatch")]
pub(super) struct Patch {
    /// True has all calls go past its endpoints.
    disabled: bool,
}

const PATCH: &str = "the body is not a change of a provider: expected disabled";

/// A provider as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Provider")]
struct Shown {
    /// Its label, as endpoints have it.
    provider: Arc<str>,
    /// All calls go past its endpoints.
    disabled: bool,
    /// Its endpoints.
    endpoints: Vec<EndpointId>,
    /// The number in its `ETag`; null for one that was never switched.
    revision: Option<u64>,
}

/// What the paths of providers do.
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the providers, by label").of_operators();
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a provider").of_operators();
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who switched a provider, and when, the newest first").of_operators();
pub(crate) const CHANGE: Operation =
    Operation::change::<Patch, Shown>("Switches a provider off or on").of_operators();

/// The providers, by label, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::operates(&caller)?;
        let asked = Asked::of(given, false)?;
        let catalog = state.ports.catalog.load();
        let mut labels = catalog.providers();
        labels.retain(|label| asked.after.as_deref().is_none_or(|after| **label > *after));
        let cursor = |label: &Arc<str>| label.to_string();
        Ok(asked.page(labels, cursor, |label| shown(&catalog, &label)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One provider, with its `ETag` where it was switched.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    label: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    match named(&caller, &catalog, label) {
        Ok(label) => answer(&catalog, &label),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Who switched a provider.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    label: Result<Path<String>, PathRejection>,
) -> Response {
    let catalog = state.ports.catalog.load();
    let told = async {
        let label = named(&caller, &catalog, label)?;
        records::history::<Provider>(&state, &place(&label)).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Switches a provider off or on.
pub(crate) async fn patch(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    label: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let label = match named(&caller, &state.ports.catalog.load(), label) {
        Ok(label) => label,
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let switched = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let Patch { disabled } = description::read(&bytes, PATCH)?;
        let decide = |_: Option<&Provider>| {
            Ok(Provider {
                provider: Arc::clone(&label),
                disabled,
            })
        };
        upsert::set(&state, &place(&label), expected, &caller.author(&arrival), decide).await
    };
    match switched.await {
        Ok(_) => answer(&state.ports.catalog.load(), &label),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The provider that a caller names, if providers are his to see: one that endpoints have, or that was switched.
fn named(
    caller: &Caller,
    catalog: &Catalog,
    label: Result<Path<String>, PathRejection>,
) -> Result<Arc<str>, Failure> {
    rights::operates(caller)?;
    let Path(label) = label.map_err(|_| records::nothing())?;
    let known = catalog.providers().into_iter().find(|known| **known == *label);
    known.ok_or_else(records::nothing)
}

fn place(label: &Arc<str>) -> Place {
    Place {
        kind: Kind::Provider,
        key: provider_key(label),
        tenant: TenantId::from(DEFAULT_TENANT),
        id: Arc::clone(label),
    }
}

fn answer(catalog: &Catalog, label: &Arc<str>) -> Response {
    let shown = shown(catalog, label);
    match shown.revision {
        Some(revision) => records::shown(&shown, revision),
        None => json(&shown),
    }
}

fn shown(catalog: &Catalog, label: &Arc<str>) -> Shown {
    let stored = catalog.stored_provider(label);
    let endpoints = catalog.endpoints().into_iter();
    Shown {
        provider: Arc::clone(label),
        disabled: stored.is_some_and(|stored| stored.record.disabled),
        endpoints: endpoints
            .filter(|endpoint| endpoint.provider == *label)
            .map(|endpoint| endpoint.id.clone())
            .collect(),
        revision: stored.map(|stored| stored.revision),
    }
}
