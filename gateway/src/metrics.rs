//! What a gateway counts. Labels come from closed lists or from the catalogue, never from a caller: a model that is not
//! there for him is counted under the empty name, whether it is unknown or only not his.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use schemas::catalog::policy::Strategy;
use schemas::event::request::RequestSettled;
use schemas::failure::FailureCode;
use schemas::outcome::Outcome;

/// Upper bounds of durations, in seconds.
const SECONDS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0,
];

/// Upper bounds of our own share of a duration, in seconds.
const OVERHEAD_SECONDS: [f64; 9] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.1, 1.0,
];

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
    auto: Family<AutoLabels, Counter>,
    pub(crate) gauges: Gauges,
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
            auto: Family::default(),
            gauges: Gauges::default(),
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
            "waybill_auto_routing",
            "Calls that left the choice of a model, by how that ended",
            self.auto.clone(),
        );
    }

    /// Counts a settled request.
    pub(crate) fn settled(&self, settled: &RequestSettled) {
        let labels = RequestLabels {
            surface: settled.surface.as_str(),
            model: settled.model.0.clone(),
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

    /// Counts a settled request whose tokens have no price. Whether it is the first of its model since the start.
    pub(crate) fn unpriced(&self, model: &Arc<str>) -> bool {
        let label = ModelLabel { model: model.clone() };
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

    /// Counts a call that left the choice of a model.
    pub(crate) fn auto_routed(&self, outcome: &'static str, strategy: Strategy) {
        let labels = AutoLabels {
            outcome,
            strategy: strategy.as_str(),
        };
        self.auto.get_or_create(&labels).inc();
    }

    /// Counts a refusal. `surface` is empty where the path tells none, `model` the name of one that
    /// the caller sees, or `None`.
    pub(crate) fn refused(&self, code: FailureCode, surface: &'static str, model: Option<&Arc<str>>) {
        self.rejections
            .get_or_create(&CodeLabel { code: code.as_str() })
            .inc();
        let labels = RequestLabels {
            surface,
            model: model.map_or_else(|| Arc::from(""), Arc::clone),
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
