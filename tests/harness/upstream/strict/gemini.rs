//! What Gemini's generateContent refuses.

use serde_json::Value;

use super::super::request::Received;
use super::{Judged, base64, filled, list, must, name, only, refuse, within};

const BODY: &[&str] = &[
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
];
const CONFIG: &[&str] = &[
    "temperature",
    "topP",
    "topK",
    "candidateCount",
    "maxOutputTokens",
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "presencePenalty",
    "frequencyPenalty",
    "seed",
    "responseLogprobs",
    "logprobs",
    "thinkingConfig",
];
const PART: &[&str] = &[
    "text",
    "thought",
    "thoughtSignature",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
];
/// What the subset of schemas in `parameters` does not know.
const NO_SCHEMA: &[&str] = &[
    "$schema",
    "additionalProperties",
    "$ref",
    "$defs",
    "oneOf",
    "const",
    "exclusiveMinimum",
    "exclusiveMaximum",
];
/// What stands for a signature that is lost, by the provider's own documentation.
const SKIPS: &[&str] = &[
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
];
/// Stop sequences of a request.
const STOPS_MAX: usize = 5;

pub(super) fn judge(request: &Received, body: &Value) -> Judged {
    must(!request.target.contains("key="), "the key is not for addresses")?;
    let streamed = request.target.contains(":streamGenerateContent");
    must(
        !streamed || request.target.contains("alt=sse"),
        "a stream without alt=sse is a list",
    )?;
    let key = request
        .header("x-goog-api-key")
        .or_else(|| request.header("authorization"));
    must(key.is_some(), "x-goog-api-key: header is required")?;
    only(body, BODY, "body")?;
    config(&body["generationConfig"])?;
    for part in body["systemInstruction"]["parts"]
        .as_array()
        .into_iter()
        .flatten()
    {
        only(part, &["text"], "systemInstruction.parts")?;
        filled(part, "text", "systemInstruction.parts")?;
    }
    let declared = tools(body)?;
    tool_config(&body["toolConfig"], &declared)?;
    let contents = list(body, "contents", "body")?;
    for (at, content) in contents.iter().enumerate() {
        let at = format!("contents[{at}]");
        only(content, &["role", "parts"], &at)?;
        must(
            matches!(content["role"].as_str(), Some("user" | "model")),
            format!("{at}.role: please use user or model"),
        )?;
        list(content, "parts", &at)?
            .iter()
            .try_for_each(|part| self::part(content, part, &at))?;
    }
    must(
        contents.first().is_some_and(|content| content["role"] == "user"),
        "contents: the first turn is the user's",
    )?;
    turns(contents)
}

fn config(config: &Value) -> Judged {
    if config.is_null() {
        return Ok(());
    }
    only(config, CONFIG, "generationConfig")?;
    within(config, "temperature", (0.0, 2.0))?;
    within(config, "topP", (0.0, 1.0))?;
    within(config, "maxOutputTokens", (1.0, 1e9))?;
    let stops = config["stopSequences"].as_array().map_or(0, Vec::len);
    must(stops <= STOPS_MAX, "generationConfig.stopSequences: too many")?;
    let thinking = &config["thinkingConfig"];
    if !thinking.is_null() {
        only(
            thinking,
            &["includeThoughts", "thinkingBudget", "thinkingLevel"],
            "thinkingConfig",
        )?;
        let both = thinking.get("thinkingBudget").is_some() && thinking.get("thinkingLevel").is_some();
        must(!both, "thinkingConfig: a budget and a level")?;
    }
    let schema = config.get("responseSchema").is_some() || config.get("responseJsonSchema").is_some();
    must(
        !schema || config["responseMimeType"] == "application/json",
        "a schema needs responseMimeType application/json",
    )
}

fn tools(body: &Value) -> Judged<Vec<String>> {
    let mut names = Vec::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        only(tool, &["functionDeclarations"], "tools")?;
        for function in list(tool, "functionDeclarations", "tools")? {
            let members = [
                "name",
                "description",
                "parameters",
                "parametersJsonSchema",
                "behavior",
            ];
            only(function, &members, "functionDeclarations")?;
            let word = filled(function, "name", "functionDeclarations")?;
            name(word, 64, ".:")?;
            must(
                !word.starts_with(|first: char| first.is_ascii_digit()),
                "a name begins with a digit",
            )?;
            must(
                !names.iter().any(|other| other == word),
                "functionDeclarations: duplicate name",
            )?;
            names.push(word.to_owned());
            let both = function.get("parameters").is_some() && function.get("parametersJsonSchema").is_some();
            must(!both, "functionDeclarations: parameters and parametersJsonSchema")?;
            if let Some(parameters) = function.get("parameters") {
                let text = parameters.to_string();
                let unknown = NO_SCHEMA
                    .iter()
                    .find(|word| text.contains(&format!("\"{word}\":")));
                must(unknown.is_none(), format!("parameters: unknown name {unknown:?}"))?;
            }
        }
    }
    Ok(names)
}

