//! Tokens before a local endpoint: what is signed, what is kept, who fetches, and what failures mean.

use std::sync::atomic::{AtomicU64, Ordering};

use dialects::dialect::Dialect;
use futures_util::future::join_all;
use schemas::catalog::ProviderKind;
use schemas::time::Timestamp;

use crate::plan::Candidate;
use crate::provider::Purpose;
use crate::provider::call::{self, Ask};
use crate::testing::{Act, Scene, Server, config, endpoint, model, ok, response, route};

use super::*;

/// A key made for these tests, in PKCS 8.
const KEY: &str = include_str!("test_key.base64");
/// Bytes of a public RSA key of 2048 bits before the key itself.
const SPKI_HEAD: usize = 24;

struct At(AtomicU64);

impl Clock for At {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn pem() -> String {
    let label = "PRIVATE KEY";
    format!("-----BEGIN {label}-----\n{KEY}-----END {label}-----\n")
}

fn account(token_uri: &str) -> Secret<String> {
    let account = serde_json::json!({
        "type": "service_account",
        "client_email": "gateway@project.iam.example",
        "private_key_id": "key-1",
        "private_key": pem(),
        "token_uri": token_uri,
    });
    Secret::new(account.to_string())
}

fn granted(token: &str, seconds: u64) -> Vec<u8> {
    let body = format!(r#"{{"access_token":"{token}","expires_in":{seconds},"token_type":"Bearer"}}"#);
    ok("application/json", body.as_bytes())
}

/// A token endpoint that hands out `t0`, `t1`, … for an hour each.
async fn endpoint_of_tokens() -> Server {
    Server::start(|call| vec![Act::Send(granted(&format!("t{call}"), 3_600))]).await
}

struct Bench {
    upstream: Upstream,
    clock: At,
    tokens: Tokens,
}

impl Bench {
    fn new() -> Self {
        Self {
            upstream: Upstream::new(&config()).expect("clients"),
            clock: At(AtomicU64::new(0)),
            tokens: Tokens::default(),
        }
    }

    async fn token(&self, credential: &Secret<String>) -> Result<String, Error> {
        let token = self
            .tokens
            .token((&self.upstream, Trust::Anywhere), &self.clock, credential)
            .await?;
        Ok(token.reveal().clone())
    }
}

#[tokio::test]
async fn a_token_is_bought_once_and_replaced_five_minutes_before_its_end() {
    let server = endpoint_of_tokens().await;
    let (bench, account) = (Bench::new(), account(&server.url()));

    assert_eq!(bench.token(&account).await.as_deref(), Ok("t0"));
    bench.clock.0.store(3_299_000, Ordering::SeqCst);
    assert_eq!(bench.token(&account).await.as_deref(), Ok("t0"));
    bench.clock.0.store(3_300_000, Ordering::SeqCst);
    assert_eq!(bench.token(&account).await.as_deref(), Ok("t1"));
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn many_requests_at_once_buy_one_token() {
    let server = endpoint_of_tokens().await;
    let (bench, account) = (Bench::new(), account(&server.url()));

    let tokens = join_all((0..20).map(|_| bench.token(&account))).await;

    assert!(tokens.iter().all(|token| token.as_deref() == Ok("t0")));
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn the_claim_names_the_account_and_is_signed_with_its_key() {
    let server = endpoint_of_tokens().await;
    let (bench, account) = (Bench::new(), account(&server.url()));

    bench.token(&account).await.expect("a token");

    let request = server.requests().remove(0);
    assert!(request.contains("content-type: application/x-www-form-urlencoded"));
    let (_, assertion) = request.split_once("&assertion=").expect("an assertion");
    let (unsigned, signature) = assertion.rsplit_once('.').expect("three parts");
    let (header, claims) = unsigned.split_once('.').expect("three parts");
    let json = |part: &str| -> serde_json::Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
    };
    assert_eq!(json(header)["alg"], "RS256");
    assert_eq!(json(header)["kid"], "key-1");
    let claims = json(claims);
    assert_eq!(claims["iss"], "gateway@project.iam.example");
    assert_eq!(claims["scope"], SCOPE);
    assert_eq!(claims["aud"], format!("{}/", server.url()));
    assert_eq!(
        (claims["iat"].as_i64(), claims["exp"].as_i64()),
        (Some(1_700_000_000), Some(1_700_003_600))
    );
    let key = PrivateKeyDer::from_pem_slice(pem().as_bytes()).expect("a key");
    let signing = any_supported_type(&key).expect("RSA");
    let public = signing.public_key().expect("public");
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let (_, of_scheme) = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256)
        .expect("known");
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    let public = public.get(SPKI_HEAD..).expect("long enough");
    assert!(
        of_scheme[0]
            .verify_signature(public, unsigned.as_bytes(), &signature)
            .is_ok()
    );
}

#[tokio::test]
async fn what_is_no_account_is_its_own_token() {
    let bench = Bench::new();
    let literal = Secret::new("ya29.x".to_owned());

    assert_eq!(bench.token(&literal).await.as_deref(), Ok("ya29.x"));
    let broken = Secret::new(r#"{"client_email":"a"}"#.to_owned());
    assert_eq!(bench.token(&broken).await, Err(Error::Account));
}

#[tokio::test]
async fn a_refused_account_and_a_silent_endpoint_are_told_apart_and_not_asked_at_once_again() {
    let refusing = Server::always(vec![Act::Send(response(
        "400 Bad Request",
        "application/json",
        b"{}",
    ))])
    .await;
    let silent = Server::always(vec![Act::Close]).await;
    let bench = Bench::new();
    let (refused, unheard) = (account(&refusing.url()), account(&silent.url()));

    assert_eq!(bench.token(&refused).await, Err(Error::Refused(400)));
    assert_eq!(bench.token(&refused).await, Err(Error::Refused(400)));
    assert_eq!(refusing.calls(), 1);
    assert_eq!(bench.token(&unheard).await, Err(Error::Silent));

    bench.clock.0.store(PAUSE_MS, Ordering::SeqCst);
    assert_eq!(bench.token(&refused).await, Err(Error::Refused(400)));
    assert_eq!(refusing.calls(), 2);
}

#[tokio::test]
async fn a_token_that_lives_bridges_an_endpoint_that_is_down() {
    let server = Server::start(|call| match call {
        0 => vec![Act::Send(granted("t0", 3_600))],
        _ => vec![Act::Send(response("503 Unavailable", "text/plain", b""))],
    })
    .await;
    let (bench, account) = (Bench::new(), account(&server.url()));

    bench.token(&account).await.expect("a token");
    bench.clock.0.store(3_400_000, Ordering::SeqCst);
    assert_eq!(bench.token(&account).await.as_deref(), Ok("t0"));
    bench.clock.0.store(3_599_000, Ordering::SeqCst);
    assert_eq!(bench.token(&account).await, Err(Error::Silent));
}

#[tokio::test]
async fn a_token_that_the_upstream_refuses_is_replaced_once() {
    let tokens = endpoint_of_tokens().await;
    let claude = Server::start(|call| match call {
        0 => vec![Act::Send(response("401 Unauthorized", "application/json", b"{}"))],
        _ => vec![Act::Send(ok("application/json", b"{}"))],
    })
    .await;
    let mut vertex = endpoint("v", &[&claude.url()]);
    vertex.kind = ProviderKind::Vertex;
    "/v1/projects/p/locations/l/publishers/anthropic/models".clone_into(&mut vertex.chat_path);
    let scene = Scene::new(config(), &[vertex.clone()], &model(vec![route("v", 0)])).await;
    let account = account(&tokens.url());
    let candidate = Candidate {
        backend: Some(0),
        endpoint: Arc::new(vertex),
        upstream_model: "claude@1".into(),
        context_length: 1,
        takes: Arc::default(),
        bypass: false,
    };
    let ask = Ask {
        candidate: &candidate,
        purpose: Purpose {
            dialect: Dialect::Messages,
            stream: true,
        },
        credential: Some(&account),
        extra: &[],
        body: &Spliced::from(Bytes::from_static(b"{}")),
        raw: None,
    };

    let answer = call::send(&scene.router.shared, &ask).await.expect("an answer");

    assert_eq!(answer.status, 200);
    let sent = claude.requests();
    assert!(sent[0].starts_with(
        "POST /v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict HTTP/1.1"
    ));
    assert!(sent[0].contains("authorization: Bearer t0"));
    assert!(sent[1].contains("authorization: Bearer t1"));
    assert_eq!((sent.len(), tokens.calls()), (2, 2));
}
