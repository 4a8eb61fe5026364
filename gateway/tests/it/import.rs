//! An exported catalogue is taken in by the rules of the paths that would make its records, as a whole or not at all.

use schemas::seal::PrivateKey;
use schemas::secret::Secret;
use serde_json::{Value, json};

use crate::scene::{OPERATOR, Scene};

async fn done(scene: &Scene, line: &str, body: Value) -> Value {
    let answer = scene.call(line, OPERATOR, &body.to_string()).await;
    assert!(answer.status < 300, "{line} {body}: {answer:?}");
    answer.json()
}

async fn exported(scene: &Scene) -> Value {
    let answer = scene.call("GET /admin/config/export", OPERATOR, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// The keys of what is there.
async fn keys(scene: &Scene) -> Vec<String> {
    let exported = exported(scene).await;
    let records = exported["records"].as_array().expect("records").iter();
    records
        .map(|one| one["key"].as_str().expect("a key").to_owned())
        .collect()
}

async fn import(scene: &Scene, document: &Value) -> (u16, Value) {
    let line = "POST /admin/config/import";
    let answer = scene.call(line, OPERATOR, &document.to_string()).await;
    (answer.status, answer.json())
}

/// A deployment with a record of every kind that is made at run time.
async fn furnished() -> Scene {
    let scene = Scene::new().await;
    for (line, body) in [
        (
            "POST /api/v1/tenants",
            json!({"id": "nova", "name": "Nova", "limits": {"rpm": 7, "daily_usd": "2.5"}}),
        ),
        ("POST /api/v1/tenants", json!({"id": "third"})),
        (
            "POST /api/v1/users",
            json!({"tenant": "nova", "id": "ann", "email": "ann@example.com", "limits": {"rpm": 5}}),
        ),
        (
            "POST /api/v1/endpoints",
            json!({"tenant": "nova", "name": "gpu", "kind": "vllm", "model": "night",
                   "backends": [{"url": "http://one.example:8000/v1/", "node": "a"}, {"url": "http://two.example"}],
                   "health_check": {"path": "/up"}, "input_modalities": ["image"], "context_length": 4096}),
        ),
        (
            "POST /api/v1/endpoints",
            json!({"tenant": "nova", "name": "away", "kind": "anthropic", "credential": {"env": "UPSTREAM_KEY"},
                   "backends": [{"url": "https://three.example"}]}),
        ),
        (
            "POST /api/v1/prices",
            json!({"tenant": "nova", "model": "night", "pricing": {"prompt": "0.15", "completion": "2"},
                   "pricing_schedule": {"windows": [{"start": "16:30", "end": "24:00",
                                                     "pricing": {"prompt": "0.1"}}]}}),
        ),
        (
            "PUT /admin/settings/user_daily_quota_pro",
            json!({"value": "2.5"}),
        ),
        ("PATCH /admin/providers/vllm", json!({"disabled": true})),
    ] {
        done(&scene, line, body).await;
    }
    scene
}

#[tokio::test]
async fn what_its_own_paths_made_is_taken_in_whole_and_once() {
    let (one, other) = (furnished().await, Scene::new().await);
    let document = exported(&one).await;

    let (status, told) = import(&other, &document).await;
    assert_eq!((status, &told["changed"]), (200, &json!(0)), "{told}");
    // Two tenants, a member, two endpoints with a route each, a price, a setting and a provider.
    assert_eq!(told["made"], 10, "{told}");
    for scene in [&other, &one] {
        let (status, told) = import(scene, &document).await;
        assert_eq!(status, 200, "{told}");
        assert_eq!(
            (&told["made"], &told["changed"]),
            (&json!(0), &json!(0)),
            "{told}"
        );
    }
}

type Change = fn(&mut Value);

/// The kind of a record, what is done to it, and what the answer says of it.
const FAULTS: [(&str, Change, &str); 21] = [
    (
        "price.",
        |it| it["record"]["price"]["input"] = json!(-1),
        "pricing",
    ),
    (
        "price.",
        |it| it["record"]["price"]["output"] = json!(20_000_000_000_000_i64),
        "pricing",
    ),
    (
        "price.",
        |it| it["record"]["schedule"]["windows"][0]["start"] = json!(1500),
        "start",
    ),
    (
        "price.",
        |it| it["record"]["tenant"] = json!("third"),
        "elsewhere",
    ),
    (
        "price.",
        |it| it["record"]["endpoint"] = json!("ep-none"),
        "endpoint",
    ),
    (
        "price.",
        |it| it["record"]["price"]["inptu"] = json!(1),
        "price.inptu",
    ),
    (
        "price.",
        |it| {
            it["key"] = json!("price.ghost.pr-1");
            it["record"]["tenant"] = json!("ghost");
            it["record"]["id"] = json!("pr-1");
        },
        "no such tenant",
    ),
    (
        "tenant.nova",
        |it| it["record"]["id"] = json!("other"),
        "elsewhere",
    ),
    ("tenant.nova", |it| it["record"]["color"] = json!("red"), "color"),
    (
        "tenant.nova",
        |it| it["record"]["limits"]["rpm"] = json!(-1),
        "record of its kind",
    ),
    ("tenant.nova", |it| it["record"]["name"] = json!(""), "name"),
    ("user.", |it| it["record"]["email"] = json!("nobody"), "email"),
    (
        "endpoint.",
        |it| it["record"]["backends"][0]["base_url"] = json!("file:///etc/passwd"),
        "backends[0].url",
    ),
    (
        "endpoint.",
        |it| it["record"]["tenant"] = json!("ghost"),
        "no such tenant",
    ),
    (
        "endpoint.",
        |it| it["record"]["auth_header"] = json!("x-own"),
        "auth_header",
    ),
    (
        "route.",
        |it| it["record"]["endpoint"] = json!("ep-none"),
        "no such endpoint",
    ),
    (
        "route.",
        |it| {
            let key = it["key"].as_str().expect("a key").replace(".nova.", ".third.");
            it["key"] = json!(key);
            it["record"]["tenant"] = json!("third");
        },
        "no such endpoint",
    ),
    ("route.", |it| it["record"]["weight"] = json!(1_000_001), "weight"),
    ("setting.", |it| it["record"]["value"] = json!("-2"), "value"),
    (
        "setting.",
        |it| {
            it["key"] = json!("setting.jwt_secret_key");
            it["record"]["name"] = json!("jwt_secret_key");
        },
        "no such setting",
    ),
    (
        "provider.",
        |it| it["record"]["disabled"] = json!("yes"),
        "record of its kind",
    ),
];

#[tokio::test]
async fn one_record_that_no_path_would_make_refuses_the_whole_import() {
    let (one, other) = (furnished().await, Scene::new().await);
    let document = exported(&one).await;
    let before = keys(&other).await;

    for (kind, change, said) in FAULTS {
        let mut document = document.clone();
        let records = document["records"].as_array_mut().expect("records");
        let is_own = |one: &&mut Value| {
            one["key"].as_str().is_some_and(|key| key.starts_with(kind)) && one["record"]["origin"] != "file"
        };
        let record = records.iter_mut().find(is_own).expect(kind);
        change(record);
        let key = record["key"].as_str().expect("a key").to_owned();

        let (status, told) = import(&other, &document).await;

        let text = told["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{key}: {told}");
        assert!(text.contains(&key) && text.contains(said), "{said}: {text}");
    }
    assert_eq!(keys(&other).await, before, "nothing was written");
}

#[tokio::test]
async fn a_version_of_a_price_is_never_changed_by_an_import() {
    let scene = furnished().await;
    let mut document = exported(&scene).await;
    let records = document["records"].as_array_mut().expect("records");
    records.retain(|one| one["key"].as_str().is_some_and(|key| key.starts_with("price.")));
    let (status, told) = import(&scene, &document).await;
    assert_eq!((status, &told["unchanged"]), (200, &json!(1)), "{told}");

    document["records"][0]["record"]["price"]["output"] = json!(1);
    let (status, told) = import(&scene, &document).await;

    assert_eq!(status, 400, "{told}");
    let text = told["error"]["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("price.nova.") && text.contains("never changed"),
        "{text}"
    );
    let prices = scene.call("GET /api/v1/prices", OPERATOR, "").await.json();
    assert_eq!(prices["data"][0]["pricing"]["completion"], "2");
}

#[tokio::test]
async fn an_import_says_which_credentials_have_to_be_given_again() {
    let keyed = || {
        Scene::with(|config| {
            let held = PrivateKey::of_master(&Secret::new([7; 32]));
            config.public_key = Some(held.public().clone());
        })
    };
    let (one, other) = (keyed().await, keyed().await);
    let endpoint = |name: &str, credential: Value| json!({"name": name, "backends": [{"url": "https://one.example"}], "credential": credential});
    let secret = json!({"value": "sk-upstream-secret-1"});
    let made = done(&one, "POST /api/v1/endpoints", endpoint("sealed", secret.clone())).await;
    let id = made["id"].as_str().expect("an id").to_owned();
    done(
        &one,
        "POST /api/v1/endpoints",
        endpoint("referred", json!({"env": "UPSTREAM_KEY"})),
    )
    .await;
    let document = exported(&one).await;
    assert!(!document.to_string().contains("sk-upstream"));
    let lacking = document["without_credential"].clone();
    assert_eq!(lacking.as_array().map(Vec::len), Some(1), "{lacking}");

    let (status, told) = import(&other, &document).await;
    assert_eq!((status, &told["without_credential"]), (200, &lacking), "{told}");
    // It stays so until somebody gives it.
    let (_, told) = import(&other, &document).await;
    assert_eq!(
        (&told["made"], &told["without_credential"]),
        (&json!(0), &lacking),
        "{told}"
    );
    let line = format!("PATCH /api/v1/endpoints/{id}");
    done(&other, &line, json!({"credential": secret, "name": "given"})).await;
    for _ in 0..2 {
        let (_, told) = import(&other, &document).await;
        assert_eq!(told["without_credential"], json!([]), "{told}");
    }
    // Where it was made nothing is missing.
    let (_, told) = import(&one, &document).await;
    assert_eq!(told["without_credential"], json!([]), "{told}");
}
