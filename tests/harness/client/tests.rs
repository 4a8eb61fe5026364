//! The client against the scripted upstream: each is the other's test.

use std::time::Duration;

use serde_json::json;

use super::log::End;
use super::sse::Said;
use super::{Client, chat, chat_streamed, chat_streamed_with_usage};
use crate::upstream::Upstream;
use crate::upstream::behaviour::{Behaviour, Then};

fn pair() -> (Upstream, Client) {
    let upstream = Upstream::start();
    let client = Client::new(upstream.addr(), "sk-test");
    (upstream, client)
}

#[tokio::test]
async fn a_plain_answer_comes_whole() {
    let (upstream, client) = pair();
    upstream.script([Behaviour::chat("hello").usage(3, 2)]);

    let answer = client.post_chat(&chat("u")).await;

    assert_eq!((answer.status, answer.content().as_str()), (200, "hello"));
    assert_eq!(answer.json()["usage"]["total_tokens"], 5);
    assert_eq!(
        upstream.call(0).request.header("authorization"),
        Some("Bearer sk-test")
    );
    assert_eq!(
        client
            .log()
            .answered()
            .first()
            .map(|answered| answered.end.clone()),
        Some(End::Whole)
    );
}

#[tokio::test]
async fn a_stream_is_the_same_text_in_every_packet_form() {
    let (upstream, client) = pair();
    let text = "héllo wörld 你好 🦀 end";
    let plain = || Behaviour::chat(text).usage(9, 20);
    let length = {
        upstream.script([plain()]);
        client
            .stream_chat(&chat_streamed_with_usage("u"))
            .await
            .collect()
            .await
            .raw
            .len()
    };
    upstream.script([
        plain().dribble(1, Duration::ZERO),
        plain().line_ending("\r\n"),
        plain().two_data_lines(),
        plain().comments_first(3),
        plain().pace(Duration::from_millis(1)),
        plain().until_close(),
        plain().usage_every_chunk(),
    ]);
    upstream.script((0..length).step_by(97).map(|at| plain().split_at(at)));
    let runs = 7 + length.div_ceil(97);

    for run in 0..runs {
        let transcript = client
            .stream_chat(&chat_streamed_with_usage("u"))
            .await
            .collect()
            .await;
        assert_eq!(transcript.whole(), text, "run {run}");
        assert_eq!(
            transcript.usage().expect("usage")["completion_tokens"],
            20,
            "run {run}"
        );
        assert_eq!(transcript.finish_reason().as_deref(), Some("stop"));
    }
    assert!(upstream.faults().is_empty());
}

#[tokio::test]
async fn each_way_a_stream_ends_has_its_name() {
    let (upstream, client) = pair();
    let chat = || Behaviour::chat("a b c d");
    upstream.script([
        chat(),
        chat().no_done(),
        chat().cut_after_chunks(2),
        chat().error_after(2, json!({"error": {"code": "boom"}})),
        chat().stop_after(2, Then::Cut),
        chat().stop_after(2, Then::Reset),
        chat().cut_after_bytes(40),
        Behaviour::error(503, "away"),
    ]);
    let mut ends = Vec::new();
    for _ in 0..8 {
        ends.push(client.stream_chat(&chat_streamed("u")).await.collect().await.end);
    }

    let broken = |end: &End| matches!(end, End::Broken(_));
    assert_eq!(ends.first(), Some(&End::Done));
    assert_eq!(
        ends.get(1..3),
        Some(&[End::EofWithoutDone, End::EofWithoutDone][..])
    );
    assert_eq!(
        ends.get(3),
        Some(&End::ErrorEvent(json!({"error": {"code": "boom"}})))
    );
    assert!(
        ends.get(4..7).is_some_and(|ends| ends.iter().all(broken)),
        "{ends:?}"
    );
    assert_eq!(ends.get(7), Some(&End::Whole));
    let answered = client.log().answered();
    assert_eq!(
        answered
            .iter()
            .map(|answered| answered.end.clone())
            .collect::<Vec<_>>(),
        ends
    );
    assert_eq!(
        answered.get(3).and_then(|answered| answered.code.as_deref()),
        Some("boom")
    );
}

