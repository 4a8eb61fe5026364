//! `waybill serve`: opens the adapters, seeds the catalogue, starts the roles that the node has, and ends them in
//! order: what takes requests drains, the publisher sends what is spooled, the ledger applies it.
//!
//! Every node has one spool, from which all its roles publish. A gateway without a router dispatches over the bus; a
//! router on a shared bus takes the requests of other nodes' gateways too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::Clock;
use bus::follow::{Beat, CatalogView};
use bus::mint::Mint;
use bus::spool::{Recovered, Spool};
use ledger::store::Store;
use prometheus_client::registry::Registry;
use schemas::id::NodeId;
use schemas::node::NodeRole;
use schemas::secret::Secret;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::adapters::{self, Carrier};
use crate::config::Config;
use crate::control::Control;
use crate::data::{self, DataDirectory};
use crate::patience::START_WAIT;
use crate::sealing::Sealing;
use crate::{numbering, orphans, secrets};

mod catalog;
mod ending;
mod reloading;
mod roles;
mod room;
mod said;
mod sign_in;

use ending::Signals;
use reloading::Reloader;
use roles::Running;

/// How long the publisher and the ledger may take to finish what is spooled.
const FINISH_WAIT: Duration = Duration::from_secs(8);

/// The adapters every role works with.
struct Adapters {
    data: DataDirectory,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    /// This run of the node.
    boot: Arc<str>,
    spool: Spool,
    recovered: Recovered,
    carrier: Carrier,
    /// With the role ledger.
    store: Option<Arc<dyn Store>>,
    api_key_secret: Secret<Vec<u8>>,
    sealing: Sealing,
    /// Where people can sign in.
    jwt_secret: Option<Secret<Vec<u8>>>,
}

/// Tokens by which roles are told to end, in the order they end.
#[derive(Clone, Default)]
struct Stages {
    /// What takes requests.
    intake: CancellationToken,
    kill: CancellationToken,
    publisher: CancellationToken,
    ledger: CancellationToken,
}

/// Runs the node until a signal or until a role fails.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let opened = async {
        let adapters = open(&config).await?;
        let seeded = catalog::seed(&config, &adapters).await?;
        anyhow::Ok((adapters, seeded))
    };
    // It may wait for services; what it has written by then the next start finds.
    let (mut adapters, seeded) = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => {
            info!("a signal ends the node before it runs");
            return Ok(());
        }
    };
    let mut running = Running::new(&config, &adapters, seeded.configuration.clone());
    running.open_limits(&adapters).await?;
    running.start_log(&adapters).await?;
    running.start_ledger(&adapters)?;

    let mut registry = Registry::default();
    seeded.configuration.register(&mut registry);
    let router = running.start_router(&adapters, seeded.credentials.clone(), &mut registry)?;
    running.start_health(&adapters)?;
    settle_orphans(&config, &mut adapters).await?;
    let address = if config.roles.has(NodeRole::Gateway) {
        let gateway = running.bind_gateway(&adapters, router, registry).await?;
        let address = gateway.local_addr();
        let managed = gateway.admin_addr().unwrap_or(address);
        adapters.data.announce(managed)?;
        // Only now, when nothing can fail any more: a key that is made and not shown would lock its owner out.
        if let Some(key) = catalog::first_key(&config, &adapters, &running.view).await? {
            catalog::tell_first_key(&key, address, config.demo);
        }
        sign_in::tell_setup_code(&config, &adapters, managed).await;
        info!("listening addr={address} role=gateway");
        running.start_gateway(gateway);
        Some(address)
    } else {
        running.start_status(&adapters, registry).await?
    };
    running.start_registry(&adapters, address);
    let reloader = Reloader::new(&config, &adapters, &running.view, seeded);
    let drain = running.start_control(control(adapters.data.path()), reloader);
    info!(roles = %config.roles, bus = %config.bus, pool = %config.pool, "the node runs");
    let Running {
        stages, supervisor, ..
    } = running;
    ending::finish(&mut signals, drain, (&stages, &adapters.spool), supervisor).await
}

