//! Configuration: what is good is explained, what is bad stops the start with its file, key, line and a remedy.

use std::path::PathBuf;

use harness::{CALLER_KEY, Node, OPERATOR_KEY, PROVIDER_KEY, Scene};

/// Bad usage or configuration.
const USAGE: Option<i32> = Some(64);
/// A needed service is not there.
const UNAVAILABLE: Option<i32> = Some(69);
/// Understood and refused for safety.
const REFUSED: Option<i32> = Some(78);

/// Runs `check-config` on these files.
async fn check(settings: &str, models: &str) -> (Option<i32>, String) {
    let builder = Node::builder().waybill_yaml(settings).models_yaml(models);
    builder.run(&["check-config"]).await
}

/// Panics unless the report has a line that begins with `place` and goes on with a message and a remedy.
fn assert_told(output: &str, place: &str) {
    let line = output.lines().find_map(|line| line.split_once(place));
    let (_, rest) = line.unwrap_or_else(|| panic!("{place:?} is not in {output:?}"));
    let told = rest.trim_start_matches(": ").split_once("; ");
    let (message, remedy) = told.unwrap_or_else(|| panic!("no remedy in {output:?}"));
    assert!(message.len() > 5 && remedy.len() > 3, "{output:?}");
}

const KEY: &str = "keys:\n  - name: a\n    key: sk-0123456789abcdef\n";

/// Files, exit codes and the place that is told. `<key>` is an entry of a key, open at its end.
const SETTINGS_MISTAKES: [(&str, Option<i32>, &str); 36] = [
    (
        "listen: 127.0.0.1:0\nlsiten: x\n",
        USAGE,
        "waybill.yaml:2: lsiten",
    ),
    ("listen: nowhere\n", USAGE, "waybill.yaml:1: listen"),
    (
        "keys:\n  - name: a\n    key: short\n",
        USAGE,
        "waybill.yaml:3: keys[0].key",
    ),
    (
        "keys:\n  - key: sk-0123456789abcdef\n",
        USAGE,
        "waybill.yaml:2: keys[0]",
    ),
    (
        "<key>    tenant: nobody\n",
        USAGE,
        "waybill.yaml:4: keys[0].tenant",
    ),
    ("<key>    role: wizard\n", USAGE, "waybill.yaml:4: keys[0].role"),
    (
        "<key>    expires_at: tomorrow\n",
        USAGE,
        "waybill.yaml:4: keys[0].expires_at",
    ),
    ("<key>    budget: 3\n", USAGE, "waybill.yaml:4: keys[0].budget"),
    (
        "<key>  - name: b\n    key: sk-0123456789abcdef\n",
        USAGE,
        "waybill.yaml:5: keys[1].key",
    ),
    (
        "<key>    limits: { daily_usd: \"-1\" }\n",
        USAGE,
        "waybill.yaml:4: keys[0].limits.daily_usd",
    ),
    (
        "<key>    limits:\n      budgets: 3\n",
        USAGE,
        "waybill.yaml:5: keys[0].limits.budgets",
    ),
    (
        "<key>    limits: { daily_calls: many }\n",
        USAGE,
        "waybill.yaml:4: keys[0].limits.daily_calls",
    ),
    (
        "<key>    limits: { daily_usd: 0.5 }\n",
        USAGE,
        "waybill.yaml:4: keys[0].limits.daily_usd",
    ),
    (
        "<key>    limits:\n      per_model:\n        gpt-4.1: { rpm: 1.5 }\n",
        USAGE,
        "waybill.yaml:6: keys[0].limits.per_model.gpt-4.1.rpm",
    ),
    (
        "<key>    output_default_max: 10000001\n",
        USAGE,
        "waybill.yaml:4: keys[0].output_default_max",
    ),
    (
        "tenants:\n  - id: acme\n    limits: { qps: -5 }\n",
        USAGE,
        "waybill.yaml:3: tenants[0].limits.qps",
    ),
    (
        "users:\n  - id: alice\n    tenant: nobody\n",
        USAGE,
        "waybill.yaml:3: users[0].tenant",
    ),
    (
        "role_limits:\n  king: { concurrency: 3 }\n",
        USAGE,
        "waybill.yaml:2: role_limits.king",
    ),
    (
        "tenants:\n  - id: Bad Id\n",
        USAGE,
        "waybill.yaml:2: tenants[0].id",
    ),
    (
        "bus: { kind: nats, url: \"nats://h\" }\n",
        REFUSED,
        "waybill.yaml:1: store.kind",
    ),
    ("store:\n  kind: stone\n", USAGE, "waybill.yaml:2: store.kind"),
    ("roles: [gateway]\n", REFUSED, "waybill.yaml:1: roles"),
    ("roles: [wizard]\n", USAGE, "waybill.yaml:1: roles"),
    ("billing_tz: Mars\n", USAGE, "waybill.yaml:1: billing_tz"),
    (
        "spool:\n  durability: soft\n",
        USAGE,
        "waybill.yaml:2: spool.durability",
    ),
    ("cluster: \"a b\"\n", USAGE, "waybill.yaml:1: cluster"),
    (
        "spool: { bytes_max: 10 }\n",
        USAGE,
        "waybill.yaml:1: spool.bytes_max",
    ),
    ("node_id: a/b\n", USAGE, "waybill.yaml:1: node_id"),
    ("attempts_max: 0\n", USAGE, "waybill.yaml:1: attempts_max"),
    ("log_level: loud\n", USAGE, "waybill.yaml:1: log_level"),
    (
        "<key>  - name: a\n    key: sk-0123456789abcdeg\n",
        USAGE,
        "waybill.yaml:4: keys[1].name",
    ),
    (
        "keys:\n  - key: sk-0123456789abcdef\n    name: \"a\\tb\"\n",
        USAGE,
        "waybill.yaml:3: keys[0].name",
    ),
    ("attempts_max: many\n", USAGE, "waybill.yaml:1: attempts_max"),
    ("log_format: xml\n", USAGE, "waybill.yaml:1: log_format"),
    ("listen: 127.0.0.1:0\nkeys: [\n", USAGE, "waybill.yaml:"),
    ("cluster: a\ncluster: b\n", USAGE, "waybill.yaml:2"),
];

