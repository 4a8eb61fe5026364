//! The data directory: one process holds it, says where it listens, and lets nobody else read it.

use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit};

/// What a node keeps in its data directory. An earlier version let everybody read it.
const KEPT: [&str; 7] = [
    "bus",
    "spool",
    "ledger.db",
    "ledger.db-wal",
    "ledger.db-shm",
    "lock",
    "address",
];
/// What the owner may do, of the bits of a mode.
const OWNER: u32 = 0o700;

/// Whatever this process makes from now on, only its owner may read: directories get 0700, files 0600. A crash leaves
/// no picture of its memory, which holds what prompts and credentials there are.
pub fn keep_to_the_owner() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A system that does not let a process give up a right of its own has none to give.
    let _ = setrlimit(Resource::Core, none);
}

/// Takes from everybody but the owner what he may do with the file or directory, if it is there.
pub fn close(path: &Path) -> std::io::Result<()> {
    let mode = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & !OWNER == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode & OWNER))
}

/// A data directory that this process holds until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process holds it.
    #[error("another waybill runs on {path}; stop it, or give this one a --data-dir of its own", path = path.display())]
    Held {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be made or written.
    #[error("cannot write to {path}; check that the directory may be written and the disk has room", path = path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl DataDirectory {
    /// Makes the directory when it is not there, holds it, and closes what is in it to others. A directory that was
    /// there keeps its mode: others may have a use for it.
    pub fn hold(path: &Path) -> Result<Self, Error> {
        let unusable = |source| Error::Unusable {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path).map_err(unusable)?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {
                for name in KEPT {
                    close(&path.join(name)).map_err(unusable)?;
                }
                // Where an earlier process listened is nobody's address any more.
                let _ = std::fs::remove_file(path.join("address"));
                Ok(Self {
                    path: path.to_owned(),
                    _lock: file,
                })
            }
            Err(std::fs::TryLockError::WouldBlock) => Err(Error::Held {
                path: path.to_owned(),
            }),
            Err(std::fs::TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells command lines where the running node takes management calls.
    pub fn announce(&self, address: SocketAddr) -> Result<(), Error> {
        let write = std::fs::write(self.path.join("address"), address.to_string());
        write.map_err(|source| Error::Unusable {
            path: self.path.clone(),
            source,
        })
    }
}

/// Where the node that holds a directory said it takes management calls.
pub fn announced(path: &Path) -> Option<SocketAddr> {
    std::fs::read_to_string(path.join("address"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_what_to_do() {
        let directory = tempfile::tempdir().expect("directory");
        let _first = DataDirectory::hold(directory.path()).expect("hold");

        let error = DataDirectory::hold(directory.path()).expect_err("held");

        assert!(error.to_string().contains("--data-dir"), "{error}");
    }

    #[test]
    fn what_everybody_could_read_is_closed_and_what_is_not_ours_stays() {
        let directory = tempfile::tempdir().expect("directory");
        let mode = |name: &str| {
            let metadata = std::fs::metadata(directory.path().join(name)).expect("metadata");
            metadata.permissions().mode() & 0o777
        };
        std::fs::create_dir(directory.path().join("bus")).expect("make");
        for name in ["ledger.db", "notes.txt", "bus/1.log"] {
            std::fs::write(directory.path().join(name), "x").expect("write");
        }
        for (name, open) in [
            ("bus", 0o755),
            ("ledger.db", 0o644),
            ("notes.txt", 0o644),
            ("bus/1.log", 0o644),
        ] {
            let open = Permissions::from_mode(open);
            std::fs::set_permissions(directory.path().join(name), open).expect("open");
        }

        let _held = DataDirectory::hold(directory.path()).expect("hold");

        assert_eq!((mode("bus"), mode("ledger.db")), (0o700, 0o600));
        assert_eq!(mode("notes.txt"), 0o644, "not a node's");
    }
}
