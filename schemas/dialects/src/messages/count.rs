//! How many input tokens a request would have: an estimate, for clients that show how full the context is. It takes
//! whatever could be asked of any provider, so nothing is refused that is not plainly broken.

use serde_json::value::RawValue;

use crate::estimate::{
    FILE_TOKENS, IMAGE_TOKENS_MAX, MESSAGE_TOKENS, TOOL_TOKENS, schema_tokens, text_tokens,
};
use crate::object::{MISSING, Object, Path};
use crate::superset::request::Refusal;

/// How deep content is looked into: results of calls hold blocks, which may hold some of their own.
const DEPTH_MAX: usize = 4;
/// Bytes of a PDF in base64 for each page that is assumed of it.
const PAGE_BYTES: u64 = 100_000;

/// Estimates the tokens of a request: messages, instructions and tools. `max_tokens` need not be there.
pub fn count_tokens(body: &[u8]) -> Result<u64, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::InvalidJson)?;
    let mut members = Object::read(text).ok_or(Refusal::InvalidJson)?;
    Path::Root.member("model").required_text(members.take("model"))?;
    let path = Path::Root.member("messages");
    let messages = members.take("messages").ok_or_else(|| path.invalid(MISSING))?;
    let mut tokens = 0_u64;
    for (index, raw) in path.list(messages)?.into_iter().enumerate() {
        let mut message = Object::at(raw, &path.element(index))?;
        tokens = tokens.saturating_add(MESSAGE_TOKENS);
        tokens = tokens.saturating_add(content(message.take("content"), DEPTH_MAX));
    }
    if let Some(raw) = members.take("system") {
        let system = content(Some(raw), DEPTH_MAX);
        tokens = tokens.saturating_add(system).saturating_add(MESSAGE_TOKENS);
    }
    if let Some(raw) = members.take("tools") {
        for raw in Path::Root.member("tools").list(raw)? {
            tokens = tokens.saturating_add(tool(raw));
        }
    }
    // A twentieth on top: a context that looks too full does less harm than one that overflows.
    Ok(tokens.saturating_add(tokens.div_ceil(20)))
}

fn tool(raw: &RawValue) -> u64 {
    let mut members = Object::read(raw.get()).unwrap_or_default();
    let schema = members
        .take("input_schema")
        .map_or(0, |raw| schema_tokens(length(raw.get())));
    TOOL_TOKENS
        .saturating_add(schema)
        .saturating_add(text(members.take("name")))
        .saturating_add(text(members.take("description")))
}

/// A string, or blocks.
fn content(raw: Option<&RawValue>, depth_left: usize) -> u64 {
    let Some(raw) = raw else { return 0 };
    if raw.get().starts_with('"') {
        return text(Some(raw));
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let tokens = blocks.into_iter().map(|raw| block(raw, depth_left));
    tokens.fold(0, u64::saturating_add)
}

fn block(raw: &RawValue, depth_left: usize) -> u64 {
    let mut members = Object::read(raw.get()).unwrap_or_default();
    let kind = members.take("type").map_or("", RawValue::get);
    let deeper = |raw| depth_left.checked_sub(1).map_or(0, |depth| content(raw, depth));
    match kind {
        r#""text""# => text(members.take("text")),
        r#""image""# => IMAGE_TOKENS_MAX,
        // Earlier thoughts are not shown to the model again.
        r#""thinking""# | r#""redacted_thinking""# => 0,
        r#""document""# => {
            let about = text(members.take("title")).saturating_add(text(members.take("context")));
            let mut source = members
                .take("source")
                .and_then(|raw| Object::read(raw.get()))
                .unwrap_or_default();
            let kind = source.take("type").map_or("", RawValue::get);
            let data = source.take("data");
            about.saturating_add(match kind {
                r#""text""# => text(data),
                r#""content""# => deeper(source.take("content")),
                _ => {
                    let bytes = data.map_or(0, |raw| length(raw.get()));
                    FILE_TOKENS.saturating_mul(bytes.div_ceil(PAGE_BYTES).max(1))
                }
            })
        }
        r#""tool_use""# => {
            let input = members.take("input").map_or(0, |raw| text_tokens(raw.get()));
            TOOL_TOKENS
                .saturating_add(input)
                .saturating_add(text(members.take("name")))
        }
        r#""tool_result""# => TOOL_TOKENS.saturating_add(deeper(members.take("content"))),
        r#""search_result""# => text(members.take("title"))
            .saturating_add(text(members.take("source")))
            .saturating_add(deeper(members.take("content"))),
        _ => text_tokens(raw.get()),
    }
}

/// A string; nothing for anything else.
fn text(raw: Option<&RawValue>) -> u64 {
    let text = raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    text.map_or(0, |text| text_tokens(&text))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(body: &str) -> u64 {
        count_tokens(body.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    #[test]
    fn a_message_costs_its_text_and_a_little_more() {
        let text = "a".repeat(360);

        let tokens = count(&format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#
        ));

        assert_eq!(tokens, (100 + 4) + 6);
    }

    #[test]
    fn everything_that_reaches_a_model_is_counted() {
        let bare = count(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#);
        for more in [
            r#","system":"be brief""#,
            r#","system":[{"type":"text","text":"be brief"}]"#,
            r#","tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}]"#,
            r#","tools":[{"type":"bash_20250124","name":"bash"}]"#,
        ] {
            let tokens = count(&format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{more}}}"#
            ));
            assert!(tokens > bare, "{more}");
        }
        let blocks = r#"[{"type":"image","source":{}},{"type":"document","source":{"type":"text","data":"x"}},
            {"type":"tool_result","content":[{"type":"image"}]},{"type":"block_of_tomorrow"}]"#;
        let tokens = count(&format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":{blocks}}}]}}"#
        ));
        assert!((3_000..4_000).contains(&tokens), "{tokens}");
    }

    #[test]
    fn what_is_plainly_broken_is_refused() {
        for body in [
            "x",
            "[]",
            r#"{"model":"m"}"#,
            r#"{"messages":[]}"#,
            r#"{"model":"m","messages":{}}"#,
        ] {
            assert!(count_tokens(body.as_bytes()).is_err(), "{body}");
        }
    }
}
