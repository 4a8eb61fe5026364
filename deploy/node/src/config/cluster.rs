//! Which roles a process runs, over what they meet and where the books are: told apart here, so that the rest of
//! the program asks one question of each. What cannot work as a node is named, with what would.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use schemas::id::PoolName;
use schemas::node::NodeRole;
use schemas::pool::UNNAMED;
use schemas::secret::Secret;

use super::egress::{MASTER_KEY, PUBLIC_KEY};
use super::{Error, NAME_BYTES_MAX, Resolver};
use crate::yaml::Problem;

/// Default room for the log of events, in bytes.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Shortest secret that nodes of a cluster share, in bytes.
pub const SHARED_SECRET_BYTES_MIN: usize = 32;
/// Most copies that a server of the bus keeps of a stream.
const REPLICAS_MAX: u64 = 5;
/// Copies of each stream, once there are servers for them.
const REPLICAS: usize = 3;
/// Longest prefix of subjects for answers, in bytes.
const INBOX_BYTES_MAX: usize = 128;
/// True for what can be the name of a pool: one word of a subject.
pub(crate) fn is_pool(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// The roles of a process: never none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles(Vec<NodeRole>);

impl Roles {
    /// Every role.
    pub fn all() -> Self {
        Self(NodeRole::ALL.to_vec())
    }

    /// True when the process runs it.
    pub fn has(&self, role: NodeRole) -> bool {
        self.0.contains(&role)
    }

    /// Each of them, in the order of [`NodeRole::ALL`].
    pub fn list(&self) -> &[NodeRole] {
        &self.0
    }

    /// True when the process reads files of models: what it writes into the catalogue, or credentials.
    pub fn read_models(&self) -> bool {
        self.has(NodeRole::Gateway) || self.has(NodeRole::Router)
    }

    /// True when the process reads the catalogue.
    pub fn read_catalog(&self) -> bool {
        self.read_models() || self.has(NodeRole::Health)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|role| role.word()).collect();
        f.write_str(&words.join(","))
    }
}

/// Over what roles meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bus {
    /// In this process, on its disk.
    Embedded {
        /// Largest log, in bytes.
        log_bytes_max: u64,
    },
    /// Servers that many nodes share.
    Nats(Nats),
}

impl Bus {
    /// True when other nodes may be on it.
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Nats(_))
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { .. } => f.write_str("embedded"),
            Self::Nats(nats) => {
                let shown: Vec<String> = nats.urls.iter().map(|url| redacted(url.reveal())).collect();
                write!(f, "nats {} replicas {}", shown.join(","), nats.replicas)
            }
        }
    }
}

/// NATS servers and how they are met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nats {
    /// Their addresses, at least one. A URL may hold a password.
    pub urls: Vec<Secret<String>>,
    /// Copies of each stream and bucket, 1 to 5.
    pub replicas: usize,
    /// Most bytes of the events that the servers keep.
    pub log_bytes_max: u64,
    /// A file of credentials.
    pub creds: Option<PathBuf>,
    /// Prefix of the subjects on which the node gets answers; `None` is `_INBOX.<user>` with a user in an address, else
    /// `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// Files for TLS.
    pub tls: Tls,
}

/// Files for TLS, PEM all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates that are trusted.
    pub ca: Option<PathBuf>,
    /// The node's own certificate and its key: both or none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Where the books are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// A file in the data directory.
    Sqlite,
    /// A server that several ledgers share.
    Postgres {
        /// Its address; it may hold a password.
        url: Secret<String>,
        /// Bring its tables up to date at the start of a ledger.
        migrate: bool,
    },
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite => f.write_str("sqlite"),
            Self::Postgres { url, .. } => write!(f, "postgres {}", redacted(url.reveal())),
        }
    }
}

/// A URL without what may be a secret: user, password and query.
pub fn redacted(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => plain.rsplit_once('@').map_or(plain, |(_, host)| host).to_owned(),
    }
}

