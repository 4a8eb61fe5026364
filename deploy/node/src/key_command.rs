//! `waybill keys`: talks to the running node, or opens the data directory when none runs.

use std::sync::Arc;

use bus::clock::{Clock as _, SystemClock};
use bus::embedded::Embedded;
use bus::mint::Mint;
use bus::{Expected, Kv};
use bytes::Bytes;
use reqwest::Method;
use schemas::catalog::change::{Actor, Author, Kept};
use schemas::catalog::tenant::tenant_key;
use schemas::catalog::{self, Key, Origin};
use schemas::id::{DEFAULT_TENANT, KeyId, ModelName, TenantId, UserId};
use schemas::secret::Secret;
use schemas::subject;
use schemas::time::Timestamp;
use serde_json::{Value, json};

use crate::UsageError;
use crate::command_line::{Flags, KeyAction, Output};
use crate::config::Config;
use crate::data::{self, DataDirectory};
use crate::management::{self, OPERATOR, RunningNode};
use crate::records::{self, Column};
use crate::{agreement, joining, keys, sealing, secrets, seed};

/// What the actor of a change is called that was made without a node.
const COMMAND_LINE: &str = "command-line";

/// When a key ends that does not.
const NEVER: &str = "never";

const COLUMNS: [Column; 9] = [
    ("ID", |key| records::text(&key["id"])),
    ("NAME", |key| records::text(&key["name"])),
    ("TENANT", |key| records::text(&key["tenant"])),
    ("USER", |key| records::text(&key["user"])),
    ("ROLE", |key| records::text(&key["role"])),
    ("STATE", records::credential_cell),
    ("UNTIL", |key| records::text(&key["expires_at"])),
    ("MODELS", |key| records::models_cell(&key["models"])),
    ("LIMITS", records::limits_cell),
];

