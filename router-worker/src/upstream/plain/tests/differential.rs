//! The client beside hyper's, before an upstream that sends lawful and unlawful answers cut at random places. Both
//! must read the same and judge the connection the same, but where this client is stricter on purpose:
//!
//! - it refuses: a switch of protocols; transfer codings other than one `chunked`; a wrong length beside them or
//!   where no body follows; trailers whose lines end without CR;
//! - it does not use a connection again: after an answer of HTTP/1.0, with two kinds of framing, or without a body
//!   but with framing.

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as Theirs;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
    /// Nothing more came, and no end either.
    Waiting,
}

/// What a client made of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Status and headers.
    head: Option<(u16, Vec<Option<Vec<u8>>>)>,
    body: Vec<u8>,
    end: End,
    reusable: bool,
}

/// An answer as it is sent.
#[derive(Debug, Clone)]
struct Script {
    bytes: Vec<u8>,
    /// Where it is cut.
    cuts: Vec<usize>,
    /// The upstream closes behind it.
    closes: bool,
}

const HEADERS: [&str; 3] = ["content-type", "content-encoding", "retry-after"];

fn headers(map: &HeaderMap) -> Vec<Option<Vec<u8>>> {
    let values = HEADERS.iter().map(|name| map.get(*name));
    values
        .map(|value| value.map(|value| value.as_bytes().to_vec()))
        .collect()
}

impl Seen {
    const fn broken(end: End) -> Self {
        Self {
            head: None,
            body: Vec::new(),
            end,
            reusable: false,
        }
    }

    /// True when this may stand where hyper saw `other`.
    fn stands_for(&self, other: &Self, strict: Strict) -> bool {
        let refused = strict == Strict::Refuses && self.end == End::Broken && !self.reusable;
        let closed = strict != Strict::No && !self.reusable;
        refused
            || self == other
            || (closed
                && *self
                    == Self {
                        reusable: false,
                        ..other.clone()
                    })
    }
}

/// How this client is stricter with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strict {
    No,
    /// It may not use the connection again.
    Closes,
    /// It may refuse it.
    Refuses,
}

/// Sends the script to whoever asks first, and returns the connection unless it closes.
async fn serve(listener: &TcpListener, script: &Script) -> Option<TcpStream> {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    stream.set_nodelay(true).expect("set");
    let mut request = Vec::new();
    while !request.ends_with(b"{}") {
        assert!(stream.read_buf(&mut request).await.expect("a request") > 0);
    }
    let mut from = 0;
    for to in script.cuts.iter().copied().chain([script.bytes.len()]) {
        let piece = script.bytes.get(from..to).unwrap_or_default();
        // The client may have closed.
        let _ = stream.write_all(piece).await;
        from = to.max(from);
        tokio::task::yield_now().await;
    }
    if script.closes {
        let _ = stream.shutdown().await;
    }
    Some(stream)
}

/// What this client makes of a script.
async fn ours(script: &Script, patience: Duration) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let uri = format!("http://{}/", listener.local_addr().expect("an address"));
    let route = Route::new(&uri.parse().expect("a URL"), &HeaderMap::new()).expect("plain");
    let client = client();
    let body = json();
    let mut seen = Seen::broken(End::Waiting);
    let read = async {
        let answer = match timeout(patience, client.send(&route, None, &body)).await {
            Err(_) => return None,
            Ok(Err(_)) => {
                seen.end = End::Broken;
                return None;
            }
            Ok(Ok(answer)) => answer,
        };
        seen.head = Some((answer.status.as_u16(), headers(&answer.headers)));
        let mut incoming = answer.body;
        loop {
            let next = std::future::poll_fn(|context| incoming.poll_next(context));
            match timeout(patience, next).await {
                Err(_) => return Some(incoming),
                Ok(Err(_)) => seen.end = End::Broken,
                Ok(Ok(None)) => seen.end = End::Whole,
                Ok(Ok(Some(piece))) => {
                    seen.body.extend_from_slice(&piece);
                    continue;
                }
            }
            return Some(incoming);
        }
    };
    let (incoming, stream) = tokio::join!(read, serve(&listener, script));
    settle().await;
    seen.reusable = client.pool.take(&route.authority).is_some();
    drop((incoming, stream));
    seen
}

