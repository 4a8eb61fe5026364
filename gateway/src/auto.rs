//! Calls that leave the choice of a model to the gateway (`model: auto`): who may, which models can take the call, whom
//! it goes to first and whom next. What is decided is in `schemas::auto`; here the catalogue is asked, and what a call
//! has tried so far is kept.
//!
//! Every gate of a named model holds for each model that is asked: only what the caller may see and call is considered,
//! its limits are those of the model that is asked, and its bill is that of the model that served.

mod consider;
mod profile;
pub(crate) mod session;
mod walk;

use schemas::auto;
use schemas::auto::choice::Why;
use schemas::catalog::policy::Strategy;
use schemas::catalog::{Catalog, Key};
use schemas::event::request::Surface;
use schemas::failure::{Failure, FailureCode};
use schemas::id::ModelName;

use crate::gate;

pub(crate) use profile::Profiles;
pub(crate) use walk::{Call, Walk, Way};

/// Seconds after which a call for which nobody could be asked may come again.
pub(crate) const RETRY_SECONDS: u64 = 5;

/// By what a model is chosen for `key`, if `name` leaves the choice: a model that is really called so, and that the
/// caller may see, is meant by it before anything else is.
pub(crate) fn strategy(catalog: &Catalog, key: Option<&Key>, name: &str) -> Option<Strategy> {
    if name != auto::NAME || gate::visible(catalog, key, name).is_some() {
        return None;
    }
    let routing = key.and_then(|key| key.routing.as_ref());
    let all = catalog.inference().map(|stored| &*stored.record);
    auto::strategy(routing, all)
}

/// The name, as rows and events have it.
pub(crate) fn name() -> ModelName {
    ModelName::from(auto::NAME)
}

/// Nobody can be asked, on a surface.
pub(crate) fn nobody(why: Why, surface: Surface) -> Failure {
    match why {
        Why::Nobody => no_candidates(RETRY_SECONDS),
        Why::OtherPurpose => {
            let text = "none of the models that could be chosen is for this kind of request";
            Failure::new(FailureCode::NoAutoCandidatesForPurpose, text).retry_after(RETRY_SECONDS)
        }
        Why::TooLong => {
            let text = "the prompt and the longest answer that is asked for are longer than the context of each model \
                        that could be chosen";
            Failure::new(FailureCode::ContextLengthExceeded, text).param(gate::prompt_of(surface))
        }
    }
}

/// Nobody could be asked; after so many seconds somebody may be there.
fn no_candidates(seconds: u64) -> Failure {
    let text = "no model can be chosen for this request";
    Failure::new(FailureCode::NoAutoCandidates, text).retry_after(seconds)
}

#[cfg(test)]
mod tests;
