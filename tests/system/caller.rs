//! Who calls: one answer for every credential that is not good, one for every model that is not there for the
//! caller.

use bytes::Bytes;
use harness::{
    ADMIN_KEY, Answer, CALLER_KEY, Client, EXPIRED_KEY, FALSE_KEY, Model, NARROW_KEY, OPERATOR_KEY,
    OTHER_KEY, Scene, Upstream, chat, models_file, settings,
};
use serde_json::{Value, json};

/// What of an answer must not differ: status, headers but those that name the request and the moment, body with the
/// request's id taken out.
fn bare(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let names = ["x-request-id", "request-id", "date"];
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .filter(|(name, _)| !names.contains(&name.as_str()))
        .map(|(name, value)| {
            (
                name.to_string(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    headers.sort();
    assert_eq!(answer.request_id().len(), 36, "{}", answer.text());
    (
        answer.status,
        headers,
        answer.text().replace(answer.request_id(), "ID"),
    )
}

fn with_keys(more: &[Value]) -> String {
    let mut file = settings();
    file["keys"]
        .as_array_mut()
        .expect("a list")
        .extend_from_slice(more);
    file.to_string()
}

#[tokio::test]
async fn missing_false_expired_and_revoked_keys_get_the_same_bytes() {
    let expired =
        json!({"name": "old", "tenant": "acme", "key": EXPIRED_KEY, "expires_at": "2020-01-01T00:00:00Z"});
    let scene = Scene::start_with(|node| node.waybill_yaml(&with_keys(&[expired]))).await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    let body = json!({"name": "brief", "tenant": "acme", "role": "free"}).to_string();
    let path = "/api/v1/tenant/api-keys";
    let made = operator.call("POST", path, body.into()).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
    let revoked = made.json()["key"].as_str().expect("a key").to_owned();
    assert_eq!(
        scene.client.with_key(&revoked).post_chat(&chat("m")).await.status,
        200
    );
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let gone = operator
        .call("DELETE", &format!("{path}/{id}"), Bytes::new())
        .await
        .expect("an answer");
    assert!(gone.status < 300, "{}", gone.text());

    let missing = scene.client.with_key("").post_chat(&chat("m")).await;

    assert_eq!(
        (missing.status, missing.error_code().as_str()),
        (401, "invalid_api_key")
    );
    for key in [FALSE_KEY, EXPIRED_KEY, &revoked, "x", " "] {
        let refused = scene.client.with_key(key).post_chat(&chat("m")).await;
        assert_eq!(bare(&refused), bare(&missing), "{key}");
    }
    let basic = scene
        .client
        .with_key("")
        .with_header("authorization", "Basic c2stYTpi")
        .post_chat(&chat("m"))
        .await;
    assert_eq!(bare(&basic), bare(&missing));
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn either_header_is_a_credential_and_two_that_differ_are_none() {
    let scene = Scene::start().await;
    let nobody = scene.client.with_key("");
    let x_api_key = nobody.with_header("x-api-key", CALLER_KEY);
    let twice = scene.client.with_header("x-api-key", CALLER_KEY);
    let two = scene.client.with_header("x-api-key", OTHER_KEY);
    let half_false = scene.client.with_header("x-api-key", FALSE_KEY);
    let two_bearers = scene
        .client
        .with_header("authorization", &format!("Bearer {OTHER_KEY}"));
    let lower_case = nobody.with_header("authorization", &format!("bearer {CALLER_KEY}"));

    for (name, client, status) in [
        ("x-api-key", x_api_key, 200),
        ("the same key twice", twice, 200),
        ("a scheme in lower case", lower_case, 200),
        ("two good keys", two, 401),
        ("a good and a false key", half_false, 401),
        ("two bearers", two_bearers, 401),
    ] {
        assert_eq!(client.post_chat(&chat("m")).await.status, status, "{name}");
    }
    assert_eq!(scene.o1.calls(), 3);
    scene.finish().await;
}

/// Asks for a model in every way there is.
async fn asked(client: &Client, model: &str) -> Vec<Answer> {
    let path = format!("/v1/models/{model}");
    let streamed = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "x"}]});
    vec![
        client.post_chat(&chat(model)).await,
        client.post_chat(&streamed).await,
        client.get(&path).await,
    ]
}

#[tokio::test]
async fn models_that_are_not_there_for_the_caller_get_the_same_404_whatever_the_reason() {
    let narrow = json!({"name": "narrow", "tenant": "acme", "key": NARROW_KEY, "models": ["m"]});
    let scene = scene_of_hidden_models(with_keys(&[narrow])).await;
    let unknown = asked(&scene.client, "no-such-model").await;
    assert_eq!(
        (unknown[0].status, unknown[0].error_code().as_str()),
        (404, "model_not_found")
    );
    assert!(
        !unknown[0].text().contains("no-such-model"),
        "{}",
        unknown[0].text()
    );
    assert_eq!(unknown[0].json().as_object().map(serde_json::Map::len), Some(1));

    for model in ["for-pros", "for-admins", "of-zenith", "M"] {
        for (answer, reference) in asked(&scene.client, model).await.iter().zip(&unknown) {
            assert_eq!(bare(answer), bare(reference), "{model}");
        }
    }
    let narrow = scene.client.with_key(NARROW_KEY);
    for (answer, reference) in asked(&narrow, "open").await.iter().zip(&unknown) {
        assert_eq!(bare(answer), bare(reference), "a model the key may not use");
    }
    assert_eq!(scene.o1.calls() + scene.o2.calls(), 0);

    let served = [
        (scene.client.clone(), "open"),
        (narrow, "m"),
        (scene.client.with_key(OTHER_KEY), "of-zenith"),
        (scene.client.with_key(ADMIN_KEY), "for-admins"),
        (scene.client.with_key(OPERATOR_KEY), "of-zenith"),
    ];
    for (client, model) in served {
        assert_eq!(client.post_chat(&chat(model)).await.status, 200, "{model}");
    }
    scene.finish().await;
}

/// A scene whose models differ in who may see them.
async fn scene_of_hidden_models(settings: String) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("open").leg(&o1, 0),
        Model::new("for-pros").leg(&o1, 0).set("required_role", "pro"),
        Model::new("for-admins").leg(&o1, 0).set("admin_only", true),
        Model::new("of-zenith")
            .leg(&o1, 0)
            .set("tenants", json!(["zenith"])),
    ];
    let file = models_file(&models);
    Scene::start_on(o1, o2, move |node| {
        node.waybill_yaml(&settings).models_yaml(&file)
    })
    .await
}

#[tokio::test]
async fn a_callers_own_request_id_is_an_attribute_and_ours_is_the_id() {
    let scene = Scene::start().await;
    let client = scene
        .client
        .with_header("x-request-id", "mine-7")
        .with_header("x-end-user", "eve");

    let answer = client.post_chat(&chat("m")).await;

    assert_ne!(answer.request_id(), "mine-7");
    assert_eq!(answer.header("request-id"), answer.request_id());
    assert!(!answer.header("x-waybill-config").is_empty());
    let row = scene.row(answer.request_id()).await;
    assert_eq!(
        (&row["client_request_id"], &row["end_user"]),
        (&json!("mine-7"), &json!("eve"))
    );
    scene.finish().await;
}