/// What hyper makes of it.
async fn theirs(script: &Script, patience: Duration) -> Seen {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut connections = JoinSet::new();
    let mut seen = Seen::broken(End::Waiting);
    let read = async {
        let stream = TcpStream::connect(address).await.expect("connected");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("begun");
        connections.spawn(async move {
            // How it ends is told to the sender.
            let _ = connection.await;
        });
        let request = http::Request::post("/")
            .body(Full::new(Bytes::from_static(b"{}")))
            .expect("a request");
        let (head, mut body): (_, Theirs) = match timeout(patience, sender.send_request(request)).await {
            Err(_) => return (sender, None),
            Ok(Err(_)) => {
                seen.end = End::Broken;
                return (sender, None);
            }
            Ok(Ok(response)) => response.into_parts(),
        };
        seen.head = Some((head.status.as_u16(), headers(&head.headers)));
        loop {
            match timeout(patience, body.frame()).await {
                Err(_) => {}
                Ok(Some(Err(_))) => seen.end = End::Broken,
                Ok(None) => seen.end = End::Whole,
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        seen.body.extend_from_slice(&data);
                    }
                    continue;
                }
            }
            return (sender, Some(body));
        }
    };
    let ((mut sender, body), stream) = tokio::join!(read, serve(&listener, script));
    settle().await;
    let ready = timeout(patience, sender.ready()).await;
    seen.reusable = seen.end == End::Whole && ready.is_ok_and(|ready| ready.is_ok());
    drop((body, stream));
    seen
}

/// Lets what was sent arrive.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Compares both on a script.
fn compare(script: &Script, strict: Strict) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut last = None;
    // A busy machine may take longer than the first patience.
    for patience_ms in [5, 100, 2_000] {
        let patience = Duration::from_millis(patience_ms);
        let (ours, theirs) =
            runtime.block_on(async { tokio::join!(ours(script, patience), theirs(script, patience)) });
        if ours.stands_for(&theirs, strict) {
            return Ok(());
        }
        last = Some((ours, theirs));
    }
    let text = String::from_utf8_lossy(&script.bytes).into_owned();
    Err(TestCaseError::fail(format!("{text:?} {strict:?}\n{last:#?}")))
}

type Part = (Vec<u8>, Strict);

fn part(text: &[u8]) -> Part {
    (text.to_vec(), Strict::No)
}

/// One of `lawful`, more often than one of the others.
fn mostly(
    lawful: &'static [&'static [u8]],
    others: &'static [(&'static [u8], Strict)],
) -> BoxedStrategy<Part> {
    let lawful = proptest::sample::select(lawful).prop_map(part);
    let others = proptest::sample::select(others).prop_map(|(text, strict)| (text.to_vec(), strict));
    prop_oneof![4 => lawful, 1 => others].boxed()
}

fn status_line() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 404 \xff odd",
            b"HTTP/1.1 200",
            b"HTTP/1.1 999 ",
        ],
        &[
            (b"HTTP/1.0 200 OK", Strict::Closes),
            (b"HTTP/1.1 204 Empty", Strict::Refuses),
            (b"HTTP/1.1 304 Same", Strict::Refuses),
            (b"HTTP/1.1 101 Up", Strict::Refuses),
            (b"\r\n\nHTTP/1.1 200 OK", Strict::No),
            (b"HTTP/2 200 OK", Strict::No),
            (b"http/1.1 200 OK", Strict::No),
            (b"HTTP/1.1 20 OK", Strict::No),
            (b"HTTP/1.1 2000 OK", Strict::No),
            (b"HTTP/1.1  200 OK", Strict::No),
            (b"HTTP/1.1 +20 OK", Strict::No),
            (b"HTTP/1.1 000 OK", Strict::No),
            (b"HTTP/1.1 200 a\rb", Strict::No),
            (b"HTTP/1.1 200 a\0b", Strict::No),
            (b"ICY 200 OK", Strict::No),
            (b"SSH-2.0", Strict::No),
        ],
    )
}

