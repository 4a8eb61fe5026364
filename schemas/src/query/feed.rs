//! Usage as it comes into the books: the events of requests in the order in which they were booked, from a place on.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::request::RequestSettled;
use crate::id::{KeyId, TenantId, UserId};

/// Most events of one answer.
pub const FEED_EVENTS_MAX: u32 = 500;

/// Whose events: all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeedFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this member.
    pub user: Option<UserId>,
    /// Of this key, by id.
    pub key: Option<KeyId>,
}

impl FeedFilter {
    /// True for the row of an event that is asked for.
    pub fn admits(&self, row: &RequestSettled) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && self.key.as_ref().is_none_or(|key| *key == row.key_id)
            && (self.user.is_none() || self.user == row.user)
    }
}

/// The events beyond a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedQuery {
    /// Whose.
    pub filter: FeedFilter,
    /// Booked after this place; `None` asks where the books end now, and for no event.
    pub after: Option<u64>,
    /// 1 to [`FEED_EVENTS_MAX`].
    pub limit: u32,
}

/// Answer to [`FeedQuery`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FeedAnswer {
    /// The events in their order. There may be fewer than were asked for, or none, and still more beyond.
    pub events: Vec<Booked>,
    /// Where to go on: the last place that was looked at.
    pub place: u64,
    /// True when there may be more right now.
    pub more: bool,
}

/// One event and its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Booked {
    /// Its place in the books: rising, not dense.
    pub place: u64,
    /// Its type.
    pub kind: String,
    /// The envelope as it stands in the log.
    pub envelope: Box<RawValue>,
}
