//! Where endpoints may lie that are registered at run time, and the keys by which their credentials are stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use router_worker::{Egress, NETWORKS_MAX, Network};
use schemas::id::PoolName;
use schemas::pool::UNNAMED;
use schemas::seal::{self, KEY_BYTES, PrivateKey, PublicKey};
use schemas::secret::Secret;

use super::cluster::is_pool;
use super::{Error, Resolver};
use crate::yaml::Problem;

/// Opens credentials that were stored; with commas between several, the first is the one in use.
pub(super) const MASTER_KEY: &str = "WAYBILL_MASTER_KEY";
/// What gateways seal credentials to that do not have the other.
pub(super) const PUBLIC_KEY: &str = "WAYBILL_PUBLIC_KEY";
/// Most master keys at once: the one in use, and those before it.
const MASTER_KEYS_MAX: usize = 8;

/// The keys that were given.
#[derive(Debug, Clone, Default)]
pub struct SealingKeys {
    /// The master keys, the one in use first.
    pub masters: Vec<Secret<[u8; KEY_BYTES]>>,
    /// What is sealed to.
    pub public: Option<PublicKey>,
    /// What is sealed to for the routers of named pools.
    pub pools: BTreeMap<PoolName, PublicKey>,
}

impl Resolver<'_> {
    pub(super) fn egress(&self) -> Result<Egress, Error> {
        let told = &self.settings.egress.allow;
        if told.len() > NETWORKS_MAX {
            let message = "there are too many networks";
            let remedy = format!("keep to {NETWORKS_MAX}");
            return Err(self.document.problem("egress.allow", message, &remedy).into());
        }
        let read = |(n, text): (usize, &String)| {
            text.parse::<Network>().map_err(|_| {
                let message = format!("\"{}\" is not a network", text.escape_debug());
                let remedy = "write it like 10.1.0.0/16, the bits beyond being zero";
                let path = format!("egress.allow[{n}]");
                Error::from(self.document.problem(&path, message, remedy))
            })
        };
        let networks = told.iter().enumerate().map(read);
        Ok(Egress::new(networks.collect::<Result<_, _>>()?))
    }

    /// Where files of credentials lie that may be named over the API.
    pub(super) fn credentials_dir(&self, data_dir: &Path) -> Result<PathBuf, Error> {
        match self.settings.credentials_dir.as_deref() {
            None => Ok(data_dir.join("credentials")),
            Some("") => {
                let message = "the directory is empty text";
                let remedy = "name a directory; is its variable set?";
                Err(self.document.problem("credentials_dir", message, remedy).into())
            }
            Some(named) => Ok(PathBuf::from(named)),
        }
    }

    pub(super) fn sealing_keys(&self) -> Result<SealingKeys, Error> {
        let given = self.environment.get(MASTER_KEY).unwrap_or_default();
        let texts = given.split(',').filter(|text| !text.trim().is_empty());
        let read = |text: &str| seal::master_key(&Secret::new(text.to_owned()));
        let masters: Result<Vec<_>, _> = texts.map(read).collect();
        let masters = masters.ok().filter(|masters| masters.len() <= MASTER_KEYS_MAX);
        let masters = masters.ok_or_else(|| {
            let message = "it is not 32 bytes in base64, nor a few of those with commas between them";
            wrong(MASTER_KEY, message, "take the output of: openssl rand -base64 32")
        })?;
        let public = self.environment.get(PUBLIC_KEY).map(str::parse::<PublicKey>);
        let public = public.transpose().map_err(|_| {
            let remedy = "take the output of: waybill keys public, where the master key is";
            wrong(PUBLIC_KEY, "it is not 32 bytes in base64", remedy)
        })?;
        if let (Some(master), Some(public)) = (masters.first(), &public)
            && PrivateKey::of_master(master).public() != public
        {
            let message =
                "it is not the public key of WAYBILL_MASTER_KEY: what is sealed to it could not be opened";
            return Err(wrong(PUBLIC_KEY, message, "unset it: it follows from the other"));
        }
        Ok(SealingKeys {
            masters,
            public,
            pools: self.pool_keys()?,
        })
    }

    fn pool_keys(&self) -> Result<BTreeMap<PoolName, PublicKey>, Error> {
        let mut keys = BTreeMap::new();
        for (name, told) in &self.settings.pools {
            let path = format!("pools.{name}");
            if !is_pool(name) || name == UNNAMED {
                let message = format!("\"{}\" is not the name of a pool", name.escape_debug());
                let remedy = "use letters, digits, hyphens and underscores, at most 63; what names no pool is sealed to \
                              WAYBILL_PUBLIC_KEY";
                return Err(self.document.problem(&path, &message, remedy).into());
            }
            let Some(text) = &told.public_key else {
                continue;
            };
            let key = text.parse::<PublicKey>().map_err(|_| {
                let path = format!("{path}.public_key");
                let remedy = "take the output of: waybill keys public, where the pool's master key is";
                Error::from(
                    self.document
                        .problem(&path, "it is not 32 bytes in base64", remedy),
                )
            })?;
            keys.insert(PoolName::from(name.as_str()), key);
        }
        Ok(keys)
    }
}

