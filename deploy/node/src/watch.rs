//! Notices that a file of the configuration changed: looks at each of them twice a second, at what they are and not at
//! what is in them. That sees what editors do (a new file under the old name), what orchestrators do (a link that leads
//! elsewhere) and mounts from another machine, none of which every notification of a kernel tells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::files::Stamp;

/// Rest between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// The files that are watched, as they were when they were read.
#[derive(Debug, Default)]
pub struct Watch {
    known: Stamps,
}

/// Files as they are at one moment.
#[derive(Debug, Clone, Default)]
pub struct Look(Stamps);

impl Watch {
    /// Looks at the files: to be done before they are read, so that no change in between is missed.
    pub async fn look(&self) -> Look {
        look(self.known.keys().cloned().collect()).await
    }

    /// From now on these files are watched, of which those that were watched before were read after `before`.
    pub async fn reset(&mut self, paths: Vec<PathBuf>, before: Look) {
        let Look(mut known) = before;
        known.retain(|path, _| paths.contains(path));
        let new = paths
            .into_iter()
            .filter(|path| !known.contains_key(path))
            .collect();
        known.extend(look(new).await.0);
        self.known = known;
    }

    /// Waits until a file is not what it was, and stays as it is for one look: who writes may not have finished.
    pub async fn changed(&self) {
        let mut last = Look(self.known.clone());
        loop {
            sleep(LOOK_EVERY).await;
            let now = self.look().await;
            if now.0 != self.known && now.0 == last.0 {
                return;
            }
            last = now;
        }
    }
}

async fn look(paths: Vec<PathBuf>) -> Look {
    let stamps = move || {
        paths
            .into_iter()
            .map(|path| (path.clone(), Stamp::of(&path)))
            .collect()
    };
    // Only a runtime that ends drops what it has begun.
    Look(spawn_blocking(stamps).await.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test]
    async fn a_change_is_told_once_the_file_is_at_rest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("models.yaml");
        fs::write(&path, "a").expect("write");
        let mut watch = Watch::default();
        watch.reset(vec![path.clone()], Look::default()).await;
        let quiet = timeout(LOOK_EVERY * 3, watch.changed()).await;
        assert!(quiet.is_err(), "nothing was changed");

        let before = watch.look().await;
        fs::write(&path, "ab").expect("write");
        let start = Instant::now();
        watch.changed().await;
        assert!(start.elapsed() >= LOOK_EVERY * 2, "seen twice");

        watch.reset(vec![path.clone()], before).await;
        watch.changed().await;
        let now = watch.look().await;
        watch.reset(vec![path.clone()], now).await;
        fs::remove_file(&path).expect("remove");
        watch.changed().await;
    }
}
