//! What was said. Messages of tools that follow each other become one turn; ids of calls become unique in the
//! conversation, and their results follow them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::body::Notes;
use super::parts;
use super::reader::{Reader, invalid, unsupported};
use crate::chat::{arguments, mint, signed};
use crate::superset::request::{Call, Part, Refusal, Role, Turn};

/// Takes `messages`.
pub(super) fn read(reader: &mut Reader<'_>, notes: &mut Notes) -> Result<Vec<Turn>, Refusal> {
    const PROBLEM: &str = "must be an array of at least one message";
    let messages: Vec<&RawValue> = reader
        .read("messages", PROBLEM)?
        .ok_or_else(|| invalid("messages", "is required"))?;
    if messages.is_empty() {
        return Err(invalid("messages", PROBLEM));
    }
    let mut history = History {
        turns: Vec::with_capacity(messages.len()),
        ids: Ids::default(),
        notes,
    };
    for (index, raw) in messages.into_iter().enumerate() {
        let message = Reader::of(raw, format!("messages.{index}"))?;
        history.message(message)?;
    }
    Ok(history.turns)
}

struct History<'n> {
    turns: Vec<Turn>,
    ids: Ids,
    notes: &'n mut Notes,
}

impl History<'_> {
    fn message(&mut self, mut message: Reader<'_>) -> Result<(), Refusal> {
        let role = message.required_text("role")?;
        match role.as_str() {
            "system" => self.instructions(Role::System, message),
            "developer" => self.instructions(Role::Developer, message),
            "user" => self.user(message),
            "assistant" => self.assistant(message),
            "tool" => self.tool(message),
            "function" => self.function(message),
            _ => Err(message.invalid(
                "role",
                "must be one of system, developer, user, assistant, tool and function",
            )),
        }
    }

    /// Ends a message: what is left of it is noted.
    fn push(&mut self, role: Role, mut message: Reader<'_>, parts: Vec<Part>) -> Result<(), Refusal> {
        let name = message.text("name")?.filter(|name| !name.is_empty());
        self.notes.left("messages", message);
        self.turns.push(Turn { role, name, parts });
        Ok(())
    }

    fn instructions(&mut self, role: Role, mut message: Reader<'_>) -> Result<(), Refusal> {
        let parts = parts::content(&mut message, self.notes)?;
        let texts = parts.iter().all(|part| matches!(part, Part::Text { .. }));
        if !texts {
            return Err(unsupported(message.at("content"), "instructions are text"));
        }
        self.push(role, message, parts)
    }

    fn user(&mut self, mut message: Reader<'_>) -> Result<(), Refusal> {
        let parts = parts::content(&mut message, self.notes)?;
        if parts
            .iter()
            .any(|part| matches!(part, Part::Thinking { .. } | Part::Refusal(_)))
        {
            return Err(message.invalid("content", "has a part that only a model can say"));
        }
        self.push(Role::User, message, parts)
    }

    fn assistant(&mut self, mut message: Reader<'_>) -> Result<(), Refusal> {
        let mut all = parts::thoughts(&mut message)?;
        let said = parts::content(&mut message, self.notes)?;
        all.extend(
            said.into_iter()
                .filter(|part| !matches!(part, Part::Text { text, .. } if text.is_empty())),
        );
        if let Some(refusal) = message.text("refusal")?.filter(|refusal| !refusal.is_empty()) {
            all.push(Part::Refusal(refusal));
        }
        if message.take("audio").is_some() {
            return Err(unsupported(
                message.at("audio"),
                "earlier sound of a model cannot be given back",
            ));
        }
        self.ids.turn();
        for (index, raw) in message.list("tool_calls")?.into_iter().enumerate() {
            let call = Reader::of(raw, message.at(&format!("tool_calls.{index}")))?;
            all.push(Part::ToolCall(self.call(call)?));
        }
        if let Some(function) = message.object("function_call")? {
            let mut call = self.function_call(function)?;
            call.id = self.ids.assign("", &call.name, self.turns.len());
            all.push(Part::ToolCall(call));
        }
        self.push(Role::Assistant, message, all)
    }

    fn call(&mut self, mut reader: Reader<'_>) -> Result<Call, Refusal> {
        let written = reader.text("id")?.unwrap_or_default();
        let (id, signature) = signed::read(&written);
        let proof = parts::call_proof(&mut reader)?.or(signature);
        let kind = reader.text("type")?;
        let mut call = match kind.as_deref().unwrap_or("function") {
            "function" => match reader.object("function")? {
                Some(function) => self.function_call(function)?,
                None => return Err(reader.invalid("function", "is required")),
            },
            "custom" => match reader.object("custom")? {
                Some(mut custom) => Call {
                    id: String::new(),
                    name: custom.required_text("name")?,
                    namespace: None,
                    arguments: custom.text("input")?.unwrap_or_default(),
                    custom: true,
                    proof: None,
                },
                None => return Err(reader.invalid("custom", "is required")),
            },
            _ => {
                return Err(unsupported(
                    reader.at("type"),
                    "only calls of functions and custom tools are served",
                ));
            }
        };
        call.id = self.ids.assign(id, &call.name, self.turns.len());
        call.proof = proof;
        reader.take("index");
        self.notes.left("messages.tool_calls", reader);
        Ok(call)
    }

    fn function_call(&mut self, mut function: Reader<'_>) -> Result<Call, Refusal> {
        let name = function.required_text("name")?;
        let arguments = function.take("arguments");
        let (whole, repaired) =
            arguments.map_or((Cow::Borrowed("{}"), false), |raw| arguments::whole(raw.get()));
        if let Some(raw) = arguments.filter(|_| repaired) {
            self.notes.hint(function.at("arguments"), raw);
        }
        Ok(Call {
            id: String::new(),
            name,
            namespace: None,
            arguments: whole.into_owned(),
            custom: false,
            proof: None,
        })
    }

    fn tool(&mut self, mut message: Reader<'_>) -> Result<(), Refusal> {
        let id = message.required_text("tool_call_id")?;
        let id = self.ids.answered(signed::read(&id).0, None);
        self.result(message, id)
    }

    /// A result in the older form, which tells the function and not the call.
    fn function(&mut self, mut message: Reader<'_>) -> Result<(), Refusal> {
        let name = message.required_text("name")?;
        let id = self.ids.answered("", Some(&name));
        if id.is_empty() {
            return Err(message.invalid("name", "names no function that was called before"));
        }
        self.result(message, id)
    }

    fn result(&mut self, mut message: Reader<'_>, id: String) -> Result<(), Refusal> {
        let parts = parts::content(&mut message, self.notes)?;
        message.take("name");
        self.notes.left("messages", message);
        let result = Part::ToolResult {
            id,
            parts,
            failed: false,
        };
        match self.turns.last_mut() {
            Some(turn) if turn.role == Role::Tool => turn.parts.push(result),
            _ => self.turns.push(Turn {
                role: Role::Tool,
                name: None,
                parts: vec![result],
            }),
        }
        Ok(())
    }
}

