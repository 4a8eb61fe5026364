//! The tools of a request, and which of them shall be called.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::input::{hint, kind, unknown};
use super::strict;
use crate::object::{Object, Path, shown};
use crate::superset::request::{Conversation, Refusal};
use crate::superset::tool::{Input, Tool, ToolChoice};

/// Most tools of a request.
const TOOLS_MAX: usize = 1024;

/// Reads them.
pub(super) fn read(request: &mut Object<'_>, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("tools");
    let list = request.take("tools").map(|raw| path.list(raw)).transpose()?;
    for (number, raw) in list.into_iter().flatten().enumerate() {
        tool(raw, &path.element(number), conversation)?;
        if conversation.tools.len() > TOOLS_MAX {
            return Err(path.invalid(format!("must have at most {TOOLS_MAX} tools")));
        }
    }
    let may = "must be true or false";
    let parallel = request.value("parallel_tool_calls", &Path::Root, may)?;
    let choice = request
        .take("tool_choice")
        .map(|raw| choice(raw, conversation))
        .transpose()?;
    if conversation.tools.is_empty() {
        // Without tools both are idle words, unless a call is demanded.
        return match choice {
            None | Some(ToolChoice::Auto | ToolChoice::Never) => Ok(()),
            Some(_) => Err(Path::Root
                .member("tool_choice")
                .invalid("demands a call, and there are no tools")),
        };
    }
    conversation.parallel_tool_calls = parallel;
    conversation.tool_choice = choice;
    Ok(())
}

fn tool(raw: &RawValue, path: &Path<'_>, conversation: &mut Conversation) -> Result<(), Refusal> {
    let mut object = Object::at(raw, path)?;
    let kind = kind(&mut object, path)?.ok_or_else(|| path.member("type").invalid("is required"))?;
    match kind.as_str() {
        "function" | "custom" => {
            let tool = made((object, &kind), None, path, conversation)?;
            conversation.tools.push(tool);
            Ok(())
        }
        "namespace" => namespace(object, path, conversation),
        // The caller has switched it off himself.
        _ if kind.starts_with("web_search") && is_off(&mut object) => {
            hint(conversation, "tools.web_search", raw);
            Ok(())
        }
        // It only finds tools that need not be told all at once; all are told.
        "tool_search" => {
            hint(conversation, "tools.tool_search", raw);
            Ok(())
        }
        _ => Err(path.member("type").unsupported(format!(
            "tools of the type '{}' are run by a provider itself",
            shown(&kind)
        ))),
    }
}

fn is_off(search: &mut Object<'_>) -> bool {
    search
        .take("external_web_access")
        .is_some_and(|access| access.get() == "false")
}

/// The tools of a group. What is said of the group is said in front of its first tool.
fn namespace(
    mut object: Object<'_>,
    path: &Path<'_>,
    conversation: &mut Conversation,
) -> Result<(), Refusal> {
    let name = object.filled("name", path)?;
    let about = object.text("description", path)?.filter(|text| !text.is_empty());
    let path = path.member("tools");
    let list = object.take("tools").ok_or_else(|| path.invalid("is required"))?;
    let first = conversation.tools.len();
    for (number, raw) in path.list(list)?.into_iter().enumerate() {
        let path = path.element(number);
        let mut object = Object::at(raw, &path)?;
        let kind = kind(&mut object, &path)?.ok_or_else(|| path.member("type").invalid("is required"))?;
        if !matches!(kind.as_str(), "function" | "custom") {
            return Err(path
                .member("type")
                .unsupported("groups hold functions and custom tools"));
        }
        let tool = made((object, &kind), Some(&name), &path, conversation)?;
        conversation.tools.push(tool);
    }
    if let (Some(about), Some(tool)) = (about, conversation.tools.get_mut(first)) {
        let own = tool.description.take();
        tool.description = Some(own.map_or_else(|| about.clone(), |own| format!("{about}\n\n{own}")));
    }
    Ok(())
}

