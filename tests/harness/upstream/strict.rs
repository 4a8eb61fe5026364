//! What careful providers refuse. A strict upstream reads a request as its provider would and answers 400, in the
//! provider's own shape, to whatever that one does not take: unknown members, roles out of order, results of calls that
//! nobody made, empty texts. Written from the providers' rules, apart from the code that writes such requests.

use serde_json::Value;

use super::request::Received;
use super::speech::Speech;

mod chat;
mod gemini;
mod messages;
mod responses;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

/// Fine, or refused.
pub(crate) type Judged<T = ()> = Result<T, Refused>;

/// The reason why a strict provider refuses a request; `None` when it takes it.
pub(crate) fn refusal(request: &Received) -> Option<String> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return Some("the body is no JSON".to_owned());
    };
    let judged = match Speech::of(request) {
        Speech::Chat => chat::judge(&body),
        Speech::Responses => responses::judge(&body),
        Speech::Messages => messages::judge(request, &body),
        Speech::Gemini => gemini::judge(request, &body),
        Speech::Completions | Speech::Embeddings | Speech::CountTokens => Ok(()),
    };
    judged.err().map(|Refused(why)| why)
}

/// A refusal.
pub(crate) fn refuse<T>(why: impl Into<String>) -> Judged<T> {
    Err(Refused(why.into()))
}

/// A refusal unless `holds`.
pub(crate) fn must(holds: bool, why: impl Into<String>) -> Judged {
    if holds { Ok(()) } else { refuse(why) }
}

/// Only these members may be there.
pub(crate) fn only(value: &Value, members: &[&str], at: &str) -> Judged {
    let Some(object) = value.as_object() else {
        return refuse(format!("{at}: must be an object, is {value}"));
    };
    match object.keys().find(|name| !members.contains(&name.as_str())) {
        Some(name) => refuse(format!("{at}.{name}: extra inputs are not permitted")),
        None => Ok(()),
    }
}

/// A member that must be a list with something in it.
pub(crate) fn list<'a>(value: &'a Value, member: &str, at: &str) -> Judged<&'a [Value]> {
    match value[member].as_array() {
        Some(list) if !list.is_empty() => Ok(list),
        _ => refuse(format!("{at}.{member}: must be a list with at least one entry")),
    }
}

/// A member that must be text with something in it.
pub(crate) fn filled<'a>(value: &'a Value, member: &str, at: &str) -> Judged<&'a str> {
    match value[member].as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        _ => refuse(format!("{at}.{member}: must be text that is not empty")),
    }
}

/// A member that is absent or a number of this range.
pub(crate) fn within(value: &Value, member: &str, (least, most): (f64, f64)) -> Judged {
    let Some(told) = value.get(member) else {
        return Ok(());
    };
    let holds = told
        .as_f64()
        .is_some_and(|number| (least..=most).contains(&number));
    must(
        holds,
        format!("{member}: must be between {least} and {most}, is {told}"),
    )
}

/// A name of letters, digits, `_`, `-` and those of `more`, at most so long.
pub(crate) fn name(name: &str, length_max: usize, more: &str) -> Judged {
    let legal = |character: char| {
        character.is_ascii_alphanumeric() || "_-".contains(character) || more.contains(character)
    };
    let holds = !name.is_empty() && name.len() <= length_max && name.chars().all(legal);
    must(holds, format!("'{name}' is no legal name or id"))
}

/// Base64 as a provider decodes it.
pub(crate) fn base64(text: &str) -> Judged<Vec<u8>> {
    use ::base64::Engine;
    match ::base64::engine::general_purpose::STANDARD.decode(text) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => refuse("the data is not valid base64"),
    }
}

#[cfg(test)]
mod tests;
