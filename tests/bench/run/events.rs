//! Waybills as nodes publish them: ordinary calls, one attempt each, by 50 keys for 8 models.

use serde::Serialize;
use serde_json::json;

use crate::stream::Message;

/// Keys that call.
const KEYS: u32 = 50;
/// Models that are called.
const MODELS: u32 = 8;
/// Milliseconds of a day.
const DAY_MILLIS: u32 = 86_400_000;
/// How long each call takes, in milliseconds.
const CALL_MILLIS: u32 = 1_500;

/// What wraps a waybill. The order of its fields is the order in which nodes write them.
#[derive(Serialize)]
struct Envelope<'a> {
    specversion: &'a str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    kind: &'a str,
    subject: &'a str,
    time: String,
    datacontenttype: &'a str,
    sourcesequence: u32,
    data: Data,
}

#[derive(Serialize)]
struct Data {
    #[serde(flatten)]
    call: serde_json::Value,
    #[serde(flatten)]
    answer: serde_json::Value,
}

/// A UTC day.
#[derive(Debug, Clone)]
pub(crate) struct Day {
    /// As `YYYY-MM-DD`.
    pub(crate) text: String,
    /// Milliseconds from the epoch to its begin.
    pub(crate) begin_millis: u64,
}

impl Day {
    /// A time of the day, which ends before midnight.
    fn time(&self, millis: u32) -> String {
        let millis = millis % DAY_MILLIS;
        let (seconds, rest) = (millis / 1_000, millis % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        format!("{}T{hour:02}:{minute:02}:{second:02}.{rest:03}000Z", self.text)
    }

    fn month(&self) -> String {
        format!("{}-01", self.text.get(..7).unwrap_or_default())
    }
}

/// The waybills of one source, from its first on.
#[derive(Debug, Clone)]
pub(crate) struct Waybills {
    /// The day of all calls.
    pub(crate) day: Day,
    /// Number of the source.
    pub(crate) source: u32,
}

impl Waybills {
    /// The first `count` messages.
    pub(crate) fn messages(&self, count: u32) -> impl Iterator<Item = Message> {
        (1..=count).map(|number| self.message(number))
    }

    fn message(&self, number: u32) -> Message {
        let id = self.id(number, 1);
        let envelope = Envelope {
            specversion: "1.0",
            id: &id,
            source: format!("/waybill/bench/source-{}", self.source),
            kind: "waybill.request.settled.v1",
            subject: "default",
            time: self.day.time(number.wrapping_add(CALL_MILLIS)),
            datacontenttype: "application/json",
            sourcesequence: number,
            data: Data {
                call: self.call(number),
                answer: answer(),
            },
        };
        let payload = serde_json::to_vec(&envelope).unwrap_or_default();
        Message {
            subject: "wb.ev.request.default".to_owned(),
            id,
            payload,
        }
    }

    /// What the waybill says of who called what and when.
    fn call(&self, number: u32) -> serde_json::Value {
        let model = format!("org/model-{}", number % MODELS);
        let endpoint = format!("{model}:local");
        let (started, ended) = (
            self.day.time(number),
            self.day.time(number.wrapping_add(CALL_MILLIS)),
        );
        let key = number % KEYS;
        json!({
            "request_id": self.id(number, 2), "tenant": "default", "key_id": format!("key-{key}"),
            "key_name": format!("name {key}"), "surface": "chat", "model": model, "served_model": "model-8b",
            "provider": "vllm", "endpoint_id": endpoint, "backend": endpoint,
            "attempts": [{
                "endpoint_id": endpoint, "backend": endpoint, "provider": "vllm", "status": 200, "outcome": "ok",
                "error_code": null, "started_at": started, "first_byte_ms": 120, "latency_ms": CALL_MILLIS,
            }],
            "started_at": started, "ended_at": ended, "ttft_ms": 120, "latency_ms": CALL_MILLIS,
            "waybill_day": self.day.text, "billing_day": self.day.text, "billing_month": self.day.month(),
        })
    }

    /// A UUID of version 7, minted when the call of this number begins.
    fn id(&self, number: u32, which: u32) -> String {
        let millis = self.day.begin_millis + u64::from(number % DAY_MILLIS);
        format!(
            "{:08x}-{:04x}-7000-8{:03x}-{:04x}{number:08x}",
            millis >> 16,
            millis & 0xffff,
            which & 0xfff,
            self.source & 0xffff,
        )
    }
}

/// What every waybill says of its answer and of what that costs.
fn answer() -> serde_json::Value {
    json!({
        "client_request_id": null, "user": null, "end_user": null, "session_id": null, "affinity": null,
        "idempotency": null, "outcome": "ok", "status": 200, "error_code": null, "stream": true,
        "input_tokens": 9, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 20,
        "reasoning_tokens": 0, "images": 0, "usage_source": "upstream", "usage_flags": [],
        "price_version": "r1", "config_revision": "r1", "node": "bench-1",
        "prices": {"input": 2_000_000_000, "cached": 0, "cache_write": 0, "output": 8_000_000_000_u64,
            "request": 0, "image": 0},
        "cost_nano_usd": 178_000, "cost_usd": "0.000178000", "upstream_cost_nano_usd": null,
        "absorbed_nano_usd": 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waybills(source: u32) -> Waybills {
        Waybills {
            day: Day {
                text: "2026-11-30".to_owned(),
                begin_millis: 1_796_000_000_000,
            },
            source,
        }
    }

    #[test]
    fn the_type_stands_before_the_data_and_sequences_begin_with_one() {
        let messages: Vec<Message> = waybills(0).messages(2).collect();

        let text = std::str::from_utf8(&messages[1].payload).expect("text");
        assert!(text.find("\"type\"") < text.find("\"data\""), "{text}");
        let envelope: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(envelope["sourcesequence"], 2);
        assert_eq!(envelope["id"], messages[1].id);
        assert_eq!(envelope["data"]["started_at"], "2026-11-30T00:00:00.002000Z");
        assert_eq!(envelope["data"]["billing_month"], "2026-11-01");
    }

    #[test]
    fn ids_differ_by_number_source_and_use() {
        let (one, other) = (waybills(0), waybills(1));

        let ids = [one.id(1, 1), one.id(1, 2), one.id(2, 1), other.id(1, 1)];

        let different: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        assert_eq!(ids[0], "01a229f1-2801-7000-8001-000000000001");
    }
}
