//! Mistakes of whoever sets up a cluster, and what the program says to them: which thing to correct, with the exit code
//! of its kind.

use std::time::Duration;

use harness::{Node, NodeBuilder, Plan, Scene, Services};

/// Bad usage or configuration.
const USAGE: Option<i32> = Some(64);
/// An address where nobody listens.
const NOBODY: &str = "nats://127.0.0.1:1";
const SECRET: &str = "harness-canary-shared-secret-77e1";
/// Far less than the half minute for which a start waits for the bus.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A node without settings of its own.
fn plain() -> NodeBuilder {
    Node::builder()
        .waybill_yaml("cluster: a\n")
        .models_yaml("models: []\n")
}

#[tokio::test]
async fn a_node_that_waits_for_its_bus_ends_at_a_signal() {
    let builder = plain()
        .env("NATS_URL", NOBODY)
        .env("API_KEY_SECRET", SECRET)
        .roles("gateway,router");

    let (code, lines) = builder.start_terminated("waiting for the bus", AT_ONCE).await;

    assert_eq!(code, Some(0), "{lines:?}");
}

#[tokio::test]
async fn migrate_in_a_cluster_says_which_variable_is_missing() {
    let (code, output) = plain().env("NATS_URL", NOBODY).run(&["migrate"]).await;

    assert_eq!(
        (code, output.contains("set DATABASE_URL")),
        (USAGE, true),
        "{output}"
    );
}

#[tokio::test]
async fn a_database_that_is_not_there_for_this_user_is_a_mistake_in_its_address() {
    let services = Services::start(Plan::default()).await;
    let url = services.postgres.url();
    let (server, _) = url.rsplit_once('/').expect("a database in the address");
    let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let wrong = [
        format!("{server}/nowhere"),
        format!("postgres://nobody:hush-1@{host}/postgres"),
        "postgres://127.0.0.1:port/waybill".to_owned(),
    ];
    for url in wrong {
        let (code, output) = plain().env("DATABASE_URL", &url).run(&["migrate"]).await;
        assert_eq!(
            (code, output.contains("in DATABASE_URL or store.url")),
            (USAGE, true),
            "{url}: {output}"
        );
        assert!(!output.contains("hush-1"), "{output}");
    }
}

#[tokio::test]
async fn a_data_directory_of_nothing_is_refused() {
    for (settings, place) in [
        ("data_dir: \"${NOWHERE_AT_ALL}\"\n", "waybill.yaml:1: data_dir"),
        ("data_dir: \"\"\n", "waybill.yaml:1: data_dir"),
    ] {
        let (code, output) = plain().waybill_yaml(settings).run(&["check-config"]).await;
        assert_eq!((code, output.contains(place)), (USAGE, true), "{output}");
    }
}

#[tokio::test]
async fn places_of_the_bus_that_cannot_be_are_told_by_their_keys() {
    for (bus, place) in [
        ("inbox_prefix: \"_INBOX.>\"", "bus.inbox_prefix"),
        ("inbox_prefix: \"\"", "bus.inbox_prefix"),
        ("tls: { ca: waybill.yaml }", "bus.tls.ca"),
    ] {
        let settings = format!("bus: {{ kind: nats, url: \"{NOBODY}\", {bus} }}\n");
        let builder = plain().waybill_yaml(&settings).env("API_KEY_SECRET", SECRET);
        let (code, output) = builder.run(&["check-config", "--roles", "gateway"]).await;
        assert_eq!((code, output.contains(place)), (USAGE, true), "{output}");
    }
}

#[tokio::test]
async fn two_nodes_of_one_name_are_told_of() {
    let scene = Scene::start_cluster(Plan::default(), |node| node.setting("node_id", "twin")).await;

    scene.node.wait_log("another node has this one's name").await;

    scene.finish().await;
}
