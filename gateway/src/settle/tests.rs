//! Tests of waybills: what each ending costs whom.

use schemas::catalog::modality::Modalities;
use schemas::catalog::{Origin, Role, Route};
use schemas::event::request::{Payer, Surface};
use schemas::failure::Failure;
use schemas::frame::Served;
use schemas::id::{BackendId, KeyId, ModelName, NodeId, PoolName, TenantId};
use schemas::limit::Reservation;
use schemas::money::PriceVersion;

use super::*;

/// 2026-11-30T23:30:00Z: already December in Asia.
const STARTED: Timestamp = Timestamp::from_micros(1_796_081_400_000_000);
const PRICE: Price = Price {
    input: 2_000_000_000,
    cached: 200_000_000,
    cache_write: 2_500_000_000,
    output: 8_000_000_000,
    request: 0,
    image: 0,
};

pub(crate) fn accepted() -> RequestAccepted {
    let id = uuid::Builder::from_unix_timestamp_millis(1_796_081_400_000, &[7; 10]).into_uuid();
    RequestAccepted {
        request_id: RequestId(id),
        payer: Payer {
            tenant: TenantId::from("acme"),
            user: None,
            key_id: KeyId::from("k1"),
            key_name: "caller".into(),
            job_id: None,
        },
        surface: Surface::Chat,
        model: ModelName::from("m"),
        reservation: Reservation { spool_bytes: 8_192 },
        price_version: PriceVersion("7".into()),
        started_at: STARTED,
        node: NodeId::from("n1"),
    }
}

/// A way to serve a model, at a price.
pub(crate) fn route(price: Option<Price>) -> Route {
    Route {
        endpoint_id: EndpointId::from("m:o1"),
        upstream_model: "up".into(),
        priority: 0,
        weight_micro: 1_000_000,
        pool: PoolName::from("default"),
        context_length: 8_192,
        input_modalities: Modalities::TEXT,
        takes: Arc::default(),
        price,
        origin: Origin::File,
        rates: None,
    }
}

fn model(price: Option<Price>) -> Arc<Model> {
    Arc::new(Model {
        id: ModelName::from("m"),
        name: "M".into(),
        aliases: Vec::new(),
        position: 0,
        input_modalities: Modalities::TEXT,
        output_modalities: Modalities::TEXT,
        quantization: "".into(),
        context_length: 8_192,
        max_output_length: 4_096,
        supports_tools: true,
        supports_structured_output: true,
        embeds: false,
        supported_params: Vec::new(),
        required_role: Role::Free,
        tenants: None,
        pricing: Vec::new(),
        created_at: STARTED,
        routes: vec![route(price)],
        origin: Origin::File,
        owner: schemas::catalog::operators(),
        router: None,
    })
}

fn report(outcome: Outcome) -> Report {
    Report {
        outcome,
        failure: None,
        attempts: Vec::new(),
        served: Some(Served {
            endpoint_id: EndpointId::from("m:o1"),
            backend: BackendId::from("m:o1"),
            provider: "o1".into(),
            model: "up".into(),
        }),
        usage: Some(Usage {
            input_tokens: 9,
            output_tokens: 20,
            ..Usage::default()
        }),
        usage_flags: Vec::new(),
        upstream_cost_nano_usd: None,
        attempts_of_unknown_cost: 0,
        passed: None,
        session: None,
        affinity: None,
        decision: None,
        delivered: Delivered {
            content: true,
            output_bytes: 36,
            ttft_ms: Some(40),
        },
    }
}

fn terms(price: Option<Price>) -> Terms {
    Terms {
        output_tokens_held: None,
        model: model(price),
        wishes: Wishes::default(),
        stream: true,
        prompt_tokens: 50,
        images: 2,
        days: Days::new(accepted().request_id, STARTED, chrono_tz::Asia::Seoul),
        is_measured: true,
    }
}

fn settle_at(price: Option<Price>, report: Report, sent: Option<u16>, gone: bool) -> RequestSettled {
    let ending = Ending { report, sent, gone };
    waybill(&accepted(), &terms(price), ending, STARTED.plus_micros(1_500_000)).settled
}

fn used(report: Report, gone: bool) -> Used {
    let terms = terms(Some(PRICE));
    let foreseen = foreseen(&terms, &report);
    let ending = Ending {
        report,
        sent: Some(200),
        gone,
    };
    let written = waybill(&accepted(), &terms, ending, STARTED);
    if !gone {
        assert_eq!(written.used, foreseen);
    }
    written.used
}

