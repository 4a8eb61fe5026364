//! Not tests but measurements: run them in release with `--ignored --nocapture`.

use super::tests::{connection, fresh, texts};
use super::*;
use crate::book::book;
use crate::fixture::{self, SOURCE, full, settled};
use crate::record::Record;

const EVENTS: u64 = 200_000;
const BATCH_EVENTS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn how_many_events_a_second_are_applied() {
    let (url, store) = fresh().await;
    let mut coverage = Coverage::default();
    let mut cursor = None;
    let (mut reading, mut writing) = (Duration::ZERO, Duration::ZERO);
    let mut bytes = 0;
    for first in (1..=EVENTS).step_by(BATCH_EVENTS) {
        let batch: Vec<bus::Stored> = (first..first + BATCH_EVENTS as u64).map(stored).collect();
        bytes += batch
            .iter()
            .map(|stored| stored.message.payload.len())
            .sum::<usize>();
        let begun = Instant::now();
        let records: Vec<Record> = batch.iter().map(Record::read).collect();
        for record in &records {
            record.cover(&mut coverage);
        }
        reading += begun.elapsed();
        let begun = Instant::now();
        let next = Cursor {
            stream_created: fixture::CREATED,
            sequence: records.last().expect("a record").sequence,
        };
        book(&store, &records, &coverage, (cursor, next))
            .await
            .expect("apply");
        cursor = Some(next);
        writing += begun.elapsed();
    }
    let begun = Instant::now();
    let rebuilt = store.rebuild().await.expect("rebuild");
    let rebuilding = begun.elapsed();
    let rate = |time: Duration| f64::from(u32::try_from(EVENTS).expect("small")) / time.as_secs_f64();
    let size = "SELECT string_agg(format('%s %s', relname, pg_size_pretty(pg_total_relation_size(oid))), ', ') \
         FROM pg_class WHERE relname IN ('event_log', 'api_logs_default', 'usage_rollup_default') \
         OR relname = 'api_logs_20261130'";
    let sizes = texts(&mut connection(&url).await, size).await.join("");
    let text = format!(
        "{:.0} events/s applied ({:.0}/s with reading), {} bytes each; rebuilt {} rows at {:.0}/s; {sizes}\n",
        rate(writing),
        rate(writing + reading),
        bytes / usize::try_from(EVENTS).expect("small"),
        rebuilt.rows,
        rate(rebuilding),
    );
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).expect("write");
}

/// An ordinary call, by one of 50 keys, for one of 8 models.
fn stored(n: u64) -> bus::Stored {
    let mut row = settled(n);
    row.key_id = format!("key-{}", n % 50).as_str().into();
    row.model = format!("org/model-{}", n % 8).as_str().into();
    row.attempts = full(n).attempts;
    row.prices = full(n).prices;
    fixture::stored(n, fixture::envelope(SOURCE, n, row))
}
