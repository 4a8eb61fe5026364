//! How a model says that its legs are chosen.

use schemas::catalog::router::{Fixed, Offload, RouteWise, Router};
use schemas::id::EndpointId;

use super::{Compiled, Problem, compiled};

/// A model with a leg of one's own and one elsewhere, and what it says of its router.
fn with(router: &str) -> Result<Compiled, Problem> {
    compiled(&format!(
        "models:
  - id: m
    provider: openai_compat
    pricing: {{ prompt: '1', completion: '2' }}
    {router}
    route:
      - {{ base_url: 'http://localhost:1/v1' }}
      - {{ base_url: 'https://a.example/v1', endpoint: far }}
"
    ))
}

fn router(text: &str) -> Router {
    let read = with(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
    assert!(read.problems.is_empty(), "{text}: {:?}", read.problems);
    let router = read.models[0].router.as_ref().expect("it says so");
    router.as_ref().clone()
}

#[test]
fn where_nothing_is_said_weights_decide() {
    assert!(with("name: M").expect("compile").models[0].router.is_none());
    assert_eq!(router("router: fixed"), Router::Fixed(Fixed::default()));
    assert_eq!(
        router("router_params: { hybrid_composition: 'true' }"),
        Router::Fixed(Fixed {
            hybrid_composition: true,
            offload: None
        })
    );
}

#[test]
fn the_parameters_of_routewise_are_read_exactly() {
    assert_eq!(
        router("router: routewise"),
        Router::Routewise(RouteWise::default())
    );
    let all = "router: routewise
    router_params:
      budget_alpha: 0.35
      output_default_tokens: '100'
      output_min_bucket_samples: 4
      output_min_model_samples: 5
      output_min_global_samples: 6
      latency_window_sec: 60
      latency_max_samples_per_profile: 700
      latency_min_samples: 8
      latency_unprofiled_ttft_ms: 900
      latency_hedge_mode: disabled
      canary_enabled: false
      random_seed: null";
    assert_eq!(
        router(all),
        Router::Routewise(RouteWise {
            budget_alpha_micro: 350_000,
            output_default_tokens: 100,
            output_samples_min: [4, 5, 6],
            latency_window_ms: 60_000,
            latency_samples_max: 700,
            latency_samples_min: 8,
            latency_unprofiled_us: 900_000,
            ..RouteWise::default()
        })
    );
}

#[test]
fn what_is_unknown_or_not_offered_is_refused_where_it_stands() {
    for (text, path, said) in [
        ("router: nimbus", "router", "\"nimbus\" is not a router"),
        (
            "router_params: { budget_alpha: 1 }",
            "router_params.budget_alpha",
            "no parameter",
        ),
        (
            "router: routewise\n    router_params: { budget_alhpa: 1 }",
            "router_params.budget_alhpa",
            "the router routewise has no parameter \"budget_alhpa\"",
        ),
        (
            "router: routewise\n    router_params: { budget_alpha: 1.1 }",
            "router_params.budget_alpha",
            "no fraction",
        ),
        (
            "router: routewise\n    router_params: { latency_min_samples: 0 }",
            "router_params.latency_min_samples",
            "no number",
        ),
        (
            "router: routewise\n    router_params: { latency_min_samples: 6, latency_max_samples_per_profile: 5 }",
            "router_params.latency_min_samples",
            "more than",
        ),
        (
            "router: routewise\n    router_params: { latency_hedge_mode: probability_target }",
            "router_params.latency_hedge_mode",
            "two legs at once",
        ),
        (
            "router: routewise\n    router_params: { canary_enabled: true }",
            "router_params.canary_enabled",
            "does not offer",
        ),
        (
            "router: routewise\n    model_type: embedding",
            "router",
            "in their order",
        ),
        (
            "router_params: { hybrid_composition: 3 }",
            "router_params.hybrid_composition",
            "neither true nor false",
        ),
    ] {
        let problem = with(text).expect_err(text);
        assert_eq!(problem.path, format!("models[0].{path}"), "{text}");
        assert!(problem.message.contains(said), "{text}: {problem}");
        assert!(problem.line > 0, "{text}: {problem}");
    }
}

#[test]
fn what_is_known_and_changes_nothing_is_reported() {
    let read = with("router: routewise\n    router_params: { random_seed: 7, latency_slo_sec: 3 }");
    let problems = read.expect("compile").problems;
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "models[0].router_params.latency_slo_sec",
            "models[0].router_params.random_seed"
        ]
    );
}

#[test]
fn a_leg_for_calls_that_wait_is_one_of_the_legs_beside_another() {
    assert_eq!(
        router(
            "router_params: { offload: { route_id: far, wait_seconds: 2.5, max_input_tokens: 10, engine_queue_limit: 3 } }"
        ),
        Router::Fixed(Fixed {
            hybrid_composition: false,
            offload: Some(Offload {
                endpoint: EndpointId::from("far"),
                wait_ms: 2_500,
                input_tokens_max: Some(10),
                engine_queue_max: Some(3),
            })
        })
    );
    for (text, said) in [
        (
            "{ route_id: nowhere, wait_seconds: 1 }",
            "no leg leads to \"nowhere\"",
        ),
        ("{ route_id: far }", "waits some time"),
        ("{ route_id: far, wait_seconds: 0 }", "waits some time"),
        ("{ route_id: far, wait_seconds: 1, patience: 2 }", "patience"),
        ("{ wait_seconds: 1 }", "route_id"),
        ("7", "invalid type"),
        (
            "{ route_id: far, wait_seconds: 1 }, hybrid_composition: true",
            "stays in its pool",
        ),
    ] {
        let problem = with(&format!("router_params: {{ offload: {text} }}")).expect_err(text);
        assert!(
            problem.path.starts_with("models[0].router_params.offload"),
            "{problem}"
        );
        assert!(problem.message.contains(said), "{text}: {problem}");
    }
}

/// What a leg says of itself, under `routewise`.
fn leg(text: &str) -> Result<Compiled, Problem> {
    compiled(&format!(
        "models: [{{ id: m, provider: openai_compat, router: routewise, route: [
        {{ base_url: 'http://localhost:1/v1', pricing: {{ prompt: '1' }} }}, {{ base_url: 'https://a.example/v1', {text} }}] }}]"
    ))
}

#[test]
fn a_leg_is_paid_by_the_call_or_has_slots() {
    let read = leg("provider_type: concurrency, concurrency: { limit: 4 }").expect("compile");
    let router = read.models[0].router.as_ref().expect("it says so");
    let slots = &router.routewise().expect("routewise").slots;
    assert_eq!(slots.get(&EndpointId::from("m:a-api")), Some(&4));
    assert!(read.problems.is_empty(), "{:?}", read.problems);

    let unpriced = leg("provider_type: on_demand").expect("compile").problems;
    assert_eq!(unpriced.len(), 1);
    assert_eq!(unpriced[0].path, "models[0].route[1].pricing");

    for (text, key, said) in [
        ("provider_type: concurrency", "concurrency", "how many calls"),
        (
            "provider_type: quota, quota: { limit: 9 }",
            "provider_type",
            "not counted",
        ),
        ("provider_type: spot", "provider_type", "\"spot\" is not a type"),
        (
            "provider_type: concurrency, concurrency: { limit: 4 }, concurrency_pool: p",
            "concurrency_pool",
            "one endpoint",
        ),
    ] {
        let problem = leg(text).expect_err(text);
        assert_eq!(problem.path, format!("models[0].route[1].{key}"));
        assert!(problem.message.contains(said), "{text}: {problem}");
    }
}
