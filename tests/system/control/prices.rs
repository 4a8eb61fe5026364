//! `waybill endpoints`, `waybill routes` and `waybill prices`: what is typed, what is printed, and what calls cost then.

use harness::{Upstream, chat};
use serde_json::{Value, json};

use super::command::{run as typed, told};
use super::one_node;

fn id(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

#[tokio::test]
async fn endpoints_and_routes_are_made_changed_listed_and_removed_by_typed_commands() {
    let scene = one_node().await;
    let own = Upstream::start();

    let made = told(
        &scene,
        &format!(
            "endpoints create box --url {} --tenant acme --kind vllm",
            own.url()
        ),
    )
    .await;
    assert_eq!(
        (&made["tenant"], &made["kind"], &made["credential"]),
        (&json!("acme"), &json!("vllm"), &Value::Null)
    );
    let routes = told(&scene, "routes list --tenant acme").await;
    assert_eq!(
        (&routes[0]["model"], &routes[0]["endpoint"], &routes[0]["weight"]),
        (&json!("box"), &made["id"], &json!(100))
    );
    let canary = told(
        &scene,
        "routes create canary --endpoint box --tenant acme --weight 20 --upstream-model org/up",
    )
    .await;
    assert_eq!(
        (&canary["endpoint"], &canary["upstream_model"]),
        (&made["id"], &json!("org/up"))
    );
    let changed = told(
        &scene,
        &format!("routes set {} --priority -1 --weight 0", id(&canary)),
    )
    .await;
    assert_eq!(
        (&changed["priority"], &changed["weight"]),
        (&json!(-1), &json!(0))
    );
    let off = told(
        &scene,
        &format!("endpoints set {} --disabled true --name crate", id(&made)),
    )
    .await;
    assert_eq!((&off["disabled"], &off["name"]), (&json!(true), &json!("crate")));

    let second = typed(&scene, &format!("endpoints create second --url {}", own.url())).await;
    assert!(second.contains("no price holds for its model yet"), "{second}");
    let listed = told(&scene, "endpoints list --tenant default").await;
    let second = listed
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == "second"));
    let second = id(second.expect("the second")).to_owned();
    assert_eq!(
        typed(&scene, &format!("endpoints delete {second}")).await,
        format!("removed {second}\n")
    );
    told(&scene, &format!("endpoints delete {}", id(&made))).await;
    assert_eq!(told(&scene, "routes list --tenant acme").await, json!([]));
    assert_eq!(told(&scene, "endpoints list --tenant acme").await, json!([]));
    scene.finish().await;
}

#[tokio::test]
async fn prices_of_litellms_list_are_taken_over_exactly_for_what_is_served() {
    let mut scene = one_node().await;
    scene.price("m", None);
    let list = scene.node.data_dir().join("prices.json");
    let text = r#"{
        "sample_spec": {"input_cost_per_token": 1},
        "m": {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07,
              "cache_read_input_token_cost": 7.5e-08, "input_cost_per_token_above_128k_tokens": 3e-07},
        "gpt-of-nobody": {"input_cost_per_token": 1e-06}
    }"#;
    std::fs::write(&list, text).expect("write");
    let import = format!("prices import {}", list.display());

    let dry = told(&scene, &format!("{import} --dry-run")).await;
    assert_eq!(told(&scene, "prices list").await, json!([]), "{dry}");
    assert_eq!(
        (dry["would_make"].as_array().map(Vec::len), &dry["made"]),
        (Some(1), &Value::Null)
    );
    let args: Vec<&str> = import.split(' ').collect();
    let wrong = ["--dry-run", "--from", "2026-13-01T00:00:00Z"];
    let (code, output) = scene.node.command(&[args, wrong.to_vec()].concat()).await;
    assert_eq!(code, Some(64), "{output}");
    assert!(output.contains("2026-13-01T00:00:00Z"), "{output}");
    let made = told(&scene, &import).await;
    assert_eq!(made["made"].as_array().map(Vec::len), Some(1), "{made}");
    let pricing = json!({"prompt": "0.15", "completion": "0.6", "input_cache_reads": "0.075"});
    assert_eq!(made["made"][0]["pricing"], pricing);
    assert!(made["notes"].to_string().contains("above_128k"), "{made}");

    let answer = scene.client.post_chat(&chat("m")).await;
    assert_eq!(answer.status, 200);
    let row = scene.row(answer.request_id()).await;
    let number = |name: &str| row[name].as_i64().expect("a number");
    let cost = number("input_tokens") * 150 + number("cached_tokens") * 75 + number("output_tokens") * 600;
    assert_eq!(number("cost_nano_usd"), cost, "{row}");
    assert!(cost > 0);
    assert!(row["price_version"].as_str().expect("a version").contains('@'));
    scene.finish().await;
}

#[tokio::test]
async fn a_price_list_is_looked_at_whole_before_anything_is_made_and_makes_nothing_twice() {
    let scene = one_node().await;
    let own = Upstream::start();
    for name in ["cheap", "dear"] {
        told(&scene, &format!("endpoints create {name} --url {}", own.url())).await;
    }
    let list = scene.node.data_dir().join("prices.json");
    let write = |dear: &str| {
        let text = format!(
            r#"{{"cheap": {{"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}},
                "dear": {{"input_cost_per_token": {dear}}}}}"#
        );
        std::fs::write(&list, text).expect("write");
    };
    let import = format!("prices import {}", list.display());
    let models = |told: &Value, name: &str| -> Vec<String> {
        let all = told[name].as_array().expect("a list").iter();
        all.map(|one| one["model"].as_str().expect("a model").to_owned())
            .collect()
    };

    write("9");
    let dry = told(&scene, &format!("{import} --dry-run")).await;
    assert_eq!(models(&dry, "would_make"), ["cheap"]);
    assert!(dry["notes"].to_string().contains("dear: "), "{dry}");
    let made = told(&scene, &import).await;
    assert_eq!(models(&made, "made"), ["cheap"]);

    write("3e-06");
    let made = told(&scene, &import).await;
    assert_eq!(
        (models(&made, "made"), &made["unchanged"]),
        (vec!["dear".to_owned()], &json!(["cheap"]))
    );
    let again = told(&scene, &import).await;
    assert_eq!(
        (&again["made"], &again["unchanged"]),
        (&json!([]), &json!(["cheap", "dear"]))
    );
    let versions = told(&scene, "prices list").await;
    assert_eq!(versions.as_array().map(Vec::len), Some(2), "{versions}");

    let (code, output) = scene.node.command(&["prices", "import", "nowhere.json"]).await;
    assert_eq!(code, Some(64), "{output}");
    assert!(output.contains("nowhere.json"), "{output}");
    scene.finish().await;
}
