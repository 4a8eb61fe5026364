//! Memory: a node keeps within bounds whatever its upstreams send and its callers do, and gives back what it took.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use harness::{Behaviour, Scene, chat, chat_streamed};
use tokio::time::{Instant, sleep};

/// The most that a node may keep, in bytes: what it is allowed in a box of 512 MiB.
const KEPT_MAX: u64 = 400 << 20;
/// How long it may take to give back what it took.
const GIVES_BACK_WITHIN: Duration = Duration::from_secs(30);
/// What it may keep then beyond what it began with, in bytes: what the allocator keeps at hand after hundreds of calls.
const KEPT_AFTER: u64 = 48 << 20;

/// Waits until a node keeps little more than in the beginning.
async fn until_given_back(scene: &Scene, before: u64) {
    let deadline = Instant::now() + GIVES_BACK_WITHIN;
    let most = before + KEPT_AFTER;
    while scene.node.rss() > most {
        assert!(
            Instant::now() < deadline,
            "{} MiB are kept, {} MiB in the beginning",
            scene.node.rss() >> 20,
            before >> 20
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn bug_case_23_a_line_without_end_is_cut_and_costs_nobody() {
    let scene = Scene::start_with(|node| {
        node.env("CIRCUIT_FAILURE_THRESHOLD", "100")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await;
    let before = scene.node.rss();
    let endless = Behaviour::long_line(100 << 20);
    scene.o1.default(endless.clone());
    scene.o2.default(endless);

    for body in [chat_streamed("m"), chat("m")] {
        let answer = scene.client.post_chat(&body).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (502, "upstream_error"),
            "{}",
            answer.text()
        );
        let row = scene.row(answer.request_id()).await;
        assert_eq!(row["cost_nano_usd"], 0, "{row}");
    }

    let most = scene.node.rss_max();
    assert!(most < before + (256 << 20), "{} MiB", most >> 20);
    until_given_back(&scene, before).await;
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_23_upstreams_wait_for_callers_who_read_slowly() {
    const CALLERS: usize = 100;
    let scene = Scene::start().await;
    let before = scene.node.rss();
    let word = "x".repeat(16 * 1024);
    // Five megabytes for each, as fast as they are taken: half a gigabyte, if somebody kept it.
    let behaviour = Behaviour::chat(&vec![word; 320].join(" ")).usage(9, 320);
    scene.o1.default(behaviour);

    let slow = scene.client.small_buffers();
    let body = chat_streamed("m");
    let streams = (0..CALLERS).map(|_| async {
        let mut stream = slow.stream_chat(&body).await;
        assert_eq!(stream.read_content(1).await.len(), 1);
        stream
    });
    let streams = join_all(streams).await;
    sleep(Duration::from_secs(2)).await;

    let most = scene.node.rss_max();
    assert!(most < before + (CALLERS as u64) * (1 << 20), "{} MiB", most >> 20);
    drop(streams);
    scene.node.wait_rows("outcome=client_gone", CALLERS).await;
    until_given_back(&scene, before).await;
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_23_uploads_at_once_are_refused_beyond_what_there_is_room_for() {
    const UPLOADS: usize = 60;
    let scene = Scene::start().await;
    let before = scene.node.rss();
    let text = "x".repeat(27 << 20);
    let body = Bytes::from(format!(
        "{{\"model\":\"nothing\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    ));
    drop(text);
    let mut told: BTreeMap<u16, usize> = BTreeMap::new();

    for _ in 0..3 {
        let upload = || scene.client.post_inference("/v1/chat/completions", body.clone());
        for answer in join_all((0..UPLOADS).map(|_| upload())).await {
            // Whoever is refused may be told amid his upload, or find the connection closed.
            let status = answer.map_or(0, |answer| answer.status);
            *told.entry(status).or_default() += 1;
        }
    }

    let most = scene.node.rss_max();
    assert!(most < KEPT_MAX, "{} MiB, {told:?}", most >> 20);
    assert!(
        told.keys().all(|status| [0, 404, 413, 503].contains(status)),
        "{told:?}"
    );
    assert!(told.get(&404).is_some_and(|read| *read >= 3), "{told:?}");
    until_given_back(&scene, before).await;
    let answer = scene.client.post_chat(&chat("m")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    scene.finish().await;
}
