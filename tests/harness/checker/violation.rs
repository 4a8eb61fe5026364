//! The faults that the checker knows.

use super::Sums;
use crate::client::log::Answered;

/// Violations as the message of a failed test, one a line.
pub fn listed(found: &[Violation]) -> String {
    let lines: Vec<String> = found.iter().map(|violation| format!("- {violation:?}")).collect();
    lines.join("\n")
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq)]
pub enum Violation {
    /// An answer without a request id.
    NoRequestId(Answered),
    /// An answered or settled request without a row.
    MissingRow(Answered),
    /// More than one row of a request.
    DoubledRow(String),
    /// More rows than calls were made.
    StrayRows {
        /// Rows that belong to no answer.
        rows: Vec<String>,
        /// Calls that got no answer: so many may be.
        calls: usize,
    },
    /// The API does not list the rows of the table.
    ListingDiffers {
        /// Request ids that only the table has.
        only_table: Vec<String>,
        /// Request ids that only the API has.
        only_api: Vec<String>,
    },
    /// A row without the event it came from.
    MissingEvent(String),
    /// More than one settlement of a request.
    DoubledEvent(String),
    /// A row's cost is not that of its tokens.
    WrongCost {
        /// The request.
        request_id: String,
        /// The cost in the row, nano-dollars.
        is: i64,
        /// What it may be.
        should_be: Vec<i64>,
    },
    /// The sums of the rows are not those of the rollup or of the usage API.
    WrongSum {
        /// Which sums.
        of: &'static str,
        /// What they are.
        is: Sums,
        /// The sums of the rows.
        should_be: Sums,
    },
    /// An outcome that is not of the closed list.
    UnknownOutcome {
        /// The request.
        request_id: String,
        /// The outcome in the row.
        outcome: String,
    },
    /// A row's outcome or status contradicts what the client saw.
    Contradiction {
        /// The request.
        request_id: String,
        /// The outcome in the row.
        outcome: String,
        /// The status in the row.
        status: i64,
        /// What the client saw.
        seen: Answered,
    },
    /// A running node did not answer a question about itself or the books.
    Silent(String),
    /// Something is still reserved.
    ReservationOpen(f64),
    /// Upstream connections still carry calls.
    ConnectionLeaked {
        /// The upstream.
        upstream: String,
        /// How many.
        connections: usize,
    },
    /// An upstream was sent what no careful server accepts.
    UpstreamFault(String),
    /// A canary was found.
    CanaryFound {
        /// What it gives away.
        canary: &'static str,
        /// Where it stands.
        place: String,
        /// The line around it.
        line: String,
    },
}
