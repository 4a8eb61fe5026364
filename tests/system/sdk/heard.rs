//! What an upstream of the harness is told, read from a request of any dialect apart from the code that wrote it: the
//! last turn, and what came along with it. Pure.

use harness::{Received, Speech};
use serde_json::Value;

/// The last turn of a request, and what stands around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Its text.
    pub(crate) prompt: String,
    /// It holds results of calls.
    pub(crate) answered: bool,
    /// What the calls of the whole conversation gave, in order.
    pub(crate) results: Vec<String>,
    /// The names of the tools that are offered.
    pub(crate) tools: Vec<String>,
    /// The tool that must be called, where there is one.
    pub(crate) forced: Option<String>,
    /// The schema that the answer must keep to; null where there is none.
    pub(crate) schema: Value,
    /// Each image of the conversation: its type and its data in base64.
    pub(crate) images: Vec<(String, String)>,
    /// All instructions, wherever they stand.
    pub(crate) instructions: String,
}

impl Heard {
    /// Reads a request of any dialect.
    pub(crate) fn of(request: &Received) -> Self {
        let body = request.json();
        let turns = match Speech::of(request) {
            Speech::Gemini => &body["contents"],
            Speech::Responses => &body["input"],
            Speech::Completions => &body["prompt"],
            _ => &body["messages"],
        };
        let all = turns.as_array().map_or(&[][..], Vec::as_slice);
        let last = all.iter().rev().find(|turn| !instructs(turn)).unwrap_or(turns);
        let mut prompt = String::new();
        texts(last, &mut prompt);
        let mut images = Vec::new();
        self::images(turns, &mut images);
        let tools = tools(&body["tools"]);
        Self {
            prompt,
            answered: !results(std::slice::from_ref(last)).is_empty(),
            results: results(all),
            forced: forced(&body, &tools),
            tools,
            schema: schema(&body).clone(),
            images,
            instructions: instructions(&body, all),
        }
    }
}

/// Whether a turn instructs; such turns may stand behind what they are about.
fn instructs(turn: &Value) -> bool {
    matches!(turn["role"].as_str(), Some("system" | "developer"))
}

/// Gathers what is said in a turn.
fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => parts.iter().for_each(|part| texts(part, into)),
        Value::Object(turn) => ["content", "parts", "text"]
            .iter()
            .filter_map(|member| turn.get(*member))
            .for_each(|member| texts(member, into)),
        _ => {}
    }
}

fn text_of(value: &Value) -> String {
    let mut text = String::new();
    texts(value, &mut text);
    text
}

/// What the calls of these turns gave.
fn results(turns: &[Value]) -> Vec<String> {
    let mut results = Vec::new();
    for turn in turns {
        if turn["role"] == "tool" {
            results.push(text_of(&turn["content"]));
        }
        if turn["type"] == "function_call_output" {
            results.push(text_of(&turn["output"]));
        }
        let parts = ["content", "parts"].map(|member| turn[member].as_array());
        for part in parts.into_iter().flatten().flatten() {
            if part["type"] == "tool_result" {
                results.push(text_of(&part["content"]));
            } else if let Some(response) = part["functionResponse"]["response"].as_object() {
                results.push(response.values().map(text_of).collect());
            }
        }
    }
    results
}

fn tools(tools: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for tool in tools.as_array().into_iter().flatten() {
        let declared = tool["functionDeclarations"].as_array();
        let declared = declared.map_or(std::slice::from_ref(tool), Vec::as_slice);
        for function in declared {
            let name = function["name"]
                .as_str()
                .or_else(|| function["function"]["name"].as_str());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

/// The tool that a request names, or the only one where it demands some call.
fn forced(body: &Value, tools: &[String]) -> Option<String> {
    let choice = &body["tool_choice"];
    let allowed = &body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"];
    let named = [&choice["name"], &choice["function"]["name"], &allowed[0]];
    if let Some(name) = named.iter().find_map(|name| name.as_str()) {
        return Some(name.to_owned());
    }
    let mode = &body["toolConfig"]["functionCallingConfig"]["mode"];
    match tools {
        [only] if choice == "required" || choice["type"] == "any" || mode == "ANY" => Some(only.clone()),
        _ => None,
    }
}

/// The schema of the answer.
fn schema(body: &Value) -> &Value {
    let places = [
        &body["response_format"]["json_schema"]["schema"],
        &body["text"]["format"]["schema"],
        &body["output_config"]["format"]["schema"],
        &body["generationConfig"]["responseJsonSchema"],
        &body["generationConfig"]["responseSchema"],
    ];
    let there = places.into_iter().find(|schema| schema.is_object());
    there.unwrap_or(&Value::Null)
}

/// Gathers images, in results of calls as well.
fn images(value: &Value, into: &mut Vec<(String, String)>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match value {
        Value::Array(all) => all.iter().for_each(|value| images(value, into)),
        Value::Object(part) => {
            let url = value["image_url"]["url"]
                .as_str()
                .or_else(|| value["image_url"].as_str());
            if let Some((kind, data)) = url.and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"))
            {
                into.push((kind.to_owned(), data.to_owned()));
            } else if value["type"] == "image" {
                let source = &value["source"];
                into.push((text(&source["media_type"]), text(&source["data"])));
            } else if let Some(data) = part.get("inlineData") {
                into.push((text(&data["mimeType"]), text(&data["data"])));
            } else {
                part.values().for_each(|value| images(value, into));
            }
        }
        _ => {}
    }
}

fn instructions(body: &Value, turns: &[Value]) -> String {
    let leading = [&body["system"], &body["instructions"], &body["systemInstruction"]];
    let late = turns.iter().filter(|turn| instructs(turn));
    let texts: Vec<String> = leading.into_iter().chain(late).map(text_of).collect();
    texts.join("\n")
}
