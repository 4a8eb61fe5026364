//! Tool calls as upstreams make them: names in pieces, and the wrong reason at the end.

use harness::{Behaviour, Model, Surface};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, rich_pairs, stream};
use super::super::surfaces::scene_of;
use crate::rows::events;

#[tokio::test]
async fn a_name_and_arguments_in_pieces_are_one_call_on_every_surface() {
    let scene = shapes::scene().await;
    let call = |id: Option<&str>, name: &str, arguments: &str| {
        let mut call = json!({"index": 0, "function": {"name": name, "arguments": arguments}});
        if let Some(id) = id {
            call["id"] = json!(id);
            call["type"] = json!("function");
        }
        delta(&json!({"tool_calls": [call]}), None)
    };
    let pieces = [
        call(Some("call_1"), "get_", ""),
        call(None, "weather", ""),
        call(None, "", r#"{"city":"#),
        call(None, "", r#""Boston"}"#),
        delta(&json!({}), Some("tool_calls")),
        "[DONE]".to_owned(),
    ];
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    for surface in Surface::RICH {
        scene.o1.script([events(&pieces)]);
        let streamed = stream(&scene, surface, "m").await;

        streamed.whole();
        let told = streamed.told();
        assert_eq!(told.calls.len(), 1, "{surface:?}: {told:?}");
        let call = &told.calls[0];
        assert_eq!(
            (call.id.as_str(), call.name.as_str()),
            ("call_1", "get_weather"),
            "{surface:?}"
        );
        assert_eq!(call.arguments, r#"{"city":"Boston"}"#, "{surface:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_call_without_arguments_can_be_made_however_its_server_writes_none() {
    let scene = shapes::scene().await;
    for none in ["", "null", r#""""#, r#""null""#, "{}"] {
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "now", "arguments": none}});
        let pieces = [
            delta(&json!({"role": "assistant", "tool_calls": [call]}), None),
            delta(&json!({}), Some("tool_calls")),
            "[DONE]".to_owned(),
        ];
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        for surface in [Surface::Responses, Surface::Messages] {
            scene.o1.script([events(&pieces)]);
            let streamed = stream(&scene, surface, "m").await;
            scene
                .o1
                .script([Behaviour::chat("").tool_calls(&[("call_1", "now", none)])]);
            let plain = ask(&scene, surface, "m").await;

            let case = format!("{surface:?}, {none:?}: {}", plain.text());
            streamed.whole();
            for told in [streamed.told(), plain.told(surface)] {
                assert_eq!(told.calls.len(), 1, "{case}");
                assert_eq!(
                    (told.calls[0].name.as_str(), told.calls[0].arguments.as_str()),
                    ("now", "{}"),
                    "{case}"
                );
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn calls_without_numbers_and_ids_are_told_apart_on_every_surface() {
    let scene = shapes::scene().await;
    let call = |name: &str, arguments: &str| {
        let call = json!({"function": {"name": name, "arguments": arguments}});
        delta(&json!({"tool_calls": [call]}), None)
    };
    let same = |id: &str, arguments: &str| {
        let call = json!({"index": 0, "id": id, "function": {"name": "get_weather", "arguments": arguments}});
        delta(&json!({"tool_calls": [call]}), None)
    };
    let end = delta(&json!({}), Some("tool_calls"));
    let (boston, paris) = (r#"{"city":"Boston"}"#, r#"{"city":"Paris"}"#);
    for surface in Surface::RICH {
        for pieces in [
            [call("get_weather", boston), call("get_weather", paris)],
            [same("a", boston), same("b", paris)],
        ] {
            let [first, second] = &pieces;
            scene.o1.script([events(&[first, second, &end, "[DONE]"])]);
            let streamed = stream(&scene, surface, "m").await;

            streamed.whole();
            let told = streamed.told();
            let arguments: Vec<&str> = told.calls.iter().map(|call| call.arguments.as_str()).collect();
            assert_eq!(arguments, [boston, paris], "{surface:?}");
            let ids: Vec<&str> = told.calls.iter().map(|call| call.id.as_str()).collect();
            assert!(
                !ids[0].is_empty() && !ids[1].is_empty() && ids[0] != ids[1],
                "{surface:?}: {ids:?}"
            );
        }
    }
    scene.finish().await;
}

/// A chunk of chat as an event's data.
fn delta(delta: &Value, finish: Option<&str>) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices})
        .to_string()
}

#[tokio::test]
async fn calls_that_stopped_are_calls_and_those_that_ran_out_of_room_are_not() {
    let scene = shapes::scene().await;
    let calls = [("call_1", "get_weather", r#"{"city":"Boston"}"#)];
    for (surface, shape) in rich_pairs() {
        // An answer of Messages passes to callers of Messages byte for byte, its reason too.
        let passes = (surface, shape) == (Surface::Messages, Shape::Messages);
        let stopped = if passes { "stop" } else { "tool_calls" };
        for (reason, told_reason) in [("stop", stopped), ("length", "length")] {
            let behaviour = Behaviour::chat("").tool_calls(&calls).usage(9, 20).finish(reason);
            scene.o1.script([behaviour.clone(), behaviour]);
            let plain = ask(&scene, surface, shape.model()).await.told(surface);
            let streamed = stream(&scene, surface, shape.model()).await;

            streamed.whole();
            for told in [plain, streamed.told()] {
                let case = format!("{surface:?} of {shape:?}, {reason}: {told:?}");
                assert_eq!(told.finish, told_reason, "{case}");
                assert_eq!(told.calls.len(), 1, "{case}");
                assert_eq!(told.calls[0].arguments, r#"{"city":"Boston"}"#, "{case}");
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn calls_that_are_written_as_text_keep_the_types_of_their_values_whatever_their_tool_is_called() {
    let scene = scene_of(|o1, _| vec![Model::new("m").leg(o1, 0).set_leg("processor", "qwen_coder")]).await;
    let schema =
        json!({"type": "object", "properties": {"zip": {"type": "string"}, "days": {"type": "integer"}}});
    for name in ["weather", "weather.of/places"] {
        let mut body = Surface::Messages.ask("m");
        body["tools"] = json!([{"name": name, "input_schema": schema}]);
        scene.o1.default(Behaviour::chat("never mind"));
        scene.client.post(Surface::Messages, &body).await;
        let told = scene.o1.call(scene.o1.calls() - 1).request.json();
        let told = told["tools"][0]["function"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let function = format!(
            "<function={told}>\n<parameter=zip>\n12345\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>"
        );
        // The model leaves the tag in front of a call out now and then.
        for text in [
            format!("<tool_call>\n{function}\n</tool_call>"),
            format!("{function}\n</tool_call>"),
        ] {
            scene.o1.default(Behaviour::chat(&text));

            let answer = scene.client.post(Surface::Messages, &body).await;
            let streamed = scene.client.stream(Surface::Messages, &streamed(&body)).await;
            let streamed = streamed.collect().await;

            let call = &answer.json()["content"][0];
            assert_eq!(
                (&call["type"], &call["name"]),
                (&json!("tool_use"), &json!(name)),
                "{text}"
            );
            assert_eq!(call["input"], json!({"zip": "12345", "days": 3}), "{text}");
            assert_eq!(answer.json()["stop_reason"], "tool_use");
            let calls = &streamed.told().calls;
            assert_eq!(calls.len(), 1, "{text}");
            assert_eq!(
                (calls[0].name.as_str(), &calls[0].input()),
                (name, &call["input"])
            );
        }
    }
    scene.finish().await;
}

fn streamed(body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body
}
