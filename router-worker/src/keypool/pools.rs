//! The pools of all endpoints, kept in step with the catalogue: an endpoint whose record changed is read again at its
//! next request.

use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::catalog::{CredentialRef, Endpoint, Role};
use schemas::id::EndpointId;

use crate::credential::{Book, Credentials};
use crate::fault::Flaw;
use crate::metrics::{KeyEvent, Metrics};

use super::{Alarm, Asker, Consequence, Declaration, Lack, Lease, Pool};

/// Endpoints that are remembered; beyond, all are forgotten.
const POOLS_MAX: usize = 10_000;

/// The pools of a router.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    entries: DashMap<EndpointId, Mutex<Entry>>,
}

#[derive(Debug)]
struct Entry {
    endpoint: Arc<Endpoint>,
    book: Arc<Book>,
    pool: Pool,
    /// None of the references is in the book.
    empty: bool,
}

/// What an endpoint has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    /// It wants no credential.
    Keyless,
    /// Use this one.
    Key(Lease),
    /// It wants one, and there is none for this request now.
    Lacking(Lack),
    /// It wants one, and the router's book has none of them.
    Unknown,
}

impl Pools {
    /// The credential for the next attempt at an endpoint.
    pub(crate) fn acquire(
        &self,
        (endpoint, credentials): (&Arc<Endpoint>, &Credentials),
        asker: &Asker,
        tried: &[Lease],
        now_ms: u64,
    ) -> Declared {
        if endpoint.credentials.is_empty() {
            return Declared::Keyless;
        }
        self.with(endpoint, credentials, |entry| {
            if entry.empty {
                return Declared::Unknown;
            }
            match entry.pool.acquire(asker, tried, now_ms) {
                Ok(lease) => Declared::Key(lease),
                Err(lack) => Declared::Lacking(lack),
            }
        })
    }

    /// True when a request that has tried some credentials may try another.
    pub(crate) fn has_other(
        &self,
        endpoint: &EndpointId,
        asker: &Asker,
        tried: &[Lease],
        now_ms: u64,
    ) -> bool {
        let entry = self.entries.get(endpoint);
        entry.is_some_and(|entry| entry.lock().pool.has_other(asker, tried, now_ms))
    }

    /// An attempt with the credential went well. Gives its name where an operator was told that it is refused.
    pub(crate) fn succeeded(
        &self,
        (endpoint, metrics): (&EndpointId, &Metrics),
        lease: Lease,
    ) -> Option<CredentialRef> {
        let entry = self.entries.get(endpoint)?;
        let mut entry = entry.lock();
        let accepted = entry.pool.succeeded(lease)?;
        metrics.refused_keys(endpoint, entry.pool.alarmed());
        Some(accepted)
    }

    /// An attempt with the last of the credentials `tried` failed for a reason that may lie in it. Gives what an
    /// operator is to be told.
    pub(crate) fn failed(
        &self,
        (endpoint, metrics): (&EndpointId, &Metrics),
        asker: &Asker,
        tried: &[Lease],
        (flaw, now_ms): (Flaw, u64),
    ) -> Option<Alarm> {
        let entry = self.entries.get(endpoint)?;
        let mut entry = entry.lock();
        match entry.pool.failed(asker, tried, flaw, now_ms) {
            Consequence::Free => {}
            Consequence::Last => metrics.key(endpoint, KeyEvent::Last),
            Consequence::Muted => metrics.key(endpoint, KeyEvent::Muted),
        }
        if flaw != Flaw::Refused {
            return None;
        }
        metrics.key(endpoint, KeyEvent::Refused);
        let alarm = entry.pool.alarm(*tried.last()?, now_ms)?;
        metrics.refused_keys(endpoint, entry.pool.alarmed());
        Some(alarm)
    }

    fn with<T>(
        &self,
        endpoint: &Arc<Endpoint>,
        credentials: &Credentials,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> T {
        if let Some(entry) = self.entries.get(&endpoint.id) {
            return act(current(&mut entry.lock(), endpoint, credentials));
        }
        if self.entries.len() >= POOLS_MAX {
            self.entries.clear();
        }
        let entry = self.entries.entry(endpoint.id.clone()).or_insert_with(|| {
            let mut entry = Entry {
                endpoint: Arc::clone(endpoint),
                book: credentials.book(),
                pool: Pool::default(),
                empty: false,
            };
            entry.declare();
            Mutex::new(entry)
        });
        act(current(&mut entry.lock(), endpoint, credentials))
    }
}

/// The entry, as the endpoint and the book are now.
fn current<'e>(entry: &'e mut Entry, endpoint: &Arc<Endpoint>, credentials: &Credentials) -> &'e mut Entry {
    let book = credentials.book();
    if !Arc::ptr_eq(&entry.endpoint, endpoint) || !Arc::ptr_eq(&entry.book, &book) {
        entry.endpoint = Arc::clone(endpoint);
        entry.book = book;
        entry.declare();
    }
    entry
}

