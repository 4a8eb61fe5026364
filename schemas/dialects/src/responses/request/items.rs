//! What was said, read: items become turns. What the model said, thought and called up to a result is one turn.

use serde_json::value::RawValue;

use super::input::{hint, kind, unknown};
use super::parts::{self, Speaker};
use crate::chat::arguments;
use crate::object::{Object, Path, shown};
use crate::responses::proof;
use crate::responses::told;
use crate::superset::calls::Calls;
use crate::superset::request::{Call, Conversation, Part, Proof, Refusal, Role, Turn};

/// Items of work that a provider did and that is only told of: nothing is lost without them.
const TOLD_OF: [&str; 3] = ["web_search_call", "tool_search_call", "tool_search_output"];

/// Reads a request's input.
pub(super) fn read(raw: &RawValue, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("input");
    if raw.get().starts_with('"') {
        let text = path.value(raw, "must be a text or an array of items")?;
        push(conversation, Role::User, Part::Text { text, cache: None });
        return Ok(());
    }
    let list = path
        .list(raw)
        .map_err(|_| path.invalid("must be a text or an array of items"))?;
    let mut reader = Reader {
        conversation,
        calls: Calls::default(),
        proofs: Vec::new(),
    };
    for (number, raw) in list.into_iter().enumerate() {
        reader.item(raw, &path.element(number))?;
    }
    reader.prove_earlier();
    if conversation.turns.is_empty() {
        return Err(path.invalid("must have at least one item"));
    }
    Ok(())
}

struct Reader<'c> {
    conversation: &'c mut Conversation,
    calls: Calls,
    /// What proves calls that were not found, by the ids that they have for the caller.
    proofs: Vec<(String, Proof)>,
}

/// A turn of its own for a part.
fn push(conversation: &mut Conversation, role: Role, part: Part) {
    conversation.turns.push(Turn {
        role,
        name: None,
        parts: vec![part],
    });
}

