//! What the permissions in `deploy/nats` allow each role, and what they refuse.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bus::counter::{Counters, Slice};
use bus::nats::{Nats, Options};
use bus::{Bus, BusError, Expected, Kv};
use bytes::Bytes;
use schemas::subject;

use super::server::{Server, message, program, sizes, until_done};

mod buckets;
mod pools;
mod tenants;

const PATIENCE: Duration = Duration::from_secs(20);

/// The server's program with a password for every user.
fn command() -> Command {
    let mut command = Command::new(program());
    for user in [
        "ADMIN",
        "GATEWAY",
        "ROUTER_DEFAULT",
        "ROUTER_PRIVATE",
        "NODE_DEFAULT",
        "HEALTH",
        "LEDGER",
        "BILLING",
    ] {
        command.env(format!("WAYBILL_NATS_{user}_PASSWORD"), format!("pass-of-{user}"));
    }
    command
}

fn url(server: &Server, user: &str) -> String {
    let password = format!("pass-of-{}", user.to_uppercase());
    server
        .url
        .replace("nats://", &format!("nats://{user}:{password}@"))
}

async fn role(server: &Server, user: &str) -> Arc<Nats> {
    let mut layout = bus::layout::cluster(&sizes());
    if user == "router_private" {
        bus::layout::keep_those_of_a_pool(&mut layout);
    }
    let options = Options {
        urls: vec![url(server, user)],
        layout,
        connect_wait: PATIENCE,
        ..Options::default()
    };
    Nats::connect(options).await.expect("the role connects")
}

fn assert_refused<T: std::fmt::Debug>(done: Result<T, BusError>, what: &str) {
    match done {
        Err(BusError::Refused { reason }) => assert!(reason.contains(what), "{reason}"),
        other => panic!("{what} is not refused: {other:?}"),
    }
}

fn one() -> Bytes {
    Bytes::from_static(b"1")
}

#[tokio::test]
async fn each_role_does_its_work_and_nothing_else() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let health = role(&server, "health").await;

    // Every role reads the catalogue and tells of itself.
    gateway
        .put(subject::CATALOG_BUCKET, "key.01", one(), Expected::Absent)
        .await
        .expect("a gateway changes the catalogue");
    for (user, nats) in [
        ("ledger", &ledger),
        ("gateway", &gateway),
        ("router", &router),
        ("health", &health),
    ] {
        let got = nats.get(subject::CATALOG_BUCKET, "key.01").await;
        assert!(got.expect(user).is_some());
        let mut changes = nats.watch(subject::CATALOG_BUCKET).await.expect(user);
        assert!(changes.recv().await.is_some(), "{user}");
        nats.watch(subject::NODE_BUCKET).await.expect(user);
        nats.watch(subject::MARK_BUCKET).await.expect(user);
        for (bucket, key) in [
            (subject::CATALOG_BUCKET, format!("beat.{user}")),
            (subject::NODE_BUCKET, format!("node.{user}")),
        ] {
            nats.put(bucket, &key, one(), Expected::Any)
                .await
                .unwrap_or_else(|error| panic!("{user} {key}: {error}"));
        }
        let mut hole = message(&format!("hole-{user}"));
        hole.subject = "wb.ev.spool.acme".to_owned();
        nats.publish(&[hole]).await.expect(user);
    }
    for (user, nats) in [("ledger", &ledger), ("router", &router), ("health", &health)] {
        let put = nats.put(subject::CATALOG_BUCKET, "key.02", one(), Expected::Any);
        assert_refused(put.await, "$KV.wb_catalog.key.02");
        assert_refused(nats.add(Slice::Minute, "a.1", 1).await, "wb.rate.minute.a.1");
        assert!(nats.ask("wb.q.other", one(), PATIENCE).await.is_err(), "{user}");
    }
    assert_eq!(gateway.add(Slice::Minute, "a.1", 1).await.expect("add"), 1);

    // Marks are the ledger's, circuits the routers' and the probes'.
    let mark = |nats: Arc<Nats>| async move {
        nats.put(subject::MARK_BUCKET, "spool", one(), Expected::Any)
            .await
    };
    mark(Arc::clone(&ledger)).await.expect("a ledger writes marks");
    for nats in [&gateway, &router, &health] {
        assert_refused(mark(Arc::clone(nats)).await, "$KV.wb_mark.spool");
    }
    let circuit = |nats: Arc<Nats>| async move {
        nats.put(subject::CIRCUIT_BUCKET, "01", one(), Expected::Any)
            .await
    };
    circuit(Arc::clone(&router)).await.expect("a router's circuits");
    circuit(Arc::clone(&health)).await.expect("a probe's circuits");
    assert_refused(circuit(Arc::clone(&gateway)).await, "$KV.wb_circuit.01");
    assert_refused(circuit(Arc::clone(&ledger)).await, "$KV.wb_circuit.01");

    // What callers said and were answered is for gateways alone.
    let key = "tenant.resp_1";
    let put = gateway.put(subject::RESPONSE_BUCKET, key, one(), Expected::Any);
    put.await.expect("a gateway keeps responses");
    let got = gateway.get(subject::RESPONSE_BUCKET, key).await;
    assert!(got.expect("a gateway reads responses").is_some());
    for nats in [&ledger, &router, &health] {
        let put = nats.put(subject::RESPONSE_BUCKET, key, one(), Expected::Any);
        assert_refused(put.await, "$KV.wb_response.tenant.resp_1");
        assert!(nats.get(subject::RESPONSE_BUCKET, key).await.is_err());
    }
}

