//! What a router of a named pool may do, and that it can do nothing else.

use std::sync::Arc;
use std::time::Duration;

use bus::nats::Nats;
use bus::{Bus, Expected, Kv};
use schemas::subject;

use super::super::server::{Server, message};
use super::{PATIENCE, assert_refused, command, echo, one, role};

/// A gateway, and a router of the pool `private`, on a bus that has everything.
async fn scene() -> (Server, Arc<Nats>, Arc<Nats>) {
    let server = Server::deployed("single.conf", &mut command());
    let _maker = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_private").await;
    (server, gateway, router)
}

#[tokio::test]
async fn a_router_of_a_pool_runs_its_requests_and_tells_of_itself() {
    let (_server, gateway, router) = scene().await;
    let (wire, routers) = (gateway.wire(), router.wire());

    for subject in [
        subject::run("private"),
        subject::control("private", "boot"),
        subject::body("private", "boot"),
    ] {
        let mut messages = routers.subscribe(&subject).await.expect("its own pool");
        wire.send(&subject, None, one()).await.expect("a gateway");
        let message = tokio::time::timeout(PATIENCE, messages.recv()).await;
        assert_eq!(message.expect("in time").expect("a message").payload, one());
    }
    let mut frames = wire
        .subscribe(&format!("{}.*", wire.inbox()))
        .await
        .expect("its inbox");
    routers
        .send(&format!("{}.1", wire.inbox()), None, one())
        .await
        .expect("a frame");
    assert!(frames.recv().await.is_some());
    let mut questions = router.serve(&subject::trial("private")).await.expect("trials");
    let private = subject::trial("private");
    let asked = gateway.ask(&private, one(), PATIENCE);
    let (answered, ()) = tokio::join!(asked, echo(&mut questions));
    assert_eq!(answered.expect("an answer"), one());
    let mut found = message("found");
    found.subject = "wb.ev.health.default".to_owned();
    router.publish(&[found]).await.expect("its own events");
    router.watch(subject::MARK_BUCKET).await.expect("marks");
    router
        .put(subject::NODE_BUCKET, "node.private", one(), Expected::Any)
        .await
        .expect("it tells of itself");
}

#[tokio::test]
async fn a_router_of_a_pool_reads_and_writes_no_bucket_and_forges_no_event() {
    let (_server, gateway, router) = scene().await;
    gateway
        .put(subject::CATALOG_BUCKET, "tenant.acme", one(), Expected::Absent)
        .await
        .expect("a gateway changes the catalogue");

    for bucket in [
        subject::CATALOG_BUCKET,
        subject::CIRCUIT_BUCKET,
        subject::NODE_BUCKET,
        subject::AFFINITY_BUCKET,
        subject::ENGINE_BUCKET,
        subject::HEALTH_BUCKET,
        subject::WAKE_BUCKET,
        subject::SLOT_BUCKET,
        subject::QUOTA_BUCKET,
        subject::RESPONSE_BUCKET,
        subject::IDEMPOTENCY_BUCKET,
        subject::ACCOUNT_BUCKET,
        subject::ATTEMPT_BUCKET,
        subject::CONFIG_BUCKET,
    ] {
        assert_refused(router.watch(bucket).await.map(drop), bucket);
        assert_refused(router.get(bucket, "tenant.acme").await, bucket);
        let put = router.put(bucket, "tenant.acme", one(), Expected::Any);
        assert_refused(put.await, bucket);
    }
    for kind in ["request", "limit", "audit"] {
        let mut event = message(&format!("forged-{kind}"));
        event.subject = format!("wb.ev.{kind}.acme");
        assert_refused(router.publish(&[event]).await, kind);
    }
    assert_refused(
        router.read(1, 10, PATIENCE).await,
        "$JS.API.CONSUMER.CREATE.WAYBILL_EVENTS",
    );
}

#[tokio::test]
async fn a_router_of_a_pool_hears_no_other_pool_and_is_asked_nothing_of_the_whole() {
    let (server, gateway, router) = scene().await;
    let (wire, routers) = (gateway.wire(), router.wire());

    for subject in [
        subject::run("default"),
        subject::control("default", "boot"),
        subject::body("default", "boot"),
        subject::trial("default"),
        subject::QUERY_HEALTH.to_owned(),
        format!("{}.*", wire.inbox()),
    ] {
        assert_refused(routers.subscribe(&subject).await.map(drop), &subject);
    }
    // What it sends as if it were a gateway reaches nobody.
    let default = role(&server, "router_default").await;
    let mut offers = default
        .wire()
        .share(&subject::run("default"), "routers")
        .await
        .expect("its own pool");
    routers
        .send(&subject::run("default"), None, one())
        .await
        .expect("it is sent");
    let heard = tokio::time::timeout(Duration::from_millis(200), offers.recv()).await;
    assert!(heard.is_err(), "{heard:?}");
}
