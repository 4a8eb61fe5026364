//! What legs say of the health of their backends.

use super::*;

fn of(leg: &str) -> Result<Compiled, Problem> {
    compiled(&format!(
        "models: [{{ id: m, provider: vllm, route: [{{ {leg} }}] }}]"
    ))
}

#[test]
fn how_health_is_asked_for_and_where_backends_run_is_in_the_record() {
    let compiled = of(
        "backends: ['http://a', { url: 'http://b', node: gpu-2 }], health_check: { path: /up, interval_seconds: 2 }",
    )
    .expect("compile");

    let endpoint = &compiled.endpoints[0];
    let check = endpoint.health_check().expect("it is asked");
    assert_eq!(
        (
            &*check.path,
            check.interval_seconds,
            check.threshold,
            check.start_period_seconds
        ),
        ("/up", 2, 3, 0)
    );
    let hosts = [endpoint.host(0), endpoint.host(1), endpoint.host(2)];
    assert_eq!(
        hosts.map(|host| host.map(|host| &**host)),
        [None, Some("gpu-2"), None]
    );
    assert_eq!(compiled.problems.len(), 0, "{:?}", compiled.problems);
    let bare = of("base_url: 'http://a'").expect("compile");
    assert_eq!(bare.endpoints[0].watched, None);
    assert_eq!(
        of("base_url: 'http://a', health_check: {}")
            .expect("compile")
            .endpoints[0]
            .health_check()
            .map(|check| &*check.path),
        Some("/health")
    );
}

#[test]
fn what_cannot_be_asked_is_refused_where_it_stands() {
    for (leg, place) in [
        ("base_url: 'http://a', health_check: yes", "route[0].health_check"),
        (
            "base_url: 'http://a', health_check: { url: /up }",
            "route[0].health_check",
        ),
        (
            "base_url: 'http://a', health_check: { path: up }",
            "route[0].health_check.path",
        ),
        (
            "base_url: 'http://a', health_check: { threshold: 0 }",
            "route[0].health_check.threshold",
        ),
        (
            "backends: [{ url: 'http://a', node: ' ' }]",
            "route[0].backends[0].node",
        ),
        (
            "backends: ['http://a', 'http://b', 'http://a/']",
            "route[0].backends[2]",
        ),
        (
            "backends: ['http://a', { url: 'http://a', node: gpu-2 }]",
            "route[0].backends[1]",
        ),
    ] {
        let problem = of(leg).expect_err(leg).to_string();
        assert!(problem.contains(place), "{leg}: {problem}");
    }
}
