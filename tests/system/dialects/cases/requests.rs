//! Requests as upstreams see them: one system message, arguments that are objects, results in their place.

use harness::{Behaviour, PROMPT_CANARY, Scene, Surface};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape};

/// What the upstream was sent last.
fn last_sent(scene: &Scene) -> Value {
    scene.o1.call(scene.o1.calls() - 1).request.json()
}

async fn send(scene: &Scene, surface: Surface, body: &Value) -> (Value, String) {
    let answer = scene.client.post(surface, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(scene.o1.refusals(), Vec::<String>::new(), "{body:#}");
    (last_sent(scene), answer.header("x-waybill-dropped").to_owned())
}

#[tokio::test]
async fn an_upstream_sees_exactly_one_system_message_and_sees_it_first() {
    let scene = shapes::strict_scene().await;
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    let hi = || turn("user", &format!("say hi, {PROMPT_CANARY}"));
    let conversations = [
        vec![turn("system", "be brief"), turn("system", "be kind"), hi()],
        vec![
            turn("system", "be brief"),
            hi(),
            turn("assistant", "hi"),
            turn("system", "be kind"),
            turn("user", "on"),
        ],
        vec![hi(), turn("system", "be brief, be kind")],
        vec![turn("developer", "be brief"), turn("system", "be kind"), hi()],
    ];
    for messages in conversations {
        for shape in Shape::ALL {
            let mut body = Surface::Chat.ask(shape.model());
            body["messages"] = json!(messages);
            let (sent, _) = send(&scene, Surface::Chat, &body).await;
            assert_one_system(shape, &sent);
            if shape == Shape::Responses {
                let first = (messages[0]["role"] == "system").then_some("be brief");
                assert_eq!(sent["instructions"], json!(first), "{sent:#}");
            }
        }
    }
    let mut body = Surface::Messages.ask("m");
    body["system"] = json!([{"type": "text", "text": "be brief"}, {"type": "text", "text": "be"}]);
    body["messages"] = json!([
        hi(),
        turn("assistant", "hi"),
        turn("system", "be kind"),
        turn("user", "on")
    ]);
    for model in ["m", "gm"] {
        body["model"] = json!(model);
        let (sent, _) = send(&scene, Surface::Messages, &body).await;
        assert_one_system(if model == "m" { Shape::Chat } else { Shape::Gemini }, &sent);
    }
    scene.finish().await;
}

/// Panics unless the instructions stand in one place, at the front, and none of them is lost.
fn assert_one_system(shape: Shape, sent: &Value) {
    let text = sent.to_string();
    for word in ["be brief", "be kind"] {
        assert_eq!(text.matches(word).count(), 1, "{word} in {sent:#}");
    }
    let (turns, role) = match shape {
        Shape::Chat => ("messages", "system"),
        Shape::Messages => ("messages", "no such role"),
        Shape::Gemini => ("contents", "no such role"),
        Shape::Responses => ("input", "system"),
    };
    let turns = sent[turns].as_array().expect("turns");
    let places: Vec<usize> = (0..turns.len())
        .filter(|place| turns[*place]["role"] == role)
        .collect();
    match shape {
        Shape::Chat => assert_eq!(places, [0], "{sent:#}"),
        // Instructions amid a conversation stay where they are: the strict upstream was told that there may be some.
        Shape::Messages | Shape::Responses => {}
        Shape::Gemini => assert!(!sent["systemInstruction"]["parts"].is_null(), "{sent:#}"),
    }
}

/// A conversation with a call of these arguments, its result, and a question after it.
fn with_arguments(surface: Surface, model: &str, arguments: &Value) -> Value {
    let mut body = surface.ask(model);
    let hi = format!("say hi, {PROMPT_CANARY}");
    match surface {
        Surface::Responses => {
            body["input"] = json!([{"role": "user", "content": hi},
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": arguments},
                {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
                {"role": "user", "content": "and?"}]);
        }
        Surface::Messages => {
            body["messages"] = json!([{"role": "user", "content": hi},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": arguments}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "seen"},
                    {"type": "text", "text": "and?"}]}]);
        }
        Surface::Chat | Surface::Completions => {
            let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}});
            body["messages"] = json!([{"role": "user", "content": hi},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
                {"role": "user", "content": "and?"}]);
        }
    }
    body
}

