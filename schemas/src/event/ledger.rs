//! Facts about the books.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::NaiveDate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::change::Actor;
use crate::digest::Digest;
use crate::id::{EndpointId, KeyId, ModelName, NodeId, RequestId, TenantId, UserId};
use crate::money::{NanoUsd, Price, PriceVersion};
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
    /// How many adjustments of rows of the day it covers.
    #[serde(default, skip_serializing_if = "is_none")]
    pub adjustments: u64,
    /// What these change together, in nano-dollars.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub adjusted_nano_usd: NanoUsd,
    /// The root of the tree over rows and adjustments.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
const fn is_nothing(amount: &NanoUsd) -> bool {
    amount.0 == 0
}

/// `request.adjusted`: what a request costs was corrected afterwards. Its row stays as it is; what it costs is that of the
/// row and the amounts of all its adjustments. Of several for one request and number the one of the least source and
/// place counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Adjusted {
    /// The request.
    pub request_id: RequestId,
    /// 1 for the first adjustment of the request, 2 for the next.
    pub number: u32,
    /// Who pays, as the row has it; likewise what follows up to the month.
    pub tenant: TenantId,
    /// The member, where the key belongs to one.
    pub user: Option<UserId>,
    /// The virtual key.
    pub key_id: KeyId,
    /// The job that it was called for, by a grant; absent for every other credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<Arc<str>>,
    /// The model asked for.
    pub model: ModelName,
    /// The upstream's name of the model that served.
    pub served_model: Option<Arc<str>>,
    /// Provider label of the endpoint that served.
    pub provider: Option<Arc<str>>,
    /// The endpoint that served.
    pub endpoint_id: Option<EndpointId>,
    /// When the request was admitted.
    pub started_at: Timestamp,
    /// Its day in the billing time zone.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub billing_day: NaiveDate,
    /// The first day of its month there.
    #[serde(serialize_with = "serialize_day", deserialize_with = "deserialize_day")]
    pub billing_month: NaiveDate,
    /// What the request cost before, in nano-dollars, earlier adjustments included.
    pub was_nano_usd: NanoUsd,
    /// What it costs now.
    pub cost_nano_usd: NanoUsd,
    /// By how much that is more: what sums add up.
    pub amount_nano_usd: NanoUsd,
    /// The prices that it costs so at.
    pub prices: Price,
    /// Which prices these are.
    pub price_version: PriceVersion,
    /// Why.
    pub reason: Reason,
    /// Who had it corrected.
    pub actor: Actor,
    /// When.
    pub adjusted_at: Timestamp,
    /// The node that did it.
    pub node: NodeId,
}

impl Adjusted {
    /// Whether it says what an adjustment can say: the amount is what lies between before and now, and numbers begin at 1.
    pub fn adds_up(&self) -> bool {
        let now = self.was_nano_usd.0.checked_add(self.amount_nano_usd.0);
        self.number > 0 && now == Some(self.cost_nano_usd.0)
    }
}

/// Why a request costs something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was computed anew by other prices.
    Repriced,
}

impl Reason {
    /// The word used in rows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repriced => "repriced",
        }
    }
}
