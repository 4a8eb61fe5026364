//! Dispatch to a router elsewhere, over a real server: the promises of the port, and a server that dies in the middle
//! of fifty answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::clock::SystemClock;
use bus::conformance::dispatch::{self as promise, Answer, Played, Scene};
use bus::conformance::script::{Act, Script, dispatch};
use bus::dispatch::{Dispatch, Dispatcher};
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::nats::Nats;
use bus::remote::gateway::{self, RemoteDispatcher};
use bus::remote::intake::{self, Intake};
use bytes::Bytes;
use futures_util::future::join_all;
use schemas::id::PoolName;
use schemas::outcome::Outcome;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway and a router on connections of their own.
struct Cluster {
    server: Server,
    dispatcher: RemoteDispatcher,
    script: Script,
    numbers: AtomicU64,
    router: AbortHandle,
    _tasks: JoinSet<()>,
    _nodes: Vec<Arc<Nats>>,
}

impl Cluster {
    async fn new() -> Self {
        let server = Server::start();
        let (gateway, router) = (server.connect().await, server.connect().await);
        let script = Script::new(acts);
        let mut tasks = JoinSet::new();
        let config = intake::Config {
            pool: PoolName::from("default"),
            boot: "boot-1".into(),
            sessions_max: 100,
            drain: Duration::from_secs(1),
        };
        let run = Intake::run(
            config,
            router.wire(),
            Arc::new(script.clone()),
            CatalogView::default(),
            CancellationToken::new(),
        );
        let aborted = tasks.spawn(async move { run.await.expect("a wire") });
        let dispatcher = RemoteDispatcher::new(
            gateway::Config {
                admit_wait: Duration::from_secs(8),
                ..gateway::Config::new(PoolName::from("default"))
            },
            gateway.wire(),
            Arc::new(SystemClock::new()),
            &Mint::new().expect("randomness"),
        );
        let run = gateway::run(dispatcher.clone(), CancellationToken::new());
        tasks.spawn(async move { run.await.expect("a wire") });
        Self {
            server,
            dispatcher,
            script,
            numbers: AtomicU64::new(1),
            router: aborted,
            _tasks: tasks,
            _nodes: vec![gateway, router],
        }
    }

    async fn play(&self, model: &str) -> Played {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        promise::play(&self.dispatcher, dispatch(model, number.into()))
            .await
            .expect("an end")
    }
}

fn acts(dispatch: &Dispatch) -> Vec<Act> {
    let first = Act::Chunk(Bytes::from_static(b"first"));
    match dispatch.offer.model.as_str() {
        "endless" => vec![Act::Head, first, Act::Stay],
        "whole" => vec![Act::Whole(Bytes::from_static(b"{\"whole\":1}"))],
        "large" => vec![Act::Whole(Bytes::from(vec![b'x'; 5_000_000]))],
        "failure" => vec![Act::Fail],
        "slow" => stream(100, Duration::from_millis(40)),
        _ => stream(40, Duration::from_millis(2)),
    }
}

fn stream(count: usize, pace: Duration) -> Vec<Act> {
    let mut acts = vec![Act::Head];
    for number in 0..count {
        acts.push(Act::Chunk(Bytes::from(format!("<{number}>"))));
        acts.push(Act::Wait(pace));
    }
    acts.push(Act::End(Bytes::from_static(b"[DONE]")));
    acts
}

fn text(count: usize) -> Bytes {
    let pieces = (0..count).flat_map(|number| format!("<{number}>").into_bytes());
    pieces.chain(*b"[DONE]").collect()
}

impl Scene for Cluster {
    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.dispatcher.clone())
    }

    fn dispatch(&self, answer: Answer) -> Dispatch {
        let model = match answer {
            Answer::Stream => "stream",
            Answer::Endless => "endless",
            Answer::Whole => "whole",
            Answer::Failure => "failure",
        };
        dispatch(model, self.numbers.fetch_add(1, Ordering::Relaxed).into())
    }

    fn text(&self, answer: Answer) -> Bytes {
        match answer {
            Answer::Whole => Bytes::from_static(b"{\"whole\":1}"),
            _ => text(40),
        }
    }

    fn upstreams(&self) -> usize {
        self.script.open()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_of_dispatch_is_kept() {
    let cluster = Cluster::new().await;
    let kept = async {
        promise::a_stream_is_a_head_chunks_and_an_end(&cluster).await?;
        promise::a_whole_answer_is_one_frame(&cluster).await?;
        promise::a_failure_before_content_is_an_end_alone(&cluster).await?;
        promise::nothing_goes_upstream_before_the_first_poll(&cluster).await?;
        promise::a_cancel_closes_the_upstream_and_reports(&cluster).await?;
        promise::an_interrupt_closes_the_upstream_and_reports(&cluster).await?;
        promise::the_first_reason_to_stop_stays(&cluster).await?;
        promise::a_session_canceled_before_its_first_poll_reports(&cluster).await?;
        promise::a_dropped_session_closes_its_upstream(&cluster).await
    };
    timeout(PATIENCE, kept).await.expect("in time").expect("kept");
    assert_eq!(cluster.play("large").await.text().len(), 5_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_streams_survive_the_servers_death_and_return() {
    let mut cluster = Cluster::new().await;
    let sessions: Vec<_> = (0..50)
        .map(|number| cluster.dispatcher.dispatch(dispatch("slow", number)))
        .collect();
    let mut hearing = JoinSet::new();
    for mut session in sessions {
        hearing.spawn(async move {
            let mut played = Played::default();
            let heard = promise::rest(session.as_mut(), &mut played).await;
            heard.map(|()| played)
        });
    }
    sleep(Duration::from_secs(1)).await;

    cluster.server.kill();
    sleep(Duration::from_millis(500)).await;
    cluster.server.start_again();

    let mut whole = 0;
    while let Some(played) = hearing.join_next().await {
        let played = played.expect("no panic").expect("an end");
        assert_eq!(played.outcome(), Some(Outcome::Ok), "{:?}", played.end());
        assert_eq!(played.text(), text(100));
        whole += 1;
    }
    assert_eq!((whole, cluster.script.begun()), (50, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_router_requests_wait_and_are_refused_and_many_at_once_are_served_by_one() {
    let cluster = Cluster::new().await;
    let played = join_all((0..60).map(|_| cluster.play("stream"))).await;
    assert!(played.iter().all(|played| played.text() == text(40)));

    cluster.router.abort();
    sleep(Duration::from_millis(100)).await;
    let refused = cluster.play("stream").await;

    let failure = refused.end().and_then(|end| end.report.failure.as_ref());
    assert_eq!(
        failure.map(|failure| failure.code.as_str()),
        Some("no_backends_available")
    );
}
