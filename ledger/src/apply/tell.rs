//! Telling spools and log how far they may forget: by marks in the KV bucket, one per source, by the cursor there, and
//! by the progress that the node follows. Nothing is told before it is on disk for good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::Expected;
use bus::publisher::LedgerCursor;
use bytes::Bytes;
use schemas::subject::{MARK_BUCKET, mark as keys};
use tokio::time::Instant;
use tracing::{error, warn};

use super::Applier;

/// What spools and log were told.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The last marks told, by source.
    told: BTreeMap<Arc<str>, u64>,
    /// The last cursor told.
    cursor: Option<LedgerCursor>,
    /// When to tell again.
    pub(super) next: Option<Instant>,
    /// Batches were applied since the last telling.
    pub(super) due: bool,
    /// The marks cannot be written, and that was said.
    warned: bool,
}

impl Applier {
    /// Tells spools and log how far the books are on disk for good. Done at intervals: it costs a flush.
    pub(super) async fn tell(&mut self, caught_up: bool) {
        self.marks.next = Some(Instant::now() + Duration::from_millis(self.config.mark_interval_ms));
        self.tell_contests().await;
        if !self.marks.due {
            return;
        }
        if let Err(problem) = self.ports.store.sync().await {
            warn!(
                error = &problem as &dyn std::error::Error,
                "the ledger's database cannot be flushed"
            );
            return;
        }
        let moved: Vec<(Arc<str>, u64)> = self
            .coverage
            .marks()
            .filter(|(source, mark)| self.marks.told.get(*source) != Some(mark))
            .map(|(source, mark)| (Arc::clone(source), mark))
            .collect();
        let reached = self.reached;
        self.ports
            .progress
            .send_if_modified(|applied| std::mem::replace(applied, reached) != reached);
        self.marks.due = false;
        for (source, mark) in moved {
            self.marks.due |= !self.tell_source(&source, mark, caught_up).await;
        }
        if !self.marks.due {
            // After the marks: whoever sees the cursor pass an event sees its mark as well.
            self.marks.due = !self.tell_cursor().await;
        }
    }

    /// Writes the cursor; false when it has to be written again.
    async fn tell_cursor(&mut self) -> bool {
        let cursor = LedgerCursor {
            stream_created: self.stream_created,
            sequence: self.reached,
        };
        if self.marks.cursor == Some(cursor) {
            return true;
        }
        let Ok(value) = serde_json::to_vec(&cursor) else {
            return true;
        };
        let told = self.tell_record(keys::CURSOR, value.into()).await;
        if told {
            self.marks.cursor = Some(cursor);
        }
        told
    }

    /// Writes the mark of one source; false when it has to be looked at again.
    async fn tell_source(&mut self, source: &Arc<str>, mut mark: u64, caught_up: bool) -> bool {
        let Some(key) = mark_key(source) else {
            self.marks.told.insert(Arc::clone(source), mark);
            return true;
        };
        if !self.marks.told.contains_key(source) {
            match self.contested_before(source).await {
                None => return false,
                Some(true) => return true,
                Some(false) => {}
            }
            let Ok(entry) = self.ports.kv.get(MARK_BUCKET, key).await else {
                return false;
            };
            let before = entry
                .and_then(|entry| entry.value)
                .and_then(|value| read_mark(&value))
                .unwrap_or(0);
            if before > mark && !caught_up {
                return false;
            }
            if before == mark {
                self.marks.told.insert(Arc::clone(source), mark);
                return true;
            }
            if before > mark {
                // These books are younger than the mark: what the spool forgot by it is not in the log either.
                error!(source = %source, from = mark + 1, to = before, "ledger gap: events are gone for good");
                self.coverage.cover(source, 1, before);
                mark = self.coverage.mark(source);
            }
        } else if self.contests.holds(source) {
            return true;
        }
        let told = self.tell_record(key, Bytes::from(mark.to_string())).await;
        if told {
            self.marks.told.insert(Arc::clone(source), mark);
        }
        told
    }

    /// Writes a record of the bucket; false when that failed, which is said once.
    async fn tell_record(&mut self, key: &str, value: Bytes) -> bool {
        match self.ports.kv.put(MARK_BUCKET, key, value, Expected::Any).await {
            Ok(_) => {
                self.marks.warned = false;
                true
            }
            Err(problem) => {
                if !std::mem::replace(&mut self.marks.warned, true) {
                    warn!(
                        key,
                        error = &problem as &dyn std::error::Error,
                        "a mark cannot be written"
                    );
                }
                false
            }
        }
    }
}

/// Longest spool id that has a mark.
const SPOOL_ID_BYTES_MAX: usize = 128;

/// The key of a source's mark, its spool's id: the last part of `/waybill/<cluster>/<spool id>`.
pub(super) fn mark_key(source: &str) -> Option<&str> {
    let (_, id) = source.rsplit_once('/')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (!id.is_empty() && id.len() <= SPOOL_ID_BYTES_MAX && id.bytes().all(plain)).then_some(id)
}

fn read_mark(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
