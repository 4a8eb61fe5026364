//! Sealed credentials on their way: who is sent them, and who is not.

use std::sync::LazyLock;

use schemas::catalog::Backend;
use schemas::catalog::replica::meant_for;
use schemas::egress::Egress;
use schemas::seal::{SEED_BYTES, seal};

use crate::Config;
use crate::testing::{Act, PLAIN, Scene, Server, chat, config, endpoint, model, route};

use super::*;

/// Must be in nothing that anybody reads but the upstream.
const CANARY: &str = "sk-canary-of-a-sealed-credential";

static KEY: LazyLock<PrivateKey> = LazyLock::new(|| PrivateKey::of_master(&Secret::new([5; 32])));

/// An endpoint that was registered at run time.
fn registered(id: &str, urls: &[&str]) -> Endpoint {
    Endpoint {
        origin: Origin::Runtime,
        ..endpoint(id, urls)
    }
}

fn sealed(endpoint: &Endpoint, secret: &str) -> Sealed {
    let secret = Secret::new(secret.as_bytes().to_vec());
    seal(KEY.public(), &Context::of(endpoint), &secret, [3; SEED_BYTES]).expect("seal")
}

fn with_sealed(mut endpoint: Endpoint, secret: &str) -> Endpoint {
    endpoint.sealed = vec![sealed(&endpoint, secret)];
    endpoint
}

fn opening(keys: Vec<PrivateKey>) -> Credentials {
    let files = ("k1", "secret-k1");
    let book = [files].map(|(name, secret)| {
        let reference = CredentialRef(name.to_owned());
        (reference, Secret::new(secret.to_owned()))
    });
    Credentials::new(book.into()).opening(keys)
}

fn on_loopback() -> Config {
    let mut config = config();
    config.egress = Egress::new(vec!["127.0.0.0/8".parse().expect("a network")]);
    config
}

async fn scene(credentials: Credentials, endpoints: &[Endpoint]) -> Scene {
    let routes = (0_i32..).zip(endpoints);
    let routes = routes.map(|(priority, endpoint)| route(endpoint.id.as_str(), priority));
    Scene::holding(credentials, on_loopback(), endpoints, &model(routes.collect())).await
}

async fn answering() -> Server {
    Server::always(vec![Act::Send(chat("hello"))]).await
}

fn sent(server: &Server) -> Vec<String> {
    let lines = |request: String| {
        let line = request
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("authorization:"));
        line.unwrap_or("none").to_owned()
    };
    server.requests().into_iter().map(lines).collect()
}

#[tokio::test]
async fn a_sealed_credential_is_sent_to_the_endpoint_that_it_was_sealed_for() {
    let server = answering().await;
    let endpoint = with_sealed(registered("e1", &[&server.url()]), CANARY);
    let scene = scene(opening(vec![KEY.clone()]), &[endpoint]).await;

    let played = scene.call(PLAIN).await;

    assert_eq!(played.served(), Some("e1"));
    assert_eq!(sent(&server), [format!("authorization: Bearer {CANARY}")]);
    assert!(scene.alerts.lock().is_empty());
}

#[tokio::test]
async fn one_that_does_not_open_is_a_refused_credential_of_which_operators_hear_once() {
    let (meant, elsewhere) = (answering().await, answering().await);
    let mut moved = with_sealed(registered("e1", &[&meant.url()]), CANARY);
    moved.backends = vec![Backend {
        base_url: elsewhere.url(),
        ..moved.backends[0].clone()
    }];
    let name = moved.sealed[0].name();
    let scene = scene(opening(vec![KEY.clone()]), &[moved]).await;

    for _ in 0..3 {
        let played = scene.call(PLAIN).await;
        let failure = played.end().report.failure.clone().expect("a failure");
        assert_eq!(
            (failure.code.as_str(), failure.status),
            ("upstream_rejected_credential", 502)
        );
        assert!(!failure.message.contains(&name), "{}", failure.message);
        assert!(played.end().report.attempts.is_empty());
    }

    assert_eq!((meant.connections(), elsewhere.connections()), (0, 0));
    let alerts = scene.alerts.lock().clone();
    let told: Vec<_> = alerts
        .iter()
        .map(|alert| (alert.credential.0.as_str(), alert.accepted, alert.status))
        .collect();
    assert_eq!(told, [(name.as_str(), false, None)]);
    let event = serde_json::to_string(&alerts).expect("json");
    assert!(!event.contains("canary"), "{event}");
    // It says nothing about the backend.
    assert!(scene.changes.lock().is_empty());
}

#[tokio::test]
async fn what_was_sealed_for_another_master_key_leaves_the_others_of_the_endpoint_and_the_other_endpoints() {
    let (first, second) = (answering().await, answering().await);
    let other = PrivateKey::of_master(&Secret::new([6; 32]));
    let mut both = registered("e1", &[&first.url()]);
    let secret = Secret::new(b"of another key".to_vec());
    let foreign = seal(other.public(), &Context::of(&both), &secret, [4; SEED_BYTES]).expect("seal");
    both.sealed = vec![foreign.clone(), sealed(&both, CANARY)];
    let lost = Endpoint {
        sealed: vec![foreign],
        ..registered("e0", &[&first.url()])
    };
    let opened = with_sealed(registered("e2", &[&second.url()]), "sk-of-e2");

    let one = scene(opening(vec![KEY.clone()]), &[both]).await;
    assert_eq!(one.call(PLAIN).await.served(), Some("e1"));
    assert_eq!(sent(&first), [format!("authorization: Bearer {CANARY}")]);

    let two = scene(opening(vec![KEY.clone()]), &[lost, opened]).await;
    assert_eq!(two.call(PLAIN).await.served(), Some("e2"));
    assert_eq!(
        (sent(&second), first.calls()),
        (vec!["authorization: Bearer sk-of-e2".to_owned()], 1)
    );
}

