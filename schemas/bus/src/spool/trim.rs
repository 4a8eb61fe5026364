//! Dropping what nobody needs any more: only whole leading files, so that what is left is one piece.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use schemas::id::RequestId;
use tracing::{error, warn};

use super::{Intent, Shared, State};
use crate::segment::{self, Step};

/// Requests that run long keep their file and all after it. Once the spool holds more than this part of its
/// bytes, their intents are written again at its end instead.
const CARRY_ABOVE: u64 = 4;

impl Shared {
    pub(super) fn trim(&self, mark: u64) {
        let mut state = self.state.lock();
        let newest = state.next - 1;
        if mark > newest {
            // Such a mark is about other events under the same numbers: believed, it would drop what nobody has.
            error!(spool.id = %self.id, mark, newest, "the ledger knows events of this spool that it does not hold: was it restored from a copy?");
            return;
        }
        state.marked = state.marked.max(mark);
        let marked = state.marked;
        state.ages.forget(marked);
        let droppable = marked.min(self.kept_after.load(Ordering::Acquire));
        for _ in 0..state.files.row().len() {
            if !state.drop_oldest(droppable, self.bytes_max) {
                break;
            }
        }
        self.note_bytes(&state);
    }
}

impl State {
    /// Drops the oldest file if it holds nothing after `droppable` that anybody needs; true when there may be another
    /// one.
    fn drop_oldest(&mut self, droppable: u64, bytes_max: u64) -> bool {
        let Some(oldest) = self.files.row().front() else {
            return false;
        };
        let (ordinal, open) = (oldest.ordinal, oldest.notes.intents_open);
        let is_only = self.files.row().len() == 1;
        if oldest.notes.last > droppable || (oldest.bytes == 0 && is_only) {
            return false;
        }
        let crowded = self.files.bytes() > bytes_max / CARRY_ABOVE;
        if open > 0 && !crowded {
            return false;
        }
        if is_only {
            // The file that is written to goes only when room is needed.
            if !crowded || !self.roll() {
                return false;
            }
        }
        if open > 0
            && let Err(problem) = self.carry(ordinal)
        {
            warn!(
                error = &problem as &dyn std::error::Error,
                "intents could not be written again"
            );
            return false;
        }
        self.files.drop_oldest();
        true
    }

    /// Numbers up to `taken` were given away before the files lost their end: the next one is beyond. Returns the
    /// numbers that are left out.
    pub(super) fn begin_after(&mut self, taken: u64) -> io::Result<Option<RangeInclusive<u64>>> {
        if taken < self.next {
            return Ok(None);
        }
        let next = taken.saturating_add(1);
        self.files.roll(next)?;
        let gone = self.next..=taken;
        self.next = next;
        self.inherit_last();
        Ok(Some(gone))
    }

    fn roll(&mut self) -> bool {
        match self.files.roll(self.next) {
            Ok(()) => {
                self.inherit_last();
                true
            }
            Err(problem) => {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    "a new segment could not be made"
                );
                false
            }
        }
    }

    /// Writes the open intents of a file again, at the end of the spool.
    fn carry(&mut self, ordinal: u64) -> io::Result<()> {
        let Some((_, path, _)) = self.files.at_or_after(ordinal) else {
            return Ok(());
        };
        let mut file = File::open(path)?;
        let here = self.open.iter().filter(|(_, intent)| intent.ordinal == ordinal);
        let here: Vec<(RequestId, Intent)> = here.map(|(request, intent)| (*request, *intent)).collect();
        for (request, intent) in here {
            let mut record = vec![0; intent.bytes];
            file.seek(SeekFrom::Start(intent.offset))?;
            file.read_exact(&mut record)?;
            if matches!(segment::parse(&record, 0), Step::Record(_)) {
                self.write_intent(request, &record)?;
            } else {
                warn!(request.id = %request, "the intent of a running request is damaged");
                self.close_intent(request);
            }
        }
        Ok(())
    }
}
