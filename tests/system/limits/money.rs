//! A budget and many streams at once: never a nano-dollar more than it, and what is left of it can be used.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use harness::{Answer, Behaviour, CALLER_KEY, Plan, Scene, chat_streamed_with_usage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::under::{ask, balance, limited, refused, scene, usd};

/// Tokens of each answer.
const TOKENS: u64 = 5_000;
/// What each answer costs: 3 tokens of prompt at 2 dollars a million, the answer at 8.
const COST_NANO_USD: i64 = 3 * 2_000 + 5_000 * 8_000;
const DOLLAR: i64 = 1_000_000_000;
/// How long a stream may take whose node has hundreds of others.
const PATIENCE: Duration = Duration::from_mins(2);

fn whole(tokens: u64) -> Value {
    let mut body = ask();
    body["max_tokens"] = tokens.into();
    body
}

/// The balance and the sums of usage say what the rows say, at once and on every node: calls go to them in turn.
async fn agrees(scene: &Scene, billed: i64) {
    let balance = balance(scene).await;
    let number = |nano: i64| json!(usd(nano).parse::<f64>().expect("a number"));
    assert_eq!(balance["spent_today_usd"], number(billed), "{balance}");
    assert_eq!(balance["balance_usd"], number(DOLLAR - billed), "{balance}");
    assert_eq!(balance["daily_limit_usd"], json!(1.0), "{balance}");
    let caller = scene.client.with_key(CALLER_KEY);
    let usage = caller.get("/api/v1/usage?group_by=key").await.json();
    assert_eq!(usage["data"][0]["cost_nano_usd"], billed, "{usage}");
}

/// The answer to a call that one node has room for at once, and several as soon as they gave back what they took ahead.
async fn admitted_soon(scene: &Scene, body: &Value) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = scene.client.post_chat(body).await;
        if answer.status == 200 {
            return answer;
        }
        let waits = scene.is_cluster() && Instant::now() < deadline;
        assert!(waits, "{}", answer.text());
        sleep(Duration::from_millis(200)).await;
    }
}

/// What is left of the dollar does for one more answer, and then for no other of that size.
async fn what_is_left_can_be_used(scene: &Scene, billed: i64) {
    let last = u64::try_from((DOLLAR - billed - 200_000) / 8_000).expect("positive");
    scene.o1.default(Behaviour::chat("one two").usage(3, last));
    let answer = admitted_soon(scene, &whole(last)).await;
    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["absorbed_nano_usd"], 0);
    let spent = billed + row["cost_nano_usd"].as_i64().expect("an amount");
    assert!((DOLLAR - 300_000..=DOLLAR).contains(&spent), "{spent}");
    agrees(scene, spent).await;
    refused(
        &scene.client.post_chat(&whole(last)).await,
        "DAILY_SPEND_EXCEEDED",
    );
}

#[tokio::test]
async fn fifty_streams_on_one_dollar_are_billed_no_more_than_that() {
    let scene = Scene::start_with(|node| limited(node, &json!({"daily_usd": "1.00"}))).await;
    let answer = Behaviour::chat("one two three four").usage(3, TOKENS);
    scene
        .o1
        .default(answer.first_byte_delay(Duration::from_millis(1_500)));
    let mut body = chat_streamed_with_usage("m");
    body["max_tokens"] = TOKENS.into();

    let streams = join_all((0..50).map(|_| scene.client.stream_chat(&body))).await;
    let mut admitted = Vec::new();
    let mut bounced = 0;
    for stream in streams {
        if stream.status == 200 {
            admitted.push(stream.request_id().to_owned());
            assert_eq!(stream.collect().await.text(), "one two three four");
        } else {
            assert_eq!(stream.status, 429);
            bounced += 1;
            stream.close();
        }
    }

    // Each one reserves a little more than it costs, so that 24 fit at once and no 25th.
    assert_eq!((admitted.len(), bounced), (24, 26));
    for id in &admitted {
        let row = scene.row(id).await;
        assert_eq!(row["cost_nano_usd"], COST_NANO_USD);
        assert_eq!(row["absorbed_nano_usd"], 0);
    }
    let billed = 24 * COST_NANO_USD;
    agrees(&scene, billed).await;

    what_is_left_can_be_used(&scene, billed).await;
    scene.finish().await;
}

