//! Opening the log: its age, where it ends, and which ids it knows.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use schemas::time::Timestamp;
use tracing::{error, warn};

use super::duplicates::Duplicates;
use super::{MESSAGE, Notes, State, read_message};
use crate::clock::Clock;
use crate::segment::cursor::{Cursor, Visit};
use crate::segment::files::{self, Files, Segment};
use crate::segment::{Cause, Piece, Reader};

const SUFFIX: &str = ".log";
/// A file is closed at a sixteenth of what the log may hold, within these bounds.
const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) fn open(
    dir: &Path,
    bytes_max: u64,
    duplicates_max: usize,
    clock: &dyn Clock,
) -> io::Result<(i64, State)> {
    std::fs::create_dir_all(dir)?;
    let found = files::list(dir, SUFFIX)?;
    let mut row = VecDeque::new();
    for (ordinal, first, path) in &found {
        let metadata = std::fs::metadata(path)?;
        row.push_back(Segment {
            ordinal: *ordinal,
            first: *first,
            bytes: metadata.len(),
            notes: notes(&metadata)?,
        });
    }
    let mut duplicates = Duplicates::new(duplicates_max);
    let (next, spoiled) = match row.back_mut() {
        Some(newest) => end(&found, newest, &mut duplicates, duplicates_max)?,
        None => (1, false),
    };
    for (_, _, path) in found.iter().rev().take(2) {
        File::open(path)?.sync_all()?;
    }
    let created_at_micros = created(dir, found.is_empty() || spoiled, clock)?;
    let segment_bytes = (bytes_max / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let files = Files::open(dir, SUFFIX, segment_bytes, (row, !spoiled), next)?;
    Ok((
        created_at_micros,
        State {
            files,
            next,
            duplicates,
            batch: Vec::new(),
        },
    ))
}

/// When the log was made. A log whose end was spoiled may give numbers away again: it is another log.
fn created(dir: &Path, anew: bool, clock: &dyn Clock) -> io::Result<i64> {
    let path = dir.join("created");
    let known = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<i64>().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match known {
        Some(created) if !anew => Ok(created),
        before => {
            let now = clock.now().micros();
            let created = before.map_or(now, |before| now.max(before.saturating_add(1)));
            files::replace_file(&path, created.to_string().as_bytes())?;
            Ok(created)
        }
    }
}

/// Reads the newest files, as many as the duplicate window covers: the next sequence, and whether the end
/// is spoiled.
fn end(
    found: &[(u64, u64, std::path::PathBuf)],
    newest: &mut Segment<Notes>,
    duplicates: &mut Duplicates,
    duplicates_max: usize,
) -> io::Result<(u64, bool)> {
    let Some((_, _, path)) = found.last() else {
        return Ok((newest.first, false));
    };
    let (next, whole, spoiled) = examine(&std::fs::read(path)?.into(), newest.first);
    newest.bytes = u64::try_from(whole).unwrap_or(u64::MAX);
    let oldest = next.saturating_sub(u64::try_from(duplicates_max).unwrap_or(u64::MAX));
    let begin = found
        .partition_point(|(_, first, _)| *first <= oldest)
        .saturating_sub(1);
    for (ordinal, _, path) in &found[begin..] {
        let written = std::fs::metadata(path)?.len();
        let written = if *ordinal == newest.ordinal {
            newest.bytes
        } else {
            written
        };
        Cursor::open(*ordinal, path)?.scan(written, &mut |kind, record| {
            if let Some(stored) = (kind == MESSAGE).then(|| read_message(&record)).flatten() {
                duplicates.note(&stored.message.id, stored.sequence);
            }
            Visit::Next
        })?;
    }
    duplicates.shrink();
    Ok((next, spoiled))
}

/// The sequence after the last message of the newest file, its bytes without a torn end, and whether its end
/// was spoiled.
fn examine(bytes: &Bytes, first: u64) -> (u64, usize, bool) {
    let (mut next, mut whole, mut spoiled) = (first, bytes.len(), false);
    for piece in Reader::new(bytes) {
        match piece {
            Piece::Record(record) => {
                let stored = (record.kind == MESSAGE).then(|| read_message(&bytes.slice(record.payload())));
                next = stored
                    .flatten()
                    .map_or(next, |stored| next.max(stored.sequence + 1));
            }
            Piece::Damaged {
                range,
                cause: Cause::Torn,
            } => whole = range.start,
            Piece::Damaged { range, .. } if range.end == bytes.len() => {
                error!(
                    from = range.start,
                    to = range.end,
                    "the end of the log is damaged: it is read again from its beginning"
                );
                spoiled = true;
            }
            Piece::Damaged { range, .. } => {
                warn!(from = range.start, to = range.end, "the log has damaged bytes");
            }
        }
    }
    (next, whole, spoiled)
}

fn notes(metadata: &std::fs::Metadata) -> io::Result<Notes> {
    let since = metadata
        .modified()?
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    Ok(Notes {
        written_at: Timestamp::from_micros(micros),
    })
}
