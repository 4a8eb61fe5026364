//! Parts of messages: content in all its forms, thoughts and what proves them.

use serde_json::value::RawValue;

use super::body::Notes;
use super::reader::{Reader, unsupported};
use crate::superset::request::{Media, Part, Proof, ProofMaker, Refusal};

/// What marks a place for caches where the caller marks it in OpenAI's words.
const CACHE: &str = r#"{"type":"ephemeral"}"#;

/// Takes `content`: a text, a list of parts, or one part.
pub(super) fn content(message: &mut Reader<'_>, notes: &mut Notes) -> Result<Vec<Part>, Refusal> {
    let Some(raw) = message.take("content") else {
        return Ok(Vec::new());
    };
    match raw.get().as_bytes().first() {
        Some(b'"') => text(raw).map_or_else(
            || Err(message.invalid("content", "must be valid text")),
            |text| Ok(vec![text]),
        ),
        Some(b'[') => {
            let list: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| Refusal::InvalidJson)?;
            let parts = list.into_iter().enumerate().map(|(index, raw)| match text(raw) {
                Some(text) => Ok(text),
                None => part(Reader::of(raw, message.at(&format!("content.{index}")))?, notes),
            });
            parts.collect()
        }
        Some(b'{') => Ok(vec![part(Reader::of(raw, message.at("content"))?, notes)?]),
        _ => Err(message.invalid("content", "must be a string or an array of parts")),
    }
}

/// A part that is a bare text.
fn text(raw: &RawValue) -> Option<Part> {
    let text = serde_json::from_str(raw.get()).ok()?;
    Some(Part::Text { text, cache: None })
}

fn part(mut reader: Reader<'_>, notes: &mut Notes) -> Result<Part, Refusal> {
    let kind = reader.required_text("type")?;
    let part = match kind.as_str() {
        "text" | "input_text" | "output_text" => Part::Text {
            text: reader.required_text("text")?,
            cache: cache(&mut reader),
        },
        "refusal" => Part::Refusal(reader.required_text("refusal")?),
        "image_url" | "input_image" => image(&mut reader)?,
        "input_audio" => match reader.object("input_audio")? {
            Some(mut audio) => Part::Audio {
                format: audio.required_text("format")?,
                data: audio.required_text("data")?,
            },
            None => return Err(reader.invalid("input_audio", "is required")),
        },
        "file" => match reader.object("file")? {
            Some(inner) => file(inner)?,
            None => return Err(reader.invalid("file", "is required")),
        },
        "thinking" => Part::Thinking {
            text: reader.required_text("thinking")?,
            proof: reader
                .text("signature")?
                .and_then(|text| proof(text, ProofMaker::Anthropic, false)),
        },
        "redacted_thinking" => Part::Thinking {
            text: String::new(),
            proof: proof(reader.required_text("data")?, ProofMaker::Anthropic, true),
        },
        _ => {
            return Err(unsupported(
                reader.at("type"),
                "only parts of type text, refusal, image_url, input_audio and file are served",
            ));
        }
    };
    notes.left("messages.content", reader);
    Ok(part)
}

fn cache(reader: &mut Reader<'_>) -> Option<Box<RawValue>> {
    if let Some(mark) = reader.take("cache_control") {
        return Some(mark.to_owned());
    }
    reader.take("prompt_cache_breakpoint")?;
    serde_json::from_str(CACHE).ok()
}

fn image(reader: &mut Reader<'_>) -> Result<Part, Refusal> {
    let outer = reader.text("detail")?;
    let (url, detail) = match reader.take("image_url") {
        Some(raw) if raw.get().starts_with('{') => {
            let mut inner = Reader::of(raw, reader.at("image_url"))?;
            (inner.required_text("url")?, inner.text("detail")?)
        }
        Some(raw) => match serde_json::from_str(raw.get()) {
            Ok(url) => (url, None),
            Err(_) => return Err(reader.invalid("image_url", "must be an object with a url")),
        },
        None => return Err(reader.invalid("image_url", "is required")),
    };
    let source = media(url, "image_url", reader)?;
    Ok(Part::Image {
        source,
        detail: detail.or(outer),
    })
}

fn file(mut reader: Reader<'_>) -> Result<Part, Refusal> {
    let name = reader.text("filename")?;
    let source = match (reader.text("file_data")?, reader.text("file_id")?) {
        (Some(data), _) if data.starts_with("data:") => media(data, "file_data", &reader)?,
        (Some(data), _) => Media::Inline {
            media_type: "application/pdf".to_owned(),
            data,
        },
        (None, Some(id)) => Media::Id(id),
        (None, None) => return Err(reader.invalid("file_data", "is required")),
    };
    Ok(Part::File { source, name })
}