#[tokio::test]
async fn only_gateways_settle_and_only_those_who_keep_books_or_learn_read_the_log() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let health = role(&server, "health").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;

    gateway
        .publish(&[message("settled")])
        .await
        .expect("a gateway settles");
    assert_refused(router.publish(&[message("forged")]).await, "wb.ev.request.acme");
    assert_refused(health.publish(&[message("forged")]).await, "wb.ev.request.acme");
    for nats in [&ledger, &health] {
        let read = nats.read(1, 10, PATIENCE).await.expect("they read");
        assert_eq!(read[0].message.id, "settled");
    }
    for nats in [&gateway, &router] {
        assert_refused(
            nats.read(1, 10, PATIENCE).await,
            "$JS.API.CONSUMER.CREATE.WAYBILL_EVENTS",
        );
    }

    // Queries are the ledger's to answer and the gateway's to ask.
    let mut questions = ledger.serve(subject::QUERY_LOGS).await.expect("serve");
    let answer = async {
        let question = questions.recv().await.expect("a question");
        question.reply.send(question.payload).expect("the asker waits");
    };
    let ask = gateway.ask(subject::QUERY_LOGS, one(), PATIENCE);
    let (answered, ()) = tokio::join!(ask, answer);
    assert_eq!(answered.expect("an answer"), one());
    assert_refused(
        gateway.serve(subject::QUERY_LOGS).await.map(drop),
        subject::QUERY_LOGS,
    );
    let mut questions = router.serve(subject::QUERY_HEALTH).await.expect("serve");
    let answer = async {
        let question = questions.recv().await.expect("a question");
        question.reply.send(question.payload).expect("the asker waits");
    };
    let ask = gateway.ask(subject::QUERY_HEALTH, one(), PATIENCE);
    let (answered, ()) = tokio::join!(ask, answer);
    assert_eq!(answered.expect("an answer"), one());
}