impl Entry {
    fn declare(&mut self) {
        let declarations = declarations(&self.endpoint, &self.book);
        self.empty = declarations.is_empty();
        self.pool.declare(declarations);
    }
}

/// What an endpoint declares, as far as the book knows it. A secret that is declared twice is one credential, kept for
/// the highest of the roles.
fn declarations(endpoint: &Endpoint, book: &Book) -> Vec<Declaration> {
    let mut found: Vec<Declaration> = Vec::with_capacity(endpoint.credentials.len());
    for (place, reference) in endpoint.credentials.iter().enumerate() {
        let Some(secret) = book.get(reference) else {
            continue;
        };
        let role = endpoint
            .credential_roles
            .get(place)
            .copied()
            .unwrap_or(Role::Free);
        let same = |known: &&mut Declaration| known.secret == *secret;
        if let Some(known) = found.iter_mut().find(same) {
            known.role = known.role.max(role);
            continue;
        }
        found.push(Declaration {
            reference: reference.clone(),
            secret: Arc::clone(secret),
            place,
            role,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use schemas::id::TenantId;
    use schemas::secret::Secret;

    use crate::testing::endpoint;

    use super::*;

    fn book() -> Credentials {
        [("a", "one"), ("b", "two"), ("c", "one")]
            .into_iter()
            .map(|(name, secret)| (CredentialRef(name.to_owned()), Secret::new(secret.to_owned())))
            .collect()
    }

    fn keyed(names: &[&str], roles: &[Role]) -> Arc<Endpoint> {
        let mut endpoint = endpoint("e", &["http://e"]);
        endpoint.credentials = names
            .iter()
            .map(|name| CredentialRef((*name).to_owned()))
            .collect();
        endpoint.credential_roles = roles.to_vec();
        Arc::new(endpoint)
    }

    fn asker(role: Role) -> Asker {
        Asker {
            tenant: TenantId::from("acme"),
            role,
        }
    }

    fn place(declared: Declared) -> usize {
        match declared {
            Declared::Key(lease) => lease.place,
            other => panic!("no key: {other:?}"),
        }
    }

    #[test]
    fn a_secret_that_is_declared_twice_is_one_credential_of_the_highest_role() {
        let declared = declarations(
            &keyed(&["a", "b", "c"], &[Role::Free, Role::Free, Role::Pro]),
            &book().book(),
        );

        assert_eq!(declared.len(), 2);
        assert_eq!((declared[0].place, declared[0].role), (0, Role::Pro));
        assert_eq!((declared[1].place, declared[1].role), (1, Role::Free));
    }

    #[test]
    fn endpoints_without_credentials_and_with_unknown_ones_are_told_apart() {
        let (pools, book) = (Pools::default(), book());
        let free = asker(Role::Free);

        let keyless = pools.acquire((&keyed(&[], &[]), &book), &free, &[], 0);
        let unknown = pools.acquire((&keyed(&["z"], &[]), &book), &free, &[], 0);

        assert_eq!(keyless, Declared::Keyless);
        assert_eq!(unknown, Declared::Unknown);
    }

    #[test]
    fn an_endpoint_that_changed_is_read_again() {
        let (pools, book) = (Pools::default(), book());
        let free = asker(Role::Free);

        assert_eq!(
            place(pools.acquire((&keyed(&["a", "b"], &[]), &book), &free, &[], 0)),
            0
        );
        let changed = keyed(&["z", "b"], &[]);
        assert_eq!(place(pools.acquire((&changed, &book), &free, &[], 0)), 1);
        let reserved = keyed(&["z", "b"], &[Role::Free, Role::Pro]);
        assert_eq!(
            pools.acquire((&reserved, &book), &free, &[], 0),
            Declared::Lacking(Lack::Reserved)
        );
    }

    #[test]
    fn a_secret_that_was_changed_is_another_credential_and_the_others_stay_what_they_were() {
        let (pools, book) = (Pools::default(), book());
        let (free, endpoint) = (asker(Role::Free), keyed(&["a", "b"], &[]));
        let lease = |tried: &[Lease]| match pools.acquire((&endpoint, &book), &free, tried, 0) {
            Declared::Key(lease) => Some(lease),
            _ => None,
        };
        let first = lease(&[]).expect("a credential");
        let second = lease(&[first]).expect("another");

        let changed = (CredentialRef("b".to_owned()), Secret::new("three".to_owned()));
        book.add([changed].into());
        assert_eq!(lease(&[]), Some(first));
        let third = lease(&[first]).expect("another");
        assert_eq!(third.place, second.place);
        assert_ne!(third, second);

        book.retain(&[CredentialRef("a".to_owned())].into());
        assert_eq!((lease(&[]), lease(&[first])), (Some(first), None));
    }
}
