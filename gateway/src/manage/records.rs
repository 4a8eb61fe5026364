//! Records of the catalogue are made and changed here: by compare-and-set, with who did it and what is different in
//! the record itself, and with an event. The record is what counts: a node that ends between the two leaves an event
//! untold, and whoever repeats the call has it told then, under the id that it has.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bus::{BusError, Expected};
use bytes::Bytes;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use schemas::catalog::change::{Actor, Author, Change, Kept, Made};
use schemas::event::audit::{Audited, Kind};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{EventId, TenantId};
use schemas::subject::CATALOG_BUCKET;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::error;

use super::{creation, internal, invalid, json};
use crate::state::Shared;

/// How long the catalogue may take over one operation.
const WITHIN: Duration = Duration::from_secs(8);
/// How long a change may take to come back through the catalogue's watch.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How often is looked whether it has.
const SEEN_POLL: Duration = Duration::from_millis(2);
/// How long a change is decided anew after those of others.
const RACED_WITHIN: Duration = Duration::from_secs(5);
/// Longest pause before it is, in microseconds: a little longer than a change takes.
const PAUSE_MICROS_MAX: u64 = 20_000;

/// Where a record lies and how it is called in events.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// What kind of record.
    pub(crate) kind: Kind,
    /// Its key in the bucket.
    pub(crate) key: String,
    /// Whose it is.
    pub(crate) tenant: TenantId,
    /// Its id.
    pub(crate) id: Arc<str>,
}

/// A record as it lies in the bucket now.
#[derive(Debug, Clone)]
pub(crate) struct Written<T> {
    /// With which revision.
    pub(crate) revision: u64,
    /// What it says.
    pub(crate) record: T,
    /// It was made before, by the same call.
    pub(crate) repeated: bool,
}

/// The changes of a record as they are shown.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct History {
    /// The newest first.
    data: Vec<Change>,
}

impl History {
    /// These changes.
    pub(super) fn of(mut data: Vec<Change>) -> Self {
        data.sort_by_key(|change| Reverse((change.at, change.id)));
        data.dedup_by_key(|change| change.id);
        Self { data }
    }

    /// Takes in the changes of another record, or what the same was before.
    pub(super) fn join(&mut self, other: Self) {
        self.data.extend(other.data);
        *self = Self::of(std::mem::take(&mut self.data));
    }
}

/// Which revision a change is to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// Whichever is there.
    Any,
    /// This one.
    Revision(u64),
}

impl Match {
    /// Reads the condition of a request.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let mut values = headers.get_all(IF_MATCH).iter();
        let Some(value) = values.next() else {
            return Ok(Self::Any);
        };
        let text = value
            .to_str()
            .ok()
            .map(str::trim)
            .filter(|_| values.next().is_none());
        let revision = text
            .and_then(|text| text.strip_prefix('"')?.strip_suffix('"'))
            .and_then(|digits| digits.parse().ok());
        match (text, revision) {
            (Some("*"), _) => Ok(Self::Any),
            (_, Some(revision)) => Ok(Self::Revision(revision)),
            _ => Err(invalid(
                IF_MATCH.as_str(),
                "expected one ETag as it was given, or *",
            )),
        }
    }

    /// True when a record of this revision may be replaced.
    pub(super) fn admits(self, revision: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Revision(wanted) => wanted == revision,
        }
    }
}

/// A change that others may be faster with, again and again: it is decided anew until it is made, or time is up.
pub(super) struct Race<'a> {
    state: &'a Shared,
    until: Instant,
}

impl<'a> Race<'a> {
    /// One that begins now.
    pub(super) fn begin(state: &'a Shared) -> Self {
        Self {
            state,
            until: Instant::now() + RACED_WITHIN,
        }
    }

    /// Pauses before another try, each time for another while, so that those who were late at once are not so again.
    /// Fails when time is up.
    pub(super) async fn again(&self) -> Result<(), Failure> {
        if Instant::now() >= self.until {
            return Err(lost_race());
        }
        let [share] = self.state.ports.mint.random::<1>();
        let micros = PAUSE_MICROS_MAX * (1 + u64::from(share)) / 256;
        sleep(Duration::from_micros(micros)).await;
        Ok(())
    }
}

