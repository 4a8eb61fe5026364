//! A scene: one node, two upstreams, a client. Model `m` is served by `o1` and, if that fails, by `o2`.
//! [`Scene::finish`] runs the checker; a scene that is dropped without it fails its test.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::checker::gather::{Expected, settle};
use crate::checker::violation::Violation;
use crate::client::Client;
use crate::node::config::{CALLER_KEY, Model, PRICE, Price};
use crate::node::{Node, NodeBuilder};
use crate::upstream::Upstream;

/// A node, its upstreams and a caller.
pub struct Scene {
    /// The upstream tried first.
    pub o1: Upstream,
    /// The fallback.
    pub o2: Upstream,
    /// The node.
    pub node: Node,
    /// A client with the caller's key; clients made from it share its log.
    pub client: Client,
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
        let node = change(Node::builder().models(&[model])).start().await;
        let client = node.client(CALLER_KEY);
        let expected = Expected {
            prices: BTreeMap::from([("m".to_owned(), PRICE)]),
            foreign_calls: false,
            upstream_faults: false,
        };
        Self {
            o1,
            o2,
            node,
            client,
            expected,
            finished: false,
        }
    }

    /// Tells the checker the price of a model; `None` when its costs are not to be computed.
    pub fn price(&mut self, model: &str, price: Option<Price>) {
        match price {
            Some(price) => self.expected.prices.insert(model.to_owned(), price),
            None => self.expected.prices.remove(model),
        };
    }

    /// Tells the checker that calls were made past the scene's client: raw sockets, other programs.
    pub fn foreign_calls(&mut self) {
        self.expected.foreign_calls = true;
    }

    /// Tells the checker that upstreams are sent odd bytes on purpose.
    pub fn upstream_faults_allowed(&mut self) {
        self.expected.upstream_faults = true;
    }

    /// Kills the node, starts it again and turns the client to it.
    pub async fn kill_and_restart(&mut self) {
        self.node.kill().await;
        self.restart().await;
    }

    /// Starts an ended node again and turns the client to it.
    pub async fn restart(&mut self) {
        self.node.restart().await;
        self.client = self.client.at(self.node.addr());
    }

    /// The row of a request.
    pub async fn row(&self, request_id: &str) -> Value {
        self.node.wait_row(request_id).await
    }

    /// What the checker finds once the books are quiet.
    pub async fn violations(&mut self) -> Vec<Violation> {
        settle(
            &mut self.node,
            &[&self.o1, &self.o2],
            self.client.log(),
            &self.expected,
        )
        .await
    }

    /// Runs the checker; panics with what it finds.
    pub async fn finish(mut self) {
        self.finished = true;
        let found = self.violations().await;
        if found.is_empty() {
            return;
        }
        let lines: Vec<String> = found.iter().map(|violation| format!("- {violation:?}")).collect();
        panic!(
            "the books are wrong:\n{}\nthe node's log:\n{}",
            lines.join("\n"),
            self.node.logs().join("\n")
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let judged = self.finished || std::thread::panicking();
        assert!(judged, "a scene ended without its check: call finish()");
    }
}
