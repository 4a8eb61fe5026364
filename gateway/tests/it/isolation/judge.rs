//! What is wrong with an answer to somebody who named what is another tenant's: it tells something of that tenant, or it
//! differs from the answer to who names what is not there. Refusals are the same to the byte but for their request id;
//! where something was made or shown, fresh ids and times are left out as well.

use std::borrow::Cow;

use serde_json::Value;

use super::CANARY;
use crate::scene::Answer;

/// What counts on with every change that anybody makes.
const CONFIG_HEADER: &str = "x-waybill-config";
/// What is different in any two answers, whatever they say.
const OWN_HEADERS: [&str; 6] = [
    "x-request-id",
    "request-id",
    CONFIG_HEADER,
    "etag",
    "content-length",
    "date",
];
/// The same within bodies.
const OWN_FIELDS: [&str; 12] = [
    "request_id",
    "revision",
    "created_at",
    "rotated_at",
    "created",
    "at",
    "key",
    "prefix",
    "catalog_revision",
    // How things stand at that moment, whoever asks.
    "is_current",
    "latency_ms",
    "watch_age",
];
/// What fresh ids begin with.
const FRESH: [&str; 8] = ["key-", "ekey-", "grant-", "ep-", "rt-", "pr-", "user-", "resp_"];

/// A call that names something, and its answer.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    /// What was named.
    pub(super) named: &'a str,
    pub(super) answer: &'a Answer,
}

/// What is wrong with the answer to `foreign`, beside that to `absent`, which names what nobody has. `known` are the ids
/// that the other tenant's things have, `said` what the caller put into things of his own before.
pub(super) fn fault(
    foreign: &Probe<'_>,
    absent: &Probe<'_>,
    (known, said): (&[&str], &[String]),
) -> Option<String> {
    let leak = || std::iter::once(CANARY).chain(known.iter().copied());
    let mut told = Cow::from(format!("{}\n{}", foreign.answer.head, foreign.answer.body));
    // What the caller himself said he may hear, now or later.
    for said in std::iter::once(foreign.named).chain(said.iter().map(String::as_str)) {
        if !leak().any(|what| told.contains(what)) {
            break;
        }
        told = Cow::from(told.replace(said, ""));
    }
    if let Some(what) = leak().find(|what| told.contains(what)) {
        return Some(format!("tells of {what}: {:?}", foreign.answer));
    }
    let alike = if foreign.answer.status >= 400 {
        exact
    } else {
        plain
    };
    let (one, other) = (alike(foreign), alike(absent));
    (one != other).then(|| format!("tells that it is there: {one:?}, and else {other:?}"))
}

/// A refusal as it is, but for its request id and what was named.
fn exact(probe: &Probe<'_>) -> (u16, Vec<String>, String) {
    let id = probe.answer.header("x-request-id").filter(|id| !id.is_empty());
    let without = |text: &str| {
        let text = id.map_or_else(|| text.to_owned(), |id| text.replace(id, "~"));
        text.replace(probe.named, "@")
    };
    let lines = probe.answer.head.lines().skip(1);
    let kept = lines.filter(|line| !line.starts_with(CONFIG_HEADER));
    let head = kept.map(without).collect();
    (probe.answer.status, head, without(&probe.answer.body))
}

/// An answer without what is different in any two.
fn plain(probe: &Probe<'_>) -> (u16, Vec<String>, String) {
    let lines = probe.answer.head.lines().skip(1);
    let kept = lines.filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !OWN_HEADERS.contains(&name)
    });
    let mut head: Vec<String> = kept.map(|line| line.replace(probe.named, "@")).collect();
    head.sort();
    let body = match serde_json::from_str::<Value>(&probe.answer.body) {
        Ok(mut body) => {
            erase(&mut body, probe.named);
            body.to_string()
        }
        Err(_) => probe.answer.body.replace(probe.named, "@"),
    };
    (probe.answer.status, head, body)
}

