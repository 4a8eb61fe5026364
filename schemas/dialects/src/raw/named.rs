//! Which models a request names that passes as it is: in its path, its query and its body, wherever an upstream may
//! look for one. What is read here are the bytes that are sent on.
//!
//! Guarantees: a member that names a model may occur once, in whatever case, so that no upstream reads another one than
//! we did; whoever says different models in different places is refused.

use serde_json::value::RawValue;

use super::target::{self, decoded, pair};
use crate::member::members;

/// What names a model in a query, a form or a body.
const MODEL: &str = "model";
/// What names further ones in a body.
const MODELS: &str = "models";
/// The segment before the name of a model of one's own, in Gemini.
const TUNED: &str = "tunedModels";
/// Segments of a path behind which all of it is the name of a model.
const BEFORE_ALL: [&str; 2] = ["models", TUNED];
/// Segments of a path behind which one is.
const BEFORE_ONE: [&str; 2] = ["deployments", "engines"];
/// What Gemini and Vertex put behind a name.
const METHODS: [&str; 14] = [
    "batchEmbedContents",
    "batchGenerateContent",
    "countTextTokens",
    "countTokens",
    "embedContent",
    "embedText",
    "generateAnswer",
    "generateContent",
    "generateText",
    "predict",
    "predictLongRunning",
    "rawPredict",
    "streamGenerateContent",
    "streamRawPredict",
];
/// What Gemini puts before a name.
const PREFIX: &str = "models/";

/// The parts of a request that may name a model.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// The path behind the endpoint, as it stands.
    pub path: &'a str,
    /// The query, without its mark.
    pub query: &'a str,
    /// `content-type`.
    pub content_type: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// A model, by each of the names that a place in a request may mean.
pub type Name = Vec<String>;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// Every model, the one that is asked before those that stand in for it.
    pub models: Vec<Name>,
    /// There is a body of which nobody here knows where it would name a model.
    pub unread: bool,
}

/// Why a request cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It says that it is JSON, or nothing, and is no JSON.
    #[error("the request body is not valid JSON")]
    InvalidJson,
    /// It is JSON in another coding, or with a mark before it.
    #[error("the request body must be JSON in UTF-8, without a byte order mark")]
    Coding,
    /// A model is named twice in one place.
    #[error("the member 'model' occurs more than once")]
    Duplicate,
    /// What names a model is no text.
    #[error("the member 'model' must be a string")]
    NoText,
    /// Different places name different models.
    #[error("path, query and body name different models")]
    Differs,
    /// A form that servers read in different ways.
    #[error("the form cannot be read")]
    Form,
}

/// The models of a request.
pub fn models(parts: Parts<'_>) -> Result<Named, Error> {
    let body = of_body(&parts)?;
    let mut told: Vec<String> = Vec::new();
    for pair in parts.query.split('&').filter_map(pair) {
        if pair.0.eq_ignore_ascii_case(MODEL) {
            told.push(bare(&pair.1));
        }
    }
    told.extend(body.models);
    let first = told.first().cloned();
    if told.iter().any(|name| Some(name) != first.as_ref()) {
        return Err(Error::Differs);
    }
    let of_path = of_path(parts.path);
    let mut models: Vec<Name> = Vec::new();
    match (first, of_path) {
        (Some(name), Some(of_path)) if !of_path.contains(&name) => return Err(Error::Differs),
        (Some(name), _) => models.push(vec![name]),
        (None, Some(of_path)) => models.push(of_path),
        (None, None) => {}
    }
    models.extend(body.others.into_iter().map(|name| vec![name]));
    Ok(Named {
        models,
        unread: body.unread,
    })
}

/// A name without what Gemini puts before it.
pub fn bare(name: &str) -> String {
    name.strip_prefix(PREFIX).unwrap_or(name).to_owned()
}

/// What a path names.
fn of_path(path: &str) -> Option<Name> {
    let path = decoded(path)?;
    let segments: Vec<&str> = path.split('/').collect();
    let is_one_of = |words: &[&str], segment: &str| {
        let name = target::name(segment);
        words.iter().any(|word| word.eq_ignore_ascii_case(name))
    };
    let place = segments
        .iter()
        .position(|segment| is_one_of(&BEFORE_ALL, segment) || is_one_of(&BEFORE_ONE, segment))?;
    let word = segments.get(place)?;
    let rest = segments.get(place + 1..)?;
    let rest = if is_one_of(&BEFORE_ONE, word) {
        (*rest.first()?).to_owned()
    } else {
        rest.join("/")
    };
    let rest = rest.trim_end_matches('/').to_owned();
    if rest.is_empty() {
        return None;
    }
    let stem = rest
        .rsplit_once(':')
        .filter(|(_, method)| METHODS.contains(method))
        .map(|(stem, _)| stem.to_owned());
    let own = stem.unwrap_or(rest);
    let full = is_one_of(&[TUNED], word).then(|| format!("{TUNED}/{own}"));
    Some(full.into_iter().chain([own]).collect())
}

/// What a body names.
#[derive(Default)]
struct Body {
    models: Vec<String>,
    others: Vec<String>,
    unread: bool,
}

