//! Idempotency keys: one generation and one bill, whoever asks again, when, and of which node. On a cluster the calls of
//! these tests go to both gateways in turn.

use std::time::Duration;

use harness::{Answer, Client, Scene};
use serde_json::Value;
use tokio::time::{Instant, sleep};

mod answers;
mod broken;
mod cluster;
mod duplicates;
mod keys;
mod leaving;
mod limited;
mod sdk;
mod streams;

/// The code of a call whose first one still runs.
const IN_PROGRESS: &str = "IDEMPOTENCY_REQUEST_IN_PROGRESS";
/// The code of a call with another body than the first.
const MISMATCH: &str = "IDEMPOTENCY_KEY_BODY_MISMATCH";
/// The code of a call whose first answer was not kept.
const UNAVAILABLE: &str = "IDEMPOTENCY_REPLAY_UNAVAILABLE";
/// How long a first call may run on until it is over.
const OVER_MAX: Duration = Duration::from_secs(20);

fn keyed(client: &Client, key: &str) -> Client {
    client.with_header("idempotency-key", key)
}

fn is_replay(answer: &Answer) -> bool {
    answer.header("x-idempotent-replay") == "true"
}

/// Calls until the answer is another one than that the first call still runs.
async fn after_progress(client: &Client, body: &Value) -> Answer {
    let start = Instant::now();
    loop {
        let answer = client.post_chat(body).await;
        if answer.error_code() != IN_PROGRESS {
            return answer;
        }
        assert_eq!(answer.status, 409, "{}", answer.text());
        assert!(start.elapsed() < OVER_MAX, "the first call still runs");
        sleep(Duration::from_millis(100)).await;
    }
}

/// What all rows cost together, once there are `whole` of whole answers, and those that cost something.
async fn billed(scene: &Scene, whole: usize) -> (i64, Vec<Value>) {
    scene.node.wait_rows("outcome=ok", whole).await;
    let rows = scene.node.logs_api("").await;
    let cost = |row: &Value| row["cost_nano_usd"].as_i64().unwrap_or_default();
    let billed: Vec<Value> = rows.iter().filter(|row| cost(row) != 0).cloned().collect();
    (rows.iter().map(cost).sum(), billed)
}
