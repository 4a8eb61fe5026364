//! Keys on two nodes whose bus or whose neighbour goes away. These tests are clusters wherever they run.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Answer, Behaviour, CALLER_KEY, Client, OTHER_KEY, Plan, Scene, chat, chat_streamed};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{IN_PROGRESS, MISMATCH, after_progress, billed, is_replay, keyed};

async fn scene(plan: Plan) -> Scene {
    let mut scene = Scene::start_cluster(plan, |node| {
        node.setting("idempotency", json!({"lease_seconds": 3}))
            .setting("admit_wait_seconds", 2)
    })
    .await;
    // A node whose bus goes away in its first moments does not start.
    scene.wait_ready().await;
    sleep(Duration::from_secs(1)).await;
    scene
}

#[tokio::test]
async fn the_other_node_replays_what_a_node_answered_that_is_gone() {
    let mut scene = scene(Plan::default()).await;
    scene.pin();
    scene.o1.default(Behaviour::chat("kept").usage(60, 40));
    let first = keyed(&scene.client, "k-1").post_chat(&chat("m")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    scene.node.kill().await;

    let b = scene.cluster().node("b").addr();
    let replay = keyed(&scene.client, "k-1").at(b).post_chat(&chat("m")).await;

    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.body, first.body);
    assert_eq!(scene.o1.calls(), 1);
    scene.restart().await;
    let (cost, _) = billed(&scene, 2).await;
    assert_eq!(cost, 440_000);
    scene.finish().await;
}

#[tokio::test]
async fn a_node_that_is_killed_amid_a_call_is_waited_for_until_it_is_declared_gone() {
    let mut scene = scene(Plan::default()).await;
    scene.pin();
    scene.o1.script([Behaviour::chat("late")
        .usage(60, 40)
        .first_byte_delay(Duration::from_mins(2))]);
    scene.o1.default(Behaviour::chat("again").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    let b = scene.cluster().node("b").addr();
    // Long enough for the log to be told of it.
    client
        .leave_chat_after(&chat("m"), Duration::from_millis(2_500))
        .await;
    scene.node.kill().await;

    // The lease is over after three seconds; that its node is silent does not tell how its call ended.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        let running = client.at(b).post_chat(&chat("m")).await;
        assert_eq!(
            (running.status, running.error_code().as_str()),
            (409, IN_PROGRESS),
            "{}",
            running.text()
        );
        sleep(Duration::from_millis(700)).await;
    }
    let spool = std::fs::read_to_string(scene.node.data_dir().join("spool/spool.id")).expect("an id");
    let (code, told) = scene
        .cluster()
        .node("b")
        .command(&["node", "forget", spool.trim()])
        .await;
    assert_eq!(code, Some(0), "{told}");
    let again = after_progress(&client.at(b), &chat("m")).await;

    assert_eq!(again.status, 200, "{}", again.text());
    assert!(!is_replay(&again));
    assert_eq!(again.content(), "again");
    let replay = client.at(b).post_chat(&chat("m")).await;
    assert!(is_replay(&replay) && replay.body == again.body);
    assert_eq!(scene.o1.calls(), 2);
    scene.restart().await;
    let lost = scene.node.wait_rows("outcome=lost", 1).await;
    assert_eq!(lost[0]["cost_nano_usd"], 0, "{lost:?}");
    let (cost, rows) = billed(&scene, 2).await;
    assert_eq!((cost, rows.len()), (440_000, 1), "{rows:?}");
    scene.finish().await;
}

