//! What a node says about the catalogue at its start: records of its files, and the first key of an empty one.
//!
//! In a cluster gateways write it, for a router may stand where nobody may change what others serve; routers read the
//! same models.yaml for the credentials in it. Of which kinds of records a node's files are the whole truth, [`said`]
//! decides.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::follow::CatalogView;
use bus::revisions::Revisions;
use bus::{Expected, Kv, Revision};
use bytes::Bytes;
use gateway::Configuration;
use schemas::catalog::{self, CredentialRef, Origin, Role};
use schemas::configuration::{Cause, InForce, Report, Severity};
use schemas::id::{DEFAULT_TENANT, ModelName, TenantId};
use schemas::limit::limits::Limits;
use schemas::node::NodeRole;
use schemas::subject;
use schemas::time::Timestamp;
use tokio::time::error::Elapsed;
use tracing::{error, info, warn};

use super::reloading::{in_force_now, revision, told};
use super::{Adapters, FINISH_WAIT, said};
use crate::catalog_files::{self, Seeds};
use crate::config::{self, Config};
use crate::models::Compiled;
use crate::patience::{self, START_WAIT};
use crate::seed::{self, Keeper, Records};
use crate::yaml::Problem;
use crate::{agreement, discover};

/// How often is looked whether the first key is in force.
const KEY_POLL: Duration = Duration::from_millis(1);

/// True for a node that writes what its files say.
pub(super) fn writes(config: &Config) -> bool {
    !config.bus.is_shared() || config.roles.has(NodeRole::Gateway)
}

/// What the files of a node amount to at its start.
pub(super) struct Seeded {
    /// The book of credentials.
    pub(super) credentials: Arc<router_worker::Credentials>,
    /// What the node says of its configuration.
    pub(super) configuration: Configuration,
    /// What the files refer to.
    pub(super) references: HashSet<CredentialRef>,
    /// The models of the files that are served.
    pub(super) served: HashSet<ModelName>,
}

/// Writes what files, discovery and the demo say into the catalogue.
pub(super) async fn seed(config: &Config, adapters: &Adapters) -> anyhow::Result<Seeded> {
    let kv = adapters.carrier.kv();
    if config.bus.is_shared() && config.follows_catalog() {
        join_cluster(config, adapters, &*kv).await?;
    }
    let now = adapters.clock.now();
    let (compiled, unloadable) = compile_at_start(config, now).await?;
    let mut warnings = warnings(config, &compiled);
    for note in catalog_files::notes(config) {
        info!("{note}");
    }
    if writes(config) {
        let seeds = Seeds {
            config,
            api_key_secret: &adapters.api_key_secret,
            mint: &adapters.mint,
            now,
        };
        let mut records = seeds.callers()?;
        records.extend(catalog_files::served(&compiled)?);
        warnings.extend(write(config, adapters, records).await?);
        info!(
            models = compiled.models.len(),
            endpoints = compiled.endpoints.len(),
            "the catalogue is in force"
        );
    } else if !config.keys.is_empty() || config.models_path.is_some() {
        info!("keys and models are written into the catalogue by nodes with the role gateway");
    }
    for problem in &warnings {
        warn!("{problem}");
    }
    let configuration = Configuration::default();
    configuration.tell(Report {
        in_force: in_force_now(config, &InForce::default(), now),
        read_at: now,
        problems: told(unloadable.as_slice(), Severity::Error, now)
            .chain(told(&warnings, Severity::Warning, now))
            .collect(),
    });
    let book = compiled.book();
    Ok(Seeded {
        configuration,
        references: book.keys().cloned().collect(),
        served: compiled.models.iter().map(|model| model.id.clone()).collect(),
        credentials: Arc::new(
            router_worker::Credentials::new(book)
                .opening(adapters.sealing.private.clone())
                .referring(crate::sealing::machine(config)),
        ),
    })
}

/// What is odd about a configuration.
pub(super) fn warnings(config: &Config, compiled: &Compiled) -> Vec<Problem> {
    let own = config.warnings.iter().chain(&compiled.problems).cloned();
    own.chain(catalog_files::not_honoured(config)).collect()
}

/// Compiles the files. Where a distribution's manifest is to be served and cannot be, no models are, and the node runs
/// without: the problem says why.
async fn compile_at_start(config: &Config, now: Timestamp) -> anyhow::Result<(Compiled, Option<Problem>)> {
    let unloadable = config
        .manifest
        .broken
        .clone()
        .filter(|_| config.manifest.is_active());
    let (compiled, problem) = match (unloadable, compile(config, now).await) {
        (Some(problem), compiled) => (compiled?, problem),
        (None, Err(problem)) if config.models_of_manifest => (
            Compiled::default(),
            problem.downcast::<config::error::Error>()?.problem(),
        ),
        (None, compiled) => return Ok((compiled?, None)),
    };
    error!(
        "CRITICAL: the distribution's manifest cannot be used, and no models are served from it: {problem}"
    );
    Ok((compiled, Some(problem)))
}

/// Makes the catalogue say what the files say, unless an operator has put something else in their place. Gives what is to
/// be told of what others' files say.
async fn write(config: &Config, adapters: &Adapters, records: Records) -> anyhow::Result<Vec<Problem>> {
    let kv = adapters.carrier.kv();
    let revisions = Revisions::new(kv.clone());
    let set = config.files.set();
    let newest = revisions.all().await.unwrap_or_default().pop();
    if let Some(Cause::Rollback { to, overruled }) = newest.map(|newest| newest.cause)
        && overruled.contains(&set)
    {
        warn!(
            revision = to,
            "the files say what was overruled by a rollback, which stays in force: the next change of a file wins"
        );
        return Ok(Vec::new());
    }
    let keeper = Keeper {
        revisions,
        told: revision(
            config,
            (&adapters.node_id(config), adapters.clock.now()),
            Cause::Start,
        ),
    };
    let write = || said::apply(config, &*kv, records.clone(), &keeper);
    let written = patience::until("the catalogue cannot be written", START_WAIT, write).await?;
    Ok(written.of_others)
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

pub(super) async fn compile(config: &Config, now: Timestamp) -> anyhow::Result<Compiled> {
    if !config.roles.read_models() {
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

/// Waits until a view shows the catalogue as of `revision`.
pub(super) async fn in_force(view: &CatalogView, revision: Revision) -> Result<(), Elapsed> {
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
    use crate::config::testing::loaded;

    #[test]
    fn of_a_cluster_gateways_write_and_nodes_alone_do() {
        let keys = "keys: [{ name: a, key: sk-0123456789abcdef }]\n";
        let nats = ("NATS_URL", "nats://h");
        let writing =
            |text: &str, variables: &[(&str, &str)]| writes(&loaded(text, variables).expect("load"));

        assert!(writing("", &[]));
        assert!(writing(keys, &[nats]));
        assert!(writing("roles: [gateway, router]\n", &[nats]));
        for apart in ["router", "ledger", "health"] {
            assert!(!writing(&format!("roles: [{apart}]\n{keys}"), &[nats]));
        }
    }
}
