//! How a gateway ends: readiness turns bad, what runs ends whole, the rest ends with an error and a row.

use std::sync::Arc;
use std::time::Duration;

use bus::clock::{Clock as _, SystemClock};
use bus::mint::Mint;
use bus::spool::{Durability, Options, Spool};
use schemas::event::request::{Payer, RequestAccepted, RequestSettled, Surface};
use schemas::failure::FailureCode;
use schemas::id::{KeyId, ModelName, NodeId, TenantId};
use schemas::limit::Reservation;
use schemas::money::PriceVersion;
use schemas::outcome::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::http2::Http2;
use crate::scene::{CALLER, PLAIN, STREAM, Scene, request};
use crate::script::{Step, begin, chunk, end, report, whole};

#[tokio::test]
async fn a_stream_that_ends_in_time_ends_whole_and_new_calls_are_served_meanwhile() {
    let mut scene = Scene::with(|config| config.drain_seconds = 10).await;
    scene.script.push(vec![
        begin(),
        chunk("data: {}\n\n"),
        Step::Wait(Duration::from_millis(600)),
        end(report(Outcome::Ok, None), "data: [DONE]\n\n", None),
    ]);
    scene.script.push(whole("{\"late\":true}"));
    let mut stream = scene.connect().await;
    let sent = request("POST /v1/chat/completions", CALLER, "", STREAM);
    stream.write_all(&sent).await.expect("write");
    while scene.script.told().dispatched.is_empty() {
        tokio::task::yield_now().await;
    }

    scene.shutdown.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ready = scene.call("GET /health/ready", CALLER, "").await;
    let late = scene
        .raw(&request("POST /v1/chat/completions", CALLER, "", PLAIN))
        .await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an end");

    assert_eq!(
        (ready.status, ready.json()["status"].as_str()),
        (503, Some("draining"))
    );
    assert_eq!((late.status, late.header("connection")), (200, Some("close")));
    assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
    // The catalogue's follower is the other task: only the gateway's own has an end.
    let ended = timeout(Duration::from_secs(3), scene.tasks.join_next()).await;
    assert!(ended.is_ok());
    assert!(scene.rows(2).await.iter().all(|row| row.outcome == Outcome::Ok));
}

#[tokio::test]
async fn what_still_runs_at_the_limit_ends_with_an_error_event_and_a_row() {
    let mut scene = Scene::with(|config| config.drain_seconds = 1).await;
    scene
        .script
        .push(vec![begin(), chunk("data: {}\n\n"), Step::Hang]);
    scene.script.push(vec![Step::Hang]);
    let mut stream = scene.connect().await;
    let mut plain = scene.connect().await;
    let sent = request("POST /v1/chat/completions", CALLER, "", STREAM);
    stream.write_all(&sent).await.expect("write");
    while scene.script.told().dispatched.is_empty() {
        tokio::task::yield_now().await;
    }
    let sent = request("POST /v1/chat/completions", CALLER, "", PLAIN);
    plain.write_all(&sent).await.expect("write");
    while scene.script.told().dispatched.len() < 2 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();

    scene.shutdown.cancel();
    let (mut streamed, mut answered) = (String::new(), String::new());
    stream.read_to_string(&mut streamed).await.expect("an end");
    plain.read_to_string(&mut answered).await.expect("an end");
    let ended = timeout(Duration::from_secs(4), scene.tasks.join_next()).await;

    assert!(ended.is_ok());
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(
        streamed.contains("\"code\":\"stream_interrupted\"") && !streamed.contains("[DONE]"),
        "{streamed}"
    );
    assert!(answered.starts_with("HTTP/1.1 502"), "{answered}");
    let rows = scene.rows(2).await;
    assert!(rows.iter().all(|row| row.outcome == Outcome::Timeout));
    assert!(
        rows.iter()
            .all(|row| row.error_code == Some(FailureCode::StreamInterrupted))
    );
    assert_eq!(scene.script.told().interrupted, 2);
    assert_eq!(scene.spool.gauges().reservations_open, 0);
}

#[tokio::test]
async fn an_http2_caller_hears_of_the_drain_and_his_stream_ends_whole() {
    let scene = Scene::with(|config| config.drain_seconds = 10).await;
    scene.script.push(vec![
        begin(),
        chunk("data: {}\n\n"),
        Step::Wait(Duration::from_millis(300)),
        end(report(Outcome::Ok, None), "data: [DONE]\n\n", None),
    ]);
    let mut caller = Http2::new(scene.connect().await).await;
    caller.post(1, CALLER, STREAM).await;
    let first = caller.data(1).await;

    scene.shutdown.cancel();
    let last = caller.data(1).await;

    assert_eq!(first.as_deref(), Some("data: {}\n\n"));
    assert_eq!(last.as_deref(), Some("data: [DONE]\n\n"));
    assert!(caller.told_to_go);
}

#[tokio::test]
async fn an_idle_gateway_ends_at_once() {
    let mut scene = Scene::new().await;
    let _idle = scene.connect().await;
    let began = Instant::now();

    scene.shutdown.cancel();
    let ended = timeout(Duration::from_secs(3), scene.tasks.join_next()).await;

    assert!(ended.is_ok());
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn what_a_dead_process_left_open_is_settled_as_lost_by_the_next() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let open = || {
        let options = Options {
            dir: dir.path().to_owned(),
            cluster: "test".to_owned(),
            bytes_max: 1 << 30,
            durability: Durability::Process,
        };
        let mint = Arc::new(Mint::new().expect("randomness"));
        Spool::open(options, Arc::new(SystemClock::new()), mint).expect("a spool")
    };
    let intent = accepted();
    let (spool, _) = open();
    spool.intend(&intent).expect("an intent");
    drop(spool);
    let (spool, recovered) = open();

    let count =
        gateway::recover(&spool, recovered.orphans, chrono_tz::UTC, intent.started_at).expect("recovered");

    assert_eq!(count, 1);
    // Readers see a record once it survives the machine.
    let messages = loop {
        let messages = spool.read(1, 10).expect("read");
        if !messages.is_empty() {
            break messages;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let (_, message) = &messages[0];
    let envelope: serde_json::Value = serde_json::from_slice(&message.payload).expect("an envelope");
    let row: RequestSettled = serde_json::from_value(envelope["data"].clone()).expect("a waybill");
    assert_eq!((row.request_id, row.outcome), (intent.request_id, Outcome::Lost));
    assert_eq!((row.status, row.error_code), (500, Some(FailureCode::NodeLost)));
}

fn accepted() -> RequestAccepted {
    let now = SystemClock::new().now();
    RequestAccepted {
        request_id: Mint::new().expect("randomness").request_id(now),
        payer: Payer {
            tenant: TenantId::from("acme"),
            user: None,
            key_id: KeyId::from("acme.caller"),
            key_name: "caller".into(),
            job_id: None,
        },
        surface: Surface::Chat,
        model: ModelName::from("m"),
        reservation: Reservation::default(),
        price_version: PriceVersion("7".into()),
        started_at: now,
        node: NodeId::from("n1"),
    }
}