#[tokio::test]
async fn every_mistake_in_waybill_yaml_stops_the_check_with_its_place_and_a_remedy() {
    for (settings, code, place) in SETTINGS_MISTAKES {
        let settings = settings.replace("<key>", KEY);
        let (ended, output) = check(&settings, "models: []\n").await;
        assert_eq!(ended, code, "{settings}: {output}");
        assert_told(&output, place);
        assert!(!output.contains("sk-0123456789abcdef"), "{output}");
    }
}

const LEG: &str =
    "models:\n  - id: m\n    route:\n      - kind: openai_compat\n        base_url: http://h.example/v1\n";

/// Files and the place that is told. `<leg>` is a model with a leg, open at its end.
const MODELS_MISTAKES: [(&str, &str); 20] = [
    (
        "<leg>        wieght: 1\n",
        "models.yaml:6: models[0].route[0].wieght",
    ),
    (
        "<leg>        weight: -1\n",
        "models.yaml:6: models[0].route[0].weight",
    ),
    (
        "<leg>        weight: much\n",
        "models.yaml:6: models[0].route[0].weight",
    ),
    (
        "<leg>        pricing: { prompt: \"-1\" }\n",
        "models.yaml:6: models[0].route[0].pricing",
    ),
    (
        "<leg>        pricing: { promt: \"1\" }\n",
        "models.yaml:6: models[0].route[0].pricing",
    ),
    (
        "<leg>        input_modalities: [smell]\n",
        "models.yaml:4: models[0].route[0]",
    ),
    (
        "<leg>        api_key: a\n        api_keys: [b]\n",
        "models.yaml:4: models[0].route[0]",
    ),
    ("<leg>    router: nimbus\n", "models.yaml:6: models[0].router"),
    (
        "<leg>    router: routewise\n    router_params:\n      budget_alhpa: 1\n",
        "models.yaml:8: models[0].router_params.budget_alhpa",
    ),
    (
        "<leg>    required_role: wizard\n",
        "models.yaml:6: models[0].required_role",
    ),
    ("<leg>    tenants: [Bad Id]\n", "models.yaml:6: models[0].tenants"),
    (
        "<leg>  - id: m\n    provider: openai_compat\n    base_url: http://h.example/v1\n",
        "models.yaml:6: models[1].id",
    ),
    (
        "models:\n  - id: m\n    provider: openai_compat\n    base_url: ftp://h\n",
        "models.yaml:3: models[0].provider",
    ),
    (
        "models:\n  - id: m\n    provider: openai_compat\n    base_url: http://h.example/v1?key=a\n",
        "models.yaml:3: models[0].provider",
    ),
    (
        "models:\n  - id: m\n    provider: openai_compat\n    base_url: http://a:b@h.example/v1\n",
        "models.yaml:3: models[0].provider",
    ),
    (
        "models:\n  - id: m\n    provider: openai_compat\n",
        "models.yaml:3: models[0].provider",
    ),
    (
        "models:\n  - id: m\n    provider: abacus\n    base_url: http://h.example\n",
        "models.yaml:3: models[0].provider",
    ),
    ("models:\n  - id: \"\"\n", "models.yaml:2: models[0].id"),
    ("modles: []\n", "models.yaml:1: modles"),
    ("models: [\n", "models.yaml:"),
];

