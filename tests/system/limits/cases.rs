//! Cases from the field, on two nodes wherever they run: what one node did the other one knows at once.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Answer, Behaviour, CALLER_KEY, Client, Model, NodeBuilder, OPERATOR_KEY, Plan, Scene, Surface, Upstream,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::under::{ANSWER_NANO_USD, ask, limited, mint, prompt_tokens, refused, usd};

/// A cluster whose caller's key has limits, and a client for each of its gateways.
async fn two_nodes(limits: Value) -> (Scene, [Client; 2]) {
    let mut scene = Scene::start_cluster(Plan::default(), |node| limited(node, &limits)).await;
    scene.o1.default(Behaviour::chat("hello there"));
    scene.wait_ready().await;
    let addrs = [scene.node.addr(), scene.cluster().node("b").addr()];
    let clients = addrs.map(|addr| scene.client.at(addr));
    (scene, clients)
}

fn dollars(nano_usd: i64) -> Value {
    json!(usd(nano_usd).parse::<f64>().expect("a number"))
}

async fn told(client: &Client, path: &str) -> Value {
    let answer: Answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// What was used by each key, once it says that nothing is missing: on a busy machine the books may take longer than a
/// question waits for them.
async fn current_usage(client: &Client) -> Value {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let usage = told(client, "/api/v1/usage?group_by=key").await;
        if usage["is_current"] == true {
            return usage;
        }
        assert!(Instant::now() < deadline, "{usage}");
    }
}

