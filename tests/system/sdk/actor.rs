//! What the upstream of the conformance scripts answers: it goes by the words of the last prompt, in whichever dialect
//! that came, as a model does that calls tools and writes JSON, or as a server does that fails. Pure.

use std::time::Duration;

use harness::{Behaviour, Received, Speech, Then};
use serde_json::{Value, json};

use super::heard::Heard;

/// What a caller is to be told when it is limited, in seconds; the scripts know the same.
const RETRY_AFTER: &str = "7";
/// The answer to a call for JSON.
const DOCUMENT: &str = "{\"text\":\"hello\",\"count\":1}";
/// Both calls for the weather, which go to the tool that is offered.
const CALLS: [(&str, &str, &str); 2] = [
    ("call_1", "weather", "{\"city\":\"Oslo\"}"),
    ("call_2", "weather", "{\"city\":\"Bergen\"}"),
];

/// The answer to a request.
pub(super) fn answer(request: &Received) -> Behaviour {
    let heard = Heard::of(request);
    let speech = Speech::of(request);
    let mut words = heard.prompt.split(' ');
    let behaviour = match (words.next(), words.next()) {
        _ if heard.answered => told(&heard),
        (Some("refuse"), Some(status)) => return refuse(status.parse().unwrap_or(500)),
        (Some("stumble"), None) => return Behaviour::error_in_200(error(speech, false)),
        (Some(how @ ("cut" | "reset" | "end" | "break")), Some(place)) => broken(speech, how, place),
        (Some("odd"), Some(writing)) => odd(writing),
        _ => spoken(&heard),
    };
    behaviour.usage_object(usage(speech))
}

/// What a model says that was given what its calls gave.
fn told(heard: &Heard) -> Behaviour {
    Behaviour::chat(&format!("hello, told {}", heard.results.join(" and ")))
}

/// What a model says.
fn spoken(heard: &Heard) -> Behaviour {
    if let Some(name) = &heard.forced {
        return Behaviour::chat("").tool_calls(&[("call_1", name, DOCUMENT)]);
    }
    let prompt = heard.prompt.as_str();
    if prompt.contains("weather") && heard.tools == ["weather"] {
        Behaviour::chat("").tool_calls(&CALLS)
    } else if prompt.contains("JSON") {
        Behaviour::chat(if greets(&heard.schema) {
            DOCUMENT
        } else {
            "no schema came"
        })
    } else if prompt.contains("think") {
        hello().reasoning("First I think about it.")
    } else if prompt.contains("this?") {
        let seen = heard.images.iter().map(|(kind, data)| format!("{kind} {data}"));
        Behaviour::chat(&format!("hello, seen {}", seen.collect::<Vec<_>>().join(" and ")))
    } else if prompt.contains("instructions") {
        let words = heard.instructions.split_whitespace().count();
        Behaviour::chat(&format!("hello, instructed in {words} words"))
    } else {
        hello()
    }
}

/// Whether a schema is that of a greeting.
fn greets(schema: &Value) -> bool {
    let kind = |member: &str| {
        schema["properties"][member]["type"]
            .as_str()
            .map(str::to_ascii_lowercase)
    };
    kind("text").as_deref() == Some("string") && kind("count").as_deref() == Some("integer")
}

fn hello() -> Behaviour {
    Behaviour::chat("hello from {call}")
}

/// A failure that passes.
pub(super) fn fail(status: u16) -> Behaviour {
    Behaviour::failure(status, "the scripted upstream fails once")
}

fn refuse(status: u16) -> Behaviour {
    let refused = Behaviour::failure(status, "the scripted upstream refuses this");
    if status == 429 {
        refused.header("retry-after", RETRY_AFTER)
    } else {
        refused
    }
}

/// An answer that is not whole: `how` it breaks, and at which `place`.
fn broken(speech: Speech, how: &str, place: &str) -> Behaviour {
    let (whole, after) = match (place, speech) {
        // Inside of the first call; Gemini tells a call in one piece.
        ("call", Speech::Gemini) => (Behaviour::chat("").tool_calls(&CALLS), 1),
        ("call", _) => (Behaviour::chat("").tool_calls(&CALLS), 3),
        ("thought", _) => (hello().reasoning("First I think about it."), 2),
        // All words have come, the end has not.
        ("late", _) => (hello(), 3),
        _ => (hello(), 1),
    };
    match how {
        "cut" => whole.stop_after(after, Then::Cut),
        "reset" => whole.stop_after(after, Then::Reset),
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
        "unmarked" => hello.no_done(),
        "garbled" => hello.broken_json_after(1),
        "thoughtful" => hello.reasoning("First I think about it."),
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

/// The first word of a prompt, which says what becomes of its answer.
fn verb(prompt: &str) -> &str {
    prompt.split(' ').next().unwrap_or_default()
}

/// Whether the answer to a request comes to its end; that of one that fails once, from the second time on.
pub(super) fn is_whole(request: &Received) -> bool {
    let heard = Heard::of(request);
    // A request without a turn is refused before it is read.
    let asked = heard.answered || !heard.prompt.is_empty();
    let broken = ["refuse", "stumble", "cut", "reset", "end", "break"];
    asked && !broken.contains(&verb(&heard.prompt))
}

/// Which requests fail the first time, and the status that they fail with: those whose prompt is `once STATUS`, and a word
/// of its own.
pub(super) fn fails_once(request: &Received) -> Option<(String, u16)> {
    let prompt = Heard::of(request).prompt;
    let status = prompt.strip_prefix("once ")?.split(' ').next()?.parse().ok()?;
    Some((prompt, status))
}
