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

#[path = "differential_answers.rs"]
mod answers;

use answers::{Script, Strict, answer};

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
    settle(patience).await;
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
    settle(patience).await;
    let ready = timeout(patience, sender.ready()).await;
    seen.reusable = seen.end == End::Whole && ready.is_ok_and(|ready| ready.is_ok());
    drop((body, stream));
    seen
}

/// Lets what was sent arrive.
async fn settle(patience: Duration) {
    tokio::time::sleep(patience / 4).await;
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
