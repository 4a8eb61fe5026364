//! Events by their places in their source.

use std::sync::Arc;

use crate::fixture::{SOURCE, apply, record, settled};
use crate::store::Store;

/// The events of a source are read from a place on, in order, a few at a time; those of others are not among them.
pub(crate) async fn events_of_a_source_are_read_in_order(store: &dyn Store) {
    let mut other = record(2, settled(9));
    other.source = "another".into();
    let records = [
        record(3, settled(3)),
        record(1, settled(1)),
        other,
        record(2, settled(2)),
    ];
    apply(store, &records).await.expect("apply");

    let read = async |place, most| {
        let events = store.events_after(SOURCE, place, most).await.expect("events");
        events
            .into_iter()
            .map(|event| event.source_sequence)
            .collect::<Vec<_>>()
    };
    assert_eq!(read(0, 10).await, [1, 2, 3]);
    assert_eq!(read(0, 2).await, [1, 2]);
    assert_eq!(read(2, 10).await, [3]);
    assert_eq!(read(3, 10).await, [0_u64; 0]);
}

/// Two events under one place of a source are both kept and told apart.
pub(crate) async fn a_place_that_is_given_twice_has_two_ids(store: &dyn Store) {
    let first = record(1, settled(1));
    let mut second = record(1, settled(2));
    second.event_id = "another".into();

    apply(store, &[first.clone(), record(2, settled(3))])
        .await
        .expect("apply");
    apply(store, std::slice::from_ref(&first))
        .await
        .expect("apply again");
    assert_eq!(
        store.event_ids(SOURCE, 1).await.expect("ids"),
        [Arc::clone(&first.event_id)]
    );
    apply(store, &[second]).await.expect("apply");

    let ids = store.event_ids(SOURCE, 1).await.expect("ids");
    assert_eq!(ids, [Arc::clone(&first.event_id), "another".into()]);
    assert_eq!(store.event_ids(SOURCE, 2).await.expect("ids").len(), 1);
    assert!(store.event_ids(SOURCE, 3).await.expect("ids").is_empty());
}
