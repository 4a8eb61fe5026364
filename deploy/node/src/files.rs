//! The files of a configuration, as one reading of it met them: which they are, and what was in them, as digests. What
//! is in them may be a secret and is not kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use schemas::configuration::FileDigest;
use sha2::{Digest as _, Sha256};

use crate::yaml::FILE_BYTES_MAX;

/// Characters of the digest of all files together.
const SET_CHARS: usize = 16;

/// The files of one reading; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Files(Arc<Mutex<Met>>);

#[derive(Debug, Default)]
struct Met {
    digests: BTreeMap<PathBuf, String>,
    /// What every file was before it was read, be it there or not.
    named: Stamps,
}

/// What files are; nothing for one that is not there.
pub type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// By what a change of a file is seen without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    place: (u64, u64),
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of the file that a path leads to now; `None` where it leads to none.
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            place: (found.dev(), found.ino()),
            bytes: found.len(),
            mode: found.mode(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

impl Files {
    /// Reads a file as text, and no more of it than a configuration may have: what is larger ends short, at more than
    /// that.
    pub fn read(&self, path: &Path) -> io::Result<String> {
        self.note(path);
        let most = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        let mut bytes = Vec::new();
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        let digest = hex(&Sha256::digest(&bytes));
        self.0.lock().digests.insert(path.to_owned(), digest);
        String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    }

    /// A file that counts although it is not read here.
    pub fn note(&self, path: &Path) {
        let stamp = Stamp::of(path);
        self.0.lock().named.entry(path.to_owned()).or_insert(stamp);
    }

    /// The digest of a file that was read.
    pub fn digest(&self, path: &Path) -> Option<String> {
        self.0.lock().digests.get(path).cloned()
    }

    /// Every file that was met, as it was before it was read: whatever became of it since is a change.
    pub fn stamps(&self) -> Stamps {
        self.0.lock().named.clone()
    }

    /// What was read.
    pub fn digests(&self) -> Vec<FileDigest> {
        let met = self.0.lock();
        let digests = met.digests.iter().map(|(path, sha256)| FileDigest {
            file: path.display().to_string(),
            sha256: sha256.clone(),
        });
        digests.collect()
    }

    /// The digest of all files together: of what is in them, wherever they lie.
    pub fn set(&self) -> Arc<str> {
        let mut all = Sha256::new();
        let mut digests: Vec<String> = self.0.lock().digests.values().cloned().collect();
        digests.sort();
        for digest in digests {
            all.update(digest.as_bytes());
        }
        let mut text = hex(&all.finalize());
        text.truncate(SET_CHARS);
        text.into()
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_the_same_in_them_are_one_set() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let set = |names: &[&str]| {
            let files = Files::default();
            for name in names {
                let _ = files.read(&path(name));
            }
            (files.set(), files.stamps().len(), files.digests().len())
        };
        for (name, text) in [("a", "one"), ("b", "two"), ("c", "one")] {
            fs::write(path(name), text).expect("write");
        }

        let (first, second) = (set(&["a", "b", "missing"]), set(&["b", "c"]));

        assert_eq!(first.0, second.0);
        assert_eq!((first.1, first.2), (3, 2), "one that is missing may come");
        assert_ne!(first.0, set(&["a"]).0);
    }

    #[test]
    fn a_file_that_was_replaced_is_another_though_it_has_the_same_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("models.yaml");
        assert_eq!(Stamp::of(&path), None);
        fs::write(&path, "a").expect("write");
        let before = Stamp::of(&path);

        fs::write(directory.path().join("new"), "a").expect("write");
        fs::rename(directory.path().join("new"), &path).expect("rename");

        assert!(before.is_some() && Stamp::of(&path) != before);
    }

    #[test]
    fn of_what_is_too_large_only_the_beginning_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("models.yaml");
        fs::write(&path, "#".repeat(FILE_BYTES_MAX + 1_000)).expect("write");

        let text = Files::default().read(&path).expect("read");

        assert_eq!(text.len(), FILE_BYTES_MAX + 1);
    }
}
