//! The top level of a request: everything but what is said and what may be called. What no field holds becomes a
//! demand where it means something, a hint where it does not.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reader::{Reader, Told, invalid, unsupported};
use super::{tools, turns};
use crate::superset::request::{Conversation, Effort, Format, Member, Reasoning, Refusal, Sampling};

/// Most texts that end an answer.
const STOPS_MAX: usize = 64;

/// Members that are left out without harm, whatever they say.
const HINTS: &[&str] = &[
    "store",
    "metadata",
    "client_metadata",
    "verbosity",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "cache_control",
    "usage",
];

/// Members that mean something, and the values of them that mean nothing.
const DEMANDS: &[(&str, &[&str])] = &[
    ("n", &["1"]),
    ("logprobs", &["false"]),
    ("top_logprobs", &["0"]),
    ("logit_bias", &["{}"]),
    ("modalities", &["[\"text\"]"]),
    ("audio", &[]),
    ("prediction", &[]),
    ("web_search_options", &[]),
    ("repetition_penalty", &["1", "1.0"]),
    ("length_penalty", &["1", "1.0"]),
    ("min_tokens", &["0"]),
    ("ignore_eos", &["false"]),
    ("use_beam_search", &["false"]),
    ("best_of", &["1"]),
    ("echo", &["false"]),
    ("suffix", &["\"\""]),
    ("bad_words", &["[]"]),
    ("stop_token_ids", &["[]"]),
    ("include_stop_str_in_output", &["false"]),
    ("add_generation_prompt", &["true"]),
    ("continue_final_message", &["false"]),
    ("chat_template", &[]),
    ("chat_template_kwargs", &["{}"]),
    ("structured_outputs", &[]),
    ("guided_json", &[]),
    ("guided_regex", &[]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("grammar", &["\"\""]),
    ("json_schema", &[]),
    ("regex", &[]),
    ("provider", &["{}"]),
    ("models", &["[]"]),
    ("route", &[]),
    ("transforms", &["[]"]),
    ("plugins", &["[]"]),
    ("web_search", &[]),
    ("previous_response_id", &[]),
    ("conversation", &[]),
    ("prompt", &[]),
    ("background", &["false"]),
    ("truncation", &["\"disabled\""]),
    ("max_tool_calls", &[]),
    ("include", &["[]"]),
    ("mcp_servers", &["[]"]),
    ("container", &[]),
    ("speed", &["\"standard\""]),
];

/// What was read besides the conversation itself.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) hints: Vec<Member>,
    pub(super) demands: Vec<Member>,
}

impl Notes {
    /// Notes a hint, once by its name.
    pub(super) fn hint(&mut self, name: String, value: &RawValue) {
        if self.hints.iter().all(|hint| hint.name != name) {
            self.hints.push(member(name, value));
        }
    }

    /// Notes as hints what is left of an object, under a name for all objects of its kind.
    pub(super) fn left(&mut self, kind: &str, reader: Reader<'_>) {
        for (name, value) in reader.rest() {
            self.hint(format!("{kind}.{name}"), value);
        }
    }
}

fn member(name: String, value: &RawValue) -> Member {
    Member {
        name: name.into(),
        value: value.to_owned(),
    }
}

/// Reads a request.
pub(super) fn read(body: &[u8]) -> Result<Conversation, Refusal> {
    let mut reader = Reader::of_body(body)?;
    let mut notes = Notes::default();
    let mut conversation = Conversation {
        model: reader.required_text("model")?,
        stream: reader.flag("stream")?.unwrap_or(false),
        include_usage: stream_options(&mut reader, &mut notes)?,
        turns: turns::read(&mut reader, &mut notes)?,
        tools: tools::read(&mut reader, &mut notes)?,
        tool_choice: tools::choice(&mut reader)?,
        parallel_tool_calls: reader.flag("parallel_tool_calls")?,
        max_tokens: max_tokens(&mut reader)?,
        sampling: sampling(&mut reader)?,
        stop: stop(&mut reader)?,
        format: format(&mut reader, &mut notes)?,
        reasoning: reasoning(&mut reader)?,
        user: reader.text("user")?,
        ..Conversation::default()
    };
    service_tier(&mut reader, &mut notes);
    for (name, nothing) in DEMANDS {
        if let Some(value) = reader
            .take(name)
            .filter(|value| !nothing.contains(&compact(value).as_str()))
        {
            notes.demands.push(member((*name).to_owned(), value));
        }
    }
    for name in HINTS {
        if let Some(value) = reader.take(name) {
            notes.hint((*name).to_owned(), value);
        }
    }
    // What nobody knows was meant for one kind of server, which reads requests of this dialect as they came.
    for (name, value) in reader.all_the_rest() {
        notes.hint(name.into_owned(), value);
    }
    conversation.hints = notes.hints;
    conversation.demands = notes.demands;
    Ok(conversation)
}

