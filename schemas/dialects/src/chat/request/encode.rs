//! A request for an upstream, by what its kind of server tolerates. Members always come in the same order, so that
//! caches of prompts hold.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::messages;
use super::offer;
use super::order;
use super::renamed::Renamed;
use crate::chat::mint;
use crate::profile::{Profile, Thinking};
use crate::superset::request::{Conversation, Effort, Encoded, Format, Member, Sampling, Target, Unmappable};

/// Longest name of a caller's customer.
const USER_CHARS_MAX: usize = 64;

/// Hints that servers of the dialect know.
const HINTS: &[&str] = &[
    "store",
    "metadata",
    "verbosity",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
];

/// Demands whose answers this gateway cannot give back once it reads them, or that are of another dialect.
const REFUSED: &[(&str, &str)] = &[
    ("n", "one answer is given where answers are translated"),
    (
        "logprobs",
        "log probabilities are lost where answers are translated",
    ),
    (
        "top_logprobs",
        "log probabilities are lost where answers are translated",
    ),
    ("audio", "sound is lost where answers are translated"),
    ("modalities", "only text is given where answers are translated"),
    (
        "web_search_options",
        "sources are lost where answers are translated",
    ),
];

/// Demands that are carried as they were written.
const CARRIED: &[&str] = &[
    "logit_bias",
    "prediction",
    "service_tier",
    "repetition_penalty",
    "length_penalty",
    "min_tokens",
    "ignore_eos",
    "use_beam_search",
    "bad_words",
    "stop_token_ids",
    "include_stop_str_in_output",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "json_schema",
    "regex",
    "provider",
    "models",
    "route",
    "transforms",
    "plugins",
];

/// A JSON object as it is written, and what is left out of it.
pub(super) struct Draft<'t> {
    body: Vec<u8>,
    pub(super) target: &'t Target<'t>,
    pub(super) dropped: Vec<Cow<'static, str>>,
}

impl<'t> Draft<'t> {
    pub(super) const fn profile(&self) -> &'t Profile {
        self.target.profile
    }

    /// Reports something that was left out, once.
    pub(super) fn drop(&mut self, name: impl Into<Cow<'static, str>>) {
        let name = name.into();
        if !self.dropped.contains(&name) {
            self.dropped.push(name);
        }
    }

    /// Leaves something out where the route allows it, else refuses it.
    pub(super) fn refuse(&mut self, param: &str, problem: &'static str) -> Result<(), Unmappable> {
        if self.target.drop_params {
            self.drop(param.to_owned());
            return Ok(());
        }
        Err(Unmappable {
            param: param.to_owned().into(),
            problem: problem.into(),
        })
    }

    /// True when the server refuses a member that can be left out; then it is reported.
    pub(super) fn drops(&mut self, name: &'static str) -> bool {
        let drops = self.profile().drops.contains(&name);
        if drops {
            self.drop(name);
        }
        drops
    }

    /// Writes a member.
    pub(super) fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.body.push(if self.body.is_empty() { b'{' } else { b',' });
        json(&mut self.body, name);
        self.body.push(b':');
        json(&mut self.body, value);
    }

    /// Writes a member unless the server refuses it.
    pub(super) fn put_unless_dropped<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        if !self.drops(name) {
            self.put(name, value);
        }
    }
}

/// Appends a value. Text, numbers and raw JSON always serialize.
pub(super) fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "a value of known shape always serializes");
}

/// Writes a request.
pub(super) fn write(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    let mut draft = Draft {
        body: Vec::with_capacity(1024),
        target,
        dropped: Vec::new(),
    };
    let renamed = Renamed::new(&conversation.tools);
    draft.put("model", target.model);
    let ordered = target
        .profile
        .results_follow
        .then(|| order::of(&conversation.turns))
        .flatten();
    let turns = match &ordered {
        Some((turns, is_dropped)) => {
            if *is_dropped {
                draft.drop("tool_calls");
            }
            turns
        }
        None => &conversation.turns,
    };
    let messages = messages::of(turns, &renamed, &mut draft)?;
    draft.put("messages", &messages);
    offer::tools(conversation, &renamed, &mut draft)?;
    if let Some(max_tokens) = conversation.max_tokens {
        let newer = target.profile.max_completion_tokens;
        draft.put(
            if newer {
                "max_completion_tokens"
            } else {
                "max_tokens"
            },
            &max_tokens,
        );
    }
    sampling(&conversation.sampling, &mut draft)?;
    stop(&conversation.stop, &mut draft)?;
    format(&conversation.format, &mut draft)?;
    reasoning(conversation, &mut draft);
    if let Some(user) = &conversation.user {
        draft.put_unless_dropped("user", &customer(user));
    }
    for demand in &conversation.demands {
        carry(demand, &mut draft)?;
    }
    for hint in &conversation.hints {
        hint_of(hint, &mut draft);
    }
    if conversation.stream {
        draft.put("stream", &true);
        if !target.profile.drops.contains(&"stream_options") {
            draft.put("stream_options", &StreamOptions { include_usage: true });
        }
    }
    draft.body.push(b'}');
    Ok(Encoded {
        body: draft.body.into(),
        headers: Vec::new(),
        dropped: draft.dropped,
        names: renamed.into_names(),
    })
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// A customer's name that fits.
fn customer(user: &str) -> Cow<'_, str> {
    if user.chars().nth(USER_CHARS_MAX).is_none() {
        return user.into();
    }
    format!("user_{:032x}", mint::digest(&[user])).into()
}