#[tokio::test]
async fn offers_reach_the_routers_of_their_pool_alone() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let other = role(&server, "router_private").await;
    let (wire, routers) = (gateway.wire(), router.wire());

    let mut offers = routers
        .share(&subject::run("default"), "routers")
        .await
        .expect("its own pool");
    let mut orders = routers
        .subscribe(&subject::control("default", "boot"))
        .await
        .expect("its control subject");
    for (nats, heard) in [
        (&other, subject::run("default")),
        (&gateway, subject::run("default")),
        (&ledger, subject::run("default")),
        (&gateway, "wb.run.*".to_owned()),
        (&router, "wb.run.*".to_owned()),
        (&other, "wb.ctl.*.*".to_owned()),
        (&other, "wb.body.*.*".to_owned()),
        (&other, subject::control("default", "boot")),
        (&other, subject::body("default", "boot")),
        (&router, subject::body("private", "boot")),
        (&gateway, subject::control("default", "boot")),
        (&router, format!("{}.*", wire.inbox())),
        (&other, format!("{}.*", routers.inbox())),
    ] {
        assert_refused(nats.wire().subscribe(&heard).await.map(drop), &heard);
        assert_refused(nats.wire().share(&heard, "routers").await.map(drop), &heard);
    }

    let inbox = format!("{}.1", wire.inbox());
    let mut frames = wire
        .subscribe(&format!("{}.*", wire.inbox()))
        .await
        .expect("its inbox");
    wire.send(&subject::run("default"), Some(&inbox), one())
        .await
        .expect("an offer");
    let offer = offers.recv().await.expect("an offer");
    assert_eq!(offer.reply.as_deref(), Some(inbox.as_str()));
    routers.send(&inbox, None, one()).await.expect("a frame");
    assert_eq!(frames.recv().await.expect("a frame").payload, one());
    wire.send(&subject::control("default", "boot"), None, one())
        .await
        .expect("an order");
    assert!(orders.recv().await.is_some());
    // A router offers nothing: what it sends there reaches nobody.
    routers
        .send(&subject::run("default"), None, one())
        .await
        .expect("it is sent");
    let heard = tokio::time::timeout(Duration::from_millis(200), offers.recv()).await;
    assert!(heard.is_err(), "{heard:?}");
}

/// Answers one question as it was asked.
async fn echo(questions: &mut tokio::sync::mpsc::Receiver<bus::Question>) {
    let question = questions.recv().await.expect("a question");
    question.reply.send(question.payload).expect("the asker waits");
}

#[tokio::test]
async fn endpoints_are_tested_by_the_routers_of_their_pool_alone() {
    let server = Server::deployed("single.conf", &mut command());
    let _maker = role(&server, "ledger").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let other = role(&server, "router_private").await;
    let subject = subject::trial("default");

    let mut questions = router.serve(&subject).await.expect("its own pool");
    for nats in [&gateway, &other] {
        assert_refused(nats.serve(&subject).await.map(drop), &subject);
    }
    assert!(
        router
            .ask(&subject::trial("private"), one(), PATIENCE)
            .await
            .is_err()
    );
    let (answered, ()) = tokio::join!(gateway.ask(&subject, one(), PATIENCE), echo(&mut questions));

    assert_eq!(answered.expect("an answer"), one());
}

#[tokio::test]
async fn whoever_looks_after_health_asks_routers_for_figures_and_nobody_else_answers() {
    let server = Server::deployed("single.conf", &mut command());
    let _maker = role(&server, "ledger").await;
    let health = role(&server, "health").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;
    let subject = subject::QUERY_FIGURES;

    let mut questions = router.serve(subject).await.expect("a router");
    for nats in [&gateway, &health] {
        assert_refused(nats.serve(subject).await.map(drop), subject);
    }
    let (answered, ()) = tokio::join!(health.ask(subject, one(), PATIENCE), echo(&mut questions));

    assert_eq!(answered.expect("an answer"), one());
    assert!(
        health
            .ask(subject::QUERY_LOGS, one(), Duration::from_secs(1))
            .await
            .is_err()
    );
}

/// The permissions that a list of the configuration names.
fn listed(name: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/accounts.conf");
    let text = std::fs::read_to_string(path).expect("the configuration");
    let (_, after) = text.split_once(&format!("\n{name} = [\n")).expect("the list");
    let (list, _) = after.split_once("\n]").expect("its end");
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    let quoted = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted.map(str::to_owned).collect()
}

#[test]
fn a_node_of_both_roles_may_do_what_each_of_them_may() {
    let both = listed("NODE_PUBLISH");

    for name in ["GATEWAY_PUBLISH", "ROUTER_PUBLISH"] {
        let one = listed(name);
        let missing: Vec<_> = one.iter().filter(|allowed| !both.contains(allowed)).collect();
        assert!(one.len() > 20 && missing.is_empty(), "{name}: {missing:?}");
    }
    let beyond = |allowed: &&String| {
        !listed("GATEWAY_PUBLISH").contains(allowed) && !listed("ROUTER_PUBLISH").contains(allowed)
    };
    assert_eq!(both.iter().filter(beyond).count(), 0);
}