/// The ids of calls: as the caller wrote them, and as they are in the conversation.
#[derive(Default)]
struct Ids {
    used: HashSet<String>,
    /// Calls of the last turn that had some.
    open: Vec<Open>,
    /// The next call opens a turn.
    fresh: bool,
}

struct Open {
    written: String,
    name: String,
    id: String,
    answered: bool,
}

impl Ids {
    /// Another turn of the model begins.
    fn turn(&mut self) {
        self.fresh = true;
    }

    /// The id of a call in the turn with this number.
    fn assign(&mut self, written: &str, name: &str, turn: usize) -> String {
        if std::mem::take(&mut self.fresh) {
            self.open.clear();
        }
        let place = format!("{turn}.{}", self.open.len());
        let free = !written.is_empty() && !self.used.contains(written);
        let id = if free {
            written.to_owned()
        } else {
            mint::call_id(&[written, name, &place])
        };
        self.used.insert(id.clone());
        self.open.push(Open {
            written: written.to_owned(),
            name: name.to_owned(),
            id: id.clone(),
            answered: false,
        });
        id
    }

    /// The id of the call that a result answers: the first one that has none yet. By name where one is given.
    fn answered(&mut self, written: &str, name: Option<&str>) -> String {
        let matches = |open: &Open| name.map_or(open.written == written, |name| open.name == name);
        let found = (self.open.iter().position(|open| matches(open) && !open.answered))
            .or_else(|| self.open.iter().rposition(matches));
        match found.and_then(|at| self.open.get_mut(at)) {
            Some(open) => {
                open.answered = true;
                open.id.clone()
            }
            None => written.to_owned(),
        }
    }
}
