//! What operators set at run time over what the files say: a closed list of settings, each with a type of its own, and
//! the providers that are switched off.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limited::RoleLimits;
use super::{Catalog, Endpoint, Origin, Role, Stored, from_hex, hex};
use crate::limit::limits::{Bounds, LimitKey, Limits};
use crate::subject;

/// Longest text in a list, in bytes.
const WORD_BYTES_MAX: usize = 253;
/// Most texts of a list.
const WORDS_MAX: usize = 1_000;

/// What kind of value a setting has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// True or false.
    Boolean,
    /// A whole number; 0 is unlimited.
    Count,
    /// A decimal text of USD; "0" is unlimited.
    Money,
    /// A list of texts.
    List,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What kind of value it has.
    pub kind: Type,
    /// What it is for.
    pub about: &'static str,
    /// The limit of a role that it says.
    limit: Option<(Role, LimitKey)>,
}

/// Whoever likes may make himself a member.
pub const SIGNUP_ENABLED: &str = "signup_enabled";
/// Who made himself a member waits for an administrator, unless his address is at one of the hosts.
pub const SIGNUP_APPROVAL_REQUIRED: &str = "signup_approval_required";
/// Hosts at which addresses need no approval.
pub const SIGNUP_DOMAINS: &str = "signup_domains";
/// Everybody may read where models are served.
pub const PUBLIC_ROUTING: &str = "public_routing";

const fn plain(name: &'static str, kind: Type, about: &'static str) -> Known {
    Known {
        name,
        kind,
        about,
        limit: None,
    }
}

const fn concurrency(name: &'static str, role: Role) -> Known {
    Known {
        name,
        kind: Type::Count,
        about: "calls at once of a member of this role whose own limits say nothing",
        limit: Some((role, LimitKey::Concurrency)),
    }
}

const fn quota(name: &'static str, role: Role) -> Known {
    Known {
        name,
        kind: Type::Money,
        about: "USD a day of a member of this role whose own limits say nothing",
        limit: Some((role, LimitKey::DailyUsd)),
    }
}

/// Every setting, by name.
pub const KNOWN: [Known; 12] = [
    plain(
        PUBLIC_ROUTING,
        Type::Boolean,
        "everybody may read where models are served",
    ),
    plain(
        SIGNUP_APPROVAL_REQUIRED,
        Type::Boolean,
        "who signs up with an address at none of signup_domains waits for an administrator; else he is refused",
    ),
    plain(
        SIGNUP_DOMAINS,
        Type::List,
        "addresses at these hosts sign up without approval; *.example.com stands for all hosts below it",
    ),
    plain(SIGNUP_ENABLED, Type::Boolean, "whoever likes may sign up"),
    concurrency("user_concurrency_admin", Role::Admin),
    concurrency("user_concurrency_free", Role::Free),
    concurrency("user_concurrency_internal", Role::Internal),
    concurrency("user_concurrency_pro", Role::Pro),
    quota("user_daily_quota_admin", Role::Admin),
    quota("user_daily_quota_free", Role::Free),
    quota("user_daily_quota_internal", Role::Internal),
    quota("user_daily_quota_pro", Role::Pro),
];

/// The setting of a name.
pub fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

impl Known {
    /// What it says of a role at the moment, be that set or of a file; `None` for other settings, and where nothing is
    /// said.
    pub fn of_role(&self, catalog: &Catalog) -> Option<Value> {
        let (role, key) = self.limit?;
        let limits = serde_json::to_value(catalog.role_limits(role)).ok()?;
        limits.get(key.as_str()).cloned()
    }

    /// A value as the setting keeps it; `None` for one that is not of its kind.
    pub fn read(&self, value: &Value) -> Option<Value> {
        match self.kind {
            Type::Boolean => value.as_bool().map(Value::from),
            Type::Count | Type::Money => {
                let (_, key) = self.limit?;
                let limits = limit(key, value)?;
                serde_json::to_value(limits).ok()?.get(key.as_str()).cloned()
            }
            Type::List => {
                let words = value.as_array().filter(|words| words.len() <= WORDS_MAX)?;
                let fits = |word: &&str| {
                    !word.is_empty()
                        && word.len() <= WORD_BYTES_MAX
                        && word.bytes().all(|byte| byte.is_ascii_graphic())
                };
                let read = |word: &Value| Some(Value::from(word.as_str().filter(fits)?.to_ascii_lowercase()));
                words
                    .iter()
                    .map(read)
                    .collect::<Option<Vec<_>>>()
                    .map(Value::from)
            }
        }
    }
}

