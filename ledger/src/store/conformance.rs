//! What every adapter must do, one function per promise. Each takes a store without content; [`every_promise`] lists
//! them once for all adapters.

use std::collections::BTreeSet;

use schemas::event::limit::LimitRefused;
use schemas::event::request::RequestSettled;
use schemas::event::spool::SpoolLost;
use schemas::failure::FailureCode;
use schemas::id::{KeyId, RequestId, SpoolId};
use schemas::outcome::Outcome;
use schemas::query::{LogFilter, LogQuery, LogsQuery};
use schemas::time::Timestamp;

use super::{Batch, Cursor, Fold, Store, StoreError};
use crate::book::book;
use crate::coverage::Coverage;
use crate::fixture::{
    self, CREATED, NOON, SOURCE, apply, books, by_everything, full, lost, record, settled, sums_of,
};
use crate::fold::Changes;
use crate::record::{Fact, Record};

mod adjustments;
mod audit;
mod feed;
mod places;
mod seals;
mod usage;

pub(crate) use adjustments::adjustments_are_booked_once_and_told_apart;
pub(crate) use audit::changes_are_read_by_their_ids;
pub(crate) use feed::what_is_booked_later_is_read_later;
pub(crate) use places::{a_place_that_is_given_twice_has_two_ids, events_of_a_source_are_read_in_order};
pub(crate) use seals::seals_and_the_rows_of_a_day_are_read_in_order;
pub(crate) use usage::{
    usage_is_bounded, usage_is_exact_to_the_instant, usage_is_grouped, usage_is_grouped_by_who_answered,
};

/// A test for every promise, each against a store of its own: `$open` gives what the store needs to live, and it.
macro_rules! every_promise {
    ($open:ident) => {
        crate::store::conformance::every_promise! { $open:
            applying_twice_changes_nothing
            settled_supersedes_lost
            rows_come_back_as_written
            sums_equal_the_rows
            sums_stop_at_the_largest
            the_cursor_moves_by_compare_and_set
            marks_stop_before_holes
            pages_walk_every_row_once
            a_full_last_page_has_no_next
            filters_select_rows
            filters_are_joined
            a_request_comes_with_its_event
            usage_is_grouped
            usage_is_grouped_by_who_answered
            usage_is_bounded
            usage_is_exact_to_the_instant
            what_is_not_understood_is_kept
            a_rebuild_gives_the_same_books
            accepted_requests_are_open_until_they_have_a_row
            a_place_that_is_given_twice_has_two_ids
            events_of_a_source_are_read_in_order
            changes_are_read_by_their_ids
            seals_and_the_rows_of_a_day_are_read_in_order
            what_is_booked_later_is_read_later
            adjustments_are_booked_once_and_told_apart
        }
    };
    ($open:ident: $($promise:ident)*) => {$(
        #[tokio::test]
        async fn $promise() {
            let (_needed, store) = $open().await;
            crate::store::conformance::$promise(&store).await;
        }
    )*};
}
pub(crate) use every_promise;

/// Applying a batch twice, or its events one by one, leaves the same books.
pub(crate) async fn applying_twice_changes_nothing(store: &dyn Store) {
    let records = [record(1, settled(1)), record(2, lost(2)), record(3, full(3))];
    let first = apply(store, &records).await.expect("apply");
    let before = books(store).await;

    let second = apply(store, &records).await.expect("apply again");
    for one in &records {
        apply(store, std::slice::from_ref(one)).await.expect("apply one");
    }

    assert_eq!((first.events, second.events), (3, 0));
    assert_eq!(books(store).await, before);
    assert_eq!(before.0.len(), 3);
}

/// The admitting node's word supersedes `request.lost`, whichever comes first, and takes its sums with it.
pub(crate) async fn settled_supersedes_lost(store: &dyn Store) {
    apply(store, &[record(1, lost(1)), record(2, settled(2))])
        .await
        .expect("apply");
    apply(store, &[record(3, settled(1)), record(4, lost(2))])
        .await
        .expect("apply");

    let (rows, sums) = books(store).await;
    assert!(
        rows.iter().all(|row| row.settled.outcome == Outcome::Ok),
        "{rows:?}"
    );
    assert_eq!(sums, sums_of(&rows));
    assert_eq!(sums.len(), 1, "nothing is left of the sums of the lost row");
}

/// A row comes back as it was written, whatever its fields hold.
pub(crate) async fn rows_come_back_as_written(store: &dyn Store) {
    let written = [full(1), settled(2)];
    apply(
        store,
        &[record(1, written[0].clone()), record(2, written[1].clone())],
    )
    .await
    .expect("apply");

    let (rows, _) = books(store).await;
    let read: Vec<&RequestSettled> = rows.iter().map(|row| &row.settled).collect();
    assert_eq!(read, [&written[1], &written[0]]);
    assert_eq!((rows[0].source.as_str(), rows[0].source_sequence), (SOURCE, 2));
}

