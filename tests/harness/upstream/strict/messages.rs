//! What Anthropic's Messages refuses.

use serde_json::Value;

use super::super::request::Received;
use super::{Judged, base64, filled, list, must, name, only, refuse, within};

const BODY: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "metadata",
    "thinking",
    "output_config",
    "service_tier",
    "cache_control",
    "context_management",
    "anthropic_version",
];
const TOOL: &[&str] = &[
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "cache_control",
    "eager_input_streaming",
];
/// The version that knows no sampling parameters.
const NEWER: &str = "2026-10-21";
/// Marks of caches that one request may have.
const CACHE_MARKS_MAX: usize = 4;

pub(super) fn judge(request: &Received, body: &Value) -> Judged {
    let vertex = request.target.contains("awPredict");
    let version = if vertex {
        body["anthropic_version"].as_str()
    } else {
        request.header("anthropic-version")
    };
    let known = if vertex {
        version == Some("vertex-2023-10-16")
    } else {
        matches!(version, Some("2023-06-01" | NEWER))
    };
    must(
        known,
        format!("anthropic-version: {version:?} is not a valid version"),
    )?;
    let key = request
        .header("x-api-key")
        .or_else(|| request.header("authorization"));
    must(key.is_some(), "x-api-key: header is required")?;
    only(body, BODY, "body")?;
    must(
        vertex || body.get("anthropic_version").is_none(),
        "anthropic_version: extra inputs are not permitted",
    )?;
    if vertex {
        must(
            body.get("model").is_none(),
            "model: extra inputs are not permitted",
        )?;
    } else {
        filled(body, "model", "body")?;
    }
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    must(max_tokens >= 1, "max_tokens: field required")?;
    sampling(body, version == Some(NEWER))?;
    for stop in body["stop_sequences"].as_array().into_iter().flatten() {
        must(
            stop.as_str().is_some_and(|stop| !stop.trim().is_empty()),
            "stop_sequences: each must contain non-whitespace",
        )?;
    }
    system(&body["system"])?;
    tools(body)?;
    thinking(body, max_tokens)?;
    let messages = list(body, "messages", "body")?;
    let late_system = request
        .header("anthropic-beta")
        .is_some_and(|betas| betas.contains("mid-conversation-system-2026-04-07"));
    order(messages, late_system)?;
    messages
        .iter()
        .enumerate()
        .try_for_each(|(at, message)| content(message, at))?;
    results(messages)?;
    let marks = body.to_string().matches("\"cache_control\"").count();
    must(
        marks <= CACHE_MARKS_MAX,
        format!("a maximum of {CACHE_MARKS_MAX} blocks with cache_control, found {marks}"),
    )
}

fn sampling(body: &Value, newer: bool) -> Judged {
    let told = ["temperature", "top_p", "top_k"]
        .into_iter()
        .find(|member| body.get(*member).is_some());
    if let Some(member) = told.filter(|_| newer) {
        return refuse(format!("{member}: is not supported by this version"));
    }
    within(body, "temperature", (0.0, 1.0))?;
    within(body, "top_p", (0.0, 1.0))
}

fn system(system: &Value) -> Judged {
    match system {
        Value::Null => Ok(()),
        Value::String(text) => must(!text.is_empty(), "system: text content must be non-empty"),
        Value::Array(blocks) => blocks.iter().try_for_each(|block| {
            only(block, &["type", "text", "cache_control", "citations"], "system")?;
            must(block["type"] == "text", "system: only text")?;
            text(block, "system")
        }),
        _ => refuse("system: must be text or a list of blocks"),
    }
}

fn text(block: &Value, at: &str) -> Judged {
    let said = filled(block, "text", at)?;
    must(
        !said.trim().is_empty(),
        format!("{at}: text content blocks must contain non-whitespace text"),
    )
}

