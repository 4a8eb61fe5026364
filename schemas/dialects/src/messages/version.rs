//! What a version of Anthropic's API no longer takes. Looked for only in requests that say they are in such a version,
//! and only where a word of it stands in them.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::superset::request::Refusal;

/// The version from which on requests draw tokens as the model does, quote no citations, and attach documents only on
/// the user's side.
const LEANER: &str = "2026-10-21";
/// Members that such a request must not have, whatever their value.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];
/// Words without which there is nothing to look for.
const WORDS: [&str; 5] = ["temperature", "top_p", "top_k", "document", "citations"];

#[derive(Deserialize)]
struct Request<'a> {
    temperature: Option<IgnoredAny>,
    top_p: Option<IgnoredAny>,
    top_k: Option<IgnoredAny>,
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    citations: Option<&'a RawValue>,
}

/// Refuses a request that has what its version does not. One that says no version is in the oldest; a body that is no
/// request is somebody else's to refuse.
pub fn check(version: Option<&str>, body: &[u8]) -> Result<(), Refusal> {
    if !version.is_some_and(is_leaner)
        || WORDS
            .iter()
            .all(|word| memmem::find(body, word.as_bytes()).is_none())
    {
        return Ok(());
    }
    let Ok(request) = serde_json::from_slice::<Request<'_>>(body) else {
        return Ok(());
    };
    let sampling = [&request.temperature, &request.top_p, &request.top_k];
    for (name, value) in SAMPLING.into_iter().zip(sampling) {
        if value.is_some() {
            return Err(gone(name.into()));
        }
    }
    for (number, message) in request.messages.iter().enumerate() {
        let blocks = message
            .content
            .map(RawValue::get)
            .filter(|content| content.starts_with('['));
        let blocks = blocks.and_then(|blocks| serde_json::from_str::<Vec<Block<'_>>>(blocks).ok());
        for (place, block) in blocks.unwrap_or_default().iter().enumerate() {
            if let Some(member) = gone_member(&message.role, block) {
                return Err(gone(format!("messages.{number}.content.{place}{member}").into()));
            }
        }
    }
    Ok(())
}

/// Versions are dates, which sort as text.
fn is_leaner(version: &str) -> bool {
    let is_date = version.len() == LEANER.len()
        && version
            .bytes()
            .zip(LEANER.bytes())
            .all(|(byte, pattern)| byte == pattern || (byte.is_ascii_digit() && pattern.is_ascii_digit()));
    is_date && version >= LEANER
}

/// The member of a block that is gone, as the rest of its path; empty for the block itself.
fn gone_member(role: &str, block: &Block<'_>) -> Option<&'static str> {
    match (role, &*block.kind) {
        ("assistant", "document") => Some(""),
        ("user", "text") if block.citations.is_some_and(|list| list.get() != "[]") => Some(".citations"),
        _ => None,
    }
}

fn gone(param: Cow<'static, str>) -> Refusal {
    Refusal::Unsupported {
        param,
        problem: "this version of the API does not have it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(version: &str, body: &str) -> Option<String> {
        match check(Some(version), body.as_bytes()) {
            Err(Refusal::Unsupported { param, .. }) => Some(param.into_owned()),
            other => {
                assert_eq!(other, Ok(()));
                None
            }
        }
    }

    fn said(role: &str, block: &str) -> String {
        format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"temperature"}},{{"role":"{role}","content":[{{"type":"text","text":"a"}},{block}]}}]}}"#
        )
    }

    #[test]
    fn sampling_is_gone_even_where_it_says_what_is_so_anyway() {
        for name in SAMPLING {
            let body = format!(r#"{{"model":"m","{name}":1,"messages":[]}}"#);
            assert_eq!(param("2026-10-21", &body).as_deref(), Some(name));
            assert_eq!(param("2023-06-01", &body), None);
            assert_eq!(check(None, body.as_bytes()), Ok(()));
        }
        assert_eq!(param("2026-10-21", r#"{"model":"m","temperature":null}"#), None);
    }

    #[test]
    fn documents_of_the_assistant_and_citations_of_the_user_are_gone_and_named_by_their_place() {
        let document = r#"{"type":"document","source":{"type":"text","data":"x"}}"#;
        let cited = r#"{"type":"text","text":"b","citations":[{"type":"char_location"}]}"#;
        let uncited = r#"{"type":"text","text":"b","citations":[]}"#;
        let at = |place: &str| Some(format!("messages.1.content.1{place}"));

        assert_eq!(param("2026-10-21", &said("assistant", document)), at(""));
        assert_eq!(param("2026-10-21", &said("user", document)), None);
        assert_eq!(param("2026-10-21", &said("user", cited)), at(".citations"));
        assert_eq!(param("2026-10-21", &said("user", uncited)), None);
        assert_eq!(param("2026-10-21", &said("assistant", cited)), None);
        assert_eq!(param("2023-06-01", &said("assistant", document)), None);
    }

    #[test]
    fn what_is_no_version_changes_nothing_and_what_is_no_request_is_left_to_others() {
        let body = r#"{"temperature":1}"#;

        for version in ["latest", "2026", "2026-10-2x", "vertex-2026", ""] {
            assert_eq!(param(version, body), None, "{version}");
        }
        assert_eq!(param("2027-01-01", body).as_deref(), Some("temperature"));
        assert_eq!(param("2026-10-21", "temperature"), None);
        assert_eq!(param("2026-10-21", r#"{"top_k":{},"messages":7}"#), None);
    }
}
