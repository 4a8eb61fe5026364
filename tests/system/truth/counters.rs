//! The counters of quotas against the books: at rest they are equal, and a difference is named.

use std::time::Duration;

use harness::{Behaviour, Scene, chat, settings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long counters may take to reach the records that the fleet shares.
const TOLD_MAX: Duration = Duration::from_secs(30);
const CALLS: u64 = 4;

/// `waybill counters`: its exit code and its JSON.
async fn counters(scene: &Scene) -> (Option<i32>, Value) {
    let (code, output) = scene.node.command(&["counters", "--json"]).await;
    let begin = output.find('{').unwrap_or_else(|| panic!("no JSON: {output}"));
    let mut values = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
    (code, values.next().expect("a value").expect("JSON"))
}

#[tokio::test]
async fn counters_of_quotas_are_what_the_books_say_or_are_named() {
    let mut keys = settings()["keys"].clone();
    keys[2]["limits"] = json!({"daily_calls": 50, "daily_usd": "1"});
    let mut scene = Scene::start_with(|node| node.setting("keys", keys)).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello").usage(3, 2));
    for _ in 0..CALLS {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        scene.row(answer.request_id()).await;
    }
    // What a node counted is in the records once it has told it, at the latest when it begins anew.
    scene.kill_and_restart().await;
    let deadline = Instant::now() + TOLD_MAX;
    loop {
        let (code, found) = counters(&scene).await;
        assert_eq!((code, &found["different"]), (Some(0), &json!(0)), "{found}");
        if found["compared"].as_u64() >= Some(2) {
            break;
        }
        assert!(Instant::now() < deadline, "{found}");
        sleep(Duration::from_millis(200)).await;
    }

    let books = scene.node.books();
    let turn = |from: &str, to: &str| {
        let replaced = if scene.is_cluster() {
            format!("convert_to(replace(convert_from(envelope, 'UTF8'), '{from}', '{to}'), 'UTF8')")
        } else {
            format!("replace(envelope, '{from}', '{to}')")
        };
        format!("UPDATE event_log SET envelope = {replaced} WHERE type = 'waybill.request.settled.v1'")
    };
    let (one, two) = (r#""amount":1}"#, r#""amount":2}"#);
    books.change(&turn(one, two)).await;
    let (code, found) = counters(&scene).await;
    assert_eq!((code, &found["different"]), (Some(1), &json!(1)), "{found}");
    let difference = &found["differences"][0];
    assert_eq!(
        (&difference["tenant"], &difference["scope"]),
        (&json!("acme"), &json!("per_api_key")),
        "{found}"
    );
    let (counter, of_books) = (difference["counter"].as_u64(), difference["books"].as_u64());
    assert_eq!(of_books, counter.map(|counter| 2 * counter), "{found}");
    assert!(
        difference["name"]
            .as_str()
            .is_some_and(|name| name.contains(".daily_calls."))
    );
    assert!(difference["subject"].is_string());
    books.change(&turn(two, one)).await;
    assert_eq!(counters(&scene).await.0, Some(0));
    scene.finish().await;
}
