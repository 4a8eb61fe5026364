//! What files changed is kept, compared and put back; the catalogue goes out and in as a document.

use super::*;

/// Puts other models in force.
async fn change(scene: &Scene, models: &[Model]) {
    scene.node.write_models(models);
    let (code, output) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(0), "{output}");
}

async fn newest(operator: &Client) -> Value {
    let history = done(operator, "GET", "/admin/config/history?limit=1", Value::Null).await;
    history["data"][0].clone()
}

async fn rolled_back(operator: &Client, to: u64) -> Value {
    done(operator, "POST", "/admin/config/rollback", json!({"to": to})).await
}

#[tokio::test]
async fn what_files_changed_is_compared_and_put_back_until_a_file_changes_again() {
    let (mut scene, operator) = scene().await;
    let first = newest(&operator).await["number"].as_u64().expect("a number");
    let url = scene.o1.url();
    let of = |id: &str| Model::new(id).leg_at(&url, 0);
    let models = [of("m").set("context_length", 4_096), of("n")];
    change(&scene, &models).await;
    let second = newest(&operator).await;
    let number = second["number"].as_u64().expect("a number");
    assert_eq!((number, &second["cause"]["kind"]), (first + 1, &json!("reload")));

    let diff = format!("/admin/config/diff?from={first}&to={number}");
    let diff = done(&operator, "GET", &diff, Value::Null).await;
    let of_model = |id: &str| {
        let changes = diff["changes"].as_array().expect("changes").iter();
        let mut found = changes.filter(|change| change["kind"] == "model" && change["id"] == id);
        found.next().cloned().expect("a change of the model")
    };
    assert_eq!(of_model("m")["to"]["context_length"], 4_096);
    assert_eq!(of_model("n")["from"], Value::Null);

    let done_back = rolled_back(&operator, first).await;
    assert!(
        done_back["changed"].as_u64().is_some_and(|changed| changed >= 2),
        "{done_back}"
    );
    assert!(
        done_back["notice"]
            .as_str()
            .is_some_and(|told| told.contains("next change"))
    );
    until(&scene.client, 200).await;
    assert_eq!(scene.client.post_chat(&chat("n")).await.status, 404);
    assert_eq!(
        rolled_back(&operator, first).await["changed"],
        0,
        "it is there already"
    );
    let audited = super::super::audited(&scene, 1).await;
    assert_eq!(audited[0]["kind"], "configuration");

    scene.restart().await;
    scene.pin();
    let operator = super::super::operator(&scene);
    assert_eq!(
        scene.client.post_chat(&chat("n")).await.status,
        404,
        "a start overrules nothing"
    );
    change(&scene, &[of("m"), of("n"), of("o")]).await;
    assert_eq!(scene.client.post_chat(&chat("n")).await.status, 200);
    assert_eq!(newest(&operator).await["cause"]["kind"], "reload");
    scene.finish().await;
}

#[tokio::test]
async fn a_rollback_leaves_keys_and_what_was_changed_at_run_time() {
    let (scene, operator) = scene().await;
    let first = newest(&operator).await["number"].as_u64().expect("a number");
    let mut settings: Value = serde_json::from_str(&read(&scene, "waybill.yaml")).expect("JSON");
    settings["tenants"] =
        json!([{"id": "acme", "limits": {"rpm": 5}}, {"id": "zenith", "limits": {"rpm": 6}}]);
    settings["keys"]
        .as_array_mut()
        .expect("keys")
        .retain(|key| key["name"] != "other");
    write(&scene, "waybill.yaml", &settings.to_string());
    until(&scene.client.with_key(harness::OTHER_KEY), 401).await;
    done(
        &operator,
        "PATCH",
        "/api/v1/tenants/acme",
        json!({"limits": {"rpm": 9}}),
    )
    .await;

    let back = rolled_back(&operator, first).await;

    let left = back["left"].as_array().expect("a list");
    let left = |kind: &str| left.iter().any(|left| left["kind"] == kind);
    assert!(left("key") && left("tenant"), "{back}");
    let tenant = async |id: &str| done(&operator, "GET", &format!("/api/v1/tenants/{id}"), Value::Null).await;
    assert_eq!(tenant("acme").await["limits"]["rpm"], 9);
    assert_eq!(tenant("zenith").await["limits"], json!({}));
    assert_eq!(
        until(&scene.client.with_key(harness::OTHER_KEY), 401)
            .await
            .as_secs(),
        0
    );
    refused(
        &operator,
        ("POST", "/admin/config/rollback"),
        json!({"to": 999}),
        (404, "not_found", ""),
    )
    .await;
    scene.finish().await;
}

#[tokio::test]
async fn commands_show_compare_and_put_back_and_carry_a_catalogue_to_another_node() {
    let (scene, operator) = scene().await;
    let run = async |scene: &Scene, typed: &str| {
        let args: Vec<&str> = typed.split_whitespace().collect();
        let (code, output) = scene.node.command(&args).await;
        assert_eq!(code, Some(0), "{typed}: {output}");
        output
    };
    let first = newest(&operator).await["number"].as_u64().expect("a number");
    change(&scene, &[Model::new("m").leg(&scene.o2, 0)]).await;
    assert!(run(&scene, "config history").await.contains("reload"));
    let diff = run(&scene, &format!("config diff {first} {}", first + 1)).await;
    assert!(diff.contains("model") && diff.contains("changed"), "{diff}");
    assert!(
        run(&scene, &format!("config rollback {first}"))
            .await
            .contains("put back")
    );
    assert!(run(&scene, "config show").await.contains("NODE"));
    let shown: Value = serde_json::from_str(&run(&scene, "config problems --json").await).expect("JSON");
    assert!(shown.is_array());

    super::super::tenant(&scene, "nova").await;
    let member = json!({"tenant": "nova", "id": "ann", "limits": {"rpm": 5}});
    done(&operator, "POST", "/api/v1/users", member).await;
    let exported = run(&scene, "export").await;
    assert!(
        exported.contains("tenant.nova") && !exported.contains("sk-"),
        "{exported}"
    );
    assert!(!exported.contains("\nkey."), "{exported}");
    let (other, operator) = super::scene().await;
    write(&other, "catalogue.yaml", &exported);
    let told = run(&other, "import catalogue.yaml").await;
    assert!(told.starts_with("2 made, 0 changed"), "{told}");
    assert!(told.contains("it comes from a file"), "{told}");
    let ann = done(&operator, "GET", "/api/v1/users/ann?tenant=nova", Value::Null).await;
    assert_eq!(ann["limits"]["rpm"], 5);
    assert!(
        run(&other, "import catalogue.yaml")
            .await
            .starts_with("0 made, 0 changed, 2 as they were")
    );
    scene.finish().await;
    other.finish().await;
}
