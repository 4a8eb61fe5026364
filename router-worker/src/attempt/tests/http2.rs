//! Upstreams that speak HTTP/2 without being asked.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::dispatch::Dispatcher as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use schemas::outcome::Outcome;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::testing::{PLAIN, STREAM, Scene, config, endpoint, frame, model, route};

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    calls: AtomicUsize,
    abandoned: AtomicUsize,
}

/// Counts a call that was given up before its answer.
struct Abandoned(Arc<Counts>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abandoned.fetch_add(1, Ordering::SeqCst);
    }
}

async fn answer(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    counts.calls.fetch_add(1, Ordering::SeqCst);
    let guard = Abandoned(Arc::clone(&counts));
    if request.headers().get("x-silent").is_some() {
        pending::<()>().await;
    }
    std::mem::forget(guard);
    let body = r#"{"model":"org/m-7b","choices":[{"index":0,"message":{"content":"over two"},"finish_reason":"stop"}]}"#;
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn start(counts: Arc<Counts>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            counts.connections.fetch_add(1, Ordering::SeqCst);
            let counts = Arc::clone(&counts);
            let service = service_fn(move |request| answer(request, Arc::clone(&counts)));
            let serving =
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            connections.spawn(async move {
                // A connection that ends is all that is to be known here.
                let _ = serving.await;
            });
        }
    });
    (address, tasks)
}

async fn scene(address: SocketAddr, headers: &[(&str, &str)]) -> Scene {
    let mut endpoint = endpoint("e1", &[&format!("http://{address}")]);
    endpoint.http2 = true;
    endpoint.extra_headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Scene::new(config(), &[endpoint], &model(vec![route("e1", 0)])).await
}

#[tokio::test]
async fn calls_share_one_connection() {
    let counts = Arc::new(Counts::default());
    let (address, _tasks) = start(Arc::clone(&counts)).await;
    let scene = scene(address, &[]).await;
    scene.call(PLAIN).await;

    let played = futures_util::future::join_all((0..8).map(|_| scene.call(PLAIN))).await;

    assert!(played.iter().all(|played| played.text().contains("over two")));
    assert_eq!(counts.connections.load(Ordering::SeqCst), 1);
    assert_eq!(counts.calls.load(Ordering::SeqCst), 9);
}

#[tokio::test]
async fn a_caller_who_leaves_resets_the_stream_and_not_the_connection() {
    let counts = Arc::new(Counts::default());
    let (address, _tasks) = start(Arc::clone(&counts)).await;
    let scene = scene(address, &[("x-silent", "1")]).await;
    let mut session = scene.router.dispatch(scene.offer(STREAM));
    let silent = tokio::time::timeout(Duration::from_millis(100), frame(session.as_mut())).await;
    assert!(silent.is_err());

    session.cancel();
    let last = frame(session.as_mut()).await;

    let bus::dispatch::Frame::End(end) = last else {
        panic!("the report is next");
    };
    assert_eq!(end.report.outcome, Outcome::ClientGone);
    let reset = async {
        while counts.abandoned.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), reset)
        .await
        .expect("in time");
}
