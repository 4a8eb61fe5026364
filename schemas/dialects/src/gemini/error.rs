//! Errors of Google's: what hides in their details. The rest of them is read like any other upstream's.

use std::borrow::Cow;

use serde::Deserialize;

/// Longest wait that is believed, in seconds.
const WAIT_SECONDS_MAX: f64 = 86_400.0;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    error: Inner<'a>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(borrow, default)]
    details: Vec<Detail<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Detail<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    retry_delay: Cow<'a, str>,
}

fn details(body: &[u8]) -> Vec<Detail<'_>> {
    let read = if body.trim_ascii_start().starts_with(b"[") {
        // Without `alt=sse` a stream's error is the only element of a list.
        serde_json::from_slice::<[Body<'_>; 1]>(body).map(|[body]| body)
    } else {
        serde_json::from_slice(body)
    };
    read.map(|body| body.error.details).unwrap_or_default()
}

/// When to try again, in whole seconds, at least one; `None` where the body does not say.
pub fn retry_after_seconds(body: &[u8]) -> Option<u64> {
    details(body).iter().find_map(|detail| {
        let seconds: f64 = detail.retry_delay.strip_suffix('s')?.parse().ok()?;
        let believed = (0.0..=WAIT_SECONDS_MAX).contains(&seconds);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded just before"
        )]
        let whole = seconds.ceil() as u64;
        believed.then_some(whole.max(1))
    })
}

/// True when a 400 speaks of the gateway's own key and not of the request.
pub fn refuses_key(body: &[u8]) -> bool {
    details(body)
        .iter()
        .any(|detail| matches!(detail.reason.as_ref(), "API_KEY_INVALID" | "API_KEY_EXPIRED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_read_from_the_details() {
        let body = |delay: &str| {
            format!(
                r#"{{"error":{{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[
                    {{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]}},
                    {{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{delay}"}}]}}}}"#
            )
        };

        assert_eq!(retry_after_seconds(body("23s").as_bytes()), Some(23));
        assert_eq!(retry_after_seconds(body("0.2s").as_bytes()), Some(1));
        assert_eq!(
            retry_after_seconds(format!("[{}]", body("3s")).as_bytes()),
            Some(3)
        );
        for odd in ["", "s", "-1s", "1e99s", "NaNs", "5"] {
            assert_eq!(retry_after_seconds(body(odd).as_bytes()), None, "{odd}");
        }
        assert_eq!(retry_after_seconds(b"<html>"), None);
    }

    #[test]
    fn a_key_that_is_not_valid_is_told_from_a_request_that_is_not() {
        let body =
            br#"{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;

        assert!(refuses_key(body));
        assert!(!refuses_key(
            br#"{"error":{"code":400,"status":"INVALID_ARGUMENT"}}"#
        ));
    }
}
