//! A request as a whole, read: what cannot be done is refused first, then the tools, then what was said.

use serde_json::value::RawValue;

use super::{items, settings, tools};
use crate::object::{Object, Path, shown};
use crate::responses::told::text;
use crate::superset::request::{Conversation, Member, Part, Refusal, Role, Turn};

/// Members that stand for state of a server's own, or for work that is done by a server.
const ELSEWHERE: [(&str, &str); 4] = [
    ("conversation", "conversations are not kept here"),
    ("prompt", "templates of prompts are not kept here"),
    ("max_tool_calls", "calls of tools cannot be counted"),
    ("previous_response_id", "the response it names was not looked up"),
];

/// Reads it.
pub(super) fn read(body: &[u8]) -> Result<Conversation, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::InvalidJson)?;
    let mut request = Object::read(text).ok_or(Refusal::InvalidJson)?;
    refuse(&mut request)?;
    let mut conversation = Conversation {
        model: request.filled("model", &Path::Root)?,
        stream: request
            .value("stream", &Path::Root, "must be true or false")?
            .unwrap_or(false),
        include_usage: true,
        ..Conversation::default()
    };
    if let Some(instructions) = request.text("instructions", &Path::Root)? {
        conversation.turns.push(Turn {
            role: Role::System,
            name: None,
            parts: vec![Part::Text {
                text: instructions,
                cache: None,
            }],
        });
    }
    tools::read(&mut request, &mut conversation)?;
    let input = request
        .take("input")
        .ok_or_else(|| Path::Root.member("input").invalid("is required"))?;
    items::read(input, &mut conversation)?;
    settings::read(&mut request, &mut conversation)?;
    rest(request, &mut conversation);
    Ok(conversation)
}

/// Refuses what nobody here can do.
fn refuse(request: &mut Object<'_>) -> Result<(), Refusal> {
    let must = "must be true or false";
    if request.value("background", &Path::Root, must)? == Some(true) {
        let path = Path::Root.member("background");
        return Err(path.unsupported("responses in the background are not supported"));
    }
    for (name, problem) in ELSEWHERE {
        if request.take(name).is_some() {
            return Err(Path::Root.member(name).unsupported(problem));
        }
    }
    let path = Path::Root.member("truncation");
    match request.text("truncation", &Path::Root)?.as_deref() {
        None | Some("disabled") => Ok(()),
        Some("auto") => Err(path.unsupported("what does not fit is never left out")),
        Some(_) => Err(path.invalid("must be disabled")),
    }
}

/// Members without a field: those that would change the answer are demands, all others hints.
fn rest(request: Object<'_>, conversation: &mut Conversation) {
    for (name, value) in request.rest() {
        let harmless: &[&str] = match &*name {
            "service_tier" => &["\"auto\"", "\"default\"", "\"standard_only\""],
            "top_logprobs" => &["0"],
            "n" => &["1"],
            "logprobs" => &["false"],
            "logit_bias" => &["{}"],
            "context_management" | "mcp_servers" | "modalities" => &["[]"],
            _ => {
                hint(conversation, shown(&name).to_owned(), value);
                continue;
            }
        };
        if !harmless.contains(&value.get()) {
            conversation.demands.push(Member {
                name: name.into_owned().into(),
                value: value.to_owned(),
            });
        } else if name == "service_tier" {
            hint(conversation, name.into_owned(), value);
        }
    }
}

/// Notes what has no influence on the answer; once for a name.
pub(super) fn hint(conversation: &mut Conversation, name: impl Into<String>, value: &RawValue) {
    let name = name.into();
    if conversation.hints.iter().all(|hint| hint.name != name) {
        conversation.hints.push(Member {
            name: name.into(),
            value: value.to_owned(),
        });
    }
}

/// Notes members of an object within the request that are not known, under the name of the place.
pub(super) fn unknown(conversation: &mut Conversation, place: &str, members: Object<'_>) {
    for (name, value) in members.rest() {
        hint(conversation, format!("{place}.{}", shown(&name)), value);
    }
}

/// The `type` of an object.
pub(super) fn kind(object: &mut Object<'_>, path: &Path<'_>) -> Result<Option<String>, Refusal> {
    match object.take("type") {
        None => Ok(None),
        Some(raw) => match text(Some(raw)) {
            Some(kind) => Ok(Some(kind.into_owned())),
            None => Err(path.member("type").invalid("must be a string")),
        },
    }
}
