//! What servers of the OpenAI chat API refuse each in their own way, mended where a request passes and where it is
//! translated.

use harness::{Model, Surface, chat};
use serde_json::{Value, json};

use super::{of_kind, scene, sent};

fn tool(parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": "f", "parameters": parameters}})
}

/// A conversation in which a call has no result and a result has no call.
fn torn() -> Value {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "a", "content": "late"},
        {"role": "user", "content": "go on"},
    ])
}

#[tokio::test]
async fn kimi_gets_types_in_the_branches_and_no_top_p() {
    let scene = scene(|o1| vec![of_kind(o1, "kimi")]).await;
    let schema = json!({
        "type": "object", "properties": {"p": {"type": "string", "anyOf": [{"pattern": "x"}, {"type": "string"}]}},
    });
    let expected = json!({
        "type": "object", "properties": {"p": {"anyOf": [{"type": "string", "pattern": "x"}, {"type": "string"}]}},
    });
    let mut passing = chat("m");
    passing["tools"] = json!([tool(&schema)]);
    passing["top_p"] = json!(0.5);
    let mut translated = Surface::Messages.ask("m");
    translated["tools"] = json!([{"name": "f", "input_schema": schema}]);
    translated["top_p"] = json!(0.5);

    let passed = scene.client.post_chat(&passing).await;
    let written = scene.client.post(Surface::Messages, &translated).await;

    for (call, answer) in [(0, passed), (1, written)] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-waybill-dropped"), "top_p");
        let body = sent(&scene.o1, call);
        assert_eq!(body["tools"][0]["function"]["parameters"], expected, "{body}");
        assert_eq!(body["top_p"], Value::Null);
    }
    scene.finish().await;
}

#[tokio::test]
async fn minimax_gets_calls_and_results_together_and_a_schema_for_every_tool() {
    let scene = scene(|o1| vec![of_kind(o1, "minimax").set_leg("processor", "default")]).await;
    let mut passing = chat("m");
    passing["messages"] = torn();
    passing["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);

    let answer = scene.client.post_chat(&passing).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-waybill-dropped"), "messages.1.tool_calls.0");
    let body = sent(&scene.o1, 0);
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "go"},
            {
                "role": "assistant", "content": null,
                "tool_calls": [{"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "user", "content": "and?"},
            {"role": "user", "content": "late"},
            {"role": "user", "content": "go on"},
        ])
    );
    scene.finish().await;
}

#[tokio::test]
async fn minimax_gets_the_same_where_its_text_is_read_for_thoughts() {
    let scene = scene(|o1| vec![of_kind(o1, "minimax").set_leg("processor", "think_block")]).await;
    scene
        .o1
        .default(harness::Behaviour::chat("<think>so it is</think> yes"));
    let mut translated = chat("m");
    // Where requests are written anew, late results find their calls; those without one are the user's words.
    translated["messages"] = torn();
    translated["messages"][4]["tool_call_id"] = json!("z");
    translated["tools"] = json!([tool(&json!({}))]);

    let answer = scene.client.post_chat(&translated).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-waybill-dropped"), "tool_calls");
    let body = sent(&scene.o1, 0);
    let said: Vec<(&str, Value)> = body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| {
            (
                message["role"].as_str().expect("a role"),
                message["content"].clone(),
            )
        })
        .collect();
    let expected = [
        ("user", json!("go")),
        ("assistant", json!("")),
        ("tool", json!("2")),
        ("user", json!("and?")),
        ("user", json!("late")),
        ("user", json!("go on")),
    ];
    assert_eq!(said, expected);
    assert_eq!(
        body["messages"][1]["tool_calls"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
    assert_eq!(answer.content(), "yes");
    scene.finish().await;
}

#[tokio::test]
async fn others_get_the_same_requests_as_they_are() {
    let scene = scene(|o1| vec![Model::new("m").leg(o1, 0)]).await;
    let mut body = chat("m");
    body["messages"] = torn();
    body["tools"] = json!([tool(&json!({"type": "object", "anyOf": [{"required": ["a"]}]}))]);
    body["top_p"] = json!(0.5);

    let answer = scene.client.post_chat(&body).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-waybill-dropped"), "");
    assert_eq!(sent(&scene.o1, 0), body);
    scene.finish().await;
}

#[tokio::test]
async fn mistral_and_groq_get_none_of_the_hints_that_they_refuse() {
    let scene = scene(|o1| {
        let groq = Model::new("g").leg(o1, 0).set_leg("profile", "groq");
        vec![of_kind(o1, "mistral"), groq]
    })
    .await;
    for model in ["m", "g"] {
        let mut body = chat(model);
        body["store"] = json!(true);
        body["metadata"] = json!({"a": "b"});
        body["messages"] = json!([{"role": "user", "name": "alice", "content": "hi"}]);

        let answer = scene.client.post_chat(&body).await;

        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-waybill-dropped"), "name, store, metadata");
    }
    let stream = scene
        .client
        .stream_chat(&harness::chat_streamed_with_usage("m"))
        .await
        .collect()
        .await;
    assert!(stream.whole().starts_with("ok "), "{}", stream.text());
    for call in 0..3 {
        let body = sent(&scene.o1, call);
        assert_eq!(body["messages"][0]["name"], Value::Null, "{body}");
        for member in ["store", "metadata"] {
            assert_eq!(body[member], Value::Null, "{body}");
        }
    }
    assert_eq!(sent(&scene.o1, 2)["stream_options"], Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn mistral_gets_its_own_names_for_what_it_would_refuse() {
    let scene = scene(|o1| vec![of_kind(o1, "mistral")]).await;
    let mut passing = chat("m");
    passing["seed"] = json!(7);
    passing["max_completion_tokens"] = json!(9);
    let translated = Surface::Responses.ask("m");

    let passed = scene.client.post_chat(&passing).await;
    let written = scene.client.post(Surface::Responses, &translated).await;

    assert_eq!((passed.status, written.status), (200, 200), "{}", passed.text());
    assert_eq!(passed.header("x-waybill-dropped"), "");
    let body = sent(&scene.o1, 0);
    assert_eq!(
        (&body["random_seed"], &body["max_tokens"]),
        (&json!(7), &json!(9))
    );
    for name in ["seed", "max_completion_tokens"] {
        assert_eq!(body.get(name), None, "{body}");
    }
    scene.finish().await;
}
