//! Calls written as XML. Values are text where the tool's schema says so, else JSON where they are JSON.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::splice::json_string;
use crate::superset::tool::{Input, Tool};

/// What ends the value of a pair.
const VALUE_END: &str = "</arg_value>";

/// The parameter of a function that stands for a tool of free text.
const FREE_TEXT: &str = "input";

/// How a block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `NAME<arg_key>k</arg_key><arg_value>v</arg_value>`
    Pairs,
    /// `<function=NAME><parameter=k>v</parameter></function>`
    Functions,
}

/// How much of a block there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it, between its tags.
    Closed,
    /// Its last tag is missing, and perhaps more.
    Unclosed,
    /// The answer was broken off in it.
    Broken,
}

/// A call in a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    /// A JSON object.
    pub(super) arguments: String,
}

/// Which parameters of which tools are text; tools without a schema have none.
#[derive(Debug, Default)]
pub(super) struct Schemas(HashMap<String, HashMap<String, bool>>);

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    properties: HashMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct Property<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
}

impl Schemas {
    pub(super) fn new(tools: &[Tool]) -> Self {
        let parameters = |tool: &Tool| {
            let schema = match &tool.input {
                Input::Schema(schema) => schema.as_ref()?,
                // The function that stands for it takes one text.
                Input::Text(_) => return Some(HashMap::from([(FREE_TEXT.to_owned(), true)])),
            };
            let object: Object<'_> = serde_json::from_str(schema.get()).ok()?;
            let texts = object.properties.into_iter().map(|(name, property)| {
                let kind = serde_json::from_str::<Property<'_>>(property.get());
                let kind = kind.ok().and_then(|property| property.kind);
                (name, kind.is_some_and(|kind| kind.get() == "\"string\""))
            });
            Some(texts.collect())
        };
        let of_tool = |tool: &Tool| (tool.name.clone(), parameters(tool).unwrap_or_default());
        Self(tools.iter().map(of_tool).collect())
    }

    /// Whether such a tool was offered.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    fn is_text(&self, tool: &str, parameter: &str) -> bool {
        let tool = self.0.get(tool);
        tool.and_then(|parameters| parameters.get(parameter))
            .copied()
            .unwrap_or(false)
    }
}

/// The calls of a block, between its tags; `None` for what is no call. Nothing is made up for what is missing: without
/// its last tag a block must have everything else, and one that was broken off is no call whatever it has.
pub(super) fn read(block: &str, extent: Extent, form: Form, schemas: &Schemas) -> Option<Vec<Found>> {
    let block = block.trim();
    let is_closed = extent == Extent::Closed;
    if extent == Extent::Broken {
        return None;
    }
    if block.starts_with('{') {
        return json(block).map(|found| vec![found]);
    }
    match form {
        // Only values tell where the name ends, and only the last tag that there are no more of them.
        Form::Pairs if !is_closed && !block.ends_with(VALUE_END) => None,
        Form::Pairs => pairs(block, schemas).map(|found| vec![found]),
        Form::Functions => functions(block, is_closed, schemas),
    }
}

#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// `{"name": …, "arguments": {…}}`
fn json(block: &str) -> Option<Found> {
    let written: Written<'_> = serde_json::from_str(block).ok()?;
    let arguments = written.arguments.map_or("{}", RawValue::get);
    (arguments.starts_with('{') && !written.name.is_empty()).then(|| Found {
        name: written.name,
        arguments: arguments.to_owned(),
    })
}

fn pairs(block: &str, schemas: &Schemas) -> Option<Found> {
    let (name, mut rest) = block.split_at(block.find('<').unwrap_or(block.len()));
    let name = tool_name(name)?;
    let mut members = Members::default();
    while let Some(begun) = rest.trim_start().strip_prefix("<arg_key>") {
        let (key, after) = begun.split_once("</arg_key>")?;
        let begun = after.trim_start().strip_prefix("<arg_value>")?;
        let (value, after) = begun.split_once(VALUE_END)?;
        members.add(key.trim(), value, schemas.is_text(&name, key.trim()));
        rest = after;
    }
    rest.trim().is_empty().then(|| Found {
        arguments: members.object(),
        name,
    })
}

fn functions(block: &str, is_closed: bool, schemas: &Schemas) -> Option<Vec<Found>> {
    let mut found = Vec::new();
    let mut rest = block;
    while let Some(begun) = rest.trim_start().strip_prefix("<function=") {
        // The end of the block ends the function in it.
        let whole = begun.split_once("</function>");
        let (body, after) = whole.or_else(|| is_closed.then_some((begun, "")))?;
        let (name, mut body) = body.split_once('>')?;
        let name = tool_name(name)?;
        let mut members = Members::default();
        while let Some(begun) = body.trim_start().strip_prefix("<parameter=") {
            let (key, value) = begun.split_once('>')?;
            let (value, after) = value.split_once("</parameter>")?;
            members.add(key.trim(), inner(value), schemas.is_text(&name, key.trim()));
            body = after;
        }
        if !body.trim().is_empty() {
            return None;
        }
        found.push(Found {
            arguments: members.object(),
            name,
        });
        rest = after;
    }
    (rest.trim().is_empty() && !found.is_empty()).then_some(found)
}

/// A name that a tool may have.
fn tool_name(text: &str) -> Option<String> {
    let name = text.trim();
    let fits = |character: char| !character.is_whitespace() && !matches!(character, '<' | '>' | '"');
    (!name.is_empty() && name.chars().all(fits)).then(|| name.to_owned())
}

/// A value without the line ends that stand around it.
fn inner(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// The members of an object.
#[derive(Default)]
struct Members(String);

impl Members {
    fn add(&mut self, key: &str, value: &str, is_text: bool) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.quote(key);
        self.0.push(':');
        match serde_json::from_str::<&RawValue>(value.trim()) {
            Ok(json) if !is_text => self.0.push_str(json.get()),
            _ => self.quote(value),
        }
    }

    fn quote(&mut self, text: &str) {
        self.0.push_str(&String::from_utf8_lossy(&json_string(text)));
    }

    fn object(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}
