//! A source that gives one place to two events cannot be trusted: two spools run under one id, from a copy. Both events
//! are kept and both requests have their rows; but the source's spools are not told to forget anything until an
//! operator has looked.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::Expected;
use bytes::Bytes;
use schemas::subject::{MARK_BUCKET, mark};
use tracing::{error, info};

use super::Applier;
use super::tell::mark_key;
use crate::Error;

/// The sources that gave a place to two events.
#[derive(Debug, Default)]
pub(super) struct Contests {
    /// By source: the place, and whether the bucket has it.
    places: BTreeMap<Arc<str>, (u64, bool)>,
}

impl Contests {
    /// True when this source must not be told its mark.
    pub(super) fn holds(&self, source: &str) -> bool {
        self.places.contains_key(source)
    }
}

/// The key under which a source's contest is kept.
fn key(source: &str) -> Option<String> {
    mark_key(source).map(|id| format!("{}{id}", mark::CONTESTED))
}

impl Applier {
    /// Looks which of the places that were taken before have more than one event now.
    pub(super) async fn contest(&mut self, taken: &[(Arc<str>, u64)]) -> Result<(), Error> {
        for (source, place) in taken {
            if self.contests.holds(source) {
                continue;
            }
            let store = Arc::clone(&self.ports.store);
            let ids = self.trying(|| store.event_ids(source, *place)).await.0?;
            if ids.len() > 1 {
                error!(
                    source = %source,
                    place,
                    events = ids.len(),
                    "a source gave one place to several events: all are kept, and its spool is not trimmed any more"
                );
                self.contests.places.insert(Arc::clone(source), (*place, false));
            }
        }
        Ok(())
    }

    /// Writes down new contests and forgets those that an operator took away.
    pub(super) async fn tell_contests(&mut self) {
        let mut ended = Vec::new();
        for (source, (place, written)) in &mut self.contests.places {
            let Some(key) = key(source) else {
                continue;
            };
            if *written {
                let entry = self.ports.kv.get(MARK_BUCKET, &key).await;
                if entry.is_ok_and(|entry| entry.is_none_or(|entry| entry.value.is_none())) {
                    ended.push(Arc::clone(source));
                }
            } else {
                let value = Bytes::from(place.to_string());
                let put = self.ports.kv.put(MARK_BUCKET, &key, value, Expected::Any).await;
                *written = put.is_ok();
            }
        }
        for source in ended {
            info!(source = %source, "the marks of a source are told again");
            self.contests.places.remove(&source);
            self.marks.due = true;
        }
    }

    /// Learns whether a source is contested that this ledger has told nothing yet; `None` when the bus does not say.
    pub(super) async fn contested_before(&mut self, source: &Arc<str>) -> Option<bool> {
        if self.contests.holds(source) {
            return Some(true);
        }
        let Some(key) = key(source) else {
            return Some(false);
        };
        let entry = self.ports.kv.get(MARK_BUCKET, &key).await.ok()?;
        let Some(value) = entry.and_then(|entry| entry.value) else {
            return Some(false);
        };
        let place = std::str::from_utf8(&value)
            .ok()
            .and_then(|text| text.parse().ok());
        self.contests
            .places
            .insert(Arc::clone(source), (place.unwrap_or(0), true));
        Some(true)
    }
}
