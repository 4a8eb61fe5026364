//! One gateway of several is cut from the bus: it serves for as long as it is trusted to know who may call, then nobody;
//! it admits nothing beyond the limits that it shares with the others; and it is well again by itself. A cluster wherever
//! it runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Behaviour, CALLER_KEY, Client, Model, Node, NodeBuilder, OPERATOR_KEY, OTHER_KEY, Plan, Proxy, Scene,
    Upstream, chat, settings,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{LOOK_EVERY, PATIENCE, call, done, until};
use crate::limits::under::busiest;

/// How long a gateway may serve without hearing of the others.
const STALE_MAX: Duration = Duration::from_secs(30);
/// How long it is cut off.
const AWAY: Duration = Duration::from_millis(31_500);
/// Between the moment at which a call is made and the one at which it is judged.
const SLACK: Duration = Duration::from_millis(400);
/// Calls of a day, and calls at once, of the caller's key.
const DAILY_CALLS: usize = 150;
const CONCURRENCY: usize = 6;
/// Callers at each gateway.
const CALLERS: usize = 6;

/// Nodes that know for a while only who may call, and of which the caller's key has limits.
fn limited(node: NodeBuilder) -> NodeBuilder {
    let mut keys = settings()["keys"].clone();
    keys[2]["limits"] = json!({"daily_calls": DAILY_CALLS, "concurrency": CONCURRENCY});
    node.setting("keys", keys)
        .setting("auth", json!({"stale_seconds_max": STALE_MAX.as_secs()}))
}

/// A cluster with one more gateway, `c`, which reaches the bus over a way of its own.
async fn scene() -> (Scene, Proxy) {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    o1.default(Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(60)));
    let served = [Model::new("m").leg(&o1, 0).leg(&o2, 1)];
    let mut scene = Scene::start_cluster_on(Plan::default(), (o1, o2), limited).await;
    let services = &scene.cluster().services;
    let way = Proxy::start(services.nats.servers[0].addr()).await;
    let builder = limited(Node::builder().models(&served));
    let builder = services.node(&builder, "c", "gateway,router");
    let node = builder.nats(&format!("nats://{}", way.addr())).start().await;
    scene.cluster().nodes.push(node);
    (scene, way)
}

/// Calls under limits until it is over; counts those that were answered.
async fn caller(client: Client, is_over: &AtomicBool, served: &AtomicUsize) {
    while !is_over.load(Ordering::Relaxed) {
        let answer = client.post_chat(&chat("m")).await;
        match (answer.status, &*answer.error_code()) {
            (200, _) => drop(served.fetch_add(1, Ordering::Relaxed)),
            (429, "DAILY_LIMIT_EXCEEDED" | "CONCURRENCY_EXCEEDED") | (503, "store_unavailable") => {
                sleep(LOOK_EVERY * 2).await;
            }
            _ => panic!("{}", answer.text()),
        }
    }
}

/// Calls with a revoked key for as long as its gateway is cut off; gives how late the last call was made that was
/// answered.
async fn last_served(client: &Client, cut: Instant) -> Duration {
    let mut last = Duration::ZERO;
    while cut.elapsed() < AWAY {
        let at = cut.elapsed();
        let answer = client.post_chat(&chat("m")).await;
        match answer.status {
            200 => last = at,
            503 => assert_eq!(answer.error_code(), "store_unavailable", "{}", answer.text()),
            _ => panic!("{}", answer.text()),
        }
        sleep(LOOK_EVERY).await;
    }
    last
}

/// Nobody is served by `c`, whoever he is, and it says so.
async fn refuses_everyone(c: &Client) {
    let ready = call(c, "GET", "/health/ready", Value::Null).await;
    assert_eq!(
        (ready.status, &ready.json()["status"]),
        (503, &json!("stale")),
        "{}",
        ready.text()
    );
    for key in [OTHER_KEY, OPERATOR_KEY, "sk-nobody-has-this-key"] {
        let answer = c.with_key(key).post_chat(&chat("m")).await;
        assert_eq!(
            (answer.status, &*answer.error_code()),
            (503, "store_unavailable"),
            "{}",
            answer.text()
        );
        assert_ne!(answer.header("retry-after"), "");
    }
}

/// A revoked key is refused from the first call on that is judged again.
async fn refuses_once_it_is_back(revoked: &Client) {
    let healed = Instant::now();
    loop {
        let answer = revoked.post_chat(&chat("m")).await;
        if answer.status == 401 {
            break;
        }
        assert_eq!(answer.status, 503, "a revoked key: {}", answer.text());
        assert!(healed.elapsed() < PATIENCE, "{}", answer.text());
        sleep(LOOK_EVERY).await;
    }
}

#[tokio::test]
async fn a_gateway_that_is_cut_off_soon_serves_nobody_overdraws_nothing_and_is_well_again_by_itself() {
    let (mut scene, way) = scene().await;
    let (a, c) = (scene.node.addr(), scene.cluster().node("c").addr());
    // Of callers whom a gateway cannot know there are no rows: clients with logs of their own.
    let (at_a, at_c) = (Client::new(a, OTHER_KEY), Client::new(c, OTHER_KEY));
    let operator = at_a.with_key(OPERATOR_KEY);
    let keys = "/api/v1/tenant/api-keys";
    let made = done(&operator, "POST", keys, json!({"name": "k", "tenant": "zenith"})).await;
    let key = made["key"].as_str().expect("a key");
    let revoked = at_c.with_key(key);
    until(&revoked, 200).await;
    let over = AtomicBool::new(false);
    let (is_over, by_a, by_c) = (&over, &AtomicUsize::new(0), &AtomicUsize::new(0));
    let callers = |addr, served| {
        let one = move |_| caller(Client::new(addr, CALLER_KEY), is_over, served);
        join_all((0..CALLERS).map(one))
    };
    let served = |by: &AtomicUsize| by.load(Ordering::Relaxed);
    let cutting = async {
        // Both gateways are at work, and the day is not used up.
        while served(by_a) == 0 || served(by_c) == 0 {
            sleep(LOOK_EVERY).await;
        }
        way.cut();
        let cut = Instant::now();
        let path = format!("{keys}/{}", made["id"].as_str().expect("an id"));
        done(&operator, "DELETE", &path, Value::Null).await;
        until(&at_a.with_key(key), 401).await;
        let last = last_served(&revoked, cut).await;
        assert!(
            last < STALE_MAX + SLACK,
            "a revoked key was served after {last:?}"
        );
        refuses_everyone(&at_c).await;
        until(&at_a, 200).await;

        way.heal();
        refuses_once_it_is_back(&revoked).await;
        until(&at_c, 200).await;
        over.store(true, Ordering::Relaxed);
    };

    tokio::join!(callers(a, by_a), callers(c, by_c), cutting);

    let (at_a, at_c) = (served(by_a), served(by_c));
    assert!(at_a + at_c <= DAILY_CALLS, "{at_a} and {at_c} of {DAILY_CALLS}");
    scene.o1.wait_quiet().await;
    // Beside them there is one call at a time of those who have no limit.
    let busiest = busiest(&scene.o1);
    assert!(busiest <= CONCURRENCY + 1, "{busiest} at once");
    scene.foreign_calls();
    scene.finish().await;
}
