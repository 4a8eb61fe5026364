//! What a simulation shows: that policies which know something are better than those that do not, that luck is worse,
//! and that it is the same every time.

use std::collections::BTreeMap;

use schemas::balance::Algorithm;

use super::generate::{Shape, trace as made};
use super::report::{Outcome, Report};
use super::scenario::{Delays, Endpoint, Engine, Policy, Prices, RouteWise, Scenario, Slo, Source};
use super::trace::{Line, Trace};
use super::*;

/// Tokens of a block.
const BLOCK: u64 = 128;

const fn policy(algorithm: Algorithm, affinity: bool) -> Policy {
    Policy {
        algorithm,
        affinity,
        routewise: None,
    }
}

fn engine() -> Engine {
    Engine {
        step_us: 6_000,
        prefill_ns_per_token: 120_000,
        decode_us_per_token: 250,
        step_tokens_max: 1_024,
        sequences_max: 24,
        kv_tokens: 240_000,
    }
}

fn endpoint(name: &str, speeds_percent: &[u64]) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        engine: "gpu".to_owned(),
        speeds_percent: speeds_percent.to_vec(),
        priority: 0,
        weight: 1,
        price: None,
    }
}

fn scenario(speeds_percent: &[u64], policies: &[Policy]) -> Scenario {
    Scenario {
        seed: 7,
        trace: Source {
            file: None,
            generate: None,
            block_tokens: BLOCK,
        },
        model: None,
        gateways: 2,
        slo: Slo::default(),
        delays: Delays::default(),
        engines: BTreeMap::from([("gpu".to_owned(), engine())]),
        endpoints: vec![endpoint("local", speeds_percent)],
        policies: policies.to_vec(),
    }
}

fn ran(scenario: &Scenario, trace: &Trace) -> Report {
    assert_eq!(scenario.wrong().map(|wrong| wrong.path), Some("trace".to_owned()));
    run(scenario, trace).expect("it runs")
}

fn of(report: &Report, place: usize) -> &Outcome {
    report.policies.get(place).expect("a policy")
}

fn shape(seed: u64) -> Shape {
    Shape {
        seed,
        sessions: 100,
        ..Shape::default()
    }
}

const SHIPPED: &str = include_str!("../../../deploy/simulate/conversations.jsonl");

fn shipped() -> Trace {
    Trace::parse(SHIPPED, BLOCK).expect("a trace")
}

/// The trace that is shipped, and made-up ones: of other luck, of short single requests, of long prompts.
fn traces() -> Vec<(&'static str, Trace)> {
    let alone = Shape {
        turns: 1,
        sessions: 500,
        gap_ms: 40,
        instruction_blocks: 2,
        ..shape(11)
    };
    let long = Shape {
        sessions: 60,
        gap_ms: 500,
        user_tokens: 600,
        instruction_blocks: 24,
        ..shape(12)
    };
    vec![
        ("shipped", shipped()),
        ("seed 2", made(&shape(2), BLOCK)),
        ("seed 3", made(&shape(3), BLOCK)),
        ("single requests", made(&alone, BLOCK)),
        ("long prompts", made(&long, BLOCK)),
    ]
}

#[test]
fn engine_aware_has_a_p95_that_is_a_third_below_that_of_round_robin_when_a_replica_is_slow() {
    let policies = [
        policy(Algorithm::RoundRobin, false),
        policy(Algorithm::EngineAware, false),
    ];
    let scenario = scenario(&[100, 100, 100, 25], &policies);
    for (name, trace) in traces() {
        let report = ran(&scenario, &trace);
        let (turns, engines) = (of(&report, 0).ttft_ms.p95, of(&report, 1).ttft_ms.p95);
        assert!(engines <= 0.7 * turns, "{name}: {engines} ms, in turn {turns} ms");
    }
}

#[test]
fn prompts_that_stay_where_they_were_read_reach_nine_tenths_of_what_caches_can_give() {
    let policies = [policy(Algorithm::PrefixAware, true)];
    let scenario = scenario(&[100, 100, 100, 100], &policies);
    for (name, trace) in traces() {
        let report = ran(&scenario, &trace);
        let share = of(&report, 0).cached_of_ideal.expect("prompts begin alike");
        assert!((0.9..=1.0).contains(&share), "{name}: {share}");
    }
}

#[test]
fn luck_finds_less_in_caches_and_answers_later() {
    let policies = [
        policy(Algorithm::Weighted, false),
        policy(Algorithm::PrefixAware, true),
        policy(Algorithm::EngineAware, false),
    ];
    let report = ran(&scenario(&[100, 100, 100, 25], &policies), &shipped());

    let (luck, prefixes, engines) = (of(&report, 0), of(&report, 1), of(&report, 2));
    let share = |outcome: &Outcome| outcome.cached_of_ideal.expect("prompts begin alike");
    assert!(share(luck) < 0.9, "{}", share(luck));
    assert!(share(luck) < share(prefixes));
    assert!(luck.ttft_ms.p95 > engines.ttft_ms.p95);
    assert!(luck.good_share < engines.good_share);
}

