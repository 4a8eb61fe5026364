//! What files changed of the catalogue, the newest of it: kept in bucket `wb_config` so that it can be looked at,
//! compared and put back. Each revision has a slot, of which there are [`REVISIONS_MAX`]; the one that comes after so
//! many takes its place. A revision is written before what it tells of, so that a node that ends in between leaves no
//! change that nobody knows of.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::configuration::{REVISIONS_MAX, RecordChange, Revision, pieces};
use schemas::subject::CONFIG_BUCKET;
use tokio::time::timeout;

use crate::{BusError, Change, Expected, Kv};

/// How long the bucket may take over one operation.
const WITHIN: Duration = Duration::from_secs(8);
/// Times a number is asked for that another node took meanwhile.
const TRIES_MAX: usize = 8;
/// Prefix of revisions, followed by the slot.
const REVISION: &str = "revision.";
/// Prefix of pieces, followed by the slot and the place among the pieces.
const PIECE: &str = "piece.";

/// The revisions that are kept; cheap to clone.
#[derive(Clone)]
pub struct Revisions {
    kv: Arc<dyn Kv>,
}

/// A revision that was begun.
#[derive(Debug, Clone)]
pub struct Begun {
    revision: Revision,
    /// With which revision of the bucket its record was written.
    written: u64,
}

impl Begun {
    /// Its number.
    pub const fn number(&self) -> u64 {
        self.revision.number
    }
}

/// A revision, and with which revision of the bucket its record was written.
type Kept = (Revision, u64);

impl Revisions {
    /// Those of a bucket.
    pub fn new(kv: Arc<dyn Kv>) -> Self {
        Self { kv }
    }

    /// Every revision that is kept, the oldest first.
    pub async fn all(&self) -> Result<Vec<Revision>, BusError> {
        let kept = self.kept().await?;
        Ok(kept.into_iter().map(|(revision, _)| revision).collect())
    }

    /// Writes what is about to be changed, under a number of its own.
    pub async fn begin(&self, mut told: Revision, changes: &[RecordChange]) -> Result<Begun, BusError> {
        let pieces = pieces(changes);
        told.changed = changes.len();
        told.pieces = pieces.len();
        for _ in 0..TRIES_MAX {
            let kept = self.kept().await?;
            told.number = kept.last().map_or(0, |(revision, _)| revision.number) + 1;
            let slot = told.number % REVISIONS_MAX;
            let before = kept
                .iter()
                .find(|(revision, _)| revision.number % REVISIONS_MAX == slot);
            // While its pieces are written nobody may take them for those of the one before.
            let expected = before.map_or(Expected::Absent, |(_, written)| Expected::Revision(*written));
            let unpacked = Revision {
                pieces: 0,
                ..told.clone()
            };
            let written = match self.put(slot, &unpacked, expected).await {
                Ok(written) => written,
                Err(BusError::Conflict) => continue,
                Err(problem) => return Err(problem),
            };
            let old = before.map_or(0, |(revision, _)| revision.pieces);
            self.put_pieces(slot, pieces, old).await?;
            let written = self.put(slot, &told, Expected::Revision(written)).await?;
            return Ok(Begun {
                revision: told,
                written,
            });
        }
        Err(BusError::Conflict)
    }

    /// All that a revision tells of is in force, with this revision of the catalogue.
    pub async fn finish(&self, begun: Begun, catalog_revision: u64) -> Result<Revision, BusError> {
        let done = Revision {
            catalog_revision: Some(catalog_revision),
            ..begun.revision
        };
        let slot = done.number % REVISIONS_MAX;
        self.put(slot, &done, Expected::Revision(begun.written)).await?;
        Ok(done)
    }

    /// What a revision changed; `None` where that is not kept, or no longer.
    pub async fn changes(&self, revision: &Revision) -> Result<Option<Vec<RecordChange>>, BusError> {
        if revision.pieces == 0 {
            return Ok((revision.changed == 0).then(Vec::new));
        }
        let slot = revision.number % REVISIONS_MAX;
        let mut changes = Vec::with_capacity(revision.changed);
        for n in 0..revision.pieces {
            let key = format!("{PIECE}{slot}.{n}");
            let found = within(self.kv.get(CONFIG_BUCKET, &key)).await?;
            let piece: Option<Vec<RecordChange>> = found
                .and_then(|entry| entry.value)
                .and_then(|value| serde_json::from_slice(&value).ok());
            let Some(piece) = piece else {
                return Ok(None);
            };
            changes.extend(piece);
        }
        Ok((changes.len() == revision.changed).then_some(changes))
    }

    async fn kept(&self) -> Result<Vec<Kept>, BusError> {
        let mut changes = within(self.kv.watch(CONFIG_BUCKET)).await?;
        let told = async {
            let mut kept: Vec<Kept> = Vec::new();
            loop {
                match changes.recv().await {
                    Some(Change::Entry(entry)) if entry.key.starts_with(REVISION) => {
                        let read = entry.value.and_then(|value| serde_json::from_slice(&value).ok());
                        kept.extend(read.map(|revision: Revision| (revision, entry.revision)));
                    }
                    Some(Change::Entry(_)) => {}
                    Some(Change::Current) => return Ok(kept),
                    None => return Err(BusError::Timeout),
                }
            }
        };
        let mut kept = within(told).await?;
        kept.sort_by_key(|(revision, _)| revision.number);
        Ok(kept)
    }

    async fn put(&self, slot: u64, revision: &Revision, expected: Expected) -> Result<u64, BusError> {
        // Our own types always serialize.
        let value = Bytes::from(serde_json::to_vec(revision).unwrap_or_default());
        within(
            self.kv
                .put(CONFIG_BUCKET, &format!("{REVISION}{slot:02}"), value, expected),
        )
        .await
    }

    /// Puts pieces in the place of `old` ones.
    async fn put_pieces(&self, slot: u64, pieces: Vec<Vec<u8>>, old: usize) -> Result<(), BusError> {
        let count = pieces.len();
        for (n, piece) in pieces.into_iter().enumerate() {
            let key = format!("{PIECE}{slot}.{n}");
            within(
                self.kv
                    .put(CONFIG_BUCKET, &key, Bytes::from(piece), Expected::Any),
            )
            .await?;
        }
        for n in count..old {
            let key = format!("{PIECE}{slot}.{n}");
            within(self.kv.delete(CONFIG_BUCKET, &key, Expected::Any)).await?;
        }
        Ok(())
    }
}

async fn within<T>(operation: impl Future<Output = Result<T, BusError>>) -> Result<T, BusError> {
    timeout(WITHIN, operation).await.unwrap_or(Err(BusError::Timeout))
}

#[cfg(test)]
mod tests;