/// A limit by its amount.
fn limit(key: LimitKey, amount: &Value) -> Option<Limits> {
    let member = (key.as_str().to_owned(), amount.clone());
    Limits::try_from(serde_json::Map::from_iter([member])).ok()
}

/// A setting as it was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: Arc<str>,
    /// Its value; `None` leaves it to the files.
    #[serde(default)]
    pub value: Option<Value>,
}

/// What was said of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// Its label, as endpoints have it.
    pub provider: Arc<str>,
    /// It takes no call.
    pub disabled: bool,
}

/// The settings of a catalogue.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    set: BTreeMap<Arc<str>, Stored<Setting>>,
    providers: BTreeMap<Arc<str>, Stored<Provider>>,
    /// What roles allow, where a setting says something of it.
    roles: BTreeMap<Role, Arc<RoleLimits>>,
}

impl Settings {
    /// What a role allows, where a setting says something of it.
    pub(super) fn role(&self, role: Role) -> Option<&Arc<RoleLimits>> {
        self.roles.get(&role)
    }
}

impl Catalog {
    /// What was set of a setting.
    pub fn stored_setting(&self, name: &str) -> Option<&Stored<Setting>> {
        self.settings.set.get(name)
    }

    /// The value of a setting; `None` where the files say what holds.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.stored_setting(name)?.record.value.as_ref()
    }

    /// The value of a setting that is true or false; `None` where the files say what holds.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.setting(name)?.as_bool()
    }

    /// The value of a setting that is a list; `None` where the files say what holds.
    pub fn words(&self, name: &str) -> Option<Vec<&str>> {
        let words = self.setting(name)?.as_array()?;
        Some(words.iter().filter_map(Value::as_str).collect())
    }

    /// What was said of a provider.
    pub fn stored_provider(&self, provider: &str) -> Option<&Stored<Provider>> {
        self.settings.providers.get(provider)
    }

    /// The labels of providers: those of endpoints, and those of which something was said.
    pub fn providers(&self) -> Vec<Arc<str>> {
        let endpoints = self.endpoints();
        let of_endpoints = endpoints.iter().map(|endpoint| &endpoint.provider);
        let all = of_endpoints.chain(self.settings.providers.keys());
        let all: std::collections::BTreeSet<&Arc<str>> = all.collect();
        all.into_iter().cloned().collect()
    }

    /// True for an endpoint that takes no call because it, or its provider, is switched off.
    pub fn is_off(&self, endpoint: &Endpoint) -> bool {
        let provider = self.stored_provider(&endpoint.provider);
        endpoint.disabled || provider.is_some_and(|stored| stored.record.disabled)
    }

    /// Notes what was set of a setting. One that this build does not know changes nothing.
    pub(super) fn note_setting(&mut self, name: &str, revision: u64, record: Option<Setting>) {
        match record.map(Arc::new) {
            Some(record) => {
                self.settings.set.insert(name.into(), Stored { revision, record });
            }
            None => {
                self.settings.set.remove(name);
            }
        }
        self.lay_over_roles();
    }

    /// Notes what was said of a provider.
    pub(super) fn note_provider(&mut self, label: &str, revision: u64, record: Option<Provider>) {
        match record.map(Arc::new) {
            Some(record) => {
                self.settings
                    .providers
                    .insert(label.into(), Stored { revision, record });
            }
            None => {
                self.settings.providers.remove(label);
            }
        }
    }

    /// Lays what was set of roles over what the files say of them.
    pub(super) fn lay_over_roles(&mut self) {
        let mut over: BTreeMap<Role, RoleLimits> = BTreeMap::new();
        for known in &KNOWN {
            let set = known.limit.zip(self.setting(known.name));
            let Some(((role, key), amount)) = set
                .and_then(|((role, key), value)| Some(((role, key), limit(key, value)?.own.written(key)?)))
            else {
                continue;
            };
            let record = over.entry(role).or_insert_with(|| self.of_files(role));
            record.limits.own.set(key, amount);
        }
        self.settings.roles = over
            .into_iter()
            .map(|(role, record)| (role, Arc::new(record)))
            .collect();
    }

    fn of_files(&self, role: Role) -> RoleLimits {
        let nothing = RoleLimits {
            role,
            limits: Limits {
                own: Bounds::default(),
                ..Limits::default()
            },
            origin: Origin::Runtime,
        };
        self.roles
            .get(&role)
            .map_or(nothing, |record| RoleLimits::clone(record))
    }
}

