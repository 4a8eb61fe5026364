//! Every limit refuses exactly the call that exceeds it, and only calls that were admitted and paid for count.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use harness::{Behaviour, OPERATOR_KEY, Scene, Surface, chat};
use serde_json::{Value, json};

use super::under::{
    ANSWER_NANO_USD, ANSWER_TOKENS, ANSWER_TOKENS_MAX, ask, early_scene, limited, prompt_tokens, refused,
    reserved_nano_usd, scene, standing, standing_of, usd,
};

#[tokio::test]
async fn calls_per_minute_day_and_month_are_admitted_up_to_the_limit_and_not_one_more() {
    for (key, code, has_quota) in [
        ("rpm", "RPM_EXCEEDED", false),
        ("daily_calls", "DAILY_LIMIT_EXCEEDED", true),
        ("monthly_calls", "MONTHLY_QUOTA_EXCEEDED", true),
    ] {
        let scene = early_scene(json!({ key: 3 })).await;

        for left in (0..3).rev() {
            let answer = scene.client.post_chat(&ask()).await;
            assert_eq!(answer.status, 200, "{key}: {}", answer.text());
            let header = |name: &str| answer.header(name).to_owned();
            assert_eq!(header("x-ratelimit-limit-requests"), "3", "{key}");
            assert_eq!(
                header("x-ratelimit-remaining-requests"),
                left.to_string(),
                "{key}"
            );
            assert_ne!(header("x-ratelimit-reset-requests"), "", "{key}");
            assert_eq!(header("x-quota-reset").is_empty(), !has_quota, "{key}");
        }
        let answer = scene.client.post_chat(&ask()).await;

        let error = refused(&answer, code);
        assert_eq!(standing_of(&error), standing(3, 3, 0), "{key}");
        assert_eq!(error["scope"], "per_api_key", "{key}");
        assert!(error["reset_at"].is_string(), "{key}: {error}");
        assert_eq!(answer.header("x-ratelimit-limit-requests"), "3", "{key}");
        assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0", "{key}");
        if has_quota {
            assert_eq!(error["reset_at"], answer.header("x-quota-reset"), "{key}");
        }
        assert_eq!(scene.o1.calls(), 3, "{key}");
        let row = scene.row(answer.request_id()).await;
        assert_eq!(
            (&row["outcome"], &row["error_code"]),
            (&json!("rejected"), &json!(code))
        );
        assert_eq!((&row["cost_nano_usd"], &row["status"]), (&json!(0), &json!(429)));
        scene.finish().await;
    }
}

