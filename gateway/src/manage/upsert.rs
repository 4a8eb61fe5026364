//! Records that there need not be: who sets one makes it or changes it.

use schemas::catalog::change::Author;
use schemas::failure::{Failure, FailureCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::records::{self, Match, Place, Race, Written};
use crate::state::Shared;

/// Sets a record to what `decide` makes of what is there.
pub(super) async fn set<T>(
    state: &Shared,
    place: &Place,
    expected: Match,
    author: &Author,
    decide: impl Fn(Option<&T>) -> Result<T, Failure>,
) -> Result<Written<T>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let race = Race::begin(state);
    loop {
        let changed = records::change(state, place, expected, author, |found| decide(Some(found))).await;
        match changed {
            Err(failure) if failure.code == FailureCode::NotFound => {}
            changed => return changed,
        }
        if expected != Match::Any {
            return Err(records::lost_race());
        }
        match records::create(state, place, decide(None)?, None, author.clone()).await {
            Err(failure) if failure.code == FailureCode::AlreadyExists => {}
            made => return made,
        }
        race.again().await?;
    }
}
