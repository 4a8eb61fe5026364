//! The router's own book of secrets: what a reference in the catalogue stands for. Only routers have it.

pub(crate) mod google;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use schemas::catalog::CredentialRef;
use schemas::secret::Secret;

/// Secrets by reference.
pub(crate) type Book = HashMap<CredentialRef, Arc<Secret<String>>>;

/// Upstream credentials by reference. They may be changed while requests run: each attempt reads them anew.
#[derive(Debug, Default)]
pub struct Credentials {
    book: RwLock<Arc<Book>>,
}

impl Credentials {
    /// A book of these entries.
    pub fn new(book: HashMap<CredentialRef, Secret<String>>) -> Self {
        Self {
            book: RwLock::new(Arc::new(shared(book))),
        }
    }

    /// The secret of a reference; `None` when it is not in the book.
    pub fn get(&self, reference: &CredentialRef) -> Option<Arc<Secret<String>>> {
        self.book.read().get(reference).cloned()
    }

    /// The book as it is now; another one once anything in it has changed.
    pub(crate) fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read())
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
