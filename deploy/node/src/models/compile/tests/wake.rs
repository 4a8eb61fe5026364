//! How services of legs are woken.

use schemas::wake::command_reference;

use super::*;

fn of(wake: &str) -> Result<Compiled, Problem> {
    compiled(&format!(
        "models: [{{ id: m, provider: vllm, base_url: 'http://h:1/v1', route: [{{ wake: {wake} }}] }}]"
    ))
}

#[test]
fn a_command_lies_with_the_credentials_and_in_no_record() {
    let compiled = of("{ kind: exec, command: [/bin/wake, '${KEY}'] }").expect("compile");

    let endpoint = &compiled.endpoints[0];
    let held = &compiled.credentials[&command_reference(&endpoint.id)];
    assert_eq!(held.reveal(), "[\"/bin/wake\",\"secret-1\"]");
    let shown = serde_json::to_value(endpoint).expect("serialize")["wake"].clone();
    assert_eq!(shown, serde_json::json!({"kind": "exec", "timeout_seconds": 10}));
}

#[test]
fn what_is_said_of_waking_over_http_is_in_the_record() {
    let compiled =
        of("{ kind: http, url: 'http://boss/wake', queued_when: { statuses: [409] } }").expect("compile");

    let wake = compiled.endpoints[0].wake.as_deref().expect("it is woken");
    assert_eq!(wake.kind(), "http");
    assert!(compiled.credentials.is_empty());
}

#[test]
fn what_cannot_wake_anybody_is_refused_where_it_stands() {
    for (wake, place) in [
        ("{ kind: magic }", "models[0].route[0].wake"),
        ("{ kind: http }", "models[0].route[0].wake"),
        (
            "{ kind: exec, command: [wake] }",
            "models[0].route[0].wake.command",
        ),
        (
            "{ kind: http, url: 'http://boss', headers: { x-api-key: '${KEY}' } }",
            "models[0].route[0].wake.headers.x-api-key",
        ),
        (
            "{ kind: vllm_sleep, url: 'http://boss', credential: true }",
            "models[0].route[0].wake.credential",
        ),
    ] {
        let problem = of(wake).expect_err(wake).to_string();
        assert!(problem.contains(place), "{problem}");
        assert!(!problem.contains("secret-1"), "{problem}");
    }
}

#[test]
fn legs_that_share_an_endpoint_are_woken_by_the_same_command() {
    let shared = |command: &str| {
        compiled(&format!(
            "models:\n- {{ id: a, provider: vllm, base_url: 'http://h', route: [{{ endpoint: box, wake: {{ kind: exec, \
             command: [/bin/a] }} }}] }}\n- {{ id: b, provider: vllm, base_url: 'http://h', route: [{{ endpoint: box, \
             wake: {{ kind: exec, command: [{command}] }} }}] }}\n"
        ))
    };
    assert!(shared("/bin/a").is_ok());
    assert!(shared("/bin/b").is_err());
}