fn erase(value: &mut Value, named: &str) {
    match value {
        Value::Object(members) => {
            if let Some(value) = members.remove(named) {
                members.insert("@".to_owned(), value);
            }
            for (name, value) in members {
                if OWN_FIELDS.contains(&name.as_str()) {
                    *value = Value::Null;
                } else {
                    erase(value, named);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| erase(value, named)),
        Value::String(text) => {
            let is_fresh = |lead: &&str| text.starts_with(*lead) && text.len() >= lead.len() + 16;
            if *text == named || FRESH.iter().any(is_fresh) || is_uuid(text) {
                "@".clone_into(text);
            } else {
                *text = text.replace(named, "@");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(foreign: &Answer, absent: &Answer) -> Option<String> {
        let (foreign, absent) = (
            Probe {
                named: "key-foreign",
                answer: foreign,
            },
            Probe {
                named: "key-absent",
                answer: absent,
            },
        );
        fault(
            &foreign,
            &absent,
            (&["rt-of-them"], &["said of c4n4ry".to_owned()]),
        )
    }

    fn answer(status: u16, head: &str, body: &str) -> Answer {
        Answer::told(status, head, body)
    }

    #[test]
    fn answers_that_differ_in_their_own_ids_alone_are_alike() {
        let one = answer(
            404,
            "x-request-id: 1",
            r#"{"error":{"message":"none","request_id":"1"}}"#,
        );
        let other = answer(
            404,
            "x-request-id: 2",
            r#"{"error":{"message":"none","request_id":"2"}}"#,
        );
        assert_eq!(judged(&one, &other), None);
        let one = answer(201, "", r#"{"id":"key-foreign","revision":5}"#);
        let other = answer(201, "", r#"{"id":"key-absent","revision":6}"#);
        assert_eq!(judged(&one, &other), None, "what he said himself");
        let one = answer(201, "", r#"{"per_model":{"key-foreign":{"rpm":5}}}"#);
        let other = answer(201, "", r#"{"per_model":{"key-absent":{"rpm":5}}}"#);
        assert_eq!(judged(&one, &other), None, "the same as a name");
        let before = answer(200, "", r#"{"name":"said of c4n4ry"}"#);
        assert_eq!(judged(&before, &before), None, "what he said before");
    }

    #[test]
    fn whatever_is_told_of_another_tenant_is_found() {
        let nothing = answer(404, "", "{}");
        for (head, body) in [
            ("", format!("{{\"name\":\"{CANARY} name\"}}")),
            ("", r#"{"data":["rt-of-them"]}"#.to_owned()),
            ("x-session-id: rt-of-them", "{}".to_owned()),
        ] {
            let told = judged(&answer(404, head, &body), &nothing);
            assert!(
                told.is_some_and(|told| told.contains("tells of")),
                "{head} {body}"
            );
        }
    }

    #[test]
    fn refusals_differ_in_their_request_ids_alone() {
        let refused = |id: &str, body: &str| {
            let head = format!("x-request-id: {id}\r\nx-waybill-config: {}", id.len());
            answer(404, &head, &body.replace("ID", id))
        };
        let one = refused("01", r#"{"error":{"message":"none","request_id":"ID"}}"#);
        let other = refused("02", r#"{"error":{"message":"none","request_id":"ID"}}"#);
        assert_eq!(judged(&one, &other), None);
        for strange in [
            r#"{"error":{"request_id":"ID","message":"none"}}"#,
            r#"{"error":{"message":"none","request_id":"ID"} }"#,
            r#"{"error":{"message":"none","request_id":"ID","revision":5}}"#,
        ] {
            let told = judged(&refused("03", strange), &one);
            assert!(told.is_some_and(|told| told.contains("it is there")), "{strange}");
        }
    }

    #[test]
    fn whatever_is_different_is_found() {
        let nothing = || answer(404, "", r#"{"error":{"message":"none"}}"#);
        for other in [
            answer(403, "", r#"{"error":{"message":"none"}}"#),
            answer(404, "", r#"{"error":{"message":"none at all"}}"#),
            answer(404, "retry-after: 1", r#"{"error":{"message":"none"}}"#),
            answer(404, "", r#"{"error":{"message":"none","param":"id"}}"#),
        ] {
            let told = judged(&other, &nothing());
            assert!(told.is_some_and(|told| told.contains("it is there")), "{other:?}");
        }
    }
}
