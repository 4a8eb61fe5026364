//! Limits of the model that is chosen hold, and what a call holds changes with its model.

use harness::{Behaviour, chat};
use serde_json::{Value, json};

use super::{choice_of, minted, routed, scene, set, until};
use crate::rows::assert_row;

fn short() -> Value {
    let mut body = chat("auto");
    body["max_tokens"] = json!(100);
    body
}

#[tokio::test]
async fn a_limit_of_one_model_sends_the_call_to_the_next_and_only_it_counts_there() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    scene.o1.default(Behaviour::chat("cheap").usage(10, 10));
    scene.o2.default(Behaviour::chat("dear").usage(10, 10));
    let limits = json!({"per_model": {"cheap": {"daily_calls": 2}, "dear": {"daily_calls": 2}}});
    let (_, client) = minted(&scene, json!({"limits": limits})).await;
    until(&client, |answer| answer.status == 200).await;

    assert_eq!(routed(&client.post_chat(&short()).await), "cheap");
    let third = client.post_chat(&short()).await;
    assert_eq!((third.status, routed(&third)), (200, "dear"), "{}", third.text());
    let choice = choice_of(&scene, &third).await;
    assert_eq!(choice["candidates"][0]["failed"], "DAILY_LIMIT_EXCEEDED");
    scene.o2.script([Behaviour::error(500, "boom")]);
    let failed = client.post_chat(&short()).await;
    assert_eq!(
        (failed.status, failed.error_code().as_str()),
        (429, "DAILY_LIMIT_EXCEEDED"),
        "nothing is left of the other: {}",
        failed.text()
    );
    assert_eq!(
        (
            &failed.json()["error"]["limit"],
            &failed.json()["error"]["remaining"]
        ),
        (&json!(2), &json!(0))
    );
    assert_eq!(
        (
            failed.header("x-ratelimit-remaining-requests"),
            failed.header("x-quota-reset").is_empty()
        ),
        ("0", false)
    );
    let row = scene.row(failed.request_id()).await;
    let told = json!({"outcome": "upstream_error", "status": 429, "error_code": "DAILY_LIMIT_EXCEEDED", "cost_nano_usd": 0});
    assert_row(&row, &told);
    assert_eq!(
        routed(&client.post_chat(&short()).await),
        "dear",
        "what failed counts nowhere"
    );
    let refused = client.post_chat(&short()).await;
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (429, "DAILY_LIMIT_EXCEEDED"),
        "{}",
        refused.text()
    );
    assert_row(
        &scene.row(refused.request_id()).await,
        &json!({"model": "auto", "outcome": "rejected", "cost_nano_usd": 0}),
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_a_call_reserves_is_that_of_its_model_and_changes_with_it() {
    let scene = scene().await;
    set(&scene, true, "cost").await;
    scene.o1.default(Behaviour::chat("cheap").usage(100, 100));
    scene.o2.default(Behaviour::chat("dear").usage(100, 100));
    // A hundred tokens of answer cost 200 micro-dollars at the cheap model and 2,000 at the dear one.
    let (_, client) = minted(&scene, json!({"limits": {"total_usd": "0.001"}})).await;
    let first = until(&client, |answer| answer.status != 404).await.0;
    assert_eq!(
        first.status,
        429,
        "without a maximum the longest answer is reserved: {}",
        first.text()
    );

    let cheap = client.post_chat(&short()).await;
    assert_eq!((cheap.status, routed(&cheap)), (200, "cheap"), "{}", cheap.text());
    assert_row(
        &scene.row(cheap.request_id()).await,
        &json!({"cost_nano_usd": 300_000}),
    );
    scene.o1.script([Behaviour::error(500, "boom")]);
    let failed = client.post_chat(&short()).await;
    assert_eq!(
        (failed.status, failed.error_code().as_str()),
        (429, "TOTAL_SPEND_EXCEEDED"),
        "the dear one does not fit: {}",
        failed.text()
    );
    assert_eq!(scene.o2.calls(), 0);
    let again = client.post_chat(&short()).await;
    assert_eq!(
        again.status,
        200,
        "what was held for both is given back: {}",
        again.text()
    );
    scene.finish().await;
}
