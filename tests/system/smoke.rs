//! The shortest way through the product: started with nothing, it answers and keeps the books.

use harness::{Node, Scene, chat, chat_streamed};
use serde_json::json;

#[tokio::test]
async fn a_node_started_with_nothing_answers_with_the_last_user_message_and_books_it() {
    let mut node = Node::builder().without_config().start().await;
    let key = node.minted_key();
    let client = node.client(&key);
    let messages = json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "hello, echo"},
    ]);

    let answer = client
        .post_chat(&json!({"model": "echo", "messages": messages}))
        .await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.content(), "hello, echo");
    let row = node.wait_row_as(&key, answer.request_id()).await;
    assert_eq!(row["outcome"], "ok");
    assert_eq!(row["model"], "echo");
    assert_eq!(row["cost_nano_usd"], 0);
    node.check_books().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_plain_and_a_streamed_chat_reach_the_upstream_and_the_books() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(harness::Behaviour::chat("hello there {call}").usage(9, 20));

    let plain = scene.client.post_chat(&chat("m")).await;
    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(plain.status, 200, "{}", plain.text());
    assert_eq!(plain.content(), format!("hello there {}", scene.o1.call(0).word));
    assert_eq!(streamed.whole(), format!("hello there {}", scene.o1.call(1).word));
    for id in [plain.request_id(), streamed.request_id()] {
        let row = scene.row(id).await;
        assert_eq!(
            (&row["outcome"], &row["cost_nano_usd"]),
            (&json!("ok"), &json!(178_000)),
            "{row}"
        );
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}
