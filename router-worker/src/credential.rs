//! The router's own book of secrets: what a reference in the catalogue stands for. Only routers have it.

pub(crate) mod google;

use std::collections::HashMap;

use schemas::catalog::CredentialRef;
use schemas::secret::Secret;

/// Upstream credentials by reference.
#[derive(Debug, Default)]
pub struct Credentials {
    book: HashMap<CredentialRef, Secret<String>>,
}

impl Credentials {
    /// A book of these entries.
    pub const fn new(book: HashMap<CredentialRef, Secret<String>>) -> Self {
        Self { book }
    }

    /// The secret of a reference; `None` when it is not in the book.
    pub fn get(&self, reference: &CredentialRef) -> Option<&Secret<String>> {
        self.book.get(reference)
    }
}

impl FromIterator<(CredentialRef, Secret<String>)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (CredentialRef, Secret<String>)>>(entries: I) -> Self {
        Self::new(entries.into_iter().collect())
    }
}
