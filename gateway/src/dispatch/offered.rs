//! What the router is told of a call.

use std::sync::Arc;

use bus::dispatch::Dispatch;
use bytes::Bytes;
use dialects::skim::{self, Skim};
use schemas::catalog::{Catalog, Model, Role};
use schemas::command::{Offer, Raw, Requirements, Told};
use schemas::event::request::RequestAccepted;
use schemas::pool;

use crate::gate::Wishes;
use crate::state::Shared;

/// A call as it is sent to one model.
pub(crate) struct Sending<'a> {
    pub(crate) skim: &'a Skim,
    pub(crate) wishes: &'a Wishes,
    pub(crate) told: &'a Told,
    pub(crate) output_tokens_held: Option<u64>,
    pub(crate) role: Role,
    /// What the answer calls its model; `None` for what the caller called it.
    pub(crate) named: Option<Arc<str>>,
    /// Attempts that were made at other models, and the most there may be with them.
    pub(crate) attempts: (u32, u32),
    /// Other models may be asked, so that one whose service sleeps is not waited for.
    pub(crate) passes_sleepers: bool,
    /// How it passes, where it does so as it is.
    pub(crate) raw: Option<&'a Raw>,
}

/// A call on its way to the routers that run it: of this node, or of the pools that its routes name.
pub(crate) fn dispatched(
    state: &Shared,
    (catalog, model): (&Catalog, &Model),
    (offer, body): (Offer, Bytes),
) -> Dispatch {
    let whose = (&offer.tenant, &offer.model);
    let session = offer.spoken.name().map(|name| &**name);
    let draw = pool::draw(session, whose, state.ports.mint.draw());
    let ways = pool::ways((catalog, model), &offer.candidates, &state.config.home, draw);
    Dispatch { offer, body, ways }
}

/// What the router is told.
pub(crate) fn offer(
    accepted: &RequestAccepted,
    (catalog, model): (&Catalog, &Model),
    sending: Sending<'_>,
) -> Offer {
    let skim = sending.skim;
    let canonical = skim.model == model.id.as_str();
    let led = model.routes.iter();
    let endpoints = led
        .filter(|route| {
            // What is not known here may be known to the router; what is another tenant's is nobody else's.
            let endpoint = catalog.endpoint(&route.endpoint_id);
            endpoint.is_none_or(|endpoint| endpoint.serves(&model.owner))
        })
        .map(|route| route.endpoint_id.clone());
    let (attempts_before, attempts_max) = sending.attempts;
    let needs = requirements(&sending);
    Offer {
        request_id: accepted.request_id,
        tenant: accepted.payer.tenant.clone(),
        surface: accepted.surface,
        model: model.id.clone(),
        owner: model.owner.clone(),
        public_model: match sending.named {
            Some(name) => name,
            None if canonical => model.id.0.clone(),
            None => skim.model.as_str().into(),
        },
        candidates: endpoints.collect(),
        catalog_revision: catalog.revision,
        requirements: needs,
        pin: sending.wishes.pin.clone(),
        splice: skim::splice_facts(skim),
        told: sending.told.clone(),
        spoken: sending.wishes.spoken.clone(),
        caller: accepted.payer.key_id.clone(),
        role: sending.role,
        started_at: accepted.started_at,
        attempts_max,
        attempts_before,
        passes_sleepers: sending.passes_sleepers,
        raw: sending.raw.map(|raw| Box::new(raw.clone())),
    }
}

/// What the plan must know of it. Of what passes as it is the endpoint alone says what it takes.
fn requirements(sending: &Sending<'_>) -> Requirements {
    let skim = sending.skim;
    if sending.raw.is_some() {
        return Requirements {
            prompt_tokens: skim.prompt_tokens_estimate,
            ..Requirements::default()
        };
    }
    Requirements {
        modalities: skim.modalities,
        prompt_tokens: skim.prompt_tokens_estimate,
        output_tokens_max: skim.max_tokens,
        output_tokens_held: sending.output_tokens_held,
        parameters: skim.parameters,
    }
}
