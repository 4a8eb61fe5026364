//! What a caller is told of a parameter that his model's provider does not take: by the name that it has on his
//! surface, or the place of the part that he sent.

use std::borrow::Cow;

use schemas::event::request::Surface;
use schemas::parameter::Parameters;
use serde_json::value::RawValue;

use crate::object::{Object, Path, shown};
use crate::superset::request::{THOUGHTS, Unmappable};

/// The same refusal to a caller on `surface` who sent `body`.
pub fn told(surface: Surface, body: &[u8], refused: Unmappable) -> Unmappable {
    let request = std::str::from_utf8(body).ok().and_then(Object::read);
    let Some(request) = request else {
        return refused;
    };
    let place = kinds(surface, &refused.param).and_then(|kinds| place(&request, kinds));
    let param = match place {
        Some(place) => place.into(),
        None => renamed(surface, &request, refused.param),
    };
    Unmappable { param, ..refused }
}

/// Parameters that were dropped, as a caller on `surface` who sent `body` calls them.
pub fn dropped(surface: Surface, body: &[u8], params: Vec<Cow<'static, str>>) -> Vec<Cow<'static, str>> {
    if params.iter().all(|param| names(surface, param).is_empty()) {
        return params;
    }
    let request = std::str::from_utf8(body).ok().and_then(Object::read);
    let Some(request) = request else {
        return params;
    };
    let called = |param| renamed(surface, &request, param);
    params.into_iter().map(called).collect()
}

/// What a caller on `surface` who sent `body` calls one parameter: the first of its names that he wrote.
pub fn called(surface: Surface, body: &[u8], parameter: Parameters) -> &'static str {
    let request = std::str::from_utf8(body).ok().and_then(Object::read);
    let names = super::names(surface, parameter).iter();
    let mut written = names.filter(|name| request.as_ref().is_some_and(|request| has(request, name)));
    written.next().copied().unwrap_or(super::name(surface, parameter))
}

/// What stands for a parameter on a surface: of several names the one that counts where more are there.
fn names(surface: Surface, param: &str) -> &'static [&'static str] {
    match (surface, param) {
        (Surface::Completions, "messages") => &["prompt"],
        (Surface::Responses, "messages") => &["input"],
        (Surface::Messages, "stop") => &["stop_sequences"],
        (Surface::Messages, "response_format") => &["output_config.format", "output_format"],
        (Surface::Responses, "response_format") => &["text.format"],
        (Surface::Responses, "max_tokens") => &["max_output_tokens"],
        (Surface::Chat, "max_tokens") => &["max_tokens", "max_completion_tokens"],
        (Surface::Messages, "reasoning_effort") => &["thinking", "output_config.effort"],
        (Surface::Responses, "reasoning_effort") => &["reasoning.effort"],
        (Surface::Chat, "reasoning_effort") => &[
            "reasoning_effort",
            "reasoning",
            "thinking",
            "enable_thinking",
            "thinking_budget",
        ],
        (Surface::Messages, "parallel_tool_calls") => &["tool_choice.disable_parallel_tool_use"],
        (Surface::Messages, "user") => &["metadata.user_id"],
        (Surface::Messages, THOUGHTS) => &["messages.content.thinking"],
        (Surface::Responses, THOUGHTS) => &["input.reasoning"],
        (Surface::Chat, "tool_choice") => &["tool_choice", "function_call"],
        (Surface::Responses, "verbosity") => &["text.verbosity"],
        _ => &[],
    }
}

fn renamed(surface: Surface, request: &Object<'_>, param: Cow<'static, str>) -> Cow<'static, str> {
    let names = names(surface, &param);
    let sent = names.iter().find(|name| has(request, name));
    if let Some(name) = sent.or_else(|| names.first()) {
        return (*name).into();
    }
    if surface == Surface::Messages
        && let Some(tool) = param.strip_prefix("tools.")
        && let Some(number) = tool.strip_suffix(".parameters")
    {
        return format!("tools.{number}.input_schema").into();
    }
    param
}

/// Whether a request has a member, or a member of one.
fn has(request: &Object<'_>, path: &str) -> bool {
    let (outer, inner) = path.split_once('.').unwrap_or((path, ""));
    let mut members = request.members();
    members.any(|(name, value)| {
        name == outer && (inner.is_empty() || Object::read(value.get()).is_some_and(|own| has(&own, inner)))
    })
}

/// The types of parts that a parameter stands for, where a surface has other words for them.
fn kinds(surface: Surface, param: &str) -> Option<&'static [&'static str]> {
    if !matches!(surface, Surface::Messages | Surface::Responses) {
        return None;
    }
    match param {
        "image_url" => Some(&["image", "input_image"]),
        "file" => Some(&["document", "input_file"]),
        "input_audio" => Some(&["input_audio"]),
        _ => None,
    }
}

