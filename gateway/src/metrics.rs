//! What a gateway counts. Labels come from closed lists or from the operators' part of the catalogue, never from a
//! caller: a model that is not there for him is counted under the empty name, whether it is unknown or only not his.
//! What tenants call their own models is theirs, and as many as they like: all of it is counted as one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use schemas::auto;
use schemas::catalog::policy::Strategy;
use schemas::catalog::{Catalog, Model};
use schemas::event::request::RequestSettled;
use schemas::failure::FailureCode;
use schemas::id::{DEFAULT_TENANT, ModelName};
use schemas::outcome::Outcome;

/// Upper bounds of durations, in seconds.
const SECONDS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0,
];

/// Upper bounds of our own share of a duration, in seconds.
const OVERHEAD_SECONDS: [f64; 9] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.1, 1.0,
];

/// Names of the operators' models that are labels, at most; what was served under one stays for as long as the process.
const MODELS_MAX: usize = 1_000;
/// The label of the models of tenants, and of the operators' beyond that.
const OTHER: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    surface: &'static str,
    model: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AutoLabels {
    outcome: &'static str,
    strategy: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabel {
    model: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketLabel {
    bucket: &'static str,
}

/// The metrics of a gateway; cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration: Histogram,
    first_token: Histogram,
    overhead: Histogram,
    input_tokens: Counter,
    cached_tokens: Counter,
    cache_write_tokens: Counter,
    output_tokens: Counter,
    cost_nano_usd: Counter,
    absorbed_nano_usd: Counter,
    unpriced: Family<ModelLabel, Counter>,
    rejections: Family<CodeLabel, Counter>,
    unkept: Counter,
    claims: Family<OutcomeLabel, Counter>,
    mails: Family<OutcomeLabel, Counter>,
    auto: Family<AutoLabels, Counter>,
    pub(crate) gauges: Gauges,
    models: Arc<Labels>,
}

/// The names that are labels of models.
#[derive(Debug, Default)]
struct Labels(RwLock<HashSet<Arc<str>>>);

impl Labels {
    /// The label of a model that the catalogue has.
    fn of(&self, model: &Model) -> Arc<str> {
        let name = &model.id.0;
        let is_operators = model.owner.as_str() == DEFAULT_TENANT;
        if is_operators && (self.0.read().contains(name) || self.noted(name)) {
            Arc::clone(name)
        } else {
            OTHER.into()
        }
    }

    /// Notes a name, if there is room for it.
    fn noted(&self, name: &Arc<str>) -> bool {
        let mut names = self.0.write();
        names.contains(name) || (names.len() < MODELS_MAX && names.insert(Arc::clone(name)))
    }
}

/// Figures that are read off when somebody asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauges {
    pub(crate) requests_open: Gauge,
    pub(crate) reservations_open: Gauge,
    pub(crate) spool_bytes: Gauge,
    pub(crate) spool_bytes_max: Gauge,
    pub(crate) spool_nearly_full: Gauge,
    pub(crate) spool_oldest_seconds: Gauge,
    pub(crate) bus_connected: Gauge,
    pub(crate) config_revision: Gauge,
    pub(crate) resident_bytes: Gauge,
    pub(crate) body_bytes: Gauge,
    pub(crate) connections_open: Gauge,
    pub(crate) ledger_lag_events: Gauge,
    pub(crate) leases_held: Gauge,
    pub(crate) counter_ledger_difference: Gauge,
    watch_age_seconds: Family<BucketLabel, Gauge>,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let tokens = Family::<ClassLabel, Counter>::default();
        let class = |class| tokens.get_or_create_owned(&ClassLabel { class });
        let metrics = Self {
            requests: Family::default(),
            duration: Histogram::new(SECONDS),
            first_token: Histogram::new(SECONDS),
            overhead: Histogram::new(OVERHEAD_SECONDS),
            input_tokens: class("input"),
            cached_tokens: class("cached"),
            cache_write_tokens: class("cache_write"),
            output_tokens: class("output"),
            cost_nano_usd: Counter::default(),
            absorbed_nano_usd: Counter::default(),
            unpriced: Family::default(),
            rejections: Family::default(),
            unkept: Counter::default(),
            claims: Family::default(),
            mails: Family::default(),
            auto: Family::default(),
            gauges: Gauges::default(),
            models: Arc::default(),
        };
        let Self {
            requests,
            duration,
            first_token,
            overhead,
            cost_nano_usd,
            unpriced,
            rejections,
            ..
        } = metrics.clone();
        registry.register("waybill_requests", "Requests that ended", requests);
        registry.register(
            "waybill_request_duration_seconds",
            "From admission to settlement",
            duration,
        );
        registry.register(
            "waybill_time_to_first_token_seconds",
            "From admission to the first content",
            first_token,
        );
        registry.register(
            "waybill_overhead_seconds",
            "From admission to the first attempt",
            overhead,
        );
        registry.register("waybill_tokens", "Tokens of settled requests", tokens);
        registry.register(
            "waybill_cost_nano_usd",
            "What callers pay, in nano-dollars",
            cost_nano_usd,
        );
        registry.register(
            "waybill_absorbed_nano_usd",
            "What calls cost beyond what limits allowed to charge, in nano-dollars",
            metrics.absorbed_nano_usd.clone(),
        );
        registry.register(
            "waybill_unpriced_requests",
            "Settled requests with tokens that have no price",
            unpriced,
        );
        registry.register("waybill_limit_rejections", "Refused requests", rejections);
        metrics.register_kept(registry);
        metrics.gauges.register(registry);
        metrics
    }

    /// What is kept for callers, and given again.
    fn register_kept(&self, registry: &mut Registry) {
        registry.register(
            "waybill_responses_unkept",
            "Responses that were to be kept and could not be",
            self.unkept.clone(),
        );
        registry.register(
            "waybill_idempotency",
            "Calls with an idempotency key, by what the key led to",
            self.claims.clone(),
        );
        registry.register(
            "waybill_mail",
            "Letters to members, by what became of them",
            self.mails.clone(),
        );
        registry.register(
            "waybill_auto_routing",
            "Calls that left the choice of a model, by how that ended",
            self.auto.clone(),
        );
    }

    /// The label of a model by its name: of what is the operators' it is the name, and of the gateway's own choice.
    fn label(&self, catalog: &Catalog, name: &ModelName) -> Arc<str> {
        if name.as_str() == auto::NAME {
            return Arc::clone(&name.0);
        }
        let model = catalog.model(name.as_str()).filter(|model| model.id == *name);
        model.map_or_else(|| OTHER.into(), |model| self.models.of(model))
    }

    /// Counts a settled request.
    pub(crate) fn settled(&self, catalog: &Catalog, settled: &RequestSettled) {
        let labels = RequestLabels {
            surface: settled.surface.as_str(),
            model: self.label(catalog, &settled.model),
            outcome: settled.outcome.as_str(),
        };
        self.requests.get_or_create(&labels).inc();
        self.duration.observe(seconds(settled.latency_ms));
        if let Some(first) = settled.attempts.first() {
            let micros = first
                .started_at
                .micros()
                .saturating_sub(settled.started_at.micros());
            let waited = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
            self.overhead.observe(waited.as_secs_f64());
        }
        if let Some(ttft_ms) = settled.ttft_ms {
            self.first_token.observe(seconds(ttft_ms));
        }
        for (counter, tokens) in [
            (&self.input_tokens, settled.input_tokens),
            (&self.cached_tokens, settled.cached_tokens),
            (&self.cache_write_tokens, settled.cache_write_tokens),
            (&self.output_tokens, settled.output_tokens),
        ] {
            if tokens > 0 {
                counter.inc_by(tokens);
            }
        }
        let cost = u64::try_from(settled.cost_nano_usd.0).unwrap_or(0);
        self.cost_nano_usd.inc_by(cost);
        let absorbed = u64::try_from(settled.absorbed_nano_usd.0).unwrap_or(0);
        if absorbed > 0 {
            self.absorbed_nano_usd.inc_by(absorbed);
        }
    }

    /// Counts a settled request whose tokens have no price. Whether it is the first of its label since the start.
    pub(crate) fn unpriced(&self, catalog: &Catalog, model: &ModelName) -> bool {
        let label = ModelLabel {
            model: self.label(catalog, model),
        };
        self.unpriced.get_or_create(&label).inc() == 0
    }

    /// Counts a response that could not be kept.
    pub(crate) fn unkept(&self) {
        self.unkept.inc();
    }

    /// Counts what a call's idempotency key led to.
    pub(crate) fn claimed(&self, outcome: &'static str) {
        self.claims.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a letter by what became of it.
    pub(crate) fn mailed(&self, outcome: &'static str) {
        self.mails.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a call that left the choice of a model.
    pub(crate) fn auto_routed(&self, outcome: &'static str, strategy: Strategy) {
        let labels = AutoLabels {
            outcome,
            strategy: strategy.as_str(),
        };
        self.auto.get_or_create(&labels).inc();
    }

    /// Counts a refusal. `surface` is empty where the path tells none, `model` one that the caller sees, or `None`.
    pub(crate) fn refused(&self, code: FailureCode, surface: &'static str, model: Option<&Model>) {
        self.rejections
            .get_or_create(&CodeLabel { code: code.as_str() })
            .inc();
        let labels = RequestLabels {
            surface,
            model: model.map_or_else(|| Arc::from(""), |model| self.models.of(model)),
            outcome: Outcome::Rejected.as_str(),
        };
        self.requests.get_or_create(&labels).inc();
    }
}

impl Gauges {
    /// Sets for how long the view of a bucket may be outdated.
    pub(crate) fn watch_age(&self, bucket: &'static str, seconds: i64) {
        self.watch_age_seconds
            .get_or_create(&BucketLabel { bucket })
            .set(seconds);
    }

    fn register(&self, registry: &mut Registry) {
        let gauges: [(&str, &str, &Gauge); 10] = [
            ("waybill_requests_open", "Requests that run", &self.requests_open),
            (
                "waybill_reservations_open",
                "Requests that hold room in the spool, or a part of a limit",
                &self.reservations_open,
            ),
            (
                "waybill_bus_connected",
                "1 while the bus answers",
                &self.bus_connected,
            ),
            (
                "waybill_config_revision",
                "Revision of the catalogue in use",
                &self.config_revision,
            ),
            (
                "process_resident_memory_bytes",
                "Memory of the process",
                &self.resident_bytes,
            ),
            (
                "waybill_request_body_bytes",
                "Bytes of request bodies in memory",
                &self.body_bytes,
            ),
            (
                "waybill_connections_open",
                "Connections of callers",
                &self.connections_open,
            ),
            (
                "waybill_ledger_lag_events",
                "Events in the log that are not in the books yet",
                &self.ledger_lag_events,
            ),
            (
                "waybill_lease_held",
                "Limits of which this node holds a part",
                &self.leases_held,
            ),
            (
                "waybill_counter_ledger_difference",
                "By how much the counters of quotas and the books were found to differ",
                &self.counter_ledger_difference,
            ),
        ];
        registry.register(
            "waybill_watch_age_seconds",
            "For how long the view of a bucket may be outdated",
            self.watch_age_seconds.clone(),
        );
        for (name, help, gauge) in gauges.into_iter().chain(self.of_spool()) {
            registry.register(name, help, gauge.clone());
        }
    }

    /// Name, meaning and gauge of what the spool tells.
    const fn of_spool(&self) -> [(&str, &str, &Gauge); 4] {
        [
            (
                "waybill_spool_bytes",
                "Bytes of the spool on disk",
                &self.spool_bytes,
            ),
            (
                "waybill_spool_bytes_max",
                "Bytes of records and reservations from which on billable requests are refused",
                &self.spool_bytes_max,
            ),
            (
                "waybill_spool_nearly_full",
                "1 from four fifths of that until seven tenths",
                &self.spool_nearly_full,
            ),
            (
                "waybill_spool_oldest_seconds",
                "Age of the oldest event the ledger has not confirmed",
                &self.spool_oldest_seconds,
            ),
        ]
    }
}

/// Milliseconds as seconds.
fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::tests::model;

    #[test]
    fn labels_of_models_are_names_of_the_operators_and_so_many() {
        let labels = Labels::default();
        let own = |name: &str| model(|model| model.id = ModelName::from(name));
        let theirs = model(|model| model.owner = schemas::id::TenantId::from("acme"));

        assert_eq!(&*labels.of(&theirs), OTHER);
        for number in 0..MODELS_MAX {
            let name = format!("m{number}");
            assert_eq!(*labels.of(&own(&name)), *name);
        }
        assert_eq!(&*labels.of(&own("one more")), OTHER);
        assert_eq!(&*labels.of(&own("m7")), "m7");
    }
}
