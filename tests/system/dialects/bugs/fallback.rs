//! Failures before the first content: another leg hides them on every surface, whatever both speak, and where none can
//! the caller is told the true status in his own words.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Behaviour, End, Model, Said, Scene, Surface, Then, Transcript, Upstream};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, pairs, stream};
use crate::retries::tireless;
use crate::rows::{assert_billed, assert_free, assert_row, endpoint, tried_endpoints};

/// What an upstream does before it has said anything.
fn failures() -> [(&'static str, Behaviour); 9] {
    let packets = Duration::from_millis(1);
    [
        ("429", Behaviour::failure(429, "slow down")),
        ("500", Behaviour::failure(500, "boom")),
        ("529", Behaviour::failure(529, "overloaded")),
        ("an error first", Behaviour::failure_in_200(500, "boom")),
        (
            "an opening, then an error",
            Behaviour::chat("").failure_after(0, 503, "boom"),
        ),
        (
            "an error in packets",
            Behaviour::failure_in_200(500, "boom").dribble(20, packets),
        ),
        ("comments, then the end", Behaviour::comments_only(Then::End)),
        (
            "an opening, then the end",
            Behaviour::chat("never").cut_after_chunks(0),
        ),
        (
            "a page of HTML",
            Behaviour::status(502, "<html>bad gateway</html>"),
        ),
    ]
}

#[tokio::test]
async fn a_failure_before_content_is_hidden_from_callers_of_chat_and_responses() {
    assert_hidden(&[Surface::Chat, Surface::Responses]).await;
}

#[tokio::test]
async fn a_failure_before_content_is_hidden_from_callers_of_messages_and_completions() {
    assert_hidden(&[Surface::Messages, Surface::Completions]).await;
}

async fn assert_hidden(surfaces: &[Surface]) {
    let scene = shapes::scene_with(tireless).await;
    for (surface, shape) in pairs().filter(|(surface, _)| surfaces.contains(surface)) {
        for (case, behaviour) in failures() {
            let case = format!("{surface:?} of {shape:?}, {case}");
            let before = (scene.o1.calls(), scene.o2.calls());
            scene.o1.script([behaviour]);
            scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);

            let streamed = stream(&scene, surface, shape.model()).await;

            assert_eq!(streamed.status, 200, "{case}");
            assert_eq!(streamed.end, End::Done, "{case}");
            assert_eq!(streamed.told().text, "from the second", "{case}");
            let calls = (scene.o1.calls() - before.0, scene.o2.calls() - before.1);
            assert_eq!(calls, (1, 1), "{case}");
            let row = scene.row(streamed.request_id()).await;
            assert_billed(&row, 9, 20, 178_000);
            let legs = [&scene.o1, &scene.o2].map(|upstream| endpoint(shape.model(), upstream));
            assert_eq!(tried_endpoints(&row), legs, "{case}");
            assert_eq!(row["attempts"][1]["outcome"], "ok", "{case}");
            assert_ne!(row["attempts"][0]["error_code"], Value::Null, "{case}");
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_leg_of_one_shape_stands_in_for_a_leg_of_any_other() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let mut models = Vec::new();
    for first in Shape::ALL {
        for second in Shape::ALL {
            let model = first.leg(Model::new(&name(first, second)), &o1, 0);
            models.push(second.leg(model, &o2, 1));
        }
    }
    let scene = shapes::started(o1, o2, &models, tireless).await;
    scene
        .o1
        .default(Behaviour::chat("").failure_after(0, 500, "boom"));
    scene.o2.default(Behaviour::chat("from the second").usage(9, 20));

    for surface in Surface::ALL {
        for (first, second) in Shape::ALL
            .into_iter()
            .flat_map(|one| Shape::ALL.map(|two| (one, two)))
        {
            let streamed = stream(&scene, surface, &name(first, second)).await;

            let case = format!("{surface:?}: {first:?}, then {second:?}");
            assert_eq!((streamed.status, &streamed.end), (200, &End::Done), "{case}");
            assert_eq!(streamed.told().text, "from the second", "{case}");
            assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn when_both_legs_fail_every_caller_of_a_stream_is_told_the_true_status_in_his_own_words() {
    assert_told(true).await;
}

#[tokio::test]
async fn when_both_legs_fail_every_caller_of_a_plain_answer_is_told_the_true_status_in_his_own_words() {
    assert_told(false).await;
}

async fn assert_told(streams: bool) {
    let mut scene = shapes::scene_with(tireless).await;
    // What a node makes of faults one after another is its own: the good calls between them go to the same one.
    scene.pin();
    let busy = || Behaviour::failure(429, "slow down").header("retry-after", "7");
    let down = || Behaviour::failure(503, "down").header("retry-after", "9");
    let cases = [
        (busy(), 429, "upstream_rate_limited", "rate_limit_error", "7"),
        (down(), 503, "upstream_error", "overloaded_error", "9"),
        (
            Behaviour::failure(529, "overloaded"),
            503,
            "upstream_error",
            "overloaded_error",
            "1",
        ),
        (
            Behaviour::failure(500, "boom"),
            502,
            "upstream_error",
            "api_error",
            "",
        ),
    ];
    for (surface, shape) in pairs() {
        for (behaviour, status, code, kind, retry_after) in &cases {
            let case = format!("{surface:?} of {shape:?}, {status}, streamed: {streams}");
            scene.o1.script([behaviour.clone()]);
            scene.o2.script([behaviour.clone()]);
            let (told, headers, body, id) = if streams {
                let told = stream(&scene, surface, shape.model()).await;
                assert_eq!(told.end, End::Whole, "{case}");
                let id = told.request_id().to_owned();
                (told.status, told.headers, told.raw, id)
            } else {
                let told = ask(&scene, surface, shape.model()).await;
                let id = told.request_id().to_owned();
                (told.status, told.headers, told.body, id)
            };
            let header = |name: &str| {
                headers
                    .get(name)
                    .map_or("", |value| value.to_str().expect("text"))
            };
            let error: Value = serde_json::from_slice(&body).expect("a JSON body");
            let overloaded = surface == Surface::Messages && *status == 503 && told == 529;
            assert!(told == *status || overloaded, "{case}: {told}");
            assert_eq!(header("content-type"), "application/json", "{case}");
            assert_eq!(header("retry-after"), *retry_after, "{case}");
            // Every leg was tried; a caller who is told when to come again may do so then.
            let due = if retry_after.is_empty() { "false" } else { "" };
            assert_eq!(header("x-should-retry"), due, "{case}");
            let inner = &error["error"];
            if surface == Surface::Messages {
                assert_eq!(
                    (&error["type"], &inner["type"]),
                    (&json!("error"), &json!(kind)),
                    "{case}"
                );
            } else {
                assert_eq!(inner["code"], *code, "{case}");
            }
            let row = scene.row(&id).await;
            assert_free(&row, "upstream_error", told, code);
            if *status == 429 {
                rehabilitate(&scene, shape).await;
            }
        }
    }
    scene.finish().await;
}

/// Lets both legs answer once, so that their only keys are not put to rest for being refused several times in a row.
async fn rehabilitate(scene: &Scene, shape: Shape) {
    scene.o1.script([Behaviour::failure(500, "boom")]);
    for _ in [&scene.o2, &scene.o1] {
        let answer = ask(scene, Surface::Chat, shape.model()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_head_and_then_silence_keeps_every_caller_company_without_a_fallback() {
    let scene = shapes::scene_with(|node| node.setting("keepalive_seconds", 1)).await;
    let late = Behaviour::chat("good").usage(9, 20);
    scene
        .o1
        .default(late.first_event_delay(Duration::from_millis(1_700)));
    let scene_ref = &scene;
    let calls = pairs().map(|(surface, shape)| async move {
        let case = format!("{surface:?} of {shape:?}");
        (case, stream(scene_ref, surface, shape.model()).await)
    });

    for (case, streamed) in join_all(calls).await {
        streamed.whole();
        assert_eq!(streamed.told().text, "good", "{case}");
        let first = streamed.events.first().expect("an event");
        assert!(kept_alive(&streamed), "{case}: {:?}", first.said);
        assert!(first.at < Duration::from_millis(1_500), "{case}: {:?}", first.at);
        assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    }
    assert_eq!(scene.o2.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn after_a_keep_alive_a_failure_is_an_event_of_the_callers_dialect() {
    let scene = shapes::scene_with(|node| tireless(node).setting("keepalive_seconds", 1)).await;
    let failing = Behaviour::failure(503, "down").first_byte_delay(Duration::from_millis(1_100));
    scene.o1.default(failing);
    scene.o2.default(Behaviour::failure(503, "down"));
    let scene_ref = &scene;
    let calls = pairs().map(|(surface, shape)| async move {
        let case = format!("{surface:?} of {shape:?}");
        (surface, case, stream(scene_ref, surface, shape.model()).await)
    });

    for (surface, case, streamed) in join_all(calls).await {
        assert_eq!(streamed.status, 200, "{case}");
        assert!(
            matches!(streamed.end, End::ErrorEvent(_)),
            "{case}: {:?}",
            streamed.end
        );
        assert!(kept_alive(&streamed), "{case}");
        if surface == Surface::Messages {
            assert_eq!(streamed.error()["type"], "overloaded_error", "{case}");
        } else {
            assert_eq!(streamed.error()["code"], "upstream_error", "{case}");
        }
        let row = scene.row(streamed.request_id()).await;
        assert_row(
            &row,
            &json!({"outcome": "upstream_error", "cost_nano_usd": 0, "output_tokens": 0}),
        );
    }
    scene.finish().await;
}

/// Whether the first thing that a stream said is that it lives.
fn kept_alive(streamed: &Transcript) -> bool {
    match streamed.events.first().map(|event| &event.said) {
        Some(Said::Comment(_)) => true,
        Some(Said::Chunk(event)) => event["type"] == "ping",
        _ => false,
    }
}

/// The model whose legs are of these shapes.
fn name(first: Shape, second: Shape) -> String {
    format!("{first:?}-{second:?}").to_lowercase()
}
