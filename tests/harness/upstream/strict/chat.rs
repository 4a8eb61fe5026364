//! What OpenAI's chat completions refuses.

use serde_json::Value;

use super::{Judged, base64, filled, list, must, name, only, refuse, within};

const BODY: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "user",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "modalities",
    "audio",
    "prediction",
    "functions",
    "function_call",
    "web_search_options",
];
/// Characters of an id of a call.
const CALL_ID_MAX: usize = 40;
/// Texts that end an answer.
const STOPS_MAX: usize = 4;

pub(super) fn judge(body: &Value) -> Judged {
    only(body, BODY, "body")?;
    filled(body, "model", "body")?;
    within(body, "temperature", (0.0, 2.0))?;
    within(body, "top_p", (0.0, 1.0))?;
    within(body, "max_tokens", (1.0, 1e9))?;
    within(body, "max_completion_tokens", (1.0, 1e9))?;
    let both = body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some();
    must(
        !both,
        "setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported",
    )?;
    must(
        body.get("stream_options").is_none() || body["stream"] == true,
        "stream_options: only allowed when stream is set",
    )?;
    must(
        body["stop"]
            .as_array()
            .is_none_or(|stops| stops.len() <= STOPS_MAX),
        "stop: too many entries",
    )?;
    let names = tools(body)?;
    choice(body, &names)?;
    format(&body["response_format"])?;
    let messages = list(body, "messages", "body")?;
    messages
        .iter()
        .enumerate()
        .try_for_each(|(at, message)| self::message(message, &format!("messages[{at}]")))?;
    results(messages)
}

fn tools(body: &Value) -> Judged<Vec<&str>> {
    let mut names = Vec::new();
    if body.get("tools").is_some() {
        list(body, "tools", "body")?;
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let word = match tool["type"].as_str() {
            Some("function") => {
                only(tool, &["type", "function"], "tools")?;
                let function = &tool["function"];
                only(
                    function,
                    &["name", "description", "parameters", "strict"],
                    "tools.function",
                )?;
                let object = function["parameters"]["type"] == "object" || function["parameters"].is_null();
                must(
                    object,
                    format!("invalid schema for function: {}", function["parameters"]),
                )?;
                filled(function, "name", "tools.function")?
            }
            Some("custom") => filled(&tool["custom"], "name", "tools.custom")?,
            kind => return refuse(format!("tools.type: {kind:?} is not known")),
        };
        name(word, 64, "")?;
        must(!names.contains(&word), format!("tools: {word} is there twice"))?;
        names.push(word);
    }
    let parallel = body.get("parallel_tool_calls").is_some();
    must(
        !parallel || !names.is_empty(),
        "parallel_tool_calls: only allowed when tools are specified",
    )?;
    Ok(names)
}

fn choice(body: &Value, names: &[&str]) -> Judged {
    let choice = &body["tool_choice"];
    match choice {
        Value::Null => return Ok(()),
        Value::String(word) => must(
            matches!(word.as_str(), "auto" | "none" | "required"),
            "tool_choice: not known",
        )?,
        _ => {
            let word = choice["function"]["name"]
                .as_str()
                .or_else(|| choice["custom"]["name"].as_str());
            let allowed = choice["type"] == "allowed_tools";
            must(
                allowed || word.is_some_and(|word| names.contains(&word)),
                format!("tool_choice: {choice}"),
            )?;
        }
    }
    must(
        !names.is_empty(),
        "tool_choice: only allowed when tools are specified",
    )
}

fn format(format: &Value) -> Judged {
    match format["type"].as_str() {
        None => must(format.is_null(), "response_format.type: missing"),
        Some("text" | "json_object") => only(format, &["type"], "response_format"),
        Some("json_schema") => {
            only(format, &["type", "json_schema"], "response_format")?;
            let schema = &format["json_schema"];
            only(
                schema,
                &["name", "description", "schema", "strict"],
                "response_format.json_schema",
            )?;
            name(filled(schema, "name", "response_format.json_schema")?, 64, "")?;
            must(
                schema["schema"].is_object(),
                "response_format.json_schema.schema: missing",
            )
        }
        Some(kind) => refuse(format!("response_format.type: {kind}")),
    }
}

