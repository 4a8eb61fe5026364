//! Routes of an imported catalogue: such as their own path would make, and no others.

use schemas::catalog::Catalog;
use schemas::catalog::modality::Modalities;
use schemas::catalog::served::RouteRecord;
use schemas::failure::Failure;

use super::body::Wanted;
use super::wanted_route;
use crate::caller::Caller;
use crate::manage::records::differing;

/// Refuses a route that could not be made by its own path, naming what is wrong with it.
pub(in crate::manage) fn judge(
    caller: &Caller,
    catalog: &Catalog,
    route: &RouteRecord,
) -> Result<(), Failure> {
    let words = |set: Modalities| set.words().into_iter().map(str::to_owned).collect();
    let wanted = Wanted {
        model: route.model.to_string(),
        endpoint: route.endpoint.to_string(),
        tenant: Some(route.tenant.to_string()),
        upstream_model: Some(route.upstream_model.to_string()),
        priority: route.priority,
        weight: Some(route.weight),
        pool: Some(route.pool.to_string()),
        context_length: route.context_length,
        max_output_length: route.max_output_length,
        input_modalities: route.input_modalities.map(words),
        supports_tools: route.supports_tools,
        supports_structured_output: route.supports_structured_output,
        model_type: Some(if route.embeds { "embedding" } else { "chat" }.to_owned()),
    };
    let made = wanted_route(caller, catalog, &wanted, (&route.id, route.created_at))?;
    differing(route, &made)
}
