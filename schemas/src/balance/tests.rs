//! Whom each algorithm chooses, and that a choice can be made again from what an event keeps of it.

use std::collections::BTreeMap;

use super::choice::{Choice, decide};
use super::draws::{Draws, shortened};
use super::snapshot::{Candidate, Engine, Found, Leg, Prefix, Snapshot, Sought};
use super::*;
use crate::affinity::Level;
use crate::affinity::choice::Verdict;
use crate::engine::Sample;
use crate::id::{BackendId, EndpointId};

pub(super) fn leg(endpoint: &str, algorithm: Algorithm, weight_micro: u64) -> Leg {
    Leg {
        endpoint: EndpointId::from(endpoint),
        algorithm,
        weight_micro,
        turn: 0,
    }
}

pub(super) fn candidate(backend: &str, calls: u64) -> Candidate {
    Candidate {
        backend: BackendId::from(backend),
        leg: 0,
        calls,
        engine: None,
        ttft_us: None,
        unread_tokens: 0,
        crowded: false,
    }
}

/// One leg whose backends run so many calls.
pub(super) fn group(algorithm: Algorithm, calls: &[u64]) -> Snapshot {
    let candidates = calls.iter().enumerate();
    Snapshot {
        legs: vec![leg("e", algorithm, 1_000_000)],
        candidates: candidates
            .map(|(place, calls)| candidate(&format!("e#{place}"), *calls))
            .collect(),
        ..Snapshot::default()
    }
}

pub(super) fn engine(waiting: u64, sent: u64, kv_percent_milli: u64) -> Engine {
    Engine {
        waiting,
        sent,
        kv_percent_milli,
    }
}

/// How often each place is chosen in a thousand draws.
fn counts(snapshot: &Snapshot) -> BTreeMap<usize, u32> {
    let mut counts = BTreeMap::new();
    for draw in 0..1_000 {
        let snapshot = Snapshot {
            draw,
            ..snapshot.clone()
        };
        let chosen = decide(&snapshot).chosen.expect("somebody is chosen");
        *counts.entry(chosen).or_default() += 1;
    }
    counts
}

fn always(snapshot: &Snapshot) -> usize {
    let counts = counts(snapshot);
    assert_eq!(counts.len(), 1, "{counts:?}");
    counts.into_keys().next().expect("one")
}

/// Σ (observed − expected)² / expected.
fn chi_squared(observed: &[u32], expected: &[f64]) -> f64 {
    let pairs = observed.iter().zip(expected);
    pairs
        .map(|(observed, expected)| (f64::from(*observed) - expected).powi(2) / expected)
        .sum()
}

#[test]
fn words_are_read_as_they_are_written_and_random_is_weighted() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::parse(algorithm.as_str()), Some(algorithm));
        let json = serde_json::to_string(&algorithm).expect("plain data");
        assert_eq!(json, format!("\"{algorithm}\""));
    }
    assert_eq!(Algorithm::parse("random"), Some(Algorithm::Weighted));
    assert_eq!(
        serde_json::from_str::<Algorithm>("\"random\"").ok(),
        Some(Algorithm::Weighted)
    );
    assert_eq!(Algorithm::parse("fastest"), None);
    assert_eq!(
        Algorithm::words(),
        "weighted, round_robin, least_connections, engine_aware, power_of_two, prefix_aware"
    );
}

#[test]
fn a_canary_gets_its_share_of_ten_thousand_calls() {
    let snapshot = Snapshot {
        legs: vec![
            leg("stable", Algorithm::Weighted, 800_000),
            leg("canary", Algorithm::Weighted, 200_000),
        ],
        candidates: vec![
            candidate("stable", 0),
            Candidate {
                leg: 1,
                ..candidate("canary", 0)
            },
        ],
        ..Snapshot::default()
    };
    let mut mint = Draws::new(7);
    let mut observed = [0_u32; 2];

    for _ in 0..10_000 {
        let snapshot = Snapshot {
            draw: shortened(mint.next()),
            ..snapshot.clone()
        };
        observed[decide(&snapshot).chosen.expect("one")] += 1;
    }

    // One degree of freedom: 10.83 is exceeded once in a thousand series, and this one is always the same.
    let chi = chi_squared(&observed, &[8_000.0, 2_000.0]);
    assert!(chi < 10.83, "{observed:?}: {chi}");
}