fn tool_config(config: &Value, declared: &[String]) -> Judged {
    if config.is_null() {
        return Ok(());
    }
    only(config, &["functionCallingConfig"], "toolConfig")?;
    let calling = &config["functionCallingConfig"];
    only(
        calling,
        &["mode", "allowedFunctionNames"],
        "functionCallingConfig",
    )?;
    let mode = calling["mode"].as_str().unwrap_or_default();
    must(
        matches!(mode, "AUTO" | "ANY" | "NONE" | "VALIDATED"),
        format!("mode: {mode:?} is not known"),
    )?;
    must(
        mode == "NONE" || !declared.is_empty(),
        "toolConfig without functions",
    )?;
    for allowed in calling["allowedFunctionNames"].as_array().into_iter().flatten() {
        must(
            matches!(mode, "ANY" | "VALIDATED"),
            "allowedFunctionNames: only with ANY",
        )?;
        must(
            declared.iter().any(|name| allowed == name.as_str()),
            format!("allowedFunctionNames: {allowed} is not declared"),
        )?;
    }
    Ok(())
}

fn part(content: &Value, part: &Value, at: &str) -> Judged {
    only(part, PART, at)?;
    let data = [
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
    ];
    let told = data.iter().filter(|member| part.get(**member).is_some()).count();
    must(
        told == 1,
        format!("{at}: a part has exactly one kind of data: {part}"),
    )?;
    let model = content["role"] == "model";
    if let Some(text) = part.get("text") {
        must(
            text.as_str().is_some_and(|text| !text.is_empty()),
            format!("{at}: empty text"),
        )?;
    } else if let Some(data) = part.get("inlineData") {
        only(data, &["mimeType", "data"], at)?;
        filled(data, "mimeType", at)?;
        base64(filled(data, "data", at)?)?;
    } else if let Some(file) = part.get("fileData") {
        only(file, &["mimeType", "fileUri"], at)?;
        filled(file, "fileUri", at)?;
    } else if let Some(call) = part.get("functionCall") {
        only(call, &["id", "name", "args"], at)?;
        filled(call, "name", at)?;
        must(
            model && matches!(call.get("args"), None | Some(Value::Object(_))),
            format!("{at}: no function call: {part}"),
        )?;
    } else if let Some(response) = part.get("functionResponse") {
        only(response, &["id", "name", "response"], at)?;
        filled(response, "name", at)?;
        must(
            !model && response["response"].is_object(),
            format!("{at}: no function response: {part}"),
        )?;
    }
    match part.get("thoughtSignature") {
        None => Ok(()),
        Some(Value::String(skip)) if SKIPS.contains(&skip.as_str()) => Ok(()),
        Some(Value::String(proof)) => must(
            base64(proof)?.starts_with(b"sig:"),
            format!("{at}: invalid thought signature"),
        ),
        Some(_) => refuse(format!("{at}: invalid thought signature")),
    }
}

/// Calls are answered in the next turn, each by its name, and the first of them carries its signature.
fn turns(contents: &[Value]) -> Judged {
    let names = |content: Option<&Value>, kind: &str| -> Vec<String> {
        let parts = content
            .and_then(|content| content["parts"].as_array())
            .into_iter()
            .flatten();
        parts
            .filter_map(|part| part[kind]["name"].as_str().map(str::to_owned))
            .collect()
    };
    for (at, content) in contents.iter().enumerate() {
        let calls = names(Some(content), "functionCall");
        let answers = names(contents.get(at + 1), "functionResponse");
        if at + 1 < contents.len() {
            must(
                calls == answers,
                format!("contents[{at}]: calls {calls:?} are answered by {answers:?}"),
            )?;
        }
        let mut parts = content["parts"].as_array().into_iter().flatten();
        if let Some(first) = parts.find(|part| part.get("functionCall").is_some()) {
            must(
                first.get("thoughtSignature").is_some(),
                format!("contents[{at}]: function call is missing a thought_signature"),
            )?;
        }
    }
    must(
        names(contents.first(), "functionResponse").is_empty(),
        "contents[0]: a response to no call",
    )
}
