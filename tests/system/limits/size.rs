//! Limits at the size that is promised, over as many gateways: exact, and used to the full. These tests are clusters
//! wherever they run.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use harness::{Answer, Behaviour, Client, Plan, Scene};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::under::{Clock, ask, busiest, mint, refused};
use crate::cluster::told;

/// Gateways beyond the two that a cluster has anyway.
const EIGHT: Plan = Plan {
    routers_apart: false,
    guarded: false,
    proxied: false,
    three_servers: false,
    more_gateways: 6,
    health_workers: 0,
    linked: false,
};
/// How long a call may take whose node has hundreds of others.
const PATIENCE: Duration = Duration::from_mins(2);
/// How soon every gateway knows of a new key.
const KNOWN_MAX: Duration = Duration::from_secs(15);

/// Calls per minute that a key may make, and how many are made.
const RATE: usize = 1_000;
const RATE_OFFERED: usize = 5_000;

/// Calls at once that a key may make, and how many are to be served.
const SLOTS: usize = 100;
const SLOTS_OFFERED: usize = 1_000;

/// A client with a key that nobody has used, known to every gateway.
async fn fresh(scene: &Scene, limits: Value) -> Client {
    let made = mint(
        scene,
        json!({"name": "fresh", "tenant": "acme", "limits": limits}),
    )
    .await;
    let client = scene.client.with_key(made["key"].as_str().expect("a key"));
    let begun = Instant::now();
    for gateway in scene.addrs() {
        while client.at(gateway).get("/v1/models").await.status != 200 {
            assert!(begun.elapsed() < KNOWN_MAX, "{gateway} does not know of the key");
            sleep(Duration::from_millis(20)).await;
        }
    }
    client.patience(PATIENCE)
}

/// The answers to so many calls, all made at once.
async fn offered(client: &Client, calls: usize) -> Vec<Answer> {
    let body = ask();
    let calls = (0..calls).map(|_| client.post_chat(&body));
    futures_util::future::join_all(calls).await
}

#[tokio::test]
async fn a_rate_is_exact_over_eight_gateways_in_every_round() {
    let clock = Clock::on_the_minute();
    let scene = Scene::start_cluster(EIGHT, |node| clock.of(node)).await;
    scene.o1.default(Behaviour::chat("hello there"));

    for round in 0..told("WAYBILL_TEST_ROUNDS", 2) {
        let client = fresh(&scene, json!({ "rpm": RATE })).await;
        clock.early_in_the_minute(30).await;
        let (minute_before, calls_before) = (clock.minute(), scene.o1.calls());
        let begun = Instant::now();

        let answers = offered(&client, RATE_OFFERED).await;

        let minutes = usize::try_from(clock.minute() - minute_before).expect("time goes on") + 1;
        let (whole, others): (Vec<Answer>, Vec<Answer>) =
            answers.into_iter().partition(|answer| answer.status == 200);
        eprintln!(
            "round {round}: {} in {:?}, {minutes} minutes",
            whole.len(),
            begun.elapsed()
        );
        for answer in &others {
            let error = refused(answer, "RPM_EXCEEDED");
            assert_eq!(error["limit"], RATE, "{error}");
            let retry: u64 = answer.header("retry-after").parse().expect("seconds");
            assert!(retry <= 60, "{retry}");
        }
        if minutes == 1 {
            assert_eq!(whole.len(), RATE, "round {round}");
        }
        assert!(whole.len() <= RATE * minutes, "round {round}: {}", whole.len());
        assert_eq!(scene.o1.calls() - calls_before, whole.len(), "round {round}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn calls_of_a_day_are_exact_over_eight_gateways() {
    let scene = Scene::start_cluster(EIGHT, |node| node).await;
    scene.o1.default(Behaviour::chat("hello there"));
    let client = fresh(&scene, json!({ "daily_calls": RATE })).await;

    let answers = offered(&client, RATE_OFFERED).await;

    let (whole, others): (Vec<Answer>, Vec<Answer>) =
        answers.into_iter().partition(|answer| answer.status == 200);
    for answer in &others {
        refused(answer, "DAILY_LIMIT_EXCEEDED");
    }
    assert_eq!(whole.len(), RATE);
    assert_eq!(scene.o1.calls(), RATE);
    scene.finish().await;
}

/// Makes a call again and again as its refusals say, until it is served.
async fn served(client: &Client, body: &Value) {
    let begun = Instant::now();
    loop {
        let answer = client.post_chat(body).await;
        if answer.status == 200 {
            return;
        }
        refused(&answer, "CONCURRENCY_EXCEEDED");
        assert!(begun.elapsed() < PATIENCE, "never served");
        let seconds = answer.header("retry-after").parse().expect("seconds");
        sleep(Duration::from_secs(seconds)).await;
    }
}

/// Never more than so many calls at once, of so many that are offered, and all are served.
async fn slots_are_exact(plan: Plan, slots: usize, calls_offered: usize) {
    let scene = Scene::start_cluster(plan, |node| node).await;
    let answer = Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(150));
    scene.o1.default(answer);
    let client = fresh(&scene, json!({ "concurrency": slots })).await;
    let body = ask();
    let begun = Instant::now();

    let calls = (0..calls_offered).map(|_| served(&client, &body));
    let served: Vec<()> = stream::iter(calls)
        .buffer_unordered(calls_offered)
        .collect()
        .await;

    let busiest = busiest(&scene.o1);
    eprintln!("{busiest} at once, {:?}", begun.elapsed());
    assert_eq!(served.len(), calls_offered);
    assert_eq!(scene.o1.calls(), calls_offered);
    assert!(busiest <= slots, "{busiest} at once");
    assert!(busiest >= slots / 2, "{busiest} at once: the limit is not used");
    scene.finish().await;
}

#[tokio::test]
async fn a_hundred_at_once_are_never_more_over_two_gateways_and_a_thousand_calls_are_served() {
    slots_are_exact(Plan::default(), SLOTS, SLOTS_OFFERED).await;
}

#[tokio::test]
async fn a_hundred_at_once_are_never_more_over_eight_gateways_and_a_thousand_calls_are_served() {
    slots_are_exact(EIGHT, SLOTS, SLOTS_OFFERED).await;
}

#[tokio::test]
async fn fewer_slots_than_gateways_serve_every_call_in_the_end() {
    slots_are_exact(EIGHT, 3, 60).await;
}