#[test]
fn the_algorithm_of_a_leg_changes_nothing_about_the_share_of_the_leg() {
    let mut snapshot = Snapshot {
        legs: vec![
            leg("stable", Algorithm::LeastConnections, 800_000),
            leg("canary", Algorithm::Weighted, 200_000),
        ],
        candidates: vec![candidate("stable#0", 90), candidate("stable#1", 40)],
        ..Snapshot::default()
    };
    snapshot.candidates.push(Candidate {
        leg: 1,
        ..candidate("canary", 0)
    });

    let counts = counts(&snapshot);

    assert!(!counts.contains_key(&0), "the one with more calls: {counts:?}");
    assert!((150..250).contains(&counts[&2]), "{counts:?}");
}

#[test]
fn round_robin_asks_one_after_the_other_among_those_that_can_be_asked() {
    let chosen = |turn: u64, count: usize| {
        let mut snapshot = group(Algorithm::RoundRobin, &vec![0; count]);
        snapshot.legs[0].turn = turn;
        snapshot.draw = turn / 3;
        decide(&snapshot)
    };

    let places: Vec<_> = (0..6).map(|turn| chosen(turn, 3).chosen).collect();

    let expected = [0, 1, 2, 0, 1, 2].map(Some);
    assert_eq!(places, expected);
    assert_eq!(chosen(u64::MAX, 2).chosen, Some(1));
    assert_eq!(chosen(5, 2).turned, Some(0));
}

#[test]
fn least_connections_asks_whom_fewest_calls_are_at_and_draws_among_equals() {
    assert_eq!(always(&group(Algorithm::LeastConnections, &[3, 1, 2])), 1);

    let even = counts(&group(Algorithm::LeastConnections, &[2, 1, 1]));
    assert!(!even.contains_key(&0));
    assert!(even.values().all(|count| (430..570).contains(count)), "{even:?}");
}

#[test]
fn an_engine_with_a_shorter_queue_is_asked_and_the_cache_breaks_ties() {
    let mut snapshot = group(Algorithm::EngineAware, &[0, 0, 0]);
    snapshot.candidates[0].engine = Some(engine(1, 0, 0));
    snapshot.candidates[1].engine = Some(engine(0, 0, 99_000));
    snapshot.candidates[2].engine = Some(engine(0, 0, 98_999));
    assert_eq!(
        always(&snapshot),
        2,
        "a request that waits weighs more than a full cache"
    );

    // Weights decide what counts for how much.
    snapshot.terms.kv_weight = 2;
    assert_eq!(always(&snapshot), 0);
}

#[test]
fn engines_alike_are_told_apart_by_calls_and_then_by_luck() {
    let mut snapshot = group(Algorithm::EngineAware, &[4, 3, 3]);
    for candidate in &mut snapshot.candidates {
        candidate.engine = Some(engine(2, 0, 50_000));
    }

    let counts = counts(&snapshot);

    assert!(!counts.contains_key(&0));
    assert!(
        counts.values().all(|count| (430..570).contains(count)),
        "equals do not all send their calls to the first: {counts:?}"
    );
}

#[test]
fn what_was_sent_since_an_engine_was_read_counts_as_waiting() {
    let mut snapshot = group(Algorithm::EngineAware, &[0, 0]);
    let mut sent = [0, 0];
    for draw in 0..12 {
        snapshot.draw = draw;
        for (place, candidate) in snapshot.candidates.iter_mut().enumerate() {
            candidate.engine = Some(engine(0, sent[place], 0));
            candidate.calls = sent[place];
        }
        sent[decide(&snapshot).chosen.expect("one")] += 1;
    }

    assert_eq!(sent, [6, 6]);
}

