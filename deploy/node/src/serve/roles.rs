//! How each role of a node starts, and what it is given.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::dispatch::Dispatcher;
use bus::follow::{self, CatalogView};
use bus::pools::Pools;
use bus::registry::{self, Nodes};
use bus::remote;
use bus::remote::gateway::RemoteDispatcher;
use bus::remote::intake::Intake;
use bus::remote::sight::{Learned, Sight};
use bus::wire::Wire;
use bus::{Bus, BusError};
use gateway::Configuration;
use gateway::limits::{self, Limiter};
use prometheus_client::registry::Registry;
use router_worker::{Credentials, Router};
use schemas::id::NodeId;
use schemas::node::{NodeRecord, NodeRole};
use schemas::pool::Home;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::reloading::Reloader;
use super::{Adapters, Stages, room};
use crate::adapters::Carrier;
use crate::config::Config;
use crate::control::{self, Control};
use crate::patience::START_WAIT;
use crate::status::{self, Status};
use crate::supervisor::{Supervisor, Urgency};

/// Most requests of other nodes' gateways that a router runs at once.
const SESSIONS_MAX: usize = 10_000;

/// How long requests may live where the clocks of their upstream calls are switched off.
const REQUEST_LIFE_MAX: Duration = Duration::from_hours(24);

/// The roles that run, and what they share.
pub(super) struct Running<'a> {
    config: &'a Config,
    pub(super) view: CatalogView,
    nodes: Nodes,
    node: NodeId,
    configuration: Configuration,
    /// With the role gateway: what bounds its requests.
    limits: Option<Limiter>,
    /// With the role ledger.
    ledger: Option<ledger::Ports>,
    pub(super) stages: Stages,
    pub(super) supervisor: Supervisor,
}

impl<'a> Running<'a> {
    pub(super) fn new(config: &'a Config, adapters: &Adapters, configuration: Configuration) -> Self {
        Self {
            config,
            view: adapters.view(),
            nodes: Nodes::new(adapters.clock.clone()),
            node: adapters.node_id(config),
            configuration,
            limits: None,
            ledger: None,
            stages: Stages::default(),
            supervisor: Supervisor::default(),
        }
    }

    /// What bounds the requests of a gateway: to be opened before anything is published, since it reads what the spool
    /// holds from before.
    pub(super) async fn open_limits(&mut self, adapters: &Adapters) -> anyhow::Result<()> {
        if !self.config.roles.has(NodeRole::Gateway) {
            return Ok(());
        }
        let settings = limits::Settings {
            boot: adapters.boot.clone(),
            admit_wait: Duration::from_secs(self.config.admit_wait_seconds),
            billing_tz: self.config.billing_tz,
            shared: self.config.bus.is_shared(),
            planted: self.config.environment.planted()?,
        };
        let ports = limits::Ports {
            bus: adapters.carrier.bus(),
            kv: adapters.carrier.kv(),
            counters: adapters.carrier.counters(),
            nodes: self.nodes.clone(),
            spool: adapters.spool.clone(),
            clock: adapters.clock.clone(),
        };
        let limiter = Limiter::open(settings, ports).await;
        self.limits = Some(limiter.context("cannot read what limits hold")?);
        Ok(())
    }

    /// The publisher and the catalogue's view run on the thread `wb-log`.
    pub(super) async fn start_log(&mut self, adapters: &Adapters) -> anyhow::Result<()> {
        let ready = CancellationToken::new();
        let (bus, kv) = (adapters.carrier.bus(), adapters.carrier.kv());
        let (spool, view, told) = (adapters.spool.clone(), self.view.clone(), ready.clone());
        let (publisher, end) = (self.stages.publisher.clone(), self.stages.ledger.clone());
        let follows = self.config.follows_catalog();
        self.supervisor
            .spawn_thread(("wb-log", Urgency::Normal), move || async move {
                let follow = async {
                    if follows {
                        follow::run(kv.clone(), view, told, end.clone()).await
                    } else {
                        Ok(())
                    }
                };
                let publish = async {
                    let result = bus::publisher::run(spool, bus, kv.clone(), publisher).await;
                    // Only now may the ledger end: it still reads what was published last.
                    end.cancel();
                    result
                };
                tokio::try_join!(follow, publish).map(|((), ())| ())
            })?;
        if follows {
            tokio::time::timeout(START_WAIT, ready.cancelled())
                .await
                .map_err(|_| BusError::Timeout)
                .context("the catalogue did not become readable")?;
        }
        Ok(())
    }

