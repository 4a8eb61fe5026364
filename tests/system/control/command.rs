//! `waybill tenants` and `waybill users`: what can be typed, what is printed for people and for programs.

use harness::{ADMIN_KEY, OPERATOR_KEY, Scene};
use serde_json::{Value, json};

/// Runs a command that is to succeed.
async fn run(scene: &Scene, args: &[&str]) -> String {
    let (code, output) = scene.node.command(args).await;
    assert_eq!(code, Some(0), "{args:?}: {output}");
    output
}

/// The same with `--json`.
async fn told(scene: &Scene, args: &[&str]) -> Value {
    let output = run(scene, &[args, &["--json"]].concat()).await;
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{args:?}: {error} in {output}"))
}

#[tokio::test]
async fn tenants_are_made_bounded_disabled_and_listed() {
    let scene = Scene::start().await;

    let made = run(
        &scene,
        &[
            "tenants",
            "create",
            "nova",
            "--name",
            "Nova Ltd",
            "--limit",
            "rpm=60",
            "--limit",
            "monthly_usd=500",
        ],
    )
    .await;
    assert_eq!(
        made.lines().collect::<Vec<_>>(),
        [
            "ID    NAME      STATE   LIMITS",
            "nova  Nova Ltd  active  monthly_usd=500.000000000 rpm=60",
        ]
    );
    let set = [
        "tenants",
        "set",
        "nova",
        "--limit",
        "rpm=",
        "--limit",
        "concurrency=2",
        "--name",
        "Nova",
    ];
    let set = told(&scene, &set).await;
    assert_eq!(
        (&set["name"], &set["limits"]),
        (
            &json!("Nova"),
            &json!({"concurrency": 2, "monthly_usd": "500.000000000"})
        )
    );
    assert_eq!(
        told(&scene, &["tenants", "disable", "nova"]).await["disabled"],
        true
    );
    assert_eq!(told(&scene, &["tenants", "show", "nova"]).await["disabled"], true);

    let listed = run(&scene, &["tenants", "list"]).await;
    let states: Vec<Vec<&str>> = listed
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        states,
        [
            vec!["acme", "-", "active", "-"],
            vec!["default", "-", "active", "-"],
            vec![
                "nova",
                "Nova",
                "disabled",
                "concurrency=2",
                "monthly_usd=500.000000000"
            ],
            vec!["zenith", "-", "active", "-"],
        ]
    );
    let as_json = told(&scene, &["tenants", "list"]).await;
    assert_eq!(as_json[2]["id"], "nova");
    assert_eq!(
        told(&scene, &["tenants", "enable", "nova"]).await["disabled"],
        false
    );
    let history = run(&scene, &["tenants", "history", "nova"]).await;
    let lines: Vec<&str> = history.lines().collect();
    assert_eq!(lines.len(), 1 + 4, "{history}");
    assert!(
        lines[1].contains("operator") && lines[1].ends_with("disabled: true -> false"),
        "{history}"
    );
    assert_eq!(
        told(&scene, &["tenants", "history", "nova"])
            .await
            .as_array()
            .map(Vec::len),
        Some(4)
    );
    scene.finish().await;
}

#[tokio::test]
async fn members_are_made_bounded_disabled_and_listed() {
    let scene = Scene::start().await;

    let made = told(
        &scene,
        &[
            "users",
            "create",
            "--tenant",
            "acme",
            "--id",
            "a/b c",
            "--email",
            "ann@example.com",
            "--role",
            "pro",
        ],
    )
    .await;
    assert_eq!((&made["id"], &made["role"]), (&json!("a/b c"), &json!("pro")));
    let fresh = told(&scene, &["users", "create", "--key", ADMIN_KEY, "--name", "Bob"]).await;
    assert_eq!(
        (&fresh["tenant"], &fresh["role"]),
        (&json!("default"), &json!("free"))
    );
    let set = [
        "users",
        "set",
        "a/b c",
        "--tenant",
        "acme",
        "--role",
        "internal",
        "--limit",
        "daily_calls=5",
    ];
    let set = told(&scene, &set).await;
    assert_eq!(
        (&set["role"], &set["limits"], &set["email"]),
        (
            &json!("internal"),
            &json!({"daily_calls": 5}),
            &json!("ann@example.com")
        )
    );
    let disabled = run(&scene, &["users", "disable", "a/b c", "--tenant", "acme"]).await;
    assert!(disabled.contains("disabled"), "{disabled}");

    let of_acme = run(&scene, &["users", "list", "--tenant", "acme"]).await;
    assert_eq!(
        of_acme.lines().collect::<Vec<_>>(),
        [
            "TENANT  ID     NAME  EMAIL            ROLE      STATE     LIMITS",
            "acme    a/b c  -     ann@example.com  internal  disabled  daily_calls=5",
        ]
    );
    assert_eq!(
        told(&scene, &["users", "list"]).await.as_array().map(Vec::len),
        Some(2)
    );
    let shown = told(&scene, &["users", "show", "a/b c", "--tenant", "acme"]).await;
    assert_eq!(shown["disabled"], true);
    assert_eq!(
        told(&scene, &["users", "enable", "a/b c", "--tenant", "acme"]).await["disabled"],
        false
    );
    let history = run(&scene, &["users", "history", "a/b c", "--tenant", "acme"]).await;
    assert_eq!(history.lines().count(), 1 + 4, "{history}");
    scene.finish().await;
}

#[tokio::test]
async fn what_is_typed_wrongly_or_is_not_allowed_says_so_and_without_a_node_there_is_nobody_to_ask() {
    let mut scene = Scene::start().await;

    for (args, words) in [
        (&["tenants", "create", "Nova"][..], "lower-case"),
        (&["tenants", "create", "nova", "--limit", "rpm"], "KEY=AMOUNT"),
        (&["tenants", "create", "acme"], "already"),
        (&["tenants", "show", "nobody"], "no such"),
        (&["tenants", "list", "--key", ADMIN_KEY], "operator"),
        (&["tenants", "disable", "default"], "never disabled"),
        (&["users", "create", "--email", "ann"], "address"),
        (&["users", "create", "--role", "wizard"], "description"),
        (&["users", "show", "nobody", "--tenant", "acme"], "no such"),
    ] {
        let (code, output) = scene.node.command(args).await;
        assert_eq!(code, Some(64), "{args:?}: {output}");
        assert!(output.contains(words), "{args:?}: {output}");
    }

    assert_eq!(scene.node.stop().await, Some(0));
    for args in [["tenants", "list"], ["users", "list"]] {
        let (code, output) = scene
            .node
            .command(&[&args[..], &["--key", OPERATOR_KEY]].concat())
            .await;
        assert_eq!(code, Some(69), "{output}");
        assert!(output.contains("no node runs"), "{output}");
    }
    scene.restart().await;
    scene.finish().await;
}
