//! Tenant, member, key, role and model: all that bounds a call holds, and a quota is whole again where its day ends.

use chrono::{DateTime, Duration, SecondsFormat, Utc};
use chrono_tz::Tz;
use harness::{
    Behaviour, CALLER_KEY, Model, NodeBuilder, OPERATOR_KEY, OTHER_KEY, PRICE, Scene, Upstream, settings,
};
use serde_json::{Value, json};

use super::under::{Clock, ask, keys, mint, now, refused};

const ALICE_TOO: &str = "sk-harness-canary-alice-too-3b1";
const BOB: &str = "sk-harness-canary-bob-77ac0";

/// Two keys of alice's, one of bob's, one of tenant `zenith` that belongs to nobody.
fn many_keys() -> Value {
    let mut keys = settings()["keys"].clone();
    let list = keys.as_array_mut().expect("a list");
    list.push(json!({"name": "second", "tenant": "acme", "user": "alice", "key": ALICE_TOO, "role": "free"}));
    list.push(json!({"name": "bob", "tenant": "acme", "user": "bob", "key": BOB, "role": "pro"}));
    keys
}

/// Whether a call with this key is admitted; panics when it is refused for another reason than its calls.
async fn admitted(scene: &Scene, key: &str) -> bool {
    let answer = scene.client.with_key(key).post_chat(&ask()).await;
    if answer.status == 200 {
        return true;
    }
    refused(&answer, "DAILY_LIMIT_EXCEEDED");
    false
}

#[tokio::test]
async fn a_member_has_one_limit_over_all_his_keys_and_a_tenant_one_over_all_members() {
    let mut scene = Scene::start_with(|node| {
        let alice = json!([{"tenant": "acme", "id": "alice", "limits": {"daily_calls": 2}}]);
        let tenants = json!([{"id": "acme", "limits": {"daily_calls": 3}}, {"id": "zenith"}]);
        node.setting("keys", many_keys())
            .setting("users", alice)
            .setting("tenants", tenants)
    })
    .await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hi"));

    assert!(admitted(&scene, CALLER_KEY).await);
    assert!(admitted(&scene, ALICE_TOO).await);
    let answer = scene.client.with_key(ALICE_TOO).post_chat(&ask()).await;
    assert_eq!(refused(&answer, "DAILY_LIMIT_EXCEEDED")["scope"], "per_user");
    assert!(admitted(&scene, BOB).await);
    let answer = scene.client.with_key(BOB).post_chat(&ask()).await;
    assert_eq!(refused(&answer, "DAILY_LIMIT_EXCEEDED")["scope"], "per_tenant");
    for _ in 0..3 {
        assert!(admitted(&scene, OTHER_KEY).await, "another tenant is not bound");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_role_fills_what_a_member_leaves_out_and_zero_lifts_it() {
    let mut scene = Scene::start_with(|node| {
        let roles = json!({"free": {"daily_calls": 1}, "pro": {"daily_calls": 2}});
        let alice = json!([{"tenant": "acme", "id": "alice", "limits": {"daily_calls": 0}}]);
        node.setting("keys", many_keys())
            .setting("role_limits", roles)
            .setting("users", alice)
    })
    .await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hi"));

    for _ in 0..3 {
        assert!(admitted(&scene, CALLER_KEY).await, "alice is lifted");
    }
    assert!(admitted(&scene, BOB).await && admitted(&scene, BOB).await);
    assert!(!admitted(&scene, BOB).await);
    assert!(admitted(&scene, OTHER_KEY).await);
    assert!(
        !admitted(&scene, OTHER_KEY).await,
        "a key of nobody is filled itself"
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_limit_of_one_model_leaves_the_others_alone_and_knows_its_aliases() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").set("aliases", json!(["m-latest"])).leg(&o1, 0),
        Model::new("other").leg(&o1, 0),
    ];
    let limits = keys(&json!({"per_model": {"m": {"rpm": 2}}}));
    let clock = Clock::on_the_minute();
    let bend = |node: NodeBuilder| clock.of(node.models(&models).setting("keys", limits));
    let mut scene = Scene::start_on(o1, o2, bend).await;
    scene.price("other", Some(PRICE));
    scene.pin();
    scene.o1.default(Behaviour::chat("hi"));
    clock.early_in_the_minute(20).await;
    let call = async |name: &str| {
        let mut body = ask();
        body["model"] = name.into();
        scene.client.post_chat(&body).await
    };

    assert_eq!(call("m").await.status, 200);
    assert_eq!(call("m-latest").await.status, 200);
    let answer = call("m-latest").await;
    for _ in 0..4 {
        assert_eq!(call("other").await.status, 200);
    }

    let error = refused(&answer, "RPM_EXCEEDED");
    let text = "API key calls-per-minute limit for the model 'm' exceeded";
    assert_eq!(error["message"], text);
    let wanted = json!({"name": "ci", "limits": {"per_model": {"m-latest": {"rpm": 2}}}});
    let operator = scene.client.with_key(OPERATOR_KEY);
    let asked = operator.call("POST", "/api/v1/tenant/api-keys", wanted.to_string().into());
    let answer = asked.await.expect("an answer");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "limits.per_model.m-latest");
    assert_eq!(
        error["message"],
        "the name is an alias of the model 'm': give the limits under that name"
    );
    scene.finish().await;
}

/// The quotas of the minted key `name`, each as its model, its limit and what is used of it.
async fn quotas_of(scene: &Scene, name: &str) -> Vec<Value> {
    let operator = scene.client.with_key(OPERATOR_KEY);
    let list = operator.get("/api/v1/tenant/api-keys").await.json();
    let mut keys = list["data"].as_array().expect("a list").iter();
    let key = keys.find(|key| key["name"] == name).expect("the key").clone();
    let quotas = key["quotas"].as_array().expect("a list").iter();
    let shown = quotas.map(|quota| json!([quota["model"], quota["limit"], quota["used"]]));
    shown.collect()
}

#[tokio::test]
async fn a_name_that_becomes_an_alias_goes_on_to_bound_with_the_model_in_one_count() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let mut scene = Scene::start_on(o1, o2, |node| node).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hi"));
    let limits = json!({"per_model": {"m": {"daily_calls": 4}, "m-latest": {"daily_calls": 3}}});
    let wanted = json!({"name": "ci", "tenant": "acme", "limits": limits});
    let made = mint(&scene, wanted).await;
    let client = scene.client.with_key(made["key"].as_str().expect("a key"));
    let call = async |name: &str| {
        let mut body = ask();
        body["model"] = name.into();
        client.post_chat(&body).await
    };
    assert_eq!(call("m").await.status, 200, "the other name is nobody's so far");
    let apart = vec![json!(["m", 4, 1]), json!(["m-latest", 3, 0])];
    assert_eq!(quotas_of(&scene, "ci").await, apart);

    let aliased = Model::new("m").set("aliases", json!(["m-latest"]));
    scene.node.write_models(&[aliased.leg(&scene.o1, 0)]);
    let (code, told) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(0), "{told}");

    // The smaller of the two holds, and what was counted stays counted.
    assert_eq!(quotas_of(&scene, "ci").await, [json!(["m", 3, 1])]);
    assert_eq!(call("m-latest").await.status, 200);
    assert_eq!(call("m").await.status, 200);
    for name in ["m", "m-latest"] {
        let error = refused(&call(name).await, "DAILY_LIMIT_EXCEEDED");
        assert_eq!((&error["limit"], &error["current"]), (&json!(3), &json!(3)));
        let text = "API key daily call limit for the model 'm' exceeded";
        assert_eq!(error["message"], text);
    }
    assert_eq!(quotas_of(&scene, "ci").await, [json!(["m", 3, 3])]);
    scene.finish().await;
}

