//! Records read back as they were written, and nothing else is read.

use proptest::prelude::*;

use super::super::tests::{digest, done, record_done, request, running};
use super::*;

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Body::Kept),
        any::<u64>().prop_map(|bytes| Body::TooLarge { bytes }),
        Just(Body::Gone),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let headers = prop::collection::vec(("[a-z-]{1,9}", "[ -~]{0,20}"), 0..4);
    let envelope = prop::collection::vec(any::<u8>(), 0..200);
    let answer = (any::<u16>(), any::<bool>(), headers, body());
    prop_oneof![
        any::<u128>().prop_map(|number| Record::Freed(request(number))),
        (any::<u128>(), any::<u8>(), 0..=LEASE_MS_MAX).prop_map(|(number, byte, lease_ms)| {
            Record::Running(Running {
                lease_ms,
                ..running(number, byte)
            })
        }),
        (any::<u128>(), any::<u8>(), answer, envelope).prop_map(|(number, byte, answer, envelope)| {
            let (status, stream, headers, body) = answer;
            record_done(Done {
                request_id: request(number),
                digest: digest(byte),
                answer: Answer {
                    status,
                    stream,
                    headers,
                    body,
                },
                envelope,
            })
        }),
    ]
}

proptest! {
    #[test]
    fn records_read_back(record in record()) {
        let bytes = record.encode().expect("encode");

        prop_assert_eq!(Record::decode(&bytes), Some(record));
    }

    #[test]
    fn a_record_that_lost_or_won_bytes_at_its_end_is_none(record in record(), cut in 1..40_usize) {
        let bytes = record.encode().expect("encode");
        let short = &bytes[..bytes.len().saturating_sub(cut)];
        let long = [&bytes[..], &vec![b'x'; cut]].concat();

        prop_assert_eq!(Record::decode(short), None);
        prop_assert_eq!(Record::decode(&long), None);
    }

    #[test]
    fn whatever_lies_there_is_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80), fix in any::<bool>()) {
        if fix && bytes.len() >= 5 {
            bytes[0] = VERSION;
            bytes[1..5].copy_from_slice(&[0, 0, 0, 2]);
        }

        prop_assert_eq!(Record::decode(&bytes), None);
    }
}

/// What nodes of one version write, nodes of the next must read.
#[test]
fn the_bytes_are_those_of_version_1() {
    let id = "00000000-0000-0000-0000-000000000001";
    let code = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    let freed = format!("{{\"state\":\"freed\",\"request_id\":\"{id}\"}}");
    let lock = format!(
        "{{\"state\":\"running\",\"request_id\":\"{id}\",\"boot\":\"boot-1\",\"spool\":\"spool-1\",\
         \"digest\":\"{code}\",\"lease_ms\":60000}}"
    );
    let end = format!(
        "{{\"state\":\"done\",\"request_id\":\"{id}\",\"digest\":\"{code}\",\"status\":200,\"stream\":false,\
         \"headers\":[[\"content-type\",\"application/json\"]],\"envelope_bytes\":8,\"body\":{{\"kept\":2}}}}"
    );

    for (record, head, rest) in [
        (Record::Freed(request(1)), freed, ""),
        (Record::Running(running(1, 1)), lock, ""),
        (
            record_done(done(1, 1, Body::Kept(b"{}".to_vec()))),
            end,
            "{\"id\":1}{}",
        ),
    ] {
        let length = u32::try_from(head.len()).expect("short").to_be_bytes();
        let bytes = [&[1], &length[..], head.as_bytes(), rest.as_bytes()].concat();
        assert_eq!(record.encode().expect("encode"), bytes, "{head}");
        assert_eq!(Record::decode(&bytes), Some(record));
    }
}

#[test]
fn an_answer_lies_behind_its_head_as_it_is() {
    let record = record_done(done(1, 1, Body::Kept(b"{\"a\":1}".to_vec())));

    let bytes = record.encode().expect("encode");

    assert!(bytes.ends_with(b"\"envelope_bytes\":8,\"body\":{\"kept\":7}}{\"id\":1}{\"a\":1}"));
}

#[test]
fn an_answer_over_the_limit_is_left_out() {
    let limit = done(1, 1, Body::Kept(vec![b'x'; BODY_BYTES_MAX]));
    let over = done(1, 1, Body::Kept(vec![b'x'; BODY_BYTES_MAX + 1]));
    let read = |done: &Done| Record::decode(&record_done(done.clone()).encode().expect("encode"));

    assert_eq!(read(&limit), Some(record_done(limit)));
    let Some(Record::Done(kept)) = read(&over) else {
        panic!("a record");
    };
    assert_eq!(kept.answer.body, Body::TooLarge { bytes: 262_145 });
    assert_eq!(kept.envelope, b"{\"id\":1}");
}

#[test]
fn an_envelope_over_the_limit_is_left_out() {
    let mut large = done(1, 1, Body::Gone);
    large.envelope = vec![b'x'; ENVELOPE_BYTES_MAX + 1];

    let bytes = record_done(large).encode().expect("encode");

    assert!(bytes.len() < 1_000);
    assert!(Record::decode(&bytes).is_some());
}

#[test]
fn a_later_version_is_not_guessed_at() {
    let mut bytes = Record::Freed(request(1)).encode().expect("encode");
    bytes[0] = VERSION + 1;

    assert_eq!(Record::decode(&bytes), None);
}

#[test]
fn a_head_with_members_of_a_later_program_is_read() {
    let head = br#"{"state":"freed","request_id":"00000000-0000-0000-0000-000000000001","why":"busy"}"#;
    let length = u32::try_from(head.len()).expect("short").to_be_bytes();
    let bytes = [&[VERSION], &length[..], head].concat();

    assert_eq!(Record::decode(&bytes), Some(Record::Freed(request(1))));
}

#[test]
fn a_lease_for_ever_is_not_believed() {
    let record = Record::Running(Running {
        lease_ms: u64::MAX,
        ..running(1, 1)
    });

    let bytes = record.encode().expect("encode");

    let Some(Record::Running(read)) = Record::decode(&bytes) else {
        panic!("a lock");
    };
    assert_eq!(read.lease_ms, 3_600_000);
}
