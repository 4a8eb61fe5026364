//! What a request holds while it runs. Limits of callers are layers (tenant, user, key); a reservation
//! holds room for the request's records in the spool and is given back by the request's own settlement.

use serde::{Deserialize, Serialize};

/// Room in the spool that each admitted request holds until it settles, in bytes.
pub const SPOOL_RESERVATION_BYTES: u64 = 8 * 1024;

/// What one request holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reservation {
    /// Room in the spool, in bytes.
    pub spool_bytes: u64,
}
