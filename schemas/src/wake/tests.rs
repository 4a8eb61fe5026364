//! What is said of waking, what is answered, and what is refused.

use super::record::{Outcome, Record};
use super::*;
use crate::failure::FailureCode;
use crate::id::{BackendId, NodeId};

fn backends() -> Vec<Backend> {
    vec![Backend {
        id: BackendId::from("e"),
        base_url: "https://gpu:8000/v1".to_owned(),
    }]
}

fn read(text: &str) -> Result<Wake, String> {
    let wake: Wake = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match wake.check(&backends()) {
        Ok(()) => Ok(wake),
        Err(problem) => Err(problem.at),
    }
}

fn http(text: &str) -> Http {
    match read(text).expect(text) {
        Wake::Http(http) => http,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_three_kinds_are_read_and_written_again() {
    for text in [
        r#"{"kind":"http","url":"https://boss/wake?x=1"}"#,
        r#"{"kind":"http","url":"http://boss","method":"PUT","headers":{"x-run":"7"},"body":"{}","queued_when":{"statuses":[409]},"offline_when":{"contains":"off"}}"#,
        r#"{"kind":"http","url":"https://gpu:8000/wake","credential":true}"#,
        r#"{"kind":"vllm_sleep"}"#,
        r#"{"kind":"vllm_sleep","url":"https://gpu:8000","credential":true}"#,
        r#"{"kind":"exec","command":["/bin/wake","a b"],"timeout_seconds":5}"#,
    ] {
        let wake = read(text).expect(text);
        let written = serde_json::to_string(&wake).expect("serialize");
        assert_eq!(read(&written), Ok(wake), "{text}");
    }
}

#[test]
fn what_cannot_be_done_or_would_tell_a_secret_is_refused_by_its_member() {
    for (text, at) in [
        (r#"{"kind":"http","url":"ftp://boss"}"#, "url"),
        (r#"{"kind":"http","url":"http://me:pass@boss"}"#, "url"),
        (r#"{"kind":"http","url":"http://boss/a/../b"}"#, "url"),
        (r#"{"kind":"http","url":"http://boss/\r\nx"}"#, "url"),
        (r#"{"kind":"http","url":"http://boss#x"}"#, "url"),
        (r#"{"kind":"http","url":"http://"}"#, "url"),
        (
            r#"{"kind":"http","url":"http://boss","headers":{"authorization":"x"}}"#,
            "headers.authorization",
        ),
        (
            r#"{"kind":"http","url":"http://boss","headers":{"x-api-key":"x"}}"#,
            "headers.x-api-key",
        ),
        (
            r#"{"kind":"http","url":"http://boss","headers":{"X-Run":"x"}}"#,
            "headers.X-Run",
        ),
        (
            r#"{"kind":"http","url":"http://boss","headers":{"host":"x"}}"#,
            "headers.host",
        ),
        (
            r#"{"kind":"http","url":"http://boss","headers":{"x-run":"a\nb"}}"#,
            "headers.x-run",
        ),
        (
            r#"{"kind":"http","url":"http://gpu:8000/wake","credential":true}"#,
            "credential",
        ),
        (
            r#"{"kind":"http","url":"https://gpu:8000.evil/wake","credential":true}"#,
            "credential",
        ),
        (
            r#"{"kind":"vllm_sleep","url":"https://boss","credential":true}"#,
            "credential",
        ),
        (
            r#"{"kind":"http","url":"http://boss","queued_when":{"statuses":[7]}}"#,
            "queued_when",
        ),
        (
            r#"{"kind":"http","url":"http://boss","timeout_seconds":0}"#,
            "timeout_seconds",
        ),
        (r#"{"kind":"exec","command":["wake"]}"#, "command"),
        (r#"{"kind":"exec","command":[]}"#, "command"),
        (r#"{"kind":"exec"}"#, "command"),
    ] {
        assert_eq!(read(text), Err(at.to_owned()), "{text}");
    }
    for text in [
        r#"{"kind":"magic"}"#,
        r#"{"url":"http://boss"}"#,
        r#"{"kind":"http","url":"http://boss","password":"x"}"#,
        r#"{"kind":"vllm_sleep","level":2}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn an_answer_says_how_things_stand_by_its_status_or_its_words() {
    let plain = http(r#"{"kind":"http","url":"http://boss"}"#);
    let told = http(
        r#"{"kind":"http","url":"http://boss","queued_when":{"statuses":[409]},"offline_when":{"statuses":[200],"contains":"powered off"}}"#,
    );
    for (http, status, body, said) in [
        (&plain, 200, "", Said::Begun),
        (&plain, 202, "ok", Said::Begun),
        (&plain, 409, "", Said::Offline),
        (&plain, 500, "", Said::Offline),
        (
            &plain,
            200,
            r#"{"code":"wake_queued_gpu_borrowed"}"#,
            Said::Queued,
        ),
        (
            &plain,
            503,
            r#"{"code":"wake_failed_node_offline"}"#,
            Said::Offline,
        ),
        (&told, 409, "", Said::Queued),
        (&told, 200, "node is powered off", Said::Offline),
        (&told, 201, "node is powered off", Said::Begun),
        (&told, 200, "fine", Said::Begun),
    ] {
        assert_eq!(http.said(status, body.as_bytes()), said, "{status} {body}");
    }
    assert_eq!(
        [Some(0), Some(75), Some(69), Some(1), None].map(Exec::said),
        [
            Said::Begun,
            Said::Queued,
            Said::Offline,
            Said::Offline,
            Said::Offline
        ]
    );
}

#[test]
fn a_call_waits_as_long_as_a_start_takes_within_bounds() {
    let check = |seconds| HealthCheck {
        path: "/health".into(),
        interval_seconds: 10,
        threshold: 3,
        start_period_seconds: seconds,
    };
    for (seconds, waited) in [(0, 1), (1, 1), (45, 45), (60, 60), (600, 60)] {
        assert_eq!(wait(Some(&check(seconds))), Duration::from_secs(waited));
    }
    assert_eq!(wait(None), Duration::from_secs(30));
}

#[test]
fn only_a_503_that_says_so_tells_of_sleep() {
    for body in [
        r#"{"error":{"message":"Loading model","code":503}}"#,
        "engine is sleeping",
        "Model is Loading",
    ] {
        assert!(tells_of_sleep(503, body.as_bytes()), "{body}");
        assert!(!tells_of_sleep(500, body.as_bytes()), "{body}");
    }
    assert!(!tells_of_sleep(503, b"overloaded"));
    let mut late = vec![b' '; ASLEEP_BYTES_MAX];
    late.extend_from_slice(b"sleep");
    assert!(!tells_of_sleep(503, &late));
}

#[test]
fn callers_are_told_what_they_wait_for_and_when_to_come_back() {
    let told = |outcome: Outcome| {
        outcome
            .failure()
            .map(|failure| (failure.code, failure.status, failure.retry_after_seconds))
    };
    assert_eq!(told(Outcome::Awake), None);
    assert_eq!(
        told(Outcome::Late),
        Some((FailureCode::ServiceWaking, 503, Some(30)))
    );
    assert_eq!(
        told(Outcome::Queued),
        Some((FailureCode::WakeQueuedGpuBorrowed, 503, Some(60)))
    );
    assert_eq!(
        told(Outcome::Offline),
        Some((FailureCode::WakeFailedNodeOffline, 503, Some(60)))
    );
}

#[test]
fn a_record_is_read_back_and_what_is_none_is_not() {
    let record = Record {
        backend: BackendId::from("e#1"),
        endpoint_id: EndpointId::from("e"),
        outcome: Some(Outcome::Queued),
        node: NodeId::from("n"),
    };
    let bytes = record.encode().expect("serialize");
    assert_eq!(Record::decode(&bytes), Some(record));
    assert_eq!(Record::decode(b"{}"), None);
}

#[test]
fn the_root_of_an_engine_is_its_address_without_the_version() {
    for (base, expected) in [
        ("http://gpu:8000/v1", "http://gpu:8000"),
        ("http://gpu:8000/v1/", "http://gpu:8000"),
        ("http://gpu:8000", "http://gpu:8000"),
        ("http://gpu/a/v1", "http://gpu/a"),
    ] {
        assert_eq!(root(base), expected);
    }
}

#[test]
fn what_an_older_version_kept_and_nobody_understands_is_no_description() {
    #[derive(Deserialize)]
    struct Held {
        #[serde(default, deserialize_with = "known")]
        wake: Option<Arc<Wake>>,
    }
    let wake = |text: &str| serde_json::from_str::<Held>(text).expect(text).wake;
    assert_eq!(wake(r#"{"wake":{"how":"knock"}}"#), None);
    assert_eq!(wake(r"{}"), None);
    assert!(wake(r#"{"wake":{"kind":"vllm_sleep"}}"#).is_some());
}