/// Two endpoints, of which one takes three times as long as the other and costs a quarter.
fn two_routes(policies: &[Policy]) -> Scenario {
    let mut scenario = scenario(&[100, 100], policies);
    let slow = Engine {
        step_us: 3 * engine().step_us,
        prefill_ns_per_token: 3 * engine().prefill_ns_per_token,
        decode_us_per_token: 3 * engine().decode_us_per_token,
        ..engine()
    };
    scenario.engines.insert("slow".to_owned(), slow);
    let priced = |name: &str, engine: &str, input: &str, output: &str| Endpoint {
        engine: engine.to_owned(),
        price: Some(Prices {
            input: input.to_owned(),
            cached: None,
            output: output.to_owned(),
        }),
        ..endpoint(name, &[100, 100])
    };
    scenario.endpoints = vec![
        priced("dear", "gpu", "2.00", "8.00"),
        priced("cheap", "slow", "0.50", "2.00"),
    ];
    scenario
}

const fn routewise(budget_alpha_percent: u64) -> Policy {
    Policy {
        routewise: Some(RouteWise { budget_alpha_percent }),
        ..policy(Algorithm::Weighted, false)
    }
}

/// The traces on which the dear endpoint stays the quicker one whatever it is sent: the shipped one and made-up ones, of
/// much and of little load.
fn bearable() -> Vec<(String, Trace)> {
    let known = traces()
        .into_iter()
        .filter(|(name, _)| *name != "single requests");
    let mut traces: Vec<(String, Trace)> = known.map(|(name, trace)| (name.to_owned(), trace)).collect();
    for (seed, gap_ms, turns) in [
        (21, 900, 3),
        (22, 900, 3),
        (23, 900, 3),
        (24, 2_000, 3),
        (25, 3_000, 4),
    ] {
        let shape = Shape {
            gap_ms,
            turns,
            ..shape(seed)
        };
        traces.push((format!("seed {seed}"), made(&shape, BLOCK)));
    }
    traces
}

#[test]
fn routewise_spends_its_budget_to_a_hundredth_and_answers_sooner_than_weights() {
    let scenario = two_routes(&[policy(Algorithm::Weighted, false), routewise(90)]);
    for (name, trace) in bearable() {
        let report = ran(&scenario, &trace);
        let (weights, wise) = (of(&report, 0), of(&report, 1));
        assert_eq!(weights.budget_nano_usd, None);
        let budget = wise.budget_nano_usd.expect("a budget");
        assert!(
            (wise.cost_nano_usd - budget).abs() <= budget / 100,
            "{name}: {} of {budget}",
            wise.cost_nano_usd
        );
        let (mean, by_weight) = (wise.ttft_ms.mean, weights.ttft_ms.mean);
        assert!(
            mean <= 0.8 * by_weight,
            "{name}: {mean} ms, by weights {by_weight} ms"
        );
    }
}

#[test]
fn routewise_without_money_is_slow_and_the_more_it_has_the_sooner_it_answers() {
    let policies = [0, 50, 75, 100].map(routewise);
    let report = ran(&two_routes(&policies), &shipped());
    let means: Vec<f64> = (0..4).map(|place| of(&report, place).ttft_ms.mean).collect();
    let costs: Vec<i64> = (0..4).map(|place| of(&report, place).cost_nano_usd).collect();
    assert!(means.windows(2).all(|pair| pair[0] > pair[1]), "{means:?}");
    assert!(costs.windows(2).all(|pair| pair[0] < pair[1]), "{costs:?}");
    // The dearest costs four times the cheapest.
    assert!(costs[3] > 3 * costs[0], "{costs:?}");
}

#[test]
fn a_seed_gives_the_same_report_and_another_one_another() {
    let trace = made(
        &Shape {
            sessions: 20,
            ..shape(4)
        },
        BLOCK,
    );
    let mut scenario = scenario(&[100, 100, 50], &[policy(Algorithm::PowerOfTwo, false)]);

    let first = ran(&scenario, &trace);
    assert_eq!(ran(&scenario, &trace), first);

    scenario.seed += 1;
    assert_ne!(ran(&scenario, &trace), first);
}