#[tokio::test]
async fn while_the_bus_is_away_no_call_with_a_key_is_sent_and_those_without_are() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = scene(plan).await;
    scene.o1.default(Behaviour::chat("hello").usage(60, 40));
    let client = keyed(&scene.client, "k-1");
    for silent in [false, true] {
        let proxy = &scene.cluster().services.nats_proxy;
        if silent {
            proxy.stall(harness::Way::Up);
            proxy.stall(harness::Way::Down);
        } else {
            proxy.cut();
        }
        sleep(Duration::from_millis(200)).await;

        let calls = scene.o1.calls();
        let refused = client.post_chat(&chat("m")).await;
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (503, "store_unavailable"),
            "{}",
            refused.text()
        );
        assert!(!refused.header("retry-after").is_empty());
        assert!(refused.took < Duration::from_secs(5), "{:?}", refused.took);
        assert_eq!(scene.o1.calls(), calls);
        let unkeyed = scene.client.post_chat(&chat("m")).await;
        assert_eq!(unkeyed.status, 200, "{}", unkeyed.text());

        scene.cluster().services.nats_proxy.heal();
        sleep(Duration::from_secs(2)).await;
    }

    let first = after_progress(&client, &chat("m")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let replay = client.post_chat(&chat("m")).await;
    assert!(is_replay(&replay) && replay.body == first.body);
    assert_eq!(scene.o1.calls(), 3, "two without a key, one with it");
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_goes_away_amid_a_call_costs_no_answer_and_has_it_later() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let mut scene = scene(plan).await;
    scene.o1.default(
        Behaviour::chat("kept")
            .usage(60, 40)
            .first_byte_delay(Duration::from_secs(2)),
    );
    let client = keyed(&scene.client, "k-1");
    let body = chat("m");
    let cutting = async {
        scene.o1.wait_calls(1).await;
        scene.cluster().services.nats_proxy.cut();
    };

    let (first, ()) = tokio::join!(client.post_chat(&body), cutting);

    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.took < Duration::from_secs(5), "{:?}", first.took);
    // Longer than the lease.
    sleep(Duration::from_secs(4)).await;
    scene.cluster().services.nats_proxy.heal();

    let start = Instant::now();
    let replay = loop {
        let again = client.post_chat(&chat("m")).await;
        if again.status == 200 {
            break again;
        }
        assert!([409, 503].contains(&again.status), "{}", again.text());
        assert!(start.elapsed() < Duration::from_secs(15), "{}", again.text());
        sleep(Duration::from_millis(200)).await;
    };
    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.body, first.body);
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

/// A client for each of the two gateways.
fn nodes(scene: &mut Scene) -> [Client; 2] {
    let addrs = [scene.node.addr(), scene.cluster().node("b").addr()];
    addrs.map(|addr| scene.client.at(addr))
}

/// Case 3: another tenant, and another key of the same one, with the same bytes under the same key, on the other node.
#[tokio::test]
async fn bug_case_3_nobody_is_given_an_answer_of_somebody_else_by_either_node() {
    const SECOND_KEY: &str = "sk-harness-canary-second-5521";
    let mut scene = Scene::start_cluster(Plan::default(), |node| {
        let mut keys = harness::settings()["keys"].clone();
        let second = json!({"name": "second", "tenant": "acme", "key": SECOND_KEY, "role": "free"});
        keys.as_array_mut().expect("a list").push(second);
        node.setting("keys", keys)
    })
    .await;
    scene.wait_ready().await;
    super::answers::numbered(&scene);
    let [a, b] = nodes(&mut scene).map(|client| keyed(&client, "k-1"));

    let first = a.post_chat(&chat("m")).await;
    let mut words = vec![first.content()];
    for key in [OTHER_KEY, SECOND_KEY] {
        let fresh = b.with_key(key).post_chat(&chat("m")).await;
        assert_eq!(fresh.status, 200, "{}", fresh.text());
        assert!(
            !is_replay(&fresh) && !words.contains(&fresh.content()),
            "{}",
            fresh.text()
        );
        assert_eq!(scene.row(fresh.request_id()).await["cost_nano_usd"], 28_000);
        let own = a.with_key(key).post_chat(&chat("m")).await;
        assert!(is_replay(&own) && own.body == fresh.body, "{}", own.text());
        words.push(fresh.content());
    }
    let again = b.with_key(CALLER_KEY).post_chat(&chat("m")).await;
    assert!(is_replay(&again) && again.body == first.body, "{}", again.text());
    assert_eq!(scene.o1.calls(), 3);
    scene.finish().await;
}