/// An answer that shows a record, with its revision as the `ETag`.
pub(super) fn shown<T: Serialize>(value: &T, revision: u64) -> Response {
    let mut response = json(value);
    if let Ok(tag) = HeaderValue::try_from(format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Refuses a record that is not what the path of its kind makes of it, naming what is different.
pub(super) fn differing<T: Serialize>(record: &T, made: &T) -> Result<(), Failure> {
    let members = |record: &T| match serde_json::to_value(record) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(internal()),
    };
    let (record, made) = (members(record)?, members(made)?);
    let mut names = record.keys().chain(made.keys());
    match names.find(|name| record.get(*name) != made.get(*name)) {
        Some(name) => Err(invalid(
            name.clone(),
            "it is not what its own path would make of it",
        )),
        None => Ok(()),
    }
}

/// Makes a record where none is. One that is there counts as made when it was by a call with the same `made`.
pub(crate) async fn create<T>(
    state: &Shared,
    place: &Place,
    record: T,
    made: Option<Made>,
    author: Author,
) -> Result<Written<T>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let actor = author.actor.clone();
    let kept = Kept::new(record, made, author);
    if let Some(revision) = put(state, &place.key, &kept, Expected::Absent).await? {
        return Ok(written(state, place, kept, revision).await);
    }
    self::made(state, place, made, &actor)
        .await?
        .ok_or_else(lost_race)
}

/// The record that a call with the same `made` made; `None` where there is none. Another is in the way.
pub(super) async fn made<T: DeserializeOwned>(
    state: &Shared,
    place: &Place,
    made: Option<Made>,
    actor: &Actor,
) -> Result<Option<Written<T>>, Failure> {
    let Some((found, revision)) = read::<T>(state, &place.key).await? else {
        return Ok(None);
    };
    if made.is_none() || found.made != made {
        let text = "there is one of that id already";
        return Err(Failure::new(FailureCode::AlreadyExists, text).param("id"));
    }
    tell_again(state, place, (&found, revision), actor);
    Ok(Some(Written {
        revision,
        record: found.record,
        repeated: true,
    }))
}

/// Changes a record to what `decide` makes of it. Somebody else's change in between has it decided anew, unless it is
/// to be the revision of `expected` that is replaced.
pub(super) async fn change<T>(
    state: &Shared,
    place: &Place,
    expected: Match,
    author: &Author,
    decide: impl Fn(&T) -> Result<T, Failure>,
) -> Result<Written<T>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let race = Race::begin(state);
    loop {
        let Some((found, revision)) = read::<T>(state, &place.key).await? else {
            return Err(nothing());
        };
        if !expected.admits(revision) {
            tell_again(state, place, (&found, revision), &author.actor);
            return Err(lost_race());
        }
        let wanted = decide(&found.record)?;
        let Some(changed) = found.changed(wanted, revision, author.clone()) else {
            tell_again(state, place, (&found, revision), &author.actor);
            return Ok(Written {
                revision,
                record: found.record,
                repeated: true,
            });
        };
        if let Some(revision) = put(state, &place.key, &changed, Expected::Revision(revision)).await? {
            return Ok(written(state, place, changed, revision).await);
        }
        race.again().await?;
    }
}

/// Takes a record away, if `decide` does not refuse and it is still the revision of `expected`.
pub(super) async fn remove<T>(
    state: &Shared,
    place: &Place,
    expected: Match,
    author: Author,
    decide: impl Fn(&T) -> Result<(), Failure>,
) -> Result<Written<T>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let race = Race::begin(state);
    loop {
        let Some((found, revision)) = read::<T>(state, &place.key).await? else {
            return Err(nothing());
        };
        if !expected.admits(revision) {
            return Err(lost_race());
        }
        decide(&found.record)?;
        if let Some(made) = found.made {
            creation::note_gone(state, made).await?;
        }
        let gone = delete(state, &place.key, revision).await?;
        let Some(gone) = gone else {
            race.again().await?;
            continue;
        };
        tell(state, place, &found.removed(revision, author), gone);
        seen(state, gone).await;
        return Ok(Written {
            revision: gone,
            record: found.record,
            repeated: false,
        });
    }
}

