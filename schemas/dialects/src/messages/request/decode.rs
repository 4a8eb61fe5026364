//! A request as the superset has it. Members that mean nothing to the answer become hints, those that mean something
//! and have no place become demands, both under their paths; what is wrong is refused by its path.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{history, options};
use crate::object::{MISSING, Object, Path, shown};
use crate::superset::request::{Conversation, Member, Refusal, Role, Turn};
use crate::superset::tool::{Input, Tool};

/// What the first text of Claude Code's instructions begins with: it is for Anthropic's books, changes with every
/// prompt, and stands before all that a cache could keep.
const BILLING_MARK: &str = "x-anthropic-billing-header:";

/// The hint that stands for every mark of a cache that has no place in the superset.
pub(super) const CACHE_HINT: &str = "cache_control";

/// Reads a request.
pub(super) fn decode(body: &[u8]) -> Result<Conversation, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::InvalidJson)?;
    let mut members = Object::read(text).ok_or(Refusal::InvalidJson)?;
    let mut draft = Draft::default();
    let model = Path::Root.member("model");
    draft.conversation.model = model.required_text(members.take("model"))?;
    if draft.conversation.model.is_empty() {
        return Err(model.invalid("must not be empty"));
    }
    let messages = Path::Root.member("messages");
    let said = members
        .take("messages")
        .ok_or_else(|| messages.invalid(MISSING))?;
    let limit = Path::Root.member("max_tokens");
    let max_tokens = members.take("max_tokens").ok_or_else(|| limit.invalid(MISSING))?;
    draft.conversation.max_tokens = Some(options::positive(max_tokens, &limit)?);
    draft.system(members.take("system"))?;
    history::read(&mut draft, said, &messages)?;
    draft.tools(members.take("tools"))?;
    options::read(&mut draft, &mut members)?;
    draft.rest(members);
    Ok(draft.conversation)
}

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) conversation: Conversation,
}

impl Draft {
    /// Notes a member without influence on the answer.
    pub(super) fn hint(&mut self, name: impl Into<Cow<'static, str>>, raw: &RawValue) {
        self.conversation.hints.push(member(name, raw));
    }

    /// Notes a mark of a cache that has no place.
    pub(super) fn cache_hint(&mut self, raw: Option<&RawValue>) {
        let known = self.conversation.hints.iter().any(|hint| hint.name == CACHE_HINT);
        if let Some(raw) = raw.filter(|_| !known) {
            self.hint(CACHE_HINT, raw);
        }
    }

    /// Notes a member that means something and has no place.
    pub(super) fn demand(&mut self, name: impl Into<Cow<'static, str>>, raw: &RawValue) {
        self.conversation.demands.push(member(name, raw));
    }

    /// Notes members of an object in the request that are not known.
    pub(super) fn unknown(&mut self, members: Object<'_>, path: &Path<'_>) {
        for (name, raw) in members.rest() {
            self.hint(path.member(&name).to_string(), raw);
        }
    }

    fn system(&mut self, raw: Option<&RawValue>) -> Result<(), Refusal> {
        let Some(raw) = raw else { return Ok(()) };
        let path = Path::Root.member("system");
        let mut parts = self.texts(raw, &path)?;
        let marked = |part: &_| history::text_of(part).is_some_and(|text| text.starts_with(BILLING_MARK));
        if parts.first().is_some_and(marked) {
            parts.remove(0);
            self.hint("system.0", RawValue::NULL);
        }
        if !parts.is_empty() {
            self.conversation.turns.push(Turn {
                role: Role::System,
                name: None,
                parts,
            });
        }
        Ok(())
    }

    fn tools(&mut self, raw: Option<&RawValue>) -> Result<(), Refusal> {
        let Some(raw) = raw else { return Ok(()) };
        let path = Path::Root.member("tools");
        for (index, raw) in path.list(raw)?.into_iter().enumerate() {
            let tool = self.tool(raw, &path.element(index))?;
            self.conversation.tools.push(tool);
        }
        Ok(())
    }

    fn tool(&mut self, raw: &RawValue, path: &Path<'_>) -> Result<Tool, Refusal> {
        let mut members = Object::at(raw, path)?;
        if let Some(kind) = members.take("type") {
            let kind_path = path.member("type");
            let kind = kind_path.text(kind)?;
            if kind != "custom" {
                let name = shown(&kind);
                return Err(kind_path.unsupported(format!(
                    "tools of the type '{name}' run at the provider of another model"
                )));
            }
        }
        let name_path = path.member("name");
        let name = name_path.required_text(members.take("name"))?;
        if name.is_empty() {
            return Err(name_path.invalid("must not be empty"));
        }
        let schema = members.take("input_schema");
        if let Some(schema) = schema {
            Object::at(schema, &path.member("input_schema"))?;
        }
        let tool = Tool {
            name,
            namespace: None,
            description: match members.take("description") {
                Some(raw) => Some(path.member("description").text(raw)?),
                None => None,
            },
            input: Input::Schema(schema.map(ToOwned::to_owned)),
            strict: match members.take("strict") {
                Some(raw) => Some(path.member("strict").flag(raw)?),
                None => None,
            },
            cache: members.take("cache_control").map(ToOwned::to_owned),
        };
        self.callers(&mut members, path);
        self.deferral(&mut members, path);
        self.unknown(members, path);
        Ok(tool)
    }

    /// Who may call a tool: the model itself is meant anyway.
    fn callers(&mut self, members: &mut Object<'_>, path: &Path<'_>) {
        if let Some(raw) = members.take("allowed_callers") {
            let callers: Option<Vec<String>> = serde_json::from_str(raw.get()).ok();
            if callers.is_none_or(|callers| callers != ["direct"]) {
                self.demand(path.member("allowed_callers").to_string(), raw);
            }
        }
    }

    /// Whether a tool is shown to the model only once it searches for it.
    fn deferral(&mut self, members: &mut Object<'_>, path: &Path<'_>) {
        if let Some(raw) = members.take("defer_loading")
            && raw.get() != "false"
        {
            self.demand(path.member("defer_loading").to_string(), raw);
        }
    }

    /// What no other reader took.
    fn rest(&mut self, members: Object<'_>) {
        for (name, raw) in members.rest() {
            match options::meaning(&name, raw) {
                options::Meaning::Nothing => {}
                options::Meaning::Hint if name == CACHE_HINT => self.cache_hint(Some(raw)),
                options::Meaning::Hint => self.hint(name.into_owned(), raw),
                options::Meaning::Demand => self.demand(name.into_owned(), raw),
            }
        }
    }
}

fn member(name: impl Into<Cow<'static, str>>, raw: &RawValue) -> Member {
    Member {
        name: name.into(),
        value: raw.to_owned(),
    }
}
