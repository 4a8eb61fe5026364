//! Pools of credentials: which one a call is made with, and what becomes of one that is refused. Told of every surface,
//! because they share one execution path.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Answer, Behaviour, Client, Model, NodeBuilder, PRO_KEY, Scene, Surface, Upstream, settings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::retries::tireless;
use crate::rows::{assert_free, endpoint};

/// The model with one leg to an upstream and these credentials.
pub(crate) fn model(upstream: &Upstream, keys: Value) -> Model {
    Model::new("m")
        .leg(upstream, 0)
        .set_leg("api_key", Value::Null)
        .set_leg("api_keys", keys)
}

/// A scene of one leg with these credentials, and a second leg where `fallback` says so. Circuits never open.
pub(crate) async fn scene(
    keys: Value,
    fallback: bool,
    bend: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, keys);
    let model = if fallback { model.leg(&o2, 1) } else { model };
    let mut keys = settings()["keys"].clone();
    let pro = json!({"name": "pro", "tenant": "acme", "user": "bob", "key": PRO_KEY, "role": "pro"});
    keys.as_array_mut().expect("a list of keys").push(pro);
    let mut scene = Scene::start_on(o1, o2, |node| {
        bend(tireless(node).setting("keys", keys).models(&[model]))
    })
    .await;
    // What is known of a credential is known to the router that used it.
    scene.pin();
    scene
}

pub(crate) fn as_it_is(node: NodeBuilder) -> NodeBuilder {
    node
}

/// The credentials of an upstream's calls from the one with this number on, without their scheme.
pub(crate) fn used(upstream: &Upstream, from: usize) -> Vec<String> {
    let key = |call: harness::Call| {
        let header = call
            .request
            .header("authorization")
            .expect("a credential")
            .to_owned();
        header.trim_start_matches("Bearer ").to_owned()
    };
    upstream.recorded().into_iter().skip(from).map(key).collect()
}

pub(crate) async fn ask(client: &Client, surface: Surface) -> Answer {
    client.post(surface, &surface.ask("m")).await
}