/// Takes away what has a revision; `None` where something else is there. Gives the revision with which it went.
async fn delete(state: &Shared, key: &str, revision: u64) -> Result<Option<u64>, Failure> {
    let expected = Expected::Revision(revision);
    let deleted = timeout(WITHIN, state.ports.kv.delete(CATALOG_BUCKET, key, expected)).await;
    match deleted {
        Ok(Ok(gone)) => Ok(Some(gone)),
        Ok(Err(BusError::Conflict)) => Ok(None),
        Ok(Err(_)) | Err(_) => {
            // Nobody says what became of it.
            let get = timeout(WITHIN, state.ports.kv.get(CATALOG_BUCKET, key)).await;
            match get {
                Ok(Ok(entry)) if entry.as_ref().is_none_or(|entry| entry.value.is_none()) => {
                    Ok(Some(entry.map_or(revision, |entry| entry.revision)))
                }
                _ => Err(away()),
            }
        }
    }
}

/// Has a record be again as its file has it, if `may` lets it: that is told what the record says and will say. 404 where
/// no file says anything of it.
pub(super) async fn restore<T>(
    state: &Shared,
    place: &Place,
    expected: Match,
    author: &Author,
    may: impl Fn(&T, &T) -> Result<(), Failure>,
) -> Result<Written<T>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let race = Race::begin(state);
    loop {
        let (found, revision) = read::<T>(state, &place.key).await?.ok_or_else(nothing)?;
        if !expected.admits(revision) {
            return Err(lost_race());
        }
        let restored = found.restored(revision, author.clone()).ok_or_else(nothing)?;
        may(&found.record, &restored.record)?;
        if let Some(revision) = put(state, &place.key, &restored, Expected::Revision(revision)).await? {
            return Ok(written(state, place, restored, revision).await);
        }
        race.again().await?;
    }
}

/// Is there a record?
pub(super) async fn exists<T: DeserializeOwned>(state: &Shared, place: &Place) -> Result<bool, Failure> {
    Ok(read::<T>(state, &place.key).await?.is_some())
}

/// Refuses where what is there is not the revision of `expected`.
pub(super) async fn check<T: DeserializeOwned>(
    state: &Shared,
    place: &Place,
    expected: Match,
) -> Result<(), Failure> {
    let (_, revision) = read::<T>(state, &place.key).await?.ok_or_else(nothing)?;
    if expected.admits(revision) {
        Ok(())
    } else {
        Err(lost_race())
    }
}

/// The changes that a record keeps.
pub(super) async fn history<T: DeserializeOwned>(state: &Shared, place: &Place) -> Result<History, Failure> {
    let (found, _) = read::<T>(state, &place.key).await?.ok_or_else(nothing)?;
    Ok(History {
        data: found.history.into_iter().rev().collect(),
    })
}

/// The same author for what else one call changes: each change has an event of its own.
pub(super) fn another(state: &Shared, author: &Author) -> Author {
    Author {
        id: state.ports.mint.request_id(author.at),
        ..author.clone()
    }
}

/// There is no such record.
pub(crate) fn nothing() -> Failure {
    Failure::new(FailureCode::NotFound, "there is no such record")
}

/// Somebody else was faster.
pub(super) fn lost_race() -> Failure {
    let text = "the record was changed by somebody else: read it again and decide again";
    Failure::new(FailureCode::Conflict, text)
}

fn away() -> Failure {
    Failure::new(
        FailureCode::StoreUnavailable,
        "the catalogue cannot be changed at the moment",
    )
    .retry_after(2)
}

/// A record is written: tells of it, and waits until this node's own catalogue has it.
async fn written<T>(state: &Shared, place: &Place, kept: Kept<T>, revision: u64) -> Written<T> {
    if let Some(newest) = kept.history.last() {
        tell(state, place, newest, revision);
    }
    seen(state, revision).await;
    Written {
        revision,
        record: kept.record,
        repeated: false,
    }
}

