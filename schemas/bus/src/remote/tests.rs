//! Both sides together over the wire in process, with time that stands still until everybody waits.

mod bodies;
mod faults;
mod lost;
mod promises;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::id::PoolName;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::gateway::{self, RemoteDispatcher};
use super::intake::{self, Intake};
use super::sight::Sight;
use crate::clock::SystemClock;
use crate::conformance::dispatch::{Played, frame, rest};
use crate::conformance::script::{Act, Script, dispatch};
use crate::dispatch::{Dispatch, Dispatcher as _, Session};
use crate::follow::CatalogView;
use crate::mint::Mint;
use crate::wire::local::{Local, Network};

const POOL: &str = "default";
/// How long a request waits for a router: less than anybody here waits for the request.
const ADMIT_WAIT: Duration = Duration::from_secs(8);

/// One gateway, and routers, on one network.
struct Stage {
    network: Network,
    wire: Arc<Local>,
    dispatcher: RemoteDispatcher,
    shutdown: CancellationToken,
    gateway: AbortHandle,
    tasks: JoinSet<()>,
    routers: usize,
}

/// A router on the stage.
struct Router {
    wire: Arc<Local>,
    script: Script,
    shutdown: CancellationToken,
    task: AbortHandle,
}

impl Stage {
    async fn new() -> Self {
        let mut config = gateway::Config::new(PoolName::from(POOL));
        config.admit_wait = ADMIT_WAIT;
        Self::with(config).await
    }

    async fn with(config: gateway::Config) -> Self {
        let network = Network::new();
        let wire = network.connect();
        let mint = Mint::new().expect("randomness");
        let clock = Arc::new(SystemClock::new());
        let dispatcher = RemoteDispatcher::new(config, wire.clone(), clock, &mint);
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let run = gateway::run(dispatcher.clone(), shutdown.clone());
        let gateway = tasks.spawn(async move { run.await.expect("a wire") });
        settle().await;
        Self {
            network,
            wire,
            dispatcher,
            shutdown,
            gateway,
            tasks,
            routers: 0,
        }
    }

    /// The usual router.
    async fn router(&mut self, acts: impl Fn(&Dispatch) -> Vec<Act> + Send + Sync + 'static) -> Router {
        self.router_with(acts, |_| {}, CatalogView::default()).await
    }

    async fn router_with(
        &mut self,
        acts: impl Fn(&Dispatch) -> Vec<Act> + Send + Sync + 'static,
        change: impl FnOnce(&mut intake::Config),
        catalog: CatalogView,
    ) -> Router {
        self.router_seeing(acts, change, catalog).await
    }

    async fn router_seeing(
        &mut self,
        acts: impl Fn(&Dispatch) -> Vec<Act> + Send + Sync + 'static,
        change: impl FnOnce(&mut intake::Config),
        sight: impl Into<Sight> + Send + 'static,
    ) -> Router {
        self.routers += 1;
        let mut config = intake::Config {
            pool: PoolName::from(POOL),
            boot: format!("boot-{}", self.routers).into(),
            sessions_max: 1_000,
            drain: Duration::from_secs(30),
        };
        change(&mut config);
        let (wire, script) = (self.network.connect(), Script::new(acts));
        let shutdown = CancellationToken::new();
        let run = Intake::run(
            config,
            wire.clone(),
            Arc::new(script.clone()),
            sight,
            shutdown.clone(),
        );
        let task = self.tasks.spawn(async move { run.await.expect("a wire") });
        settle().await;
        Router {
            wire,
            script,
            shutdown,
            task,
        }
    }

    fn begin(&self, number: u128) -> Box<dyn Session> {
        self.dispatcher.dispatch(dispatch("m", number))
    }

    /// Runs a request to its end in a task of its own.
    async fn play(&self) -> Played {
        finish(self.begin(1)).await
    }

    /// Kills the gateway without a word.
    fn kill_gateway(&self) {
        self.wire.cut(true);
        self.gateway.abort();
    }
}

impl Router {
    /// Kills it without a word.
    async fn kill(&self) {
        self.wire.cut(true);
        self.task.abort();
        settle().await;
    }
}

/// Lets everybody do what can be done now.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

async fn finish(mut session: Box<dyn Session>) -> Played {
    let mut played = Played::default();
    rest(session.as_mut(), &mut played).await.expect("an end");
    played
}

/// Hears a session to its first content.
async fn to_content(session: &mut dyn Session) -> Played {
    let mut played = Played::default();
    while played.chunks.is_empty() {
        played.take(frame(session).await);
        assert!(played.end.is_none(), "ended: {:?}", played.end);
    }
    played
}

/// A stream of `count` pieces of its own, one each `pace`.
fn stream(count: usize, pace: Duration) -> Vec<Act> {
    let mut acts = vec![Act::Head];
    for number in 0..count {
        if number > 0 && !pace.is_zero() {
            acts.push(Act::Wait(pace));
        }
        acts.push(Act::Chunk(piece(number)));
    }
    acts.push(Act::End(Bytes::from_static(b"[DONE]")));
    acts
}

fn piece(number: usize) -> Bytes {
    Bytes::from(format!("<{number}>"))
}

/// What a caller reads of [`stream`].
fn text(count: usize) -> Bytes {
    let mut text: Vec<u8> = (0..count).flat_map(|number| piece(number).to_vec()).collect();
    text.extend_from_slice(b"[DONE]");
    text.into()
}

fn code(played: &Played) -> Option<&'static str> {
    let failure = played.end()?.report.failure.as_ref()?;
    Some(failure.code.as_str())
}
