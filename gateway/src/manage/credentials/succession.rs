//! Which record of a credential counts: each that was replaced names the place of the one after it.

use std::sync::Arc;

use schemas::catalog::{Key, Origin};
use schemas::failure::{Failure, FailureCode};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::{MADE_POLL, MADE_WITHIN};
use crate::manage::records::{self, Place, Written};
use crate::state::Shared;

/// Secrets that are followed from the one that a catalogue knows.
const FOLLOWED_MAX: usize = 64;

/// The record of a credential, with what only those who change it need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// What everybody reads.
    #[serde(flatten)]
    pub(super) key: Key,
    /// Where the record of the secret after this one lies, or is to lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaced_by: Option<String>,
}

impl Held {
    /// That of a secret after which there is none.
    pub(super) const fn of(key: Key) -> Self {
        Self {
            key,
            replaced_by: None,
        }
    }

    /// What everybody reads of a record that was written.
    pub(super) fn written(written: Written<Self>) -> Written<Key> {
        Written {
            revision: written.revision,
            record: written.record.key,
            repeated: written.repeated,
        }
    }

    /// The same after it was revoked.
    pub(super) fn revoked(&self) -> Self {
        let key = Key {
            revoked: true,
            // From now on a decision of run time: the file that brought the key does not bring it back.
            origin: Origin::Runtime,
            ..self.key.clone()
        };
        Self {
            key,
            replaced_by: self.replaced_by.clone(),
        }
    }

    /// The same after its secret gave way to that at `next`.
    pub(super) fn replaced(&self, next: &Place) -> Self {
        Self {
            replaced_by: Some(next.key.clone()),
            ..self.revoked()
        }
    }

    /// What lies in the place of the record after this one, where that is not to be made any more.
    pub(super) fn taking_the_place(&self, next: Option<&Place>) -> Self {
        Self {
            replaced_by: next.map(|next| next.key.clone()),
            ..self.revoked()
        }
    }
}

/// The end of what was followed.
pub(super) enum Newest {
    /// The record that counts.
    There {
        /// Where it lies.
        place: Place,
        /// What it says.
        held: Held,
        /// With which revision.
        revision: u64,
    },
    /// The secret before was replaced, the one after is not there: yet, or because whoever made it ended.
    Awaited {
        /// The record of the secret before.
        last: Held,
        /// Where the one after is to lie.
        next: Place,
        /// The revision of the secret before.
        revision: u64,
    },
}

/// Follows a credential in the bucket, from a place where it lay once.
pub(super) async fn newest(state: &Shared, from: &Place) -> Result<Newest, Failure> {
    let found = records::read::<Held>(state, &from.key).await?;
    let (found, mut revision) = found.ok_or_else(records::nothing)?;
    let (mut place, mut held) = (from.clone(), found.record);
    for _ in 0..FOLLOWED_MAX {
        let Some(key) = held.replaced_by.clone() else {
            return Ok(Newest::There {
                place,
                held,
                revision,
            });
        };
        let next = Place {
            key,
            id: Arc::clone(&place.id),
            ..place.clone()
        };
        let Some((found, at)) = records::read::<Held>(state, &next.key).await? else {
            return Ok(Newest::Awaited {
                last: held,
                next,
                revision,
            });
        };
        (place, held, revision) = (next, found.record, at);
    }
    Err(records::lost_race())
}

/// The same, waiting a while for a secret that is being made.
pub(super) async fn settled(state: &Shared, from: &Place) -> Result<Newest, Failure> {
    let until = Instant::now() + MADE_WITHIN;
    loop {
        let found = newest(state, from).await?;
        if matches!(found, Newest::There { .. }) || Instant::now() >= until {
            return Ok(found);
        }
        sleep(MADE_POLL).await;
    }
}

/// True when somebody else wrote first what was to be written.
pub(super) fn was_faster(failure: &Failure) -> bool {
    matches!(failure.code, FailureCode::Conflict | FailureCode::AlreadyExists)
}
