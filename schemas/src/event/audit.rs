//! Facts about changes of the catalogue.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::change::Change;
use crate::id::{NodeId, TenantId};

/// `audit`: somebody changed a record. Told again, it has the id that it had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audited {
    /// What kind of record.
    pub kind: Kind,
    /// Whose record.
    pub tenant: TenantId,
    /// Which of them.
    pub id: Arc<str>,
    /// The revision with which it was written.
    pub revision: u64,
    /// The change, without secrets.
    pub change: Change,
    /// The node that wrote it.
    pub node: NodeId,
}

/// The kinds of records that people change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tenant.
    Tenant,
    /// A member of a tenant.
    User,
    /// A virtual key.
    Key,
    /// An endpoint.
    Endpoint,
    /// A way to serve a model.
    Route,
    /// What was changed of a model.
    Model,
    /// A version of a price.
    Price,
    /// A key of an endpoint.
    EndpointKey,
    /// A grant.
    Grant,
    /// A setting.
    Setting,
    /// A provider.
    Provider,
    /// What holds for all calls that leave the choice of a model to us.
    Inference,
    /// What is said of a model that may be chosen.
    ModelPolicy,
    /// By what a member signs in; of passwords is told that they changed.
    Account,
    /// What configuration files say, put back to an earlier revision.
    Configuration,
}
