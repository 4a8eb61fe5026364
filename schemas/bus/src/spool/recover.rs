//! Opening: who wrote here, what is whole, which requests never ended, and which numbers are gone.
//!
//! A torn end was never promised to anybody and is cut off. Bytes that were spoiled later may have been
//! published: their numbers are never given away again, and an event declares them lost.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use schemas::envelope::Envelope;
use schemas::event::Fact;
use schemas::event::spool::SpoolLost;
use schemas::id::{DEFAULT_TENANT, RequestId, SpoolId, TenantId};
use schemas::subject;
use tokio::sync::Notify;
use tracing::{error, warn};

use super::ages::Ages;
use super::write::{EVENT, EVENT_BYTES_MIN, INTENT, head, intent};
use super::{Error, Intent, Notes, Options, Orphan, Recovered, Shared, Spool, State};
use crate::clock::Clock;
use crate::mint::Mint;
use crate::segment::files::{self, Files, Segment};
use crate::segment::{Cause, Piece, Reader, Record};
use crate::sync::Flusher;

const SUFFIX: &str = ".spool";
/// A file is closed at a sixteenth of what the spool may hold, within these bounds.
const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) fn open(
    options: Options,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
) -> Result<(Spool, Recovered), Error> {
    let Options {
        dir,
        cluster,
        bytes_max,
        durability,
    } = options;
    std::fs::create_dir_all(&dir)?;
    let lock = lock(&dir)?;
    let found = files::list(&dir, SUFFIX)?;
    let id = identity(&dir, found.is_empty(), &mint)?;
    let mut scan = Scan::new(&id);
    let newest = found.last().map(|(ordinal, ..)| *ordinal);
    for (ordinal, first, path) in &found {
        scan.file(
            (*ordinal, *first),
            &std::fs::read(path)?,
            Some(*ordinal) == newest,
        );
    }
    // What was written before a crash of the process may not be on disk yet; from here on it counts as such.
    for (_, _, path) in found.iter().rev().take(2) {
        File::open(path)?.sync_all()?;
    }
    let orphans = scan.orphans();
    let lost = scan.undeclared();

    let segment_bytes = (bytes_max / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let state = scan.into_state(&dir, segment_bytes)?;
    let synced = state.next - 1;
    let source = subject::source(&cluster, id.as_str());
    let shared = Arc::new(Shared {
        source_json: serde_json::to_string(&source)?,
        id,
        source,
        bytes_max,
        durability,
        clock,
        mint,
        bytes: AtomicU64::new(state.files.bytes()),
        state: Mutex::new(state),
        reserved_bytes: AtomicU64::new(0),
        reservations_open: AtomicU64::new(0),
        republished: AtomicU64::new(0),
        contested: AtomicBool::new(false),
        kept_after: AtomicU64::new(u64::MAX),
        reading: Mutex::new(None),
        changed: Notify::new(),
        _lock: lock,
    });
    let flusher = Flusher::start("wb-spool-sync", Arc::clone(&shared) as _, synced)?;
    let spool = Spool {
        flusher: Arc::new(flusher),
        shared,
    };
    declare(&spool, &lost)?;
    Ok((spool, Recovered { orphans, lost }))
}

/// Fills holes with events that say what they were.
pub(super) fn declare(spool: &Spool, lost: &[SpoolLost]) -> Result<(), Error> {
    for hole in lost {
        error!(spool.id = %hole.spool, from = hole.from, to = hole.to, cause = hole.cause, "events of the spool are lost");
        spool.append(&TenantId::from(DEFAULT_TENANT), spool.shared.clock.now(), hole)?;
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, Error> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("spool.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            dir: dir.to_path_buf(),
        }),
        Err(TryLockError::Error(error)) => Err(Error::Disk(error)),
    }
}

/// The id of the directory, minted when there is nothing in it. An id without files is not used again: its numbers
/// would begin anew.
fn identity(dir: &Path, empty: bool, mint: &Mint) -> Result<SpoolId, Error> {
    let path = dir.join("spool.id");
    if empty {
        let id = format!("{:032x}", u128::from_le_bytes(mint.random()));
        files::replace_file(&path, id.as_bytes())?;
        return Ok(SpoolId::from(id.as_str()));
    }
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let text = text.trim();
            let valid =
                (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if valid {
                Ok(SpoolId::from(text))
            } else {
                Err(Error::Identity {
                    dir: dir.to_path_buf(),
                })
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::Identity {
            dir: dir.to_path_buf(),
        }),
        Err(error) => Err(Error::Disk(error)),
    }
}

/// What the files say, file by file.
struct Scan {
    id: SpoolId,
    /// Subjects of declarations begin like this.
    declarations: String,
    row: VecDeque<Segment<Notes>>,
    next: u64,
    append_to_newest: bool,
    open: HashMap<RequestId, (Intent, Vec<u8>)>,
    ages: Ages,
    holes: Vec<SpoolLost>,
    declared: Vec<(u64, u64)>,
}