#[tokio::test]
async fn calls_of_one_second_are_never_more_than_its_limit() {
    let scene = scene(json!({"qps": 4})).await;
    let body = ask();

    let answers = join_all((0..24).map(|_| scene.client.post_chat(&body))).await;

    let mut admitted = 0;
    // The seconds between the first arrival and the last departure for the upstream: each may have four.
    let mut seconds: BTreeSet<i64> = BTreeSet::new();
    let second = |time: &Value| {
        let time: DateTime<Utc> = time.as_str().expect("a time").parse().expect("RFC 3339");
        time.timestamp()
    };
    for answer in answers {
        if answer.status == 200 {
            admitted += 1;
            let row = scene.row(answer.request_id()).await;
            seconds.extend(second(&row["started_at"])..=second(&row["attempts"][0]["started_at"]));
        } else {
            assert_eq!(refused(&answer, "QPS_EXCEEDED")["limit"], 4);
        }
    }
    assert!(
        (1..=4 * seconds.len()).contains(&admitted),
        "{admitted}: {seconds:?}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn calls_at_once_are_never_more_than_the_limit_and_each_end_makes_room() {
    let scene = scene(json!({"concurrency": 2})).await;
    let slow = Behaviour::chat("hello there").first_byte_delay(Duration::from_millis(900));
    scene.o1.default(slow);
    let body = ask();

    let answers = join_all((0..6).map(|_| scene.client.post_chat(&body))).await;

    let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((good.len(), bad.len()), (2, 4));
    for answer in &bad {
        let error = refused(answer, "CONCURRENCY_EXCEEDED");
        assert_eq!((&error["limit"], &error["reset_at"]), (&json!(2), &Value::Null));
    }
    assert_eq!(scene.o1.calls(), 2);
    let again = join_all((0..2).map(|_| scene.client.post_chat(&body))).await;
    assert!(again.iter().all(|answer| answer.status == 200));
    scene.finish().await;
}

#[tokio::test]
async fn tokens_are_reserved_in_full_and_what_was_not_used_is_left() {
    let probe = scene(json!({})).await;
    let prompt = prompt_tokens(&probe).await;
    probe.finish().await;
    for (key, code) in [
        ("tpm", "TOKENS_PER_MINUTE_EXCEEDED"),
        ("daily_tokens", "DAILY_TOKENS_EXCEEDED"),
        ("monthly_tokens", "MONTHLY_TOKENS_EXCEEDED"),
    ] {
        // Two calls fit after each other; a third one would need one token more.
        let limit = 2 * ANSWER_TOKENS + prompt + ANSWER_TOKENS_MAX - 1;
        let scene = early_scene(json!({ key: limit })).await;

        for _ in 0..2 {
            let answer = scene.client.post_chat(&ask()).await;
            assert_eq!(answer.status, 200, "{key}: {}", answer.text());
            assert_eq!(answer.header("x-ratelimit-limit-tokens"), limit.to_string());
        }
        let answer = scene.client.post_chat(&ask()).await;
        let error = refused(&answer, code);
        assert_eq!(error["limit"], limit, "{key}");
        let mut shorter = ask();
        shorter["max_tokens"] = (ANSWER_TOKENS_MAX - 1).into();
        let answer = scene.client.post_chat(&shorter).await;

        assert_eq!(answer.status, 200, "{key}: {}", answer.text());
        assert_eq!(scene.o1.calls(), 3);
        scene.finish().await;
    }
}

#[tokio::test]
async fn what_single_servers_take_as_maximum_or_choices_under_other_names_is_reserved() {
    let scene = scene(json!({"daily_tokens": 500})).await;
    for (surface, name, value) in [
        (Surface::Chat, "n_predict", 600),
        (Surface::Chat, "n_predict", -1),
        (Surface::Chat, "n_cmpl", 60),
        (Surface::Completions, "n_predict", 600),
        (Surface::Completions, "n_cmpl", 60),
        (Surface::Completions, "best_of", 60),
    ] {
        let mut body = surface.ask("m");
        body["max_tokens"] = 10.into();
        body[name] = value.into();

        let answer = scene.client.post(surface, &body).await;

        let error = refused(&answer, "DAILY_TOKENS_EXCEEDED");
        assert_eq!(error["remaining"], 500, "{surface:?} {name} {value}");
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn money_is_reserved_at_the_dearest_class_and_charged_to_the_nano_dollar() {
    let probe = scene(json!({})).await;
    let prompt = prompt_tokens(&probe).await;
    probe.finish().await;
    for (key, code) in [
        ("daily_usd", "DAILY_SPEND_EXCEEDED"),
        ("monthly_usd", "MONTHLY_SPEND_EXCEEDED"),
        ("total_usd", "TOTAL_SPEND_EXCEEDED"),
    ] {
        let limit = 2 * ANSWER_NANO_USD + reserved_nano_usd(prompt) - 1;
        let scene = scene(json!({ key: usd(limit) })).await;

        for _ in 0..2 {
            let answer = scene.client.post_chat(&ask()).await;
            assert_eq!(answer.status, 200, "{key}: {}", answer.text());
            assert_eq!(answer.header("x-ratelimit-limit-cost"), usd(limit));
        }
        let answer = scene.client.post_chat(&ask()).await;

        let error = refused(&answer, code);
        let used = 2 * ANSWER_NANO_USD;
        let expected = standing(usd(limit), usd(used), usd(limit - used));
        assert_eq!(standing_of(&error), expected, "{key}");
        assert_eq!(answer.header("x-ratelimit-remaining-cost"), usd(limit - used));
        assert_eq!(error["reset_at"].is_null(), key == "total_usd", "{error}");
        let mut shorter = ask();
        shorter["max_tokens"] = (ANSWER_TOKENS_MAX - 1).into();
        let answer = scene.client.post_chat(&shorter).await;
        assert_eq!(answer.status, 200, "{key}: the rest is usable");
        scene.finish().await;
    }
}

#[tokio::test]
async fn calls_that_are_refused_before_or_fail_behind_count_in_no_quota() {
    let limits = json!({"daily_calls": 2, "daily_usd": "1.00"});
    let mut scene = Scene::start_with(|node| limited(node, &limits).setting("attempts_max", 1)).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello there"));
    let client = &scene.client;

    let nobody = client.with_key("sk-nobody-at-all-0000");
    assert_eq!(nobody.post_chat(&ask()).await.status, 401);
    assert_eq!(client.post_chat(&chat("nothing")).await.status, 404);
    assert_eq!(client.post_chat(&json!({"model": "m"})).await.status, 400);
    for path in ["/v1/models", "/anthropic/user/balance"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    let counted = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}).to_string();
    for _ in 0..3 {
        let count = client.call("POST", "/v1/messages/count_tokens", counted.clone().into());
        let count = count.await.expect("an answer");
        assert_eq!(count.status, 200, "{}", count.text());
    }
    let broken = || Behaviour::error(500, "broken");
    scene.o1.script([broken(), broken()]);
    for _ in 0..2 {
        assert!(client.post_chat(&ask()).await.status >= 500);
    }
    for _ in 0..2 {
        assert_eq!(client.post_chat(&ask()).await.status, 200);
    }

    refused(&client.post_chat(&ask()).await, "DAILY_LIMIT_EXCEEDED");
    scene.finish().await;
}

#[tokio::test]
async fn all_layers_hold_or_nothing_is_taken_of_any() {
    let scene = scene(json!({"daily_calls": 2, "daily_usd": "0.0000001"})).await;

    for _ in 0..4 {
        // The second layer refuses: the first one gives its call back each time.
        refused(&scene.client.post_chat(&ask()).await, "DAILY_SPEND_EXCEEDED");
    }

    let operator = scene.client.with_key(OPERATOR_KEY);
    let listed = operator.get("/api/v1/tenant/api-keys").await.json();
    let keys = listed["data"].as_array().expect("a list");
    let own = keys.iter().find(|key| key["name"] == "caller").expect("there");
    let mut quotas = own["quotas"].as_array().expect("a list").iter();
    let calls = quotas
        .find(|quota| quota["quota"] == "daily_calls")
        .expect("there");
    assert_eq!((&calls["used"], &calls["remaining"]), (&json!(0), &json!(2)));
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_refusal_says_the_same_on_every_surface_in_its_own_words() {
    let (o1, o2) = (harness::Upstream::start(), harness::Upstream::start());
    let models = [
        harness::Model::new("m").leg(&o1, 0),
        harness::Model::new("v")
            .set("model_type", "embedding")
            .leg(&o1, 0),
    ];
    let limits = json!({"daily_calls": 1});
    let mut scene = Scene::start_on(o1, o2, |node| limited(node.models(&models), &limits)).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello there"));
    assert_eq!(scene.client.post_chat(&ask()).await.status, 200);
    let mut calls: Vec<(&str, Value)> = Vec::new();
    for surface in Surface::ALL {
        calls.push((surface.path(), surface.ask("m")));
        calls.push((surface.path(), surface.ask_streamed("m")));
    }
    calls.push(("/anthropic/v1/messages", Surface::Messages.ask("m")));
    calls.push(("/v1/embeddings", json!({"model": "v", "input": "some text"})));

    for (path, body) in calls {
        let answer = scene.client.post_inference(path, body.to_string()).await;
        let answer = answer.expect("an answer");

        assert_eq!(answer.status, 429, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), "application/json");
        let told = answer.json();
        let error = &told["error"];
        assert_eq!(error["type"], "rate_limit_error", "{path}");
        assert_eq!(error["code"], "DAILY_LIMIT_EXCEEDED", "{path}");
        assert_eq!(error["message"], "API key daily call limit exceeded", "{path}");
        assert_eq!(standing_of(error), standing(1, 1, 0), "{path}");
        assert_eq!(error["scope"], "per_api_key", "{path}");
        assert_eq!(error["reset_at"], answer.header("x-quota-reset"), "{path}");
        assert_eq!(told["type"] == "error", path.ends_with("messages"), "{path}");
        let retry: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!(retry >= 1, "{path}");
    }
    assert_eq!(scene.o1.calls(), 1);
    let counted = "waybill_limit_rejections_total{code=\"DAILY_LIMIT_EXCEEDED\"}";
    let counted = scene.metric(counted).await;
    assert!((counted - 10.0).abs() < 0.5, "{counted}");
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_asks_for_more_than_a_limit_allows_at_all_is_told_what_to_lower() {
    let scene = scene(json!({"daily_tokens": 100})).await;
    for (surface, member) in [
        (Surface::Chat, "max_tokens"),
        (Surface::Chat, "max_completion_tokens"),
        (Surface::Completions, "max_tokens"),
        (Surface::Responses, "max_output_tokens"),
        (Surface::Messages, "max_tokens"),
    ] {
        let mut body = surface.ask("m");
        body[member] = json!(2_000);
        if member == "max_completion_tokens" {
            body["max_tokens"] = Value::Null;
        }

        let answer = scene.client.post(surface, &body).await;

        assert_eq!(answer.status, 429, "{surface:?}: {}", answer.text());
        let error = answer.json()["error"].clone();
        let text = format!(
            "API key daily token limit exceeded: the call may use more than the limit allows at all; lower '{member}', \
             ask for fewer answers or shorten the prompt"
        );
        assert_eq!(error["message"], text, "{surface:?}");
        assert_eq!(standing_of(&error), standing(100, 0, 100), "{surface:?}");
        // Waiting does not help, and clients that heed either header do not try again at once.
        assert_eq!(answer.header("x-should-retry"), "false", "{surface:?}");
        let retry: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!(retry >= 3_600, "{surface:?}: {retry}");
    }
    assert_eq!(scene.client.post_chat(&ask()).await.status, 200);
    scene.finish().await;
}