/// The arguments that an upstream was sent, as JSON.
fn arguments_sent(shape: Shape, sent: &Value) -> Value {
    let (turns, parts, call) = match shape {
        Shape::Chat => ("/messages", "/tool_calls", "/function/arguments"),
        Shape::Messages => ("/messages", "/content", "/input"),
        Shape::Gemini => ("/contents", "/parts", "/functionCall/args"),
        // An item is a turn and its only part.
        Shape::Responses => ("/input", "", "/arguments"),
    };
    let list = |value: Option<&Value>| match value {
        Some(Value::Array(list)) => list.clone(),
        other => other.cloned().into_iter().collect(),
    };
    let turns = list(sent.pointer(turns));
    let mut parts = turns.iter().flat_map(|turn| list(turn.pointer(parts)));
    let found = parts.find_map(|part| part.pointer(call).cloned());
    let found = found.unwrap_or_else(|| panic!("no arguments in {sent:#}"));
    if let Some(text) = found.as_str() {
        return serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {sent:#}"));
    }
    let is_text = matches!(shape, Shape::Chat | Shape::Responses);
    assert!(!is_text, "arguments are text: {sent:#}");
    found
}

#[tokio::test]
async fn arguments_of_earlier_calls_are_objects_whatever_the_caller_remembers() {
    let scene = shapes::strict_scene().await;
    let empty = || json!({});
    let cases = [
        (json!("{"), empty()),
        (json!(""), empty()),
        (json!("[\"x\"]"), empty()),
        (json!("{\"a\": [1.5]}"), json!({"a": [1.5]})),
        (json!({"a": 1}), json!({"a": 1})),
    ];
    for surface in [Surface::Chat, Surface::Responses] {
        for shape in Shape::ALL {
            for (arguments, expected) in &cases {
                // The API of Responses has arguments as text alone.
                if surface == Surface::Responses && arguments.is_object() {
                    continue;
                }
                let body = with_arguments(surface, shape.model(), arguments);
                let (sent, _) = send(&scene, surface, &body).await;
                let case = format!("{surface:?} of {shape:?}, {arguments}: {sent:#}");
                assert_eq!(&arguments_sent(shape, &sent), expected, "{case}");
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_input_that_is_no_object_is_mended_and_marks_of_caches_are_dropped_with_one_word() {
    let scene = shapes::strict_scene().await;
    let input = json!("{}\"\"");
    for shape in [Shape::Chat, Shape::Gemini] {
        let mut body = with_arguments(Surface::Messages, shape.model(), &input);
        let mark = json!({"type": "ephemeral"});
        body["system"] = json!([{"type": "text", "text": "be brief", "cache_control": mark}]);
        body["messages"][0]["content"] =
            json!([{"type": "text", "text": format!("say hi, {PROMPT_CANARY}"), "cache_control": mark}]);
        body["messages"][1]["content"] = json!([
            {"type": "thinking", "thinking": "look first", "signature": "sig-x"},
            body["messages"][1]["content"][0]]);
        body["thinking"] = json!({"type": "adaptive"});

        let (sent, dropped) = send(&scene, Surface::Messages, &body).await;

        assert_eq!(arguments_sent(shape, &sent), json!({}), "{sent:#}");
        let text = sent.to_string();
        assert!(
            !text.contains("cache_control") && !text.contains("sig-x"),
            "{sent:#}"
        );
        // Nobody but their maker takes such thoughts; that they do not arrive is told.
        assert_eq!(dropped, "cache_control, messages.content.thinking", "{shape:?}");
        assert!(!text.contains("look first"), "{sent:#}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_of_messages_sees_marks_of_caches_as_they_were_made() {
    let scene = shapes::strict_scene().await;
    let mut body = with_arguments(Surface::Messages, "am", &json!({"a": 1}));
    body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});

    let (sent, dropped) = send(&scene, Surface::Messages, &body).await;

    assert_eq!((sent, dropped.as_str()), (body, ""));
    scene.finish().await;
}

/// Puts what the user says before the result of the call.
fn swap(body: &mut Value) {
    let blocks = body["messages"][2]["content"].as_array_mut().expect("blocks");
    blocks.reverse();
}

#[tokio::test]
async fn the_result_of_a_call_comes_before_what_else_the_user_said() {
    let scene = shapes::strict_scene().await;
    scene.o1.default(Behaviour::chat("seen").usage(9, 20));

    let mut body = with_arguments(Surface::Messages, "m", &json!({"a": 1}));
    swap(&mut body);
    let (chat, _) = send(&scene, Surface::Messages, &body).await;
    let mut body = with_arguments(Surface::Chat, "am", &json!("{\"a\":1}"));
    let (messages, _) = send(&scene, Surface::Chat, &body).await;
    body["model"] = json!("gm");
    let (gemini, _) = send(&scene, Surface::Chat, &body).await;
    let mut body = with_arguments(Surface::Messages, "gm", &json!({"a": 1}));
    swap(&mut body);
    let (gemini_too, _) = send(&scene, Surface::Messages, &body).await;

    let roles: Vec<&str> = chat["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|message| message["role"].as_str())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"], "{chat:#}");
    assert_eq!(
        (&chat["messages"][2]["content"], &chat["messages"][3]["content"]),
        (&json!("seen"), &json!("and?"))
    );
    let last = messages["messages"][2]["content"].as_array().expect("blocks");
    let kinds: Vec<&str> = last.iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["tool_result", "text"], "{messages:#}");
    for sent in [gemini, gemini_too] {
        let response = &sent["contents"][2]["parts"][0]["functionResponse"];
        assert_eq!(response["response"], json!({"result": "seen"}), "{sent:#}");
        assert_eq!(
            sent["contents"][3]["parts"],
            json!([{"text": "and?"}]),
            "{sent:#}"
        );
    }
    scene.finish().await;
}