/// A short value without the space between its parts.
fn compact(value: &RawValue) -> String {
    const LONGEST: usize = 64;
    let text = value.get().get(..LONGEST).unwrap_or(value.get());
    text.chars()
        .filter(|letter| !letter.is_ascii_whitespace())
        .collect()
}

fn stream_options(reader: &mut Reader<'_>, notes: &mut Notes) -> Result<bool, Refusal> {
    let Some(mut options) = reader.object("stream_options")? else {
        return Ok(false);
    };
    let include_usage = options.flag("include_usage")?.unwrap_or(false);
    notes.left("stream_options", options);
    Ok(include_usage)
}

fn service_tier(reader: &mut Reader<'_>, notes: &mut Notes) {
    const NAME: &str = "service_tier";
    match reader.take(NAME) {
        Some(tier) if matches!(tier.get(), "\"auto\"" | "\"default\"" | "\"standard_only\"") => {
            notes.hint(NAME.to_owned(), tier);
        }
        Some(tier) => notes.demands.push(member(NAME.to_owned(), tier)),
        None => {}
    }
}

/// The newer name counts where both are there.
fn max_tokens(reader: &mut Reader<'_>) -> Result<Option<u64>, Refusal> {
    let mut read = |name| {
        let tokens: Option<u64> = reader.read(name, "must be an integer, at least 1")?;
        match tokens {
            Some(0) => Err(reader.invalid(name, "must be an integer, at least 1")),
            tokens => Ok(tokens),
        }
    };
    let older = read("max_tokens")?;
    Ok(read("max_completion_tokens")?.or(older))
}

fn sampling(reader: &mut Reader<'_>) -> Result<Sampling, Refusal> {
    // Servers read 0 and -1 as all tokens.
    let top_k: Option<i64> = reader.read("top_k", "must be an integer")?;
    Ok(Sampling {
        temperature: reader.number("temperature", None)?,
        top_p: reader.number("top_p", None)?,
        top_k: top_k
            .and_then(|top_k| u64::try_from(top_k).ok())
            .filter(|&top_k| top_k > 0),
        min_p: reader.number("min_p", Some(0.0))?,
        seed: reader.read("seed", "must be an integer")?,
        frequency_penalty: reader.number("frequency_penalty", Some(0.0))?,
        presence_penalty: reader.number("presence_penalty", Some(0.0))?,
    })
}

fn stop(reader: &mut Reader<'_>) -> Result<Vec<String>, Refusal> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stop {
        One(String),
        Some(Vec<String>),
    }
    const PROBLEM: &str = "must be a string or an array of at most 64 strings";
    let mut stops = match reader.read("stop", PROBLEM)? {
        None => Vec::new(),
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Some(stops)) => stops,
    };
    stops.retain(|stop| !stop.is_empty());
    if stops.len() > STOPS_MAX {
        return Err(reader.invalid("stop", PROBLEM));
    }
    Ok(stops)
}

fn format(reader: &mut Reader<'_>, notes: &mut Notes) -> Result<Format, Refusal> {
    let Some(mut format) = reader.object("response_format")? else {
        return Ok(Format::Text);
    };
    let kind = format.required_text("type")?;
    let read = match kind.as_str() {
        "text" => Format::Text,
        // Some engines take the schema beside the type.
        "json_object" => format.take("schema").map_or(Format::JsonObject, schema_alone),
        "json_schema" => match (format.object("json_schema")?, format.take("schema")) {
            (Some(inner), _) => with_schema(inner, notes)?,
            (None, Some(schema)) => schema_alone(schema),
            (None, None) => return Err(format.invalid("json_schema", "is required")),
        },
        _ => {
            return Err(unsupported(
                format.at("type"),
                "it is none of text, json_object and json_schema",
            ));
        }
    };
    notes.left("response_format", format);
    Ok(read)
}

