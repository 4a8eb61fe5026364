//! What a node has learned of models and endpoints from the calls that it settled: sliding means, in memory. Nothing is
//! learned before the first call that leaves the choice, so that nodes whose callers name their models pay nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use schemas::catalog::Model;
use schemas::event::request::RequestSettled;
use schemas::id::{EndpointId, ModelName, TenantId};
use schemas::outcome::Outcome;

use super::consider::Known;

/// Endpoints, and models, of which something is kept.
const KEPT_MAX: usize = 10_000;
/// Parts of a figure: the newest call makes up one of so many parts of a mean.
const PARTS: i64 = 8;
/// Figures are kept in thousandths.
const SCALE: i64 = 1_000;

/// Means of models and endpoints.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    wanted: AtomicBool,
    figures: RwLock<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    ttft_ms: HashMap<EndpointId, i64>,
    /// By the owner of a model, and its name: what tenants' own models answer is nobody else's.
    answer_tokens: HashMap<(TenantId, ModelName), i64>,
}

impl Profiles {
    /// From now on something is learned.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Notes a call that `model` served. Only of streams is it known when their first token came; what went by before
    /// the attempt that served is nothing of its endpoint's.
    pub(crate) fn note(&self, model: &Model, settled: &RequestSettled) {
        if settled.outcome != Outcome::Ok || !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut figures = self.figures.write();
        learn(&mut figures.answer_tokens, &of(model), settled.output_tokens);
        let ttft = settled.ttft_ms.filter(|_| settled.stream);
        let waited = settled.attempts.last();
        let waited_ms = waited.map_or(0, |served| served.started_at.millis_since(settled.started_at));
        if let (Some(endpoint), Some(ttft_ms)) = (&settled.endpoint_id, ttft) {
            learn(&mut figures.ttft_ms, endpoint, ttft_ms.saturating_sub(waited_ms));
        }
    }
}

impl Known for Profiles {
    fn ttft_ms(&self, endpoint: &EndpointId) -> Option<u64> {
        told(self.figures.read().ttft_ms.get(endpoint))
    }

    fn answer_tokens(&self, model: &Model) -> Option<u64> {
        told(self.figures.read().answer_tokens.get(&of(model)))
    }
}

fn of(model: &Model) -> (TenantId, ModelName) {
    (model.owner.clone(), model.id.clone())
}

fn learn<K: Hash + Eq + Clone>(means: &mut HashMap<K, i64>, of: &K, figure: u64) {
    let figure = i64::try_from(figure).unwrap_or(i64::MAX).saturating_mul(SCALE);
    if let Some(mean) = means.get_mut(of) {
        *mean = mean.saturating_add(figure.saturating_sub(*mean) / PARTS);
    } else if means.len() < KEPT_MAX {
        means.insert(of.clone(), figure);
    }
}

fn told(mean: Option<&i64>) -> Option<u64> {
    u64::try_from(mean? / SCALE).ok()
}

#[cfg(test)]
mod tests {
    use schemas::event::request::Attempt;
    use schemas::id::BackendId;

    use super::*;
    use crate::gate::tests::model;
    use crate::settle::tests::settled;

    #[test]
    fn means_follow_the_calls_that_a_model_answered_once_somebody_wants_them() {
        let profiles = Profiles::default();
        let (model, endpoint) = (model(|_| {}), EndpointId::from("m:o1"));
        let call = |outcome, stream, ttft_ms, output_tokens| RequestSettled {
            outcome,
            stream,
            ttft_ms: Some(ttft_ms),
            output_tokens,
            endpoint_id: Some(endpoint.clone()),
            ..settled()
        };
        profiles.note(&model, &call(Outcome::Ok, true, 900, 900));
        assert_eq!(profiles.ttft_ms(&endpoint), None);

        profiles.want();
        profiles.note(&model, &call(Outcome::Ok, false, 900, 100));
        profiles.note(&model, &call(Outcome::UpstreamError, true, 900, 900));
        assert_eq!(
            (profiles.ttft_ms(&endpoint), profiles.answer_tokens(&model)),
            (None, Some(100))
        );

        profiles.note(&model, &call(Outcome::Ok, true, 80, 20));
        profiles.note(&model, &call(Outcome::Ok, true, 160, 20));
        assert_eq!(
            (profiles.ttft_ms(&endpoint), profiles.answer_tokens(&model)),
            (Some(90), Some(81))
        );

        // Another tenant's model of that name is another one.
        let theirs = Model {
            owner: TenantId::from("acme"),
            ..model.clone()
        };
        assert_eq!(profiles.answer_tokens(&theirs), None);
    }

    #[test]
    fn what_went_by_before_the_attempt_that_served_is_nothing_of_its_endpoints() {
        let profiles = Profiles::default();
        profiles.want();
        let (model, endpoint) = (model(|_| {}), EndpointId::from("m:o1"));
        let attempt = |after_ms: i64, outcome| Attempt {
            endpoint_id: endpoint.clone(),
            backend: BackendId::from("m:o1"),
            provider: "o1".into(),
            status: Some(200),
            outcome,
            error_code: None,
            started_at: settled().started_at.plus_micros(after_ms * 1_000),
            first_byte_ms: None,
            latency_ms: 1,
        };

        profiles.note(
            &model,
            &RequestSettled {
                stream: true,
                ttft_ms: Some(1_530),
                endpoint_id: Some(endpoint.clone()),
                attempts: vec![attempt(2, Outcome::UpstreamError), attempt(1_500, Outcome::Ok)],
                ..settled()
            },
        );

        assert_eq!(profiles.ttft_ms(&endpoint), Some(30));
    }
}
