//! Nodes that are killed: whoever was answered has his row, whoever was cut has one that says why, and the books are
//! the same when they are read again from the log.

use std::time::Duration;

use harness::{
    Behaviour, CALLER_KEY, End, Load, Model, Node, Scene, Upstream, chat, chat_streamed, embedded_only,
};
use serde_json::json;
use tokio::time::sleep;

/// Time between two calls: 50 a second.
const CALL_EVERY: Duration = Duration::from_millis(20);
/// How long a node lives under load.
const LIFE: Duration = Duration::from_secs(1);
/// Kills without a word from the environment.
const KILLS: usize = 2;

fn kills() -> usize {
    let told = std::env::var_os("WAYBILL_TEST_KILLS");
    told.and_then(|text| text.to_str()?.parse().ok()).unwrap_or(KILLS)
}

#[tokio::test]
async fn killed_again_and_again_under_load_the_books_hold_every_answer_once() {
    let mut scene = Scene::start().await;
    scene.o1.on(|request| {
        let answer = Behaviour::chat("")
            .chunks(8, Duration::from_millis(15))
            .usage(9, 8);
        if request.streaming() {
            answer
        } else {
            answer.first_byte_delay(Duration::from_millis(30))
        }
    });
    scene.o2.default(Behaviour::chat("other").usage(9, 1));
    let load = Load::start(&scene.client, CALL_EVERY);

    for _ in 0..kills() {
        sleep(LIFE).await;
        scene.kill_and_restart().await;
    }
    sleep(LIFE).await;
    load.end().await;

    let answered = scene.client.log().answered();
    let whole = answered
        .iter()
        .filter(|answer| matches!(answer.end, End::Whole | End::Done))
        .count();
    let cut: Vec<_> = answered
        .iter()
        .filter(|answer| matches!(answer.end, End::Broken(_)))
        .collect();
    assert!(whole > 10 * kills(), "{whole} whole answers");
    assert!(!cut.is_empty(), "no kill cut an answer");
    for answer in cut {
        let row = scene.row(&answer.request_id).await;
        let told = (row["outcome"].as_str(), row["error_code"].as_str());
        assert!(
            [(Some("lost"), Some("node_lost")), (Some("ok"), None)].contains(&told),
            "{row}"
        );
        if told.0 == Some("lost") {
            assert_eq!(
                (&row["status"], &row["cost_nano_usd"]),
                (&json!(500), &json!(0)),
                "{row}"
            );
        }
    }
    let violations = scene.violations().await;
    assert!(violations.is_empty(), "{violations:?}");
    rebuild_changes_nothing(&mut scene).await;
    scene.finish().await;
}

/// Reads the books again from the log, with the node ended, and compares.
async fn rebuild_changes_nothing(scene: &mut Scene) {
    assert_eq!(scene.node.stop().await, Some(0));
    let before = scene.node.books().dump().await;
    let (code, output) = scene.node.command(&["replay", "--rebuild"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(scene.node.books().dump().await, before);
    scene.restart().await;
}

#[tokio::test]
async fn requests_that_a_kill_left_open_are_settled_as_lost_at_the_restart() {
    let mut scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(1_000, Duration::from_millis(20)));
    let mut streams = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
        stream.read_content(2).await;
        ids.push(stream.request_id().to_owned());
        streams.push(stream);
    }
    // Longer than a second: one of them has been told to the log as accepted by now.
    sleep(Duration::from_millis(1_300)).await;

    scene.kill_and_restart().await;

    for (id, stream) in ids.iter().zip(streams) {
        let transcript = stream.collect().await;
        assert!(matches!(transcript.end, End::Broken(_)), "{:?}", transcript.end);
        let row = scene.row(id).await;
        assert_eq!(
            (&row["outcome"], &row["error_code"]),
            (&json!("lost"), &json!("node_lost")),
            "{row}"
        );
        assert_eq!(
            (&row["cost_nano_usd"], &row["output_tokens"]),
            (&json!(0), &json!(0)),
            "{row}"
        );
        assert_eq!(
            (&row["tenant"], &row["user"], &row["model"]),
            (&json!("acme"), &json!("alice"), &json!("m")),
            "{row}"
        );
    }
    scene.kill_and_restart().await;
    assert_eq!(
        scene.node.logs_api("outcome=lost").await.len(),
        3,
        "a second restart settles nothing twice"
    );
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_that_was_whole_before_the_kill_is_in_the_books_after_it() {
    let mut scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("hello").usage(9, 20));

    for _ in 0..3 {
        let plain = scene.client.post_chat(&chat("m")).await;
        let streamed = scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await;
        // At once: nothing but the spool can know of them.
        scene.kill_and_restart().await;
        for id in [plain.request_id(), streamed.request_id()] {
            let row = scene.row(id).await;
            assert_eq!(
                (&row["outcome"], &row["cost_nano_usd"]),
                (&json!("ok"), &json!(178_000)),
                "{row}"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_spool_that_lost_its_end_takes_nothing_back_and_loses_nothing_new() {
    let mut scene = Scene::start().await;
    scene.pin();
    scene.o1.default(Behaviour::chat("hello").usage(9, 20));
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(scene.client.post_chat(&chat("m")).await.request_id().to_owned());
    }
    for id in &ids {
        scene.row(id).await;
    }
    assert_eq!(scene.node.stop().await, Some(0));
    let files = std::fs::read_dir(scene.node.data_dir().join("spool")).expect("the spool");
    let files = files.map(|entry| entry.expect("an entry").path());
    let newest = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "spool"))
        .max()
        .expect("a segment");
    let bytes = std::fs::read(&newest).expect("read");
    // Before the third intent.
    let mut intents = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, head)| *head == b"WB\x01\x01");
    let (cut, _) = intents.nth(2).expect("six intents");
    std::fs::write(&newest, &bytes[..cut]).expect("cut");

    scene.restart().await;
    for _ in 0..2 {
        ids.push(scene.client.post_chat(&chat("m")).await.request_id().to_owned());
        // At once: nothing but the spool can know of it.
        scene.kill_and_restart().await;
    }

    for id in &ids {
        let row = scene.row(id).await;
        assert_eq!(
            (&row["outcome"], &row["cost_nano_usd"]),
            (&json!("ok"), &json!(178_000)),
            "{row}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn books_and_log_that_are_gone_do_not_fill_the_spool_for_ever() {
    if embedded_only("the log and the books are files of the node") {
        return;
    }
    let upstream = Upstream::start();
    upstream.default(Behaviour::chat("hello").usage(9, 20));
    let spool = json!({"bytes_max": 120_000});
    let model = Model::new("m").leg(&upstream, 0);
    let node = Node::builder().models(&[model]).setting("spool", spool);
    let mut node = node.start().await;
    serve(&node, 60).await;
    assert_eq!(node.stop().await, Some(0));
    std::fs::remove_dir_all(node.data_dir().join("bus")).expect("the log");
    for file in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        let _ = std::fs::remove_file(node.data_dir().join(file));
    }
    node.books_are_gone();

    node.restart().await;

    // More than the spool may hold at once.
    serve(&node, 150).await;
    node.wait_rows("", 150).await;
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

/// Makes so many calls, all of which must be answered.
async fn serve(node: &Node, calls: usize) {
    let client = node.client(CALLER_KEY);
    for _ in 0..calls {
        assert_eq!(client.post_chat(&chat("m")).await.status, 200);
        sleep(CALL_EVERY).await;
    }
}
