//! Requests of Responses: what is read of them, and what is written in them.

use serde_json::{Value, json};

use super::*;
use crate::profile;
use crate::superset::request::{Part, Turn};

mod items;
mod recorded;
mod settings;
mod writing;

fn read(body: &Value) -> Result<Conversation, Refusal> {
    decode(body.to_string().as_bytes())
}

/// A request with these members beside a model and an input.
fn with(members: &Value) -> Value {
    let mut body = json!({"model": "m", "input": "hi"});
    for (name, value) in members.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// The member by which a request is refused, and whether it is of the dialect at all.
fn refused(body: &Value) -> (String, bool) {
    match read(body) {
        Err(Refusal::Invalid { param, .. }) => (param.into_owned(), false),
        Err(Refusal::Unsupported { param, .. }) => (param.into_owned(), true),
        other => panic!("{other:?}: {body}"),
    }
}

fn unsupported(param: &str) -> (String, bool) {
    (param.to_owned(), true)
}

fn invalid(param: &str) -> (String, bool) {
    (param.to_owned(), false)
}

fn names(members: &[crate::superset::request::Member]) -> Vec<&str> {
    members.iter().map(|member| &*member.name).collect()
}

fn target() -> Target<'static> {
    Target {
        model: "upstream",
        profile: &profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 100,
        max_tokens_limit: None,
        drop_params: false,
    }
}

/// What an upstream is sent, and what is dropped.
fn sent(conversation: &Conversation) -> (Value, Vec<String>) {
    let encoded = encode(conversation, &target()).expect("sent");
    let body = serde_json::from_slice(&encoded.body).expect("JSON");
    let dropped = encoded.dropped.iter().map(ToString::to_string).collect();
    (body, dropped)
}

/// The texts of a turn.
fn texts(turn: &Turn) -> Vec<&str> {
    let texts = turn.parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