async fn open(config: &Config) -> anyhow::Result<Adapters> {
    let data = DataDirectory::hold(&config.data_dir)?;
    let clock: Arc<dyn Clock> = Arc::new(config.environment.clock());
    let mint = Arc::new(Mint::new()?);
    let api_key_secret = api_key_secret(config, data.path(), &mint)
        .context("cannot read or make the secrets of the data directory")?;
    let jwt_secret = sign_in::secret(config, data.path(), &mint)
        .context("cannot read or make the secrets of the data directory")?;
    let sealing = Sealing::of(config, data.path(), &mint)
        .context("cannot read or make the secrets of the data directory")?;
    // It may lie outside the data directory.
    data::close(&config.spool_dir).context("cannot keep the spool to its owner")?;
    let (spool, recovered) = Spool::open(config.spool(&config.spool_dir), clock.clone(), mint.clone())?;
    for lost in &recovered.lost {
        warn!(
            spool.from = lost.from,
            spool.to = lost.to,
            cause = lost.cause,
            "a range of the spool cannot be read"
        );
    }
    let carrier = Carrier::open(config, data.path(), clock.clone(), START_WAIT).await?;
    let store = if config.roles.has(NodeRole::Ledger) {
        Some(adapters::open_store(config, data.path()).await?)
    } else {
        None
    };
    match &carrier {
        Carrier::Embedded(embedded) => numbering::agree(&spool, &**embedded, store.as_deref()).await?,
        Carrier::Nats(nats) => numbering::begin(&spool, &**nats).await?,
    }
    Ok(Adapters {
        boot: boot(&mint),
        data,
        clock,
        mint,
        spool,
        recovered,
        carrier,
        store,
        api_key_secret,
        sealing,
        jwt_secret,
    })
}

/// The secret that keys are known by. In a cluster it is given, never made: one that was made here would know no key
/// of the others. A node without a gateway has no use for it.
/// The name of a run of a node.
pub(crate) fn boot(mint: &Mint) -> Arc<str> {
    format!("{:032x}", u128::from_le_bytes(mint.random())).into()
}

fn api_key_secret(config: &Config, data_dir: &Path, mint: &Mint) -> std::io::Result<Secret<Vec<u8>>> {
    let given = config.api_key_secret.as_ref();
    if config.bus.is_shared() {
        let bytes = given.map_or_else(Vec::new, |secret| secret.reveal().clone().into_bytes());
        return Ok(Secret::new(bytes));
    }
    secrets::api_key_secret(data_dir, given, mint)
}

/// Requests that the last run of this spool left open, whatever roles it had.
async fn settle_orphans(config: &Config, adapters: &mut Adapters) -> anyhow::Result<()> {
    let orphans = std::mem::take(&mut adapters.recovered.orphans);
    let now = adapters.clock.now();
    let recovered = orphans::settle(&adapters.spool, orphans, config.billing_tz, now).await?;
    if recovered > 0 {
        warn!(
            requests = recovered,
            "requests that the last run left open are settled as lost"
        );
    }
    Ok(())
}

/// The socket by which commands reach this node. A node does its work without one.
fn control(data_dir: &Path) -> Option<Control> {
    match Control::listen(data_dir) {
        Ok(control) => Some(control),
        Err(problem) => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "no socket in the data directory: waybill drain cannot reach this node, SIGTERM can"
            );
            None
        }
    }
}

impl Adapters {
    /// The node's name.
    fn node_id(&self, config: &Config) -> NodeId {
        let spool = || NodeId::from(self.spool.id().as_str());
        config.node_id.clone().unwrap_or_else(spool)
    }

    /// A view of the catalogue; its age is measured where the bucket is elsewhere.
    fn view(&self) -> CatalogView {
        match &self.carrier {
            Carrier::Embedded(_) => CatalogView::default(),
            Carrier::Nats(_) => CatalogView::measured(Beat {
                spool: self.spool.id().clone(),
                boot: self.boot.clone(),
                clock: self.clock.clone(),
            }),
        }
    }
}
