//! The tools that are offered, and whether one must be called.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::encode::{Draft, unmappable};
use crate::chat::request::renamed::Renamed;
use crate::object::Object;
use crate::superset::request::{Conversation, Unmappable};
use crate::superset::tool::{Input, Tool, ToolChoice};

/// A tool as it is written.
#[derive(Serialize)]
pub(super) struct Offered<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: Cow<'a, RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a RawValue>,
}

/// Whether tools are called, as it is written.
#[derive(Serialize)]
pub(super) struct Choice {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
}

impl Choice {
    /// A call must be made.
    pub(super) fn forces(&self) -> bool {
        matches!(self.r#type, "any" | "tool")
    }

    const fn of(r#type: &'static str) -> Self {
        Self {
            r#type,
            name: None,
            disable_parallel_tool_use: None,
        }
    }
}

/// An object without members.
const NOTHING: &str = r#"{"type":"object","properties":{}}"#;
/// What stands for free text.
const FREE_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;

/// What is offered, and the choice that is left.
pub(super) fn of<'a>(
    conversation: &'a Conversation,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<(Vec<Offered<'a>>, Option<Choice>), Unmappable> {
    let choice = conversation.tool_choice.as_ref();
    let allowed = |tool: &Tool| match choice {
        Some(ToolChoice::Allowed { names, .. }) => names.contains(&tool.name),
        _ => true,
    };
    let mut offered = Vec::with_capacity(conversation.tools.len());
    for (index, tool) in conversation.tools.iter().enumerate() {
        if allowed(tool) {
            offered.push(one(index, tool, renamed, draft)?);
        }
    }
    if offered.is_empty() {
        return match choice {
            Some(
                ToolChoice::Required | ToolChoice::Named(_) | ToolChoice::Allowed { required: true, .. },
            ) => Err(unmappable("tool_choice", "there is no tool that could be called")),
            _ => Ok((offered, None)),
        };
    }
    let mut written = match choice {
        None => None,
        Some(ToolChoice::Auto | ToolChoice::Allowed { required: false, .. }) => Some(Choice::of("auto")),
        Some(ToolChoice::Required | ToolChoice::Allowed { required: true, .. }) => Some(Choice::of("any")),
        Some(ToolChoice::Never) => Some(Choice::of("none")),
        Some(ToolChoice::Named(name)) => Some(Choice {
            name: Some(named(conversation, name, renamed)?),
            ..Choice::of("tool")
        }),
    };
    if conversation.parallel_tool_calls == Some(false) {
        let choice = written.get_or_insert(Choice::of("auto"));
        if choice.r#type != "none" {
            choice.disable_parallel_tool_use = Some(true);
        }
    }
    Ok((offered, written))
}

/// The upstream's name of a tool that must be called.
fn named<'a>(
    conversation: &'a Conversation,
    name: &'a str,
    renamed: &Renamed<'a>,
) -> Result<String, Unmappable> {
    let tool = conversation.tools.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| unmappable("tool_choice", "it names no tool of the request"))?;
    Ok(renamed.sent(tool.namespace.as_deref(), &tool.name))
}

fn one<'a>(
    index: usize,
    tool: &'a Tool,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<Offered<'a>, Unmappable> {
    let input_schema = match &tool.input {
        Input::Schema(None) => constant(NOTHING),
        Input::Schema(Some(schema)) => object_schema(schema).ok_or_else(|| {
            unmappable(
                format!("tools.{index}.parameters"),
                "tools of Anthropic's models take objects",
            )
        })?,
        Input::Text(grammar) => {
            if grammar.is_some() {
                draft.drop(format!("tools.{index}.format"));
            }
            constant(FREE_TEXT)
        }
    };
    Ok(Offered {
        name: renamed.sent(tool.namespace.as_deref(), &tool.name),
        description: tool.description.as_deref().filter(|text| !text.is_empty()),
        input_schema,
        strict: tool.strict.filter(|&strict| strict),
        cache_control: draft.mark(tool.cache.as_deref()),
    })
}

/// A schema that says that it is of an object, which upstreams insist on; `None` for one of something else.
fn object_schema(schema: &RawValue) -> Option<Cow<'_, RawValue>> {
    let mut members = Object::read(schema.get())?;
    match members.take("type").map(RawValue::get) {
        Some(r#""object""#) => Some(Cow::Borrowed(schema)),
        Some(_) => None,
        None => {
            let inner = schema.get().trim().strip_prefix('{')?;
            let text = if inner.trim() == "}" {
                NOTHING.to_owned()
            } else {
                format!(r#"{{"type":"object",{inner}"#)
            };
            RawValue::from_string(text).ok().map(Cow::Owned)
        }
    }
}

fn constant(text: &'static str) -> Cow<'static, RawValue> {
    serde_json::from_str::<&RawValue>(text).map_or_else(|_| Cow::Borrowed(RawValue::NULL), Cow::Borrowed)
}
