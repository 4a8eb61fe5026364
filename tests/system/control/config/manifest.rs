//! A distribution's manifest at the start of a node.

use harness::Node;
use serde_json::{Value, json};

use super::*;

/// A directory with a manifest and models of one name, and the node that is started with it.
fn place(upstream: &Upstream, digest: Option<&str>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let models = models_file(&[Model::new("of-manifest").leg(upstream, 0)]);
    let digests = digest.map(|digest| format!("digests: {{ models: \"{digest}\" }}\n"));
    let manifest = format!(
        "schema_version: 1\npaths: {{ models: models.yaml }}\n{}",
        digests.unwrap_or_default()
    );
    std::fs::write(directory.path().join("models.yaml"), models).expect("written");
    std::fs::write(directory.path().join("manifest.yaml"), manifest).expect("written");
    directory
}

async fn started(directory: &tempfile::TempDir, mode: &str, models: &str) -> (Node, Client) {
    let manifest = directory.path().join("manifest.yaml").display().to_string();
    let node = Node::builder()
        .models_yaml(models)
        .env("DISTRIBUTION_CONFIG_PATH", &manifest)
        .env("DISTRIBUTION_CONFIG_MODE", mode)
        .start()
        .await;
    let operator = node.client(OPERATOR_KEY);
    (node, operator)
}

async fn listed(client: &Client) -> Vec<String> {
    let list = client.get("/v1/models").await.json();
    let data = list["data"].as_array().expect("a list").iter();
    data.map(|model| model["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn an_active_manifest_is_served_and_one_that_cannot_be_used_serves_nothing() {
    let upstream = Upstream::start();

    let good = place(&upstream, None);
    let (mut node, operator) = started(&good, "active", "").await;
    assert_eq!(listed(&operator).await, ["of-manifest"]);
    assert_eq!(
        of(&operator.get(PROBLEMS).await.json(), "error"),
        [] as [Value; 0]
    );
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));

    let bad = place(&upstream, Some(&"0".repeat(64)));
    let (mut node, operator) = started(&bad, "active", "").await;
    assert_eq!(listed(&operator).await, [] as [String; 0]);
    node.wait_log("CRITICAL").await;
    let errors = of(&operator.get(PROBLEMS).await.json(), "error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        (&errors[0]["key"], &errors[0]["line"]),
        (&json!("digests.models"), &json!(3))
    );
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_dark_manifest_is_compared_and_not_served() {
    let upstream = Upstream::start();
    let directory = place(&upstream, None);
    let served = models_file(&[Model::new("of-file").leg(&upstream, 0)]);

    let (mut node, operator) = started(&directory, "dark", &served).await;

    assert_eq!(listed(&operator).await, ["of-file"]);
    let line = node
        .wait_log("[distribution dark mode] models config stays")
        .await;
    assert!(line.contains("DIFFERENT"), "{line}");
    std::fs::write(directory.path().join("models.yaml"), "models: [").expect("written");
    let told = until_shown(&operator, PROBLEMS, |told| !of(told, "warning").is_empty()).await;
    assert!(of(&told, "error").is_empty(), "{told}");
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn visitors_are_told_what_the_manifest_says_by_now() {
    let upstream = Upstream::start();
    let directory = place(&upstream, None);
    let (mut node, operator) = started(&directory, "active", "").await;
    let site = |name: &str| {
        format!(
            "schema_version: 1\ndistribution: {{ display_name: {name} }}\npaths: {{ models: models.yaml }}\n\
             site: {{ support_email: help@{name}.example }}\nfeatures: {{ routers: [{name}] }}\n"
        )
    };
    let told = |site: &Value| {
        let texts =
            ["site_name", "support_email"].map(|name| site[name].as_str().unwrap_or_default().to_owned());
        (texts, site["features"]["routers"].clone())
    };

    for name in ["harbor", "quay"] {
        std::fs::write(directory.path().join("manifest.yaml"), site(name)).expect("written");
        let expected = ([name.to_owned(), format!("help@{name}.example")], json!([name]));
        until_shown(&operator, "/site-config", |site| told(site) == expected).await;
    }
    // What is wrong changes nothing.
    std::fs::write(directory.path().join("manifest.yaml"), "schema_version: 7\n").expect("written");
    until_shown(&operator, PROBLEMS, |problems| !of(problems, "error").is_empty()).await;
    let site = operator.get("/site-config").await.json();
    assert_eq!(site["site_name"], "quay");
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}