#[tokio::test]
async fn an_older_master_key_still_opens_what_was_sealed_for_it() {
    let server = answering().await;
    let newest = PrivateKey::of_master(&Secret::new([7; 32]));
    let endpoint = with_sealed(registered("e1", &[&server.url()]), CANARY);
    let scene = scene(opening(vec![newest, KEY.clone()]), &[endpoint]).await;

    assert_eq!(scene.call(PLAIN).await.served(), Some("e1"));
}

#[tokio::test]
async fn an_endpoint_of_run_time_is_not_given_what_files_hold_but_what_the_machine_has() {
    let server = answering().await;
    let refers = |name: &str| Endpoint {
        credentials: vec![CredentialRef(name.to_owned())],
        ..registered("e1", &[&server.url()])
    };
    let machine = || -> Machine {
        Box::new(|reference| (reference.0 == "env:KEY").then(|| Secret::new("of-the-machine".to_owned())))
    };

    let refused = scene(opening(Vec::new()).referring(machine()), &[refers("k1")]).await;
    let played = refused.call(PLAIN).await;
    assert_eq!((played.code(), server.connections()), (Some("upstream_error"), 0));

    let given = scene(opening(Vec::new()).referring(machine()), &[refers("env:KEY")]).await;
    assert_eq!(given.call(PLAIN).await.served(), Some("e1"));
    assert_eq!(sent(&server), ["authorization: Bearer of-the-machine"]);
}

#[tokio::test]
async fn what_is_referred_to_comes_before_what_is_sealed() {
    let server = answering().await;
    let both = Endpoint {
        credentials: vec![CredentialRef("k1".to_owned())],
        origin: Origin::File,
        ..registered("e1", &[&server.url()])
    };
    let scene = scene(opening(vec![KEY.clone()]), &[with_sealed(both, CANARY)]).await;

    scene.call(PLAIN).await;

    assert_eq!(sent(&server), ["authorization: Bearer secret-k1"]);
}

#[test]
fn an_endpoint_of_a_file_is_given_what_is_meant_for_where_it_lies_and_nothing_else() {
    let at = |url: &str| endpoint("e", &[url]);
    let (old, new) = (at("http://old"), at("http://new"));
    let reference = CredentialRef("e#0".to_owned());
    let meant = |endpoint: &Endpoint, secret: &str| {
        (
            meant_for(&reference, &endpoint.backends),
            Secret::new(secret.to_owned()),
        )
    };
    let credentials: Credentials = [meant(&old, "for the old")].into_iter().collect();
    // As files are taken over: what is new is there before the endpoint has moved.
    credentials.add([meant(&new, "for the new")].into_iter().collect());
    let book = credentials.book();

    let given = |endpoint: &Endpoint| {
        let secret = credentials.referred(endpoint, &book, &reference);
        secret.map(|secret| secret.reveal().clone())
    };

    assert_eq!(given(&old).as_deref(), Some("for the old"));
    assert_eq!(given(&new).as_deref(), Some("for the new"));
    assert_eq!(given(&at("http://elsewhere")), None);
}

#[tokio::test]
async fn nothing_that_prints_a_router_prints_a_credential() {
    let server = answering().await;
    let endpoint = with_sealed(registered("e1", &[&server.url()]), CANARY);
    let scene = scene(opening(vec![KEY.clone()]), std::slice::from_ref(&endpoint)).await;
    scene.call(PLAIN).await;

    let shared = &scene.router.shared;
    let printed = format!("{:?}{:?}{endpoint:?}", shared.credentials, shared.pools);

    assert!(
        !printed.contains("canary") && printed.contains("***"),
        "{printed}"
    );
}

#[tokio::test]
async fn an_endpoint_of_run_time_is_not_called_where_it_may_not_lie() {
    let server = answering().await;
    let endpoints = [
        endpoint("file", &[&server.url()]),
        registered("closed", &[&server.url()]),
    ];
    let routes = vec![route("file", 0), route("closed", 1)];
    let scene = Scene::new(config(), &endpoints, &model(routes)).await;
    let to = |id: &str| {
        let mut dispatch = scene.offer(PLAIN);
        dispatch.offer.candidates = [id.into()].into();
        dispatch
    };

    // The idle connection that the first leaves is of a file's endpoint, and nobody else's.
    assert_eq!(scene.play(to("file")).await.served(), Some("file"));
    for _ in 0..3 {
        let played = scene.play(to("closed")).await;
        assert_eq!((played.code(), played.served()), (Some("upstream_error"), None));
    }
    assert_eq!(scene.play(to("file")).await.served(), Some("file"));

    assert_eq!((server.connections(), server.calls()), (1, 2));
    assert!(scene.changes.lock().is_empty());
}
