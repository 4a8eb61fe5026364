//! What an upstream says about the gateway's own credential and its account reaches no caller.

use harness::{Behaviour, Surface};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, pairs, stream};
use crate::retries::tireless;
use crate::rows::{assert_free, assert_row};

/// What an upstream says of a key that it does not accept.
const BAD_KEY: &str = "Incorrect API key provided: sk-abc123def. You can find your key at https://platform.openai.example.com/keys.";
/// What it says of an account that has nothing left.
const SPENT: &str =
    "You exceeded your current quota (insufficient_quota), please check your plan and billing details.";
/// What Anthropic's API says of such an account, with the status of a caller's mistake.
const NO_CREDIT: &str = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to \
                         upgrade or purchase credits.";
/// Traces of either that no caller may see.
const TRACES: [&str; 9] = [
    "sk-abc",
    "platform",
    "openai",
    "quota",
    "billing",
    "plan",
    "://",
    "credit balance",
    "Billing",
];

#[tokio::test]
async fn an_upstream_that_refuses_our_credential_is_a_bad_gateway_on_every_surface() {
    let mut scene = shapes::one_leg_scene(tireless).await;
    // What is known of a credential is one node's own.
    scene.pin();
    for (surface, shape) in pairs() {
        for status in [401, 402, 403] {
            let text = if status == 402 { SPENT } else { BAD_KEY };
            scene
                .o1
                .script([Behaviour::failure(status, text), Behaviour::failure(status, text)]);
            let plain = ask(&scene, surface, shape.model()).await;
            let streamed = stream(&scene, surface, shape.model()).await;
            assert_eq!(ask(&scene, surface, shape.model()).await.status, 200);

            let case = format!("{surface:?} of {shape:?}, {status}");
            for (told, id, body) in [
                (plain.status, plain.request_id(), plain.body.clone()),
                (streamed.status, streamed.request_id(), streamed.raw.clone()),
            ] {
                assert_eq!(told, 502, "{case}: {}", String::from_utf8_lossy(&body));
                assert_generic(
                    surface,
                    &body,
                    id,
                    ("upstream_rejected_credential", "api_error"),
                    &case,
                );
                let row = scene.row(id).await;
                assert_free(&row, "upstream_error", 502, "upstream_rejected_credential");
                assert_row(&row["attempts"][0], &json!({"status": status}));
            }
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_whose_account_is_spent_is_told_in_our_words_on_every_surface() {
    let mut scene = shapes::one_leg_scene(tireless).await;
    // What a node makes of faults one after another is its own: the good calls between them go to the same one.
    scene.pin();
    for (surface, shape) in pairs() {
        scene
            .o1
            .script([Behaviour::failure(429, SPENT), Behaviour::chat("good")]);
        let answer = ask(&scene, surface, shape.model()).await;
        assert_eq!(ask(&scene, surface, shape.model()).await.status, 200);

        let case = format!("{surface:?} of {shape:?}");
        assert_eq!(answer.status, 429, "{case}: {}", answer.text());
        assert_ne!(answer.header("retry-after"), "", "{case}");
        let words = ("upstream_rate_limited", "rate_limit_error");
        assert_generic(surface, &answer.body, answer.request_id(), words, &case);
        assert_free(
            &scene.row(answer.request_id()).await,
            "upstream_error",
            429,
            "upstream_rate_limited",
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_account_without_credit_is_not_the_callers_mistake_and_another_leg_serves() {
    let model = Shape::Messages.model();
    let refused = || Behaviour::failure(400, NO_CREDIT);
    for surface in Surface::ALL {
        // A credential that was refused is not used again for a while.
        let scene = shapes::scene_with(tireless).await;
        scene.o1.script([refused()]);
        scene.o2.script([Behaviour::chat("good")]);
        let served = ask(&scene, surface, model).await;
        scene.o1.default(refused());
        scene.o2.default(refused());
        let failed = ask(&scene, surface, model).await;

        assert_eq!(served.status, 200, "{surface:?}: {}", served.text());
        let code = "upstream_rejected_credential";
        let row = scene.row(served.request_id()).await;
        assert_row(
            &row["attempts"][0],
            &json!({"status": 400, "outcome": "upstream_error", "error_code": code}),
        );
        assert_row(&row["attempts"][1], &json!({"status": 200, "outcome": "ok"}));
        assert_eq!(failed.status, 502, "{surface:?}: {}", failed.text());
        assert_generic(
            surface,
            &failed.body,
            failed.request_id(),
            (code, "api_error"),
            "no credit",
        );
        assert_free(&scene.row(failed.request_id()).await, "upstream_error", 502, code);
        scene.finish().await;
    }
}

/// Panics unless the error is of the surface's shape, names the request, and shows nothing of the upstream's text.
fn assert_generic(surface: Surface, body: &[u8], id: &str, (code, kind): (&str, &str), case: &str) {
    let told: Value = serde_json::from_slice(body).expect("a JSON body");
    let text = told.to_string();
    let shown = TRACES.iter().find(|trace| text.contains(*trace));
    assert_eq!(shown, None, "{case}: {text}");
    if surface == Surface::Messages {
        assert_eq!(
            (&told["type"], &told["error"]["type"]),
            (&json!("error"), &json!(kind)),
            "{case}"
        );
        assert_eq!(told["request_id"], id, "{case}");
    } else {
        assert_eq!(
            (&told["error"]["code"], &told["error"]["request_id"]),
            (&json!(code), &json!(id)),
            "{case}"
        );
    }
}