    /// The ledger runs on a thread of its own; the embedded log forgets what is in the books.
    pub(super) fn start_ledger(&mut self, adapters: &Adapters) -> anyhow::Result<()> {
        let Some(store) = &adapters.store else {
            return Ok(());
        };
        let mut ports = ledger::Ports::new(adapters.carrier.bus(), adapters.carrier.kv(), store.clone());
        if self.config.bus.is_shared() {
            // A node that is alone settles its own requests when it comes back.
            ports = ports.with_reaping(ledger::Reaping {
                spool: adapters.spool.clone(),
                nodes: self.nodes.clone(),
                clock: adapters.clock.clone(),
                billing_tz: self.config.billing_tz,
            });
        }
        ports = ports.with_sealing(ledger::Sealing {
            spool: adapters.spool.clone(),
            clock: adapters.clock.clone(),
            node: self.node.clone(),
        });
        let mut progress = ports.progress();
        let settings = ledger_config(&self.config.clocks);
        self.ledger = Some(ports.clone());
        let end = self.stages.ledger.clone();
        let roles = &self.config.roles;
        // Callers come first where both are on one machine: events wait in the log without loss.
        let urgency = if roles.has(NodeRole::Gateway) || roles.has(NodeRole::Router) {
            Urgency::Background
        } else {
            Urgency::Normal
        };
        self.supervisor
            .spawn_thread(("ledger", urgency), move || ledger::run(settings, ports, end))?;
        let end = self.stages.ledger.clone();
        match &adapters.carrier {
            Carrier::Embedded(embedded) => {
                let embedded = embedded.clone();
                self.supervisor.spawn("release", async move {
                    while let Some(Some(applied)) = end.run_until_cancelled(progress.moved()).await {
                        embedded.release(applied);
                    }
                    Ok::<(), anyhow::Error>(())
                });
            }
            Carrier::Nats(nats) => {
                let nats = nats.clone();
                self.supervisor.spawn("release", async move {
                    end.run_until_cancelled(room::keep(&nats)).await;
                    Ok::<(), anyhow::Error>(())
                });
            }
        }
        Ok(())
    }

    /// The router, when the node has that role; on a shared bus it takes requests of other nodes too.
    pub(super) fn start_router(
        &mut self,
        adapters: &Adapters,
        credentials: Arc<Credentials>,
        registry: &mut Registry,
    ) -> anyhow::Result<Option<Router>> {
        let config = self.config;
        if !config.roles.has(NodeRole::Router) {
            return Ok(None);
        }
        let mut settings = router_worker::Config::new(self.node.clone());
        settings.clocks = config.clocks.clone();
        settings.circuit = config.circuit;
        settings.concurrency = config.concurrency;
        settings.affinity = config.affinity;
        settings.balance = config.balance;
        settings.affinity.alone = !config.bus.is_shared();
        settings.attempts_max = config.attempts_max;
        settings.egress = config.egress.clone();
        settings.gpu_temperature_threshold = config.gpu_temperature_threshold;
        settings.pool = config.pool.clone();
        settings.tells_health = !config.stands_apart();
        let ports = router_worker::Ports {
            catalog: self.view.clone(),
            credentials,
            clock: adapters.clock.clone(),
            mint: adapters.mint.clone(),
            spool: adapters.spool.clone(),
            // What the fleet shares of backends is not told where a router knows its own pool alone.
            kv: (!config.stands_apart()).then(|| adapters.carrier.kv()),
            registry,
        };
        let router = Router::new(settings, ports)?;
        let bus: Arc<dyn Bus> = adapters.carrier.bus();
        self.supervisor.spawn(
            "router",
            router_worker::run(router.clone(), bus, self.stages.publisher.clone()),
        );
        if let Carrier::Nats(nats) = &adapters.carrier {
            let settings = remote::intake::Config {
                pool: config.pool.clone(),
                boot: adapters.boot.clone(),
                sessions_max: SESSIONS_MAX,
                drain: Duration::from_secs(config.drain_seconds),
            };
            let dispatcher: Arc<dyn Dispatcher> = Arc::new(router.clone());
            let (wire, end) = (nats.wire(), self.stages.intake.clone());
            let sight: Sight = if config.stands_apart() {
                Learned::new(self.view.clone()).into()
            } else {
                self.view.clone().into()
            };
            self.supervisor
                .spawn("intake", Intake::run(settings, wire, dispatcher, sight, end));
        }
        Ok(Some(router))
    }

