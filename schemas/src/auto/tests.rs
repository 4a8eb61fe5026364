//! Tests of the choice.

use std::collections::HashSet;

use super::choice::{Considered, Offered, Why, decide};
use super::record::{Exclusion, Left};
use super::*;
use crate::catalog::policy::{ModelPolicy, WEIGHT_MAX};
use crate::event::request::Attempt;
use crate::failure::Failure;
use crate::frame::Delivered;
use crate::id::{BackendId, EndpointId, ModelName};
use crate::time::Timestamp;

fn considered(name: &str, cost: Option<u64>, ttft_ms: Option<u64>) -> Considered {
    Considered {
        policy: ModelPolicy::new(ModelName::from(name)),
        offered: Ok(Offered {
            cost_nano_usd: cost,
            ttft_ms,
            endpoints: vec![EndpointId::from(format!("{name}:o1").as_str())],
        }),
    }
}

fn with(mut one: Considered, change: impl FnOnce(&mut ModelPolicy)) -> Considered {
    change(&mut one.policy);
    one
}

fn order(strategy: Strategy, all: &[Considered]) -> Vec<String> {
    let decision = decide((strategy, Purpose::Chat), all, None).expect("somebody");
    decision
        .order
        .iter()
        .map(|choice| choice.model.to_string())
        .collect()
}

fn excluded(left: &[Left]) -> Vec<(String, Exclusion)> {
    left.iter()
        .map(|left| (left.model.to_string(), left.reason))
        .collect()
}

#[test]
fn what_a_key_says_counts_before_what_holds_for_all_and_without_either_it_is_off() {
    let all = |enabled, strategy| Inference {
        auto_routing_enabled: enabled,
        auto_routing_strategy: strategy,
        gpu_temperature_threshold: None,
    };
    let key = |enabled, strategy| KeyRouting {
        auto_routing_enabled: enabled,
        strategy,
    };
    let on = all(true, Strategy::Cost);
    let off = all(false, Strategy::Cost);

    assert_eq!(strategy(None, None), None);
    assert_eq!(strategy(None, Some(&off)), None);
    assert_eq!(strategy(None, Some(&on)), Some(Strategy::Cost));
    assert_eq!(strategy(Some(&key(Some(false), None)), Some(&on)), None);
    assert_eq!(
        strategy(Some(&key(Some(true), None)), Some(&off)),
        Some(Strategy::Cost)
    );
    assert_eq!(
        strategy(Some(&key(None, Some(Strategy::Latency))), Some(&on)),
        Some(Strategy::Latency)
    );
    assert_eq!(
        strategy(Some(&key(None, Some(Strategy::Latency))), Some(&off)),
        None
    );
    assert_eq!(
        strategy(Some(&key(Some(true), None)), None),
        Some(Strategy::Balanced)
    );
}

#[test]
fn each_strategy_orders_by_its_own_weight_and_figure() {
    let half = WEIGHT_MAX / 2;
    let all = [
        with(considered("good", Some(900), Some(900)), |policy| {
            policy.latency_weight_micro = half;
        }),
        with(considered("fast", Some(600), Some(100)), |policy| {
            policy.quality_weight_micro = half;
        }),
        with(considered("cheap", Some(90), Some(600)), |policy| {
            policy.quality_weight_micro = half / 2;
        }),
    ];

    assert_eq!(order(Strategy::Quality, &all), ["good", "fast", "cheap"]);
    assert_eq!(order(Strategy::Latency, &all), ["fast", "cheap", "good"]);
    assert_eq!(order(Strategy::Cost, &all), ["cheap", "fast", "good"]);
    // Means of (1, 0.5/9, 1/10), (0.5, 1, 91/601) and (0.25, 101/601, 1).
    assert_eq!(order(Strategy::Balanced, &all), ["fast", "cheap", "good"]);
}

#[test]
fn a_weight_turns_a_small_lead_around_and_a_weight_of_nothing_puts_a_model_last() {
    let cheaper = considered("cheaper", Some(100), None);
    let dearer = considered("dearer", Some(110), None);
    assert_eq!(
        order(Strategy::Cost, &[dearer.clone(), cheaper.clone()]),
        ["cheaper", "dearer"]
    );

    let less = with(cheaper, |policy| policy.cost_weight_micro = 900_000);
    assert_eq!(
        order(Strategy::Cost, &[less.clone(), dearer.clone()]),
        ["dearer", "cheaper"]
    );

    let never = with(dearer, |policy| policy.cost_weight_micro = 0);
    assert_eq!(order(Strategy::Cost, &[never, less]), ["cheaper", "dearer"]);
}

