//! The books against what others say: a provider's bill; against what was sealed, and by prices that were corrected.

use std::collections::BTreeMap;

use harness::{Behaviour, Scene, chat};
use serde_json::{Value, json};

mod counters;
mod reprice;
mod seals;

/// Tokens of each call, by the upstream's word.
const USAGE: (u64, u64) = (9, 20);

/// Days that every row is of.
const ALWAYS: &str = "--from 2000-01-01 --to 2200-01-01";

/// Runs `waybill reconcile` on a file over all rows; its exit code and its JSON.
async fn reconcile(scene: &Scene, file: &str, arguments: &str) -> (Option<i32>, Value) {
    reconcile_within(scene, file, arguments, ALWAYS).await
}

/// The same over the rows of some days.
async fn reconcile_within(scene: &Scene, file: &str, arguments: &str, days: &str) -> (Option<i32>, Value) {
    let path = scene.node.data_dir().join("bill.csv");
    std::fs::write(&path, file).expect("write");
    let path = path.to_str().expect("a path");
    let typed = format!("reconcile {path} {arguments} {days} --json");
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

/// A scene with rows of four calls that cost something, and their costs.
async fn billed() -> (Scene, Vec<Value>, Vec<i64>) {
    let mut scene = Scene::start().await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("hello {call}").usage(USAGE.0, USAGE.1));
    let (mut rows, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200);
        let row = scene.row(answer.request_id()).await;
        costs.push(row["cost_nano_usd"].as_i64().expect("a cost"));
        rows.push(row);
    }
    assert!(costs.iter().all(|cost| *cost > 0), "{costs:?}");
    (scene, rows, costs)
}

#[tokio::test]
async fn a_bill_by_request_is_equal_to_the_books_or_every_difference_is_named() {
    let (scene, rows, costs) = billed().await;
    let bill = |lines: &[(usize, i64)]| {
        let line = |(row, more): &(usize, i64)| {
            let (id, cost) = (text(&rows[*row], "request_id"), costs[*row] + more);
            format!("{id},{},{},{cost}e-9\r\n", USAGE.0, USAGE.1)
        };
        let titles = "id,in,out,usd\r\n".to_owned();
        lines.iter().map(line).fold(titles, |bill, line| bill + &line)
    };
    let provider = text(&rows[0], "provider");
    let by_id = format!("--provider {provider} --map request_id=id,input=in,output=out,cost=usd");

    let (code, equal) = reconcile(&scene, &bill(&[(0, 0), (1, 0), (2, 0), (3, 0)]), &by_id).await;
    assert_eq!(code, Some(0), "{equal}");
    let sum: i64 = costs.iter().sum();
    assert_eq!(
        (&equal["matched"], &equal["sums"]["ours"]["cost_nano_usd"]),
        (&json!(4), &json!(sum))
    );

    // The second costs a nano-dollar more, the third is not billed, and one is billed that never was.
    let never = "00000000-0000-7000-8000-000000000000";
    let wrong = format!("{}{never},1,1,1\r\n", bill(&[(0, 0), (1, 1), (3, 0)]));
    let (code, told) = reconcile(&scene, &wrong, &by_id).await;
    assert_eq!(code, Some(1), "{told}");
    let named = |list: &str| -> Vec<Value> {
        let items = told[list].as_array().expect("a list");
        items.iter().map(|item| item["request_id"].clone()).collect()
    };
    assert_eq!(named("differing"), [rows[1]["request_id"].clone()]);
    assert_eq!(named("missing_in_file"), [rows[2]["request_id"].clone()]);
    assert_eq!(named("missing_in_books"), [never]);
    assert_eq!(
        told["sums"]["difference"]["cost_nano_usd"],
        json!(1_000_000_000 + 1 - costs[2])
    );

    let lenient = format!("{by_id} --tolerance 0.000000001");
    let (code, told) = reconcile(&scene, &bill(&[(0, 0), (1, 1), (2, -1), (3, 0)]), &lenient).await;
    assert_eq!((code, &told["matched"]), (Some(0), &json!(4)), "{told}");
    scene.finish().await;
}

#[tokio::test]
async fn a_bill_by_day_and_model_is_compared_with_the_sums_of_its_provider() {
    let (scene, rows, costs) = billed().await;
    let mut sums = BTreeMap::<&str, (u64, i64)>::new();
    for (row, cost) in rows.iter().zip(&costs) {
        let sum = sums.entry(text(row, "waybill_day")).or_default();
        *sum = (sum.0 + USAGE.0, sum.1 + cost);
    }
    let model = text(&rows[0], "served_model");
    let bill = |more: i64| {
        let lines = sums
            .iter()
            .map(|(day, (input, cost))| format!("{day},{model},{input},{}e-9\n", cost + more));
        lines.fold("day,model,in,usd\n".to_owned(), |bill, line| bill + &line)
    };
    let map = "--map day=day,model=model,input=in,cost=usd";
    let of = |provider: &str| format!("--provider {provider} {map}");
    let provider = text(&rows[0], "provider");

    let (code, told) = reconcile(&scene, &bill(0), &of(provider)).await;
    assert_eq!((code, &told["matched"]), (Some(0), &json!(sums.len())), "{told}");
    let (code, told) = reconcile(&scene, &bill(-1), &of(provider)).await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(told["differing"][0]["difference"]["cost_nano_usd"], json!(-1));
    let (code, told) = reconcile(&scene, &bill(0), &of("nobody")).await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(
        told["missing_in_books"].as_array().map(Vec::len),
        Some(sums.len())
    );
    assert_eq!(told["missing_in_file"], json!([]));
    for other in [
        "--from 2000-01-01 --to 2026-01-01",
        "--from 2150-01-01 --to 2200-01-01",
    ] {
        let (code, told) = reconcile_within(&scene, &bill(0), &of(provider), other).await;
        assert_eq!(
            (code, &told["outside"], &told["sums"]["ours"]),
            (
                Some(0),
                &json!(sums.len()),
                &json!({"input_tokens": 0, "cost_nano_usd": 0})
            ),
            "{told}"
        );
    }
    scene.finish().await;
}
