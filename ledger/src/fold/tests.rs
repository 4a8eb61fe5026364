//! Folding, against books that are plain maps.

use std::sync::Arc;

use proptest::prelude::*;
#[cfg(debug_assertions)]
use proptest::test_runner::{TestError, TestRunner};
use schemas::query::Row;

use super::*;
use crate::fixture::{self, lost, record, settled};

/// Within how many histories a planted fault is found.
#[cfg(debug_assertions)]
const HISTORIES_MAX: u32 = 1_000;

/// The tables as maps: what a store holds after it applied changes.
#[derive(Debug, Default, PartialEq)]
struct Books {
    planted: Planted,
    standings: BTreeMap<RequestId, Standing>,
    rows: BTreeMap<RequestId, Row>,
    sums: BTreeMap<Group, Sums>,
}

impl Books {
    fn apply(&mut self, records: &[Record]) -> Changes {
        let changes = fold_with(records, &self.standings, self.planted);
        for waybill in &changes.rows {
            let id = waybill.row.settled.request_id;
            self.standings.insert(id, waybill.standing());
            self.rows.insert(id, waybill.row.clone());
        }
        for (group, moved) in &changes.sums {
            let sums = self.sums.entry(group.clone()).or_default();
            *sums += *moved;
        }
        self.sums.retain(|_, sums| sums.requests != 0);
        changes
    }

    /// The sums as the rows alone would give them.
    fn sums_of_rows(&self) -> BTreeMap<Group, Sums> {
        let mut sums: BTreeMap<Group, Sums> = BTreeMap::new();
        for standing in self.standings.values() {
            *sums.entry(standing.group.clone()).or_default() += standing.sums;
        }
        sums
    }
}

fn books_of(batches: &[&[Record]]) -> Books {
    books_with(Planted::default(), batches)
}

fn books_with(planted: Planted, batches: &[&[Record]]) -> Books {
    let mut books = Books {
        planted,
        ..Books::default()
    };
    for batch in batches {
        books.apply(batch);
    }
    books
}

#[test]
fn an_event_applied_twice_changes_nothing_the_second_time() {
    let event = record(1, settled(1));
    let mut books = Books::default();
    books.apply(std::slice::from_ref(&event));

    let changes = books.apply(&[event.clone(), event]);

    assert!(changes.rows.is_empty());
    assert!(changes.sums.is_empty());
}

#[test]
fn settled_supersedes_lost_in_either_order_and_in_one_batch() {
    let provisional = record(9, lost(1));
    let settled = record(10, settled(1));

    let books = books_of(&[std::slice::from_ref(&provisional), std::slice::from_ref(&settled)]);

    assert_eq!(
        books,
        books_of(&[std::slice::from_ref(&settled), std::slice::from_ref(&provisional)])
    );
    assert_eq!(books, books_of(&[&[provisional, settled]]));
    let sums: Vec<&Sums> = books.sums.values().collect();
    assert_eq!(
        sums.len(),
        1,
        "the sum of the provisional row, which had no endpoint, is gone"
    );
    assert_eq!(
        (sums[0].requests, sums[0].ok, sums[0].cost_nano_usd),
        (1, 1, 178_000)
    );
}

#[test]
fn a_lost_request_is_a_row_that_says_so_and_costs_nothing() {
    let books = books_of(&[&[record(1, lost(1))]]);

    let row = &books.rows[&fixture::request_id(1)].settled;
    assert_eq!(row.outcome, Outcome::Lost);
    assert_eq!(
        (row.status, row.cost_nano_usd.0, row.latency_ms),
        (500, 0, 600_000)
    );
    assert_eq!(books.sums.values().map(|sums| sums.errors).sum::<i64>(), 1);
}

#[test]
fn events_without_a_row_change_neither_rows_nor_sums() {
    let unknown = fixture::envelope(fixture::SOURCE, 2, lost(1).accepted);
    let later = String::from_utf8(unknown.to_vec())
        .expect("text")
        .replace("accepted.v1", "accepted.v9");
    let records = [
        record(1, lost(1).accepted),
        Record::read(&fixture::stored(2, later.into())),
        Record::read(&fixture::stored(3, "not json".into())),
    ];

    let changes = fold(&records, &BTreeMap::new());

    assert!(changes.rows.is_empty() && changes.sums.is_empty());
    assert_eq!(changes.opened.len(), 1);
    assert!(matches!(records[1].fact, Fact::Kept));
    assert!(matches!(records[2].fact, Fact::Unreadable));
}

