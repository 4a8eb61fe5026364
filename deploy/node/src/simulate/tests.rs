//! The commands of `waybill simulate`, from files to what is printed.

use clap::Parser as _;

use super::*;
use crate::command_line::{Command, CommandLine};
use crate::exit;

/// What `waybill simulate` prints for these words.
fn simulated(words: &[&str]) -> anyhow::Result<String> {
    let line = CommandLine::try_parse_from(["waybill", "simulate"].iter().chain(words))?;
    match line.command {
        Command::Simulate { action } => run(&action),
        other => anyhow::bail!("read as {other:?}"),
    }
}

fn shipped(name: &str) -> String {
    format!("{}/../simulate/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A scenario that takes no time, in a folder of its own.
fn small(folder: &Path, more: &str) -> String {
    let file = folder.join("small.yaml");
    let text = format!(
        "trace: {{ generate: {{ sessions: 5, turns: 2 }} }}\n\
         engines:\n  gpu: {{ prefill_ns_per_token: 1000, decode_us_per_token: 10, kv_tokens: 100000 }}\n\
         endpoints: [{{ name: local, engine: gpu, speeds_percent: [100, 50] }}]\n\
         policies: [{{ algorithm: round_robin }}, {{ algorithm: prefix_aware, affinity: true }}]\n{more}"
    );
    fs::write(&file, text).expect("written");
    file.display().to_string()
}

#[test]
fn the_scenarios_that_are_shipped_run() {
    for name in ["slow-replica.yaml", "prefix-cache.yaml", "two-routes.yaml"] {
        let told = simulated(&["routing", &shipped(name), "--json"]).expect(name);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let policies = told["policies"].as_array().expect("policies");
        assert!(policies.len() >= 2, "{name}");
        for policy in policies {
            assert!(
                policy["good_share"].as_f64().expect("a share") > 0.1,
                "{name}: {policy:#}"
            );
        }
    }
}

#[test]
fn a_table_names_every_policy_and_a_drawing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("out.svg");
    let path = svg.display().to_string();

    let told = simulated(&["routing", &small(folder.path(), ""), "--svg", &path]).expect("it runs");

    let rows: Vec<&str> = told.lines().collect();
    assert!(rows[0].ends_with("first token within 1000 ms, the others within 50 ms each"));
    assert!(rows[1].starts_with("POLICY"), "{told}");
    assert!(rows[2].starts_with("round_robin "), "{told}");
    assert!(rows[3].starts_with("prefix_aware + affinity "), "{told}");
    let drawn = fs::read_to_string(svg).expect("a drawing");
    assert!(drawn.starts_with("<svg ") && drawn.contains(">prefix_aware + affinity</text>"));
}

#[test]
fn another_trace_and_another_seed_can_be_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = small(folder.path(), "");
    let trace = folder.path().join("own.jsonl");
    let lines = simulated(&["trace", "--sessions", "3", "--seed", "9"]).expect("a trace");
    fs::write(&trace, &lines).expect("written");
    let path = trace.display().to_string();

    let told = simulated(&["routing", &scenario, "--trace", &path, "--seed", "5"]).expect("it runs");

    assert!(
        told.starts_with(&format!("{} requests", lines.lines().count())),
        "{told}"
    );
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |words: &[&str]| {
        let error = simulated(words).expect_err("wrong");
        assert_eq!(exit::code(&error), exit::USAGE);
        error.to_string()
    };

    let scenario = small(folder.path(), "gateways: 0\n");
    let wrong = told(&["routing", &scenario]);
    assert!(
        wrong.ends_with("small.yaml:6: gateways: has to be between 1 and 64; correct the value"),
        "{wrong}"
    );
    let scenario = small(folder.path(), "gatways: 1\n");
    assert!(told(&["routing", &scenario]).contains("unknown field `gatways`"));
    assert!(told(&["trace", "--think-ms", "0"]).starts_with("--think-ms has to be between"));
    assert!(told(&["routing", "nowhere.yaml"]).starts_with("cannot read nowhere.yaml"));
    let trace = folder.path().join("broken.jsonl");
    fs::write(&trace, "{}\n").expect("written");
    let scenario = small(folder.path(), "");
    let wrong = told(&["routing", &scenario, "--trace", &trace.display().to_string()]);
    assert!(wrong.contains("broken.jsonl: line 1: missing field"), "{wrong}");
    let replay = ["routing", "--replay", "nowhere.jsonl", "--algorithm", "fastest"];
    assert!(told(&replay).starts_with("--algorithm has to be one of weighted"));
    assert!(CommandLine::try_parse_from(["waybill", "simulate", "routing"]).is_err());
}

#[test]
fn recorded_requests_are_decided_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events.jsonl");
    let event = |calls: u64| {
        json!({"data": {"input_tokens": 100, "decision": {
            "order": ["e#0"],
            "snapshot": {
                "legs": [{"endpoint": "e", "algorithm": "round_robin", "weight_micro": 1_000_000}],
                "candidates": [{"backend": "e#0", "leg": 0, "calls": calls}, {"backend": "e#1", "leg": 0, "calls": 3}],
                "draw": 1
            }
        }}})
    };
    fs::write(&events, format!("{}\n{}\n", event(1), event(8))).expect("written");
    let path = events.display().to_string();

    let told =
        simulated(&["routing", "--replay", &path, "--algorithm", "least_connections"]).expect("it runs");

    let rows: Vec<Vec<&str>> = told.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(
        told.lines().next(),
        Some("2 requests, 2 of them with a choice: 1 would have gone elsewhere")
    );
    assert_eq!(rows[2], ["e#0", "2", "1", "200", "100"]);
    assert_eq!(rows[3], ["e#1", "0", "1", "0", "100"]);
    let same = simulated(&["routing", "--replay", &path, "--json"]).expect("it runs");
    let same: Value = serde_json::from_str(&same).expect("JSON");
    assert_eq!((&same["as_recorded"], &same["differ"]), (&json!(2), &json!(0)));
}
