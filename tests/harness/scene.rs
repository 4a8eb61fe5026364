//! A scene: one node or a cluster, two upstreams, a client. Model `m` is served by `o1` and, if that fails, by `o2`.
//! With `WAYBILL_TEST_CLUSTER=1` the scenes of all tests are clusters, and the client's calls go to both gateways in
//! turn. [`Scene::finish`] runs the checker; a scene that is dropped without it fails its test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::checker::canary::Canary;
use crate::checker::gather::{Expected, Scope, settle};
use crate::checker::violation::{self, Violation};
use crate::client::Client;
use crate::cluster::{self, Cluster, Plan};
use crate::node::config::{CALLER_KEY, Model, PRICE, Price};
use crate::node::guard::QUIET_MAX;
use crate::node::{Node, NodeBuilder};
use crate::upstream::Upstream;

/// How long the books of a cluster may take to become quiet, one of whose nodes may just have come back.
const CLUSTER_QUIET_MAX: Duration = Duration::from_secs(30);

/// How long a gateway may take to know of the bus and the database.
const READY_MAX: Duration = Duration::from_secs(15);

/// Nodes, their upstreams and a caller.
pub struct Scene {
    /// The upstream tried first.
    pub o1: Upstream,
    /// The fallback.
    pub o2: Upstream,
    /// The node; in a cluster one of its two gateways.
    pub node: Node,
    /// A client with the caller's key; clients made from it share its log.
    pub client: Client,
    cluster: Option<Box<Cluster>>,
    pinned: bool,
    expected: Expected,
    finished: bool,
}

impl Scene {
    /// The scene on the harness's own configuration.
    pub async fn start() -> Self {
        Self::start_with(|node| node).await
    }

    /// The scene with a node of which something is different.
    pub async fn start_with(change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        Self::start_on(Upstream::start(), Upstream::start(), change).await
    }

    /// The scene on upstreams that were started before, for configurations that name them.
    pub async fn start_on(
        o1: Upstream,
        o2: Upstream,
        change: impl FnOnce(NodeBuilder) -> NodeBuilder,
    ) -> Self {
        let model = Model::new("m").leg(&o1, 0).leg(&o2, 1);
        let builder = change(Node::builder().models(&[model]));
        if cluster::wanted() {
            let (node, cluster) = Cluster::start(Plan::default(), &builder).await;
            Self::of(o1, o2, node, Some(cluster))
        } else {
            let node = builder.start().await;
            Self::of(o1, o2, node, None)
        }
    }

    /// A scene that is a cluster wherever it runs.
    pub async fn start_cluster(plan: Plan, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        Self::start_cluster_on(plan, (Upstream::start(), Upstream::start()), change).await
    }

    /// A cluster on upstreams that were started before, for configurations that name them.
    pub async fn start_cluster_on(
        plan: Plan,
        (o1, o2): (Upstream, Upstream),
        change: impl FnOnce(NodeBuilder) -> NodeBuilder,
    ) -> Self {
        let model = Model::new("m").leg(&o1, 0).leg(&o2, 1);
        let builder = change(Node::builder().models(&[model]));
        let (node, cluster) = Cluster::start(plan, &builder).await;
        Self::of(o1, o2, node, Some(cluster))
    }

    fn of(o1: Upstream, o2: Upstream, node: Node, cluster: Option<Cluster>) -> Self {
        let client = node.client(CALLER_KEY);
        let expected = Expected {
            prices: BTreeMap::from([("m".to_owned(), PRICE)]),
            foreign_calls: false,
            upstream_faults: false,
            secrets: Vec::new(),
        };
        let scene = Self {
            o1,
            o2,
            node,
            client,
            cluster: cluster.map(Box::new),
            pinned: false,
            expected,
            finished: false,
        };
        scene.turn_client();
        scene
    }

    /// Tells the checker the price of a model; `None` when its costs are not to be computed.
    pub fn price(&mut self, model: &str, price: Option<Price>) {
        match price {
            Some(price) => self.expected.prices.insert(model.to_owned(), price),
            None => self.expected.prices.remove(model),
        };
    }

    /// Tells the checker of a secret that must be found nowhere: in no log, table, figure or file.
    pub fn secret(&mut self, name: &'static str, text: &str) {
        assert!(text.len() >= 8, "{name} could be found by chance");
        let text = text.to_owned();
        self.expected.secrets.push(Canary { name, text });
    }

    /// Tells the checker that calls were made past the scene's client: raw sockets, other programs.
    pub fn foreign_calls(&mut self) {
        self.expected.foreign_calls = true;
    }

    /// Tells the checker that upstreams are sent odd bytes on purpose.
    pub fn upstream_faults_allowed(&mut self) {
        self.expected.upstream_faults = true;
    }

