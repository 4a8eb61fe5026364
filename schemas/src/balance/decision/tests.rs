//! Decisions as events keep them: made again, and told.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::affinity::Level;
use crate::balance::Algorithm;
use crate::balance::draws::{Draws, shortened};
use crate::balance::explain::explain;
use crate::balance::routewise::{Market, Offered};
use crate::balance::snapshot::{Candidate, Engine, Found, Leg, Prefix, Sought, Terms};
use crate::balance::tests::{candidate, engine, group, leg};
use crate::catalog::router::RouteWise;

/// Every reason to leave somebody out.
const REASONS: [Exclusion; 17] = [
    Exclusion::UnknownEndpoint,
    Exclusion::EndpointDisabled,
    Exclusion::ProviderDisabled,
    Exclusion::ConfiguredZero,
    Exclusion::Modality,
    Exclusion::NotPinned,
    Exclusion::CircuitOpen { retry_in_ms: 0 },
    Exclusion::SoftBan { for_ms: 14_000 },
    Exclusion::Unhealthy,
    Exclusion::HotGpu,
    Exclusion::ContextLength,
    Exclusion::Untranslatable,
    Exclusion::Asleep,
    Exclusion::PoolAway,
    Exclusion::KeptForWaiting,
    Exclusion::QueueWait { after_ms: 2_500 },
    Exclusion::EngineWait { after_ms: 0 },
];

/// Any number, small ones often.
fn some_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, 0..500_000_u64, any::<u64>()]
}

fn some_candidate(legs: usize) -> impl Strategy<Value = Candidate> {
    let engine = (some_number(), some_number(), 0..101_000_u64);
    let engine = engine.prop_map(|(waiting, sent, kv_percent_milli)| Engine {
        waiting,
        sent,
        kv_percent_milli,
    });
    (
        0..legs,
        some_number(),
        proptest::option::of(engine),
        proptest::option::of(some_number()),
        some_number(),
        proptest::bool::weighted(0.1),
    )
        .prop_map(
            |(leg, calls, engine, ttft_us, unread_tokens, crowded)| Candidate {
                leg,
                engine,
                ttft_us,
                unread_tokens,
                crowded,
                ..candidate("", calls)
            },
        )
}

/// What legs offer, as a number says.
fn some_market(legs: usize, seed: u64) -> Market {
    let mut draws = Draws::new(seed);
    let offered = (0..legs).map(|_| Offered {
        cost_nano_usd: (draws.below(5) > 0).then(|| draws.next() % 1_000_000),
        ttft_us: (draws.below(5) > 0).then(|| draws.next() % 9_000_000),
        samples: draws.next() % 20,
        calls: draws.next() % 20,
        full: draws.below(4) == 0,
    });
    let offered = offered.collect();
    Market {
        balance_nano_usd: i64::try_from(draws.next() % 2_000_000).map_or(0, |balance| balance - 1_000_000),
        alpha_micro: draws.next() % 1_000_000,
        legs: offered,
        ..Market::new(&RouteWise::default(), 0)
    }
}

fn some_snapshot() -> impl Strategy<Value = Snapshot> {
    let legs = proptest::collection::vec((select(&Algorithm::ALL[..]), some_number(), some_number()), 1..4);
    let candidates = legs.prop_flat_map(|legs| {
        let candidates = proptest::collection::vec(some_candidate(legs.len()), 1..7);
        (Just(legs), candidates)
    });
    let session = proptest::option::of(proptest::option::of((select(&Level::ALL[..]), 0..8_usize)));
    let prefix = proptest::option::of((any::<u64>(), any::<u64>()));
    let terms = proptest::option::of((0..200_u64, 0..5_u64, proptest::option::of(some_number())));
    (candidates, session, prefix, terms, any::<u64>()).prop_map(
        |((legs, mut candidates), session, prefix, terms, draw)| {
            candidates.sort_by_key(|candidate| candidate.leg);
            for (place, candidate) in candidates.iter_mut().enumerate() {
                candidate.backend = BackendId::from(format!("b#{place}").as_str());
            }
            let market = (draw % 3 == 0).then(|| some_market(legs.len(), draw));
            let legs = legs.into_iter().enumerate();
            Snapshot {
                market,
                terms: terms.map_or_else(Terms::default, |(waiting_weight, kv_weight, intervene_tokens)| {
                    Terms {
                        waiting_weight,
                        kv_weight,
                        intervene_tokens,
                        ..Terms::default()
                    }
                }),
                legs: legs
                    .map(|(place, (algorithm, weight_micro, turn))| Leg {
                        turn,
                        ..leg(&format!("e{place}"), algorithm, weight_micro)
                    })
                    .collect(),
                candidates,
                session: session.map(|found| Sought {
                    found: found.map(|(level, place)| Found {
                        level,
                        backend: BackendId::from(format!("b#{place}").as_str()),
                    }),
                }),
                prefix: prefix.map(|(instructions, conversation)| Prefix {
                    instructions: shortened(instructions),
                    conversation: shortened(conversation),
                }),
                draw: shortened(draw),
            }
        },
    )
}

/// The decision that a router would write down.
fn recorded(snapshot: Snapshot) -> (Decision, Choice) {
    let choice = decide(&snapshot);
    let first = choice.chosen.unwrap_or(0);
    let mut order: Vec<BackendId> = snapshot
        .candidates
        .iter()
        .map(|one| one.backend.clone())
        .collect();
    order.rotate_left(first);
    let decision = Decision {
        order,
        snapshot: Some(snapshot),
        excluded: Vec::new(),
    };
    (decision, choice)
}

