//! What may be called, in the newer form and in the older one.

use super::body::Notes;
use super::reader::{Reader, unsupported};
use crate::superset::request::Refusal;
use crate::superset::tool::{Input, Tool, ToolChoice};

const CHOICE: &str = "must be one of none, auto and required, or an object that names a tool";

/// Takes `tools` and `functions`.
pub(super) fn read(reader: &mut Reader<'_>, notes: &mut Notes) -> Result<Vec<Tool>, Refusal> {
    let mut tools = Vec::new();
    for (index, raw) in reader.list("tools")?.into_iter().enumerate() {
        tools.push(tool(Reader::of(raw, format!("tools.{index}"))?, notes)?);
    }
    for (index, raw) in reader.list("functions")?.into_iter().enumerate() {
        let function = Reader::of(raw, format!("functions.{index}"))?;
        tools.push(function_tool(function, notes)?);
    }
    Ok(tools)
}

fn tool(mut reader: Reader<'_>, notes: &mut Notes) -> Result<Tool, Refusal> {
    let kind = reader.text("type")?;
    let cache = reader.take("cache_control").map(ToOwned::to_owned);
    let mut tool = match kind.as_deref().unwrap_or("function") {
        "function" => match reader.object("function")? {
            Some(function) => function_tool(function, notes)?,
            None => return Err(reader.invalid("function", "is required")),
        },
        "custom" => match reader.object("custom")? {
            Some(custom) => custom_tool(custom, notes)?,
            None => return Err(reader.invalid("custom", "is required")),
        },
        _ => {
            return Err(unsupported(
                reader.at("type"),
                "only tools of type function and custom are served",
            ));
        }
    };
    tool.cache = cache;
    notes.left("tools", reader);
    Ok(tool)
}

fn function_tool(mut reader: Reader<'_>, notes: &mut Notes) -> Result<Tool, Refusal> {
    let tool = Tool {
        name: name(&mut reader)?,
        namespace: None,
        description: reader.text("description")?,
        strict: reader.flag("strict")?,
        input: Input::Schema(match reader.take("parameters") {
            Some(schema) if schema.get().starts_with('{') => Some(schema.to_owned()),
            Some(_) => return Err(reader.invalid("parameters", "must be an object")),
            None => None,
        }),
        cache: None,
    };
    notes.left("tools", reader);
    Ok(tool)
}

fn custom_tool(mut reader: Reader<'_>, notes: &mut Notes) -> Result<Tool, Refusal> {
    let grammar = reader.take("format");
    let free = match grammar {
        Some(raw) => Reader::of(raw, reader.at("format"))?.text("type")?.as_deref() == Some("text"),
        None => true,
    };
    let tool = Tool {
        name: name(&mut reader)?,
        namespace: None,
        description: reader.text("description")?,
        strict: None,
        input: Input::Text(grammar.filter(|_| !free).map(ToOwned::to_owned)),
        cache: None,
    };
    notes.left("tools", reader);
    Ok(tool)
}

fn name(reader: &mut Reader<'_>) -> Result<String, Refusal> {
    let name = reader.required_text("name")?;
    if name.is_empty() {
        return Err(reader.invalid("name", "must not be empty"));
    }
    Ok(name)
}

/// Takes `tool_choice`, or `function_call`.
pub(super) fn choice(reader: &mut Reader<'_>) -> Result<Option<ToolChoice>, Refusal> {
    let newer = choice_of(reader, "tool_choice")?;
    let older = choice_of(reader, "function_call")?;
    Ok(newer.or(older))
}

fn choice_of(reader: &mut Reader<'_>, member: &str) -> Result<Option<ToolChoice>, Refusal> {
    let Some(raw) = reader.take(member) else {
        return Ok(None);
    };
    if let Ok(word) = serde_json::from_str::<String>(raw.get()) {
        return match by_word(&word) {
            Some(choice) => Ok(Some(choice)),
            None => Err(reader.invalid(member, CHOICE)),
        };
    }
    let mut choice = Reader::of(raw, reader.at(member)).map_err(|_| reader.invalid(member, CHOICE))?;
    let kind = choice.text("type")?;
    match kind.as_deref() {
        None | Some("function" | "custom" | "tool") => {
            named(choice).map(|name| Some(ToolChoice::Named(name)))
        }
        Some("allowed_tools") => allowed(choice).map(Some),
        Some(word) => match by_word(word) {
            Some(choice) => Ok(Some(choice)),
            None => Err(unsupported(
                choice.at("type"),
                "only functions, custom tools and lists of them are served",
            )),
        },
    }
}

fn by_word(word: &str) -> Option<ToolChoice> {
    Some(match word {
        "auto" => ToolChoice::Auto,
        "required" | "any" => ToolChoice::Required,
        "none" => ToolChoice::Never,
        _ => return None,
    })
}

fn named(mut choice: Reader<'_>) -> Result<String, Refusal> {
    for form in ["function", "custom"] {
        if let Some(mut inner) = choice.object(form)? {
            return inner.required_text("name");
        }
    }
    choice.required_text("name")
}

fn allowed(mut choice: Reader<'_>) -> Result<ToolChoice, Refusal> {
    let mut inner = match choice.object("allowed_tools")? {
        Some(inner) => inner,
        None => choice,
    };
    let required = match inner.text("mode")?.as_deref() {
        None | Some("auto") => false,
        Some("required") => true,
        Some(_) => return Err(inner.invalid("mode", "must be auto or required")),
    };
    let mut names = Vec::new();
    for (index, raw) in inner.list("tools")?.into_iter().enumerate() {
        let tool = Reader::of(raw, inner.at(&format!("tools.{index}")))?;
        names.push(named(tool)?);
    }
    if names.is_empty() {
        return Err(inner.invalid("tools", "must name at least one tool"));
    }
    Ok(ToolChoice::Allowed { names, required })
}