fn message(message: &Value, at: &str) -> Judged {
    let content = &message["content"];
    match message["role"].as_str() {
        Some("system" | "developer") => {
            only(message, &["role", "content", "name"], at)?;
            parts(content, &["text"], at)
        }
        Some("user") => {
            only(message, &["role", "content", "name"], at)?;
            parts(content, &["text", "image_url", "input_audio", "file"], at)
        }
        Some("tool") => {
            only(message, &["role", "content", "tool_call_id"], at)?;
            filled(message, "tool_call_id", at)?;
            parts(content, &["text"], at)
        }
        Some("assistant") => {
            only(
                message,
                &[
                    "role",
                    "content",
                    "name",
                    "refusal",
                    "tool_calls",
                    "audio",
                    "reasoning_content",
                ],
                at,
            )?;
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                self::call(call, at)?;
            }
            if content.is_null() {
                let other = message.get("tool_calls").is_some() || !message["refusal"].is_null();
                return must(other, format!("{at}.content: expected text or parts, got null"));
            }
            parts(content, &["text", "refusal"], at)
        }
        role => refuse(format!("{at}.role: {role:?} is not known")),
    }
}

fn call(call: &Value, at: &str) -> Judged {
    only(call, &["id", "type", "function", "custom"], at)?;
    let id = filled(call, "id", at)?;
    must(
        id.len() <= CALL_ID_MAX,
        format!("{at}: the id of a call is too long: {id}"),
    )?;
    match call["type"].as_str() {
        Some("function") => {
            only(&call["function"], &["name", "arguments"], at)?;
            name(filled(&call["function"], "name", at)?, 64, "")?;
            must(
                call["function"]["arguments"].is_string(),
                format!("{at}: arguments are text"),
            )
        }
        Some("custom") => must(
            call["custom"]["input"].is_string(),
            format!("{at}: input is text"),
        ),
        _ => refuse(format!("{at}: a call without a type")),
    }
}

fn parts(content: &Value, kinds: &[&str], at: &str) -> Judged {
    if content.is_string() {
        return Ok(());
    }
    for part in content
        .as_array()
        .filter(|parts| !parts.is_empty())
        .map_or_else(|| refuse(format!("{at}.content: no content")), Ok)?
    {
        let kind = part["type"].as_str().unwrap_or_default();
        must(
            kinds.contains(&kind),
            format!("{at}: a part of type {kind:?} has no place there"),
        )?;
        match kind {
            "text" => {
                only(part, &["type", "text"], at)?;
                must(part["text"].is_string(), format!("{at}: text is text"))?;
            }
            "image_url" => {
                only(part, &["type", "image_url"], at)?;
                only(&part["image_url"], &["url", "detail"], at)?;
                let url = filled(&part["image_url"], "url", at)?;
                match url.split_once(";base64,") {
                    Some((media, data)) => {
                        must(media.starts_with("data:image/"), format!("{at}: no image"))?;
                        base64(data)?;
                    }
                    None => must(url.starts_with("http"), format!("{at}: no address of an image"))?,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Calls are followed by one tool message each, and no tool message stands elsewhere.
fn results(messages: &[Value]) -> Judged {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(place) = open.iter().position(|call| *call == id) else {
                return refuse(format!(
                    "messages[{at}]: a tool message must follow the call it answers: {id}"
                ));
            };
            open.remove(place);
            continue;
        }
        must(
            open.is_empty(),
            format!("messages[{at}]: calls are not followed by tool messages: {open:?}"),
        )?;
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open = calls.filter_map(|call| call["id"].as_str()).collect();
    }
    must(
        open.is_empty(),
        format!("calls are not followed by tool messages: {open:?}"),
    )
}
