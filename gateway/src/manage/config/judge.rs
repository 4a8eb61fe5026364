//! What records of an import are judged by: the rules of the paths that would make each of them, on a catalogue that has
//! what the import brought before. And what of files is put back is judged as far as it concerns what others may do.

use std::collections::HashSet;

use schemas::catalog::policy::{ModelPolicy, WEIGHT_MAX, model_policy_key};
use schemas::catalog::rates::{PriceRecord, price_key};
use schemas::catalog::served::{Overlay, RouteRecord, Sharing, overlay_key, route_key};
use schemas::catalog::setting::{self, Provider, Setting, provider_key, setting_key};
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::user::{User, user_key, user_of_cursor};
use schemas::catalog::{Catalog, Endpoint, Origin, endpoint_key};
use schemas::configuration::RecordChange;
use schemas::failure::Failure;
use schemas::id::{TenantId, UserId};
use schemas::named;
use schemas::subject::catalog as place;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::caller::Caller;
use crate::manage::records::differing;
use crate::manage::rights::{self, Becoming};
use crate::manage::{endpoints, internal, invalid, model_routes, models, prices, tenants, users};
use crate::sign_in::member;
use crate::state::Shared;

/// Members by tenant and id.
pub(super) type Members = HashSet<(TenantId, UserId)>;

/// Holds a record against its own kind's rules.
pub(super) struct Judge<'a> {
    caller: &'a Caller,
    catalog: Catalog,
    /// Who of the members has an account.
    signing_in: &'a Members,
}

impl<'a> Judge<'a> {
    /// A judge who knows what is there.
    pub(super) fn new(
        caller: &'a Caller,
        catalog: &Catalog,
        signing_in: &'a Members,
    ) -> Result<Self, Failure> {
        let mut judge = Self {
            caller,
            catalog: catalog.clone(),
            signing_in,
        };
        // What belongs to a tenant that is disabled is taken in as well.
        for stored in catalog.tenants_after(None) {
            judge.living(&stored.record)?;
        }
        Ok(judge)
    }

    fn living(&mut self, tenant: &Tenant) -> Result<(), Failure> {
        let living = Tenant {
            disabled: false,
            ..tenant.clone()
        };
        self.put(&tenant_key(&tenant.id), &living)
    }

    fn put<T: Serialize>(&mut self, key: &str, record: &T) -> Result<(), Failure> {
        let text = serde_json::to_vec(record).map_err(|_| internal())?;
        let revision = self.catalog.revision;
        let applied = self.catalog.apply(revision, key, Some(&text));
        applied.map_err(|_| invalid("record", "it is not a record of its kind"))
    }

    /// Refuses a record that could not be made by its own path; one that could is known from then on.
    /// `there` is what lies at its place.
    pub(super) fn take(
        &mut self,
        key: &str,
        record: &Value,
        there: Option<&Map<String, Value>>,
    ) -> Result<(), Failure> {
        let is = |prefix: &str| key.starts_with(prefix);
        if is(place::TENANT) {
            let tenant = self.tenant(&read(record)?, record)?;
            lies(key, &tenant_key(&tenant.id))?;
            return self.living(&tenant);
        } else if is(place::USER) {
            self.user(key, &read(record)?, record)?;
        } else if is(place::ENDPOINT) {
            let endpoint: Endpoint = read(record)?;
            lies(key, &endpoint_key(&endpoint.id))?;
            if there.is_some_and(|there| there.get("tenant") != record.get("tenant")) {
                return Err(invalid("tenant", "whose an endpoint is does not change"));
            }
            endpoints::judge(self.caller, &self.catalog, &endpoint)?;
        } else if is(place::ROUTE) {
            let route: RouteRecord = read(record)?;
            lies(key, &route_key(&route.tenant, &route.id))?;
            self.forget(key)?;
            model_routes::judge(self.caller, &self.catalog, &route)?;
        } else if is(place::OVERLAY) {
            self.overlay(key, &read(record)?)?;
        } else if is(place::PRICE) {
            let price: PriceRecord = read(record)?;
            lies(key, &price_key(&price.tenant, &price.id))?;
            if there.is_some() {
                let text = "a version of a price is never changed: make another";
                return Err(invalid("id", text));
            }
            prices::judge(&self.catalog, &price)?;
        } else if is(place::SETTING) {
            set(key, &read(record)?)?;
        } else if is(place::PROVIDER) {
            let provider: Provider = read(record)?;
            lies(key, &provider_key(&provider.provider))?;
            if !self.catalog.providers().contains(&provider.provider) {
                return Err(invalid("provider", "there is no such provider"));
            }
        } else if is(place::POLICY) {
            self.policy(key, &read(record)?)?;
        } else {
            return Err(invalid("origin", "only files say what is of this kind"));
        }
        self.put(key, record)
    }

