//! Circuits: opened by what speaks against an upstream, never by what speaks against a caller; half-open
//! for exactly one probe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use harness::{
    Answer, Behaviour, Model, NodeBuilder, OPERATOR_KEY, OTHER_KEY, Scene, Then, Upstream, chat,
    chat_streamed,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::rows::{assert_free, assert_row, endpoint, tried, tried_endpoints};

/// The cooldown of these tests, and a time after which it has surely passed.
const COOLDOWN: &str = "0.6";
const PAST_COOLDOWN: Duration = Duration::from_millis(700);
/// Calls that are refused at once.
const REFUSED_AT_ONCE: usize = 20;

#[tokio::test]
async fn three_failures_in_a_row_open_a_circuit_until_its_cooldown_has_passed() {
    let scene = one_leg_scene(COOLDOWN).await;
    scene.o1.default(Behaviour::error(500, "boom"));
    for _ in 0..3 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 502);
    }

    let refused = scene.client.post_chat(&chat("m")).await;

    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (503, "all_circuits_open")
    );
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(scene.o1.calls(), 3);
    let row = scene.row(refused.request_id()).await;
    assert_eq!(row["attempts"], json!([]));
    assert_row(
        &row,
        &json!({"status": 503, "error_code": "all_circuits_open", "cost_nano_usd": 0}),
    );
    assert_eq!(circuit_level(&scene, &scene.o1).await, 2);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_30_one_of_eight_probes_a_half_open_circuit_and_its_success_closes_it_for_all() {
    let scene = one_leg_scene(COOLDOWN).await;
    open(&scene).await;
    scene
        .o1
        .default(Behaviour::chat("again").first_byte_delay(Duration::from_millis(200)));
    sleep(PAST_COOLDOWN).await;

    let answers = eight(&scene).await;

    assert_eq!(scene.o1.calls(), 4, "one probe");
    let statuses = sorted_statuses(&answers);
    assert_eq!(statuses, [200, 503, 503, 503, 503, 503, 503, 503]);
    assert_eq!(sorted_statuses(&eight(&scene).await), [200; 8]);
    assert_eq!(circuit_level(&scene, &scene.o1).await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_failed_probe_opens_the_circuit_for_another_cooldown() {
    let scene = one_leg_scene(COOLDOWN).await;
    open(&scene).await;
    sleep(PAST_COOLDOWN).await;

    let statuses = sorted_statuses(&eight(&scene).await);
    let still = scene.client.post_chat(&chat("m")).await;

    assert_eq!(statuses, [502, 503, 503, 503, 503, 503, 503, 503]);
    assert_eq!((scene.o1.calls(), still.status), (4, 503));
    scene.o1.default(Behaviour::chat("again"));
    sleep(PAST_COOLDOWN).await;
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_32_a_late_refusal_of_another_request_does_not_free_the_probes_slot() {
    let scene = one_leg_scene(COOLDOWN).await;
    let late = Behaviour::error(400, "late").first_byte_delay(Duration::from_millis(950));
    let probe = Behaviour::chat("probe").first_byte_delay(Duration::from_millis(500));
    let boom = || Behaviour::error(500, "boom");
    scene.o1.script([late, boom(), boom(), boom(), probe]);
    let straggler = async { scene.client.post_chat(&chat("m")).await.status };
    let rest = async {
        scene.o1.wait_calls(1).await;
        for _ in 0..3 {
            assert_eq!(scene.client.post_chat(&chat("m")).await.status, 502);
        }
        sleep(PAST_COOLDOWN).await;
        let probing = async { scene.client.post_chat(&chat("m")).await.status };
        let other = async {
            scene.o1.wait_calls(5).await;
            // The straggler has ended by now, the probe has not.
            sleep(Duration::from_millis(350)).await;
            scene.client.post_chat(&chat("m")).await.status
        };
        tokio::join!(probing, other)
    };

    let (straggler, (probe, other)) = tokio::join!(straggler, rest);

    assert_eq!((straggler, probe, other), (400, 200, 503));
    assert_eq!(scene.o1.calls(), 5);
    scene.finish().await;
}

#[tokio::test]
async fn a_probe_that_never_reports_gives_way_after_a_cooldown() {
    let scene = one_leg_scene(COOLDOWN).await;
    open(&scene).await;
    scene
        .o1
        .script([Behaviour::chat("late").first_byte_delay(Duration::from_millis(1_500))]);
    scene.o1.default(Behaviour::chat("again"));
    sleep(PAST_COOLDOWN).await;
    let silent = async { scene.client.post_chat(&chat("m")).await.status };
    let next = async {
        scene.o1.wait_calls(4).await;
        let during = scene.client.post_chat(&chat("m")).await.status;
        sleep(PAST_COOLDOWN).await;
        (during, scene.client.post_chat(&chat("m")).await.status)
    };

    let (silent, next) = tokio::join!(silent, next);

    assert_eq!((silent, next), (200, (503, 200)));
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_31_plans_that_pass_a_recovering_upstream_by_leave_its_probe_to_others() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 1).leg(&o2, 0);
    let bend = |node: NodeBuilder| node.models(&[model]).env("CIRCUIT_COOLDOWN_SECONDS", COOLDOWN);
    let mut scene = Scene::start_on(o1, o2, bend).await;
    scene.pin();
    let at = endpoint("m", &scene.o1);
    let operator = scene
        .client
        .with_key(OPERATOR_KEY)
        .with_header("x-route-pin", &at);
    scene.o1.default(Behaviour::error(500, "boom"));
    for _ in 0..3 {
        assert_eq!(operator.post_chat(&chat("m")).await.status, 502);
    }
    assert_eq!(circuit_level(&scene, &scene.o1).await, 2);
    sleep(PAST_COOLDOWN).await;

    let body = chat("m");
    let passing = join_all((0..50).map(|_| scene.client.post_chat(&body))).await;
    scene.o1.default(Behaviour::chat("again"));
    scene.o2.script([Behaviour::error(500, "boom")]);
    let probed = scene.client.post_chat(&body).await;

    assert!(passing.iter().all(|answer| answer.status == 200));
    assert_eq!((probed.status, probed.content()), (200, "again".to_owned()));
    assert_eq!(circuit_level(&scene, &scene.o1).await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_cooldown_of_nothing_never_gates() {
    let scene = one_leg_scene("0").await;
    scene.o1.default(Behaviour::error(500, "boom"));

    for _ in 0..6 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 502);
    }

    assert_eq!(scene.o1.calls(), 6);
    scene.finish().await;
}

/// An upstream that refuses with the status that a request asks for, and answers requests that ask for none.
fn refusing_on_demand(upstream: &Upstream, words: &'static str) {
    upstream.on(move |request| match request.json()["seed"].as_u64() {
        Some(status) => Behaviour::error(u16::try_from(status).expect("a status"), words),
        None => Behaviour::chat("good {call}"),
    });
}

/// So many calls that are refused with a status, some at once.
async fn refused_calls(scene: &Scene, status: u16, calls: usize) -> Vec<Answer> {
    let mut body = chat("m");
    body["seed"] = json!(status);
    let call = || async { scene.client.post_chat(&body).await };
    stream::iter((0..calls).map(|_| call()))
        .buffer_unordered(REFUSED_AT_ONCE)
        .collect()
        .await
}

#[tokio::test]
async fn bug_case_15_a_caller_of_two_hundred_bad_requests_takes_nothing_from_a_caller_of_good_ones() {
    let mut scene = Scene::start().await;
    scene.pin();
    let words = "This model's maximum context length is 131072 tokens";
    refusing_on_demand(&scene.o1, words);
    let other = scene.client.with_key(OTHER_KEY);
    let over = AtomicBool::new(false);
    let bad = async {
        let bad = refused_calls(&scene, 400, 200).await;
        over.store(true, Ordering::Relaxed);
        bad
    };
    let good = async {
        let mut good = Vec::new();
        while !over.load(Ordering::Relaxed) {
            good.push(other.post_chat(&chat("m")).await);
        }
        good
    };

    let (bad, good) = tokio::join!(bad, good);

    assert_eq!(bad.len(), 200);
    for answer in &bad {
        let told = (answer.status, answer.error_code());
        assert_eq!(told, (400, "context_length_exceeded".to_owned()));
    }
    assert!(good.len() >= 10, "{} good calls meanwhile", good.len());
    for answer in &good {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (200 + good.len(), 0));
    assert_eq!(circuit_level(&scene, &scene.o1).await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_33_a_hundred_refusals_of_requests_open_no_circuit() {
    for status in [400, 403, 404, 413, 422] {
        let mut scene = Scene::start().await;
        scene.pin();
        refusing_on_demand(&scene.o1, "the prompt is not right");

        let refused = refused_calls(&scene, status, 100).await;
        let good = scene.client.with_key(OTHER_KEY).post_chat(&chat("m")).await;

        assert_eq!(circuit_level(&scene, &scene.o1).await, 0, "{status}");
        assert_eq!(good.status, 200, "{status}: {}", good.text());
        if matches!(status, 400 | 413 | 422) {
            let told = |answer: &Answer| (answer.status, answer.error_code());
            let expected = (status, "upstream_rejected_request".to_owned());
            assert!(refused.iter().all(|answer| told(answer) == expected), "{status}");
            assert_eq!((scene.o1.calls(), scene.o2.calls()), (101, 0), "{status}");
            let row = scene.row(good.request_id()).await;
            assert_row(
                &row,
                &json!({"endpoint_id": endpoint("m", &scene.o1), "outcome": "ok"}),
            );
        }
        scene.finish().await;
    }
}

#[tokio::test]
async fn bug_case_15_streams_that_die_open_the_circuit_and_new_calls_go_elsewhere() {
    let mut scene = Scene::start().await;
    scene.pin();
    let (first, second) = (endpoint("m", &scene.o1), endpoint("m", &scene.o2));
    scene.o1.default(
        Behaviour::chat("")
            .chunks(60, Duration::ZERO)
            .stop_after(3, Then::Cut),
    );

    let mut texts = Vec::new();
    for _ in 0..20 {
        let streamed = scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await;
        let row = scene.row(streamed.request_id()).await;
        texts.push((streamed.text(), tried_endpoints(&row)));
    }

    let (broken, served) = texts.split_at(3);
    assert!(
        broken
            .iter()
            .all(|(text, tried)| text == "t1 t2 t3 " && *tried == [first.clone()]),
        "{broken:?}"
    );
    assert!(
        served
            .iter()
            .all(|(text, tried)| text.starts_with("ok ") && *tried == [second.clone()]),
        "{served:?}"
    );
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (3, 17));
    assert_eq!(circuit_level(&scene, &scene.o1).await, 2);
    assert_eq!(circuit_level(&scene, &scene.o2).await, 0);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_15_a_credential_that_the_upstream_rejects_is_told_at_once_and_opens_the_circuit() {
    for status in [401, 407] {
        let mut scene = Scene::start().await;
        // Another node may hear of the third failure up to a quarter of a second later.
        scene.pin();
        scene.o1.default(Behaviour::error(status, "who are you"));

        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
        let first = health_of(&scene, &scene.o1).await;
        for _ in 0..3 {
            assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
        }
        let last = health_of(&scene, &scene.o1).await;

        assert_eq!(first["status"], "degraded", "from the first on: {first:#}");
        let backend = &first["backend"];
        assert_eq!(
            (&backend["circuit_state"], &backend["last_error_status"]),
            (&json!("closed"), &json!(status))
        );
        assert_eq!(backend["consecutive_failures"], 1);
        assert_eq!(last["backend"]["circuit_state"], "open");
        assert_eq!((scene.o1.calls(), scene.o2.calls()), (3, 4));
        scene.finish().await;
    }
}

#[tokio::test]
async fn hybrid_case_20_an_error_inside_a_stream_counts_by_its_numeric_code() {
    let limit = json!({"error": {"message": "concurrent request limit", "code": 403}});
    let word = json!({"error": {"message": "oops", "code": "engine_failed"}});
    let cases = [
        (limit, "upstream_rejected_credential", 0, 6),
        (word, "upstream_error", 2, 3),
    ];
    for (error, code, level, calls) in cases {
        let mut scene = Scene::start().await;
        scene.pin();
        scene.o1.default(Behaviour::error_in_200(error));

        for number in 0..6 {
            let stream = scene.client.stream_chat(&chat_streamed("m")).await;
            let streamed = stream.collect().await;
            streamed.whole();

            let row = scene.row(streamed.request_id()).await;
            let served = json!([endpoint("m", &scene.o2), 200, "ok", null]);
            let failed = json!([endpoint("m", &scene.o1), 200, "upstream_error", code]);
            let expected = if number < calls {
                json!([failed, served])
            } else {
                json!([served])
            };
            assert_eq!(tried(&row), expected, "{row}");
        }

        assert_eq!(circuit_level(&scene, &scene.o1).await, level);
        assert_eq!((scene.o1.calls(), scene.o2.calls()), (calls, 6));
        scene.finish().await;
    }
}

#[tokio::test]
async fn a_caller_who_leaves_says_nothing_about_the_upstream() {
    let scene = one_leg_scene(COOLDOWN).await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(600, Duration::from_millis(10)));

    for _ in 0..4 {
        let mut stream = scene.client.stream_chat(&chat_streamed("m")).await;
        stream.read_content(2).await;
        stream.close();
    }
    scene.o1.wait_quiet().await;

    assert_eq!(circuit_level(&scene, &scene.o1).await, 0);
    scene.o1.default(Behaviour::chat("still here"));
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}

/// A scene without a fallback and with this cooldown.
async fn one_leg_scene(cooldown_seconds: &str) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0);
    let bend = |node: NodeBuilder| {
        node.models(&[model])
            .env("CIRCUIT_COOLDOWN_SECONDS", cooldown_seconds)
    };
    let mut scene = Scene::start_on(o1, o2, bend).await;
    // How the breaker spreads over nodes is told by the tests of clusters.
    scene.pin();
    scene
}

/// Opens the circuit of the first upstream, which fails from then on.
async fn open(scene: &Scene) {
    scene.o1.default(Behaviour::error(500, "boom"));
    for _ in 0..3 {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert_eq!(answer.status, 502);
        assert_free(
            &scene.row(answer.request_id()).await,
            "upstream_error",
            502,
            "upstream_error",
        );
    }
}

/// Eight calls at once.
async fn eight(scene: &Scene) -> Vec<Answer> {
    let body = chat("m");
    join_all((0..8).map(|_| scene.client.post_chat(&body))).await
}

fn sorted_statuses(answers: &[Answer]) -> Vec<u16> {
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    statuses
}

/// What the metrics page says of an upstream's circuit: 0 closed, 1 half-open, 2 open.
async fn circuit_level(scene: &Scene, upstream: &Upstream) -> u32 {
    let series = format!(
        "waybill_circuit_state{{backend=\"{}\"}} ",
        endpoint("m", upstream)
    );
    let page = scene.node.metrics().await;
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value
        .unwrap_or_else(|| panic!("no {series} in {page}"))
        .parse()
        .expect("a level")
}

/// What `/health/deep` says: the verdict and the upstream's only backend.
async fn health_of(scene: &Scene, upstream: &Upstream) -> Value {
    let answer = scene.node.client(OPERATOR_KEY).get("/health/deep").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let health = answer.json();
    let id = endpoint("m", upstream);
    json!({"status": health["status"], "backend": health["endpoints"][&id]["backends"][&id]})
}
