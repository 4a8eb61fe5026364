//! The path of a request, on one page: admit → dispatch → relay → settle.
//!
//! Admission is a row of doors, each of which may refuse: draining, places, headers, body, skim, gate, idempotency key,
//! limits, spool. After the intent is written the request belongs to [`Running`], which settles it once, whatever
//! happens.

mod offered;
pub(crate) mod raw;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use dialects::skim::{self, Skim};
use http::HeaderMap;
use http::request::Parts;
use schemas::auto::choice::Why;
use schemas::auto::record::Routed as Chosen;
use schemas::catalog::policy::Strategy;
use schemas::catalog::{Catalog, Model};
use schemas::command::Told;
use schemas::event::request::{RequestAccepted, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{ModelName, RequestId};
use schemas::idempotency::hold::Standing;
use schemas::idempotency::{Key, Refusal};
use schemas::money::PriceVersion;
use schemas::time::Timestamp;
use tracing::error;

use crate::arrival::{self, Arrival};
use crate::auto::session::Stay;
use crate::auto::{self, Walk};
use crate::body::{self, Permit};
use crate::caller::Caller;
use crate::gate::{self, Wishes};
use crate::idempotency::{self, Claimed, Repeated};
use crate::inference::call::Call;
use crate::limits::Held;
use crate::open::Place;
use crate::path;
use crate::refusal::{self, Refused};
use crate::relay::{self, Keyed, Live, Progress, Routed, Running};
use crate::responses::{self, Echo, Keeping};
use crate::settle::{Days, Terms};
use crate::small;
use crate::state::{Phase, Shared};

pub(crate) use offered::{Sending, dispatched, offer};
pub(crate) use taking::{Taken, take};

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
    routed: Option<Routed>,
    /// Whom it goes to, where that was left to the gateway.
    auto: Option<Box<Walk>>,
    /// What it holds of its limits.
    held: Held,
    /// The most tokens of its answers, where its limits count them.
    output_tokens_held: Option<u64>,
    /// Its idempotency key.
    key: Option<idempotency::Held>,
    /// Since when its prices hold, where they change with time.
    priced_since: Option<Timestamp>,
    /// How it passes, where it does so as it is.
    passing: Option<raw::Passing>,
}

impl Asked {
    /// What it is sent to a model as.
    fn sending(&self, caller: &Caller, model: &Model, attempts_max: u32) -> Sending<'_> {
        let auto = self.auto.as_ref();
        Sending {
            skim: &self.skim,
            wishes: &self.wishes,
            told: &self.told,
            output_tokens_held: self.output_tokens_held,
            role: caller.key.counts(),
            named: auto.map(|_| model.id.0.clone()),
            attempts: auto.map_or((0, attempts_max), |walk| walk.attempts()),
            passes_sleepers: auto.is_some_and(|walk| walk.passes_sleepers()),
            raw: self.passing.as_ref().map(|passing| &*passing.raw),
        }
    }
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
        auto: None,
        held: Held::nothing(),
        output_tokens_held: None,
        key: None,
        priced_since: None,
        passing: None,
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
    let model = named(&state.ports.catalog.load(), caller, asked)?;
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

/// The model that a request is for, as its row has it: one that is there for its caller.
fn named(catalog: &Catalog, caller: &Caller, asked: &Asked) -> Result<ModelName, Failure> {
    if auto::strategy(catalog, Some(&caller.key), &asked.skim.model).is_some() {
        return Ok(auto::name());
    }
    let model = gate::admit(catalog, caller, (&asked.skim, &asked.body), asked.surface)?;
    Ok(model.id.clone())
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
        let admitted = named(&state.ports.catalog.load(), caller, &asked);
        admitted.map_err(|failure| refused_by(failure, &asked))?;
        let resumed = resume(state, (caller, arrival.request_id), &mut asked).await;
        resumed.map_err(|failure| refused_by(failure, &asked))?;
    }
    let catalog = state.ports.catalog.load();
    if let Some(strategy) = auto::strategy(&catalog, Some(&caller.key), &asked.skim.model) {
        let left = (Arc::clone(&catalog), strategy);
        let chosen = Box::pin(choose(state, (arrival, caller), left, &mut asked)).await;
        let model = chosen.map_err(|(failure, told)| {
            let mut refused = refused_by(failure, &asked);
            refused.auto = told;
            refused
        })?;
        return dispatch(state, arrival, caller, (&catalog, model), asked);
    }
    let model = gate::admit(&catalog, caller, (&asked.skim, &asked.body), surface)
        .map_err(|failure| refused_by(failure, &asked))?
        .clone();
    let other = small(state, &catalog, (caller, &model), &mut asked);
    // From here on what the call costs stands fast, whatever becomes of prices.
    let (model, since) = other.unwrap_or(model).priced(arrival.at);
    asked.priced_since = since;
    let demanded = demand(state, (caller, arrival.at), (&catalog, &model), &mut asked).await;
    demanded.map_err(|failure| refused_by(failure, &asked))?;
    dispatch(state, arrival, caller, (&catalog, model), asked)
}

