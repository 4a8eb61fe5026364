//! What is kept of an answer, and what each ending means for the key.

use proptest::prelude::*;

use super::*;
use crate::id::{BackendId, EndpointId};
use crate::time::Timestamp;

fn keeper(stream: bool) -> Keeper {
    Keeper::new(200, stream, [("content-type", "text/event-stream")])
}

fn attempt(status: Option<u16>, outcome: Outcome) -> Attempt {
    Attempt {
        endpoint_id: EndpointId::from("e"),
        backend: BackendId::from("e"),
        provider: "p".into(),
        status,
        outcome,
        error_code: None,
        started_at: Timestamp::default(),
        first_byte_ms: None,
        latency_ms: 1,
    }
}

#[test]
fn framing_cookies_rates_and_ids_are_not_kept() {
    let lines = [
        ("Content-Type", "application/json"),
        ("content-length", "7"),
        ("transfer-encoding", "chunked"),
        ("content-encoding", "gzip"),
        ("connection", "close"),
        ("set-cookie", "a=b"),
        ("retry-after", "3"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-quota-reset", "2026-12-01T00:00:00Z"),
        ("x-request-id", "first"),
        ("request-id", "first"),
        ("x-waybill-config", "17"),
        ("x-session-affinity", "hit:l2"),
        ("x-should-retry", "false"),
        ("date", "Mon, 30 Nov 2026 09:00:00 GMT"),
        ("access-control-allow-origin", "*"),
        ("X-Waybill-Dropped", "seed"),
        ("x-routed-model", "m"),
        ("x-session-id", "s-1"),
        ("x-routing-purpose-fallback", "true"),
    ];

    let answer = Keeper::new(200, false, lines).finish();

    let kept = [
        ("content-type", "application/json"),
        ("x-waybill-dropped", "seed"),
        ("x-routed-model", "m"),
        ("x-session-id", "s-1"),
        ("x-routing-purpose-fallback", "true"),
    ];
    let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(answer.headers, kept);
}

#[test]
fn a_header_that_could_break_a_head_is_not_kept() {
    let long = "x".repeat(4_097);
    let answer = Keeper::new(
        200,
        false,
        [("x-session-id", "a\r\nb: c"), ("x-waybill-dropped", &long)],
    )
    .finish();

    assert_eq!(answer.headers, []);
}

#[test]
fn a_stream_is_kept_to_its_end_mark_without_what_kept_it_alive() {
    let mut keeper = keeper(true);
    for piece in [
        ": keepalive\n\n",
        "data: {\"a\":1}\n\n",
        ": keepalive\n\n: keepalive\r\n\r\n",
        ": x\n\ndata: {\"b\":2}\n\n",
        "data: [DONE]\n\n",
    ] {
        keeper.piece(piece.as_bytes());
    }

    let answer = keeper.finish();

    let events = "data: {\"a\":1}\n\n: x\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n";
    assert_eq!(answer.body, Body::Kept(events.as_bytes().to_vec()));
    assert!(answer.stream && answer.is_replayable());
}

#[test]
fn an_answer_that_is_no_stream_keeps_every_byte() {
    let mut keeper = keeper(false);
    keeper.piece(b"");
    keeper.piece(b": no comment\n");

    assert_eq!(keeper.finish().body, Body::Kept(b": no comment\n".to_vec()));
}

proptest! {
    #[test]
    fn an_answer_is_whole_or_not_there(sizes in prop::collection::vec(0..90_000_usize, 0..8)) {
        let mut keeper = keeper(true);
        let mut all = Vec::new();
        for size in &sizes {
            let piece = vec![b'x'; *size];
            keeper.piece(&piece);
            all.extend(piece);
            prop_assert!(keeper.body.len() <= BODY_BYTES_MAX);
        }
        let answer = keeper.finish();

        if all.len() <= BODY_BYTES_MAX {
            prop_assert_eq!(answer.body, Body::Kept(all));
        } else {
            let bytes = all.len() as u64;
            prop_assert!(!answer.is_replayable());
            prop_assert_eq!(answer.body, Body::TooLarge { bytes });
        }
    }
}

#[test]
fn the_limit_itself_fits() {
    let mut keeper = keeper(true);
    keeper.piece(&vec![b'x'; BODY_BYTES_MAX]);
    let mut over = keeper.clone();
    over.piece(b"y");

    assert!(keeper.finish().is_replayable());
    assert_eq!(over.finish().body, Body::TooLarge { bytes: 262_145 });
}

#[test]
fn a_key_is_freed_only_where_no_upstream_took_the_work() {
    let failed = |attempts: &[Attempt], outcome| {
        let ending = Ending {
            outcome,
            attempts,
            heard_out: true,
        };
        ending.disposition()
    };
    let unreachable = attempt(None, Outcome::UpstreamError);
    let refused = attempt(Some(503), Outcome::UpstreamError);
    let limited = attempt(Some(429), Outcome::UpstreamError);
    let malformed = attempt(Some(400), Outcome::UpstreamError);
    let late = attempt(None, Outcome::Timeout);
    let cut = attempt(None, Outcome::UpstreamCut);
    let empty = attempt(Some(200), Outcome::UpstreamError);

    assert_eq!(failed(&[], Outcome::Rejected), Disposition::Free);
    assert_eq!(failed(&[], Outcome::UpstreamError), Disposition::Free);
    assert_eq!(failed(&[], Outcome::ClientGone), Disposition::Free);
    let none = [unreachable.clone(), refused.clone(), limited, malformed];
    assert_eq!(failed(&none, Outcome::UpstreamError), Disposition::Free);
    for taken in [late, cut, empty] {
        let attempts = [unreachable.clone(), taken, refused.clone()];
        assert_eq!(failed(&attempts, Outcome::UpstreamError), Disposition::Keep);
    }
}

#[test]
fn an_answer_that_nobody_heard_to_its_end_closes_the_key() {
    let taken = [attempt(Some(200), Outcome::Ok)];
    for outcome in [
        Outcome::Ok,
        Outcome::ClientGone,
        Outcome::UpstreamCut,
        Outcome::Timeout,
        Outcome::Lost,
    ] {
        let ending = |heard_out| Ending {
            outcome,
            attempts: &taken,
            heard_out,
        };
        assert_eq!(ending(true).disposition(), Disposition::Keep, "{outcome:?}");
        assert_eq!(ending(false).disposition(), Disposition::Close, "{outcome:?}");
    }
}

#[test]
fn what_is_charged_never_frees_its_key() {
    let delivered = [attempt(Some(200), Outcome::ClientGone)];
    for (outcome, attempts) in [(Outcome::Ok, &[][..]), (Outcome::ClientGone, &delivered)] {
        for heard_out in [true, false] {
            let ending = Ending {
                outcome,
                attempts,
                heard_out,
            };
            assert_ne!(ending.disposition(), Disposition::Free, "{outcome:?}");
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_counted_and_not_kept() {
    let mut keeper = Keeper::new(200, false, []);
    keeper.piece(b"some");
    assert!(keeper.keeps());

    keeper.forget();
    keeper.piece(b"more");

    assert!(!keeper.keeps());
    assert_eq!(keeper.finish().body, Body::TooLarge { bytes: 8 });
}
