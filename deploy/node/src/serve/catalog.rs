//! What a node says about the catalogue at its start: records of its files, and the first key of an empty one.
//!
//! In a cluster gateways write it, for a router may stand where nobody may change what others serve; routers read the
//! same models.yaml for the credentials in it. A node whose files say nothing about a kind of record leaves the others'
//! records of that kind alone; an empty list of them says that there are none.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::Clock;
use bus::follow::CatalogView;
use bus::{Expected, Kv, Revision};
use bytes::Bytes;
use schemas::catalog::{self, Origin, Role};
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::limit::limits::Limits;
use schemas::node::NodeRole;
use schemas::subject;
use schemas::time::Timestamp;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Adapters, FINISH_WAIT};
use crate::catalog_files::{self, Seeds};
use crate::config::Config;
use crate::control::Reload;
use crate::models::Compiled;
use crate::patience::{self, START_WAIT};
use crate::{agreement, discover, seed};

/// How often is looked whether the first key is in force.
const KEY_POLL: Duration = Duration::from_millis(1);

/// True for a node that writes what its files say.
fn writes(config: &Config) -> bool {
    !config.bus.is_shared() || config.roles.has(NodeRole::Gateway)
}

/// Prefixes of which this node's files are the whole truth.
fn complete(config: &Config) -> Vec<&'static str> {
    let alone = !config.bus.is_shared();
    let has = |section| config.sections.contains(&section);
    let kinds = [
        (subject::catalog::MODEL, config.models_path.is_some()),
        (subject::catalog::ENDPOINT, config.models_path.is_some()),
        (subject::catalog::KEY, has("keys")),
        (subject::catalog::TENANT, has("tenants")),
        (subject::catalog::USER, has("users")),
        (subject::catalog::ROLE, has("role_limits")),
    ];
    let mine = kinds.iter().filter(|(_, says)| alone || *says);
    mine.map(|(prefix, _)| *prefix).collect()
}

/// Writes what files, discovery and the demo say into the catalogue; returns the book of credentials.
pub(super) async fn seed(
    config: &Config,
    adapters: &Adapters,
) -> anyhow::Result<Arc<router_worker::Credentials>> {
    let kv = adapters.carrier.kv();
    if config.bus.is_shared() && config.roles.read_catalog() {
        join_cluster(config, adapters, &*kv).await?;
    }
    let compiled = compile(config, adapters.clock.now()).await?;
    for problem in config
        .warnings
        .iter()
        .chain(&compiled.problems)
        .chain(&catalog_files::not_honoured(config))
    {
        warn!("{problem}");
    }
    if writes(config) {
        let seeds = Seeds {
            config,
            api_key_secret: &adapters.api_key_secret,
            mint: &adapters.mint,
            now: adapters.clock.now(),
        };
        let mut records = seeds.callers()?;
        records.extend(catalog_files::served(&compiled)?);
        let complete = complete(config);
        patience::until("the catalogue cannot be written", START_WAIT, || {
            seed::apply(&*kv, records.clone(), &complete)
        })
        .await?;
        info!(
            models = compiled.models.len(),
            endpoints = compiled.endpoints.len(),
            "the catalogue is in force"
        );
    } else if !config.keys.is_empty() || config.models_path.is_some() {
        info!("keys and models are written into the catalogue by nodes with the role gateway");
    }
    Ok(Arc::new(router_worker::Credentials::new(compiled.credentials)))
}

async fn join_cluster(config: &Config, adapters: &Adapters, kv: &dyn Kv) -> anyhow::Result<()> {
    let own = agreement::Own {
        cluster: &config.cluster,
        billing_tz: config.billing_tz.name(),
        secret: config
            .roles
            .has(NodeRole::Gateway)
            .then_some(&adapters.api_key_secret),
    };
    Ok(patience::until("the catalogue cannot be read", START_WAIT, || {
        agreement::join(kv, &own)
    })
    .await?)
}

async fn compile(config: &Config, now: Timestamp) -> anyhow::Result<Compiled> {
    if !config.roles.read_catalog() {
        return Ok(Compiled::default());
    }
    let mut compiled = catalog_files::compile(config, now)?;
    if config.discover {
        let reader = router_worker::Reader::new().context("cannot set up TLS")?;
        compiled.extend(discover::engines(&reader, now).await);
        compiled.extend(discover::providers(&reader, &config.environment, now).await);
    }
    Ok(compiled)
}

/// What reads the models of a node again while it runs.
pub(super) struct Reloader {
    config: Config,
    kv: Arc<dyn Kv>,
    clock: Arc<dyn Clock>,
    view: CatalogView,
    credentials: Arc<router_worker::Credentials>,
}

impl Reloader {
    pub(super) fn new(
        config: &Config,
        adapters: &Adapters,
        view: &CatalogView,
        credentials: Arc<router_worker::Credentials>,
    ) -> Self {
        Self {
            config: config.clone(),
            kv: adapters.carrier.kv(),
            clock: adapters.clock.clone(),
            view: view.clone(),
            credentials,
        }
    }

    /// Does what `wishes` ask for, one after another.
    pub(super) async fn run(
        self,
        mut wishes: mpsc::Receiver<Reload>,
        end: CancellationToken,
    ) -> anyhow::Result<()> {
        while let Some(Some(wish)) = end.run_until_cancelled(wishes.recv()).await {
            let told = self.reload().await.map_err(|problem| {
                warn!(error = format!("{problem:#}"), "the models stay as they were");
                format!("{problem:#}\n")
            });
            // Who asked may have left.
            let _ = wish.send(told);
        }
        Ok(())
    }

