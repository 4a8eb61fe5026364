//! What the nodes of a cluster must have in common. The first node writes it into the catalogue's bucket, every later
//! one compares: a gateway with another secret would know no key, and one of another cluster would mix two catalogues.

use bus::{BusError, Expected, Kv};
use bytes::Bytes;
use schemas::secret::Secret;
use schemas::subject::{CATALOG_BUCKET, catalog};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::patience::Passing;

/// What the check of the secret is a digest of: no key can be this text, since a key has no space.
const CHECKED: &str = "waybill cluster";

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Agreement {
    /// The cluster's name.
    cluster: String,
    /// A digest by which the gateways' secret is recognized, `None` before the first gateway.
    #[serde(default)]
    secret_check: Option<String>,
    /// Time zone of billing days.
    billing_tz: String,
    /// An operator key was made because there was none.
    #[serde(default)]
    first_key: bool,
}

/// What this node says.
#[derive(Debug, Clone)]
pub struct Own<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// Time zone of billing days.
    pub billing_tz: &'a str,
    /// The gateways' secret, `None` on a node that has no use for it.
    pub secret: Option<&'a Secret<Vec<u8>>>,
}

/// A node does not belong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is of another cluster.
    #[error(
        "the cluster on this bus is called \"{theirs}\", and this node is of \"{ours}\"; write cluster: {theirs}, or join \
         another bus"
    )]
    Cluster {
        /// The cluster's name.
        theirs: String,
        /// The node's.
        ours: String,
    },
    /// Its secret is another one.
    #[error(
        "API_KEY_SECRET is not the secret that the keys of this cluster are known by; set the same on every gateway"
    )]
    Secret,
    /// The record cannot be read or written.
    #[error("what the nodes of the cluster agree on cannot be read or written")]
    Bus(#[from] BusError),
    /// The record is not one.
    #[error("what the nodes of the cluster agree on does not parse")]
    Record(#[from] serde_json::Error),
}

impl Error {
    /// True when the node is refused, rather than the bus away.
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Cluster { .. } | Self::Secret)
    }
}

impl Passing for Error {
    fn passes(&self) -> bool {
        matches!(self, Self::Bus(problem) if problem.passes())
    }
}

/// Joins the cluster, or makes it: [`Error::Bus`] with [`BusError::Conflict`] when another node came in between.
pub async fn join(kv: &dyn Kv, own: &Own<'_>) -> Result<(), Error> {
    let (found, expected) = read(kv).await?;
    if let Some(next) = joined(found, own)? {
        write(kv, &next, expected).await?;
    }
    Ok(())
}

/// Refuses a secret that is not the cluster's: a key made with it would open nothing.
pub async fn check_secret(kv: &dyn Kv, secret: &Secret<Vec<u8>>) -> Result<(), Error> {
    let (found, _) = read(kv).await?;
    match found.and_then(|found| found.secret_check) {
        Some(theirs) if theirs != check(secret) => Err(Error::Secret),
        _ => Ok(()),
    }
}

/// Takes the right to make the first operator key: given once in the life of a cluster.
pub async fn claim_first_key(kv: &dyn Kv) -> Result<bool, Error> {
    match read(kv).await? {
        (Some(mut found), expected) if !found.first_key => {
            found.first_key = true;
            write(kv, &found, expected).await?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The record as it has to be with this node in it, `None` when it is so already.
fn joined(found: Option<Agreement>, own: &Own<'_>) -> Result<Option<Agreement>, Error> {
    let check = own.secret.map(check);
    let Some(mut found) = found else {
        return Ok(Some(Agreement {
            cluster: own.cluster.to_owned(),
            secret_check: check,
            billing_tz: own.billing_tz.to_owned(),
            first_key: false,
        }));
    };
    if found.cluster != own.cluster {
        return Err(Error::Cluster {
            theirs: found.cluster,
            ours: own.cluster.to_owned(),
        });
    }
    if found.billing_tz != own.billing_tz {
        warn!(
            cluster = found.billing_tz,
            node = own.billing_tz,
            "this node ends its billing days in another time zone than the cluster"
        );
    }
    match (&found.secret_check, check) {
        (Some(theirs), Some(ours)) if *theirs != ours => Err(Error::Secret),
        (None, Some(ours)) => {
            found.secret_check = Some(ours);
            Ok(Some(found))
        }
        _ => Ok(None),
    }
}

fn check(secret: &Secret<Vec<u8>>) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    URL_SAFE_NO_PAD.encode(gateway::caller::digest(secret.reveal(), CHECKED))
}

async fn read(kv: &dyn Kv) -> Result<(Option<Agreement>, Expected), Error> {
    let Some(entry) = kv.get(CATALOG_BUCKET, catalog::CLUSTER).await? else {
        return Ok((None, Expected::Absent));
    };
    let found = entry.value.as_deref().map(serde_json::from_slice).transpose()?;
    Ok((found, Expected::Revision(entry.revision)))
}

async fn write(kv: &dyn Kv, record: &Agreement, expected: Expected) -> Result<(), Error> {
    let value = Bytes::from(serde_json::to_vec(record)?);
    kv.put(CATALOG_BUCKET, catalog::CLUSTER, value, expected).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bus::clock::SystemClock;
    use bus::embedded::{Embedded, Options};

    use super::*;

    fn own<'a>(cluster: &'a str, secret: Option<&'a Secret<Vec<u8>>>) -> Own<'a> {
        Own {
            cluster,
            billing_tz: "UTC",
            secret,
        }
    }

    #[tokio::test]
    async fn nodes_with_the_same_name_and_secret_join_and_others_are_refused() {
        let directory = tempfile::tempdir().expect("directory");
        let clock = Arc::new(SystemClock::new());
        let kv = Embedded::open(directory.path(), Options::default(), clock).expect("open");
        let (right, wrong) = (Secret::new(vec![1; 32]), Secret::new(vec![2; 32]));

        join(&*kv, &own("a", None))
            .await
            .expect("a router makes the cluster");
        join(&*kv, &own("a", Some(&right)))
            .await
            .expect("the first gateway");
        let before = kv.get(CATALOG_BUCKET, catalog::CLUSTER).await.expect("get");
        join(&*kv, &own("a", Some(&right)))
            .await
            .expect("the second gateway");
        join(&*kv, &own("a", None)).await.expect("a second router");

        assert_eq!(
            kv.get(CATALOG_BUCKET, catalog::CLUSTER).await.expect("get"),
            before
        );
        let secret = join(&*kv, &own("a", Some(&wrong)))
            .await
            .expect_err("another secret");
        assert!(matches!(secret, Error::Secret) && secret.refuses());
        let name = join(&*kv, &own("b", Some(&right)))
            .await
            .expect_err("another name");
        assert!(name.to_string().contains("cluster: a"), "{name}");
    }

    #[tokio::test]
    async fn the_right_to_the_first_key_is_given_once() {
        let directory = tempfile::tempdir().expect("directory");
        let clock = Arc::new(SystemClock::new());
        let kv = Embedded::open(directory.path(), Options::default(), clock).expect("open");
        assert!(!claim_first_key(&*kv).await.expect("before there is a cluster"));
        join(&*kv, &own("a", None)).await.expect("join");

        let claims = tokio::join!(claim_first_key(&*kv), claim_first_key(&*kv));

        let won = [claims.0, claims.1]
            .into_iter()
            .filter(|claim| matches!(claim, Ok(true)))
            .count();
        assert_eq!(won, 1);
        assert!(!claim_first_key(&*kv).await.expect("claim"));
    }
}
