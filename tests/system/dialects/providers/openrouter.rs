//! OpenRouter: what it is told, what it charges, and what of it callers see.

use std::time::Duration;

use harness::{
    Behaviour, End, Model, Scene, Surface, Then, Upstream, chat, chat_streamed, chat_streamed_with_usage,
};
use serde_json::{Value, json};

use crate::retries::tireless;
use crate::rows::{assert_billed, assert_row};

use super::{costing, header, of_kind, scene, sent};

/// Usage as it tells it; the cost has more digits than a float keeps apart.
const USAGE: &str = r#"{"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29, "cost": 0.000140001,
    "cost_details": {"upstream_inference_cost": 0.5}, "is_byok": false}"#;

async fn plain() -> Scene {
    scene(|o1| vec![of_kind(o1, "openrouter")]).await
}

#[tokio::test]
async fn what_it_charges_is_in_the_row_to_the_nano_dollar_and_in_no_answer() {
    let scene = plain().await;
    scene.o1.default(costing(USAGE));

    let whole = scene.client.post_chat(&chat("m")).await;
    let stream = scene
        .client
        .stream_chat(&chat_streamed_with_usage("m"))
        .await
        .collect()
        .await;
    let messages = scene
        .client
        .post(Surface::Messages, &Surface::Messages.ask("m"))
        .await;

    assert_eq!(whole.status, 200, "{}", whole.text());
    let usage = &whole.json()["usage"];
    assert_eq!(
        *usage,
        json!({"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29})
    );
    let usage = stream.usage().expect("usage");
    assert_eq!(
        usage,
        json!({"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29})
    );
    for text in [whole.text(), stream.text(), messages.text()] {
        assert!(!text.contains("cost") && !text.contains("byok"), "{text}");
    }
    for id in [whole.request_id(), stream.request_id(), messages.request_id()] {
        let row = scene.row(id).await;
        assert_eq!(row["upstream_cost_nano_usd"], 140_001, "{row}");
        assert_eq!(
            row["cost_nano_usd"], 178_000,
            "the caller pays the price of the file: {row}"
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn with_a_key_of_our_own_behind_it_both_are_what_a_call_costs() {
    let scene = plain().await;
    scene
        .o1
        .default(costing(&USAGE.replace("\"is_byok\": false", "\"is_byok\": true")));

    let answer = scene.client.post_chat(&chat("m")).await;

    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["upstream_cost_nano_usd"], 500_140_001, "{row}");
    scene.finish().await;
}

#[tokio::test]
async fn an_upstream_that_tells_no_cost_leaves_it_open() {
    let scene = plain().await;

    let answer = scene.client.post_chat(&chat("m")).await;

    assert_eq!(
        scene.row(answer.request_id()).await["upstream_cost_nano_usd"],
        Value::Null
    );
    scene.finish().await;
}

/// What the row of a call says of its cost to us, and whether that is all of it, when the first leg does this and the second
/// serves.
async fn cost_after(scene: &Scene, first: Behaviour, second: Behaviour) -> (Value, bool) {
    scene.o1.script([first]);
    scene.o2.script([second]);

    let stream = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    stream.whole();
    let row = scene.row(stream.request_id()).await;
    assert_eq!(row["attempts"].as_array().map(Vec::len), Some(2), "{row}");
    let flags = row["usage_flags"].as_array().expect("flags");
    let partial = flags.iter().any(|flag| flag == "upstream_cost_partial");
    (row["upstream_cost_nano_usd"].clone(), partial)
}

#[tokio::test]
async fn a_cost_that_lacks_that_of_an_attempt_is_marked() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = [of_kind(&o1, "openrouter")
        .leg(&o2, 1)
        .set_leg("kind", "openrouter")];
    let scene = Scene::start_on(o1, o2, |node| {
        tireless(node)
            .models(&models)
            .env("REQUEST_TIMEOUT_SECONDS", "1")
            .env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await;
    let error = || json!({"error": {"message": "it failed", "code": 502}});
    let begun = || Behaviour::chat("never seen").stop_after(0, Then::Cut);
    let silent = || Behaviour::chat("never seen").first_byte_delay(Duration::from_secs(30));
    let costing = || costing(USAGE);

    // Nobody knows what these cost: begun and cut, and asked without an answer.
    for first in [begun(), silent(), Behaviour::closed()] {
        let case = format!("{first:?}");
        assert_eq!(
            cost_after(&scene, first, costing()).await,
            (json!(140_001), true),
            "{case}"
        );
    }
    // These cost nothing: refused, in the head and inside, and never reached.
    for first in [
        Behaviour::failure(429, "slow down"),
        Behaviour::error_in_200(error()),
    ] {
        let case = format!("{first:?}");
        assert_eq!(
            cost_after(&scene, first, costing()).await,
            (json!(140_001), false),
            "{case}"
        );
    }
    // Nothing is known of anything.
    assert_eq!(
        cost_after(&scene, begun(), Behaviour::chat("fine")).await,
        (Value::Null, false)
    );
    scene.finish().await;
}

/// Everything that it may leave open it writes as null.
const NULLS: &str = r#""reasoning":null,"reasoning_details":null,"refusal":null,"tool_calls":null,"function_call":null,"annotations":null,"audio":null,"images":null"#;

#[tokio::test]
async fn what_it_writes_as_null_is_not_there_streamed_and_plain_on_every_surface() {
    let scene = plain().await;
    let usage =
        r#"{"prompt_tokens":9,"completion_tokens":20,"total_tokens":29,"cost":0.000140001,"is_byok":false,
        "prompt_tokens_details":{"cached_tokens":null,"audio_tokens":null},"cost_details":null,
        "completion_tokens_details":{"reasoning_tokens":null}}"#
            .replace('\n', " ");
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"x\",\"usage\":null,\
             \"error\":null,\"system_fingerprint\":null,\"service_tier\":null,\"choices\":[{{\"index\":0,\"delta\":{{{delta},{NULLS}}},\
             \"finish_reason\":{finish},\"native_finish_reason\":null,\"logprobs\":null,\"error\":null}}]}}\n\n"
        )
    };
    let events = [
        chunk("\"role\":\"assistant\",\"content\":null", "null"),
        chunk("\"role\":null,\"content\":\"a \"", "null"),
        chunk("\"content\":\"text\"", "null"),
        chunk("\"content\":null", "\"stop\""),
        format!("data: {{\"id\":\"gen-1\",\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"),
    ]
    .concat();
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: ";
    let streamed = Behaviour::raw(format!("{head}text/event-stream\r\n\r\n{events}"));
    let whole = Behaviour::raw(format!(
        "{head}application/json\r\n\r\n{{\"id\":\"gen-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"x\",\"error\":null,\
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"a text\",{NULLS}}},\"finish_reason\":\"stop\",\
         \"native_finish_reason\":null,\"logprobs\":null,\"error\":null}}],\"usage\":{usage}}}"
    ));
    for surface in Surface::RICH {
        scene.o1.script([streamed.clone()]);
        let stream = scene.client.stream(surface, &surface.ask_streamed("m")).await;
        let stream = stream.collect().await;
        scene.o1.script([whole.clone()]);
        let answer = scene.client.post(surface, &surface.ask("m")).await;

        assert_eq!(stream.end, End::Done, "{surface:?}: {:?}", stream.raw);
        assert_eq!(stream.told().text, "a text", "{surface:?}");
        assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
        assert!(answer.text().contains("a text"), "{surface:?}: {}", answer.text());
        for id in [stream.request_id(), answer.request_id()] {
            let row = scene.row(id).await;
            assert_billed(&row, 9, 20, 178_000);
            assert_row(
                &row,
                &json!({"usage_flags": [], "reasoning_tokens": 0, "upstream_cost_nano_usd": 140_001}),
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn who_served_behind_it_is_not_told_and_its_comments_are_not_passed_on() {
    let scene = plain().await;
    let event = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"gen-1\",\"provider\":\"Novita\",\"model\":\"x\",\"object\":\"chat.completion.chunk\",\
             \"created\":1,\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish},\
             \"native_finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let events = [
        ": OPENROUTER PROCESSING\n\n".to_owned(),
        event("\"role\":\"assistant\",\"content\":\"\"", "null"),
        event("\"content\":\"a \"", "null"),
        event("\"content\":\"provider\"", "null"),
        ": OPENROUTER PROCESSING\n\n".to_owned(),
        event("\"content\":\"\"", "\"stop\""),
        format!(
            "data: {{\"id\":\"gen-1\",\"provider\":\"Novita\",\"choices\":[],\"usage\":{}}}\n\n",
            USAGE.replace('\n', " ")
        ),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    scene.o1.script([Behaviour::raw(format!("{head}{events}"))]);

    let stream = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(stream.whole(), "a provider");
    assert!(
        !stream.text().contains("Novita") && !stream.text().contains("OPENROUTER"),
        "{}",
        stream.text()
    );
    assert_eq!(
        scene.row(stream.request_id()).await["upstream_cost_nano_usd"],
        140_001
    );
    scene.finish().await;
}

#[tokio::test]
async fn it_is_told_whom_to_ask_what_matters_and_whose_calls_these_are() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let pinned = of_kind(&o1, "openrouter[novita/fp8]").set_leg("extra_headers", json!({"X-Title": "Mine"}));
    let sorted = Model::new("s")
        .leg(&o1, 0)
        .set_leg("kind", "openrouter")
        .set_leg("openrouter_sort", "price");
    let models = [pinned, sorted];
    let scene = Scene::start_on(o1, o2, |node| {
        node.models(&models)
            .env("SITE_PUBLIC_BASE_URL", "https://site.example")
            .env("SITE_NAME", "Site")
    })
    .await;
    let client = scene
        .client
        .with_header("http-referer", "https://callers.example")
        .with_header("x-title", "Caller");
    let mut body = chat("m");
    body["seed"] = json!(7);
    body["provider"] = json!({"data_collection": "deny"});

    client.post_chat(&body).await;
    client.post_chat(&chat("s")).await;

    let first = sent(&scene.o1, 0);
    assert_eq!(first["usage"], json!({"include": true}));
    assert_eq!(
        first["provider"],
        json!({
            "order": ["novita/fp8"], "allow_fallbacks": false, "data_collection": "deny", "require_parameters": true,
        })
    );
    assert_eq!(sent(&scene.o1, 1)["provider"], json!({"sort": "price"}));
    for (call, title) in [(0, "Mine"), (1, "Site")] {
        assert_eq!(header(&scene.o1, call, "x-title").as_deref(), Some(title));
        assert_eq!(
            header(&scene.o1, call, "http-referer").as_deref(),
            Some("https://site.example")
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn nobody_is_named_where_nobody_is_configured() {
    let scene = plain().await;

    scene
        .client
        .with_header("x-title", "Caller")
        .post_chat(&chat("m"))
        .await;

    assert_eq!(header(&scene.o1, 0, "x-title"), None);
    assert_eq!(header(&scene.o1, 0, "http-referer"), None);
    scene.finish().await;
}

#[tokio::test]
async fn callers_choose_neither_another_model_nor_who_serves_it() {
    let scene = scene(|o1| {
        let dropping = Model::new("d")
            .leg(o1, 0)
            .set_leg("kind", "openrouter")
            .set_leg("drop_params", true);
        vec![of_kind(o1, "openrouter"), dropping]
    })
    .await;
    for (member, value, param) in [
        ("models", json!(["x/dear"]), "models"),
        ("route", json!("fallback"), "route"),
        ("preset", json!("@p"), "preset"),
        ("provider", json!({"order": ["dear"]}), "provider.order"),
        ("provider", json!({"sort": "throughput"}), "provider.sort"),
    ] {
        let mut body = chat("m");
        body[member] = value;

        let answer = scene.client.post_chat(&body).await;

        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], param);
        assert_eq!(answer.error_code(), "unsupported_parameter");
    }
    assert_eq!(scene.o1.calls(), 0);
    let mut body = chat("d");
    body["models"] = json!(["x/dear"]);
    body["provider"] = json!({"only": ["dear"], "zdr": true});

    let answer = scene.client.post_chat(&body).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-waybill-dropped"), "models, provider.only");
    let seen = sent(&scene.o1, 0);
    assert_eq!(
        (&seen["models"], &seen["provider"]),
        (&Value::Null, &json!({"zdr": true}))
    );
    scene.finish().await;
}

#[tokio::test]
async fn an_error_inside_an_answer_has_the_status_that_it_names() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = of_kind(&o1, "openrouter");
    let scene = Scene::start_on(o1, o2, |node| tireless(node).models(&[model])).await;
    for (told, status) in [(429, 429), (502, 502), (400, 400), (503, 503), (402, 502)] {
        let error =
            json!({"error": {"code": told, "message": "no", "metadata": {"provider_name": "Novita"}}});
        scene.o1.script([Behaviour::status(200, error)]);

        let answer = scene.client.post_chat(&chat("m")).await;

        assert_eq!(answer.status, status, "{told}: {}", answer.text());
        assert!(!answer.text().contains("Novita"), "{}", answer.text());
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_a_failed_answer_costs_is_in_the_row_whoever_asked() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = of_kind(&o1, "openrouter");
    let scene = Scene::start_on(o1, o2, |node| tireless(node).models(&[model])).await;
    let usage: Value = serde_json::from_str(USAGE).expect("json");
    let error = json!({"id": "gen-1", "error": {"code": 502, "message": "no"}, "usage": usage,
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    let in_place = || Behaviour::status(200, error.clone());

    for surface in [Surface::Chat, Surface::Messages, Surface::Responses] {
        let amid = Behaviour::chat("a b c").error_after(2, error.clone());
        scene.o1.script([in_place(), in_place(), amid]);
        let whole = scene.client.post(surface, &surface.ask("m")).await;
        let instead = scene.client.post(surface, &surface.ask_streamed("m")).await;
        let stream = scene.client.stream(surface, &surface.ask_streamed("m")).await;
        let broken = stream.collect().await;

        assert_eq!((whole.status, instead.status), (502, 502), "{surface:?}");
        for (id, tokens) in [
            (whole.request_id(), 0),
            (instead.request_id(), 0),
            (broken.request_id(), 20),
        ] {
            let row = scene.row(id).await;
            assert_eq!(row["upstream_cost_nano_usd"], 140_001, "{surface:?}: {row}");
            assert_eq!(
                (&row["cost_nano_usd"], &row["output_tokens"]),
                (&json!(0), &json!(tokens)),
                "{surface:?}: {row}"
            );
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_error_inside_a_stream_ends_it_in_sight_and_without_a_reason_of_its_own() {
    let scene = plain().await;
    let error = json!({
        "id": "gen-1", "provider": "Novita", "error": {"code": 502, "message": "provider disconnected"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
    });
    scene.o1.script([Behaviour::chat("a b c").error_after(2, error)]);

    let stream = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(stream.finish_reason(), None);
    assert_eq!(stream.error()["code"], "stream_interrupted", "{}", stream.text());
    assert!(
        !stream.text().contains("Novita") && !stream.text().contains("[DONE]"),
        "{}",
        stream.text()
    );
    let row = scene.row(stream.request_id()).await;
    assert_eq!(
        (&row["outcome"], &row["cost_nano_usd"]),
        (&json!("upstream_error"), &json!(0)),
        "{row}"
    );
    scene.finish().await;
}
