//! Content of messages, for an upstream: one text where it is text alone, since many servers read nothing else; a
//! list of parts where there is more.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::encode::Draft;
use crate::superset::request::{Media, Part, Unmappable};

/// What stands between texts that were apart.
const BETWEEN: &str = "\n\n";

/// Content of a message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    /// Text alone.
    Text(Cow<'a, str>),
    /// Parts.
    Blocks(Vec<Block<'a>>),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

/// A part.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    /// Text.
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<&'a RawValue>,
    },
    /// An image.
    ImageUrl { image_url: ImageUrl<'a> },
    /// Sound.
    InputAudio { input_audio: Sound<'a> },
    /// A document.
    File { file: Document<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct Sound<'a> {
    data: &'a str,
    format: &'a str,
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
}

/// The texts of parts that are nothing else, joined by blank lines.
pub(super) fn texts<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    draft: &mut Draft<'_>,
) -> Result<Cow<'a, str>, Unmappable> {
    let mut joined = Cow::Borrowed("");
    for part in parts {
        let text = match part {
            Part::Text { text, cache } => {
                if cache.is_some() {
                    draft.drop("cache_control");
                }
                text.as_str()
            }
            Part::Refusal(text) => text.as_str(),
            _ => return Err(unmappable("it takes text alone in this place")),
        };
        if text.is_empty() {
            continue;
        }
        if joined.is_empty() {
            joined = Cow::Borrowed(text);
        } else {
            let whole = joined.to_mut();
            whole.push_str(BETWEEN);
            whole.push_str(text);
        }
    }
    Ok(joined)
}

/// Content in its shortest form.
pub(super) fn flat<'a>(parts: &'a [Part], draft: &mut Draft<'_>) -> Result<Content<'a>, Unmappable> {
    let keeps_marks = draft.profile().cache_control;
    let plain = parts.iter().all(|part| match part {
        Part::Text { cache, .. } => cache.is_none() || !keeps_marks,
        Part::Refusal(_) => true,
        _ => false,
    });
    if plain {
        texts(parts, draft).map(Content::Text)
    } else {
        blocks(parts, draft).map(Content::Blocks)
    }
}

/// Content as a list.
pub(super) fn blocks<'a>(parts: &'a [Part], draft: &mut Draft<'_>) -> Result<Vec<Block<'a>>, Unmappable> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        blocks.push(match part {
            Part::Text { text, cache } => {
                let cache_control = cache.as_deref().filter(|_| draft.profile().cache_control);
                if cache.is_some() && cache_control.is_none() {
                    draft.drop("cache_control");
                }
                text_block(text, cache_control)
            }
            Part::Refusal(text) => text_block(text, None),
            Part::Image { source, detail } => Block::ImageUrl {
                image_url: ImageUrl {
                    url: address(source)?,
                    detail: detail.as_deref(),
                },
            },
            Part::Audio { format, data } => Block::InputAudio {
                input_audio: Sound { data, format },
            },
            Part::File { source, name } => document(source, name.as_deref())?,
            Part::Thinking { .. } | Part::ToolCall(_) | Part::ToolResult { .. } => {
                return Err(unmappable("it takes no such part in this place"));
            }
        });
    }
    Ok(blocks)
}

fn text_block<'a>(text: &'a str, cache_control: Option<&'a RawValue>) -> Block<'a> {
    Block::Text {
        text: text.into(),
        cache_control,
    }
}

fn address(source: &Media) -> Result<Cow<'_, str>, Unmappable> {
    match source {
        Media::Inline { media_type, data } => Ok(format!("data:{media_type};base64,{data}").into()),
        Media::Url(url) => Ok(url.into()),
        Media::Text(_) | Media::Id(_) => Err(unmappable("it takes images as their bytes or by their URL")),
    }
}

fn document<'a>(source: &'a Media, name: Option<&'a str>) -> Result<Block<'a>, Unmappable> {
    let (file_data, file_id) = match source {
        Media::Inline { .. } => (Some(address(source)?.into_owned()), None),
        Media::Id(id) => (None, Some(id.as_str())),
        Media::Text(text) => {
            let text = match name {
                Some(name) => format!("{name}{BETWEEN}{text}").into(),
                None => Cow::Borrowed(text.as_str()),
            };
            return Ok(Block::Text {
                text,
                cache_control: None,
            });
        }
        Media::Url(_) => return Err(unmappable("it takes documents as their bytes, not by their URL")),
    };
    Ok(Block::File {
        file: Document {
            filename: name,
            file_data,
            file_id,
        },
    })
}

fn unmappable(problem: &'static str) -> Unmappable {
    Unmappable {
        param: "messages".into(),
        problem: problem.into(),
    }
}
