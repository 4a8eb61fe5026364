//! Calls that pass to one endpoint as they are: what is sent arrives byte for byte, and so does the answer; who may, what
//! it costs, and that nothing passes which was not judged.

use std::net::SocketAddr;

use bytes::Bytes;
use harness::{Answer, CALLER_KEY, Client, OPERATOR_KEY, OTHER_KEY, PROVIDER_KEY, Plan, Scene};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::control::secrets::on_loopback;
use crate::control::{PATIENCE, done};

mod refused;
mod service;

use service::{ANSWER, BEGINNING, EVENTS, Service};

/// A body that no server of ours would write so.
const BODY: &str =
    "{ \"messages\":[{\"role\":\"user\",\"content\":\"hi\\u0021\"}] ,\"model\":\"up\", \"own\":1.50 }";

/// A scene in which tenant acme has an endpoint of its own.
struct Stage {
    scene: Scene,
    service: Service,
    /// The endpoint's id.
    endpoint: String,
}

impl Stage {
    async fn start() -> Self {
        let mut scene = Scene::start_with(on_loopback).await;
        scene.pin();
        Self::on(scene).await
    }

    async fn on(mut scene: Scene) -> Self {
        scene.foreign_calls();
        scene.price("box", None);
        let service = Service::start();
        let operator = scene.client.with_key(OPERATOR_KEY);
        let described = json!({
            "name": "box", "tenant": "acme", "backends": [{"url": service.url()}],
            "credential": {"value": PROVIDER_KEY}, "upstream_model": "up",
        });
        let made = done(&operator, "POST", "/api/v1/endpoints", described).await;
        let endpoint = made["id"].as_str().expect("an id").to_owned();
        let price = json!({
            "tenant": "acme", "model": "box",
            "pricing": {"prompt": "2", "completion": "8", "request": "0.000005"},
        });
        done(&operator, "POST", "/api/v1/prices", price).await;
        let stage = Self {
            scene,
            service,
            endpoint,
        };
        stage.until_there().await;
        stage
    }

    /// Waits until what was made counts where the client calls.
    async fn until_there(&self) {
        let there = async {
            loop {
                let answer = self.call("POST", "/v1/chat/completions", BODY).await;
                let row = match answer.status {
                    200 => self.scene.row(answer.request_id()).await,
                    _ => Value::Null,
                };
                if row["cost_nano_usd"] == json!(183_000) {
                    return;
                }
            }
        };
        timeout(PATIENCE, there).await.expect("the endpoint is there");
    }

    fn path(&self, behind: &str) -> String {
        format!("/api/v1/proxy/{}{behind}", self.endpoint)
    }

    async fn call(&self, method: &str, behind: &str, body: &str) -> Answer {
        self.call_as(&self.scene.client, method, behind, body).await
    }

    async fn call_as(&self, client: &Client, method: &str, behind: &str, body: &str) -> Answer {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let called = client.call(method, &self.path(behind), body).await;
        called.expect("an answer")
    }

    /// The whole answer to a request that is written by hand, its head first.
    async fn spoken(&self, method: &str, behind: &str, rest: &str) -> String {
        let mut stream = TcpStream::connect(self.addr()).await.expect("connected");
        let head = format!(
            "{method} {} HTTP/1.1\r\nhost: us\r\nauthorization: Bearer {CALLER_KEY}\r\nconnection: close\r\n{rest}",
            self.path(behind)
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut told = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut told)).await;
        read.expect("an end").expect("an answer");
        String::from_utf8_lossy(&told).into_owned()
    }

    fn addr(&self) -> SocketAddr {
        self.scene.node.addr()
    }

    async fn finish(self) {
        self.scene.finish().await;
    }
}

/// The figures of a row.
fn figures(row: &Value) -> Value {
    json!([
        row["surface"],
        row["model"],
        row["outcome"],
        row["status"],
        row["input_tokens"],
        row["output_tokens"],
        row["usage_source"],
        row["cost_nano_usd"],
    ])
}

