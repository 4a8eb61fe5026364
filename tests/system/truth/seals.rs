//! Seals of days, on the books of a node and of a cluster: what is done to them afterwards is found, and named.

use std::time::Duration;

use harness::{Behaviour, Scene, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// So far ahead that the day of a call that is made now is sealed.
const AHEAD: Duration = Duration::from_hours(4 * 24);
/// How long the ledger may take to look for days and to book its seals.
const SEALED_MAX: Duration = Duration::from_mins(1);
const ROWS: usize = 5;

/// `waybill verify` where the books are configured: its exit code and its JSON.
pub(super) async fn verify(scene: &mut Scene) -> (Option<i32>, Value) {
    let words = ["verify", "--json"];
    let (code, output) = if scene.is_cluster() {
        scene.cluster().node("ledger-1").command(&words).await
    } else {
        scene.node.command(&words).await
    };
    let begin = output.find('{').unwrap_or_else(|| panic!("no JSON: {output}"));
    let mut values = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
    (code, values.next().expect("a value").expect("JSON"))
}

/// Waits until seals cover so many rows and adjustments.
pub(super) async fn sealed(scene: &mut Scene, (rows, adjustments): (usize, usize)) -> Value {
    let deadline = Instant::now() + SEALED_MAX;
    loop {
        let (code, report) = verify(scene).await;
        assert_eq!(code, Some(0), "{report}");
        let told = (&report["rows"], report["adjustments"].as_u64().unwrap_or(0));
        if told == (&json!(rows), adjustments as u64) {
            return report;
        }
        assert!(Instant::now() < deadline, "{report}\n{}", scene.logs());
        sleep(Duration::from_millis(500)).await;
    }
}

/// Starts every node again, days later.
pub(super) async fn days_later(scene: &mut Scene) {
    scene.kill_every_node().await;
    scene.restart_every_node_ahead(AHEAD).await;
    scene.wait_ready().await;
}

#[tokio::test]
async fn a_sealed_day_is_as_it_was_or_verify_names_the_day_and_the_request() {
    let mut scene = Scene::start().await;
    let mut rows = Vec::new();
    for call in 0..ROWS as u64 {
        scene.o1.script([Behaviour::chat("hello").usage(9 + call, 20)]);
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        rows.push(scene.row(answer.request_id()).await);
    }
    days_later(&mut scene).await;
    sealed(&mut scene, (ROWS, 0)).await;

    let books = scene.node.books();
    let id = |row: usize| rows[row]["request_id"].as_str().expect("an id");
    let one = |row: usize| format!("WHERE request_id = '{}'", id(row));
    let cost = "UPDATE api_logs SET cost_nano_usd = cost_nano_usd";
    let places = |row: usize| rows[row]["source_sequence"].as_i64().expect("a place");
    let swap = format!(
        "UPDATE api_logs SET source_sequence = {} - source_sequence WHERE request_id IN ('{}', '{}')",
        places(1) + places(2),
        id(1),
        id(2)
    );
    books
        .define(&format!(
            "CREATE TABLE dropped AS SELECT * FROM api_logs {}",
            one(3)
        ))
        .await;
    let cases = [
        (
            "changed",
            format!("{cost} + 1 {}", one(0)),
            format!("{cost} - 1 {}", one(0)),
            vec![0],
        ),
        ("swapped", swap.clone(), swap, vec![1, 2]),
        (
            "dropped",
            format!("DELETE FROM api_logs {}", one(3)),
            "INSERT INTO api_logs SELECT * FROM dropped".to_owned(),
            vec![3],
        ),
    ];
    for (what, done, undone, named) in cases {
        books.change(&done).await;
        let (code, report) = verify(&mut scene).await;
        assert_eq!(
            (code, &report["sound"]),
            (Some(1), &json!(false)),
            "{what}: {report}"
        );
        let faults = report["faults"].as_array().expect("a list");
        let mut found = Vec::new();
        for fault in faults {
            assert_eq!(fault["fault"], "rows", "{what}: {report}");
            let requests = fault["requests"].as_array().expect("a list");
            for request in requests {
                let row = (0..ROWS).find(|row| *request == json!(id(*row))).expect("a row");
                assert_eq!(fault["day"], rows[row]["waybill_day"], "{what}");
                assert_eq!(fault["tenant"], rows[row]["tenant"], "{what}");
                found.push(row);
            }
        }
        found.sort_unstable();
        assert_eq!(found, named, "{what}: {report}");
        books.change(&undone).await;
        let (code, report) = verify(&mut scene).await;
        assert_eq!(code, Some(0), "{what}, undone: {report}");
    }
    books.define("DROP TABLE dropped").await;
    scene.finish().await;
}
