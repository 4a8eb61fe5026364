//! Errors of upstreams on the wire, in all their shapes.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

mod words;

/// Most characters kept of an upstream's message.
pub const MESSAGE_CHARS_MAX: usize = 500;
/// Most characters kept of an upstream's type, code or parameter.
const LABEL_CHARS_MAX: usize = 100;
/// Bytes of an error body that are searched for its meaning.
const SEARCHED_BYTES_MAX: usize = 16 * 1024;

/// The code of an upstream's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// A number, most often an HTTP status.
    Number(i64),
    /// A word.
    Text(String),
}

/// What an upstream says about its failure. Its words are its own: they are not for callers as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamError {
    /// The message, at most [`MESSAGE_CHARS_MAX`] characters.
    pub message: Option<String>,
    /// The type.
    pub kind: Option<String>,
    /// The code.
    pub code: Option<ErrorCode>,
    /// The parameter at fault.
    pub param: Option<String>,
    /// The HTTP status that it names, by `status` or by `code`.
    pub status: Option<u16>,
    /// A moderator has refused what was asked, and says why.
    pub moderated: bool,
}

type Told<'a> = Option<&'a RawValue>;

/// The members of an error, or of the object around it, that somebody is known to send.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Members<'a> {
    #[serde(borrow)]
    error: Told<'a>,
    message: Told<'a>,
    msg: Told<'a>,
    detail: Told<'a>,
    #[serde(rename = "type")]
    kind: Told<'a>,
    code: Told<'a>,
    param: Told<'a>,
    status: Told<'a>,
    metadata: Told<'a>,
}

/// Reads the body of an answer whose status is not 2xx. `None` when it has no shape that is known.
pub fn parse_upstream_error(body: &[u8]) -> Option<UpstreamError> {
    let text = std::str::from_utf8(body).ok()?;
    let members = members(text)?;
    if let Some(error) = members.error.and_then(|raw| of_member(raw.get())) {
        return Some(error);
    }
    let told = members.message.or(members.detail).is_some();
    told.then(|| of_members(&members))
        .filter(|error| error.message.is_some())
}

/// Reads the value of an `error` member. `None` when it says that there is none.
pub(super) fn of_member(text: &str) -> Option<UpstreamError> {
    match text.as_bytes().first()? {
        b'{' => Some(members(text).map_or_else(UpstreamError::default, |members| of_members(&members))),
        b'"' => {
            let message = text_of(text, MESSAGE_CHARS_MAX)?;
            Some(UpstreamError {
                message: Some(message),
                ..UpstreamError::default()
            })
        }
        b't' => Some(UpstreamError::default()),
        _ => None,
    }
}

/// The members of an object, or of the first object of a list.
fn members(text: &str) -> Option<Members<'_>> {
    let text = text.trim_ascii_start();
    if text.starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let first = list
            .first()
            .map(|raw| raw.get())
            .filter(|first| first.starts_with('{'))?;
        return serde_json::from_str(first).ok();
    }
    if !text.starts_with('{') {
        return None;
    }
    serde_json::from_str(text).ok()
}

fn of_members(members: &Members<'_>) -> UpstreamError {
    let label = |raw: Told<'_>| raw.and_then(|raw| text_of(raw.get(), LABEL_CHARS_MAX));
    let message = |raw: Told<'_>| raw.and_then(|raw| text_of(raw.get(), MESSAGE_CHARS_MAX));
    let code = members.code.and_then(|raw| code_of(raw.get()));
    let status = members.status.and_then(|raw| code_of(raw.get()));
    UpstreamError {
        message: message(members.message)
            .or_else(|| message(members.msg))
            .or_else(|| members.detail.and_then(|raw| detail_of(raw.get()))),
        kind: label(members.kind).or_else(|| label(members.status)),
        param: label(members.param),
        status: status
            .as_ref()
            .and_then(status_of)
            .or_else(|| code.as_ref().and_then(status_of)),
        code,
        moderated: members.metadata.is_some_and(|raw| gives_reasons(raw.get())),
    }
}

/// True for the `metadata` of a moderator's refusal, as OpenRouter has it: a list of reasons.
fn gives_reasons(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Metadata {
        reasons: Vec<IgnoredAny>,
    }

    let read = serde_json::from_str::<Metadata>(text);
    read.is_ok_and(|metadata| !metadata.reasons.is_empty())
}

/// The message of a `detail`: text, or the first of a list of faults.
fn detail_of(text: &str) -> Option<String> {
    if text.starts_with('"') {
        return text_of(text, MESSAGE_CHARS_MAX);
    }
    let members = members(text)?;
    let message = members.msg.or(members.message)?;
    text_of(message.get(), MESSAGE_CHARS_MAX)
}

/// A JSON string, cut to `chars_max` characters; `None` for other values and for the empty string.
fn text_of(text: &str, chars_max: usize) -> Option<String> {
    let mut decoded: String = serde_json::from_str(text).ok()?;
    if let Some((end, _)) = decoded.char_indices().nth(chars_max) {
        decoded.truncate(end);
    }
    (!decoded.is_empty()).then_some(decoded)
}

fn code_of(text: &str) -> Option<ErrorCode> {
    match text.parse() {
        Ok(number) => Some(ErrorCode::Number(number)),
        Err(_) => text_of(text, LABEL_CHARS_MAX).map(ErrorCode::Text),
    }
}

/// The HTTP status that a code is.
fn status_of(code: &ErrorCode) -> Option<u16> {
    let number = match code {
        ErrorCode::Number(number) => u16::try_from(*number).ok()?,
        ErrorCode::Text(text) => text.parse().ok()?,
    };
    (400..600).contains(&number).then_some(number)
}

/// Words by which upstreams say that a prompt does not fit, in lower case.
const OVERFLOW_WORDS: [&str; 10] = [
    "context length",
    "context window",
    "context size",
    "context_length_exceeded",
    "exceed_context_size",
    "maximum model length",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "model token limit",
];

/// True when an error says that the prompt is longer than the model can take: a wider model may serve it.
pub fn is_context_overflow(status: u16, body: &[u8]) -> bool {
    matches!(status, 400 | 404 | 413 | 422) && says_overflow(body)
}

fn says_overflow(body: &[u8]) -> bool {
    let searched = body.get(..SEARCHED_BYTES_MAX).unwrap_or(body);
    let text = String::from_utf8_lossy(searched).to_ascii_lowercase();
    let counted = || {
        text.split_once("input token count")
            .is_some_and(|(_, rest)| rest.contains("exceed"))
    };
    OVERFLOW_WORDS.iter().any(|words| text.contains(words)) || counted()
}
