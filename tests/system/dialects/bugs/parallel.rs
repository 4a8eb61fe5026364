//! Parallel tool calls: each arrives with its own id, name and arguments, whole, on every surface and from every shape
//! of upstream, streamed and plain; and each result finds its call again.

use harness::{Behaviour, Surface, Told, ToldCall};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, rich_pairs, stream};

/// The three tools, and ids of calls of them.
const NAMES: [&str; 3] = ["get_weather", "write_file", "noop"];
const IDS: [&str; 3] = ["call_0", "call_1", "call_2"];

/// Arguments with everything that breaks when pieces are put together wrongly: 2 KB of it.
fn long() -> String {
    json!({"text": "a \"quoted\" | piped | \\back\\ 漢字 \u{1f642} é\n".repeat(48), "deep": {"list": [1, "{", "}"]}})
        .to_string()
}

/// Three calls after a text; the second is long and the third has no arguments.
fn calling(text: &str) -> (Behaviour, [Value; 3]) {
    let long = long();
    assert!(long.len() > 2_000, "{}", long.len());
    let calls = [
        ("call_a", "get_weather", r#"{"city":"Zürich"}"#),
        ("call_b", "write_file", long.as_str()),
        ("call_c", "noop", "{}"),
    ];
    let inputs = calls.map(|(_, _, arguments)| serde_json::from_str(arguments).expect("JSON"));
    (Behaviour::chat(text).tool_calls(&calls).usage(9, 20), inputs)
}

#[tokio::test]
async fn bug_case_31_parallel_calls_arrive_whole_on_every_surface_streamed_and_plain() {
    let scene = shapes::scene().await;
    let (behaviour, inputs) = calling("");
    scene.o1.default(behaviour);
    for (surface, shape) in rich_pairs() {
        let plain = ask(&scene, surface, shape.model()).await.told(surface);
        let streamed = stream(&scene, surface, shape.model()).await;
        streamed.whole();
        let streamed = streamed.told();

        let case = format!("{surface:?} of {shape:?}");
        assert_calls(&plain, &inputs, &case);
        assert_calls(&streamed, &inputs, &case);
        if shape != Shape::Gemini {
            let ids = |told: &Told| told.calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&plain), ["call_a", "call_b", "call_c"], "{case}");
            assert_eq!(ids(&streamed), ids(&plain), "{case}");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn text_before_calls_and_thoughts_before_text_keep_their_places() {
    let scene = shapes::scene().await;
    let (calls, inputs) = calling("let me look that up");
    scene.o1.default(calls.reasoning("which city was it? "));
    for (surface, shape) in rich_pairs() {
        let plain = ask(&scene, surface, shape.model()).await.told(surface);
        let streamed = stream(&scene, surface, shape.model()).await;
        streamed.whole();

        for told in [plain, streamed.told()] {
            let case = format!("{surface:?} of {shape:?}");
            assert_eq!(told.text, "let me look that up", "{case}");
            assert_eq!(told.reasoning, "which city was it? ", "{case}");
            assert_calls(&told, &inputs, &case);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn fragments_without_order_or_names_go_to_their_own_calls() {
    let scene = shapes::scene().await;
    let long = long();
    let sources = [r#"{"city":"Zürich"}"#, long.as_str(), r#"{"a":[{"b":"c"}]}"#];
    let expected = sources.map(|source| serde_json::from_str::<Value>(source).expect("JSON"));
    for surface in Surface::RICH {
        scene.o1.script([interleaved(&sources)]);
        let streamed = stream(&scene, surface, "m").await;

        streamed.whole();
        let told = streamed.told();
        let case = format!("{surface:?}");
        assert_eq!(told.finish, "tool_calls", "{case}");
        assert_eq!(told.calls.len(), 3, "{case}: {told:?}");
        for (place, (call, input)) in told.calls.iter().zip(&expected).enumerate() {
            assert_eq!(
                (call.id.as_str(), call.name.as_str()),
                (IDS[place], NAMES[place]),
                "{case}"
            );
            assert_eq!(&call.input(), input, "{case}");
        }
    }
    scene.finish().await;
}

/// A stream of chat in which the fragments of three calls come in an order of their own: 0, 1, 2, then 0, 2, 1, one
/// after the other; only a call's first fragment has its id and its name.
fn interleaved(sources: &[&str; 3]) -> Behaviour {
    let mut rest = sources.map(|source| source.chars().collect::<Vec<_>>());
    let mut deltas = Vec::new();
    for round in 0.. {
        let order = if round % 2 == 0 { [0, 1, 2] } else { [0, 2, 1] };
        for index in order {
            let take = rest[index].len().min(5);
            if round > 0 && take == 0 {
                continue;
            }
            let fragment: String = rest[index].drain(..take).collect();
            let mut call = json!({"index": index, "function": {"arguments": fragment}});
            if round == 0 {
                call["id"] = json!(IDS[index]);
                call["type"] = json!("function");
                call["function"]["name"] = json!(NAMES[index]);
            }
            deltas.push(json!({"tool_calls": [call]}));
        }
        if rest.iter().all(Vec::is_empty) {
            break;
        }
    }
    let chunk = |delta: Value, finish: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices});
        format!("data: {chunk}\n\n")
    };
    let mut body: String = deltas
        .into_iter()
        .map(|delta| chunk(delta, Value::Null))
        .collect();
    body.push_str(&chunk(json!({}), json!("tool_calls")));
    Behaviour::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}data: [DONE]\n\n"
    ))
}

