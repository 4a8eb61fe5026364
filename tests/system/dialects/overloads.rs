//! Too much to do: what callers are told of an upstream that says so, and how many calls run at once with one credential.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Behaviour, CALLER_KEY, End, NodeBuilder, OPERATOR_KEY, OTHER_KEY, PRO_KEY, Scene, Surface, Upstream,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::pools::{as_it_is, ask, counted, model, scene, used};
use super::shapes::{self, Shape};
use crate::rows::{assert_row, endpoint, tried};

#[tokio::test]
async fn an_overload_keeps_its_meaning_on_every_surface() {
    let scene = scene(json!(["k"]), false, as_it_is).await;
    let date = |date: &str| {
        Behaviour::error(503, "busy")
            .header("date", "Mon, 30 Nov 2026 10:00:00 GMT")
            .header("retry-after", date)
    };
    let told = |status| Behaviour::failure(status, "busy").header("retry-after", "7");
    let cases = [
        (told(429), (429, 429), "7"),
        (told(503), (503, 503), "7"),
        (told(529), (503, 529), "7"),
        (date("Mon, 30 Nov 2026 10:00:20 GMT"), (503, 503), "20"),
    ];
    for (behaviour, (usual, on_messages), retry_after) in cases {
        for surface in Surface::ALL {
            scene.o1.script([behaviour.clone()]);

            let answer = ask(&scene.client, surface).await;

            let is_messages = surface == Surface::Messages;
            let status = if is_messages { on_messages } else { usual };
            assert_eq!(answer.status, status, "{surface:?}: {}", answer.text());
            assert_eq!(answer.header("retry-after"), retry_after, "{surface:?} {status}");
            assert_eq!(answer.header("x-should-retry"), "", "it helps to come again then");
            let kind = match (is_messages, status) {
                (_, 429) => "rate_limit_error",
                (true, _) => "overloaded_error",
                (false, _) => "server_error",
            };
            assert_eq!(answer.json()["error"]["type"], kind, "{surface:?} {status}");
            scene.o1.script([Behaviour::chat("again")]);
            assert_eq!(ask(&scene.client, surface).await.status, 200);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_overload_that_is_told_before_content_is_none_of_a_broken_answer() {
    let scene = shapes::one_leg_scene(crate::retries::tireless).await;
    for surface in Surface::ALL {
        scene.o1.script([Behaviour::failure_in_200(529, "overloaded")]);

        let streamed = shapes::stream(&scene, surface, Shape::Messages.model()).await;

        let status = if surface == Surface::Messages { 529 } else { 503 };
        assert_eq!(streamed.status, status, "{surface:?}: {:?}", streamed.raw);
        assert_eq!(streamed.headers["retry-after"], "1", "{surface:?}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_overload_amid_an_answer_ends_it_in_sight_and_keeps_its_meaning() {
    let scene = shapes::one_leg_scene(crate::retries::tireless).await;
    for (status, kind, code) in [
        (429, "rate_limit_error", "upstream_rate_limited"),
        (529, "overloaded_error", "upstream_error"),
    ] {
        for surface in Surface::ALL {
            let broken = Behaviour::chat("one two three").failure_after(2, status, "slow down");
            scene.o1.script([broken]);

            let streamed = shapes::stream(&scene, surface, Shape::Messages.model()).await;

            let case = format!("{surface:?}, {status}: {:?}", streamed.end);
            assert!(matches!(streamed.end, End::ErrorEvent(_)), "{case}");
            assert_eq!(streamed.told().text, "one two ", "{case}");
            let told = if surface == Surface::Messages {
                (streamed.error()["type"].clone(), kind)
            } else {
                (streamed.error()["code"].clone(), code)
            };
            assert_eq!(told.0, told.1, "{case}");
            let row = scene.row(streamed.request_id()).await;
            assert_row(
                &row,
                &json!({"outcome": "upstream_error", "status": 200, "error_code": code, "cost_nano_usd": 0}),
            );
        }
    }
    scene.finish().await;
}

/// Limits that hold for the upstreams of a test, and whose waits are short.
fn limited(node: NodeBuilder) -> NodeBuilder {
    node.env("UPSTREAM_CONCURRENCY_LOCAL", "true")
        .env("UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC", "0.4")
}

/// Calls that run at once at most, tried with more of them.
async fn most_at_once(scene: &Scene, calls: usize) -> usize {
    let before = scene.o1.calls();
    let body = Surface::Chat.ask("m");
    let asked = async { join_all((0..calls).map(|_| scene.client.post(Surface::Chat, &body))).await };
    let watched = async {
        let mut most = 0;
        while scene.o1.calls() < before + calls || scene.o1.busy() > 0 {
            most = most.max(scene.o1.busy());
            sleep(Duration::from_millis(2)).await;
        }
        most
    };
    let (answers, most) = tokio::join!(asked, watched);
    assert!(answers.iter().all(|answer| answer.status == 200));
    most
}

#[tokio::test]
async fn hybrid_case_40_eight_calls_run_at_once_with_a_credential_and_the_ninth_waits() {
    let scene = scene(json!(["k"]), true, |node| {
        limited(node).env("UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC", "30")
    })
    .await;
    let slow = Behaviour::chat("slow").first_byte_delay(Duration::from_millis(150));
    scene.o1.default(slow.clone());

    assert_eq!(most_at_once(&scene, 20).await, 8);
    assert_eq!(
        (scene.o1.calls(), scene.o2.calls()),
        (20, 0),
        "waited, and went nowhere else"
    );

    // One 429 (of which the caller sees nothing) lowers it, and a hundred successes raise it again.
    scene.o1.script([Behaviour::error(429, "slow down")]);
    assert_eq!(ask(&scene.client, Surface::Responses).await.status, 200);
    assert_eq!(scene.o2.calls(), 1);
    assert_eq!(most_at_once(&scene, 10).await, 7);
    scene.o1.default(Behaviour::chat("quick"));
    for _ in 0..9 {
        let answers = join_all((0..10).map(|_| ask(&scene.client, Surface::Messages))).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
    }
    scene.o1.default(slow);
    let limit = counted(
        &scene,
        "waybill_upstream_concurrency_limit",
        &endpoint("m", &scene.o1),
    )
    .await;
    assert!((limit - 8.0).abs() < f64::EPSILON, "{limit}");
    assert_eq!(most_at_once(&scene, 12).await, 8);
    scene.finish().await;
}

#[tokio::test]
async fn who_waits_too_long_for_his_turn_goes_elsewhere_and_the_circuit_stays_closed() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = model(&o1, json!(["k"])).leg(&o2, 1);
    let mut scene = Scene::start_on(o1, o2, |node| {
        limited(node)
            .env("UPSTREAM_CONCURRENCY_INITIAL_LIMIT", "1")
            .models(&[model])
    })
    .await;
    scene.pin();
    let long = Behaviour::chat("").chunks(80, Duration::from_millis(50));
    scene.o1.script([long]);
    let mut holder = scene
        .client
        .stream(Surface::Chat, &Surface::Chat.ask_streamed("m"))
        .await;
    holder.read_content(1).await;

    for surface in Surface::ALL {
        let asked = Instant::now();
        let answer = ask(&scene.client, surface).await;

        assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
        assert!(asked.elapsed() >= Duration::from_millis(400), "{surface:?}");
        let row = scene.row(answer.request_id()).await;
        assert_eq!(
            tried(&row),
            json!([[endpoint("m", &scene.o2), 200, "ok", null]]),
            "nothing was sent to the first"
        );
    }
    holder.collect().await.whole();

    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 4));
    assert_eq!(ask(&scene.client, Surface::Chat).await.status, 200);
    assert_eq!(
        scene.o1.calls(),
        2,
        "its turn again, with a circuit that is closed"
    );
    scene.finish().await;
}

#[tokio::test]
async fn without_another_endpoint_a_full_one_is_an_overload_and_a_sibling_that_has_room_is_used() {
    let scene = scene(json!(["k1", "k2"]), false, |node| {
        limited(node).env("UPSTREAM_CONCURRENCY_INITIAL_LIMIT", "1")
    })
    .await;
    let long = Behaviour::chat("").chunks(60, Duration::from_millis(50));
    scene.o1.default(long);
    let body = Surface::Chat.ask_streamed("m");
    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut holder = scene.client.stream(Surface::Chat, &body).await;
        holder.read_content(1).await;
        holders.push(holder);
    }
    assert_eq!(used(&scene.o1, 0), ["k1", "k2"]);

    for (surface, status) in [(Surface::Responses, 503), (Surface::Messages, 529)] {
        let answer = ask(&scene.client, surface).await;

        assert_eq!(answer.status, status, "{surface:?}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), "1");
    }
    for holder in holders {
        holder.collect().await.whole();
    }
    assert_eq!(scene.o1.calls(), 2);
    scene.finish().await;
}

#[tokio::test]
async fn engines_of_ones_own_network_have_no_limit_unless_it_is_asked_for() {
    let scene = scene(json!(["k"]), false, |node| {
        node.env("UPSTREAM_CONCURRENCY_INITIAL_LIMIT", "1")
    })
    .await;
    scene
        .o1
        .default(Behaviour::chat("slow").first_byte_delay(Duration::from_millis(200)));

    assert_eq!(most_at_once(&scene, 12).await, 12);
    scene.finish().await;
}

#[tokio::test]
async fn an_operator_and_callers_of_two_tenants_share_the_limit_of_a_credential() {
    let scene = scene(json!(["k"]), false, |node| {
        limited(node)
            .env("UPSTREAM_CONCURRENCY_INITIAL_LIMIT", "2")
            .env("UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC", "30")
    })
    .await;
    let slow = Behaviour::chat("slow").first_byte_delay(Duration::from_millis(150));
    scene.o1.default(slow);
    let callers = [CALLER_KEY, OTHER_KEY, OPERATOR_KEY, PRO_KEY].map(|key| scene.client.with_key(key));

    let asked = Instant::now();
    let answers = join_all(callers.iter().map(|client| ask(client, Surface::Messages))).await;

    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(asked.elapsed() >= Duration::from_millis(300), "two, then two");
    scene.finish().await;
}
