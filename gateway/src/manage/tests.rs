//! Tests of parameters, scopes and grants.

use std::sync::Arc;

use schemas::catalog::tenant::tenant_key;
use schemas::catalog::{Catalog, Key, Origin};
use schemas::id::{KeyId, TenantId, UserId};
use schemas::limit::limits::LimitKey;
use schemas::outcome::Outcome;
use schemas::query::{GroupBy, Interval};
use schemas::time::Timestamp;

use super::*;

pub(super) fn caller(role: Role) -> Caller {
    let key = Key {
        id: KeyId::from("k1"),
        name: "k1".into(),
        tenant: TenantId::from("acme"),
        user: None,
        role,
        models: None,
        limits: schemas::limit::limits::Limits::default(),
        output_default_max: None,
        expires_at: None,
        revoked: false,
        created_at: Timestamp::default(),
        origin: Origin::File,
        prefix: "".into(),
        reach: schemas::catalog::grant::Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: Some(Role::Operator),
        maker: None,
        seen_by: None,
    };
    Caller { key: Arc::new(key) }
}

pub(super) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// A member who signed in.
pub(super) fn session(user: &str, role: Role) -> Caller {
    let key = Key {
        id: KeyId::new(format!("session:acme/{user}")),
        user: Some(UserId::from(user)),
        ..Key::clone(&caller(role).key)
    };
    Caller { key: Arc::new(key) }
}

#[test]
fn whoever_signed_in_reads_what_his_keys_did_and_nobody_elses() {
    let asked = |given: &[(&str, &str)], caller: &Caller| {
        let query = logs::query(&pairs(given), caller).map_err(|refused| refused.param);
        query.map(|query| (query.filter.user, query.filter.key))
    };
    let (ann, bob) = (UserId::from("ann"), UserId::from("bob"));

    let own = session("ann", Role::Internal);
    assert_eq!(asked(&[], &own), Ok((Some(ann.clone()), None)));
    let of_key = asked(&[("key", "key-1"), ("user", "ann")], &own);
    assert_eq!(of_key, Ok((Some(ann), Some(KeyId::from("key-1")))));
    assert_eq!(asked(&[("user", "bob")], &own), Err(Some("user".into())));
    assert_eq!(asked(&[("tenant", "other")], &own), Err(Some("tenant".into())));
    let administrator = session("ann", Role::Admin);
    assert_eq!(asked(&[("user", "bob")], &administrator), Ok((Some(bob), None)));
}

#[test]
fn a_page_of_the_log_is_asked_for_by_its_parameters() {
    let given = pairs(&[
        ("limit", "10"),
        ("outcome", "client_gone"),
        ("status", "499"),
        ("from", "2026-11-30T00:00:00Z"),
        ("tenant", "umbrella"),
    ]);

    let query = logs::query(&given, &caller(Role::Operator)).expect("a query");

    assert_eq!(query.limit, 10);
    assert_eq!(query.filter.outcome, Some(Outcome::ClientGone));
    assert_eq!(query.filter.status, Some(499));
    assert_eq!(query.filter.from, Timestamp::parse("2026-11-30T00:00:00Z"));
    assert_eq!(query.filter.tenant, Some(TenantId::from("umbrella")));
}

#[test]
fn a_parameter_that_is_unknown_or_out_of_range_is_named() {
    for (name, value) in [
        ("limit", "0"),
        ("limit", "1001"),
        ("after", "x"),
        ("outcome", "fine"),
        ("from", "yesterday"),
        ("color", "red"),
    ] {
        let failure = logs::query(&pairs(&[(name, value)]), &caller(Role::Operator)).expect_err("refused");
        assert_eq!(
            (failure.status, failure.param.as_deref()),
            (400, Some(name)),
            "{name}={value}"
        );
    }
}

#[test]
fn members_read_their_key_administrators_their_tenant_and_operators_all() {
    let filter = |role| logs::query(&[], &caller(role)).expect("a query").filter;

    assert_eq!(filter(Role::Operator), LogFilter::default());
    assert_eq!(filter(Role::Admin).tenant, Some(TenantId::from("acme")));
    assert_eq!(filter(Role::Admin).key, None);
    assert_eq!(filter(Role::Pro).key, Some(KeyId::from("k1")));
}

