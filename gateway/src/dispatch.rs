//! The path of a request, on one page: admit → dispatch → relay → settle.
//!
//! Admission is a row of doors, each of which may refuse: draining, places, headers, body, skim, gate, spool. After the
//! intent is written the request belongs to [`Running`], which settles it once, whatever happens.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bus::dispatch::Dispatch;
use bus::spool;
use bytes::Bytes;
use dialects::skim::{self, Skim};
use http::HeaderMap;
use schemas::catalog::{Catalog, Model, Role};
use schemas::command::{Offer, Requirements, Told};
use schemas::event::request::{RequestAccepted, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{ModelName, RequestId};
use schemas::money::PriceVersion;
use tracing::error;

use crate::arrival::{self, Arrival};
use crate::body::{self, Permit};
use crate::caller::Caller;
use crate::gate::{self, Wishes};
use crate::inference::call::Call;
use crate::open::Place;
use crate::refusal::{self, Refused};
use crate::relay::{self, Live, Progress, Running};
use crate::responses::{self, Echo, Keeping};
use crate::settle::{Days, Terms};
use crate::small;
use crate::state::{Phase, Shared};

/// How long a caller may pause while he sends his body.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Seconds after which a caller refused by a full node may try again.
const RETRY_SECONDS: u64 = 5;

/// Runs what `caller` asks for, from its first byte to its answer.
pub(crate) async fn run(
    state: Shared,
    (arrival, call): (Arrival, Call),
    caller: Caller,
    request: Request,
) -> Response {
    match admit(&state, (&arrival, call), &caller, request).await {
        Ok(running) => relay::answer(running).await,
        Err(refused) => {
            refusal::record(&state, &arrival, &caller, &refused);
            refuse(&arrival, &refused)
        }
    }
}

/// A request that passed the gate, with its place and its bytes.
struct Asked {
    place: Place,
    surface: Surface,
    wishes: Wishes,
    told: Told,
    body: Bytes,
    permit: Permit,
    skim: Skim,
    keeping: Option<Box<Keeping>>,
    echo: Option<Box<Echo>>,
    /// Another model than the one that was asked for answers.
    routed: Option<ModelName>,
}

/// Lets a request in, or says why not.
async fn admit(
    state: &Shared,
    (arrival, call): (&Arrival, Call),
    caller: &Caller,
    request: Request,
) -> Result<Running, Box<Refused>> {
    let place = enter(state).map_err(closing)?;
    let (parts, body) = request.into_parts();
    let mut wishes = gate::wishes(&parts.headers, caller).map_err(closing)?;
    let told = gate::told(&parts.headers).map_err(closing)?;
    let (body, permit) = read(state, &parts.headers, body).await.map_err(closing)?;
    let limits = skim_limits(state);
    let surface = match call {
        Call::On(surface) => surface,
        Call::ByBody if skim::has_messages(&body, &limits) => Surface::Chat,
        Call::ByBody => Surface::Completions,
    };
    let refused = |failure: Failure, model: &str, wishes: &Wishes| refused(failure, surface, model, wishes);
    let skim = skim::skim(surface, &body, &limits)
        .map_err(|problem| refused(gate::malformed(&problem), "", &wishes))?;
    gate::of_version(surface, &told, &body).map_err(|failure| refused(failure, &skim.model, &wishes))?;
    wishes.end_user = wishes.end_user.or_else(|| arrival::kept(skim.user.as_deref()?));
    let mut asked = Asked {
        place,
        surface,
        wishes,
        told,
        body,
        permit,
        skim,
        keeping: None,
        echo: None,
        routed: None,
    };
    let refused_by = |failure: Failure, asked: &Asked| refused(failure, &asked.skim.model, &asked.wishes);
    gate::of_account(surface, &asked.body).map_err(|failure| refused_by(failure, &asked))?;
    if surface == Surface::Responses {
        // Nobody goes on with a model that is not there for him.
        let admitted = gate::admit(
            &state.ports.catalog.load(),
            caller,
            (&asked.skim, &asked.body),
            surface,
        )
        .map(drop);
        admitted.map_err(|failure| refused_by(failure, &asked))?;
        let resumed = resume(state, (caller, arrival.request_id), &mut asked).await;
        resumed.map_err(|failure| refused_by(failure, &asked))?;
    }
    let catalog = state.ports.catalog.load();
    let model = gate::admit(&catalog, caller, (&asked.skim, &asked.body), surface)
        .map_err(|failure| refused_by(failure, &asked))?
        .clone();
    let other = small(state, &catalog, (caller, &model), &mut asked);
    let model = other.unwrap_or(model);
    dispatch(state, arrival, caller, (&catalog, model), asked)
}

/// The small model that answers a call which leaves no room to think; the call then has room enough.
fn small(
    state: &Shared,
    catalog: &Catalog,
    (caller, model): (&Caller, &Model),
    asked: &mut Asked,
) -> Option<Arc<Model>> {
    let small = state.config.small_calls.as_ref()?;
    let by = (caller, asked.surface);
    let other = small::instead(small, catalog, by, (model, &asked.skim))?;
    let body = small::roomier(small, &asked.body)?;
    asked
        .permit
        .grow_to(u64::try_from(body.len()).unwrap_or(u64::MAX))
        .ok()?;
    asked.skim = skim::skim(asked.surface, &body, &skim_limits(state)).ok()?;
    asked.body = body;
    asked.routed = Some(other.id.clone());
    Some(Arc::clone(other))
}

/// Puts what a request of Responses goes on from into its body, and says what is to be kept of it.
async fn resume(
    state: &Shared,
    (caller, request): (&Caller, RequestId),
    asked: &mut Asked,
) -> Result<(), Failure> {
    let streams = asked.skim.stream;
    let by = (caller.tenant(), request);
    let resumed = responses::resume(state, by, &asked.body, &mut asked.permit, streams).await?;
    asked.keeping = resumed.keeping;
    asked.echo = Some(resumed.echo);
    if let Some(body) = resumed.body {
        let limits = skim_limits(state);
        asked.skim =
            skim::skim(asked.surface, &body, &limits).map_err(|problem| gate::malformed(&problem))?;
        asked.body = body;
    }
    Ok(())
}

/// A place among the requests that run.
pub(crate) fn enter(state: &Shared) -> Result<Place, Failure> {
    if state.phase() == Phase::Closed {
        return Err(busy(FailureCode::Draining, "the node is shutting down"));
    }
    let place = state.open.enter();
    place.ok_or_else(|| busy(FailureCode::Overloaded, "too many requests are running"))
}

/// Reads a body within the node's bounds.
pub(crate) async fn read(
    state: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Permit), Failure> {
    let limits = body::Limits {
        bytes_max: state.config.body_bytes_max,
        pause_max: PAUSE_MAX,
    };
    let read = body::read(&state.bodies, headers, body, limits).await;
    read.map_err(body::Refusal::failure)
}

/// The node's bounds on what is in a body.
pub(crate) fn skim_limits(state: &Shared) -> skim::Limits {
    skim::Limits {
        depth_max: state.config.depth_max,
        ..skim::Limits::default()
    }
}

/// Writes the intent and hands the request to the router.
fn dispatch(
    state: &Shared,
    arrival: &Arrival,
    caller: &Caller,
    (catalog, model): (&Catalog, Arc<Model>),
    asked: Asked,
) -> Result<Running, Box<Refused>> {
    let full = || busy(FailureCode::SpoolFull, "the node cannot record further requests");
    let spool = &state.ports.spool;
    let reservation = spool.reserve().map_err(|spool::Full| full())?;
    let accepted = RequestAccepted {
        request_id: arrival.request_id,
        payer: caller.payer(),
        surface: asked.surface,
        model: model.id.clone(),
        reservation,
        price_version: PriceVersion(catalog.revision_text.clone()),
        started_at: arrival.at,
        node: state.config.node.clone(),
    };
    if let Err(problem) = spool.intend(&accepted) {
        error!(
            error = &problem as &dyn std::error::Error,
            "an intent cannot be written"
        );
        spool.give_back(reservation);
        return Err(full().into());
    }
    let offer = Offer {
        role: caller.role(),
        ..offer(state, &accepted, catalog, &model, &asked)
    };
    let terms = Terms {
        model,
        stream: asked.skim.stream,
        prompt_tokens: asked.skim.prompt_tokens_estimate,
        images: asked.skim.images,
        days: Days::new(arrival.request_id, arrival.at, state.config.billing_tz),
        wishes: asked.wishes,
    };
    let public_model = offer.public_model.clone();
    let body = asked.body;
    let session = state.ports.dispatcher.dispatch(Dispatch { offer, body });
    Ok(Running::new(Box::new(Live {
        state: state.clone(),
        _place: asked.place,
        slot: state.open.open(accepted, arrival.connection.clone()),
        public_model,
        terms,
        session,
        permit: Some(asked.permit),
        keeping: asked.keeping,
        echo: asked.echo,
        routed: asked.routed,
        progress: Progress::default(),
    })))
}

/// What the router is told.
fn offer(
    state: &Shared,
    accepted: &RequestAccepted,
    catalog: &Catalog,
    model: &Model,
    asked: &Asked,
) -> Offer {
    let skim = &asked.skim;
    let canonical = skim.model == model.id.as_str();
    let endpoints = model.routes.iter().map(|route| route.endpoint_id.clone());
    Offer {
        request_id: accepted.request_id,
        tenant: accepted.payer.tenant.clone(),
        surface: accepted.surface,
        model: model.id.clone(),
        public_model: if canonical {
            model.id.0.clone()
        } else {
            skim.model.as_str().into()
        },
        candidates: endpoints.collect(),
        catalog_revision: catalog.revision,
        requirements: Requirements {
            modalities: skim.modalities,
            prompt_tokens: skim.prompt_tokens_estimate,
            output_tokens_max: skim.max_tokens,
            parameters: skim.parameters,
        },
        pin: asked.wishes.pin.clone(),
        splice: skim::splice_facts(skim),
        told: asked.told.clone(),
        role: Role::default(),
        started_at: accepted.started_at,
        attempts_max: state.config.attempts_max,
    }
}

fn busy(code: FailureCode, text: &'static str) -> Failure {
    Failure::new(code, text).retry_after(RETRY_SECONDS)
}

/// Refused before the body is read to its end.
fn closing(failure: Failure) -> Box<Refused> {
    let mut refused: Box<Refused> = failure.into();
    refused.closing = true;
    refused
}

fn refused(failure: Failure, surface: Surface, model: &str, wishes: &Wishes) -> Box<Refused> {
    let mut refused: Box<Refused> = failure.into();
    refused.surface = Some(surface);
    model.clone_into(&mut refused.model);
    refused.wishes.clone_from(wishes);
    refused
}

fn refuse(arrival: &Arrival, refused: &Refused) -> Response {
    if refused.closing {
        arrival.refuse_unread(&refused.failure)
    } else {
        arrival.refuse(&refused.failure)
    }
}