/// The record key of a setting.
pub fn setting_key(name: &str) -> String {
    format!("{}{name}", subject::catalog::SETTING)
}

/// The record key of what was said of a provider.
pub fn provider_key(label: &str) -> String {
    format!("{}{}", subject::catalog::PROVIDER, hex(label.as_bytes()))
}

/// The provider of a record key; `None` for a key that is none.
pub(super) fn provider_of_key(key: &str) -> Option<String> {
    String::from_utf8(from_hex(key.strip_prefix(subject::catalog::PROVIDER)?)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::limited::role_key;

    fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
        let value = serde_json::to_vec(value).expect("serialize");
        catalog.apply(1, key, Some(&value)).expect("apply");
    }

    fn set(catalog: &mut Catalog, name: &str, value: Option<Value>) {
        let setting = Setting {
            name: name.into(),
            value,
        };
        put(catalog, &setting_key(name), &setting);
    }

    #[test]
    fn settings_take_values_of_their_kind_alone() {
        let read = |name: &str, value: Value| known(name).expect("known").read(&value);

        assert_eq!(read(SIGNUP_ENABLED, json!(true)), Some(json!(true)));
        assert_eq!(read(SIGNUP_ENABLED, json!("true")), None);
        assert_eq!(read("user_concurrency_free", json!(3)), Some(json!(3)));
        assert_eq!(read("user_concurrency_free", json!(-1)), None);
        assert_eq!(
            read("user_daily_quota_pro", json!("2.5")),
            Some(json!("2.500000000"))
        );
        assert_eq!(read("user_daily_quota_pro", json!(2.5)), None);
        assert_eq!(
            read(SIGNUP_DOMAINS, json!(["Example.com"])),
            Some(json!(["example.com"]))
        );
        assert_eq!(read(SIGNUP_DOMAINS, json!(["a b"])), None);
        assert_eq!(read(SIGNUP_DOMAINS, json!("example.com")), None);
        assert!(known("jwt_secret_key").is_none());
    }

    #[test]
    fn names_are_in_order_and_each_is_there_once() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn what_is_set_of_a_role_lies_over_the_files_and_goes_again() {
        let mut catalog = Catalog::default();
        let of_file = RoleLimits {
            role: Role::Free,
            limits: serde_json::from_value(json!({"concurrency": 3, "rpm": 7})).expect("limits"),
            origin: Origin::File,
        };
        put(&mut catalog, &role_key(Role::Free), &of_file);
        let told = |catalog: &Catalog| {
            let own = &catalog.role_limits(Role::Free).own;
            (own.written(LimitKey::Concurrency), own.written(LimitKey::Rpm))
        };

        set(&mut catalog, "user_concurrency_free", Some(json!(9)));
        assert_eq!(told(&catalog), (Some(9), Some(7)));
        // Whichever comes later.
        let lowered = RoleLimits {
            limits: serde_json::from_value(json!({"rpm": 1})).expect("limits"),
            ..of_file
        };
        put(&mut catalog, &role_key(Role::Free), &lowered);
        assert_eq!(told(&catalog), (Some(9), Some(1)));
        set(&mut catalog, "user_concurrency_free", None);
        assert_eq!(told(&catalog), (None, Some(1)));
        set(&mut catalog, "user_concurrency_pro", Some(json!(2)));
        assert_eq!(
            catalog.role_limits(Role::Pro).own.written(LimitKey::Concurrency),
            Some(2)
        );
    }

    #[test]
    fn an_endpoint_is_off_while_its_provider_is() {
        let mut catalog = Catalog::default();
        let endpoint: Endpoint = serde_json::from_value(json!({
            "id": "e", "kind": "echo", "provider": "p/q", "backends": [], "chat_path": "", "query": "",
            "auth_header": "", "auth_format": "", "extra_headers": [], "extra_body": "", "credentials": [],
            "single_backend_rescue": false, "http2": false, "disabled": false,
        }))
        .expect("an endpoint");
        put(
            &mut catalog,
            &crate::catalog::endpoint_key(&endpoint.id),
            &endpoint,
        );
        let mut switch = |disabled| {
            let record = Provider {
                provider: "p/q".into(),
                disabled,
            };
            put(&mut catalog, &provider_key("p/q"), &record);
            catalog.is_off(&endpoint)
        };

        assert!(switch(true));
        assert!(!switch(false));
        assert_eq!(catalog.providers(), ["p/q".into()]);
    }
}
