//! Waybills that the disk did not take. Their callers were told that the answer has no record; the record follows as
//! soon as the disk is well, so that the books do not wait for the next start of the node. A node that ends before
//! leaves them to it: their intents are open.

use std::collections::VecDeque;

use bus::spool;
use parking_lot::Mutex;
use schemas::event::request::RequestSettled;
use tracing::{info, warn};

use crate::limits::Held;

/// Most waybills that wait; what comes beyond is settled at the next start.
const WAYBILLS_MAX: usize = 10_000;

/// The waybills that wait, oldest first.
#[derive(Default)]
pub(crate) struct Unwritten {
    waiting: Mutex<VecDeque<(RequestSettled, Held)>>,
}

impl Unwritten {
    /// Keeps one, with what its request holds of its limits.
    pub(crate) fn keep(&self, settled: RequestSettled, held: Held) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAYBILLS_MAX {
            waiting.push_back((settled, held));
        } else {
            warn!(request.id = %settled.request_id, "a waybill is left to the next start");
        }
    }

    /// Writes them in order, until one is refused again. `write` tells their places in the spool.
    pub(crate) fn write(&self, write: impl Fn(&RequestSettled) -> Result<u64, spool::Error>) {
        let mut waiting = self.waiting.lock();
        while let Some((settled, _)) = waiting.front() {
            let Ok(sequence) = write(settled) else {
                return;
            };
            info!(request.id = %settled.request_id, "a waybill is written late");
            if let Some((settled, held)) = waiting.pop_front() {
                held.settle(settled.outcome, sequence);
            }
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
            let settled = RequestSettled {
                latency_ms,
                ..settled()
            };
            unwritten.keep(settled, Held::nothing());
        }
        let written = RefCell::new(Vec::new());
        let disk_takes = |most: usize| {
            unwritten.write(|settled| {
                if written.borrow().len() == most {
                    return Err(spool::Error::Disk(std::io::Error::other("full")));
                }
                written.borrow_mut().push(settled.latency_ms);
                Ok(settled.latency_ms)
            });
        };

        for most in [0, 2, 2, 9, 9] {
            disk_takes(most);
        }

        assert_eq!(written.into_inner(), [1, 2, 3]);
    }
}
