//! A connection whose answer is unfinished, doubtful or broken is nobody's again; and a request is not sent twice
//! but where that is promised.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// A route to a socket.
fn to(address: SocketAddr) -> Route {
    let uri = format!("http://{address}/v1/chat").parse().expect("a URL");
    Route::new(&uri, &HeaderMap::new()).expect("plain")
}

async fn listener() -> (TcpListener, Route) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let route = to(listener.local_addr().expect("an address"));
    (listener, route)
}

fn large() -> Spliced {
    Bytes::from("x".repeat(8_000_000) + "!").into()
}

/// Reads a request up to the end of [`large`].
async fn read_large(stream: &mut TcpStream) {
    let (mut read, mut last) = (vec![0; 65_536], 0);
    while last != b'!' {
        let bytes = stream.read(&mut read).await.expect("read");
        last = read[..bytes].last().copied().expect("a whole request");
    }
}

#[tokio::test]
async fn what_came_before_the_runtime_looked_is_noticed_all_the_same() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let route = to(listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let mut request = [0; 4096];
        let (mut first, _) = listener.accept().expect("a connection");
        assert!(first.read(&mut request).expect("a request") > 0);
        first.write_all(&ok(JSON, b"one")).expect("written");
        std::thread::sleep(Duration::from_millis(50));
        first.write_all(&ok(JSON, b"forged")).expect("written");
        let (mut second, _) = listener.accept().expect("a connection");
        assert!(second.read(&mut request).expect("a request") > 0);
        second.write_all(&ok(JSON, b"two")).expect("written");
    });
    let client = client();

    assert_eq!(call(&client, &route, &json()).await.expect("one"), "one");
    // No poll of the runtime lies between the forged answer and the next request.
    std::thread::sleep(Duration::from_millis(150));
    let read = timeout(Duration::from_secs(5), call(&client, &route, &json())).await;

    assert_eq!(read.expect("in time").expect("two"), "two");
    server.join().expect("served");
}

#[tokio::test]
async fn a_connection_with_more_on_it_than_its_answer_is_closed_at_once() {
    let server = Server::always(vec![
        Act::Send([ok(JSON, b"one"), b"more".to_vec()].concat()),
        Act::Hang,
    ])
    .await;
    let (client, route) = (client(), route(&server));

    call(&client, &route, &json()).await.expect("one");

    let closed = async {
        while server.closed() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let closed = timeout(Duration::from_millis(500), closed).await;
    assert!(closed.is_ok(), "not kept until it is swept");
}

#[tokio::test]
async fn a_connection_whose_answer_began_before_its_request_was_sent_does_not_serve_again() {
    let (listener, route) = listener().await;
    let upstream = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";
        stream.write_all(head).await.expect("written");
        read_large(&mut stream).await;
        stream.write_all(b"done").await.expect("written");
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "it closes");
    };
    let (client, body) = (client(), large());
    let calling = async {
        assert_eq!(call(&client, &route, &body).await.expect("an answer"), "done");
        assert!(client.pool.take(&route.authority).is_none());
    };

    tokio::join!(calling, upstream);
}

#[tokio::test]
async fn a_body_that_broke_stays_broken_and_its_connection_is_gone() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let broken = format!("{chunked}3\r\nabc\r\nzz\r\n0\r\n\r\n");
    let server = Server::start(move |call| match call {
        0 => vec![Act::Send(broken.clone().into())],
        1 => vec![Act::Send(format!("{chunked}3\r\nab").into()), Act::Close],
        _ => vec![Act::Send(ok(JSON, b"hi"))],
    })
    .await;
    let (client, route) = (client(), route(&server));

    for _ in 0..2 {
        let mut body = client.send(&route, None, &json()).await.expect("a head").body;
        let mut next = async || std::future::poll_fn(|context| body.poll_next(context)).await;
        while next().await.is_ok_and(|piece| piece.is_some()) {}
        assert!(next().await.is_err(), "no clean end behind an error");
        assert!(body.at_hand().is_err());
        body.rest();
        drop(body);
        assert!(client.pool.take(&route.authority).is_none());
    }
    assert_eq!(call(&client, &route, &json()).await.expect("an answer"), "hi");
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_request_is_repeated_once_and_only_where_a_reused_connection_died_in_silence() {
    for (words, calls) in [("", 3), ("HTTP/1.1 100 Continue\r\n\r\n", 2), ("H", 2)] {
        let server = Server::start(move |call| match call {
            0 => vec![Act::Send(ok(JSON, b"one"))],
            1 if words.is_empty() => vec![Act::Close],
            1 => vec![Act::Send(words.into()), Act::Close],
            _ => vec![Act::Close],
        })
        .await;
        let (client, route) = (client(), route(&server));

        call(&client, &route, &json()).await.expect("one");
        let read = call(&client, &route, &json()).await;

        assert!(matches!(read, Err(Error::Broken(_))), "{read:?}");
        assert_eq!(server.calls(), calls, "after {words:?}");
    }
    let server = Server::always(vec![Act::Close]).await;
    assert!(call(&client(), &route(&server), &json()).await.is_err());
    assert_eq!(
        server.calls(),
        1,
        "a new connection that dies is no reason to repeat"
    );
}

