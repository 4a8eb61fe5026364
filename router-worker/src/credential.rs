//! The router's own book of secrets: what a reference in the catalogue stands for, and the keys that open what is
//! sealed there. Only routers have either.

pub(crate) mod google;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use schemas::catalog::replica::meant_for;
use schemas::catalog::{CredentialRef, Endpoint, Origin};
use schemas::seal::{Context, OpenError, PrivateKey, Sealed};
use schemas::secret::Secret;

/// Secrets by reference.
pub(crate) type Book = HashMap<CredentialRef, Arc<Secret<String>>>;

/// Finds what endpoints refer to that were registered at run time: it is on the router's machine, in no file of
/// models.
pub type Machine = Box<dyn Fn(&CredentialRef) -> Option<Secret<String>> + Send + Sync>;

/// Upstream credentials by reference, and what opens sealed ones. They may be changed while requests run.
#[derive(Default)]
pub struct Credentials {
    book: RwLock<Arc<Book>>,
    /// Tried in order.
    keys: Vec<PrivateKey>,
    machine: Option<Machine>,
}

/// A sealed credential, and what came of it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) sealed: Sealed,
    context: Context,
    pub(crate) secret: Result<Arc<Secret<String>>, OpenError>,
}

impl Opened {
    /// What operators know it by.
    pub(crate) fn reference(&self) -> CredentialRef {
        CredentialRef(self.sealed.name())
    }
}

impl Credentials {
    /// A book of these entries.
    pub fn new(book: HashMap<CredentialRef, Secret<String>>) -> Self {
        Self {
            book: RwLock::new(Arc::new(shared(book))),
            ..Self::default()
        }
    }

    /// The same with keys for sealed credentials, the newest first.
    #[must_use]
    pub fn opening(mut self, keys: Vec<PrivateKey>) -> Self {
        self.keys = keys;
        self
    }

    /// The same with what the machine has.
    #[must_use]
    pub fn referring(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// The secret of a reference; `None` when it is not in the book.
    pub fn get(&self, reference: &CredentialRef) -> Option<Arc<Secret<String>>> {
        self.book.read().get(reference).cloned()
    }

    /// The book as it is now; another one once anything in it has changed.
    pub(crate) fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read())
    }

    /// The secret that an endpoint refers to. What files hold is for their own endpoints at the addresses that they give
    /// them: whoever registers one at run time names none of it. One that is kept for no address in particular is for any.
    pub(crate) fn referred(
        &self,
        endpoint: &Endpoint,
        book: &Book,
        reference: &CredentialRef,
    ) -> Option<Arc<Secret<String>>> {
        match endpoint.origin {
            Origin::File => {
                let meant = book.get(&meant_for(reference, &endpoint.backends));
                meant.or_else(|| book.get(reference)).cloned()
            }
            Origin::Runtime => self.machine.as_ref()?(reference).map(Arc::new),
        }
    }

    /// What is sealed for an endpoint, opened; what was opened before for the same is not opened again.
    pub(crate) fn open(&self, endpoint: &Endpoint, before: &[Opened]) -> Vec<Opened> {
        if endpoint.sealed.is_empty() {
            return Vec::new();
        }
        let context = Context::of(endpoint);
        let open = |sealed: &Sealed| Opened {
            secret: before
                .iter()
                .find(|known| known.sealed == *sealed && known.context == context)
                .map_or_else(|| self.unsealed(&context, sealed), |known| known.secret.clone()),
            sealed: sealed.clone(),
            context: context.clone(),
        };
        endpoint.sealed.iter().map(open).collect()
    }

    fn unsealed(&self, context: &Context, sealed: &Sealed) -> Result<Arc<Secret<String>>, OpenError> {
        let fits = |key: &&PrivateKey| sealed.is_for(key.public());
        let key = self.keys.iter().find(fits).ok_or(OpenError::OtherKey)?;
        let bytes = key.open(context, sealed)?;
        let text = std::str::from_utf8(bytes.reveal()).map_err(|_| OpenError::Malformed)?;
        Ok(Arc::new(Secret::new(text.to_owned())))
    }

    /// Takes entries over, in the place of those of the same reference.
    pub fn add(&self, entries: HashMap<CredentialRef, Secret<String>>) {
        let mut held = self.book.write();
        let mut book = Book::clone(&held);
        book.extend(shared(entries));
        *held = Arc::new(book);
    }

    /// Forgets every entry whose reference is none of `references`.
    pub fn retain(&self, references: &HashSet<CredentialRef>) {
        let mut held = self.book.write();
        let mut book = Book::clone(&held);
        book.retain(|reference, _| references.contains(reference));
        *held = Arc::new(book);
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("references", &self.book.read().len())
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

fn shared(book: HashMap<CredentialRef, Secret<String>>) -> Book {
    let entries = book.into_iter();
    entries
        .map(|(reference, secret)| (reference, Arc::new(secret)))
        .collect()
}

impl FromIterator<(CredentialRef, Secret<String>)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (CredentialRef, Secret<String>)>>(entries: I) -> Self {
        Self::new(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