impl Reader<'_> {
    fn item(&mut self, raw: &RawValue, path: &Path<'_>) -> Result<(), Refusal> {
        let mut object = Object::at(raw, path)?;
        let kind = kind(&mut object, path)?;
        // How far an item was, and the name that it had.
        for known in ["id", "status"] {
            object.take(known);
        }
        match kind.as_deref() {
            None | Some("message") => self.message(object, path),
            Some("function_call") => self.call(object, false, path),
            Some("custom_tool_call") => self.call(object, true, path),
            Some("function_call_output" | "custom_tool_call_output") => self.result(object, path),
            Some("reasoning") => self.thought(object, path),
            Some(told_of) if TOLD_OF.contains(&told_of) => {
                hint(self.conversation, format!("input.{told_of}"), raw);
                Ok(())
            }
            Some(other) => Err(path.member("type").unsupported(format!(
                "items of the type '{}' are known to one provider only",
                shown(other)
            ))),
        }
    }

    fn message(&mut self, mut object: Object<'_>, path: &Path<'_>) -> Result<(), Refusal> {
        let role = match &*object.filled("role", path)? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => {
                let problem = "must be one of user, assistant, system, developer";
                return Err(path.member("role").invalid(problem));
            }
        };
        if let Some(phase) = object.take("phase") {
            hint(self.conversation, "input.phase", phase);
        }
        let speaker = match role {
            Role::User => Speaker::Person,
            Role::Assistant => Speaker::Model,
            Role::System | Role::Developer | Role::Tool => Speaker::Instructions,
        };
        let path = path.member("content");
        let parts = match object.take("content") {
            None if role == Role::Assistant => Vec::new(),
            None => return Err(path.invalid("is required")),
            Some(raw) => parts::read(raw, speaker, &path, self.conversation)?,
        };
        if role == Role::Assistant {
            self.model_says(parts);
        } else {
            self.calls.turn();
            self.conversation.turns.push(Turn {
                role,
                name: object.text("name", &path)?,
                parts,
            });
        }
        unknown(self.conversation, "input", object);
        Ok(())
    }

    /// A message of the model's: a turn of its own when it follows another one, else part of what it does.
    fn model_says(&mut self, parts: Vec<Part>) {
        let parts = parts.into_iter().filter(|part| match part {
            Part::Text { text, .. } => !text.is_empty(),
            _ => true,
        });
        let parts: Vec<Part> = parts.collect();
        if parts.is_empty() {
            return;
        }
        let last = self.conversation.turns.last();
        let follows = last.is_some_and(|turn| {
            turn.role == Role::Assistant
                && matches!(turn.parts.last(), Some(Part::Text { .. } | Part::Refusal(_)))
        });
        if follows {
            self.conversation.turns.push(Turn {
                role: Role::Assistant,
                name: None,
                parts,
            });
        } else {
            for part in parts {
                self.model_does(part);
            }
        }
    }

    fn model_does(&mut self, part: Part) {
        self.add(Role::Assistant, part);
    }

    /// A part of the last turn, if that is one of this role, else of a new one.
    fn add(&mut self, role: Role, part: Part) {
        match self.conversation.turns.last_mut() {
            Some(turn) if turn.role == role => turn.parts.push(part),
            _ => push(self.conversation, role, part),
        }
    }

    fn call(&mut self, mut object: Object<'_>, custom: bool, path: &Path<'_>) -> Result<(), Refusal> {
        let written = object.filled("call_id", path)?;
        let id = self.calls.begin(written.clone(), &path.member("call_id"))?;
        let member = if custom { "input" } else { "arguments" };
        let arguments = match object.take(member) {
            None => String::new(),
            // Some clients send the object itself.
            Some(raw) if !custom && raw.get().starts_with('{') => raw.get().to_owned(),
            Some(raw) => {
                let text: String = path.member(member).value(raw, "must be a string")?;
                if custom { text } else { self.arguments(raw) }
            }
        };
        let call = Call {
            id,
            name: object.filled("name", path)?,
            namespace: object.text("namespace", path)?.filter(|name| !name.is_empty()),
            arguments,
            custom,
            proof: self.waiting(&written),
        };
        self.model_does(Part::ToolCall(call));
        unknown(self.conversation, "input", object);
        Ok(())
    }

    /// The text of an object: answers that broke off are remembered with less.
    fn arguments(&mut self, raw: &RawValue) -> String {
        let (whole, lost) = arguments::whole(raw.get());
        if lost {
            hint(self.conversation, "input.arguments", raw);
        }
        whole.into_owned()
    }

    fn result(&mut self, mut object: Object<'_>, path: &Path<'_>) -> Result<(), Refusal> {
        let id = object.filled("call_id", path)?;
        let id = self.calls.answered(&id, &path.member("call_id"))?;
        self.calls.turn();
        let path = path.member("output");
        let raw = object.take("output").ok_or_else(|| path.invalid("is required"))?;
        let parts = parts::read(raw, Speaker::Tool, &path, self.conversation)?;
        self.add(
            Role::Tool,
            Part::ToolResult {
                id,
                parts,
                failed: false,
            },
        );
        unknown(self.conversation, "input", object);
        Ok(())
    }

    fn thought(&mut self, mut object: Object<'_>, path: &Path<'_>) -> Result<(), Refusal> {
        let encrypted = object.text("encrypted_content", path)?.unwrap_or_default();
        let item = told::Item {
            content: object.take("content"),
            summary: object.take("summary"),
            ..told::Item::default()
        };
        let words = item
            .any_thought()
            .map_err(|_| path.invalid("holds text that is no valid Unicode"))?;
        let proof = match proof::told(&encrypted) {
            proof::Told::Thought(maker, text) => Some(Proof {
                maker,
                text: text.to_owned(),
                redacted: words.is_empty(),
            }),
            proof::Told::Call(id, proof) => {
                self.prove(id, proof);
                None
            }
            proof::Told::Nothing => None,
        };
        if proof.is_some() || !words.is_empty() {
            self.model_does(Part::Thinking { text: words, proof });
        }
        unknown(self.conversation, "input", object);
        Ok(())
    }

    /// Gives a call of the turn being read what proves it: where there is none, it may yet come.
    fn prove(&mut self, written: &str, proof: Proof) {
        let here = self
            .conversation
            .turns
            .last_mut()
            .filter(|turn| turn.role == Role::Assistant);
        match here.and_then(|turn| unproved(turn, self.calls.stands(written))) {
            Some(call) => call.proof = Some(proof),
            None => self.proofs.push((written.to_owned(), proof)),
        }
    }

    /// What came before the call that it proves.
    fn waiting(&mut self, written: &str) -> Option<Proof> {
        let at = self.proofs.iter().position(|(id, _)| id == written)?;
        Some(self.proofs.swap_remove(at).1)
    }

    /// Gives calls of earlier turns what proves them.
    fn prove_earlier(&mut self) {
        for (written, proof) in std::mem::take(&mut self.proofs) {
            let id = self.calls.stands(&written);
            let mut turns = self.conversation.turns.iter_mut().rev();
            if let Some(call) = turns.find_map(|turn| unproved(turn, id)) {
                call.proof = Some(proof);
            }
        }
    }
}

/// The call of a turn with this id that nothing proves.
fn unproved<'t>(turn: &'t mut Turn, id: Option<&str>) -> Option<&'t mut Call> {
    turn.parts.iter_mut().find_map(|part| match part {
        Part::ToolCall(call) if Some(call.id.as_str()) == id && call.proof.is_none() => Some(call),
        _ => None,
    })
}