/// `from` offers to the pool of `to` and orders it about, and gets a frame in its inbox.
async fn assert_offered(from: &Nats, to: &Nats) {
    let (wire, routers) = (from.wire(), to.wire());
    let mut offers = routers
        .share(&subject::run("default"), "routers")
        .await
        .expect("a pool");
    let mut frames = wire
        .subscribe(&format!("{}.*", wire.inbox()))
        .await
        .expect("its inbox");
    let mut orders = routers
        .subscribe(&subject::control("default", "boot"))
        .await
        .expect("orders");
    let inbox = format!("{}.1", wire.inbox());
    wire.send(&subject::run("default"), Some(&inbox), one())
        .await
        .expect("an offer");
    let offer = tokio::time::timeout(PATIENCE, offers.recv())
        .await
        .expect("in time");
    assert_eq!(offer.expect("an offer").reply.as_deref(), Some(inbox.as_str()));
    routers.send(&inbox, None, one()).await.expect("a frame");
    wire.send(&subject::control("default", "boot"), None, one())
        .await
        .expect("an order");
    let came = tokio::time::timeout(PATIENCE, async { (frames.recv().await, orders.recv().await) });
    let (frame, order) = came.await.expect("in time");
    assert!(frame.is_some() && order.is_some());
}

#[tokio::test]
async fn one_user_does_the_work_of_gateway_and_router() {
    let server = Server::deployed("single.conf", &mut command());
    let ledger = role(&server, "ledger").await;
    let node = role(&server, "node_default").await;
    let gateway = role(&server, "gateway").await;
    let router = role(&server, "router_default").await;

    for (bucket, key) in [
        (subject::CATALOG_BUCKET, "key.01"),
        (subject::CIRCUIT_BUCKET, "01"),
        (subject::NODE_BUCKET, "node.1"),
        (subject::SLOT_BUCKET, "acme.t.x"),
        (subject::QUOTA_BUCKET, "acme.t.x"),
        (subject::RESPONSE_BUCKET, "tenant.resp_1"),
        (subject::AFFINITY_BUCKET, "acme.1"),
        (subject::ENGINE_BUCKET, "calls.1"),
        (subject::ENGINE_BUCKET, "ceiling.1"),
        (subject::HEALTH_BUCKET, "probed.1"),
        (subject::HEALTH_BUCKET, "host.1"),
        (subject::CONFIG_BUCKET, "1"),
    ] {
        let put = node.put(bucket, key, one(), Expected::Any).await;
        put.unwrap_or_else(|problem| panic!("{bucket}: {problem}"));
        node.watch(bucket)
            .await
            .unwrap_or_else(|problem| panic!("{bucket}: {problem}"));
    }
    for kind in ["request", "limit", "audit", "spool", "health"] {
        let mut event = message(&format!("event-{kind}"));
        event.subject = format!("wb.ev.{kind}.acme");
        node.publish(&[event]).await.expect(kind);
    }
    assert_eq!(node.add(Slice::Minute, "a.1", 1).await.expect("a counter"), 1);
    assert_refused(
        node.put(subject::MARK_BUCKET, "spool", one(), Expected::Any)
            .await,
        "$KV.wb_mark.spool",
    );
    assert_refused(
        node.read(1, 10, PATIENCE).await,
        "$JS.API.CONSUMER.CREATE.WAYBILL_EVENTS",
    );

    // It asks ledgers and other gateways, and is asked by gateways, each answer finding its way.
    for (asker, server, subject) in [
        (&node, &ledger, subject::QUERY_LOGS.to_owned()),
        (&node, &node, subject::QUERY_HEALTH.to_owned()),
        (&gateway, &node, subject::trial("default")),
        (&node, &router, subject::trial("default")),
        (&node, &gateway, subject::peer("one")),
        (&gateway, &node, subject::peer("two")),
    ] {
        let mut questions = server.serve(&subject).await.expect(&subject);
        let (answered, ()) = tokio::join!(asker.ask(&subject, one(), PATIENCE), echo(&mut questions));
        assert_eq!(answered.expect(&subject), one());
    }

    // It offers to routers of others and is offered to, and frames come back either way.
    for (from, to) in [(&node, &router), (&gateway, &node), (&node, &node)] {
        assert_offered(from, to).await;
    }
}

