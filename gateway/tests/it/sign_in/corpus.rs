//! Tokens that are none of ours, on every kind of path: whatever they say of themselves they are nobody's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{JWT_SECRET, call, scene, signed_in};
use crate::scene::{PLAIN, Scene};

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token of any header and claims, under the deployment's own secret.
fn signed(header: &Value, claims: &Value) -> String {
    let text = format!("{}.{}", encoded(header), encoded(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(JWT_SECRET).expect("any length is a key");
    mac.update(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// What a good token says.
fn claims_of(token: &str) -> Value {
    let claims = token.split('.').nth(1).expect("claims");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64url")).expect("JSON")
}

async fn is_refused(scene: &Scene, what: &str, token: &str) {
    let bearer = format!("Bearer {token}");
    let body: Value = serde_json::from_str(PLAIN).expect("JSON");
    for (line, body) in [
        ("GET /user/me", &Value::Null),
        ("GET /api/v1/users", &Value::Null),
        ("POST /v1/chat/completions", &body),
    ] {
        for header in ["authorization", "x-api-key"] {
            let value = if header == "authorization" {
                &*bearer
            } else {
                token
            };
            let answer = call(scene, line, &[(header, value)], body).await;
            assert_eq!(
                (answer.status, &*answer.code()),
                (401, "invalid_api_key"),
                "{what}: {line} {header}"
            );
        }
    }
}

/// The head of our tokens.
fn ours() -> Value {
    json!({"alg": "HS256", "typ": "JWT"})
}

/// A token with one claim changed, signed as ours are.
fn with(good: &Value, name: &str, value: Value) -> String {
    let mut claims = good.clone();
    claims[name] = value;
    signed(&ours(), &claims)
}

/// Tokens that look like ours and are not, with what is wrong about them.
fn none_of_ours(good: &Value) -> Vec<(&'static str, String)> {
    let now = good["iat"].as_i64().expect("a time");
    let with = |name, value| with(good, name, value);
    let under = |header: Value| signed(&header, good);
    let unsigned = |alg: &str| {
        let head = json!({"alg": alg, "typ": "JWT"});
        format!("{}.{}.", encoded(&head), encoded(good))
    };
    vec![
        ("no algorithm", unsigned("none")),
        ("no algorithm, in other letters", unsigned("nOnE")),
        (
            "no algorithm, signed",
            under(json!({"alg": "none", "typ": "JWT"})),
        ),
        ("another algorithm", under(json!({"alg": "RS256", "typ": "JWT"}))),
        ("a longer digest", under(json!({"alg": "HS512", "typ": "JWT"}))),
        (
            "a path as its key",
            under(json!({"alg": "HS256", "typ": "JWT", "kid": "../../../../dev/null"})),
        ),
        (
            "a place of keys",
            under(json!({"alg": "HS256", "typ": "JWT", "jku": "http://169.254.169.254/keys"})),
        ),
        (
            "a key that it brings along",
            under(json!({"alg": "HS256", "typ": "JWT", "jwk": {"kty": "oct", "k": "AAAA"}})),
        ),
        ("one that is over", with("exp", json!(now - 1))),
        ("one of the future", with("iat", json!(now + 3_600))),
        ("one for another", with("aud", json!("another"))),
        ("one for several", with("aud", json!(["waybill", "another"]))),
        ("one of another deployment", with("iss", json!("waybill/other"))),
        ("one of another session", with("sid", json!("another"))),
        (
            "one of sixty thousand bytes",
            with("pad", json!("x".repeat(40_000))),
        ),
        ("one without claims", format!("{}..", encoded(&ours()))),
    ]
}

#[tokio::test]
async fn no_token_that_is_none_of_ours_is_anybody_on_any_path() {
    let scene = scene().await;
    let (token, _) = signed_in(&scene, "ann", "admin").await;
    let good = claims_of(&token);
    let with = |name, value| with(&good, name, value);
    let bearer = format!("Bearer {}", signed(&ours(), &good));
    let me = call(
        &scene,
        "GET /user/me",
        &[("authorization", &bearer)],
        &Value::Null,
    )
    .await;
    assert_eq!(me.status, 200, "the corpus is signed as tokens are");
    for (what, token) in none_of_ours(&good) {
        is_refused(&scene, what, &token).await;
    }

    // Whom nobody knows is waited for, since another node may have made him a moment ago: one path says it for all.
    let strangers = [with("sub", json!("root")), with("tenant", json!("default"))];
    let asked = strangers
        .iter()
        .map(|token| scene.call("GET /user/me", token, ""));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!((answer.status, &*answer.code()), (401, "invalid_api_key"));
    }

    // A megabyte is more than headers may have, whatever stands in it.
    let large = with("pad", json!("x".repeat(750_000)));
    let mut socket = scene.connect().await;
    let request = crate::scene::request("GET /user/me", &large, "connection: close\r\n", "");
    // The node may have closed before it has read all of it.
    let _ = socket.write_all(&request).await;
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes).await;
    let told = String::from_utf8_lossy(&bytes);
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 431"), "{told}");
    let me = call(
        &scene,
        "GET /user/me",
        &[("authorization", &bearer)],
        &Value::Null,
    )
    .await;
    assert_eq!(me.status, 200, "the node serves on");
}
