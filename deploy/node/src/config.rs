//! From flags, environment and files to one checked configuration of the node. Precedence: flag, then
//! environment, then file, then default. The only reader of the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bus::spool::Durability;
use chrono_tz::Tz;
use schemas::circuit;
use schemas::id::{ModelName, NodeId, PoolName};
use schemas::node::NodeRole;
use schemas::pool::UNNAMED;
use schemas::secret::Secret;

use crate::command_line::Flags;
use crate::environment::Environment;
use crate::files::Files;
use crate::keys::{self, FileKey};
use crate::manifest::{self, Kind};
use crate::settings::Settings;
use crate::yaml::{Document, Problem};

use cluster::{Bus, Roles, Store};
use egress::SealingKeys;
use error::Error;
use fixed::Fixed;
use health::Health;
use limits::FileLimits;

mod affinity;
mod balance;
pub mod cluster;
mod concurrency;
pub mod egress;
pub mod error;
mod fixed;
pub mod health;
mod idempotency;
mod idle;
pub mod limits;
mod mail;
mod oidc;
mod place;
mod sign_in;
#[cfg(test)]
pub(crate) mod testing;

/// Levels of log lines, and the words that other programs have for them.
const LOG_LEVELS: [(&str, &str); 9] = [
    ("off", "off"),
    ("error", "error"),
    ("warn", "warn"),
    ("info", "info"),
    ("debug", "debug"),
    ("trace", "trace"),
    ("warning", "warn"),
    ("critical", "error"),
    ("fatal", "error"),
];
/// Longest name of a cluster or a node, in bytes: it is part of every event's source.
const NAME_BYTES_MAX: usize = 63;
/// The address that is bound when none is given.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3_333);
/// Least room for the spool: with less every request would be refused.
const SPOOL_BYTES_MIN: u64 = 64 * 1024;
/// Default room for the spool.
const SPOOL_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// Default of `admit_wait_seconds`: servers of the bus give a leader up after four to nine, and then choose another.
const ADMIT_WAIT_SECONDS: u64 = 12;
/// Default of `auth.stale_seconds_max`.
const STALE_SECONDS_MAX: u64 = 300;