#[tokio::test]
async fn the_results_of_parallel_calls_find_their_calls_again_at_every_strict_upstream() {
    let scene = shapes::strict_scene().await;
    let (calls, _) = calling("");
    for (surface, shape) in rich_pairs() {
        let case = format!("{surface:?} of {shape:?}");
        scene
            .o1
            .script([calls.clone(), Behaviour::chat("all three are done").usage(9, 20)]);
        let first = with_tools(surface, shape);
        let answer = scene.client.post(surface, &first).await;
        let told = answer.told(surface);
        let second = answered(surface, first, &answer.json(), &told);

        let last = scene.client.post(surface, &second).await;

        assert_eq!(scene.o1.refusals(), Vec::<String>::new(), "{case}");
        assert_eq!(last.status, 200, "{case}: {}", last.text());
        assert_eq!(last.told(surface).text, "all three are done", "{case}");
        let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
        assert_eq!(
            results_sent(shape, &sent),
            ["18 degrees", "written", "nothing"],
            "{case}: {sent:#}"
        );
    }
    scene.finish().await;
}

/// A first turn with the three tools.
fn with_tools(surface: Surface, shape: Shape) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let tool = |name: &str| match surface {
        Surface::Messages => json!({"name": name, "description": "a tool", "input_schema": schema}),
        Surface::Responses => {
            json!({"type": "function", "name": name, "description": "a tool", "parameters": schema, "strict": false})
        }
        Surface::Chat | Surface::Completions => {
            json!({"type": "function", "function": {"name": name, "description": "a tool", "parameters": schema}})
        }
    };
    let mut body = surface.ask(shape.model());
    body["tools"] = NAMES.iter().map(|name| tool(name)).collect();
    if surface == Surface::Responses {
        body["input"] = json!([{"role": "user", "content": body["input"]}]);
    }
    body
}

/// The second turn: what the model said, and what the three calls gave.
fn answered(surface: Surface, mut body: Value, answer: &Value, told: &Told) -> Value {
    let results = ["18 degrees", "written", "nothing"];
    let results = told.calls.iter().map(|call| call.id.as_str()).zip(results);
    match surface {
        Surface::Messages => {
            let blocks: Value = results
                .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
                .collect();
            let turns = body["messages"].as_array_mut().expect("messages");
            turns.push(json!({"role": "assistant", "content": answer["content"]}));
            turns.push(json!({"role": "user", "content": blocks}));
        }
        Surface::Responses => {
            let items = body["input"].as_array_mut().expect("items");
            items.extend(answer["output"].as_array().expect("items").iter().cloned());
            items
                .extend(results.map(
                    |(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text}),
                ));
        }
        Surface::Chat | Surface::Completions => {
            let turns = body["messages"].as_array_mut().expect("messages");
            turns.push(answer["choices"][0]["message"].clone());
            turns.extend(
                results.map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
            );
        }
    }
    body
}

/// The results that an upstream was sent, in order.
fn results_sent(shape: Shape, body: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other["result"]
            .as_str()
            .or(other[0]["text"].as_str())
            .unwrap_or_default()
            .to_owned(),
    };
    let (turns, parts, result) = match shape {
        Shape::Chat => {
            let turns = body["messages"].as_array().into_iter().flatten();
            let results = turns.filter(|turn| turn["role"] == "tool");
            return results.map(|turn| text(&turn["content"])).collect();
        }
        Shape::Responses => {
            let items = body["input"].as_array().into_iter().flatten();
            let results = items.filter(|item| item["type"] == "function_call_output");
            return results.map(|item| text(&item["output"])).collect();
        }
        Shape::Messages => ("messages", "content", "/content"),
        Shape::Gemini => ("contents", "parts", "/functionResponse/response"),
    };
    let turns = body[turns].as_array().into_iter().flatten();
    let parts = turns.flat_map(|turn| turn[parts].as_array().into_iter().flatten());
    parts.filter_map(|part| part.pointer(result)).map(text).collect()
}

/// Panics unless these are the three calls, ids of their own included.
fn assert_calls(told: &Told, inputs: &[Value; 3], case: &str) {
    assert_eq!(told.finish, "tool_calls", "{case}");
    let names: Vec<&str> = told.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, NAMES, "{case}");
    let told_inputs: Vec<Value> = told.calls.iter().map(ToldCall::input).collect();
    assert_eq!(told_inputs, inputs, "{case}");
    let mut ids: Vec<&str> = told.calls.iter().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{case}: {:?}", told.calls);
    assert!(ids.iter().all(|id| !id.is_empty()), "{case}");
}