#[test]
fn scores_are_figures_that_a_waybill_can_be_checked_by() {
    let all = [
        considered("a", Some(199), Some(49)),
        considered("b", Some(99), Some(99)),
    ];

    let decision = decide((Strategy::Balanced, Purpose::Chat), &all, None).expect("somebody");

    let scores: Vec<_> = decision
        .order
        .iter()
        .map(|choice| {
            let scores = choice.scores;
            (
                choice.model.as_str(),
                scores.quality_micro,
                scores.latency_micro,
                scores.cost_micro,
                scores.score_micro,
            )
        })
        .collect();
    assert_eq!(
        scores,
        [
            ("b", 1_000_000, 500_000, 1_000_000, 833_333),
            ("a", 1_000_000, 1_000_000, 500_000, 833_333),
        ],
        "of equal scores the cheaper comes first"
    );
}

#[test]
fn what_is_not_known_is_neutral() {
    let unknown = || considered("unknown", None, None);
    let known = [
        considered("dear", Some(1_000), Some(1_000)),
        considered("cheap", Some(10), Some(10)),
    ];
    let with_unknown = [known[0].clone(), unknown(), known[1].clone()];

    assert_eq!(order(Strategy::Cost, &with_unknown), ["cheap", "unknown", "dear"]);
    assert_eq!(
        order(Strategy::Latency, &with_unknown),
        ["cheap", "unknown", "dear"]
    );
    let nothing_known = [considered("first", None, None), considered("second", None, None)];
    for strategy in [
        Strategy::Quality,
        Strategy::Latency,
        Strategy::Cost,
        Strategy::Balanced,
    ] {
        assert_eq!(
            order(strategy, &nothing_known),
            ["first", "second"],
            "{strategy:?}"
        );
    }
}

#[test]
fn what_costs_nothing_comes_before_what_costs_something_and_the_rest_keeps_its_order() {
    let all = [
        considered("dear", Some(9_000_000), None),
        considered("middling", Some(5_000_000), None),
        considered("free", Some(0), None),
    ];
    assert_eq!(order(Strategy::Cost, &all), ["free", "middling", "dear"]);
}

#[test]
fn models_for_the_purpose_come_before_those_of_which_nobody_said_anything_and_others_are_out() {
    let purpose = |name, told| with(considered(name, Some(5), None), |policy| policy.purpose = told);
    let cheap = with(considered("cheap", Some(1), None), |_| {});
    let all = [
        cheap,
        purpose("chat", Some(Purpose::Chat)),
        purpose("embedding", Some(Purpose::Embedding)),
        purpose("completion", Some(Purpose::Completion)),
    ];

    let decision = decide((Strategy::Cost, Purpose::Chat), &all, None).expect("somebody");

    let asked: Vec<_> = decision
        .order
        .iter()
        .map(|choice| (choice.model.as_str(), choice.unlabeled))
        .collect();
    assert_eq!(asked, [("chat", false), ("cheap", true)]);
    assert_eq!(
        excluded(&decision.excluded),
        [
            ("embedding".to_owned(), Exclusion::Purpose),
            ("completion".to_owned(), Exclusion::Purpose),
        ]
    );
}

#[test]
fn without_anybody_for_the_purpose_that_is_said_and_without_anybody_at_all_that() {
    let chat = with(considered("chat", None, None), |policy| {
        policy.purpose = Some(Purpose::Chat);
    });
    let mut embeds = considered("embeds", None, None);
    embeds.offered = Err(Exclusion::Purpose);
    let mut toolless = considered("toolless", None, None);
    toolless.offered = Err(Exclusion::Tools);
    let disabled = with(considered("disabled", None, None), |policy| {
        policy.routing_enabled = false;
    });
    let nobody = |all: &[Considered]| {
        decide((Strategy::Balanced, Purpose::Embedding), all, None)
            .expect_err("nobody")
            .why
    };
    let mut short = considered("short", None, None);
    short.offered = Err(Exclusion::ContextLength);

    assert_eq!(nobody(std::slice::from_ref(&chat)), Why::OtherPurpose);
    let others = [chat.clone(), embeds.clone(), disabled.clone()];
    assert_eq!(nobody(&others), Why::OtherPurpose);
    assert_eq!(nobody(std::slice::from_ref(&disabled)), Why::Nobody);
    assert_eq!(nobody(&[chat.clone(), toolless.clone()]), Why::Nobody);
    assert_eq!(nobody(&[]), Why::Nobody);
    assert_eq!(nobody(std::slice::from_ref(&short)), Why::TooLong);
    assert_eq!(
        nobody(&[chat, toolless, disabled.clone(), short.clone()]),
        Why::TooLong
    );
    short.policy.routing_enabled = false;
    assert_eq!(nobody(&[short]), Why::Nobody, "its policy takes it out first");
}

