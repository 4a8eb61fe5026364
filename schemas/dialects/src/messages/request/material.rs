//! Images and documents as Messages has them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::encode::unmappable;
use crate::superset::request::{Media, Unmappable};

/// Where the bytes of an image or a document are.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    /// Here.
    Base64 {
        /// What they are.
        media_type: &'a str,
        /// They.
        data: &'a str,
    },
    /// There.
    Url {
        /// Where.
        url: &'a str,
    },
    /// Text.
    Text {
        /// Always `text/plain`.
        media_type: &'a str,
        /// It.
        data: Cow<'a, str>,
    },
}

/// How images begin in base64, and what they are: callers often tell a wrong kind, which upstreams refuse.
const MAGIC: [(&str, &str); 4] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
];

/// An image.
pub(super) fn image(media: &Media) -> Result<Source<'_>, Unmappable> {
    let refused = |problem| unmappable("image_url", problem);
    match media {
        Media::Inline { media_type, data } => inline_image(media_type, data),
        Media::Url(url) => match data_url(url) {
            Some((media_type, data)) => inline_image(media_type, data),
            None => remote(url).ok_or_else(|| refused("images are taken from https addresses and data URLs")),
        },
        Media::Text(_) => Err(refused("a text is no image")),
        Media::Id(_) => Err(refused("the provider does not have the files of another")),
    }
}

/// A document.
pub(super) fn document(media: &Media) -> Result<Source<'_>, Unmappable> {
    let refused = |problem| unmappable("file", problem);
    match media {
        Media::Inline { media_type, data } => inline_document(media_type, data),
        Media::Url(url) => match data_url(url) {
            Some((media_type, data)) => inline_document(media_type, data),
            None => {
                remote(url).ok_or_else(|| refused("documents are taken from https addresses and data URLs"))
            }
        },
        Media::Text(text) if text.is_empty() => Err(refused("the document is empty")),
        Media::Text(text) => Ok(Source::Text {
            media_type: "text/plain",
            data: text.as_str().into(),
        }),
        Media::Id(_) => Err(unmappable(
            "file_id",
            "the provider does not have the files of another",
        )),
    }
}

fn inline_image<'a>(told: &'a str, data: &'a str) -> Result<Source<'a>, Unmappable> {
    let seen = MAGIC.iter().find(|(magic, _)| data.starts_with(magic));
    let media_type = match (seen, told) {
        (Some((_, media_type)), _) => *media_type,
        (None, "image/jpg") => "image/jpeg",
        (None, told) => told,
    };
    if MAGIC.iter().all(|(_, known)| *known != media_type) {
        return Err(unmappable(
            "image_url",
            "images are taken as PNG, JPEG, GIF and WebP",
        ));
    }
    Ok(Source::Base64 { media_type, data })
}

fn inline_document<'a>(media_type: &'a str, data: &'a str) -> Result<Source<'a>, Unmappable> {
    if media_type == "application/pdf" || data.starts_with("JVBERi0") {
        return Ok(Source::Base64 {
            media_type: "application/pdf",
            data,
        });
    }
    let refused = |problem| unmappable("file", problem);
    if !media_type.starts_with("text/") {
        return Err(refused("documents are taken as PDF or text"));
    }
    let bytes = STANDARD
        .decode(data)
        .map_err(|_| refused("the document is not in base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("texts are taken in UTF-8"))?;
    if text.is_empty() {
        return Err(refused("the document is empty"));
    }
    Ok(Source::Text {
        media_type: "text/plain",
        data: text.into(),
    })
}

/// The kind and the base64 of a data URL.
fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

fn remote(url: &str) -> Option<Source<'_>> {
    url.starts_with("https://").then_some(Source::Url { url })
}