#[test]
fn nobody_reads_what_is_not_his() {
    let other_tenant = pairs(&[("tenant", "umbrella")]);
    let other_key = pairs(&[("key", "k2")]);

    let failure = logs::query(&other_tenant, &caller(Role::Admin)).expect_err("refused");
    assert_eq!(
        (failure.status, failure.code),
        (403, FailureCode::InsufficientScope)
    );
    assert_eq!(
        logs::query(&other_key, &caller(Role::Free))
            .expect_err("refused")
            .status,
        403
    );
    assert!(logs::query(&other_key, &caller(Role::Admin)).is_ok());
}

/// Tuesday, 2026-12-01, half an hour past three in the morning at Greenwich.
const NOW: Timestamp = Timestamp::from_micros(1_796_095_800_000_000);

#[test]
fn sums_of_a_period_begin_with_it_in_the_time_zone() {
    let from = |given: &[(&str, &str)], zone| {
        let query = usage::query(&pairs(given), &caller(Role::Operator), (zone, NOW)).expect("a query");
        query.filter.from.map(|from| from.to_string())
    };
    let seoul = chrono_tz::Asia::Seoul;

    for (period, zone, expected) in [
        ("today", chrono_tz::UTC, "2026-12-01T00:00:00.000000Z"),
        ("week", chrono_tz::UTC, "2026-11-30T00:00:00.000000Z"),
        ("month", chrono_tz::UTC, "2026-12-01T00:00:00.000000Z"),
        ("today", seoul, "2026-11-30T15:00:00.000000Z"),
        ("week", seoul, "2026-11-29T15:00:00.000000Z"),
        (
            "today",
            chrono_tz::America::New_York,
            "2026-11-30T05:00:00.000000Z",
        ),
        (
            "month",
            chrono_tz::America::New_York,
            "2026-11-01T04:00:00.000000Z",
        ),
    ] {
        assert_eq!(
            from(&[("period", period)], zone).as_deref(),
            Some(expected),
            "{period} {zone}"
        );
    }
    assert_eq!(from(&[("period", "all")], seoul), None);
    let named = from(&[("tz", "Asia/Seoul"), ("period", "today")], chrono_tz::UTC);
    assert_eq!(named.as_deref(), Some("2026-11-30T15:00:00.000000Z"));
}

#[test]
fn sums_are_asked_for_by_groups_buckets_and_zone() {
    let given = pairs(&[
        ("group_by", "tenant, model"),
        ("interval", "day"),
        ("tz", "Asia/Seoul"),
    ]);

    let query = usage::query(&given, &caller(Role::Operator), (chrono_tz::UTC, NOW)).expect("a query");

    assert_eq!(query.group_by, [GroupBy::Tenant, GroupBy::Model]);
    assert_eq!((query.interval, &*query.tz), (Some(Interval::Day), "Asia/Seoul"));
    let plain =
        usage::query(&[], &caller(Role::Operator), (chrono_tz::America::New_York, NOW)).expect("a query");
    assert_eq!((plain.interval, &*plain.tz), (None, "America/New_York"));
}