#[test]
fn without_any_data_that_is_fresh_the_fewest_calls_decide_and_without_some_the_mean_stands_in() {
    assert_eq!(always(&group(Algorithm::EngineAware, &[3, 1, 2])), 1);

    // The mean of 0 and 4 waiting is 2.
    let mut snapshot = group(Algorithm::EngineAware, &[0, 0, 0]);
    snapshot.candidates[1].engine = Some(engine(4, 0, 0));
    snapshot.candidates[2].engine = Some(engine(0, 0, 0));
    assert_eq!(always(&snapshot), 2, "who does not say is not favoured");
    snapshot.candidates[2].engine = Some(engine(4, 0, 0));
    snapshot.candidates[1].engine = Some(engine(6, 0, 0));
    assert_eq!(always(&snapshot), 2);
    snapshot.candidates[2].engine = Some(engine(8, 0, 0));
    snapshot.candidates[1].engine = Some(engine(9, 0, 0));
    snapshot.candidates.push(candidate("e#3", 0));
    snapshot.candidates[3].engine = Some(engine(30, 0, 0));
    snapshot.candidates[2].engine = Some(engine(29, 0, 0));
    assert_eq!(
        always(&snapshot),
        1,
        "nor is it asked before those that have less to do"
    );
    // Three engines with as much to do: who does not say is as good as they are.
    for place in 1..4 {
        snapshot.candidates[place].engine = Some(engine(5, 0, 0));
    }
    assert_eq!(counts(&snapshot).len(), 4, "nor starved");
}

#[test]
fn a_sample_that_is_too_old_or_tells_of_no_queue_is_no_data() {
    let sample = Sample {
        waiting: Some(2),
        kv_percent_milli: Some(10),
        at_ms: 100_000,
        ..Sample::default()
    };
    assert_eq!(Engine::of(&sample, 115_000, 3), Some(engine(2, 3, 10)));
    assert_eq!(Engine::of(&sample, 115_001, 3), None);
    let silent = Sample {
        waiting: None,
        ..sample
    };
    assert_eq!(Engine::of(&silent, 100_000, 0), None);
}

#[test]
fn of_two_that_are_drawn_the_quicker_is_asked_and_who_was_not_measured_is_taken_for_the_mean() {
    let mut snapshot = group(Algorithm::PowerOfTwo, &[0, 0, 0]);
    snapshot.candidates[0].ttft_us = Some(900_000);
    snapshot.candidates[1].ttft_us = Some(100_000);
    snapshot.candidates[2].ttft_us = Some(200_000);
    let shares = counts(&snapshot);
    assert!(
        !shares.contains_key(&0),
        "the slowest loses to any other: {shares:?}"
    );
    assert!((600..730).contains(&shares[&1]), "{shares:?}");

    // Nine calls at a quick one take as long as one at the slowest.
    snapshot.candidates[1].calls = 9;
    assert!(!counts(&snapshot).contains_key(&1));

    snapshot.candidates[1].ttft_us = None;
    snapshot.candidates[1].calls = 0;
    let shares = counts(&snapshot);
    assert!(
        (600..730).contains(&shares[&1]),
        "it is to be measured: {shares:?}"
    );
    snapshot.candidates[1].calls = 1;
    let shares = counts(&snapshot);
    assert!(
        !shares.contains_key(&1),
        "twice the mean of the others: {shares:?}"
    );

    let calls = group(Algorithm::PowerOfTwo, &[5, 4, 9]);
    assert!(
        !counts(&calls).contains_key(&2),
        "without any measurement calls decide"
    );
}

fn prefix(instructions: u64, conversation: u64) -> Prefix {
    Prefix {
        instructions,
        conversation,
    }
}

/// Where prompts of so many instructions go.
fn homes(snapshot: &Snapshot, prompts: u64) -> Vec<BackendId> {
    let home = |instructions| {
        let snapshot = Snapshot {
            prefix: Some(prefix(instructions, instructions * 31)),
            ..snapshot.clone()
        };
        let place = decide(&snapshot).chosen.expect("one");
        snapshot.candidates[place].backend.clone()
    };
    (0..prompts).map(home).collect()
}

