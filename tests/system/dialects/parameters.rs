//! Parameters that a model does not take: refused by name, dropped and told, or no more than a hint; and what a version
//! of Anthropic's API no longer has.

use harness::{Behaviour, CALLER_KEY, Model, PRICE, Scene, Surface, Upstream, chat, models_file};
use serde_json::{Value, json};

use super::surfaces::scene_of;
use crate::rows::{assert_free, assert_row};

/// A body of each surface that asks for what is in `more`, and what its caller calls the first of it.
fn asking(surface: Surface, more: &Value) -> Value {
    let mut body = surface.ask("m");
    for (name, value) in more.as_object().expect("members") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_parameter_that_the_model_does_not_take_is_refused_by_name_on_every_surface() {
    let scene = scene_of(|o1, o2| {
        let model = Model::new("m").set("supported_params", json!(["temperature", "max_tokens"]));
        vec![model.leg(o1, 0).leg(o2, 1)]
    })
    .await;
    let only = json!({"temperature": 0.5, "top_p": 1});

    for (surface, more, param) in [
        (Surface::Chat, json!({"top_k": 5}), "top_k"),
        (Surface::Chat, json!({"stop": ["x"]}), "stop"),
        (Surface::Chat, json!({"n": 2}), "n"),
        (Surface::Chat, json!({"logprobs": true}), "logprobs"),
        (
            Surface::Chat,
            json!({"frequency_penalty": 0.5}),
            "frequency_penalty",
        ),
        (Surface::Completions, json!({"seed": 7}), "seed"),
        (
            Surface::Completions,
            json!({"logit_bias": {"1": 2}}),
            "logit_bias",
        ),
        (Surface::Responses, json!({"top_p": 0.5}), "top_p"),
        (Surface::Messages, json!({"top_k": 5}), "top_k"),
        (
            Surface::Messages,
            json!({"stop_sequences": ["x"]}),
            "stop_sequences",
        ),
    ] {
        let answer = scene.client.post(surface, &asking(surface, &more)).await;
        assert_eq!(answer.status, 400, "{surface:?} {more}: {}", answer.text());
        let told = answer.json();
        let message = told["error"]["message"].as_str().expect("a text");
        assert!(message.contains(&format!("'{param}'")), "{message}");
        assert_eq!(told["error"]["type"], "invalid_request_error");
        if surface != Surface::Messages {
            assert_eq!(
                (&told["error"]["code"], &told["error"]["param"]),
                (&json!("unsupported_parameter"), &json!(param))
            );
        }
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 0));
    for surface in Surface::ALL {
        let answer = scene.client.post(surface, &asking(surface, &only)).await;
        assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
        assert_eq!(answer.header("x-waybill-dropped"), "");
    }
    scene.finish().await;
}

