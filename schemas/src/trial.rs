//! One real call to an endpoint, made to see whether it works: asked over the bus, made by a router of the pool that
//! its routes name, billed to nobody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::Catalog;
use crate::id::{BackendId, EndpointId, PoolName};

/// The pool of endpoints to which no route leads.
const POOL: &str = "default";

/// A call that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialQuery {
    /// To which endpoint.
    pub endpoint: EndpointId,
    /// As the catalogue said at this revision, or later.
    pub revision: u64,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialAnswer {
    /// The endpoint answered, and its answer is understood.
    pub ok: bool,
    /// The status of its answer; null where none came.
    pub status: Option<u16>,
    /// How long it took, in milliseconds.
    pub latency_ms: u64,
    /// The replica that was called; null where none was.
    pub backend: Option<BackendId>,
    /// Why it did not work, in words of this gateway alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl TrialAnswer {
    /// Nothing was called.
    pub fn failed(error: &str) -> Self {
        Self {
            ok: false,
            status: None,
            latency_ms: 0,
            backend: None,
            error: Some(error.to_owned()),
        }
    }
}

/// The pool whose routers may call an endpoint: that of the first route to it.
pub fn pool(catalog: &Catalog, endpoint: &EndpointId) -> PoolName {
    let models = catalog.all_models();
    let mut routes = models.iter().flat_map(|model| &model.routes);
    let route = routes.find(|route| route.endpoint_id == *endpoint);
    route.map_or_else(|| PoolName::from(POOL), |route| route.pool.clone())
}
