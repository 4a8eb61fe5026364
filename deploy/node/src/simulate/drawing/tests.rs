//! What a drawing has in it.

use router_worker::simulate::report::Spread;

use super::*;

fn outcome(policy: &str, ttft_ms: f64) -> Outcome {
    let spread = Spread {
        mean: ttft_ms,
        p50: ttft_ms,
        p95: ttft_ms,
        p99: ttft_ms,
        max: ttft_ms,
    };
    Outcome {
        policy: policy.to_owned(),
        ttft_ms: spread,
        latency_ms: spread,
        good_share: 0.5,
        goodput_per_second: 1.0,
        cached_share: 0.25,
        cached_of_ideal: Some(0.75),
        cost_nano_usd: 0,
        cost_usd: String::new(),
        budget_nano_usd: None,
        replicas: Vec::new(),
        ttft_ms_percentiles: vec![ttft_ms; 101],
    }
}

fn report(policies: Vec<Outcome>) -> Report {
    Report {
        requests: 1,
        prompt_tokens: 1,
        ideal_cached_tokens: 1,
        slo_ttft_ms: 1_000,
        slo_token_ms: 50,
        policies,
    }
}

#[test]
fn a_policy_has_a_curve_two_bars_and_its_name_at_both() {
    let svg = draw(&report(vec![outcome("a", 30.0), outcome("b <&>", 3_000.0)]));

    assert_eq!(svg.matches("<polyline ").count(), 2);
    assert_eq!(svg.matches(">50.0 %<").count(), 2);
    assert_eq!(svg.matches(">75.0 %<").count(), 2);
    assert_eq!(svg.matches(">b &lt;&amp;&gt;<").count(), 2);
    assert_eq!(svg.matches("<svg ").count(), svg.matches("</svg>").count());
}

#[test]
fn the_axis_begins_and_ends_at_ticks_around_all_times() {
    let report = report(vec![outcome("a", 30.0), outcome("b", 3_000.0)]);
    let axis = Axis::of(&report);

    assert_eq!(
        (time(axis.from), time(axis.to)),
        ("20 ms".to_owned(), "5 s".to_owned())
    );
    let (left, _, width, _) = CURVES;
    assert!((axis.x(20.0) - left).abs() < 0.01);
    assert!((axis.x(5_000.0) - left - width).abs() < 0.01);
    assert!(axis.x(30.0) < axis.x(3_000.0));
}

#[test]
fn times_of_nothing_are_drawn_at_the_least() {
    let svg = draw(&report(vec![outcome("a", 0.0)]));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
