//! The Store port: where the books are kept.

pub mod sqlite;

use async_trait::async_trait;

/// Where the books are kept.
#[async_trait]
pub trait Store: Send + Sync {
    /// True when the database answers.
    async fn healthy(&self) -> bool;
}

/// Why the database did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away or busy: try again.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// The directory cannot be used.
    #[error("the database's directory cannot be used")]
    Directory(#[source] std::io::Error),
}