    /// Reads the files of models again. Nothing is changed when they are wrong; callers of what stays notice nothing.
    async fn reload(&self) -> anyhow::Result<String> {
        let compiled = compile(&self.config, self.clock.now()).await?;
        let references = compiled.credentials.keys().cloned().collect();
        let records = catalog_files::served(&compiled)?;
        // First what is new, last what is gone: requests run on either side of the change.
        self.credentials.add(compiled.credentials);
        for problem in &compiled.problems {
            warn!("{problem}");
        }
        if writes(&self.config) {
            let mut complete = complete(&self.config);
            complete.retain(|prefix| [subject::catalog::MODEL, subject::catalog::ENDPOINT].contains(prefix));
            let write = || seed::apply(&*self.kv, records.clone(), &complete);
            let last = patience::until("the catalogue cannot be written", FINISH_WAIT, write).await?;
            if let Some(last) = last {
                in_force(&self.view, last)
                    .await
                    .context("the catalogue was written and has not come back yet")?;
            }
        }
        self.credentials.retain(&references);
        let (models, endpoints) = (compiled.models.len(), compiled.endpoints.len());
        info!(models, endpoints, "the models were read again");
        let problems = compiled.problems.iter().map(|problem| format!("{problem}\n"));
        let counts = format!("{models} models on {endpoints} endpoints are in force\n");
        Ok(problems.chain([counts]).collect())
    }
}

/// Waits until a view shows the catalogue as of `revision`.
async fn in_force(view: &CatalogView, revision: Revision) -> Result<(), Elapsed> {
    let seen = async {
        while view.peek().revision < revision {
            tokio::time::sleep(KEY_POLL).await;
        }
    };
    tokio::time::timeout(FINISH_WAIT, seen).await
}

/// Mints an operator key when the catalogue has no key at all, and waits until it is in force. Of a cluster's nodes one
/// does so, once.
pub(super) async fn first_key(
    config: &Config,
    adapters: &Adapters,
    view: &CatalogView,
) -> anyhow::Result<Option<String>> {
    let kv = adapters.carrier.kv();
    let present = patience::until("the catalogue cannot be read", START_WAIT, || seed::current(&*kv)).await?;
    if present.keys().any(|key| key.starts_with(subject::catalog::KEY)) {
        return Ok(None);
    }
    if config.bus.is_shared() {
        let claim = patience::until("the catalogue cannot be written", START_WAIT, || {
            agreement::claim_first_key(&*kv)
        });
        if !claim.await? {
            info!("the catalogue has no key; make one with: waybill keys create --name NAME --role operator");
            return Ok(None);
        }
    }
    let key = gateway::key::mint_member(&adapters.mint);
    let grant = gateway::key::Grant {
        name: "first-run".into(),
        tenant: TenantId::from(DEFAULT_TENANT),
        user: None,
        role: Role::Operator,
        models: None,
        limits: Limits::default(),
        output_default_max: None,
        expires_at: None,
    };
    let now = adapters.clock.now();
    let record = gateway::key::record(&adapters.mint, &key, grant, Origin::Runtime, now);
    let place = catalog::key_key(&gateway::caller::digest(adapters.api_key_secret.reveal(), &key));
    let value = Bytes::from(serde_json::to_vec(&record)?);
    let made = kv
        .put(subject::CATALOG_BUCKET, &place, value, Expected::Absent)
        .await?;
    in_force(view, made)
        .await
        .context("the operator key did not come into force")?;
    Ok(Some(key))
}

/// Shows the first key, once.
pub(super) fn tell_first_key(key: &str, address: SocketAddr, demo: bool) {
    let model = if demo { "echo" } else { "MODEL" };
    let text = format!(
        "\nThe catalogue had no key, so an operator key was made. It is shown only now:\n\n  {key}\n\nTry it:\n\n  \
         curl http://{address}/v1/chat/completions \\\n    -H 'Authorization: Bearer {key}' \\\n    \
         -H 'Content-Type: application/json' \\\n    \
         -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n\n"
    );
    // A closed stderr must not stop the node: the key can be minted again with `waybill keys create`.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Flags;
    use crate::environment::Environment;

    fn config(text: &str, variables: &[(&str, &str)]) -> Config {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("waybill.yaml");
        std::fs::write(&path, text).expect("write");
        let flags = Flags {
            config: Some(path),
            ..Flags::default()
        };
        crate::config::load(&flags, &Environment::from_pairs(variables.iter().copied())).expect("load")
    }

    #[test]
    fn alone_a_node_owns_the_whole_catalogue() {
        let config = config("", &[]);

        assert!(writes(&config));
        assert_eq!(
            complete(&config),
            ["model.", "endpoint.", "key.", "tenant.", "user.", "role."]
        );
    }

    #[test]
    fn in_a_cluster_gateways_own_what_their_files_name() {
        let nats = ("NATS_URL", "nats://h");
        let models = ("MODELS_CONFIG_PATH", "models.yaml");
        let keys = "keys: [{ name: a, key: sk-0123456789abcdef }]\n";

        let both = config(keys, &[nats, models]);
        assert!(writes(&both));
        assert_eq!(complete(&both), ["model.", "endpoint.", "key."]);
        let limited = "users: [{ id: a }]\nrole_limits: { free: { rpm: 1 } }\n";
        assert_eq!(complete(&config(limited, &[nats])), ["user.", "role."]);
        let none = "users: []\nrole_limits: {}\n";
        assert_eq!(complete(&config(none, &[nats])), ["user.", "role."]);
        let bare = config("roles: [gateway, router]\n", &[nats]);
        assert!(writes(&bare) && complete(&bare).is_empty());
        for apart in ["router", "ledger", "health"] {
            assert!(!writes(&config(
                &format!("roles: [{apart}]\n{keys}"),
                &[nats, models]
            )));
        }
    }
}