/// Sums are the sums of the rows.
pub(crate) async fn sums_equal_the_rows(store: &dyn Store) {
    let varied = |n: u64| {
        let mut row = if n.is_multiple_of(3) { full(n) } else { settled(n) };
        row.started_at = row
            .started_at
            .plus_micros(i64::try_from(n).expect("small") * 600_000_000);
        row.key_id = KeyId::new(format!("key-{}", n % 5));
        row.output_tokens = n;
        row
    };
    let records: Vec<Record> = (1..=100).map(|n| record(n, varied(n))).collect();
    for batch in records.chunks(30) {
        apply(store, batch).await.expect("apply");
    }

    let (rows, sums) = books(store).await;
    assert_eq!(rows.len(), 100);
    assert_eq!(sums, sums_of(&rows));
}

/// A sum stops at the largest number there is; it never wraps around or fails.
pub(crate) async fn sums_stop_at_the_largest(store: &dyn Store) {
    let almost_the_largest: Fold = |_, _| {
        let Fact::Waybill(waybill) = record(1, settled(1)).fact else {
            panic!("a waybill");
        };
        let mut standing = waybill.standing();
        standing.sums.cost_nano_usd = i64::MAX - 1;
        let mut changes = Changes::default();
        changes.sums.insert(standing.group, standing.sums);
        changes
    };
    let mut cursor = None;
    for sequence in 1..=3 {
        let next = Cursor {
            stream_created: CREATED,
            sequence,
        };
        let batch = Batch {
            expected: cursor,
            next,
            records: &[],
            fold: almost_the_largest,
            marks: Vec::new(),
        };
        store.apply(&batch).await.expect("apply");
        cursor = Some(next);
    }

    let sums = store.usage(&by_everything()).await.expect("usage");
    assert_eq!((sums[0].requests, sums[0].cost_nano_usd), (3, i64::MAX));
}

/// The cursor moves by compare-and-set; who was overtaken changes nothing.
pub(crate) async fn the_cursor_moves_by_compare_and_set(store: &dyn Store) {
    let at = |sequence| Cursor {
        stream_created: CREATED,
        sequence,
    };
    let coverage = Coverage::default();
    assert_eq!(store.cursor().await.expect("cursor"), None);

    book(store, &[record(1, settled(1))], &coverage, (None, at(1)))
        .await
        .expect("the first");
    for expected in [
        None,
        Some(at(7)),
        Some(Cursor {
            stream_created: 1,
            sequence: 1,
        }),
    ] {
        let overtaken = book(store, &[record(2, settled(2))], &coverage, (expected, at(2))).await;
        assert!(matches!(overtaken, Err(StoreError::Superseded)), "{overtaken:?}");
    }

    assert_eq!(store.cursor().await.expect("cursor"), Some(at(1)));
    assert_eq!(books(store).await.0.len(), 1);
    book(store, &[], &coverage, (Some(at(1)), at(5)))
        .await
        .expect("the next");
    let anew = Cursor {
        stream_created: CREATED + 1,
        sequence: 2,
    };
    book(store, &[], &coverage, (Some(at(5)), anew))
        .await
        .expect("another stream, a lower place");
    assert_eq!(store.cursor().await.expect("cursor"), Some(anew));
}

/// Marks stop before a hole and go on when it is filled, by the event itself or by a declared loss.
pub(crate) async fn marks_stop_before_holes(store: &dyn Store) {
    let refused = LimitRefused {
        tenant: "acme".into(),
        key_id: "key-1".into(),
        code: FailureCode::QpsExceeded,
        minute: NOON,
        count: 3,
        node: "node-1".into(),
    };
    apply(
        store,
        &[record(1, settled(1)), record(2, refused), record(5, settled(5))],
    )
    .await
    .expect("apply");
    let coverage = store.coverage().await.expect("coverage");
    assert_eq!((coverage.mark(SOURCE), coverage.missing()), (2, 2));

    apply(store, &[record(3, settled(3))]).await.expect("apply");
    assert_eq!(store.coverage().await.expect("coverage").mark(SOURCE), 3);

    let gone = SpoolLost {
        spool: SpoolId::from("spool-a"),
        from: 4,
        to: 4,
        cause: "checksum".to_owned(),
    };
    apply(store, &[record(7, gone)]).await.expect("apply");
    let coverage = store.coverage().await.expect("coverage");
    assert_eq!((coverage.mark(SOURCE), coverage.missing()), (5, 1));
}

