//! What an answer says, put together as a client of its dialect does, so that one table of expectations serves all
//! dialects. Illegal answers are refused with a panic: events out of order, changed ids, missing members. Written from
//! the dialects' own rules, apart from the code that writes such answers.

use serde_json::Value;

use super::surface::Surface;

mod chat;
mod messages;
mod responses;

/// An answer in words that all dialects share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The id of the answer.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The text.
    pub text: String,
    /// The thoughts, as far as they are readable.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<ToldCall>,
    /// Why it ended, in the words of chat; empty when it did not say.
    pub finish: String,
    /// The tokens; `None` when they were not told.
    pub usage: Option<Counts>,
}

/// A tool call of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToldCall {
    /// The id that its result refers to.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, as they were written.
    pub arguments: String,
}

impl ToldCall {
    /// The arguments as JSON; panics when they are none.
    pub fn input(&self) -> Value {
        serde_json::from_str(&self.arguments)
            .unwrap_or_else(|error| panic!("the arguments of {}: {error}: {}", self.name, self.arguments))
    }
}

/// Tokens in disjoint classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Input that was read anew.
    pub fresh: u64,
    /// Input from a cache.
    pub cached: u64,
    /// Input that went into a cache.
    pub written: u64,
    /// Output, thoughts included.
    pub output: u64,
}

impl Told {
    /// What a whole body says.
    pub fn whole(surface: Surface, body: &Value) -> Self {
        match surface {
            Surface::Chat | Surface::Completions => chat::whole(body),
            Surface::Responses => responses::whole(body),
            Surface::Messages => messages::whole(body),
        }
    }

    /// What the events of a stream say; `ended`: it had its end mark.
    pub fn streamed(surface: Surface, events: &[&Value], ended: bool) -> Self {
        match surface {
            Surface::Chat | Surface::Completions => chat::streamed(events, ended),
            Surface::Responses => responses::streamed(events, ended),
            Surface::Messages => messages::streamed(events, ended),
        }
    }
}

/// A member that must be text.
fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    let told = value[member].as_str();
    told.unwrap_or_else(|| panic!("`{member}` is no text in {value}"))
}

/// A member that must be a whole number.
fn number(value: &Value, member: &str) -> u64 {
    let told = value[member].as_u64();
    told.unwrap_or_else(|| panic!("`{member}` is no whole number in {value}"))
}

/// A member that must be a list.
fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    let told = value[member].as_array();
    told.unwrap_or_else(|| panic!("`{member}` is no list in {value}"))
}

/// A number where it is told, 0 where it is not.
fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests;