#[tokio::test]
async fn a_call_and_its_answer_pass_byte_for_byte_and_are_billed_by_the_usage_that_is_told() {
    let stage = Stage::start().await;
    let client = stage
        .scene
        .client
        .with_header("x-own", "a  b")
        .with_header("x-forwarded-host", "evil.example")
        .with_header("cookie", "session=1");

    let path = "/v1/chat/completions?a=%2F&key=theirs&b";
    let answer = stage.call_as(&client, "POST", path, BODY).await;

    assert_eq!((answer.status, answer.text()), (200, ANSWER.to_owned()));
    let sent = stage.service.last();
    assert_eq!(sent.target, "POST /v1/chat/completions?a=%2F&b");
    assert_eq!(sent.body, BODY);
    assert_eq!(sent.header("authorization"), format!("Bearer {PROVIDER_KEY}"));
    assert_eq!(
        (sent.header("x-own"), sent.header("content-type")),
        ("a  b", "application/json")
    );
    assert_eq!((sent.header("x-forwarded-host"), sent.header("cookie")), ("", ""));
    let row = stage.scene.row(answer.request_id()).await;
    let expected = json!(["proxy", "box", "ok", 200, 9, 20, "upstream", 183_000]);
    assert_eq!(figures(&row), expected, "{row}");
    assert_eq!(row["attempts"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&row["endpoint_id"], &row["served_model"]),
        (&json!(stage.endpoint), &json!("up"))
    );
    // By its name as well, which is what people know.
    let named = stage.path("/v1/chat/completions").replace(&stage.endpoint, "box");
    let answer = stage
        .scene
        .client
        .call("POST", &named, Bytes::from_static(BODY.as_bytes()))
        .await;
    assert_eq!(answer.expect("an answer").status, 200);
    stage.finish().await;
}

#[tokio::test]
async fn a_stream_passes_byte_for_byte_and_its_usage_is_found() {
    let stage = Stage::start().await;
    let body = "{\"model\":\"up\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

    let answer = stage.call("POST", "/v1/chat/completions", body).await;

    assert_eq!((answer.status, answer.text()), (200, EVENTS.to_owned()));
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let row = stage.scene.row(answer.request_id()).await;
    let expected = json!(["proxy", "box", "ok", 200, 9, 20, "upstream", 183_000]);
    assert_eq!((figures(&row), &row["stream"]), (expected, &json!(true)), "{row}");
    stage.finish().await;
}

#[tokio::test]
async fn any_method_path_and_body_pass_and_cost_what_a_call_costs() {
    let stage = Stage::start().await;
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POST"] {
        let body = if method == "GET" { "" } else { "{\"a\":1}" };
        let answer = stage.call(method, "/own/%20path/", body).await;

        assert_eq!(
            (answer.status, &answer.body[..]),
            (201, &b"\x00\xffown bytes"[..]),
            "{method}"
        );
        assert_eq!(stage.service.last().target, format!("{method} /own/%20path/"));
        assert_eq!(stage.service.last().body, body);
        let kept = ["content-type", "etag", "x-own"].map(|name| answer.header(name).to_owned());
        assert_eq!(kept, ["application/x-own", "\"7\"", "yes"]);
        assert_eq!(
            (
                answer.header("set-cookie"),
                answer.header("access-control-allow-origin")
            ),
            ("", "")
        );
        assert_eq!(answer.header("content-security-policy"), "sandbox");
        let row = stage.scene.row(answer.request_id()).await;
        assert_eq!(
            figures(&row),
            json!(["proxy", "box", "ok", 201, 0, 0, "none", 5_000]),
            "{row}"
        );
    }
    let head = stage.spoken("HEAD", "/own", "\r\n").await;
    assert!(head.starts_with("HTTP/1.1 201"), "{head}");
    assert_eq!(head.split_once("\r\n\r\n").map(|(_, body)| body), Some(""));
    assert!(head.contains("content-length: 11\r\n"), "{head}");

    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nup\r\n--b--\r\n";
    let typed = format!(
        "content-type: multipart/form-data; boundary=b\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    let told = stage.spoken("POST", "/v1/audio/transcriptions", &typed).await;
    assert!(told.starts_with("HTTP/1.1 201"), "{told}");
    let sent = stage.service.last();
    assert_eq!(sent.body, form);
    assert_eq!(sent.header("content-type"), "multipart/form-data; boundary=b");
    stage.finish().await;
}

