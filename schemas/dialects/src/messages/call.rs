//! Ids of the calls of one answer: never empty, never twice.

use super::frame::{Told, text};
use super::id;
use crate::superset::answer::Broken;

/// Gives out ids.
#[derive(Debug, Default)]
pub(super) struct Ids {
    given: Vec<String>,
    /// What tells the answer from others, for calls that come without an id.
    answer: String,
}

impl Ids {
    /// For an answer with this id.
    pub(super) fn of(answer: Told<'_>) -> Self {
        let answer = text(answer).unwrap_or_default();
        Self {
            given: Vec::new(),
            answer: id::of_call(&answer),
        }
    }

    /// True once there was a call.
    pub(super) const fn any(&self) -> bool {
        !self.given.is_empty()
    }

    /// The next call's number and id.
    pub(super) fn next(&mut self, told: Told<'_>) -> Result<(u32, String), Broken> {
        let number = u32::try_from(self.given.len()).map_err(|_| Broken::Malformed)?;
        let told = text(told).ok_or(Broken::Malformed)?;
        let mut id = told.into_owned();
        if id.is_empty() || self.given.contains(&id) {
            id = format!("toolu_{}_{number}", self.answer);
        }
        while self.given.contains(&id) {
            id.push('_');
        }
        self.given.push(id.clone());
        Ok((number, id))
    }
}
