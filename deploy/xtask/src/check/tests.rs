//! Each rule sees the fault it is for, and stays silent over sound input.

use super::{
    Dependency, File, Finding, Package, Tree, cases, direction, documents, golden, manifest, run, source,
    words,
};

fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn package(name: &str, dependencies: &[&str]) -> Package {
    let dependencies = dependencies.iter().map(|it| Dependency {
        name: (*it).to_owned(),
        shipped: true,
    });
    Package {
        name: name.to_owned(),
        dependencies: dependencies.collect(),
    }
}

fn rules(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.rule.as_str()).collect()
}

#[test]
fn a_role_that_depends_on_another_role_is_reported() {
    let packages = [package("gateway", &["schemas", "ledger"])];

    let findings = direction::check(&packages, &[]);

    assert_eq!(rules(&findings), ["depends on ledger"]);
    assert_eq!(findings[0].place, "package gateway");
}

#[test]
fn a_development_dependency_on_a_role_is_reported_too() {
    let mut ledger = package("ledger", &["gateway"]);
    ledger.dependencies[0].shipped = false;

    assert_eq!(rules(&direction::check(&[ledger], &[])), ["depends on gateway"]);
}

#[test]
fn an_engine_outside_its_package_is_reported() {
    let packages = [
        package("gateway", &["sqlx", "reqwest"]),
        package("ledger", &["axum", "sqlx"]),
        package("router-worker", &["async-nats"]),
    ];

    let findings = direction::check(&packages, &[]);

    let expected = [
        "depends on sqlx",
        "depends on reqwest",
        "depends on axum",
        "depends on async-nats",
    ];
    assert_eq!(rules(&findings), expected);
}

#[test]
fn a_pure_package_may_ship_only_with_what_is_listed() {
    let mut schemas = package("schemas", &["serde", "tokio", "proptest"]);
    schemas.dependencies[2].shipped = false;

    assert_eq!(rules(&direction::check(&[schemas], &[])), ["depends on tokio"]);
}

#[test]
fn a_second_tls_provider_in_the_graph_is_reported() {
    let graph = ["ring".to_owned(), "aws-lc-rs".to_owned()];

    assert_eq!(
        rules(&direction::check(&[], &graph)),
        ["aws-lc-rs is in the dependency graph"]
    );
}

#[test]
fn a_file_beyond_the_ceiling_is_reported_and_one_at_it_is_not() {
    let at = format!("//! Doc.\n{}", "\n".repeat(599));
    let beyond = format!("{at}\n");

    assert_eq!(source::check(&file("gateway/src/relay.rs", &at)), []);
    assert_eq!(
        rules(&source::check(&file("gateway/src/relay.rs", &beyond))),
        ["has 601 lines, 600 is the ceiling"]
    );
}

#[test]
fn a_source_file_without_module_doc_is_reported() {
    let findings = source::check(&file("gateway/src/relay.rs", "use std::fmt;\n"));

    assert_eq!(rules(&findings), ["does not start with a module doc"]);
}

#[test]
fn a_mod_rs_and_vague_names_are_reported() {
    let text = "//! Doc.\n";

    assert_eq!(
        rules(&source::check(&file("bus/src/nats/mod.rs", text))),
        ["is a mod.rs"]
    );
    assert_eq!(
        rules(&source::check(&file("bus/src/helpers.rs", text))),
        ["is named helpers"]
    );
    assert_eq!(
        rules(&source::check(&file("bus/src/common/log.rs", text))),
        ["is named common"]
    );
}

#[test]
fn a_file_three_folders_below_src_is_reported() {
    assert_eq!(source::check(&file("a/src/b/c/d.rs", "//! Doc.\n")), []);
    assert_eq!(source::check(&file("a/src/b/c/tests/d.rs", "//! Doc.\n")), []);
    assert_eq!(
        rules(&source::check(&file("a/src/b/c/d/e.rs", "//! Doc.\n"))),
        ["lies deeper than 2 folders below src"]
    );
}

#[test]
fn a_re_export_is_reported_outside_lib_rs_only() {
    let text = "//! Doc.\npub use std::fmt;\n";

    assert_eq!(source::check(&file("bus/src/lib.rs", text)), []);
    let findings = source::check(&file("bus/src/log.rs", text));
    assert_eq!(
        (findings[0].place.as_str(), findings[0].rule.as_str()),
        ("bus/src/log.rs:2", "re-exports outside lib.rs")
    );
}

#[test]
fn an_http_client_outside_the_router_worker_is_reported() {
    let text = format!(
        "//! Doc.\nuse {}::legacy::Client;\n",
        concat!("hyper_util::", "client")
    );

    assert_eq!(source::check(&file("router-worker/src/upstream.rs", &text)), []);
    assert_eq!(
        rules(&source::check(&file("gateway/src/relay.rs", &text))),
        ["uses an HTTP client"]
    );
}

