//! What the replicas of an endpoint are called: circuits, sessions and rows know them by these names. And which secrets are
//! theirs.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Backend, CredentialRef, hex};
use crate::id::{BackendId, EndpointId};

/// Characters of what tells replicas of one endpoint apart.
const DIGITS: usize = 8;

/// The replicas of an endpoint, in the order of their addresses. One alone bears the endpoint's name; each of several has
/// a name that comes of its address, so that it is called the same whoever joins or leaves.
pub fn replicas(endpoint: &EndpointId, base_urls: &[String]) -> Vec<Backend> {
    let mut replicas: Vec<Backend> = Vec::with_capacity(base_urls.len());
    for base_url in base_urls {
        let id = if base_urls.len() == 1 {
            BackendId::new(Arc::clone(&endpoint.0))
        } else {
            let is_free = |id: &BackendId| replicas.iter().all(|known| known.id != *id);
            let mut names = (0..).map(|salt| name(endpoint, base_url, salt));
            // There are more salts than replicas.
            names
                .find(is_free)
                .unwrap_or_else(|| BackendId::new(Arc::clone(&endpoint.0)))
        };
        replicas.push(Backend {
            id,
            base_url: base_url.clone(),
        });
    }
    replicas
}

/// A name that comes of an address; `salt` counts the names before it that another replica has.
fn name(endpoint: &EndpointId, base_url: &str, salt: u32) -> BackendId {
    let mut hash = Sha256::new();
    hash.update(base_url.as_bytes());
    if salt > 0 {
        hash.update(salt.to_be_bytes());
    }
    BackendId::new(format!("{endpoint}#{}", digits(hash)))
}

/// The place in a router's book of a secret that files give: what the catalogue calls it, and the addresses that it is
/// meant for. While another address takes the place of one, neither is sent what is meant for the other.
pub fn meant_for(reference: &CredentialRef, replicas: &[Backend]) -> CredentialRef {
    let mut hash = Sha256::new();
    for replica in replicas {
        hash.update(replica.base_url.as_bytes());
        hash.update(b"\n");
    }
    CredentialRef(format!("{}@{}", reference.0, digits(hash)))
}

fn digits(hash: Sha256) -> String {
    let mut digits = hex(&hash.finalize());
    digits.truncate(DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(urls: &[&str]) -> Vec<String> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let named = replicas(&EndpointId::from("e"), &urls);
        assert!(named.iter().map(|one| &one.base_url).eq(&urls));
        named.iter().map(|one| one.id.to_string()).collect()
    }

    #[test]
    fn replicas_keep_their_names_whoever_joins_or_leaves() {
        let (one, two, three) = (
            "http://10.0.0.1:8000",
            "http://10.0.0.2:8000",
            "http://10.0.0.3:8000",
        );

        let all = named(&[one, two, three]);

        assert_eq!(all[0], "e#3a8c9b14");
        assert_eq!(named(&[two, three]), all[1..]);
        assert_eq!(named(&[three, one]), [all[2].clone(), all[0].clone()]);
        assert_eq!(named(&[one]), ["e"], "one alone bears the endpoint's name");
    }

    #[test]
    fn a_secret_is_meant_for_its_addresses_and_no_others() {
        let of = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let replicas = replicas(&EndpointId::from("e"), &urls);
            meant_for(&CredentialRef("e#0".to_owned()), &replicas).0
        };

        assert_eq!(of(&["http://h:1"]), of(&["http://h:1"]));
        assert_ne!(of(&["http://h:1"]), of(&["http://h:2"]));
        assert_ne!(of(&["http://h:1"]), of(&["http://h:1", "http://h:2"]));
        assert!(of(&["http://h:1"]).starts_with("e#0@"));
    }

    #[test]
    fn no_two_replicas_are_called_the_same() {
        let twice = named(&["http://h:1", "http://h:1", "http://h:2"]);

        let both = named(&["http://h:1", "http://h:2"]);
        assert_eq!((&twice[0], &twice[2]), (&both[0], &both[1]));
        assert!(!both.contains(&twice[1]), "{twice:?}");
    }
}
