//! The configuration that tests run on: keys with canary words inside, two models' worth of defaults, and
//! builders for both files. They are written as JSON, which is YAML.

use serde_json::{Value, json};

use crate::upstream::Upstream;

/// The key of an operator of the platform.
pub const OPERATOR_KEY: &str = "sk-harness-canary-operator-4c1d77";
/// The key of an admin of tenant `default`.
pub const ADMIN_KEY: &str = "sk-harness-canary-admin-90be12";
/// The key of a caller: role free, tenant `acme`, user alice.
pub const CALLER_KEY: &str = "sk-harness-canary-caller-a55e03";
/// The key of a second caller: role free, tenant `zenith`, no user.
pub const OTHER_KEY: &str = "sk-harness-canary-other-e8f0b6";
/// The key of a caller of role pro, where a test has one.
pub const PRO_KEY: &str = "sk-harness-canary-pro-77a1c05e";
/// A key that may call few models, where a test has one.
pub const NARROW_KEY: &str = "sk-harness-canary-narrow-77d1e4";
/// A key whose time is over, where a test has one.
pub const EXPIRED_KEY: &str = "sk-harness-canary-expired-77aa10";
/// A key that no node knows.
pub const FALSE_KEY: &str = "sk-harness-canary-false-000000";
/// The credential that nodes present to upstreams.
pub const PROVIDER_KEY: &str = "sk-harness-canary-provider-1b94c8";
/// The secret that digests of keys are made with.
pub const API_KEY_SECRET: &str = "harness-canary-digest-secret-52d6";
/// What sessions of members are signed with.
pub const JWT_SECRET_KEY: &str = "harness-canary-session-secret-9b41";

/// The prices of the harness's models, nano-dollars a million tokens: 2, 0.2, 2.5 and 8 dollars.
pub const PRICE: Price = Price {
    input: 2_000_000_000,
    cached: 200_000_000,
    cache_write: 2_500_000_000,
    output: 8_000_000_000,
};

/// Prices of an endpoint, nano-dollars a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Fresh input.
    pub input: i64,
    /// Cached input.
    pub cached: i64,
    /// Input written to a cache.
    pub cache_write: i64,
    /// Output.
    pub output: i64,
}

/// The harness's `waybill.yaml`: tenants `acme` and `zenith`, the four keys, no limits.
pub fn settings() -> Value {
    json!({
        // Upstreams are asked what tests say; nobody else asks them anything.
        "health": {"engines": false},
        "tenants": [{"id": "acme"}, {"id": "zenith"}],
        "keys": [
            {"name": "operator", "tenant": "default", "key": OPERATOR_KEY, "role": "operator"},
            {"name": "admin", "tenant": "default", "key": ADMIN_KEY, "role": "admin"},
            {"name": "caller", "tenant": "acme", "user": "alice", "key": CALLER_KEY, "role": "free"},
            {"name": "other", "tenant": "zenith", "key": OTHER_KEY, "role": "free"},
        ],
    })
}

/// One entry of `models.yaml`.
#[must_use]
#[derive(Debug, Clone)]
pub struct Model {
    entry: Value,
}

impl Model {
    /// A model at the harness's prices that takes tools and response formats; without legs.
    pub fn new(id: &str) -> Self {
        let entry = json!({
            "id": id, "name": id, "provider": "openai_compat",
            "context_length": 131_072, "max_output_length": 16_384,
            "supports_tools": true, "supports_structured_output": true,
            "pricing": {"prompt": "2", "completion": "8", "input_cache_reads": "0.2", "input_cache_writes": "2.5"},
            "route": [],
        });
        Self { entry }
    }

    /// One more leg: an upstream with the harness's credential.
    pub fn leg(self, upstream: &Upstream, priority: u32) -> Self {
        self.leg_at(&upstream.url(), priority)
    }

    /// One more leg by its base URL.
    pub fn leg_at(mut self, base_url: &str, priority: u32) -> Self {
        let leg = json!({
            "kind": "openai_compat", "base_url": base_url, "api_key": PROVIDER_KEY,
            "weight": 1.0, "priority": priority,
        });
        self.legs().push(leg);
        self
    }

    /// Sets a field of the model; `Null` takes it out.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        put(&mut self.entry, key, value.into());
        self
    }

    /// Sets a field of the leg added last; `Null` takes it out.
    pub fn set_leg(mut self, key: &str, value: impl Into<Value>) -> Self {
        let leg = self.legs().last_mut().expect("a leg was added");
        put(leg, key, value.into());
        self
    }

    /// Sets a field of the leg with this place; `Null` takes it out.
    pub fn set_leg_of(mut self, place: usize, key: &str, value: impl Into<Value>) -> Self {
        let leg = self.legs().get_mut(place).expect("so many legs were added");
        put(leg, key, value.into());
        self
    }

    fn legs(&mut self) -> &mut Vec<Value> {
        self.entry["route"].as_array_mut().expect("a list of legs")
    }
}

/// The text of `models.yaml` with these models.
pub fn models_file(models: &[Model]) -> String {
    let entries: Vec<&Value> = models.iter().map(|model| &model.entry).collect();
    json!({"models": entries}).to_string()
}

fn put(entry: &mut Value, key: &str, value: Value) {
    let fields = entry.as_object_mut().expect("an object");
    if value.is_null() {
        fields.remove(key);
    } else {
        fields.insert(key.to_owned(), value);
    }
}
