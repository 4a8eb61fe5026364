//! Events in the order in which they were booked.

use crate::fixture::{SOURCE, apply, audited, full, lost, record, settled};
use crate::store::Store;

/// Events of requests that ended are read from a place on in the order of their booking, whatever their sources count,
/// of one tenant or of all; other events are passed over.
pub(crate) async fn what_is_booked_later_is_read_later(store: &dyn Store) {
    assert_eq!(store.last_place().await.expect("a place"), 0);
    assert!(store.booked(None, 0, 10).await.expect("events").is_empty());
    let first = [record(2, settled(1)), audited(8, (SOURCE, 1))];
    apply(store, &first).await.expect("apply");
    let between = store.last_place().await.expect("a place");
    let second = [record(3, full(2)), record(4, lost(3))];
    apply(store, &second).await.expect("apply");

    let read = async |tenant: Option<&str>, after, most| {
        let events = store.booked(tenant, after, most).await.expect("events");
        let places: Vec<u64> = events.iter().map(|(place, _)| *place).collect();
        assert!(
            places.is_sorted_by(|one, other| one < other) && places.iter().all(|place| *place > after),
            "{places:?} after {after}"
        );
        events
            .into_iter()
            .map(|(_, event)| event.event_id)
            .collect::<Vec<_>>()
    };
    let [one, _] = first.map(|record| record.event_id);
    let [two, three] = second.map(|record| record.event_id);
    assert_eq!(read(None, 0, 10).await, [one.clone(), two.clone(), three.clone()]);
    assert_eq!(read(None, 0, 2).await, [one, two.clone()]);
    assert_eq!(read(None, between, 10).await, [two, three]);
    let last = store.last_place().await.expect("a place");
    assert!(read(None, last, 10).await.is_empty());

    let all = store.booked(None, 0, 10).await.expect("events");
    let tenants: Vec<_> = all.iter().map(|(_, event)| event.subject.clone()).collect();
    for tenant in &tenants {
        let theirs = store.booked(Some(tenant), 0, 10).await.expect("events");
        assert!(theirs.iter().all(|(_, event)| event.subject == *tenant));
        let count = tenants.iter().filter(|other| *other == tenant).count();
        assert_eq!(theirs.len(), count);
    }
    assert!(
        store
            .booked(Some("nobody"), 0, 10)
            .await
            .expect("events")
            .is_empty()
    );
}
