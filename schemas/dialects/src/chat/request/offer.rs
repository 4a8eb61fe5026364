//! What may be called, for an upstream. Tools that take free text become functions of one text.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::value::RawValue;

use super::encode::Draft;
use super::renamed::Renamed;
use crate::chat::schema::{is_empty, types_in_branches};
use crate::profile::Profile;
use crate::superset::request::{Conversation, Unmappable};
use crate::superset::tool::{Input, Tool, ToolChoice};

#[derive(Serialize)]
struct Offered<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Parameters<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Parameters<'a> {
    Given(&'a RawValue),
    Changed(Box<RawValue>),
    Text(TextSchema),
    Empty(EmptySchema),
}

#[derive(Serialize)]
struct EmptySchema {
    #[serde(rename = "type")]
    kind: &'static str,
    properties: Nothing,
}

#[derive(Serialize)]
struct Nothing {}

/// The schema of a tool that takes nothing.
const EMPTY: EmptySchema = EmptySchema {
    kind: "object",
    properties: Nothing {},
};

#[derive(Serialize)]
struct TextSchema {
    #[serde(rename = "type")]
    kind: &'static str,
    properties: TextProperties,
    required: [&'static str; 1],
    #[serde(rename = "additionalProperties")]
    additional_properties: bool,
}

#[derive(Serialize)]
struct TextProperties {
    input: Typed,
}

#[derive(Serialize)]
struct Typed {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Choice {
    Word(&'static str),
    Named {
        #[serde(rename = "type")]
        kind: &'static str,
        function: Named,
    },
}

#[derive(Serialize)]
struct Named {
    name: String,
}

/// Writes `tools`, `tool_choice` and `parallel_tool_calls`.
pub(super) fn tools(
    conversation: &Conversation,
    renamed: &Renamed<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), Unmappable> {
    let allowed: Option<HashSet<&str>> = match &conversation.tool_choice {
        Some(ToolChoice::Allowed { names, .. }) => Some(names.iter().map(String::as_str).collect()),
        _ => None,
    };
    let choosable = draft.profile().tool_choice_required;
    // Where tools cannot be forbidden they are not offered.
    let forbidden = conversation.tool_choice == Some(ToolChoice::Never) && !choosable;
    let mut offered = Vec::with_capacity(conversation.tools.len());
    for (index, tool) in conversation.tools.iter().enumerate() {
        let passes = allowed
            .as_ref()
            .is_none_or(|names| names.contains(tool.name.as_str()));
        if passes && !forbidden {
            offered.push(one(index, tool, renamed, draft));
        }
    }
    if offered.is_empty() {
        return Ok(());
    }
    draft.put("tools", &offered);
    if let Some(choice) = &conversation.tool_choice
        && let Some(choice) = choice_of(choice, conversation, renamed, draft)?
    {
        draft.put("tool_choice", &choice);
    }
    if let Some(parallel) = conversation.parallel_tool_calls {
        draft.put_unless_dropped("parallel_tool_calls", &parallel);
    }
    Ok(())
}

fn one<'a>(index: usize, tool: &'a Tool, renamed: &Renamed<'a>, draft: &mut Draft<'_>) -> Offered<'a> {
    let parameters = match &tool.input {
        Input::Schema(schema) => schema_of(schema.as_deref(), draft.profile()),
        Input::Text(grammar) => {
            if grammar.is_some() {
                draft.drop(Cow::Owned(format!("tools.{index}.format")));
            }
            Some(Parameters::Text(TextSchema {
                kind: "object",
                properties: TextProperties {
                    input: Typed { kind: "string" },
                },
                required: ["input"],
                additional_properties: false,
            }))
        }
    };
    let cache_control = tool.cache.as_deref().filter(|_| draft.profile().cache_control);
    if tool.cache.is_some() && cache_control.is_none() {
        draft.drop("cache_control");
    }
    Offered {
        kind: "function",
        function: Function {
            name: renamed.sent(tool.namespace.as_deref(), &tool.name),
            description: tool.description.as_deref(),
            parameters,
            strict: tool.strict,
        },
        cache_control,
    }
}

/// The schema of a function, as the server takes it.
fn schema_of<'a>(schema: Option<&'a RawValue>, profile: &Profile) -> Option<Parameters<'a>> {
    match schema {
        Some(schema) if profile.parameters_required && is_empty(schema) => Some(Parameters::Empty(EMPTY)),
        Some(schema) if profile.types_in_branches => {
            let moved = types_in_branches(schema).map(Parameters::Changed);
            Some(moved.unwrap_or(Parameters::Given(schema)))
        }
        Some(schema) => Some(Parameters::Given(schema)),
        None => profile.parameters_required.then_some(Parameters::Empty(EMPTY)),
    }
}

fn choice_of(
    choice: &ToolChoice,
    conversation: &Conversation,
    renamed: &Renamed<'_>,
    draft: &mut Draft<'_>,
) -> Result<Option<Choice>, Unmappable> {
    const PROBLEM: &str = "its provider calls tools as the model likes";
    let profile = draft.profile();
    Ok(match choice {
        ToolChoice::Auto | ToolChoice::Allowed { required: false, .. } => Some(Choice::Word("auto")),
        ToolChoice::Never => Some(Choice::Word("none")),
        _ if !profile.tool_choice_required => {
            draft.refuse("tool_choice", PROBLEM)?;
            None
        }
        ToolChoice::Required | ToolChoice::Allowed { .. } => Some(Choice::Word(profile.required)),
        ToolChoice::Named(name) => {
            let tool = conversation.tools.iter().find(|tool| tool.name == *name);
            let Some(tool) = tool else {
                return Err(Unmappable {
                    param: "tool_choice".into(),
                    problem: "it names a tool that is not offered".into(),
                });
            };
            Some(Choice::Named {
                kind: "function",
                function: Named {
                    name: renamed.sent(tool.namespace.as_deref(), &tool.name),
                },
            })
        }
    })
}