    pub(super) fn start_health(&mut self, adapters: &Adapters) -> anyhow::Result<()> {
        let config = self.config;
        if !config.roles.has(NodeRole::Health) {
            return Ok(());
        }
        let settings = health_worker::Config {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            alone: !config.bus.is_shared(),
            engines: config.health.engines,
            egress: config.egress.clone(),
            tls: router_worker::tls()?,
            thermometers: config.health.thermometers.clone(),
        };
        let ports = health_worker::Ports {
            catalog: self.view.clone(),
            bus: adapters.carrier.bus(),
            kv: adapters.carrier.kv(),
            spool: adapters.spool.clone(),
            clock: adapters.clock.clone(),
            boot: adapters.boot.clone(),
        };
        let health = health_worker::run(settings, ports, self.stages.publisher.clone());
        self.supervisor.spawn("health", health);
        Ok(())
    }

    /// Binds the gateway: whatever can fail fails here.
    pub(super) async fn bind_gateway(
        &mut self,
        adapters: &Adapters,
        router: Option<Router>,
        mut registry: Registry,
    ) -> anyhow::Result<gateway::Gateway> {
        let here = router.map(|router| Arc::new(router) as Arc<dyn Dispatcher>);
        let elsewhere = match &adapters.carrier {
            Carrier::Nats(nats) => Some(self.start_remote(nats.wire(), adapters)),
            Carrier::Embedded(_) => None,
        };
        let dispatcher = Arc::new(Pools::new(self.config.pool.clone(), here, elsewhere));
        let metrics = gateway::metrics::Metrics::register(&mut registry);
        let limits = self.limits.take();
        let ports = gateway::Ports {
            limits: limits.context("the limits of a gateway are not open")?,
            bus: adapters.carrier.bus(),
            kv: adapters.carrier.kv(),
            dispatcher,
            catalog: self.view.clone(),
            nodes: self.nodes.clone(),
            spool: adapters.spool.clone(),
            clock: adapters.clock.clone(),
            mint: adapters.mint.clone(),
            registry: Arc::new(registry),
            configuration: self.configuration.clone(),
        };
        Ok(gateway::bind(self.gateway_config(adapters), ports, metrics).await?)
    }

    /// Dispatches over the bus to routers of the pool.
    fn start_remote(&mut self, wire: Arc<dyn Wire>, adapters: &Adapters) -> RemoteDispatcher {
        let mut settings = remote::gateway::Config::new(self.config.pool.clone());
        settings.admit_wait = Duration::from_secs(self.config.admit_wait_seconds);
        let dispatcher = RemoteDispatcher::new(settings, wire, adapters.clock.clone(), &adapters.mint);
        self.supervisor.spawn(
            "dispatch",
            remote::gateway::run(dispatcher.clone(), self.stages.publisher.clone()),
        );
        dispatcher
    }

    fn gateway_config(&self, adapters: &Adapters) -> gateway::Config {
        let config = self.config;
        let secret = adapters.api_key_secret.clone();
        let mut settings = gateway::Config::new(config.listen, self.node.clone(), secret);
        settings.admin_listen = config.admin_listen;
        settings.cluster.clone_from(&config.cluster);
        env!("CARGO_PKG_VERSION").clone_into(&mut settings.version);
        settings.keepalive_seconds = config.keepalive_seconds;
        settings.body_seconds_max = config.body_seconds_max;
        settings.client_stall_seconds = config.client_stall_seconds;
        settings.drain_seconds = config.drain_seconds;
        settings.attempts_max = config.attempts_max;
        settings.sign_in = config.sign_in.clone();
        settings.sign_in.secret.clone_from(&adapters.jwt_secret);
        settings.public_key.clone_from(&adapters.sealing.public);
        settings.pool_keys.clone_from(&config.sealing.pools);
        settings.home = Home {
            pool: config.pool.clone(),
            has_router: config.roles.has(NodeRole::Router),
        };
        settings.admin_token.clone_from(&config.admin_token);
        settings
            .grant_dispatch_token
            .clone_from(&config.grant_dispatch_token);
        settings.public_routing = config.public_routing;
        settings.stale_seconds_max = config.stale_seconds_max;
        settings.cors_origins.clone_from(&config.cors_origins);
        settings.billing_tz = config.billing_tz;
        settings.small_calls.clone_from(&config.small_calls);
        settings.boot = adapters.boot.clone();
        settings.admit_wait_seconds = config.admit_wait_seconds;
        settings.idempotency = config.idempotency;
        settings.idempotency_bytes_max = config.idempotency_bytes_max;
        settings.auth_failures_max = u32::try_from(config.auth_failures_max)
            .ok()
            .filter(|most| *most > 0);
        settings
    }