fn tools(body: &Value) -> Judged {
    let mut names = Vec::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        only(tool, TOOL, "tools")?;
        must(
            matches!(tool["type"].as_str(), None | Some("custom")),
            format!("tools: {} is not served here", tool["type"]),
        )?;
        let word = filled(tool, "name", "tools")?;
        name(word, 128, "")?;
        must(!names.contains(&word), "tools: tool names must be unique")?;
        names.push(word);
        must(
            tool["input_schema"]["type"] == "object",
            "tools.input_schema.type: must be 'object'",
        )?;
    }
    let choice = &body["tool_choice"];
    if choice.is_null() {
        return Ok(());
    }
    only(
        choice,
        &["type", "name", "disable_parallel_tool_use"],
        "tool_choice",
    )?;
    must(
        !names.is_empty(),
        "tool_choice: may only be specified while providing tools",
    )?;
    match choice["type"].as_str() {
        Some("auto" | "any" | "none") => must(choice.get("name").is_none(), "tool_choice.name: extra inputs"),
        Some("tool") => must(
            names.contains(&filled(choice, "name", "tool_choice")?),
            "tool_choice: no such tool",
        ),
        _ => refuse("tool_choice.type: not known"),
    }
}

fn thinking(body: &Value, max_tokens: u64) -> Judged {
    let thinking = &body["thinking"];
    match thinking["type"].as_str() {
        None => must(thinking.is_null(), "thinking.type: field required"),
        Some("disabled" | "adaptive") => only(thinking, &["type", "display"], "thinking"),
        Some("enabled") => {
            only(thinking, &["type", "budget_tokens", "display"], "thinking")?;
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            must(
                budget >= 1024,
                "thinking.enabled.budget_tokens: must be at least 1024",
            )?;
            must(
                budget < max_tokens,
                "max_tokens must be greater than thinking.budget_tokens",
            )?;
            let warm = body
                .get("temperature")
                .is_none_or(|told| told.as_f64() == Some(1.0));
            must(warm, "temperature may only be set to 1 when thinking is enabled")?;
            let free = matches!(body["tool_choice"]["type"].as_str(), None | Some("auto" | "none"));
            must(
                free,
                "thinking may not be enabled when tool_choice forces tool use",
            )
        }
        Some(_) => refuse("thinking.type: not known"),
    }
}

fn order(messages: &[Value], late_system: bool) -> Judged {
    for (at, message) in messages.iter().enumerate() {
        only(message, &["role", "content"], &format!("messages.{at}"))?;
        match message["role"].as_str() {
            Some("user" | "assistant") => {}
            Some("system") if late_system => {}
            role => return refuse(format!("messages.{at}.role: unexpected role {role:?}")),
        }
    }
    let first = messages.iter().find(|message| message["role"] != "system");
    must(
        first.is_some_and(|message| message["role"] == "user"),
        "messages: first message must use the user role",
    )
}

fn content(message: &Value, at: usize) -> Judged {
    let at = format!("messages.{at}.content");
    if let Some(said) = message["content"].as_str() {
        return must(
            !said.trim().is_empty(),
            format!("{at}: text content must be non-empty"),
        );
    }
    let assistant = message["role"] == "assistant";
    for block in list(message, "content", &at)? {
        match block["type"].as_str() {
            Some("text") => {
                only(block, &["type", "text", "cache_control", "citations"], &at)?;
                text(block, &at)?;
            }
            Some("image") if !assistant => {
                only(block, &["type", "source", "cache_control"], &at)?;
                source(
                    &block["source"],
                    &["image/png", "image/jpeg", "image/gif", "image/webp"],
                )?;
            }
            Some("document") if !assistant => {
                only(
                    block,
                    &["type", "source", "cache_control", "citations", "title", "context"],
                    &at,
                )?;
                source(&block["source"], &["application/pdf", "text/plain"])?;
            }
            Some("tool_use") if assistant => {
                only(
                    block,
                    &["type", "id", "name", "input", "cache_control", "caller"],
                    &at,
                )?;
                name(filled(block, "id", &at)?, 256, "")?;
                name(filled(block, "name", &at)?, 128, "")?;
                must(
                    block["input"].is_object(),
                    format!("{at}.input: should be an object"),
                )?;
            }
            Some("tool_result") if !assistant => {
                only(
                    block,
                    &["type", "tool_use_id", "content", "is_error", "cache_control"],
                    &at,
                )?;
                result(&block["content"], &at)?;
            }
            Some("thinking") if assistant => {
                only(block, &["type", "thinking", "signature"], &at)?;
                let signed = block["signature"]
                    .as_str()
                    .is_some_and(|proof| proof.starts_with("sig-"));
                must(signed, format!("{at}: invalid signature in thinking block"))?;
            }
            Some("redacted_thinking") if assistant => {
                only(block, &["type", "data"], &at)?;
                filled(block, "data", &at)?;
            }
            kind => return refuse(format!("{at}: a block of type {kind:?} has no place there")),
        }
    }
    Ok(())
}