/// A function or a custom tool.
fn made(
    (mut object, kind): (Object<'_>, &str),
    namespace: Option<&str>,
    path: &Path<'_>,
    conversation: &mut Conversation,
) -> Result<Tool, Refusal> {
    let name = object.filled("name", path)?;
    let description = object.text("description", path)?;
    let cache = object.take("cache_control").map(ToOwned::to_owned);
    let (input, strict) = if kind == "custom" {
        (text_input(&mut object, path)?, None)
    } else {
        let schema = object.take("parameters");
        if let Some(schema) = schema {
            Object::at(schema, &path.member("parameters"))?;
        }
        let strict: Option<bool> = object.value("strict", path, "must be true or false")?;
        // The dialect follows schemas to the letter where it can, unless it is told otherwise.
        let strict = strict.unwrap_or_else(|| schema.is_some_and(strict::qualifies));
        (Input::Schema(schema.map(ToOwned::to_owned)), Some(strict))
    };
    for (name, value) in object.rest().filter(|(_, value)| value.get() != "false") {
        hint(conversation, format!("tools.{}", shown(&name)), value);
    }
    Ok(Tool {
        name,
        namespace: namespace.map(ToOwned::to_owned),
        description,
        input,
        strict,
        cache,
    })
}

/// Free text, or text that follows a grammar.
fn text_input(object: &mut Object<'_>, path: &Path<'_>) -> Result<Input, Refusal> {
    let Some(raw) = object.take("format") else {
        return Ok(Input::Text(None));
    };
    let path = path.member("format");
    let mut format = Object::at(raw, &path)?;
    match kind(&mut format, &path)?.as_deref() {
        Some("text") | None => Ok(Input::Text(None)),
        Some("grammar") => Ok(Input::Text(Some(raw.to_owned()))),
        Some(_) => Err(path.member("type").invalid("must be text or grammar")),
    }
}

#[derive(Deserialize)]
struct Reference {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
}

fn choice(raw: &RawValue, conversation: &mut Conversation) -> Result<ToolChoice, Refusal> {
    let path = Path::Root.member("tool_choice");
    let problem = "must be auto, required, none, or an object that names tools";
    if raw.get().starts_with('"') {
        let word: String = path.value(raw, problem)?;
        return match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            "none" => Ok(ToolChoice::Never),
            _ => Err(path.invalid(problem)),
        };
    }
    let reference: Reference = path.value(raw, problem)?;
    let mut object = Object::at(raw, &path)?;
    for known in ["type", "name"] {
        object.take(known);
    }
    if reference.kind != "allowed_tools" {
        unknown(conversation, "tool_choice", object);
        return Ok(ToolChoice::Named(named(reference, &path, conversation)?));
    }
    let required = match object.text("mode", &path)?.as_deref() {
        None | Some("auto") => false,
        Some("required") => true,
        Some(_) => return Err(path.member("mode").invalid("must be auto or required")),
    };
    let of_tools = path.member("tools");
    let list = object
        .take("tools")
        .ok_or_else(|| of_tools.invalid("is required"))?;
    let references: Vec<Reference> = of_tools.value(list, "must be an array of tools")?;
    unknown(conversation, "tool_choice", object);
    for (number, raw) in of_tools.list(list)?.into_iter().enumerate() {
        let mut object = Object::at(raw, &of_tools.element(number))?;
        for known in ["type", "name"] {
            object.take(known);
        }
        unknown(conversation, "tool_choice.tools", object);
    }
    let names = references
        .into_iter()
        .enumerate()
        .map(|(number, reference)| named(reference, &of_tools.element(number), conversation))
        .collect::<Result<_, _>>()?;
    Ok(ToolChoice::Allowed { names, required })
}

/// The name of a tool that the request has.
fn named(reference: Reference, path: &Path<'_>, conversation: &Conversation) -> Result<String, Refusal> {
    if !matches!(reference.kind.as_str(), "function" | "custom") {
        return Err(path
            .member("type")
            .unsupported("only functions and custom tools can be called"));
    }
    let name = reference
        .name
        .ok_or_else(|| path.member("name").invalid("is required"))?;
    if conversation.tools.iter().any(|tool| tool.name == name) {
        Ok(name)
    } else {
        Err(path.member("name").invalid("must be the name of a tool"))
    }
}