/// Chooses a model for a call that leaves the choice, one whose limits let it run there. A refusal tells how it came
/// about.
async fn choose(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    (catalog, strategy): (Arc<Catalog>, Strategy),
    asked: &mut Asked,
) -> Result<Arc<Model>, (Failure, Option<Box<Chosen>>)> {
    state.profiles.want();
    let spoken = (&asked.wishes.spoken, &asked.body[..]);
    let stay = Stay::find(state, (caller, asked.surface), spoken).await;
    let call = auto::Call {
        caller: caller.clone(),
        catalog: Arc::clone(&catalog),
        at: arrival.at,
        surface: asked.surface,
        wishes: asked.wishes.clone(),
        told: asked.told.clone(),
        skim: asked.skim.clone(),
        body: asked.body.clone(),
    };
    let begun = Walk::begin(call, strategy, (stay, state.config.attempts_max), &state.profiles);
    let mut walk = begun.map_err(|(nobody, told)| {
        let failure = auto::nobody(nobody.why, asked.surface);
        state.metrics.auto_routed(failure.code.as_str(), strategy);
        (failure, Some(told))
    })?;
    while let Some(way) = walk.next().cloned() {
        let served = (&*catalog, &*way.model);
        match demand(state, (caller, arrival.at), served, asked).await {
            Ok(()) => {
                walk.stay.go(state, &way.model.id);
                asked.priced_since = way.priced_since;
                asked.routed = Some(Routed::of(&way));
                asked.auto = Some(Box::new(walk));
                return Ok(way.model);
            }
            Err(failure) if failure.exceeded.is_some() => walk.barred(failure),
            Err(failure) => return Err((failure, Some(Box::new(walk.record().clone())))),
        }
    }
    state.metrics.auto_routed("limited", strategy);
    let failure = walk.first_failure();
    let failure = failure.unwrap_or_else(|| auto::nobody(Why::Nobody, asked.surface));
    Err((failure, Some(Box::new(walk.record().clone()))))
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
    asked.routed = Some(Routed::to(&other.id));
    Some(Arc::clone(other))
}

/// Takes what the request needs of all its limits, or nothing of any.
async fn demand(
    state: &Shared,
    (caller, at): (&Caller, Timestamp),
    served: (&Catalog, &Model),
    asked: &mut Asked,
) -> Result<(), Failure> {
    let sent = (asked.surface, &asked.skim, &asked.body);
    let taken = taking::take(state, (caller, at), served, sent).await?;
    if let Some(rewritten) = taken.body
        && let Err(failure) = put(asked, rewritten)
    {
        taken.held.release();
        return Err(failure);
    }
    asked.held = taken.held;
    asked.output_tokens_held = taken.output_tokens_held;
    Ok(())
}

/// Puts another body in the place of the caller's.
fn rewrite(state: &Shared, asked: &mut Asked, body: Bytes) -> Result<(), Failure> {
    let rewritten = taking::skimmed(state, asked.surface, body)?;
    put(asked, rewritten)
}

/// The same with what was read of it.
fn put(asked: &mut Asked, (body, skim): (Bytes, Skim)) -> Result<(), Failure> {
    let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
    asked.permit.grow_to(size).map_err(body::Refusal::failure)?;
    asked.skim = skim;
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
    let chosen = asked.auto.is_some();
    let accepted = RequestAccepted {
        request_id: arrival.request_id,
        payer: caller.payer(),
        surface: asked.surface,
        model: if chosen { auto::name() } else { model.id.clone() },
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
    let most = state.config.attempts_max;
    let offer = offer(&accepted, (catalog, &model), asked.sending(caller, &model, most));
    let public_model = offer.public_model.clone();
    let sent = dispatched(state, (catalog, &model), (offer, asked.body));
    let terms = Terms {
        model,
        stream: asked.skim.stream,
        prompt_tokens: asked.skim.prompt_tokens_estimate,
        images: asked.skim.images,
        output_tokens_held: asked.output_tokens_held,
        days: Days::new(arrival.request_id, arrival.at, state.config.billing_tz),
        wishes: asked.wishes,
        is_measured: asked.passing.is_none_or(|passing| passing.is_measured),
    };
    let session = state.ports.dispatcher.dispatch(sent);
    Ok(Running::new(Box::new(Live {
        state: state.clone(),
        _place: asked.place,
        slot: state.open.open(accepted, arrival.connection.clone()),
        shape: arrival.shape,
        public_model,
        terms,
        session,
        permit: Some(asked.permit),
        keeping: asked.keeping,
        echo: asked.echo,
        routed: asked.routed,
        auto: asked.auto,
        changing: None,
        held: asked.held,
        over: None,
        key: asked.key.map(|held| Box::new(Keyed::new(held, state))),
        progress: Progress::default(),
    })))
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
