//! Repairs of a request that passes, for servers that read the arguments of earlier calls: a model that was cut, or a
//! caller who remembers half of a call, leaves there what is no JSON object. Everything else stays byte for byte.

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::told::{Item, Kind};
use crate::chat::arguments;
use crate::passage::hidden::place;
use crate::splice::{Edit, json_string, splice};

/// What every request with an earlier call of a function has in it.
const CALL: &[u8] = b"\"function_call\"";

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    input: Vec<&'a RawValue>,
}

/// The request whose earlier calls have the text of a JSON object each: an object becomes its text, anything else an
/// empty one. `None` where they have it, and where the request cannot be read.
pub fn arguments_mended(body: &Bytes) -> Option<Bytes> {
    memmem::find(body, CALL)?;
    let request: Request<'_> = serde_json::from_slice(body).ok()?;
    let edits: Vec<Edit> = request
        .input
        .into_iter()
        .filter_map(|item| edit(body, item))
        .collect();
    (!edits.is_empty()).then(|| splice(body, &edits))
}

fn edit(body: &[u8], item: &RawValue) -> Option<Edit> {
    let item: Item<'_> = serde_json::from_str(item.get()).ok()?;
    if item.kind() != (Kind::Call { custom: false }) {
        return None;
    }
    let told = item.arguments?;
    let (whole, _) = arguments::whole(told.get());
    let same = serde_json::from_str::<String>(told.get()).is_ok_and(|text| text == whole);
    (!same).then_some(())?;
    Some(Edit {
        range: place(body, told)?,
        with: json_string(&whole),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(input: &str) -> Option<String> {
        let body = format!(r#"{{"model":"m", "input":{input}, "store":false}}"#);
        let mended = arguments_mended(&body.into())?;
        Some(String::from_utf8_lossy(&mended).into_owned())
    }

    #[test]
    fn arguments_of_earlier_calls_become_the_text_of_an_object() {
        let call = |kind: &str, arguments: &str| {
            format!(
                r#"[{{"role":"user","content":"\"function_call\""}}, {{"type":"{kind}", "arguments": {arguments}, "call_id":"c"}}, {{"type":"function_call_output","call_id":"c","output":"x"}}]"#
            )
        };
        let empty = r#""{}""#;
        for (told, expected) in [
            (r#""{""#, empty),
            (r#""""#, empty),
            (r#""[\"x\"]""#, empty),
            ("7", empty),
            (r#"{"a": 1}"#, r#""{\"a\": 1}""#),
        ] {
            let whole = format!(
                r#"{{"model":"m", "input":{}, "store":false}}"#,
                call("function_call", expected)
            );
            assert_eq!(mended(&call("function_call", told)), Some(whole), "{told}");
        }
        assert_eq!(mended(&call("function_call", r#""{\"a\": 1.0}""#)), None);
        assert_eq!(mended(&call("function_call", r#""{}""#)), None);
        assert_eq!(mended(&call("custom_tool_call", r#""{""#)), None);
    }

    #[test]
    fn every_call_is_mended_and_what_is_no_list_passes() {
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{"}"#;
        let whole = call.replace(r#""{""#, r#""{}""#);

        assert_eq!(
            mended(&format!("[{call},7,{call}]")),
            Some(format!(
                r#"{{"model":"m", "input":[{whole},7,{whole}], "store":false}}"#
            ))
        );
        assert_eq!(mended(r#""a \"function_call\"""#), None);
        let cut = Bytes::from_static(br#"{"input":[{"type":"function_call","#);
        assert_eq!(arguments_mended(&cut), None);
    }
}