#[test]
fn limits_count_what_is_paid_for_and_nothing_else() {
    let whole = used(report(Outcome::Ok), false);
    let row = settle(report(Outcome::Ok), Some(200), false);
    let tokens = row.input_tokens + row.cached_tokens + row.cache_write_tokens + row.output_tokens;
    let cost = u64::try_from(row.cost_nano_usd.0).expect("an amount");
    assert!(cost > 0);
    assert_eq!((whole.calls, whole.tokens, whole.nano_usd), (1, tokens, cost));
    assert_eq!(
        used(report(Outcome::Ok), true),
        whole,
        "who left pays what he got"
    );

    let silent = Report {
        delivered: Delivered::default(),
        ..report(Outcome::ClientGone)
    };
    assert_eq!(used(silent, false), Used::default());
    for outcome in [Outcome::UpstreamError, Outcome::UpstreamCut, Outcome::Timeout] {
        assert_eq!(used(report(outcome), false), Used::default(), "{outcome:?}");
    }
}

#[test]
fn an_estimate_is_never_more_than_a_request_may_have() {
    let mut bounded = terms(Some(PRICE));
    bounded.output_tokens_held = Some(3);
    let delivered = Delivered {
        content: true,
        output_bytes: 1_000,
        ttft_ms: None,
    };

    assert_eq!(estimated(&bounded, delivered).output_tokens, 3);
    assert_eq!(estimated(&terms(None), delivered).output_tokens, 278);
}

#[test]
fn what_limits_allow_is_charged_and_the_rest_is_absorbed() {
    let mut row = settle(report(Outcome::Ok), Some(200), false);

    charge(
        &mut row,
        holdings::demand::Charge {
            nano_usd: 7,
            absorbed_nano_usd: 5,
            quotas: vec![("acme.t.daily_usd.2026-12-01".into(), 7)],
        },
    );

    assert_eq!(
        (row.cost_nano_usd, row.absorbed_nano_usd),
        (NanoUsd(7), NanoUsd(5))
    );
    assert_eq!(row.cost_usd, "0.000000007");
    assert_eq!(
        (row.quotas[0].name.as_str(), row.quotas[0].amount),
        ("acme.t.daily_usd.2026-12-01", 7)
    );
}

fn settle(report: Report, sent: Option<u16>, gone: bool) -> RequestSettled {
    settle_at(Some(PRICE), report, sent, gone)
}

#[test]
fn a_whole_answer_costs_the_upstreams_figures_at_the_price_of_the_endpoint_that_served() {
    let row = settle(report(Outcome::Ok), Some(200), false);

    assert_eq!(
        (row.outcome, row.status, row.error_code),
        (Outcome::Ok, 200, None)
    );
    assert_eq!((row.input_tokens, row.output_tokens), (9, 20));
    assert_eq!(row.usage_source, UsageSource::Upstream);
    assert_eq!(row.cost_nano_usd, NanoUsd(178_000));
    assert_eq!(row.cost_usd, "0.000178000");
    assert_eq!((row.prices, row.upstream_cost_nano_usd), (Some(PRICE), None));
    assert_eq!((row.latency_ms, row.ttft_ms), (1_500, Some(40)));
}

#[test]
fn a_whole_answer_without_usage_is_estimated_and_says_so() {
    let told = Report {
        usage: None,
        ..report(Outcome::Ok)
    };

    let row = settle(told, Some(200), false);

    assert_eq!((row.input_tokens, row.output_tokens), (50, 10));
    assert_eq!(row.usage_source, UsageSource::Estimated);
    assert_eq!(row.cost_nano_usd, NanoUsd(180_000));
}

#[test]
fn an_estimate_is_no_more_than_an_upstream_would_be_believed() {
    let mut told = Report {
        usage: None,
        ..report(Outcome::Ok)
    };
    told.delivered.output_bytes = 100 * TOKENS_MAX;

    let row = settle(told, Some(200), false);

    assert_eq!((row.input_tokens, row.output_tokens), (50, TOKENS_MAX));
}