/// Everything the node needs to know, checked.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one configuration"
)]
pub struct Config {
    /// Address to bind.
    pub listen: SocketAddr,
    /// A second address for management, metrics and health.
    pub admin_listen: Option<SocketAddr>,
    /// Where everything lives.
    pub data_dir: PathBuf,
    /// The one directory whose files endpoints of run time may name as their credentials.
    pub credentials_dir: PathBuf,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the node, minted beside the spool when absent.
    pub node_id: Option<NodeId>,
    /// The spool's directory.
    pub spool_dir: PathBuf,
    /// Its largest size, in bytes.
    pub spool_bytes_max: u64,
    /// What "spooled" means.
    pub durability: Durability,
    /// What runs in this process.
    pub roles: Roles,
    /// The pool of its router, and where its gateway sends what no router of its own runs.
    pub pool: PoolName,
    /// Over what the roles meet.
    pub bus: Bus,
    /// Where the books are.
    pub store: Store,
    /// How long to wait for what cannot be decided without the bus, in seconds.
    pub admit_wait_seconds: u64,
    /// Age from which a view of the catalogue is not served from any more, in seconds.
    pub stale_seconds_max: u64,
    /// Most attempts of one request.
    pub attempts_max: u32,
    /// Allowed cross-origin origins.
    pub cors_origins: Vec<String>,
    /// Opens `/routing`.
    pub public_routing: bool,
    /// Time zone of billing days.
    pub billing_tz: Tz,
    /// Tenants and members of the file, and what roles allow.
    pub limits: FileLimits,
    /// Which of [`SECTIONS`] the file has, be they empty.
    pub sections: Vec<&'static str>,
    /// Keys of the file.
    pub keys: Vec<FileKey>,
    /// models.yaml, when one is given.
    pub models_path: Option<PathBuf>,
    /// routing.yaml, when one is given.
    pub routing_path: Option<PathBuf>,
    /// Serve the demo model.
    pub demo: bool,
    /// Look for engines on this machine.
    pub discover: bool,
    /// How long running requests may take after SIGTERM, in seconds.
    pub drain_seconds: u64,
    /// How long a request body may be on its way, in seconds.
    pub body_seconds_max: u64,
    /// How long a client may take no byte, in seconds.
    pub client_stall_seconds: u64,
    /// Silence after which a stream gets a comment, in seconds.
    pub keepalive_seconds: u64,
    /// The clocks of an upstream call.
    pub clocks: router_worker::Clocks,
    /// What opens a circuit.
    pub circuit: circuit::Parameters,
    /// How many calls run at once with one credential; `None` for any number.
    pub concurrency: Option<router_worker::Concurrency>,
    /// What makes sessions stay on a backend.
    pub affinity: router_worker::AffinitySettings,
    /// What decides among backends.
    pub balance: router_worker::BalanceSettings,
    /// Keys the digests of virtual keys; generated when absent.
    pub api_key_secret: Option<Secret<String>>,
    /// Signs the tokens of members who signed in; generated when absent, but in a cluster.
    pub jwt_secret: Option<Secret<String>>,
    /// How people sign in, without that secret.
    pub sign_in: gateway::sign_in::settings::Settings,
    /// What is asked of upstreams beside calls.
    pub health: Health,
    /// Degrees Celsius from which a host is spared, unless something else is set at run time.
    pub gpu_temperature_threshold: Option<u32>,
    /// The keys by which credentials of endpoints are stored, as far as they are given.
    pub sealing: SealingKeys,
    /// Where endpoints may lie that are registered at run time.
    pub egress: router_worker::Egress,
    /// The platform operator's token.
    pub admin_token: Option<Secret<String>>,
    /// The credential of whoever hands out grants; blank turns grants off.
    pub grant_dispatch_token: Option<Secret<String>>,
    /// Authentication failures from one address before it is blocked.
    pub auth_failures_max: u64,
    /// For how long idempotency keys are kept, and their locks count.
    pub idempotency: schemas::idempotency::Terms,
    /// Most bytes of the bucket of idempotency keys.
    pub idempotency_bytes_max: u64,
    /// What becomes of calls that leave no room to think.
    pub small_calls: Option<gateway::SmallCalls>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// How much is logged.
    pub log_level: String,
    /// Why no node may run on this configuration, though commands may use it.
    unservable: Option<Problem>,
    /// What is odd but does not stop the node.
    pub warnings: Vec<Problem>,
    /// The distribution's manifest.
    pub manifest: manifest::Resolved,
    /// True where the models are those of the manifest.
    pub models_of_manifest: bool,
    /// True where waybill.yaml says nothing.
    pub is_empty: bool,
    /// What operators are to know of the files that were chosen.
    pub notes: Vec<String>,
    /// The files that were read.
    pub files: Files,
    /// How the command was given, for reading the configuration again.
    pub flags: Flags,
    fixed: Fixed,
    /// The environment, for files that refer to it.
    pub environment: Environment,
}

impl Config {
    /// Refuses what is understood and must not run as a node.
    pub fn servable(&self) -> Result<(), Error> {
        self.unservable
            .clone()
            .map_or(Ok(()), |problem| Err(Error::Refused(problem)))
    }

    /// What of this configuration waits for the next start of a node that was started with `start`.
    pub fn waits_for_start(&self, start: &Self) -> Vec<Problem> {
        self.fixed.changed_since(&start.fixed)
    }

    /// A router of a named pool, and nothing else: it stands where it may know of the catalogue only what its own calls
    /// need.
    pub fn stands_apart(&self) -> bool {
        let is_router = self.roles.list() == [NodeRole::Router];
        is_router && self.bus.is_shared() && self.pool.as_str() != UNNAMED
    }

    /// True when the process reads the catalogue.
    pub fn follows_catalog(&self) -> bool {
        self.roles.read_catalog() && !self.stands_apart()
    }

    /// How to open the spool of a directory.
    pub fn spool(&self, dir: &Path) -> bus::spool::Options {
        bus::spool::Options {
            dir: dir.to_owned(),
            cluster: self.cluster.clone(),
            bytes_max: self.spool_bytes_max,
            durability: self.durability,
        }
    }
}

/// Sections of the file of which each entry is a record of the catalogue.
pub const SECTIONS: [&str; 4] = ["tenants", "users", "role_limits", "keys"];

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Reads and checks everything.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Config, Error> {
    let path = flags
        .config
        .clone()
        .or_else(|| environment.get("WAYBILL_CONFIG").map(PathBuf::from));
    let files = Files::default();
    let document = match &path {
        Some(path) => Document::parse(&path.display().to_string(), &read(&files, path)?, environment)?,
        None => Document::parse("waybill.yaml", "", environment)?,
    };
    let settings: Settings = document.read()?;
    Resolver {
        flags,
        environment,
        document: &document,
        settings: &settings,
        manifest: manifest::resolve(environment, &files),
        files,
    }
    .resolve()
}

