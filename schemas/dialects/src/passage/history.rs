//! Thoughts of earlier answers in requests that pass. Clients send back the proofs that stood beside them; those that
//! are marked as ours were made for another dialect or by nobody, and no upstream accepts them.
//!
//! Guarantee: what is neither such a thought nor needs it stays byte for byte.

use bytes::Bytes;
use memchr::memmem;
use serde_json::value::RawValue;

use crate::dialect::Dialect;
use crate::splice::{Edit, splice};
use crate::{messages, responses};

/// What every proof of ours begins with.
const MARK: &[u8] = b"waybill.";

/// A request without some thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The body.
    pub body: Bytes,
    /// What is not in it, as its caller calls it.
    pub dropped: Vec<&'static str>,
}

/// Edits of a request, in rising order, and what they take out of it.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    pub(crate) edits: Vec<Edit>,
    pub(crate) dropped: Vec<&'static str>,
}

impl Edits {
    /// Something is not in the request any more.
    pub(crate) fn drop(&mut self, name: &'static str) {
        if !self.dropped.contains(&name) {
            self.dropped.push(name);
        }
    }

    fn applied(mut self, body: &Bytes) -> Option<Freed> {
        self.edits.sort_by_key(|edit| edit.range.start);
        (!self.edits.is_empty()).then(|| Freed {
            body: splice(body, &self.edits),
            dropped: self.dropped,
        })
    }
}

/// What becomes of an element of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Goes,
    Becomes(String),
}

/// The elements of a list that are left; `None` where all stay as they are.
pub(crate) fn left(list: &RawValue, mut fate: impl FnMut(&RawValue) -> Fate) -> Option<Vec<String>> {
    let elements: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let mut changed = false;
    let mut left = Vec::with_capacity(elements.len());
    for element in elements {
        match fate(element) {
            Fate::Stays => left.push(element.get().to_owned()),
            Fate::Goes => changed = true,
            Fate::Becomes(other) => {
                changed = true;
                left.push(other);
            }
        }
    }
    changed.then_some(left)
}

/// True when a request may carry proofs of ours: one search through the body.
pub fn may_carry_proofs(body: &[u8]) -> bool {
    memmem::find(body, MARK).is_some()
}

/// The request without thoughts that are proved by a mark of ours; the upstream's own proofs in such a mark stand there
/// as it made them. `None` where nothing is to be done.
pub fn without_our_proofs(dialect: Dialect, body: &Bytes) -> Option<Freed> {
    if !may_carry_proofs(body) {
        return None;
    }
    let edits = match dialect {
        Dialect::Messages => messages::passage::history::edits(body, false),
        Dialect::Responses => responses::passage::history::edits(body),
        Dialect::Chat | Dialect::Completions | Dialect::Embeddings | Dialect::Gemini => None,
    };
    edits?.applied(body)
}

/// A request of Messages without any earlier thoughts; `None` where there are none.
pub fn without_thoughts(body: &Bytes) -> Option<Freed> {
    messages::passage::history::edits(body, true)?.applied(body)
}

#[cfg(test)]
mod tests;
