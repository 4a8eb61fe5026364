//! Two routers before one bucket, on paused time: what one finds out, the other knows.

use bus::clock::{Clock, SystemClock};
use bus::embedded::{Embedded, Options};
use schemas::circuit::{CircuitState, Parameters, Verdict};
use schemas::event::health::CircuitChanged;
use schemas::id::{EndpointId, NodeId};
use schemas::time::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::circuit::{Claim, Surroundings};
use crate::metrics::Metrics;
use crate::plan::Admission as _;
use crate::testing::{self, Act, Bucket, Mood, Scene, Server, response};

use super::*;

const COOLDOWN: Duration = Duration::from_secs(2);
/// Longer than a write and its way back.
const SOON: Duration = Duration::from_millis(30);

/// Time that a test can pause, from a start of its own.
struct Paused(Instant, u64);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).expect("a short test") + self.1
    }
}

type Told = Arc<Mutex<Vec<CircuitChanged>>>;

struct Node {
    circuits: Arc<Circuits>,
    shutdown: CancellationToken,
}

struct Pair {
    bucket: Arc<Bucket>,
    told: Told,
    nodes: [Node; 2],
    tasks: JoinSet<()>,
}

impl Pair {
    async fn start() -> Self {
        let bucket = Arc::new(Bucket::new(Duration::from_millis(2)));
        let told = Told::default();
        let mut tasks = JoinSet::new();
        let nodes = [("a", 5), ("b", 900_000)].map(|(name, offset_ms)| {
            let node = node(name, offset_ms, &told);
            let (circuits, kv) = (Arc::clone(&node.circuits), Arc::clone(&bucket));
            let shutdown = node.shutdown.clone();
            tasks.spawn(async move { run(&circuits, kv, &CatalogView::default(), shutdown).await });
            node
        });
        sleep(SOON).await;
        Self {
            bucket,
            told,
            nodes,
            tasks,
        }
    }

    async fn begin(&self, node: usize) -> Option<Claim<'_>> {
        self.nodes[node]
            .circuits
            .begin(&endpoint(), &backend(), false)
            .await
    }

    async fn end(&self, node: usize, verdict: Verdict) {
        let claim = self.begin(node).await.expect("leave");
        claim.settle(verdict, Some(500));
    }

    /// Opens the circuit by failures on the first node.
    async fn open(&self) {
        for _ in 0..3 {
            self.end(0, Verdict::Faulty).await;
        }
        sleep(SOON).await;
        assert_eq!(self.states(), [CircuitState::Open; 2]);
    }

    fn states(&self) -> [CircuitState; 2] {
        let state = |node: &Node| {
            let health = node.circuits.health(&backend());
            health.map_or(CircuitState::Closed, |(_, health)| health.circuit_state)
        };
        [state(&self.nodes[0]), state(&self.nodes[1])]
    }

    fn changes(&self) -> Vec<CircuitState> {
        self.told.lock().iter().map(|changed| changed.to).collect()
    }
}

fn node(name: &str, offset_ms: u64, told: &Told) -> Node {
    let parameters = Parameters {
        cooldown_ms: 2_000,
        ..Parameters::default()
    };
    let told = Arc::clone(told);
    let surroundings = Surroundings {
        node: NodeId::from(name),
        boot: format!("boot-{name}").into(),
        shared: true,
        clock: Arc::new(Paused(Instant::now(), offset_ms)),
        metrics: Metrics::default(),
        witness: Box::new(move |changed| told.lock().push(changed.clone())),
    };
    Node {
        circuits: Arc::new(Circuits::new(parameters, surroundings)),
        shutdown: CancellationToken::new(),
    }
}

fn endpoint() -> EndpointId {
    EndpointId::from("e")
}

fn backend() -> BackendId {
    BackendId::from("e#0")
}

