//! Limits over two nodes: exact, whoever dies and whatever is away. These tests are clusters wherever they run.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use harness::{Behaviour, Client, Plan, Scene};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::under::{ANSWER_NANO_USD, Clock, ask, books_cost, busiest, limited};

/// Calls under way at once.
const AT_ONCE: usize = 100;
/// Slots that a node holds when it dies.
const HELD: usize = 50;
/// A lease and a little more: what a dead node held is free after it.
const LEASE_MAX: Duration = Duration::from_secs(20);

/// A cluster whose caller's key has limits.
async fn scene(plan: Plan, limits: Value) -> Scene {
    let scene = Scene::start_cluster(plan, |node| limited(node, &limits)).await;
    scene.o1.default(Behaviour::chat("hello there"));
    scene
}

/// The same on clocks that had just begun a minute when it started.
async fn scene_on_the_minute(plan: Plan, limits: Value) -> (Scene, Clock) {
    let clock = Clock::on_the_minute();
    let scene = Scene::start_cluster(plan, |node| clock.of(limited(node, &limits))).await;
    scene.o1.default(Behaviour::chat("hello there"));
    (scene, clock)
}

/// The statuses of so many calls, made at once.
async fn offered(client: &Client, calls: usize) -> Vec<(u16, String)> {
    let body = ask();
    let calls = (0..calls).map(|_| async {
        let answer = client.post_chat(&body).await;
        let code = if answer.status == 200 {
            String::new()
        } else {
            answer.error_code()
        };
        (answer.status, code)
    });
    stream::iter(calls).buffer_unordered(AT_ONCE).collect().await
}

fn admitted(statuses: &[(u16, String)]) -> usize {
    statuses.iter().filter(|(status, _)| *status == 200).count()
}

#[tokio::test]
async fn a_rate_is_exact_over_two_nodes() {
    let (scene, clock) = scene_on_the_minute(Plan::default(), json!({"rpm": 1000})).await;
    clock.early_in_the_minute(40).await;

    let statuses = offered(&scene.client, 2_000).await;

    assert_eq!(admitted(&statuses), 1_000);
    let refused: Vec<&str> = statuses
        .iter()
        .filter(|(status, _)| *status != 200)
        .map(|(_, code)| code.as_str())
        .collect();
    assert_eq!(refused.len(), 1_000);
    assert!(
        refused.iter().all(|code| *code == "RPM_EXCEEDED"),
        "{:?}",
        refused.iter().find(|code| **code != "RPM_EXCEEDED")
    );
    assert_eq!(scene.o1.calls(), 1_000);
    scene.finish().await;
}

