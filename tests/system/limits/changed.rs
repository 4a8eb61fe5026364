//! Case 19: limits that are lowered, raised and taken away while calls run, and keys that are replaced, on two nodes. What
//! one node is told counts on the other one within two seconds, and what ran before ends as it was admitted.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use harness::{Behaviour, CALLER_KEY, Client, NodeBuilder, OPERATOR_KEY, Plan, Scene, Stream};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::under::{Clock, ask, books_cost, limited, mint, refused, usd};

/// How long a change of the catalogue may take to count on every node.
const SPREAD_MAX: Duration = Duration::from_secs(2);
/// Callers of each node while something is changed.
const CALLERS: usize = 4;
/// Tokens that the slow streams answer, each for [`PACE`].
const STREAMED: u64 = 30;
const PACE: Duration = Duration::from_millis(100);
/// What such a stream costs: three tokens of prompt at 2 dollars a million, its own at 8.
const STREAM_NANO_USD: i64 = 3 * 2_000 + 30 * 8_000;

/// Two nodes that know the tenant and the member of the caller's key, and a client for each.
async fn two_nodes(limits: Value) -> (Scene, [Client; 2]) {
    two_nodes_of(limits, |node| node).await
}

/// The same of which something is different.
async fn two_nodes_of(
    limits: Value,
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> (Scene, [Client; 2]) {
    let mut scene = Scene::start_cluster(Plan::default(), |node| {
        change(limited(node, &limits))
            .setting("tenants", json!([{"id": "acme"}, {"id": "zenith"}]))
            .setting("users", json!([{"tenant": "acme", "id": "alice"}]))
    })
    .await;
    scene.o1.on(|request| {
        if request.streaming() {
            Behaviour::chat("").chunks(30, PACE).usage(3, STREAMED)
        } else {
            Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(20))
        }
    });
    scene.wait_ready().await;
    let addrs = [scene.node.addr(), scene.cluster().node("b").addr()];
    let clients = addrs.map(|addr| scene.client.at(addr));
    (scene, clients)
}

/// Replaces the limits of a record, and gives when that was answered.
async fn change(node: &Client, path: &str, limits: &Value) -> Instant {
    let body = json!({ "limits": limits }).to_string();
    let operator = node.with_key(OPERATOR_KEY);
    let changed = operator.call("PATCH", path, body.into()).await;
    let changed = changed.expect("an answer");
    assert_eq!(changed.status, 200, "{path}: {}", changed.text());
    Instant::now()
}

/// Slow streams, two on each node, that have begun.
async fn streams(nodes: &[Client; 2]) -> Vec<Stream> {
    let mut body = ask();
    body["stream"] = true.into();
    let begun = (0..4).map(|call| {
        let body = &body;
        async move {
            let mut stream = nodes[call % 2].stream_chat(body).await;
            stream.read_content(1).await;
            stream
        }
    });
    join_all(begun).await
}

/// Reads streams to their ends, which are whole, and gives the rows of them.
async fn ended(scene: &Scene, streams: Vec<Stream>) -> Vec<Value> {
    let streams = join_all(streams.into_iter().map(Stream::collect)).await;
    let mut rows = Vec::new();
    for stream in streams {
        assert_eq!(stream.finish_reason().as_deref(), Some("stop"));
        rows.push(scene.row(stream.request_id()).await);
    }
    rows
}

/// A call as its caller saw it.
struct Called {
    begun: Instant,
    node: usize,
    /// The limit that refused it.
    limit: Option<Value>,
}

/// Calls that go on at both nodes until they are told to end.
struct Load {
    end: CancellationToken,
    callers: JoinSet<Vec<Called>>,
}

impl Load {
    fn start(nodes: &[Client; 2]) -> Self {
        let end = CancellationToken::new();
        let mut callers = JoinSet::new();
        for (node, client) in nodes.iter().enumerate() {
            for _ in 0..CALLERS {
                callers.spawn(calls(client.clone(), node, end.clone()));
            }
        }
        Self { end, callers }
    }

    async fn end(self) -> Vec<Called> {
        self.end.cancel();
        self.callers.join_all().await.into_iter().flatten().collect()
    }
}

async fn calls(client: Client, node: usize, end: CancellationToken) -> Vec<Called> {
    let mut called = Vec::new();
    while !end.is_cancelled() {
        let begun = Instant::now();
        let answer = client.post_chat(&ask()).await;
        let limit = (answer.status != 200).then(|| {
            let error = refused(&answer, "DAILY_LIMIT_EXCEEDED");
            error["limit"].clone()
        });
        called.push(Called { begun, node, limit });
        sleep(Duration::from_millis(20)).await;
    }
    called
}