fn wrong(variable: &str, message: &str, remedy: &str) -> Error {
    Error::Wrong(Problem {
        file: "environment".to_owned(),
        line: 0,
        path: variable.to_owned(),
        message: message.to_owned(),
        remedy: remedy.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::config::{Config, testing};

    const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";
    const OLDER: &str = "BgYGBgYGBgYGBgYGBgYGBgYGBgYGBgYGBgYGBgYGBgY";

    fn loaded(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        testing::loaded(yaml, variables).map_err(|problem| problem.to_string())
    }

    #[test]
    fn networks_that_are_allowed_are_read_and_what_is_none_is_named_with_its_place() {
        let permits = |yaml: &str, address: &str| {
            let address: IpAddr = address.parse().expect("an address");
            loaded(yaml, &[])
                .expect("a configuration")
                .egress
                .permits(address)
        };

        assert!(!permits("", "127.0.0.1") && !permits("egress: { allow: [] }", "10.0.0.1"));
        let yaml = "egress: { allow: [\"127.0.0.0/8\", \"fd00::/8\"] }";
        assert!(permits(yaml, "127.0.0.1") && permits(yaml, "fd00::1") && !permits(yaml, "10.0.0.1"));
        let wrong = "listen: 127.0.0.1:0\negress:\n  allow:\n    - 10.0.0.0/8\n    - 10.0.0.1/8\n";
        let told = loaded(wrong, &[]).expect_err("no network");
        assert!(told.contains("egress.allow[1]") && told.contains(":5"), "{told}");
    }

    #[test]
    fn what_is_sealed_to_for_a_pool_stands_in_the_file_and_what_is_no_key_or_no_pool_is_named() {
        let of = |yaml: &str| loaded(yaml, &[]).map(|config| config.sealing.pools.len());
        let key = MASTER;
        assert_eq!(
            of(&format!(
                "pools: {{ gpu: {{ public_key: \"{key}\" }}, other: {{}} }}"
            )),
            Ok(1)
        );
        for (yaml, place) in [
            ("pools:\n  gpu:\n    public_key: x\n", "pools.gpu.public_key"),
            ("pools:\n  a.b: {}\n", "pools.a.b"),
            ("pools:\n  default: {}\n", "pools.default"),
        ] {
            let told = of(yaml).expect_err(yaml);
            assert!(told.contains(place), "{told}");
        }
    }

    #[test]
    fn files_of_credentials_lie_in_one_directory_which_has_a_name() {
        let of = |yaml: &str| loaded(yaml, &[]).map(|config| config.credentials_dir);
        assert_eq!(of("data_dir: /var/lib/w"), Ok("/var/lib/w/credentials".into()));
        assert_eq!(of("credentials_dir: /run/secrets"), Ok("/run/secrets".into()));
        let told = of("credentials_dir: \"\"").expect_err("no name");
        assert!(told.contains("credentials_dir"), "{told}");
    }

    #[test]
    fn master_keys_are_read_in_order_and_never_shown() {
        let several = format!("{MASTER},{OLDER}");
        let config = loaded("", &[(MASTER_KEY, &several)]).expect("a configuration");

        let masters: Vec<_> = config.sealing.masters.iter().map(Secret::reveal).collect();
        assert_eq!(masters, [&[5; 32], &[6; 32]]);
        assert!(
            !format!("{:?}", config.sealing).contains('5'),
            "{:?}",
            config.sealing
        );
        assert!(
            loaded("", &[])
                .expect("a configuration")
                .sealing
                .masters
                .is_empty()
        );
    }

    #[test]
    fn what_is_no_key_is_named_and_not_quoted() {
        for text in ["canary", "c2hvcnQ=", &format!("{MASTER},canary")] {
            let told = loaded("", &[(MASTER_KEY, text)]).expect_err("no key");
            assert!(told.contains(MASTER_KEY) && !told.contains("canary"), "{told}");
        }
        let told = loaded("", &[(PUBLIC_KEY, "canary")]).expect_err("no key");
        assert!(told.contains(PUBLIC_KEY) && !told.contains("canary"), "{told}");
    }

    #[test]
    fn a_public_key_that_is_not_the_master_keys_own_is_refused() {
        let own = PrivateKey::of_master(&Secret::new([5; KEY_BYTES]))
            .public()
            .to_string();
        let other = PrivateKey::of_master(&Secret::new([6; KEY_BYTES]))
            .public()
            .to_string();

        assert!(loaded("", &[(MASTER_KEY, MASTER), (PUBLIC_KEY, &own)]).is_ok());
        let told = loaded("", &[(MASTER_KEY, MASTER), (PUBLIC_KEY, &other)]).expect_err("another");
        assert!(
            told.contains("not the public key of WAYBILL_MASTER_KEY"),
            "{told}"
        );
        let alone = loaded("", &[(PUBLIC_KEY, &other)]).expect("a configuration");
        assert_eq!(alone.sealing.public.map(|key| key.to_string()), Some(other));
    }
}