#[tokio::test]
async fn leaving_early_is_seen_by_the_upstream_in_http_1_and_by_the_log() {
    let (upstream, client) = pair();
    upstream.default(Behaviour::chat("").chunks(200, Duration::from_millis(5)));

    let mut left = client.stream_chat(&chat_streamed("u")).await;
    assert_eq!(left.read_content(3).await, ["t1 ", "t2 ", "t3 "]);
    left.close();
    client.stream_chat(&chat_streamed("u")).await.reset();

    for number in 0..2 {
        assert!(upstream.wait_left(number).await < Duration::from_secs(1));
    }
    assert!(
        client
            .log()
            .answered()
            .iter()
            .all(|answered| answered.end == End::Left)
    );
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_upstream() {
    let (upstream, client) = pair();
    let total = 32 << 20;
    upstream.script([Behaviour::long_line(total)]);

    let stream = client.small_buffers().stream_chat(&chat_streamed("u")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    assert!(
        upstream.call(0).sent_bytes < (total as u64) / 2,
        "{}",
        upstream.call(0).sent_bytes
    );
    stream.close();
    upstream.wait_quiet().await;
}

#[tokio::test]
async fn events_carry_their_times_of_arrival() {
    let (upstream, client) = pair();
    upstream.script([Behaviour::chat("a b")
        .pace(Duration::from_millis(60))
        .comments_first(1)]);

    let transcript = client.stream_chat(&chat_streamed("u")).await.collect().await;

    let times: Vec<Duration> = transcript
        .events
        .iter()
        .filter(|event| matches!(&event.said, Said::Chunk(chunk) if chunk["choices"][0]["delta"]["content"].is_string()))
        .map(|event| event.at)
        .collect();
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        panic!("no content")
    };
    assert!(
        last.saturating_sub(*first) >= Duration::from_millis(55),
        "{times:?}"
    );
}

#[tokio::test]
async fn tool_calls_come_together_from_their_fragments() {
    let (upstream, client) = pair();
    let calls = [
        ("c1", "weather", r#"{"city":"Zürich \"x\""}"#),
        ("c2", "time", "{}"),
    ];
    upstream.default(Behaviour::chat("").tool_calls(&calls));

    let streamed = client.stream_chat(&chat_streamed("u")).await.collect().await;
    let plain = client.post_chat(&chat("u")).await.json();

    let expected: Vec<_> = calls
        .iter()
        .map(|(id, name, text)| ((*id).into(), (*name).into(), (*text).into()))
        .collect();
    assert_eq!(streamed.tool_calls(), expected);
    assert_eq!(streamed.finish_reason().as_deref(), Some("tool_calls"));
    assert_eq!(
        plain["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        calls[0].2
    );
}

#[tokio::test]
async fn a_call_without_an_answer_is_counted() {
    let (upstream, client) = pair();
    upstream.script([Behaviour::closed(), Behaviour::reset(), Behaviour::hang()]);

    assert!(client.try_post_chat(&chat("u")).await.is_err());
    assert!(client.try_stream_chat(&chat_streamed("u")).await.is_err());
    client
        .leave_chat_after(&chat("u"), Duration::from_millis(20))
        .await;

    assert_eq!(client.log().unanswered(), 3);
    upstream.wait_left(2).await;
}

#[tokio::test]
async fn raw_answers_are_taken_apart() {
    let (upstream, _) = pair();

    let answer = super::raw::raw(upstream.addr(), b"nonsense\r\n\r\n").await;

    assert_eq!((answer.status(), answer.closed), (400, true));
    assert_eq!(answer.header("Content-Length"), "0");
    assert_eq!(answer.body(), "");
}

#[tokio::test]
async fn over_http_2_an_answer_comes_and_leaving_ends_the_connection() {
    use http_body_util::BodyExt;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a port");
    let client = Client::new(listener.local_addr().expect("bound"), "k").http2();
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async move {
        for _ in 0..2 {
            let (socket, _) = listener.accept().await.expect("a connection");
            let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async {
                assert_eq!(request.version(), http::Version::HTTP_2);
                if request
                    .into_body()
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes()
                    .is_empty()
                {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(
                    bytes::Bytes::from_static(b"{}"),
                )))
            });
            let executor = hyper_util::rt::TokioExecutor::new();
            let connection = hyper::server::conn::http2::Builder::new(executor)
                .serve_connection(hyper_util::rt::TokioIo::new(socket), service);
            drop(connection.await);
        }
    });

    assert_eq!(client.post_chat(&chat("u")).await.text(), "{}");
    let silent = client.call("POST", "/", bytes::Bytes::new());
    assert!(
        tokio::time::timeout(Duration::from_millis(50), silent)
            .await
            .is_err()
    );

    let ended = tokio::time::timeout(Duration::from_secs(2), server.join_next()).await;
    assert!(matches!(ended, Ok(Some(Ok(())))), "{ended:?}");
}
