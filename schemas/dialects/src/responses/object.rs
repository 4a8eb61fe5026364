//! The response object: what is told of a response in its first events, in its last one, and as a whole answer. It
//! repeats members of the request.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::usage::Usage;
use crate::superset::event::Reply;

/// What stands in every object of one response, written once.
#[derive(Debug)]
pub(super) struct Frame {
    id: String,
    created_at: i64,
    model: String,
    /// Members that repeat the request, without braces; they begin with a comma.
    echo: String,
}

/// How a response stands.
#[derive(Debug, Default)]
pub(super) struct State<'a> {
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub(super) status: &'static str,
    /// Why it is incomplete.
    pub(super) incomplete: Option<&'static str>,
    /// The code and message of its failure.
    pub(super) error: Option<(&'a str, &'a str)>,
    /// Its items, each as JSON.
    pub(super) output: &'a [Vec<u8>],
    pub(super) usage: Option<Usage>,
}

#[derive(Serialize)]
struct Head<'a> {
    id: &'a str,
    object: &'static str,
    created_at: i64,
    status: &'static str,
    background: bool,
    error: Option<Fault<'a>>,
    incomplete_details: Option<Details>,
    model: &'a str,
    usage: Option<&'a Usage>,
}

#[derive(Serialize)]
struct Fault<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct Details {
    reason: &'static str,
}

type Told<'a> = Option<&'a RawValue>;

/// The members of a request that its response repeats.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Request<'a> {
    #[serde(borrow)]
    instructions: Told<'a>,
    max_output_tokens: Told<'a>,
    metadata: Told<'a>,
    parallel_tool_calls: Told<'a>,
    prompt_cache_key: Told<'a>,
    reasoning: Told<'a>,
    safety_identifier: Told<'a>,
    service_tier: Told<'a>,
    store: Told<'a>,
    temperature: Told<'a>,
    text: Told<'a>,
    tool_choice: Told<'a>,
    tools: Told<'a>,
    top_p: Told<'a>,
    truncation: Told<'a>,
    user: Told<'a>,
}

impl Frame {
    /// Of a reply.
    pub(super) fn new(reply: &Reply) -> Self {
        let request = serde_json::from_slice(&reply.request).unwrap_or_default();
        Self {
            id: format!("resp_{}", reply.id),
            created_at: reply.created,
            model: reply.model.clone(),
            echo: echo(&request),
        }
    }

    /// Of a response of which the request is not at hand.
    pub(super) fn bare(id: String, created_at: i64, model: &str) -> Self {
        Self {
            id,
            created_at,
            model: model.to_owned(),
            echo: echo(&Request::default()),
        }
    }

    /// Appends the object.
    pub(super) fn write(&self, state: &State<'_>, out: &mut Vec<u8>) {
        let head = Head {
            id: &self.id,
            object: "response",
            created_at: self.created_at,
            status: state.status,
            background: false,
            error: state.error.map(|(code, message)| Fault { code, message }),
            incomplete_details: state.incomplete.map(|reason| Details { reason }),
            model: &self.model,
            usage: state.usage.as_ref(),
        };
        // Text and numbers always serialize.
        let _ = serde_json::to_writer(&mut *out, &head);
        // The closing brace moves to the end.
        out.pop();
        out.extend_from_slice(b",\"output\":[");
        for (number, item) in state.output.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(item);
        }
        out.push(b']');
        out.extend_from_slice(self.echo.as_bytes());
        out.push(b'}');
    }
}

/// The repeated members, those that the request did not have with the values they stand for.
fn echo(request: &Request<'_>) -> String {
    let reasoning = r#"{"effort":null,"summary":null}"#;
    let text = r#"{"format":{"type":"text"}}"#;
    let members: [(&str, Told<'_>, &str); 16] = [
        ("instructions", request.instructions, "null"),
        ("max_output_tokens", request.max_output_tokens, "null"),
        ("metadata", request.metadata, "{}"),
        ("parallel_tool_calls", request.parallel_tool_calls, "true"),
        ("prompt_cache_key", request.prompt_cache_key, "null"),
        ("reasoning", request.reasoning, reasoning),
        ("safety_identifier", request.safety_identifier, "null"),
        ("service_tier", request.service_tier, "\"default\""),
        ("store", request.store, "true"),
        ("temperature", request.temperature, "1.0"),
        ("text", request.text, text),
        ("tool_choice", request.tool_choice, "\"auto\""),
        ("tools", request.tools, "[]"),
        ("top_p", request.top_p, "1.0"),
        ("truncation", request.truncation, "\"disabled\""),
        ("user", request.user, "null"),
    ];
    let mut out = String::from(r#","max_tool_calls":null,"previous_response_id":null"#);
    for (name, told, default) in members {
        let value = told.map_or(default, RawValue::get);
        let value = if value == "null" { default } else { value };
        out.push_str(",\"");
        out.push_str(name);
        out.push_str("\":");
        out.push_str(&one_line(value));
    }
    out
}

/// JSON without line breaks, of which there are none but between its parts: it is to stand in an event.
fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) {
        json.replace(['\n', '\r'], " ").into()
    } else {
        json.into()
    }
}