#[test]
fn figures_are_those_of_the_requests() {
    let line = |at_ms, blocks: &[u64]| Line {
        at_ms,
        session: None,
        model: None,
        prompt_tokens: 256,
        output_tokens: 3,
        blocks: blocks.to_vec(),
        instruction_blocks: 0,
    };
    // The second has half of its prompt in the cache, the third all of it.
    let trace = Trace {
        lines: vec![line(0, &[1, 2]), line(10_000, &[1, 3]), line(20_000, &[1, 3])],
    };
    let mut scenario = scenario(&[100], &[policy(Algorithm::RoundRobin, false)]);
    scenario.slo = Slo {
        ttft_ms: 22,
        token_ms: 7,
    };
    let dollars = |text: &str| text.to_owned();
    scenario.endpoints[0].price = Some(Prices {
        input: dollars("1000"),
        cached: Some(dollars("100")),
        output: dollars("10000"),
    });

    let report = ran(&scenario, &trace);

    let outcome = of(&report, 0);
    // 6 ms for a step, 120 µs for each token that is read.
    let ms = [6.0 + 30.72, 6.0 + 15.36, 6.0 + 0.12];
    let close = |one: f64, other: f64| (one - other).abs() < 0.002;
    assert!(close(outcome.ttft_ms.max, ms[0]), "{:?}", outcome.ttft_ms);
    assert!(close(outcome.ttft_ms.p50, ms[1]), "{:?}", outcome.ttft_ms);
    assert!(close(outcome.ttft_ms.mean, ms.iter().sum::<f64>() / 3.0));
    assert!(close(outcome.latency_ms.max, ms[0] + 2.0 * 6.25));
    assert!(close(outcome.good_share, 2.0 / 3.0), "{}", outcome.good_share);
    assert_eq!(report.ideal_cached_tokens, 128 + 255);
    assert_eq!(outcome.cached_of_ideal, Some(1.0));
    // 385 tokens read, 383 had, 9 said, at a thousandth, a ten-thousandth and a hundredth of a dollar.
    assert_eq!(outcome.cost_usd, "0.513300000");
    assert_eq!(
        (outcome.replicas[0].requests, outcome.replicas[0].read_tokens),
        (3, 385)
    );
}

#[test]
fn requests_of_another_model_are_passed_over_and_one_that_fits_nowhere_is_told() {
    let mut scenario = scenario(&[100], &[policy(Algorithm::Weighted, false)]);
    let mut line = made(&shape(5), BLOCK).lines.remove(0);
    line.model = Some("small".to_owned());
    let mut other = line.clone();
    other.model = Some("large".to_owned());
    other.output_tokens = 1_000_000;
    let trace = Trace {
        lines: vec![line, other],
    };

    assert!(matches!(
        run(&scenario, &trace),
        Err(Error::TooLong { number: 2, .. })
    ));
    scenario.model = Some("small".to_owned());
    assert_eq!(ran(&scenario, &trace).requests, 1);
    scenario.model = Some("none".to_owned());
    assert!(matches!(run(&scenario, &trace), Err(Error::Empty)));
}

#[test]
fn what_is_shipped_is_what_the_generator_makes() {
    let made = made(&Shape::default(), BLOCK).written().expect("plain data");
    assert!(
        made == SHIPPED,
        "waybill simulate trace > deploy/simulate/conversations.jsonl"
    );
}

#[test]
fn a_trace_is_read_also_under_published_names_and_wrong_lines_are_told() {
    let text = r#"{"timestamp": 5, "input_length": 300, "output_length": 7, "hash_ids": [4, 5, 6]}"#;
    let trace = Trace::parse(&format!("{text}\n\n"), BLOCK).expect("a trace");
    assert_eq!(trace.lines[0].blocks, [4, 5, 6]);
    assert_eq!(trace.lines[0].full_blocks(BLOCK), [4, 5]);

    let told = |text: &str| Trace::parse(text, BLOCK).expect_err("wrong").to_string();
    let line = |rest: &str| format!(r#"{{"at_ms": 0, "prompt_tokens": 300, "output_tokens": 1{rest}}}"#);
    assert!(
        told(&format!("{text}\n{}", line(", \"extra\": 1"))).starts_with("line 2: unknown field `extra`")
    );
    assert!(told(&line(", \"blocks\": [1]")).contains("has 2 to 3 blocks of 128 tokens, not 1"));
    assert!(told(&line(", \"blocks\": [1, 2], \"instruction_blocks\": 3")).contains("instruction_blocks"));
    assert!(told(r#"{"at_ms": 0, "prompt_tokens": 0, "output_tokens": 1}"#).contains("prompt_tokens"));
}

#[test]
fn a_scenario_that_cannot_be_run_is_told_by_the_key_that_is_wrong() {
    let wrong = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario(&[100], &[policy(Algorithm::Weighted, false)]);
        scenario.trace.generate = Some(Shape::default());
        change(&mut scenario);
        scenario.wrong().map(|wrong| wrong.path)
    };
    let path = |path: &str| Some(path.to_owned());

    assert_eq!(wrong(&|_| {}), None);
    assert_eq!(wrong(&|one| one.trace.file = Some("t".into())), path("trace"));
    assert_eq!(wrong(&|one| one.gateways = 0), path("gateways"));
    assert_eq!(
        wrong(&|one| one.trace.generate = Some(Shape {
            turns: 0,
            ..Shape::default()
        })),
        path("trace.generate.turns")
    );
    assert_eq!(
        wrong(&|one| one.endpoints[0].engine = "tpu".to_owned()),
        path("endpoints[0].engine")
    );
    assert_eq!(
        wrong(&|one| one.endpoints[0].speeds_percent.clear()),
        path("endpoints[0].speeds_percent")
    );
    assert_eq!(
        wrong(&|one| one.endpoints.push(endpoint("local", &[100]))),
        path("endpoints[1].name")
    );
    assert_eq!(
        wrong(&|one| one.engines.get_mut("gpu").expect("it").step_tokens_max = 24),
        path("engines.gpu.step_tokens_max")
    );
    assert_eq!(wrong(&|one| one.policies.clear()), path("policies"));
}
