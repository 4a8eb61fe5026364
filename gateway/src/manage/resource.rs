//! The paths of a record, the same for every kind of record that is changed at run time: it is made, listed, shown, its
//! history is told, it is changed, and it is taken away. A kind says only what it is ([`Resource`]) and which of the
//! paths it has: who may, how a record is found and shown, and what a body makes of it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use http::header::ETAG;
use schemas::catalog::change::Author;
use schemas::catalog::{Catalog, Stored};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::TenantId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::{Parameters, answered, description, former, json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// The segment of a path that names a record.
pub(crate) type Id = Result<Path<String>, PathRejection>;

/// What events call a record of a kind that a segment names.
pub(crate) fn of_kind(kind: Kind, id: &Id) -> Option<(Kind, Arc<str>)> {
    let Path(id) = id.as_ref().ok()?;
    Some((kind, id.as_str().into()))
}

/// One call of the management API: at which node, when, and by whom.
pub(crate) struct Act<'a> {
    pub(crate) state: &'a Shared,
    pub(crate) arrival: &'a Arrival,
    pub(crate) caller: &'a Caller,
}

impl Act<'_> {
    /// Who is told of as the author of what it changes.
    pub(crate) fn author(&self) -> Author {
        self.caller.author(self.arrival)
    }
}

/// What a body says and what it came with.
pub(crate) struct Sent<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) bytes: &'a Bytes,
}

/// A record that a caller names and may see, or the place where one could be.
pub(crate) struct Found<'c, T> {
    pub(crate) place: Place,
    pub(crate) stored: Option<&'c Stored<T>>,
}

impl<'c, T> Found<'c, T> {
    /// One that is there.
    pub(crate) fn there(place: Place, stored: &'c Stored<T>) -> Self {
        Self {
            place,
            stored: Some(stored),
        }
    }
}

/// A record with its revision; `None` where nothing lies.
pub(crate) type There<'a, T> = Option<(&'a T, u64)>;

/// Shows what is there, with its `ETag`; 404 where nothing is.
pub(crate) fn told<'a, T, S: Serialize>(
    there: There<'a, T>,
    shown: impl FnOnce(&'a T, u64) -> S,
) -> Result<Response, Failure> {
    let (record, revision) = there.ok_or_else(records::nothing)?;
    Ok(records::shown(&shown(record, revision), revision))
}

/// Shows what may lie over what files say, with its `ETag` where something does.
pub(crate) fn overlaid<S: Serialize>(shown: &S, revision: Option<u64>) -> Response {
    match revision {
        Some(revision) => records::shown(shown, revision),
        None => json(shown),
    }
}

/// A kind of record.
pub(crate) trait Resource: 'static {
    /// What is kept of it.
    type Record: Serialize + DeserializeOwned + Send + Sync;
    /// What of a request names one.
    type Named: Send;

    /// Finds what a caller names. What is not his to see is not there.
    fn found<'c>(
        caller: &Caller,
        catalog: &'c Catalog,
        named: Self::Named,
    ) -> Result<Found<'c, Self::Record>, Failure>;

    /// The answer that shows it.
    fn answer(act: &Act<'_>, place: &Place, there: There<'_, Self::Record>) -> Result<Response, Failure>;

    /// What events call one that a caller names and that is not there: where it may have been, and is not again.
    fn gone(_: &Self::Named) -> Option<(Kind, Arc<str>)> {
        None
    }

    /// Whether a caller may be told of changes of what he sees.
    fn may_be_told(_: &Caller) -> Result<(), Failure> {
        Ok(())
    }

    /// Who changed it, and what.
    fn history(act: &Act<'_>, place: &Place) -> impl Future<Output = Result<History, Failure>> + Send {
        records::history::<Self::Record>(act.state, place)
    }
}

/// A kind of record that is made by a description.
pub(crate) trait Created: Resource {
    /// The description.
    type Wanted: DeserializeOwned + Send;
    /// What callers are told who send something else.
    const WANTED: &str;

    /// Whether a caller may make any.
    fn may_create(caller: &Caller) -> Result<(), Failure> {
        rights::administers(caller)
    }

    /// Makes one, and shows it.
    fn create(
        act: &Act<'_>,
        sent: Sent<'_>,
        wanted: Self::Wanted,
    ) -> impl Future<Output = Result<Response, Failure>> + Send;
}

/// A kind of record of which the catalogue has a list.
pub(crate) trait Listed: Resource {
    /// Whether it may be narrowed to one tenant.
    const OF_TENANT: bool;

    /// Whether a caller may have the list.
    fn may_list(caller: &Caller) -> Result<(), Failure> {
        rights::administers(caller)
    }

    /// Those that follow a page, in order.
    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<Self::Record>>, Failure>;