    /// Sends all calls of the client to [`Scene::node`], for what one node alone knows or does.
    pub fn pin(&mut self) {
        self.pinned = true;
        self.turn_client();
    }

    /// Whether the scene is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The cluster; panics when the scene is none.
    pub fn cluster(&mut self) -> &mut Cluster {
        self.cluster.as_mut().expect("the scene is a cluster")
    }

    /// Waits until every gateway says that all it is configured with is there; panics after fifteen seconds.
    pub async fn wait_ready(&mut self) {
        let deadline = Instant::now() + READY_MAX;
        for node in self.gateways() {
            let client = node.client("");
            loop {
                let ready = client.get("/health/ready?strict=1").await;
                if ready.status == 200 {
                    break;
                }
                assert!(Instant::now() < deadline, "{}: {}", node.name(), ready.text());
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Kills every node.
    pub async fn kill_every_node(&mut self) {
        join_all(self.nodes().map(Node::kill)).await;
    }

    /// Starts every node again, all of which have ended, with its clock so far ahead of the machine's.
    pub async fn restart_every_node_ahead(&mut self, ahead: Duration) {
        let again = async |node: &mut Node| {
            node.set_ahead(ahead);
            node.restart().await;
        };
        join_all(self.nodes().map(again)).await;
        self.turn_client();
    }

    /// Kills every gateway, starts them again and turns the client to them.
    pub async fn kill_and_restart(&mut self) {
        join_all(self.gateways().into_iter().map(Node::kill)).await;
        self.restart().await;
    }

    /// Starts ended gateways again and turns the client to them.
    pub async fn restart(&mut self) {
        let mut ended = self.gateways();
        ended.retain_mut(|node| !node.running());
        join_all(ended.into_iter().map(Node::restart)).await;
        self.turn_client();
    }

    /// Turns the client to where the running gateways listen now.
    pub fn turn_client(&self) {
        self.client.retarget(&self.addrs());
    }

    /// Where the client's calls go: the gateways, or the one that it was pinned to.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        let others = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let others = others.filter(|node| node.has_gateway() && !self.pinned);
        std::iter::once(&self.node)
            .chain(others)
            .map(Node::addr)
            .collect()
    }

    fn gateways(&mut self) -> Vec<&mut Node> {
        self.nodes().filter(|node| node.has_gateway()).collect()
    }

    fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        let others = self.cluster.iter_mut().flat_map(|cluster| &mut cluster.nodes);
        std::iter::once(&mut self.node).chain(others)
    }

    /// The row of a request.
    pub async fn row(&self, request_id: &str) -> Value {
        self.node.wait_row(request_id).await
    }

    /// A metric's sum over the gateways.
    pub async fn metric(&self, name: &str) -> f64 {
        let others = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let mut sum = self.node.metric(name).await;
        for node in others.filter(|node| node.has_gateway()) {
            sum += node.metric(name).await;
        }
        sum
    }

    /// What the checker finds once the books are quiet.
    pub async fn violations(&mut self) -> Vec<Violation> {
        let books = self.node.books();
        let mut nodes = vec![&mut self.node];
        let mut directories = Vec::new();
        let quiet_max = match &mut self.cluster {
            None => QUIET_MAX,
            Some(cluster) => {
                directories.extend(cluster.services.nats.servers.iter().map(crate::Nats::store_dir));
                nodes.extend(&mut cluster.nodes);
                CLUSTER_QUIET_MAX
            }
        };
        let scope = Scope {
            nodes,
            books,
            upstreams: vec![&self.o1, &self.o2],
            directories,
            log: self.client.log().clone(),
            expected: &self.expected,
            quiet_max,
        };
        settle(scope).await
    }

    /// What the checker finds, for a program that reports it: the scene may be dropped then.
    pub async fn judge(&mut self) -> Vec<Violation> {
        self.finished = true;
        self.violations().await
    }

    /// Runs the checker; panics with what it finds.
    pub async fn finish(mut self) {
        let found = self.judge().await;
        if found.is_empty() {
            return;
        }
        panic!(
            "the books are wrong:\n{}\n{}",
            violation::listed(&found),
            self.logs()
        );
    }

    /// The logs of all nodes, for messages of failed tests.
    pub fn logs(&self) -> String {
        let others = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let log = |node: &Node| format!("the log of {}:\n{}\n", node.name(), node.logs().join("\n"));
        std::iter::once(&self.node).chain(others).map(log).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        assert!(
            std::thread::panicking(),
            "a scene ended without its check: call finish()"
        );
        // What the nodes said is often the only trace of why a test failed.
        eprintln!("{}", self.logs());
    }
}