/// What was found out.
pub(super) struct Parts {
    pub(super) roles: Roles,
    pub(super) pool: PoolName,
    pub(super) bus: Bus,
    pub(super) store: Store,
    pub(super) unservable: Option<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl Resolver<'_> {
    pub(super) fn parts(&self) -> Result<Parts, Error> {
        let (bus, store) = (self.bus()?, self.store()?);
        let (roles, pool) = (self.roles()?, self.pool()?);
        let unservable = self.unservable(&roles, &bus, &store);
        let warnings = self.loose_files(&bus);
        Ok(Parts {
            roles,
            pool,
            bus,
            store,
            unservable,
            warnings,
        })
    }

    fn bus(&self) -> Result<Bus, Error> {
        let settings = self.settings.bus.clone().unwrap_or_default();
        let given = self.pick(self.flags.nats_url.as_ref(), "NATS_URL", None);
        let kind = match (&given, settings.kind.as_deref()) {
            (Some(_), Some("embedded" | "nats") | None) => "nats",
            (None, None) if settings.url.is_some() => "nats",
            (None, None) => "embedded",
            (_, Some(kind)) => kind,
        };
        match kind {
            "embedded" => Ok(Bus::Embedded {
                log_bytes_max: settings.log_bytes_max.unwrap_or(LOG_BYTES_MAX),
            }),
            "nats" => self.nats(given.or(settings.url)).map(Bus::Nats),
            other => {
                let message = format!("\"{other}\" is not a bus");
                Err(self.wrong("bus.kind", message, "use embedded or nats"))
            }
        }
    }

