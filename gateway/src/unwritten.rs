//! Waybills that the disk did not take. Their callers were told that the answer has no record; the record follows as
//! soon as the disk is well, so that the books do not wait for the next start of the node. A node that ends before
//! leaves them to it: their intents are open.

use std::collections::VecDeque;

use bus::spool;
use parking_lot::Mutex;
use schemas::event::request::RequestSettled;
use tracing::{info, warn};

/// Most waybills that wait; what comes beyond is settled at the next start.
const WAYBILLS_MAX: usize = 10_000;

/// The waybills that wait, oldest first.
#[derive(Default)]
pub(crate) struct Unwritten {
    waiting: Mutex<VecDeque<RequestSettled>>,
}

impl Unwritten {
    /// Keeps one.
    pub(crate) fn keep(&self, settled: RequestSettled) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAYBILLS_MAX {
            waiting.push_back(settled);
        } else {
            warn!(request.id = %settled.request_id, "a waybill is left to the next start");
        }
    }

    /// Writes them in order, until one is refused again.
    pub(crate) fn write(&self, write: impl Fn(&RequestSettled) -> Result<(), spool::Error>) {
        let mut waiting = self.waiting.lock();
        while let Some(settled) = waiting.front() {
            if write(settled).is_err() {
                return;
            }
            info!(request.id = %settled.request_id, "a waybill is written late");
            waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::settle::tests::settled;

    #[test]
    fn waybills_are_written_once_and_in_order_when_the_disk_takes_them() {
        let unwritten = Unwritten::default();
        for latency_ms in [1, 2, 3] {
            unwritten.keep(RequestSettled {
                latency_ms,
                ..settled()
            });
        }
        let written = RefCell::new(Vec::new());
        let disk_takes = |most: usize| {
            unwritten.write(|settled| {
                if written.borrow().len() == most {
                    return Err(spool::Error::Disk(std::io::Error::other("full")));
                }
                written.borrow_mut().push(settled.latency_ms);
                Ok(())
            });
        };

        for most in [0, 2, 2, 9, 9] {
            disk_takes(most);
        }

        assert_eq!(written.into_inner(), [1, 2, 3]);
    }
}
