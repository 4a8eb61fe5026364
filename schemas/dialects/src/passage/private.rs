//! What an upstream tells us and not our caller: what a call costs us, and who served it behind the upstream.

use std::ops::Range;

use crate::member::{Member, members, removals};
use crate::scan::Word;
use crate::splice::Edit;

/// Members of a usage that tell what we pay.
const COSTS: [&str; 4] = ["cost", "cost_details", "estimated_cost", "is_byok"];
/// The member by which a provider of providers tells who served.
const PROVIDER: &str = "provider";
/// What is in whatever has one of these members.
static COST: Word = Word::new("cost");
static IS_BYOK: Word = Word::new("is_byok");
static PROVIDER_NAMED: Word = Word::new("\"provider\"");
/// Members that hold an answer inside an event.
const ANSWERS: [&str; 2] = ["response", "message"];

/// The edits that take it out of an event or an answer, in rising order. `names_providers`: the upstream tells who
/// served behind it.
pub fn edits(data: &[u8], names_providers: bool) -> Vec<Edit> {
    let tells_cost = COST.is_in(data) || IS_BYOK.is_in(data);
    let tells_provider = names_providers && PROVIDER_NAMED.is_in(data);
    if !tells_cost && !tells_provider {
        return Vec::new();
    }
    let mut edits = Vec::new();
    take_out(data, 0..data.len(), names_providers, &mut edits);
    edits.sort_by_key(|edit| edit.range.start);
    edits
}

/// The same of the object that stands at `range` of the data.
fn take_out(data: &[u8], range: Range<usize>, names_providers: bool, edits: &mut Vec<Edit>) {
    let Some(text) = data.get(range.clone()) else {
        return;
    };
    let inside = |at: &Range<usize>| range.start + at.start..range.start + at.end;
    let removed = |text: &[u8], start: usize, names: &[&str]| {
        removals(text, names).into_iter().map(move |edit| Edit {
            range: start + edit.range.start..start + edit.range.end,
            with: edit.with,
        })
    };
    if names_providers {
        edits.extend(removed(text, range.start, &[PROVIDER]));
    }
    for Member { name, value } in members(text).unwrap_or_default() {
        let value = inside(&value);
        if name == "usage" {
            let usage = data.get(value.clone()).unwrap_or_default();
            edits.extend(removed(usage, value.start, &COSTS));
        } else if ANSWERS.contains(&name.as_ref()) {
            take_out(data, value, names_providers, edits);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::splice::splice;

    fn left(data: &'static str, names_providers: bool) -> Bytes {
        splice(
            &Bytes::from_static(data.as_bytes()),
            &edits(data.as_bytes(), names_providers),
        )
    }

    #[test]
    fn what_a_call_costs_us_is_taken_out_of_usage_wherever_it_is() {
        for (told, shown) in [
            (
                r#"{"id":"gen-1","usage":{"prompt_tokens":1,"cost":0.5,"cost_details":{"a":[1]},"total_tokens":2,"is_byok":false}}"#,
                r#"{"id":"gen-1","usage":{"prompt_tokens":1,"total_tokens":2}}"#,
            ),
            (r#"{"usage":{"cost":0.5},"x":1}"#, r#"{"usage":{},"x":1}"#),
            (
                r#"{"type":"response.completed","response":{"id":"r","usage":{"cost":1,"input_tokens":2}}}"#,
                r#"{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":2}}}"#,
            ),
            (
                r#"{"choices":[{"message":{"content":"what does it cost?","cost":1}}],"cost":2}"#,
                r#"{"choices":[{"message":{"content":"what does it cost?","cost":1}}],"cost":2}"#,
            ),
            ("[DONE] cost", "[DONE] cost"),
            (r#"{"usage":null,"cost":1}"#, r#"{"usage":null,"cost":1}"#),
        ] {
            assert_eq!(left(told, false), shown);
        }
    }

    #[test]
    fn who_served_behind_the_upstream_is_taken_out_where_it_tells() {
        let told = r#"{"id":"gen-1","provider":"Novita","model":"m","choices":[{"delta":{"content":"\"provider\":1"}}],"usage":{"cost":1,"a":2}}"#;

        let shown = r#"{"id":"gen-1","model":"m","choices":[{"delta":{"content":"\"provider\":1"}}],"usage":{"a":2}}"#;
        assert_eq!(left(told, true), shown);
        assert!(left(told, false).starts_with(br#"{"id":"gen-1","provider":"Novita""#));
        assert_eq!(left(r#"{"provider":"X"}"#, true), "{}");
    }
}