/// Following `next` walks every row once, newest first, also while rows are added.
pub(crate) async fn pages_walk_every_row_once(store: &dyn Store) {
    let records: Vec<Record> = (1..=20).map(|n| record(n, settled(n))).collect();
    apply(store, &records).await.expect("apply");

    let mut walked = Vec::new();
    let mut after = None;
    for round in 0u64.. {
        let page = store
            .logs(&LogsQuery {
                filter: LogFilter::default(),
                limit: 3,
                after,
            })
            .await
            .expect("a page");
        walked.extend(page.data.iter().map(|row| row.settled.request_id));
        apply(store, &[record(100 + round, settled(100 + round))])
            .await
            .expect("apply");
        after = page.next;
        if after.is_none() {
            break;
        }
    }

    let expected: Vec<RequestId> = (1..=20).rev().map(fixture::request_id).collect();
    assert_eq!(walked, expected);
}

/// A page that holds the last row has no next, also when it is full.
pub(crate) async fn a_full_last_page_has_no_next(store: &dyn Store) {
    apply(store, &[record(1, settled(1)), record(2, settled(2))])
        .await
        .expect("apply");

    let page = store
        .logs(&LogsQuery {
            filter: LogFilter::default(),
            limit: 2,
            after: None,
        })
        .await
        .expect("a page");

    assert_eq!((page.data.len(), page.next), (2, None));
}

/// An hour after [`NOON`].
const LATE: Timestamp = NOON.plus_micros(3_600_000_000);

/// Three rows: served, another tenant's an hour later, lost.
async fn apply_three(store: &dyn Store) {
    let mut other = full(2);
    other.tenant = "zeta".into();
    other.key_id = "key-2".into();
    other.model = "other".into();
    other.served_model = Some("another-8b".into());
    other.endpoint_id = Some("other:remote".into());
    other.started_at = LATE;
    apply(
        store,
        &[record(1, settled(1)), record(2, other), record(3, lost(3))],
    )
    .await
    .expect("apply");
}

/// The numbers of the rows that a filter selects.
async fn selected(store: &dyn Store, set: impl FnOnce(&mut LogFilter)) -> Vec<u64> {
    let mut filter = LogFilter::default();
    set(&mut filter);
    let page = store
        .logs(&LogsQuery {
            filter,
            limit: 10,
            after: None,
        })
        .await
        .expect("a page");
    let number = |id: RequestId| {
        (1..=3)
            .find(|n| fixture::request_id(*n) == id)
            .expect("one of three")
    };
    page.data
        .iter()
        .map(|row| number(row.settled.request_id))
        .collect()
}

/// Every field of a filter selects.
pub(crate) async fn filters_select_rows(store: &dyn Store) {
    apply_three(store).await;

    assert_eq!(selected(store, |_| ()).await, [3, 2, 1]);
    assert_eq!(selected(store, |by| by.tenant = Some("zeta".into())).await, [2]);
    assert_eq!(selected(store, |by| by.user = Some("user-1".into())).await, [2]);
    assert_eq!(selected(store, |by| by.key = Some("key-1".into())).await, [3, 1]);
    assert_eq!(selected(store, |by| by.model = Some("other".into())).await, [2]);
    let served = selected(store, |by| by.served_model = Some("another-8b".to_owned()));
    assert_eq!(served.await, [2]);
    assert_eq!(
        selected(store, |by| by.job = Some("job \u{1F600}".into())).await,
        [2]
    );
    assert_eq!(
        selected(store, |by| by.endpoint = Some("org/model:local".into())).await,
        [1]
    );
    assert_eq!(selected(store, |by| by.outcome = Some(Outcome::Ok)).await, [1]);
    assert_eq!(selected(store, |by| by.outcome = Some(Outcome::Lost)).await, [3]);
    assert_eq!(selected(store, |by| by.status = Some(499)).await, [2]);
    assert_eq!(
        selected(store, |by| by.request_id = Some(fixture::request_id(3))).await,
        [3]
    );
}

/// All fields of a filter must hold, and what they hold is never taken for more than a value.
pub(crate) async fn filters_are_joined(store: &dyn Store) {
    apply_three(store).await;

    assert_eq!(selected(store, |by| by.from = Some(LATE)).await, [2]);
    assert_eq!(selected(store, |by| by.to = Some(LATE)).await, [3, 1]);
    let within = |by: &mut LogFilter| {
        by.from = Some(NOON.plus_micros(2_000));
        by.to = Some(LATE);
    };
    assert_eq!(selected(store, within).await, [3]);
    let neither = |by: &mut LogFilter| {
        by.tenant = Some("zeta".into());
        by.status = Some(200);
    };
    assert_eq!(selected(store, neither).await, [0; 0]);
    assert_eq!(
        selected(store, |by| by.tenant = Some("' OR 1=1 --".into())).await,
        [0; 0]
    );
}