#[tokio::test(start_paused = true)]
async fn the_third_failure_opens_both_nodes_however_failures_were_split() {
    for split in [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0]] {
        let pair = Pair::start().await;
        for node in split {
            pair.end(node, Verdict::Faulty).await;
        }

        sleep(Duration::from_millis(100)).await;

        assert_eq!(pair.states(), [CircuitState::Open; 2], "{split:?}");
        assert!(pair.begin(0).await.is_none() && pair.begin(1).await.is_none());
        assert_eq!(pair.changes(), [CircuitState::Open], "told once");
        let health = [0, 1].map(|node| pair.nodes[node].circuits.health(&backend()));
        assert_eq!(health[0], health[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_on_a_node_that_knows_of_failures_ends_their_row_also_of_those_it_does_not_know() {
    for heard in [SOON, Duration::ZERO] {
        let pair = Pair::start().await;
        for _ in 0..3 {
            pair.end(0, Verdict::Faulty).await;
            sleep(heard).await;
            pair.end(1, Verdict::Healthy).await;
            sleep(SOON).await;
        }

        assert_eq!(pair.states(), [CircuitState::Closed; 2], "{heard:?}");
        assert_eq!(pair.changes(), [], "{heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_that_no_news_came_between_are_a_row_whatever_ended_elsewhere() {
    let pair = Pair::start().await;
    for _ in 0..3 {
        pair.end(0, Verdict::Faulty).await;
        pair.end(1, Verdict::Healthy).await;
    }
    sleep(SOON).await;

    assert_eq!(pair.states(), [CircuitState::Open; 2]);
    assert_eq!(pair.changes(), [CircuitState::Open]);
}

#[tokio::test(start_paused = true)]
async fn one_request_probes_in_the_whole_fleet_and_its_success_closes_everywhere() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;

    let begun = futures_util::future::join_all((0..8).map(|index| pair.begin(index % 2))).await;

    let mut probes: Vec<_> = begun.into_iter().flatten().collect();
    assert_eq!(probes.len(), 1);
    sleep(SOON).await;
    assert_eq!(pair.states(), [CircuitState::HalfOpen; 2]);
    let probe = probes.remove(0);
    assert!(probe.may_send());
    probe.settle(Verdict::Healthy, Some(200));
    sleep(SOON).await;
    assert_eq!(pair.states(), [CircuitState::Closed; 2]);
    assert_eq!(
        pair.changes(),
        [CircuitState::Open, CircuitState::HalfOpen, CircuitState::Closed]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_anew_everywhere() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;

    pair.end(1, Verdict::Faulty).await;
    sleep(SOON).await;

    assert_eq!(pair.states(), [CircuitState::Open; 2]);
    assert!(pair.begin(0).await.is_none());
    sleep(COOLDOWN).await;
    assert!(pair.begin(0).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_may_be_taken_by_the_other_node() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;

    drop(pair.begin(0).await.expect("the probe"));
    sleep(SOON).await;

    assert!(pair.begin(1).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_probe_of_a_node_that_died_is_replaced_after_its_lease() {
    let mut pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;
    std::mem::forget(pair.begin(0).await.expect("the probe"));
    sleep(SOON).await;
    pair.tasks.abort_all();
    while pair.tasks.join_next().await.is_some() {}
    let third = node("c", 77, &pair.told);
    let (circuits, kv) = (Arc::clone(&third.circuits), Arc::clone(&pair.bucket));
    pair.tasks
        .spawn(async move { run(&circuits, kv, &CatalogView::default(), third.shutdown).await });
    sleep(SOON).await;

    let early = third.circuits.begin(&endpoint(), &backend(), false).await;
    sleep(COOLDOWN).await;
    let late = third.circuits.begin(&endpoint(), &backend(), false).await;

    assert!(early.is_none());
    assert!(late.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_success_writes_nothing_while_the_circuit_is_whole() {
    let pair = Pair::start().await;

    for _ in 0..100 {
        pair.end(0, Verdict::Healthy).await;
        pair.end(1, Verdict::Neutral).await;
    }
    sleep(SOON).await;

    assert_eq!(pair.bucket.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_failures_is_two_writes() {
    let pair = Pair::start().await;
    let mut claims = Vec::new();
    for _ in 0..50 {
        claims.extend(pair.begin(0).await);
    }

    for claim in claims {
        claim.settle(Verdict::Faulty, Some(503));
    }
    sleep(Duration::from_millis(200)).await;

    assert_eq!(pair.states(), [CircuitState::Open; 2]);
    assert!(pair.bucket.writes() <= 2, "{}", pair.bucket.writes());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_read_back_before_it_is_used() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;
    pair.bucket.set(Mood::Mute);

    let granted = pair.begin(0).await;
    assert!(granted.is_some_and(|claim| claim.may_send()), "it was written");
    pair.bucket.set(Mood::Fine);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_may_still_be_written_is_not_used() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;
    pair.bucket.set(Mood::Stuck);

    let (asked, refused) = (Instant::now(), pair.begin(0).await.is_none());

    assert!(refused);
    assert!(asked.elapsed() < Duration::from_millis(1_100));
    pair.bucket.set(Mood::Fine);
    sleep(Duration::from_secs(2)).await;
    assert!(pair.begin(1).await.is_some(), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn without_the_bus_each_node_decides_for_itself_and_waits_for_nobody() {
    let pair = Pair::start().await;
    pair.bucket.set(Mood::Away);
    for _ in 0..3 {
        pair.end(0, Verdict::Faulty).await;
    }
    assert_eq!(pair.states(), [CircuitState::Open, CircuitState::Closed]);
    sleep(COOLDOWN + SOON).await;

    let asked = Instant::now();
    let probe = pair.begin(0).await.expect("a probe of its own");
    assert!(pair.begin(0).await.is_none(), "but one");
    assert!(asked.elapsed() < SOON);
    probe.settle(Verdict::Faulty, None);
    assert!(pair.begin(0).await.is_none());
    pair.end(1, Verdict::Healthy).await;

    pair.bucket.set(Mood::Fine);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(
        pair.states(),
        [CircuitState::Open; 2],
        "what one found open is open"
    );
    sleep(COOLDOWN).await;
    let mut begun = futures_util::future::join_all([pair.begin(0), pair.begin(1)]).await;
    let probe = begun.iter_mut().find_map(Option::take).expect("a probe");
    assert!(begun.iter().all(Option::is_none), "one again");
    probe.settle(Verdict::Healthy, Some(200));
    sleep(SOON).await;
    assert_eq!(pair.states(), [CircuitState::Closed; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_learns_of_open_circuits_before_its_first_request() {
    let mut pair = Pair::start().await;
    pair.open().await;
    let third = node("c", 77, &pair.told);
    let (circuits, kv) = (Arc::clone(&third.circuits), Arc::clone(&pair.bucket));
    pair.tasks
        .spawn(async move { run(&circuits, kv, &CatalogView::default(), third.shutdown).await });

    sleep(SOON).await;

    assert!(third.circuits.admits(&backend()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_is_begun_anew() {
    let pair = Pair::start().await;
    pair.bucket.set(Mood::Away);
    pair.bucket.set(Mood::Fine);
    sleep(Duration::from_millis(200)).await;

    pair.open().await;
}

#[tokio::test(start_paused = true)]
async fn records_of_backends_that_are_gone_are_deleted_after_a_day() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(Duration::from_hours(23)).await;
    assert_eq!(pair.bucket.keys(), [record_key(&backend())]);

    sleep(Duration::from_hours(2)).await;

    assert!(pair.bucket.keys().is_empty());
    let known = |node: &Node| node.circuits.health(&backend()).is_some();
    assert!(!pair.nodes.iter().any(known));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_probe_is_answered_when_the_router_ends() {
    let pair = Pair::start().await;
    pair.open().await;
    sleep(COOLDOWN).await;
    pair.bucket.set(Mood::Stuck);
    let end = async {
        sleep(Duration::from_millis(10)).await;
        pair.nodes[0].shutdown.cancel();
    };

    let asked = Instant::now();
    let (begun, ()) = tokio::join!(pair.begin(0), end);

    assert!(begun.is_some());
    assert!(asked.elapsed() < Duration::from_millis(100));
}

#[tokio::test]
async fn two_routers_on_one_embedded_bus_refuse_and_recover_together() {
    let dir = std::env::temp_dir().join(format!("waybill-circuits-{}", std::process::id()));
    let clock = Arc::new(SystemClock::new());
    let bus = Embedded::open(&dir, Options::default(), clock).expect("a bus");
    let server = Server::start(|call| match call {
        0..3 => vec![Act::Send(response(
            "500 Internal Server Error",
            "application/json",
            b"{}",
        ))],
        _ => vec![Act::Send(testing::chat("hi"))],
    })
    .await;
    let mut config = testing::config();
    config.circuit.cooldown_ms = 1_000;
    let mut scenes = Vec::new();
    let (mut tasks, shutdown) = (JoinSet::new(), CancellationToken::new());
    for _ in 0..2 {
        let mut scene = Scene::with(config.clone(), &[&server]).await;
        scene.share(bus.clone());
        let (router, bus) = (scene.router.clone(), bus.clone());
        let end = shutdown.clone();
        tasks.spawn(async move { crate::run(router, bus, end).await });
        scenes.push(scene);
    }
    sleep(Duration::from_millis(100)).await;
    for index in [0, 1, 0] {
        let code = scenes[index].call(testing::PLAIN).await.code();
        assert_eq!(code, Some("upstream_error"));
        sleep(Duration::from_millis(80)).await;
    }

    for scene in &scenes {
        assert_eq!(scene.call(testing::PLAIN).await.code(), Some("all_circuits_open"));
    }
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(scenes[1].call(testing::PLAIN).await.code(), None, "the probe");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(scenes[0].call(testing::PLAIN).await.code(), None);

    shutdown.cancel();
    while tasks.join_next().await.is_some() {}
    drop(scenes);
    drop(std::fs::remove_dir_all(&dir));
}
