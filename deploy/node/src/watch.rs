//! Notices that a file of the configuration changed: looks at each of them twice a second, at what they are and not at
//! what is in them. That sees what editors do (a new file under the old name), what orchestrators do (a link that leads
//! elsewhere) and mounts from another machine, none of which every notification of a kernel tells.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::files::{Stamp, Stamps};

/// Rest between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The files that are watched, as they were when they were read.
#[derive(Debug, Default)]
pub struct Watch {
    known: Stamps,
}

impl Watch {
    /// Watches these files, which were so when they were read.
    pub fn new(known: Stamps) -> Self {
        Self { known }
    }

    /// Looks at the files as they are now.
    pub async fn look(&self) -> Stamps {
        let paths: Vec<PathBuf> = self.known.keys().cloned().collect();
        let stamped = |path: PathBuf| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        };
        let look = spawn_blocking(move || paths.into_iter().map(stamped).collect());
        // Only a runtime that ends drops what it has begun.
        look.await.unwrap_or_default()
    }

    /// Waits until a file is not what it was, and stays as it is for one look: who writes may not have finished.
    pub async fn changed(&self) {
        let mut last = self.known.clone();
        loop {
            sleep(LOOK_EVERY).await;
            let now = self.look().await;
            if now != self.known && now == last {
                return;
            }
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::files::Files;

    #[tokio::test]
    async fn a_change_is_told_once_the_file_is_at_rest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("models.yaml");
        fs::write(&path, "a").expect("write");
        let files = Files::default();
        files.read(&path).expect("read");
        let watch = Watch::new(files.stamps());
        let quiet = timeout(LOOK_EVERY * 3, watch.changed()).await;
        assert!(quiet.is_err(), "nothing was changed");

        fs::write(&path, "ab").expect("write");
        let start = Instant::now();
        watch.changed().await;
        assert!(start.elapsed() >= LOOK_EVERY * 2, "seen twice");

        let watch = Watch::new(watch.look().await);
        fs::remove_file(&path).expect("remove");
        watch.changed().await;
    }

    #[tokio::test]
    async fn what_changed_between_reading_and_watching_is_not_missed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("models.yaml");
        fs::write(&path, "a").expect("write");
        let files = Files::default();
        files.read(&path).expect("read");
        fs::remove_file(&path).expect("remove");

        let told = timeout(LOOK_EVERY * 10, Watch::new(files.stamps()).changed()).await;

        assert!(told.is_ok());
    }
}