fn interim() -> BoxedStrategy<Part> {
    mostly(
        &[b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"],
        &[
            (
                b"HTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 199 x\r\n\r\n",
                Strict::No,
            ),
            (
                b"HTTP/1.1 102 x\r\ncontent-length: 5\r\nconnection: close\r\n\r\n",
                Strict::No,
            ),
            (
                b"HTTP/1.0 100 x\r\ntransfer-encoding: chunked\r\n\r\n",
                Strict::No,
            ),
        ],
    )
}

fn header_line() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"content-type: text/x",
            b"Content-Type:a\tb ",
            b"retry-after:  7",
            b"RETRY-AFTER: \xff",
            b"x:",
            b"content-encoding: gzip",
            b"connection: keep-alive",
            b"Connection:close",
            b"connection: x,\tCLOSE ,y",
            b"connection: closed",
            b"connection: \"close\"",
        ],
        &[
            (b"x y: z", Strict::No),
            (b"x : z", Strict::No),
            (b" folded", Strict::No),
            (b"\tx: folded", Strict::No),
            (b": nothing", Strict::No),
            (b"no colon", Strict::No),
            (b"x: a\0b", Strict::No),
            (b"x: a\rb", Strict::No),
            (b"retry-after: \x7f", Strict::No),
            (b"x\xff: y", Strict::No),
        ],
    )
}

/// Lines that frame a body of five bytes.
fn with_length() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"content-length: 5\r\n",
            b"Content-Length:5 \r\n",
            b"content-length: 005\r\n",
            b"content-length: 5, 5\r\n",
            b"content-length: 5\r\ncontent-length: 5\r\n",
        ],
        &[
            (b"", Strict::No),
            (b"content-length: 3\r\n", Strict::No),
            (b"content-length: 6\r\n", Strict::No),
            (b"content-length: 0\r\n", Strict::No),
            (b"content-length: 5\r\ncontent-length: 6\r\n", Strict::No),
            (b"content-length: 5, 6\r\n", Strict::No),
            (b"content-length: 5,\r\n", Strict::No),
            (b"content-length: +5\r\n", Strict::No),
            (b"content-length: -5\r\n", Strict::No),
            (b"content-length: 0x5\r\n", Strict::No),
            (b"content-length: 5 5\r\n", Strict::No),
            (b"content-length: 5\xff\r\n", Strict::No),
            (b"content-length:\r\n", Strict::No),
            (b"content-length: 9223372036854775807\r\n", Strict::No),
            (b"content-length: 99999999999999999999\r\n", Strict::No),
        ],
    )
}

/// Lines that frame chunks.
fn with_chunks() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"transfer-encoding: chunked\r\n",
            b"Transfer-Encoding:\tChunKed \r\n",
        ],
        &[
            (
                b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                Strict::Closes,
            ),
            (
                b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
                Strict::Closes,
            ),
            (
                b"content-length: x\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (b"transfer-encoding: gzip, chunked\r\n", Strict::Refuses),
            (b"transfer-encoding: chunked, gzip\r\n", Strict::Refuses),
            (
                b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (
                b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n",
                Strict::Refuses,
            ),
            (
                b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (b"transfer-encoding: chunked,\r\n", Strict::Refuses),
            (b"transfer-encoding: xchunked\r\n", Strict::Refuses),
            (b"transfer-encoding: identity\r\n", Strict::Refuses),
            (b"transfer-encoding:\r\n", Strict::Refuses),
            (b"transfer-encoding: \xffchunked\r\n", Strict::Refuses),
        ],
    )
}

fn chunk() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"3\r\nabc\r\n",
            b"00A\r\n0123456789\r\n",
            b"a;x=y\r\n0123456789\r\n",
            b"1 ;x=\"y\" \r\n!\r\n",
            b"2\t\r\n\r\n\r\n",
        ],
        &[
            (b"3\nabc\r\n", Strict::No),
            (b"3\r\nabc\n", Strict::No),
            (b"3\r\nabcd\r\n", Strict::No),
            (b"3\r\nab\r\n", Strict::No),
            (b"3\r;x\r\nabc\r\n", Strict::No),
            (b"3\r\r\nabc\r\n", Strict::No),
            (b"3\x0c\r\nabc\r\n", Strict::No),
            (b"3;a\rb\r\nabc\r\n", Strict::No),
            (b"3;a\nb\r\nabc\r\n", Strict::No),
            (b"3 3\r\nabc\r\n", Strict::No),
            (b"+3\r\nabc\r\n", Strict::No),
            (b"0x3\r\nabc\r\n", Strict::No),
            (b" 3\r\nabc\r\n", Strict::No),
            (b"\r\nabc\r\n", Strict::No),
            (b"FFFFFFFFFFFFFFFF\r\nabc\r\n", Strict::No),
            (b"10000000000000003\r\nabc\r\n", Strict::No),
        ],
    )
}

