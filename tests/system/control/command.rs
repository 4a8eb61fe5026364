//! `waybill tenants` and `waybill users`: what can be typed, what is printed for people and for programs.

use harness::{ADMIN_KEY, OPERATOR_KEY, Scene, chat};
use serde_json::{Value, json};

use super::one_node;

/// Runs a command that is to succeed; none of its words has a blank.
pub(super) async fn run(scene: &Scene, typed: &str) -> String {
    let args: Vec<&str> = typed.split_whitespace().collect();
    let (code, output) = scene.node.command(&args).await;
    assert_eq!(code, Some(0), "{typed}: {output}");
    output
}

/// The same with `--json`.
pub(super) async fn told(scene: &Scene, typed: &str) -> Value {
    let output = run(scene, &format!("{typed} --json")).await;
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{typed}: {error} in {output}"))
}

#[tokio::test]
async fn tenants_are_made_bounded_disabled_and_listed() {
    let scene = one_node().await;

    let made = run(
        &scene,
        "tenants create nova --name Nova --limit rpm=60 --limit monthly_usd=500",
    )
    .await;
    assert_eq!(
        made,
        "ID    NAME  STATE   LIMITS\nnova  Nova  active  monthly_usd=500.000000000 rpm=60\n"
    );
    let set = told(
        &scene,
        "tenants set nova --limit rpm= --limit concurrency=2 --name Novae",
    )
    .await;
    let limits = json!({"concurrency": 2, "monthly_usd": "500.000000000"});
    assert_eq!((&set["name"], &set["limits"]), (&json!("Novae"), &limits));
    assert_eq!(told(&scene, "tenants disable nova").await["disabled"], true);
    assert_eq!(told(&scene, "tenants show nova").await["disabled"], true);

    let listed = run(&scene, "tenants list").await;
    let cells = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let states: Vec<Vec<String>> = listed.lines().skip(1).map(cells).collect();
    let nova = "nova Novae disabled concurrency=2 monthly_usd=500.000000000";
    let expected = ["acme - active -", "default - active -", nova, "zenith - active -"];
    assert_eq!(states, expected.map(cells));
    assert_eq!(told(&scene, "tenants list").await[2]["id"], "nova");
    assert_eq!(told(&scene, "tenants enable nova").await["disabled"], false);
    scene.finish().await;
}

#[tokio::test]
async fn members_are_made_bounded_disabled_and_listed() {
    let scene = one_node().await;

    let made = told(
        &scene,
        "users create --tenant acme --id a/b?c --email ann@example.com --role pro",
    )
    .await;
    assert_eq!((&made["id"], &made["role"]), (&json!("a/b?c"), &json!("pro")));
    let fresh = told(&scene, &format!("users create --key {ADMIN_KEY} --name Bob")).await;
    assert_eq!(
        (&fresh["tenant"], &fresh["role"]),
        (&json!("default"), &json!("free"))
    );
    let set = told(
        &scene,
        "users set a/b?c --tenant acme --role internal --limit daily_calls=5",
    )
    .await;
    assert_eq!(
        (&set["role"], &set["limits"], &set["email"]),
        (
            &json!("internal"),
            &json!({"daily_calls": 5}),
            &json!("ann@example.com")
        )
    );
    let reset = run(&scene, "users reset-password a/b?c --tenant acme").await;
    assert!(
        reset.starts_with("token       acme.YS9iP2M.") && reset.contains("\nexpires at  2"),
        "{reset}"
    );
    run(&scene, "users disable a/b?c --tenant acme").await;

    assert_eq!(
        run(&scene, "users list --tenant acme").await,
        "TENANT  ID     NAME  EMAIL            ROLE      STATE     LIMITS\n\
         acme    a/b?c  -     ann@example.com  internal  disabled  daily_calls=5\n"
    );
    assert_eq!(told(&scene, "users list").await.as_array().map(Vec::len), Some(2));
    let shown = told(&scene, "users show a/b?c --tenant acme").await;
    assert_eq!(shown["disabled"], true);
    let enabled = told(&scene, "users enable a/b?c --tenant acme").await;
    assert_eq!(enabled["disabled"], false);
    scene.finish().await;
}

