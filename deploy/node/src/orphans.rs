//! Requests that the last run of a spool left open are settled as lost. A disk that is full has no room for that yet:
//! the publisher, which must run by now, makes it by carrying the spool's events into the books.

use bus::spool::{Error, Orphan, Spool};
use chrono_tz::Tz;
use schemas::time::Timestamp;

use crate::patience::{self, Passing, START_WAIT};

impl Passing for Error {
    fn passes(&self) -> bool {
        matches!(self, Self::Disk(problem) if problem.kind() == std::io::ErrorKind::StorageFull)
    }
}

/// Settles `orphans` and returns how many. Waits for each as long as a start may wait.
pub(crate) async fn settle(
    spool: &Spool,
    orphans: Vec<Orphan>,
    billing_tz: Tz,
    now: Timestamp,
) -> Result<usize, Error> {
    let count = orphans.len();
    for orphan in orphans {
        patience::until("the disk of the spool is full", START_WAIT, || {
            let settled = gateway::recover(spool, vec![orphan.clone()], billing_tz, now);
            std::future::ready(settled.map(drop))
        })
        .await?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_is_waited_for_and_a_broken_one_is_not() {
        let failed = |kind| Error::Disk(std::io::Error::from(kind)).passes();

        assert!(failed(ErrorKind::StorageFull));
        assert!(!failed(ErrorKind::PermissionDenied));
    }
}