fn result(content: &Value, at: &str) -> Judged {
    for block in content.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") => text(block, at)?,
            Some("image") => source(
                &block["source"],
                &["image/png", "image/jpeg", "image/gif", "image/webp"],
            )?,
            kind => return refuse(format!("{at}: a result cannot hold {kind:?}")),
        }
    }
    must(
        matches!(content, Value::Null | Value::String(_) | Value::Array(_)),
        format!("{at}: no content of a result"),
    )
}

fn source(source: &Value, media: &[&str]) -> Judged {
    match source["type"].as_str() {
        Some("base64") => {
            only(source, &["type", "media_type", "data"], "source")?;
            let told = filled(source, "media_type", "source")?;
            must(
                media.contains(&told),
                format!("source.media_type: {told} is not one of {media:?}"),
            )?;
            base64(filled(source, "data", "source")?).map(drop)
        }
        Some("url") => must(
            filled(source, "url", "source")?.starts_with("https://"),
            "source.url: only https",
        ),
        Some("text") => filled(source, "data", "source").map(drop),
        kind => refuse(format!("source.type: {kind:?} is not known")),
    }
}

/// Every call has its result at the head of the very next turn, and nothing else has one.
fn results(messages: &[Value]) -> Judged {
    let ids = |message: Option<&Value>, kind: &str, member: &str| -> Vec<String> {
        let blocks = message
            .and_then(|message| message["content"].as_array())
            .into_iter()
            .flatten();
        let of_kind = blocks.filter(|block| block["type"] == kind);
        of_kind
            .filter_map(|block| block[member].as_str().map(str::to_owned))
            .collect()
    };
    let mut seen: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let calls = ids(Some(message), "tool_use", "id");
        for call in &calls {
            must(
                !seen.contains(call),
                format!("messages.{at}: tool_use ids must be unique"),
            )?;
            seen.push(call.clone());
        }
        let next = messages.get(at + 1);
        let answered = ids(next, "tool_result", "tool_use_id");
        if let Some(open) = calls.iter().find(|call| !answered.contains(call)) {
            return refuse(format!(
                "messages.{at}: tool_use ids were found without tool_result right after: {open}"
            ));
        }
        if let Some(strange) = answered.iter().find(|id| !calls.contains(id)) {
            return refuse(format!(
                "messages.{}: tool_result without a tool_use before it: {strange}",
                at + 1
            ));
        }
        let blocks = next
            .and_then(|next| next["content"].as_array())
            .map_or(&[][..], Vec::as_slice);
        let leading = blocks
            .iter()
            .take_while(|block| block["type"] == "tool_result")
            .count();
        must(
            leading == answered.len(),
            format!("messages.{}: tool_result must come first", at + 1),
        )?;
        must(
            answered.len() == calls.len(),
            format!("messages.{}: a call has two results", at + 1),
        )?;
    }
    must(
        ids(messages.first(), "tool_result", "tool_use_id").is_empty(),
        "messages.0: tool_result without tool_use",
    )
}