#[tokio::test]
async fn every_mistake_in_models_yaml_stops_the_check_with_its_place_and_a_remedy() {
    for (models, place) in MODELS_MISTAKES {
        let models = models.replace("<leg>", LEG);
        let (ended, output) = check("cluster: a\n", &models).await;
        assert_eq!(ended, USAGE, "{models}: {output}");
        assert_told(&output, place);
    }
}

#[tokio::test]
async fn a_bad_configuration_stops_the_start_with_the_same_words() {
    let bad = "listen: 127.0.0.1:0\nlsiten: x\n";

    let (code, lines) = Node::builder().waybill_yaml(bad).start_refused().await;

    let output = lines.join("\n");
    assert_eq!(code, USAGE, "{output}");
    assert_told(&output, "waybill.yaml:2: lsiten");
    assert!(!output.contains("listening addr="), "{output}");
}

#[tokio::test]
async fn mistakes_in_the_environment_and_on_the_command_line_are_told() {
    let plain = || {
        Node::builder()
            .waybill_yaml("cluster: a\n")
            .models_yaml("models: []\n")
    };
    for (name, value, code) in [
        ("NATS_URL", "nats://h", REFUSED),
        ("DATABASE_URL", "postgres://h", Some(0)),
        ("DATABASE_URL", "mysql://h", USAGE),
        ("WAYBILL_ROLES", "router", REFUSED),
        ("REQUEST_TIMEOUT_SECONDS", "soon", USAGE),
        ("CIRCUIT_FAILURE_THRESHOLD", "-3", USAGE),
        ("WAYBILL_LISTEN", "here", USAGE),
        ("LOG_FORMAT", "xml", USAGE),
        ("LOG_LEVEL", "loud", USAGE),
        ("LOG_LEVEL", "WARNING", Some(0)),
        ("WAYBILL_CONFIG", "nothing.yaml", USAGE),
        ("MODELS_CONFIG_PATH", "nothing.yaml", USAGE),
    ] {
        let (ended, output) = plain().env(name, value).run(&["check-config"]).await;
        assert_eq!(ended, code, "{name}: {output}");
    }
    for args in [
        &[][..],
        &["fly"],
        &["serve", "--lisn", "x"],
        &["keys"],
        &["keys", "create"],
        &["serve", "extra"],
    ] {
        let (ended, output) = plain().run(args).await;
        assert_eq!(ended, USAGE, "{args:?}: {output}");
        assert!(output.to_lowercase().contains("usage"), "{args:?}: {output}");
    }
    for (args, place) in [
        (["--listen", "here"], "command line: --listen"),
        (["--admin-listen", "here"], "command line: --admin-listen"),
        (["--roles", "wizard"], "command line: --roles"),
        (["--log-format", "xml"], "command line: --log-format"),
    ] {
        let (ended, output) = plain().run(&["check-config", args[0], args[1]]).await;
        assert_eq!(ended, USAGE, "{args:?}: {output}");
        assert_told(&output, place);
    }
    let (_, output) = plain().env("WAYBILL_LISTEN", "here").run(&["check-config"]).await;
    assert_told(&output, "environment: WAYBILL_LISTEN");
    for args in [&["version"][..], &["--version"]] {
        let (ended, output) = plain().run(args).await;
        assert_eq!(
            (ended, output.starts_with("waybill ")),
            (Some(0), true),
            "{output}"
        );
    }
    let (ended, output) = plain().run(&["--help"]).await;
    assert_eq!(
        (ended, output.contains("check-config")),
        (Some(0), true),
        "{output}"
    );
}

