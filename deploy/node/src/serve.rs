//! `waybill serve`: opens the adapters, seeds the catalogue, starts every role, and ends them in order:
//! the gateway drains, the publisher sends what is spooled, the ledger applies it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::{Clock, SystemClock};
use bus::embedded::Embedded;
use bus::follow::{self, CatalogView};
use bus::mint::Mint;
use bus::spool::{Recovered, Spool};
use bus::{Bus, Kv};
use bytes::Bytes;
use ledger::store::Store;
use ledger::store::sqlite::SqliteStore;
use prometheus_client::registry::Registry;
use schemas::catalog::{self, Origin, Role};
use schemas::id::{DEFAULT_TENANT, NodeId, TenantId};
use schemas::secret::Secret;
use schemas::subject;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::catalog_files::{self, Seeds};
use crate::config::Config;
use crate::data::DataDirectory;
use crate::supervisor::Supervisor;
use crate::{discover, numbering, secrets, seed};

/// How long the publisher and the ledger may take to finish what is spooled.
const FINISH_WAIT: Duration = Duration::from_secs(8);

/// How often is looked whether the first key is in force.
const KEY_POLL: Duration = Duration::from_millis(1);

/// The adapters every role works with.
struct Adapters {
    data: DataDirectory,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    spool: Spool,
    recovered: Recovered,
    embedded: Arc<Embedded>,
    store: Arc<dyn Store>,
    api_key_secret: Secret<Vec<u8>>,
}

/// Tokens by which roles are told to end, in the order they end.
#[derive(Clone, Default)]
struct Stages {
    gateway: CancellationToken,
    kill: CancellationToken,
    publisher: CancellationToken,
    ledger: CancellationToken,
}

/// Runs the node until a signal or until a role fails.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut adapters = open(&config).await?;
    let credentials = seed_catalog(&config, &adapters).await?;
    let stages = Stages::default();
    let mut supervisor = Supervisor::default();

    let view = CatalogView::default();
    start_log(&adapters, &view, &stages, &mut supervisor).await?;
    start_ledger(&adapters, &stages, &mut supervisor)?;

    let mut registry = Registry::default();
    let router = start_router(
        &config,
        &adapters,
        (&view, credentials),
        (&mut registry, &stages, &mut supervisor),
    )?;
    let health = health_worker::run(stages.publisher.clone());
    supervisor.spawn("health", health);
    let orphans = std::mem::take(&mut adapters.recovered.orphans);
    let metrics = gateway::metrics::Metrics::register(&mut registry);
    let ports = gateway::Ports {
        bus: adapters.embedded.clone(),
        kv: adapters.embedded.clone(),
        dispatcher: Arc::new(router),
        catalog: view.clone(),
        nodes: bus::registry::Nodes::new(adapters.clock.clone()),
        spool: adapters.spool.clone(),
        clock: adapters.clock.clone(),
        mint: adapters.mint.clone(),
        registry: Arc::new(registry),
    };
    let recovered = gateway::recover(&adapters.spool, orphans, config.billing_tz, adapters.clock.now())?;
    if recovered > 0 {
        warn!(
            requests = recovered,
            "requests that the last run left open are settled as lost"
        );
    }
    let gateway = gateway::bind(gateway_config(&config, &adapters), ports, metrics).await?;
    let address = gateway.local_addr();
    adapters.data.announce(gateway.admin_addr().unwrap_or(address))?;
    // Only now, when nothing can fail any more: a key that is made and not shown would lock its owner out.
    if let Some(key) = first_key(&adapters, &view).await? {
        tell_first_key(&key, address, config.demo);
    }
    info!("listening addr={address} role=gateway");
    supervisor.spawn(
        "gateway",
        gateway::run(gateway, stages.gateway.clone(), stages.kill.clone()),
    );
    finish(&mut signals, &stages, supervisor).await
}

async fn open(config: &Config) -> anyhow::Result<Adapters> {
    let data = DataDirectory::hold(&config.data_dir)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mint = Arc::new(Mint::new()?);
    let api_key_secret = secrets::api_key_secret(data.path(), config.api_key_secret.as_ref(), &mint)
        .context("cannot read or make the secrets of the data directory")?;
    let options = bus::spool::Options {
        dir: config.spool_dir.clone(),
        cluster: config.cluster.clone(),
        bytes_max: config.spool_bytes_max,
        durability: config.durability,
    };
    let (spool, recovered) = Spool::open(options, clock.clone(), mint.clone())?;
    for lost in &recovered.lost {
        warn!(
            spool.from = lost.from,
            spool.to = lost.to,
            cause = lost.cause,
            "a range of the spool cannot be read"
        );
    }
    let options = bus::embedded::Options {
        log_bytes_max: config.log_bytes_max,
        ..Default::default()
    };
    let embedded = Embedded::open(&data.path().join("bus"), options, clock.clone())
        .context("cannot open the embedded bus in the data directory")?;
    let store = SqliteStore::open(data.path())
        .await
        .context("cannot open the books in the data directory")?;
    let store: Arc<dyn Store> = Arc::new(store);
    numbering::agree(&spool, &*embedded, &*store).await?;
    Ok(Adapters {
        data,
        clock,
        mint,
        spool,
        recovered,
        embedded,
        store,
        api_key_secret,
    })
}