#[tokio::test]
async fn a_connection_that_the_upstream_reset_while_idle_costs_nothing() {
    let (listener, route) = listener().await;
    let upstream = async {
        let (mut first, _) = listener.accept().await.expect("a connection");
        let mut request = [0; 4096];
        assert!(first.read(&mut request).await.expect("a request") > 0);
        first.write_all(&ok(JSON, b"one")).await.expect("written");
        tokio::time::sleep(Duration::from_millis(10)).await;
        socket2::SockRef::from(&first)
            .set_linger(Some(Duration::ZERO))
            .expect("set");
        drop(first);
        let (mut second, _) = listener.accept().await.expect("a connection");
        assert!(second.read(&mut request).await.expect("a request") > 0);
        second.write_all(&ok(JSON, b"two")).await.expect("written");
    };
    let client = client();
    let calling = async {
        let one = call(&client, &route, &json()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let two = call(&client, &route, &large()).await;
        (one.expect("one"), two.expect("two"))
    };

    let (texts, ()) = tokio::join!(calling, upstream);

    assert_eq!(texts, ("one".to_owned(), "two".to_owned()));
}

#[tokio::test]
async fn an_upstream_that_does_not_read_holds_a_call_only_until_it_is_dropped() {
    let (listener, route) = listener().await;
    let client = client();
    let body = large();

    let sent = timeout(Duration::from_millis(50), client.send(&route, None, &body)).await;

    assert!(sent.is_err());
    assert!(client.pool.take(&route.authority).is_none());
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut request = Vec::new();
    // The end of it, clean or not.
    let _ = stream.read_to_end(&mut request).await;
    assert!(request.len() < body.bytes(), "never sent whole");
}

#[tokio::test]
async fn connections_are_kept_by_host_and_port_and_no_more_than_configured() {
    let wait = Act::Wait(Duration::from_millis(20));
    let one = Server::always(vec![wait.clone(), Act::Send(ok(JSON, b"one"))]).await;
    let two = Server::always(vec![wait, Act::Send(ok(JSON, b"two"))]).await;
    let mut config = config();
    config.pool_idle_max = 1;
    let client = Client::new(Tcp::new(config.connect_timeout, Reach::everybody()), &config);
    let (to_one, to_two, body) = (route(&one), route(&two), json());

    let calls = (0..6).map(|index| call(&client, if index % 2 == 0 { &to_one } else { &to_two }, &body));
    for (index, read) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(read.expect("an answer"), ["one", "two"][index % 2]);
    }
    let by_name = format!("http://localhost:{}/", to_one.uri.port_u16().expect("a port"));
    let by_name = Route::new(&by_name.parse().expect("a URL"), &HeaderMap::new()).expect("plain");
    assert!(client.pool.take(&by_name.authority).is_none());
    assert_eq!(call(&client, &by_name, &body).await.expect("an answer"), "one");

    assert_eq!((one.connections(), two.connections()), (4, 3));
    while (one.closed(), two.closed()) < (2, 2) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(client.pool.take(&to_two.authority).is_some());
    assert!(client.pool.take(&to_two.authority).is_none());
}