#[test]
fn sums_refuse_filters_of_single_rows_and_unknown_words() {
    for (name, value) in [
        ("status", "200"),
        ("request_id", "00000000-0000-0000-0000-000000000000"),
        ("group_by", "tenant,color"),
        ("group_by", "tenant,tenant"),
        ("interval", "week"),
        ("tz", "Mars/Olympus"),
        ("period", "year"),
    ] {
        let refused = usage::query(
            &pairs(&[(name, value)]),
            &caller(Role::Operator),
            (chrono_tz::UTC, NOW),
        );
        let failure = refused.expect_err("refused");
        assert_eq!(
            (failure.status, failure.param.as_deref()),
            (400, Some(name)),
            "{name}={value}"
        );
    }
    let both = pairs(&[("period", "today"), ("to", "2026-12-01T00:00:00Z")]);
    let refused = usage::query(&both, &caller(Role::Operator), (chrono_tz::UTC, NOW));
    assert_eq!(refused.expect_err("refused").param.as_deref(), Some("period"));
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for name in ["acme", "umbrella"] {
        let value = format!(r#"{{"id":"{name}","origin":"file"}}"#);
        catalog
            .apply(1, &tenant_key(&TenantId::from(name)), Some(value.as_bytes()))
            .expect("apply");
    }
    catalog
}

fn grant(role: Role, body: &str) -> Result<crate::key::Grant, Failure> {
    keys::grant(
        &caller(role),
        &catalog(),
        description::read(body.as_bytes(), keys::WANTED)?,
    )
}

#[test]
fn an_administrator_mints_keys_of_his_tenant() {
    let granted = grant(Role::Admin, r#"{"name":"ci","user":"alice","role":"pro"}"#).expect("granted");

    assert_eq!(granted.tenant, TenantId::from("acme"));
    assert_eq!(granted.role, Role::Pro);
    assert_eq!(&*granted.name, "ci");
}

#[test]
fn nobody_grants_more_than_he_has() {
    let refused = |role, body| {
        let failure = grant(role, body).expect_err("refused");
        (failure.status, failure.param)
    };

    assert_eq!(refused(Role::Pro, r#"{"name":"ci"}"#), (403, None));
    assert_eq!(
        refused(Role::Admin, r#"{"name":"ci","role":"operator"}"#),
        (403, Some("role".into()))
    );
    assert_eq!(
        refused(Role::Admin, r#"{"name":"ci","tenant":"umbrella"}"#),
        (403, Some("tenant".into()))
    );
    assert_eq!(
        refused(Role::Operator, r#"{"name":"ci","tenant":"nowhere"}"#),
        (400, Some("tenant".into()))
    );
    assert_eq!(
        refused(Role::Operator, r#"{"name":"ci","models":["m"]}"#),
        (400, Some("models".into()))
    );
    assert!(grant(Role::Operator, r#"{"name":"ci","tenant":"umbrella"}"#).is_ok());
}

#[test]
fn what_is_no_limit_and_unknown_fields_are_refused_by_name_rather_than_ignored() {
    let refused = |body| {
        let failure = grant(Role::Admin, body).expect_err("refused");
        (failure.status, failure.param)
    };

    assert_eq!(
        refused(r#"{"name":"ci","limits":{"qqs":1}}"#),
        (400, Some("limits.qqs".into()))
    );
    assert_eq!(
        refused(r#"{"name":"ci","limits":{"per_model":{"m":{"daily_usd":0.5}}}}"#),
        (400, Some("limits.per_model.m.daily_usd".into()))
    );
    assert_eq!(
        refused(r#"{"name":"ci","limits":5}"#),
        (400, Some("limits".into()))
    );
    assert_eq!(
        refused(r#"{"name":"ci","output_default_max":10000001}"#),
        (400, Some("output_default_max".into()))
    );
    assert_eq!(
        refused(r#"{"name":"ci","budget":1}"#),
        (400, Some("budget".into()))
    );
    assert_eq!(refused(r#"{"role":"free"}"#), (400, Some("name".into())));
    assert_eq!(refused("{"), (400, Some("body".into())));
    assert!(grant(Role::Admin, r#"{"name":"ci","limits":{}}"#).is_ok());
}

#[test]
fn a_key_is_minted_with_limits_of_its_own() {
    let body = r#"{"name":"ci","limits":{"rpm":60,"daily_usd":"1.50"},"output_default_max":200}"#;

    let granted = grant(Role::Admin, body).expect("granted");

    assert_eq!(granted.limits.own.written(LimitKey::Rpm), Some(60));
    assert_eq!(
        granted.limits.own.written(LimitKey::DailyUsd),
        Some(1_500_000_000)
    );
    assert_eq!(granted.output_default_max, Some(200));
    let unbounded = grant(Role::Admin, r#"{"name":"ci","output_default_max":0}"#).expect("granted");
    assert_eq!(
        (unbounded.limits.is_empty(), unbounded.output_default_max),
        (true, None)
    );
}
