//! The upstream against a raw socket; the strict client is tested against it in `client/tests`.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::behaviour::{Behaviour, Then};
use super::{CallState, Upstream};

const BODY: &str = r#"{"model":"u","stream":true}"#;

fn request(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: u\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn send(upstream: &Upstream, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(upstream.addr()).await.expect("a connection");
    stream
        .write_all(request(body).as_bytes())
        .await
        .expect("a request sent");
    stream
}

async fn read_to_end(mut stream: TcpStream) -> (String, std::io::Result<usize>) {
    let mut bytes = Vec::new();
    let result = stream.read_to_end(&mut bytes).await;
    (String::from_utf8_lossy(&bytes).into_owned(), result)
}

#[tokio::test]
async fn a_call_is_counted_and_kept_byte_for_byte() {
    let upstream = Upstream::start();
    upstream.script([Behaviour::chat("hello {call}").close_after_response()]);

    let (answer, _) = read_to_end(send(&upstream, r#"{"model":"u"}"#).await).await;

    assert_eq!(upstream.calls(), 1);
    let call = upstream.call(0);
    assert_eq!(call.request.body.as_ref(), br#"{"model":"u"}"#);
    assert!(
        call.request
            .head
            .starts_with(b"POST /v1/chat/completions HTTP/1.1\r\n")
    );
    assert_eq!(call.state, CallState::Answered);
    assert!(answer.contains(&format!("hello {}", call.word)), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_leaves_a_stalled_stream_is_noted() {
    let upstream = Upstream::start();
    upstream.script([Behaviour::chat("a b c").stall_after(1)]);

    let stream = send(&upstream, BODY).await;
    upstream.wait_calls(1).await;
    assert_eq!((upstream.busy(), upstream.open()), (1, 1));
    drop(stream);

    assert!(upstream.wait_left(0).await < Duration::from_secs(1));
    upstream.wait_quiet().await;
    assert_eq!(upstream.open_max(), 1);
}

#[tokio::test]
async fn a_reset_reaches_the_peer_as_one_and_a_cut_does_not() {
    let upstream = Upstream::start();
    upstream.script([
        Behaviour::chat("a b c").reset_after_bytes(10),
        Behaviour::chat("a b c").cut_after_bytes(10),
    ]);

    let (_, reset) = read_to_end(send(&upstream, BODY).await).await;
    let (cut_text, cut) = read_to_end(send(&upstream, BODY).await).await;

    assert_eq!(
        reset.expect_err("a reset").kind(),
        std::io::ErrorKind::ConnectionReset
    );
    assert!(cut.is_ok());
    assert!(
        cut_text.contains("\r\n\r\na\r\ndata: {\"ch\r\n") && !cut_text.ends_with("0\r\n\r\n"),
        "{cut_text}"
    );
}

#[tokio::test]
async fn a_reused_connection_is_reset_and_its_behaviour_waits_for_the_next_call() {
    let upstream = Upstream::start();
    upstream.script([
        Behaviour::chat("one"),
        Behaviour::chat("two").reset_on_request_if_reused(),
    ]);
    let mut stream = send(&upstream, r#"{"model":"u"}"#).await;
    let mut buffer = [0_u8; 4096];
    assert!(stream.read(&mut buffer).await.expect("an answer") > 0);
    upstream.wait_quiet().await;

    stream
        .write_all(request(BODY).as_bytes())
        .await
        .expect("a second request");
    let (_, second) = read_to_end(stream).await;
    let again = send(&upstream, BODY).await;
    upstream.wait_calls(2).await;

    assert!(second.is_err() || second.is_ok_and(|read| read == 0));
    assert_eq!((upstream.resets(), upstream.calls()), (1, 2));
    assert!(!upstream.call(1).reused);
    drop(again);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_notice() {
    let upstream = Upstream::start();
    upstream.default(Behaviour::chat("one").idle_close(Duration::from_millis(20)));

    let (answer, end) = read_to_end(send(&upstream, r#"{"model":"u"}"#).await).await;

    assert!(end.is_ok());
    assert!(!answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn silence_after_nothing_or_comments_lasts_until_the_peer_leaves() {
    let upstream = Upstream::start();
    upstream.script([
        Behaviour::hang(),
        Behaviour::comments_only(Then::Forever(Duration::from_millis(1))),
    ]);

    let silent = send(&upstream, BODY).await;
    let mut talking = send(&upstream, BODY).await;
    let mut read = 0;
    while read < 400 {
        let mut buffer = [0_u8; 64];
        read += talking.read(&mut buffer).await.expect("comments");
    }
    assert_eq!(upstream.busy(), 2);
    drop((silent, talking));

    upstream.wait_quiet().await;
    assert!(upstream.recorded().iter().all(|call| call.left_after().is_some()));
}

#[tokio::test]
async fn a_stopped_upstream_refuses_and_can_come_back_at_its_address() {
    let mut upstream = Upstream::start();
    let addr = upstream.addr();

    upstream.stop().await;
    assert!(TcpStream::connect(addr).await.is_err());

    let again = Upstream::start_at(addr);
    assert!(TcpStream::connect(again.addr()).await.is_ok());
}

#[tokio::test]
async fn a_malformed_request_is_a_fault_and_no_call() {
    let upstream = Upstream::start();
    let mut stream = TcpStream::connect(upstream.addr()).await.expect("a connection");
    stream.write_all(b"POST / HTTP/1.0\r\n\r\n").await.expect("sent");

    let (answer, _) = read_to_end(stream).await;

    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!((upstream.calls(), upstream.faults().len()), (0, 1));
}

async fn told(target: &str, body: &str, behaviour: Behaviour) -> String {
    let upstream = Upstream::start();
    upstream.script([behaviour.close_after_response()]);
    let mut stream = TcpStream::connect(upstream.addr()).await.expect("a connection");
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: u\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("a request sent");
    read_to_end(stream).await.0
}

#[tokio::test]
async fn an_answer_is_told_in_the_dialect_of_the_path() {
    let answer = || {
        Behaviour::chat("two words")
            .reasoning("hm")
            .tool_calls(&[("c1", "f", "{\"a\":\"bcdefgh\"}")])
    };

    let messages = told("/v1/messages", BODY, answer()).await;
    let gemini = told("/v1beta/models/g:streamGenerateContent?alt=sse", "{}", answer()).await;
    let responses = told("/v1/responses", BODY, answer()).await;
    let completions = told("/v1/completions", BODY, Behaviour::chat("two words")).await;

    assert_eq!(
        messages.matches("event: content_block_start").count(),
        3,
        "{messages}"
    );
    assert!(
        messages.contains("\"stop_reason\":\"tool_use\"") && messages.contains("event: message_stop"),
        "{messages}"
    );
    assert!(
        gemini.contains("\"thoughtSignature\"") && gemini.contains("\"finishReason\":\"STOP\""),
        "{gemini}"
    );
    assert_eq!(
        responses.matches("event: response.output_item.done").count(),
        3,
        "{responses}"
    );
    assert!(responses.contains("event: response.completed"), "{responses}");
    assert!(
        completions.contains("\"object\":\"text_completion\"") && completions.contains("[DONE]"),
        "{completions}"
    );
    let cut = told("/v1/messages", BODY, Behaviour::chat("a b c").cut_after_chunks(2)).await;
    assert_eq!(cut.matches("text_delta").count(), 2, "{cut}");
    assert!(!cut.contains("message_delta"), "{cut}");
}

#[tokio::test]
async fn a_strict_upstream_refuses_in_the_words_of_its_dialect_and_keeps_its_script() {
    let upstream = Upstream::start().strict();
    upstream.script([Behaviour::chat("hello").close_after_response()]);

    let refused = send(&upstream, r#"{"model":"u","messages":[],"top_k":1}"#).await;
    upstream.wait_calls(1).await;
    drop(refused);
    let fine = send(
        &upstream,
        r#"{"model":"u","messages":[{"role":"user","content":"x"}]}"#,
    )
    .await;
    let (answer, _) = read_to_end(fine).await;

    assert!(answer.contains("hello"), "{answer}");
    assert_eq!(
        upstream.refusals(),
        ["body.top_k: extra inputs are not permitted"]
    );
    let overloaded = told("/v1/messages", BODY, Behaviour::failure(529, "busy")).await;
    assert!(
        overloaded.starts_with("HTTP/1.1 529") && overloaded.contains("overloaded_error"),
        "{overloaded}"
    );
}