/// Writes what files, discovery and the demo say into the catalogue; returns the book of credentials.
async fn seed_catalog(
    config: &Config,
    adapters: &Adapters,
) -> anyhow::Result<Arc<router_worker::Credentials>> {
    let now = adapters.clock.now();
    let mut compiled = catalog_files::compile(config, now)?;
    if config.discover {
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .context("cannot make an HTTP client")?;
        compiled.extend(discover::engines(&client, now).await);
        compiled.extend(discover::providers(&client, &config.environment, now).await);
    }
    for problem in config
        .warnings
        .iter()
        .chain(&compiled.problems)
        .chain(&catalog_files::not_honoured(config))
    {
        warn!("{problem}");
    }
    let seeds = Seeds {
        config,
        api_key_secret: &adapters.api_key_secret,
        mint: &adapters.mint,
        now,
    };
    let complete = [
        subject::catalog::MODEL,
        subject::catalog::ENDPOINT,
        subject::catalog::KEY,
        subject::catalog::TENANT,
    ];
    seed::apply(&*adapters.embedded, seeds.records(&compiled)?, &complete).await?;
    info!(
        models = compiled.models.len(),
        endpoints = compiled.endpoints.len(),
        "the catalogue is in force"
    );
    Ok(Arc::new(router_worker::Credentials::new(compiled.credentials)))
}

/// Mints an operator key when the catalogue has no key at all, and waits until it is in force.
async fn first_key(adapters: &Adapters, view: &CatalogView) -> anyhow::Result<Option<String>> {
    let present = seed::current(&*adapters.embedded).await?;
    if present.keys().any(|key| key.starts_with(subject::catalog::KEY)) {
        return Ok(None);
    }
    let key = gateway::key::mint_member(&adapters.mint);
    let grant = gateway::key::Grant {
        name: "first-run".into(),
        tenant: TenantId::from(DEFAULT_TENANT),
        user: None,
        role: Role::Operator,
        models: None,
        expires_at: None,
    };
    let now = adapters.clock.now();
    let record = gateway::key::record(&adapters.mint, &key, grant, Origin::Runtime, now);
    let digest = gateway::caller::digest(adapters.api_key_secret.reveal(), &key);
    let value = Bytes::from(serde_json::to_vec(&record)?);
    let expected = bus::Expected::Absent;
    let made = adapters
        .embedded
        .put(
            subject::CATALOG_BUCKET,
            &catalog::key_key(&digest),
            value,
            expected,
        )
        .await?;
    let in_force = async {
        while view.peek().revision < made {
            tokio::time::sleep(KEY_POLL).await;
        }
    };
    tokio::time::timeout(FINISH_WAIT, in_force)
        .await
        .context("the operator key did not come into force")?;
    Ok(Some(key))
}

