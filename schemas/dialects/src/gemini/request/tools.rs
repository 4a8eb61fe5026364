//! What may be called, and whether it must be.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::draft::{Draft, unmappable};
use crate::chat::request::renamed::Renamed;
use crate::superset::request::{Conversation, Unmappable};
use crate::superset::tool::{Input, Tool, ToolChoice};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declared<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declared<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<Cow<'a, RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    function_calling_config: Calling,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Calling {
    mode: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_function_names: Vec<String>,
}

/// The schema of a tool that takes free text.
const TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// Writes `tools` and `toolConfig`.
pub(super) fn put<'a>(
    conversation: &'a Conversation,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<(), Unmappable> {
    if conversation.tools.is_empty() {
        return Ok(());
    }
    let mut declared = Vec::with_capacity(conversation.tools.len());
    for (index, tool) in conversation.tools.iter().enumerate() {
        declared.push(declare(index, tool, renamed, draft));
    }
    let tools = [Tools {
        function_declarations: declared,
    }];
    draft.put("tools", &tools);
    if conversation.parallel_tool_calls == Some(false) {
        draft.refuse(
            "parallel_tool_calls",
            "its provider may call several tools at once",
        )?;
    }
    if let Some(calling) = calling(conversation, renamed)? {
        draft.put(
            "toolConfig",
            &Config {
                function_calling_config: calling,
            },
        );
    }
    Ok(())
}

fn declare<'a>(index: usize, tool: &'a Tool, renamed: &Renamed<'a>, draft: &mut Draft<'_>) -> Declared<'a> {
    if tool.cache.is_some() {
        draft.drop("cache_control");
    }
    let schema = match &tool.input {
        Input::Schema(schema) => schema.as_deref().map(Cow::Borrowed),
        Input::Text(grammar) => {
            if grammar.is_some() {
                draft.drop(format!("tools.{index}.format"));
            }
            RawValue::from_string(TEXT.to_owned()).ok().map(Cow::Owned)
        }
    };
    Declared {
        name: renamed.sent(tool.namespace.as_deref(), &tool.name),
        description: tool.description.as_deref(),
        parameters_json_schema: schema,
    }
}

/// How tools are called; `None` for as the model likes.
fn calling(conversation: &Conversation, renamed: &Renamed<'_>) -> Result<Option<Calling>, Unmappable> {
    let sent = |name: &String| {
        let tool = conversation.tools.iter().find(|tool| tool.name == *name);
        let tool = tool.ok_or_else(|| unmappable("tool_choice", "it names a tool that is not offered"))?;
        Ok(renamed.sent(tool.namespace.as_deref(), &tool.name))
    };
    let strict = conversation.tools.iter().any(|tool| tool.strict == Some(true));
    let (mode, names) = match &conversation.tool_choice {
        None | Some(ToolChoice::Auto) if strict => ("VALIDATED", Vec::new()),
        None | Some(ToolChoice::Auto) => return Ok(None),
        Some(ToolChoice::Required) => ("ANY", Vec::new()),
        Some(ToolChoice::Never) => ("NONE", Vec::new()),
        Some(ToolChoice::Named(name)) => ("ANY", vec![sent(name)?]),
        Some(ToolChoice::Allowed { names, required }) => {
            let names = names.iter().map(sent).collect::<Result<_, _>>()?;
            (if *required { "ANY" } else { "VALIDATED" }, names)
        }
    };
    Ok(Some(Calling {
        mode,
        allowed_function_names: names,
    }))
}