fn of_body(parts: &Parts<'_>) -> Result<Body, Error> {
    let kind = parts.content_type.split(';').next().unwrap_or_default().trim();
    let is = |other: &str| kind.eq_ignore_ascii_case(other);
    let body = parts.body;
    if body.is_empty() {
        return Ok(Body::default());
    }
    let says_json = kind.is_empty()
        || is("text/json")
        || is("application/json")
        || kind.to_ascii_lowercase().ends_with("+json");
    if says_json && (is_wide(body) || std::str::from_utf8(body).is_err()) {
        return Err(Error::Coding);
    }
    if is("multipart/form-data") {
        return of_parts(parts.content_type, body);
    }
    // Some servers read JSON whatever the head says.
    match body.trim_ascii_start().first() {
        Some(b'{') => match of_object(body)? {
            Some(found) => Ok(found),
            None if says_json => Err(Error::InvalidJson),
            None => Ok(unread()),
        },
        _ if is("application/x-www-form-urlencoded") => of_form(body),
        _ if says_json && serde_json::from_slice::<&RawValue>(body).is_err() => Err(Error::InvalidJson),
        _ => Ok(unread()),
    }
}

fn unread() -> Body {
    Body {
        unread: true,
        ..Body::default()
    }
}

/// A byte order mark, or JSON in which every other byte is none.
fn is_wide(body: &[u8]) -> bool {
    body.starts_with(b"\xEF\xBB\xBF")
        || body.starts_with(b"\xFE\xFF")
        || body.starts_with(b"\xFF\xFE")
        || body.iter().take(2).any(|byte| *byte == 0)
}

/// What the first object of a body names; `None` where there is no whole one.
fn of_object(body: &[u8]) -> Result<Option<Body>, Error> {
    let start = body.len() - body.trim_ascii_start().len();
    let Some(members) = members(body.get(start..).unwrap_or_default()) else {
        return Ok(None);
    };
    let value = |range: std::ops::Range<usize>| {
        let text = body
            .get(start + range.start..start + range.end)
            .unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default().trim()
    };
    let mut found = Body::default();
    let (mut named, mut listed) = (0, 0);
    for member in members {
        if member.name.eq_ignore_ascii_case(MODEL) {
            named += 1;
            match value(member.value) {
                "null" => {}
                text => found.models.push(bare(&string(text)?)),
            }
        } else if member.name.eq_ignore_ascii_case(MODELS) {
            listed += 1;
            let others = serde_json::from_str::<Vec<String>>(value(member.value)).unwrap_or_default();
            found.others.extend(others.iter().map(|name| bare(name)));
        }
    }
    if named > 1 || listed > 1 {
        return Err(Error::Duplicate);
    }
    Ok(Some(found))
}

fn string(text: &str) -> Result<String, Error> {
    serde_json::from_str(text).map_err(|_| Error::NoText)
}

fn of_form(body: &[u8]) -> Result<Body, Error> {
    let text = std::str::from_utf8(body).map_err(|_| Error::Form)?;
    let mut found = Body::default();
    for part in text.split('&') {
        let (name, value) = pair(part).ok_or(Error::Form)?;
        if name.eq_ignore_ascii_case(MODEL) {
            found.models.push(bare(&value));
        }
    }
    once(found)
}

fn once(found: Body) -> Result<Body, Error> {
    if found.models.len() > 1 {
        return Err(Error::Duplicate);
    }
    Ok(found)
}

/// What the parts of a form name.
fn of_parts(content_type: &str, body: &[u8]) -> Result<Body, Error> {
    let boundary = boundary(content_type).ok_or(Error::Form)?;
    let mark = format!("--{boundary}");
    let starts: Vec<usize> = memchr::memmem::find_iter(body, mark.as_bytes()).collect();
    if starts.is_empty() {
        return Err(Error::Form);
    }
    let mut found = Body::default();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(body.len());
        let part = body.get(start + mark.len()..end).unwrap_or_default();
        let Some((head, content)) = halves(part) else {
            continue;
        };
        if names_model(head)? {
            let text = std::str::from_utf8(content).map_err(|_| Error::NoText)?;
            found.models.push(bare(text.trim_end_matches(['\r', '\n'])));
        }
    }
    once(found)
}

/// The head of a part and its content.
fn halves(part: &[u8]) -> Option<(&[u8], &[u8])> {
    [&b"\r\n\r\n"[..], &b"\n\n"[..]].into_iter().find_map(|gap| {
        let at = memchr::memmem::find(part, gap)?;
        Some((part.get(..at)?, part.get(at + gap.len()..)?))
    })
}

/// Whether the head of a part says that it names a model.
fn names_model(head: &[u8]) -> Result<bool, Error> {
    let head = std::str::from_utf8(head).map_err(|_| Error::Form)?;
    let mut names = false;
    for line in head.lines() {
        let Some((field, value)) = line.split_once(':') else {
            // A line that goes on with the one before.
            if line.starts_with([' ', '\t']) {
                return Err(Error::Form);
            }
            continue;
        };
        if !field.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        for parameter in value.split(';').skip(1) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let name = name.trim().to_ascii_lowercase();
            if name == "name*" {
                return Err(Error::Form);
            }
            let value = value.trim().trim_matches('"');
            names |= name == "name" && (value.eq_ignore_ascii_case(MODEL) || value.contains('\\'));
        }
    }
    Ok(names)
}

fn boundary(content_type: &str) -> Option<&str> {
    let mut found = content_type.split(';').skip(1).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then(|| value.trim().trim_matches('"'))
    });
    let boundary = found.next().filter(|boundary| !boundary.is_empty())?;
    found.next().is_none().then_some(boundary)
}

#[cfg(test)]
mod tests;
