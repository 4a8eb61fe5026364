//! The clocks on an upstream: to its first byte, between its events, over the whole call. Each works apart,
//! each is told from the others in the row, and none runs while the caller is the slow one.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{
    Behaviour, End, Model, NodeBuilder, Said, Scene, SilentPort, Surface, Then, Transcript, Upstream, chat,
    chat_streamed,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::retries::tireless;
use crate::rows::{assert_billed, assert_free, assert_row, endpoint, tried};

/// A clock of these tests, in seconds, and more time than it should take to act.
const SHORT: &str = "0.3";
const SOON: Duration = Duration::from_secs(2);
/// Between which times a connection that nobody takes is given up.
const CONNECT_MIN: Duration = Duration::from_millis(4_900);
const CONNECT_MAX: Duration = Duration::from_secs(7);

#[tokio::test]
async fn an_upstream_that_takes_no_connection_is_given_up_after_five_seconds_on_every_wire() {
    let (o1, o2, port) = (Upstream::start(), Upstream::start(), SilentPort::open());
    let silent =
        |model: &str, scheme: &str| Model::new(model).leg_at(&format!("{scheme}://{}/v1", port.addr()), 0);
    let wires = [
        silent("plain", "http"),
        silent("http2", "http").set_leg("http2", true),
        silent("tls", "https"),
    ];
    let models: Vec<Model> = wires.into_iter().map(|model| model.leg(&o2, 1)).collect();
    let alone = silent("alone", "http");
    let scene = Scene::start_on(o1, o2, |node| {
        tireless(node).models(&[models, vec![alone]].concat())
    })
    .await;
    let within = |took: Duration| assert!(took >= CONNECT_MIN && took < CONNECT_MAX, "{took:?}");
    let attempt = |row: &Value, model: &str| {
        assert_eq!(
            tried(row)[0],
            json!([
                format!("{model}:local-{}", port.addr().port()),
                null,
                "timeout",
                "upstream_connect_timeout"
            ]),
            "{row}"
        );
        assert_eq!(row["attempts"][0]["first_byte_ms"], Value::Null);
    };
    let second = async |model: &'static str| (model, scene.client.post_chat(&chat(model)).await);
    let failed = async |surface: Surface| (surface, scene.client.post(surface, &surface.ask("alone")).await);

    let (served, failed, streamed) = tokio::join!(
        join_all(["plain", "http2", "tls"].map(second)),
        join_all(Surface::ALL.map(failed)),
        stream(&scene, "alone"),
    );

    for (model, answer) in served {
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        within(answer.took);
        let row = scene.row(answer.request_id()).await;
        attempt(&row, model);
        assert_eq!(
            (&row["attempts"][1]["outcome"], &row["outcome"]),
            (&json!("ok"), &json!("ok"))
        );
    }
    for (surface, answer) in failed {
        within(answer.took);
        assert_eq!(answer.status, 504, "{surface:?}: {}", answer.text());
        assert_eq!(answer.header("x-should-retry"), "false", "every leg was tried");
        let told = &answer.json()["error"];
        let message = "the model's provider did not take a connection in time";
        assert_eq!(told["message"], message, "{surface:?}");
        match surface {
            Surface::Messages => assert_eq!(told["type"], "api_error"),
            _ => assert_eq!(told["code"], "upstream_timeout"),
        }
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "timeout", 504, "upstream_timeout");
        attempt(&row, "alone");
    }
    assert_eq!((streamed.status, &streamed.end), (504, &End::Whole));
    assert_eq!(streamed.error()["code"], "upstream_timeout");
    assert_eq!(scene.o2.calls(), 3);
    scene.finish().await;
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_given_up_in_the_time_of_a_connection_and_the_next_leg_serves() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let nowhere = |model: &str, scheme: &str| {
        Model::new(model).leg_at(&format!("{scheme}://no-such-host.invalid:8000/v1"), 0)
    };
    let wires = [
        nowhere("plain", "http"),
        nowhere("http2", "http").set_leg("http2", true),
        nowhere("tls", "https"),
    ];
    let models: Vec<Model> = wires.into_iter().map(|model| model.leg(&o2, 1)).collect();
    let alone = nowhere("alone", "http");
    let scene = Scene::start_on(o1, o2, |node| {
        tireless(node).models(&[models, vec![alone]].concat())
    })
    .await;
    let ask = async |model: &'static str| (model, scene.client.post_chat(&chat(model)).await);

    let served = join_all(["plain", "http2", "tls"].map(ask)).await;
    let (_, failed) = ask("alone").await;

    for (model, answer) in served {
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        assert!(answer.took < CONNECT_MAX, "{model}: {:?}", answer.took);
        let row = scene.row(answer.request_id()).await;
        assert_eq!(row["attempts"][1]["outcome"], "ok", "{row}");
    }
    // A resolver that says nothing in time is a clock, one that knows no such name is not.
    assert!(matches!(failed.status, 502 | 504), "{}", failed.text());
    assert!(failed.took < CONNECT_MAX, "{:?}", failed.took);
    assert!(!failed.text().contains("no-such-host"), "{}", failed.text());
    assert_eq!(scene.row(failed.request_id()).await["cost_nano_usd"], 0);
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_given_up() {
    for (streamed, variable) in [
        (false, "REQUEST_TIMEOUT_SECONDS"),
        (true, "REQUEST_TIMEOUT_SECONDS"),
    ] {
        let scene = one_leg_scene(&[(variable, SHORT)]).await;
        scene.o1.default(Behaviour::hang());
        let mut body = chat("m");
        body["stream"] = json!(streamed);

        let answer = scene.client.post_chat(&body).await;

        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (504, "upstream_timeout")
        );
        assert!(
            answer.took > Duration::from_millis(250) && answer.took < SOON,
            "{:?}",
            answer.took
        );
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "timeout", 504, "upstream_timeout");
        let at = endpoint("m", &scene.o1);
        assert_eq!(tried(&row), json!([[at, null, "timeout", "upstream_timeout"]]));
        scene.o1.wait_left(0).await;
        scene.finish().await;
    }
}

