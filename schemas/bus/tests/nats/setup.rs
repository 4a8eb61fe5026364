//! What is checked at the start, and how a refusal is told.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Config;
use bus::nats::setup::SetupError;
use bus::nats::{Nats, Options};
use bus::{Bus, Kv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{Server, layout};

async fn refusal(options: Options) -> SetupError {
    match Nats::connect(options).await {
        Ok(_) => panic!("it connects"),
        Err(refused) => refused,
    }
}

#[tokio::test]
async fn a_second_node_finds_what_the_first_has_made() {
    let server = Server::start();
    let first = server.connect().await;
    let second = server.connect().await;
    let (first, second) = (first.state().await, second.state().await);
    assert_eq!(first.expect("state"), second.expect("state"));
}

#[tokio::test]
async fn two_nodes_may_make_everything_at_once() {
    let server = Server::start();
    let (first, second) = tokio::join!(server.connect(), server.connect());
    assert_eq!(
        first.state().await.expect("state"),
        second.state().await.expect("state")
    );
}

#[tokio::test]
async fn an_old_server_is_refused_with_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("address");
    let old = async {
        let (mut socket, _) = listener.accept().await.expect("accept");
        let info = r#"INFO {"server_id":"old","version":"2.9.10","max_payload":1048576,"headers":true,"jetstream":true}"#;
        socket
            .write_all(format!("{info}\r\n").as_bytes())
            .await
            .expect("info");
        let mut said = [0; 4_096];
        while socket.read(&mut said).await.is_ok_and(|bytes| bytes > 0) {
            socket.write_all(b"PONG\r\n").await.expect("pong");
        }
    };
    let options = Options {
        urls: vec![address.to_string()],
        ..Options::default()
    };
    let refused = tokio::select! {
        refused = refusal(options) => refused,
        () = old => panic!("the node left"),
    };
    assert_eq!(
        refused.to_string(),
        "the NATS server is version 2.9.10, but 2.14 or newer is needed; upgrade the server"
    );
    assert!(!refused.may_pass());
}

#[tokio::test]
async fn a_server_without_streams_is_refused() {
    let server = Server::with("");
    let refused = refusal(server.options()).await;
    assert!(matches!(refused, SetupError::NoJetStream), "{refused}");
}

#[tokio::test]
async fn an_account_without_streams_is_refused() {
    let settings = "jetstream { store_dir: \"$DIR/store\" }
        accounts { PLAIN { users: [{ user: plain, password: secret }] } }";
    let server = Server::with(settings);
    let mut options = server.options();
    options.urls = vec![server.url.replace("nats://", "nats://plain:secret@")];
    let refused = refusal(options).await;
    assert!(matches!(refused, SetupError::NoJetStream), "{refused}");
}

#[tokio::test]
async fn wrong_credentials_are_told_at_once_and_without_the_password() {
    let server = Server::with("authorization { user: a, password: right }");
    let mut options = server.options();
    options.urls = vec![server.url.replace("nats://", "nats://a:wrong@")];
    options.connect_wait = Duration::from_mins(5);
    let refused = refusal(options).await;
    assert!(matches!(refused, SetupError::Unauthorized { .. }), "{refused}");
    assert!(!refused.to_string().contains("wrong"), "{refused}");
}

#[tokio::test]
async fn nobody_there_is_told_after_the_wait_and_may_pass() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = free.local_addr().expect("address");
    drop(free);
    let options = Options {
        urls: vec![format!("nats://{address}")],
        connect_wait: Duration::from_millis(300),
        ..Options::default()
    };
    let refused = refusal(options).await;
    assert_eq!(
        refused.to_string(),
        format!("no NATS server answers at nats://{address}; start one, or correct the address")
    );
    assert!(refused.may_pass());
}

#[tokio::test]
async fn a_server_that_starts_later_is_waited_for() {
    let mut server = Server::start();
    server.kill();
    let options = server.options();
    let connect = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(300));
        server.start_again();
        server
    });
    let (connected, _server) = tokio::join!(Nats::connect(options), connect);
    assert!(connected.is_ok());
}

#[tokio::test]
async fn a_stream_that_differs_is_refused_with_what_it_has_and_should_have() {
    let server = Server::start();
    let client = async_nats::connect(&server.url).await.expect("connect");
    let stream = Config {
        name: "WAYBILL_EVENTS".to_owned(),
        subjects: vec!["wb.ev.>".to_owned()],
        max_bytes: 1_024,
        deny_delete: true,
        ..Config::default()
    };
    jetstream::new(client)
        .create_stream(stream)
        .await
        .expect("create");
    let refused = refusal(server.options()).await;
    assert_eq!(
        refused.to_string(),
        "stream WAYBILL_EVENTS differs from what is needed: max_bytes is 1024 and should be 67108864, \
         discard is Old and should be New; change it, or remove it and start again"
    );
    assert!(!refused.may_pass());
}

