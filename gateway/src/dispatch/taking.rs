//! What a call takes of its limits before it is sent to a model, and the body that it is sent there.

use bytes::Bytes;
use dialects::skim::{self, Skim};
use schemas::catalog::{Catalog, Model};
use schemas::event::request::Surface;
use schemas::failure::Failure;
use schemas::time::Timestamp;

use super::skim_limits;
use crate::caller::Caller;
use crate::demand::{self, Most};
use crate::gate;
use crate::limits::{Held, Wanted};
use crate::standing;
use crate::state::Shared;

/// What a call has in hand for a model.
pub(crate) struct Taken {
    /// Its body, where it is not the caller's own.
    pub(crate) body: Option<(Bytes, Skim)>,
    /// What it holds of its limits.
    pub(crate) held: Held,
    /// The most tokens of its answers, where its limits count them.
    pub(crate) output_tokens_held: Option<u64>,
}

/// Takes what a call needs of all its limits, or nothing of any.
pub(crate) async fn take(
    state: &Shared,
    (caller, at): (&Caller, Timestamp),
    served: (&Catalog, &Model),
    (surface, skim, body): (Surface, &Skim, &Bytes),
) -> Result<Taken, Failure> {
    let bounded = demand::bounded(&caller.key, served, (surface, skim), body);
    let rewritten = bounded.map(|body| skimmed(state, surface, body)).transpose()?;
    let (body, skim) = rewritten
        .as_ref()
        .map_or((body, skim), |(body, skim)| (body, skim));
    let (held, output_tokens_held) = hold(state, (caller, at), served, (surface, skim, body)).await?;
    Ok(Taken {
        body: rewritten,
        held,
        output_tokens_held,
    })
}

/// The same for a body that is sent as it is: what is held, and the most tokens of its answers, where its limits count
/// them.
pub(super) async fn hold(
    state: &Shared,
    (caller, at): (&Caller, Timestamp),
    served: (&Catalog, &Model),
    (surface, skim, body): (Surface, &Skim, &Bytes),
) -> Result<(Held, Option<u64>), Failure> {
    let (catalog, model) = served;
    let Some(bounds) = state.bounds.bounds(catalog, &caller.key, &model.id) else {
        return Ok((Held::nothing(), None));
    };
    let most = demand::most(model, surface, skim, body);
    let output_tokens_held = demand::held_of_answers(&bounds, skim, body, most.output_tokens);
    let Most { tokens, nano_usd, .. } = most;
    let wanted = Wanted {
        bounds,
        tokens,
        nano_usd,
        at,
    };
    let told = |refusal| {
        let excess = standing::is_excessive(&refusal, &most);
        let remedy = excess.then(|| demand::remedy(served, surface, body));
        let now = state.ports.clock.now();
        standing::failure(refusal, remedy, now, state.config.billing_tz)
    };
    let held = state.ports.limits.admit(wanted).await.map_err(told)?;
    Ok((held, output_tokens_held))
}

/// A body that is not the caller's own, read as his was.
pub(super) fn skimmed(state: &Shared, surface: Surface, body: Bytes) -> Result<(Bytes, Skim), Failure> {
    let skim =
        skim::skim(surface, &body, &skim_limits(state)).map_err(|problem| gate::malformed(&problem))?;
    Ok((body, skim))
}