#[tokio::test]
async fn a_day_ends_at_the_midnight_of_the_billing_zone() {
    for zone in [Tz::America__New_York, Tz::Asia__Kathmandu, Tz::Pacific__Apia] {
        let mut scene = Scene::start_with(|node| {
            node.setting("keys", keys(&json!({"daily_calls": 1})))
                .setting("billing_tz", zone.name())
        })
        .await;
        scene.pin();
        scene.o1.default(Behaviour::chat("hi"));

        let good = scene.client.post_chat(&ask()).await;
        let answer = scene.client.post_chat(&ask()).await;

        let error = refused(&answer, "DAILY_LIMIT_EXCEEDED");
        let told = error["reset_at"].as_str().expect("a time");
        assert_eq!(good.header("x-quota-reset"), told);
        let ends: DateTime<Utc> = told.parse().expect("RFC 3339");
        let local = ends.with_timezone(&zone);
        let today = now().with_timezone(&zone).date_naive();
        let last = (ends - Duration::seconds(1)).with_timezone(&zone).date_naive();
        assert_eq!(last, today, "{zone}: {told}");
        assert_eq!(Some(local.date_naive()), today.succ_opt(), "{zone}: {told}");
        assert_eq!(told, local.to_rfc3339_opts(SecondsFormat::Secs, true));
        let left = u64::try_from((ends - now()).num_seconds()).expect("later");
        let retry: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!(retry.abs_diff(left) <= 5, "{retry} {left}");
        scene.finish().await;
    }
}
