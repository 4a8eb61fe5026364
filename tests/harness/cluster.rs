//! A cluster: a bus and a database of its own, two gateways or more, two ledgers, and routers inside the gateways or
//! apart.

use std::net::Ipv4Addr;

use futures_util::future::join_all;

use crate::node::{Node, NodeBuilder};
use crate::proxy::Proxy;
use crate::server::nats::{Nats, NatsCluster};
use crate::server::postgres::Postgres;

/// The variable that makes clusters of all scenes.
const WANTED: &str = "WAYBILL_TEST_CLUSTER";

/// Whether every scene is a cluster.
pub fn wanted() -> bool {
    std::env::var_os(WANTED).is_some_and(|value| value == "1")
}

/// Whether a test is left out because scenes are clusters now; prints why.
#[must_use]
pub fn embedded_only(reason: &str) -> bool {
    if wanted() {
        eprintln!("not on a cluster: {reason}");
    }
    wanted()
}

/// How a cluster is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent choices")]
pub struct Plan {
    /// Routers are processes of their own.
    pub routers_apart: bool,
    /// The bus knows its users, each with the permissions that `deploy/nats` gives it.
    pub guarded: bool,
    /// Nodes reach the bus and the database through proxies.
    pub proxied: bool,
    /// The bus is three servers.
    pub three_servers: bool,
    /// Gateways beyond the two that every cluster has.
    pub more_gateways: usize,
    /// Processes that look after the health of upstreams, one of them at a time.
    pub health_workers: usize,
    /// Each of the first two gateways reaches each server of the bus over a link of its own, and ledgers the database over
    /// one.
    pub linked: bool,
}

/// The names of gateways, in the order in which clusters have them.
const GATEWAYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Gateways that every cluster has.
const GATEWAYS_MIN: usize = 2;

/// What the nodes share.
pub struct Services {
    /// The bus.
    pub nats: NatsCluster,
    /// The database.
    pub postgres: Postgres,
    /// Before the bus, when the plan says so.
    pub nats_proxy: Proxy,
    /// Before the database, when the plan says so.
    pub postgres_proxy: Proxy,
    /// Before the servers of the bus, for each of the first two gateways, when the plan says so.
    pub links: Vec<Vec<Proxy>>,
    bus_url: String,
    database_url: String,
    guarded: bool,
}

impl Services {
    /// Starts a bus and a database.
    pub async fn start(plan: Plan) -> Self {
        let bus = async {
            if plan.three_servers {
                NatsCluster::start().await
            } else if plan.guarded {
                let servers = vec![Nats::start_guarded().await];
                NatsCluster { servers }
            } else {
                let servers = vec![Nats::start().await];
                NatsCluster { servers }
            }
        };
        let (nats, postgres) = tokio::join!(bus, Postgres::start());
        let nats_proxy = Proxy::start(nats.servers[0].addr()).await;
        let postgres_proxy = Proxy::start(postgres.addr()).await;
        let links = if plan.linked {
            let of_gateway =
                async || join_all(nats.servers.iter().map(|server| Proxy::start(server.addr()))).await;
            vec![of_gateway().await, of_gateway().await]
        } else {
            Vec::new()
        };
        let (bus_url, database_url) = if plan.linked {
            (nats.urls(), postgres.url_at(postgres_proxy.addr()))
        } else if plan.proxied {
            assert!(!plan.three_servers, "one proxy stands before one server");
            let bus_url = format!("nats://{}", nats_proxy.addr());
            (bus_url, postgres.url_at(postgres_proxy.addr()))
        } else {
            (nats.urls(), postgres.url())
        };
        Self {
            nats,
            postgres,
            nats_proxy,
            postgres_proxy,
            links,
            bus_url,
            database_url,
            guarded: plan.guarded,
        }
    }

    /// Where a node of these roles reaches the bus, as its user where there are users.
    fn bus_url(&self, name: &str, roles: &str) -> String {
        let place = GATEWAYS.iter().position(|gateway| *gateway == name);
        if let Some(links) = place.and_then(|place| self.links.get(place)) {
            let urls: Vec<String> = links
                .iter()
                .map(|link| format!("nats://{}", link.addr()))
                .collect();
            return urls.join(",");
        }
        if !self.guarded {
            return self.bus_url.clone();
        }
        let user = match roles {
            "gateway,router" => "node_default",
            "router" => "router_default",
            role => role,
        };
        self.nats.servers[0].url_of(user, Ipv4Addr::LOCALHOST.into())
    }

    /// A node of these services, with these roles.
    pub fn node(&self, builder: &NodeBuilder, name: &str, roles: &str) -> NodeBuilder {
        let builder = builder
            .clone()
            .name(name)
            .roles(roles)
            .nats(&self.bus_url(name, roles))
            .books_in(&self.postgres.url());
        if roles.contains("ledger") {
            builder.postgres(&self.database_url)
        } else {
            builder
        }
    }

    /// Makes the tables.
    pub async fn migrate(&self, builder: &NodeBuilder) {
        let node = self.node(builder, "migrate", "ledger");
        let (code, output) = node.run(&["migrate"]).await;
        assert_eq!(code, Some(0), "waybill migrate: {output}");
    }
}

/// The nodes of a cluster but for the first gateway, and their services.
pub struct Cluster {
    /// Bus and database.
    pub services: Services,
    /// The other gateways, routers that stand apart, ledgers.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts a cluster; gives its first gateway and the rest.
    pub async fn start(plan: Plan, builder: &NodeBuilder) -> (Node, Self) {
        let services = Services::start(plan).await;
        services.migrate(builder).await;
        let gateway = if plan.routers_apart {
            "gateway"
        } else {
            "gateway,router"
        };
        let gateways = GATEWAYS.iter().take(GATEWAYS_MIN + plan.more_gateways);
        let mut nodes: Vec<(&str, &str)> = gateways.map(|name| (*name, gateway)).collect();
        nodes.extend([("ledger-1", "ledger"), ("ledger-2", "ledger")]);
        if plan.routers_apart {
            nodes.extend([("router-1", "router"), ("router-2", "router")]);
        }
        let health = ["health-1", "health-2"].into_iter().take(plan.health_workers);
        nodes.extend(health.map(|name| (name, "health")));
        let starts = nodes
            .into_iter()
            .map(|(name, roles)| services.node(builder, name, roles).start());
        let mut nodes = join_all(starts).await;
        let first = nodes.remove(0);
        (first, Self { services, nodes })
    }

    /// A node by its name: `b` and further gateways, `ledger-1`, `ledger-2`, `router-1`, `router-2`,
    /// `health-1`, `health-2`.
    pub fn node(&mut self, name: &str) -> &mut Node {
        let named = self.nodes.iter_mut().find(|node| node.name() == name);
        named.unwrap_or_else(|| panic!("no node is called {name}"))
    }
}