fn tell_first_key(key: &str, address: SocketAddr, demo: bool) {
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

fn node_id(config: &Config, adapters: &Adapters) -> NodeId {
    config
        .node_id
        .clone()
        .unwrap_or_else(|| NodeId::from(adapters.spool.id().as_str()))
}

/// The publisher and the catalogue's view run on the thread `wb-log`.
async fn start_log(
    adapters: &Adapters,
    view: &CatalogView,
    stages: &Stages,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    let ready = CancellationToken::new();
    let kv: Arc<dyn Kv> = adapters.embedded.clone();
    let bus: Arc<dyn Bus> = adapters.embedded.clone();
    let (spool, view, told) = (adapters.spool.clone(), view.clone(), ready.clone());
    let (publisher, end) = (stages.publisher.clone(), stages.ledger.clone());
    supervisor.spawn_thread("wb-log", move || async move {
        let follow = follow::run(kv.clone(), view, told, end.clone());
        let publish = async {
            let result = bus::publisher::run(spool, bus, kv, publisher).await;
            // Only now may the ledger end: it still reads what was published last.
            end.cancel();
            result
        };
        tokio::try_join!(follow, publish).map(|((), ())| ())
    })?;
    tokio::time::timeout(FINISH_WAIT, ready.cancelled())
        .await
        .context("the catalogue did not become readable")?;
    Ok(())
}

/// The ledger runs on a thread of its own; the embedded log forgets what is in the books.
fn start_ledger(adapters: &Adapters, stages: &Stages, supervisor: &mut Supervisor) -> anyhow::Result<()> {
    let ports = ledger::Ports::new(
        adapters.embedded.clone(),
        adapters.embedded.clone(),
        adapters.store.clone(),
    );
    let mut progress = ports.progress();
    let embedded = adapters.embedded.clone();
    let end = stages.ledger.clone();
    supervisor.spawn_thread("ledger", move || {
        ledger::run(ledger::Config::default(), ports, end)
    })?;
    supervisor.spawn("release", async move {
        while let Some(applied) = progress.moved().await {
            embedded.release(applied);
        }
        Ok::<(), anyhow::Error>(())
    });
    Ok(())
}

fn start_router(
    config: &Config,
    adapters: &Adapters,
    (view, credentials): (&CatalogView, Arc<router_worker::Credentials>),
    (registry, stages, supervisor): (&mut Registry, &Stages, &mut Supervisor),
) -> anyhow::Result<router_worker::Router> {
    let mut settings = router_worker::Config::new(node_id(config, adapters));
    settings.clocks = config.clocks.clone();
    settings.circuit = config.circuit;
    settings.attempts_max = config.attempts_max;
    let ports = router_worker::Ports {
        catalog: view.clone(),
        credentials,
        clock: adapters.clock.clone(),
        mint: adapters.mint.clone(),
        spool: adapters.spool.clone(),
        registry,
    };
    let router = router_worker::Router::new(settings, ports)?;
    let bus: Arc<dyn Bus> = adapters.embedded.clone();
    supervisor.spawn(
        "router",
        router_worker::run(router.clone(), bus, stages.publisher.clone()),
    );
    Ok(router)
}

fn gateway_config(config: &Config, adapters: &Adapters) -> gateway::Config {
    let secret = adapters.api_key_secret.clone();
    let mut settings = gateway::Config::new(config.listen, node_id(config, adapters), secret);
    settings.admin_listen = config.admin_listen;
    settings.cluster.clone_from(&config.cluster);
    env!("CARGO_PKG_VERSION").clone_into(&mut settings.version);
    settings.keepalive_seconds = config.keepalive_seconds;
    settings.client_stall_seconds = config.client_stall_seconds;
    settings.drain_seconds = config.drain_seconds;
    settings.attempts_max = config.attempts_max;
    settings.admin_token.clone_from(&config.admin_token);
    settings.public_routing = config.public_routing;
    settings.cors_origins.clone_from(&config.cors_origins);
    settings.billing_tz = config.billing_tz;
    settings.auth_failures_max = u32::try_from(config.auth_failures_max)
        .ok()
        .filter(|most| *most > 0);
    settings
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal or a failure, then ends the roles in order.
async fn finish(signals: &mut Signals, stages: &Stages, mut supervisor: Supervisor) -> anyhow::Result<()> {
    let (first, mut outcome) = tokio::select! {
        () = signals.next() => (None, Ok(())),
        ended = supervisor.ended() => match ended {
            Some((name, Err(error))) => (Some(name), Err(error.context(format!("{name} failed")))),
            Some((name, Ok(()))) => (Some(name), Err(anyhow::anyhow!("{name} ended on its own"))),
            None => (None, Err(anyhow::anyhow!("no role runs"))),
        },
    };
    info!("draining");
    stages.gateway.cancel();
    if first != Some("gateway") {
        let drained = drain_gateway(signals, stages, &mut supervisor).await;
        outcome = outcome.and(drained);
    }
    if matches!(first, Some("wb-log" | "ledger")) {
        stages.ledger.cancel();
    }
    stages.publisher.cancel();
    let rest = async {
        let mut outcome = Ok(());
        while let Some((name, result)) = supervisor.ended().await {
            outcome = outcome.and(result.map_err(|error| error.context(format!("{name} failed"))));
        }
        outcome
    };
    if let Ok(ended) = tokio::time::timeout(FINISH_WAIT, rest).await {
        outcome = outcome.and(ended);
    } else {
        warn!("roles did not end in time; what is spooled is read at the next start");
    }
    info!("stopped");
    outcome
}

/// Waits until the gateway has drained; a second signal ends it at once.
async fn drain_gateway(
    signals: &mut Signals,
    stages: &Stages,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    tokio::select! {
        drained = supervisor.wait_for("gateway") => return drained,
        () = signals.next() => {}
    }
    info!("a second signal ends the node at once");
    stages.kill.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), supervisor.wait_for("gateway")).await;
    ended.unwrap_or(Ok(()))
}
