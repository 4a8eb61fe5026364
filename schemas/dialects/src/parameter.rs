//! What parameters are called on each surface, and requests without some of them. Used where a model does not take
//! what is asked for: everything else of the request stays as it was written.

use std::borrow::Cow;

use bytes::Bytes;
use schemas::event::request::Surface;
use schemas::parameter::Parameters;
use serde_json::value::RawValue;

use crate::object::Object;

pub mod told;

/// What callers of `surface` call one parameter, as a path with dots.
pub fn name(surface: Surface, parameter: Parameters) -> &'static str {
    names(surface, parameter).first().copied().unwrap_or_default()
}

/// Every member that goes with one parameter, the one that it is called by first. At most one dot is in each.
fn names(surface: Surface, parameter: Parameters) -> &'static [&'static str] {
    const PLAIN: [(Parameters, &[&str]); 13] = [
        (Parameters::TEMPERATURE, &["temperature"]),
        (Parameters::TOP_P, &["top_p"]),
        (Parameters::TOP_K, &["top_k"]),
        (Parameters::MIN_P, &["min_p"]),
        (Parameters::STOP, &["stop"]),
        (Parameters::SEED, &["seed"]),
        (Parameters::FREQUENCY_PENALTY, &["frequency_penalty"]),
        (Parameters::PRESENCE_PENALTY, &["presence_penalty"]),
        (Parameters::REPETITION_PENALTY, &["repetition_penalty"]),
        (Parameters::LOGIT_BIAS, &["logit_bias"]),
        (Parameters::LOGPROBS, &["logprobs", "top_logprobs"]),
        (Parameters::CHOICES, &["n"]),
        (Parameters::DIMENSIONS, &["dimensions"]),
    ];
    match (surface, parameter) {
        (Surface::Messages, Parameters::STOP) => &["stop_sequences"],
        (Surface::Messages, Parameters::EFFORT) => &["output_config.effort", "thinking"],
        (Surface::Messages, Parameters::TOOLS) => &["tools", "tool_choice"],
        (Surface::Messages, Parameters::FORMAT) => &["output_config.format", "output_format"],
        (Surface::Responses, Parameters::LOGPROBS) => &["top_logprobs"],
        (Surface::Responses, Parameters::EFFORT) => &["reasoning.effort"],
        (Surface::Responses, Parameters::TOOLS) => &["tools", "tool_choice", "parallel_tool_calls"],
        (Surface::Responses, Parameters::FORMAT) => &["text.format"],
        (_, Parameters::EFFORT) => &[
            "reasoning_effort",
            "reasoning",
            "thinking",
            "enable_thinking",
            "thinking_budget",
        ],
        (_, Parameters::TOOLS) => &[
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "functions",
            "function_call",
        ],
        (_, Parameters::FORMAT) => &["response_format"],
        _ => PLAIN
            .iter()
            .find(|(plain, _)| *plain == parameter)
            .map_or(&[], |(_, names)| names),
    }
}

/// The body of a request on `surface` without `parameters`, and what of it was there. What is no object stays.
pub fn without(surface: Surface, body: &Bytes, parameters: Parameters) -> (Bytes, Vec<&'static str>) {
    let unwanted: Vec<&'static str> = parameters
        .each()
        .flat_map(|parameter| names(surface, parameter))
        .copied()
        .collect();
    taken_out(body, &unwanted)
}

/// The words of a request that say how much to think, and the members where they stand. Not to think at all is none.
pub fn effort_words(surface: Surface, body: &[u8]) -> Vec<(&'static str, String)> {
    let places: &[&'static str] = match surface {
        Surface::Messages => &["output_config.effort"],
        Surface::Responses => &["reasoning.effort"],
        _ => &["reasoning_effort", "reasoning.effort"],
    };
    let word = |place: &'static str| {
        let word: String = serde_json::from_str(at(body, place)?.get()).ok()?;
        (word != "none").then_some((place, word))
    };
    places.iter().filter_map(|place| word(place)).collect()
}

/// The value of a member, by its path.
fn at<'a>(body: &'a [u8], path: &str) -> Option<&'a RawValue> {
    let mut object = Object::read(std::str::from_utf8(body).ok()?)?;
    match path.split_once('.') {
        None => object.take(path),
        Some((outer, inner)) => Object::read(object.take(outer)?.get())?.take(inner),
    }
}

