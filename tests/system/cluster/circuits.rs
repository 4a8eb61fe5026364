//! One breaker for the fleet: opened by failures wherever they were seen, probed by one call of all.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, Client, Model, NodeBuilder, Plan, Scene, Upstream, chat};
use tokio::time::{Instant, sleep};

/// How long the other node may take to know that a circuit is open.
const SPREAD: Duration = Duration::from_millis(250);
/// How long full traffic may take after an upstream is well again.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// A cluster in which `m` has one leg, and a client for each of its gateways.
async fn one_leg() -> (Scene, [Client; 2]) {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0);
    let bend = |node: NodeBuilder| node.models(&[model]).env("CIRCUIT_COOLDOWN_SECONDS", "2");
    let mut scene = Scene::start_cluster_on(Plan::default(), (o1, o2), bend).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let clients = [scene.client.at(a), scene.client.at(b)];
    (scene, clients)
}

/// The status that a call of each node gets.
async fn statuses(clients: &[Client]) -> Vec<u16> {
    let body = chat("m");
    let calls = clients.iter().map(|client| client.post_chat(&body));
    join_all(calls)
        .await
        .into_iter()
        .map(|answer| answer.status)
        .collect()
}

#[tokio::test]
async fn failures_that_two_nodes_saw_open_a_circuit_on_both() {
    for split in [[3, 0], [2, 1]] {
        let (scene, clients) = one_leg().await;
        scene.o1.default(Behaviour::error(500, "boom"));
        for (client, failures) in clients.iter().zip(split) {
            for _ in 0..failures {
                assert_eq!(client.post_chat(&chat("m")).await.status, 502);
            }
        }
        sleep(SPREAD).await;
        let seen = scene.o1.calls();

        assert_eq!(statuses(&clients).await, [503, 503], "{split:?}");

        assert_eq!((scene.o1.calls(), seen), (3, 3), "{split:?}");
        scene.finish().await;
    }
}

#[tokio::test]
async fn one_call_of_the_fleet_probes_a_half_open_circuit_and_full_traffic_follows() {
    let (scene, clients) = one_leg().await;
    scene.o1.default(Behaviour::error(500, "boom"));
    for _ in 0..3 {
        assert_eq!(clients[0].post_chat(&chat("m")).await.status, 502);
    }
    sleep(SPREAD).await;
    assert_eq!(statuses(&clients).await, [503, 503]);
    scene
        .o1
        .default(Behaviour::chat("again").first_byte_delay(Duration::from_millis(300)));
    let healed = Instant::now();
    let before = scene.o1.calls();

    // Calls on both nodes all the time: only the probe may reach the upstream until it has answered.
    loop {
        let burst: Vec<Client> = clients.iter().cycle().take(8).cloned().collect();
        let calls_before = scene.o1.calls();
        let statuses = statuses(&burst).await;
        let served = statuses.iter().filter(|status| **status == 200).count();
        let calls = scene.o1.calls() - calls_before;
        assert_eq!(calls, served, "{statuses:?}");
        assert!(calls_before > before || calls <= 1, "{calls} probes at once");
        if served == burst.len() {
            break;
        }
        assert!(healed.elapsed() < RECOVERY_MAX, "still {statuses:?}");
        sleep(Duration::from_millis(20)).await;
    }

    scene.finish().await;
}
