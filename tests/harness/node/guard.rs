//! No test of a node ends without a look at its books: a node that is dropped unchecked fails its test. A scene checks
//! its nodes; a test of a bare node says [`Node::check_books`] itself.

use std::time::Duration;

use super::Node;
use super::config::OPERATOR_KEY;
use crate::checker::gather::{Expected, Scope, settle};
use crate::checker::violation;
use crate::client::log::ClientLog;

/// How long the books of a node may take to become quiet.
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(5);

/// What is known of a node until its books are checked.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// What its clients were answered.
    log: ClientLog,
    foreign_calls: bool,
    checked: bool,
}

impl Guard {
    pub(super) const fn log(&self) -> &ClientLog {
        &self.log
    }

    /// What was checked counts no more.
    pub(super) const fn reopen(&mut self) {
        self.checked = false;
    }
}

impl Node {
    /// Checks the books against what clients of this node were answered; panics with what is wrong. A node that does
    /// not run is judged by its files.
    pub async fn check_books(&mut self) {
        let expected = Expected {
            foreign_calls: self.guard.foreign_calls,
            ..Expected::default()
        };
        let scope = Scope {
            books: self.books(),
            log: self.guard.log.clone(),
            nodes: vec![self],
            upstreams: Vec::new(),
            directories: Vec::new(),
            expected: &expected,
            quiet_max: QUIET_MAX,
        };
        let found = settle(scope).await;
        assert!(
            found.is_empty(),
            "the books are wrong:\n{}\nthe log of {}:\n{}",
            violation::listed(&found),
            self.name(),
            self.logs().join("\n")
        );
    }

    /// Tells the checker that calls were made past the node's clients: raw sockets, other programs.
    pub const fn foreign_calls(&mut self) {
        self.guard.foreign_calls = true;
    }

    /// Tells the checker that what was booked so far was taken away on purpose.
    pub fn books_are_gone(&mut self) {
        self.guard.log.clear();
        self.guard.foreign_calls = true;
    }

    /// The books of this node answer for what one that will not come back has answered.
    pub fn answers_for(&mut self, mut dead: Self) {
        self.guard.log.absorb(&dead.guard.log);
        dead.checked();
    }

    /// Notes that its books were checked.
    pub(crate) const fn checked(&mut self) {
        self.guard.checked = true;
    }

    /// A key that may read its books.
    pub(crate) fn reader_key(&self) -> String {
        if self.builder.is_bare() {
            self.minted_key()
        } else {
            OPERATOR_KEY.to_owned()
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        assert!(
            self.guard.checked || std::thread::panicking(),
            "{} ended without a look at its books: call check_books()",
            self.builder.name
        );
    }
}
