//! How long a record counts and when it is written again.

use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60_000_000;

fn policy() -> Policy {
    Policy {
        sessions: true,
        caller: true,
        ..Policy::default()
    }
}

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_micros(1_795_000_000_000_000 + minutes * MINUTE)
}

fn record(created: i64, written: i64) -> Record {
    Record {
        endpoint_id: EndpointId::from("m:gpu"),
        backend: BackendId::from("m:gpu#1"),
        created_at: at(created),
        written_at: at(written),
    }
}

#[test]
fn a_session_stays_for_half_an_hour_after_its_last_call() {
    let record = record(0, 0);
    let almost = at(30).plus_micros(-1);

    assert!(record.is_alive(Level::L2, &policy(), almost));
    assert!(!record.is_alive(Level::L2, &policy(), at(30)));
}

#[test]
fn a_caller_stays_for_five_minutes_after_his_last_call() {
    let record = record(0, 0);

    assert!(record.is_alive(Level::Caller, &policy(), at(5).plus_micros(-1)));
    assert!(!record.is_alive(Level::Caller, &policy(), at(5)));
}

#[test]
fn nobody_stays_for_more_than_a_day() {
    let busy = record(0, 1_439);

    assert!(busy.is_alive(Level::L2, &policy(), at(1_440).plus_micros(-1)));
    assert!(!busy.is_alive(Level::L2, &policy(), at(1_440)));
    let for_ever = Policy {
        age_ms_max: 0,
        ..policy()
    };
    assert!(busy.is_alive(Level::L2, &for_ever, at(1_440)));
}

#[test]
fn a_record_is_written_again_after_five_of_its_thirty_minutes() {
    let record = record(0, 10);

    assert!(!record.is_due(Level::L2, &policy(), at(15).plus_micros(-1)));
    assert!(record.is_due(Level::L2, &policy(), at(15)));
    assert!(record.is_due(Level::Caller, &policy(), at(11)));
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_a_record_fresh() {
    let ahead = record(60, 60);

    assert!(ahead.is_alive(Level::L2, &policy(), at(0)));
    assert!(ahead.is_due(Level::L2, &policy(), at(0)));
    assert!(!ahead.is_due(Level::L2, &policy(), at(58)), "two minutes ahead");
    assert_eq!(ahead.rewritten(at(0)), record(0, 0));
}

#[test]
fn to_be_written_again_makes_no_session_younger() {
    assert_eq!(record(0, 10).rewritten(at(20)), record(0, 20));
}

#[test]
fn what_is_no_record_is_not_read() {
    for bytes in [&b""[..], b"{}", b"\xff", br#"{"endpoint_id":"e","backend":"b"}"#] {
        assert_eq!(Record::decode(bytes), None);
    }
}

#[test]
fn the_bytes_are_these_and_may_get_more_members() {
    let bytes = record(0, 1).encode().expect("encode");
    let text = String::from_utf8(bytes).expect("text");

    let known = "{\"endpoint_id\":\"m:gpu\",\"backend\":\"m:gpu#1\",\
                 \"created_at\":\"2026-11-18T11:06:40.000000Z\",\"written_at\":\"2026-11-18T11:07:40.000000Z\"";
    assert_eq!(text, format!("{known}}}"));
    let later = format!("{known},\"load\":3}}");
    assert_eq!(Record::decode(later.as_bytes()), Some(record(0, 1)));
}

proptest! {
    #[test]
    fn records_read_back(created in 0..100_000_i64, written in 0..100_000_i64, names in ("\\PC{0,20}", "\\PC{0,20}")) {
        let record = Record {
            endpoint_id: EndpointId::new(names.0),
            backend: BackendId::new(names.1),
            ..record(created, written)
        };

        prop_assert_eq!(Record::decode(&record.encode().expect("encode")), Some(record));
    }

    /// The last write may lie a sixth of the life before the last call.
    #[test]
    fn a_session_that_goes_on_each_25_minutes_does_not_age_out(steps in prop::collection::vec(1..=25_i64, 1..57)) {
        let mut now = 0;
        let mut writes = 0;
        let mut current = record(0, 0);
        for minutes in steps {
            now += minutes;
            prop_assert_eq!(current.is_alive(Level::L1, &policy(), at(now)), now < 1_440);
            if current.is_due(Level::L1, &policy(), at(now)) {
                current = current.rewritten(at(now));
                writes += 1;
            }
            prop_assert_eq!(current.created_at, at(0));
        }
        prop_assert!(writes <= now / 5);
    }
}