#[tokio::test]
async fn keys_are_changed_and_limits_of_single_models_are_typed_with_the_model() {
    let scene = one_node().await;
    let set = told(&scene, "tenants set acme --limit rpm@m=60 --limit tpm=9").await;
    assert_eq!(set["limits"], json!({"tpm": 9, "per_model": {"m": {"rpm": 60}}}));
    let shown = run(&scene, "tenants set acme --limit daily_calls@m=5 --limit tpm=").await;
    assert!(shown.ends_with("  daily_calls@m=5 rpm@m=60\n"), "{shown}");
    let made = run(&scene, "keys create --name job --tenant acme --limit rpm@m=3").await;
    let id = made.split_whitespace().nth(1).expect("an id").to_owned();

    let set = told(
        &scene,
        "keys set job --name night --models m --expires-at 2099-01-01T00:00:00Z --limit rpm=7 --output-default-max 5",
    )
    .await;

    assert_eq!(
        (&set["id"], &set["name"], &set["models"]),
        (&json!(id), &json!("night"), &json!(["m"]))
    );
    assert_eq!(set["limits"], json!({"rpm": 7, "per_model": {"m": {"rpm": 3}}}));
    assert_eq!(set["expires_at"], "2099-01-01T00:00:00.000000Z");
    assert_eq!(set["output_default_max"], 5);
    let free = format!("keys set {id} --all-models --expires-at never --limit rpm@m= --output-default-max 0");
    let set = told(&scene, &free).await;
    assert_eq!(
        (&set["models"], &set["expires_at"], &set["output_default_max"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(set["limits"], json!({"rpm": 7}));
    let listed = told(&scene, "keys list").await;
    let names = listed.as_array().expect("a list").iter().map(|key| &key["name"]);
    assert!(names.into_iter().any(|name| name == "night"), "{listed}");
    scene.finish().await;
}

#[tokio::test]
async fn grants_are_handed_out_listed_and_revoked_with_the_token_for_it() {
    const TOKEN: &str = "the token of whoever hands out";
    let mut scene = Scene::start_with(|node| node.env("GATEWAY_GRANT_DISPATCH_TOKEN", TOKEN)).await;
    scene.pin();
    run(&scene, "users create --tenant acme --id bob").await;

    let made = run(
        &scene,
        "grants create bob --tenant acme --job j-1 --minutes 5 --models m",
    )
    .await;
    let words: Vec<&str> = made.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("id", "token"), "{made}");
    assert!(words[3].starts_with("agr-"), "{made}");
    let listed = told(&scene, "grants list --tenant acme").await;
    assert_eq!(
        (&listed[0]["id"], &listed[0]["allowed_models"]),
        (&json!(words[1]), &json!(["m"]))
    );
    assert!(!listed.to_string().contains(words[3]), "a token is shown once");
    let (granted, own) = (scene.client.with_key(words[3]), &scene.client);
    let answer = granted.post_chat(&chat("m")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let other = own.post_chat(&chat("m")).await;
    let row = scene.row(answer.request_id()).await;
    assert_eq!(
        (&row["job_id"], &row["user"]),
        (&json!("j-1"), &json!("bob")),
        "{row}"
    );
    assert_eq!(scene.row(other.request_id()).await.get("job_id"), None);
    let found = scene.node.wait_rows("job=j-1", 1).await;
    assert_eq!((found.len(), &found[0]["request_id"]), (1, &row["request_id"]));
    assert!(scene.node.logs_api("job=j-2").await.is_empty());
    let jobs = scene.node.books().table("api_logs_compat").await;
    let jobs: Vec<Option<String>> = jobs.into_iter().map(|row| row["agent_job_id"].clone()).collect();
    assert_eq!(jobs.iter().flatten().collect::<Vec<_>>(), ["j-1"], "{jobs:?}");
    let revoked = run(&scene, &format!("grants revoke {}", words[1])).await;
    assert!(revoked.contains("revoked"), "{revoked}");
    let (code, output) = scene
        .node
        .command(&["grants", "list", "--key", OPERATOR_KEY])
        .await;
    assert_eq!(code, Some(64), "an operator's key hands out none: {output}");
    scene.finish().await;
}

#[tokio::test]
async fn a_credential_that_has_ended_is_not_called_active_and_a_refusal_names_the_field() {
    const TOKEN: &str = "the token of whoever hands out";
    let mut scene = Scene::start_with(|node| node.env("GATEWAY_GRANT_DISPATCH_TOKEN", TOKEN)).await;
    scene.pin();
    run(
        &scene,
        "keys create --name over --tenant acme --expires-at 2020-01-01T00:00:00Z",
    )
    .await;
    run(
        &scene,
        "keys create --name coming --tenant acme --expires-at 2099-01-01T00:00:00Z",
    )
    .await;

    let listed = run(&scene, "keys list").await;

    let state = |name: &str| {
        let lines = listed
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.into_iter().find(|cells| cells.get(1) == Some(&name));
        line.and_then(|cells| cells.get(5).map(|state| (*state).to_owned()))
    };
    assert_eq!(
        [state("over"), state("coming"), state("caller")],
        ["expired", "active", "active"].map(|word| Some(word.to_owned())),
        "{listed}"
    );
    let set = run(&scene, "keys set over --limit rpm=3").await;
    assert!(set.contains("  expired  2020-01-01T00:00:00.000000Z  "), "{set}");
    for (typed, param) in [
        ("users create --email ann", "email"),
        ("users create --role wizard", "role"),
        ("tenants create Nova", "id"),
        (
            "endpoints create box --url http://127.0.0.1:1 --kind none",
            "kind",
        ),
        ("routes create m --endpoint nowhere", "endpoint"),
        ("grants create nobody --tenant acme --job j --minutes 5", "user"),
    ] {
        let args: Vec<&str> = typed.split_whitespace().collect();
        let (code, output) = scene.node.command(&args).await;
        assert_eq!(code, Some(64), "{typed}: {output}");
        assert!(output.contains(&format!("(param: {param})")), "{typed}: {output}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_endpoint_a_route_and_a_price_are_shown_by_their_ids() {
    let scene = one_node().await;
    let made = [
        (
            "endpoints",
            "endpoints create box --url http://127.0.0.1:1 --kind vllm --model own",
        ),
        ("routes", "routes create own --endpoint box"),
        ("prices", "prices create own --usd prompt=1"),
    ];

    for (kind, typed) in made {
        let made = told(&scene, typed).await;
        let shown = told(
            &scene,
            &format!("{kind} show {}", made["id"].as_str().expect("an id")),
        )
        .await;
        assert_eq!(
            (&shown["id"], &shown["created_at"]),
            (&made["id"], &made["created_at"])
        );
        let (code, output) = scene.node.command(&[kind, "show", "nothing"]).await;
        assert_eq!(
            (code, output.contains("no such")),
            (Some(64), true),
            "{kind}: {output}"
        );
    }
    let table = run(&scene, "endpoints list").await;
    let id = table
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next());
    let shown = run(&scene, &format!("endpoints show {}", id.expect("an id"))).await;
    assert_eq!(shown.lines().count(), 2, "{shown}");
    scene.finish().await;
}

#[tokio::test]
async fn the_changes_of_a_record_are_told_the_newest_first() {
    let scene = one_node().await;
    run(&scene, "tenants set acme --name Acme").await;
    run(&scene, "tenants disable acme").await;
    run(&scene, "users create --id ann").await;

    let history = run(&scene, "tenants history acme").await;
    let lines: Vec<&str> = history.lines().collect();
    assert_eq!(lines.len(), 3, "{history}");
    assert!(lines[1].contains("operator"), "{history}");
    assert!(lines[1].ends_with("disabled: false -> true"), "{history}");
    assert!(lines[2].contains("name: null -> \"Acme\""), "{history}");
    let changes = told(&scene, "tenants history acme").await;
    assert_eq!(
        changes[1]["fields"]["origin"],
        json!({"from": "file", "to": "runtime"})
    );
    assert_eq!(run(&scene, "users history ann").await.lines().count(), 2);
    scene.finish().await;
}

#[tokio::test]
async fn what_is_typed_wrongly_or_is_not_allowed_says_so_and_without_a_node_there_is_nobody_to_ask() {
    let mut scene = one_node().await;

    let as_admin = format!("tenants list --key {ADMIN_KEY}");
    for (typed, words) in [
        ("tenants create Nova", "lower-case"),
        ("tenants create nova --limit rpm", "KEY=AMOUNT"),
        ("tenants create acme", "already"),
        ("tenants show nobody", "no such"),
        (&*as_admin, "operator"),
        ("tenants disable default", "never disabled"),
        ("users create --email ann", "address"),
        ("users create --role wizard", "description"),
        ("users show nobody --tenant acme", "no such"),
    ] {
        let args: Vec<&str> = typed.split_whitespace().collect();
        let (code, output) = scene.node.command(&args).await;
        assert_eq!(code, Some(64), "{typed}: {output}");
        assert!(output.contains(words), "{typed}: {output}");
    }

    assert_eq!(scene.node.stop().await, Some(0));
    for kind in ["tenants", "users"] {
        let (code, output) = scene.node.command(&[kind, "list", "--key", OPERATOR_KEY]).await;
        assert_eq!(code, Some(69), "{output}");
        assert!(output.contains("no node runs"), "{output}");
    }
    scene.restart().await;
    scene.finish().await;
}
