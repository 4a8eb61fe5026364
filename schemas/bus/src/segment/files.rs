//! A directory of segment files: the newest is appended to with one write per batch, rolled at a size; the
//! oldest are dropped. A file's name holds its place in the row and the first sequence that it may hold, so
//! that numbering survives when every record before it is gone.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

/// One file of the row, with what its owner notes about it.
#[derive(Debug)]
pub struct Segment<T> {
    /// Place in the row.
    pub ordinal: u64,
    /// The first sequence it may hold.
    pub first: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The owner's notes.
    pub notes: T,
}

/// Where a batch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub ordinal: u64,
    /// Bytes before it.
    pub offset: u64,
}

/// The files of a directory.
#[derive(Debug)]
pub struct Files<T> {
    dir: PathBuf,
    suffix: &'static str,
    segment_bytes: u64,
    row: VecDeque<Segment<T>>,
    /// Bytes of all files.
    bytes: u64,
    newest: Arc<File>,
    /// Files that hold bytes which no sync has covered, besides the newest.
    unsynced: Vec<Arc<File>>,
    directory_changed: bool,
    /// The newest file ends with bytes that could not be taken away: the next batch goes to another one.
    spoiled: bool,
}

/// What must be synced for everything written so far to be on disk.
#[derive(Debug)]
pub struct Unsynced {
    files: Vec<Arc<File>>,
    directory: Option<PathBuf>,
}

impl Unsynced {
    /// One file.
    pub fn file(file: Arc<File>) -> Self {
        Self {
            files: vec![file],
            directory: None,
        }
    }

    /// Syncs it. Takes milliseconds: never called with a lock held.
    pub fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        self.directory.as_deref().map_or(Ok(()), sync_directory)
    }
}