/// Somebody who is left out, for any reason, some with a number.
fn some_excluded() -> impl Strategy<Value = Excluded> {
    let reason = (select(&REASONS[..]), 0..60_000_u64).prop_map(|(reason, ms)| match reason {
        Exclusion::CircuitOpen { .. } => Exclusion::CircuitOpen { retry_in_ms: ms },
        Exclusion::SoftBan { .. } => Exclusion::SoftBan { for_ms: ms },
        Exclusion::QueueWait { .. } => Exclusion::QueueWait { after_ms: ms },
        Exclusion::EngineWait { .. } => Exclusion::EngineWait { after_ms: ms },
        reason => reason,
    });
    (reason, proptest::option::of(0..9_u8), 0..9_u8).prop_map(|(reason, backend, endpoint)| Excluded {
        endpoint: EndpointId::from(format!("e{endpoint}").as_str()),
        backend: backend.map(|backend| BackendId::from(format!("e{endpoint}#{backend}").as_str())),
        reason,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_decision_that_was_recorded_is_made_again_from_its_event_alone_and_names_all_who_were_left_out(
        snapshot in some_snapshot(),
        excluded in proptest::collection::vec(some_excluded(), 0..7),
    ) {
        let (decision, choice) = recorded(snapshot);
        let decision = Decision { excluded, ..decision };

        let event = serde_json::to_string(&decision).expect("plain data");
        let read: Decision = serde_json::from_str(&event).expect("as it was written");

        prop_assert_eq!(&read, &decision);
        let (again, first) = read.replay();
        prop_assert_eq!(again, choice);
        prop_assert_eq!(first, decision.order.first());
        // And it can be told, whatever it is.
        let told = explain(&read, true);
        prop_assert_eq!(told.excluded.len(), decision.excluded.len());
        for (left_out, excluded) in told.excluded.iter().zip(&decision.excluded) {
            let word = serde_json::to_value(excluded).expect("plain data")["reason"].clone();
            prop_assert_eq!((&left_out.endpoint, &left_out.backend), (&excluded.endpoint, &excluded.backend));
            prop_assert_eq!(word.as_str(), Some(left_out.reason));
            prop_assert!(!left_out.why.is_empty());
        }
        prop_assert_eq!(told.candidates.len(), decision.snapshot.map_or(0, |snapshot| snapshot.candidates.len()));
    }
}

#[test]
fn an_event_says_no_more_than_it_must() {
    let snapshot = Snapshot {
        draw: 5,
        ..group(Algorithm::Weighted, &[0, 2])
    };
    let decision = Decision {
        order: vec![BackendId::from("e#1"), BackendId::from("e#0")],
        snapshot: Some(snapshot),
        excluded: vec![Excluded {
            endpoint: EndpointId::from("f"),
            backend: Some(BackendId::from("f")),
            reason: Exclusion::CircuitOpen { retry_in_ms: 900 },
        }],
    };

    assert_eq!(
        serde_json::to_string(&decision).expect("plain data"),
        concat!(
            r#"{"order":["e#1","e#0"],"#,
            r#""snapshot":{"legs":[{"endpoint":"e","weight_micro":1000000}],"#,
            r#""candidates":[{"backend":"e#0","leg":0},{"backend":"e#1","leg":0,"calls":2}],"draw":5},"#,
            r#""excluded":[{"endpoint":"f","backend":"f","reason":"circuit_open","retry_in_ms":900}]}"#
        )
    );
}

#[test]
fn every_reason_has_a_word_and_is_told_in_words() {
    let excluded: Vec<Excluded> = REASONS
        .into_iter()
        .map(|reason| Excluded {
            endpoint: EndpointId::from("e"),
            backend: None,
            reason,
        })
        .collect();
    let decision = Decision {
        excluded,
        ..Decision::default()
    };

    let event = serde_json::to_value(&decision).expect("plain data");
    let read: Decision = serde_json::from_value(event.clone()).expect("as it was written");
    assert_eq!(read, decision);
    let told = explain(&decision, false);

    assert_eq!(told.chosen, "nobody could be asked");
    let mut sentences = std::collections::BTreeSet::new();
    for (place, left_out) in told.excluded.iter().enumerate() {
        assert_eq!(event["excluded"][place]["reason"], left_out.reason);
        assert!(sentences.insert(left_out.why.clone()), "{}", left_out.why);
    }
}

#[test]
fn what_others_do_at_a_backend_is_told_only_with_figures() {
    let mut snapshot = group(Algorithm::EngineAware, &[3, 4]);
    snapshot.candidates[0].engine = Some(engine(2, 1, 40_500));
    let (decision, _) = recorded(snapshot);

    let with = explain(&decision, true);
    let without = explain(&decision, false);

    assert_eq!(with.candidates[0].score, Some(340_500));
    assert_eq!(
        with.candidates[0].measured.as_deref(),
        Some("2 waiting, 1 sent since, 40 % of its cache in use, 3 calls")
    );
    assert_eq!(
        with.candidates[1].measured.as_deref(),
        Some("no data that is fresh, taken for the mean of the others, 4 calls")
    );
    assert_eq!(with.chosen, "engine_aware chose it");
    for candidate in &without.candidates {
        assert_eq!((candidate.score, candidate.measured.as_deref()), (None, None));
    }
}