/// One request comes with the envelope of the event that stands, and only to whom it belongs.
pub(crate) async fn a_request_comes_with_its_event(store: &dyn Store) {
    apply(store, &[record(1, lost(1)), record(2, settled(1))])
        .await
        .expect("apply");
    let query = LogQuery {
        request_id: fixture::request_id(1),
        tenant: Some("acme".into()),
        key: None,
    };

    let answer = store.log(&query).await.expect("an answer");

    let event = answer.event.expect("the event");
    assert_eq!(event.get().as_bytes(), fixture::envelope(SOURCE, 2, settled(1)));
    assert_eq!(answer.row.expect("the row").settled, settled(1));
    for foreign in [
        LogQuery {
            tenant: Some("zeta".into()),
            ..query.clone()
        },
        LogQuery {
            key: Some("key-9".into()),
            ..query.clone()
        },
        LogQuery {
            request_id: fixture::request_id(9),
            ..query
        },
    ] {
        let answer = store.log(&foreign).await.expect("an answer");
        assert!(answer.row.is_none() && answer.event.is_none());
    }
}

/// What cannot be understood is kept once and changes nothing else.
pub(crate) async fn what_is_not_understood_is_kept(store: &dyn Store) {
    let payloads = ["not json", "{\"specversion\":\"1.0\"}", ""].map(bytes::Bytes::from);
    let mut records: Vec<Record> = payloads
        .into_iter()
        .zip(1..)
        .map(|(payload, n)| Record::read(&fixture::stored(n, payload)))
        .collect();
    let binary = bytes::Bytes::from_static(&[0xff, 0x00, 0xfe]);
    records.push(Record::read(&fixture::stored(4, binary)));
    let broken = String::from_utf8(fixture::envelope(SOURCE, 1, settled(1)).to_vec()).expect("text");
    let broken = broken.replace("\"outcome\":\"ok\"", "\"outcome\":\"splendid\"");
    records.push(Record::read(&fixture::stored(5, broken.into())));

    assert_eq!(apply(store, &records).await.expect("apply").events, 5);
    assert_eq!(apply(store, &records).await.expect("apply again").events, 0);

    assert_eq!(store.coverage().await.expect("coverage").mark(SOURCE), 1);
    assert_eq!(store.rebuild().await.expect("rebuild").events, 5);
    assert!(books(store).await.0.is_empty());
}

/// A rebuild gives the books that there were.
pub(crate) async fn a_rebuild_gives_the_same_books(store: &dyn Store) {
    let mut records: Vec<Record> = (1..=1_200).map(|n| record(n, settled(n % 700))).collect();
    records.extend((2_000..2_050).map(|n| record(n, lost(n - 1_400))));
    records.push(record(3_000, full(5_000)));
    for batch in records.rchunks(400) {
        apply(store, batch).await.expect("apply");
    }
    let before = books(store).await;

    let answer = store.rebuild().await.expect("rebuild");

    assert_eq!(answer.events, 1_251);
    assert_eq!(answer.rows, before.0.len() as u64);
    assert_eq!(books(store).await, before);
    let ids: BTreeSet<RequestId> = before.0.iter().map(|row| row.settled.request_id).collect();
    assert_eq!(ids.len(), before.0.len());
    assert_eq!(
        store.usage(&by_everything()).await.expect("usage"),
        sums_of(&before.0)
    );
}

/// A request is open from its acceptance to its first row, whichever comes first, and after a rebuild as before it.
pub(crate) async fn accepted_requests_are_open_until_they_have_a_row(store: &dyn Store) {
    let accepted = |n| lost(n).accepted;
    let open = async || {
        let open = store.open_requests(SOURCE, 10).await.expect("open requests");
        open.iter().map(|open| open.request_id).collect::<Vec<_>>()
    };
    let ids = |numbers: &[u64]| {
        numbers
            .iter()
            .map(|n| fixture::request_id(*n))
            .collect::<Vec<_>>()
    };
    assert!(store.open_sources().await.expect("sources").is_empty());

    let records = [
        record(1, accepted(3)),
        record(2, accepted(1)),
        record(3, settled(2)),
        record(4, accepted(2)),
        record(5, accepted(4)),
    ];
    apply(store, &records).await.expect("apply");
    assert_eq!(open().await, ids(&[1, 3, 4]));
    assert_eq!(*store.open_sources().await.expect("sources"), [SOURCE.into()]);
    assert_eq!(store.open_requests(SOURCE, 1).await.expect("one"), [accepted(1)]);
    assert!(
        store
            .open_requests("/waybill/main/other", 10)
            .await
            .expect("none")
            .is_empty()
    );

    apply(store, &[record(6, settled(1)), record(7, lost(3))])
        .await
        .expect("apply");
    apply(store, &records).await.expect("apply again");
    assert_eq!(open().await, ids(&[4]));

    store.rebuild().await.expect("rebuild");
    assert_eq!(open().await, ids(&[4]));
    apply(store, &[record(8, settled(4))]).await.expect("apply");
    assert!(store.open_sources().await.expect("sources").is_empty());
}