fn with_schema(mut inner: Reader<'_>, notes: &mut Notes) -> Result<Format, Refusal> {
    let format = Format::JsonSchema {
        name: inner.text("name")?.unwrap_or_else(|| "output".to_owned()),
        description: inner.text("description")?,
        strict: inner.flag("strict")?,
        schema: match inner.take("schema") {
            Some(schema) => schema.to_owned(),
            None => return Err(inner.invalid("schema", "is required")),
        },
    };
    notes.left("response_format.json_schema", inner);
    Ok(format)
}

fn schema_alone(schema: &RawValue) -> Format {
    Format::JsonSchema {
        name: "output".to_owned(),
        description: None,
        schema: schema.to_owned(),
        strict: None,
    }
}

/// How much to think, in any of the forms that servers of the dialect take; the more precise one counts.
fn reasoning(reader: &mut Reader<'_>) -> Result<Reasoning, Refusal> {
    let mut reasoning = Reasoning::default();
    let word = reader.take("reasoning_effort");
    reasoning.effort = effort(word, "reasoning_effort")?;
    if let Some(mut object) = reader.object("reasoning")? {
        let told = effort(object.take("effort"), "reasoning.effort")?;
        let budget = budget(&mut object, "max_tokens")?;
        let enabled = object.flag("enabled")?.map(switch);
        reasoning.effort = reasoning.effort.or(budget).or(told).or(enabled);
        reasoning.shown = object.flag("exclude")?.map(|excluded| !excluded);
    }
    if let Some(mut thinking) = reader.object("thinking")? {
        let budget = budget(&mut thinking, "budget_tokens")?;
        let kind = match thinking.required_text("type")?.as_str() {
            "enabled" => budget.or(Some(Effort::Adaptive)),
            "disabled" => Some(Effort::Off),
            "adaptive" | "auto" => Some(Effort::Adaptive),
            _ => {
                return Err(unsupported(
                    thinking.at("type"),
                    "it is none of enabled, disabled and adaptive",
                ));
            }
        };
        reasoning.effort = reasoning.effort.or(kind);
    }
    let budget = budget(reader, "thinking_budget")?;
    let enabled = reader.flag("enable_thinking")?.map(switch);
    let off = enabled.filter(|effort| *effort == Effort::Off);
    reasoning.effort = reasoning.effort.or(off).or(budget).or(enabled);
    if let Some(shown) = reader.flag("include_reasoning")? {
        reasoning.shown = reasoning.shown.or(Some(shown));
    }
    Ok(reasoning)
}

const fn switch(enabled: bool) -> Effort {
    if enabled { Effort::Adaptive } else { Effort::Off }
}

fn budget(reader: &mut Reader<'_>, name: &str) -> Result<Option<Effort>, Refusal> {
    let tokens: Option<u64> = reader.read(name, "must be an integer, at least 0")?;
    Ok(tokens.map(|tokens| {
        if tokens == 0 {
            Effort::Off
        } else {
            Effort::Budget(tokens)
        }
    }))
}

fn effort(word: Told<'_>, path: &'static str) -> Result<Option<Effort>, Refusal> {
    let Some(word) = word else {
        return Ok(None);
    };
    Ok(Some(match word.get() {
        "\"none\"" => Effort::Off,
        "\"minimal\"" => Effort::Minimal,
        "\"low\"" => Effort::Low,
        "\"medium\"" => Effort::Medium,
        "\"high\"" => Effort::High,
        "\"xhigh\"" => Effort::ExtraHigh,
        "\"max\"" => Effort::Max,
        "\"default\"" | "\"auto\"" => return Ok(None),
        _ => {
            return Err(invalid(
                path,
                "must be one of none, minimal, low, medium, high, xhigh and max",
            ));
        }
    }))
}