#[test]
fn figures_beyond_belief_stay_in_their_row_and_do_not_spoil_the_sums() {
    let mut wild = settled(1);
    wild.output_tokens = u64::MAX;
    wild.cost_nano_usd.0 = i64::MAX;
    let books = books_of(&[&[record(1, wild)], &[record(2, settled(2))]]);

    assert_eq!(
        books.rows[&fixture::request_id(1)].settled.output_tokens,
        u64::MAX
    );
    let sums = books.sums.values().next().expect("one group");
    assert_eq!(sums.output_tokens, 1_000_000_000_000 + 20);
}

#[test]
fn a_bucket_begins_at_a_quarter_of_an_hour_also_before_the_epoch() {
    let at = |text: &str| bucket(Timestamp::parse(text).expect("a time")).to_string();

    assert_eq!(at("2026-11-30T00:53:20.000001Z"), "2026-11-30T00:45:00.000000Z");
    assert_eq!(at("1969-12-31T23:59:59Z"), "1969-12-31T23:45:00.000000Z");
    assert_eq!(
        bucket(Timestamp::from_micros(i64::MIN)),
        Timestamp::from_micros(i64::MIN)
    );
}

/// An event about one of few requests: of two spools, so that one request may have several waybills.
pub(crate) fn any_event() -> impl Strategy<Value = (u8, u64, u64)> {
    (0u8..4, 1u64..12, 1u64..40)
}

/// The record of what [`any_event`] drew.
pub(crate) fn record_of((kind, request, sequence): (u8, u64, u64)) -> Record {
    let source = if kind == 3 {
        "/waybill/main/spool-b"
    } else {
        fixture::SOURCE
    };
    let sequence = (sequence * 16 + request) * 4 + u64::from(kind);
    let payload = match kind {
        0 => fixture::envelope(source, sequence, lost(request)),
        1 => fixture::envelope(source, sequence, lost(request).accepted),
        _ => {
            let mut settled = settled(request);
            settled.started_at = settled.started_at.plus_micros(i64::from(kind) * BUCKET_MICROS);
            settled.output_tokens = sequence;
            settled.cost_nano_usd.0 = i64::try_from(sequence).expect("small");
            fixture::envelope(source, sequence, settled)
        }
    };
    Record::read(&fixture::stored(sequence, payload))
}

type Event = (u8, u64, u64);

/// Events as they happened; the same twice each in another order, and how many of these come at a time.
fn any_history() -> impl Strategy<Value = (Vec<Event>, Vec<Event>, usize)> {
    let events = prop::collection::vec(any_event(), 1..40);
    let told = events.prop_flat_map(|events| {
        let twice: Vec<_> = events.iter().chain(&events).copied().collect();
        (Just(events), Just(twice).prop_shuffle())
    });
    (told, 1usize..9).prop_map(|((events, told), batch_events)| (events, told, batch_events))
}

/// Books that are told everything twice, in another order and in batches, are those of the events themselves, and their
/// sums are those of their rows.
fn books_agree(
    (events, told, batch_events): (Vec<Event>, Vec<Event>, usize),
    planted: Planted,
) -> Result<(), TestCaseError> {
    let records: Vec<Record> = events.into_iter().map(record_of).collect();
    let told: Vec<Record> = told.into_iter().map(record_of).collect();

    let whole = books_of(&[&records]);
    let batches: Vec<&[Record]> = told.chunks(batch_events).collect();
    let other = books_with(planted, &batches);

    prop_assert_eq!(&whole.rows, &other.rows);
    prop_assert_eq!(&whole.sums, &other.sums);
    prop_assert_eq!(&other.sums, &other.sums_of_rows());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn order_repetition_and_batching_make_no_difference(history in any_history()) {
        books_agree(history, Planted::default())?;
    }
}

#[cfg(debug_assertions)]
#[test]
fn an_event_that_moves_the_sums_twice_is_found() {
    let config = ProptestConfig {
        cases: HISTORIES_MAX,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    };
    let planted = Planted::DUPLICATE_MOVES_SUMS;
    let found = TestRunner::new(config).run(&any_history(), |history| books_agree(history, planted));

    assert!(
        matches!(found, Err(TestError::Fail(..))),
        "not within {HISTORIES_MAX} histories: {found:?}"
    );
}

#[test]
fn requests_are_named_once_and_in_order() {
    let records = [record(1, settled(5)), record(2, lost(3)), record(3, settled(5))];

    assert_eq!(
        requests(&records),
        [fixture::request_id(3), fixture::request_id(5)]
    );
    assert!(Arc::ptr_eq(
        &fold(&records, &BTreeMap::new()).rows[1],
        match &records[0].fact {
            Fact::Waybill(waybill) => waybill,
            _ => unreachable!(),
        }
    ));
}
