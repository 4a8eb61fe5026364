//! Responses that callers let us keep: what a request goes on from, and what is kept of its own answer. Kept for the
//! caller's tenant alone, in a bucket that every gateway reads: what is another's is not there.
//!
//! A response is kept after its waybill is written and before its last byte leaves, so that a caller may go on from it
//! at once, on any node. That it cannot be kept never costs the answer.

use std::time::Duration;

use bus::BusError;
use bytes::{Bytes, BytesMut};
use dialects::sse::Framer;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{RequestId, TenantId};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tracing::warn;

use crate::body::{self, Permit};
use crate::state::Shared;

mod echo;
mod kept;
pub(crate) mod object;
mod partial;
mod references;
mod store;

pub(crate) use echo::Echo;
use echo::Facts;
pub(crate) use kept::Kept;
use partial::Partial;
use references::References;
use store::Place;

/// How long the bus may take to keep a response or to find one.
const BUS_WITHIN: Duration = Duration::from_secs(5);
/// Seconds after which a caller may ask again for what cannot be looked up now.
const RETRY_SECONDS: u64 = 2;
/// Most responses in which the items are looked for that one request names.
const LOOKED_INTO_MAX: usize = 64;
/// Longest id that is repeated to whoever asked for it, in bytes.
const ID_SHOWN_BYTES_MAX: usize = 128;

/// A request as it is to be run, and what is to be kept of its answer.
pub(crate) struct Resumed {
    /// The body, with everything in it that it goes on from; `None` where that is as it was sent.
    pub(crate) body: Option<Bytes>,
    /// `None` when nothing is to be kept.
    pub(crate) keeping: Option<Box<Keeping>>,
    /// What its answer repeats.
    pub(crate) echo: Box<Echo>,
}

/// What is to be kept of a request that runs.
pub(crate) struct Keeping {
    tenant: TenantId,
    body: Bytes,
    previous: Option<Kept>,
    /// What has been said so far, by a stream.
    partial: Partial,
    /// The same of an answer that is one piece.
    begun: BytesMut,
    streams: bool,
}

/// Why a response cannot be shown.
enum Missing {
    /// It is not there, for this caller.
    Unknown,
    /// Nobody can tell now.
    Away(BusError),
}

/// Looks up what a request of `tenant` goes on from. `permit` is made to hold the body that comes of it.
pub(crate) async fn resume(
    state: &Shared,
    (tenant, request): (&TenantId, RequestId),
    body: &Bytes,
    permit: &mut Permit,
    streams: bool,
) -> Result<Resumed, Failure> {
    let asks = kept::asks(body)?;
    let named = named(state, tenant, body).await?;
    let named = named.map(|body| grown(state, body, permit)).transpose()?;
    let body = named.as_ref().unwrap_or(body);
    let previous = match &asks.previous {
        Some(id) => Some(find(state, tenant, id).await.map_err(|missing| {
            match missing {
                Missing::Unknown => unknown(FailureCode::PreviousResponseNotFound, "Previous response", id)
                    .param("previous_response_id"),
                Missing::Away(problem) => away(&problem),
            }
        })?),
        None => None,
    };
    let chained = match &previous {
        Some(previous) => Some(grown(state, kept::chained(body, previous)?, permit)?),
        None => None,
    };
    let own_id = format!("resp_{}", request.0.as_simple());
    let facts = Facts::new(asks.previous.as_deref(), asks.store, &own_id);
    let before = previous.as_ref().map_or(0, Kept::items);
    let echo = Box::new(Echo::new(facts, streams).behind(before));
    let keeping = asks.store.then(|| {
        Box::new(Keeping {
            tenant: tenant.clone(),
            body: chained.as_ref().unwrap_or(body).clone(),
            previous,
            partial: Partial::default(),
            begun: BytesMut::new(),
            streams,
        })
    });
    Ok(Resumed {
        body: chained.or_else(|| named.clone()),
        keeping,
        echo,
    })
}

/// The body with the items of kept responses that it names; `None` where it names none.
async fn named(state: &Shared, tenant: &TenantId, body: &Bytes) -> Result<Option<Bytes>, Failure> {
    let mut references = References::read(body);
    if references.is_empty() {
        return Ok(None);
    }
    let mut looked_into = 0;
    while let Some(id) = references.missing().map(str::to_owned) {
        if looked_into == LOOKED_INTO_MAX {
            let text = format!("a request may name items of at most {LOOKED_INTO_MAX} responses");
            return Err(Failure::new(FailureCode::InvalidRequest, text).param("input"));
        }
        looked_into += 1;
        let unknown = || unknown(FailureCode::NotFound, "Item", &id).param("input");
        let whose = timeout(BUS_WITHIN, store::whose(&*state.ports.kv, tenant, &id)).await;
        let whose = whose.unwrap_or(Err(BusError::Timeout));
        let whose = whose.map_err(|problem| away(&problem))?;
        let listed = || kept::listed(&id).map(|(response, _)| response);
        let response = whose.or_else(listed).ok_or_else(unknown)?;
        let kept = find(state, tenant, &response)
            .await
            .map_err(|missing| match missing {
                Missing::Unknown => unknown(),
                Missing::Away(problem) => away(&problem),
            })?;
        references.look_into(&kept);
        if references.missing() == Some(id.as_str()) {
            return Err(unknown());
        }
    }
    references.resolved(body).map(Some)
}

