//! A cluster by configuration: what is refused and with which words, and the commands of a cluster where one node is
//! alone. Nothing here needs a server.

use harness::{CALLER_KEY, Node, OPERATOR_KEY, chat};

/// Bad usage or configuration.
const USAGE: Option<i32> = Some(64);
/// A needed service is not there.
const UNAVAILABLE: Option<i32> = Some(69);
/// Understood and refused for safety.
const REFUSED: Option<i32> = Some(78);

const SECRET: &str = "harness-canary-shared-secret-77e1";
/// An address where nobody listens.
const NOBODY: &str = "nats://127.0.0.1:1";

fn plain() -> harness::NodeBuilder {
    Node::builder()
        .waybill_yaml("cluster: a\n")
        .models_yaml("models: []\n")
}

/// Variables, exit code, and the place that is told.
type Mistake = (&'static [(&'static str, &'static str)], Option<i32>, &'static str);

const MISTAKES: [Mistake; 11] = [
    (
        &[("WAYBILL_ROLES", "gateway,router")],
        REFUSED,
        "environment: WAYBILL_ROLES",
    ),
    (&[("NATS_URL", NOBODY)], REFUSED, "store.kind"),
    (
        &[("NATS_URL", NOBODY), ("WAYBILL_ROLES", "ledger")],
        REFUSED,
        "store.kind",
    ),
    (
        &[("NATS_URL", NOBODY), ("WAYBILL_ROLES", "gateway")],
        REFUSED,
        "environment: API_KEY_SECRET",
    ),
    (
        &[
            ("NATS_URL", NOBODY),
            ("WAYBILL_ROLES", "gateway"),
            ("API_KEY_SECRET", "short"),
        ],
        REFUSED,
        "environment: API_KEY_SECRET",
    ),
    (
        &[
            ("NATS_URL", NOBODY),
            ("WAYBILL_ROLES", "gateway,router"),
            ("API_KEY_SECRET", SECRET),
            ("JWT_SECRET_KEY", SECRET),
            (
                "WAYBILL_PUBLIC_KEY",
                "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
            ),
        ],
        REFUSED,
        "environment: WAYBILL_MASTER_KEY",
    ),
    (
        &[
            ("NATS_URL", NOBODY),
            ("WAYBILL_ROLES", "gateway"),
            ("API_KEY_SECRET", SECRET),
            ("JWT_SECRET_KEY", ""),
        ],
        REFUSED,
        "environment: JWT_SECRET_KEY",
    ),
    (&[("NATS_URL", "http://h")], USAGE, "environment: NATS_URL"),
    (
        &[("DATABASE_URL", "mysql://h/d")],
        USAGE,
        "environment: DATABASE_URL",
    ),
    (&[("WAYBILL_POOL", "a.b")], USAGE, "environment: WAYBILL_POOL"),
    (
        &[("NATS_URL", NOBODY), ("NATS_CREDS", "nowhere.creds")],
        USAGE,
        "cannot read nowhere.creds",
    ),
];

