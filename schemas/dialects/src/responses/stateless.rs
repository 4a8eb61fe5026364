//! Requests that pass, for an upstream that shall keep nothing: what is kept is kept here, for its tenant alone. In an
//! upstream's account it would lie beside what is everybody's.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::told::{Item, Kind, text};
use crate::member::{members, without};
use crate::object::Object;
use crate::splice::{Edit, splice};

/// The member that says whether a response is kept.
const STORE: &str = "store";
/// What is reported where thoughts are left out.
const THOUGHTS: &str = "input.reasoning";
/// What is asked for so that thoughts can be told again without being kept.
const PROOFS: &str = "\"reasoning.encrypted_content\"";

/// The request that asks for nothing to be kept, and what was left out of it. Thoughts of which there is no more than
/// an id or a summary are left out: the upstream would look for them among what it keeps. Where the caller lets his
/// response be kept, and asks for thoughts, they come with what tells them again.
pub fn stateless(body: &Bytes) -> (Bytes, Option<&'static str>) {
    let request = std::str::from_utf8(body).ok().and_then(Object::read);
    let Some(request) = request else {
        return (body.clone(), None);
    };
    let told = |name: &'static str| {
        let members = request.members();
        members
            .filter(move |(own, _)| *own == name)
            .map(|(_, value)| value.get())
    };
    let stores: Vec<&str> = told(STORE).collect();
    let keeps = stores.last() != Some(&"false");
    let mut put = String::new();
    let mut taken: Vec<&str> = Vec::new();
    if stores != ["false"] {
        taken.push(STORE);
        put.push_str("\"store\":false,");
    }
    let thinks = told("reasoning").any(|value| value.starts_with('{'));
    if keeps && thinks {
        let asked: Vec<&RawValue> = told("include")
            .last()
            .and_then(|value| serde_json::from_str(value).ok())
            .unwrap_or_default();
        let mut asked: Vec<&str> = asked.into_iter().map(RawValue::get).collect();
        if !asked.contains(&PROOFS) {
            taken.push("include");
            asked.push(PROOFS);
            put.push_str("\"include\":[");
            put.push_str(&asked.join(","));
            put.push_str("],");
        }
    }
    let (whole, dropped) = without_mere_names(body);
    if taken.is_empty() {
        return (whole, dropped);
    }
    (crate::member::with(without(&whole, &taken), &put), dropped)
}

/// The request without thoughts that are no more than named.
fn without_mere_names(body: &Bytes) -> (Bytes, Option<&'static str>) {
    let mut edits = Vec::new();
    for member in members(body).unwrap_or_default() {
        let list = body.get(member.value.clone()).unwrap_or_default();
        if member.name != "input" || !list.starts_with(b"[") {
            continue;
        }
        let Ok(items) = serde_json::from_slice::<Vec<&RawValue>>(list) else {
            continue;
        };
        let left: Vec<&str> = items
            .iter()
            .map(|item| item.get())
            .filter(|item| !is_mere_name(item))
            .collect();
        if left.len() < items.len() {
            edits.push(Edit {
                range: member.value,
                with: format!("[{}]", left.join(",")).into(),
            });
        }
    }
    if edits.is_empty() {
        return (body.clone(), None);
    }
    (splice(body, &edits), Some(THOUGHTS))
}

/// A thought that only its upstream could tell again.
fn is_mere_name(item: &str) -> bool {
    serde_json::from_str::<Item<'_>>(item).is_ok_and(|item| {
        item.kind() == Kind::Reasoning
            && text(item.encrypted_content).is_none_or(|proof| proof.is_empty())
            && item.thought().is_ok_and(|thought| thought.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(body: &'static str) -> (String, Option<&'static str>) {
        let (body, dropped) = stateless(&Bytes::from_static(body.as_bytes()));
        (String::from_utf8_lossy(&body).into_owned(), dropped)
    }

    #[test]
    fn an_upstream_is_told_to_keep_nothing_whatever_the_caller_says() {
        for (asked, told) in [
            (r#"{"model":"m"}"#, r#"{"store":false,"model":"m"}"#),
            (r#"{"model":"m","store":true}"#, r#"{"store":false,"model":"m"}"#),
            (r#"{"model":"m","store":null}"#, r#"{"store":false,"model":"m"}"#),
            (
                r#"{"store":false,"model":"m","store":true}"#,
                r#"{"store":false,"model":"m"}"#,
            ),
            (
                r#"{ "model":"m", "store" : false }"#,
                r#"{ "model":"m", "store" : false }"#,
            ),
            ("[]", "[]"),
        ] {
            assert_eq!(sent(asked), (told.to_owned(), None), "{asked}");
        }
    }

    #[test]
    fn thoughts_that_are_kept_here_come_with_what_tells_them_again() {
        let kept = sent(r#"{"reasoning":{"effort":"low"},"include":["a"]}"#).0;
        let unkept = r#"{"reasoning":{"effort":"low"},"store":false}"#;

        assert_eq!(
            kept,
            r#"{"store":false,"include":["a","reasoning.encrypted_content"],"reasoning":{"effort":"low"}}"#
        );
        assert_eq!(sent(unkept), (unkept.to_owned(), None));
    }

    #[test]
    fn thoughts_that_are_only_named_are_left_out_and_told() {
        let (left, dropped) = sent(
            r#"{"store":false,"input":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"reasoning","id":"rs_2","encrypted_content":"x"},{"type":"reasoning","id":"rs_3","content":[{"type":"reasoning_text","text":"hm"}]},{"role":"user","content":"hi"}]}"#,
        );

        assert_eq!(
            left,
            r#"{"store":false,"input":[{"type":"reasoning","id":"rs_2","encrypted_content":"x"},{"type":"reasoning","id":"rs_3","content":[{"type":"reasoning_text","text":"hm"}]},{"role":"user","content":"hi"}]}"#
        );
        assert_eq!(dropped, Some("input.reasoning"));
    }
}