/// Reads a file as text.
pub fn read(files: &Files, path: &Path) -> Result<String, Error> {
    files.read(path).map_err(|source| Error::Unreadable {
        path: path.to_owned(),
        source,
    })
}

struct Resolver<'a> {
    flags: &'a Flags,
    environment: &'a Environment,
    document: &'a Document,
    settings: &'a Settings,
    manifest: manifest::Resolved,
    files: Files,
}

impl Resolver<'_> {
    fn resolve(&self) -> Result<Config, Error> {
        let settings = self.settings;
        let parts = self.parts()?;
        let data_dir = self.data_dir()?;
        let (models, routing) = (self.models(), self.routing());
        let first_run = self.has_no_file() && models.path.is_none() && !self.manifest.is_active();
        let (keys, mut warnings) = keys::from_settings(settings, self.document)?;
        warnings.extend(idle::problems(settings, self.document, parts.bus.is_shared()));
        warnings.extend(parts.warnings.into_iter().chain(self.manifest.warnings.clone()));
        Ok(Config {
            listen: self.listen()?.unwrap_or(LISTEN),
            admin_listen: self.admin_listen()?,
            cluster: self.cluster()?,
            node_id: self.node_id()?,
            spool_dir: self.spool_dir(&data_dir),
            credentials_dir: self.credentials_dir(&data_dir)?,
            spool_bytes_max: self.spool_bytes_max()?,
            durability: self.durability()?,
            admit_wait_seconds: settings.admit_wait_seconds.unwrap_or(ADMIT_WAIT_SECONDS),
            stale_seconds_max: settings.auth.stale_seconds_max.unwrap_or(STALE_SECONDS_MAX),
            attempts_max: self.attempts_max()?,
            cors_origins: settings.cors.origins.clone(),
            public_routing: settings.public_routing.unwrap_or(false),
            billing_tz: self.billing_tz()?,
            limits: limits::read_all(settings, self.document)?,
            sections: self.sections(),
            keys,
            models_path: models.path,
            routing_path: routing.path,
            models_of_manifest: models.of_manifest,
            is_empty: self.document.leaves().is_empty(),
            notes: models.told.into_iter().chain(routing.told).collect(),
            manifest: self.manifest.clone(),
            files: self.files.clone(),
            flags: self.flags.clone(),
            fixed: Fixed::of(self.document),
            demo: settings.demo.unwrap_or(first_run),
            discover: settings.discover.unwrap_or(first_run && !parts.bus.is_shared()),
            unservable: parts.unservable.or(self.open_to_others()?),
            roles: parts.roles,
            pool: parts.pool,
            bus: parts.bus,
            store: parts.store,
            drain_seconds: settings.drain_seconds.unwrap_or(30),
            body_seconds_max: settings.body_seconds_max.unwrap_or(600).max(1),
            client_stall_seconds: settings.client_stall_seconds.unwrap_or(60).max(1),
            keepalive_seconds: settings.keepalive_seconds.unwrap_or(15).max(1),
            clocks: self.clocks()?,
            circuit: self.circuit()?,
            concurrency: self.concurrency()?,
            affinity: self.affinity()?,
            balance: self.balance()?,
            api_key_secret: self.secret("API_KEY_SECRET"),
            jwt_secret: self.secret("JWT_SECRET_KEY"),
            sign_in: self.sign_in()?,
            sealing: self.sealing_keys()?,
            egress: self.egress()?,
            health: self.health()?,
            gpu_temperature_threshold: self.gpu_temperature_threshold()?,
            admin_token: self.secret("ADMIN_TOKEN"),
            grant_dispatch_token: self.secret("GATEWAY_GRANT_DISPATCH_TOKEN"),
            idempotency: self.idempotency()?,
            idempotency_bytes_max: self.idempotency_bytes_max()?,
            small_calls: self.small_calls()?,
            auth_failures_max: self.number("AUTH_FAILURE_BLOCK_THRESHOLD")?.unwrap_or(200),
            log_format: self.log_format()?,
            log_level: self.log_level()?,
            warnings,
            environment: self.environment.clone(),
            data_dir,
        })
    }

    fn models(&self) -> manifest::Choice {
        let explicit = self.path("MODELS_CONFIG_PATH", "MODELS_CONFIG");
        let otherwise = self.settings.models_path.as_ref().map(PathBuf::from);
        self.manifest.choose(Kind::Models, explicit, otherwise)
    }

    fn routing(&self) -> manifest::Choice {
        let explicit = self.path("ROUTING_CONFIG_PATH", "ROUTING_CONFIG");
        let otherwise = self.settings.routing_path.as_ref().map(PathBuf::from);
        self.manifest.choose(Kind::Routing, explicit, otherwise)
    }

    /// Which of [`SECTIONS`] the file has, be they empty.
    fn sections(&self) -> Vec<&'static str> {
        let names = SECTIONS.into_iter();
        names.filter(|name| self.document.has(name)).collect()
    }

    /// Nothing names a `waybill.yaml`.
    fn has_no_file(&self) -> bool {
        self.flags.config.is_none() && self.environment.get("WAYBILL_CONFIG").is_none()
    }

    fn small_calls(&self) -> Result<Option<gateway::SmallCalls>, Error> {
        let tokens_max = self.number("SMALL_MAXTOK_REASONING_THRESHOLD")?.unwrap_or(64);
        let tokens_min = self.number("SMALL_MAXTOK_REASONING_FLOOR")?.unwrap_or(512);
        let model = self.environment.get("SMALL_MAXTOK_REASONING_TARGET");
        Ok(model.map(|model| gateway::SmallCalls {
            model: ModelName::from(model.trim()),
            tokens_max,
            tokens_min,
        }))
    }

    fn secret(&self, variable: &str) -> Option<Secret<String>> {
        let text = self.environment.get(variable)?;
        Some(Secret::new(text.to_owned()))
    }

    fn log_level(&self) -> Result<String, Error> {
        let word = self
            .environment
            .get("LOG_LEVEL")
            .or(self.settings.log_level.as_deref())
            .unwrap_or("info")
            .to_lowercase();
        let known = LOG_LEVELS.iter().find(|(known, _)| *known == word);
        known.map(|(_, level)| (*level).to_owned()).ok_or_else(|| {
            let message = format!("\"{word}\" is not a log level");
            let remedy = "use error, warn, info, debug or trace";
            self.given(("log_level", None, "LOG_LEVEL"), message, remedy)
        })
    }

    fn spool_bytes_max(&self) -> Result<u64, Error> {
        match self.settings.spool.bytes_max.unwrap_or(SPOOL_BYTES_MAX) {
            0..SPOOL_BYTES_MIN => {
                let message = "the spool has no room for requests";
                let remedy = "write 65536 (64 KiB) or more";
                Err(self.document.problem("spool.bytes_max", message, remedy).into())
            }
            bytes => Ok(bytes),
        }
    }

    fn attempts_max(&self) -> Result<u32, Error> {
        match self.settings.attempts_max.unwrap_or(4) {
            0 => Err(self
                .document
                .problem("attempts_max", "a request needs an attempt", "write 1 or more")
                .into()),
            attempts => Ok(attempts),
        }
    }

    /// A problem with a value at its place: the flag if it was given, else the variable if it is set, else the key.
    fn given(&self, place: (&str, Option<&str>, &str), message: String, remedy: &str) -> Error {
        Error::Wrong(self.told(place, message, remedy))
    }

    fn told(
        &self,
        (path, flag, variable): (&str, Option<&str>, &str),
        message: String,
        remedy: &str,
    ) -> Problem {
        let (file, path) = match flag {
            Some(flag) => ("command line", flag),
            None if self.environment.get(variable).is_some() => ("environment", variable),
            None => return self.document.problem(path, message, remedy),
        };
        Problem {
            file: file.to_owned(),
            line: 0,
            path: path.to_owned(),
            message,
            remedy: remedy.to_owned(),
        }
    }

    fn spool_dir(&self, data_dir: &Path) -> PathBuf {
        let named = self.settings.spool.dir.as_ref();
        named.map_or_else(|| data_dir.join("spool"), PathBuf::from)
    }

    fn pick(&self, flag: Option<&String>, variable: &str, file: Option<&String>) -> Option<String> {
        let variable = || self.environment.get(variable).map(str::to_owned);
        flag.cloned().or_else(variable).or_else(|| file.cloned())
    }

    /// Never nothing: that would be the working directory.
    fn data_dir(&self) -> Result<PathBuf, Error> {
        let flag = self.flags.data_dir.clone();
        let variable = || self.environment.get("WAYBILL_DATA_DIR").map(PathBuf::from);
        let named = flag
            .or_else(variable)
            .or_else(|| self.settings.data_dir.as_ref().map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("./data"));
        if named.as_os_str().is_empty() {
            let flag = self.flags.data_dir.as_ref().map(|_| "--data-dir");
            let message = "the data directory is empty text".to_owned();
            let remedy = "name a directory; is its variable set?";
            return Err(self.given(("data_dir", flag, "WAYBILL_DATA_DIR"), message, remedy));
        }
        Ok(named)
    }

    fn path(&self, variable: &str, legacy: &str) -> Option<PathBuf> {
        self.environment.first(&[variable, legacy]).map(PathBuf::from)
    }

    fn durability(&self) -> Result<Durability, Error> {
        match self.settings.spool.durability.as_deref().unwrap_or("process") {
            "process" => Ok(Durability::Process),
            "machine" => Ok(Durability::Machine),
            other => {
                let message = format!("\"{other}\" is not a durability");
                Err(self
                    .document
                    .problem("spool.durability", message, "use process or machine")
                    .into())
            }
        }
    }

    fn billing_tz(&self) -> Result<Tz, Error> {
        let name = self.settings.billing_tz.as_deref().unwrap_or("UTC");
        name.parse().map_err(|_| {
            let message = format!("\"{name}\" is not a time zone");
            self.document
                .problem("billing_tz", message, "use an IANA name such as Europe/Berlin")
                .into()
        })
    }

    fn log_format(&self) -> Result<LogFormat, Error> {
        let format = self.pick(
            self.flags.log_format.as_ref(),
            "LOG_FORMAT",
            self.settings.log_format.as_ref(),
        );
        match format.as_deref().unwrap_or("text") {
            "json" => Ok(LogFormat::Json),
            "text" | "plain" => Ok(LogFormat::Text),
            other => {
                let message = format!("\"{other}\" is not a log format");
                let flag = self.flags.log_format.as_ref().map(|_| "--log-format");
                Err(self.given(("log_format", flag, "LOG_FORMAT"), message, "use text or json"))
            }
        }
    }

    fn number<T: std::str::FromStr>(&self, variable: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.environment.get(variable) else {
            return Ok(None);
        };
        text.trim().parse().map(Some).map_err(|_| {
            Error::Wrong(Problem {
                file: "environment".into(),
                line: 0,
                path: variable.to_owned(),
                message: format!("\"{text}\" is not a number"),
                remedy: "correct the variable or unset it".into(),
            })
        })
    }

    /// A clock in seconds; 0 or less disables it.
    fn clock(&self, variable: &str, default: Option<f64>) -> Result<Option<std::time::Duration>, Error> {
        let seconds = self.number::<f64>(variable)?.or(default);
        Ok(seconds
            .filter(|seconds| *seconds > 0.0 && seconds.is_finite())
            .map(std::time::Duration::from_secs_f64))
    }

    fn clocks(&self) -> Result<router_worker::Clocks, Error> {
        Ok(router_worker::Clocks {
            request: self.clock("REQUEST_TIMEOUT_SECONDS", Some(120.0))?,
            completion: self.clock("UPSTREAM_COMPLETION_TIMEOUT_S", Some(600.0))?,
            first_byte: self.clock("STREAM_FIRST_BYTE_TIMEOUT_SECONDS", None)?,
            stream_idle: self.clock("STREAM_IDLE_TIMEOUT_SECONDS", Some(180.0))?,
            stream_request: self.clock("STREAM_REQUEST_TIMEOUT_SECONDS", Some(3_600.0))?,
        })
    }

    fn circuit(&self) -> Result<circuit::Parameters, Error> {
        let default = circuit::Parameters::default();
        let cooldown_seconds = self.number::<f64>("CIRCUIT_COOLDOWN_SECONDS")?;
        Ok(circuit::Parameters {
            failures_max: self
                .number("CIRCUIT_FAILURE_THRESHOLD")?
                .unwrap_or(default.failures_max),
            cooldown_ms: cooldown_seconds.map_or(default.cooldown_ms, |seconds| {
                std::time::Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
                    .as_millis()
                    .try_into()
                    .unwrap_or(u64::MAX)
            }),
            availability_min: self
                .number("CIRCUIT_MIN_AVAILABILITY")?
                .unwrap_or(default.availability_min),
            alpha: self.number("ROUTER_HEALTH_EWMA_ALPHA")?.unwrap_or(default.alpha),
        })
    }
}
