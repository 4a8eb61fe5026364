//! Deploys: a node that is told to stop finishes what runs, refuses nothing it can still serve, and ends in time.

use std::time::Duration;

use harness::{
    Behaviour, CALLER_KEY, End, Frame, Http2Socket, RawSocket, Scene, Surface, chat, chat_streamed,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Beyond the drain limit.
const END_SLACK: Duration = Duration::from_secs(2);
/// How long what runs may run on.
const DRAIN: Duration = Duration::from_secs(30);
/// Streams that run, for twenty seconds each.
const STREAMS: usize = 100;
/// Pieces of each.
const CHUNKS: usize = 40;

#[tokio::test]
async fn bug_case_34_running_streams_end_whole_readiness_is_bad_at_once_and_the_node_exits_with_0() {
    let mut scene = Scene::start_with(|node| node.setting("drain_seconds", DRAIN.as_secs())).await;
    scene.pin();
    scene.o1.default(
        Behaviour::chat("")
            .chunks(CHUNKS, Duration::from_millis(500))
            .usage(9, 40),
    );
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let client = if number % 3 == 0 {
            scene.client.http2()
        } else {
            scene.client.clone()
        };
        streams.spawn(async move { client.stream_chat(&chat_streamed("m")).await.collect().await });
    }
    scene.o1.wait_calls(STREAMS).await;
    let mut idle = RawSocket::connect(scene.client.addr()).await;
    idle.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.read_until(|bytes| bytes.ends_with(b"}")).await.status(), 200);

    scene.node.terminate().await;
    let told = Instant::now();
    let ready = loop {
        let ready = scene.client.get("/health/ready").await;
        if ready.status == 503 {
            break ready;
        }
        assert!(told.elapsed() < Duration::from_millis(500), "still ready");
    };
    assert_eq!(ready.json()["status"], "draining", "{}", ready.text());
    scene.o2.default(Behaviour::chat("late"));
    let late = scene.client.try_post_chat(&chat("m")).await;
    if let Ok(late) = late {
        assert!([200, 503].contains(&late.status), "{}", late.text());
        assert_eq!(late.header("connection"), "close");
    }

    let transcripts = streams.join_all().await;
    assert_eq!(scene.node.ended().await, Some(0));
    assert!(told.elapsed() < DRAIN + END_SLACK, "{:?}", told.elapsed());
    assert_eq!(transcripts.len(), STREAMS);
    for transcript in &transcripts {
        assert_eq!(transcript.whole().split(' ').count(), CHUNKS);
    }
    scene.finish().await;
}

/// Reads what a connection without a call is told: to go away, with this stream as the last, and then its end.
async fn told_and_closed(idle: &mut Http2Socket, last_stream: u32) {
    let mut last = idle.next().await;
    assert!(matches!(last, Frame::GoAway { code: 0, .. }), "{last:?}");
    loop {
        match idle.next().await {
            Frame::Closed => break,
            further => last = further,
        }
    }
    assert_eq!(last, Frame::GoAway { last_stream, code: 0 });
}