#[tokio::test]
async fn failures_pass_in_their_own_words_but_for_what_is_said_of_the_credential_or_of_another_place() {
    let stage = Stage::start().await;

    let missing = stage.call("GET", "/fails/404", "").await;
    assert_eq!(
        (missing.status, missing.text()),
        (404, "{\"own\": \"words\"}".to_owned())
    );
    let row = stage.scene.row(missing.request_id()).await;
    assert_eq!(
        figures(&row),
        json!(["proxy", "box", "upstream_error", 404, 0, 0, "none", 0]),
        "{row}"
    );

    let broken = stage.call("POST", "/fails/500/v1/chat/completions", BODY).await;
    assert_eq!((broken.status, broken.text()), (500, "it broke".to_owned()));
    let row = stage.scene.row(broken.request_id()).await;
    assert_eq!(
        figures(&row),
        json!(["proxy", "box", "upstream_error", 500, 0, 0, "none", 0]),
        "{row}"
    );

    for (path, code) in [
        ("/fails/401", "upstream_rejected_credential"),
        ("/elsewhere", "upstream_error"),
    ] {
        let before = stage.service.asked().len();
        let answer = stage.call("GET", path, "").await;
        assert_eq!(
            (answer.status, answer.error_code()),
            (502, code.to_owned()),
            "{path}"
        );
        assert!(!answer.text().contains("sk-inner"));
        assert_eq!((answer.header("location"), answer.header("set-cookie")), ("", ""));
        assert_eq!(stage.service.asked().len(), before + 1);
        let row = stage.scene.row(answer.request_id()).await;
        assert_eq!(
            (&row["status"], &row["cost_nano_usd"]),
            (&json!(502), &json!(0)),
            "{row}"
        );
    }
    // Odd questions take no credential out of use.
    let answer = stage.call("POST", "/v1/chat/completions", BODY).await;
    assert_eq!(answer.status, 200);
    stage.finish().await;
}

#[tokio::test]
async fn a_stream_that_is_cut_is_visibly_broken_and_one_whose_reader_leaves_ends() {
    let stage = Stage::start().await;
    let body = "{\"model\":\"up\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    let rest = |body: &str| {
        format!(
            "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };

    let told = stage
        .spoken("POST", "/cut/v1/chat/completions", &rest(body))
        .await;

    assert!(told.contains(BEGINNING.trim()), "{told}");
    assert!(!told.ends_with("0\r\n\r\n"), "{told}");
    let row = stage.scene.row(request_id(&told)).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("upstream_cut"), &json!(0)),
        "{row}"
    );

    let mut stream = TcpStream::connect(stage.addr()).await.expect("connected");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: us\r\nauthorization: Bearer {CALLER_KEY}\r\n{}",
        stage.path("/endless/v1/chat/completions"),
        rest(body)
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut told = String::new();
    while !told.contains("one") {
        let mut piece = [0; 1_024];
        let read = timeout(PATIENCE, stream.read(&mut piece)).await;
        let size = read.expect("a piece in time").expect("a piece");
        assert!(size > 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&piece[..size]));
    }
    drop(stream);
    stage.service.wait_left().await;
    let row = stage.scene.row(request_id(&told)).await;
    assert_eq!(row["outcome"], json!("client_gone"), "{row}");
    stage.finish().await;
}

fn request_id(told: &str) -> &str {
    let line = told.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    line.expect("an id").trim()
}

#[tokio::test]
async fn calls_pass_through_a_gateway_that_has_no_router_of_its_own() {
    let plan = Plan {
        routers_apart: true,
        ..Plan::default()
    };
    let mut scene = Scene::start_cluster(plan, |node| {
        node.setting("egress", json!({"allow": ["127.0.0.0/8"]})).env(
            "WAYBILL_MASTER_KEY",
            "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=",
        )
    })
    .await;
    scene.pin();
    let stage = Stage::on(scene).await;

    let large = format!("{{\"model\":\"up\",\"text\":\"{}\"}}", "x".repeat(3_000_000));
    let answer = stage.call("PUT", "/own", &large).await;

    assert_eq!(
        (answer.status, &answer.body[..]),
        (201, &b"\x00\xffown bytes"[..])
    );
    assert_eq!(stage.service.last().body, large);
    let row = stage.scene.row(answer.request_id()).await;
    assert_eq!(
        figures(&row),
        json!(["proxy", "box", "ok", 201, 0, 0, "none", 5_000]),
        "{row}"
    );
    stage.finish().await;
}
