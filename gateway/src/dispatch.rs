//! The path of a request, on one page: admit → dispatch → relay → settle.
//!
//! Admission is a row of doors, each of which may refuse: draining, places, headers, body, skim, gate, idempotency key,
//! limits, spool. After the intent is written the request belongs to [`Running`], which settles it once, whatever
//! happens.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bus::dispatch::Dispatch;
use bytes::Bytes;
use dialects::skim::{self, Skim};
use http::HeaderMap;
use http::request::Parts;
use schemas::catalog::{Catalog, Model, Role};
use schemas::command::{Offer, Requirements, Told};
use schemas::event::request::{RequestAccepted, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{ModelName, RequestId};
use schemas::idempotency::hold::Standing;
use schemas::idempotency::{Key, Refusal};
use schemas::money::PriceVersion;
use schemas::time::Timestamp;
use tracing::error;

use crate::arrival::{self, Arrival};
use crate::body::{self, Permit};
use crate::caller::Caller;
use crate::demand::{self, Most};
use crate::gate::{self, Wishes};
use crate::idempotency::{self, Claimed, Repeated};
use crate::inference::call::Call;
use crate::limits::{Held, Wanted};
use crate::open::Place;
use crate::path;
use crate::refusal::{self, Refused};
use crate::relay::{self, Keyed, Live, Progress, Running};
use crate::responses::{self, Echo, Keeping};
use crate::settle::{Days, Terms};
use crate::small;
use crate::standing;
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
        Ok(Admitted::Runs(running)) => relay::answer(running).await,
        Ok(Admitted::Answered(response)) => *response,
        Err(refused) => {
            refusal::record(&state, &arrival, &caller, &refused);
            refuse(&arrival, &refused)
        }
    }
}

/// What becomes of a request that is not refused.
enum Admitted {
    /// It runs.
    Runs(Running),
    /// It is answered from what the first one with its idempotency key left.
    Answered(Box<Response>),
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
    /// What it holds of its limits.
    held: Held,
    /// The most tokens of its answers, where its limits count them.
    output_tokens_held: Option<u64>,
    /// Its idempotency key.
    key: Option<idempotency::Held>,
    /// Since when its prices hold, where they change with time.
    priced_since: Option<Timestamp>,
}

/// Lets a request in, or says why not.
async fn admit(
    state: &Shared,
    (arrival, call): (&Arrival, Call),
    caller: &Caller,
    request: Request,
) -> Result<Admitted, Box<Refused>> {
    let place = enter(state).map_err(closing)?;
    let (parts, body) = request.into_parts();
    let key = idempotency::key(&parts.headers).map_err(closing)?;
    let mut wishes = gate::wishes(&parts.headers, caller);
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
        held: Held::nothing(),
        output_tokens_held: None,
        key: None,
        priced_since: None,
    };
    let refused_by = |failure: Failure, asked: &Asked| refused(failure, &asked.skim.model, &asked.wishes);
    gate::of_account(surface, &asked.body).map_err(|failure| refused_by(failure, &asked))?;
    if let Some(key) = &key {
        let claiming = claim(state, (arrival, caller), (key, &parts), &mut asked);
        let answered = Box::pin(claiming).await;
        if let Some(response) = answered.map_err(|failure| refused_by(failure, &asked))? {
            return Ok(Admitted::Answered(Box::new(response)));
        }
    }
    let freed = asked.key.as_ref().map(idempotency::Held::ended);
    let running = start(state, arrival, caller, asked).await;
    if running.is_err()
        && let Some(freed) = freed
    {
        // Whoever is refused may try again at once.
        freed.within(idempotency::HELD_BACK).await;
    }
    running.map(Admitted::Runs)
}

/// Claims the idempotency key that a request brings. Gives the answer, where the first one with the key left one.
async fn claim(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    (key, parts): (&Key, &Parts),
    asked: &mut Asked,
) -> Result<Option<Response>, Failure> {
    // No key is spent on a model that is not there.
    let catalog = state.ports.catalog.load();
    let model = gate::admit(&catalog, caller, (&asked.skim, &asked.body), asked.surface)?
        .id
        .clone();
    drop(catalog);
    let sent = idempotency::Asked {
        method: parts.method.as_str(),
        path: &path::plain(parts.uri.path()),
        body: &asked.body,
    };
    match idempotency::claim(state, (caller, arrival.request_id), key, sent).await? {
        Claimed::Held(held) => {
            asked.key = Some(held);
            Ok(None)
        }
        Claimed::Replay(done) => {
            let repeated = Repeated {
                surface: asked.surface,
                model,
                wishes: asked.wishes.clone(),
            };
            let replayed = idempotency::replay(state, (arrival, caller), repeated, *done).await;
            replayed.map(Some)
        }
    }
}

