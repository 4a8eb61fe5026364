//! Tests of what a trial call sends, and of how its outcome is told.

use schemas::catalog::{Origin, ProviderKind};
use schemas::id::EndpointId;
use schemas::seal::{Context, PrivateKey, SEED_BYTES, seal};
use schemas::secret::Secret;

use crate::Credentials;
use crate::testing::{Act, PLAIN, Scene, Server, chat, config, endpoint, model, ok, response, route};

use super::*;

const CANARY: &str = "sk-canary-of-a-trial";

async fn scene(endpoint: Endpoint) -> Scene {
    let routes = vec![route(endpoint.id.as_str(), 0)];
    Scene::new(config(), &[endpoint], &model(routes)).await
}

async fn asked(scene: &Scene, id: &str, within: Duration) -> TrialAnswer {
    let query = TrialQuery {
        endpoint: EndpointId::from(id),
        revision: 0,
        part: None,
    };
    tried(&scene.router.shared, &query, within).await
}

async fn trial(scene: &Scene, id: &str) -> TrialAnswer {
    asked(scene, id, Duration::from_secs(20)).await
}

fn keyed(server: &Server) -> Endpoint {
    Endpoint {
        credentials: vec![schemas::catalog::CredentialRef("k1".to_owned())],
        ..endpoint("e1", &[&server.url()])
    }
}

#[tokio::test]
async fn a_trial_asks_for_one_token_with_the_endpoints_credential() {
    let server = Server::always(vec![Act::Send(chat("p"))]).await;
    let scene = scene(keyed(&server)).await;

    let answer = trial(&scene, "e1").await;

    assert!(answer.ok, "{answer:?}");
    assert_eq!((answer.status, answer.error), (Some(200), None));
    assert_eq!(
        answer.backend.map(|backend| backend.to_string()).as_deref(),
        Some("e1")
    );
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a request");
    assert_eq!(requests.len(), 1);
    assert!(head.contains("authorization: Bearer secret-k1"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).expect("json");
    assert_eq!(
        (&body["max_tokens"], &body["model"]),
        (&json!(1), &json!("org/m-7b"))
    );
}

#[tokio::test]
async fn a_trial_speaks_the_endpoints_own_protocol() {
    let said = br#"{"id":"m","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"p"}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}"#;
    let server = Server::always(vec![Act::Send(ok("application/json", said))]).await;
    let scene = scene(Endpoint {
        kind: ProviderKind::Anthropic,
        chat_path: "/v1/messages".to_owned(),
        auth_header: "x-api-key".to_owned(),
        auth_format: "{api_key}".to_owned(),
        ..keyed(&server)
    })
    .await;

    let answer = trial(&scene, "e1").await;

    assert!(answer.ok, "{answer:?}");
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST /v1/messages "), "{request}");
    assert!(
        request.contains("x-api-key: secret-k1") && request.contains("\"max_tokens\":1"),
        "{request}"
    );
}

#[tokio::test]
async fn a_failure_is_told_in_our_own_words_and_changes_nothing() {
    let refusal = format!("{{\"error\":{{\"message\":\"bad key {CANARY} at http://internal\"}}}}");
    let cases = [
        ("401 Unauthorized", 401, "does not accept the credential"),
        ("404 Not Found", 404, "knows no such model or path"),
        ("400 Bad Request", 400, "refuses the request"),
        ("429 Too Many Requests", 429, "limits its rate"),
        ("500 Internal Server Error", 500, "the endpoint failed"),
        ("302 Found", 302, "redirect"),
    ];
    for (line, status, words) in cases {
        let failing = response(line, "application/json", refusal.as_bytes());
        let server =
            Server::start(move |call| vec![Act::Send(if call < 5 { failing.clone() } else { chat("p") })])
                .await;
        let scene = scene(keyed(&server)).await;

        for _ in 0..5 {
            let answer = trial(&scene, "e1").await;
            let error = answer.error.clone().expect("an error");
            assert!(!answer.ok && error.contains(words), "{line}: {answer:?}");
            assert_eq!(answer.status, Some(status));
            assert!(!serde_json::to_string(&answer).expect("json").contains("canary"));
        }

        // Neither its circuit nor its credential has heard of that.
        assert_eq!(scene.call(PLAIN).await.served(), Some("e1"), "{line}");
        assert!(scene.changes.lock().is_empty() && scene.alerts.lock().is_empty());
    }
}

#[tokio::test]
async fn what_does_not_answer_in_time_is_told_so() {
    let server = Server::always(vec![Act::Hang]).await;
    let scene = scene(keyed(&server)).await;

    let answer = asked(&scene, "e1", Duration::from_millis(300)).await;

    assert_eq!((answer.ok, answer.error.as_deref()), (false, Some(NOT_IN_TIME)));
    assert!(answer.latency_ms >= 300, "{answer:?}");
}

#[tokio::test]
async fn where_an_endpoint_may_not_lie_nothing_is_tried() {
    let server = Server::always(vec![Act::Send(chat("p"))]).await;
    let scene = scene(Endpoint {
        origin: Origin::Runtime,
        ..endpoint("e1", &[&server.url()])
    })
    .await;

    let answer = trial(&scene, "e1").await;

    assert_eq!((answer.ok, answer.error.as_deref()), (false, Some(MISCONFIGURED)));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn what_cannot_be_called_is_told_without_a_call() {
    let server = Server::always(vec![Act::Send(chat("p"))]).await;
    let mut sealed = endpoint("e1", &[&server.url()]);
    let other = PrivateKey::of_master(&Secret::new([8; 32]));
    let secret = Secret::new(CANARY.as_bytes().to_vec());
    sealed.sealed =
        vec![seal(other.public(), &Context::of(&sealed), &secret, [1; SEED_BYTES]).expect("seal")];
    let routed = vec![route("e1", 0)];
    let endpoints = [sealed, endpoint("alone", &[&server.url()])];
    let scene = Scene::holding(Credentials::default(), config(), &endpoints, &model(routed)).await;

    let told = |answer: TrialAnswer| (answer.ok, answer.error.unwrap_or_default());

    assert_eq!(told(trial(&scene, "e1").await), (false, NO_CREDENTIAL.to_owned()));
    assert_eq!(told(trial(&scene, "alone").await), (false, NO_ROUTE.to_owned()));
    assert_eq!(
        told(trial(&scene, "nobody").await),
        (false, NO_ENDPOINT.to_owned())
    );
    assert_eq!(server.connections(), 0);
    assert_eq!(scene.alerts.lock().len(), 1);
}
