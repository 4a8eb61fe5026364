//! Lengths, codings and framing: whatever an upstream or a caller does with them, body and headers agree.

use std::time::Duration;

use harness::{Behaviour, CALLER_KEY, RawSocket, Scene, chat, chat_streamed, chat_streamed_with_usage, raw};
use serde_json::json;
use tokio::time::Instant;

/// Resident bytes that a node may have grown by after a bomb.
const BOMB_GROWTH_BYTES_MAX: u64 = 200 << 20;

/// A coding and how an upstream is made to use it.
type Coding = (&'static str, fn(Behaviour) -> Behaviour);

fn codings() -> [Coding; 4] {
    [
        ("none", |plain| plain),
        ("gzip", Behaviour::gzip),
        ("br", Behaviour::br),
        ("zstd", Behaviour::zstd),
    ]
}

#[tokio::test]
async fn bug_case_37_coded_answers_arrive_plain_with_their_usage_whatever_the_caller_accepts() {
    let scene = Scene::start().await;

    for (coding, coded) in codings() {
        for accepts in ["", "gzip, br, zstd"] {
            let client = match accepts {
                "" => scene.client.clone(),
                accepts => scene.client.with_header("accept-encoding", accepts),
            };
            scene.o1.script([
                coded(Behaviour::chat("héllo 你好 {call}").usage(9, 20)),
                coded(Behaviour::chat("héllo 你好 {call}").usage(9, 20)),
            ]);
            let plain = client.post_chat(&chat("m")).await;
            let streamed = client
                .stream_chat(&chat_streamed_with_usage("m"))
                .await
                .collect()
                .await;

            let calls = scene.o1.calls();
            let said = |call: usize| format!("héllo 你好 {}", scene.o1.call(call).word);
            assert_eq!(
                (plain.status, plain.content()),
                (200, said(calls - 2)),
                "{coding}"
            );
            assert_eq!(plain.header("content-encoding"), "", "{coding}");
            assert_eq!(streamed.whole(), said(calls - 1), "{coding}");
            assert!(!streamed.headers.contains_key("content-encoding"), "{coding}");
            assert_eq!(
                streamed.usage().expect("usage")["completion_tokens"],
                20,
                "{coding}"
            );
            for id in [plain.request_id(), streamed.request_id()] {
                let row = scene.row(id).await;
                let figures = (&row["input_tokens"], &row["output_tokens"], &row["usage_source"]);
                assert_eq!(figures, (&json!(9), &json!(20), &json!("upstream")), "{coding}");
            }
            let asked = scene.o1.call(calls - 1).request;
            assert_eq!(asked.header("accept-encoding").unwrap_or("identity"), "identity");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn events_of_coded_streams_arrive_as_they_are_sent() {
    let scene = Scene::start().await;

    for (coding, coded) in codings() {
        scene.o1.script([coded(
            Behaviour::chat("")
                .chunks(6, Duration::from_millis(200))
                .usage(9, 20),
        )]);
        let started = Instant::now();
        let transcript = scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await;
        assert_eq!(transcript.whole(), "t1 t2 t3 t4 t5 t6", "{coding}");

        let call = scene.o1.call(scene.o1.calls() - 1);
        let sent: Vec<Instant> = call.sent_at.iter().map(|after| call.at + *after).collect();
        let late = |event: &harness::Event| {
            let at = started + event.at;
            sent.iter()
                .rev()
                .find_map(|sent| at.checked_duration_since(*sent))
                .unwrap_or_default()
        };
        let mut delays: Vec<Duration> = transcript.events.iter().map(late).collect();
        delays.sort();
        assert!(
            delays[delays.len() / 2] <= Duration::from_millis(50),
            "{coding}: {delays:?}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_37_a_bomb_is_cut_at_the_cap_and_costs_nobody_memory_or_money() {
    let scene = Scene::start_with(|node| {
        node.env("CIRCUIT_FAILURE_THRESHOLD", "100")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await;
    let before = scene.node.rss();

    for bomb in [Behaviour::bomb(), Behaviour::bomb().zstd()] {
        scene.o1.default(bomb.clone());
        scene.o2.default(bomb);
        for body in [chat("m"), chat_streamed("m")] {
            let answer = scene.client.post_chat(&body).await;
            assert_eq!(
                (answer.status, answer.error_code().as_str()),
                (502, "upstream_error"),
                "{}",
                answer.text()
            );
            let row = scene.row(answer.request_id()).await;
            assert_eq!(
                (&row["outcome"], &row["cost_nano_usd"]),
                (&json!("upstream_error"), &json!(0))
            );
        }
    }
    let growth = scene.node.rss_max().saturating_sub(before);
    assert!(growth < BOMB_GROWTH_BYTES_MAX, "{} MiB more", growth >> 20);
    scene.finish().await;
}

fn head(more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: waybill\r\nAuthorization: Bearer {CALLER_KEY}\r\n\
         Content-Type: application/json\r\n{more}\r\n"
    )
}

#[tokio::test]
async fn bug_case_37_both_lengths_at_once_are_refused_or_read_as_chunks_and_close_the_connection() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = chat("m").to_string();
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let smuggled = "GET /health HTTP/1.1\r\nHost: waybill\r\n\r\n";
    let length = body.len();

    for (lengths, legible) in [
        (
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
            true,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n".to_owned(),
            true,
        ),
        (
            format!("Content-Length: {length}\r\nContent-Length: 7\r\n"),
            false,
        ),
        (format!("Content-Length: {length}, 7\r\n"), false),
        (
            "Transfer-Encoding: chunked, identity\r\nContent-Length: 4\r\n".to_owned(),
            false,
        ),
        ("Transfer-Encoding: identity\r\n".to_owned(), false),
    ] {
        let sent = format!("{}{chunks}{smuggled}", head(&lengths));
        let answer = raw(scene.client.addr(), sent.as_bytes()).await;
        let refused = answer.status() == 400;
        assert!(
            refused || (legible && answer.status() == 200),
            "{lengths}: {}",
            answer.text()
        );
        assert!(answer.closed, "{lengths}");
        assert_eq!(
            answer.text().matches("HTTP/1.1 ").count(),
            1,
            "{lengths}: {}",
            answer.text()
        );
    }
    for call in scene.o1.recorded() {
        assert_eq!(call.request.body.as_ref(), body.as_bytes());
        assert_eq!(call.request.header("transfer-encoding"), None);
    }
    scene.finish().await;
}

#[tokio::test]
async fn odd_but_legal_framing_of_callers_becomes_one_exact_length_upstream() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = chat("m").to_string();
    let (first, second) = body.split_at(20);
    let chunked = format!(
        "{:X}\r\n{first}\r\n{:x};ext=1\r\n{second}\r\n0\r\nX-Trailer: canary-trailer\r\n\r\n",
        first.len(),
        second.len()
    );
    let cases = [
        (
            "upper case",
            format!(
                "{}{body}",
                head(&format!(
                    "CONTENT-LENGTH: {}\r\nConnection: close\r\n",
                    body.len()
                ))
            ),
        ),
        (
            "chunks and trailers",
            format!(
                "{}{chunked}",
                head("Transfer-Encoding: chunked\r\nTrailer: X-Trailer\r\nConnection: close\r\n")
            ),
        ),
    ];

    for (call, (case, sent)) in cases.into_iter().enumerate() {
        let answer = raw(scene.client.addr(), sent.as_bytes()).await;
        assert_eq!(answer.status(), 200, "{case}: {}", answer.text());
        let received = scene.o1.call(call).request;
        assert_eq!(received.body.as_ref(), body.as_bytes(), "{case}");
        assert_eq!(
            received.header("content-length"),
            Some(body.len().to_string().as_str()),
            "{case}"
        );
        assert_eq!(received.header("transfer-encoding"), None, "{case}");
        assert!(
            !String::from_utf8_lossy(&received.head).contains("railer"),
            "{case}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn expect_100_continue_is_answered_before_the_body_comes() {
    let mut scene = Scene::start().await;
    scene.foreign_calls();
    let body = chat("m").to_string();
    let mut socket = RawSocket::connect(scene.client.addr()).await;

    let lines = format!(
        "Content-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n",
        body.len()
    );
    socket.send(head(&lines).as_bytes()).await;
    let first = socket.read_until(|bytes| bytes.ends_with(b"\r\n\r\n")).await;
    assert_eq!(first.status(), 100, "{}", first.text());
    socket.send(body.as_bytes()).await;
    let answer = socket.read_to_end().await;

    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(scene.o1.call(0).request.header("expect"), None);
    scene.finish().await;
}

/// Headers of a caller that no upstream may see.
const SENT: [(&str, &str); 10] = [
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("proxy-authorization", "Basic canary"),
    ("cookie", "session=canary"),
    ("x-forwarded-for", "10.1.1.1"),
    ("x-api-base", "http://evil"),
    ("openai-organization", "canary"),
    ("user-agent", "canary-agent"),
    ("connection", "x-hop"),
];
/// Headers of an upstream that no caller may see.
const ANSWERED: [(&str, &str); 8] = [
    ("keep-alive", "timeout=77"),
    ("proxy-authenticate", "Basic"),
    ("set-cookie", "canary=1"),
    ("trailer", "x"),
    ("access-control-allow-origin", "*"),
    ("server", "canary-server"),
    ("x-request-id", "canary-id"),
    ("via", "1.1 canary"),
];
/// Those of them that no answer of ours has.
const HOPS: [&str; 6] = [
    "keep-alive",
    "proxy-authenticate",
    "set-cookie",
    "trailer",
    "access-control-allow-origin",
    "via",
];
/// All that an upstream is sent.
const KNOWN: [&str; 7] = [
    "host",
    "authorization",
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
];

#[tokio::test]
async fn headers_of_one_hop_or_one_party_cross_in_neither_direction() {
    let scene = Scene::start().await;
    let mut client = scene.client.clone();
    for (name, value) in SENT {
        client = client.with_header(name, value);
    }
    let bent = |behaviour: Behaviour| {
        ANSWERED
            .iter()
            .fold(behaviour, |bent, (name, value)| bent.header(name, value))
    };
    scene
        .o1
        .script([bent(Behaviour::chat("ok")), bent(Behaviour::chat("ok"))]);

    let plain = client.post_chat(&chat("m")).await;
    let streamed = client.stream_chat(&chat_streamed("m")).await.collect().await;

    assert_eq!((plain.status, streamed.whole().as_str()), (200, "ok"));
    for headers in [&plain.headers, &streamed.headers] {
        for (name, value) in headers {
            assert!(
                !value.to_str().unwrap_or_default().contains("canary"),
                "{name}: {value:?}"
            );
        }
        for name in HOPS {
            assert!(!headers.contains_key(name), "{name}");
        }
    }
    for call in scene.o1.recorded() {
        let names: Vec<&str> = call
            .request
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(names.iter().all(|name| KNOWN.contains(name)), "{names:?}");
        assert!(!String::from_utf8_lossy(&call.request.head).contains("canary-agent"));
    }
    scene.finish().await;
}