#[test]
fn a_caller_who_leaves_pays_what_was_delivered_and_nothing_when_nothing_was() {
    let cut = Report {
        usage: None,
        ..report(Outcome::ClientGone)
    };
    let mut empty = cut.clone();
    empty.delivered = Delivered::default();

    let paid = settle(cut, Some(200), true);
    let free = settle(empty, None, true);

    assert_eq!((paid.outcome, paid.status), (Outcome::ClientGone, 200));
    assert_eq!(
        (paid.cost_nano_usd, paid.usage_source),
        (NanoUsd(180_000), UsageSource::Estimated)
    );
    assert_eq!(
        (free.status, free.error_code),
        (499, Some(FailureCode::ClientGone))
    );
    assert_eq!(
        (free.cost_nano_usd, free.usage_source),
        (NanoUsd::ZERO, UsageSource::None)
    );
    assert_eq!(free.input_tokens, 0);
}

#[test]
fn a_caller_who_leaves_at_the_very_end_pays_the_upstreams_figure() {
    let row = settle(report(Outcome::Ok), Some(200), true);

    assert_eq!(row.outcome, Outcome::ClientGone);
    assert_eq!(
        (row.cost_nano_usd, row.usage_source),
        (NanoUsd(178_000), UsageSource::Upstream)
    );
}

#[test]
fn a_broken_answer_costs_the_caller_nothing_and_our_cost_is_noted() {
    let told = Report {
        failure: Some(Failure::new(
            FailureCode::StreamInterrupted,
            "the answer broke off",
        )),
        ..report(Outcome::UpstreamCut)
    };
    let untold = Report {
        usage: None,
        ..told.clone()
    };

    let noted = settle(told, Some(200), false);
    let unknown = settle(untold, Some(200), false);

    assert_eq!((noted.outcome, noted.status), (Outcome::UpstreamCut, 200));
    assert_eq!(noted.error_code, Some(FailureCode::StreamInterrupted));
    assert_eq!(
        (noted.cost_nano_usd, noted.upstream_cost_nano_usd),
        (NanoUsd::ZERO, Some(NanoUsd(178_000)))
    );
    assert_eq!(
        (unknown.upstream_cost_nano_usd, unknown.usage_source),
        (None, UsageSource::None)
    );
    assert_eq!(unknown.output_tokens, 0);
}