#[test]
fn every_reason_is_told_by_name() {
    let reasons = [
        Exclusion::Tools,
        Exclusion::StructuredOutput,
        Exclusion::Parameter,
        Exclusion::Modality,
        Exclusion::ContextLength,
        Exclusion::NoEndpoint,
        Exclusion::Purpose,
    ];
    let mut all: Vec<Considered> = reasons
        .iter()
        .map(|reason| Considered {
            offered: Err(*reason),
            ..considered(&format!("{reason:?}"), None, None)
        })
        .collect();
    all.push(with(considered("off", None, None), |policy| {
        policy.routing_enabled = false;
    }));
    let mut nowhere = considered("nowhere", None, None);
    nowhere.offered = Ok(Offered::default());
    all.push(nowhere);
    all.push(considered("good", None, None));

    let decision = decide((Strategy::Balanced, Purpose::Chat), &all, None).expect("somebody");

    let told: Vec<Exclusion> = decision.excluded.iter().map(|left| left.reason).collect();
    assert_eq!(told[..7], reasons);
    assert_eq!(told[7..], [Exclusion::RoutingDisabled, Exclusion::NoEndpoint]);
    assert_eq!(decision.order.len(), 1);
}

#[test]
fn a_model_whose_endpoints_are_all_those_of_better_ones_is_not_asked() {
    let at = |name: &str, cost, endpoints: &[&str]| {
        let mut one = considered(name, Some(cost), None);
        if let Ok(offered) = &mut one.offered {
            offered.endpoints = endpoints.iter().map(|id| EndpointId::from(*id)).collect();
        }
        one
    };
    let all = [
        at("same", 3, &["group"]),
        at("best", 1, &["group"]),
        at("more", 2, &["group", "other"]),
        at("none", 4, &["other", "group"]),
    ];

    let decision = decide((Strategy::Cost, Purpose::Chat), &all, None).expect("somebody");

    let asked: Vec<_> = decision
        .order
        .iter()
        .map(|choice| choice.model.as_str())
        .collect();
    assert_eq!(asked, ["best", "more"]);
    assert_eq!(
        excluded(&decision.excluded),
        [
            ("same".to_owned(), Exclusion::SameEndpoints),
            ("none".to_owned(), Exclusion::SameEndpoints),
        ]
    );
}

#[test]
fn a_session_stays_with_its_model_while_that_can_take_the_call() {
    let all = [
        considered("cheap", Some(1), None),
        considered("dear", Some(9), None),
    ];
    let first = |session: &str, all: &[Considered]| {
        let session = ModelName::from(session);
        let decision = decide((Strategy::Cost, Purpose::Chat), all, Some(&session)).expect("somebody");
        decision.order.first().map(|choice| choice.model.to_string())
    };

    assert_eq!(first("dear", &all).as_deref(), Some("dear"));
    assert_eq!(first("gone", &all).as_deref(), Some("cheap"));
    let out = [
        all[0].clone(),
        with(all[1].clone(), |policy| policy.routing_enabled = false),
    ];
    assert_eq!(first("dear", &out).as_deref(), Some("cheap"));
}

/// Property: whatever the figures are, everybody considered is either asked or excluded, once.
#[test]
fn nobody_is_lost_or_doubled() {
    let mut state = 0x9E37_79B9_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..2_000 {
        let count = usize::try_from(draw(9)).expect("small");
        let all: Vec<Considered> = (0..count)
            .map(|index| {
                let cost = (draw(3) > 0).then(|| draw(1_000_000_000));
                let ttft = (draw(3) > 0).then(|| draw(10_000));
                let mut one = considered(&format!("m{index}"), cost, ttft);
                one.policy.routing_enabled = draw(5) > 0;
                one.policy.cost_weight_micro = u32::try_from(draw(1_000_001)).expect("small");
                one.policy.purpose = [None, Some(Purpose::Chat), Some(Purpose::Embedding)]
                    [usize::try_from(draw(3)).expect("small")];
                if let Ok(offered) = &mut one.offered {
                    offered.endpoints = vec![EndpointId::from(format!("e{}", draw(4)).as_str())];
                }
                one
            })
            .collect();
        let (asked, out) = match decide((Strategy::Balanced, Purpose::Chat), &all, None) {
            Ok(decision) => (decision.order, decision.excluded),
            Err(nobody) => (Vec::new(), nobody.excluded),
        };
        let names: HashSet<&ModelName> = asked
            .iter()
            .map(|choice| &choice.model)
            .chain(out.iter().map(|left| &left.model))
            .collect();
        assert_eq!((names.len(), asked.len() + out.len()), (count, count));
        assert!(asked.iter().is_sorted_by_key(|choice| choice.unlabeled));
        assert!(asked.iter().all(|choice| choice.scores.score_micro <= 1_000_000));
    }
}