/// The body with its history, within the bounds of every body.
fn grown(state: &Shared, body: Bytes, permit: &mut Permit) -> Result<Bytes, Failure> {
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let bytes_max = state.config.body_bytes_max;
    if bytes > bytes_max {
        return Err(body::Refusal::TooLarge { bytes_max }.failure());
    }
    permit.grow_to(bytes).map_err(body::Refusal::failure)?;
    Ok(body)
}

impl Keeping {
    /// A piece of the answer leaves.
    pub(crate) fn heard(&mut self, chunk: &Bytes) {
        if self.streams {
            self.partial.push(chunk);
        } else {
            self.begun.extend_from_slice(chunk);
        }
    }

    /// Keeps a whole answer, of which `tail` is what has not left so far.
    pub(crate) async fn whole(mut self: Box<Self>, state: Shared, tail: Bytes) {
        if self.streams {
            if let Some(response) = ended(tail) {
                self.keep(&state, &response).await;
            }
        } else {
            self.begun.extend_from_slice(&tail);
            let response = std::mem::take(&mut self.begun);
            self.keep(&state, &response).await;
        }
    }

    /// Keeps what was said before the caller left.
    pub(crate) async fn interrupted(self: Box<Self>, state: &Shared) {
        if let Some(response) = self.partial.interrupted() {
            self.keep(state, &response).await;
        }
    }

    async fn keep(&self, state: &Shared, response: &[u8]) {
        let now_seconds = state.ports.clock.now().millis() / 1_000;
        let kept = kept::keep(&self.body, self.previous.as_ref(), response, now_seconds);
        let place = kept.as_ref().and_then(|kept| Place::new(&self.tenant, &kept.id));
        let (id, said) = kept
            .as_ref()
            .map_or_else(Default::default, |kept| (kept.id.clone(), kept.said_ids()));
        let written = kept.and_then(|kept| serde_json::to_vec(&kept).ok());
        let (Some(place), Some(written)) = (place, written) else {
            state.metrics.unkept();
            warn!("a response cannot be kept: it has no form that is known");
            return;
        };
        let written = Bytes::from(written);
        let kv = &*state.ports.kv;
        let put = async {
            // Before the response itself: whoever knows that finds them.
            store::note_items(kv, &self.tenant, &said, &id).await?;
            store::put(kv, &place, &written).await
        };
        let problem = match timeout(BUS_WITHIN, put).await {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(_) => BusError::Timeout.into(),
        };
        state.metrics.unkept();
        warn!(
            error = &problem as &dyn std::error::Error,
            "a response cannot be kept"
        );
    }
}

/// The response in the last event of a stream that ended well.
fn ended(tail: Bytes) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow)]
        response: Option<&'a RawValue>,
    }

    let mut framer = Framer::new(tail.len().saturating_add(1));
    framer.push(tail);
    let mut found = None;
    while let Ok(Some(event)) = framer.next() {
        let told: Option<Told<'_>> = serde_json::from_slice(&event.data).ok();
        if let Some(response) = told.and_then(|told| told.response) {
            found = Some(response.get().as_bytes().to_vec());
        }
    }
    found
}

/// A response of `tenant`, or what the caller is told instead.
pub(crate) async fn show(state: &Shared, tenant: &TenantId, id: &str) -> Result<Kept, Failure> {
    find(state, tenant, id).await.map_err(|missing| match missing {
        Missing::Unknown => unknown(FailureCode::NotFound, "Response", id),
        Missing::Away(problem) => away(&problem),
    })
}

/// Forgets a response of `tenant`.
pub(crate) async fn forget(state: &Shared, tenant: &TenantId, id: &str) -> Result<(), Failure> {
    show(state, tenant, id).await?;
    let Some(place) = Place::new(tenant, id) else {
        return Ok(());
    };
    let deleted = timeout(BUS_WITHIN, store::delete(&*state.ports.kv, &place)).await;
    deleted
        .unwrap_or(Err(BusError::Timeout))
        .map_err(|problem| away(&problem))
}

async fn find(state: &Shared, tenant: &TenantId, id: &str) -> Result<Kept, Missing> {
    let place = Place::new(tenant, id).ok_or(Missing::Unknown)?;
    let found = timeout(BUS_WITHIN, store::get(&*state.ports.kv, &place)).await;
    let found = found.unwrap_or(Err(BusError::Timeout)).map_err(Missing::Away)?;
    let kept: Option<Kept> = found.and_then(|found| serde_json::from_slice(&found).ok());
    let now_seconds = state.ports.clock.now().millis() / 1_000;
    kept.filter(|kept| kept.is_there_at(now_seconds))
        .ok_or(Missing::Unknown)
}

/// One text for what never was, is gone, or is another's.
fn unknown(code: FailureCode, what: &str, id: &str) -> Failure {
    let is_shown = id.len() <= ID_SHOWN_BYTES_MAX && id.bytes().all(|byte| byte.is_ascii_graphic());
    let text = if is_shown {
        format!("{what} '{id}' not found")
    } else {
        format!("{what} not found")
    };
    Failure::new(code, text)
}

fn away(problem: &BusError) -> Failure {
    warn!(
        error = problem as &dyn std::error::Error,
        "a response cannot be looked up"
    );
    let text = "responses cannot be looked up at the moment";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(RETRY_SECONDS)
}

impl Kept {
    /// The response as its caller got it.
    pub(crate) fn response(&self) -> Vec<u8> {
        self.response.get().as_bytes().to_vec()
    }

    /// What its request was given, as a list.
    pub(crate) fn input_items(&self, query: &str) -> Result<Vec<u8>, Failure> {
        kept::input_items(self, query)
    }
}
