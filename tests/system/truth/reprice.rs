//! Prices that are corrected afterwards: what requests cost is adjusted beside their rows, exactly and once.

use std::time::Duration;

use harness::{Behaviour, Client, OPERATOR_KEY, Scene, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::seals::{days_later, sealed};

/// How long adjustments may take from the spool into the books.
const BOOKED_MAX: Duration = Duration::from_secs(30);
/// Tokens of the calls.
const USAGES: [(u64, u64); 6] = [(9, 20), (1_001, 7), (3, 5), (1, 1), (123_457, 1), (77, 1_999)];
/// Days that every row is of.
const ALWAYS: [&str; 4] = ["--from", "2000-01-01", "--to", "2200-01-01"];

/// What a call costs at prices in nano-dollars per million tokens: whole numbers, one rounding, half to even.
fn cost((input, output): (u64, u64), (prompt, completion): (i128, i128)) -> i64 {
    let millionths = i128::from(input) * prompt + i128::from(output) * completion;
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    let up = rest > 500_000 || (rest == 500_000 && whole % 2 == 1);
    i64::try_from(whole + i128::from(up)).expect("a cost")
}

/// A scene with rows, and what they cost together.
async fn billed() -> (Scene, Vec<Value>, i64) {
    let mut scene = Scene::start().await;
    scene.pin();
    let mut rows = Vec::new();
    for (input, output) in USAGES {
        scene.o1.script([Behaviour::chat("hello").usage(input, output)]);
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        rows.push(scene.row(answer.request_id()).await);
    }
    let costs = rows
        .iter()
        .map(|row| row["cost_nano_usd"].as_i64().expect("a cost"));
    let sum = costs.sum();
    (scene, rows, sum)
}

/// `waybill reprice` over all rows, with more words; its figures.
async fn reprice(scene: &Scene, more: &[&str]) -> Value {
    let words = [&["reprice"], &ALWAYS[..], more, &["--json"]].concat();
    let (code, output) = scene.node.command(&words).await;
    assert_eq!(code, Some(0), "{output}");
    let begin = output.find('{').unwrap_or_else(|| panic!("no JSON: {output}"));
    let mut values = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
    values.next().expect("a value").expect("JSON")
}

/// What the price of the model is from the beginning on.
async fn correct(operator: &Client, prompt: &str, completion: &str, from: &str) {
    let price = json!({
        "model": "m",
        "pricing": {"prompt": prompt, "completion": completion},
        "effective_from": from,
    });
    let made = operator
        .call("POST", "/api/v1/prices", price.to_string().into())
        .await;
    let made = made.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Waits until sums tell an adjustment; that sum.
async fn adjusted_by(operator: &Client, amount: i64) -> Value {
    let deadline = Instant::now() + BOOKED_MAX;
    loop {
        let usage = operator.get("/api/v1/usage").await.json();
        let sum = &usage["data"][0];
        if sum["adjusted_nano_usd"] == json!(amount) {
            return sum.clone();
        }
        assert!(Instant::now() < deadline, "{usage}, and {amount} was expected");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn requests_cost_what_corrected_prices_say_to_the_nano_dollar_and_once() {
    let (scene, rows, before) = billed().await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    assert_eq!(reprice(&scene, &[]).await["adjusted"], 0, "at the same prices");
    let dump = scene.node.books().dump().await;
    correct(&operator, "1.9999995", "7.500000001", "2020-01-01T00:00:00Z").await;
    let prices = (1_999_999_500, 7_500_000_001);
    let costs: Vec<i64> = USAGES.iter().map(|usage| cost(*usage, prices)).collect();
    let after: i64 = costs.iter().sum();

    let told = reprice(&scene, &["--dry-run"]).await;
    let expected = json!({
        "rows": USAGES.len(), "adjusted": USAGES.len(), "unpriced": 0, "before_nano_usd": before,
        "after_nano_usd": after, "difference_nano_usd": after - before, "is_current": true, "dry_run": true,
    });
    assert_eq!(told, expected);
    assert_eq!(
        scene.node.books().dump().await["adjustments"],
        dump["adjustments"]
    );

    let told = reprice(&scene, &[]).await;
    assert_eq!(told["difference_nano_usd"], json!(after - before));
    let sum = adjusted_by(&operator, after - before).await;
    assert_eq!(
        (&sum["cost_nano_usd"], &sum["total_nano_usd"]),
        (&json!(before), &json!(after))
    );
    for (row, cost) in rows.iter().zip(&costs) {
        let again = scene.row(row["request_id"].as_str().expect("an id")).await;
        assert_eq!(again, *row, "a row stays as it is");
        let page = format!(
            "/api/v1/logs?request_id={}",
            row["request_id"].as_str().expect("an id")
        );
        let page = operator.get(&page).await.json();
        let adjusted = &page["adjustments"][row["request_id"].as_str().expect("an id")];
        let settled = row["cost_nano_usd"].as_i64().expect("a cost");
        assert_eq!(adjusted["amount_nano_usd"], json!(cost - settled), "{page}");
    }

    assert_eq!(reprice(&scene, &[]).await["adjusted"], 0, "said again");
    let dump = scene.node.books().dump().await;
    assert_eq!(dump["adjustments"].len(), USAGES.len());
    let (code, output) = scene.node.command(&["replay", "--rebuild"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(scene.node.books().dump().await, dump, "rebuilt");
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_is_killed_amid_repricing_leaves_what_is_gone_on_with_and_the_day_sealed() {
    let (mut scene, _, before) = billed().await;
    let operator = scene.client.with_key(OPERATOR_KEY);
    correct(&operator, "3", "5", "2020-01-01T00:00:00Z").await;
    let body = json!({"from": "2000-01-01T00:00:00Z", "to": "2200-01-01T00:00:00Z", "limit": 2});
    let first = operator.call("POST", "/api/v1/system/reprice", body.to_string().into());
    let first = first.await.expect("an answer");
    assert_eq!(
        (first.status, &first.json()["adjusted"]),
        (200, &json!(2)),
        "{}",
        first.text()
    );
    days_later(&mut scene).await;

    let told = reprice(&scene, &[]).await;
    let prices = (3_000_000_000, 5_000_000_000);
    let after: i64 = USAGES.iter().map(|usage| cost(*usage, prices)).sum();
    assert_eq!(
        (&told["adjusted"], &told["after_nano_usd"]),
        (&json!(USAGES.len() - 2), &json!(after)),
        "{told}"
    );
    let operator = scene.client.with_key(OPERATOR_KEY);
    adjusted_by(&operator, after - before).await;
    assert_eq!(scene.node.books().dump().await["adjustments"].len(), USAGES.len());

    // A file of prices counts for what it names, and goes on from what was adjusted before.
    let file = scene.node.data_dir().join("prices.json");
    let prices = json!([{"model": "m", "pricing": {"request": "0.000000007"}}, {"model": "other", "pricing": {"prompt": "1"}}]);
    std::fs::write(&file, prices.to_string()).expect("write");
    let told = reprice(&scene, &["--prices", file.to_str().expect("a path")]).await;
    let flat = 7 * i64::try_from(USAGES.len()).expect("few");
    assert_eq!(
        (&told["before_nano_usd"], &told["after_nano_usd"]),
        (&json!(after), &json!(flat)),
        "{told}"
    );
    let sum = adjusted_by(&operator, flat - before).await;
    assert_eq!(sum["total_nano_usd"], json!(flat));
    // The ledger looks for adjustments of sealed days at intervals; one that begins anew does at once.
    days_later(&mut scene).await;
    let report = sealed(&mut scene, (USAGES.len(), 2 * USAGES.len())).await;
    assert_eq!(report["faults"], json!([]));
    scene.finish().await;
}
