//! What is written is read back; what is not ours is refused and never panics.

use proptest::prelude::*;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::Delivered;
use schemas::outcome::Outcome;

use super::*;
use crate::conformance::script::dispatch;

fn last() -> Last {
    Last {
        report: Report {
            outcome: Outcome::UpstreamCut,
            failure: Some(Failure::new(FailureCode::StreamInterrupted, "broke off").retry_after(3)),
            attempts: Vec::new(),
            served: None,
            usage: None,
            usage_flags: Vec::new(),
            upstream_cost_nano_usd: None,
            attempts_of_unknown_cost: 0,
            passed: None,
            session: None,
            affinity: None,
            decision: None,
            delivered: Delivered {
                content: true,
                output_bytes: 7,
                ttft_ms: Some(12),
            },
        },
        head: Some(Head {
            status: 200,
            headers: vec![("x-a".to_owned(), "b".to_owned())],
        }),
    }
}

#[test]
fn an_offer_is_read_back_with_its_body() {
    let asked = dispatch("m", 77);

    let written =
        |part: &[u8], is_inline| offer(&asked.offer, part, &asked.body, is_inline).expect("written");
    let read = read_offer(written(b"", true)).expect("read");
    assert_eq!((read.offer, read.body), (asked.offer.clone(), asked.body.clone()));

    let read = read_offer(written(b"{}", false)).expect("read");
    assert_eq!(
        (read.offer, read.body, &read.part[..]),
        (asked.offer.clone(), Bytes::new(), &b"{}"[..])
    );
    assert_eq!(read.body_bytes, asked.body.len());
    let mut short = written(b"", true);
    short.truncate(short.len() - 1);
    assert!(matches!(read_offer(short), Err(Malformed::Length)));
}

#[test]
fn a_body_in_pieces_is_asked_for_and_sent() {
    let asked = Need {
        from: 7,
        until: 1_000_000,
        again: true,
    };
    assert!(matches!(read_reply(need(asked)), Ok(Reply::Need(read)) if read == asked));
    let read = read_piece(piece("_INBOX.abc", 9, 70_000, b"bytes")).expect("read");
    assert_eq!((&*read.inbox, read.lane, read.offset), ("_INBOX.abc", 9, 70_000));
    assert_eq!(&read.bytes[..], b"bytes");
}

#[test]
fn a_process_is_named_by_one_word() {
    for name in ["", "a.b", "a b", "a*", "a>", "a\r\nPUB x 1"] {
        assert!(read_reply(accepted(name)).is_err(), "{name:?}");
    }
}

#[test]
fn frames_are_read_back_with_their_numbers() {
    let pieces = [
        Piece::Head(last().head.expect("a head")),
        Piece::Chunk(Bytes::from("chunk")),
        Piece::Tail(Bytes::from("tail")),
        Piece::End(Box::new(last()), Bytes::from("rest")),
    ];
    for (number, piece) in (7..).zip(&pieces) {
        let read = read_reply(frame(number, piece).expect("written")).expect("read");

        let Reply::Frame(sequence, read) = read else {
            panic!("a frame: {read:?}");
        };
        assert_eq!(sequence, number);
        assert_eq!(format!("{read:?}"), format!("{piece:?}"));
    }
}

#[test]
fn answers_to_an_offer_are_read_back() {
    assert!(matches!(read_reply(accepted("boot")), Ok(Reply::Accepted(boot)) if &*boot == "boot"));
    assert!(matches!(read_reply(busy()), Ok(Reply::Busy)));
    assert!(matches!(read_reply(unknown()), Ok(Reply::Unknown)));
}

#[test]
fn another_version_and_another_kind_are_refused() {
    let mut bytes = busy().to_vec();
    bytes[0] = 1;
    assert!(matches!(read_reply(bytes.into()), Err(Malformed::Version(1))));
    let order = orders("inbox", &[]);
    assert!(matches!(read_reply(order.clone()), Err(Malformed::Kind(ORDERS))));
    assert!(matches!(read_beat(order), Err(Malformed::Kind(ORDERS))));
}

#[test]
fn a_message_with_more_entries_than_the_limit_is_refused() {
    let places = vec![Place { lane: 1, next: 2 }; ORDERS_MAX];
    assert_eq!(read_beat(beat(&places)).expect("read").len(), ORDERS_MAX);
    let places = vec![Place { lane: 1, next: 2 }; ORDERS_MAX + 1];
    assert!(matches!(read_beat(beat(&places)), Err(Malformed::Length)));
}

fn order() -> impl Strategy<Value = Order> {
    let wish = prop_oneof![
        Just(Wish::Run),
        Just(Wish::Cancel),
        Just(Wish::Interrupt),
        Just(Wish::Release)
    ];
    (any::<u64>(), any::<u32>(), any::<u32>(), wish, any::<bool>()).prop_map(
        |(lane, received, granted, wish, resume)| Order {
            lane,
            received,
            granted,
            wish,
            resume,
        },
    )
}

fn read_all(bytes: &Bytes) {
    let _ = read_offer(bytes.clone());
    let _ = read_reply(bytes.clone());
    let _ = read_orders(bytes.clone());
    let _ = read_beat(bytes.clone());
    let _ = read_piece(bytes.clone());
    let _ = read_part(bytes);
}

proptest! {
    #[test]
    fn orders_are_read_back(sent in proptest::collection::vec(order(), 0..20)) {
        let (inbox, read) = read_orders(orders("_INBOX.abc", &sent)).expect("read");

        prop_assert_eq!(&*inbox, "_INBOX.abc");
        prop_assert_eq!(read, sent);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes.into());
    }

    #[test]
    fn any_bytes_behind_a_true_beginning_are_read_or_refused(
        kind in 0..24_u8,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut message = vec![VERSION, kind];
        message.extend(bytes);
        read_all(&message.into());
    }

    #[test]
    fn a_message_that_was_cut_off_is_read_or_refused(length in 0..400_usize) {
        let asked = dispatch("m", 77);
        let mut offer = offer(&asked.offer, b"{}", &asked.body, true).expect("written");
        offer.truncate(length);
        read_all(&offer);
        let mut end = frame(3, &Piece::End(Box::new(last()), Bytes::from("rest"))).expect("written");
        end.truncate(length);
        read_all(&end);
    }
}
