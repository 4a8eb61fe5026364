//! Credentials and whom they are kept for, models of embeddings, shared endpoints.

use super::*;

const RESERVED: &str = "
models:
  - id: m
    provider: vllm
    base_url: 'http://h'
    api_keys: ['${ABSENT}', '${KEY}', { key: '${OTHER_KEY}', min_role: pro }, { key: '${KEY}', min_role: internal }]
";

#[test]
fn a_credential_may_be_kept_for_a_role_and_one_that_is_listed_twice_for_the_higher() {
    let compiled = compiled(RESERVED).expect("compile");

    let endpoint = &compiled.endpoints[0];
    let held: Vec<_> = endpoint
        .credentials
        .iter()
        .map(|reference| {
            (
                reference.0.as_str(),
                compiled.credentials[reference].reveal().as_str(),
            )
        })
        .collect();
    assert_eq!(held, [("m:h-api#1", "secret-1"), ("m:h-api#2", "secret-2")]);
    assert_eq!(endpoint.credential_roles, [Role::Internal, Role::Pro]);
}

#[test]
fn a_credential_has_one_name_for_those_who_hold_it_and_for_those_who_do_not() {
    let here = compiled(RESERVED).expect("compile");
    let elsewhere = compiled_where(RESERVED, Held::Elsewhere).expect("compile");

    let listed = &elsewhere.endpoints[0];
    let roles = |name: &str| {
        let place = listed.credentials.iter().position(|known| known.0 == name);
        listed.credential_roles[place.expect("listed")]
    };
    // Whoever does not hold them cannot know that two are the same; whoever calls keeps both for the higher role.
    assert_eq!(listed.credentials.len(), 4);
    assert_eq!((roles("m:h-api#1"), roles("m:h-api#2")), (Role::Free, Role::Pro));
    for reference in &here.endpoints[0].credentials {
        assert!(listed.credentials.contains(reference), "{reference:?}");
    }
}

#[test]
fn credentials_that_are_for_everybody_say_nothing_of_roles() {
    let text = "models: [{ id: m, provider: vllm, base_url: 'http://h', api_keys: [a, { key: b }] }]";

    assert!(
        compiled(text).expect("compile").endpoints[0]
            .credential_roles
            .is_empty()
    );
}

#[test]
fn a_model_of_embeddings_is_a_chain_in_the_order_of_its_legs() {
    let text = "
models:
  - id: e
    type: embedding
    provider: openai_compat
    route:
      - { base_url: 'http://a', weight: 0.1 }
      - { base_url: 'http://b', weight: 0.9, embeddings_path: /embed }
      - { base_url: 'http://c', priority: 0 }
";
    let compiled = compiled(text).expect("compile");

    let model = &compiled.models[0];
    assert!(model.embeds);
    let order: Vec<i32> = model.routes.iter().map(|route| route.priority).collect();
    assert_eq!(order, [0, 1, 0]);
    assert_eq!(compiled.endpoints[1].embeddings_path, "/embed");
    assert_eq!(compiled.endpoints[0].embeddings_path, "");
}

#[test]
fn only_servers_of_the_openai_api_are_asked_for_embeddings() {
    let text = "models: [{ id: e, type: embedding, provider: gemini }]";
    let problem = compiled(text).expect_err("refused");
    assert!(problem.message.contains("embeddings"), "{problem}");

    let text = "models: [{ id: e, type: rerank, provider: vllm, base_url: 'http://h' }]";
    let problem = compiled(text).expect_err("refused");
    assert!(problem.message.contains("not a type of model"), "{problem}");
    assert_eq!(problem.path, "models[0].type");
}

#[test]
fn an_endpoint_that_is_shared_is_one_thing() {
    let text = |key: &str| {
        format!(
            "
models:
  - {{ id: a, provider: vllm, route: [{{ endpoint: e, base_url: 'http://h', api_key: one }}] }}
  - {{ id: b, provider: vllm, route: [{{ endpoint: e, base_url: 'http://h', api_key: {key} }}] }}
"
        )
    };

    let shared = compiled(&text("one")).expect("compile");
    assert_eq!((shared.models.len(), shared.endpoints.len()), (2, 1));

    let problem = compiled(&text("two")).expect_err("refused");
    assert!(problem.message.contains("described twice"), "{problem}");
    let elsewhere = text("one").replacen("http://h", "http://other", 1);
    assert!(compiled(&elsewhere).is_err());
}

#[test]
fn sessions_stay_and_calls_have_priorities_where_a_leg_says_so_and_nowhere_else() {
    let text = "models: [{ id: m, provider: vllm, route: [
        { base_url: 'http://a', session_affinity: true, priority_scheduling: true }, { base_url: 'http://b', session_affinity: 'false' }, { base_url: 'http://c' }] }]";

    let compiled = compiled(text).expect("compile");

    let stay = compiled
        .endpoints
        .iter()
        .map(|endpoint| endpoint.session_affinity);
    assert_eq!(stay.collect::<Vec<_>>(), [true, false, false]);
    let scheduled = compiled
        .endpoints
        .iter()
        .map(|endpoint| endpoint.priority_scheduling);
    assert_eq!(scheduled.collect::<Vec<_>>(), [true, false, false]);
    let told = compiled.problems.iter().map(|problem| problem.path.as_str());
    assert!(
        told.clone().all(|path| !path.contains("session_affinity")),
        "{:?}",
        told.collect::<Vec<_>>()
    );
}
