//! What balancers and operators ask: health, readiness, where calls go, and what is counted.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{ADMIN_KEY, Answer, Behaviour, CALLER_KEY, Node, OPERATOR_KEY, Scene, chat, refusing_addr};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn a_node_that_can_serve_is_healthy_and_ready_without_a_key() {
    let mut scene = Scene::start().await;
    let nobody = scene.client.with_key("");

    // A node that has just begun asks its bus and its database before it says that they are there.
    scene.wait_ready().await;
    let health = nobody.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text());

    let body = health.json();
    for (field, value) in [
        ("status", json!("healthy")),
        ("database_configured", json!(true)),
        ("database_connected", json!(true)),
        ("bus_connected", json!(true)),
        ("routes_configured", json!(2)),
    ] {
        assert_eq!(body[field], value, "{field}: {body}");
    }
    assert!(body["version"].is_string() && body["node"].is_string(), "{body}");
    for path in ["/health/ready", "/health/ready?strict=1"] {
        let ready = nobody.get(path).await;
        assert_eq!(
            (ready.status, &ready.json()["status"]),
            (200, &json!("ready")),
            "{path}: {}",
            ready.text()
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_node_without_a_route_says_that_it_can_serve_nothing() {
    let mut node = Node::builder().start().await;
    let nobody = node.client("");

    let health = nobody.get("/health").await;

    assert_eq!(
        (health.status, &health.json()["status"]),
        (503, &json!("unhealthy")),
        "{}",
        health.text()
    );
    assert_eq!(health.json()["routes_configured"], 0);
    node.check_books().await;
}

#[tokio::test]
async fn the_deep_health_shows_circuits_to_those_who_run_the_platform_alone() {
    let mut scene = Scene::start_with(|node| node.env("CIRCUIT_FAILURE_THRESHOLD", "3")).await;
    scene.pin();
    scene.wait_ready().await;
    let deep = |key: &str| {
        let client = scene.client.with_key(key);
        async move { client.get("/health/deep").await }
    };
    assert_eq!((deep("").await.status, deep(CALLER_KEY).await.status), (401, 403));
    assert_eq!(
        (deep(OPERATOR_KEY).await.status, deep(ADMIN_KEY).await.status),
        (200, 200)
    );
    scene.o1.default(Behaviour::error(500, "no"));
    for _ in 0..3 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }

    let body = deep(OPERATOR_KEY).await.json();

    let row = scene.node.wait_rows("outcome=ok", 3).await.remove(0);
    let failed = row["attempts"][0]["endpoint_id"].as_str().expect("an endpoint");
    let backends = body["endpoints"][failed]["backends"]
        .as_object()
        .expect("backends");
    let (_, backend) = backends.iter().next().expect("one backend");
    assert_eq!(
        (&backend["circuit_state"], &backend["last_error_status"]),
        (&json!("open"), &json!(500)),
        "{body}"
    );
    assert_eq!(body["status"], "degraded", "{body}");
    assert!(
        !body.to_string().contains("http://"),
        "addresses are not shown: {body}"
    );
    assert_eq!(
        scene.client.get("/health").await.json()["status"],
        "healthy",
        "an upstream's fault is not the node's"
    );
    scene.finish().await;
}

#[tokio::test]
async fn metrics_are_for_this_machine_alone_and_not_through_a_proxy_on_it() {
    let mut scene = Scene::start().await;
    scene.pin();
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    assert_eq!(scene.client.post_chat(&chat("nothing")).await.status, 404);
    let nobody = scene.client.with_key("");

    let page = nobody.get("/metrics").await;

    assert_eq!(page.status, 200);
    for header in ["x-forwarded-for", "forwarded", "x-real-ip", "via"] {
        let answer = nobody.with_header(header, "for=10.0.0.1").get("/metrics").await;
        assert_eq!(answer.status, 404, "{header}");
    }
    let text = page.text();
    for name in [
        "waybill_requests_total",
        "waybill_request_duration_seconds",
        "waybill_time_to_first_token_seconds",
        "waybill_tokens_total",
        "waybill_cost_nano_usd_total",
        "waybill_attempts_total",
        "waybill_circuit_state",
        "waybill_limit_rejections_total",
        "waybill_reservations_open",
        "waybill_spool_bytes",
        "waybill_spool_oldest_seconds",
        "waybill_bus_connected",
        "waybill_config_revision",
        "waybill_ledger_lag_events",
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(name), "{name} is not counted");
    }
    assert!(
        text.contains("outcome=\"ok\"") && text.contains("model=\"m\""),
        "{text}"
    );
    for word in ["acme", "alice", "caller"] {
        let label = format!("=\"{word}\"");
        assert!(!text.contains(&label), "{word} is a label");
    }
    scene.finish().await;
}

