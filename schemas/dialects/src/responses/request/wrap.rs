//! Tools and the choice among them, written.

use serde::Serialize;
use serde_json::value::RawValue;

use super::output::Notes;
use super::tell::sent_name;
use crate::superset::request::Conversation;
use crate::superset::tool::{Input, Known, Tool, ToolChoice};

use std::borrow::Cow;

/// A tool, or a group of some.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Wrapped<'a> {
    Function {
        name: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        parameters: Schema<'a>,
        /// Always told: dialects do not agree on what it is otherwise.
        strict: bool,
    },
    Custom {
        name: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'a RawValue>,
    },
    Namespace {
        name: &'a str,
        description: &'static str,
        tools: Vec<Self>,
    },
}

/// What a function takes.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Schema<'a> {
    Told(&'a RawValue),
    Nothing(Empty),
}

/// The schema of an object without members.
#[derive(Serialize)]
pub(super) struct Empty {
    #[serde(rename = "type")]
    kind: &'static str,
    properties: NoMembers,
}

#[derive(Serialize)]
struct NoMembers {}

/// Whether tools are called.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Choice<'a> {
    Word(&'static str),
    Named(Reference<'a>),
    Allowed {
        #[serde(rename = "type")]
        kind: &'static str,
        mode: &'static str,
        tools: Vec<Reference<'a>>,
    },
}

#[derive(Serialize)]
pub(super) struct Reference<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: Cow<'a, str>,
}

/// Writes tools, those of a group together.
pub(super) fn tools<'a>(tools: &'a [Tool], notes: &mut Notes) -> Vec<Wrapped<'a>> {
    let mut wrapped: Vec<Wrapped<'a>> = Vec::new();
    for tool in tools {
        let name = sent_name(&tool.name);
        if let Cow::Owned(sent) = &name {
            let known = Known {
                name: tool.name.clone(),
                namespace: tool.namespace.clone(),
                custom: matches!(tool.input, Input::Text(_)),
            };
            notes.names.note(sent.clone(), known);
        }
        if tool.cache.is_some() {
            notes.drop("cache_control");
        }
        let made = wrap(tool, name);
        let Some(namespace) = tool.namespace.as_deref() else {
            wrapped.push(made);
            continue;
        };
        let group = wrapped.iter_mut().find_map(|other| match other {
            Wrapped::Namespace { name, tools, .. } if *name == namespace => Some(tools),
            _ => None,
        });
        match group {
            Some(group) => group.push(made),
            None => wrapped.push(Wrapped::Namespace {
                name: namespace,
                description: "",
                tools: vec![made],
            }),
        }
    }
    wrapped
}

fn wrap<'a>(tool: &'a Tool, name: Cow<'a, str>) -> Wrapped<'a> {
    let description = tool.description.as_deref();
    match &tool.input {
        Input::Schema(schema) => Wrapped::Function {
            name,
            description,
            parameters: match schema {
                Some(schema) => Schema::Told(schema),
                None => Schema::Nothing(Empty {
                    kind: "object",
                    properties: NoMembers {},
                }),
            },
            strict: tool.strict.unwrap_or(false),
        },
        Input::Text(format) => Wrapped::Custom {
            name,
            description,
            format: format.as_deref(),
        },
    }
}

/// Writes the choice among them.
pub(super) fn choice(conversation: &Conversation) -> Option<Choice<'_>> {
    if conversation.tools.is_empty() {
        return None;
    }
    let reference = |name: &'_ String| Reference {
        kind: match conversation.tools.iter().find(|tool| tool.name == *name) {
            Some(Tool {
                input: Input::Text(_),
                ..
            }) => "custom",
            _ => "function",
        },
        name: sent_name(name).into_owned().into(),
    };
    Some(match conversation.tool_choice.as_ref()? {
        ToolChoice::Auto => Choice::Word("auto"),
        ToolChoice::Required => Choice::Word("required"),
        ToolChoice::Never => Choice::Word("none"),
        ToolChoice::Named(name) => Choice::Named(reference(name)),
        ToolChoice::Allowed { names, required } => Choice::Allowed {
            kind: "allowed_tools",
            mode: if *required { "required" } else { "auto" },
            tools: names.iter().map(reference).collect(),
        },
    })
}
