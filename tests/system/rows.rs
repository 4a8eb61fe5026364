//! What rows say, in forms that one assertion can compare, and the estimates that the books should hold
//! where an upstream told nothing (computed here a second time).

use harness::{Behaviour, PROMPT_CANARY, Upstream};
use serde_json::{Value, json};

/// Panics unless the row has exactly these values in these fields; the others are not looked at.
pub(crate) fn assert_row(row: &Value, expected: &Value) {
    let fields = expected.as_object().expect("an object of fields");
    let differing: Vec<String> = fields
        .iter()
        .filter(|(name, value)| row[name.as_str()] != **value)
        .map(|(name, value)| format!("{name}: {} instead of {value}", row[name.as_str()]))
        .collect();
    assert!(differing.is_empty(), "{}\nin {row:#}", differing.join("\n"));
}

/// Panics unless the bill of the row is this: fresh and output tokens by the upstream's word, and the cost.
pub(crate) fn assert_billed(row: &Value, input: u64, output: u64, cost_nano_usd: i64) {
    assert_row(
        row,
        &json!({
            "outcome": "ok", "status": 200, "error_code": null, "usage_source": "upstream",
            "input_tokens": input, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": output,
            "cost_nano_usd": cost_nano_usd,
        }),
    );
}

/// Panics unless the row says that nothing is owed: this outcome and code, no tokens, no cost.
pub(crate) fn assert_free(row: &Value, outcome: &str, status: u16, code: &str) {
    assert_row(
        row,
        &json!({
            "outcome": outcome, "status": status, "error_code": code, "usage_source": "none",
            "input_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 0,
            "cost_nano_usd": 0,
        }),
    );
}

/// The attempts of a row, each as endpoint, status, outcome and error code.
pub(crate) fn tried(row: &Value) -> Value {
    let attempts = row["attempts"].as_array().expect("a list of attempts");
    let fields = |attempt: &Value| {
        json!([
            attempt["endpoint_id"],
            attempt["status"],
            attempt["outcome"],
            attempt["error_code"]
        ])
    };
    attempts.iter().map(fields).collect()
}

/// The endpoint ids of the attempts of a row.
pub(crate) fn tried_endpoints(row: &Value) -> Vec<String> {
    let attempts = row["attempts"].as_array().expect("a list of attempts");
    let endpoint = |attempt: &Value| attempt["endpoint_id"].as_str().unwrap_or_default().to_owned();
    attempts.iter().map(endpoint).collect()
}

/// The endpoint id of a model's leg to an upstream.
pub(crate) fn endpoint(model: &str, upstream: &Upstream) -> String {
    format!("{model}:local-{}", upstream.addr().port())
}

/// Estimated tokens of the prompt of the harness's chat bodies: its text and 4 for the message.
pub(crate) fn prompt_estimate() -> u64 {
    text_estimate(&format!("say hi, {PROMPT_CANARY}")) + 4
}

/// Estimated tokens of a text in ASCII: one for each 3.6 bytes, rounded up.
pub(crate) fn text_estimate(text: &str) -> u64 {
    (text.len() as u64 * 5).div_ceil(18)
}

/// A streamed answer of exactly these events, each a `data:` line; the body ends with the connection.
pub(crate) fn events(events: &[&str]) -> Behaviour {
    let lines = events.iter().map(|event| format!("data: {event}\n\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    Behaviour::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{lines}"
    ))
}

/// A chunk of content as an event's data, with more members (`,"a":1`) at its end.
pub(crate) fn chunk(content: &str, members: &str) -> String {
    let choices = json!([{"index": 0, "delta": {"content": content}, "finish_reason": null}]);
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":{choices}{members}}}"#
    )
}

/// A chunk that finishes the answer, with more members at its end.
pub(crate) fn finish(members: &str) -> String {
    let choices = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":{choices}{members}}}"#
    )
}
