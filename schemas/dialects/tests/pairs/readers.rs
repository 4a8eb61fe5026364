//! Requests as upstreams would read them, one reader per dialect, apart from every codec.

use dialects::dialect::Dialect;
use dialects::superset::tool::ToolChoice;
use serde_json::Value;

use crate::gemini_reader;
use crate::requests::{Essence, Saying};

/// What a body asks for; panics where it is none.
pub(crate) fn read(dialect: Dialect, body: &[u8]) -> Essence {
    if dialect == Dialect::Gemini {
        return gemini_reader::read(body);
    }
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let mut essence = Essence {
        temperature: body["temperature"].as_f64(),
        top_p: body["top_p"].as_f64(),
        ..Essence::default()
    };
    match dialect {
        Dialect::Responses => responses(&body, &mut essence),
        Dialect::Messages => messages(&body, &mut essence),
        _ => chat(&body, &mut essence),
    }
    essence
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn words(list: &Value) -> Vec<String> {
    self::list(list).iter().map(word).collect()
}

/// A text, or the texts of parts.
fn text(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => list(content).iter().map(|part| word(&part["text"])).collect(),
    }
}

fn instruct(essence: &mut Essence, content: &Value) {
    essence.instructions.extend(text(content).split_whitespace());
}

/// The number of the call with this id, the last one.
fn place(ids: &[String], id: &Value) -> usize {
    ids.iter()
        .rposition(|known| id == known.as_str())
        .expect("the call of a result")
}

fn call(name: &Value, arguments: &Value) -> Saying {
    let arguments = arguments.as_str().expect("arguments as text");
    let arguments: Value = serde_json::from_str(arguments).expect("an object");
    assert!(arguments.is_object());
    Saying::Call(word(name), arguments)
}

fn chat(body: &Value, essence: &mut Essence) {
    let mut ids = Vec::new();
    for message in list(&body["messages"]) {
        let content = &message["content"];
        match message["role"].as_str().expect("a role") {
            "system" | "developer" => instruct(essence, content),
            "user" => {
                let parts = content.as_str().map_or_else(
                    || list(content).iter().map(chat_part).collect(),
                    |text| vec![Saying::Text(text.to_owned())],
                );
                essence.say(false, parts);
            }
            "assistant" => {
                let said = text(content);
                essence.say(true, (!said.is_empty()).then_some(Saying::Text(said)));
                for made in list(&message["tool_calls"]) {
                    ids.push(word(&made["id"]));
                    let function = &made["function"];
                    essence.say(true, [call(&function["name"], &function["arguments"])]);
                }
            }
            "tool" => {
                let result = Saying::Result(place(&ids, &message["tool_call_id"]), text(content));
                essence.say(false, [result]);
            }
            other => panic!("{other}"),
        }
    }
    for tool in list(&body["tools"]) {
        let function = &tool["function"];
        let (name, about) = (word(&function["name"]), word(&function["description"]));
        essence.tools.push((name, about, function["parameters"].clone()));
    }
    let choice = &body["tool_choice"];
    essence.choice = match choice.as_str() {
        Some("required") => Some(ToolChoice::Required),
        Some("none") => Some(ToolChoice::Never),
        _ if choice.is_object() => Some(ToolChoice::Named(word(&choice["function"]["name"]))),
        _ => None,
    };
    essence.max_tokens = body["max_tokens"]
        .as_u64()
        .or(body["max_completion_tokens"].as_u64());
    essence.stop = match body["stop"].as_str() {
        Some(stop) => vec![stop.to_owned()],
        None => words(&body["stop"]),
    };
    essence.schema = body["response_format"]["json_schema"].get("schema").cloned();
}

fn chat_part(part: &Value) -> Saying {
    match part["type"].as_str() {
        Some("text") => Saying::Text(word(&part["text"])),
        Some("image_url") => Saying::Image(word(&part["image_url"]["url"])),
        other => panic!("{other:?}"),
    }
}

fn messages(body: &Value, essence: &mut Essence) {
    instruct(essence, &body["system"]);
    let mut ids = Vec::new();
    for message in list(&body["messages"]) {
        let model = match message["role"].as_str().expect("a role") {
            "user" => false,
            "assistant" => true,
            other => panic!("{other}"),
        };
        if let Some(text) = message["content"].as_str() {
            essence.say(model, [Saying::Text(text.to_owned())]);
        }
        for block in list(&message["content"]) {
            let source = &block["source"];
            let saying = match block["type"].as_str().expect("a type") {
                "text" => Saying::Text(word(&block["text"])),
                "image" => Saying::Image(format!(
                    "data:{};base64,{}",
                    word(&source["media_type"]),
                    word(&source["data"])
                )),
                "tool_use" => {
                    ids.push(word(&block["id"]));
                    assert!(block["input"].is_object());
                    Saying::Call(word(&block["name"]), block["input"].clone())
                }
                "tool_result" => Saying::Result(place(&ids, &block["tool_use_id"]), text(&block["content"])),
                other => panic!("{other}"),
            };
            essence.say(model, [saying]);
        }
    }
    for tool in list(&body["tools"]) {
        let (name, about) = (word(&tool["name"]), word(&tool["description"]));
        essence.tools.push((name, about, tool["input_schema"].clone()));
    }
    let choice = &body["tool_choice"];
    essence.choice = match choice["type"].as_str() {
        Some("any") => Some(ToolChoice::Required),
        Some("none") => Some(ToolChoice::Never),
        Some("tool") => Some(ToolChoice::Named(word(&choice["name"]))),
        _ => None,
    };
    essence.max_tokens = body["max_tokens"].as_u64();
    essence.stop = words(&body["stop_sequences"]);
    essence.schema = body["output_config"]["format"].get("schema").cloned();
}

fn responses(body: &Value, essence: &mut Essence) {
    instruct(essence, &body["instructions"]);
    let mut ids = Vec::new();
    for item in list(&body["input"]) {
        match item["type"].as_str().expect("a type") {
            "message" => responses_message(item, essence),
            "function_call" => {
                ids.push(word(&item["call_id"]));
                essence.say(true, [call(&item["name"], &item["arguments"])]);
            }
            "function_call_output" => {
                let result = Saying::Result(place(&ids, &item["call_id"]), text(&item["output"]));
                essence.say(false, [result]);
            }
            other => panic!("{other}"),
        }
    }
    for tool in list(&body["tools"]) {
        let (name, about) = (word(&tool["name"]), word(&tool["description"]));
        essence.tools.push((name, about, tool["parameters"].clone()));
    }
    let choice = &body["tool_choice"];
    essence.choice = match choice.as_str() {
        Some("required") => Some(ToolChoice::Required),
        Some("none") => Some(ToolChoice::Never),
        _ if choice.is_object() => Some(ToolChoice::Named(word(&choice["name"]))),
        _ => None,
    };
    essence.max_tokens = body["max_output_tokens"].as_u64();
    essence.schema = body["text"]["format"].get("schema").cloned();
    assert_eq!(body["store"], false, "an upstream is to keep nothing");
}

fn responses_message(item: &Value, essence: &mut Essence) {
    let role = item["role"].as_str().expect("a role");
    if matches!(role, "system" | "developer") {
        return instruct(essence, &item["content"]);
    }
    let model = role == "assistant";
    for part in list(&item["content"]) {
        let saying = match part["type"].as_str().expect("a type") {
            "input_text" if !model => Saying::Text(word(&part["text"])),
            "output_text" if model => Saying::Text(word(&part["text"])),
            "input_image" if !model => Saying::Image(word(&part["image_url"])),
            other => panic!("{other}"),
        };
        essence.say(model, [saying]);
    }
}