/// A stream on the dollar that may be so long; `None` when it was refused, else its request id.
async fn stream_of(scene: &Scene, tokens: u64) -> Option<String> {
    let mut body = chat_streamed_with_usage("m");
    body["max_tokens"] = tokens.into();
    let stream = scene.client.patience(PATIENCE).stream_chat(&body).await;
    let (status, id) = (stream.status, stream.request_id().to_owned());
    let retry_after = stream.header("retry-after").to_owned();
    let transcript = stream.collect().await;
    if status == 200 {
        assert_eq!(transcript.text(), "one two three four");
        return Some(id);
    }
    let code = transcript.error()["code"].clone();
    assert_eq!((status, code), (429, json!("DAILY_SPEND_EXCEEDED")));
    assert_ne!(retry_after, "");
    None
}

#[tokio::test]
async fn a_thousand_streams_over_two_nodes_on_one_dollar_are_billed_no_more_than_that() {
    let limits = json!({"daily_usd": "1.00"});
    let scene = Scene::start_cluster(Plan::default(), |node| limited(node, &limits)).await;
    // It uses all that it is allowed, and is asked for eight dollars' worth.
    scene.o1.on(|request| {
        let tokens = request.json()["max_tokens"].as_u64().expect("a maximum");
        let answer = Behaviour::chat("one two three four").usage(3, tokens);
        answer.first_byte_delay(Duration::from_secs(3))
    });
    let lengths = [200, 400, 1_000, 2_400].into_iter().cycle().take(1_000);

    let streams = lengths.map(|tokens| stream_of(&scene, tokens));
    let admitted: BTreeSet<String> = join_all(streams).await.into_iter().flatten().collect();

    scene.node.wait_rows("outcome=ok", admitted.len()).await;
    let rows = scene.node.logs_api("outcome=ok").await;
    let mut billed = 0;
    for row in &rows {
        assert!(
            admitted.contains(row["request_id"].as_str().expect("an id")),
            "{row}"
        );
        assert_eq!(row["absorbed_nano_usd"], 0, "{row}");
        billed += row["cost_nano_usd"].as_i64().expect("an amount");
    }
    assert_eq!(rows.len(), admitted.len());
    eprintln!("{} streams, {billed} nano-dollars", rows.len());
    // What the shortest one reserves, and what the reservations of prompts leave.
    assert!((DOLLAR * 9 / 10..=DOLLAR).contains(&billed), "{billed}");
    assert_eq!(scene.o1.calls(), admitted.len());
    agrees(&scene, billed).await;
    what_is_left_can_be_used(&scene, billed).await;
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_beyond_its_reservation_costs_what_the_limit_still_has_and_the_rest_is_absorbed() {
    let limit = 1_000_000;
    let mut scene = scene(json!({"daily_usd": usd(limit)})).await;
    scene.price("m", None);
    // It heeds nothing of the forty tokens that were asked for, and tells ten thousand.
    scene.o1.default(Behaviour::chat("one two").usage(3, 10_000));

    let answer = scene.client.post_chat(&ask()).await;

    assert_eq!(answer.status, 200);
    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["cost_nano_usd"], limit);
    assert_eq!(row["absorbed_nano_usd"], 3 * 2_000 + 10_000 * 8_000 - limit);
    let balance = balance(&scene).await;
    assert_eq!(balance["is_available"], json!(false), "{balance}");
    assert_eq!(balance["balance_usd"], json!(0.0), "{balance}");
    refused(&scene.client.post_chat(&ask()).await, "DAILY_SPEND_EXCEEDED");
    scene.finish().await;
}

#[tokio::test]
async fn quotas_survive_a_kill_and_count_every_answer_once() {
    let mut scene = scene(json!({"daily_usd": "1.00", "daily_calls": 9})).await;
    scene.o1.default(Behaviour::chat("one two").usage(3, TOKENS));
    for _ in 0..3 {
        assert_eq!(scene.client.post_chat(&whole(TOKENS)).await.status, 200);
    }

    scene.kill_and_restart().await;

    for _ in 0..6 {
        let answer = scene.client.post_chat(&whole(TOKENS)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    refused(
        &scene.client.post_chat(&whole(TOKENS)).await,
        "DAILY_LIMIT_EXCEEDED",
    );
    agrees(&scene, 9 * COST_NANO_USD).await;
    scene.finish().await;
}
