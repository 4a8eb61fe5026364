//! What a node has of stored credentials: the key that they are sealed to, with the role router the keys that open
//! them, and what endpoints of run time refer to on its machine.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bus::mint::Mint;
use router_worker::Machine;
use schemas::catalog::CredentialRef;
use schemas::node::NodeRole;
use schemas::seal::{self, KEY_BYTES, PrivateKey, PublicKey, SECRET_BYTES_MAX};
use schemas::secret::Secret;
use tracing::{info, warn};

use crate::UsageError;
use crate::config::Config;
use crate::environment::Environment;
use crate::secrets;

/// Variables that hold what is a node's own, never an upstream's. So are all whose names begin with `WAYBILL_`.
const OWN_VARIABLES: [&str; 8] = [
    "ADMIN_TOKEN",
    "API_KEY_SECRET",
    "DATABASE_URL",
    "GATEWAY_GRANT_DISPATCH_TOKEN",
    "JWT_SECRET_KEY",
    "NATS_URL",
    "OIDC_CLIENT_SECRET",
    "SMTP_PASSWORD",
];
/// Where nothing lies that anybody wrote down as a credential.
const NO_FILES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The keys of a node.
#[derive(Default)]
pub struct Sealing {
    /// What credentials are sealed to; `None` takes none in.
    pub public: Option<PublicKey>,
    /// What opens them, the one in use first; none without the role router.
    pub private: Vec<PrivateKey>,
}

impl Sealing {
    /// The keys that are given; a node alone makes itself one. In a cluster they are given: what one node sealed to a
    /// key of its own no other could open.
    pub fn of(config: &Config, data_dir: &Path, mint: &Mint) -> std::io::Result<Self> {
        let given = &config.sealing;
        let alone = !config.bus.is_shared();
        let mut private: Vec<PrivateKey> = given.masters.iter().map(PrivateKey::of_master).collect();
        if alone && private.is_empty() {
            private.push(PrivateKey::of_master(&kept(data_dir, mint)?));
        }
        let own = private.first().map(|key| key.public().clone());
        let public = own.or_else(|| given.public.clone());
        let (gateway, router) = (
            config.roles.has(NodeRole::Gateway),
            config.roles.has(NodeRole::Router),
        );
        if !router {
            if !private.is_empty() {
                warn!(
                    "WAYBILL_MASTER_KEY opens stored credentials, and is for routers alone: give this node WAYBILL_PUBLIC_KEY"
                );
            }
            private = Vec::new();
        }
        if gateway && public.is_none() {
            info!(
                "this gateway stores no credentials of endpoints: set WAYBILL_PUBLIC_KEY to the output of waybill keys public"
            );
        }
        if router && private.is_empty() {
            info!("this router opens no stored credentials: set the same WAYBILL_MASTER_KEY on every router");
        }
        Ok(Self { public, private })
    }
}

/// The key that a node made for itself.
fn kept(data_dir: &Path, mint: &Mint) -> std::io::Result<Secret<[u8; KEY_BYTES]>> {
    let bytes = secrets::master_key(data_dir, mint)?;
    let text = std::str::from_utf8(bytes.reveal()).unwrap_or_default();
    let problem = "secrets/master_key in the data directory is not 32 bytes in base64";
    seal::master_key(&Secret::new(text.to_owned()))
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, problem))
}

/// `waybill keys public`: what gateways are given that hold no master key.
pub fn public_key(config: &Config) -> anyhow::Result<String> {
    if let Some(master) = config.sealing.masters.first() {
        return Ok(format!("{}\n", PrivateKey::of_master(master).public()));
    }
    if config.bus.is_shared() {
        let text = "the public key follows from WAYBILL_MASTER_KEY, which is not set; openssl rand -base64 32 makes one";
        return Err(UsageError(text.to_owned()).into());
    }
    let master = kept(&config.data_dir, &Mint::new()?).context("cannot read the master key")?;
    Ok(format!("{}\n", PrivateKey::of_master(&master).public()))
}

/// What endpoints refer to that were registered at run time: `env:NAME`, and `file:/PATH` of the one directory for it.
/// What is the node's own is nobody's credential.
pub fn machine(config: &Config) -> Machine {
    let environment = config.environment.clone();
    let directory = config.credentials_dir.clone();
    let (data, spool) = (config.data_dir.clone(), config.spool_dir.clone());
    let own = [data.join("secrets"), data, spool];
    Box::new(move |CredentialRef(reference)| match reference.split_once(':') {
        Some(("env", name)) => variable(&environment, name),
        Some(("file", path)) => file(Path::new(path), &directory, &own),
        _ => None,
    })
}

fn variable(environment: &Environment, name: &str) -> Option<Secret<String>> {
    if OWN_VARIABLES.contains(&name) || name.starts_with("WAYBILL_") {
        return None;
    }
    let value = environment.get(name)?.trim();
    Some(Secret::new(value.to_owned()))
}

/// A file below `directory`, as it really lies: no link leads out of there, nor into what is the node's own, should that
/// be below it.
fn file(path: &Path, directory: &Path, own: &[PathBuf]) -> Option<Secret<String>> {
    let real = path.is_absolute().then(|| path.canonicalize().ok()).flatten()?;
    let directory = directory.canonicalize().ok()?;
    let is_own = |own: &PathBuf| {
        own.canonicalize()
            .is_ok_and(|own| own.starts_with(&directory) && real.starts_with(&own))
    };
    let is_closed = !real.starts_with(&directory)
        || own.iter().any(is_own)
        || NO_FILES.iter().any(|directory| real.starts_with(directory));
    let size = real.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    if is_closed || size > u64::try_from(SECRET_BYTES_MAX).unwrap_or(u64::MAX) {
        return None;
    }
    let text = Secret::new(std::fs::read_to_string(&real).ok()?);
    let value = text.reveal().trim();
    (!value.is_empty()).then(|| Secret::new(value.to_owned()))
}

#[cfg(test)]
mod tests;