#[tokio::test]
async fn what_is_said_of_tools_where_there_are_none_passes_a_model_without_tools_and_is_told() {
    let scene = scene_of(|o1, _| vec![Model::new("m").set("supports_tools", json!(false)).leg(o1, 0)]).await;
    for (choice, dropped) in [
        (json!("auto"), "tool_choice"),
        (json!("none"), "tool_choice"),
        (Value::Null, ""),
    ] {
        let body = asking(Surface::Chat, &json!({"tool_choice": choice}));
        let answer = scene.client.post(Surface::Chat, &body).await;
        assert_eq!(answer.status, 200, "{choice}: {}", answer.text());
        if !dropped.is_empty() {
            assert_eq!(answer.header("x-waybill-dropped"), dropped, "{choice}");
            let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
            assert_eq!(sent.get("tool_choice"), None, "{sent}");
        }
    }
    let calls = scene.o1.calls();
    let body = asking(Surface::Chat, &json!({"tool_choice": "required"}));
    let refused = scene.client.post(Surface::Chat, &body).await;
    assert_eq!(
        (refused.status, scene.o1.calls()),
        (400, calls),
        "{}",
        refused.text()
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_was_refused_before_anything_was_sent_is_rejected_in_the_books_and_free() {
    let scene = scene_of(|o1, _| {
        let few = Model::new("few").set("supported_params", json!(["temperature"]));
        let other = Model::new("other").leg_at(&o1.root_url(), 0);
        vec![few.leg(o1, 0), other.set_leg("kind", "anthropic")]
    })
    .await;
    let unreadable = json!({"messages": [{"role": "user", "content": "q"},
        {"role": "tool", "tool_call_id": "never", "content": "r"}]});
    for (model, surface, more, code) in [
        // The leg takes no such parameter.
        ("few", Surface::Chat, json!({"top_k": 5}), "unsupported_parameter"),
        // The leg's dialect has no such parameter.
        (
            "other",
            Surface::Chat,
            json!({"seed": 5}),
            "unsupported_parameter",
        ),
        (
            "other",
            Surface::Responses,
            json!({"seed": 5}),
            "unsupported_parameter",
        ),
        // What was said cannot be read.
        (
            "other",
            Surface::Chat,
            unreadable.clone(),
            "unsupported_parameter",
        ),
        (
            "other",
            Surface::Chat,
            json!({"messages": [{"role": "alien", "content": "q"}]}),
            "invalid_request",
        ),
    ] {
        for streamed in [false, true] {
            let mut body = asking(surface, &more);
            body["model"] = json!(model);
            body["stream"] = json!(streamed);
            let answer = scene.client.post(surface, &body).await;

            assert_eq!(answer.status, 400, "{model} {more}: {}", answer.text());
            let row = scene.row(answer.request_id()).await;
            assert_free(&row, "rejected", 400, code);
            assert_row(&row, &json!({"attempts": [], "endpoint_id": null}));
        }
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_route_that_drops_parameters_sends_the_rest_and_tells_what_it_dropped() {
    let scene = scene_of(|o1, _| {
        let model = Model::new("m")
            .set("supported_params", json!(["temperature"]))
            .leg(o1, 0)
            .set_leg("drop_params", true);
        vec![model]
    })
    .await;

    for (surface, more, dropped) in [
        (
            Surface::Chat,
            json!({"top_k": 5, "n": 3, "temperature": 0.5, "stop": ["x"]}),
            "top_k, stop, n",
        ),
        (
            Surface::Completions,
            json!({"seed": 5, "temperature": 0.5}),
            "seed",
        ),
        (
            Surface::Responses,
            json!({"top_p": 0.5, "temperature": 0.5}),
            "top_p",
        ),
        (
            Surface::Messages,
            json!({"stop_sequences": ["x"], "top_k": 5, "temperature": 0.5}),
            "top_k, stop_sequences",
        ),
    ] {
        for streamed in [false, true] {
            let mut body = asking(surface, &more);
            body["stream"] = json!(streamed);
            let told = if streamed {
                let transcript = scene.client.stream(surface, &body).await.collect().await;
                let header = transcript.headers.get("x-waybill-dropped");
                assert!(!transcript.told().text.is_empty(), "{surface:?}");
                header.expect("a header").to_str().expect("text").to_owned()
            } else {
                let answer = scene.client.post(surface, &body).await;
                assert_eq!(answer.status, 200, "{surface:?}: {}", answer.text());
                answer.header("x-waybill-dropped").to_owned()
            };
            let mut told: Vec<&str> = told.split(", ").collect();
            let mut expected: Vec<&str> = dropped.split(", ").collect();
            told.sort_unstable();
            expected.sort_unstable();
            assert_eq!(told, expected, "{surface:?}");
            let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
            for name in ["top_k", "n", "stop", "seed", "top_p"] {
                assert_eq!(sent.get(name), None, "{surface:?}: {sent}");
            }
            assert_eq!(sent["temperature"], json!(0.5));
        }
    }
    scene.finish().await;
}

#[tokio::test]
async fn effort_is_a_hint_to_models_that_do_not_reason_and_goes_to_those_that_do() {
    let scene = scene_of(|o1, _| {
        let plain = Model::new("m").set("supported_params", json!(["temperature"]));
        let strict = Model::new("strict")
            .set("supported_params", json!(["temperature"]))
            .set("effort_binding", true);
        let reasons = Model::new("reasons")
            .set("supported_params", json!(["temperature"]))
            .set("reasoning_efforts", json!(["low", "high"]));
        vec![plain.leg(o1, 0), strict.leg(o1, 0), reasons.leg(o1, 0)]
    })
    .await;
    let efforts = [
        (
            Surface::Chat,
            json!({"reasoning_effort": "high"}),
            "reasoning_effort",
        ),
        (
            Surface::Responses,
            json!({"reasoning": {"effort": "high"}}),
            "reasoning.effort",
        ),
        (
            Surface::Messages,
            json!({"output_config": {"effort": "high"}}),
            "output_config.effort",
        ),
    ];

    for (surface, more, name) in &efforts {
        let body = asking(*surface, more);
        let of = |model: &str| {
            let mut body = body.clone();
            body["model"] = json!(model);
            body
        };
        let hint = scene.client.post(*surface, &of("m")).await;
        assert_eq!((hint.status, hint.header("x-waybill-dropped")), (200, *name));
        let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
        assert_eq!(sent.get("reasoning_effort"), None);
        let refused = scene.client.post(*surface, &of("strict")).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let taken = scene.client.post(*surface, &of("reasons")).await;
        assert_eq!((taken.status, taken.header("x-waybill-dropped")), (200, ""));
        let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
        assert_eq!(sent["reasoning_effort"], "high");
    }
    let other = asking(
        Surface::Chat,
        &json!({"model": "reasons", "reasoning_effort": "medium"}),
    );
    let other = scene.client.post(Surface::Chat, &other).await;
    assert_eq!(
        (other.status, other.header("x-waybill-dropped")),
        (200, "reasoning_effort")
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_leg_that_takes_a_parameter_serves_what_the_others_cannot() {
    let scene = scene_of(|o1, o2| {
        let model = Model::new("m")
            .leg(o1, 0)
            .set_leg("supports_tools", false)
            .set_leg("supported_params", json!(["temperature"]))
            .leg(o2, 1);
        vec![model]
    })
    .await;
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]);

    for more in [json!({"tools": tools}), json!({"top_k": 5})] {
        let answer = scene
            .client
            .post(Surface::Chat, &asking(Surface::Chat, &more))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 2));
    let plain = scene.client.post_chat(&chat("m")).await;
    assert_eq!((plain.status, scene.o1.calls()), (200, 1));
    scene.finish().await;
}

#[tokio::test]
async fn messages_are_held_to_the_version_that_they_say_they_are_in() {
    let scene = Scene::start().await;
    let turn = |role: &str, block: Value| json!([{"role": "user", "content": "hi"}, {"role": role, "content": [block]}]);
    let document =
        json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}});
    let cited = json!({"type": "text", "text": "b", "citations": [{"type": "char_location"}]});
    let gone = [
        (json!({"temperature": 1}), "temperature"),
        (json!({"top_p": 1.0}), "top_p"),
        (json!({"top_k": 5}), "top_k"),
        (
            json!({"messages": turn("assistant", document)}),
            "messages.1.content.0",
        ),
        (
            json!({"messages": turn("user", cited)}),
            "messages.1.content.0.citations",
        ),
    ];
    let in_version = |version: &str| scene.client.with_header("anthropic-version", version);

    for (more, place) in &gone {
        let body = asking(Surface::Messages, more);
        let answer = in_version("2026-10-21").post(Surface::Messages, &body).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["error"]["type"]),
            (400, &json!("invalid_request_error")),
            "{more}"
        );
        let message = told["error"]["message"].as_str().expect("a text");
        assert!(message.contains(&format!("'{place}'")), "{message}");
    }
    assert_eq!(scene.o1.calls(), 0);
    for (version, more) in [
        ("2023-06-01", &gone[0].0),
        ("2023-06-01", &gone[1].0),
        ("2026-10-21", &json!({"system": "keep the temperature low"})),
    ] {
        let body = asking(Surface::Messages, more);
        let answer = in_version(version).post(Surface::Messages, &body).await;
        assert_eq!(answer.status, 200, "{version} {more}: {}", answer.text());
    }
    let answer = scene
        .client
        .with_key(CALLER_KEY)
        .post(Surface::Messages, &asking(Surface::Messages, &gone[0].0))
        .await;
    assert_eq!(answer.status, 200, "no version is the oldest: {}", answer.text());
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_leaves_no_room_to_think_is_answered_by_the_small_model_where_there_is_one() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let reasons = Model::new("m").set("reasoning_efforts", json!(["low", "high"]));
    let file = models_file(&[reasons.leg(&o1, 0), Model::new("little").leg(&o2, 0)]);
    let mut scene = Scene::start_on(o1, o2, move |node| {
        node.models_yaml(&file)
            .env("SMALL_MAXTOK_REASONING_TARGET", "little")
    })
    .await;
    scene.price("little", Some(PRICE));
    scene.o2.default(Behaviour::chat("a title").usage(100, 2));
    let call = |tokens: u64, more: Value| {
        let mut body = asking(Surface::Messages, &more);
        body["max_tokens"] = json!(tokens);
        body
    };

    let small = scene.client.post(Surface::Messages, &call(32, json!({}))).await;
    let streamed = scene
        .client
        .stream(Surface::Messages, &call(32, json!({"stream": true})))
        .await;
    let streamed = streamed.collect().await;

    assert_eq!((small.status, small.header("x-routed-model")), (200, "little"));
    assert_eq!(
        (&small.json()["model"], small.told(Surface::Messages).text),
        (&json!("m"), "a title".to_owned())
    );
    assert_eq!(streamed.told().text, "a title");
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 2));
    let sent = scene.o2.call(0).request.json();
    assert_eq!(
        (&sent["model"], &sent["max_tokens"]),
        (&json!("little"), &json!(512))
    );
    let row = scene.row(small.request_id()).await;
    assert_eq!(
        (&row["model"], &row["cost_nano_usd"]),
        (&json!("little"), &json!(216_000))
    );
    for body in [
        call(65, json!({})),
        call(32, json!({"stop_sequences": ["x"]})),
        call(32, json!({"model": "little"})),
    ] {
        let answer = scene.client.post(Surface::Messages, &body).await;
        assert_eq!(
            (answer.status, answer.header("x-routed-model")),
            (200, ""),
            "{body}"
        );
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (2, 3));
    scene.finish().await;
}

#[tokio::test]
async fn a_parameter_is_not_called_unsupported_while_the_leg_that_takes_it_is_down() {
    let mut scene = scene_of(|o1, o2| {
        let model = Model::new("m")
            .leg(o1, 0)
            .set_leg("supported_params", json!(["temperature"]))
            .leg(o2, 1);
        vec![model]
    })
    .await;
    scene.pin();
    scene.o2.default(Behaviour::error(500, "boom"));
    let body = asking(Surface::Chat, &json!({"top_k": 5}));

    for _ in 0..3 {
        let failed = scene.client.post(Surface::Chat, &body).await;
        assert_eq!(failed.status, 502, "{}", failed.text());
    }
    let open = scene.client.post(Surface::Chat, &body).await;

    assert_eq!(
        (open.status, &*open.error_code()),
        (503, "all_circuits_open"),
        "{}",
        open.text()
    );
    assert!(!open.header("retry-after").is_empty());
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (0, 3));
    assert_eq!(scene.client.post_chat(&chat("m")).await.status, 200);
    scene.finish().await;
}