/// The sum of a metric of credentials over its series that hold `label`.
pub(super) async fn counted(scene: &Scene, metric: &str, label: &str) -> f64 {
    let page = scene.node.metrics().await;
    page.lines()
        .filter(|line| line.starts_with(metric) && line.contains(label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[tokio::test]
async fn hybrid_case_34_callers_without_a_right_to_any_credential_say_nothing_about_the_upstream() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, json!([{"key": "kept", "min_role": "pro"}]));
    let mut keys = settings()["keys"].clone();
    let pro = json!({"name": "pro", "tenant": "acme", "key": PRO_KEY, "role": "pro"});
    keys.as_array_mut().expect("a list of keys").push(pro);
    // The circuit would open after three failures.
    let scene = Scene::start_on(o1, o2, |node| node.setting("keys", keys).models(&[model])).await;

    for round in 0..25 {
        let answers = join_all(Surface::ALL.map(|surface| ask(&scene.client, surface))).await;
        for answer in answers {
            assert_eq!(answer.status, 503, "{round}: {}", answer.text());
            assert_eq!(answer.header("retry-after"), "60", "{round}: it lasts");
        }
    }

    assert_eq!(scene.o1.calls(), 0);
    let answer = ask(&scene.client.with_key(PRO_KEY), Surface::Chat).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(used(&scene.o1, 0), ["kept"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_limited_credential_gives_way_within_the_request_and_stays_the_first() {
    let scene = scene(json!(["k1", "k2"]), false, as_it_is).await;
    for surface in Surface::ALL {
        for _ in 0..3 {
            let before = scene.o1.calls();
            scene.o1.script([Behaviour::error(429, "slow down")]);

            let answer = ask(&scene.client, surface).await;

            assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
            assert_eq!(used(&scene.o1, before), ["k1", "k2"], "{surface:?}");
        }
    }
    assert!(counted(&scene, "waybill_upstream_credentials_total", "rotated").await >= 12.0);
    scene.finish().await;
}

#[tokio::test]
async fn a_refused_request_is_told_at_once_and_no_other_credential_is_tried() {
    let scene = scene(json!(["k1", "k2"]), false, as_it_is).await;
    for surface in Surface::ALL {
        let before = scene.o1.calls();
        scene
            .o1
            .script([Behaviour::error(400, "temperature is out of range")]);

        let answer = ask(&scene.client, surface).await;

        assert_eq!(answer.status, 400, "{surface:?}: {}", answer.text());
        assert_eq!(used(&scene.o1, before), ["k1"], "{surface:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_a_moderator_refuses_is_the_request_and_speaks_against_no_credential() {
    let scene = scene(json!(["k1", "k2"]), false, as_it_is).await;
    let refusal = json!({"error": {"code": 403, "message": "the input was flagged",
        "metadata": {"reasons": ["violence"], "flagged_input": "canary"}}});
    for surface in Surface::ALL {
        for status in [403, 200] {
            for _ in 0..3 {
                let before = scene.o1.calls();
                scene.o1.script([Behaviour::status(status, refusal.clone())]);

                let answer = ask(&scene.client, surface).await;

                let case = format!("{surface:?}, {status}: {}", answer.text());
                assert_eq!(answer.status, 400, "{case}");
                let told = &answer.json()["error"];
                assert_eq!(told["type"], "invalid_request_error", "{case}");
                assert_eq!(told["message"], "the input was flagged", "{case}");
                assert_eq!(used(&scene.o1, before), ["k1"], "{case}");
                let row = scene.row(answer.request_id()).await;
                assert_free(&row, "upstream_error", 400, "upstream_rejected_request");
            }
        }
    }
    let refused = counted(&scene, "waybill_upstream_credentials_total", "\"refused\"").await;
    assert!(refused.abs() < f64::EPSILON, "{refused}");
    assert_eq!(ask(&scene.client, Surface::Chat).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_39_credentials_that_are_kept_for_a_role_are_asked_first_by_it_and_never_by_others() {
    let keys = json!(["shared", {"key": "kept", "min_role": "pro"}, {"key": "shared"}]);
    let scene = scene(keys, false, as_it_is).await;
    let pro = scene.client.with_key(PRO_KEY);
    for surface in Surface::ALL {
        let before = scene.o1.calls();
        ask(&scene.client, surface).await;
        ask(&pro, surface).await;
        assert_eq!(used(&scene.o1, before), ["shared", "kept"], "{surface:?}");
    }
    let before = scene.o1.calls();
    scene.o1.default(Behaviour::error(429, "slow down"));

    let free = ask(&scene.client, Surface::Chat).await;
    let paid = ask(&pro, Surface::Chat).await;

    assert_eq!((free.status, paid.status), (429, 429));
    // Declared twice it is one credential: nobody is refused twice by it in one request.
    assert_eq!(used(&scene.o1, before), ["shared", "kept", "shared"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_secret_that_is_listed_twice_is_kept_for_the_higher_role() {
    let keys = json!(["shared", {"key": "twice", "min_role": "pro"}, "twice"]);
    let scene = scene(keys, false, as_it_is).await;
    scene.o1.default(Behaviour::error(429, "slow down"));

    assert_eq!(ask(&scene.client, Surface::Chat).await.status, 429);
    assert_eq!(used(&scene.o1, 0), ["shared"]);
    assert_eq!(
        ask(&scene.client.with_key(PRO_KEY), Surface::Chat).await.status,
        429
    );
    assert_eq!(used(&scene.o1, 1), ["twice", "shared"]);
    scene.finish().await;
}

#[tokio::test]
async fn a_dead_credential_is_the_operators_to_mend_and_never_a_rate() {
    for status in [401, 402, 403] {
        let scene = scene(json!(["dead"]), false, as_it_is).await;
        let refusal = "Incorrect API key provided: sk-harness-canary-upstream-31ffe0";
        scene.o1.default(Behaviour::error(status, refusal));
        for round in 0..3 {
            for surface in Surface::ALL {
                let answer = ask(&scene.client, surface).await;

                assert_eq!(answer.status, 502, "{surface:?} {round}: {}", answer.text());
                assert_eq!(answer.header("retry-after"), "", "{surface:?}");
                assert!(!answer.text().contains("canary"), "{}", answer.text());
                if surface == Surface::Messages {
                    assert_eq!(answer.json()["error"]["type"], "api_error");
                } else {
                    assert_eq!(answer.error_code(), "upstream_rejected_credential");
                }
                let row = scene.row(answer.request_id()).await;
                assert_free(&row, "upstream_error", 502, "upstream_rejected_credential");
            }
        }

        assert_eq!(scene.o1.calls(), 3, "muted after two that are free and one more");
        operators_know(&scene, status).await;
        scene.finish().await;
    }
}

/// Panics unless operators were told of the refused credential once: by a line, a gauge and an event.
async fn operators_know(scene: &Scene, status: u16) {
    let line = "an upstream does not accept a credential";
    let lines = scene
        .node
        .logs()
        .iter()
        .filter(|said| said.contains(line))
        .count();
    assert_eq!(lines, 1, "once a minute");
    let id = endpoint("m", &scene.o1);
    assert!((counted(scene, "waybill_upstream_credentials_refused", &id).await - 1.0).abs() < f64::EPSILON);
    assert!(
        (counted(scene, "waybill_upstream_credentials_total", "\"refused\"").await - 3.0).abs()
            < f64::EPSILON
    );
    let changes = credential_events(scene, 1).await;
    let told = &changes[0];
    assert_eq!(
        (&told["credential"], &told["accepted"], &told["status"]),
        (&json!(format!("{id}#0")), &json!(false), &json!(status))
    );
}

/// What the log says about credentials, once it says so much; panics after five seconds.
async fn credential_events(scene: &Scene, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let rows = scene.node.books().table("event_log").await;
        let envelopes = rows.iter().filter_map(|row| row.get("envelope")?.as_deref());
        let parsed = envelopes.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let found: Vec<Value> = parsed
            .filter(|envelope| envelope["type"] == "waybill.health.credential.v1")
            .map(|envelope| envelope["data"].clone())
            .collect();
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn operators_are_told_when_a_dead_credential_lives_again() {
    let scene = scene(json!(["once-dead"]), false, as_it_is).await;
    scene.o1.script([Behaviour::error(403, "no")]);

    let refused = ask(&scene.client, Surface::Messages).await;
    let accepted = ask(&scene.client, Surface::Messages).await;

    assert_eq!((refused.status, accepted.status), (502, 200));
    let told: Vec<Value> = credential_events(&scene, 2).await;
    let accepted: Vec<&Value> = told.iter().map(|change| &change["accepted"]).collect();
    assert_eq!(accepted, [&json!(false), &json!(true)]);
    let refused = counted(&scene, "waybill_upstream_credentials_refused", "m:").await;
    assert!(refused.abs() < f64::EPSILON, "{refused}");
    scene.finish().await;
}

#[tokio::test]
async fn a_limited_pool_is_a_rate_with_an_end() {
    let scene = scene(json!(["busy"]), false, as_it_is).await;
    let busy = Behaviour::error(429, "slow down").header("retry-after", "3");
    scene.o1.default(busy);

    for surface in Surface::ALL {
        let answer = ask(&scene.client, surface).await;

        assert_eq!(answer.status, 429, "{surface:?}: {}", answer.text());
        let wait: u64 = answer.header("retry-after").parse().expect("whole seconds");
        if scene.o1.calls() < 3 {
            assert_eq!(wait, 3, "{surface:?}: as the upstream says");
        }
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "upstream_error", 429, "upstream_rate_limited");
    }
    // The third muted the only credential for fifteen seconds: nothing is sent meanwhile.
    assert_eq!(scene.o1.calls(), 3);
    let answer = ask(&scene.client, Surface::Messages).await;
    let wait: u64 = answer.header("retry-after").parse().expect("whole seconds");
    assert!((5..=15).contains(&wait), "{wait}");
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    scene.finish().await;
}

/// An error of Google's: what hides in its details says more than its status.
fn of_google(code: u16, detail: &Value) -> Behaviour {
    let error = json!({"code": code, "message": "no", "status": "INVALID_ARGUMENT", "details": [detail]});
    Behaviour::status(code, json!({"error": error}))
}

/// A scene of one leg to a Gemini with these credentials.
async fn gemini_scene(keys: Value) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, keys)
        .set_leg("kind", "gemini")
        .set_leg("base_url", o1.root_url());
    let mut scene = Scene::start_on(o1, o2, |node| tireless(node).models(&[model])).await;
    scene.pin();
    scene
}

#[tokio::test]
async fn a_key_that_google_calls_invalid_is_a_credential_on_every_surface() {
    let invalid = || {
        of_google(
            400,
            &json!({"reason": "API_KEY_INVALID", "domain": "googleapis.com"}),
        )
    };
    let scene = gemini_scene(json!(["k1", "k2"])).await;
    for surface in Surface::ALL {
        let before = scene.o1.calls();
        scene.o1.script([invalid()]);

        let served = ask(&scene.client, surface).await;

        assert_eq!(served.status, 200, "{surface:?}: {}", served.text());
        let calls = scene.o1.recorded();
        let key = |call: &harness::Call| call.request.header("x-goog-api-key").map(str::to_owned);
        let keys: Vec<String> = calls.iter().skip(before).filter_map(key).collect();
        assert_eq!(keys, ["k1", "k2"], "{surface:?}");
        assert_eq!(ask(&scene.client, surface).await.status, 200);
    }
    scene.finish().await;
    let scene = gemini_scene(json!(["dead"])).await;
    for surface in Surface::ALL {
        scene.o1.script([invalid()]);
        let answer = ask(&scene.client, surface).await;
        assert_eq!(answer.status, 502, "{surface:?}: {}", answer.text());
        assert_eq!(ask(&scene.client, surface).await.status, 200);
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_wait_that_google_tells_in_the_body_reaches_callers_of_every_surface() {
    let scene = gemini_scene(json!(["k"])).await;
    let wait = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22.4s"});
    for surface in Surface::ALL {
        for (upstream, status) in [(429, 429), (503, 503)] {
            scene.o1.script([of_google(upstream, &wait)]);
            let answer = ask(&scene.client, surface).await;
            assert_eq!(
                (answer.status, answer.header("retry-after")),
                (status, "23"),
                "{surface:?}"
            );
            assert_eq!(ask(&scene.client, surface).await.status, 200);
        }
        scene
            .o1
            .script([of_google(400, &json!({"reason": "BAD_SCHEMA"}))]);
        let refused = ask(&scene.client, surface).await;
        assert_eq!(refused.status, 400, "{surface:?}: {}", refused.text());
    }
    scene.finish().await;
}