    fn nats(&self, urls: Option<String>) -> Result<Nats, Error> {
        let settings = self.settings.bus.clone().unwrap_or_default();
        let urls = urls.ok_or_else(|| {
            let message = "a bus of this kind has servers, and none is named".to_owned();
            self.wrong("bus.url", message, "write url: nats://HOST:4222, or set NATS_URL")
        })?;
        let urls: Vec<&str> = urls
            .split(',')
            .map(str::trim)
            .filter(|url| !url.is_empty())
            .collect();
        if urls.is_empty() || !urls.iter().all(|url| is_server(url)) {
            let message = "an address of a NATS server is not one".to_owned();
            let remedy = "write nats://HOST:PORT or tls://HOST:PORT, several with commas between them";
            let flag = self.flags.nats_url.as_ref().map(|_| "--nats-url");
            return Err(self.given(("bus.url", flag, "NATS_URL"), message, remedy));
        }
        let default = if urls.len() < REPLICAS { 1 } else { REPLICAS };
        let replicas = match settings.replicas {
            None => default,
            Some(copies @ 1..=REPLICAS_MAX) => usize::try_from(copies).unwrap_or(default),
            Some(_) => {
                let message = "a stream has 1 to 5 copies".to_owned();
                return Err(self.wrong("bus.replicas", message, "write 1, 3 or 5"));
            }
        };
        let path = |text: &String| PathBuf::from(text);
        let tls = settings.tls.unwrap_or_default();
        let identity = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => Some((path(cert), path(key))),
            (None, None) => None,
            _ => {
                let message = "a certificate and its key go together".to_owned();
                return Err(self.wrong("bus.tls", message, "give both cert and key, or none"));
            }
        };
        let creds = self.pick(None, "NATS_CREDS", settings.creds.as_ref());
        let nats = Nats {
            urls: urls.into_iter().map(|url| Secret::new(url.to_owned())).collect(),
            replicas,
            log_bytes_max: settings.log_bytes_max.unwrap_or(LOG_BYTES_MAX),
            creds: creds.map(PathBuf::from),
            inbox_prefix: self.inbox_prefix(settings.inbox_prefix)?,
            tls: Tls {
                ca: tls.ca.as_ref().map(path),
                identity,
            },
        };
        for file in nats.files() {
            std::fs::File::open(file).map_err(|source| Error::Unreadable {
                path: file.clone(),
                source,
            })?;
        }
        if nats.tls.ca.as_deref().is_some_and(|path| !has_certificate(path)) {
            let message = "the file has no certificate".to_owned();
            return Err(self.wrong(
                "bus.tls.ca",
                message,
                "name a PEM file of the authority's certificates",
            ));
        }
        Ok(nats)
    }

    /// A subject without wildcards.
    fn inbox_prefix(&self, named: Option<String>) -> Result<Option<String>, Error> {
        let is_word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        match named {
            Some(prefix) if prefix.len() > INBOX_BYTES_MAX || !prefix.split('.').all(is_word) => {
                let message = format!("\"{}\" is no prefix of subjects", prefix.escape_debug());
                let remedy = "write _INBOX.NAME, below which the node's user may subscribe";
                Err(self.wrong("bus.inbox_prefix", message, remedy))
            }
            named => Ok(named),
        }
    }

    fn store(&self) -> Result<Store, Error> {
        let settings = self.settings.store.clone().unwrap_or_default();
        let given = self.pick(self.flags.database_url.as_ref(), "DATABASE_URL", None);
        let kind = match (&given, settings.kind.as_deref()) {
            (Some(_), Some("sqlite" | "postgres") | None) => "postgres",
            (None, None) if settings.url.is_some() => "postgres",
            (None, None) => "sqlite",
            (_, Some(kind)) => kind,
        };
        match kind {
            "sqlite" => Ok(Store::Sqlite),
            "postgres" => {
                let url = given.or(settings.url).ok_or_else(|| {
                    let message = "a store of this kind has an address, and none is given".to_owned();
                    let remedy = "write url: postgres://USER@HOST/DATABASE, or set DATABASE_URL";
                    self.wrong("store.url", message, remedy)
                })?;
                if !["postgres://", "postgresql://"]
                    .iter()
                    .any(|scheme| url.starts_with(scheme))
                {
                    let message = "the address of the store is not one of Postgres".to_owned();
                    let flag = self.flags.database_url.as_ref().map(|_| "--database-url");
                    let remedy = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE";
                    return Err(self.given(("store.url", flag, "DATABASE_URL"), message, remedy));
                }
                Ok(Store::Postgres {
                    url: Secret::new(url),
                    migrate: settings.migrate.unwrap_or(false),
                })
            }
            other => {
                let message = format!("\"{other}\" is not a store");
                Err(self.wrong("store.kind", message, "use sqlite or postgres"))
            }
        }
    }

    fn roles(&self) -> Result<Roles, Error> {
        let given = self.pick(self.flags.roles.as_ref(), "WAYBILL_ROLES", None);
        let words: Vec<String> = given
            .map(|text| text.split(',').map(|word| word.trim().to_owned()).collect())
            .or_else(|| self.settings.roles.clone())
            .unwrap_or_default();
        let role = |word: &str| NodeRole::ALL.into_iter().find(|role| role.word() == word);
        if let Some(unknown) = words.iter().find(|word| *word != "all" && role(word).is_none()) {
            let message = format!("\"{unknown}\" is not a role");
            let remedy = "use all, or a list of gateway, router, health, ledger";
            return Err(self.given(self.place_of_roles(), message, remedy));
        }
        if words.is_empty() || words.iter().any(|word| word == "all") {
            return Ok(Roles::all());
        }
        let named = |role: &NodeRole| words.iter().any(|word| word == role.word());
        Ok(Roles(NodeRole::ALL.into_iter().filter(named).collect()))
    }

    fn place_of_roles(&self) -> (&'static str, Option<&'static str>, &'static str) {
        let flag = self.flags.roles.as_ref().map(|_| "--roles");
        ("roles", flag, "WAYBILL_ROLES")
    }

    /// A pool is one word of a subject.
    fn pool(&self) -> Result<PoolName, Error> {
        let given = self.pick(
            self.flags.pool.as_ref(),
            "WAYBILL_POOL",
            self.settings.pool.as_ref(),
        );
        let name = given.as_deref().unwrap_or(UNNAMED);
        if !is_pool(name) {
            let message = format!("\"{}\" is not a pool", name.escape_debug());
            let remedy = "use letters, digits, hyphens and underscores, at most 63";
            let flag = self.flags.pool.as_ref().map(|_| "--pool");
            return Err(self.given(("pool", flag, "WAYBILL_POOL"), message, remedy));
        }
        Ok(PoolName::from(name))
    }

    /// Why this must not run as a node, if so.
    fn unservable(&self, roles: &Roles, bus: &Bus, store: &Store) -> Option<Problem> {
        if !bus.is_shared() {
            let message = "an embedded bus cannot join two processes, so one process must run every role";
            let remedy = "run all roles in this process, or join several with NATS_URL";
            return (*roles != Roles::all())
                .then(|| self.told(self.place_of_roles(), message.to_owned(), remedy));
        }
        if roles.has(NodeRole::Ledger) && *store == Store::Sqlite {
            let message = "the books of a cluster are kept by several ledgers, and SQLite is in one process";
            let remedy = "set DATABASE_URL to a Postgres, or leave the role ledger to other nodes";
            let place = ("store.kind", None, "DATABASE_URL");
            return Some(self.told(place, message.to_owned(), remedy));
        }
        if self.settings.discover == Some(true) {
            let message = "engines on this machine's loopback are of no use to the other nodes of a cluster";
            let remedy = "name them in models.yaml by an address that every router reaches";
            return Some(self.document.problem("discover", message, remedy));
        }
        self.lacks_secret(roles)
    }

    /// What a node of a cluster must be given and is not.
    fn lacks_secret(&self, roles: &Roles) -> Option<Problem> {
        let lacking = |variable: &str, message: &str, remedy: &str| Problem {
            file: "environment".to_owned(),
            line: 0,
            path: variable.to_owned(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        };
        for (variable, what, may_lack) in [
            ("API_KEY_SECRET", "that keys are known by", false),
            // Where nobody is asked who he is, nobody has to sign in.
            (
                "JWT_SECRET_KEY",
                "that sessions are signed with",
                self.asks_nobody(),
            ),
        ] {
            let bytes = self.environment.get(variable).unwrap_or_default().len();
            let is_enough = bytes >= SHARED_SECRET_BYTES_MIN || (bytes == 0 && may_lack);
            if roles.has(NodeRole::Gateway) && !is_enough {
                let problem = match bytes {
                    0 => "it is not set",
                    _ => "it is too short",
                };
                let message = format!("the gateways of a cluster share the secret {what}, and {problem}");
                let remedy =
                    "set the same 32 bytes or more on every one, such as the output of: openssl rand -hex 32";
                return Some(lacking(variable, &message, remedy));
            }
        }
        let is_given = |variable| {
            self.environment
                .get(variable)
                .is_some_and(|text| !text.trim().is_empty())
        };
        if roles.has(NodeRole::Router) && is_given(PUBLIC_KEY) && !is_given(MASTER_KEY) {
            let message =
                "this router could not open what is sealed to the WAYBILL_PUBLIC_KEY that it is given";
            let remedy = "set the WAYBILL_MASTER_KEY of the other routers in its place, or leave the role router to them";
            return Some(lacking(MASTER_KEY, message, remedy));
        }
        None
    }

    /// Files with secrets that others on this machine may read.
    fn loose_files(&self, bus: &Bus) -> Vec<Problem> {
        use std::os::unix::fs::PermissionsExt as _;

        let Bus::Nats(nats) = bus else {
            return Vec::new();
        };
        let key = nats.tls.identity.as_ref().map(|(_, key)| ("bus.tls.key", key));
        let creds = nats.creds.as_ref().map(|path| ("bus.creds", path));
        let loose = |(_, path): &(&str, &PathBuf)| {
            let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
            mode & 0o077 != 0
        };
        let files = creds.into_iter().chain(key).filter(loose);
        let tell = |(place, path): (&str, &PathBuf)| {
            let message = format!("others may read {}", path.display());
            self.document.problem(place, message, "chmod 600")
        };
        files.map(tell).collect()
    }

    fn wrong(&self, path: &str, message: String, remedy: &str) -> Error {
        self.document.problem(path, message, remedy).into()
    }
}

impl Nats {
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let identity = self.tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
        self.creds.iter().chain(&self.tls.ca).chain(identity)
    }
}

/// True for a URL of a server: a known scheme or none, a host, perhaps a port.
fn is_server(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let named = host.split(':').next().is_some_and(|name| !name.is_empty());
    ["nats", "tls", "ws", "wss"].contains(&scheme)
        && named
        && !host.contains(|letter: char| letter.is_whitespace() || letter == '/')
}

/// True when at least one certificate can be read from a PEM file, and nothing in it that is none.
fn has_certificate(path: &Path) -> bool {
    CertificateDer::pem_file_iter(path).is_ok_and(|read| {
        let mut read = read.peekable();
        read.peek().is_some() && read.all(|certificate| certificate.is_ok())
    })
}

#[cfg(test)]
mod tests;