/// Lets a request run that is nobody's replay.
async fn start(
    state: &Shared,
    arrival: &Arrival,
    caller: &Caller,
    mut asked: Asked,
) -> Result<Running, Box<Refused>> {
    let surface = asked.surface;
    let refused_by =
        |failure: Failure, asked: &Asked| refused(failure, surface, &asked.skim.model, &asked.wishes);
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
    // From here on what the call costs stands fast, whatever becomes of prices.
    let (model, since) = other.unwrap_or(model).priced(arrival.at);
    asked.priced_since = since;
    let demanded = demand(state, arrival, (caller, &catalog, &model), &mut asked).await;
    demanded.map_err(|failure| refused_by(failure, &asked))?;
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
    rewrite(state, asked, body).ok()?;
    asked.routed = Some(other.id.clone());
    Some(Arc::clone(other))
}

/// Takes what the request needs of all its limits, or nothing of any.
async fn demand(
    state: &Shared,
    arrival: &Arrival,
    (caller, catalog, model): (&Caller, &Catalog, &Model),
    asked: &mut Asked,
) -> Result<(), Failure> {
    let served = (catalog, model);
    if let Some(body) = demand::bounded(&caller.key, served, (asked.surface, &asked.skim), &asked.body) {
        rewrite(state, asked, body)?;
    }
    let Some(bounds) = state.bounds.bounds(catalog, &caller.key, &model.id) else {
        return Ok(());
    };
    let most = demand::most(model, asked.surface, &asked.skim, &asked.body);
    asked.output_tokens_held = demand::held_of_answers(&bounds, &asked.skim, &asked.body, most.output_tokens);
    let Most { tokens, nano_usd, .. } = most;
    let wanted = Wanted {
        bounds,
        tokens,
        nano_usd,
        at: arrival.at,
    };
    let told = |refusal| {
        let excess = standing::is_excessive(&refusal, &most);
        let remedy = excess.then(|| demand::remedy(served, asked.surface, &asked.body));
        let now = state.ports.clock.now();
        standing::failure(refusal, remedy, now, state.config.billing_tz)
    };
    let held = state.ports.limits.admit(wanted).await.map_err(told)?;
    asked.held = held;
    Ok(())
}

/// Puts another body in the place of the caller's.
fn rewrite(state: &Shared, asked: &mut Asked, body: Bytes) -> Result<(), Failure> {
    let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
    asked.permit.grow_to(size).map_err(body::Refusal::failure)?;
    let limits = skim_limits(state);
    asked.skim = skim::skim(asked.surface, &body, &limits).map_err(|problem| gate::malformed(&problem))?;
    asked.body = body;
    Ok(())
}

/// Puts what a request of Responses goes on from into its body, and says what is to be kept of it.
async fn resume(
    state: &Shared,
    (caller, request): (&Caller, RequestId),
    asked: &mut Asked,
) -> Result<(), Failure> {
    let streams = asked.skim.stream;
    let keeper = caller.keeper();
    let by = (&keeper, request);
    let resumed = responses::resume(state, by, &asked.body, &mut asked.permit, streams).await?;
    asked.keeping = resumed.keeping;
    asked.echo = Some(resumed.echo);
    match resumed.body {
        Some(body) => rewrite(state, asked, body),
        None => Ok(()),
    }
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
    let may_send = asked
        .key
        .as_ref()
        .is_none_or(|key| key.sending(state) == Standing::Held);
    if !may_send {
        asked.held.release();
        return Err(Refusal::StoreUnavailable.failure().into());
    }
    let Ok(reservation) = spool.reserve() else {
        asked.held.release();
        return Err(full().into());
    };
    let accepted = RequestAccepted {
        request_id: arrival.request_id,
        payer: caller.payer(),
        surface: asked.surface,
        model: model.id.clone(),
        reservation,
        price_version: PriceVersion::of(&catalog.revision_text, asked.priced_since),
        started_at: arrival.at,
        node: state.config.node.clone(),
    };
    if let Err(problem) = spool.intend(&accepted) {
        error!(
            error = &problem as &dyn std::error::Error,
            "an intent cannot be written"
        );
        spool.give_back(reservation);
        asked.held.release();
        return Err(full().into());
    }
    let offer = Offer {
        role: caller.key.counts(),
        ..offer(state, &accepted, catalog, &model, &asked)
    };
    let terms = Terms {
        model,
        stream: asked.skim.stream,
        prompt_tokens: asked.skim.prompt_tokens_estimate,
        images: asked.skim.images,
        output_tokens_held: asked.output_tokens_held,
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
        held: asked.held,
        over: None,
        key: asked.key.map(|held| Box::new(Keyed::new(held, state))),
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
    let led = model.routes.iter();
    let endpoints = led
        .filter(|route| {
            // What is not known here may be known to the router; what is another tenant's is nobody else's.
            let endpoint = catalog.endpoint(&route.endpoint_id);
            endpoint.is_none_or(|endpoint| endpoint.serves(&model.owner))
        })
        .map(|route| route.endpoint_id.clone());
    Offer {
        request_id: accepted.request_id,
        tenant: accepted.payer.tenant.clone(),
        surface: accepted.surface,
        model: model.id.clone(),
        owner: model.owner.clone(),
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
            output_tokens_held: asked.output_tokens_held,
            parameters: skim.parameters,
        },
        pin: asked.wishes.pin.clone(),
        splice: skim::splice_facts(skim),
        told: asked.told.clone(),
        spoken: asked.wishes.spoken.clone(),
        caller: accepted.payer.key_id.clone(),
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