#[tokio::test]
async fn what_operators_may_change_is_accepted() {
    let server = Server::start();
    drop(server.connect().await);
    let client = async_nats::connect(&server.url).await.expect("connect");
    let context = jetstream::new(client);
    let stream = context.get_stream("WAYBILL_EVENTS").await.expect("stream");
    let mut config = stream.cached_info().config.clone();
    config.max_bytes *= 2;
    config.max_age = Duration::from_hours(24);
    context.update_stream(config).await.expect("update");
    server.connect().await.state().await.expect("it is used");
}

#[tokio::test]
async fn a_stream_for_which_there_is_no_room_is_told_by_name() {
    let server = Server::with("jetstream { store_dir: \"$DIR/store\", max_file_store: 1MB }");
    let refused = refusal(server.options()).await;
    let told = refused.to_string();
    assert!(
        told.starts_with("the NATS server does not create stream WAYBILL_EVENTS: "),
        "{told}"
    );
}

/// A user who may use a bucket but make nothing.
const READER: &str = r#"jetstream { store_dir: "$DIR/store" }
    accounts { APP { jetstream: enabled, users: [
        { user: admin, password: secret },
        { user: reader, password: secret, permissions: {
            publish: ["$JS.API.STREAM.INFO.*", "_INBOX.>"], subscribe: ["_INBOX.>"] } },
        { user: blind, password: secret, permissions: { publish: ["_INBOX.>"], subscribe: ["_INBOX.>"] } },
    ] } }"#;

fn as_user(server: &Server, user: &str) -> Options {
    Options {
        urls: vec![server.url.replace("nats://", &format!("nats://{user}:secret@"))],
        layout: layout().into_iter().take(3).collect(),
        connect_wait: Duration::from_millis(400),
        ..server.options()
    }
}

#[tokio::test]
async fn a_user_who_may_not_create_is_told_which_stream_is_missing() {
    let server = Server::with(READER);
    let refused = refusal(as_user(&server, "reader")).await;
    let SetupError::MayNotCreate { stream, source } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(stream, "WAYBILL_EVENTS");
    assert!(
        source
            .to_string()
            .contains("\"$JS.API.STREAM.CREATE.WAYBILL_EVENTS\""),
        "{source}"
    );
    let refused = refusal(as_user(&server, "blind")).await;
    assert!(matches!(refused, SetupError::MayNotRead { .. }), "{refused}");
}

#[tokio::test]
async fn a_user_who_may_not_create_waits_for_one_who_may() {
    let server = Server::with(READER);
    let reader = Options {
        connect_wait: Duration::from_secs(10),
        ..as_user(&server, "reader")
    };
    let admin = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        Nats::connect(as_user(&server, "admin")).await
    };
    let (reader, admin) = tokio::join!(Nats::connect(reader), admin);
    assert!(admin.is_ok());
    let reader = reader.expect("it waited");
    // What it may not do is refused with the permission that is missing, and quickly.
    let got = reader.get("wb_catalog", "key.1").await;
    let told = got.expect_err("it may not").to_string();
    assert!(
        told.contains("\"$JS.API.STREAM.MSG.GET.KV_wb_catalog\""),
        "{told}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_is_away() {
    let server = Server::start();
    let mut options = server.options();
    options.urls = vec![server.url.replace("nats://", "tls://")];
    options.connect_wait = Duration::from_mins(5);
    let refused = refusal(options).await;
    assert!(matches!(refused, SetupError::Tls { .. }), "{refused}");
    assert!(!refused.may_pass());
}

/// A user that may do everything, and hear its answers below `_INBOX.mine` alone.
const OWN_PLACE: &str =
    "jetstream { store_dir: \"$DIR/store\", max_memory_store: 512MB, max_file_store: 8GB }
    authorization { users: [
      { user: node, password: secret, permissions: { publish: \">\", subscribe: [\"_INBOX.mine.>\"] } }
    ] }";

#[tokio::test]
async fn a_user_that_may_not_hear_its_answers_is_told_at_once_where_it_listens() {
    let server = Server::with(OWN_PLACE);
    let mut options = server.options();
    options.urls = vec![server.url.replace("nats://", "nats://node:secret@")];
    options.connect_wait = Duration::from_mins(5);

    let refused = refusal(options.clone()).await;
    options.inbox_prefix = Some("_INBOX.mine".to_owned());
    let heard = Nats::connect(options).await;

    assert!(matches!(refused, SetupError::MayNotListen { .. }), "{refused}");
    assert!(refused.to_string().contains("_INBOX.node.>"), "{refused}");
    assert!(heard.is_ok(), "{:?}", heard.err());
}
