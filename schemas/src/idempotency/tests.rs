//! What is a key, where its record lies, what its caller is told; and what the tests of this folder share.

use std::cell::RefCell;

use proptest::prelude::*;
use uuid::Uuid;

use super::answer::{Answer, Body};
use super::record::{Done, Record, Running};
use super::*;
use crate::id::{RequestId, SpoolId};

pub(super) fn request(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(number))
}

pub(super) fn digest(byte: u8) -> Digest {
    Digest([byte; 32])
}

/// The lock of a request for a body that `byte` stands for.
pub(super) fn running(number: u128, byte: u8) -> Running {
    Running {
        request_id: request(number),
        boot: format!("boot-{number}").into(),
        spool: SpoolId::new(format!("spool-{number}")),
        digest: digest(byte),
        lease_ms: LEASE_MS,
    }
}

pub(super) fn done(number: u128, byte: u8, body: Body) -> Done {
    Done {
        request_id: request(number),
        digest: digest(byte),
        answer: Answer {
            status: 200,
            stream: false,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
        },
        envelope: b"{\"id\":1}".to_vec(),
    }
}

/// What a read finds that sees `record` for the first time at `seen_ms`.
pub(super) fn found(record: Record, revision: u64, seen_ms: u64) -> Read {
    Read::Found {
        record: Some(Box::new(record)),
        revision,
        seen_ms,
    }
}

pub(super) fn record_done(done: Done) -> Record {
    Record::Done(Box::new(done))
}

/// A digest that is told apart by nothing but its input.
fn spy(parts: &[&[u8]], seen: &RefCell<Vec<u8>>) -> Digest {
    *seen.borrow_mut() = parts.concat();
    digest(7)
}

fn place(tenant: &str, key_id: &str, key: &str) -> (String, Vec<u8>) {
    let seen = RefCell::new(Vec::new());
    let scope = Scope {
        tenant: TenantId::from(tenant),
        key_id: KeyId::from(key_id),
    };
    let key = Key::parse(key.as_bytes()).expect("a key");
    let name = record_key(&scope, &key, |parts| spy(parts, &seen));
    (name, seen.into_inner())
}

#[test]
fn a_key_is_1_to_128_printable_characters() {
    for good in [" ", "k-1", "\"8e03978e-40d5\"", &"~".repeat(128)] {
        assert!(Key::parse(good.as_bytes()).is_ok(), "{good}");
    }
    let long = "k".repeat(129);
    for bad in [
        &b""[..],
        b"a\tb",
        b"a\x7f",
        b"a\0",
        "ключ".as_bytes(),
        long.as_bytes(),
    ] {
        assert_eq!(Key::parse(bad), Err(KeyError), "{bad:?}");
    }
}

#[test]
fn what_is_no_key_is_told_as_a_bad_request() {
    let failure = KeyError.failure();

    assert_eq!((failure.code, failure.status), (FailureCode::InvalidRequest, 400));
    assert_eq!(failure.param.as_deref(), Some("idempotency-key"));
}

#[test]
fn a_key_is_not_in_what_is_logged() {
    let key = Key::parse(b"order-secret").expect("a key");

    assert_eq!(format!("{key:?}"), "Key(12 bytes)");
}

#[test]
fn the_place_of_a_record_names_the_tenant_and_hides_the_rest() {
    let (name, _) = place("acme", "key-1", "order-secret");

    assert_eq!(name, format!("acme.{}", digest(7)));
}

proptest! {
    #[test]
    fn two_scopes_or_keys_have_two_places(
        a in ("[a-z0-9-]{1,9}", "[ -~]{0,9}", "[ -~]{1,9}"),
        b in ("[a-z0-9-]{1,9}", "[ -~]{0,9}", "[ -~]{1,9}"),
    ) {
        let one = place(&a.0, &a.1, &a.2).1;
        let other = place(&b.0, &b.1, &b.2).1;

        prop_assert_eq!(one == other, a == b);
    }

    #[test]
    fn a_key_is_read_exactly_if_it_is_printable_and_short(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
        let good = !bytes.is_empty()
            && bytes.len() <= 128
            && bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');

        prop_assert_eq!(Key::parse(&bytes).is_ok(), good);
    }
}

#[test]
fn the_fingerprint_covers_method_path_and_body() {
    let of = |method: &str, path: &str, body: &[u8]| {
        let seen = RefCell::new(Vec::new());
        fingerprint(method, path, body, |parts| spy(parts, &seen));
        seen.into_inner()
    };

    let first = of("POST", "/v1/messages", b"{}");
    assert_eq!(first, b"POST\n/v1/messages\n{}");
    for other in [
        of("PUT", "/v1/messages", b"{}"),
        of("POST", "/v1/responses", b"{}"),
        of("POST", "/v1/messages", b"{} "),
    ] {
        assert_ne!(first, other);
    }
}

#[test]
fn answers_are_kept_from_a_minute_to_a_day() {
    assert_eq!(Terms::kept_minutes(0), None);
    assert_eq!(Terms::kept_minutes(1_441), None);
    let kept = |minutes| Terms::kept_minutes(minutes).map(|terms| terms.done_life_ms);
    assert_eq!(kept(1), Some(60_000));
    assert_eq!(kept(1_440), Some(86_400_000));
    assert_eq!(Terms::default(), Terms::kept_minutes(10).expect("in range"));
}

#[test]
fn each_refusal_has_its_code_and_says_whether_to_come_back() {
    let told = |refusal: Refusal| {
        let failure = refusal.failure();
        let again = failure.retry_after_seconds;
        (failure.code.as_str(), failure.status, again, failure.exhausted)
    };

    let in_progress = told(Refusal::InProgress);
    assert_eq!(
        in_progress,
        ("IDEMPOTENCY_REQUEST_IN_PROGRESS", 409, Some(5), false)
    );
    let mismatch = told(Refusal::Mismatch);
    assert_eq!(mismatch, ("IDEMPOTENCY_KEY_BODY_MISMATCH", 422, None, false));
    let not_replayable = told(Refusal::NotReplayable);
    assert_eq!(
        not_replayable,
        ("IDEMPOTENCY_REPLAY_UNAVAILABLE", 409, None, true)
    );
    let away = told(Refusal::StoreUnavailable);
    assert_eq!(away, ("store_unavailable", 503, Some(5), false));
}
