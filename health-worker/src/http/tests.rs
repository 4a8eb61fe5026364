//! Tests of questions: what is sent, and the bounds of what comes back.

use super::*;
use crate::testing::{Server, answer, tls};

const WITHIN: Duration = Duration::from_secs(20);

fn client(allow: &[&str]) -> Client {
    let networks = allow.iter().map(|text| text.parse().expect("a network"));
    Client::new(Egress::new(networks.collect()), tls(), "1.2.3")
}

fn question(url: &str, guarded: bool) -> Question {
    Question {
        url: url.into(),
        guarded,
    }
}

#[tokio::test]
async fn a_question_has_no_credential_and_follows_no_redirect() {
    let server = Server::start(|path| match path {
        "/away" => Some(b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_vec()),
        _ => Some(answer(200, "figures")),
    })
    .await;
    let asked = question(&format!("{}/metrics?a=b", server.url()), false);

    let told = client(&[]).ask(&asked, 100, WITHIN).await.expect("an answer");

    assert_eq!((told.status, &told.body[..]), (200, &b"figures"[..]));
    assert!(told.is_success());
    let head = server.heads().remove(0).to_ascii_lowercase();
    assert!(head.starts_with("get /metrics?a=b http/1.1\r\n"), "{head}");
    assert!(
        head.contains("user-agent: waybill/1.2.3\r\n") && head.contains("connection: close\r\n"),
        "{head}"
    );
    assert!(
        !head.contains("authorization") && !head.contains("api-key") && !head.contains("cookie"),
        "{head}"
    );
    let away = question(&format!("{}/away", server.url()), false);
    let told = client(&[]).ask(&away, 0, WITHIN).await.expect("an answer");
    assert!(told.status == 302 && !told.is_success());
    assert_eq!(server.heads().len(), 2);
}

#[tokio::test]
async fn an_answer_has_a_bound_in_size_and_in_time() {
    let server = Server::start(|path| match path {
        "/long" => Some(answer(200, &"x".repeat(101))),
        "/endless" => None,
        "/cut" => Some(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec()),
        "/odd" => Some(b"hello\r\n\r\n".to_vec()),
        _ => Some(answer(200, "")),
    })
    .await;
    let client = client(&[]);
    let ask = |path: &str| question(&format!("{}{path}", server.url()), false);

    let long = client.ask(&ask("/long"), 100, WITHIN).await;
    assert!(matches!(long, Err(Error::Body(_))), "{long:?}");
    let status = client.ask(&ask("/long"), 0, WITHIN).await.expect("a status");
    assert_eq!((status.status, status.body.len()), (200, 0));
    let silent = client
        .ask(&ask("/endless"), 100, Duration::from_millis(100))
        .await;
    assert!(matches!(silent, Err(Error::Late)), "{silent:?}");
    assert!(client.ask(&ask("/cut"), 100, WITHIN).await.is_err());
    assert!(matches!(
        client.ask(&ask("/odd"), 100, WITHIN).await,
        Err(Error::Exchange(_))
    ));
}

#[tokio::test]
async fn addresses_that_endpoints_of_run_time_may_not_have_are_not_called() {
    let server = Server::start(|_| Some(answer(200, ""))).await;
    let port = server.url().rsplit_once(':').expect("a port").1.to_owned();
    let named = format!("http://localhost:{port}/health");
    let mapped = format!("http://[::ffff:127.0.0.1]:{port}/health");
    for url in [format!("{}/health", server.url()), named, mapped] {
        let asked = client(&["10.0.0.0/8"])
            .ask(&question(&url, true), 0, WITHIN)
            .await;
        assert!(matches!(asked, Err(Error::Forbidden(_))), "{url}: {asked:?}");
    }
    assert_eq!(server.heads().len(), 0);

    let allowed = question(&format!("{}/health", server.url()), true);
    let told = client(&["127.0.0.0/8"]).ask(&allowed, 0, WITHIN).await;
    assert_eq!(told.expect("an answer").status, 200);
}

#[tokio::test]
async fn what_is_no_address_is_not_called() {
    for url in ["", "/health", "ftp://127.0.0.1/", "http://"] {
        let asked = client(&[]).ask(&question(url, false), 0, WITHIN).await;
        assert!(matches!(asked, Err(Error::Address)), "{url}: {asked:?}");
    }
}
