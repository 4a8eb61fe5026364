//! The nodes of a cluster as systems under test: one that is gateway and router, and a gateway and a router apart.
//!
//! All share one NATS server, on the core of the system under test, and one ledger on PostgreSQL, which has the load
//! generator's core when nobody else wants it. Each gateway has a pool of its own, so that no router helps the other.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::Context;
use harness::server::{nats, postgres};
use harness::{Nats, Postgres};
use tokio::runtime::Runtime;

use crate::arguments::Arguments;
use crate::case::CASES;
use crate::kind::Kind;
use crate::machine::{self, KEY, LOAD_CORE, Machine, SYSTEM_CORE};
use crate::system::{System, waybill_models};

/// What digests of keys are made with.
const SECRET: &str = "a-secret-of-benchmarks-and-nothing-else";

/// A database that keeps what it confirmed when the machine dies, as one in service does.
const DURABLE: [&str; 4] = [
    "fsync=on",
    "full_page_writes=on",
    "shared_buffers=128MB",
    "max_wal_size=1GB",
];

/// What nodes share.
pub(crate) struct Services {
    /// The bus.
    pub(crate) nats: Nats,
    /// The database.
    pub(crate) postgres: Postgres,
    /// Drives both, and whoever asks them.
    pub(crate) runtime: Runtime,
}

impl Services {
    /// Starts both.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (nats, postgres) =
            runtime.block_on(async { (Nats::start().await, Postgres::start_with(&DURABLE).await) });
        Ok(Self {
            nats,
            postgres,
            runtime,
        })
    }

    /// All processes of the database now; those that come later are where the first one is.
    pub(crate) fn postgres_pids(&self) -> Vec<u32> {
        let server = self.postgres.pid();
        let mut pids = machine::children(server);
        pids.insert(0, server);
        pids
    }
}

/// Why nothing of a cluster can be measured here; `None` if it can.
pub(crate) fn missing(arguments: &Arguments, machine: &Machine) -> Option<&'static str> {
    let there = [
        (arguments.waybill(machine).is_file(), "waybill is not built"),
        (
            nats::is_installed(),
            "nats-server is not installed: scripts/setup.sh nats",
        ),
        (
            postgres::is_installed(),
            "PostgreSQL is not installed: scripts/setup.sh postgres",
        ),
    ];
    there.into_iter().find(|(there, _)| !there).map(|(_, why)| why)
}

/// Why the bus is left out; `None` if it is not.
pub(crate) fn left_out(arguments: &Arguments, machine: &Machine) -> Option<&'static str> {
    if !arguments.wants(Kind::Together) && !arguments.wants(Kind::Bus) {
        return Some("--only names others");
    }
    let cases = CASES.iter().filter(|case| case.clustered);
    if cases.filter(|case| arguments.wants_case(case.name)).count() == 0 {
        return Some("--case names none of its cases");
    }
    missing(arguments, machine)
}

/// Starts the systems of a cluster that are wanted, and its ledger, which comes second.
pub(crate) fn start(
    arguments: &Arguments,
    nodes: &Nodes<'_>,
    upstream: SocketAddr,
) -> anyhow::Result<(Vec<System>, System)> {
    let (machine, services) = (nodes.machine, nodes.services);
    machine.adopt(&[services.nats.pid()], SYSTEM_CORE);
    machine.demote(&services.postgres_pids(), LOAD_CORE);
    let ledger = nodes.ledger(LOAD_CORE, true)?;
    let mut systems = Vec::new();
    if arguments.wants(Kind::Together) {
        let (node, address) = nodes.caller("together", "gateway,router", upstream)?;
        let system = System::new(Kind::Together, address, vec![node]);
        systems.push(system.with_server(services.nats.pid()));
    }
    if arguments.wants(Kind::Bus) {
        let (gateway, address) = nodes.caller("apart", "gateway", upstream)?;
        let mut system = System::new(Kind::Bus, address, vec![gateway]).with_server(services.nats.pid());
        system.join(nodes.caller("apart", "router", upstream)?.0);
        systems.push(system);
    }
    Ok((systems, ledger))
}

/// How nodes of a cluster are started.
pub(crate) struct Nodes<'a> {
    /// Where they run.
    pub(crate) machine: &'a Machine,
    /// What they share.
    pub(crate) services: &'a Services,
    /// Waybill's program.
    pub(crate) program: PathBuf,
    /// Where their files are.
    pub(crate) folder: PathBuf,
}

impl Nodes<'_> {
    /// A node that works for calls, of a pool.
    fn caller(&self, pool: &str, roles: &str, upstream: SocketAddr) -> anyhow::Result<(Child, SocketAddr)> {
        let folder = self.folder.join(format!("{pool}-{roles}"));
        fs::create_dir_all(&folder)?;
        let models = folder.join("models.yaml");
        fs::write(&models, waybill_models(upstream))?;
        let settings = format!(
            "cluster: bench\npool: {pool}\n\
             keys:\n  - {{ name: bench, tenant: default, key: \"{KEY}\", role: admin }}\n\
             models_path: {}\n",
            models.display()
        );
        let command = self.machine.command(&self.program, SYSTEM_CORE);
        self.serve(command, &folder, roles, &settings)
            .with_context(|| format!("the node {roles} of pool {pool}"))
    }

    /// The ledger, on a core of its choice; `background` only lets it work when nobody else wants the core. Started
    /// again it goes on where the last one stopped.
    pub(crate) fn ledger(&self, core: u32, background: bool) -> anyhow::Result<System> {
        let folder = self.folder.join("ledger");
        fs::create_dir_all(&folder)?;
        let command = if background {
            self.machine.background(&self.program, core)
        } else {
            self.machine.command(&self.program, core)
        };
        let settings = "cluster: bench\nstore: { migrate: true }\n";
        let (child, address) = self
            .serve(command, &folder, "ledger", settings)
            .context("the ledger")?;
        Ok(System::new(Kind::Ledger, address, vec![child]))
    }

    fn serve(
        &self,
        mut command: std::process::Command,
        folder: &Path,
        roles: &str,
        settings: &str,
    ) -> anyhow::Result<(Child, SocketAddr)> {
        let config = folder.join("waybill.yaml");
        fs::write(&config, settings)?;
        command
            .env_clear()
            .env("NATS_URL", self.services.nats.url())
            .env("API_KEY_SECRET", SECRET)
            .env("JWT_SECRET_KEY", SECRET)
            .current_dir(folder);
        command.args(["serve", "--roles", roles, "--log-format", "text", "--config"]);
        command.arg(&config).arg("--data-dir").arg(folder.join("data"));
        let role = if roles.contains("gateway") {
            command.args(["--listen", "127.0.0.1:0"]);
            "gateway"
        } else {
            command.args(["--admin-listen", "127.0.0.1:0"]);
            "admin"
        };
        if roles == "ledger" {
            command.env("DATABASE_URL", self.services.postgres.url());
        }
        machine::listening(command, &folder.join("node.log"), role)
    }
}
