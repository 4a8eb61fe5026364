//! Which role may write and read which bucket.

use std::sync::Arc;
use std::time::Duration;

use bus::counter::{Counters, Slice};
use bus::nats::Nats;
use bus::{Expected, Kv};
use schemas::subject;

use super::super::server::Server;
use super::{assert_refused, command, one, role};

#[tokio::test]
async fn limits_are_the_gateways() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;

    // What a node that is gone holds of quotas the ledger gives back.
    for (nats, slots, quotas) in [
        (&gateway, true, true),
        (&ledger, false, true),
        (&router, false, false),
        (&health, false, false),
    ] {
        for (bucket, is_its) in [(subject::SLOT_BUCKET, slots), (subject::QUOTA_BUCKET, quotas)] {
            let put = nats.put(bucket, "acme.t.x", one(), Expected::Any).await;
            if is_its {
                put.expect("a limit");
                nats.watch(bucket).await.expect("limits");
            } else {
                assert_refused(put, &format!("$KV.{bucket}.acme.t.x"));
            }
        }
    }
    gateway
        .get(subject::SLOT_BUCKET, "acme.t.x")
        .await
        .expect("slots");
    gateway.since(Slice::Second).await.expect("counters");
}

#[tokio::test]
async fn what_is_found_out_about_backends_is_written_by_whoever_looks_after_health() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;
    let (bucket, life) = (subject::HEALTH_BUCKET, Duration::from_mins(1));

    for key in [
        subject::health::LEADER,
        "sample.1",
        "probed.1",
        "recovered.1",
        "host.1",
    ] {
        let put = health.put_for((bucket, key), one(), Expected::Any, life).await;
        put.unwrap_or_else(|problem| panic!("{key}: {problem}"));
        // A router tells that a backend is back, a gateway what it is told of hosts.
        for (nats, may) in [
            (&router, key == "probed.1"),
            (&gateway, key == "host.1"),
            (&ledger, false),
        ] {
            let put = nats.put(bucket, key, one(), Expected::Any).await;
            if may {
                put.unwrap_or_else(|problem| panic!("{key}: {problem}"));
            } else {
                assert_refused(put, &format!("$KV.wb_health.{key}"));
            }
        }
    }
    let found = health.get(bucket, subject::health::LEADER).await;
    assert!(found.expect("who leads").is_some());
    for nats in [&health, &router] {
        nats.watch(bucket).await.expect("what is found out");
    }
    let put = health.put(subject::CATALOG_BUCKET, "endpoint.1", one(), Expected::Any);
    assert_refused(put.await, "$KV.wb_catalog.endpoint.1");
}

#[tokio::test]
async fn accounts_are_for_gateways_alone() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;
    let life = Duration::from_mins(1);

    for (bucket, key) in [
        (subject::ACCOUNT_BUCKET, subject::account::SETUP),
        (subject::ATTEMPT_BUCKET, "email.1"),
    ] {
        let put = gateway.put_for((bucket, key), one(), Expected::Absent, life);
        put.await.expect("a gateway keeps accounts");
        let got = gateway.get(bucket, key).await;
        assert!(got.expect("a gateway reads accounts").is_some());
        for nats in [&ledger, &router, &health] {
            let put = nats.put(bucket, key, one(), Expected::Any).await;
            assert_refused(put, &format!("$KV.{bucket}.{key}"));
            let got = nats.get(bucket, key).await;
            assert_refused(got, &format!("KV_{bucket}"));
            assert!(nats.watch(bucket).await.is_err(), "{bucket}");
        }
    }
    let mut changes = gateway.watch(subject::ACCOUNT_BUCKET).await.expect("a watch");
    assert!(changes.recv().await.is_some());
}

#[tokio::test]
async fn gateways_and_routers_remember_sessions_and_nobody_else_does() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;
    let (bucket, life) = (subject::AFFINITY_BUCKET, Duration::from_mins(1));

    for (key, nats) in [("acme.1", &gateway), ("acme.2", &router)] {
        let put = nats.put_for((bucket, key), one(), Expected::Any, life).await;
        put.expect("a session is remembered");
        assert!(nats.get(bucket, key).await.expect("a session is found").is_some());
    }
    for nats in [&ledger, &health] {
        let put = nats.put(bucket, "acme.3", one(), Expected::Any).await;
        assert_refused(put, "$KV.wb_affinity.acme.3");
    }
}

#[tokio::test]
async fn routers_alone_say_who_wakes_which_service() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;
    let claim = |nats: Arc<Nats>| async move {
        let place = (subject::WAKE_BUCKET, "01");
        nats.put_for(place, one(), Expected::Any, Duration::from_mins(1))
            .await
    };

    claim(Arc::clone(&router)).await.expect("a router's claim");
    let found = router.get(subject::WAKE_BUCKET, "01").await;
    assert!(found.expect("a router reads claims").is_some());
    router.watch(subject::WAKE_BUCKET).await.expect("a watch");
    for nats in [&gateway, &ledger, &health] {
        assert_refused(claim(Arc::clone(nats)).await, "$KV.wb_wake.01");
    }
}