    pub(super) fn start_gateway(&mut self, gateway: gateway::Gateway) {
        let (end, kill) = (self.stages.intake.clone(), self.stages.kill.clone());
        self.supervisor.spawn("gateway", gateway::run(gateway, end, kill));
    }

    /// A node without a gateway tells its health and its figures on `--admin-listen`, if that is given.
    pub(super) async fn start_status(
        &mut self,
        adapters: &Adapters,
        registry: Registry,
    ) -> anyhow::Result<Option<SocketAddr>> {
        let Some(address) = self.config.admin_listen else {
            info!(roles = %self.config.roles, "no gateway in this node: it listens nowhere");
            return Ok(None);
        };
        let Carrier::Nats(nats) = &adapters.carrier else {
            anyhow::bail!("an embedded node has a gateway");
        };
        let listener = Status::bind(address).await?;
        let address = listener.address();
        let subject = status::Subject {
            node: self.node.to_string(),
            roles: self.config.roles.clone(),
            spool: adapters.spool.clone(),
            connected: nats.connected(),
            draining: self.stages.intake.clone(),
        };
        info!("listening addr={address} role=admin");
        self.supervisor.spawn(
            "status",
            listener.run(subject, registry, self.stages.ledger.clone()),
        );
        Ok(None)
    }

    /// Tells the others of a cluster of this node; a node alone knows of itself.
    pub(super) fn start_registry(&mut self, adapters: &Adapters, address: Option<SocketAddr>) {
        let telling = telling(self, adapters, address);
        let (kv, nodes, end) = (
            adapters.carrier.kv(),
            self.nodes.clone(),
            self.stages.ledger.clone(),
        );
        if !self.config.bus.is_shared() {
            self.supervisor
                .spawn("registry", registry::alone(nodes, telling, end));
        } else if self.config.stands_apart() {
            // Who else is there is not its to know.
            self.supervisor
                .spawn("registry", registry::tell(kv, nodes, telling, end));
        } else {
            self.supervisor
                .spawn("registry", registry::run(kv, nodes, telling, end));
        }
    }

    /// Hears commands; the token is cancelled when one asks the node to drain.
    pub(super) fn start_control(
        &mut self,
        control: Option<Control>,
        reloader: Reloader,
    ) -> CancellationToken {
        let drain = CancellationToken::new();
        let (reload, wishes) = mpsc::channel(1);
        self.supervisor
            .spawn("reload", reloader.run(wishes, self.stages.intake.clone()));
        if let Some(control) = control {
            let asks = control::Asks {
                drain: drain.clone(),
                reload,
            };
            self.supervisor
                .spawn("control", control.run(asks, self.stages.ledger.clone()));
        }
        drain
    }
}

/// A request is not declared lost before the clocks of its calls must have ended it.
fn ledger_config(clocks: &router_worker::Clocks) -> ledger::Config {
    let mut settings = ledger::Config::default();
    let life = |clock: Option<Duration>| clock.unwrap_or(REQUEST_LIFE_MAX).as_secs();
    settings.request_seconds_max = settings
        .request_seconds_max
        .max(life(clocks.completion))
        .max(life(clocks.stream_request));
    settings
}

/// What the node says of itself at each beat.
fn telling(running: &Running<'_>, adapters: &Adapters, address: Option<SocketAddr>) -> registry::Telling {
    let (view, ledger) = (running.view.clone(), running.ledger.clone());
    let configuration = running.configuration.clone();
    let told = NodeRecord {
        node: running.node.clone(),
        boot: adapters.boot.clone(),
        spool: adapters.spool.id().clone(),
        roles: running.config.roles.list().to_vec(),
        pool: running.config.pool.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        address,
        started_at: adapters.clock.now(),
        catalog_revision: 0,
        configuration: None,
        database_connected: None,
    };
    Box::new(move || NodeRecord {
        catalog_revision: view.peek().revision,
        configuration: Some((&*configuration.report()).into()),
        database_connected: ledger.as_ref().map(ledger::Ports::database_connected),
        ..told.clone()
    })
}
