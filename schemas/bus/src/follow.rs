//! A snapshot of the catalogue that follows its bucket: every role reads its own copy in memory and never
//! the bucket. The fold is pure (`schemas::catalog`); this is the loop around it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use schemas::catalog::Catalog;
use schemas::subject::CATALOG_BUCKET;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::{BusError, Change, Kv};

/// The newest catalogue a node knows; cheap to clone and to read.
#[derive(Clone, Default)]
pub struct CatalogView {
    current: Arc<ArcSwap<Catalog>>,
}

impl CatalogView {
    /// The newest snapshot.
    pub fn load(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// A cheap guard on the newest snapshot, for code that does not keep it.
    pub fn peek(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.current.load()
    }
}

/// Keeps `view` at the newest catalogue until `shutdown`. `ready` is cancelled once the view holds all that was in
/// the bucket at the start.
pub async fn run(
    kv: Arc<dyn Kv>,
    view: CatalogView,
    ready: CancellationToken,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let mut changes = kv.watch(CATALOG_BUCKET).await?;
    let mut catalog = Catalog::default();
    let mut current = false;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = shutdown.cancelled() => return Ok(()),
        };
        match change {
            Some(Change::Entry(entry)) => apply(&mut catalog, &entry),
            Some(Change::Current) => current = true,
            None => {
                error!("the catalogue's watch ended");
                return Err(BusError::Closed);
            }
        }
        if current && changes.is_empty() {
            view.current.store(Arc::new(catalog.clone()));
            ready.cancel();
        }
    }
}

fn apply(catalog: &mut Catalog, entry: &crate::Entry) {
    if let Err(problem) = catalog.apply(entry.revision, &entry.key, entry.value.as_deref()) {
        warn!(
            record.revision = entry.revision,
            error = &problem as &dyn std::error::Error,
            "a catalogue record is left out"
        );
    }
}