#[tokio::test]
async fn a_consumer_of_ones_own_reads_requests_and_nothing_else() {
    use async_nats::jetstream::{self, consumer};
    use futures_util::StreamExt;

    let server = Server::deployed("single.conf", &mut command());
    let gateway = {
        let _maker = role(&server, "ledger").await;
        role(&server, "gateway").await
    };
    gateway
        .publish(&[message("one"), message("two")])
        .await
        .expect("publish");
    let client = async_nats::ConnectOptions::with_user_and_password(
        "billing".to_owned(),
        "pass-of-BILLING".to_owned(),
    )
    .custom_inbox_prefix("_INBOX.billing")
    .connect(&server.url)
    .await
    .expect("connect");
    let mut context = jetstream::new(client);
    context.set_timeout(Duration::from_millis(500));
    let stream = context.get_stream(subject::EVENTS_STREAM).await.expect("stream");
    let mut config = consumer::pull::Config {
        durable_name: Some("billing".to_owned()),
        filter_subject: "wb.ev.request.>".to_owned(),
        ..consumer::pull::Config::default()
    };
    let made = stream
        .create_consumer(config.clone())
        .await
        .expect("its consumer");
    let mut batch = made.fetch().max_messages(2).messages().await.expect("fetch");
    while let Some(message) = batch.next().await {
        message
            .expect("a message")
            .double_ack()
            .await
            .expect("acknowledged");
    }
    let info = made.get_info().await.expect("info");
    assert_eq!((info.ack_floor.consumer_sequence, info.num_ack_pending), (2, 0));
    config.filter_subject = "wb.ev.>".to_owned();
    assert!(stream.create_consumer(config).await.is_err(), "all events");
    let got = context.get_stream("KV_wb_catalog").await;
    assert!(got.is_err(), "the catalogue");
}

#[tokio::test]
async fn three_servers_are_a_cluster_that_outlives_one() {
    let free: Vec<_> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("listen"))
        .collect();
    let addresses: Vec<_> = free
        .iter()
        .map(|free| free.local_addr().expect("address").to_string())
        .collect();
    drop(free);
    let mut servers: Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(index, address)| {
            let mut command = command();
            command.env("WAYBILL_NATS_NAME", format!("n{index}"));
            command.env("WAYBILL_NATS_ROUTE_PASSWORD", "route1");
            for (number, address) in addresses.iter().enumerate() {
                command.env(
                    format!("WAYBILL_NATS_ROUTE_{}", number + 1),
                    format!("nats://route:route1@{address}"),
                );
            }
            command.args(["--cluster", &format!("nats://{address}")]);
            Server::deployed("cluster.conf", &mut command)
        })
        .collect();
    let options = Options {
        urls: servers.iter().map(|server| url(server, "admin")).collect(),
        layout: bus::layout::cluster(&sizes()),
        replicas: 3,
        connect_wait: Duration::from_mins(1),
        ..Options::default()
    };
    let nats = Nats::connect(options).await.expect("connect");
    let before = until_done(|| async { nats.publish(&[message("before")]).await }).await;
    let mut changes = nats.watch(subject::NODE_BUCKET).await.expect("watch");
    until_done(|| nats.put(subject::NODE_BUCKET, "node.1", one(), Expected::Any)).await;

    servers[0].kill();

    let after = until_done(|| async { nats.publish(&[message("after")]).await }).await;
    assert_eq!((before, after), (vec![1], vec![2]));
    let read = until_done(|| nats.read(1, 10, Duration::from_secs(1))).await;
    let ids: Vec<_> = read.iter().map(|stored| stored.message.id.as_str()).collect();
    assert_eq!(ids, ["before", "after"]);
    let two = Bytes::from_static(b"2");
    until_done(|| nats.put(subject::NODE_BUCKET, "node.1", two.clone(), Expected::Any)).await;
    let told = async {
        while let Some(change) = changes.recv().await {
            if matches!(&change, bus::Change::Entry(entry) if entry.value == Some(two.clone())) {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(PATIENCE, told).await.expect("it is told"));
}