#[test]
fn prompts_that_begin_alike_go_to_one_backend_and_hardly_any_moves_when_another_one_goes() {
    let all = group(Algorithm::PrefixAware, &[0, 0, 0, 0]);
    let mut fewer = all.clone();
    let gone = fewer.candidates.remove(2).backend;

    let (before, after) = (homes(&all, 1_000), homes(&fewer, 1_000));

    let mut shares: BTreeMap<&BackendId, u32> = BTreeMap::new();
    for home in &before {
        *shares.entry(home).or_default() += 1;
    }
    assert!(
        shares.values().all(|share| (180..320).contains(share)),
        "{shares:?}"
    );
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || *before == gone, "{before} moved to {after}");
    }
}

#[test]
fn a_prompt_goes_elsewhere_when_where_it_belongs_has_much_more_to_do_than_the_mean() {
    let mut snapshot = group(Algorithm::PrefixAware, &[0, 0, 0]);
    snapshot.prefix = Some(prefix(5, 6));
    let home = always(&snapshot);

    // With 9 calls in all and this one, the mean is a third of ten, and the bound a quarter above: 4.1, so 5.
    for candidate in &mut snapshot.candidates {
        candidate.calls = 3;
    }
    snapshot.candidates[home].calls = 4;
    assert_eq!(always(&snapshot), home);
    snapshot.candidates[home].calls = 6;
    let elsewhere = always(&snapshot);
    assert_ne!(elsewhere, home);

    // Conversations with the same instructions spread from there.
    let spread: std::collections::BTreeSet<usize> = (0..50)
        .map(|conversation| {
            snapshot.prefix = Some(prefix(5, conversation));
            always(&snapshot)
        })
        .collect();
    assert_eq!(spread.len(), 2, "{spread:?}");
    assert!(!spread.contains(&home));
}

#[test]
fn a_prompt_of_which_nothing_is_known_goes_where_fewest_calls_are() {
    assert_eq!(always(&group(Algorithm::PrefixAware, &[3, 1, 2])), 1);
}

#[test]
fn a_session_goes_where_it_is_whatever_the_algorithm() {
    for algorithm in Algorithm::ALL {
        let mut snapshot = group(algorithm, &[2, 0, 1]);
        snapshot.session = Some(Sought {
            found: Some(Found {
                level: Level::L1,
                backend: BackendId::from("e#0"),
            }),
        });
        assert_eq!(always(&snapshot), 0, "{algorithm}");
        assert_eq!(
            decide(&snapshot).verdict,
            Some(Verdict::Hit {
                level: Level::L1,
                candidate: 0
            })
        );
    }
}

#[test]
fn a_session_is_moved_by_the_queues_of_engines_where_those_decide() {
    let mut snapshot = group(Algorithm::EngineAware, &[20, 0, 0]);
    snapshot.session = Some(Sought {
        found: Some(Found {
            level: Level::L1,
            backend: BackendId::from("e#0"),
        }),
    });
    snapshot.candidates[0].engine = Some(engine(3, 0, 0));
    snapshot.candidates[1].engine = Some(engine(0, 0, 0));
    snapshot.candidates[2].engine = Some(engine(1, 0, 0));
    assert_eq!(always(&snapshot), 0, "it runs many calls, and few of them wait");

    snapshot.candidates[0].engine = Some(engine(3, 1, 0));
    assert_eq!(always(&snapshot), 1);
    assert!(matches!(
        decide(&snapshot).verdict,
        Some(Verdict::Overload { .. })
    ));
}

#[test]
fn whoever_reads_long_prompts_already_is_asked_for_another_only_when_all_do() {
    for algorithm in Algorithm::ALL {
        let mut snapshot = group(algorithm, &[0, 5]);
        snapshot.candidates[0].crowded = true;
        assert_eq!(always(&snapshot), 1, "{algorithm}");
    }
    let mut snapshot = group(Algorithm::LeastConnections, &[0, 5]);
    for candidate in &mut snapshot.candidates {
        candidate.crowded = true;
    }
    assert_eq!(always(&snapshot), 0);
}

#[test]
fn nobody_is_chosen_among_nobody() {
    assert_eq!(decide(&Snapshot::default()), Choice::default());
    for algorithm in Algorithm::ALL {
        assert_eq!(decide(&group(algorithm, &[])), Choice::default(), "{algorithm}");
    }
}