/// What a URL stands for: its own bytes where it holds them.
fn media(url: String, name: &str, reader: &Reader<'_>) -> Result<Media, Refusal> {
    let Some(inline) = url.strip_prefix("data:") else {
        return Ok(Media::Url(url));
    };
    let Some((head, data)) = inline.split_once(',') else {
        return Err(reader.invalid(name, "must be a URL; a data URL needs a comma"));
    };
    let mut words = head.split(';');
    let media_type = words.next().unwrap_or_default();
    if !words.any(|word| word.eq_ignore_ascii_case("base64")) {
        return Err(unsupported(reader.at(name), "a data URL must be in base64"));
    }
    let media_type = if media_type.is_empty() {
        sniffed(data)
    } else {
        media_type
    };
    Ok(Media::Inline {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

/// The type of bytes in base64 by how they begin.
fn sniffed(data: &str) -> &'static str {
    const BEGINNINGS: [(&str, &str); 5] = [
        ("iVBORw0KGgo", "image/png"),
        ("/9j/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
        ("JVBERi0", "application/pdf"),
    ];
    let known = BEGINNINGS
        .iter()
        .find(|(beginning, _)| data.starts_with(beginning));
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

/// Takes what a model thought before it spoke.
pub(super) fn thoughts(message: &mut Reader<'_>) -> Result<Vec<Part>, Refusal> {
    let plain = message.text("reasoning_content")?;
    let other = message.text("reasoning")?;
    let text = plain
        .filter(|text| !text.is_empty())
        .or(other)
        .unwrap_or_default();
    let mut parts = Vec::new();
    let mut worded = false;
    for (index, raw) in message.list("reasoning_details")?.into_iter().enumerate() {
        let detail = Reader::of(raw, message.at(&format!("reasoning_details.{index}")))?;
        let Some(part) = detail_part(detail)? else {
            continue;
        };
        worded |= matches!(&part, Part::Thinking { text, .. } if !text.is_empty());
        parts.push(part);
    }
    if worded || text.is_empty() {
        return Ok(parts);
    }
    // The words stand apart from their proof.
    let bare = parts.iter_mut().find_map(|part| match part {
        Part::Thinking {
            text,
            proof: Some(Proof { redacted: false, .. }),
        } => Some(text),
        _ => None,
    });
    match bare {
        Some(bare) => *bare = text,
        None => parts.insert(0, Part::Thinking { text, proof: None }),
    }
    Ok(parts)
}

fn detail_part(mut detail: Reader<'_>) -> Result<Option<Part>, Refusal> {
    let kind = detail.required_text("type")?;
    let maker = detail.text("format")?.as_deref().and_then(maker);
    let (words, text, redacted) = match kind.as_str() {
        "reasoning.text" => (detail.text("text")?, detail.text("signature")?, false),
        "reasoning.summary" => (detail.text("summary")?, None, false),
        "reasoning.encrypted" => (None, detail.text("data")?, true),
        _ => return Ok(None),
    };
    let proof = maker.and_then(|maker| proof(text.unwrap_or_default(), maker, redacted));
    let text = words.unwrap_or_default();
    let empty = text.is_empty() && proof.is_none();
    Ok((!empty).then_some(Part::Thinking { text, proof }))
}

fn proof(text: String, maker: ProofMaker, redacted: bool) -> Option<Proof> {
    (!text.is_empty()).then_some(Proof {
        maker,
        text,
        redacted,
    })
}

/// Who writes in a format.
pub(in crate::chat) fn maker(format: &str) -> Option<ProofMaker> {
    if format.starts_with("anthropic") {
        Some(ProofMaker::Anthropic)
    } else if format.starts_with("google") {
        Some(ProofMaker::Gemini)
    } else if format.contains("openai") {
        Some(ProofMaker::OpenAi)
    } else {
        None
    }
}

/// Takes what an upstream wants to see again with a call.
pub(super) fn call_proof(call: &mut Reader<'_>) -> Result<Option<Proof>, Refusal> {
    let Some(mut extra) = call.object("extra_content")? else {
        return Ok(None);
    };
    for (vendor, maker) in super::VENDORS {
        if let Some(mut inner) = extra.object(vendor)? {
            let signature = inner.text("thought_signature")?.unwrap_or_default();
            return Ok(proof(signature, *maker, false));
        }
    }
    Ok(None)
}
