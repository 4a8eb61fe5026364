//! Calls that pass to one endpoint as they are: admitted by the same doors as all others, and sent the same way.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use dialects::estimate;
use dialects::raw;
use dialects::skim::{self, Skim};
use schemas::catalog::Model;
use schemas::command::{Raw, Told};
use schemas::event::request::Surface;
use schemas::failure::Failure;

use super::{Asked, closing, dispatch, enter, read, refuse, refused, skim_limits, taking};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::gate::{self, Wishes};
use crate::limits::Held;
use crate::proxy::{Ask, access};
use crate::refusal::{self, Refused};
use crate::relay::{self, Running};
use crate::state::Shared;

/// How a call passes.
pub(super) struct Passing {
    /// What stands beside its body.
    pub(super) raw: Box<Raw>,
    /// It is of a dialect that is known: what is not told of its usage can be estimated.
    pub(super) is_measured: bool,
}

/// Passes a call on, and its answer back.
pub(crate) async fn pass(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    match Box::pin(admit(&state, &arrival, &caller, request)).await {
        Ok(running) => relay::answer(running).await,
        Err(refused) => {
            refusal::record(&state, &arrival, &caller, &refused);
            refuse(&arrival, &refused)
        }
    }
}

async fn admit(
    state: &Shared,
    arrival: &Arrival,
    caller: &Caller,
    request: Request,
) -> Result<Running, Box<Refused>> {
    let place = enter(state).map_err(unread)?;
    let (parts, body) = request.into_parts();
    let ask = Ask::read(&parts).map_err(unread)?;
    let catalog = state.ports.catalog.load();
    let endpoint = access::endpoint(&catalog, caller, &ask.endpoint);
    let endpoint = endpoint.ok_or_else(|| unread(access::no_endpoint()))?;
    let wishes = Wishes {
        pin: None,
        ..gate::wishes(&parts.headers, caller)
    };
    let (body, permit) = read(state, &parts.headers, body).await.map_err(unread)?;
    let refused_by = |failure: Failure, model: &str| refused(failure, Surface::Proxy, model, &wishes);
    let named = ask.named(&body).map_err(|failure| refused_by(failure, ""))?;
    let first = named.models.first().and_then(|name| name.first());
    let first = first.map_or("", String::as_str);
    let model = access::model(&catalog, caller, endpoint, (&ask, &named, &body))
        .map_err(|failure| refused_by(failure, first))?;
    let (surface, skim) =
        skimmed(state, &ask, &model, &body).map_err(|failure| refused_by(failure, model.id.as_str()))?;
    // From here on what the call costs stands fast, whatever becomes of prices.
    let (model, priced_since) = model.priced(arrival.at);
    let served = (&*catalog, &*model);
    let held = taking::hold(state, (caller, arrival.at), served, (surface, &skim, &body)).await;
    let (held, _) = held.map_err(|failure| refused_by(failure, model.id.as_str()))?;
    let asked = asked((place, permit), wishes, (body, skim), held);
    let upstream_model = model.routes.first().map(|route| route.upstream_model.clone());
    let passing = Passing {
        is_measured: ask.dialect.is_some(),
        raw: Box::new(ask.raw(upstream_model.unwrap_or_else(|| "".into()))),
    };
    let asked = Asked {
        passing: Some(passing),
        priced_since,
        ..asked
    };
    dispatch(state, arrival, caller, (&catalog, model), asked)
}

fn asked(
    (place, permit): (crate::open::Place, crate::body::Permit),
    wishes: Wishes,
    (body, skim): (Bytes, Skim),
    held: Held,
) -> Asked {
    Asked {
        place,
        surface: Surface::Proxy,
        wishes,
        told: Told::default(),
        body,
        permit,
        skim,
        keeping: None,
        echo: None,
        routed: None,
        auto: None,
        held,
        output_tokens_held: None,
        key: None,
        priced_since: None,
        passing: None,
    }
}

/// What limits must know of a call, and on which surface its like comes in otherwise.
fn skimmed(state: &Shared, ask: &Ask, model: &Model, body: &Bytes) -> Result<(Surface, Skim), Failure> {
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let unread = |tokens| Skim::unread(model.id.as_str().to_owned(), tokens);
    let estimated = || Skim {
        stream: ask.streams(),
        ..unread(estimate::bytes_tokens(bytes).max(1))
    };
    let Some(dialect) = ask.dialect else {
        // What its answer tells of usage is billed on any path, so that a call with a body holds what the same body would
        // where models are asked, and one without holds something: an empty budget is empty here, too.
        let like = if bytes > 0 { Surface::Chat } else { Surface::Proxy };
        return Ok((like, estimated()));
    };
    let Some(surface) = raw::surface(dialect) else {
        return Ok((Surface::Chat, estimated()));
    };
    match skim::skim(surface, body, &skim_limits(state)) {
        Ok(skim) => Ok((
            surface,
            Skim {
                model: model.id.as_str().to_owned(),
                stream: skim.stream || ask.streams(),
                ..skim
            },
        )),
        Err(
            problem @ (skim::Error::InvalidJson { .. }
            | skim::Error::TooDeep
            | skim::Error::DuplicateField { .. }),
        ) => Err(gate::malformed(&problem)),
        // What else its server takes is that server's affair.
        Err(_) => Ok((surface, estimated())),
    }
}

/// Refused before its body was read.
fn unread(failure: Failure) -> Box<Refused> {
    let mut refused = closing(failure);
    refused.surface = Some(Surface::Proxy);
    refused
}