#[tokio::test]
async fn a_good_configuration_is_explained_and_what_is_odd_about_it_is_named() {
    let models = format!(
        "models:\n\
         - id: plain\n  provider: openai_compat\n  base_url: http://${{HOST}}/v1\n  api_key: {PROVIDER_KEY}\n  pricing: {{ prompt: \"1\", completion: \"2\" }}\n  supported_params: [n, max_token]\n\
         - id: twins\n  provider: openai_compat\n  route:\n  - {{ base_url: 'http://h.example:1/v1' }}\n  - {{ base_url: 'http://h.example:2/v1' }}\n\
         - id: blank\n  provider: openai_compat\n  base_url: \"${{NOWHERE}}\"\n\
         - id: idle\n  provider: openai_compat\n  route:\n  - {{ base_url: 'http://127.0.0.1:1/v1', weight: 0 }}\n\
         - id: later\n  route:\n  - {{ kind: openai_compat, base_url: 'http://127.0.0.1:1/v1' }}\n  - {{ kind: anthropic, base_url: 'http://127.0.0.1:1', api_key: {PROVIDER_KEY}, quota: {{}} }}\n"
    );
    let settings = format!("tenants:\n- id: acme\nkeys:\n- {{ name: a, tenant: acme, key: {CALLER_KEY} }}\n");

    let builder = Node::builder()
        .waybill_yaml(&settings)
        .models_yaml(&models)
        .env("HOST", "h.example");
    let (code, output) = builder.run(&["check-config"]).await;

    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("tenants 2 keys 1 models 3 endpoints 5"),
        "{output}"
    );
    for line in ["model plain", "model twins", "model later", "unpriced", "priced"] {
        assert!(output.contains(line), "{line} is not in {output}");
    }
    for model in ["model blank", "model idle"] {
        assert!(!output.contains(model), "{model} is in {output}");
    }
    for place in [
        "models[0].supported_params[1]",
        "models[1].route[0]",
        "models[1].route[1]",
        "models[2].provider",
        "models[3].route",
        "models[4].route[1].quota",
    ] {
        let line = output
            .lines()
            .find(|line| line.starts_with("problem models.yaml:") && line.contains(place));
        assert!(line.is_some(), "{place} is not in {output}");
    }
    assert!(
        output.contains("models.yaml:7: models[0].supported_params[1]"),
        "{output}"
    );
    assert!(
        !output.contains("supported_params[0]"),
        "n is a parameter: {output}"
    );
    for secret in [PROVIDER_KEY, CALLER_KEY] {
        assert!(!output.contains(secret), "{output}");
    }
}

