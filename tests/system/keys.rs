//! Virtual keys from the command line, with a node running and without one, and over the API.

use bytes::Bytes;
use harness::{ADMIN_KEY, Answer, CALLER_KEY, OPERATOR_KEY, Scene, chat};
use serde_json::{Value, json};

/// The id and the key that `keys create` printed.
fn printed(output: &str) -> (String, String) {
    let word = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {output:?}"))
            .trim()
            .to_owned()
    };
    let (id, key) = (word("id"), word("key"));
    let random = key
        .strip_prefix("sk-tenant-")
        .expect("the form of a member's key");
    assert_eq!(random.len(), 43, "{key}");
    (id, key)
}

async fn run(scene: &Scene, args: &[&str]) -> String {
    let (code, output) = scene.node.command(args).await;
    assert_eq!(code, Some(0), "{args:?}: {output}");
    output
}

async fn status_with(scene: &Scene, key: &str) -> u16 {
    scene.client.with_key(key).post_chat(&chat("m")).await.status
}

#[tokio::test]
async fn keys_are_made_listed_and_revoked_while_a_node_runs() {
    let scene = Scene::start().await;

    let made = run(
        &scene,
        &[
            "keys", "create", "--name", "alpha", "--tenant", "acme", "--user", "bob", "--models", "m",
        ],
    )
    .await;
    let (id, key) = printed(&made);
    let second = printed(&run(&scene, &["keys", "create", "--name", "beta"]).await);
    assert_eq!(status_with(&scene, &key).await, 200);
    let row = scene.row(&scene.client.log().answered()[0].request_id).await;
    assert_eq!(
        (&row["tenant"], &row["user"], &row["key_name"]),
        (&json!("acme"), &json!("bob"), &json!("alpha")),
        "{row}"
    );
    let listed = run(&scene, &["keys", "list"]).await;
    assert!(
        listed.lines().any(|line| [&id, "alpha", "bob", "active"]
            .iter()
            .all(|cell| line.contains(cell))),
        "{listed}"
    );
    assert!(!listed.contains(&key) && !listed.contains(CALLER_KEY), "{listed}");

    run(&scene, &["keys", "revoke", &id]).await;
    run(&scene, &["keys", "revoke", "beta"]).await;

    assert_eq!(
        (
            status_with(&scene, &key).await,
            status_with(&scene, &second.1).await
        ),
        (401, 401)
    );
    let listed = run(&scene, &["keys", "list"]).await;
    assert_eq!(
        listed.lines().filter(|line| line.contains("revoked")).count(),
        2,
        "{listed}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn keys_are_made_listed_and_revoked_without_a_node() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.node.stop().await, Some(0));

    let (_, kept) = printed(&run(&scene, &["keys", "create", "--name", "kept", "--tenant", "acme"]).await);
    let (id, gone) = printed(&run(&scene, &["keys", "create", "--name", "gone", "--role", "pro"]).await);
    let (_, expired) = printed(
        &run(
            &scene,
            &[
                "keys",
                "create",
                "--name",
                "old",
                "--expires-at",
                "2020-01-01T00:00:00Z",
            ],
        )
        .await,
    );
    run(&scene, &["keys", "revoke", &id]).await;
    let listed = run(&scene, &["keys", "list"]).await;
    let head: Vec<&str> = listed
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        head,
        [
            "ID", "NAME", "TENANT", "USER", "ROLE", "STATE", "UNTIL", "MODELS", "LIMITS"
        ]
    );
    assert_eq!(listed.lines().count(), 1 + 4 + 3, "{listed}");
    assert_eq!(
        listed.lines().filter(|line| line.contains("revoked")).count(),
        1,
        "{listed}"
    );
    for (args, code) in [
        (&["keys", "revoke", "nobody"][..], Some(64)),
        (&["keys", "create", "--name", "x", "--role", "wizard"], Some(64)),
        (&["keys", "create", "--name", "x", "--tenant", "Bad Id"], Some(64)),
        (&["keys", "create", "--name", "x", "--tenant", "nobody"], Some(64)),
        (&["keys", "create", "--name", "a\tb"], Some(64)),
        (&["keys", "create", "--name", "x", "--user", ""], Some(64)),
        (
            &["keys", "create", "--name", "x", "--expires-at", "soon"],
            Some(64),
        ),
    ] {
        let (ended, output) = scene.node.command(args).await;
        assert_eq!(ended, code, "{args:?}: {output}");
    }

    scene.restart().await;
    assert_eq!(status_with(&scene, &kept).await, 200);
    assert_eq!(
        (
            status_with(&scene, &gone).await,
            status_with(&scene, &expired).await
        ),
        (401, 401)
    );
    assert_eq!(status_with(&scene, CALLER_KEY).await, 200);
    scene.finish().await;
}

