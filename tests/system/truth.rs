//! The books against what others say: a provider's bill.

use harness::{Behaviour, Scene, chat};
use serde_json::{Value, json};

/// Tokens of each call, by the upstream's word.
const USAGE: (u64, u64) = (9, 20);

/// Runs `waybill reconcile` on a file; its exit code and its JSON.
async fn reconcile(scene: &Scene, file: &str, arguments: &str) -> (Option<i32>, Value) {
    let path = scene.node.data_dir().join("bill.csv");
    std::fs::write(&path, file).expect("write");
    let path = path.to_str().expect("a path");
    let days = "--from 2000-01-01 --to 2200-01-01 --json";
    let typed = format!("reconcile {path} {arguments} {days}");
    let (code, output) = scene
        .node
        .command(&typed.split_whitespace().collect::<Vec<_>>())
        .await;
    let begin = output.find('{').unwrap_or_else(|| panic!("no JSON: {output}"));
    let mut values = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
    (code, values.next().expect("a value").expect("JSON"))
}

fn text<'r>(row: &'r Value, field: &str) -> &'r str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {row}"))
}

#[tokio::test]
async fn a_provider_s_bill_is_equal_to_the_books_or_every_difference_is_named() {
    let mut scene = Scene::start().await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("hello {call}").usage(USAGE.0, USAGE.1));
    let mut rows = Vec::new();
    for _ in 0..4 {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200);
        rows.push(scene.row(answer.request_id()).await);
    }
    let costs: Vec<i64> = rows
        .iter()
        .map(|row| row["cost_nano_usd"].as_i64().expect("a cost"))
        .collect();
    assert!(costs.iter().all(|cost| *cost > 0), "{costs:?}");
    let provider = text(&rows[0], "provider");
    let bill = |lines: &[(usize, i64)]| {
        let line = |(row, more): &(usize, i64)| {
            let (id, cost) = (text(&rows[*row], "request_id"), costs[*row] + more);
            format!("{id},{},{},{cost}e-9\r\n", USAGE.0, USAGE.1)
        };
        lines
            .iter()
            .map(line)
            .fold("id,in,out,usd\r\n".to_owned(), |bill, line| bill + &line)
    };
    let by_id = format!("--provider {provider} --map request_id=id,input=in,output=out,cost=usd");

    let (code, equal) = reconcile(&scene, &bill(&[(0, 0), (1, 0), (2, 0), (3, 0)]), &by_id).await;
    assert_eq!(code, Some(0), "{equal}");
    let sum: i64 = costs.iter().sum();
    assert_eq!(
        (&equal["matched"], &equal["sums"]["ours"]["cost_nano_usd"]),
        (&json!(4), &json!(sum))
    );

    // The second costs a nano-dollar more, the third is not billed, and one is billed that never was.
    let unknown = format!(
        "{}00000000-0000-7000-8000-000000000000,1,1,1\r\n",
        bill(&[(0, 0), (1, 1), (3, 0)])
    );
    let (code, told) = reconcile(&scene, &unknown, &by_id).await;
    assert_eq!(code, Some(1), "{told}");
    let named = |list: &str| -> Vec<Value> {
        let items = told[list].as_array().expect("a list");
        items.iter().map(|item| item["request_id"].clone()).collect()
    };
    assert_eq!(named("differing"), [rows[1]["request_id"].clone()]);
    assert_eq!(named("missing_in_file"), [rows[2]["request_id"].clone()]);
    assert_eq!(
        named("missing_in_books"),
        ["00000000-0000-7000-8000-000000000000"]
    );
    assert_eq!(
        told["sums"]["difference"]["cost_nano_usd"],
        json!(1_000_000_000 + 1 - costs[2])
    );
    let lenient = format!("{by_id} --tolerance 0.000000001");
    let (code, told) = reconcile(&scene, &bill(&[(0, 0), (1, 1), (2, -1), (3, 0)]), &lenient).await;
    assert_eq!((code, &told["matched"]), (Some(0), &json!(4)), "{told}");

    let (code, told) = reconcile(
        &scene,
        "id,usd\n",
        &format!("--provider nobody {}", "--map request_id=id,cost=usd"),
    )
    .await;
    assert_eq!((code, &told["matched"]), (Some(0), &json!(0)), "{told}");
    let by_day = format!("--provider {provider} --map day=day,model=model,input=in,cost=usd");
    let model = text(&rows[0], "served_model");
    let mut sums = std::collections::BTreeMap::<&str, (u64, i64)>::new();
    for (row, cost) in rows.iter().zip(&costs) {
        let sum = sums.entry(text(row, "waybill_day")).or_default();
        *sum = (sum.0 + USAGE.0, sum.1 + cost);
    }
    let daily = |more: i64| {
        let lines = sums
            .iter()
            .map(|(day, (input, cost))| format!("{day},{model},{input},{}e-9\n", cost + more));
        lines.fold("day,model,in,usd\n".to_owned(), |bill, line| bill + &line)
    };
    let (code, told) = reconcile(&scene, &daily(0), &by_day).await;
    assert_eq!((code, &told["matched"]), (Some(0), &json!(sums.len())), "{told}");
    let (code, told) = reconcile(&scene, &daily(-1), &by_day).await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(told["differing"][0]["difference"]["cost_nano_usd"], json!(-1));
    scene.finish().await;
}
