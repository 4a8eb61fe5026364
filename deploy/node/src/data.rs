//! The data directory: one process holds it, and says where it listens.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
    /// Makes the directory when it is not there, and holds it.
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
}