#[tokio::test]
async fn the_examples_of_the_project_are_good_configurations() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/config");
    let path = |name: &str| root.join(name).display().to_string();
    let dir = tempfile::tempdir().expect("a directory");
    let account = dir.path().join("account.json");
    std::fs::write(&account, r#"{"client_email":"a@b","private_key":"k"}"#).expect("a file");
    for (settings, models) in [
        ("", "models.openrouter.yaml"),
        ("", "models.local-first.yaml"),
        ("", "models.providers.yaml"),
        ("embedded.yaml", "models.local-first.yaml"),
    ] {
        let mut builder = Node::builder()
            .without_config()
            .env("MODELS_CONFIG_PATH", &path(models));
        for (name, value) in [
            ("OPENROUTER_API_KEY", PROVIDER_KEY),
            ("ANTHROPIC_API_KEY", PROVIDER_KEY),
            ("GEMINI_API_KEY", PROVIDER_KEY),
            ("GROQ_API_KEY", PROVIDER_KEY),
            ("GOOGLE_CLOUD_PROJECT", "project-1"),
            ("GOOGLE_APPLICATION_CREDENTIALS", &account.display().to_string()),
            ("WB_ADMIN_KEY", OPERATOR_KEY),
            ("WB_KEY", CALLER_KEY),
        ] {
            builder = builder.env(name, value);
        }
        if !settings.is_empty() {
            builder = builder.env("WAYBILL_CONFIG", &path(settings));
        }
        let (code, output) = builder.run(&["check-config"]).await;
        assert_eq!(code, Some(0), "{models}: {output}");
        assert!(output.contains("no problems"), "{models}: {output}");
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_data_directory_is_refused() {
    let scene = Scene::start().await;

    let (code, output) = scene.node.command(&["serve", "--listen", "127.0.0.1:0"]).await;

    assert_eq!(code, UNAVAILABLE, "{output}");
    assert!(output.contains("--data-dir"), "{output}");
    assert_eq!(scene.client.post_chat(&harness::chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn what_left_the_files_is_gone_after_the_next_start() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.client.post_chat(&harness::chat("m")).await.status, 200);
    let other = harness::Model::new("n").leg(&scene.o1, 0);
    scene.node.write_models(&[other]);

    assert_eq!(scene.node.stop().await, Some(0));
    scene.restart().await;

    assert_eq!(scene.client.post_chat(&harness::chat("m")).await.status, 404);
    let answer = scene.client.post_chat(&harness::chat("n")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    scene.finish().await;
}

const ALIASED: &str = "models:\n  - id: m\n    aliases: [m-latest]\n    provider: openai_compat\n    base_url: http://h.example/v1\n";

#[tokio::test]
async fn limits_of_one_model_by_another_of_its_names_stop_check_and_start_with_the_name_that_counts() {
    for (settings, place) in [
        (
            "<key>    limits:\n      per_model:\n        m-latest: { rpm: 1 }\n",
            "waybill.yaml:6: keys[0].limits.per_model.m-latest",
        ),
        (
            "tenants:\n  - id: acme\n    limits: { per_model: { m-latest: { rpm: 1 } } }\n",
            "waybill.yaml:3: tenants[0].limits.per_model.m-latest",
        ),
        (
            "users:\n  - id: a\n    limits: { per_model: { m: { qps: 1 }, m-latest: { rpm: 1 } } }\n",
            "waybill.yaml:3: users[0].limits.per_model.m-latest",
        ),
        (
            "role_limits:\n  free: { per_model: { m-latest: { rpm: 1 } } }\n",
            "waybill.yaml:2: role_limits.free.per_model.m-latest",
        ),
    ] {
        let settings = settings.replace("<key>", KEY);

        let (ended, output) = check(&settings, ALIASED).await;

        assert_eq!(ended, USAGE, "{settings}: {output}");
        assert_told(&output, place);
        assert!(output.contains("of the model \"m\""), "{output}");
        let node = Node::builder().waybill_yaml(&settings).models_yaml(ALIASED);
        let (code, lines) = node.start_refused().await;
        assert_eq!(code, USAGE, "{settings}: {lines:?}");
        assert_told(&lines.join("\n"), place);
    }
}

#[tokio::test]
async fn limits_of_a_model_that_nobody_knows_yet_are_odd_and_stop_nothing() {
    let limited = "    limits: { per_model: { m: { qps: 1 }, later: { rpm: 1 } } }\n";

    let (ended, output) = check(&format!("{KEY}{limited}"), ALIASED).await;

    assert_eq!(ended, Some(0), "{output}");
    assert_told(&output, "problem waybill.yaml:4: keys[0].limits.per_model.later");
    assert_eq!(output.matches("problem").count(), 1, "{output}");
}
