//! Sessions on two nodes that take their calls in turn. These tests are clusters wherever they run.

use std::time::Duration;

use harness::{Behaviour, NodeBuilder, Plan, Scene, Surface, Upstream};
use tokio::time::{Instant, sleep};

use super::moves::moves_by_both_margins;
use super::stays::ten_turns_stay;
use super::{alike, body, staying, verdict};

async fn scene(model: impl FnOnce(&Upstream, &Upstream) -> harness::Model) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, &o2);
    let change = |node: NodeBuilder| node.models(&[model]).env("ROUTING_AFFINITY_WAIT_MS", "5000");
    let mut scene = Scene::start_cluster_on(Plan::default(), (o1, o2), change).await;
    scene.wait_ready().await;
    scene
}

#[tokio::test]
async fn ten_turns_on_alternating_nodes_stay_on_one_backend_at_every_level_and_on_every_surface() {
    let scene = scene(staying).await;
    ten_turns_stay(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn both_nodes_move_a_session_when_both_margins_are_reached_and_say_so() {
    let scene = scene(staying).await;
    moves_by_both_margins(&scene).await;
    scene.finish().await;
}

/// Case 35: the same key and model come to the same endpoint on both nodes, an endpoint that fails loses them, and two
/// keys are spread.
#[tokio::test]
async fn hybrid_case_35_a_caller_stays_over_both_nodes_until_his_endpoint_fails() {
    let scene = scene(alike).await;
    let hi = body(Surface::Chat, &["hi".to_owned()]);
    assert_eq!(verdict(&scene.client.post_chat(&hi).await), "miss");
    for _ in 0..9 {
        assert_eq!(verdict(&scene.client.post_chat(&hi).await), "hit:caller");
    }
    let (left, next) = if scene.o1.calls() == 10 {
        (&scene.o1, &scene.o2)
    } else {
        (&scene.o2, &scene.o1)
    };
    assert_eq!((left.calls(), next.calls()), (10, 0));

    left.script([Behaviour::error(500, "boom")]);
    next.default(Behaviour::chat("from the next"));
    assert_eq!(verdict(&scene.client.post_chat(&hi).await), "stale:caller");
    // The other node hears of it while it is asked.
    let begun = Instant::now();
    let mut stays = 0;
    while stays < 6 {
        let again = scene.client.post_chat(&hi).await;
        let there = again.content() == "from the next" && verdict(&again) == "hit:caller";
        stays = if there { stays + 1 } else { 0 };
        assert!(begun.elapsed() < Duration::from_secs(5), "{}", again.text());
        sleep(Duration::from_millis(20)).await;
    }
    scene.finish().await;
}