/// A body without members, by their paths of at most one dot, and what of them was there. What is no object stays.
pub fn taken_out(body: &Bytes, unwanted: &[&'static str]) -> (Bytes, Vec<&'static str>) {
    let object = std::str::from_utf8(body).ok().and_then(Object::read);
    let Some(object) = object else {
        return (body.clone(), Vec::new());
    };
    let mut found = Vec::new();
    let mut left: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for (member, value) in object.members() {
        if let Some(name) = unwanted.iter().find(|name| **name == member) {
            found.push(*name);
        } else if let Some(value) = inner(member, value, unwanted, &mut found) {
            left.push((member, value));
        }
    }
    if found.is_empty() {
        return (body.clone(), found);
    }
    (written(&left).into(), found)
}

/// The value of a member without what is unwanted of its own members; `None` where nothing else was in it.
fn inner<'a>(
    member: &str,
    value: &'a RawValue,
    unwanted: &[&'static str],
    found: &mut Vec<&'static str>,
) -> Option<Cow<'a, str>> {
    let is_of_it = |name: &&&str| name.split_once('.').is_some_and(|(outer, _)| outer == member);
    if !unwanted.iter().any(|name| is_of_it(&name)) {
        return Some(value.get().into());
    }
    let Some(object) = Object::read(value.get()) else {
        return Some(value.get().into());
    };
    let (mut left, before) = (Vec::new(), found.len());
    for (own, value) in object.members() {
        let path = unwanted
            .iter()
            .filter(is_of_it)
            .find(|name| name.split_once('.').is_some_and(|(_, inner)| inner == own));
        match path {
            Some(name) => found.push(*name),
            None => left.push((own, Cow::Borrowed(value.get()))),
        }
    }
    if left.is_empty() && found.len() > before {
        return None;
    }
    Some(String::from_utf8_lossy(&written(&left)).into_owned().into())
}

/// Members as an object.
fn written(members: &[(&str, Cow<'_, str>)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + members.iter().map(|(_, value)| value.len() + 32).sum::<usize>());
    out.push(b'{');
    for (number, (name, value)) in members.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&crate::splice::json_string(name));
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(surface: Surface, body: &'static str, parameters: Parameters) -> (String, Vec<&'static str>) {
        let (body, found) = without(surface, &Bytes::from_static(body.as_bytes()), parameters);
        (String::from_utf8_lossy(&body).into_owned(), found)
    }

    #[test]
    fn every_parameter_has_a_name_on_every_surface() {
        for surface in [
            Surface::Chat,
            Surface::Completions,
            Surface::Embeddings,
            Surface::Responses,
            Surface::Messages,
        ] {
            for parameter in Parameters::ALL.each() {
                assert!(!name(surface, parameter).is_empty(), "{surface:?} {parameter:?}");
            }
        }
    }

    #[test]
    fn what_is_taken_out_is_told_and_the_rest_stays_as_it_was_written() {
        let (body, found) = left(
            Surface::Chat,
            r#"{"model":"m", "top_k": 5,"temperature":0.70,"logprobs":true,"top_logprobs":2,"x":{"top_k":1}}"#,
            Parameters::TOP_K | Parameters::LOGPROBS | Parameters::SEED,
        );

        assert_eq!(body, r#"{"model":"m","temperature":0.70,"x":{"top_k":1}}"#);
        assert_eq!(found, ["top_k", "logprobs", "top_logprobs"]);
        let untouched = r#"{ "model":"m" }"#;
        assert_eq!(
            left(Surface::Chat, untouched, Parameters::ALL),
            (untouched.to_owned(), Vec::new())
        );
        assert_eq!(left(Surface::Chat, "[1]", Parameters::ALL).0, "[1]");
    }

    #[test]
    fn members_of_members_are_taken_out_where_a_surface_has_them() {
        let messages = r#"{"model":"m","thinking":{"type":"adaptive"},"output_config":{"effort":"high","format":{"type":"json_schema"}}}"#;
        let responses = r#"{"model":"m","reasoning":{"effort":"low","summary":"auto"},"text":{"format":{}}}"#;

        assert_eq!(
            left(Surface::Messages, messages, Parameters::EFFORT),
            (
                r#"{"model":"m","output_config":{"format":{"type":"json_schema"}}}"#.to_owned(),
                vec!["thinking", "output_config.effort"]
            )
        );
        assert_eq!(
            left(
                Surface::Responses,
                responses,
                Parameters::EFFORT | Parameters::FORMAT
            ),
            (
                r#"{"model":"m","reasoning":{"summary":"auto"}}"#.to_owned(),
                vec!["reasoning.effort", "text.format"]
            )
        );
    }

    #[test]
    fn words_of_effort_are_found_wherever_they_stand_and_can_be_taken_out_by_themselves() {
        let words = |surface, body: &str| effort_words(surface, body.as_bytes());
        let body = r#"{"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}"#;

        let found = words(Surface::Messages, body);
        assert_eq!(found, [("output_config.effort", "high".to_owned())]);
        assert_eq!(
            words(
                Surface::Chat,
                r#"{"reasoning_effort":"low","reasoning":{"effort":"high","exclude":true}}"#
            ),
            [
                ("reasoning_effort", "low".to_owned()),
                ("reasoning.effort", "high".to_owned())
            ]
        );
        assert_eq!(words(Surface::Responses, "{}"), []);
        assert_eq!(words(Surface::Chat, r#"{"reasoning":{"effort":"none"}}"#), []);
        let (left, found) = taken_out(&Bytes::from_static(body.as_bytes()), &["output_config.effort"]);
        assert_eq!(left, r#"{"thinking":{"type":"adaptive"}}"#);
        assert_eq!(found, ["output_config.effort"]);
    }
}
