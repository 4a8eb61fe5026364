//! Names move between models, legs change places, models come and go, each time in one change of a file, while two
//! hundred calls a second run. None of them meets half of a change.

use futures_util::future::join_all;
use harness::{Answer, Plan};

use super::*;

const CALLERS: usize = 10;
/// Between two calls of a caller.
const PACE: Duration = Duration::from_millis(50);
/// What callers ask for. `guest` comes and goes, the others are there whatever the file says.
const NAMES: [&str; 6] = ["x", "one", "guest", "y", "two", "box"];

/// A model with one leg, whose upstream knows it by a name that no other upstream knows.
fn model(id: &str, aliases: &[&str], upstream: &Upstream) -> Model {
    Model::new(id)
        .set("aliases", json!(aliases))
        .leg(upstream, 0)
        // The routers of a cluster have files of their own, in which other credentials are.
        .set_leg("api_key", Value::Null)
        .set_leg("provider_model_id", name_at(upstream))
}

fn name_at(upstream: &Upstream) -> String {
    format!("known-at-{}", upstream.addr().port())
}

/// Whole files, to be changed into one another in any order.
fn files(o1: &Upstream, o2: &Upstream) -> [Vec<Model>; 3] {
    // Its endpoint stays, under another address each time.
    let boxed = |upstream| model("box", &[], upstream).set_leg("endpoint", "box");
    [
        vec![
            model("one", &["x"], o1),
            model("two", &["y"], o2),
            boxed(o1),
            model("guest", &[], o1),
        ],
        // Aliases are swapped, and so are legs.
        vec![model("one", &["y"], o2), model("two", &["x"], o1), boxed(o2)],
        // What was an alias is a model, and what was a model is an alias.
        vec![
            model("x", &["one"], o1),
            model("y", &["two"], o2),
            boxed(o1),
            model("guest", &[], o2),
        ],
    ]
}

/// Changes files while callers call; gives their answers, each with the name that was asked for.
async fn meanwhile(scene: &Scene) -> Vec<(&'static str, Answer)> {
    let over = AtomicBool::new(false);
    let (client, is_over) = (&scene.client, &over);
    let load = async |caller: usize| {
        let mut answers = Vec::new();
        let mut ticks = tokio::time::interval(PACE);
        for name in NAMES.iter().cycle().skip(caller) {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            ticks.tick().await;
            answers.push((*name, client.post_chat(&chat(name)).await));
        }
        answers
    };
    let change = async {
        let files = files(&scene.o1, &scene.o2);
        for place in [1, 2, 0, 2, 1, 0, 1, 0] {
            reload(scene, &files[place]).await;
            sleep(Duration::from_millis(120)).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    let ((), answers) = tokio::join!(change, join_all((0..CALLERS).map(load)));
    answers.into_iter().flatten().collect()
}

/// Every call is served by an upstream that knows it, unless it asks for a model that is not there.
async fn no_call_meets_half_of_a_change(mut scene: Scene) {
    for name in NAMES {
        scene.price(name, Some(PRICE));
    }
    reload(&scene, &files(&scene.o1, &scene.o2)[0]).await;
    for name in NAMES {
        // Every gateway knows of it before calls count.
        for addr in scene.addrs() {
            let client = scene.client.at(addr);
            let start = Instant::now();
            while client.post_chat(&chat(name)).await.status != 200 {
                assert!(start.elapsed() < super::super::PATIENCE, "{name} is not there");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    let answers = meanwhile(&scene).await;

    let is_gone = |name: &str, answer: &Answer| {
        name == "guest" && answer.status == 404 && answer.error_code() == "model_not_found"
    };
    let failed: Vec<String> = answers
        .iter()
        .filter(|(name, answer)| answer.status != 200 && !is_gone(name, answer))
        .map(|(name, answer)| format!("{name}: {} {}", answer.status, answer.text()))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {}: {failed:?}",
        failed.len(),
        answers.len()
    );
    for status in [200, 404] {
        let of_guest = |(name, answer): &&(&str, Answer)| *name == "guest" && answer.status == status;
        assert!(
            answers.iter().any(|answer| of_guest(&answer)),
            "guest was never {status}"
        );
    }
    for upstream in [&scene.o1, &scene.o2] {
        let own = name_at(upstream);
        for call in upstream.recorded() {
            assert_eq!(
                call.request.json()["model"],
                own,
                "a leg of one file at an address of another"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn no_call_meets_half_of_a_change_of_names_legs_and_models() {
    no_call_meets_half_of_a_change(Scene::start().await).await;
}

#[tokio::test]
async fn no_call_of_a_cluster_with_routers_apart_meets_half_of_a_change() {
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    no_call_meets_half_of_a_change(Scene::start_cluster(plan, |node| node).await).await;
}