/// The place of a part of some types: of the first that is somewhere else, or else the first.
fn place(request: &Object<'_>, kinds: &[&str]) -> Option<String> {
    let mut found = Vec::new();
    for (name, value) in request.members() {
        if matches!(name, "messages" | "input") {
            find(value, &Path::Root.member(name), kinds, &mut found);
        }
    }
    let elsewhere = found.iter().position(|(is_inline, _)| !is_inline).unwrap_or(0);
    (!found.is_empty()).then(|| found.swap_remove(elsewhere).1)
}

/// Gathers parts of some types, and whether they have their bytes in them.
fn find(value: &RawValue, path: &Path<'_>, kinds: &[&str], found: &mut Vec<(bool, String)>) {
    let text = value.get();
    if text.starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        for (number, value) in list.into_iter().enumerate() {
            find(value, &path.element(number), kinds, found);
        }
        return;
    }
    let Some(object) = Object::read(text) else {
        return;
    };
    let kind = object.members().find(|(name, _)| *name == "type");
    let kind = kind.map_or("", |(_, kind)| kind.get().trim_matches('"'));
    if kinds.contains(&kind) {
        let is_inline = text.contains("data:") || text.contains("\"base64\"");
        found.push((is_inline, path.to_string()));
        return;
    }
    for (name, value) in object.members() {
        // What a message says, and what a tool answered.
        if matches!(name, "content" | "output") {
            find(value, &path.member(shown(name)), kinds, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(surface: Surface, param: &'static str, body: &str) -> String {
        let refused = Unmappable {
            param: param.into(),
            problem: "no".into(),
        };
        told(surface, body.as_bytes(), refused).param.into_owned()
    }

    #[test]
    fn callers_are_told_their_own_names() {
        for (surface, param, body, own) in [
            (Surface::Messages, "stop", "{}", "stop_sequences"),
            (Surface::Chat, "stop", "{}", "stop"),
            (Surface::Completions, "messages", "{}", "prompt"),
            (Surface::Responses, "messages", "{}", "input"),
            (Surface::Responses, "response_format", "{}", "text.format"),
            (
                Surface::Messages,
                "response_format",
                r#"{"output_format":{}}"#,
                "output_format",
            ),
            (
                Surface::Messages,
                "response_format",
                r#"{"output_config":{"format":{}}}"#,
                "output_config.format",
            ),
            (
                Surface::Chat,
                "max_tokens",
                r#"{"max_completion_tokens":9}"#,
                "max_completion_tokens",
            ),
            (Surface::Responses, "max_tokens", "{}", "max_output_tokens"),
            (
                Surface::Chat,
                "tool_choice",
                r#"{"function_call":{}}"#,
                "function_call",
            ),
            (
                Surface::Messages,
                "tools.2.parameters",
                "{}",
                "tools.2.input_schema",
            ),
            (Surface::Messages, "seed", "{}", "seed"),
            (Surface::Messages, "stop", "[", "stop"),
        ] {
            assert_eq!(name(surface, param, body), own, "{surface:?} {param} {body}");
        }
    }

    #[test]
    fn of_several_names_for_a_parameter_callers_are_told_the_one_that_they_wrote() {
        for (surface, parameter, body, own) in [
            (
                Surface::Chat,
                Parameters::TOOLS,
                r#"{"functions":[{}],"function_call":"auto"}"#,
                "functions",
            ),
            (
                Surface::Chat,
                Parameters::TOOLS,
                r#"{"tool_choice":"auto"}"#,
                "tool_choice",
            ),
            (
                Surface::Chat,
                Parameters::LOGPROBS,
                r#"{"top_logprobs":2}"#,
                "top_logprobs",
            ),
            (
                Surface::Chat,
                Parameters::EFFORT,
                r#"{"thinking_budget":9}"#,
                "thinking_budget",
            ),
            (
                Surface::Messages,
                Parameters::EFFORT,
                r#"{"thinking":{"type":"adaptive"}}"#,
                "thinking",
            ),
            (
                Surface::Messages,
                Parameters::FORMAT,
                r#"{"output_format":{}}"#,
                "output_format",
            ),
            (
                Surface::Responses,
                Parameters::FORMAT,
                r#"{"text":{}}"#,
                "text.format",
            ),
            (Surface::Chat, Parameters::TOP_K, "[", "top_k"),
        ] {
            assert_eq!(
                called(surface, body.as_bytes(), parameter),
                own,
                "{surface:?} {body}"
            );
        }
    }

    #[test]
    fn a_part_is_told_by_its_place() {
        let messages = r#"{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"YQ=="}},{"type":"image","source":{"type":"url","url":"https://pictures.example/a"}}]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"url"}}]}]}]}"#;
        let responses = r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_file","file_url":"https://files.example/a"}]}]}"#;

        assert_eq!(
            name(Surface::Messages, "image_url", messages),
            "messages.0.content.1"
        );
        assert_eq!(
            name(Surface::Messages, "file", messages),
            "messages.1.content.0.content.0"
        );
        assert_eq!(name(Surface::Responses, "file", responses), "input.0.content.1");
        assert_eq!(name(Surface::Responses, "input_audio", responses), "input_audio");
    }
}
