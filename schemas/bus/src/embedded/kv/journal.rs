//! The file behind the buckets. Generations have numbers: a new one is complete on disk before it gets its
//! name, and the old one goes after that.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tracing::error;

use crate::Revision;
use crate::segment::files::{Unsynced, sync_directory};
use crate::segment::{self, Cause, Piece, Reader};

const SUFFIX: &str = ".kv";
const ENTRY: u8 = 1;
const BUCKET: u8 = 2;
const LIVING: u8 = 3;
/// A journal is never written anew below this size, and then when it is so many times its snapshot.
const REWRITE_BYTES_MIN: u64 = 4 * 1024 * 1024;
const REWRITE_FACTOR: u64 = 4;

/// What the file says, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A key has a new value, or none.
    Entry {
        bucket: &'a str,
        key: &'a str,
        revision: Revision,
        value: Option<Bytes>,
        /// For how long, if not for good.
        life: Option<Lifetime>,
    },
    /// A bucket has given away revisions up to this one.
    Bucket { bucket: &'a str, revision: Revision },
}

/// How long a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// Its end in wall time.
    pub(super) until_micros: i64,
    /// All of it.
    pub(super) whole_ms: u64,
}

/// The file.
pub(super) struct Journal {
    dir: PathBuf,
    generation: u64,
    file: Arc<File>,
    bytes: u64,
    /// Bytes of the snapshot that it begins with.
    snapshot_bytes: u64,
    /// It has bytes that are no records and must be written anew.
    spoiled: bool,
    /// Used again by each write.
    record: Vec<u8>,
}

impl Journal {
    /// Opens or makes the newest generation and shows its records.
    pub(super) fn open(dir: &Path, show: &mut dyn FnMut(Record<'_>)) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let generations = generations(dir)?;
        let generation = generations.last().copied().unwrap_or(0);
        let path = path(dir, generation);
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let content = Bytes::from(std::fs::read(&path)?);
        let (mut whole, mut spoiled) = (content.len(), false);
        for piece in Reader::new(&content) {
            match piece {
                Piece::Record(record) => {
                    let payload = content.slice(record.payload());
                    match decode(record.kind, &payload) {
                        Some(record) => show(record),
                        // Written by a later version: better not to start than to forget it.
                        None => return Err(io::ErrorKind::InvalidData.into()),
                    }
                }
                Piece::Damaged {
                    range,
                    cause: Cause::Torn,
                } => whole = range.start,
                Piece::Damaged { range, .. } => {
                    error!(file = %path.display(), from = range.start, to = range.end, "records of the buckets are damaged: what they said is lost");
                    spoiled = true;
                }
            }
        }
        let bytes = u64::try_from(whole).unwrap_or(u64::MAX);
        file.set_len(bytes)?;
        file.sync_all()?;
        for old in generations.iter().filter(|old| **old != generation) {
            std::fs::remove_file(self::path(dir, *old))?;
        }
        sync_directory(dir)?;
        let (dir, file) = (dir.to_path_buf(), Arc::new(file));
        Ok(Self {
            dir,
            generation,
            file,
            bytes,
            snapshot_bytes: 0,
            spoiled,
            record: Vec::new(),
        })
    }

    pub(super) const fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    pub(super) fn is_outgrown(&self) -> bool {
        self.spoiled || self.bytes > REWRITE_BYTES_MIN.max(self.snapshot_bytes.saturating_mul(REWRITE_FACTOR))
    }

    /// Appends one record with one write. After an error nothing of it is there.
    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.record.clear();
        encode(&mut self.record, record)?;
        if let Err(error) = (&*self.file).write_all(&self.record) {
            self.spoiled |= self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += u64::try_from(self.record.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Begins a new generation with `records` as its snapshot.
    pub(super) fn rewrite<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) -> io::Result<()> {
        let mut content = Vec::new();
        for record in records {
            encode(&mut content, &record)?;
        }
        let draft = self.dir.join("next.draft");
        let mut file = File::create(&draft)?;
        file.write_all(&content)?;
        file.sync_all()?;
        let generation = self.generation + 1;
        let path = path(&self.dir, generation);
        std::fs::rename(&draft, &path)?;
        sync_directory(&self.dir)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        let old = self::path(&self.dir, self.generation);
        self.file = Arc::new(file);
        self.generation = generation;
        self.bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.snapshot_bytes = self.bytes;
        self.spoiled = false;
        std::fs::remove_file(old)
    }

    pub(super) fn unsynced(&self) -> Unsynced {
        Unsynced::file(Arc::clone(&self.file))
    }
}

fn generations(dir: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        found.extend(stem.and_then(|stem| stem.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

fn path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("{generation:010}{SUFFIX}"))
}

fn encode(out: &mut Vec<u8>, record: &Record<'_>) -> io::Result<()> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    match record {
        Record::Entry {
            bucket,
            key,
            revision,
            value,
            life,
        } => {
            let start = segment::begin(out, if life.is_some() { LIVING } else { ENTRY });
            out.extend_from_slice(&revision.to_le_bytes());
            if let Some(life) = life {
                out.extend_from_slice(&life.until_micros.to_le_bytes());
                out.extend_from_slice(&life.whole_ms.to_le_bytes());
            }
            segment::write_text(out, bucket).map_err(invalid)?;
            segment::write_text(out, key).map_err(invalid)?;
            out.push(u8::from(value.is_some()));
            out.extend_from_slice(value.as_deref().unwrap_or_default());
            segment::finish(out, start).map_err(invalid)
        }
        Record::Bucket { bucket, revision } => {
            let start = segment::begin(out, BUCKET);
            out.extend_from_slice(&revision.to_le_bytes());
            segment::write_text(out, bucket).map_err(invalid)?;
            segment::finish(out, start).map_err(invalid)
        }
    }
}

/// `None` for what no writer of this version wrote.
fn decode(kind: u8, payload: &Bytes) -> Option<Record<'_>> {
    let (revision, rest) = payload.split_first_chunk::<8>()?;
    let revision = Revision::from_le_bytes(*revision);
    let (life, rest) = if kind == LIVING {
        let (until_micros, rest) = rest.split_first_chunk::<8>()?;
        let (whole_ms, rest) = rest.split_first_chunk::<8>()?;
        let life = Lifetime {
            until_micros: i64::from_le_bytes(*until_micros),
            whole_ms: u64::from_le_bytes(*whole_ms),
        };
        (Some(life), rest)
    } else {
        (None, rest)
    };
    let (bucket, rest) = segment::read_text(rest)?;
    match kind {
        ENTRY | LIVING => {
            let (key, rest) = segment::read_text(rest)?;
            let value = match rest.split_first()? {
                // Copied: a slice would keep the whole file in memory.
                (1, value) => Some(Bytes::copy_from_slice(value)),
                (0, []) => None,
                _ => return None,
            };
            Some(Record::Entry {
                bucket,
                key,
                revision,
                value,
                life,
            })
        }
        BUCKET => Some(Record::Bucket { bucket, revision }),
        _ => None,
    }
}