async fn create(scene: &Scene, key: &str, body: Value) -> Answer {
    let client = scene.client.with_key(key);
    client
        .call("POST", "/api/v1/tenant/api-keys", body.to_string().into())
        .await
        .expect("an answer")
}

#[tokio::test]
async fn a_key_of_the_file_that_was_revoked_stays_revoked_after_a_restart() {
    for running in [true, false] {
        let mut scene = Scene::start().await;
        let listed = run(&scene, &["keys", "list"]).await;
        let row = scene.client.post_chat(&chat("m")).await;
        let id = scene.row(row.request_id()).await["key_id"].clone();
        let id = id.as_str().expect("an id");
        assert!(listed.contains(id), "{listed}");

        if running {
            run(&scene, &["keys", "revoke", id]).await;
            assert_eq!(status_with(&scene, CALLER_KEY).await, 401);
        }
        assert_eq!(scene.node.stop().await, Some(0));
        if !running {
            run(&scene, &["keys", "revoke", id]).await;
        }
        scene.restart().await;

        assert_eq!(status_with(&scene, CALLER_KEY).await, 401);
        scene.node.wait_log("stays so").await;
        scene.finish().await;
    }
}

#[tokio::test]
async fn nobody_makes_or_revokes_more_than_he_has() {
    let scene = Scene::start().await;

    for (key, body, status) in [
        ("", json!({"name": "x"}), 401),
        (CALLER_KEY, json!({"name": "x"}), 403),
        (ADMIN_KEY, json!({"name": "x"}), 201),
        (ADMIN_KEY, json!({"name": "x", "role": "admin"}), 201),
        (ADMIN_KEY, json!({"name": "x", "role": "operator"}), 403),
        (ADMIN_KEY, json!({"name": "x", "tenant": "acme"}), 403),
        (
            OPERATOR_KEY,
            json!({"name": "x", "tenant": "acme", "role": "operator"}),
            201,
        ),
    ] {
        let answer = create(&scene, key, body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    let operators = scene
        .client
        .with_key(OPERATOR_KEY)
        .get("/api/v1/tenant/api-keys")
        .await
        .json();
    let keys = operators["data"].as_array().expect("a list");
    let id = |name: &str| {
        keys.iter().find(|key| key["name"] == name).expect("a key")["id"]
            .as_str()
            .expect("an id")
    };
    let admin = scene.client.with_key(ADMIN_KEY);
    let revoke = |id: String| {
        let admin = admin.clone();
        async move {
            admin
                .call("DELETE", &format!("/api/v1/tenant/api-keys/{id}"), Bytes::new())
                .await
                .expect("an answer")
                .status
        }
    };
    assert_eq!(
        revoke(id("caller").to_owned()).await,
        404,
        "another tenant's key is none of his"
    );
    assert_eq!(revoke(id("operator").to_owned()).await, 404);
    assert_eq!(revoke("nothing".to_owned()).await, 404);
    let own = admin.get("/api/v1/tenant/api-keys").await.json();
    assert!(
        own["data"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|key| key["tenant"] == "default"),
        "{own}"
    );
    assert_eq!(status_with(&scene, CALLER_KEY).await, 200);
    scene.finish().await;
}

#[tokio::test]
async fn a_key_with_a_limit_that_is_none_or_a_field_nobody_knows_is_refused_by_name() {
    let scene = Scene::start().await;

    for (body, param) in [
        (
            json!({"name": "x", "limits": {"daily_usd": "a dollar"}}),
            "limits.daily_usd",
        ),
        (json!({"name": "x", "limits": {"qqs": 1}}), "limits.qqs"),
        (json!({"name": "x", "limits": {"rpm": -1}}), "limits.rpm"),
        (json!({"name": "x", "limits": {"rpm": "many"}}), "limits.rpm"),
        (
            json!({"name": "x", "limits": {"weekly_usd": "1"}}),
            "limits.weekly_usd",
        ),
        (
            json!({"name": "x", "limits": {"per_model": {"m": {"budget": 1}}}}),
            "limits.per_model",
        ),
        (json!({"name": "x", "budget": 3}), "budget"),
        (json!({"name": ""}), "name"),
        (json!({"role": "free"}), "name"),
        (json!({"name": "x", "role": "wizard"}), "role"),
        (json!({"name": "x", "tenant": "nobody"}), "tenant"),
        (json!({"name": "x", "expires_at": "soon"}), "expires_at"),
    ] {
        let refused = create(&scene, OPERATOR_KEY, body.clone()).await;
        assert!([400, 422].contains(&refused.status), "{body}: {}", refused.text());
        let told = refused.json()["error"].clone();
        let named = told["param"].as_str().unwrap_or_default();
        assert!(named.starts_with(param), "{body}: {told}");
    }
    let listed = scene
        .client
        .with_key(OPERATOR_KEY)
        .get("/api/v1/tenant/api-keys")
        .await
        .json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(4), "{listed}");
    scene.finish().await;
}
