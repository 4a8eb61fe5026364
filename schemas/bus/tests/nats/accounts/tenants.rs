//! Accounts of tenants, as `deploy/nats/tenants.conf` shows one.

use std::path::{Path, PathBuf};

use async_nats::jetstream::{self, stream};
use futures_util::StreamExt;

use super::*;

/// A copy of `deploy/nats` in which the example of `tenants.conf` counts, with `changed` made of it.
fn deployed(dir: &Path, changed: impl Fn(String) -> String) -> PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats");
    for name in ["single.conf", "accounts.conf"] {
        std::fs::copy(shipped.join(name), dir.join(name)).expect("copy");
    }
    let text = std::fs::read_to_string(shipped.join("tenants.conf")).expect("the example");
    let example: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#   "))
        .collect();
    assert!(example.len() > 3, "an example of an account");
    std::fs::write(dir.join("tenants.conf"), changed(example.join("\n"))).expect("write");
    dir.join("single.conf")
}

fn command_with_tenant() -> Command {
    let mut command = command();
    command.env("WAYBILL_NATS_TENANT_ACME_PASSWORD", "pass-of-ACME");
    command
}

async fn of_tenant(server: &Server) -> async_nats::Client {
    async_nats::ConnectOptions::with_user_and_password("acme".to_owned(), "pass-of-ACME".to_owned())
        .connect(&server.url)
        .await
        .expect("connect")
}

fn of(tenant: &str, id: &str) -> bus::Message {
    bus::Message {
        subject: format!("wb.ev.request.{tenant}"),
        ..message(id)
    }
}

#[tokio::test]
async fn a_tenant_keeps_a_stream_of_its_own_usage_and_reaches_nothing_else() {
    let dir = tempfile::tempdir().expect("dir");
    let server = Server::configured(
        &deployed(dir.path(), |example| example),
        &mut command_with_tenant(),
    );
    let gateway = {
        let _maker = role(&server, "ledger").await;
        role(&server, "gateway").await
    };
    let client = of_tenant(&server).await;
    let mut heard = client.subscribe(">").await.expect("subscribe");
    client.flush().await.expect("flush");
    let own = jetstream::new(client.clone())
        .create_stream(stream::Config {
            name: "USAGE".to_owned(),
            subjects: vec!["wb.ev.request.acme".to_owned()],
            ..stream::Config::default()
        })
        .await
        .expect("a stream of its own");

    let events = [
        of("beta", "one"),
        of("acme", "two"),
        of("beta", "three"),
        of("acme", "four"),
    ];
    gateway.publish(&events).await.expect("publish");

    for expected in ["two", "four"] {
        let told = tokio::time::timeout(PATIENCE, async {
            loop {
                let told = heard.next().await.expect("a message");
                if told.subject.as_str().starts_with("wb.") {
                    return told;
                }
            }
        });
        let told = told.await.expect("it is told");
        assert_eq!(told.subject.as_str(), "wb.ev.request.acme");
        let id = told
            .headers
            .as_ref()
            .and_then(|headers| headers.get("Nats-Msg-Id"));
        assert_eq!(id.map(ToString::to_string).as_deref(), Some(expected));
    }
    until_done(|| async {
        let mut own = own.clone();
        match own.info().await.expect("info").state.messages {
            2 => Ok(()),
            _ => Err(BusError::Timeout),
        }
    })
    .await;

    // Nothing of the account is heard outside it.
    let before = gateway.state().await.expect("state").last;
    for subject in ["wb.ev.request.acme", "wb.q.usage", "$KV.wb_catalog.key.01"] {
        client.publish(subject, "forged".into()).await.expect("sent");
    }
    client.flush().await.expect("flush");
    gateway.publish(&[of("beta", "five")]).await.expect("publish");
    assert_eq!(gateway.state().await.expect("state").last, before + 1);
    assert!(
        gateway
            .get(subject::CATALOG_BUCKET, "key.01")
            .await
            .expect("get")
            .is_none()
    );
    let theirs = jetstream::new(client).get_stream(subject::EVENTS_STREAM).await;
    assert!(theirs.is_err(), "the log of all");
}

#[tokio::test]
async fn an_account_that_imports_what_is_another_tenants_keeps_the_server_from_starting() {
    let dir = tempfile::tempdir().expect("dir");
    let config = deployed(dir.path(), |example| {
        example.replace("request.acme", "request.beta")
    });

    let tried = command_with_tenant()
        .env("WAYBILL_NATS_STORE", dir.path())
        .arg("-t")
        .arg("-c")
        .arg(&config)
        .output()
        .expect("a run");

    assert!(!tried.status.success());
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert!(said.contains("not authorized"), "{said}");
}