/// Waits until this node's own catalogue has a revision.
pub(super) async fn seen(state: &Shared, revision: u64) {
    let seen = async {
        while state.ports.catalog.peek().revision < revision {
            sleep(SEEN_POLL).await;
        }
    };
    // Written it is in any case; a slow watch only delays when it counts here.
    let _ = timeout(SEEN_WITHIN, seen).await;
}

/// What lies there, with its revision.
pub(crate) async fn read<T: DeserializeOwned>(
    state: &Shared,
    key: &str,
) -> Result<Option<(Kept<T>, u64)>, Failure> {
    let get = state.ports.kv.get(CATALOG_BUCKET, key);
    let Ok(Ok(entry)) = timeout(WITHIN, get).await else {
        return Err(away());
    };
    let Some((value, revision)) = entry.and_then(|entry| Some((entry.value?, entry.revision))) else {
        return Ok(None);
    };
    let kept = serde_json::from_slice(&value).map_err(|_| internal())?;
    Ok(Some((kept, revision)))
}

/// Puts a record; `None` where something else is there. A write of which nobody says what became of it is looked for.
async fn put<T>(state: &Shared, key: &str, kept: &Kept<T>, expected: Expected) -> Result<Option<u64>, Failure>
where
    T: Serialize + DeserializeOwned,
{
    let value = serde_json::to_vec(kept).map_err(|_| internal())?;
    let put = state
        .ports
        .kv
        .put(CATALOG_BUCKET, key, Bytes::from(value), expected);
    let conflict = match timeout(WITHIN, put).await {
        Ok(Ok(revision)) => return Ok(Some(revision)),
        Ok(Err(BusError::Conflict)) => true,
        Ok(Err(_)) | Err(_) => false,
    };
    let newest = |kept: &Kept<T>| kept.history.last().map(|change| change.id);
    match read::<T>(state, key).await? {
        Some((found, revision)) if newest(&found) == newest(kept) => Ok(Some(revision)),
        _ if conflict => Ok(None),
        _ => Err(away()),
    }
}

/// Tells once more of a record's newest change, if it is the work of whoever calls again: he may not have had the
/// answer, and the node that wrote it may have ended before it told of it.
fn tell_again<T>(state: &Shared, place: &Place, (kept, revision): (&Kept<T>, u64), actor: &Actor) {
    if let Some(newest) = kept.history.last().filter(|newest| newest.actor == *actor) {
        tell(state, place, newest, revision);
    }
}

/// Puts the event of a change into the spool, under an id that is the change's own.
pub(super) fn tell(state: &Shared, place: &Place, change: &Change, revision: u64) {
    let audited = Audited {
        kind: place.kind,
        tenant: place.tenant.clone(),
        id: Arc::clone(&place.id),
        revision,
        change: change.clone(),
        node: state.config.node.clone(),
    };
    let id = EventId(change.id.0);
    if let Err(problem) = state
        .ports
        .spool
        .append_as(id, &place.tenant, change.at, &audited)
    {
        error!(
            request.id = %change.id,
            error = &problem as &dyn std::error::Error,
            "the event of a change cannot be written; the record itself tells of it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&'static str]) -> Result<Match, Failure> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, HeaderValue::from_static(value));
        }
        Match::of(&headers)
    }

    #[test]
    fn a_condition_is_one_tag_as_it_was_given() {
        assert_eq!(of(&[]), Ok(Match::Any));
        assert_eq!(of(&["*"]), Ok(Match::Any));
        assert_eq!(of(&["\"17\""]), Ok(Match::Revision(17)));
        for wrong in [
            &["17"][..],
            &["W/\"17\""],
            &["\"17\", \"18\""],
            &["\"x\""],
            &["\"1\"", "\"2\""],
        ] {
            let refused = of(wrong).expect_err("no condition");
            assert_eq!(
                (refused.status, refused.param.as_deref()),
                (400, Some("if-match")),
                "{wrong:?}"
            );
        }
    }
}