/// Carries out an action and returns what to print.
pub async fn run(
    action: KeyAction,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let config = load(&output.flags)?;
    if matches!(action, KeyAction::Public) {
        return sealing::public_key(&config);
    }
    if config.bus.is_shared() {
        return in_cluster(action, &config, output).await;
    }
    match DataDirectory::hold(&config.data_dir) {
        Ok(directory) => {
            let path = directory.path().join("bus");
            let clock = Arc::new(SystemClock::new());
            let kv = Embedded::open(&path, bus::embedded::Options::default(), clock)?;
            offline(action, output, &config, (&*kv, Some(&directory))).await
        }
        Err(data::Error::Held { .. }) => {
            let node = RunningNode::find(&config, &output.flags, OPERATOR)?;
            online(action, output, &node).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Through a node that runs here and can be asked, else over the bus.
async fn in_cluster(action: KeyAction, config: &Config, output: &Output) -> anyhow::Result<String> {
    if let Ok(node) = RunningNode::running(config, &output.flags, OPERATOR) {
        return online(action, output, &node).await;
    }
    let carrier = joining::connect(config).await?;
    let told = offline(action, output, config, (&*carrier.kv(), None)).await;
    carrier.close().await;
    told
}

/// The secret that keys are known by: generated beside an embedded node's data, the cluster's own in a cluster.
async fn secret(
    config: &Config,
    mint: &Mint,
    (kv, directory): (&dyn Kv, Option<&DataDirectory>),
) -> anyhow::Result<Secret<Vec<u8>>> {
    if let Some(directory) = directory {
        return Ok(secrets::api_key_secret(
            directory.path(),
            config.api_key_secret.as_ref(),
            mint,
        )?);
    }
    let text = "a key is known by the cluster's API_KEY_SECRET; set it as the gateways have it";
    let given = config
        .api_key_secret
        .as_ref()
        .ok_or_else(|| UsageError(text.to_owned()))?;
    let secret = Secret::new(given.reveal().clone().into_bytes());
    agreement::check_secret(kv, &secret).await?;
    Ok(secret)
}

/// Where keys are in the management API.
const PATH: &str = "/api/v1/tenant/api-keys";

async fn online(action: KeyAction, output: &Output, node: &RunningNode) -> anyhow::Result<String> {
    match action {
        KeyAction::Create {
            name,
            tenant,
            user,
            role,
            models,
            limits,
            output_default_max,
            expires_at,
        } => {
            let limits = records::limits(&limits)?;
            let body = records::given([
                ("name", Some(json!(name))),
                ("tenant", Some(json!(tenant))),
                ("role", Some(json!(role))),
                (
                    "limits",
                    (!limits.is_empty()).then(|| Value::Object(limits.into())),
                ),
                ("output_default_max", output_default_max.map(Value::from)),
                ("user", user.map(Value::from)),
                ("models", models.map(Value::from)),
                ("expires_at", expires_at.map(Value::from)),
            ]);
            let made = node.call(Method::POST, PATH, Some(Value::Object(body))).await?;
            Ok(created(&made, output))
        }
        KeyAction::List => {
            let keys = records::all(node, PATH, "").await?;
            Ok(records::printed(&COLUMNS, &keys, output.json))
        }
        KeyAction::Revoke { named } => {
            let id = id_of(node, &named).await?;
            let revoked = node.call(Method::DELETE, &place(&id), None).await?;
            Ok(told(&revoked, &format!("revoked {id}\n"), output))
        }
        KeyAction::Set {
            named,
            said,
            models,
            all_models,
            expires_at,
            output_default_max,
        } => {
            let never = |text: String| if text == NEVER { Value::Null } else { json!(text) };
            let models = if all_models {
                Some(Value::Null)
            } else {
                models.map(Value::from)
            };
            let members = records::given([
                ("models", models),
                ("expires_at", expires_at.map(never)),
                ("output_default_max", output_default_max.map(Value::from)),
            ]);
            let id = id_of(node, &named).await?;
            let changed = records::changed(node, &place(&id), &members, &said).await?;
            Ok(records::printed_one(&COLUMNS, &changed, output.json))
        }
        KeyAction::Public => Err(UsageError("the public key is asked of no node".into()).into()),
    }
}

fn place(id: &str) -> String {
    format!("{PATH}/{}", records::encoded(id))
}

/// The id of the key that has this id or this name.
async fn id_of(node: &RunningNode, named: &str) -> anyhow::Result<String> {
    let keys = records::all(node, PATH, "").await?;
    let known = |key: &Value| Known {
        is_it: key["id"] == *named,
        is_called_so: key["name"] == *named,
        is_revoked: key["revoked"] == true,
    };
    match meant(&keys, known).as_slice() {
        [key] => Ok(key["id"].as_str().unwrap_or_default().to_owned()),
        several => Err(ambiguous(named, several.len()).into()),
    }
}

/// What a key has in common with a text that names one.
struct Known {
    /// The text is its id.
    is_it: bool,
    /// The text is its name, which others may have as well.
    is_called_so: bool,
    /// It opens nothing any more.
    is_revoked: bool,
}

/// The keys that a text may mean: the one of that id, whatever others are called; else those of that name. Where some of
/// them are revoked and some are not, those that are not: a key that was given another secret has a revoked record beside
/// its own.
fn meant<T>(keys: &[T], known: impl Fn(&T) -> Known) -> Vec<&T> {
    let mut found: Vec<&T> = keys.iter().filter(|key| known(key).is_it).collect();
    if found.is_empty() {
        found = keys.iter().filter(|key| known(key).is_called_so).collect();
    }
    if found.iter().any(|key| !known(key).is_revoked) {
        found.retain(|key| !known(key).is_revoked);
    }
    found
}

async fn offline(
    action: KeyAction,
    output: &Output,
    config: &Config,
    (kv, directory): (&dyn Kv, Option<&DataDirectory>),
) -> anyhow::Result<String> {
    match action {
        KeyAction::Create { .. } => {
            let mint = Mint::new()?;
            let secret = secret(config, &mint, (kv, directory)).await?;
            let grant = grant(action)?;
            check_tenant(kv, config, &grant.tenant).await?;
            let key = gateway::key::mint_member(&mint);
            let author = author(&mint);
            let record = gateway::key::record(&mint, &key, grant, Origin::Runtime, author.at);
            let id = record.id.clone();
            let place = catalog::key_key(&gateway::caller::digest(secret.reveal(), &key));
            write(kv, &place, &Kept::new(record, None, author), Expected::Absent).await?;
            Ok(created(&json!({"id": id, "key": key}), output))
        }
        KeyAction::List => {
            let keys = stored(kv).await?;
            let keys: Result<Vec<Value>, _> = keys
                .iter()
                .map(|(_, _, key)| serde_json::to_value(&key.record))
                .collect();
            Ok(records::printed(&COLUMNS, &keys?, output.json))
        }
        KeyAction::Revoke { named } => {
            let keys = stored(kv).await?;
            let found = meant(&keys, |(_, _, key)| Known {
                is_it: key.record.id.as_str() == named,
                is_called_so: *key.record.name == *named,
                is_revoked: key.record.revoked,
            });
            let [(place, revision, key)] = found.as_slice() else {
                return Err(ambiguous(&named, found.len()).into());
            };
            let revoked = Key {
                revoked: true,
                origin: Origin::Runtime,
                ..key.record.clone()
            };
            let id = revoked.id.clone();
            if let Some(changed) = key.changed(revoked, *revision, author(&Mint::new()?)) {
                write(kv, place, &changed, Expected::Revision(*revision)).await?;
            }
            Ok(told(
                &json!({"id": id, "revoked": true}),
                &format!("revoked {id}\n"),
                output,
            ))
        }
        KeyAction::Set { .. } => Err(management::Error::NotRunning.into()),
        KeyAction::Public => sealing::public_key(config),
    }
}

/// What a key that is to be created may do.
fn grant(action: KeyAction) -> Result<gateway::key::Grant, UsageError> {
    let KeyAction::Create {
        name,
        tenant,
        user,
        role,
        models,
        limits,
        output_default_max,
        expires_at,
    } = action
    else {
        return Err(UsageError("only a created key has rights to be given".into()));
    };
    let unknown_role = || format!("\"{role}\" is not a role; use free, pro, internal, admin or operator");
    let name_of = |model: &String| ModelName::from(model.as_str());
    let time = |text: String| {
        Timestamp::parse(&text).ok_or_else(|| UsageError(format!("\"{text}\" is not an RFC 3339 time")))
    };
    for (field, text) in [("name", Some(&name)), ("user", user.as_ref())] {
        if text.is_some_and(|text| !keys::is_name(text)) {
            return Err(UsageError(format!(
                "the {field} has to be 1 to 128 bytes of printable text"
            )));
        }
    }
    Ok(gateway::key::Grant {
        name: name.into(),
        tenant: TenantId::parse(&tenant)
            .ok_or_else(|| UsageError(format!("\"{tenant}\" is not a tenant id")))?,
        user: user.as_deref().map(UserId::from),
        role: keys::role(&role).ok_or_else(|| UsageError(unknown_role()))?,
        models: models.map(|models| models.iter().map(name_of).collect()),
        limits: records::limits(&limits)?,
        output_default_max: output_default_max.filter(|tokens| *tokens > 0),
        expires_at: expires_at.map(time).transpose()?,
    })
}

/// Refuses a tenant that neither the catalogue nor the configuration knows: its key would never serve.
async fn check_tenant(kv: &dyn Kv, config: &Config, tenant: &TenantId) -> anyhow::Result<()> {
    let configured =
        tenant.as_str() == DEFAULT_TENANT || config.limits.tenants.iter().any(|known| known.id == *tenant);
    if configured || seed::current(kv).await?.contains_key(&tenant_key(tenant)) {
        return Ok(());
    }
    let text = format!("there is no tenant \"{tenant}\"; add it under tenants of waybill.yaml");
    Err(UsageError(text).into())
}

/// Whoever types commands where the catalogue lies: no key says who it is.
fn author(mint: &Mint) -> Author {
    let at = SystemClock::new().now();
    Author {
        id: mint.request_id(at),
        at,
        actor: Actor {
            tenant: TenantId::from(DEFAULT_TENANT),
            user: None,
            key_id: KeyId::from(COMMAND_LINE),
            key_name: COMMAND_LINE.into(),
        },
    }
}

/// What became of a key: as a text, or as JSON.
fn told(key: &Value, text: &str, output: &Output) -> String {
    if output.json {
        format!("{key:#}\n")
    } else {
        text.to_owned()
    }
}

async fn write(kv: &dyn Kv, place: &str, key: &Kept<Key>, expected: Expected) -> anyhow::Result<()> {
    let value = Bytes::from(serde_json::to_vec(key)?);
    kv.put(subject::CATALOG_BUCKET, place, value, expected).await?;
    Ok(())
}

async fn stored(kv: &dyn Kv) -> anyhow::Result<Vec<(String, u64, Kept<Key>)>> {
    let mut keys = Vec::new();
    for (place, entry) in seed::current(kv).await? {
        if let (true, Some(value)) = (place.starts_with(subject::catalog::KEY), entry.value) {
            keys.push((place, entry.revision, serde_json::from_slice(&value)?));
        }
    }
    Ok(keys)
}

fn ambiguous(named: &str, found: usize) -> UsageError {
    UsageError(match found {
        0 => format!("no key has the id or the name \"{named}\"; waybill keys list shows them"),
        _ => format!("{found} keys are called \"{named}\"; name one by its id"),
    })
}

fn created(made: &Value, output: &Output) -> String {
    let (id, key) = (records::text(&made["id"]), records::text(&made["key"]));
    told(
        made,
        &format!("id  {id}\nkey {key}\nThe key is shown only now.\n"),
        output,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, name, revoked.
    type Told = (&'static str, &'static str, bool);

    fn ids(keys: &[Told], named: &str) -> Vec<&'static str> {
        let known = |&(id, name, is_revoked): &Told| Known {
            is_it: id == named,
            is_called_so: name == named,
            is_revoked,
        };
        meant(keys, known).into_iter().map(|(id, ..)| *id).collect()
    }

    #[test]
    fn an_id_means_its_key_whatever_others_are_called() {
        let keys = [("k1", "billing", false), ("k2", "k1", false), ("k3", "k1", true)];

        assert_eq!(ids(&keys, "k1"), ["k1"]);
        assert_eq!(ids(&keys, "billing"), ["k1"]);
        assert_eq!(ids(&[("k1", "a", true), ("k2", "k1", false)], "k1"), ["k1"]);
    }

    #[test]
    fn a_name_means_the_one_that_is_not_revoked() {
        let keys = [
            ("k1", "ci", true),
            ("k2", "ci", false),
            ("k3", "cd", false),
            ("k4", "cd", false),
        ];

        assert_eq!(ids(&keys, "ci"), ["k2"]);
        assert_eq!(ids(&keys, "cd"), ["k3", "k4"]);
        assert_eq!(ids(&[("k1", "ci", true)], "ci"), ["k1"]);
        assert!(ids(&keys, "nobody").is_empty());
    }
}
