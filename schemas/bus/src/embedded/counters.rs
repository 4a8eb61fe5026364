//! Counters in one process: a map in memory. A counter goes when nothing was added to it for the life of its slice.
//! Those of seconds begin anew with each process, those of minutes survive it: each addition is a line in a file, which
//! is read when it is opened and written anew when it has grown. After a power failure the last lines may be missing.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use schemas::time::Timestamp;

use crate::BusError;
use crate::clock::Clock;
use crate::counter::Slice;

/// Most counters at once; beyond it adding to a new one answers [`BusError::Full`].
const COUNTERS_MAX: usize = 200_000;
/// How long a counter lives without additions, in milliseconds.
const SECOND_MS: u64 = 30_000;
const MINUTE_MS: u64 = 150_000;
/// How often dead counters are looked for, in milliseconds.
const SWEEP_MS: u64 = 5_000;

/// Microseconds of a minute.
const MINUTE_MICROS: i64 = 60_000_000;
/// Bytes of the file after which it is written anew.
const FILE_BYTES_MAX: usize = 1 << 20;

/// All counters.
pub(super) struct Table {
    clock: Arc<dyn Clock>,
    opened_at: Timestamp,
    /// There was no file: nothing was ever counted before.
    is_first: bool,
    state: Mutex<State>,
}

/// The counters of minutes on disk: lines of a name and a total, of which the last one counts.
struct Lines {
    path: PathBuf,
    file: File,
    bytes: usize,
}

struct State {
    lines: Lines,
    /// By slice and name.
    counters: [HashMap<String, Counter>; 2],
    swept_at_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    total: u64,
    ends_at_ms: u64,
}

impl Table {
    /// The counters of a file, which is made when it is missing.
    pub(super) fn open(path: PathBuf, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let is_first = !path.exists();
        let (opened_at, now_ms) = (clock.now(), clock.monotonic_ms());
        let (lines, totals) = Lines::open(path, opened_at)?;
        let minutes = totals.into_iter().map(|(name, total)| {
            let ends_at_ms = now_ms.saturating_add(MINUTE_MS);
            (name, Counter { total, ends_at_ms })
        });
        Ok(Self {
            state: Mutex::new(State {
                lines,
                counters: [HashMap::new(), minutes.collect()],
                swept_at_ms: now_ms,
            }),
            clock,
            opened_at,
            is_first,
        })
    }

    /// See [`crate::counter::Counters::add`].
    pub(super) fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
        let now_ms = self.clock.monotonic_ms();
        let mut state = self.state.lock();
        let total = state.add(slice, name, amount, now_ms)?;
        if slice == Slice::Minute && amount > 0 {
            let now = self.clock.now();
            state.note(name, total, now).map_err(BusError::Disk)?;
        }
        Ok(total)
    }

    /// See [`crate::counter::Counters::since`].
    pub(super) fn since(&self, slice: Slice) -> Option<Timestamp> {
        (slice == Slice::Second && !self.is_first).then_some(self.opened_at)
    }
}

impl Lines {
    /// Opens a file and returns what its lines say of minutes that are not over for long.
    fn open(path: PathBuf, now: Timestamp) -> io::Result<(Self, HashMap<String, u64>)> {
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => String::new(),
            Err(problem) => return Err(problem),
        };
        let mut totals = HashMap::new();
        for line in text.split_inclusive('\n') {
            let line = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
            let Some((name, Ok(total))) = line.map(|(name, total)| (name, total.parse())) else {
                continue;
            };
            if is_live(name, now) {
                totals.insert(name.to_owned(), total);
            }
        }
        let lines = Self::write_anew(path, totals.iter().map(|(name, total)| (name.as_str(), *total)))?;
        Ok((lines, totals))
    }

    fn write_anew<'a>(path: PathBuf, totals: impl Iterator<Item = (&'a str, u64)>) -> io::Result<Self> {
        let mut text = String::new();
        for (name, total) in totals {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name} {total}");
        }
        replace(&path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self {
            path,
            file,
            bytes: text.len(),
        })
    }
}

/// Puts other bytes in the place of a file's.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes)?;
    std::fs::rename(beside, path)
}

/// Whether a counter of minutes, whose name ends with the minute's number, may still be added to.
fn is_live(name: &str, now: Timestamp) -> bool {
    let minute: Option<i64> = name.rsplit_once('.').and_then(|(_, minute)| minute.parse().ok());
    let ends_at = minute.map(|minute| minute.saturating_add(3).saturating_mul(MINUTE_MICROS));
    ends_at.is_none_or(|ends_at| ends_at > now.micros())
}

impl State {
    fn add(&mut self, slice: Slice, name: &str, amount: u64, now_ms: u64) -> Result<u64, BusError> {
        if now_ms.saturating_sub(self.swept_at_ms) >= SWEEP_MS {
            self.sweep(now_ms);
        }
        let (index, life_ms) = match slice {
            Slice::Second => (0, SECOND_MS),
            Slice::Minute => (1, MINUTE_MS),
        };
        let ends_at_ms = now_ms.saturating_add(life_ms);
        let count: usize = self.counters.iter().map(HashMap::len).sum();
        let of_slice = &mut self.counters[index];
        if let Some(counter) = of_slice.get_mut(name) {
            let before = if counter.ends_at_ms > now_ms {
                counter.total
            } else {
                0
            };
            *counter = Counter {
                total: before.saturating_add(amount),
                ends_at_ms,
            };
            return Ok(counter.total);
        }
        if count >= COUNTERS_MAX {
            return Err(BusError::Full);
        }
        let counter = Counter {
            total: amount,
            ends_at_ms,
        };
        of_slice.insert(name.to_owned(), counter);
        Ok(amount)
    }