/// The files of `dir` that belong to a row, in order, as (ordinal, first sequence, path).
pub fn list(dir: &Path, suffix: &str) -> io::Result<Vec<(u64, u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let stem = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(suffix));
        let numbers = stem.and_then(|stem| stem.split_once('-'));
        if let Some((ordinal, first)) = numbers
            && let (Ok(ordinal), Ok(first)) = (ordinal.parse(), first.parse())
        {
            found.push((ordinal, first, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

impl<T: Default> Files<T> {
    /// Takes over a row whose files were read before; a new file that may begin with `next` is made when the
    /// row is empty or its newest must not be appended to.
    pub fn open(
        dir: &Path,
        suffix: &'static str,
        segment_bytes: u64,
        (row, append_to_newest): (VecDeque<Segment<T>>, bool),
        next: u64,
    ) -> io::Result<Self> {
        let mut row = row;
        let mut directory_changed = false;
        let newest = match row.back() {
            Some(newest) if append_to_newest => {
                let file =
                    OpenOptions::new()
                        .append(true)
                        .open(path(dir, suffix, newest.ordinal, newest.first))?;
                // A torn end is cut off before anything follows it.
                file.set_len(newest.bytes)?;
                file.sync_data()?;
                file
            }
            newest => {
                directory_changed = true;
                let ordinal = newest.map_or(1, |newest| newest.ordinal + 1);
                let file = create(&path(dir, suffix, ordinal, next))?;
                row.push_back(Segment {
                    ordinal,
                    first: next,
                    bytes: 0,
                    notes: T::default(),
                });
                file
            }
        };
        let newest = Arc::new(newest);
        let dir = dir.to_path_buf();
        let bytes = row.iter().map(|segment| segment.bytes).sum();
        Ok(Self {
            dir,
            suffix,
            segment_bytes,
            row,
            bytes,
            newest,
            unsynced: Vec::new(),
            directory_changed,
            spoiled: false,
        })
    }

    /// Appends a batch of whole records with one write; a file that is large enough is closed before. `next`
    /// is the first sequence that the batch may hold. After an error nothing of the batch is there.
    pub fn append(&mut self, batch: &[u8], next: u64) -> io::Result<Place> {
        if self.spoiled
            || self
                .row
                .back()
                .is_none_or(|newest| newest.bytes >= self.segment_bytes)
        {
            self.roll(next)?;
        }
        let Some(newest) = self.row.back_mut() else {
            return Err(io::Error::other("no segment is open"));
        };
        let place = Place {
            ordinal: newest.ordinal,
            offset: newest.bytes,
        };
        if let Err(error) = (&*self.newest).write_all(batch) {
            self.spoiled = self.newest.set_len(place.offset).is_err();
            return Err(error);
        }
        let written = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        newest.bytes += written;
        self.bytes += written;
        Ok(place)
    }

    /// Closes the newest file and begins another that may begin with `next`.
    pub fn roll(&mut self, next: u64) -> io::Result<()> {
        let ordinal = self.row.back().map_or(1, |newest| newest.ordinal + 1);
        let file = create(&path(&self.dir, self.suffix, ordinal, next))?;
        self.unsynced
            .push(std::mem::replace(&mut self.newest, Arc::new(file)));
        self.row.push_back(Segment {
            ordinal,
            first: next,
            bytes: 0,
            notes: T::default(),
        });
        self.directory_changed = true;
        self.spoiled = false;
        Ok(())
    }

    /// Drops the oldest file. The newest is never dropped.
    pub fn drop_oldest(&mut self) {
        if self.row.len() < 2 {
            return;
        }
        if let Some(oldest) = self.row.pop_front() {
            self.bytes -= oldest.bytes;
            let path = path(&self.dir, self.suffix, oldest.ordinal, oldest.first);
            if let Err(error) = std::fs::remove_file(&path) {
                warn!(file = %path.display(), error = &error as &dyn std::error::Error, "an old segment stays");
            }
        }
    }
}

impl<T> Files<T> {
    /// The files, oldest first; never empty.
    pub const fn row(&self) -> &VecDeque<Segment<T>> {
        &self.row
    }

    /// The file of an ordinal.
    pub fn get_mut(&mut self, ordinal: u64) -> Option<&mut Segment<T>> {
        let index = self.row.partition_point(|segment| segment.ordinal < ordinal);
        self.row
            .get_mut(index)
            .filter(|segment| segment.ordinal == ordinal)
    }

    /// The newest file's notes.
    pub fn newest_mut(&mut self) -> Option<&mut Segment<T>> {
        self.row.back_mut()
    }

    /// The oldest file whose ordinal is at least `ordinal`, as (ordinal, path, bytes).
    pub fn at_or_after(&self, ordinal: u64) -> Option<(u64, PathBuf, u64)> {
        let index = self.row.partition_point(|segment| segment.ordinal < ordinal);
        self.row.get(index).map(|segment| self.locate(segment))
    }

    /// The file that holds `sequence` if any does: the last one that begins at or before it.
    pub fn holding(&self, sequence: u64) -> Option<(u64, PathBuf, u64)> {
        let index = self.row.partition_point(|segment| segment.first <= sequence);
        self.row
            .get(index.saturating_sub(1))
            .map(|segment| self.locate(segment))
    }

    /// Bytes of all files.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when nothing will be appended to this file any more.
    pub fn is_closed(&self, ordinal: u64) -> bool {
        self.row.back().is_none_or(|newest| newest.ordinal > ordinal)
    }

    /// Takes what a sync has to cover.
    pub fn take_unsynced(&mut self) -> Unsynced {
        let mut files = std::mem::take(&mut self.unsynced);
        files.push(Arc::clone(&self.newest));
        let directory = std::mem::take(&mut self.directory_changed).then(|| self.dir.clone());
        Unsynced { files, directory }
    }

    fn locate(&self, segment: &Segment<T>) -> (u64, PathBuf, u64) {
        let path = path(&self.dir, self.suffix, segment.ordinal, segment.first);
        (segment.ordinal, path, segment.bytes)
    }
}

/// Makes the entries of a directory durable.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes a small file so that a crash leaves the old one or the new one.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).open(path)
}

fn path(dir: &Path, suffix: &str, ordinal: u64, first: u64) -> PathBuf {
    dir.join(format!("{ordinal:010}-{first:020}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> Files<()> {
        Files::open(dir, ".seg", 1_000, (VecDeque::new(), true), 1).expect("open")
    }

    #[test]
    fn after_a_write_that_failed_nothing_of_it_is_there_and_the_next_one_succeeds() {
        let dir = tempfile::tempdir().expect("dir");
        let mut files = files(dir.path());
        files.append(b"one", 1).expect("append");
        // A handle that can neither write nor cut off, as on a disk that has gone bad.
        let path = path(dir.path(), ".seg", 1, 1);
        files.newest = Arc::new(File::open(&path).expect("open"));

        assert!(files.append(b"two", 2).is_err());
        let place = files.append(b"three", 2).expect("another file");

        assert_eq!(
            place,
            Place {
                ordinal: 2,
                offset: 0
            }
        );
        assert_eq!((files.bytes(), files.row().len()), (8, 2));
        assert_eq!(std::fs::read(path).expect("read"), b"one");
    }

    #[test]
    fn a_file_is_closed_at_its_size_and_the_oldest_is_dropped_but_never_the_newest() {
        let dir = tempfile::tempdir().expect("dir");
        let mut files = files(dir.path());
        for sequence in 1..=4 {
            files.append(&[b'x'; 600], sequence).expect("append");
        }
        let listed = list(dir.path(), ".seg").expect("list");
        let numbers: Vec<_> = listed
            .iter()
            .map(|(ordinal, first, _)| (*ordinal, *first))
            .collect();
        assert_eq!(numbers, [(1, 1), (2, 3)]);
        assert_eq!(files.holding(2).map(|(ordinal, ..)| ordinal), Some(1));
        assert_eq!(files.holding(9).map(|(ordinal, ..)| ordinal), Some(2));

        files.drop_oldest();
        files.drop_oldest();

        assert_eq!(
            (files.bytes(), list(dir.path(), ".seg").expect("list").len()),
            (1_200, 1)
        );
    }
}
