//! Routing around failure: before the first content byte another leg serves, the caller sees one clean
//! answer or the true error, and the row tells every attempt.

use harness::{
    ADMIN_KEY, Answer, Behaviour, End, Model, OPERATOR_KEY, Scene, Then, Transcript, Upstream, chat,
    chat_streamed, refusing_addr,
};
use serde_json::{Value, json};

use crate::retries::tireless;
use crate::rows::{assert_billed, assert_free, assert_row, endpoint, events, tried, tried_endpoints};

#[tokio::test]
async fn bug_case_22_a_failure_before_content_is_hidden_by_the_fallback() {
    let scene = tireless_scene().await;
    let error = json!({"error": {"message": "boom", "code": 500}});
    let in_three_packets =
        Behaviour::error_in_200(error.clone()).dribble(20, std::time::Duration::from_millis(1));
    let cases = [
        ("429", Behaviour::error(429, "slow down")),
        ("500", Behaviour::error(500, "boom")),
        ("529", Behaviour::error(529, "overloaded")),
        (
            "a page of HTML",
            Behaviour::status(502, "<html>bad gateway</html>"),
        ),
        ("an error first", Behaviour::error_in_200(error.clone())),
        ("a role, then an error", Behaviour::role_then_error(error)),
        ("an error in three packets", in_three_packets),
        ("comments, then the end", Behaviour::comments_only(Then::End)),
        ("nothing", events(&[])),
        ("an end mark alone", events(&["[DONE]"])),
        ("a close", Behaviour::closed()),
        ("a reset", Behaviour::reset()),
        (
            "a redirect",
            Behaviour::redirect(&format!("{}/chat/completions", scene.o2.url())),
        ),
        ("no stream at all", Behaviour::status(200, "{}")),
    ];
    for (case, behaviour) in cases {
        let (first, second) = (scene.o1.calls(), scene.o2.calls());
        scene.o1.script([behaviour]);
        scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);

        let streamed = stream(&scene).await;

        assert_eq!(streamed.whole(), "from the second", "{case}");
        assert_eq!(scene.o1.calls() - first, 1, "{case}");
        assert_eq!(scene.o2.calls() - second, 1, "{case}");
        let row = scene.row(streamed.request_id()).await;
        assert_billed(&row, 9, 20, 178_000);
        assert_row(&row, &json!({"endpoint_id": endpoint("m", &scene.o2)}));
        assert_eq!(tried_endpoints(&row), legs(&scene), "{case}");
        assert_eq!(row["attempts"][1]["outcome"], "ok", "{case}");
        assert_ne!(row["attempts"][0]["error_code"], Value::Null, "{case}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_plain_call_falls_back_on_errors_empty_answers_and_errors_inside_200() {
    let mut scene = tireless_scene().await;
    scene.pin();
    let empty = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": []});
    let cases = [
        ("500", Behaviour::error(500, "boom")),
        ("no choices", Behaviour::status(200, empty)),
        (
            "an error inside",
            Behaviour::error_in_200(json!({"error": {"message": "boom", "code": "oops"}})),
        ),
        ("no JSON", Behaviour::status(200, "<html></html>")),
        (
            "half a body",
            Behaviour::chat("a long enough answer").stop_after(0, Then::Cut),
        ),
        ("a close", Behaviour::closed()),
    ];
    for (case, behaviour) in cases {
        scene.o1.script([behaviour]);
        scene.o2.script([Behaviour::chat("from the second").usage(9, 20)]);

        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!(
            (answer.status, answer.content()),
            (200, "from the second".to_owned()),
            "{case}"
        );
        let row = scene.row(answer.request_id()).await;
        assert_billed(&row, 9, 20, 178_000);
        assert_eq!(tried_endpoints(&row), legs(&scene), "{case}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_22_when_both_legs_fail_the_true_status_reaches_the_caller_as_json() {
    let scene = tireless_scene().await;
    let busy = || Behaviour::error(429, "slow down").header("retry-after", "7");
    let cases = [
        (busy(), 429, "upstream_rate_limited", "7"),
        (Behaviour::error(503, "down"), 503, "upstream_error", "1"),
        (Behaviour::error(529, "overloaded"), 503, "upstream_error", "1"),
        (Behaviour::error(500, "boom"), 502, "upstream_error", ""),
        (
            Behaviour::error(401, "bad key"),
            502,
            "upstream_rejected_credential",
            "",
        ),
        (
            Behaviour::error(403, "not you"),
            502,
            "upstream_rejected_credential",
            "",
        ),
    ];
    for (behaviour, status, code, retry_after) in cases {
        scene.o1.script([behaviour.clone()]);
        scene.o2.script([behaviour]);

        let streamed = stream(&scene).await;

        assert_eq!((streamed.status, &streamed.end), (status, &End::Whole), "{code}");
        assert_eq!(streamed.error()["code"], code);
        let header = |name: &str| {
            streamed
                .headers
                .get(name)
                .map_or("", |value| value.to_str().expect("text"))
        };
        assert_eq!(header("retry-after"), retry_after, "{status} {code}");
        // Every leg was tried; a caller who is told when to come again may do so then.
        let due = if retry_after.is_empty() { "false" } else { "" };
        assert_eq!(header("x-should-retry"), due, "{status} {code}");
        let row = scene.row(streamed.request_id()).await;
        assert_free(&row, "upstream_error", status, code);
        assert_eq!(tried_endpoints(&row), legs(&scene));
    }
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_28_the_surfaced_error_is_the_primarys_unless_a_later_one_says_more_about_the_request() {
    let scene = tireless_scene().await;
    let words = "max_tokens is too large for this model";
    // A third refusal mutes the only credential of the second leg: no case follows it.
    let cases = [
        (
            Behaviour::closed(),
            Behaviour::error(400, words),
            400,
            "upstream_rejected_request",
        ),
        (
            Behaviour::closed(),
            Behaviour::error(422, words),
            422,
            "upstream_rejected_request",
        ),
        (
            Behaviour::closed(),
            Behaviour::error(429, "slow"),
            502,
            "upstream_error",
        ),
        (
            Behaviour::closed(),
            Behaviour::error(403, "no"),
            502,
            "upstream_error",
        ),
        (
            Behaviour::error(429, "slow"),
            Behaviour::error(500, "boom"),
            429,
            "upstream_rate_limited",
        ),
        (
            Behaviour::error(503, "down"),
            Behaviour::error(401, "no"),
            503,
            "upstream_error",
        ),
    ];
    for (first, second, status, code) in cases {
        scene.o1.script([first]);
        scene.o2.script([second]);

        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!((answer.status, answer.error_code().as_str()), (status, code));
        if matches!(status, 400 | 422) {
            assert_eq!(answer.json()["error"]["message"], words);
        }
        let row = scene.row(answer.request_id()).await;
        assert_free(&row, "upstream_error", status, code);
        assert_eq!(tried_endpoints(&row), legs(&scene), "{status} {code}");
    }
    scene.finish().await;
}

#[tokio::test]
async fn where_both_legs_refuse_the_request_the_caller_reads_what_the_primary_said() {
    let mut scene = tireless_scene().await;
    scene.pin();
    let (first, second) = ("max_tokens is too large for this model", "max_tokens is too big");
    scene.o2.default(Behaviour::error(400, second));
    let inside = json!({"error": {"message": first, "code": 400}});
    // A status is the last word on the request; of an error inside a 200 a second opinion is asked.
    let (one, two) = (legs(&scene)[0].clone(), legs(&scene)[1].clone());
    let code = "upstream_rejected_request";
    let cases = [
        (
            Behaviour::error(400, first),
            json!([[one, 400, "upstream_error", code]]),
        ),
        (
            Behaviour::error_in_200(inside),
            json!([
                [one, 200, "upstream_error", code],
                [two, 400, "upstream_error", code]
            ]),
        ),
    ];
    for (refusal, attempts) in cases {
        for streamed in [false, true] {
            scene.o1.script([refusal.clone()]);
            let body = if streamed { chat_streamed("m") } else { chat("m") };

            let answer = scene.client.post_chat(&body).await;

            assert_eq!(
                (answer.status, answer.error_code().as_str()),
                (400, code),
                "{}",
                answer.text()
            );
            assert_eq!(answer.json()["error"]["message"], first);
            let row = scene.row(answer.request_id()).await;
            assert_free(&row, "upstream_error", 400, code);
            assert_eq!(tried(&row), attempts, "{row}");
        }
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (4, 2));
    scene.finish().await;
}

#[tokio::test]
async fn a_leg_that_refuses_the_connection_is_routed_around() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let nowhere = refusing_addr();
    let model = Model::new("m")
        .leg_at(&format!("http://{nowhere}/v1"), 0)
        .leg(&o2, 1);
    let scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let row = scene.row(answer.request_id()).await;
    let dead = format!("m:local-{}", nowhere.port());
    assert_eq!(
        tried(&row),
        json!([
            [dead, null, "upstream_error", "upstream_error"],
            [endpoint("m", &scene.o2), 200, "ok", null]
        ])
    );
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_29_a_prompt_too_long_for_one_window_goes_to_a_wider_one_only() {
    let (o1, o2, wide) = (Upstream::start(), Upstream::start(), Upstream::start());
    let model = Model::new("m")
        .leg(&o1, 0)
        .set_leg("context_length", 262_144)
        .leg(&o2, 1)
        .set_leg("context_length", 262_144)
        .leg(&wide, 2)
        .set_leg("context_length", 1_000_000);
    let scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    let words = "This model's maximum context length is 262144 tokens. However, you requested 300000 tokens.";
    let too_long = || Behaviour::error(400, words);
    scene.o1.default(too_long());

    let served = scene.client.post_chat(&chat("m")).await;
    wide.script([too_long()]);
    let refused = scene.client.post_chat(&chat("m")).await;

    assert_eq!(served.status, 200, "{}", served.text());
    let row = scene.row(served.request_id()).await;
    let (narrow, wider) = (endpoint("m", &scene.o1), endpoint("m", &wide));
    assert_eq!(
        tried(&row),
        json!([
            [narrow, 400, "upstream_error", "context_length_exceeded"],
            [wider, 200, "ok", null]
        ])
    );
    assert_eq!(
        (refused.status, refused.error_code().as_str()),
        (400, "context_length_exceeded")
    );
    assert_eq!(refused.json()["error"]["message"], words);
    assert_free(
        &scene.row(refused.request_id()).await,
        "upstream_error",
        400,
        "context_length_exceeded",
    );
    assert_eq!(scene.o2.calls(), 0, "its window is no wider");
    scene.finish().await;
}

#[tokio::test]
async fn a_lower_priority_serves_only_while_the_higher_one_fails() {
    let scene = tireless_scene().await;
    for _ in 0..20 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (20, 0));

    scene.o1.default(Behaviour::error(500, "boom"));
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);

    assert_eq!((scene.o1.calls(), scene.o2.calls()), (21, 1));
    scene.finish().await;
}

#[tokio::test]
async fn legs_of_one_priority_share_by_weight_and_a_weight_of_nothing_never_serves() {
    let (o1, o2, off) = (Upstream::start(), Upstream::start(), Upstream::start());
    let model = Model::new("m")
        .leg(&o1, 0)
        .set_leg("weight", 0.9)
        .leg(&o2, 0)
        .set_leg("weight", 0.1)
        .leg(&off, 1)
        .set_leg("weight", 0);
    // One caller would stay with one of them.
    let spread = |node: harness::NodeBuilder| {
        tireless(node)
            .models(&[model])
            .env("ROUTING_AFFINITY_ENABLED", "0")
    };
    let scene = Scene::start_on(o1, o2, spread).await;

    for _ in 0..200 {
        assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    }
    let (heavy, light) = (scene.o1.calls(), scene.o2.calls());
    scene.o1.default(Behaviour::error(500, "boom"));
    scene.o2.default(Behaviour::error(500, "boom"));
    let failed = scene.client.post_chat(&chat("m")).await;

    assert_eq!(heavy + light, 200);
    assert!((150..200).contains(&heavy), "{heavy} to {light}");
    assert_eq!(failed.status, 502);
    assert_eq!(off.calls(), 0, "not even as a fallback");
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_14_a_pin_of_an_operator_calls_that_leg_alone() {
    let scene = labelled_scene().await;
    let second = endpoint("m", &scene.o2);
    scene.o2.default(Behaviour::error(500, "boom"));
    for (key, pin) in [(OPERATOR_KEY, second.as_str()), (ADMIN_KEY, "backup")] {
        let answer = pinned(&scene, key, pin).await;

        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (502, "upstream_error")
        );
        let row = scene.row(answer.request_id()).await;
        assert_eq!(
            tried(&row),
            json!([[second, 500, "upstream_error", "upstream_error"]])
        );
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 2));
    scene.finish().await;
}

#[tokio::test]
async fn an_unknown_pin_is_refused_and_a_callers_pin_is_not_heard() {
    let scene = labelled_scene().await;

    let unknown = pinned(&scene, OPERATOR_KEY, "nobody").await;
    let ignored = pinned(&scene, harness::CALLER_KEY, "backup").await;

    assert_eq!(
        (unknown.status, unknown.error_code().as_str()),
        (400, "pin_not_found")
    );
    assert_row(
        &scene.row(unknown.request_id()).await,
        &json!({"outcome": "rejected", "status": 400, "error_code": "pin_not_found", "attempts": [],
            "cost_nano_usd": 0}),
    );
    assert_eq!(ignored.status, 200);
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 0));
    scene.finish().await;
}

/// A scene whose circuits never open.
async fn tireless_scene() -> Scene {
    Scene::start_with(tireless).await
}

/// A scene whose legs have provider labels.
async fn labelled_scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = Model::new("m").leg(&o1, 0).set_leg("provider", "main-site");
    let model = model.leg(&o2, 1).set_leg("provider", "backup");
    Scene::start_on(o1, o2, |node| node.models(&[model])).await
}

async fn pinned(scene: &Scene, key: &str, pin: &str) -> Answer {
    scene
        .client
        .with_key(key)
        .with_header("x-route-pin", pin)
        .post_chat(&chat("m"))
        .await
}

async fn stream(scene: &Scene) -> Transcript {
    scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await
}

/// The endpoints of a scene's model, in order.
fn legs(scene: &Scene) -> [String; 2] {
    [endpoint("m", &scene.o1), endpoint("m", &scene.o2)]
}
