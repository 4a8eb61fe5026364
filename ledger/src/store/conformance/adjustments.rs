//! Adjustments, and what sums make of them.

use schemas::event::ledger::Adjusted;
use schemas::query::{Adjustments, GroupBy, LogFilter, UsageQuery, UsageRow};
use schemas::time::Timestamp;

use crate::fixture::{adjusted, apply, by_everything, envelope, full, record, request_id, settled, stored};
use crate::record::Record;
use crate::store::Store;

/// An adjustment from another source than the others.
fn from(source: &str, place: u64, fact: Adjusted) -> Record {
    Record::read(&stored(place, envelope(source, place, fact)))
}

async fn sums(store: &dyn Store, query: UsageQuery) -> Vec<UsageRow> {
    store.usage(&query).await.expect("sums")
}

fn all(group_by: Vec<GroupBy>) -> UsageQuery {
    UsageQuery {
        group_by,
        interval: None,
        ..by_everything()
    }
}

/// Of all adjustments at one place the least stands, in whatever order and however often they come; sums tell them apart
/// and in total, and a rebuild gives the same.
pub(crate) async fn adjustments_are_booked_once_and_told_apart(store: &dyn Store) {
    let rows = [record(1, settled(1)), record(2, full(2)), record(3, settled(3))];
    apply(store, &rows).await.expect("apply");
    let first = record(4, adjusted(&settled(1), (1, 0), 500));
    let second = record(5, adjusted(&settled(1), (2, 500), -700));
    let of_full = record(6, adjusted(&full(2), (1, 0), 11));
    // Two that were told at once: the one of the least origin counts.
    let beside = from("/waybill/main/zz", 1, adjusted(&settled(1), (1, 0), 9_999));
    for batch in [
        vec![beside.clone(), second.clone()],
        vec![first.clone(), beside.clone(), of_full],
        vec![beside, second, first],
    ] {
        apply(store, &batch).await.expect("apply");
    }

    let ids = [request_id(1), request_id(2), request_id(3)];
    let read = async |what: &str| {
        let known = store.adjusted(&ids).await.expect("adjustments");
        assert_eq!(known.len(), 2, "{what}");
        assert_eq!(
            known[&request_id(1)],
            Adjustments {
                last: 2,
                amount_nano_usd: -200
            },
            "{what}"
        );
        let day = settled(1).waybill_day;
        assert_eq!(
            store.adjusted_days().await.expect("days"),
            [(day, "acme".into(), 3)]
        );
        let page = store.day_adjustments(("acme", day), None, 2).await.expect("two");
        let last = &page[1].adjusted;
        assert_eq!((last.request_id, last.number), (request_id(1), 2));
        let after = Some((last.request_id, last.number));
        let rest = store.day_adjustments(("acme", day), after, 2).await.expect("one");
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].adjusted, adjusted(&full(2), (1, 0), 11), "{what}");

        let [sum] = &*sums(store, all(vec![])).await else {
            panic!("one sum");
        };
        assert_eq!(
            (
                sum.requests,
                sum.cost_nano_usd,
                sum.adjusted_nano_usd,
                sum.total_nano_usd
            ),
            (3, 3 * 178_000, -189, 3 * 178_000 - 189),
            "{what}"
        );
    };
    read("as they came").await;
    store.rebuild().await.expect("a rebuild");
    read("rebuilt").await;

    sums_of_every_kind_hold_them(store).await;
}

async fn sums_of_every_kind_hold_them(store: &dyn Store) {
    let amounts = |rows: &[UsageRow]| -> Vec<(String, i64, i64)> {
        let told = rows.iter();
        told.map(|row| {
            let name = row.user.clone().or_else(|| row.served_model.clone());
            (name.unwrap_or_default(), row.cost_nano_usd, row.adjusted_nano_usd)
        })
        .collect()
    };
    let by_user = sums(store, all(vec![GroupBy::User])).await;
    assert_eq!(
        amounts(&by_user),
        [(String::new(), 356_000, -200), ("user-1".to_owned(), 178_000, 11)]
    );
    let by_served = sums(store, all(vec![GroupBy::ServedModel])).await;
    assert_eq!(amounts(&by_served), [("model-8b".to_owned(), 534_000, -189)]);
    let hours = sums(store, by_everything()).await;
    assert_eq!(hours.iter().map(|row| row.adjusted_nano_usd).sum::<i64>(), -189);
    assert_eq!(hours.len(), 2);

    // To the instant: the second request alone.
    let within = |from: Timestamp, to: Timestamp| UsageQuery {
        filter: LogFilter {
            from: Some(from),
            to: Some(to),
            ..LogFilter::default()
        },
        ..all(vec![])
    };
    let one = sums(store, within(settled(2).started_at, settled(3).started_at)).await;
    assert_eq!(amounts(&one), [(String::new(), 178_000, 11)]);
    let nobody = UsageQuery {
        filter: LogFilter {
            tenant: Some("beta".into()),
            ..LogFilter::default()
        },
        ..all(vec![])
    };
    assert!(sums(store, nobody).await.is_empty());
}
