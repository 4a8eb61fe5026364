//! Facts about limits and refusals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::FailureCode;
use crate::id::{KeyId, NodeId, TenantId};
use crate::time::Timestamp;

/// `limit.refused`: refusals of one key, code and minute beyond those that have rows of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRefused {
    /// Who was refused.
    pub tenant: TenantId,
    /// With which key.
    pub key_id: KeyId,
    /// Why.
    pub code: FailureCode,
    /// Start of the minute.
    pub minute: Timestamp,
    /// How many beyond the recorded ones.
    pub count: u64,
    /// The node that refused.
    pub node: NodeId,
}
