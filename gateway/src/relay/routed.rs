//! The model that answers, where that is another one than was asked for, as its caller is told.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemas::auto::{FALLBACK_HEADER, MODEL_HEADER, UNLABELED};
use schemas::id::ModelName;

use crate::auto::Way;

/// The model that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Routed {
    model: ModelName,
    /// It was chosen although nobody said what it is for.
    unlabeled: bool,
}

impl Routed {
    /// An operator sends the call there.
    pub(crate) fn to(model: &ModelName) -> Self {
        Self {
            model: model.clone(),
            unlabeled: false,
        }
    }

    /// The gateway chose it.
    pub(crate) fn of(way: &Way) -> Self {
        Self {
            model: way.model.id.clone(),
            unlabeled: way.unlabeled,
        }
    }

    /// The headers that tell of it.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let fallback = self.unlabeled.then_some((FALLBACK_HEADER, UNLABELED));
        std::iter::once((MODEL_HEADER, self.model.as_str())).chain(fallback)
    }

    /// Puts them into an answer.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
    }
}
