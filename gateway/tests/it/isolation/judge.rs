//! What is wrong with an answer to somebody who named what is another tenant's: it tells something of that tenant, or it
//! differs from the answer to who names what is not there.

use serde_json::Value;

use super::CANARY;
use crate::scene::Answer;

/// What is different in any two answers, whatever they say.
const OWN_HEADERS: [&str; 4] = ["x-request-id", "request-id", "x-waybill-config", "etag"];
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
    // What the caller himself said he may hear, now or later.
    let mut told = format!("{}\n{}", foreign.answer.head, foreign.answer.body).replace(foreign.named, "");
    for said in said {
        told = told.replace(said, "");
    }
    let leak = std::iter::once(CANARY).chain(known.iter().copied());
    if let Some(what) = leak.into_iter().find(|what| told.contains(what)) {
        return Some(format!("tells of {what}: {:?}", foreign.answer));
    }
    let (one, other) = (plain(foreign), plain(absent));
    (one != other).then(|| format!("tells that it is there: {one:?}, and else {other:?}"))
}

/// An answer without what is different in any two.
fn plain(probe: &Probe<'_>) -> (u16, Vec<String>, String) {
    let lines = probe.answer.head.lines().skip(1);
    let kept = lines.filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !OWN_HEADERS.contains(&name) && name != "content-length" && name != "date"
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
