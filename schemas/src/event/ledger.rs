//! Facts about the books.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::{NodeId, TenantId};
use crate::money::NanoUsd;
use crate::time::{Timestamp, deserialize_day, serialize_day};

/// `ledger.sealed`: a hash over a tenant's rows of a UTC day. Of several for one tenant, day and part the first in the log
/// that continues the tenant's chain counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sealed {
    /// In which form rows and seals are hashed.
    pub format: u32,
    /// Whose rows.
    pub tenant: TenantId,
    /// Their UTC day: that of their ids.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub day: NaiveDate,
    /// 1 for the day's seal, 2 and on for rows that came after it.
    pub part: u32,
    /// How many rows it covers.
    pub rows: u64,
    /// What they cost together, in nano-dollars.
    pub sum_nano_usd: NanoUsd,
    /// The root of the tree over them.
    #[schemars(with = "String")]
    pub root: Digest,
    /// By source, the last place that it covers: rows from later places, and of sources that are not named, are of later
    /// parts.
    pub through: BTreeMap<String, u64>,
    /// The digest of the seal before it in the chain of the tenant, `None` for the first.
    #[schemars(with = "Option<String>")]
    pub previous: Option<Digest>,
    /// When it was made.
    pub sealed_at: Timestamp,
    /// The node that made it.
    pub node: NodeId,
}