    /// What is judged is not counted beside itself.
    fn forget(&mut self, key: &str) -> Result<(), Failure> {
        let revision = self.catalog.revision;
        self.catalog.apply(revision, key, None).map_err(|_| internal())
    }

    fn tenant(&self, tenant: &Tenant, record: &Value) -> Result<Tenant, Failure> {
        let id = TenantId::parse(tenant.id.as_str());
        let id = id.ok_or_else(|| invalid("id", "it is not the id of a tenant"))?;
        let patch = patch(json!({
            "name": tenant.name, "limits": limits(record), "disabled": tenant.disabled,
        }))?;
        let base = Tenant {
            created_at: tenant.created_at,
            ..Tenant::new(id, Origin::Runtime)
        };
        let made = tenants::patched(self.caller, &self.catalog, &base, &patch)?;
        differing(tenant, &made)?;
        Ok(made)
    }

    fn user(&self, key: &str, user: &User, record: &Value) -> Result<(), Failure> {
        lies(key, &user_key(&user.tenant, &user.id))?;
        let wanted = users::Wanted {
            tenant: Some(user.tenant.to_string()),
            role: user.role,
            ..users::Wanted::default()
        };
        let at = user.created_at.unwrap_or_default();
        let mut base = users::wanted_user(self.caller, &self.catalog, wanted, (user.id.as_str(), at))?;
        (base.role, base.created_at) = (user.role, user.created_at);
        let patch = patch(json!({
            "email": user.email, "name": user.name, "limits": limits(record), "disabled": user.disabled,
            "disabled_models": user.disabled_models,
        }))?;
        let mut made = users::patched(self.caller, &self.catalog, &base, &patch)?;
        // Who disabled him, and who granted what, are facts, which no path is told.
        made.disabled_by_operator = user.disabled_by_operator;
        made.granted = user.granted;
        differing(user, &made)?;
        let there = self.catalog.user(&user.tenant, &user.id);
        may_become(self.caller, &self.catalog, self.signing_in, (there, user))
    }

    fn overlay(&self, key: &str, overlay: &Overlay) -> Result<(), Failure> {
        lies(key, &overlay_key(&overlay.model))?;
        if self.catalog.configured_model(&overlay.model).is_none() {
            return Err(invalid("model", "there is no such model"));
        }
        rights::may_show(self.caller, &self.catalog, &overlay.model)?;
        let mut told = Map::new();
        if let Some(role) = overlay.required_role {
            told.insert("required_role".into(), json!(role));
        }
        match &overlay.sharing {
            None => {}
            Some(Sharing::Everybody) => drop(told.insert("tenants".into(), Value::Null)),
            Some(Sharing::Only(tenants)) => drop(told.insert("tenants".into(), json!(tenants))),
        }
        if let Some(enabled) = overlay.enabled {
            told.insert("enabled".into(), json!(enabled));
        }
        let base = Overlay::new(overlay.model.clone(), overlay.created_at);
        let made = models::patched(&self.catalog, &base, &patch(Value::Object(told))?)?;
        differing(overlay, &made)
    }

    fn policy(&self, key: &str, policy: &ModelPolicy) -> Result<(), Failure> {
        lies(key, &model_policy_key(&policy.model))?;
        let model = self.catalog.model_anywhere(policy.model.as_str());
        if model.is_none_or(|model| model.id != policy.model) {
            return Err(invalid("model", "there is no such model"));
        }
        for (name, weight) in [
            ("quality_weight_micro", policy.quality_weight_micro),
            ("latency_weight_micro", policy.latency_weight_micro),
            ("cost_weight_micro", policy.cost_weight_micro),
        ] {
            if weight > WEIGHT_MAX {
                return Err(invalid(name, "expected a number from 0 to 1000000"));
            }
        }
        Ok(())
    }
}

