//! Reads a request of generateContent as Gemini would, for tests alone: no caller speaks it.

use dialects::superset::tool::ToolChoice;
use serde_json::Value;

use crate::requests::{Essence, Saying};

/// What a body asks for; panics where it is none.
pub(crate) fn read(body: &[u8]) -> Essence {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let mut essence = Essence::default();
    for part in list(&body["systemInstruction"]["parts"]) {
        essence
            .instructions
            .extend(part["text"].as_str().expect("text").split_whitespace());
    }
    // Calls that wait for their results: name and number.
    let (mut open, mut calls): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    for content in list(&body["contents"]) {
        let mut sayings = Vec::new();
        for part in list(&content["parts"]) {
            if let Some(text) = part["text"].as_str() {
                sayings.push(Saying::Text(text.to_owned()));
            } else if let Some(data) = part["inlineData"].as_object() {
                let word = |member: &str| data[member].as_str().unwrap_or_default();
                sayings.push(Saying::Image(format!(
                    "data:{};base64,{}",
                    word("mimeType"),
                    word("data")
                )));
            } else if part["functionCall"].is_object() {
                let name = part["functionCall"]["name"].as_str().expect("a name").to_owned();
                open.push((name.clone(), calls));
                calls += 1;
                sayings.push(Saying::Call(name, part["functionCall"]["args"].clone()));
            } else {
                let response = &part["functionResponse"];
                let place = open
                    .iter()
                    .position(|(name, _)| response["name"] == name.as_str())
                    .expect("its call");
                let (_, number) = open.remove(place);
                let result = response["response"]["result"].as_str().unwrap_or_default();
                sayings.push(Saying::Result(number, result.to_owned()));
            }
        }
        essence.say(content["role"] == "model", sayings);
    }
    settings(&body, &mut essence);
    essence
}

fn settings(body: &Value, essence: &mut Essence) {
    let config = &body["generationConfig"];
    essence.temperature = config["temperature"].as_f64();
    essence.top_p = config["topP"].as_f64();
    essence.max_tokens = config["maxOutputTokens"].as_u64();
    essence.stop = list(&config["stopSequences"])
        .iter()
        .filter_map(|stop| stop.as_str().map(str::to_owned))
        .collect();
    essence.schema = config.get("responseJsonSchema").cloned();
    for tool in list(&body["tools"]) {
        for function in list(&tool["functionDeclarations"]) {
            let word = |member: &str| function[member].as_str().unwrap_or_default().to_owned();
            essence.tools.push((
                word("name"),
                word("description"),
                function["parametersJsonSchema"].clone(),
            ));
        }
    }
    let calling = &body["toolConfig"]["functionCallingConfig"];
    let allowed = list(&calling["allowedFunctionNames"]);
    essence.choice = match (calling["mode"].as_str(), allowed.first()) {
        (Some("ANY"), Some(name)) => Some(ToolChoice::Named(name.as_str().unwrap_or_default().to_owned())),
        (Some("ANY"), None) => Some(ToolChoice::Required),
        (Some("NONE"), _) => Some(ToolChoice::Never),
        _ => None,
    };
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
