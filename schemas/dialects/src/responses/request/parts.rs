//! The parts of messages and results, read.

use serde_json::value::RawValue;

use super::input::{hint, kind, unknown};
use crate::object::{Object, Path, shown};
use crate::superset::request::{Conversation, Media, Part, Refusal};

/// Who says it: not everybody may say everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// Text and media.
    Person,
    /// Text and refusals.
    Model,
    /// Text.
    Instructions,
    /// Text, images and documents.
    Tool,
}

/// Reads a text or a list of parts.
pub(super) fn read(
    raw: &RawValue,
    speaker: Speaker,
    path: &Path<'_>,
    conversation: &mut Conversation,
) -> Result<Vec<Part>, Refusal> {
    let problem = "must be a text or an array of parts";
    if raw.get().starts_with('"') {
        let text = path.value(raw, problem)?;
        return Ok(vec![Part::Text { text, cache: None }]);
    }
    let list = path.list(raw).map_err(|_| path.invalid(problem))?;
    list.into_iter()
        .enumerate()
        .map(|(number, raw)| part(raw, speaker, &path.element(number), conversation))
        .collect()
}

fn part(
    raw: &RawValue,
    speaker: Speaker,
    path: &Path<'_>,
    conversation: &mut Conversation,
) -> Result<Part, Refusal> {
    let mut object = Object::at(raw, path)?;
    let kind = kind(&mut object, path)?.ok_or_else(|| path.member("type").invalid("is required"))?;
    let cache = object.take("cache_control").map(ToOwned::to_owned);
    if let Some(mark) = object.take("prompt_cache_breakpoint") {
        hint(conversation, "prompt_cache_breakpoint", mark);
    }
    let part = of_kind(&kind, (&mut object, speaker), cache, path)?;
    // Lists of nothing say what is so anyway.
    let place = if speaker == Speaker::Tool {
        "input.output"
    } else {
        "input.content"
    };
    for list in ["annotations", "logprobs"] {
        if let Some(told) = object.take(list).filter(|list| list.get() != "[]") {
            hint(conversation, format!("{place}.{list}"), told);
        }
    }
    unknown(conversation, place, object);
    Ok(part)
}

/// A part by its type.
fn of_kind(
    kind: &str,
    (object, speaker): (&mut Object<'_>, Speaker),
    cache: Option<Box<RawValue>>,
    path: &Path<'_>,
) -> Result<Part, Refusal> {
    let has_media = matches!(speaker, Speaker::Person | Speaker::Tool);
    match kind {
        "input_text" | "output_text" | "text" | "summary_text" => {
            let missing = || path.member("text").invalid("is required");
            Ok(Part::Text {
                text: object.text("text", path)?.ok_or_else(missing)?,
                cache,
            })
        }
        "refusal" if speaker == Speaker::Model => Ok(Part::Refusal(object.filled("refusal", path)?)),
        "input_image" if has_media => Ok(Part::Image {
            source: image(object, path)?,
            detail: object.text("detail", path)?,
        }),
        "input_file" if has_media => Ok(Part::File {
            name: object.text("filename", path)?,
            source: file(object, path)?,
        }),
        "input_audio" if speaker == Speaker::Person => audio(object, path),
        _ => Err(path
            .member("type")
            .unsupported(format!("parts of the type '{}' cannot stand here", shown(kind)))),
    }
}

fn image(object: &mut Object<'_>, path: &Path<'_>) -> Result<Media, Refusal> {
    if let Some(url) = object.text("image_url", path)? {
        return Ok(inline(&url).unwrap_or(Media::Url(url)));
    }
    let id = object.text("file_id", path)?;
    id.map(Media::Id)
        .ok_or_else(|| path.member("image_url").invalid("is required"))
}

fn file(object: &mut Object<'_>, path: &Path<'_>) -> Result<Media, Refusal> {
    if let Some(data) = object.text("file_data", path)? {
        return Ok(inline(&data).unwrap_or_else(|| Media::Inline {
            media_type: "application/pdf".to_owned(),
            data,
        }));
    }
    if let Some(url) = object.text("file_url", path)? {
        return Ok(Media::Url(url));
    }
    let id = object.text("file_id", path)?;
    id.map(Media::Id)
        .ok_or_else(|| path.member("file_data").invalid("is required"))
}

fn audio(object: &mut Object<'_>, path: &Path<'_>) -> Result<Part, Refusal> {
    let path = path.member("input_audio");
    let raw = object
        .take("input_audio")
        .ok_or_else(|| path.invalid("is required"))?;
    let mut audio = Object::at(raw, &path)?;
    Ok(Part::Audio {
        format: audio.filled("format", &path)?,
        data: audio.filled("data", &path)?,
    })
}

/// What a data URL in base64 holds.
fn inline(url: &str) -> Option<Media> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some(Media::Inline {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}
