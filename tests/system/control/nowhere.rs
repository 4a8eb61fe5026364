//! Secrets that come up while a node runs are told to those whom they are for, once: they stand in no other answer, no
//! log, event, table, figure or file, and a node that is brought down amidst of it leaves none behind. The checker looks
//! for them.

use harness::{Answer, Client, PROVIDER_KEY, Scene, Upstream, chat};
use serde_json::{Value, json};

use super::secrets::{on_loopback, registered, until_served};
use super::sign_in::{PASSWORD, login, member, refresh, tokens};
use super::{call, done, minted, operator};

const DISPATCH: &str = "harness-canary-dispatch-51d0aa";
const CHOSEN: &str = "correct horse battery 2";
const FALSE: &str = "wrong horse battery 3";
const KEYS: &str = "/api/v1/tenant/api-keys";
const GRANTS: &str = "/internal/agent-grants";

/// Secrets by what they are, and answers that must hold none of them.
#[derive(Default)]
struct Told {
    secrets: Vec<(&'static str, String)>,
    refusals: Vec<Answer>,
}

impl Told {
    fn secret(&mut self, name: &'static str, text: &Value) -> String {
        let text = text.as_str().expect("a text").to_owned();
        self.secrets.push((name, text.clone()));
        text
    }

    /// Keeps an answer that refuses.
    fn refused(&mut self, answer: Answer) {
        assert!((400..500).contains(&answer.status), "{}", answer.text());
        self.refusals.push(answer);
    }
}

async fn keys(told: &mut Told, operator: &Client) {
    let key = minted(operator, json!({"name": "k", "tenant": "acme"})).await;
    told.secrets.push(("a minted key", key.clone()));
    let listed = done(
        operator,
        "GET",
        &format!("{KEYS}?tenant=acme&name=k"),
        Value::Null,
    )
    .await;
    let id = listed["data"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("{KEYS}/{id}");
    let next = done(operator, "POST", &format!("{path}/rotate"), Value::Null).await;
    let next = told.secret("a key that followed it", &next["key"]);
    told.refused(operator.with_key(&key).post_chat(&chat("m")).await);
    done(operator, "DELETE", &path, Value::Null).await;
    told.refused(operator.with_key(&next).post_chat(&chat("m")).await);
}

async fn grants(told: &mut Told, operator: &Client) {
    let dispatch = operator.with_key(DISPATCH);
    let job = json!({"user": "ann", "tenant": "acme", "external_job_id": "job-7", "minutes": 10});
    let made = done(&dispatch, "POST", GRANTS, job).await;
    let token = told.secret("a grant", &made["token"]);
    let granted = operator.with_key(&token);
    assert_eq!(granted.post_chat(&chat("m")).await.status, 200);
    told.refused(granted.get("/v1/models").await);
    let path = format!("{GRANTS}/{}", made["id"].as_str().expect("an id"));
    done(&dispatch, "DELETE", &path, Value::Null).await;
    told.refused(granted.post_chat(&chat("m")).await);
    told.refused(call(&dispatch, "POST", GRANTS, json!({"user": DISPATCH})).await);
}

async fn sessions(told: &mut Told, operator: &Client) {
    let nobody = operator.with_key("");
    let (token, cookie) = tokens(&login(&nobody, "ann", PASSWORD).await);
    told.refused(login(&nobody, "ann", FALSE).await);
    let (next, next_cookie) = tokens(&refresh(&nobody, &cookie).await);
    for (name, text) in [("an access token", &token), ("the next access token", &next)] {
        told.secrets.push((name, text.clone()));
        // Its signature alone would give it away as well.
        let signature = text.rsplit('.').next().expect("a signature");
        told.secrets.push((name, signature.to_owned()));
    }
    for cookie in [&cookie, &next_cookie] {
        let value = cookie.split_once('=').expect("a pair").1;
        told.secrets.push(("a refresh token", value.to_owned()));
    }
    let leaving = nobody.with_key(&next).with_header("cookie", &next_cookie);
    let leaving = leaving.with_header("x-requested-with", "test");
    call(&leaving, "POST", "/auth/logout", Value::Null).await;
    told.refused(refresh(&nobody, &next_cookie).await);
    told.refused(operator.with_key(&next).get("/user/me").await);

    let reset = "/api/v1/users/ann/password-reset?tenant=acme";
    let reset = done(operator, "POST", reset, Value::Null).await;
    let reset = told.secret("a token for another password", &reset["token"]);
    let choice = json!({"token": reset, "new_password": CHOSEN});
    done(&nobody, "POST", "/auth/reset-password", choice.clone()).await;
    told.refused(call(&nobody, "POST", "/auth/reset-password", choice).await);
    let odd = json!({"token": reset, "new_password": CHOSEN, "colour": FALSE});
    told.refused(call(&nobody, "POST", "/auth/reset-password", odd).await);
}

#[tokio::test]
async fn bug_case_18_secrets_of_keys_grants_and_sessions_stand_nowhere_and_a_crash_leaves_none() {
    let talkative = |node| {
        on_loopback(node)
            .env("LOG_LEVEL", "debug")
            .env("RUST_BACKTRACE", "1")
            .env("GATEWAY_GRANT_DISPATCH_TOKEN", DISPATCH)
            .env("JWT_SECRET_KEY", "harness-canary-jwt-7be0c2d4a1f35968")
    };
    let mut scene = Scene::start_with(talkative).await;
    scene.pin();
    scene.price("own", None);
    let (operator, own) = (operator(&scene), Upstream::start());
    let mut told = Told::default();
    for (name, text) in [
        ("a password", PASSWORD),
        ("a chosen password", CHOSEN),
        ("a false password", FALSE),
    ] {
        told.secrets.push((name, text.to_owned()));
    }
    told.secrets.push(("the token of grants", DISPATCH.to_owned()));
    registered(&operator, &own.url()).await;
    until_served(&scene.client).await;
    member(&operator, "ann", "pro").await;

    keys(&mut told, &operator).await;
    grants(&mut told, &operator).await;
    sessions(&mut told, &operator).await;
    let exported = operator.get("/admin/config/export").await;
    assert_eq!(exported.status, 200);
    told.refusals.push(exported);

    for answer in &told.refusals {
        let text = answer.text();
        for (name, secret) in told
            .secrets
            .iter()
            .chain([&("a credential", PROVIDER_KEY.to_owned())])
        {
            assert!(!text.contains(secret), "{name} in {text}");
        }
    }
    for (name, text) in &told.secrets {
        scene.secret(name, text);
    }
    scene.node.signal("ABRT").await;
    assert_eq!(scene.node.ended().await, None, "it was brought down");
    scene.restart().await;
    until_served(&scene.client).await;
    scene.finish().await;
}
