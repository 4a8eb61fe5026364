//! Tests of whom is asked what.

use std::sync::Arc;

use schemas::balance::Algorithm;
use schemas::catalog::registered::{HealthCheck, Registered, Watched};
use schemas::catalog::{Backend, CredentialRef, endpoint_key};
use schemas::health::encode;

use super::*;

pub(crate) fn endpoint(id: &str, kind: ProviderKind, urls: &[&str]) -> Endpoint {
    let backend = |(place, url): (usize, &&str)| Backend {
        id: BackendId::from(format!("{id}#{place}").as_str()),
        base_url: (*url).to_owned(),
    };
    Endpoint {
        backends: urls.iter().enumerate().map(backend).collect(),
        query: "api-version=1".to_owned(),
        credentials: vec![CredentialRef("secret".to_owned())],
        ..Endpoint::of_file(EndpointId::from(id), kind, "label".into())
    }
}

pub(crate) fn registered(kind: &str, check: Option<HealthCheck>) -> Arc<Registered> {
    Arc::new(Registered {
        name: "n".into(),
        kind: kind.into(),
        hosts: Vec::new(),
        algorithm: Algorithm::RoundRobin,
        health_check: check,
        created_at: Timestamp::from_micros(7),
    })
}

fn check() -> HealthCheck {
    HealthCheck {
        path: "/up?x=1".into(),
        interval_seconds: 10,
        threshold: 3,
        start_period_seconds: 0,
    }
}

fn asked(endpoint: &Endpoint) -> Vec<Target> {
    let mut catalog = Catalog::default();
    let bytes = encode(endpoint).expect("plain data");
    catalog
        .apply(1, &endpoint_key(&endpoint.id), Some(&bytes))
        .expect("a record");
    targets(&catalog, true)
}

#[test]
fn engines_on_machines_of_ones_own_are_asked_beside_their_api() {
    let targets = asked(&endpoint(
        "e",
        ProviderKind::OpenaiCompat,
        &["http://u:8000/v1", "http://v/engine/v1", "http://w"],
    ));

    let url = |question: &Option<Question>| question.as_ref().expect("a question").url.to_string();
    let told: Vec<(String, String)> = targets
        .iter()
        .map(|target| (url(&target.figures), url(&target.alive)))
        .collect();
    assert_eq!(
        told,
        ["http://u:8000", "http://v/engine", "http://w"]
            .map(|root| (format!("{root}/metrics"), format!("{root}/health")))
    );
    assert!(targets.iter().all(|target| target.check.is_none()));
    assert!(!targets[0].figures.as_ref().expect("a question").guarded);
}

#[test]
fn hosted_apis_are_asked_for_no_figures() {
    let over_tls = endpoint("e", ProviderKind::OpenaiCompat, &["https://api.example.com/v1"]);
    assert_eq!(asked(&over_tls), []);
    for kind in [
        ProviderKind::Openrouter,
        ProviderKind::Anthropic,
        ProviderKind::Gemini,
        ProviderKind::Vertex,
    ] {
        assert_eq!(asked(&endpoint("e", kind, &["http://u"])), [], "{kind:?}");
    }
    // One that is called an engine is one, however it is reached.
    let mut engine = endpoint("e", ProviderKind::OpenaiCompat, &["https://vllm.example.com/v1"]);
    engine.profile = "vllm".to_owned();
    assert_eq!(asked(&engine).len(), 1);
    engine.profile = String::new();
    engine.registered = Some(registered("sglang", None));
    assert_eq!(asked(&engine).len(), 1);
}

#[test]
fn whose_health_is_to_be_asked_for_is_asked_whatever_he_is() {
    let mut hosted = endpoint("e", ProviderKind::Anthropic, &["https://u/v1"]);
    hosted.registered = Some(registered("anthropic", Some(check())));
    hosted.origin = Origin::Runtime;

    let targets = asked(&hosted);

    let target = &targets[0];
    let check = target.check.as_ref().expect("a check");
    assert_eq!(
        (&*check.question.url, check.question.guarded),
        ("https://u/up?x=1", true)
    );
    assert_eq!(check.created_at, Some(Timestamp::from_micros(7)));
    assert_eq!(target.figures, None);
    assert_eq!(target.alive.as_ref(), Some(&check.question));
}

#[test]
fn what_a_file_says_of_health_is_asked_without_a_bound_on_addresses() {
    let mut of_file = endpoint("e", ProviderKind::OpenaiCompat, &["http://u/v1"]);
    of_file.watched = Some(Arc::new(Watched {
        hosts: Vec::new(),
        health_check: Some(check()),
    }));

    let targets = asked(&of_file);

    let check = targets[0].check.as_ref().expect("a check");
    assert_eq!(
        (&*check.question.url, check.question.guarded, check.created_at),
        ("http://u/up?x=1", false, None)
    );
}

#[test]
fn nobody_is_asked_who_is_off_and_no_engine_that_did_not_want_it_where_that_is_switched_off() {
    let mut off = endpoint("e", ProviderKind::OpenaiCompat, &["http://u"]);
    off.disabled = true;
    assert_eq!(asked(&off), []);

    let mut catalog = Catalog::default();
    let mut wanted = endpoint("f", ProviderKind::OpenaiCompat, &["http://u"]);
    wanted.registered = Some(registered("vllm", Some(check())));
    for endpoint in [endpoint("e", ProviderKind::OpenaiCompat, &["http://u"]), wanted] {
        let bytes = encode(&endpoint).expect("plain data");
        catalog
            .apply(1, &endpoint_key(&endpoint.id), Some(&bytes))
            .expect("a record");
    }
    let targets = targets(&catalog, false);
    assert_eq!(targets.len(), 1);
    assert!(targets[0].check.is_some() && targets[0].figures.is_none());
}