    /// Notes a total on disk.
    fn note(&mut self, name: &str, total: u64, now: Timestamp) -> io::Result<()> {
        if self.lines.bytes > FILE_BYTES_MAX {
            let minutes = self.counters[1].iter().filter(|(name, _)| is_live(name, now));
            let totals = minutes.map(|(name, counter)| (name.as_str(), counter.total));
            self.lines = Lines::write_anew(self.lines.path.clone(), totals)?;
            return Ok(());
        }
        let line = format!("{name} {total}\n");
        self.lines.file.write_all(line.as_bytes())?;
        self.lines.bytes += line.len();
        Ok(())
    }

    fn sweep(&mut self, now_ms: u64) {
        self.swept_at_ms = now_ms;
        for of_slice in &mut self.counters {
            of_slice.retain(|_, counter| counter.ends_at_ms > now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn state(dir: &tempfile::TempDir) -> State {
        let (lines, _) = Lines::open(dir.path().join("minutes"), Timestamp::default()).expect("a file");
        State {
            lines,
            counters: [HashMap::new(), HashMap::new()],
            swept_at_ms: 0,
        }
    }

    #[test]
    fn minutes_go_on_after_a_restart_and_seconds_begin_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let minute = clock.now().micros() / MINUTE_MICROS;
        let open = || Table::open(dir.path().join("minutes"), Arc::clone(&clock)).expect("opened");
        let add = |table: &Table, slice, name: &str| table.add(slice, name, 3).expect("room");
        let (now, before) = (format!("a.{minute}"), format!("a.{}", minute - 3));

        let table = open();
        assert_eq!(table.since(Slice::Second), None, "nothing was counted before");
        for (slice, name) in [
            (Slice::Minute, &now),
            (Slice::Minute, &now),
            (Slice::Minute, &before),
            (Slice::Second, &now),
        ] {
            add(&table, slice, name);
        }
        drop(table);
        let torn = OpenOptions::new().append(true).open(dir.path().join("minutes"));
        torn.expect("a file")
            .write_all(format!("{now} 9").as_bytes())
            .expect("written");

        let table = open();
        assert_eq!(add(&table, Slice::Minute, &now), 9, "6 and 3");
        assert_eq!(add(&table, Slice::Minute, &before), 3, "its minute is over");
        assert_eq!(add(&table, Slice::Second, &now), 3);
        assert_eq!(table.since(Slice::Minute), None);
        assert!(table.since(Slice::Second).is_some());
    }

    #[test]
    fn a_file_that_has_grown_is_written_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let path = dir.path().join("minutes");
        let table = Table::open(path.clone(), Arc::clone(&clock)).expect("opened");
        let name = format!("{}.{}", "n".repeat(200), clock.now().micros() / MINUTE_MICROS);
        for _ in 0..6_000 {
            table.add(Slice::Minute, &name, 1).expect("room");
        }
        assert!(std::fs::metadata(&path).expect("a file").len() < 400_000);
        drop(table);
        let table = Table::open(path, clock).expect("opened");
        assert_eq!(table.add(Slice::Minute, &name, 1).expect("room"), 6_001);
    }

    #[test]
    fn a_counter_lives_as_long_as_its_slice_after_the_last_addition() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut state = state(&dir);
        for (slice, life_ms) in [(Slice::Second, SECOND_MS), (Slice::Minute, MINUTE_MS)] {
            let mut add = |now_ms| state.add(slice, "a.1", 1, now_ms).expect("room");
            assert_eq!(add(1_000), 1);
            assert_eq!(add(1_000 + life_ms - 1), 2);
            assert_eq!(add(1_000 + life_ms * 2 - 2), 3);
            assert_eq!(add(1_000 + life_ms * 3 - 2), 1, "it begins again");
        }
    }

    #[test]
    fn dead_counters_make_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut state = state(&dir);
        for number in 0..COUNTERS_MAX {
            let added = state.add(Slice::Second, &number.to_string(), 1, 0);
            assert_eq!(added.expect("room"), 1);
        }
        let refused = state.add(Slice::Minute, "new", 1, SWEEP_MS);
        assert!(matches!(refused, Err(BusError::Full)));
        assert_eq!(
            state.add(Slice::Second, "7", 1, SWEEP_MS).expect("it is there"),
            2
        );
        let added = state.add(Slice::Minute, "new", 1, SECOND_MS + SWEEP_MS - 1);
        assert_eq!(added.expect("room"), 1);
    }

    #[test]
    fn a_total_stops_at_the_largest_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut state = state(&dir);
        state.add(Slice::Minute, "a", u64::MAX, 0).expect("room");
        assert_eq!(state.add(Slice::Minute, "a", 1, 0).expect("room"), u64::MAX);
    }
}