impl Scan {
    fn new(id: &SpoolId) -> Self {
        Self {
            id: id.clone(),
            declarations: subject::event(SpoolLost::KIND, ""),
            row: VecDeque::new(),
            next: 1,
            append_to_newest: true,
            open: HashMap::new(),
            ages: Ages::default(),
            holes: Vec::new(),
            declared: Vec::new(),
        }
    }

    fn file(&mut self, (ordinal, first): (u64, u64), bytes: &[u8], is_newest: bool) {
        match self.row.back() {
            None => self.next = self.next.max(first),
            Some(before) if before.ordinal + 1 != ordinal => self.reach(first, "missing_segment"),
            Some(_) => self.reach(first, "checksum"),
        }
        let mut whole = bytes.len();
        let notes = Notes {
            last: self.next - 1,
            intents_open: 0,
        };
        self.row.push_back(Segment {
            ordinal,
            first,
            bytes: 0,
            notes,
        });
        for piece in Reader::new(bytes) {
            match piece {
                Piece::Record(record) => self.record(ordinal, bytes, &record),
                Piece::Damaged {
                    range,
                    cause: Cause::Torn,
                } if is_newest => whole = range.start,
                Piece::Damaged { range, .. } => {
                    warn!(
                        segment.ordinal = ordinal,
                        from = range.start,
                        to = range.end,
                        "the spool has damaged bytes"
                    );
                    if is_newest && range.end == bytes.len() {
                        // How many events these were is unknown, how many they cannot exceed is not.
                        let most = u64::try_from((range.len() / EVENT_BYTES_MIN).max(1)).unwrap_or(u64::MAX);
                        self.reach(self.next.saturating_add(most), "checksum");
                        self.append_to_newest = false;
                    }
                }
            }
        }
        if let Some(segment) = self.row.back_mut() {
            segment.bytes = u64::try_from(whole).unwrap_or(u64::MAX);
            segment.notes.last = self.next - 1;
        }
    }

    fn record(&mut self, ordinal: u64, bytes: &[u8], record: &Record) {
        let payload = &bytes[record.payload()];
        match record.kind {
            INTENT => {
                if let Some((request, facts)) = intent(payload) {
                    let offset = u64::try_from(record.whole.start).unwrap_or(u64::MAX);
                    let place = Intent {
                        ordinal,
                        offset,
                        bytes: record.whole.len(),
                    };
                    self.open.insert(request, (place, facts.to_vec()));
                }
            }
            EVENT => self.event(payload),
            other => warn!(
                kind = other,
                "a record of a kind that this version does not know is left out"
            ),
        }
    }

    fn event(&mut self, payload: &[u8]) {
        let Some(head) = head(payload) else {
            return;
        };
        if head.sequence < self.next {
            return;
        }
        self.reach(head.sequence, "checksum");
        self.next = head.sequence + 1;
        self.ages.note(head.sequence, head.time);
        if let Some(request) = head.settles {
            self.open.remove(&request);
        }
        if head.subject.starts_with(&self.declarations)
            && let Some(envelope) = payload.get(head.envelope..)
            && let Ok(envelope) = serde_json::from_slice::<Envelope<SpoolLost>>(envelope)
            && envelope.data.spool == self.id
        {
            self.declared.push((envelope.data.from, envelope.data.to));
        }
    }

    /// The next event is `sequence`: what lies between is a hole.
    fn reach(&mut self, sequence: u64, cause: &str) {
        if sequence > self.next {
            let spool = self.id.clone();
            self.holes.push(SpoolLost {
                spool,
                from: self.next,
                to: sequence - 1,
                cause: cause.to_owned(),
            });
            self.next = sequence;
        }
    }

    /// Requests without a settlement; an intent that cannot be read is closed.
    fn orphans(&mut self) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        self.open.retain(|request, (_, facts)| match serde_json::from_slice(facts) {
            Ok(accepted) => {
                orphans.push(Orphan { accepted });
                true
            }
            Err(problem) => {
                error!(request.id = %request, error = &problem as &dyn std::error::Error, "an intent cannot be read");
                false
            }
        });
        orphans.sort_by_key(|orphan| (orphan.accepted.started_at, orphan.accepted.request_id));
        orphans
    }

    /// Holes that no event declares yet.
    fn undeclared(&self) -> Vec<SpoolLost> {
        let is_declared = |hole: &&SpoolLost| {
            !self
                .declared
                .iter()
                .any(|(from, to)| *from <= hole.from && hole.to <= *to)
        };
        self.holes.iter().filter(is_declared).cloned().collect()
    }

    fn into_state(self, dir: &Path, segment_bytes: u64) -> Result<State, Error> {
        let marked = self
            .row
            .front()
            .map_or(self.next, |oldest| oldest.first)
            .saturating_sub(1);
        let row = (self.row, self.append_to_newest);
        let files = Files::open(dir, SUFFIX, segment_bytes, row, self.next)?;
        let mut state = State {
            files,
            next: self.next,
            marked,
            open: HashMap::with_capacity(self.open.len()),
            ages: self.ages,
            record: Vec::new(),
        };
        state.inherit_last();
        for (request, (intent, _)) in self.open {
            state.note_intent(request, intent);
        }
        Ok(state)
    }
}