    /// Whose one is; `None` for what is the platform's.
    fn tenant(record: &Self::Record) -> Option<&TenantId>;

    /// Where a page ends that has this one last.
    fn cursor(record: &Self::Record) -> String;

    /// One as it is shown.
    fn shown(act: &Act<'_>, record: &Self::Record, revision: u64) -> impl Serialize;
}

/// A kind of record that is changed by a body: part of it (`PATCH`), or all (`PUT`).
pub(crate) trait Changed: Resource {
    /// The body.
    type Patch: DeserializeOwned + Send;
    /// What callers are told who send something else.
    const PATCH: &str;

    /// Changes it.
    fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Self::Patch,
    ) -> impl Future<Output = Result<Written<Self::Record>, Failure>> + Send;
}

/// A kind of record that can be taken away, or whose changes can.
pub(crate) trait Removed: Resource {
    /// Whether a caller may take any away.
    fn may_remove(_: &Caller) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes it away; what it said, or says then.
    fn remove(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
    ) -> impl Future<Output = Result<Written<Self::Record>, Failure>> + Send;
}

/// Makes a record.
pub(crate) async fn create<R: Created>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(failure) = R::may_create(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let made = async {
        let bytes = description::body(&state, &headers, body).await?;
        let wanted = description::read(&bytes, R::WANTED)?;
        let sent = Sent {
            headers: &headers,
            bytes: &bytes,
        };
        R::create(&act, sent, wanted).await
    };
    made.await.unwrap_or_else(|failure| arrival.refuse(&failure))
}

/// The records that the caller administers, page by page.
pub(crate) async fn list<R: Listed>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let catalog = state.ports.catalog.load();
    let listed = || {
        R::may_list(&caller)?;
        let asked = Asked::of(given, R::OF_TENANT)?;
        let reached = asked.reaching(&caller)?;
        let mut records = R::after(&catalog, &asked)?;
        records.retain(|stored| R::tenant(&stored.record).is_none_or(&reached));
        let cursor = |stored: &&Stored<R::Record>| R::cursor(&stored.record);
        Ok(asked.page(records, cursor, |stored| {
            R::shown(&act, &stored.record, stored.revision)
        }))
    };
    answered(&arrival, listed())
}

/// One record, with its `ETag`.
pub(crate) async fn show<R: Resource>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: R::Named,
) -> Response {
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let catalog = state.ports.catalog.load();
    let shown = R::found(&caller, &catalog, named).and_then(|found| {
        let there = found.stored.map(|stored| (&*stored.record, stored.revision));
        R::answer(&act, &found.place, there)
    });
    shown.unwrap_or_else(|failure| arrival.refuse(&failure))
}

/// What was changed of a record, and by whom.
pub(crate) async fn history<R: Resource>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: R::Named,
) -> Response {
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let told = async {
        R::may_be_told(&caller)?;
        let gone = R::gone(&named);
        let told = match R::found(&caller, &state.ports.catalog.load(), named) {
            Ok(found) => R::history(&act, &found.place).await,
            Err(failure) => Err(failure),
        };
        match (told, gone) {
            (Err(failure), Some((kind, id))) if failure.code == FailureCode::NotFound => {
                former::history(&act, kind, &id).await
            }
            (told, _) => told,
        }
    };
    answered(&arrival, told.await)
}

/// Changes a record.
pub(crate) async fn change<R: Changed>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: R::Named,
    request: Request,
) -> Response {
    let place = match R::found(&caller, &state.ports.catalog.load(), named) {
        Ok(found) => found.place,
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let (parts, body) = request.into_parts();
    let changed = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let patch = description::read(&bytes, R::PATCH)?;
        let written = R::change(&act, &place, expected, patch).await?;
        R::answer(&act, &place, Some((&written.record, written.revision)))
    };
    changed.await.unwrap_or_else(|failure| arrival.refuse(&failure))
}

/// Takes a record away, or what was changed of it.
pub(crate) async fn remove<R: Removed>(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: R::Named,
    headers: HeaderMap,
) -> Response {
    let act = Act {
        state: &state,
        arrival: &arrival,
        caller: &caller,
    };
    let removed = async {
        R::may_remove(&caller)?;
        let place = R::found(&caller, &state.ports.catalog.load(), named)?.place;
        let expected = Match::of(&headers)?;
        let written = R::remove(&act, &place, expected).await?;
        let mut response = R::answer(&act, &place, Some((&written.record, written.revision)))?;
        // What is gone has no revision that a change could replace.
        response.headers_mut().remove(ETAG);
        Ok::<_, Failure>(response)
    };
    removed.await.unwrap_or_else(|failure| arrival.refuse(&failure))
}
