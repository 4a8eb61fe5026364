//! What the books promise about sums of usage.

use schemas::id::RequestId;
use schemas::query::{GroupBy, Interval, LogFilter, UsageQuery};
use schemas::time::Timestamp;

use super::{Store, apply, by_everything, record, settled};

/// One request in each of three days of Kolkata, two in the second.
async fn apply_around_midnight(store: &dyn Store) {
    let at = |n: u64, text: &str, tenant: &str| {
        let mut row = settled(n);
        row.started_at = Timestamp::parse(text).expect("a time");
        row.request_id = minted(n, row.started_at);
        row.tenant = tenant.into();
        record(n, row)
    };
    let records = [
        at(1, "2026-03-01T18:29:59Z", "acme"),
        at(2, "2026-03-01T18:30:00Z", "acme"),
        at(3, "2026-03-02T18:29:59Z", "zeta"),
        at(4, "2026-03-02T18:30:00Z", "acme"),
    ];
    apply(store, &records).await.expect("apply");
}

/// What is asked about them: `from`, tenant and requests of every sum.
async fn usage(store: &dyn Store, set: impl FnOnce(&mut UsageQuery)) -> Vec<(String, String, u64)> {
    let mut query = UsageQuery {
        filter: LogFilter::default(),
        group_by: Vec::new(),
        interval: None,
        tz: "Asia/Kolkata".to_owned(),
    };
    set(&mut query);
    let sums = store.usage(&query).await.expect("usage");
    let text = |value: Option<String>| value.unwrap_or_default();
    sums.into_iter()
        .map(|sum| (text(sum.from), text(sum.tenant), sum.requests))
        .collect()
}

fn sum(from: &str, tenant: &str, requests: u64) -> (String, String, u64) {
    (from.to_owned(), tenant.to_owned(), requests)
}

/// Usage is grouped by what is asked, in the days of the time zone.
pub(crate) async fn usage_is_grouped(store: &dyn Store) {
    apply_around_midnight(store).await;

    let by_day = usage(store, |query| {
        query.group_by = vec![GroupBy::Tenant];
        query.interval = Some(Interval::Day);
    });
    assert_eq!(
        by_day.await,
        [
            sum("2026-03-01T00:00:00+05:30", "acme", 1),
            sum("2026-03-02T00:00:00+05:30", "acme", 1),
            sum("2026-03-02T00:00:00+05:30", "zeta", 1),
            sum("2026-03-03T00:00:00+05:30", "acme", 1),
        ]
    );
    let twice = usage(store, |query| {
        query.group_by = vec![GroupBy::Tenant, GroupBy::Tenant];
    });
    assert_eq!(twice.await, [sum("", "acme", 3), sum("", "zeta", 1)]);
    assert_eq!(usage(store, |_| ()).await, [sum("", "", 4)]);
}

/// Five requests that left the choice of a model, in three hours of Kolkata: one was answered by nobody.
async fn apply_left_to_the_gateway(store: &dyn Store) {
    let at = |n: u64, text: &str, served: Option<&str>| {
        let mut row = settled(n);
        row.started_at = Timestamp::parse(text).expect("a time");
        row.request_id = minted(n, row.started_at);
        row.model = "auto".into();
        row.served_model = served.map(Into::into);
        record(n, row)
    };
    let records = [
        at(1, "2026-03-01T18:29:59.999999Z", Some("small")),
        at(2, "2026-03-01T18:30:00Z", Some("small")),
        at(3, "2026-03-01T18:44:59Z", Some("large")),
        at(4, "2026-03-01T19:31:00Z", Some("small")),
        at(5, "2026-03-01T19:32:00Z", None),
    ];
    apply(store, &records).await.expect("apply");
}

/// Usage by the model that answered is that of the rows, in the hours of the time zone.
pub(crate) async fn usage_is_grouped_by_who_answered(store: &dyn Store) {
    apply_left_to_the_gateway(store).await;
    let sums = async |query: UsageQuery| {
        let sums = store.usage(&query).await.expect("usage");
        let text = |value: Option<String>| value.unwrap_or_default();
        sums.into_iter()
            .map(|sum| {
                (
                    text(sum.from),
                    text(sum.served_model),
                    sum.requests,
                    sum.cost_nano_usd,
                )
            })
            .collect::<Vec<_>>()
    };
    let query = UsageQuery {
        filter: LogFilter {
            model: Some("auto".into()),
            ..LogFilter::default()
        },
        group_by: vec![GroupBy::ServedModel],
        interval: None,
        tz: "Asia/Kolkata".to_owned(),
    };
    let cost = settled(1).cost_nano_usd.0;
    let sum = |from: &str, served: &str, requests: u64| {
        let cost = cost * i64::try_from(requests).expect("few");
        (from.to_owned(), served.to_owned(), requests, cost)
    };
    assert_eq!(
        sums(query.clone()).await,
        [sum("", "", 1), sum("", "large", 1), sum("", "small", 3)]
    );
    let hourly = UsageQuery {
        interval: Some(Interval::Hour),
        ..query.clone()
    };
    assert_eq!(
        sums(hourly).await,
        [
            sum("2026-03-01T23:00:00+05:30", "small", 1),
            sum("2026-03-02T00:00:00+05:30", "large", 1),
            sum("2026-03-02T00:00:00+05:30", "small", 1),
            sum("2026-03-02T01:00:00+05:30", "", 1),
            sum("2026-03-02T01:00:00+05:30", "small", 1),
        ]
    );
    let one = UsageQuery {
        filter: LogFilter {
            served_model: Some("small".to_owned()),
            from: Timestamp::parse("2026-03-01T18:30:00Z"),
            ..LogFilter::default()
        },
        group_by: Vec::new(),
        ..query
    };
    assert_eq!(sums(one).await, [sum("", "", 2)]);
}

