//! The members of a request's JSON object: which there are, where they stand, and which of an endpoint's own it
//! lacks. What is no object has no members, and is left as it is.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::splice::{Edit, json_string, splice};
use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Where its value stands, in bytes of the text that the object was read from.
    pub value: Range<usize>,
}

/// The members of an object in their order; `None` when `text` is none.
pub fn members(text: &[u8]) -> Option<Vec<Member<'_>>> {
    let text = std::str::from_utf8(text).ok()?;
    serde_json::Deserializer::from_str(text)
        .deserialize_map(Members(text))
        .ok()
}

/// Those of `additions` (members of an object, without braces) that `body` does not have, each followed by
/// a comma, ready to stand behind the opening brace.
pub fn missing(body: &[u8], additions: &[&str]) -> String {
    let mut missing = String::new();
    if additions.iter().all(|members| members.is_empty()) {
        return missing;
    }
    let Some(present) = members(body) else {
        return missing;
    };
    let mut present: Vec<Cow<'_, str>> = present.into_iter().map(|member| member.name).collect();
    for added in additions.iter().filter(|members| !members.is_empty()) {
        let object = format!("{{{added}}}");
        for member in members(object.as_bytes()).unwrap_or_default() {
            if present.contains(&member.name) {
                continue;
            }
            missing.push_str(&String::from_utf8_lossy(&json_string(&member.name)));
            missing.push(':');
            missing.push_str(object.get(member.value).unwrap_or("null"));
            missing.push(',');
            present.push(Cow::Owned(member.name.into_owned()));
        }
    }
    missing
}

/// The object with `members`, each followed by a comma, behind its opening brace. An object that has none of its
/// own gets them without the last comma.
pub fn with(body: Bytes, members: &str) -> Bytes {
    let Some(brace) = body.iter().position(|byte| *byte == b'{') else {
        return body;
    };
    let at = brace + 1;
    let is_empty = body.get(at..).and_then(|rest| rest.trim_ascii_start().first()) == Some(&b'}');
    let members = if is_empty {
        members.trim_end_matches(',')
    } else {
        members
    };
    if members.is_empty() {
        return body;
    }
    let edit = Edit {
        range: at..at,
        with: Bytes::copy_from_slice(members.as_bytes()),
    };
    splice(&body, &[edit])
}

/// The object without the members of these names.
pub fn without(body: &Bytes, names: &[&str]) -> Bytes {
    splice(body, &removals(body, names))
}

/// The edits that take the members of these names out of an object; none for what is no object.
pub fn removals(body: &[u8], names: &[&str]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let Some(all) = members(body) else {
        return edits;
    };
    let Some(brace) = body.iter().position(|byte| *byte == b'{') else {
        return edits;
    };
    let mut kept_one = false;
    let mut end_before = brace + 1;
    for member in &all {
        if names.contains(&member.name.as_ref()) {
            let range = end_before..member.value.end;
            edits.push(Edit {
                range,
                with: Bytes::new(),
            });
        } else {
            let comma = body
                .get(end_before..member.value.start)
                .and_then(|between| between.iter().position(|byte| *byte == b','));
            // The first that stays has nothing before it; a comma in a name stands behind its quote.
            if let Some(comma) = comma
                && !kept_one
                && !edits.is_empty()
            {
                let at = end_before + comma;
                edits.push(Edit {
                    range: at..at + 1,
                    with: Bytes::new(),
                });
            }
            kept_one = true;
        }
        end_before = member.value.end;
    }
    edits
}

/// The object with other names for members: each of `names` and what it becomes. One whose new name is taken goes.
pub fn renamed(body: Bytes, names: &[(&str, &str)]) -> Bytes {
    let Some(all) = members(&body) else {
        return body;
    };
    let has = |name: &str| all.iter().any(|member| member.name == name);
    let mut moved = String::new();
    let mut gone = Vec::new();
    for (from, to) in names.iter().filter(|(from, _)| has(from)) {
        gone.push(*from);
        let value = all.iter().rfind(|member| member.name == *from);
        let value = value.and_then(|member| body.get(member.value.clone()));
        if let Some(value) = value.filter(|_| !has(to)) {
            moved.push_str(&String::from_utf8_lossy(&json_string(to)));
            moved.push(':');
            moved.push_str(&String::from_utf8_lossy(value));
            moved.push(',');
        }
    }
    if gone.is_empty() {
        return body;
    }
    with(without(&body, &gone), &moved)
}

struct Members<'a>(&'a str);

impl<'a> Visitor<'a> for Members<'a> {
    type Value = Vec<Member<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            let start = value.get().as_ptr().addr().saturating_sub(self.0.as_ptr().addr());
            let value = start..start + value.get().len();
            members.push(Member { name, value });
        }
        Ok(members)
    }
}

/// A name, borrowed where it can be.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added_only_where_the_body_has_none() {
        let body = br#"{"model":"m","top_k":1}"#;

        assert_eq!(missing(body, &["", ""]), "");
        assert_eq!(
            missing(
                body,
                &[r#""top_k":9,"seed":{"a":[1]}"#, r#""usage":{"include":true}"#]
            ),
            r#""seed":{"a":[1]},"usage":{"include":true},"#
        );
        assert_eq!(missing(b"[]", &[r#""a":1"#]), "");
        assert_eq!(missing(body, &["not JSON"]), "");
    }

    #[test]
    fn added_members_stand_first_and_leave_an_object() {
        let added = |body: &'static str| with(Bytes::from_static(body.as_bytes()), r#""a":1,"#);

        assert_eq!(added(r#"{"b":2}"#), r#"{"a":1,"b":2}"#);
        assert_eq!(added(" { } "), r#" {"a":1 } "#);
        assert_eq!(added("3"), "3");
    }

    #[test]
    fn members_get_other_names_unless_those_are_taken() {
        let names = [("seed", "random_seed"), ("a", "b")];
        for (body, left) in [
            (r#"{"model":"m","seed":7}"#, r#"{"random_seed":7,"model":"m"}"#),
            (r#"{"seed":7}"#, r#"{"random_seed":7}"#),
            (r#"{"a":1,"b":2,"seed":7}"#, r#"{"random_seed":7,"b":2}"#),
            (r#"{ "model":"m" }"#, r#"{ "model":"m" }"#),
            ("[1]", "[1]"),
        ] {
            let body = Bytes::from_static(body.as_bytes());
            assert_eq!(renamed(body.clone(), &names), left, "{body:?}");
        }
    }

    #[test]
    fn members_are_taken_out_wherever_they_stand() {
        for (body, left) in [
            (r#"{"model":"m","a":1}"#, r#"{"a":1}"#),
            (r#"{ "model" : "m" , "a,b" : 1 }"#, r#"{  "a,b" : 1 }"#),
            (r#"{"a":1,"model":"m"}"#, r#"{"a":1}"#),
            (
                r#"{"a":1,"model":"m","b":{"model":2}}"#,
                r#"{"a":1,"b":{"model":2}}"#,
            ),
            (r#"{"model":"m","x":0}"#, "{}"),
            (r#"{"x":0,"model":"m","a":"}"}"#, r#"{"a":"}"}"#),
            ("{}", "{}"),
            ("[1]", "[1]"),
        ] {
            let taken = without(&Bytes::from_static(body.as_bytes()), &["model", "x"]);
            assert_eq!(taken, left, "{body}");
        }
    }
}
