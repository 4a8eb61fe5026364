//! `waybill reload`: the models of a running node change under its callers' feet, and none of them stumbles.

use std::time::Duration;

use harness::{Behaviour, Model, OTHER_KEY, PRO_KEY, Scene, Surface, Upstream, chat, chat_streamed};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::dialects::pools::{self, ask, used};

/// What `waybill reload` says: its exit code and its output.
async fn reload(scene: &Scene) -> (Option<i32>, String) {
    scene.node.command(&["reload"]).await
}

/// Writes other models and has them read; panics unless that goes well.
async fn change(scene: &Scene, models: &[Model], told: &str) {
    scene.node.write_models(models);
    let (code, output) = reload(scene).await;
    assert_eq!((code, output.trim_end()), (Some(0), told));
}

async fn status(scene: &Scene, model: &str) -> u16 {
    scene.client.post_chat(&chat(model)).await.status
}

#[tokio::test]
async fn models_come_change_and_go_while_requests_run() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [Model::new("m").leg(&o1, 0), Model::new("old").leg(&o1, 0)];
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&models)).await;
    scene.pin();
    let slow = Behaviour::chat("")
        .chunks(20, Duration::from_millis(100))
        .usage(9, 20);
    scene.o1.script([slow]);
    let mut running = scene.client.stream_chat(&chat_streamed("m")).await;
    running.next_said().await.expect("it has begun");

    let models = [
        Model::new("m").leg(&scene.o2, 0),
        Model::new("new").leg(&scene.o2, 0),
    ];
    change(&scene, &models, "2 models on 2 endpoints are in force").await;

    assert_eq!(
        (status(&scene, "m").await, status(&scene, "new").await),
        (200, 200)
    );
    assert_eq!(status(&scene, "old").await, 404);
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 2));
    assert_eq!(running.collect().await.whole().split(' ').count(), 20);
    scene.finish().await;
}

#[tokio::test]
async fn files_that_are_wrong_change_nothing_and_are_named_with_their_line() {
    let mut scene = Scene::start().await;
    scene.pin();
    let path = scene.node.data_dir().with_file_name("models.yaml");
    std::fs::write(&path, "models:\n  - id: m\n    colour: red\n").expect("a file written");

    let (code, output) = reload(&scene).await;

    assert_eq!(code, Some(64), "{output}");
    assert!(output.contains("nothing was changed"), "{output}");
    assert!(
        output.contains("models.yaml:3") && output.contains("colour"),
        "{output}"
    );
    assert_eq!(status(&scene, "m").await, 200);
    std::fs::remove_file(&path).expect("a file removed");
    let (code, output) = scene.node.command(&["reload"]).await;
    assert_eq!(code, Some(64), "the node still knows the file: {output}");
    assert_eq!(status(&scene, "m").await, 200);
    scene.finish().await;
}

#[tokio::test]
async fn a_secret_that_was_changed_is_used_at_once_and_nothing_is_held_against_it() {
    let scene = pools::scene(json!(["worn", "k2"]), false, pools::as_it_is).await;
    let model = |upstream: &Upstream, keys: Value| pools::model(upstream, keys);
    for _ in 0..3 {
        scene
            .o1
            .script([Behaviour::error(401, "no"), Behaviour::chat("good")]);
        assert_eq!(ask(&scene.client, Surface::Chat).await.status, 200);
    }
    let before = scene.o1.calls();
    assert_eq!(ask(&scene.client, Surface::Chat).await.status, 200);
    assert_eq!(used(&scene.o1, before), ["k2"], "the worn one is asked last");

    let models = [model(&scene.o1, json!(["fresh", "k2"]))];
    change(&scene, &models, "1 models on 1 endpoints are in force").await;

    let before = scene.o1.calls();
    let other = scene.client.with_key(OTHER_KEY);
    assert_eq!(ask(&other, Surface::Chat).await.status, 200);
    assert_eq!(used(&scene.o1, before), ["fresh"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_credential_of_another_role_lets_go_of_those_who_were_given_it_and_of_nobody_else() {
    let scene = pools::scene(json!(["a", "b", "c"]), false, pools::as_it_is).await;
    let keys = |roles: [&str; 3]| {
        let key = |(name, role): (&str, &&str)| json!({"key": name, "min_role": role});
        ["a", "b", "c"]
            .into_iter()
            .zip(&roles)
            .map(key)
            .collect::<Value>()
    };
    let (own, other) = (&scene.client, scene.client.with_key(OTHER_KEY));
    let pro = scene.client.with_key(PRO_KEY);
    let served = async |client: &harness::Client| {
        let before = scene.o1.calls();
        assert_eq!(ask(client, Surface::Chat).await.status, 200);
        used(&scene.o1, before)
    };
    // The first is limited for a second: whoever comes meanwhile is given the second, and stays with it.
    let limited = Behaviour::error(429, "slow down").header("retry-after", "1");
    scene.o1.script([limited, Behaviour::chat("good")]);
    assert_eq!(served(&other).await, ["a", "b"]);
    assert_eq!(served(own).await, ["b"]);
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(
        (served(own).await, served(&pro).await),
        (vec!["b".into()], vec!["a".into()])
    );

    let tell = "1 models on 1 endpoints are in force";
    change(
        &scene,
        &[pools::model(&scene.o1, keys(["free", "free", "pro"]))],
        tell,
    )
    .await;
    assert_eq!(served(own).await, ["b"], "his was not touched");
    change(
        &scene,
        &[pools::model(&scene.o1, keys(["free", "pro", "pro"]))],
        tell,
    )
    .await;
    assert_eq!(served(own).await, ["a"], "his is kept for others now");
    assert_eq!(served(&pro).await, ["a"], "he stays with what he was given");
    scene.finish().await;
}

#[tokio::test]
async fn without_a_node_nothing_can_be_read_again() {
    let mut scene = Scene::start().await;
    scene.node.terminate().await;
    assert_eq!(scene.node.ended().await, Some(0));

    let (code, output) = reload(&scene).await;

    assert_eq!(code, Some(69), "{output}");
    assert!(output.contains("no node takes commands"), "{output}");
    scene.restart().await;
    scene.restart().await;
    scene.finish().await;
}
