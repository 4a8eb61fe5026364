//! What a change of a key makes of it, pure: never more than whoever changes it has himself.

use schemars::JsonSchema;
use schemas::catalog::policy::KeyRouting;
use schemas::catalog::{Catalog, Key, Origin};
use schemas::failure::Failure;
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::caller::Caller;
use crate::manage::description::Edit;
use crate::manage::{credentials, description, rights};

/// What of a key is to be different. What is not named stays; limits and models are replaced as a whole.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeyPatch")]
pub(crate) struct Patch {
    /// For people.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "String")]
    pub(crate) name: Option<String>,
    /// The only models that it may use; null for those of the caller's own key.
    #[serde(default)]
    pub(crate) models: Edit<Vec<String>>,
    /// All of its own limits: what is not named is no more.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Limits")]
    pub(crate) limits: Option<Map<String, Value>>,
    /// When it ends; null for when the caller's own key does.
    #[serde(default)]
    pub(crate) expires_at: Edit<Timestamp>,
    /// Most tokens of an answer to a call that names no maximum; null or 0 names none.
    #[serde(default)]
    pub(crate) output_default_max: Edit<u64>,
}

/// What callers are told who send something else.
pub(crate) const PATCH: &str =
    "the body is not a change of a key: expected any of name, models, limits, expires_at, output_default_max";

/// A key after a change. A key of a file is from then on what the API made of it.
pub(crate) fn patched(caller: &Caller, catalog: &Catalog, key: &Key, patch: &Patch) -> Result<Key, Failure> {
    if key.revoked {
        return Err(credentials::revoked_already());
    }
    // He may have made it when he had more than now: what he may not hold he does not change.
    rights::may_hold(caller, catalog, key)?;
    let mut after = key.clone();
    if let Some(name) = &patch.name {
        after.name = description::name(name.clone())?;
    }
    if !patch.models.stays() {
        after.models = super::models(caller, catalog, patch.models.value().cloned())?;
        after.denied = rights::denied(caller, catalog);
    }
    if let Some(limits) = &patch.limits {
        after.limits = description::limits(caller, catalog, limits.clone())?;
    }
    if !patch.expires_at.stays() {
        after.expires_at = rights::may_last(caller, patch.expires_at.value().copied())?;
    }
    if !patch.output_default_max.stays() {
        let wanted = patch.output_default_max.value().copied();
        after.output_default_max = super::output_default_max(wanted)?;
    }
    changed(caller, catalog, key, after)
}

/// A key that says something else of calls that leave the choice of a model to us.
pub(crate) fn routed(
    caller: &Caller,
    catalog: &Catalog,
    key: &Key,
    routing: Option<KeyRouting>,
) -> Result<Key, Failure> {
    if key.revoked {
        return Err(credentials::revoked_already());
    }
    rights::may_hold(caller, catalog, key)?;
    let after = Key {
        routing,
        ..key.clone()
    };
    changed(caller, catalog, key, after)
}

fn changed(caller: &Caller, catalog: &Catalog, before: &Key, mut after: Key) -> Result<Key, Failure> {
    rights::may_hold(caller, catalog, &after)?;
    if after != *before {
        after.origin = Origin::Runtime;
    }
    Ok(after)
}
