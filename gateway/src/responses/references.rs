//! Items of a request that stand for items of kept responses, and what they stand for, pure.

use std::collections::HashMap;

use bytes::Bytes;
use dialects::account;
use schemas::failure::Failure;
use serde_json::value::RawValue;

use super::kept::{Kept, own_items};
use super::object::Object;

/// The items that a request names, and those of them that were found.
#[derive(Debug, Default)]
pub(super) struct References {
    /// In the order of the request.
    wanted: Vec<String>,
    found: HashMap<String, Box<RawValue>>,
}

impl References {
    /// Reads which items a request names; a body that is no request names none.
    pub(super) fn read(body: &[u8]) -> Self {
        let object = Object::read(body);
        let items = object.and_then(|object| own_items(&object).ok());
        let items = items.unwrap_or_default();
        Self {
            wanted: items
                .iter()
                .filter_map(|item| account::reference_id(item))
                .collect(),
            found: HashMap::new(),
        }
    }

    /// True when none is named.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The last one that was not found yet. What is kept last has most of what was said.
    pub(super) fn missing(&self) -> Option<&str> {
        let mut wanted = self.wanted.iter().rev();
        wanted
            .find(|id| !self.found.contains_key(*id))
            .map(String::as_str)
    }

    /// Looks in a response for all that is missing.
    pub(super) fn look_into(&mut self, kept: &Kept) {
        for id in &self.wanted {
            if !self.found.contains_key(id)
                && let Some(item) = kept.item(id)
            {
                self.found.insert(id.clone(), item.to_owned());
            }
        }
    }

    /// The request with the items in the places of those that stand for them.
    pub(super) fn resolved(&self, body: &[u8]) -> Result<Bytes, Failure> {
        let Some(object) = Object::read(body) else {
            return Ok(Bytes::copy_from_slice(body));
        };
        let items = own_items(&object)?;
        let items: Vec<&str> = items
            .iter()
            .map(|item| {
                let id = account::reference_id(item);
                let found = id.and_then(|id| self.found.get(&id));
                found.unwrap_or(item).get()
            })
            .collect();
        let input = format!("[{}]", items.join(","));
        Ok(object.with(&[("input", &input)]).into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::responses::kept;

    const RESPONSE: &str = r#"{"id":"resp_1","output":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}]}"#;

    #[test]
    fn what_stands_for_an_item_becomes_it_where_it_stands() {
        let body = br#"{"model":"m","input":[{"role":"user","content":"a"},{"type":"item_reference","id":"fc_1"},{"type":"function_call_output","call_id":"c","output":"x"},{"id":"gone"}],"store":true}"#;
        let kept = kept::keep(br#"{"input":"q"}"#, None, RESPONSE.as_bytes(), 7).expect("a response");
        let mut references = References::read(body);

        assert_eq!(references.missing(), Some("gone"));
        references.look_into(&kept);
        assert_eq!(references.missing(), Some("gone"), "it is in no response");

        let resolved = references.resolved(body).expect("a body");
        let resolved: Value = serde_json::from_slice(&resolved).expect("JSON");
        assert_eq!(
            resolved["input"][1],
            json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"})
        );
        assert_eq!(resolved["input"][2]["output"], "x");
        assert_eq!(
            (&resolved["model"], &resolved["store"]),
            (&json!("m"), &json!(true))
        );
    }

    #[test]
    fn most_requests_name_none() {
        for body in [
            r#"{"input":"msg_1"}"#,
            r#"{"input":[{"type":"message","id":"msg_1","role":"user","content":"a"}]}"#,
            "{}",
            "[",
        ] {
            assert!(References::read(body.as_bytes()).is_empty(), "{body}");
        }
    }
}
