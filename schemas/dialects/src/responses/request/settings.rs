//! How a response shall be made: limits, sampling, the form of the answer, and how much to think.

use serde_json::value::RawValue;

use super::input::{hint, kind};
use crate::object::{Object, Path, shown};
use crate::superset::request::{Conversation, Effort, Format, Member, Reasoning, Refusal, Sampling};

/// Most texts that end an answer.
const STOPS_MAX: usize = 64;
/// The name of a schema that has none.
const FORMAT_NAME: &str = "output";
/// How thoughts shall be told, which is in the upstream's hands where it speaks another dialect.
pub(crate) const SUMMARY: &str = "reasoning.summary";
/// What is asked for by `include` and makes no difference to the answer.
const PROOFS: &str = "reasoning.encrypted_content";

/// Reads them.
pub(super) fn read(request: &mut Object<'_>, conversation: &mut Conversation) -> Result<(), Refusal> {
    let root = Path::Root;
    let whole = "must be an integer, at least 1";
    conversation.max_tokens = request.value("max_output_tokens", &root, whole)?;
    if conversation.max_tokens == Some(0) {
        return Err(root.member("max_output_tokens").invalid(whole));
    }
    conversation.sampling = Sampling {
        temperature: number(request, "temperature", 2.0)?,
        top_p: number(request, "top_p", 1.0)?,
        top_k: request.value("top_k", &root, "must be an integer")?,
        min_p: number(request, "min_p", 1.0)?,
        seed: request.value("seed", &root, "must be an integer")?,
        frequency_penalty: penalty(request, "frequency_penalty")?,
        presence_penalty: penalty(request, "presence_penalty")?,
    };
    conversation.stop = request.texts("stop", &root, STOPS_MAX)?;
    conversation.user = request.text("user", &root)?;
    // Whether it is kept is the gateway's affair.
    let _: Option<bool> = request.value("store", &root, "must be true or false")?;
    if let Some(raw) = request.take("reasoning") {
        reasoning(raw, conversation)?;
    }
    if let Some(raw) = request.take("text") {
        text(raw, conversation)?;
    }
    if let Some(raw) = request.take("include") {
        include(raw, conversation)?;
    }
    if let Some(raw) = request.take("stream_options") {
        let mut options = Object::at(raw, &root.member("stream_options"))?;
        if let Some(asked) = options
            .take("include_obfuscation")
            .filter(|asked| asked.get() == "true")
        {
            hint(conversation, "stream_options.include_obfuscation", asked);
        }
    }
    Ok(())
}

/// A number from 0 to `most`, as it was written.
fn number(request: &mut Object<'_>, name: &str, most: f64) -> Result<Option<Box<RawValue>>, Refusal> {
    let path = Path::Root.member(name);
    let Some(raw) = request.take(name) else {
        return Ok(None);
    };
    let number: f64 = path.value(raw, "must be a number")?;
    if (0.0..=most).contains(&number) {
        Ok(Some(raw.to_owned()))
    } else {
        Err(path.invalid(format!("must be a number from 0 to {most}")))
    }
}

/// A number as it was written; none for 0.
fn penalty(request: &mut Object<'_>, name: &str) -> Result<Option<Box<RawValue>>, Refusal> {
    let path = Path::Root.member(name);
    let Some(raw) = request.take(name) else {
        return Ok(None);
    };
    let number: f64 = path.value(raw, "must be a number")?;
    Ok((number != 0.0).then(|| raw.to_owned()))
}

fn reasoning(raw: &RawValue, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("reasoning");
    let mut object = Object::at(raw, &path)?;
    let effort = match object.text("effort", &path)?.as_deref() {
        None => None,
        Some("none") => Some(Effort::Off),
        Some("minimal") => Some(Effort::Minimal),
        Some("low") => Some(Effort::Low),
        Some("medium") => Some(Effort::Medium),
        Some("high") => Some(Effort::High),
        Some("xhigh") => Some(Effort::ExtraHigh),
        Some("max") => Some(Effort::Max),
        Some(_) => {
            let problem = "must be one of none, minimal, low, medium, high, xhigh, max";
            return Err(path.member("effort").invalid(problem));
        }
    };
    for name in ["generate_summary", "summary"] {
        let told = object.members().find(|(own, _)| *own == name);
        if let Some((_, value)) = told.filter(|(_, value)| !matches!(value.get(), "null" | "\"none\"")) {
            hint(conversation, SUMMARY, value);
        }
    }
    let older = object.text("generate_summary", &path)?;
    let summary = object.text("summary", &path)?.or(older);
    conversation.reasoning = Reasoning {
        effort,
        shown: summary.map(|summary| summary != "none"),
    };
    match object.text("mode", &path)?.as_deref() {
        None | Some("auto" | "default" | "standard") => {}
        Some(_) => return Err(path.member("mode").unsupported("models think in one way only")),
    }
    for (name, value) in object.rest() {
        hint(conversation, format!("reasoning.{}", shown(&name)), value);
    }
    Ok(())
}

fn text(raw: &RawValue, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("text");
    let mut object = Object::at(raw, &path)?;
    if let Some(raw) = object.take("format") {
        let path = path.member("format");
        let mut object = Object::at(raw, &path)?;
        conversation.format = format(&mut object, &path)?;
        for (name, value) in object.rest() {
            hint(conversation, format!("text.format.{}", shown(&name)), value);
        }
    }
    if let Some(verbosity) = object.take("verbosity") {
        hint(conversation, "verbosity", verbosity);
    }
    for (name, value) in object.rest() {
        hint(conversation, format!("text.{}", shown(&name)), value);
    }
    Ok(())
}

fn format(object: &mut Object<'_>, path: &Path<'_>) -> Result<Format, Refusal> {
    match kind(object, path)?.as_deref() {
        Some("text") => Ok(Format::Text),
        Some("json_object") => Ok(Format::JsonObject),
        Some("json_schema") => {
            let of_schema = path.member("schema");
            let schema = object
                .take("schema")
                .ok_or_else(|| of_schema.invalid("is required"))?;
            Object::at(schema, &of_schema)?;
            Ok(Format::JsonSchema {
                name: object
                    .text("name", path)?
                    .unwrap_or_else(|| FORMAT_NAME.to_owned()),
                description: object.text("description", path)?,
                schema: schema.to_owned(),
                strict: object.value("strict", path, "must be true or false")?,
            })
        }
        Some("grammar" | "python") => Err(path
            .member("type")
            .unsupported("answers are text, or JSON with or without a schema")),
        _ => Err(path
            .member("type")
            .invalid("must be one of text, json_object, json_schema")),
    }
}

fn include(raw: &RawValue, conversation: &mut Conversation) -> Result<(), Refusal> {
    let path = Path::Root.member("include");
    for asked in path.list(raw)? {
        let name: String = path.value(asked, "must be an array of names")?;
        if name == PROOFS {
            // Thoughts are told with what proves them whether it was asked for or not.
            continue;
        }
        conversation.demands.push(Member {
            name: "include".into(),
            value: asked.to_owned(),
        });
    }
    Ok(())
}
