//! What the upstream of the conformance scripts answers: it goes by the words of the last prompt, in whichever dialect
//! that came, as a model does that calls tools and writes JSON, or as a server does that fails. Pure.

use std::time::Duration;

use harness::{Behaviour, Received, Speech, Then};
use serde_json::{Value, json};

/// What a caller is to be told when it is limited, in seconds; the scripts know the same.
const RETRY_AFTER: &str = "7";
/// The answer to a call for JSON.
const DOCUMENT: &str = "{\"text\":\"hello\",\"count\":1}";
/// Both calls for the weather.
const CALLS: [(&str, &str, &str); 2] = [
    ("call_1", "weather", "{\"city\":\"Oslo\"}"),
    ("call_2", "weather", "{\"city\":\"Bergen\"}"),
];

/// The last turn of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    /// Its text.
    pub(super) prompt: String,
    /// It holds results of calls.
    pub(super) results: bool,
    /// The request offers tools.
    pub(super) tools: bool,
    /// The tool that must be called, where there is one.
    pub(super) forced: Option<String>,
}

impl Heard {
    /// Reads a request of any dialect.
    pub(super) fn of(request: &Received) -> Self {
        let body = request.json();
        let speech = Speech::of(request);
        let turns = match speech {
            Speech::Gemini => &body["contents"],
            Speech::Responses => &body["input"],
            _ => &body["messages"],
        };
        // Instructions may stand behind what they are about.
        let instructs = |turn: &&Value| matches!(turn["role"].as_str(), Some("system" | "developer"));
        let last = turns
            .as_array()
            .and_then(|turns| turns.iter().rev().find(|turn| !instructs(turn)))
            .unwrap_or(turns);
        let mut prompt = String::new();
        texts(last, &mut prompt);
        let whole = last.to_string();
        let answered = [
            "\"tool_result\"",
            "\"functionResponse\"",
            "\"function_call_output\"",
        ];
        let choice = &body["tool_choice"];
        let allowed = &body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"];
        let forced = [&choice["name"], &choice["function"]["name"], &allowed[0]];
        Self {
            prompt,
            results: last["role"] == "tool" || answered.iter().any(|word| whole.contains(word)),
            tools: body["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
            forced: forced.iter().find_map(|name| name.as_str().map(str::to_owned)),
        }
    }
}

/// Gathers what is said in a turn.
fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => parts.iter().for_each(|part| texts(part, into)),
        Value::Object(turn) => ["content", "parts", "text"]
            .iter()
            .filter_map(|member| turn.get(*member))
            .for_each(|member| texts(member, into)),
        _ => {}
    }
}

/// The answer to a request.
pub(super) fn answer(request: &Received) -> Behaviour {
    let heard = Heard::of(request);
    let speech = Speech::of(request);
    let mut words = heard.prompt.split(' ');
    let behaviour = match (words.next(), words.next()) {
        _ if heard.results => hello(),
        (Some("refuse"), Some(status)) => return refuse(status.parse().unwrap_or(500)),
        (Some("stumble"), None) => return Behaviour::error_in_200(error(speech, false)),
        (Some(how @ ("cut" | "end" | "break")), Some(place)) => broken(speech, how, place),
        (Some("odd"), Some(writing)) => odd(writing),
        _ => spoken(&heard),
    };
    behaviour.usage_object(usage(speech))
}

/// What a model says.
fn spoken(heard: &Heard) -> Behaviour {
    if let Some(name) = &heard.forced {
        return Behaviour::chat("").tool_calls(&[("call_1", name, DOCUMENT)]);
    }
    if heard.prompt.contains("weather") && heard.tools {
        Behaviour::chat("").tool_calls(&CALLS)
    } else if heard.prompt.contains("JSON") {
        Behaviour::chat(DOCUMENT)
    } else if heard.prompt.contains("think") {
        hello().reasoning("First I think about it.")
    } else {
        hello()
    }
}

fn hello() -> Behaviour {
    Behaviour::chat("hello from {call}")
}

fn refuse(status: u16) -> Behaviour {
    let refused = Behaviour::failure(status, "the scripted upstream refuses this");
    if status == 429 {
        refused.header("retry-after", RETRY_AFTER)
    } else {
        refused
    }
}

/// An answer that ends before its end: `how` it ends, and at which `place`.
fn broken(speech: Speech, how: &str, place: &str) -> Behaviour {
    let (whole, after) = match (place, speech) {
        // Inside of the first call; Gemini tells a call in one piece.
        ("call", Speech::Gemini) => (Behaviour::chat("").tool_calls(&CALLS), 1),
        ("call", _) => (Behaviour::chat("").tool_calls(&CALLS), 3),
        // All words have come, the end has not.
        ("late", _) => (hello(), 3),
        _ => (hello(), 1),
    };
    match how {
        "cut" => whole.stop_after(after, Then::Cut),
        "end" => whole.cut_after_chunks(after),
        _ => whole.error_after(after, error(speech, place == "text")),
    }
}

/// An error inside a stream, as servers of the dialect tell it; `choosing`: with a choice beside it, as OpenRouter does.
fn error(speech: Speech, choosing: bool) -> Value {
    match speech {
        Speech::Messages => {
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "scripted"}})
        }
        Speech::Gemini => {
            json!({"error": {"code": 503, "message": "scripted", "status": "UNAVAILABLE"}})
        }
        _ if choosing => json!({
            "id": "gen-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
            "error": {"code": 502, "message": "scripted"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        }),
        _ => json!({"error": {"message": "scripted", "type": "server_error", "code": 502}}),
    }
}

/// A whole answer in one of the writings that servers have.
fn odd(writing: &str) -> Behaviour {
    let hello = hello();
    match writing {
        "crlf" => hello.line_ending("\r\n"),
        "bom" => hello.bom(),
        "comments" => hello.comments_first(3),
        "unspaced" => hello.no_space_after_data(),
        "lines" => hello.two_data_lines(),
        "bytes" => hello.dribble(7, Duration::from_micros(100)),
        "gzip" => hello.gzip(),
        "counting" => hello.usage_every_chunk(),
        "endless" => hello.until_close(),
        _ => hello.split_at(40),
    }
}

/// The same tokens for every answer: 17 in, of which 4 were read from a cache and 3 written to one, and 20 out. Gemini
/// does not tell what is written.
fn usage(speech: Speech) -> Value {
    match speech {
        Speech::Messages => json!({
            "input_tokens": 10, "output_tokens": 20,
            "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3,
        }),
        Speech::Gemini => json!({
            "promptTokenCount": 17, "cachedContentTokenCount": 4,
            "candidatesTokenCount": 20, "totalTokenCount": 37,
        }),
        _ => json!({
            "prompt_tokens": 17, "completion_tokens": 20, "total_tokens": 37,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
        }),
    }
}

/// Whether the answer to a request comes to its end.
pub(super) fn is_whole(request: &Received) -> bool {
    let heard = Heard::of(request);
    let verb = heard.prompt.split(' ').next().unwrap_or_default();
    // A request without a turn is refused before it is read.
    let asked = heard.results || !heard.prompt.is_empty();
    asked && !matches!(verb, "refuse" | "stumble" | "cut" | "end" | "break")
}
