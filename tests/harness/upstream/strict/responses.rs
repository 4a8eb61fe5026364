//! What OpenAI's Responses refuses.

use serde_json::Value;

use super::{Judged, filled, list, must, name, only, refuse, within};

const BODY: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "store",
    "include",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "truncation",
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
];
/// Characters of an id of a call.
const CALL_ID_MAX: usize = 64;

pub(super) fn judge(body: &Value) -> Judged {
    only(body, BODY, "body")?;
    filled(body, "model", "body")?;
    within(body, "temperature", (0.0, 2.0))?;
    within(body, "max_output_tokens", (16.0, 1e9))?;
    must(
        body.get("previous_response_id").is_none(),
        "previous_response_id: nothing is stored here",
    )?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        self::tool(tool)?;
    }
    if let Some(text) = body.get("text") {
        only(text, &["format", "verbosity"], "text")?;
        let format = &text["format"];
        if format["type"] == "json_schema" {
            only(
                format,
                &["type", "name", "description", "schema", "strict"],
                "text.format",
            )?;
            name(filled(format, "name", "text.format")?, 64, "")?;
            must(format["schema"].is_object(), "text.format.schema: missing")?;
        }
    }
    if body["input"].is_string() {
        return Ok(());
    }
    let items = list(body, "input", "body")?;
    items
        .iter()
        .enumerate()
        .try_for_each(|(at, item)| self::item(item, &format!("input[{at}]")))?;
    results(items)
}

fn tool(tool: &Value) -> Judged {
    match tool["type"].as_str() {
        Some("function") => {
            only(
                tool,
                &["type", "name", "description", "parameters", "strict"],
                "tools",
            )?;
            name(filled(tool, "name", "tools")?, 64, "")?;
            let object = tool["parameters"]["type"] == "object" || tool["parameters"].is_null();
            must(
                object && tool.get("strict").is_some(),
                format!("tools: no function: {tool}"),
            )
        }
        Some("custom") => name(filled(tool, "name", "tools")?, 64, ""),
        Some("namespace" | "web_search" | "tool_search") => Ok(()),
        kind => refuse(format!("tools.type: {kind:?} is not known")),
    }
}

fn item(item: &Value, at: &str) -> Judged {
    let prefix = |wanted: &str| {
        let holds = item["id"].as_str().is_none_or(|id| id.starts_with(wanted));
        must(
            holds,
            format!("{at}.id: expected an id that begins with '{wanted}'"),
        )
    };
    match item["type"].as_str() {
        None | Some("message") => message(item, at),
        Some("function_call") => {
            only(
                item,
                &[
                    "type",
                    "id",
                    "call_id",
                    "name",
                    "arguments",
                    "status",
                    "namespace",
                ],
                at,
            )?;
            prefix("fc_")?;
            must(
                filled(item, "call_id", at)?.len() <= CALL_ID_MAX,
                format!("{at}.call_id: too long"),
            )?;
            name(filled(item, "name", at)?, 64, "")?;
            must(
                item["arguments"].is_string(),
                format!("{at}.arguments: must be text"),
            )
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            only(item, &["type", "id", "call_id", "output", "status"], at)?;
            must(
                item["output"].is_string() || item["output"].is_array(),
                format!("{at}.output: missing"),
            )
        }
        Some("custom_tool_call") => must(item["input"].is_string(), format!("{at}.input: missing")),
        Some("reasoning") => {
            only(
                item,
                &["type", "id", "summary", "content", "encrypted_content", "status"],
                at,
            )?;
            prefix("rs_")?;
            let proof = item["encrypted_content"].as_str();
            must(
                proof.is_none_or(|proof| proof.starts_with("enc-")),
                format!("{at}: encrypted content could not be read"),
            )?;
            must(item["summary"].is_array(), format!("{at}.summary: missing"))
        }
        kind => refuse(format!("{at}.type: {kind:?} is not known")),
    }
}

fn message(item: &Value, at: &str) -> Judged {
    only(item, &["type", "role", "content", "id", "status", "phase"], at)?;
    let id = item["id"].as_str();
    must(
        id.is_none_or(|id| id.starts_with("msg_")),
        format!("{at}.id: expected an id that begins with 'msg_'"),
    )?;
    let assistant = item["role"] == "assistant";
    let known = assistant || matches!(item["role"].as_str(), Some("user" | "system" | "developer"));
    must(known, format!("{at}.role: {} is not known", item["role"]))?;
    if item["content"].is_string() {
        return Ok(());
    }
    let kinds: &[&str] = if assistant {
        &["output_text", "refusal"]
    } else {
        &["input_text", "input_image", "input_file"]
    };
    for part in list(item, "content", at)? {
        let kind = part["type"].as_str().unwrap_or_default();
        must(
            kinds.contains(&kind),
            format!("{at}: a part of type {kind:?} has no place there"),
        )?;
    }
    Ok(())
}

/// Every call has an output after it, and no output is without its call.
fn results(items: &[Value]) -> Judged {
    let mut open: Vec<&str> = Vec::new();
    for item in items {
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call" | "custom_tool_call") => open.push(id),
            Some("function_call_output" | "custom_tool_call_output") => {
                let Some(place) = open.iter().position(|call| *call == id) else {
                    return refuse(format!(
                        "no tool call found for function call output with call_id {id}"
                    ));
                };
                open.remove(place);
            }
            _ => {}
        }
    }
    must(
        open.is_empty(),
        format!("no tool output found for function call {open:?}"),
    )
}
