//! Embeddings: the answer, and the two forms of its vectors. A vector is a list of numbers, or base64 of 32-bit
//! floating-point numbers in little-endian order; an upstream that gives the other form than was asked for is put
//! right.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::error::{UpstreamError, parse_upstream_error};
use crate::chat::usage::UsageFacts;
use crate::splice::{Edit, splice};

/// Why a body is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not UTF-8.
    #[error("the answer is not UTF-8")]
    NotUtf8,
    /// Not a JSON object of the expected shape.
    #[error("the answer is not a JSON object of the expected shape")]
    Malformed(#[from] serde_json::Error),
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The JSON string value of `model`, quotes included, in bytes of the body.
    pub model_span: Option<Range<usize>>,
    /// Each vector's value, in the order of the body.
    pub vectors: Vec<Range<usize>>,
    /// What the upstream reported; an embedding has no output.
    pub usage: Option<UsageFacts>,
    /// An error, which a status of 200 may carry.
    pub error: Option<UpstreamError>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<Vec<Item<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    encoding_format: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

/// Reads a body.
pub fn skim(body: &[u8]) -> Result<Answer, Error> {
    let text = std::str::from_utf8(body).map_err(|_| Error::NotUtf8)?;
    let read: Body<'_> = serde_json::from_str(text)?;
    let span = |raw: &RawValue| {
        let start = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
        start..start + raw.get().len()
    };
    let told = read.error.is_some_and(|error| error.get() != "null");
    let usage = read.usage.and_then(|usage| UsageFacts::read(usage.get()));
    Ok(Answer {
        model_span: read.model.filter(|model| model.get().starts_with('"')).map(span),
        vectors: read
            .data
            .iter()
            .flatten()
            .map(|item| span(item.embedding))
            .collect(),
        usage: usage.and_then(UsageFacts::counted).map(|mut usage| {
            usage.completion_tokens.get_or_insert(0);
            usage
        }),
        error: told.then(|| parse_upstream_error(body).unwrap_or_default()),
    })
}

/// How many vectors a request asks for: one for each text, or each list of tokens. One of no known form asks for one.
pub fn asked(request: &[u8]) -> usize {
    let request: Option<Request<'_>> = serde_json::from_slice(request).ok();
    let input = request
        .and_then(|request| request.input)
        .map_or("", RawValue::get);
    let first = input.strip_prefix('[').unwrap_or_default().trim_start();
    if first.starts_with(|first: char| first.is_ascii_digit()) {
        return 1;
    }
    let inputs: Vec<&RawValue> = serde_json::from_str(input).unwrap_or_default();
    inputs.len().max(1)
}

/// How many vectors of an answer have something in them.
pub fn filled(body: &[u8], answer: &Answer) -> usize {
    let is_filled = |span: &&Range<usize>| {
        let value = body.get((*span).clone()).unwrap_or_default();
        !matches!(value, b"null" | b"[]" | b"\"\"")
    };
    answer.vectors.iter().filter(is_filled).count()
}

/// Whether a request asks for base64.
pub fn asks_base64(request: &[u8]) -> bool {
    serde_json::from_slice::<Request<'_>>(request)
        .is_ok_and(|request| request.encoding_format.is_some_and(|format| format == "base64"))
}

/// What changes `body` so that its vectors have the form that was asked for; none for those that have it, and for
/// those that are of neither.
pub fn edits(body: &[u8], answer: &Answer, base64: bool) -> Vec<Edit> {
    let change = |span: &Range<usize>| {
        let value = std::str::from_utf8(body.get(span.clone())?).ok()?;
        let with = match (value.as_bytes().first()?, base64) {
            (b'[', true) => encoded(value)?,
            (b'"', false) => decoded(value)?,
            _ => return None,
        };
        Some(Edit {
            range: span.clone(),
            with: Bytes::from(with),
        })
    };
    answer.vectors.iter().filter_map(change).collect()
}

/// The body under the model's public name and with vectors of the form that was asked for. `model_json`: a JSON string.
pub fn answered(body: &Bytes, answer: &Answer, model_json: &[u8], base64: bool) -> Bytes {
    let mut edits = edits(body, answer, base64);
    let model = answer.model_span.clone();
    edits.extend(
        model
            .filter(|span| body.get(span.clone()) != Some(model_json))
            .map(|range| Edit {
                range,
                with: Bytes::copy_from_slice(model_json),
            }),
    );
    edits.sort_by_key(|edit| edit.range.start);
    splice(body, &edits)
}

/// A list of numbers as a JSON string of base64.
fn encoded(list: &str) -> Option<String> {
    let vector: Vec<f32> = serde_json::from_str(list).ok()?;
    let bytes: Vec<u8> = vector.into_iter().flat_map(f32::to_le_bytes).collect();
    Some(format!("\"{}\"", STANDARD.encode(bytes)))
}

/// A JSON string of base64 as a list of numbers.
fn decoded(text: &str) -> Option<String> {
    let text: std::borrow::Cow<'_, str> = serde_json::from_str(text).ok()?;
    let bytes = STANDARD.decode(text.as_bytes()).ok()?;
    let (numbers, rest) = bytes.as_chunks::<4>();
    let vector: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    if !rest.is_empty() || !vector.iter().all(|number| number.is_finite()) {
        return None;
    }
    serde_json::to_string(&vector).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-2,1e-3]},{"index":1,"embedding":[1]}],"model":"org/e","usage":{"prompt_tokens":4,"total_tokens":4}}"#;

    fn put(body: &str, base64: bool) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let answer = skim(&body).expect("an answer");
        String::from_utf8(answered(&body, &answer, b"\"m\"", base64).to_vec()).expect("text")
    }

    #[test]
    fn an_answer_passes_but_for_its_models_name() {
        let answer = skim(LIST.as_bytes()).expect("an answer");

        assert_eq!(answer.vectors.len(), 2);
        let usage = answer.usage.expect("usage");
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(4), Some(0)));
        assert_eq!(put(LIST, false), LIST.replace("org/e", "m"));
    }

    #[test]
    fn vectors_have_the_form_that_was_asked_for() {
        let base64 = put(LIST, true);

        assert!(base64.contains(r#""embedding":"AAAAPwAAAMBvEoM6"}"#), "{base64}");
        assert!(base64.contains(r#""embedding":"AACAPw=="}"#), "{base64}");
        assert_eq!(put(&base64, true), base64, "what is right stays");
        assert_eq!(
            put(&base64, false),
            LIST.replace("org/e", "m")
                .replace("-2,1e-3", "-2.0,0.001")
                .replace("[1]", "[1.0]")
        );
    }

    #[test]
    fn vectors_of_neither_form_pass_as_they_are() {
        let odd =
            r#"{"data":[{"embedding":"AAA"},{"embedding":"!"},{"embedding":null},{"embedding":"AADAfw=="}]}"#;

        assert_eq!(put(odd, false), odd);
        assert_eq!(put(odd, true), odd);
    }

    #[test]
    fn an_answer_without_vectors_or_with_an_error_says_so() {
        assert!(skim(b"{\"data\":[]}").expect("an answer").vectors.is_empty());
        assert!(skim(b"{\"data\":null}").expect("an answer").vectors.is_empty());
        let failed = skim(br#"{"error":{"message":"no","code":429}}"#).expect("an answer");
        assert_eq!(failed.error.and_then(|error| error.status), Some(429));
        assert!(skim(b"[]").is_err());
        assert!(skim(b"\xff").is_err());
    }

    #[test]
    fn as_many_vectors_are_asked_for_as_there_are_inputs() {
        for (input, count) in [
            (r#""one""#, 1),
            (r#"["one", "two"]"#, 2),
            ("[1, 2, 3]", 1),
            ("[ 1, 2, 3]", 1),
            ("[[1, 2], [3], [4]]", 3),
            ("null", 1),
        ] {
            assert_eq!(
                asked(format!(r#"{{"model":"e","input":{input}}}"#).as_bytes()),
                count,
                "{input}"
            );
        }
        assert_eq!(asked(b"{"), 1);
        let body = br#"{"data":[{"embedding":[1]},{"embedding":null},{"embedding":[]},{"embedding":""},{"embedding":"AACAPw=="}]}"#;
        assert_eq!(filled(body, &skim(body).expect("an answer")), 2);
    }

    #[test]
    fn the_form_is_read_from_the_request() {
        assert!(asks_base64(br#"{"input":"x","encoding_format":"base64"}"#));
        assert!(!asks_base64(br#"{"input":"x","encoding_format":"float"}"#));
        assert!(!asks_base64(br#"{"input":"x"}"#));
        assert!(!asks_base64(b"{"));
    }
}