#[test]
fn each_forbidden_word_is_reported_with_its_line() {
    for word in [
        concat!("see /wo", "rk/main/x"),
        concat!("in \"/ro", "ot/.cargo\""),
        concat!("from https://registry.npmjs", ".org/openai"),
        concat!("index.crates", ".io"),
        concat!("// TO", "DO later"),
    ] {
        let findings = words::check(&file("README.md", &format!("fine\n{word}\n")));

        assert_eq!(findings.len(), 1, "{word}");
        assert_eq!(findings[0].place, "README.md:2");
    }
}

#[test]
fn words_that_only_look_alike_are_not_reported() {
    let text = concat!("frame/wo", "rk/x and target/ro", "ot/x and MAS", "TO", "DON\n");

    assert_eq!(words::check(&file("README.md", text)), []);
}

#[test]
fn lock_files_may_name_registries() {
    let text = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

    assert_eq!(words::check(&file("Cargo.lock", text)), []);
}

#[test]
fn a_manifest_without_the_shared_lints_or_with_its_own_versions_is_reported() {
    let sound = "[package]\n[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n";
    let faulty = "[package]\n[dependencies]\nserde = \"1\"\n";

    let alone = "[package]\n[workspace]\n[dependencies]\nserde = \"1\"\n";

    assert_eq!(manifest::check(&file("bus/Cargo.toml", sound)), []);
    assert_eq!(manifest::check(&file("bus/fuzz/Cargo.toml", alone)), []);
    assert_eq!(
        rules(&manifest::check(&file("bus/Cargo.toml", faulty))),
        [
            "does not take the workspace's lints",
            "has a version of its own: serde = \"1\""
        ]
    );
}

#[test]
fn an_event_without_golden_file_is_reported() {
    let subjects = file(
        "schemas/src/subject.rs",
        "//! Doc.\npub const SETTLED: &str = \"waybill.request.settled.v1\";\npub const AUDIT: &str = \"waybill.audit.v1\";\n\
         pub const LATER: &str = \"waybill.later.v1\";\n",
    );
    let events = file(
        "schemas/src/event.rs",
        "//! Doc.\nKIND = subject::SETTLED; KIND = subject::AUDIT;\n",
    );
    let example = file("schemas/tests/golden/v1/request.settled.json", "{}");

    let findings = golden::check(&[subjects, events, example]);

    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].place, "schemas/tests/golden/v1/audit.json");
}

#[test]
fn an_event_type_spelled_out_elsewhere_is_reported_but_not_in_tests() {
    let code = "//! Doc.\nlet kind = \"waybill.audit.v1\";\n";
    let tested = "//! Doc.\n#[cfg(test)]\nmod tests {\n    let kind = \"waybill.audit.v1\";\n}\n";

    let findings = golden::check(&[
        file("ledger/src/fold.rs", code),
        file("ledger/src/rebuild.rs", tested),
    ]);

    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].place, "ledger/src/fold.rs:2");
}

#[test]
fn a_path_in_a_document_that_is_not_in_the_tree_is_reported() {
    let files = [
        file("bus/src/spool.rs", "//! Doc.\n"),
        file(
            "README.md",
            "`bus/src/spool.rs`, `bus/src/`, [it](bus/src/spool.rs), `target/x` and `v1/chat`\n`bus/src/gone.rs`, [it](gone.md)\n",
        ),
    ];

    let findings = documents::check(&files);

    assert_eq!(rules(&findings), ["names bus/src/gone.rs", "names gone.md"]);
    assert_eq!(findings[0].place, "README.md:2");
}

#[test]
fn findings_come_sorted_with_place_rule_and_remedy() {
    let tree = Tree {
        files: vec![file("b.rs", ""), file("a.rs", "")],
        packages: vec![package("gateway", &["schemas"])],
        graph: vec!["schemas".to_owned()],
    };

    let findings = run(&tree);

    assert_eq!(findings.len(), 2);
    assert_eq!(
        findings[0].to_string(),
        "a.rs: does not start with a module doc\n    remedy: say in the first lines, after //!, what it is for"
    );
}

#[test]
fn a_fault_whose_test_is_not_there_or_is_none_is_reported() {
    let source =
        "#[tokio::test]\nasync fn it_holds() {\n}\n\nfn it_helps() {\n}\n\n#[test]\nfn it_too() {}\n";
    let page = "# Faults\n\n| Fault | Held by |\n|---|---|\n| One | `it_holds`, `it_too` |\n| Two | `it_held` |\n\
                | Three | `it_helps` |\n| Four | |\n";

    for path in ["docs/cases.md", "docs/reliability.md"] {
        let findings = cases::check(&[file("tests/system/it.rs", source), file(path, page)]);

        let expected = ["names it_held", "names it_helps", "a row without a test"];
        assert_eq!(rules(&findings), expected);
        assert_eq!(findings[0].place, format!("{path}:6"));
    }
}
