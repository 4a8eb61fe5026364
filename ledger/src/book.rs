//! One step of the books: what records change, given what is there, written in one transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::coverage::Coverage;
use crate::fold;
use crate::record::{Fact, Record};
use crate::store::{Applied, Batch, Cursor, Store, StoreError};

/// Folds and applies `records`, moving the cursor from the first to the second of `cursors`. `coverage` is what
/// is kept once this is done. After an error nothing has changed, and the same call may be made again.
pub(crate) async fn book(
    store: &dyn Store,
    records: &[Record],
    coverage: &Coverage,
    cursors: (Option<Cursor>, Cursor),
) -> Result<Applied, StoreError> {
    let sources: BTreeSet<&Arc<str>> = records.iter().flat_map(sources).collect();
    let marks = sources
        .into_iter()
        .map(|source| (Arc::clone(source), coverage.mark(source)))
        .collect();
    let (expected, next) = cursors;
    let batch = Batch {
        expected,
        next,
        records,
        fold: fold::fold,
        marks,
    };
    store.apply(&batch).await
}

/// The sources whose marks a record may move.
fn sources(record: &Record) -> impl Iterator<Item = &Arc<str>> {
    let own = Some(&record.source).filter(|source| !source.is_empty());
    let lost = match &record.fact {
        Fact::Lost { source, .. } => Some(source),
        _ => None,
    };
    own.into_iter().chain(lost)
}