#[tokio::test]
async fn a_plain_answer_that_never_ends_is_given_up() {
    let scene = one_leg_scene(&[("UPSTREAM_COMPLETION_TIMEOUT_S", "0.5")]).await;
    let slowly = Behaviour::chat("a body of many bytes").dribble(1, Duration::from_millis(50));
    scene.o1.default(slowly);

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (504, "upstream_timeout")
    );
    assert!(answer.took < SOON, "{:?}", answer.took);
    let row = scene.row(answer.request_id()).await;
    assert_free(&row, "timeout", 504, "upstream_timeout");
    scene.finish().await;
}

#[tokio::test]
async fn a_silent_upstream_before_the_first_token_is_routed_around() {
    let clocks = [("STREAM_FIRST_BYTE_TIMEOUT_SECONDS", SHORT)];
    let scene = scene(&clocks).await;
    for behaviour in [
        Behaviour::hang(),
        Behaviour::comments_only(Then::Forever(Duration::from_millis(50))),
    ] {
        scene.o1.script([behaviour]);
        scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);

        let started = Instant::now();
        let streamed = stream(&scene, "m").await;

        assert_eq!(streamed.whole(), "from the second");
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        let row = scene.row(streamed.request_id()).await;
        assert_billed(&row, 9, 20, 178_000);
        assert_eq!(row["attempts"][0]["outcome"], "timeout");
        assert_eq!(row["attempts"][0]["error_code"], "upstream_timeout");
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_27_a_gap_between_tokens_ends_the_stream_in_an_error_event() {
    let one = || Behaviour::chat("").chunks(60, Duration::ZERO);
    let comments = Then::Forever(Duration::from_millis(40));
    let cases = [
        ("silence", one().stall_after(1)),
        ("comments without end", one().stop_after(1, comments)),
    ];
    for (case, behaviour) in cases {
        let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", "1")]).await;
        scene.o1.default(behaviour);

        let started = Instant::now();
        let streamed = stream(&scene, "m").await;
        let took = started.elapsed();

        assert_timed_out(&scene, &streamed, case).await;
        assert_eq!(streamed.text(), "t1 ", "{case}");
        let (least, most) = (Duration::from_millis(950), Duration::from_millis(1_900));
        assert!(took > least && took < most, "{case}: {took:?}");
        scene.o1.wait_left(0).await;
        scene.finish().await;
    }
}

#[tokio::test]
async fn a_silence_after_the_role_is_routed_around() {
    let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", SHORT)]).await;
    scene.o1.script([Behaviour::chat("").stop_after(0, Then::Hang)]);
    scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);

    let streamed = stream(&scene, "m").await;

    assert_eq!(streamed.whole(), "from the second");
    let row = scene.row(streamed.request_id()).await;
    assert_billed(&row, 9, 20, 178_000);
    let (first, second) = (endpoint("m", &scene.o1), endpoint("m", &scene.o2));
    assert_eq!(
        tried(&row),
        json!([
            [first, 200, "timeout", "upstream_timeout"],
            [second, 200, "ok", null]
        ])
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_choice_that_has_ended_does_not_end_the_others_while_they_are_silent() {
    let scene = Scene::start().await;
    let event = |index: u8, content: &str, finish: Value| {
        let delta = json!({"content": content});
        let choices = json!([{"index": index, "delta": delta, "finish_reason": finish}]);
        format!(
            "data: {}\n\n",
            json!({"id": "c", "model": "m", "choices": choices})
        )
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let first = format!(
        "{head}{}{}",
        event(1, "b", Value::Null),
        event(0, "a", json!("stop"))
    );
    let second = format!("{}data: [DONE]\n\n", event(1, "c", json!("stop")));
    let parted = Behaviour::raw(format!("{first}{second}"));
    scene
        .o1
        .script([parted.dribble(first.len(), Duration::from_millis(1_400))]);
    let mut body = chat_streamed("m");
    body["n"] = json!(2);

    let streamed = scene.client.stream_chat(&body).await.collect().await;

    streamed.whole();
    let last = streamed.chunks().last().copied().cloned().unwrap_or_default();
    assert_eq!(last["choices"][0]["delta"]["content"], "c", "{last}");
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_27_a_byte_now_and_then_is_no_token() {
    let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", SHORT)]).await;
    // One event of some 190 bytes would take three seconds.
    let words = Behaviour::chat("one two three");
    let bytes = words.dribble(1, Duration::from_millis(15));
    scene.o1.script([bytes]);
    scene.o2.script([Behaviour::chat("from the second")]);

    let streamed = stream(&scene, "m").await;

    assert_eq!(streamed.whole(), "from the second", "no content had come");
    scene.finish().await;
}

#[tokio::test]
async fn a_stream_that_never_ends_is_ended() {
    let scene = scene(&[("STREAM_REQUEST_TIMEOUT_SECONDS", "0.6")]).await;
    scene
        .o1
        .default(Behaviour::chat("").chunks(2_000, Duration::from_millis(20)));

    let started = Instant::now();
    let streamed = stream(&scene, "m").await;

    assert!(started.elapsed() > Duration::from_millis(500) && started.elapsed() < SOON);
    assert_timed_out(&scene, &streamed, "a stream without end").await;
    assert!(streamed.text().starts_with("t1 t2 t3 "), "{}", streamed.text());
    scene.finish().await;
}

#[tokio::test]
async fn silent_streams_open_the_circuit() {
    let mut scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", SHORT)]).await;
    scene.pin();
    scene
        .o1
        .default(Behaviour::chat("").chunks(60, Duration::ZERO).stall_after(1));
    join_all((0..3).map(|_| stream(&scene, "m"))).await;

    let next = stream(&scene, "m").await;

    assert!(next.whole().starts_with("ok "));
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (3, 1));
    scene.finish().await;
}

#[tokio::test]
async fn a_long_prefill_is_waited_for() {
    let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", SHORT)]).await;
    scene.o1.default(
        Behaviour::chat("worth it")
            .usage(9, 20)
            .first_byte_delay(Duration::from_millis(900)),
    );

    let streamed = stream(&scene, "m").await;

    assert_eq!(streamed.whole(), "worth it");
    let row = scene.row(streamed.request_id()).await;
    assert_billed(&row, 9, 20, 178_000);
    let ttft = row["ttft_ms"].as_u64().expect("a time");
    assert!((850..2_000).contains(&ttft), "{ttft}");
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_head_and_then_silence_keeps_the_caller_company_without_a_fallback() {
    let scene = Scene::start_with(|node| node.setting("keepalive_seconds", 1)).await;
    let late = Behaviour::chat("good").usage(9, 20);
    scene
        .o1
        .default(late.first_event_delay(Duration::from_millis(2_500)));

    let streamed = stream(&scene, "m").await;

    assert_eq!(streamed.whole(), "good");
    let kept: Vec<Duration> = streamed
        .events
        .iter()
        .filter(|event| event.said == Said::Comment("keepalive".to_owned()))
        .map(|event| event.at)
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept[0] < Duration::from_millis(1_400), "{kept:?}");
    assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn after_a_keep_alive_a_failing_upstream_is_still_routed_around() {
    let scene = Scene::start_with(|node| node.setting("keepalive_seconds", 1)).await;
    let slow = Duration::from_millis(1_300);
    let failing = Behaviour::error(500, "boom").first_byte_delay(slow);
    scene.o1.script([failing.clone(), failing]);
    scene.o2.script([
        Behaviour::chat("from the second").usage(9, 20),
        Behaviour::error(503, "down"),
    ]);

    let hidden = stream(&scene, "m").await;
    let told = stream(&scene, "m").await;

    assert_eq!(hidden.whole(), "from the second");
    assert_billed(&scene.row(hidden.request_id()).await, 9, 20, 178_000);
    // The status is on its way already, so the failure is an event.
    assert_eq!(told.status, 200);
    assert!(matches!(told.end, End::ErrorEvent(_)), "{:?}", told.end);
    assert_eq!(told.error()["code"], "upstream_error");
    assert_free(
        &scene.row(told.request_id()).await,
        "upstream_error",
        200,
        "upstream_error",
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_slow_caller_is_not_the_upstreams_silence() {
    let scene = scene(&[("STREAM_IDLE_TIMEOUT_SECONDS", SHORT)]).await;
    let word = "x".repeat(20_000);
    let text = vec![word; 300].join(" ");
    scene.o1.default(Behaviour::chat(&text).usage(9, 20));
    let client = scene.client.small_buffers();

    let stream = client.stream_chat(&chat_streamed("m")).await;
    sleep(Duration::from_secs(1)).await;
    let streamed = stream.collect().await;

    assert_eq!(streamed.whole().len(), text.len());
    assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_27_a_half_dead_upstream_takes_nothing_from_the_calls_of_another() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [Model::new("m").leg(&o1, 0), Model::new("lively").leg(&o2, 0)];
    let bend = |node: NodeBuilder| node.models(&models).env("STREAM_IDLE_TIMEOUT_SECONDS", "2");
    let mut scene = Scene::start_on(o1, o2, bend).await;
    scene.price("lively", Some(harness::PRICE));
    scene
        .o1
        .default(Behaviour::chat("").chunks(60, Duration::ZERO).stall_after(1));

    let stuck = join_all((0..300).map(|_| stream(&scene, "m")));
    let lively = async {
        scene.o1.wait_calls(300).await;
        let mut took = Vec::new();
        for _ in 0..100 {
            let answer = scene.client.post_chat(&chat("lively")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            took.push(answer.took);
        }
        took.sort_unstable();
        took
    };
    let (stuck, took) = tokio::join!(stuck, lively);

    // All but those that a busy machine holds up.
    assert!(took[89] < Duration::from_millis(500), "{took:?}");
    assert!(
        stuck
            .iter()
            .all(|streamed| streamed.error()["code"] == "upstream_timeout")
    );
    assert_eq!(scene.o2.calls(), 100);
    scene.finish().await;
}

/// A scene with these clocks.
async fn scene(clocks: &[(&str, &str)]) -> Scene {
    Scene::start_with(|node| clocked(node, clocks)).await
}

/// A scene with these clocks and without a fallback.
async fn one_leg_scene(clocks: &[(&str, &str)]) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0);
    Scene::start_on(o1, o2, |node| clocked(node.models(&[model]), clocks)).await
}

fn clocked(node: NodeBuilder, clocks: &[(&str, &str)]) -> NodeBuilder {
    clocks
        .iter()
        .fold(node, |node, (variable, seconds)| node.env(variable, seconds))
}

/// A streamed call, read to its end.
async fn stream(scene: &Scene, model: &str) -> Transcript {
    scene
        .client
        .stream_chat(&chat_streamed(model))
        .await
        .collect()
        .await
}

/// Panics unless the stream began well and a clock ended it, in the answer and in the books.
async fn assert_timed_out(scene: &Scene, streamed: &Transcript, case: &str) {
    assert_eq!(streamed.status, 200, "{case}");
    assert!(
        matches!(streamed.end, End::ErrorEvent(_)),
        "{case}: {:?}",
        streamed.end
    );
    assert_eq!(streamed.error()["code"], "upstream_timeout", "{case}");
    let row = scene.row(streamed.request_id()).await;
    assert_free(&row, "timeout", 200, "upstream_timeout");
    let at = endpoint("m", &scene.o1);
    assert_eq!(
        tried(&row),
        json!([[at, 200, "timeout", "upstream_timeout"]]),
        "{case}"
    );
    assert_row(&row, &json!({"upstream_cost_nano_usd": Value::Null}));
}
