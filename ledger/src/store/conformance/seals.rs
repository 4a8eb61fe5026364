//! Seals, and the rows that they are over.

use chrono::Days;
use schemas::digest::Digest;
use schemas::event::ledger::Sealed;
use schemas::money::NanoUsd;

use crate::fixture::{NOON, apply, full, lost, record, request_id, settled};
use crate::store::Store;

fn seal(part: u32) -> Sealed {
    Sealed {
        format: 1,
        tenant: "acme".into(),
        day: NOON.day(),
        part,
        rows: 1,
        sum_nano_usd: NanoUsd(1),
        adjustments: 0,
        adjusted_nano_usd: NanoUsd::ZERO,
        root: Digest([7; 32]),
        through: [("a".to_owned(), 1)].into(),
        previous: None,
        sealed_at: NOON,
        node: "node-1".into(),
    }
}

/// Seals are read in the order of the books; a day's rows by tenant and in pages by id.
pub(crate) async fn seals_and_the_rows_of_a_day_are_read_in_order(store: &dyn Store) {
    let records = [
        record(6, seal(2)),
        record(5, seal(1)),
        record(3, full(3)),
        record(1, settled(1)),
        record(2, lost(2)),
    ];
    apply(store, &records).await.expect("apply");

    let seals = async |tenant| {
        let events = store.seals(tenant).await.expect("seals");
        events
            .iter()
            .map(|event| event.source_sequence)
            .collect::<Vec<_>>()
    };
    assert_eq!(seals(None).await, [6, 5]);
    assert_eq!(seals(Some("acme")).await, [6, 5]);
    assert!(seals(Some("beta")).await.is_empty());

    let day = NOON.day();
    assert_eq!(
        store.rows_of_day(day).await.expect("counts"),
        [("acme".into(), 2)]
    );
    let next = day + Days::new(1);
    assert!(store.rows_of_day(next).await.expect("counts").is_empty());

    let page = store.day_rows(("acme", day), None, 2).await.expect("rows");
    let ids: Vec<_> = page.iter().map(|row| row.row.settled.request_id).collect();
    assert_eq!(ids, [request_id(1), request_id(2)]);
    assert_eq!(
        page.iter().map(|row| row.provisional).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(page[0].event_id, records[3].event_id);
    let rest = store
        .day_rows(("acme", day), Some(request_id(2)), 2)
        .await
        .expect("rows");
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].row.settled, full(3));
    assert!(
        store
            .day_rows(("beta", day), None, 9)
            .await
            .expect("rows")
            .is_empty()
    );
    assert!(
        store
            .day_rows(("acme", next), None, 9)
            .await
            .expect("rows")
            .is_empty()
    );
}