/// Usage is of the requests that were asked for.
pub(crate) async fn usage_is_bounded(store: &dyn Store) {
    apply_around_midnight(store).await;

    let within = usage(store, |query| {
        query.filter.from = Timestamp::parse("2026-03-01T18:31:00Z");
        query.filter.to = Timestamp::parse("2026-03-02T18:30:00Z");
    });
    assert_eq!(within.await, [sum("", "", 1)]);
    assert_eq!(
        usage(store, |query| query.filter.tenant = Some("zeta".into())).await,
        [sum("", "", 1)]
    );
    assert_eq!(
        usage(store, |query| query.filter.model = Some("none".into())).await,
        []
    );
}

/// Usage has every request from the first moment on and none of the last one, wherever these are in their 15 minutes.
pub(crate) async fn usage_is_exact_to_the_instant(store: &dyn Store) {
    apply_around_midnight(store).await;
    let spans = [
        ("2026-03-01T18:29:59Z", "2026-03-02T18:30:00Z", 3),
        ("2026-03-01T18:29:59.000001Z", "2026-03-02T18:29:59Z", 1),
        ("2026-03-02T18:29:59Z", "2026-03-02T18:30:00.000001Z", 2),
        ("2026-03-01T18:29:58Z", "2026-03-01T18:30:01Z", 2),
        ("2026-03-01T18:30:00Z", "2026-03-01T18:30:00.000001Z", 1),
        ("2026-03-01T18:29:59Z", "2026-03-01T18:29:59.000001Z", 1),
    ];
    for (from, to, requests) in spans {
        let of_span = |query: &mut UsageQuery| {
            query.filter.from = Timestamp::parse(from);
            query.filter.to = Timestamp::parse(to);
        };
        assert_eq!(
            usage(store, of_span).await,
            [sum("", "", requests)],
            "{from} to {to}"
        );
    }
    let one_sided = |from: Option<&str>, to: Option<&str>| {
        let (from, to) = (from.and_then(Timestamp::parse), to.and_then(Timestamp::parse));
        usage(store, move |query| {
            (query.filter.from, query.filter.to) = (from, to);
        })
    };
    let (noon, second) = ("2026-03-01T18:29:59.5Z", "2026-03-02T18:29:59Z");
    assert_eq!(one_sided(Some(noon), None).await, [sum("", "", 3)]);
    assert_eq!(one_sided(None, Some(second)).await, [sum("", "", 2)]);
    assert_eq!(one_sided(Some(second), Some(second)).await, []);
    assert_eq!(one_sided(Some(second), Some(noon)).await, []);

    let by_day = usage(store, |query| {
        query.group_by = vec![GroupBy::Tenant, GroupBy::User];
        query.interval = Some(Interval::Day);
        query.filter.from = Timestamp::parse(noon);
        query.filter.to = Timestamp::parse("2026-03-02T18:30:00.5Z");
    });
    assert_eq!(
        by_day.await,
        [
            sum("2026-03-02T00:00:00+05:30", "acme", 1),
            sum("2026-03-02T00:00:00+05:30", "zeta", 1),
            sum("2026-03-03T00:00:00+05:30", "acme", 1),
        ]
    );
    let figures = async |from: &str, to: &str| {
        let mut query = by_everything();
        query.interval = None;
        query.filter.from = Timestamp::parse(from);
        query.filter.to = Timestamp::parse(to);
        let mut sums = store.usage(&query).await.expect("usage");
        sums.retain(|sum| sum.tenant.as_deref() == Some("acme"));
        sums
    };
    assert_eq!(
        figures("2026-03-01T18:29:59Z", "2026-03-01T18:29:59.5Z").await,
        figures("2026-03-01T18:15:00Z", "2026-03-01T18:30:00Z").await,
        "rows add up to what is kept of them"
    );
}

/// The id of a request that was admitted then.
fn minted(n: u64, at: Timestamp) -> RequestId {
    let millis = u128::try_from(at.millis()).expect("after 1970");
    RequestId(uuid::Uuid::from_u128(
        millis << 80 | 7 << 76 | 2 << 62 | u128::from(n),
    ))
}