fn served(called: &[Called]) -> usize {
    called.iter().filter(|call| call.limit.is_none()).count()
}

/// Calls until nothing is left, for longer than a change takes to spread and than what one node has in hand takes to come
/// back; gives how many calls were served.
async fn exhausted(nodes: &[Client; 2], code: &str) -> usize {
    let (mut served, mut in_vain) = (0, 0);
    while in_vain < 30 {
        let answer = nodes[in_vain % 2].post_chat(&ask()).await;
        if answer.status == 200 {
            (served, in_vain) = (served + 1, 0);
            continue;
        }
        refused(&answer, code);
        in_vain += 1;
        sleep(Duration::from_millis(100)).await;
    }
    served
}

#[tokio::test]
async fn bug_case_19_a_quota_of_calls_that_is_lowered_and_raised_while_calls_run_holds_on_both_nodes() {
    let (scene, nodes) = two_nodes(json!({})).await;
    for path in ["/api/v1/tenants/acme", "/api/v1/users/alice?tenant=acme"] {
        change(&nodes[0], path, &json!({"daily_calls": 10_000})).await;
        // What is counted is counted from when both know it.
        sleep(SPREAD_MAX).await;
        let load = Load::start(&nodes);
        let slow = streams(&nodes).await;
        sleep(Duration::from_secs(1)).await;

        let lowered = change(&nodes[1], path, &json!({"daily_calls": 10})).await;
        sleep(2 * SPREAD_MAX).await;
        let called = load.end().await;

        let late: Vec<&Called> = called
            .iter()
            .filter(|call| call.begun > lowered + SPREAD_MAX)
            .collect();
        for node in 0..2 {
            assert!(late.iter().any(|call| call.node == node), "{path}: nobody called");
        }
        assert!(
            late.iter().all(|call| call.limit == Some(json!(10))),
            "{path}: served after it was lowered"
        );
        let mut used = served(&called) + slow.len();
        assert!(used > 10, "{path}: {used}");
        for row in ended(&scene, slow).await {
            assert_eq!(
                (&row["outcome"], &row["cost_nano_usd"]),
                (&json!("ok"), &json!(STREAM_NANO_USD))
            );
        }

        // Raised by twenty it has room for twenty, not one more or less.
        change(&nodes[0], path, &json!({"daily_calls": used + 20})).await;
        assert_eq!(exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await, 20, "{path}");
        used += 20;

        // Lowered to ten above what is used, while both nodes have more than that in hand.
        change(&nodes[0], path, &json!({"daily_calls": used + 10_000})).await;
        sleep(SPREAD_MAX).await;
        let load = Load::start(&nodes);
        sleep(Duration::from_secs(1)).await;
        used += served(&load.end().await);
        change(&nodes[1], path, &json!({"daily_calls": used + 10})).await;
        sleep(SPREAD_MAX).await;
        let offered = (0..80).map(|call| {
            let node = &nodes[call % 2];
            async move { node.post_chat(&ask()).await.status == 200 }
        });
        let offered: Vec<bool> = stream::iter(offered).buffer_unordered(40).collect().await;
        let at_once = offered.into_iter().filter(|served| *served).count();
        assert!(at_once <= 10, "{path}: {at_once} of 10");
        let rest = exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await;
        assert_eq!(at_once + rest, 10, "{path}");

        change(&nodes[1], path, &json!({})).await;
        sleep(SPREAD_MAX).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_19_streams_that_reserved_before_their_budget_was_lowered_are_charged_what_they_used() {
    let (scene, nodes) = two_nodes(json!({})).await;
    let path = "/api/v1/tenants/acme";
    change(&nodes[0], path, &json!({"daily_usd": "100"})).await;
    sleep(SPREAD_MAX).await;
    let slow = streams(&nodes).await;

    // Less than one of the four costs.
    change(&nodes[1], path, &json!({"daily_usd": usd(STREAM_NANO_USD - 1)})).await;
    let rows = ended(&scene, slow).await;

    assert_eq!(rows.len(), 4);
    for row in &rows {
        let charged = (&row["outcome"], &row["cost_nano_usd"], &row["absorbed_nano_usd"]);
        assert_eq!(
            charged,
            (&json!("ok"), &json!(STREAM_NANO_USD), &json!(0)),
            "{row}"
        );
    }
    for node in &nodes {
        let answer = node.post_chat(&ask()).await;
        let error = refused(&answer, "DAILY_SPEND_EXCEEDED");
        assert_eq!(
            (&error["limit"], &error["remaining"]),
            (&json!(usd(STREAM_NANO_USD - 1)), &json!(usd(0)))
        );
        let balance = node
            .with_key(CALLER_KEY)
            .get("/anthropic/user/balance")
            .await
            .json();
        let spent: f64 = usd(4 * STREAM_NANO_USD).parse().expect("a number");
        assert_eq!(balance["spent_today_usd"], json!(spent), "{balance}");
        assert_eq!(
            (&balance["balance_usd"], balance.get("is_current")),
            (&json!(0.0), None)
        );
    }
    books_cost(&scene, 4 * STREAM_NANO_USD).await;
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_19_a_rate_that_is_lowered_below_what_is_used_serves_nobody_in_that_minute() {
    let clock = Clock::on_the_minute();
    let (scene, nodes) = two_nodes_of(json!({}), |node| clock.of(node)).await;
    let path = "/api/v1/tenants/acme";
    clock.early_in_the_minute(40).await;
    change(&nodes[0], path, &json!({"rpm": 1600})).await;
    sleep(SPREAD_MAX).await;
    let running = clock.minute();
    for call in 0..20 {
        assert_eq!(nodes[call % 2].post_chat(&ask()).await.status, 200);
    }

    // Each node has a hundred in hand.
    change(&nodes[1], path, &json!({"rpm": 10})).await;
    sleep(SPREAD_MAX).await;
    for call in 0..20 {
        let error = refused(&nodes[call % 2].post_chat(&ask()).await, "RPM_EXCEEDED");
        assert_eq!(error["limit"], 10);
    }
    assert_eq!(clock.minute(), running, "too slow a machine to say anything");
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_19_calls_at_once_are_no_more_than_a_limit_that_is_lowered() {
    let (scene, nodes) = two_nodes(json!({})).await;
    let path = "/api/v1/tenants/acme";
    change(&nodes[0], path, &json!({"concurrency": 16})).await;
    sleep(SPREAD_MAX).await;
    for call in 0..10 {
        assert_eq!(nodes[call % 2].post_chat(&ask()).await.status, 200);
    }

    // Each node has two in hand.
    change(&nodes[1], path, &json!({"concurrency": 1})).await;
    sleep(SPREAD_MAX).await;
    let mut body = ask();
    body["stream"] = true.into();
    let begun = Instant::now();
    let mut running = Vec::new();
    while running.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody is served");
        let offered = (0..8).map(|call| nodes[call % 2].try_stream_chat(&body));
        let offered = join_all(offered).await.into_iter();
        running = offered
            .filter_map(Result::ok)
            .filter(|stream| stream.status == 200)
            .collect();
        assert!(running.len() <= 1, "{} at once", running.len());
    }
    assert_eq!(ended(&scene, running).await.len(), 1);
    scene.finish().await;
}

/// Writes other limits of the caller's key into the file of the first node.
fn write_limits(scene: &Scene, limits: &Value) {
    let path = scene.node.data_dir().with_file_name("waybill.yaml");
    let text = std::fs::read_to_string(&path).expect("a file");
    let mut settings: Value = serde_json::from_str(&text).expect("JSON");
    let keys = settings["keys"].as_array_mut().expect("a list");
    let caller = keys.iter_mut().find(|key| key["name"] == "caller");
    caller.expect("the caller's key")["limits"] = limits.clone();
    std::fs::write(&path, settings.to_string()).expect("a file written");
}

#[tokio::test]
async fn limits_of_a_changed_file_hold_on_both_nodes_once_one_was_started_with_it() {
    let (mut scene, [_, b]) = two_nodes(json!({"daily_calls": 10})).await;
    for _ in 0..6 {
        assert_eq!(b.post_chat(&ask()).await.status, 200);
    }
    for (limits, left, limit) in [
        (json!({"daily_calls": 8}), 2, 8),
        (json!({"daily_calls": 20, "total_usd": "100"}), 12, 20),
        (json!({"daily_calls": 3}), 0, 3),
    ] {
        write_limits(&scene, &limits);
        assert_eq!(scene.node.stop().await, Some(0));
        scene.restart().await;
        let nodes = [scene.client.at(scene.node.addr()), b.clone()];
        sleep(SPREAD_MAX).await;

        assert_eq!(exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await, left, "{limits}");

        for node in &nodes {
            let error = refused(&node.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
            assert_eq!(error["limit"], limit);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_19_a_limit_that_is_taken_away_lifts_its_own_subject_and_no_other() {
    let (scene, nodes) = two_nodes(json!({"daily_calls": 30})).await;
    let (tenant, member) = ("/api/v1/tenants/acme", "/api/v1/users/alice?tenant=acme");
    let scope = async |expected: &str| {
        for node in &nodes {
            let error = refused(&node.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
            assert_eq!(error["scope"], expected);
        }
    };
    change(&nodes[0], tenant, &json!({"daily_calls": 5})).await;
    change(&nodes[0], member, &json!({"daily_calls": 12})).await;
    sleep(SPREAD_MAX).await;
    assert_eq!(exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await, 5);
    scope("per_tenant").await;

    change(&nodes[1], tenant, &json!({"daily_calls": 0})).await;
    assert_eq!(exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await, 7);
    scope("per_user").await;

    change(&nodes[0], member, &json!({})).await;
    assert_eq!(exhausted(&nodes, "DAILY_LIMIT_EXCEEDED").await, 18);
    scope("per_api_key").await;

    // Set again within the day, the tenant's goes on from what it had counted.
    change(&nodes[1], tenant, &json!({"daily_calls": 5})).await;
    sleep(SPREAD_MAX).await;
    scope("per_tenant").await;
    scene.finish().await;
}

/// Makes a key of alice's and gives a client for each node that knows it, and its id.
async fn key_of_alice(scene: &Scene, nodes: &[Client; 2], limits: Value) -> ([Client; 2], String) {
    let body = json!({"name": "laptop", "tenant": "acme", "user": "alice", "limits": limits});
    let made = mint(scene, body).await;
    let key = made["key"].as_str().expect("a key");
    let clients = nodes.each_ref().map(|node| node.with_key(key));
    for client in &clients {
        until(client, 200).await;
    }
    (clients, made["id"].as_str().expect("an id").to_owned())
}

/// Reads what asks no limit until the status is this one, within the time of a change.
async fn until(client: &Client, status: u16) {
    let begun = Instant::now();
    while client.get("/anthropic/user/balance").await.status != status {
        assert!(begun.elapsed() < SPREAD_MAX, "not {status} in time");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn bug_case_19_a_key_that_replaces_another_has_the_limits_of_its_member_and_the_old_one_is_refused() {
    let (scene, nodes) = two_nodes(json!({})).await;
    let operator = nodes[0].with_key(OPERATOR_KEY);
    change(
        &nodes[0],
        "/api/v1/users/alice?tenant=acme",
        &json!({"daily_calls": 12}),
    )
    .await;
    let (old, id) = key_of_alice(&scene, &nodes, json!({"daily_calls": 100})).await;
    sleep(SPREAD_MAX).await;
    for call in 0..4 {
        assert_eq!(old[call % 2].post_chat(&ask()).await.status, 200);
    }
    let mut body = ask();
    body["stream"] = true.into();
    let mut running = old[1].stream_chat(&body).await;
    running.read_content(1).await;

    let (new, _) = key_of_alice(&scene, &nodes, json!({"daily_calls": 3})).await;
    let path = format!("/api/v1/tenant/api-keys/{id}");
    let revoked = operator.call("DELETE", &path, bytes::Bytes::new()).await;
    assert!(revoked.expect("an answer").status < 300);
    for client in &old {
        until(client, 401).await;
    }
    for _ in 0..10 {
        for client in &old {
            assert_eq!(client.post_chat(&ask()).await.status, 401);
        }
    }

    // What ran goes on to its end, which is counted.
    let row = ended(&scene, vec![running]).await.remove(0);
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"], &row["key_id"]),
        (&json!("ok"), &json!(STREAM_NANO_USD), &json!(id))
    );
    // Five of his twelve are used; the new key's own three begin at none.
    assert_eq!(exhausted(&new, "DAILY_LIMIT_EXCEEDED").await, 3);
    let error = refused(&new[0].post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    assert_eq!(error["scope"], "per_api_key");
    let (last, _) = key_of_alice(&scene, &nodes, json!({})).await;
    assert_eq!(exhausted(&last, "DAILY_LIMIT_EXCEEDED").await, 4);
    for client in &last {
        let error = refused(&client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
        assert_eq!(error["scope"], "per_user");
    }
    scene.finish().await;
}
