//! One real call to an endpoint, made to see whether it works: asked over the bus, made by a router of the pool that
//! its routes name, billed to nobody.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Model};
use crate::id::{BackendId, EndpointId, PoolName};
use crate::pool::{Part, UNNAMED};

/// A call that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialQuery {
    /// To which endpoint.
    pub endpoint: EndpointId,
    /// As the catalogue said at this revision, or later.
    pub revision: u64,
    /// What the routers of a named pool must know, who do not follow the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Box<Part>>,
}

impl TrialQuery {
    /// A call to an endpoint that the routers of a pool are to make.
    pub fn new(catalog: &Catalog, endpoint: EndpointId, pool: &PoolName) -> Self {
        let leads = |model: &&&Arc<Model>| model.routes.iter().any(|route| route.endpoint_id == endpoint);
        let models = catalog.all_models();
        let model = models.iter().find(leads).filter(|_| pool.as_str() != UNNAMED);
        let part = model.map(|model| Box::new(Part::of(catalog, model, std::slice::from_ref(&endpoint))));
        Self {
            endpoint,
            revision: catalog.revision,
            part,
        }
    }
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
    route.map_or_else(|| PoolName::from(UNNAMED), |route| route.pool.clone())
}
