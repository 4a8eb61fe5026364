//! Takes the thoughts out of chunks and answers of chat that pass, wherever servers put them: members beside the text,
//! and parts of a text in pieces.

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::member::{members, removals};
use crate::passage::hidden::{list_edit, place};
use crate::splice::Edit;

/// Members of what was said that hold thoughts.
const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];
/// Types of parts that hold thoughts.
const PARTS: [&str; 2] = ["\"thinking\"", "\"reasoning\""];

/// The edits, in rising order.
pub(crate) fn edits(data: &[u8]) -> Vec<Edit> {
    let has = |word: &[u8]| memmem::find(data, word).is_some();
    if !has(b"reasoning") && !has(b"thinking") {
        return Vec::new();
    }
    let mut edits = Vec::new();
    for choice in choices(data) {
        let Some(text) = data.get(choice.clone()) else {
            continue;
        };
        for member in members(text).unwrap_or_default() {
            let value = within(&choice, &member.value);
            match member.name.as_ref() {
                "message" => said(data, value, true, &mut edits),
                "delta" => said(data, value, false, &mut edits),
                _ => {}
            }
        }
    }
    edits.sort_by_key(|edit| edit.range.start);
    edits
}

/// Where the choices stand.
fn choices(data: &[u8]) -> Vec<Range<usize>> {
    let all = members(data).unwrap_or_default();
    let list = all.into_iter().find(|member| member.name == "choices");
    let text = list.and_then(|list| data.get(list.value));
    let elements = text.and_then(|text| serde_json::from_slice::<Vec<&RawValue>>(text).ok());
    let elements = elements.unwrap_or_default().into_iter();
    elements.filter_map(|element| place(data, element)).collect()
}

/// A range of a range.
const fn within(outer: &Range<usize>, inner: &Range<usize>) -> Range<usize> {
    outer.start + inner.start..outer.start + inner.end
}

/// What is to be done about what a choice says; `is_whole`: it is all that it says, and then the text is never missing.
fn said(data: &[u8], at: Range<usize>, is_whole: bool, edits: &mut Vec<Edit>) {
    let Some(text) = data.get(at.clone()) else {
        return;
    };
    let removed = removals(text, &THOUGHTS);
    let all = members(text).unwrap_or_default();
    let calls = all.iter().any(|member| member.name == "tool_calls");
    if let Some(content) = all.iter().find(|member| member.name == "content") {
        let content = within(&at, &content.value);
        let raw = data.get(content.clone()).unwrap_or_default();
        if raw == b"null" && is_whole && !calls && !removed.is_empty() {
            edits.push(Edit {
                range: content,
                with: Bytes::from_static(b"\"\""),
            });
        } else if raw.starts_with(b"[") {
            let list = serde_json::from_slice::<&RawValue>(raw).ok();
            edits.extend(list_edit(data, list, is_thought));
        }
    }
    edits.extend(removed.into_iter().map(|edit| Edit {
        range: within(&at, &edit.range),
        with: edit.with,
    }));
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<&'a RawValue>,
}

fn is_thought(part: &RawValue) -> bool {
    let kind = serde_json::from_str(part.get()).ok();
    let kind = kind.and_then(|part: Part<'_>| part.kind);
    kind.is_some_and(|kind| PARTS.contains(&kind.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splice::splice;

    #[test]
    fn thoughts_are_taken_out_and_nothing_else_is_touched() {
        for (told, shown) in [
            (
                r#"{"choices":[{"index":0,"delta":{"content":"a","reasoning_content":"hm"},"logprobs":null}],"x":"reasoning"}"#,
                r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null}],"x":"reasoning"}"#,
            ),
            (
                r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_details":[{"text":"hm"}]}}, {"delta":{"reasoning":null}}]}"#,
                r#"{"choices":[{"delta":{}}, {"delta":{}}]}"#,
            ),
            (
                r#"{"choices":[{"message":{"role":"assistant","content":null,"reasoning_content":"hm"}}]}"#,
                r#"{"choices":[{"message":{"role":"assistant","content":""}}]}"#,
            ),
            (
                r#"{"choices":[{"message":{"reasoning":"hm","content":null,"tool_calls":[{"id":"c"}]}}]}"#,
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c"}]}}]}"#,
            ),
            (
                r#"{"choices":[{"message":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"}]}}]}"#,
                r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}}]}"#,
            ),
            (
                r#"{"choices":[{"message":{"content":"my \"reasoning\":"}}],"reasoning":1}"#,
                r#"{"choices":[{"message":{"content":"my \"reasoning\":"}}],"reasoning":1}"#,
            ),
            ("[DONE] reasoning", "[DONE] reasoning"),
        ] {
            let left = splice(&Bytes::from(told), &edits(told.as_bytes()));

            assert_eq!(left, shown);
        }
    }
}