#[tokio::test]
async fn a_rate_is_never_exceeded_though_the_bus_is_killed_within_its_minute() {
    let (mut scene, clock) = scene_on_the_minute(Plan::default(), json!({"rpm": 1000})).await;
    scene.wait_ready().await;
    clock.early_in_the_minute(45).await;
    let minute_before = clock.minute();
    let client = scene.client.clone();
    let mut before = JoinSet::new();
    before.spawn(async move { offered(&client, 900).await });
    scene.o1.wait_calls(100).await;

    let server = &mut scene.cluster().services.nats.servers[0];
    server.kill().await;
    sleep(Duration::from_secs(1)).await;
    server.restart().await;
    let before = before.join_all().await.remove(0);
    scene.wait_ready().await;
    let mut statuses = offered(&scene.client, 1_500).await;
    let minutes = usize::try_from(clock.minute() - minute_before).expect("time goes on") + 1;

    statuses.extend(before);
    let admitted = admitted(&statuses);
    let told: BTreeSet<&(u16, String)> = statuses.iter().collect();
    eprintln!("{admitted} in {minutes} minutes: {told:?}");
    // In a minute that follows the one of the kill each node may use its share before it knows of the others.
    let most = if minutes == 1 {
        1_000
    } else {
        1_000 + 2_000 * (minutes - 1)
    };
    assert!(
        (100..=most).contains(&admitted),
        "{admitted} in {minutes}: {told:?}"
    );
    assert_eq!(scene.o1.calls(), admitted);
    let refused = statuses.iter().filter(|(status, _)| *status != 200);
    for (_, code) in refused {
        assert!(
            ["RPM_EXCEEDED", "store_unavailable"].contains(&code.as_str()),
            "{told:?}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn calls_at_once_are_never_more_than_the_limit_over_two_nodes_and_all_are_served_in_the_end() {
    let scene = scene(Plan::default(), json!({"concurrency": 20})).await;
    scene
        .o1
        .default(Behaviour::chat("hello").first_byte_delay(Duration::from_millis(40)));
    let (client, body) = (&scene.client, ask());

    let calls = (0..400).map(|_| async {
        let begun = Instant::now();
        loop {
            let answer = client.post_chat(&body).await;
            if answer.status == 200 {
                return;
            }
            assert_eq!(answer.error_code(), "CONCURRENCY_EXCEEDED", "{}", answer.text());
            assert!(begun.elapsed() < Duration::from_mins(1), "never served");
            sleep(Duration::from_millis(20)).await;
        }
    });
    stream::iter(calls)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;

    let busiest = busiest(&scene.o1);
    assert!(busiest <= 20, "{busiest} at once");
    assert!(busiest >= 15, "{busiest} at once: the limit is not used");
    scene.finish().await;
}

#[tokio::test]
async fn fifty_slots_of_a_killed_node_are_free_within_a_lease_and_not_before() {
    let mut scene = scene(Plan::default(), json!({ "concurrency": HELD })).await;
    scene.o1.on(|request| {
        if request.streaming() {
            Behaviour::chat("").chunks(1_200, Duration::from_millis(100))
        } else {
            Behaviour::chat("hello").first_byte_delay(Duration::from_secs(2))
        }
    });
    let a = scene.client.at(scene.node.addr());
    let addr = scene.cluster().node("b").addr();
    let b = scene.client.at(addr);
    let mut body = ask();
    body["stream"] = true.into();
    let streams = (0..HELD).map(|_| async {
        let mut stream = b.stream_chat(&body).await;
        stream.read_content(1).await;
        stream
    });
    let streams = join_all(streams).await;
    let answer = a.post_chat(&ask()).await;
    assert_eq!(answer.error_code(), "CONCURRENCY_EXCEEDED");

    scene.cluster().node("b").kill().await;
    let killed = Instant::now();
    loop {
        let answer = a.post_chat(&ask()).await;
        if answer.status == 200 {
            break;
        }
        assert_eq!(answer.error_code(), "CONCURRENCY_EXCEEDED");
        assert!(killed.elapsed() < LEASE_MAX, "not free after {LEASE_MAX:?}");
        sleep(Duration::from_millis(200)).await;
    }
    assert!(
        killed.elapsed() > Duration::from_secs(10),
        "before its lease ended"
    );
    let all = offered(&a, HELD).await;
    assert_eq!(admitted(&all), HELD, "{all:?}");
    let one_more = offered(&a, HELD + 1).await;
    assert_eq!(admitted(&one_more), HELD, "{one_more:?}");

    drop(streams);
    scene.cluster().node("b").restart().await;
    scene.finish().await;
}

#[tokio::test]
async fn a_quota_is_exact_over_two_nodes_of_which_one_is_killed_and_comes_back() {
    let limit = 60 * ANSWER_NANO_USD;
    let limits = json!({"daily_usd": super::under::usd(limit), "daily_calls": 1_000});
    let mut scene = scene(Plan::default(), limits).await;
    for _ in 0..20 {
        assert_eq!(scene.client.post_chat(&ask()).await.status, 200);
    }

    let node = scene.cluster().node("b");
    node.kill().await;
    node.restart().await;
    scene.turn_client();
    sleep(Duration::from_secs(2)).await;

    let (mut after, mut refused) = (0, 0);
    // What one node holds and does not need is back in a moment.
    while refused < 5 {
        let answer = scene.client.post_chat(&ask()).await;
        if answer.status == 200 {
            (after, refused) = (after + 1, 0);
            continue;
        }
        assert_eq!(answer.error_code(), "DAILY_SPEND_EXCEEDED", "{}", answer.text());
        refused += 1;
        sleep(Duration::from_millis(300)).await;
    }
    let cost = (20 + after) * ANSWER_NANO_USD;
    assert!(cost <= limit, "{cost} of {limit}");
    books_cost(&scene, cost).await;
    // A call reserves more than it costs, so the last ones do not fit any more.
    assert!(after > 20, "{after}");
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_is_away_for_a_moment_costs_no_limited_call() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let limits = json!({"daily_usd": "100", "monthly_calls": 1_000_000, "concurrency": 200});
    let mut scene = scene(plan, limits).await;
    for _ in 0..60 {
        assert_eq!(admitted(&offered(&scene.client, 5).await), 5);
        sleep(Duration::from_millis(50)).await;
    }

    scene.cluster().services.nats_proxy.cut();
    let cut = Instant::now();
    while cut.elapsed() < Duration::from_secs(8) {
        let statuses = offered(&scene.client, 2).await;
        assert_eq!(admitted(&statuses), 2, "{statuses:?} after {:?}", cut.elapsed());
        sleep(Duration::from_millis(200)).await;
    }
    scene.cluster().services.nats_proxy.heal();
    sleep(Duration::from_secs(2)).await;

    assert_eq!(admitted(&offered(&scene.client, 20).await), 20);
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_of_three_that_loses_its_leader_costs_no_limited_call() {
    let plan = Plan {
        three_servers: true,
        ..Plan::default()
    };
    let limits = json!({"daily_usd": "100", "rpm": 100_000, "concurrency": 200});
    let (mut scene, clock) = scene_on_the_minute(plan, limits).await;
    clock.early_in_the_minute(30).await;
    for _ in 0..40 {
        assert_eq!(admitted(&offered(&scene.client, 5).await), 5);
        sleep(Duration::from_millis(50)).await;
    }

    let nats = &mut scene.cluster().services.nats;
    let leader = nats.leader_of("KV_wb_quota").await;
    nats.servers[leader].kill().await;
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(10) {
        let statuses = offered(&scene.client, 2).await;
        assert_eq!(
            admitted(&statuses),
            2,
            "{statuses:?} after {:?}",
            killed.elapsed()
        );
        sleep(Duration::from_millis(200)).await;
    }
    scene.cluster().services.nats.servers[leader].restart().await;
    sleep(Duration::from_secs(1)).await;
    scene.finish().await;
}
