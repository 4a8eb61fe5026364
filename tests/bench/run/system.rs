//! The systems under test: how each is configured, started and stopped.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::arguments::Arguments;
use crate::kind::Kind;
use crate::machine::{self, KEY, LIMITED_KEY, LOAD_CORE, Machine, SYSTEM_CORE};

/// Tries of 20 ms until nginx must accept connections.
const NGINX_TRIES_MAX: u32 = 150;

/// The model that keeps sessions.
pub(crate) const SESSION_MODEL: &str = "bench-sessions";
/// Limits of every kind, too high to be reached.
const LIMITS: &str = "{ qps: 1000000, rpm: 60000000, tpm: 100000000000, concurrency: 1000, \
    daily_tokens: 1000000000000, monthly_usd: \"1000000\" }";

/// Rest after a start, before idle memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// A running system; dropping it stops it.
#[derive(Debug)]
pub(crate) struct System {
    /// What it is.
    pub(crate) kind: Kind,
    /// Where chat requests go.
    pub(crate) url: String,
    address: SocketAddr,
    /// Its programs, in the order of [`Kind::parts`].
    children: Vec<Child>,
    /// Processes that belong to somebody else and work for it too; they come last.
    servers: Vec<u32>,
    nginx_config: Option<PathBuf>,
}

impl System {
    pub(crate) fn new(kind: Kind, address: SocketAddr, children: Vec<Child>) -> Self {
        let url = format!("http://{address}/v1/chat/completions");
        Self {
            kind,
            url,
            address,
            children,
            servers: Vec::new(),
            nginx_config: None,
        }
    }

    /// The same, with a server whose work counts as the system's.
    pub(crate) fn with_server(mut self, pid: u32) -> Self {
        self.servers.push(pid);
        self
    }