#[tokio::test]
async fn what_no_cluster_can_run_on_is_refused_with_its_place_and_a_remedy() {
    for (variables, code, place) in MISTAKES {
        let mut builder = plain();
        for (name, value) in variables {
            builder = builder.env(name, value);
        }
        let (ended, output) = builder.run(&["check-config"]).await;
        assert_eq!(ended, code, "{variables:?}: {output}");
        assert!(
            output.contains(place) && output.contains("; "),
            "{variables:?}: {output}"
        );
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_explained_without_its_passwords() {
    let builder = plain()
        .env(
            "NATS_URL",
            "nats://gateway:hush-1@bus-1:4222,nats://bus-2:4222,nats://bus-3:4222",
        )
        .env("DATABASE_URL", "postgres://ledger:hush-2@books/waybill")
        .env("API_KEY_SECRET", SECRET);

    let (code, output) = builder.run(&["check-config", "--pool", "private"]).await;

    assert_eq!(code, Some(0), "{output}");
    let line = "roles gateway,router,health,ledger pool private bus nats \
                nats://bus-1:4222,nats://bus-2:4222,nats://bus-3:4222 replicas 3 store postgres postgres://books/waybill";
    assert!(output.contains(line), "{output}");
    assert!(!output.contains("hush") && !output.contains(SECRET), "{output}");
}

#[tokio::test]
async fn the_example_of_a_cluster_is_a_good_configuration() {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/config");
    let path = |name: &str| root.join(name).display().to_string();
    let builder = Node::builder()
        .without_config()
        .env("WAYBILL_CONFIG", &path("cluster.yaml"))
        .env("MODELS_CONFIG_PATH", &path("models.openrouter.yaml"))
        .env("OPENROUTER_API_KEY", harness::PROVIDER_KEY)
        .env("WB_ADMIN_KEY", OPERATOR_KEY)
        .env("API_KEY_SECRET", SECRET);

    let (code, output) = builder.run(&["check-config"]).await;

    assert_eq!(
        (code, output.contains("no problems")),
        (Some(0), true),
        "{output}"
    );
}

#[tokio::test]
async fn a_bad_cluster_stops_the_start_too() {
    let (code, lines) = plain().arg("--roles").arg("gateway").start_refused().await;

    let output = lines.join("\n");
    assert_eq!(code, REFUSED, "{output}");
    assert!(output.contains("command line: --roles"), "{output}");
}

#[tokio::test]
async fn a_command_says_that_the_bus_is_away() {
    let builder = plain().env("NATS_URL", NOBODY).env("API_KEY_SECRET", SECRET);

    let (code, output) = builder.run(&["keys", "list"]).await;

    assert_eq!(code, UNAVAILABLE, "{output}");
    assert!(output.contains("127.0.0.1:1"), "{output}");
}

#[tokio::test]
async fn commands_of_a_cluster_say_what_they_mean_to_a_node_alone() {
    let (code, output) = plain().run(&["migrate"]).await;
    assert_eq!(
        (code, output.contains("nothing to do")),
        (Some(0), true),
        "{output}"
    );
    for args in [&["node", "list"][..], &["node", "forget", "n"]] {
        let (code, output) = plain().run(args).await;
        assert_eq!((code, output.contains("--nats-url")), (USAGE, true), "{output}");
    }
    let (code, output) = plain().run(&["drain"]).await;
    assert_eq!(
        (code, output.contains("nothing to drain")),
        (Some(0), true),
        "{output}"
    );
    let (code, output) = plain().run(&["replay", "--spool", "nowhere"]).await;
    assert_eq!((code, output.contains("spool.id")), (USAGE, true), "{output}");
    let (code, output) = plain().run(&["replay", "--spool", "x", "--rebuild"]).await;
    assert_eq!(code, USAGE, "{output}");
}

#[tokio::test]
async fn a_node_alone_is_listed_by_itself() {
    let mut node = echo().await;

    let (code, output) = node.command(&["node", "list"]).await;

    assert_eq!(code, Some(0), "{output}");
    let lines: Vec<Vec<&str>> = output
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NODE", "ROLES", "POOL", "STATE", "ADDRESS", "VERSION"],
        "{output}"
    );
    assert_eq!(lines.len(), 2, "{output}");
    assert_eq!(
        lines[1][1..5],
        [
            "gateway,router,health,ledger",
            "default",
            "alive",
            &node.addr().to_string()
        ],
        "{output}"
    );
    node.check_books().await;
}

/// A node with one model that needs no upstream.
async fn echo() -> Node {
    Node::builder().setting("demo", true).models(&[]).start().await
}

#[tokio::test]
async fn a_node_that_is_asked_to_drain_ends_with_an_empty_spool() {
    let mut node = echo().await;
    let answer = node.client(CALLER_KEY).post_chat(&chat("echo")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let (code, output) = node.command(&["drain"]).await;

    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("the books have every event"), "{output}");
    assert_eq!(node.ended().await, Some(0));
    assert!(node.logs().iter().any(|line| line.contains("the spool is empty")));
    node.check_books().await;
    let (again, output) = node.command(&["drain"]).await;
    assert_eq!(
        (again, output.contains("every event")),
        (Some(0), true),
        "{output}"
    );
}

#[tokio::test]
async fn a_rescued_spool_is_published_into_the_books_of_another_node() {
    let mut lost = echo().await;
    let answer = lost.client(CALLER_KEY).post_chat(&chat("echo")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let spool = lost.data_dir().join("spool").display().to_string();
    let mut other = echo().await;

    let (held, told) = other.command(&["replay", "--spool", &spool]).await;
    assert_eq!((held, told.contains("stop it first")), (USAGE, true), "{told}");
    assert_eq!(other.stop().await, Some(0));
    let (held, told) = other.command(&["replay", "--spool", &spool]).await;
    assert_eq!((held, told.contains("in use")), (UNAVAILABLE, true), "{told}");
    lost.kill().await;
    let (code, output) = other.command(&["replay", "--spool", &spool]).await;
    assert_eq!(code, Some(0), "{output}");

    other.restart().await;
    let logs = other.client(OPERATOR_KEY).get("/api/v1/logs").await.json();
    let row = &logs["data"][0];
    assert_eq!(row["outcome"], "ok");
    assert!(
        row["source"]
            .as_str()
            .is_some_and(|source| source.starts_with("/waybill/local/")),
        "{row}"
    );
    other.answers_for(lost);
    other.check_books().await;
}
