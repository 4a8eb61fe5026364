//! The pools of all endpoints, kept in step with the catalogue: an endpoint whose record changed is read again at its
//! next request.

use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use schemas::catalog::{Catalog, CredentialRef, Endpoint, Role};
use schemas::id::EndpointId;
use schemas::seal::OpenError;
use schemas::secret::Secret;

use crate::credential::{Book, Credentials, Opened};
use crate::fault::Flaw;
use crate::metrics::{KeyEvent, Metrics};

use super::{Alarm, Asker, Consequence, Declaration, Held, Lack, Lease, Pool};

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
    /// Nothing that it declares can be had.
    empty: bool,
    /// What came of its sealed credentials.
    opened: Vec<Opened>,
    /// What operators have not been told of that.
    news: Vec<News>,
}

/// What operators are to be told of a sealed credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct News {
    /// Which one.
    pub(crate) reference: CredentialRef,
    /// Why it does not open; `None` where it does, after it did not.
    pub(crate) problem: Option<OpenError>,
}

/// What an endpoint has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Declared {
    /// It wants no credential.
    Keyless,
    /// Use this one.
    Key(Held),
    /// It wants one, and there is none for this request now.
    Lacking(Lack),
    /// It wants one, and the router has none of them.
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
        if endpoint.is_keyless() {
            return Declared::Keyless;
        }
        self.with(endpoint, credentials, |entry| {
            if entry.empty {
                return Declared::Unknown;
            }
            match entry.pool.acquire(asker, tried, now_ms) {
                Ok(lease) => entry.pool.held(lease).map_or(Declared::Unknown, Declared::Key),
                Err(lack) => Declared::Lacking(lack),
            }
        })
    }

    /// The first credential of an endpoint, whatever became of it.
    pub(crate) fn first(&self, endpoint: &Arc<Endpoint>, credentials: &Credentials) -> Declared {
        if endpoint.is_keyless() {
            return Declared::Keyless;
        }
        self.with(endpoint, credentials, |entry| {
            entry.pool.first().map_or(Declared::Unknown, Declared::Key)
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

    /// What operators have not been told of the sealed credentials of an endpoint.
    pub(crate) fn news(&self, endpoint: &EndpointId) -> Vec<News> {
        let entry = self.entries.get(endpoint);
        entry.map_or_else(Vec::new, |entry| std::mem::take(&mut entry.lock().news))
    }

    /// Forgets the credentials of endpoints that are gone.
    pub(crate) fn prune(&self, catalog: &Catalog) {
        self.entries.retain(|id, _| catalog.endpoint(id).is_some());
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
                opened: Vec::new(),
                news: Vec::new(),
            };
            entry.declare(credentials);
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
        entry.declare(credentials);
    }
    entry
}

impl Entry {
    fn declare(&mut self, credentials: &Credentials) {
        let before = std::mem::take(&mut self.opened);
        self.opened = credentials.open(&self.endpoint, &before);
        self.news.extend(news(&before, &self.opened));
        let declarations = declarations(&self.endpoint, &self.opened, |reference| {
            credentials.referred(&self.endpoint, &self.book, reference)
        });
        self.empty = declarations.is_empty();
        self.pool.declare(declarations);
    }
}

/// What is new about sealed credentials: those that do not open and were not told, those that were told and open.
fn news(before: &[Opened], now: &[Opened]) -> Vec<News> {
    let known = |one: &Opened| {
        let same = before.iter().find(|known| known.sealed == one.sealed);
        same.and_then(|known| known.secret.as_ref().err().copied())
    };
    let changed = now.iter().filter_map(|one| {
        let problem = one.secret.as_ref().err().copied();
        (problem != known(one)).then(|| News {
            reference: one.reference(),
            problem,
        })
    });
    changed.collect()
}

/// What an endpoint declares, as far as it can be had: what it refers to, then what is sealed. A secret that is
/// declared twice is one credential, kept for the highest of the roles.
fn declarations(
    endpoint: &Endpoint,
    opened: &[Opened],
    referred: impl Fn(&CredentialRef) -> Option<Arc<Secret<String>>>,
) -> Vec<Declaration> {
    let references = endpoint.credentials.iter();
    let references = references.map(|reference| (reference.clone(), referred(reference)));
    let sealed = opened
        .iter()
        .map(|one| (one.reference(), one.secret.as_ref().ok().cloned()));
    let mut found: Vec<Declaration> = Vec::with_capacity(endpoint.credentials.len() + opened.len());
    for (place, (reference, secret)) in references.chain(sealed).enumerate() {
        let Some(secret) = secret else {
            continue;
        };
        let role = endpoint
            .credential_roles
            .get(place)
            .copied()
            .unwrap_or(Role::Free);
        let same = |known: &&mut Declaration| known.secret == secret;
        if let Some(known) = found.iter_mut().find(same) {
            known.role = known.role.max(role);
            continue;
        }
        found.push(Declaration {
            reference,
            secret,
            place,
            role,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use schemas::id::TenantId;

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
            Declared::Key(held) => held.declaration.place,
            other => panic!("no key: {other:?}"),
        }
    }

    #[test]
    fn a_secret_that_is_declared_twice_is_one_credential_of_the_highest_role() {
        let book = book();
        let declared = declarations(
            &keyed(&["a", "b", "c"], &[Role::Free, Role::Free, Role::Pro]),
            &[],
            |reference| book.get(reference),
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
            Declared::Key(held) => Some(held.lease),
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
