//! Limits while the bus is away for as long as is promised: calls go on with what nodes hold, then they are told when to
//! try again; nothing is overdrawn, and all is as it was soon after. These tests are clusters wherever they run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use chrono::{DateTime, Utc};
use harness::{Answer, Behaviour, CALLER_KEY, Client, OTHER_KEY, PRO_KEY, Scene, settings};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::under::{PROXIED, ask, busiest, limited, now};
use crate::cluster::told;

/// Time between two calls: 100 a second, of three keys in turn.
const CALL_EVERY: Duration = Duration::from_millis(10);
/// Calls are made for so long before: a node holds what it used of late.
const WARM_UP: Duration = Duration::from_secs(20);
/// Leases last so long at least: fifteen seconds, nine tenths of them used, renewed within five.
const LEASED: Duration = Duration::from_secs(8);
/// So soon after the bus is back every call is admitted again.
const WELL_AGAIN: Duration = Duration::from_secs(5);
/// So long after its last renewal no lease counts, and no call is under way that was admitted under it.
const LEASES_OVER: Duration = Duration::from_secs(18);
/// Calls are made for so long after.
const AFTER: Duration = Duration::from_secs(15);
/// Calls of a day, which are used up in the course of the test.
const DAILY_CALLS: usize = 800;
/// Calls per minute, fewer than are made.
const RATE: usize = 600;

/// Calls at once of one key.
const SLOTS: usize = 20;

/// How long the bus is away.
fn outage() -> Duration {
    Duration::from_secs(told("WAYBILL_TEST_OUTAGE_SECONDS", 8))
}

/// A call that was answered.
struct Called {
    key: &'static str,
    /// When it was made, since the first one.
    at: Duration,
    answer: Answer,
}

impl Called {
    fn is_whole(&self) -> bool {
        self.answer.status == 200
    }
}

/// Calls of three keys in turn until `end`.
async fn calls(client: Client, end: CancellationToken) -> Vec<Called> {
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    let mut ticks = interval(CALL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for key in [CALLER_KEY, OTHER_KEY, PRO_KEY].into_iter().cycle() {
        ticks.tick().await;
        if end.is_cancelled() {
            break;
        }
        let (client, at) = (client.with_key(key), begun.elapsed());
        calls.spawn(async move {
            let answer = client.post_chat(&ask()).await;
            Called { key, at, answer }
        });
    }
    calls.join_all().await
}

/// The scene: a key with much money and many calls at once, one with few calls a day, one with few a minute.
async fn scene() -> Scene {
    let mut keys = settings()["keys"].clone();
    keys[2]["limits"] = json!({"daily_usd": "100", "monthly_calls": 1_000_000, "concurrency": 200});
    keys[3]["limits"] = json!({ "daily_calls": DAILY_CALLS });
    let rated =
        json!({"name": "rated", "tenant": "acme", "key": PRO_KEY, "role": "pro", "limits": {"rpm": RATE}});
    keys.as_array_mut().expect("a list").push(rated);
    let mut scene = Scene::start_cluster(PROXIED, |node| node.setting("keys", keys)).await;
    let answer = Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(30));
    scene.o1.default(answer);
    scene.wait_ready().await;
    scene
}

/// The minute of a time in a row, since 1970.
fn minute(time: &Value) -> i64 {
    let time: DateTime<Utc> = time.as_str().expect("a time").parse().expect("RFC 3339");
    time.timestamp().div_euclid(60)
}

/// How many of these calls were surely admitted in each minute: those that had left for the upstream within it.
async fn admitted_in(scene: &Scene, calls: &BTreeSet<String>) -> BTreeMap<i64, usize> {
    let rows = scene.node.logs_api("outcome=ok").await;
    let mut minutes = BTreeMap::new();
    for row in rows {
        let arrived = minute(&row["started_at"]);
        let is_one = calls.contains(row["request_id"].as_str().expect("an id"));
        if is_one && minute(&row["attempts"][0]["started_at"]) == arrived {
            *minutes.entry(arrived).or_default() += 1;
        }
    }
    minutes
}

/// Never more than the rate in a minute; in one of the outage twice that, because each node may use its share of it
/// beside what others had counted before.
async fn keeps_the_rate(scene: &Scene, called: &[Called], away: RangeInclusive<i64>) {
    let rated = called
        .iter()
        .filter(|call| call.key == PRO_KEY && call.is_whole());
    let rated: BTreeSet<String> = rated.map(|call| call.answer.request_id().to_owned()).collect();
    scene.node.wait_rows("outcome=ok", rated.len()).await;
    for (minute, admitted) in admitted_in(scene, &rated).await {
        let most = if away.contains(&minute) { 2 * RATE } else { RATE };
        assert!(
            admitted <= most,
            "{admitted} in minute {minute}, away in {away:?}"
        );
    }
}