fn last_chunk() -> BoxedStrategy<Part> {
    mostly(
        &[b"0\r\n\r\n", b"000;x\r\n\r\n", b"0\r\nx: y\r\nz:\r\n\r\n"],
        &[
            (b"", Strict::No),
            (b"0\r\n", Strict::No),
            (b"0\r\nx: y\r\n", Strict::No),
            (b"0\n\n", Strict::No),
            (b"0\r\n\n", Strict::Refuses),
            (b"0\r\nx: y\n\r\n", Strict::Refuses),
            (b"0\r\nx: a\rb\r\n\r\n", Strict::No),
            (b"0\r\nx y: z\r\n\r\n", Strict::No),
            (b"0\r\n folded\r\n\r\n", Strict::No),
            (b"0\r\nno colon\r\n\r\n", Strict::No),
            (b"0\r\nx: a\0b\r\n\r\n", Strict::No),
        ],
    )
}

fn framed() -> BoxedStrategy<Vec<Part>> {
    let length = (
        with_length(),
        prop_oneof![4 => Just(&b"12345"[..]), 1 => Just(&b"1"[..])],
    )
        .prop_map(|(lines, body)| vec![lines, part(b"\r\n"), part(body)]);
    let chunks = (
        with_chunks(),
        proptest::collection::vec(chunk(), 0..4),
        last_chunk(),
    )
        .prop_map(|(lines, chunks, last)| {
            let mut parts = vec![lines, part(b"\r\n")];
            parts.extend(chunks);
            parts.push(last);
            parts
        });
    prop_oneof![length, chunks].boxed()
}

fn answer() -> BoxedStrategy<(Script, Strict)> {
    let line_end = prop_oneof![9 => Just(&b"\r\n"[..]), 1 => Just(&b"\n"[..])];
    let lines = proptest::collection::vec((header_line(), line_end.clone()), 0..3);
    let rest = prop_oneof![
        6 => Just(&b""[..]),
        1 => Just(&b"x"[..]),
        1 => Just(&b"\r\n"[..]),
        1 => Just(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]),
    ];
    let cuts = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(0..400_usize, 1..8),
        Just((0..400).collect()),
    ];
    let all = (
        interim(),
        (status_line(), line_end),
        lines,
        framed(),
        rest,
        cuts,
        any::<bool>(),
    );
    all.prop_map(
        |(interim, (status, end), lines, framed, rest, mut cuts, closes)| {
            let mut parts = vec![interim, status, part(end)];
            for (line, end) in lines {
                parts.extend([line, part(end)]);
            }
            parts.extend(framed);
            parts.push(part(rest));
            let strict = parts.iter().map(|part| part.1).max().unwrap_or(Strict::No);
            let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.0).collect();
            cuts.retain(|cut| *cut < bytes.len());
            cuts.sort_unstable();
            (Script { bytes, cuts, closes }, strict)
        },
    )
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        max_shrink_iters: 128,
        ..ProptestConfig::default()
    })]

    #[test]
    fn answers_are_read_as_hyper_reads_them_or_more_strictly((script, strict) in answer()) {
        compare(&script, strict)?;
    }
}
