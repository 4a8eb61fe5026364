//! `/admin/providers`: operators switch a provider off, and none of its endpoints takes a call on any node until it is
//! switched on again.

use std::sync::Arc;

use axum::extract::{Path, State};
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
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Found, Id, Resource, There};
use super::{Parameters, answered, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// What of a provider is to be different.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ProviderPatch")]
pub(crate) struct Patch {
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
    answered(&arrival, listed())
}

/// The providers, with whether they were switched.
pub(crate) enum Providers {}

impl Resource for Providers {
    type Record = Provider;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, label: Id) -> Result<Found<'c, Provider>, Failure> {
        let label = named(caller, catalog, label)?;
        Ok(Found {
            place: place(&label),
            stored: catalog.stored_provider(&label),
        })
    }

    fn answer(act: &Act<'_>, place: &Place, _: There<'_, Provider>) -> Result<Response, Failure> {
        let shown = shown(&act.state.ports.catalog.load(), &place.id);
        Ok(resource::overlaid(&shown, shown.revision))
    }
}

impl Changed for Providers {
    type Patch = Patch;
    const PATCH: &str = PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        Patch { disabled }: Patch,
    ) -> Result<Written<Provider>, Failure> {
        let decide = |_: Option<&Provider>| {
            Ok(Provider {
                provider: Arc::clone(&place.id),
                disabled,
            })
        };
        upsert::set(act.state, place, expected, &act.author(), decide).await
    }
}

/// The provider that a caller names, if providers are his to see: one that endpoints have, or that was switched.
fn named(caller: &Caller, catalog: &Catalog, label: Id) -> Result<Arc<str>, Failure> {
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