#[tokio::test]
async fn callers_over_http2_are_told_to_go_elsewhere_and_what_runs_for_them_ends_whole() {
    let mut scene = Scene::start_with(|node| node.setting("drain_seconds", 10)).await;
    scene.pin();
    scene.foreign_calls();
    scene
        .o1
        .default(Behaviour::chat("").chunks(15, Duration::from_millis(100)));
    let mut unused = Http2Socket::connect(scene.client.addr()).await;
    let mut used = Http2Socket::connect(scene.client.addr()).await;
    let mut busy = Http2Socket::connect(scene.client.addr()).await;
    let call = (Surface::Chat.path(), CALLER_KEY);
    scene.o1.script([Behaviour::chat("over already")]);
    used.post(1, call, &chat("m").to_string()).await;
    while !matches!(used.next().await, Frame::Data { last: true, .. }) {}
    busy.post(1, call, &chat_streamed("m").to_string()).await;
    let Frame::Data {
        stream: 1,
        bytes,
        last: false,
    } = busy.next().await
    else {
        panic!("the stream has not begun")
    };
    let mut body = bytes;

    scene.node.terminate().await;
    let told = Instant::now();

    told_and_closed(&mut unused, 0).await;
    told_and_closed(&mut used, 1).await;
    assert!(
        told.elapsed() < Duration::from_millis(700),
        "{:?}",
        told.elapsed()
    );
    let mut last_streams = Vec::new();
    let mut is_whole = false;
    loop {
        match busy.next().await {
            Frame::GoAway { last_stream, code } => {
                assert!(!is_whole, "told only when all was over");
                assert_eq!(code, 0);
                last_streams.push(last_stream);
            }
            Frame::Data { stream, bytes, last } => {
                assert_eq!(stream, 1);
                body.extend_from_slice(&bytes);
                is_whole = last;
            }
            Frame::Closed => break,
        }
    }
    assert_eq!(last_streams.last(), Some(&1), "{last_streams:?}");
    let body = String::from_utf8_lossy(&body);
    assert!(
        is_whole && body.contains("t15") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
    assert_eq!(scene.node.ended().await, Some(0));
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_34_a_stream_that_outlasts_the_drain_ends_with_an_error_event_and_a_proper_row() {
    let mut scene = Scene::start_with(|node| node.setting("drain_seconds", 1)).await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("").chunks(6_000, Duration::from_millis(50)));
    let mut streams = Vec::new();
    for client in [scene.client.clone(), scene.client.http2()] {
        let mut stream = client.stream_chat(&chat_streamed("m")).await;
        stream.read_content(2).await;
        streams.push(stream);
    }
    scene.o1.script([Behaviour::hang()]);
    let waiting = scene.client.clone();
    let mut plain = JoinSet::new();
    plain.spawn(async move { waiting.try_post_chat(&chat("m")).await });
    scene.o1.wait_calls(3).await;

    scene.node.terminate().await;
    let told = Instant::now();

    let mut ids = Vec::new();
    for stream in streams {
        let transcript = stream.collect().await;
        ids.push(transcript.request_id().to_owned());
        assert!(
            matches!(transcript.end, End::ErrorEvent(_)),
            "{:?}",
            transcript.end
        );
        assert_eq!(transcript.error()["code"], "stream_interrupted");
        assert!(!String::from_utf8_lossy(&transcript.raw).contains("[DONE]"));
    }
    let plain = plain.join_all().await.remove(0).expect("an answer");
    assert!([502, 503, 504].contains(&plain.status), "{}", plain.text());
    ids.push(plain.request_id().to_owned());
    assert_eq!(scene.node.ended().await, Some(0));
    let took = told.elapsed();
    assert!(
        took >= Duration::from_millis(900) && took <= Duration::from_secs(1) + END_SLACK,
        "{took:?}"
    );
    scene.restart().await;
    for id in ids {
        let row = scene.row(&id).await;
        assert_eq!(
            (&row["outcome"], &row["cost_nano_usd"]),
            (&json!("timeout"), &json!(0)),
            "{row}"
        );
        assert_eq!(row["error_code"], "stream_interrupted", "{row}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_34_a_second_signal_ends_the_node_at_once_and_loses_no_row() {
    let mut scene = Scene::start_with(|node| node.setting("drain_seconds", 60)).await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("").chunks(6_000, Duration::from_millis(50)));
    let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
    stream.read_content(2).await;
    let id = stream.request_id().to_owned();

    scene.node.terminate().await;
    sleep(Duration::from_millis(300)).await;
    assert!(scene.node.running(), "it waits for the stream");
    scene.node.terminate().await;
    let told = Instant::now();
    scene.node.ended().await;

    assert!(told.elapsed() <= END_SLACK, "{:?}", told.elapsed());
    drop(stream);
    scene.restart().await;
    let row = scene.row(&id).await;
    let outcome = row["outcome"].as_str().unwrap_or_default();
    assert!(["timeout", "client_gone", "lost"].contains(&outcome), "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn plain_calls_go_on_without_a_failure_until_the_node_refuses_connections() {
    let mut scene = Scene::start_with(|node| node.setting("drain_seconds", 5)).await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("done {call}").first_byte_delay(Duration::from_millis(30)));
    let holder = scene.client.clone();
    scene
        .o1
        .script([Behaviour::chat("").chunks(10, Duration::from_millis(100))]);
    let mut stream = JoinSet::new();
    stream.spawn(async move {
        holder
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await
            .whole()
    });
    scene.o1.wait_calls(1).await;

    scene.node.terminate().await;
    let (mut served, mut refused) = (0, 0);
    while refused == 0 {
        match scene.client.try_post_chat(&chat("m")).await {
            Ok(answer) if answer.status == 200 => served += 1,
            Ok(answer) => {
                assert_eq!(
                    (answer.status, answer.error_code().as_str()),
                    (503, "draining"),
                    "{}",
                    answer.text()
                );
                assert!(!answer.header("retry-after").is_empty());
                refused += 1;
            }
            Err(error) => {
                assert!(served > 0, "{error:?}");
                refused += 1;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(served > 0, "what could still be served was refused");
    assert_eq!(stream.join_all().await.len(), 1);
    assert_eq!(scene.node.ended().await, Some(0));
    scene.finish().await;
}

#[tokio::test]
async fn an_idle_node_ends_at_once() {
    let mut scene = Scene::start().await;
    scene.pin();
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    let told = Instant::now();

    assert_eq!(scene.node.stop().await, Some(0));

    assert!(told.elapsed() < END_SLACK, "{:?}", told.elapsed());
    scene.finish().await;
}