#[test]
fn what_an_upstream_says_it_charges_is_noted_whoever_pays() {
    for (outcome, usage, paid) in [
        (Outcome::Ok, true, NanoUsd(178_000)),
        (Outcome::UpstreamCut, true, NanoUsd::ZERO),
        (Outcome::UpstreamError, false, NanoUsd::ZERO),
    ] {
        let mut told = report(outcome);
        told.upstream_cost_nano_usd = Some(NanoUsd(140_001));
        if !usage {
            told.usage = None;
            told.delivered = Delivered::default();
        }

        let row = settle(told, Some(200), false);

        assert_eq!(
            (row.cost_nano_usd, row.upstream_cost_nano_usd),
            (paid, Some(NanoUsd(140_001))),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_cost_that_lacks_an_attempts_is_marked_whether_it_is_told_or_reckoned() {
    let marked = |outcome, told: Option<i64>, unknown, usage: bool| {
        let mut report = report(outcome);
        report.upstream_cost_nano_usd = told.map(NanoUsd);
        report.attempts_of_unknown_cost = unknown;
        report.usage = report.usage.filter(|_| usage);
        let row = settle(report, Some(200), false);
        row.usage_flags.contains(&UsageFlag::UpstreamCostPartial)
    };

    assert!(!marked(Outcome::Ok, Some(5), 0, true));
    assert!(marked(Outcome::Ok, Some(5), 1, true));
    assert!(!marked(Outcome::Ok, None, 2, true), "nothing is known of any");
    assert!(
        !marked(Outcome::UpstreamCut, None, 1, true),
        "that of the served one is reckoned"
    );
    assert!(marked(Outcome::UpstreamCut, None, 2, true));
    assert!(marked(Outcome::UpstreamCut, Some(5), 1, true));
    assert!(marked(Outcome::UpstreamCut, Some(5), 1, false));
}

#[test]
fn an_unpriced_answer_is_free_and_says_why() {
    let row = settle_at(None, report(Outcome::Ok), Some(200), false);

    assert_eq!((row.cost_nano_usd, row.prices), (NanoUsd::ZERO, None));
    assert_eq!(row.usage_flags, [UsageFlag::Unpriced]);
}

#[test]
fn images_cost_what_the_endpoint_charges_for_them() {
    let price = Price {
        image: 5,
        ..Price::default()
    };

    let row = settle_at(Some(price), report(Outcome::Ok), Some(200), false);

    assert_eq!((row.images, row.cost_nano_usd), (2, NanoUsd(10)));
}

#[test]
fn a_price_of_zero_is_a_price() {
    let row = settle_at(Some(Price::default()), report(Outcome::Ok), Some(200), false);

    assert_eq!((row.cost_nano_usd, row.usage_flags), (NanoUsd::ZERO, Vec::new()));
}

#[test]
fn a_cost_beyond_all_bounds_is_not_charged_and_flagged() {
    let absurd = Price {
        output: i64::MAX,
        ..Price::default()
    };
    let mut told = report(Outcome::Ok);
    told.usage = Some(Usage {
        output_tokens: 10_000_000,
        ..Usage::default()
    });

    let row = settle_at(Some(absurd), told, Some(200), false);

    assert_eq!(
        (row.cost_nano_usd, row.usage_flags),
        (NanoUsd::ZERO, vec![UsageFlag::CostOverflow])
    );
}

#[test]
fn a_failure_before_content_has_its_own_status() {
    let failure = Failure::new(FailureCode::UpstreamTimeout, "the upstream was too slow");
    let told = Report {
        failure: Some(failure),
        served: None,
        usage: None,
        delivered: Delivered::default(),
        ..report(Outcome::Timeout)
    };

    let row = settle(told, None, false);

    assert_eq!((row.outcome, row.status), (Outcome::Timeout, 504));
    assert_eq!((row.endpoint_id, row.cost_nano_usd), (None, NanoUsd::ZERO));
}

#[test]
fn days_are_those_of_admission_in_utc_and_in_the_billing_zone() {
    let row = settle(report(Outcome::Ok), Some(200), false);

    assert_eq!(row.waybill_day.to_string(), "2026-11-30");
    assert_eq!(row.billing_day.to_string(), "2026-12-01");
    assert_eq!(row.billing_month.to_string(), "2026-12-01");
}

#[test]
fn a_refused_request_costs_nothing() {
    let told = (FailureCode::ModelNotFound, 404);

    let row = rejected(&accepted(), Wishes::default(), told, Tz::UTC, STARTED);

    assert_eq!((row.outcome, row.status), (Outcome::Rejected, 404));
    assert_eq!(row.error_code, Some(FailureCode::ModelNotFound));
    assert_eq!(
        (row.cost_nano_usd, row.usage_source),
        (NanoUsd::ZERO, UsageSource::None)
    );
}

#[test]
fn an_orphan_is_lost_and_free() {
    let days = Days::new(accepted().request_id, STARTED, Tz::UTC);

    let row = blank(&accepted(), days, STARTED);

    assert_eq!((row.outcome, row.status), (Outcome::Lost, 500));
    assert_eq!(row.error_code, Some(FailureCode::NodeLost));
    assert_eq!(row.cost_nano_usd, NanoUsd::ZERO);
}

/// The waybill of a whole answer.
pub(crate) fn settled() -> RequestSettled {
    settle(report(Outcome::Ok), Some(200), false)
}

#[test]
fn an_answer_whose_waybill_the_disk_refused_is_lost_free_and_says_why() {
    let whole = settled();
    let cost = whole.cost_nano_usd;
    assert!(cost > NanoUsd::ZERO);

    let streamed = unrecorded(whole.clone(), Some(200));
    let plain = unrecorded(whole, None);

    assert_eq!((streamed.status, plain.status), (200, 503));
    assert_eq!(
        (
            plain.outcome,
            plain.error_code,
            plain.cost_nano_usd,
            plain.cost_usd.as_str()
        ),
        (
            Outcome::Lost,
            Some(FailureCode::SpoolFull),
            NanoUsd::ZERO,
            "0.000000000"
        )
    );
    assert_eq!(plain.upstream_cost_nano_usd, Some(cost));
}

#[test]
fn a_caller_who_left_pays_the_same_when_the_disk_refused_his_waybill() {
    let left = settle(report(Outcome::ClientGone), Some(200), true);

    assert_eq!(unrecorded(left.clone(), Some(200)), left);
}