    /// Takes one more program.
    pub(crate) fn join(&mut self, child: Child) {
        self.children.push(child);
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processes whose CPU and memory count: each program and its children, then servers; none for `direct`.
    pub(crate) fn pids(&self) -> Vec<u32> {
        if self.kind == Kind::Direct {
            return Vec::new();
        }
        let programs = self.children.iter().map(Child::id);
        let families = programs.flat_map(|pid| std::iter::once(pid).chain(machine::children(pid)));
        families.chain(self.servers.iter().copied()).collect()
    }

    /// Changes the behaviour of the mock; see there for the settings.
    pub(crate) fn configure(&self, settings: &str) -> anyhow::Result<()> {
        machine::request(self.address, "PUT", &format!("/config?{settings}"))
            .context("cannot set up the mock")
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // A worker of nginx outlives a killed master, so nginx is asked to stop.
        if let Some(config) = &self.nginx_config {
            let mut stop = Command::new("nginx");
            stop.arg("-c")
                .arg(config)
                .args(["-s", "stop"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if stop.status().is_ok_and(|status| status.success()) {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        for child in &mut self.children {
            if let Err(error) = child.kill().and_then(|()| child.wait()) {
                eprintln!("cannot stop {}: {error}", self.kind);
            }
        }
    }
}

/// Starts the mock upstream on the load generator's core.
pub(crate) fn start_mock(machine: &Machine, folder: &Path) -> anyhow::Result<System> {
    let mut command = machine.command(&machine.program("bench-mock"), LOAD_CORE);
    command.args(["--addr", "127.0.0.1:0"]);
    let (child, address) = machine::listening(command, &folder.join("mock.log"), "mock").context("mock")?;
    Ok(System::new(Kind::Direct, address, vec![child]))
}

/// Starts a system on its own core; `None` if it is not installed or not built.
pub(crate) fn start(
    kind: Kind,
    machine: &Machine,
    folder: &Path,
    mock: &System,
    arguments: &Arguments,
) -> anyhow::Result<Option<System>> {
    let started = match kind {
        Kind::Direct => return Ok(Some(System::new(Kind::Direct, mock.address, Vec::new()))),
        Kind::Nginx => start_nginx(machine, folder, mock.address)?,
        Kind::Bare => Some(start_bare(machine, folder, mock.address)?),
        Kind::Waybill => start_waybill(&arguments.waybill(machine), machine, folder, mock.address)?,
        Kind::Together | Kind::Bus | Kind::Ledger => None,
    };
    std::thread::sleep(SETTLE);
    Ok(started)
}

fn start_bare(machine: &Machine, folder: &Path, upstream: SocketAddr) -> anyhow::Result<System> {
    let mut command = machine.command(&machine.program("bench-bare"), SYSTEM_CORE);
    command.args(["--addr", "127.0.0.1:0", "--upstream", &upstream.to_string()]);
    let (child, address) = machine::listening(command, &folder.join("bare.log"), "bare")?;
    Ok(System::new(Kind::Bare, address, vec![child]))
}

fn start_nginx(machine: &Machine, folder: &Path, upstream: SocketAddr) -> anyhow::Result<Option<System>> {
    let installed = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let folder = folder.join("nginx");
    fs::create_dir_all(&folder)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, machine::free_port()?));
    let config = folder.join("nginx.conf");
    fs::write(&config, nginx_config(&folder, address, upstream))?;
    let mut command = machine.command(Path::new("nginx"), SYSTEM_CORE);
    command.arg("-c").arg(&config).arg("-p").arg(&folder);
    let mut child = command.spawn().context("cannot run nginx")?;
    for _ in 0..NGINX_TRIES_MAX {
        if machine::accepts(address) {
            let mut system = System::new(Kind::Nginx, address, vec![child]);
            system.nginx_config = Some(config);
            return Ok(Some(system));
        }
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    bail!(
        "nginx did not start: {}",
        fs::read_to_string(folder.join("error.log")).unwrap_or_default()
    )
}

/// One worker, kept-alive upstream connections, nothing buffered to a file, nothing logged per request.
fn nginx_config(folder: &Path, listen: SocketAddr, upstream: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 1;\n\
         daemon off;\n\
         pid {folder}/nginx.pid;\n\
         error_log {folder}/error.log error;\n\
         events {{ worker_connections 24000; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {folder}/body;\n\
           proxy_temp_path {folder}/proxy;\n\
           fastcgi_temp_path {folder}/fastcgi;\n\
           uwsgi_temp_path {folder}/uwsgi;\n\
           scgi_temp_path {folder}/scgi;\n\
           client_body_buffer_size 1m;\n\
           client_max_body_size 64m;\n\
           keepalive_requests 1000000000;\n\
           tcp_nodelay on;\n\
           upstream mock {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}\n\
           server {{\n\
             listen {listen};\n\
             location / {{\n\
               proxy_pass http://mock;\n\
               proxy_http_version 1.1;\n\
               proxy_set_header Connection \"\";\n\
               proxy_buffering off;\n\
             }}\n\
           }}\n\
         }}\n"
    )
}

fn start_waybill(
    program: &Path,
    machine: &Machine,
    folder: &Path,
    upstream: SocketAddr,
) -> anyhow::Result<Option<System>> {
    if !program.is_file() {
        return Ok(None);
    }
    let folder = folder.join("waybill");
    fs::create_dir_all(&folder)?;
    let models = folder.join("models.yaml");
    fs::write(&models, waybill_models(upstream))?;
    let config = folder.join("waybill.yaml");
    fs::write(&config, waybill_config(&models))?;
    let mut command = machine.command(program, SYSTEM_CORE);
    command
        .env_clear()
        .current_dir(&folder)
        .arg("serve")
        .arg("--config")
        .arg(&config);
    command
        .args(["--listen", "127.0.0.1:0", "--log-format", "text", "--data-dir"])
        .arg(folder.join("data"));
    let (child, address) = machine::listening(command, &folder.join("waybill.log"), "gateway")?;
    Ok(Some(System::new(Kind::Waybill, address, vec![child])))
}

/// Two keys: one that nothing bounds, and one that all three layers do, by limits that are never reached.
fn waybill_config(models: &Path) -> String {
    format!(
        "cluster: bench\n\
         tenants:\n  - {{ id: bounded, limits: {LIMITS} }}\n\
         users:\n  - {{ tenant: bounded, id: member, limits: {LIMITS} }}\n\
         keys:\n  - {{ name: bench, tenant: default, key: \"{KEY}\", role: admin }}\n  \
         - {{ name: bounded, tenant: bounded, user: member, key: \"{LIMITED_KEY}\", role: pro, limits: {LIMITS} }}\n\
         models_path: {}\n",
        models.display()
    )
}

/// Models whose upstream name differs, so that the name is really replaced in each request; the second has two backends
/// and keeps sessions.
pub(crate) fn waybill_models(upstream: SocketAddr) -> String {
    let shared = "provider_model_id: bench-upstream\n    context_length: 131072\n    \
                  pricing: { prompt: \"2\", completion: \"8\" }\n";
    format!(
        "models:\n\
         \x20 - id: bench-model\n\
         \x20   name: Bench\n\
         \x20   provider: openai_compat\n\
         \x20   base_url: http://{upstream}\n\
         \x20   {shared}\
         \x20 - id: {SESSION_MODEL}\n\
         \x20   name: Bench with sessions\n\
         \x20   {shared}\
         \x20   route:\n\
         \x20     - {{ kind: openai_compat, backends: [\"http://{upstream}\", \"http://{upstream}/v1\"], session_affinity: true }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configurations_name_the_upstream() {
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, 9_001));

        let models = waybill_models(upstream);
        assert!(models.contains("    base_url: http://127.0.0.1:9001\n"));
        assert!(models.contains("\n  - id: bench-sessions\n"));
        let nginx = nginx_config(Path::new("/x"), upstream, upstream);
        assert!(nginx.contains("server 127.0.0.1:9001; keepalive 256;"));
    }
}
