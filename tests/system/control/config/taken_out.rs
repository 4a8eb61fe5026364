//! Two nodes with the same files: a whole section that is taken out of them is gone from the catalogue, as the last of
//! its entries would be. These tests are clusters wherever they run.

use harness::{Node, Plan};

use super::*;
use crate::control::SPREAD_MAX;

/// waybill.yaml of both gateways with another set of sections; `change` makes it of the harness's own.
fn rewrite(scene: &mut Scene, change: impl Fn(&mut Value)) {
    let mut settings: Value = serde_json::from_str(&read(scene, "waybill.yaml")).expect("JSON");
    change(&mut settings);
    write(scene, "waybill.yaml", &settings.to_string());
    let b = scene
        .cluster()
        .node("b")
        .data_dir()
        .with_file_name("waybill.yaml");
    std::fs::write(b, settings.to_string()).expect("a file written");
}

fn without(section: &'static str) -> impl Fn(&mut Value) {
    move |settings| {
        settings.as_object_mut().expect("an object").remove(section);
    }
}

/// Ends both gateways and starts them again.
async fn restart_both(scene: &mut Scene) {
    assert_eq!(scene.node.stop().await, Some(0));
    assert_eq!(scene.cluster().node("b").stop().await, Some(0));
    scene.node.restart().await;
    scene.cluster().node("b").restart().await;
    scene.turn_client();
}

/// A caller of each gateway.
fn both(scene: &mut Scene, key: &str) -> [Client; 2] {
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let client = scene.client.with_key(key);
    [client.at(a), client.at(b)]
}

async fn answered(scene: &mut Scene, key: &str, status: u16) {
    for client in both(scene, key) {
        let took = until(&client, status).await;
        assert!(took < SPREAD_MAX + SPREAD_MAX, "{status} after {took:?}");
    }
}

async fn listed(client: &Client) -> Vec<String> {
    let list = client.get("/v1/models").await.json();
    let data = list["data"].as_array().expect("a list").iter();
    data.map(|model| model["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn keys_of_a_section_that_was_taken_out_are_revoked_while_nodes_run_and_when_they_start() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let keys = {
        let settings: Value = serde_json::from_str(&read(&scene, "waybill.yaml")).expect("JSON");
        settings["keys"].clone()
    };
    answered(&mut scene, CALLER_KEY, 200).await;

    rewrite(&mut scene, without("keys"));
    answered(&mut scene, CALLER_KEY, 401).await;
    answered(&mut scene, OPERATOR_KEY, 401).await;
    rewrite(&mut scene, |settings| settings["keys"] = keys.clone());
    answered(&mut scene, CALLER_KEY, 200).await;

    // Nobody looks at files while they change.
    scene.node.signal("STOP").await;
    scene.cluster().node("b").signal("STOP").await;
    rewrite(&mut scene, without("keys"));
    scene.node.kill().await;
    scene.cluster().node("b").kill().await;
    scene.node.restart().await;
    scene.cluster().node("b").restart().await;
    scene.turn_client();
    answered(&mut scene, CALLER_KEY, 401).await;
    rewrite(&mut scene, |settings| settings["keys"] = keys.clone());
    answered(&mut scene, CALLER_KEY, 200).await;
    scene.finish().await;
}

#[tokio::test]
async fn what_roles_allow_and_models_go_with_what_named_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("models.yaml");
    let upstreams = (Upstream::start(), Upstream::start());
    let models = models_file(&[Model::new("m").leg(&upstreams.0, 0)]);
    std::fs::write(&path, models).expect("written");
    let limited = json!({ "free": { "rpm": 1 } });
    let mut scene = Scene::start_cluster_on(Plan::default(), upstreams, |node| {
        node.models_yaml("")
            .setting("models_path", path.display().to_string())
            .setting("role_limits", limited)
    })
    .await;
    answered(&mut scene, CALLER_KEY, 429).await;

    rewrite(&mut scene, without("role_limits"));
    answered(&mut scene, CALLER_KEY, 200).await;
    for client in both(&mut scene, OPERATOR_KEY) {
        assert_eq!(listed(&client).await, ["m"]);
    }

    rewrite(&mut scene, without("models_path"));
    for client in both(&mut scene, CALLER_KEY) {
        until(&client, 404).await;
    }
    restart_both(&mut scene).await;
    for client in both(&mut scene, OPERATOR_KEY) {
        assert_eq!(listed(&client).await, [] as [String; 0]);
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_gateway_whose_files_never_had_a_section_leaves_it_alone_and_says_so() {
    let mut scene = Scene::start_cluster(Plan::default(), |node| node).await;
    let bare = Node::builder()
        .models_yaml("")
        .waybill_yaml("health: { engines: false }\n");
    let bare = scene
        .cluster()
        .services
        .node(&bare, "c", "gateway,router")
        .start()
        .await;

    answered(&mut scene, CALLER_KEY, 200).await;
    let operator = scene.client.with_key(OPERATOR_KEY).at(bare.addr());
    let told = operator.get(PROBLEMS).await.json();
    let warned = of(&told, "warning");
    let keys = warned.iter().find(|problem| problem["key"] == "keys");
    let remedy = keys.and_then(|problem| problem["remedy"].as_str());
    assert!(
        remedy.is_some_and(|remedy| remedy.contains("`keys: []`")),
        "{told}"
    );
    scene.cluster().nodes.push(bare);
    assert_eq!(scene.cluster().node("c").stop().await, Some(0));
    scene.cluster().node("c").restart().await;
    answered(&mut scene, CALLER_KEY, 200).await;
    scene.finish().await;
}

#[tokio::test]
async fn a_manifest_that_cannot_be_used_when_nodes_start_serves_no_models_in_a_cluster_either() {
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = directory.path().join("manifest.yaml");
    let upstreams = (Upstream::start(), Upstream::start());
    let models = models_file(&[Model::new("m").leg(&upstreams.0, 0)]);
    std::fs::write(directory.path().join("models.yaml"), models).expect("written");
    let right = "schema_version: 1\npaths: { models: models.yaml }\n";
    std::fs::write(&manifest, right).expect("written");
    let path = manifest.display().to_string();
    let mut scene = Scene::start_cluster_on(Plan::default(), upstreams, |node| {
        node.models_yaml("")
            .env("DISTRIBUTION_CONFIG_PATH", &path)
            .env("DISTRIBUTION_CONFIG_MODE", "active")
    })
    .await;
    answered(&mut scene, CALLER_KEY, 200).await;

    let wrong = format!("{right}digests: {{ models: \"{}\" }}\n", "0".repeat(64));
    std::fs::write(&manifest, wrong).expect("written");
    restart_both(&mut scene).await;

    for client in both(&mut scene, OPERATOR_KEY) {
        assert_eq!(listed(&client).await, [] as [String; 0]);
    }
    scene.node.wait_log("CRITICAL").await;
    std::fs::write(&manifest, right).expect("written");
    answered(&mut scene, CALLER_KEY, 200).await;
    scene.finish().await;
}