/// Waits until a node has heard of a key, which it may take two seconds for.
async fn known(client: &Client) {
    let began = Instant::now();
    while client.get("/api/v1/logs?limit=1").await.status == 401 {
        assert!(began.elapsed() < Duration::from_secs(2), "a new key is not known");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_one_node_charged_the_balance_the_quotas_and_the_usage_of_the_other_say_at_once() {
    let (scene, nodes) = two_nodes(json!({"daily_usd": "1.00", "daily_calls": 100})).await;

    for call in 1..=12 {
        let [even, odd] = &nodes;
        let (here, there) = if call % 2 == 0 { (even, odd) } else { (odd, even) };
        assert_eq!(here.post_chat(&ask()).await.status, 200);

        let balance = told(&there.with_key(CALLER_KEY), "/anthropic/user/balance").await;
        let spent = call * ANSWER_NANO_USD;
        assert_eq!(
            balance["spent_today_usd"],
            dollars(spent),
            "call {call}: {balance}"
        );
        assert_eq!(
            balance["balance_usd"],
            dollars(1_000_000_000 - spent),
            "{balance}"
        );
        assert_eq!(balance.get("is_current"), None, "{balance}");

        let keys = told(&there.with_key(OPERATOR_KEY), "/api/v1/tenant/api-keys").await;
        let mut quotas = keys["data"].as_array().expect("a list").iter();
        let quotas = quotas.find(|key| key["name"] == "caller").expect("the key")["quotas"].clone();
        let used = |name: &str| {
            let mut quotas = quotas.as_array().expect("a list").iter();
            quotas.find(|quota| quota["quota"] == name).expect("a quota")["used"].clone()
        };
        assert_eq!(
            (used("daily_calls"), used("daily_usd")),
            (json!(call), json!(usd(spent))),
            "call {call}"
        );
        assert_eq!(quotas[0]["is_current"], true, "{quotas}");

        let usage = current_usage(&there.with_key(CALLER_KEY)).await;
        assert_eq!(usage["data"][0]["cost_nano_usd"], spent, "call {call}: {usage}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_says_what_it_last_knew_and_that_it_is_old() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let limits = json!({"daily_usd": "1.00"});
    let mut scene = Scene::start_cluster(plan, |node| limited(node, &limits)).await;
    scene.o1.default(Behaviour::chat("hello there"));
    scene.wait_ready().await;
    let [a, b] = [scene.node.addr(), scene.cluster().node("b").addr()].map(|addr| scene.client.at(addr));
    assert_eq!(a.post_chat(&ask()).await.status, 200);
    // The other node had no call of this caller, and was asked once.
    let balance = told(&b.with_key(CALLER_KEY), "/anthropic/user/balance").await;
    assert_eq!(balance["spent_today_usd"], dollars(ANSWER_NANO_USD), "{balance}");

    scene.cluster().services.nats_proxy.cut();
    for client in [&a, &b] {
        let balance = told(&client.with_key(CALLER_KEY), "/anthropic/user/balance").await;
        assert_eq!(balance["spent_today_usd"], dollars(ANSWER_NANO_USD), "{balance}");
        assert_eq!(
            (&balance["is_current"], &balance["is_available"]),
            (&json!(false), &json!(true))
        );
    }
    scene.cluster().services.nats_proxy.heal();
    scene.wait_ready().await;
    scene.finish().await;
}

/// Case 1: fifty calls at once over two nodes, on a quota that has room for ten.
#[tokio::test]
async fn bug_case_1_fifty_calls_at_once_on_two_nodes_are_never_more_than_the_quota_has_room_for() {
    let (scene, nodes) = two_nodes(json!({"daily_tokens": 1_000})).await;
    let prompt = prompt_tokens(&scene).await;
    let rows = scene.node.logs_api("").await;
    let spent = ["input_tokens", "output_tokens"].map(|column| rows[0][column].as_u64().expect("a count"));
    let left = 1_000 - spent.iter().sum::<u64>();
    // Each call reserves, and in the end costs, a tenth of what is left.
    let tokens = left / 10;
    let answered = tokens - prompt;
    let answer = Behaviour::chat("hello").usage(prompt, answered);
    scene
        .o1
        .default(answer.first_byte_delay(Duration::from_millis(500)));
    let mut body = ask();
    body["max_tokens"] = answered.into();

    let calls = (0..50).map(|call| nodes[call % 2].post_chat(&body));
    let answers = join_all(calls).await;

    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((served, scene.o1.calls()), (10, 11));
    for refusal in answers.iter().filter(|answer| answer.status != 200) {
        let error = refused(refusal, "DAILY_TOKENS_EXCEEDED");
        assert!(error["reset_at"].is_string(), "{error}");
    }

    // Whoever reserves four times as much is served as often in the end, for what is not used is free again.
    let made = mint(
        &scene,
        json!({"name": "second", "tenant": "acme", "limits": {"daily_tokens": 10 * tokens}}),
    );
    let key = made.await["key"].as_str().expect("a key").to_owned();
    let generous = nodes.each_ref().map(|node| node.with_key(&key));
    for node in &generous {
        known(node).await;
    }
    body["max_tokens"] = (4 * tokens - prompt).into();
    let before = scene.o1.calls();
    let (mut served, mut in_vain) = (0, 0);
    while in_vain < 10 {
        let answer = generous[in_vain % 2].post_chat(&body).await;
        if answer.status == 200 {
            (served, in_vain) = (served + 1, 0);
            continue;
        }
        assert_eq!(answer.error_code(), "DAILY_TOKENS_EXCEEDED", "{}", answer.text());
        if in_vain == 0 {
            // The next ones say what they need, so that the last tenth can be used as well.
            body["max_tokens"] = answered.into();
        }
        in_vain += 1;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((served, scene.o1.calls() - before), (10, 10));
    scene.finish().await;
}

/// Every path that is billed, in every way of writing it, with a body, streamed and not.
fn billed_calls() -> Vec<(&'static str, Value)> {
    let mut calls: Vec<(&'static str, Value)> = Vec::new();
    for surface in Surface::ALL {
        calls.extend([
            (surface.path(), surface.ask("m")),
            (surface.path(), surface.ask_streamed("m")),
        ]);
    }
    for (path, surface) in [
        ("/anthropic/v1/messages", Surface::Messages),
        ("/completion", Surface::Completions),
        ("/v1/chat/completions/", Surface::Chat),
        ("//v1//messages", Surface::Messages),
    ] {
        calls.extend([(path, surface.ask("m")), (path, surface.ask_streamed("m"))]);
    }
    calls.push(("/v1/embeddings", json!({"model": "v", "input": "some text"})));
    calls
}

/// The quota of a day is spent, told in the dialect of `path`.
fn assert_spent(path: &str, answer: &Answer) {
    let told = answer.json();
    assert_eq!(answer.status, 429, "{path}: {told}");
    assert_eq!(answer.header("content-type"), "application/json", "{path}");
    assert_eq!(told["error"]["type"], "rate_limit_error", "{path}");
    assert_eq!(told["error"]["code"], "DAILY_LIMIT_EXCEEDED", "{path}");
    assert_eq!(
        told["type"] == "error",
        path.contains("messages"),
        "{path}: {told}"
    );
    assert_eq!(
        told["error"]["reset_at"],
        answer.header("x-quota-reset"),
        "{path}"
    );
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0", "{path}");
    assert!(
        answer.header("retry-after").parse::<u64>().expect("seconds") >= 1,
        "{path}"
    );
}

/// Case 8: a key whose quota is spent, on every path that is billed, streamed and not, on the node that did not spend it.
#[tokio::test]
async fn bug_case_8_a_spent_quota_is_refused_on_every_billed_path_and_free_ones_answer() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("v").set("model_type", "embedding").leg(&o1, 0),
    ];
    let limits = json!({"daily_calls": 1});
    let change = |node: NodeBuilder| limited(node.models(&models), &limits);
    let mut scene = Scene::start_cluster_on(Plan::default(), (o1, o2), change).await;
    scene.o1.default(Behaviour::chat("hello there"));
    scene.wait_ready().await;
    let a = scene.client.at(scene.node.addr());
    let addr = scene.cluster().node("b").addr();
    let b = scene.client.at(addr);
    assert_eq!(a.post_chat(&ask()).await.status, 200);

    for (path, body) in &billed_calls() {
        let answer = b.post_inference(path, body.to_string()).await.expect("an answer");
        assert_spent(path, &answer);
    }
    for (method, path) in [
        ("GET", "/v1/chat/completions"),
        ("HEAD", "/v1/messages"),
        ("POST", "/V1/EMBEDDINGS"),
    ] {
        let answer = b
            .call(method, path, bytes::Bytes::new())
            .await
            .expect("an answer");
        assert!([404, 405].contains(&answer.status), "{method} {path}");
    }
    let count = Surface::Messages.ask("m").to_string();
    let counted = b.call("POST", "/v1/messages/count_tokens", count.into()).await;
    let counted = counted.expect("an answer");
    assert_eq!(counted.status, 200, "{}", counted.text());
    for path in [
        "/v1/models",
        "/anthropic/user/balance",
        "/health",
        "/api/v1/usage",
    ] {
        assert_eq!(b.get(path).await.status, 200, "{path}");
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 0));
    scene.node.wait_rows("outcome=rejected", 10).await;
    let rows = scene.node.logs_api("").await;
    let charged = rows.iter().filter(|row| row["cost_nano_usd"] != 0);
    assert_eq!(charged.count(), 1, "{rows:?}");
    scene.finish().await;
}

/// Case 28: a good limit is read back as it was sent, holds on the node that did not make it, and what is left falls by
/// exactly the cost of each call and by nothing in between.
#[tokio::test]
async fn bug_case_28_what_is_left_falls_by_the_cost_of_each_call_and_does_not_creep() {
    let (scene, nodes) = two_nodes(json!({})).await;
    let limits = json!({"daily_calls": 3, "daily_usd": "1.500000000"});
    let made = mint(
        &scene,
        json!({"name": "good", "tenant": "acme", "limits": limits}),
    )
    .await;
    assert_eq!(made["limits"]["daily_calls"], 3);
    assert_eq!(made["limits"]["daily_usd"], "1.500000000");
    let key = made["key"].as_str().expect("a key");
    let nodes = nodes.each_ref().map(|node| node.with_key(key));
    let left = async |node: &Client| told(node, "/anthropic/user/balance").await["balance_usd"].clone();

    let begun = Instant::now();
    for node in &nodes {
        while node.get("/v1/models").await.status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(2), "it is not known");
            sleep(Duration::from_millis(20)).await;
        }
    }
    for call in 1..=5 {
        let answer = nodes[call % 2].post_chat(&ask()).await;
        let served = i64::try_from(call.min(3)).expect("small");
        if call > 3 {
            refused(&answer, "DAILY_LIMIT_EXCEEDED");
        } else {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let expected = dollars(1_500_000_000 - served * ANSWER_NANO_USD);
        for _ in 0..3 {
            assert_eq!(
                [left(&nodes[0]).await, left(&nodes[1]).await],
                [expected.clone(), expected.clone()]
            );
            sleep(Duration::from_millis(400)).await;
        }
    }
    scene.finish().await;
}

/// Case 47: the call that is one too many is told to come again in a second, and a caller who leaves amid a stream makes
/// room on the other node.
#[tokio::test]
async fn hybrid_case_47_a_caller_who_leaves_amid_a_stream_makes_room_on_the_other_node() {
    let (scene, nodes) = two_nodes(json!({"concurrency": 3})).await;
    scene.o1.on(|request| {
        if request.streaming() {
            Behaviour::chat("").chunks(600, Duration::from_millis(100))
        } else {
            Behaviour::chat("hello")
        }
    });
    let mut body = ask();
    body["stream"] = true.into();
    let mut streams = Vec::new();
    for call in 0..3 {
        let mut stream = nodes[call % 2].stream_chat(&body).await;
        stream.read_content(1).await;
        streams.push(stream);
    }
    for node in &nodes {
        let answer = node.post_chat(&ask()).await;
        refused(&answer, "CONCURRENCY_EXCEEDED");
        assert_eq!(answer.header("retry-after"), "1");
    }

    // One on the first node leaves; the other node has room within its lease's renewal.
    streams.remove(0).close();
    let begun = Instant::now();
    loop {
        let answer = nodes[1].post_chat(&ask()).await;
        if answer.status == 200 {
            break;
        }
        refused(&answer, "CONCURRENCY_EXCEEDED");
        assert!(begun.elapsed() < Duration::from_secs(5), "no room was made");
        sleep(Duration::from_millis(50)).await;
    }
    streams.into_iter().for_each(harness::Stream::close);
    scene.finish().await;
}

/// A node that died leaves a doubt where it had something in hand, nowhere else, and none once its spool is empty.
#[tokio::test]
async fn a_node_that_died_leaves_a_doubt_only_about_what_it_held() {
    let (mut scene, nodes) = two_nodes(json!({"daily_usd": "1.00"})).await;
    let wanted = json!({"name": "second", "tenant": "acme", "limits": {"daily_usd": "1.00"}});
    let made = mint(&scene, wanted).await;
    let second = nodes[1].with_key(made["key"].as_str().expect("a key"));
    for _ in 0..3 {
        assert_eq!(nodes[0].post_chat(&ask()).await.status, 200);
    }
    while second.post_chat(&ask()).await.status == 401 {
        sleep(Duration::from_millis(50)).await;
    }
    let first = nodes[1].with_key(CALLER_KEY);
    scene.node.kill().await;

    let balance = told(&second, "/anthropic/user/balance").await;
    let doubted = told(&first, "/anthropic/user/balance").await;
    let usage = told(&second, "/api/v1/usage?group_by=key").await;

    assert_eq!(balance["spent_today_usd"], dollars(ANSWER_NANO_USD), "{balance}");
    assert_eq!(
        (balance.get("is_current"), &doubted["is_current"]),
        (None, &json!(false)),
        "{balance} {doubted}"
    );
    assert_eq!(
        usage["is_current"], false,
        "nobody knows what it answered: {usage}"
    );

    let (code, output) = scene.node.command(&["drain"]).await;

    assert_eq!(code, Some(0), "{output}");
    let balance = told(&first, "/anthropic/user/balance").await;
    assert_eq!(
        balance["spent_today_usd"],
        dollars(3 * ANSWER_NANO_USD),
        "{balance}"
    );
    assert_eq!(balance.get("is_current"), None, "{balance}");
    let usage = current_usage(&first).await;
    assert_eq!(usage["data"][0]["cost_nano_usd"], 3 * ANSWER_NANO_USD, "{usage}");
    scene.restart().await;
    scene.finish().await;
}

/// What a node that was killed had charged and not told is counted before its spool is let go of.
#[tokio::test]
async fn a_drained_spool_leaves_nothing_uncounted() {
    let (mut scene, nodes) = two_nodes(json!({"daily_usd": "1.00"})).await;
    for _ in 0..3 {
        assert_eq!(nodes[0].post_chat(&ask()).await.status, 200);
    }
    scene.node.kill().await;
    let balance = told(&nodes[1].with_key(CALLER_KEY), "/anthropic/user/balance").await;
    assert_eq!(
        balance["is_current"], false,
        "its last words were not heard: {balance}"
    );

    let (code, output) = scene.node.command(&["drain"]).await;

    assert_eq!(code, Some(0), "{output}");
    let spent = |told: &Value| told["spent_today_usd"].clone();
    let balance = told(&nodes[1].with_key(CALLER_KEY), "/anthropic/user/balance").await;
    assert_eq!(spent(&balance), dollars(3 * ANSWER_NANO_USD), "{balance}");
    scene.restart().await;
    let again = scene.client.at(scene.node.addr());
    assert_eq!(again.post_chat(&ask()).await.status, 200);
    for client in [&again, &nodes[1]] {
        let balance = told(&client.with_key(CALLER_KEY), "/anthropic/user/balance").await;
        assert_eq!(spent(&balance), dollars(4 * ANSWER_NANO_USD), "{balance}");
    }
    scene.finish().await;
}