fn sampling(sampling: &Sampling, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    const PROBLEM: &str = "its provider draws tokens in other ways";
    let numbers = [
        ("temperature", &sampling.temperature),
        ("top_p", &sampling.top_p),
        ("frequency_penalty", &sampling.frequency_penalty),
        ("presence_penalty", &sampling.presence_penalty),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            draft.put_unless_dropped(name, number);
        }
    }
    if let Some(top_k) = sampling.top_k {
        if draft.profile().top_k {
            draft.put("top_k", &top_k);
        } else {
            draft.refuse("top_k", PROBLEM)?;
        }
    }
    if let Some(min_p) = &sampling.min_p {
        if draft.profile().top_k {
            draft.put("min_p", min_p);
        } else {
            draft.refuse("min_p", PROBLEM)?;
        }
    }
    if let Some(seed) = sampling.seed {
        draft.put_unless_dropped(draft.profile().seed, &seed);
    }
    Ok(())
}

fn stop(stop: &[String], draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    if stop.is_empty() {
        return Ok(());
    }
    let most = draft.profile().stops_max;
    if stop.len() > most {
        draft.refuse("stop", "its provider takes fewer texts")?;
    }
    draft.put("stop", stop.get(..most).unwrap_or(stop));
    Ok(())
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: Schema<'a> },
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Schema<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

fn format(format: &Format, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    match format {
        Format::Text => {}
        Format::JsonObject => draft.put("response_format", &ResponseFormat::JsonObject),
        Format::JsonSchema { .. } if !draft.profile().json_schema => {
            draft.refuse("response_format", "its provider knows no formats with a schema")?;
        }
        Format::JsonSchema {
            name,
            description,
            schema,
            strict,
        } => draft.put(
            "response_format",
            &ResponseFormat::JsonSchema {
                json_schema: Schema {
                    name,
                    description: description.as_deref(),
                    schema,
                    strict: *strict,
                },
            },
        ),
    }
    Ok(())
}

#[derive(Serialize)]
struct TemplateArguments {
    enable_thinking: bool,
}

#[derive(Serialize)]
struct Switch {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "snake_case")]
struct Object {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclude: Option<bool>,
}

fn reasoning(conversation: &Conversation, draft: &mut Draft<'_>) {
    let reasoning = &conversation.reasoning;
    let profile = draft.profile();
    if profile.thinking == Thinking::Object {
        let mut object = Object {
            exclude: reasoning.shown.filter(|shown| !shown).map(|shown| !shown),
            ..Object::default()
        };
        match reasoning.effort {
            None => {}
            Some(Effort::Budget(tokens)) => object.max_tokens = Some(tokens),
            Some(Effort::Adaptive) => object.enabled = Some(true),
            Some(effort) => object.effort = Some(word(effort, draft.target)),
        }
        if reasoning.effort.is_some() || object.exclude.is_some() {
            draft.put("reasoning", &object);
        }
        return;
    }
    let Some(effort) = reasoning.effort else {
        return;
    };
    let graded = !matches!(effort, Effort::Off | Effort::Adaptive);
    match profile.thinking {
        Thinking::Effort if effort == Effort::Adaptive => {}
        Thinking::Effort => draft.put_unless_dropped("reasoning_effort", word(effort, draft.target)),
        Thinking::Template => {
            let told = |name: &str| conversation.demands.iter().any(|demand| demand.name == name);
            if effort != Effort::Adaptive && !told("chat_template_kwargs") {
                let enable_thinking = effort != Effort::Off;
                draft.put("chat_template_kwargs", &TemplateArguments { enable_thinking });
            }
            if graded {
                draft.put("reasoning_effort", word(effort, draft.target));
            }
        }
        Thinking::Switch => {
            let kind = if effort == Effort::Off {
                "disabled"
            } else {
                "enabled"
            };
            draft.put("thinking", &Switch { kind });
            if graded {
                draft.drop("reasoning_effort");
            }
        }
        Thinking::Object | Thinking::None => draft.drop("reasoning_effort"),
    }
}

/// The word for how much to think: budgets by bands, and no more than the server or its model knows.
fn word(effort: Effort, target: &Target<'_>) -> &'static str {
    let finer = |word: &str| target.profile.effort_xhigh || target.lists(word);
    target.effort(match effort {
        Effort::Off => "none",
        // Templates and most servers know three words.
        Effort::Minimal if finer("minimal") => "minimal",
        Effort::Minimal | Effort::Low | Effort::Budget(0..=4096) => "low",
        Effort::Adaptive | Effort::Medium | Effort::Budget(4097..=16_384) => "medium",
        Effort::Max if target.lists("max") => "max",
        Effort::ExtraHigh | Effort::Max if finer("xhigh") => "xhigh",
        Effort::High | Effort::ExtraHigh | Effort::Max | Effort::Budget(_) => "high",
    })
}

fn carry(demand: &Member, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    let name = demand.name.as_ref();
    if let Some((_, problem)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return draft.refuse(name, problem);
    }
    let Some(name) = CARRIED.iter().find(|carried| **carried == name) else {
        return draft.refuse(name, "its provider speaks another dialect");
    };
    if draft.profile().drops.contains(name) {
        return draft.refuse(name, "its provider has no such parameter");
    }
    draft.put(name, &demand.value);
    Ok(())
}

fn hint_of(hint: &Member, draft: &mut Draft<'_>) {
    match HINTS.iter().find(|known| **known == hint.name) {
        Some(name) => draft.put_unless_dropped(name, &hint.value),
        None => draft.drop(hint.name.clone()),
    }
}