/// Refuses what makes more of a member than the caller may make.
fn may_become(
    caller: &Caller,
    catalog: &Catalog,
    signing_in: &Members,
    (before, after): (Option<&User>, &User),
) -> Result<(), Failure> {
    let nobody = User::new(after.tenant.clone(), after.id.clone(), Origin::Runtime);
    let becoming = Becoming {
        before: before.unwrap_or(&nobody),
        after,
        signs_in: signing_in.contains(&(after.tenant.clone(), after.id.clone())),
    };
    rights::may_become(caller, catalog, &becoming)
}

/// Refuses to put a record of a file back that would have others do what the caller may not.
pub(super) fn put_back(
    caller: &Caller,
    catalog: &Catalog,
    signing_in: &Members,
    change: &RecordChange,
) -> Result<(), Failure> {
    let RecordChange { key, from, to } = change;
    if let Some((tenant, id)) = member_of(key) {
        let read = |record: &Option<Value>| -> Option<User> { serde_json::from_value(record.clone()?).ok() };
        let after = read(to).unwrap_or_else(|| User::new(tenant, id, Origin::File));
        return may_become(caller, catalog, signing_in, (read(from).as_ref(), &after));
    }
    if key.starts_with(place::MODEL) {
        let records = [to, from].into_iter().flatten();
        let mut names = records.filter_map(|record| serde_json::from_value(record.get("id")?.clone()).ok());
        return names.try_for_each(|name| rights::may_show(caller, catalog, &name));
    }
    Ok(())
}

/// The member whose record lies at a place.
pub(super) fn member_of(key: &str) -> Option<(TenantId, UserId)> {
    user_of_cursor(key.strip_prefix(place::USER)?)
}

/// Who of those members has an account whose records lie at these places.
pub(super) async fn signing_in<'k>(
    state: &Shared,
    keys: impl Iterator<Item = &'k str>,
) -> Result<Members, Failure> {
    let mut found = Members::new();
    for (tenant, user) in keys.filter_map(member_of) {
        if member::signs_in(state, (&tenant, &user)).await? {
            found.insert((tenant, user));
        }
    }
    Ok(found)
}

fn set(key: &str, setting: &Setting) -> Result<(), Failure> {
    lies(key, &setting_key(&setting.name))?;
    let known = setting::known(&setting.name);
    let known = known.ok_or_else(|| invalid("name", "there is no such setting"))?;
    match &setting.value {
        Some(value) if known.read(value).as_ref() != Some(value) => {
            Err(invalid("value", "it is not a value of the setting"))
        }
        _ => Ok(()),
    }
}

fn lies(key: &str, own: &str) -> Result<(), Failure> {
    if key == own {
        return Ok(());
    }
    Err(invalid("key", "the record lies elsewhere than it says itself"))
}

fn limits(record: &Value) -> Value {
    record.get("limits").cloned().unwrap_or_else(|| json!({}))
}

fn patch<T: DeserializeOwned>(told: Value) -> Result<T, Failure> {
    named::from_value(told).map_err(|_| invalid("record", "it is not what can be said of its kind"))
}

/// A record of which every member is read.
fn read<T: Serialize + DeserializeOwned>(record: &Value) -> Result<T, Failure> {
    let read: T = named::from_value(record.clone()).map_err(|problem| {
        let text = format!("it is not a record of its kind: {problem}");
        Failure::new(schemas::failure::FailureCode::InvalidRequest, text).param("record")
    })?;
    let again = serde_json::to_value(&read).map_err(|_| internal())?;
    match unread(record, &again) {
        Some(name) => Err(invalid(name, "there is no such field")),
        None => Ok(read),
    }
}

/// The first member that was not read. Limits refuse what they do not know by themselves.
fn unread(told: &Value, read: &Value) -> Option<String> {
    match (told, read) {
        (Value::Object(told), Value::Object(read)) => told.iter().find_map(|(name, told)| {
            let Some(read) = read.get(name) else {
                return Some(name.clone());
            };
            let inner = (name != "limits").then(|| unread(told, read)).flatten();
            inner.map(|inner| format!("{name}.{inner}"))
        }),
        (Value::Array(told), Value::Array(read)) => {
            told.iter().zip(read).find_map(|(told, read)| unread(told, read))
        }
        _ => None,
    }
}