fn report(outcome: Outcome, code: FailureCode, attempts: usize) -> Report {
    let attempt = Attempt {
        endpoint_id: EndpointId::from("m:o1"),
        backend: BackendId::new("m:o1"),
        provider: "o1".into(),
        status: None,
        outcome,
        error_code: Some(code),
        started_at: Timestamp::default(),
        first_byte_ms: None,
        latency_ms: 1,
    };
    Report {
        outcome,
        failure: (outcome != Outcome::Ok).then(|| Failure::new(code, "no")),
        attempts: vec![attempt; attempts],
        served: None,
        usage: None,
        usage_flags: Vec::new(),
        upstream_cost_nano_usd: None,
        attempts_of_unknown_cost: 0,
        passed: None,
        delivered: Delivered::default(),
        session: None,
        affinity: None,
        decision: None,
    }
}

#[test]
fn failures_of_a_model_move_on_and_what_its_backend_says_of_the_call_does_not() {
    let goes = |outcome, code, attempts| moves_on(&report(outcome, code, attempts));

    assert!(goes(Outcome::UpstreamError, FailureCode::UpstreamError, 1));
    assert!(goes(
        Outcome::UpstreamError,
        FailureCode::UpstreamRejectedCredential,
        2
    ));
    assert!(goes(Outcome::Timeout, FailureCode::UpstreamTimeout, 1));
    assert!(goes(Outcome::UpstreamError, FailureCode::AllCircuitsOpen, 0));
    assert!(goes(Outcome::UpstreamError, FailureCode::NoBackendsAvailable, 0));
    assert!(goes(Outcome::Rejected, FailureCode::UnsupportedParameter, 0));
    assert!(!goes(Outcome::Ok, FailureCode::Internal, 1));
    assert!(!goes(
        Outcome::UpstreamError,
        FailureCode::UpstreamRejectedRequest,
        1
    ));
    assert!(!goes(
        Outcome::UpstreamError,
        FailureCode::ContextLengthExceeded,
        1
    ));
    assert!(!goes(Outcome::UpstreamError, FailureCode::UpstreamRateLimited, 2));
    assert!(!goes(Outcome::ClientGone, FailureCode::ClientGone, 1));
    assert!(!goes(Outcome::UpstreamCut, FailureCode::StreamInterrupted, 1));
    assert!(!goes(Outcome::Timeout, FailureCode::StreamInterrupted, 1));
    let mut begun = report(Outcome::UpstreamError, FailureCode::UpstreamError, 1);
    begun.delivered.content = true;
    assert!(!moves_on(&begun));
}

#[test]
fn of_what_a_backend_says_with_400_to_499_only_what_is_about_the_gateway_moves_on() {
    let document = include_str!("../../../docs/auto.md");
    let list = PASSING.map(|status| status.to_string()).join(", ");
    assert!(
        document.contains(&format!("({list})")),
        "the list is in the document"
    );
    for status in 400..500 {
        // Whatever the caller is told of it.
        for code in [FailureCode::UpstreamError, FailureCode::UpstreamRejectedRequest] {
            let mut said = report(Outcome::UpstreamError, code, 2);
            said.attempts[1].status = Some(status);
            let passes = PASSING.contains(&status) && code == FailureCode::UpstreamError;
            assert_eq!(moves_on(&said), passes, "{status}");
        }
    }
    let mut doubted = report(Outcome::UpstreamError, FailureCode::UpstreamRejectedCredential, 1);
    doubted.attempts[0].status = Some(400);
    assert!(moves_on(&doubted), "it is the gateway's key that is refused");
    let mut before = report(Outcome::UpstreamError, FailureCode::UpstreamError, 2);
    before.attempts[0].status = Some(404);
    assert!(moves_on(&before), "the last word counts");
}

#[test]
fn each_model_leaves_an_attempt_for_those_behind_it() {
    assert_eq!([share(4, 2), share(4, 0), share(2, 2), share(1, 2)], [2, 4, 1, 1]);
}