/// What is left of the calls of a day can be used, and not one more; so many were before.
async fn the_day_is_used_up(scene: &Scene, before: usize) {
    let client = scene.client.with_key(OTHER_KEY);
    let (mut used, mut refused) = (before, 0);
    while refused < 6 {
        if client.post_chat(&ask()).await.status == 200 {
            (used, refused) = (used + 1, 0);
        } else {
            refused += 1;
            sleep(Duration::from_millis(300)).await;
        }
    }
    assert_eq!(used, DAILY_CALLS);
}

#[tokio::test]
async fn a_bus_that_is_away_for_long_costs_no_call_within_leases_and_overdraws_nothing() {
    let mut scene = scene().await;
    let end = CancellationToken::new();
    let mut calling = JoinSet::new();
    let begun = Instant::now();
    calling.spawn(calls(scene.client.clone(), end.clone()));
    sleep(WARM_UP).await;

    scene.cluster().services.nats_proxy.cut();
    let (cut, cut_at) = (begun.elapsed(), now());
    sleep(outage()).await;
    scene.cluster().services.nats_proxy.heal();
    let (healed, healed_at) = (begun.elapsed(), now());
    sleep(AFTER).await;
    end.cancel();
    let called = calling.join_all().await.remove(0);

    let mut told = BTreeMap::<(u16, String), usize>::new();
    for call in &called {
        let answer = &call.answer;
        *told.entry((answer.status, answer.error_code())).or_default() += 1;
        if call.is_whole() {
            continue;
        }
        assert!([429, 503].contains(&answer.status), "{}", answer.text());
        let retry: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!(retry >= 1, "{retry}");
        let is_leased = call.at < healed && call.at < cut + LEASED;
        let is_well = call.key != CALLER_KEY || !(is_leased || call.at > healed + WELL_AGAIN);
        assert!(
            is_well,
            "{} at {:?}, away {cut:?} to {healed:?}",
            answer.text(),
            call.at
        );
    }
    eprintln!("{} calls, away {cut:?} to {healed:?}: {told:?}", called.len());
    let daily = called
        .iter()
        .filter(|call| call.key == OTHER_KEY && call.is_whole());
    the_day_is_used_up(&scene, daily.count()).await;
    let minute = |at: DateTime<Utc>| at.timestamp().div_euclid(60);
    keeps_the_rate(&scene, &called, minute(cut_at)..=minute(healed_at)).await;
    assert!(scene.metric("waybill_counter_ledger_difference").await.abs() < 0.5);
    scene.finish().await;
}

/// Makes one call after the other until `end`; gives when those that were answered ended.
async fn caller(client: Client, end: CancellationToken) -> Vec<Instant> {
    let mut answered = Vec::new();
    while !end.is_cancelled() {
        let answer = client.post_chat(&ask()).await;
        if answer.status == 200 {
            answered.push(Instant::now());
            continue;
        }
        let told = (answer.status, answer.error_code());
        let is_known =
            told == (429, "CONCURRENCY_EXCEEDED".to_owned()) || told == (503, "store_unavailable".to_owned());
        assert!(is_known, "{}", answer.text());
        sleep(Duration::from_millis(100)).await;
    }
    answered
}

#[tokio::test]
async fn calls_at_once_are_never_more_than_the_limit_though_leases_end_while_the_bus_is_away() {
    let limits = json!({ "concurrency": SLOTS });
    let mut scene = Scene::start_cluster(PROXIED, |node| limited(node, &limits)).await;
    let answer = Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(500));
    scene.o1.default(answer);
    scene.wait_ready().await;
    let end = CancellationToken::new();
    let mut callers = JoinSet::new();
    for _ in 0..3 * SLOTS {
        callers.spawn(caller(scene.client.clone(), end.clone()));
    }
    sleep(Duration::from_secs(3)).await;

    scene.cluster().services.nats_proxy.cut();
    let cut = Instant::now();
    sleep(outage().max(LEASES_OVER + WELL_AGAIN)).await;
    scene.cluster().services.nats_proxy.heal();
    let healed = Instant::now();
    sleep(AFTER).await;
    end.cancel();
    let answered: Vec<Instant> = callers.join_all().await.into_iter().flatten().collect();

    let busiest = busiest(&scene.o1);
    let within =
        |from: Instant, until: Instant| answered.iter().filter(|at| (from..until).contains(at)).count();
    let leased = within(cut, cut + LEASED);
    let cut_off = within(cut + LEASES_OVER, healed);
    let after = within(healed + WELL_AGAIN, healed + AFTER);
    eprintln!("{busiest} at once; {leased} answered within leases, {cut_off} without, {after} after");
    assert!(busiest <= SLOTS, "{busiest} at once");
    assert!(leased >= SLOTS, "{leased} answered within leases");
    assert_eq!(cut_off, 0, "answered without a lease");
    assert!(after >= SLOTS, "{after} answered after");
    scene.finish().await;
}
