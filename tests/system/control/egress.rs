//! Endpoints that people register lie at public addresses, or where the node's configuration lets them: whatever way an
//! address is written, and whichever call leads there.

use harness::{NodeBuilder, Scene, Surface, Upstream, chat};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, call, done, operator};

/// Ways in which this machine is written, where a URL is taken at all.
const FORMS: [&str; 16] = [
    "http://127.0.0.1:PORT/v1",
    "http://127.1:PORT/v1",
    "http://2130706433:PORT/v1",
    "http://0x7f.0.0.1:PORT/v1",
    "http://0177.0.0.1:PORT/v1",
    "http://127.0.0.1.:PORT/v1",
    "http://0.0.0.0:PORT/v1",
    "http://0:PORT/v1",
    "http://localhost:PORT/v1",
    "http://localhost.:PORT/v1",
    "http://[::1]:PORT/v1",
    "http://[::]:PORT/v1",
    "http://[::ffff:127.0.0.1]:PORT/v1",
    "http://[64:ff9b::7f00:1]:PORT/v1",
    "http://me@127.0.0.1:PORT/v1",
    "http://169.254.169.254/latest/meta-data",
];

/// Fields of bodies by which callers of other gateways choose where a call goes.
const FIELDS: [&str; 5] = ["api_base", "base_url", "provider", "custom_host", "extra_headers"];
/// Headers that are used so, or that tell a proxy where a call was meant to go.
const HEADERS: [&str; 8] = [
    "x-portkey-custom-host",
    "x-portkey-provider",
    "helicone-target-url",
    "x-base-url",
    "x-api-base",
    "x-upstream",
    "x-forwarded-host",
    "x-original-url",
];

/// Where the node itself lies as it is by default: no network is allowed.
fn strict(node: NodeBuilder) -> NodeBuilder {
    node.env(
        "WAYBILL_MASTER_KEY",
        "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=",
    )
}

#[tokio::test]
async fn bug_case_4_no_call_of_any_kind_connects_an_address_that_an_endpoint_may_not_have() {
    let mut scene = Scene::start_with(strict).await;
    scene.pin();
    let operator = operator(&scene);
    let closed = Upstream::start();
    let port = closed.addr().port().to_string();

    let mut registered = 0;
    for (n, form) in FORMS.iter().enumerate() {
        let url = form.replace("PORT", &port);
        let model = format!("closed-{n}");
        let described = json!({
            "name": &model, "backends": [{"url": url}], "credential": {"value": "sk-of-no-use-000000000"},
        });
        let made = call(&operator, "POST", "/api/v1/endpoints", described).await;
        if made.status == 400 {
            assert_eq!(
                made.json()["error"]["param"],
                "backends[0].url",
                "{}",
                made.text()
            );
            continue;
        }
        registered += 1;
        let shared = json!({"tenants": null});
        done(&operator, "PATCH", &format!("/api/v1/models/{model}"), shared).await;
        let id = made.json()["id"].as_str().expect("an id").to_owned();
        let path = format!("/api/v1/endpoints/{id}/test");
        let tested = done(&operator, "POST", &path, Value::Null).await;
        assert_eq!(
            (&tested["ok"], &tested["status"]),
            (&json!(false), &Value::Null),
            "{form}: {tested}"
        );
        assert!(!tested.to_string().contains("127."), "{tested}");
        let start = Instant::now();
        loop {
            let answer = scene.client.post_chat(&chat(&model)).await;
            if answer.status != 404 {
                assert!(answer.status >= 500, "{form}: {}", answer.text());
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{}", answer.text());
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    assert!(registered >= 10, "only {registered} were taken");
    assert_eq!(closed.accepted(), 0);
    // The very upstreams of models.yaml lie there, and are served from.
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_4_an_answer_that_points_to_a_closed_address_is_not_followed() {
    let scene = super::secrets::scene().await;
    let operator = operator(&scene);
    let (own, closed) = (Upstream::start(), Upstream::start());
    let to = format!("{}/chat/completions", closed.url());
    own.default(harness::Behaviour::error(307, "elsewhere").header("location", &to));
    let path = super::secrets::registered(&operator, &own.url()).await;

    let tested = done(&operator, "POST", &format!("{path}/test"), Value::Null).await;

    assert_eq!(
        (&tested["ok"], &tested["status"]),
        (&json!(false), &json!(307)),
        "{tested}"
    );
    assert_eq!((own.calls(), closed.accepted()), (1, 0));
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_4_nothing_that_a_caller_sends_says_where_his_call_goes() {
    let scene = Scene::start().await;
    let elsewhere = Upstream::start();
    let url = elsewhere.url();

    for surface in Surface::ALL {
        let mut sent: Vec<(&str, harness::Client, Value)> = Vec::new();
        for field in FIELDS {
            let mut body = surface.ask("m");
            body[field] = match field {
                "extra_headers" => json!({"host": elsewhere.addr().to_string(), "x-base-url": url}),
                _ => json!(url),
            };
            sent.push((field, scene.client.clone(), body));
        }
        for name in HEADERS {
            sent.push((name, scene.client.with_header(name, &url), surface.ask("m")));
        }
        for (what, client, body) in sent {
            let calls = scene.o1.calls();
            let answer = client.post_inference(surface.path(), body.to_string()).await;
            let answer = answer.expect("an answer");
            // It goes where it always goes, or nowhere.
            let went = scene.o1.calls() - calls;
            let expected = usize::from(answer.status == 200);
            assert!([200, 400].contains(&answer.status), "{what}: {}", answer.text());
            assert_eq!(went, expected, "{what} on {}", surface.path());
        }
    }

    assert_eq!((elsewhere.accepted(), scene.o2.calls()), (0, 0));
    scene.finish().await;
}
