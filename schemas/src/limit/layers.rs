//! The layers of a request: what bounds its tenant, its user and its key, over all models and for the model it asks
//! for. All of them hold; none replaces another. The limits of the caller's role fill what the user leaves out, or a
//! key that belongs to nobody. Who writes 0 is unlimited in his own layer, and is filled by nothing.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::limits::{Bounds, LimitKey, Limits};
use super::window::Period;
use crate::id::{KeyId, ModelName, TenantId, UserId};

/// Whom a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// A tenant.
    #[serde(rename = "per_tenant")]
    Tenant,
    /// A member of a tenant.
    #[serde(rename = "per_user")]
    User,
    /// A key.
    #[serde(rename = "per_api_key")]
    Key,
}

impl Scope {
    /// The word that callers see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "per_tenant",
            Self::User => "per_user",
            Self::Key => "per_api_key",
        }
    }
}

/// The name under which one limit of one subject is counted: of our own ids and digests, so that it can stand in
/// subjects and keys of the bus. The tenant is its first part, so that names of two tenants never meet.
///
/// Names are compared and looked up with every request, so their hash is made once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct Name {
    text: Arc<str>,
    hash: u64,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of a period's record.
    #[must_use]
    pub fn of(&self, period: Period) -> Self {
        Self::from(Arc::from(format!("{}.{period}", self.text)))
    }

    /// The name of a slice's counter.
    pub fn slice(&self, index: i64) -> String {
        format!("{}.{index}", self.text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Self {
        let hash = hash(text.as_bytes());
        Self { text, hash }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::from(Arc::from(text))
    }
}

impl From<Name> for Arc<str> {
    fn from(name: Name) -> Self {
        name.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A hash of a name. Names are made of our own ids and of digests: nobody chooses them to meet.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    // The high bits depend on all of it; the low ones are to as well.
    (hash ^ (hash >> 32)).wrapping_mul(FACTOR) ^ (hash >> 29)
}

/// Passes on the hash that a name has.
#[derive(Debug, Default)]
pub(super) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Values by name. Its order is the same for the same history.
pub(super) type NameMap<V> = HashMap<Name, V, BuildHasherDefault<NameHasher>>;

/// One limit that holds for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Which.
    pub key: LimitKey,
    /// Of whom.
    pub scope: Scope,
    /// For calls of this model only.
    pub model: Option<ModelName>,
    /// How much, in calls, tokens or nano-dollars; never 0.
    pub limit: u64,
    /// Under which name it is counted; quotas add their period.
    pub name: Name,
}

/// Who makes a request, as far as limits are concerned.
#[derive(Debug, Clone, Copy)]
pub struct Subjects<'a> {
    /// Who pays.
    pub tenant: (&'a TenantId, &'a Limits),
    /// The member, where the key belongs to one.
    pub user: Option<(&'a UserId, &'a Limits)>,
    /// The key.
    pub key: (&'a KeyId, &'a Limits),
    /// What the caller's role allows.
    pub role: &'a Limits,
}

impl Subjects<'_> {
    /// All that bounds a request for `model` (the catalogue's name, not an alias), in the order in which it is asked
    /// for: rates, concurrency, quotas; within one key tenant, user, key; over all models before the one. What is
    /// written under one of its `aliases` bounds the model, too, in the same count.
    pub fn bounds(&self, model: &ModelName, aliases: &[ModelName]) -> Vec<Bound> {
        let nothing = Limits::default();
        let layers = [
            (Scope::Tenant, None, self.tenant.1, &nothing),
            (
                Scope::User,
                self.user.map(|(id, _)| id.as_str()),
                self.user.map_or(&nothing, |(_, limits)| limits),
                if self.user.is_some() { self.role } else { &nothing },
            ),
            (
                Scope::Key,
                Some(self.key.0.as_str()),
                self.key.1,
                if self.user.is_some() { &nothing } else { self.role },
            ),
        ];
        let mut bounds = Vec::new();
        for (scope, id, own, role) in layers {
            let subject = subject(self.tenant.0, scope, id);
            add(&mut bounds, (scope, &subject, None), &own.own, &role.own);
            let written = own.of_model(model, aliases);
            let filled = role.of_model(model, aliases);
            if !written.is_empty() || !filled.is_empty() {
                let subject = format!("{subject}.m.{}", digest(model.as_str()));
                add(&mut bounds, (scope, &subject, Some(model)), &written, &filled);
            }
        }
        // Stable: within one key the order of the layers stays.
        bounds.sort_by_key(|bound| bound.key);
        bounds
    }
}

fn add(
    bounds: &mut Vec<Bound>,
    (scope, subject, model): (Scope, &str, Option<&ModelName>),
    own: &Bounds,
    role: &Bounds,
) {
    for key in LimitKey::ALL {
        let limit = own.written(key).or_else(|| role.written(key)).unwrap_or(0);
        if limit > 0 {
            bounds.push(Bound {
                key,
                scope,
                model: model.cloned(),
                limit,
                name: Name::from(Arc::from(format!("{subject}.{key}"))),
            });
        }
    }
}

/// What the names begin with under which a subject's limits are counted: followed by a dot and, for those of single models,
/// the model, then the limit.
pub fn subject(tenant: &TenantId, scope: Scope, id: Option<&str>) -> String {
    match (scope, id) {
        (Scope::User, Some(id)) => format!("{tenant}.u.{}", digest(id)),
        (Scope::Key, Some(id)) => format!("{tenant}.k.{}", digest(id)),
        _ => format!("{tenant}.t"),
    }
}

fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        serde_json::from_str(text).expect("limits")
    }

    fn bounds(tenant: &str, user: Option<&str>, key: &str, role: &str) -> Vec<(String, u64)> {
        let (tenant_id, user_id, key_id) =
            (TenantId::from("acme"), UserId::from("Ann.B"), KeyId::from("k 1"));
        let (tenant, key, role) = (limits(tenant), limits(key), limits(role));
        let user = user.map(limits);
        let subjects = Subjects {
            tenant: (&tenant_id, &tenant),
            user: user.as_ref().map(|limits| (&user_id, limits)),
            key: (&key_id, &key),
            role: &role,
        };
        let bounds = subjects.bounds(&ModelName::from("a/b"), &[ModelName::from("ab-latest")]);
        bounds
            .iter()
            .map(|bound| {
                let model = if bound.model.is_some() { "/model" } else { "" };
                (
                    format!("{}{model} {}", bound.scope.as_str(), bound.key),
                    bound.limit,
                )
            })
            .collect()
    }

    fn named(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter()
            .map(|(name, limit)| ((*name).to_owned(), *limit))
            .collect()
    }

    #[test]
    fn all_layers_hold_in_the_order_rate_concurrency_quota() {
        let found = bounds(
            r#"{"daily_usd":"1","qps":9}"#,
            Some(r#"{"concurrency":3,"qps":8}"#),
            r#"{"daily_usd":"2","qps":7,"per_model":{"a/b":{"qps":1},"other":{"qps":5}}}"#,
            "{}",
        );

        assert_eq!(
            found,
            named(&[
                ("per_tenant qps", 9),
                ("per_user qps", 8),
                ("per_api_key qps", 7),
                ("per_api_key/model qps", 1),
                ("per_user concurrency", 3),
                ("per_tenant daily_usd", 1_000_000_000),
                ("per_api_key daily_usd", 2_000_000_000),
            ])
        );
    }

    #[test]
    fn a_role_fills_what_the_user_leaves_out_and_leaves_the_key_alone() {
        let role = r#"{"qps":2,"rpm":60,"per_model":{"a/b":{"tpm":10}}}"#;

        let found = bounds("{}", Some(r#"{"rpm":5}"#), "{}", role);

        assert_eq!(
            found,
            named(&[
                ("per_user qps", 2),
                ("per_user rpm", 5),
                ("per_user/model tpm", 10)
            ])
        );
    }

    #[test]
    fn a_role_fills_a_key_that_belongs_to_nobody() {
        assert_eq!(
            bounds("{}", None, "{}", r#"{"qps":2}"#),
            named(&[("per_api_key qps", 2)])
        );
    }

    #[test]
    fn of_what_several_names_of_a_model_say_the_smallest_holds_and_zero_is_none() {
        let found = bounds(
            r#"{"per_model":{"a/b":{"qps":5,"rpm":0},"ab-latest":{"qps":2,"rpm":9,"tpm":0}}}"#,
            None,
            r#"{"per_model":{"ab-latest":{"concurrency":1,"tpm":0},"other":{"qps":1}}}"#,
            r#"{"per_model":{"a/b":{"concurrency":7,"tpm":8},"ab-latest":{"tpm":6,"daily_calls":3}}}"#,
        );

        assert_eq!(
            found,
            named(&[
                ("per_tenant/model qps", 2),
                ("per_tenant/model rpm", 9),
                ("per_api_key/model concurrency", 1),
                ("per_api_key/model daily_calls", 3),
            ])
        );
    }

    #[test]
    fn zero_lifts_the_limit_of_its_own_layer_only() {
        let role = r#"{"qps":2}"#;

        assert_eq!(
            bounds(r#"{"qps":9}"#, Some(r#"{"qps":0}"#), r#"{"qps":4}"#, role),
            named(&[("per_tenant qps", 9), ("per_api_key qps", 4)])
        );
        assert_eq!(bounds("{}", None, r#"{"qps":0}"#, role), []);
        assert_eq!(bounds("{}", None, "{}", "{}"), []);
    }

    #[test]
    fn names_hold_nothing_that_a_caller_wrote_and_begin_with_the_tenant() {
        let (tenant, user, key) = (
            TenantId::from("acme"),
            UserId::from("a>b *"),
            KeyId::from("acme.x y"),
        );
        let own = limits(r#"{"daily_usd":"1","per_model":{"m n":{"rpm":1}}}"#);
        let subjects = Subjects {
            tenant: (&tenant, &own),
            user: Some((&user, &own)),
            key: (&key, &own),
            role: &Limits::default(),
        };

        let bounds = subjects.bounds(&ModelName::from("m n"), &[]);

        let mut names: Vec<&str> = bounds.iter().map(|bound| bound.name.as_str()).collect();
        assert_eq!(names.len(), 6);
        for name in &names {
            assert!(name.starts_with("acme."), "{name}");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(name.bytes().all(plain) && !name.contains(".."), "{name}");
        }
        assert!(names.contains(&"acme.t.daily_usd"));
        assert!(names.contains(&"acme.k.3egQUkUan71qnasvfprzT3yXnazf0uwvvslEQZ8rrnQ.daily_usd"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 6, "no two limits share a name");
        let day = chrono::NaiveDate::from_ymd_opt(2026, 11, 30).expect("a day");
        assert_eq!(
            Name::from("acme.t.daily_usd").of(Period::Day(day)).as_str(),
            "acme.t.daily_usd.2026-11-30"
        );
        assert_eq!(Name::from("acme.t.qps").slice(17), "acme.t.qps.17");
    }
}
