//! Three servers of the bus, one of which dies: the one that leads the stream of events.

use std::time::Duration;

use harness::{Plan, Scene};
use tokio::time::sleep;

use super::{good_upstreams, load};

/// Longer than a new leader takes to be found where nothing is in the way: calls go on at least so long without.
const FAILOVER: Duration = Duration::from_secs(8);
/// The stream of events.
const STREAM: &str = "WAYBILL_EVENTS";

#[tokio::test]
async fn a_bus_of_three_that_loses_its_leader_costs_no_call_and_no_row() {
    let plan = Plan {
        three_servers: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| node).await;
    good_upstreams(&scene);
    let load = load(&scene);
    sleep(Duration::from_secs(1)).await;

    let nats = &mut scene.cluster().services.nats;
    let leader = nats.leader_of(STREAM).await;
    nats.servers[leader].kill().await;
    sleep(FAILOVER).await;
    assert_ne!(nats.leader_of(STREAM).await, leader);
    nats.servers[leader].restart().await;
    sleep(Duration::from_secs(1)).await;

    load.end().await.assert_whole(50);
    scene.finish().await;
}
