//! The client against sockets that do byte by byte what a script says.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::testing::{Act, Server, config, ok, response};

use super::super::tcp::Reach;
use super::*;

#[path = "differential_tests.rs"]
mod differential;
#[path = "isolation_tests.rs"]
mod isolation;

const JSON: &str = "application/json";

fn client() -> Client {
    let config = config();
    Client::new(Tcp::new(config.connect_timeout, Reach::everybody()), &config)
}

fn route(server: &Server) -> Route {
    let uri = format!("{}/v1/chat", server.url()).parse().expect("a URL");
    Route::new(&uri, &HeaderMap::new()).expect("plain")
}

fn json() -> Spliced {
    Bytes::from_static(b"{}").into()
}

async fn text(mut body: Incoming) -> io::Result<String> {
    let mut all = Vec::new();
    while let Some(piece) = std::future::poll_fn(|context| body.poll_next(context)).await? {
        all.extend_from_slice(&piece);
    }
    Ok(String::from_utf8(all).expect("text"))
}

async fn call(client: &Client, route: &Route, body: &Spliced) -> Result<String, Error> {
    let answer = client.send(route, None, body).await?;
    text(answer.body).await.map_err(Error::Broken)
}

#[tokio::test]
async fn answers_of_every_framing_are_read_and_their_connection_serves_again() {
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
    let server = Server::start(move |call| match call {
        0 => vec![Act::Send(ok(JSON, b"with a length"))],
        1 => vec![Act::Send(chunked.to_vec())],
        2 => vec![Act::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
        _ => vec![
            Act::Send(b"HTTP/1.1 200 OK\r\n\r\nto the end".to_vec()),
            Act::Close,
        ],
    })
    .await;
    let (client, route) = (client(), route(&server));
    let mut texts = Vec::new();
    for _ in 0..4 {
        texts.push(call(&client, &route, &json()).await.expect("an answer"));
    }

    assert_eq!(texts, ["with a length", "abcd", "", "to the end"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_comes_byte_by_byte_is_the_same() {
    let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n";
    let acts: Vec<Act> = answer
        .iter()
        .flat_map(|byte| [Act::Send(vec![*byte]), Act::Wait(Duration::from_millis(1))])
        .collect();
    let server = Server::always(acts).await;
    let (client, route) = (client(), route(&server));

    for _ in 0..2 {
        let read = call(&client, &route, &json()).await;
        assert_eq!(read.expect("an answer"), "abc");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_ends_too_early_is_cut_off() {
    let server = Server::start(|call| {
        let text: &[u8] = match call {
            0 => b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
            1 => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            _ => b"HTTP/1.1 200 OK\r\ncontent-le",
        };
        vec![Act::Send(text.to_vec()), Act::Close]
    })
    .await;
    let (client, route) = (client(), route(&server));

    for _ in 0..3 {
        let read = call(&client, &route, &json()).await;
        assert!(matches!(read, Err(Error::Broken(_))), "{read:?}");
    }
    assert_eq!(server.calls(), 3, "nothing was sent twice");
}

#[tokio::test]
async fn a_large_body_is_sent_whole_and_an_early_answer_is_heard() {
    let server = Server::start(|call| match call {
        0 => vec![Act::Send(ok(JSON, b"thanks"))],
        _ => vec![Act::Send(response("413 Too Large", JSON, b"no")), Act::Close],
    })
    .await;
    let (client, route) = (client(), route(&server));
    let body = Bytes::from("x".repeat(3_000_000)).into();

    assert_eq!(call(&client, &route, &body).await.expect("an answer"), "thanks");
    assert_eq!(call(&client, &route, &body).await.expect("an answer"), "no");

    let sent = server.requests();
    assert!(
        sent.iter()
            .all(|request| request.ends_with(&"x".repeat(3_000_000)))
    );
}

#[tokio::test]
async fn a_request_is_sent_on_while_its_answer_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let uri = format!("http://{}/", listener.local_addr().expect("an address"));
    let route = Route::new(&uri.parse().expect("a URL"), &HeaderMap::new()).expect("plain");
    let upstream = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";
        stream.write_all(head).await.expect("written");
        let (mut read, mut last) = (vec![0; 65_536], 0);
        while last != b'!' {
            let bytes = stream.read(&mut read).await.expect("read");
            last = read[bytes - 1];
        }
        stream.write_all(b"done").await.expect("written");
    };
    let body = Bytes::from("x".repeat(8_000_000) + "!").into();

    let client = client();
    let (answer, ()) = tokio::join!(call(&client, &route, &body), upstream);

    assert_eq!(answer.expect("an answer"), "done");
}

#[tokio::test]
async fn an_answer_that_is_dropped_takes_its_connection_with_it() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nabc";
    let server = Server::start(move |call| match call {
        0 => vec![Act::Send(half.to_vec()), Act::Hang],
        _ => vec![Act::Send(ok(JSON, b"hi"))],
    })
    .await;
    let (client, route) = (client(), route(&server));

    drop(client.send(&route, None, &json()).await.expect("a head"));
    let read = call(&client, &route, &json()).await;

    assert_eq!(read.expect("an answer"), "hi");
    assert_eq!(server.connections(), 2);
    while server.closed() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_rest_that_nobody_read_keeps_its_connection_back_until_it_has_come() {
    let begun = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let server = Server::start(move |call| match call {
        0 => vec![
            Act::Send(begun.to_vec()),
            Act::Wait(Duration::from_millis(100)),
            Act::Send(b"1\r\nd\r\n0\r\n\r\n".to_vec()),
        ],
        _ => vec![Act::Send(ok(JSON, b"hi"))],
    })
    .await;
    let (client, route) = (client(), route(&server));
    let mut first = client.send(&route, None, &json()).await.expect("a head");
    let piece = std::future::poll_fn(|context| first.body.poll_next(context)).await;
    assert_eq!(piece.expect("a piece").as_deref(), Some(&b"abc"[..]));
    first.body.rest();
    drop(first);

    let second = call(&client, &route, &json()).await.expect("an answer");
    assert_eq!((second.as_str(), server.connections()), ("hi", 2));
    tokio::time::sleep(Duration::from_millis(150)).await;
    let (third, fourth) = (
        client.send(&route, None, &json()).await.expect("a head"),
        client.send(&route, None, &json()).await.expect("a head"),
    );

    assert_eq!(server.connections(), 2, "both serve again");
    assert_eq!(text(third.body).await.expect("whole"), "hi");
    assert_eq!(text(fourth.body).await.expect("whole"), "hi");
}

#[tokio::test]
async fn a_connection_on_which_anything_was_said_unasked_is_not_used_again() {
    let server = Server::start(|call| match call {
        0 => vec![Act::Send([ok(JSON, b"one"), ok(JSON, b"forged")].concat())],
        _ => vec![Act::Send(ok(JSON, b"two"))],
    })
    .await;
    let (client, route) = (client(), route(&server));

    let first = call(&client, &route, &json()).await;
    let second = call(&client, &route, &json()).await;

    assert_eq!(
        (first.expect("one"), second.expect("two")),
        ("one".to_owned(), "two".to_owned())
    );
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let server = Server::always(vec![Act::Send(ok(JSON, b"hi"))]).await;
    let mut config = config();
    config.pool_idle_timeout = Duration::from_millis(40);
    let client = Client::new(Tcp::new(config.connect_timeout, Reach::everybody()), &config);
    let route = route(&server);

    call(&client, &route, &json()).await.expect("an answer");
    while server.closed() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    call(&client, &route, &json()).await.expect("an answer");
    assert_eq!(server.connections(), 2);
}

#[test]
fn other_protocols_are_not_for_this_client() {
    let is_plain = |text: &str| {
        let uri = text.parse().expect("a URL");
        Route::new(&uri, &HeaderMap::new()).map(|route| route.authority.to_string())
    };

    assert_eq!(is_plain("https://host/"), None);
    assert_eq!(is_plain("http://host:80/x").as_deref(), Some("host"));
    assert_eq!(is_plain("http://[::1]:8000/x").as_deref(), Some("[::1]:8000"));
    assert_eq!(is_plain("http://user:pw@host/x").as_deref(), Some("host"));
}
