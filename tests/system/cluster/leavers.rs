//! Callers who leave at any moment before a slow database: what they asked for is done whole or not at all, every call
//! that was taken has its final row, and the database is left in the middle of nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use harness::{Client, OPERATOR_KEY, Plan, Scene, Surface, Way, chat, chat_streamed};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{good_upstreams, told};
use crate::control::{call, done};

/// How much later what the database says arrives.
const LATE: Duration = Duration::from_millis(300);
/// The longest that a caller stays, in milliseconds.
const STAY_MAX_MS: u64 = 600;
/// How long the books may take to have everything.
const PATIENCE: Duration = Duration::from_secs(40);

/// What callers do, one number after the other: a fixed walk without a rhythm.
struct Walk(AtomicU64);

impl Walk {
    /// The next number, and how long its caller stays.
    fn next(&self) -> (u64, Duration) {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        (number, Duration::from_millis(mixed % (STAY_MAX_MS + 1)))
    }
}

/// The tenant that a caller makes, who may leave before he knows of it: every part of it tells its number.
fn described(number: u64) -> Value {
    json!({"id": format!("t-{number}"), "name": format!("tenant {number}"), "limits": {"rpm": number + 1}})
}

/// Calls, plain and streamed, and makes tenants, and leaves each time, until it is over.
async fn leaver(client: &Client, operator: &Client, walk: &Walk, until: Instant) {
    while Instant::now() < until {
        let (number, stay) = walk.next();
        match number % 4 {
            0 => {
                let body = Bytes::from(described(number).to_string());
                // Whoever leaves does not know what became of it.
                let _ = timeout(stay, operator.call("POST", "/api/v1/tenants", body)).await;
            }
            1 => client.leave_after(Surface::Chat, &chat_streamed("m"), stay).await,
            _ => client.leave_chat_after(&chat("m"), stay).await,
        }
    }
}

/// The tenants that callers made; every one of them is whole.
async fn made(operator: &Client) -> BTreeSet<String> {
    let mut made = BTreeSet::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/tenants?limit=1000{after}");
        let page = done(operator, "GET", &path, Value::Null).await;
        for tenant in page["data"].as_array().expect("a page") {
            let id = tenant["id"].as_str().expect("an id");
            if let Some(number) = id.strip_prefix("t-").and_then(|number| number.parse().ok()) {
                let wanted = described(number);
                let whole = ["id", "name", "limits"]
                    .iter()
                    .all(|field| tenant[*field] == wanted[*field]);
                assert!(whole, "{tenant}");
                made.insert(id.to_owned());
            }
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return made,
        }
    }
}

/// How often the making of each tenant is told of in the books.
async fn told_of(scene: &Scene) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for event in scene.node.books().table("event_log").await {
        let envelope = event["envelope"].as_deref().unwrap_or_default();
        let envelope: Value = serde_json::from_str(envelope).expect("an envelope");
        let id = envelope["data"]["id"].as_str().unwrap_or_default();
        if envelope["type"] == "waybill.audit.v1" && id.starts_with("t-") {
            *told.entry(id.to_owned()).or_default() += 1;
        }
    }
    told
}

/// Every tenant that is there was told of once, and none was told of that is not there; gives how many there are.
async fn assert_made_whole(scene: &Scene, operator: &Client) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (made, told) = (made(operator).await, told_of(scene).await);
        if told.values().all(|times| *times == 1) && told.keys().eq(&made) {
            return made.len();
        }
        assert!(Instant::now() < deadline, "made: {made:?}, told of: {told:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// No session of the ledgers is left in a transaction, and none that rests holds a lock or waits for one.
async fn assert_in_the_middle_of_nothing(scene: &Scene) {
    let books = scene.node.books();
    let view = "CREATE OR REPLACE VIEW left_over AS SELECT pid, state, query FROM pg_stat_activity AS session \
        WHERE application_name = 'waybill-ledger' AND (state LIKE 'idle in transaction%' OR EXISTS \
        (SELECT 1 FROM pg_locks AS held WHERE held.pid = session.pid AND (NOT granted \
        OR (state = 'idle' AND locktype = 'relation'))))";
    books.define(view).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = books.table("left_over").await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn bug_case_25_callers_who_leave_before_a_slow_database_leave_nothing_half_done() {
    let callers = told("WAYBILL_TEST_LEAVERS", 40);
    let lasts = Duration::from_secs(told("WAYBILL_TEST_LEAVING_SECONDS", 4));
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node).await;
    good_upstreams(&scene);
    scene.wait_ready().await;
    scene.cluster().services.postgres_proxy.delay(Way::Down, LATE);
    let operator = scene.client.with_key(OPERATOR_KEY);
    let walk = Walk(AtomicU64::new(0));

    let until = Instant::now() + lasts;
    join_all((0..callers).map(|_| leaver(&scene.client, &operator, &walk, until))).await;

    let sent = walk.0.load(Ordering::Relaxed);
    assert!(sent >= 2 * callers, "{sent} calls");
    // As it was before: the checker compares what was answered with the books.
    for _ in 0..10 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }
    let slow = call(&operator, "GET", "/api/v1/logs?limit=1", Value::Null).await;
    assert_eq!(slow.status, 200, "{}", slow.text());
    assert!(assert_made_whole(&scene, &operator).await > 0);
    assert_in_the_middle_of_nothing(&scene).await;
    let said = scene.cluster().services.postgres.lines().join("\n");
    assert!(!said.contains("current transaction is aborted"), "{said}");
    scene.cluster().services.postgres_proxy.heal();
    let rows = scene.node.books().table("api_logs").await;
    let of = |outcome: &str| {
        rows.iter()
            .filter(|row| row["outcome"].as_deref() == Some(outcome))
            .count()
    };
    assert_eq!(of("lost"), 0);
    assert!(
        of("client_gone") > 0 && of("ok") >= 10,
        "{} and {}",
        of("client_gone"),
        of("ok")
    );
    scene.finish().await;
}
