//! Events of changes.

use crate::fixture::{SOURCE, apply, audited, record, settled};
use crate::store::{AuditRange, Store};

/// Changes are read from the highest id on, each once although it was told twice, of one tenant or of all.
pub(crate) async fn changes_are_read_by_their_ids(store: &dyn Store) {
    let records = [
        audited(3, (SOURCE, 1)),
        audited(8, (SOURCE, 2)),
        record(3, settled(1)),
        audited(7, (SOURCE, 4)),
        audited(7, ("another", 4)),
    ];
    apply(store, &records).await.expect("apply");
    let [third, eighth, _, seventh, _] = records.map(|record| record.event_id);

    let read = async |range: AuditRange, most| {
        let events = store.audits(&range, most).await.expect("events");
        events.into_iter().map(|event| event.event_id).collect::<Vec<_>>()
    };
    let all = AuditRange::default();
    assert_eq!(
        read(all.clone(), 10).await,
        [eighth.clone(), seventh.clone(), third.clone()]
    );
    assert_eq!(read(all.clone(), 2).await, [eighth.clone(), seventh.clone()]);
    let below = AuditRange {
        below: Some(eighth.clone()),
        ..all.clone()
    };
    assert_eq!(read(below, 10).await, [seventh.clone(), third.clone()]);
    let least = AuditRange {
        least: Some(seventh.clone()),
        ..all.clone()
    };
    assert_eq!(read(least, 10).await, [eighth.clone(), seventh.clone()]);
    let of = |tenant: &str| AuditRange {
        tenant: Some(tenant.into()),
        ..all.clone()
    };
    assert_eq!(read(of("beta"), 10).await, [third]);
    assert_eq!(read(of("acme"), 10).await, [eighth, seventh]);
    assert!(read(of("nobody"), 10).await.is_empty());
}
