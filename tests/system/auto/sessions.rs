//! A session stays with the model that answered it.

use harness::{Behaviour, chat};
use serde_json::json;

use super::{choice_of, routed, scene, set, until};

#[tokio::test]
async fn a_session_stays_with_its_model_unless_that_fails() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("cheap"));
    scene.o2.default(Behaviour::chat("dear"));
    super::say(&scene, "cheap", json!({"quality_weight": 0.2})).await;
    set(&scene, true, "quality").await;
    let session = scene.client.with_header("x-session-id", "conversation-1");
    until(&session, |answer| routed(answer) == "dear").await;

    set(&scene, true, "cost").await;
    until(&scene.client, |answer| routed(answer) == "cheap").await;
    let mut asked = chat("auto");
    asked["prompt_cache_key"] = json!("conversation-2");
    let answer = session.post_chat(&chat("auto")).await;
    assert_eq!(routed(&answer), "dear");
    assert_eq!(choice_of(&scene, &answer).await["session_model"], "dear");
    assert_eq!(
        routed(&scene.client.post_chat(&asked).await),
        "cheap",
        "another session"
    );

    scene.o2.script([Behaviour::error(500, "boom")]);
    assert_eq!(routed(&session.post_chat(&chat("auto")).await), "cheap");
    super::say(&scene, "cheap", json!({"cost_weight": 0})).await;
    until(&scene.client, |answer| routed(answer) == "dear").await;
    assert_eq!(
        routed(&session.post_chat(&chat("auto")).await),
        "cheap",
        "it went there"
    );
    assert_eq!(routed(&scene.client.post_chat(&asked).await), "cheap");
    scene.finish().await;
}