/// How full spools were told to be, in order.
async fn told_of_spools(scene: &Scene) -> Vec<Value> {
    let events = scene.node.books().table("event_log").await;
    let envelopes = events.iter().flat_map(|row| row.values().flatten());
    let facts = envelopes.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    facts
        .filter(|envelope| envelope["type"] == "waybill.spool.filled.v1")
        .map(|envelope| envelope["data"].clone())
        .collect()
}

#[tokio::test]
async fn operators_are_told_when_the_spool_is_four_fifths_full_and_when_it_has_room_again() {
    let room: u32 = 20 * 8_192;
    let mut scene = Scene::start_with(|node| node.setting("spool", json!({"bytes_max": room}))).await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("late").first_byte_delay(Duration::from_secs(6)));
    assert!(scene.metric("waybill_spool_nearly_full").await <= 0.0);
    let body = chat("m");
    let calls = join_all((0..17).map(|_| scene.client.post_chat(&body)));
    let filled = async {
        let line = scene.node.wait_log("the spool is nearly full").await;
        (line, scene.node.metric("waybill_spool_nearly_full").await)
    };

    let (answers, (line, alert)) = tokio::join!(calls, filled);
    scene.node.wait_log("the spool has room again").await;

    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(
        line.contains("WARN") && line.contains(&format!("spool.bytes_max={room}")),
        "{line}"
    );
    assert!(alert >= 1.0, "{alert}");
    assert!(scene.node.metric("waybill_spool_nearly_full").await <= 0.0);
    let told = scene.node.metric("waybill_spool_bytes_max").await;
    assert!((told - f64::from(room)).abs() < 1.0, "{told}");
    let deadline = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let told = told_of_spools(&scene).await;
        if told.len() >= 2 || Instant::now() > deadline {
            break told;
        }
        sleep(Duration::from_millis(50)).await;
    };
    let fill: Vec<bool> = told
        .iter()
        .filter_map(|fact| fact["nearly_full"].as_bool())
        .collect();
    assert_eq!(fill, [true, false], "{told:?}");
    assert!(
        told[0]["bytes"].as_u64() >= Some(u64::from(room) * 4 / 5),
        "{told:?}"
    );
    assert_eq!(told[0]["bytes_max"], room);
    scene.finish().await;
}

#[tokio::test]
async fn labels_of_metrics_do_not_grow_with_what_callers_send() {
    let scene = Scene::start().await;
    for number in 0..30 {
        assert_eq!(
            scene
                .client
                .post_chat(&chat(&format!("made-up-{number}")))
                .await
                .status,
            404
        );
    }

    assert!(!scene.node.metrics().await.contains("made-up"));
    scene.finish().await;
}

#[tokio::test]
async fn an_admin_listener_takes_management_and_metrics_off_the_main_one() {
    let admin = refusing_addr();
    let mut node = Node::builder()
        .arg("--admin-listen")
        .arg(&admin.to_string())
        .start()
        .await;
    let (main, admin) = (node.client(OPERATOR_KEY), node.client(OPERATOR_KEY).at(admin));

    for path in [
        "/metrics",
        "/api/v1/logs",
        "/api/v1/usage",
        "/api/v1/tenant/api-keys",
    ] {
        assert_eq!(
            (main.get(path).await.status, admin.get(path).await.status),
            (404, 200),
            "{path}"
        );
    }
    assert_eq!(admin.get("/v1/models").await.status, 404);
    assert_eq!(main.get("/v1/models").await.status, 200);
    // Its books cannot be read where it takes calls.
    assert_eq!(node.stop().await, Some(0));
    node.check_books().await;
}

#[tokio::test]
async fn routing_is_for_those_who_run_the_platform_unless_it_is_public() {
    let closed = Scene::start().await;
    let open = Scene::start_with(|node| node.setting("public_routing", true)).await;
    let routing = |scene: &Scene, key: &str| {
        let client = scene.client.with_key(key);
        async move { client.get("/routing").await }
    };
    let status = |answer: Answer| answer.status;

    assert_eq!(status(routing(&closed, "").await), 401);
    assert_eq!(status(routing(&closed, CALLER_KEY).await), 403);
    assert_eq!(status(routing(&closed, OPERATOR_KEY).await), 200);
    let public = routing(&open, "").await;
    assert_eq!(public.status, 200);
    assert_eq!(
        public.json()["routes"]["m"].as_array().map(Vec::len),
        Some(2),
        "{}",
        public.text()
    );
    closed.finish().await;
    open.finish().await;
}
