//! A rebuild without a running ledger: first the stream is read from its oldest for what the books do not have,
//! then rows and sums are computed from the raw envelopes in the books. The order makes no difference to the result.

use std::time::Duration;

use bus::{BATCH_MESSAGES_MAX, Bus, BusError};
use schemas::query::RebuildAnswer;

use crate::Error;
use crate::apply::resume_at;
use crate::book::book;
use crate::record::Record;
use crate::store::{Cursor, Store};

/// Rebuilds rows and sums and returns when all is done. No other ledger should be running on these books.
pub async fn run(store: &dyn Store, bus: &dyn Bus) -> Result<RebuildAnswer, Error> {
    read_stream(store, bus).await?;
    Ok(store.rebuild().await?)
}

/// Applies the whole stream. What is in the books already changes nothing.
async fn read_stream(store: &dyn Store, bus: &dyn Bus) -> Result<(), Error> {
    let log = bus.state().await?;
    let mut coverage = store.coverage().await?;
    let mut cursor = store.cursor().await?;
    let (_, mut reached) = resume_at(cursor, log);
    let mut from = log.first.max(1);
    loop {
        let stored = match bus.read(from, BATCH_MESSAGES_MAX, Duration::ZERO).await {
            Ok(stored) => stored,
            Err(BusError::Trimmed { first }) if first > from => {
                from = first;
                continue;
            }
            Err(problem) => return Err(problem.into()),
        };
        let Some(last) = stored.last().map(|stored| stored.sequence) else {
            return Ok(());
        };
        let records: Vec<Record> = stored.iter().map(Record::read).collect();
        for record in &records {
            record.cover(&mut coverage);
        }
        reached = reached.max(last);
        let next = Cursor {
            stream_created: log.created_at_micros,
            sequence: reached,
        };
        book(store, &records, &coverage, (cursor, next)).await?;
        cursor = Some(next);
        from = last + 1;
    }
}