#[tokio::test]
async fn every_address_of_a_name_is_tried_and_the_host_is_named_as_it_was_written() {
    let loopbacks: [std::net::IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for ip in loopbacks {
        let Ok(listener) = TcpListener::bind((ip, 0)).await else {
            continue;
        };
        let port = listener.local_addr().expect("an address").port();
        let literal = SocketAddr::new(ip, port).to_string();
        let named = format!("localhost:{port}");
        let resolved: Vec<_> = tokio::net::lookup_host(&named).await.expect("known").collect();
        let hosts = [
            Some(literal),
            resolved.iter().any(|found| found.ip() == ip).then_some(named),
        ];
        for host in hosts.into_iter().flatten() {
            let uri = format!("http://{host}/x").parse().expect("a URL");
            let route = Route::new(&uri, &HeaderMap::new()).expect("plain");
            let upstream = async {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 4096];
                let bytes = stream.read(&mut request).await.expect("a request");
                stream.write_all(&ok(JSON, b"hi")).await.expect("written");
                String::from_utf8_lossy(&request[..bytes]).into_owned()
            };
            let client = client();
            let body = json();
            let (read, request) = tokio::join!(call(&client, &route, &body), upstream);

            assert_eq!(read.expect("an answer"), "hi");
            assert!(request.contains(&format!("\r\nhost: {host}\r\n")), "{request}");
        }
    }
}

#[tokio::test]
async fn a_large_head_is_read_in_whatever_pieces_it_drips() {
    let lines = format!("x: {}\r\n", "y".repeat(1_000)).repeat(90);
    let head = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nhi");
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101));
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(head::BYTES_MAX));
    let server = Server::start(move |call| {
        let text = [&head, &flood, &endless][call];
        let pieces = text.as_bytes().chunks(997);
        pieces
            .flat_map(|piece| [Act::Send(piece.to_vec()), Act::Wait(Duration::ZERO)])
            .collect()
    })
    .await;
    let (client, route) = (client(), route(&server));

    assert_eq!(call(&client, &route, &json()).await.expect("an answer"), "hi");
    let flood = call(&client, &route, &json()).await;
    assert!(
        matches!(flood, Err(Error::Malformed(head::Malformed::Syntax))),
        "{flood:?}"
    );
    let endless = call(&client, &route, &json()).await;
    assert!(
        matches!(endless, Err(Error::Malformed(head::Malformed::TooLarge))),
        "{endless:?}"
    );
    assert_eq!(server.connections(), 2);
}

/// Answers each request with what its body says, in pieces, with pauses that differ.
async fn echo(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut read = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut read).await {
        request.extend_from_slice(&read[..bytes]);
        if !request.ends_with(b"}") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut request)).expect("text");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let number: usize = body.trim_matches(['{', '}']).parse().expect("a number");
        let answer = if number.is_multiple_of(2) {
            String::from_utf8(ok(JSON, body.as_bytes())).expect("text")
        } else {
            let (one, two) = body.split_at(1);
            format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
                two.len()
            )
        };
        for piece in answer.as_bytes().chunks(1 + number % 37) {
            if number.is_multiple_of(3) {
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
            if stream.write_all(piece).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn whoever_is_cut_off_anywhere_leaves_nothing_of_his_answer_to_another() {
    let (listener, route) = listener().await;
    let mut upstream = JoinSet::new();
    upstream.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(echo(stream));
        }
    });
    let (client, route) = (client(), &route);
    let (mut whole, mut cut) = (0, 0);
    for round in 0..40_usize {
        let calls = (0..16_usize).map(|index| {
            let number = round * 16 + index;
            let client = &client;
            async move {
                let body: Spliced = Bytes::from(format!("{{{number}}}")).into();
                let patience = Duration::from_micros((number as u64 * 7919) % 12_000);
                let read = timeout(patience, call(client, route, &body)).await;
                (number, read)
            }
        });
        for (number, read) in join_all(calls).await {
            match read {
                Ok(read) => {
                    assert_eq!(read.expect("an answer"), format!("{{{number}}}"));
                    whole += 1;
                }
                Err(_) => cut += 1,
            }
        }
    }

    assert!(whole > 0 && cut > 0, "{whole} whole, {cut} cut off");
}