/// Case 14: a caller gives up after two seconds and asks the other node, again and again; one generation, one bill.
#[tokio::test]
async fn bug_case_14_retries_over_both_nodes_are_one_generation_and_one_bill() {
    let mut scene = scene(Plan::default()).await;
    let slow = Behaviour::chat("late but once").usage(60, 40);
    scene.o1.default(slow.first_byte_delay(Duration::from_secs(5)));
    let clients = nodes(&mut scene);
    let [a, b] = clients.each_ref().map(|client| keyed(client, "k-2"));
    let body = chat("m");

    a.leave_chat_after(&body, Duration::from_secs(2)).await;
    let retries: Vec<Answer> = join_all([&b, &a, &b].map(|client| client.post_chat(&body))).await;
    for retry in &retries {
        assert_eq!(
            (retry.status, retry.error_code().as_str()),
            (409, IN_PROGRESS),
            "{}",
            retry.text()
        );
        assert!(!retry.header("retry-after").is_empty());
    }
    let mut other = body.clone();
    other["temperature"] = json!(0.5);
    let mismatch = b.post_chat(&other).await;
    assert_eq!((mismatch.status, mismatch.error_code().as_str()), (422, MISMATCH));
    let replay = after_progress(&b, &body).await;
    assert!(is_replay(&replay), "{}", replay.text());
    assert_eq!(replay.content(), "late but once");

    // A refused call burns no key, and a stream is replayed by the other node as the same valid stream.
    let [streamed, elsewhere] = clients.each_ref().map(|client| keyed(client, "k-3"));
    let refused = streamed.post_chat(&json!({"model": "m"})).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let first = streamed.stream_chat(&chat_streamed("m")).await.collect().await;
    let again = elsewhere.stream_chat(&chat_streamed("m")).await.collect().await;
    assert_eq!((&first.raw, &first.end), (&again.raw, &harness::End::Done));
    assert_eq!(again.headers["x-idempotent-replay"], "true");

    // The node that answered is killed; the other one has the answer.
    scene.node.kill().await;
    let late = b.post_chat(&body).await;
    assert!(is_replay(&late) && late.body == replay.body, "{}", late.text());
    assert_eq!(scene.o1.calls(), 2);
    let replays = scene
        .cluster()
        .node("b")
        .metric("waybill_idempotency_total{outcome=\"replay\"}")
        .await;
    assert!((replays - 3.0).abs() < 0.5, "{replays}");
    scene.restart().await;
    let (cost, rows) = billed(&scene, 5).await;
    assert_eq!((cost, rows.len()), (880_000, 2), "{rows:?}");
    scene.finish().await;
}

/// The bytes of each file of a directory, by name.
fn sizes(dir: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let files = std::fs::read_dir(dir).expect("a directory");
    let files = files.map(|file| file.expect("a file").path());
    files
        .map(|path| (path.clone(), path.metadata().expect("a size").len()))
        .collect()
}

/// A machine that fails loses the last moment of its disk: the claim is on the bus, the spool knows nothing of the call.
#[tokio::test]
async fn a_key_whose_node_is_back_without_a_trace_of_the_call_is_free_on_every_node() {
    let mut scene = scene(Plan::default()).await;
    scene.o1.script([Behaviour::chat("never told")
        .usage(60, 40)
        .first_byte_delay(Duration::from_mins(2))]);
    scene.o1.default(Behaviour::chat("again").usage(60, 40));
    let spool = scene.node.data_dir().join("spool");
    let before = sizes(&spool);
    let [a, b] = nodes(&mut scene).map(|client| keyed(&client, "k-1"));
    let body = chat("m");
    let crash = async {
        scene.o1.wait_calls(1).await;
    };
    tokio::select! {
        _ = a.post_chat(&body) => panic!("it was answered"),
        () = crash => {}
    }
    scene.node.kill().await;
    for (file, bytes) in before {
        if file.metadata().is_ok_and(|now| now.len() > bytes) {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(file)
                .expect("a file of the spool");
            file.set_len(bytes).expect("a shorter file");
        }
    }
    let running = b.post_chat(&body).await;
    assert_eq!(
        (running.status, running.error_code().as_str()),
        (409, IN_PROGRESS)
    );

    scene.restart().await;
    let again = after_progress(&b, &body).await;

    assert_eq!(again.status, 200, "{}", again.text());
    assert!(!is_replay(&again));
    assert_eq!(again.content(), "again");
    assert_eq!(scene.o1.calls(), 2);
    let (cost, rows) = billed(&scene, 1).await;
    assert_eq!((cost, rows.len()), (440_000, 1), "{rows:?}");
    scene.foreign_calls();
    scene.finish().await;
}
