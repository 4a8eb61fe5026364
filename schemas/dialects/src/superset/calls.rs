//! Ids of calls while a history is read, for dialects whose results name their calls: afterwards each is there once, and
//! every result belongs to a call.

use std::collections::{HashMap, HashSet};

use super::request::Refusal;
use crate::object::Path;

/// The calls of a conversation so far.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Ids given out.
    given: HashSet<String>,
    /// Under which id the last call stands that the caller knows by this one.
    latest: HashMap<String, String>,
    /// Ids of the turn being read, as the caller wrote them.
    here: HashSet<String>,
}

impl Calls {
    /// Another turn begins.
    pub(crate) fn turn(&mut self) {
        self.here.clear();
    }

    /// A call begins: the id under which it stands. Servers that count calls of each answer from 0 make the same id
    /// again in a later turn; within a turn there are no two.
    pub(crate) fn begin(&mut self, id: String, path: &Path<'_>) -> Result<String, Refusal> {
        if id.is_empty() {
            return Err(path.invalid("must not be empty"));
        }
        if !self.here.insert(id.clone()) {
            return Err(path.invalid("is the id of another call of the same turn"));
        }
        let mut unique = id.clone();
        let mut number = self.given.len();
        while !self.given.insert(unique.clone()) {
            number += 1;
            unique = format!("{id}_{number}");
        }
        self.latest.insert(id, unique.clone());
        Ok(unique)
    }

    /// The id under which the last call stands that the caller knows by this one.
    pub(crate) fn stands(&self, id: &str) -> Option<&str> {
        self.latest.get(id).map(String::as_str)
    }

    /// The id under which the call of a result stands.
    pub(crate) fn answered(&self, id: &str, path: &Path<'_>) -> Result<String, Refusal> {
        self.stands(id)
            .map(ToOwned::to_owned)
            .ok_or_else(|| path.invalid("is the id of no earlier call"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_comes_again_in_a_later_turn_is_another_and_results_find_the_last() {
        let (mut calls, path) = (Calls::default(), Path::Root.member("id"));
        let mut begin = |turn: bool, id: &str| {
            if turn {
                calls.turn();
            }
            let begun = calls.begin(id.to_owned(), &path);
            (begun.is_ok(), calls.stands(id).map(ToOwned::to_owned))
        };
        let stands = |id: &str| Some(id.to_owned());

        assert_eq!(begin(true, "c0"), (true, stands("c0")));
        assert_eq!(begin(false, "c1"), (true, stands("c1")));
        assert_eq!(begin(false, "c0"), (false, stands("c0")));
        assert_eq!(begin(true, "c0"), (true, stands("c0_3")));
        assert_eq!(begin(false, "c0_3"), (true, stands("c0_3_4")));
        assert_eq!(begin(false, ""), (false, None));
        assert_eq!(calls.answered("c0", &path), Ok("c0_3".to_owned()));
        assert!(calls.answered("other", &path).is_err());
    }
}
