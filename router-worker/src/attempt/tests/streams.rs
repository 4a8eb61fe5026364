//! Streamed answers.

use std::time::Duration;

use async_compression::tokio::write::GzipEncoder;
use bus::dispatch::Dispatcher as _;
use schemas::outcome::Outcome;
use tokio::io::AsyncWriteExt as _;

use crate::testing::{Act, Played, STREAM, Scene, Server, chat, chunk, config, events, frame, response};

/// Role, three words, finish, usage, end mark.
fn whole() -> String {
    let mut body = chunk(r#"{"role":"assistant","content":""}"#, "null");
    for word in ["Hello", " wörld", " 🙂"] {
        body.push_str(&chunk(&format!(r#"{{"content":"{word}"}}"#), "null"));
    }
    body.push_str(&chunk("{}", r#""stop""#));
    body.push_str(
        "data: {\"id\":\"chatcmpl-1\",\"model\":\"org/m-7b\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13}}\n\n",
    );
    body.push_str("data: [DONE]\n\n");
    body
}

/// What a caller must get for [`whole`] without having asked for usage.
fn expected() -> String {
    let usage_from = whole()
        .find("data: {\"id\":\"chatcmpl-1\",\"model\":\"org/m-7b\",\"choices\":[]")
        .expect("usage");
    let mut text = whole()[..usage_from].replace("\"model\":\"org/m-7b\"", "\"model\":\"m\"");
    text.push_str("data: [DONE]\n\n");
    text
}

fn first_words() -> String {
    let role = chunk(r#"{"role":"assistant"}"#, "null");
    role + &chunk(r#"{"content":"Hello"}"#, "null")
}

#[tokio::test]
async fn a_stream_passes_whole_under_the_public_name_with_its_usage_on_the_side() {
    let server = Server::always(vec![Act::Send(events(&whole())), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(STREAM).await;

    assert_eq!(played.text(), expected());
    let report = &played.end().report;
    assert_eq!(&played.end().tail[..], b"data: [DONE]\n\n");
    assert_eq!(report.outcome, Outcome::Ok);
    assert_eq!(
        report
            .usage
            .map(|usage| (usage.input_tokens, usage.output_tokens)),
        Some((9, 4))
    );
    assert_eq!(
        report.delivered.output_bytes,
        u64::try_from("Hello wörld 🙂".len()).expect("small")
    );
    let sent = server.requests().remove(0);
    assert!(sent.contains(r#""stream_options":{"include_usage":true}"#));
}

#[tokio::test]
async fn usage_is_passed_on_to_callers_who_asked_for_it() {
    let server = Server::always(vec![Act::Send(events(&whole())), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;
    let asking = STREAM.replace(
        "\"stream\":true",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true}",
    );

    let played = scene.call(&asking).await;

    assert!(played.text().contains("\"prompt_tokens\":9"));
}

#[tokio::test]
async fn a_stream_in_chunked_framing_leaves_its_connection_for_the_next() {
    let body = whole();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let server = Server::always(vec![Act::Send(answer.into_bytes())]).await;
    let scene = Scene::over(&[&server]).await;

    for _ in 0..3 {
        assert_eq!(scene.call(STREAM).await.text(), expected());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn events_that_came_at_once_leave_together_and_whole() {
    let word = chunk(r#"{"content":"word"}"#, "null");
    let piece = format!("{:x}\r\n{word}\r\n", word.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let last = chunk("{}", r#""stop""#) + "data: [DONE]\n\n";
    let end = format!("{:x}\r\n{last}\r\n0\r\n\r\n", last.len());
    let answer = [head, &piece.repeat(50), &end].concat();
    let server = Server::always(vec![Act::Send(answer.into_bytes())]).await;
    let scene = Scene::over(&[&server]).await;

    let mut session = scene.router.dispatch(scene.offer(STREAM));
    let (mut played, mut frames) = (Played::default(), 0);
    while played.end.is_none() {
        played.take(frame(session.as_mut()).await);
        frames += 1;
    }

    assert_eq!(played.text().matches("word").count(), 50);
    assert!(played.text().ends_with("data: [DONE]\n\n"));
    assert!(frames <= 6, "{frames} frames for one read");
}

#[tokio::test]
async fn an_event_that_follows_others_does_not_wait_for_the_next() {
    let word = chunk(r#"{"content":"word"}"#, "null");
    let piece = format!("{:x}\r\n{word}\r\n", word.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = [head, &piece.repeat(3)].concat();
    let server = Server::always(vec![Act::Send(answer.into_bytes()), Act::Hang]).await;
    let scene = Scene::over(&[&server]).await;

    let mut session = scene.router.dispatch(scene.offer(STREAM));
    let mut played = Played::default();
    while played.chunks.len() < 3 * (word.len() - "org/m-7b".len() + "m".len()) {
        let next = tokio::time::timeout(Duration::from_secs(1), frame(session.as_mut())).await;
        played.take(next.expect("nothing is held back"));
    }

    assert!(played.end.is_none());
}

#[tokio::test]
async fn without_an_end_mark_a_finished_stream_is_whole_and_gets_one() {
    let body = whole().replace("data: [DONE]\n\n", "");
    let server = Server::always(vec![Act::Send(events(&body)), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(STREAM).await;

    assert_eq!(played.text(), expected());
    assert!(played.end().report.usage.is_some());
}

#[tokio::test]
async fn a_finished_stream_that_stays_open_is_ended_after_a_second() {
    let body = whole().replace("data: [DONE]\n\n", "");
    let server = Server::always(vec![Act::Send(events(&body)), Act::Hang]).await;
    let scene = Scene::over(&[&server]).await;

    let started = tokio::time::Instant::now();
    let played = scene.call(STREAM).await;

    assert_eq!(played.text(), expected());
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_stream_that_stops_after_content_is_cut_and_never_gets_an_end_mark() {
    let fallback = Server::always(vec![Act::Send(events(&whole())), Act::Close]).await;
    let server = Server::always(vec![Act::Send(events(&first_words())), Act::Close]).await;
    let scene = Scene::over(&[&server, &fallback]).await;

    for _ in 0..3 {
        let played = scene.call(STREAM).await;

        assert!(!played.text().contains("[DONE]"));
        assert!(played.text().contains("Hello"));
        let report = &played.end().report;
        assert_eq!(report.outcome, Outcome::UpstreamCut);
        assert_eq!(played.code(), Some("stream_interrupted"));
        assert_eq!(report.delivered.output_bytes, 5);
        assert_eq!(played.served(), Some("e1"));
    }

    assert_eq!(fallback.calls(), 0);
    assert_eq!(scene.changes.lock().len(), 1, "broken streams open the circuit");
    assert_eq!(scene.call(STREAM).await.served(), Some("e2"));
}

#[tokio::test]
async fn an_error_after_content_ends_the_stream_and_is_not_output() {
    let body = first_words() + "data: {\"error\":{\"message\":\"a very long story\"}}\n\n";
    let server = Server::always(vec![Act::Send(events(&body)), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(STREAM).await;

    let report = &played.end().report;
    assert_eq!(report.outcome, Outcome::UpstreamError);
    assert_eq!(report.delivered.output_bytes, 5);
    assert!(!played.text().contains("story"));
}

#[tokio::test]
async fn whatever_fails_before_content_is_routed_around_under_a_true_status() {
    let error = "data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let role = chunk(r#"{"role":"assistant"}"#, "null");
    let whole_answer = String::from_utf8(chat("whole")).expect("text");
    let failing = [
        response("429 Too Many Requests", "application/json", b"{}"),
        response("529 Overloaded", "application/json", b"{}"),
        response("200 OK", "application/json", br#"{"error":{"message":"no"}}"#),
        whole_answer.into_bytes(),
        events(error),
        events(&(role.clone() + error)),
        events(&role),
        events(": waiting\n\n: waiting\n\n"),
        events("data: [DONE]\n\n"),
        events(&chunk("{}", r#""error""#)),
        events("data: not JSON\n\n"),
    ];
    for answer in failing {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let server = Server::always(vec![Act::Send(answer), Act::Close]).await;
        let fallback = Server::always(vec![Act::Send(events(&whole())), Act::Close]).await;
        let scene = Scene::over(&[&server, &fallback]).await;

        let played = scene.call(STREAM).await;

        assert_eq!(played.text(), expected(), "{shown}");
        assert_eq!(played.end().report.attempts.len(), 2, "{shown}");
        assert_eq!(played.served(), Some("e2"), "{shown}");
    }
}

#[tokio::test]
async fn broken_events_are_dropped_and_the_rest_flows() {
    let (before, after) = (
        first_words(),
        whole().replacen(&chunk(r#"{"role":"assistant","content":""}"#, "null"), "", 1),
    );
    let body = format!("{before}data: {{\"broken\": [\n\n{after}");
    let server = Server::always(vec![Act::Send(events(&body)), Act::Close]).await;
    let scene = Scene::over(&[&server]).await;

    let played = scene.call(STREAM).await;

    assert_eq!(played.end().report.outcome, Outcome::Ok);
    assert!(!played.text().contains("broken"));
}

#[tokio::test]
async fn a_silence_after_the_first_event_times_out_and_counts() {
    let server = Server::always(vec![Act::Send(events(&first_words())), Act::Hang]).await;
    let mut config = config();
    config.clocks.stream_idle = Some(Duration::from_millis(60));
    config.circuit.failures_max = 1;
    let scene = Scene::with(config, &[&server]).await;

    let played = scene.call(STREAM).await;

    assert_eq!(played.end().report.outcome, Outcome::Timeout);
    assert_eq!(played.code(), Some("upstream_timeout"));
    assert_eq!(scene.changes.lock().len(), 1);
}

#[tokio::test]
async fn comments_do_not_keep_a_stream_alive_for_ever() {
    let mut acts = vec![Act::Send(events(&first_words()))];
    for _ in 0..40 {
        acts.push(Act::Wait(Duration::from_millis(20)));
        acts.push(Act::Send(b": still here\n\n".to_vec()));
    }
    let server = Server::always(acts).await;
    let mut config = config();
    config.clocks.stream_idle = Some(Duration::from_millis(100));
    let scene = Scene::with(config, &[&server]).await;

    let started = tokio::time::Instant::now();
    let played = scene.call(STREAM).await;

    assert_eq!(played.end().report.outcome, Outcome::Timeout);
    assert!(started.elapsed() < Duration::from_millis(600));
}

#[tokio::test]
async fn a_long_prefill_is_no_silence() {
    let head = events("");
    let server = Server::always(vec![
        Act::Send(head),
        Act::Wait(Duration::from_millis(150)),
        Act::Send(whole().into_bytes()),
        Act::Close,
    ])
    .await;
    let mut config = config();
    config.clocks.stream_idle = Some(Duration::from_millis(50));
    let scene = Scene::with(config, &[&server]).await;

    let played = scene.call(STREAM).await;

    assert_eq!(played.text(), expected());
}

#[tokio::test]
async fn a_slow_caller_is_no_silence_of_the_upstream() {
    let body = whole();
    let (before, after) = body.split_at(first_words().len() + 40);
    let server = Server::always(vec![
        Act::Send(events(before)),
        Act::Send(after.as_bytes().to_vec()),
        Act::Close,
    ])
    .await;
    let mut config = config();
    config.clocks.stream_idle = Some(Duration::from_millis(50));
    let scene = Scene::with(config, &[&server]).await;
    let mut session = bus::dispatch::Dispatcher::dispatch(&scene.router, scene.offer(STREAM));
    let mut played = crate::testing::Played::default();

    while played.end.is_none() {
        played.take(crate::testing::frame(session.as_mut()).await);
        tokio::time::sleep(Duration::from_millis(80)).await;
    }

    assert_eq!(played.text(), expected());
}

#[tokio::test]
async fn events_of_a_compressed_stream_are_passed_on_as_they_come() {
    let mut encoder = GzipEncoder::new(Vec::new());
    let mut pieces = Vec::new();
    for event in whole().split_inclusive("\n\n") {
        encoder.write_all(event.as_bytes()).await.expect("write");
        encoder.flush().await.expect("flush");
        pieces.push(std::mem::take(encoder.get_mut()));
    }
    encoder.shutdown().await.expect("finish");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
    let mut acts = vec![Act::Send(head.as_bytes().to_vec())];
    // The second half of the stream never comes: what came before must not wait for it.
    acts.extend(pieces.into_iter().take(3).map(Act::Send));
    acts.push(Act::Hang);
    let server = Server::always(acts).await;
    let scene = Scene::over(&[&server]).await;
    let mut session = bus::dispatch::Dispatcher::dispatch(&scene.router, scene.offer(STREAM));
    let mut played = crate::testing::Played::default();

    while !String::from_utf8_lossy(&played.chunks).contains("wörld") {
        let next = tokio::time::timeout(Duration::from_secs(5), crate::testing::frame(session.as_mut()));
        played.take(next.await.expect("in time"));
    }

    assert!(played.end.is_none());
}

#[tokio::test]
async fn usage_that_follows_a_finished_answer_is_read_though_the_caller_has_left() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
    let server = Server::always(vec![
        Act::Send(events(&(first_words() + &chunk("{}", r#""stop""#)))),
        Act::Wait(Duration::from_millis(100)),
        Act::Send(usage.as_bytes().to_vec()),
        Act::Hang,
    ])
    .await;
    let scene = Scene::over(&[&server]).await;
    let mut session = bus::dispatch::Dispatcher::dispatch(&scene.router, scene.offer(STREAM));
    let mut played = crate::testing::Played::default();
    while !String::from_utf8_lossy(&played.chunks).contains("stop") {
        played.take(crate::testing::frame(session.as_mut()).await);
    }

    session.cancel();
    played.take(crate::testing::frame(session.as_mut()).await);

    let report = &played.end().report;
    assert_eq!(report.outcome, Outcome::ClientGone);
    assert_eq!(report.usage.map(|usage| usage.output_tokens), Some(4));
}

#[tokio::test]
async fn a_second_choice_is_awaited_though_the_first_has_ended() {
    let second = |delta: &str, finish: &str| chunk(delta, finish).replace("\"index\":0", "\"index\":1");
    let first = first_words() + &chunk("{}", r#""stop""#);
    let late = second(r#"{"content":"late"}"#, "null") + &second("{}", r#""stop""#) + "data: [DONE]\n\n";
    let server = Server::always(vec![
        Act::Send(events(&first)),
        Act::Wait(Duration::from_millis(1_200)),
        Act::Send(late.into_bytes()),
        Act::Close,
    ])
    .await;
    let scene = Scene::over(&[&server]).await;
    let asking = STREAM.replace("\"stream\":true", "\"stream\":true,\"n\":2");

    let played = scene.call(&asking).await;

    assert_eq!(played.end().report.outcome, Outcome::Ok);
    assert!(played.text().contains("late"));
}
