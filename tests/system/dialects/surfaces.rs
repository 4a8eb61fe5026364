//! Every path of the surfaces: what it takes, what it answers, and in whose words it refuses.

use harness::{Answer, Behaviour, Client, Model, Scene, Surface, Upstream, chat, models_file};
use serde_json::{Value, json};

/// A scene with models of one's own.
pub(super) async fn scene_of(models: impl FnOnce(&Upstream, &Upstream) -> Vec<Model>) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let file = models_file(&models(&o1, &o2));
    Scene::start_on(o1, o2, move |node| node.models_yaml(&file)).await
}

async fn post(client: &Client, path: &str, body: &Value) -> Answer {
    let answer = client.post_inference(path, body.to_string()).await;
    answer.expect("a whole answer")
}

fn error_of(answer: &Answer) -> (u16, String, Value) {
    let error = answer.json()["error"].clone();
    let kind = error["type"].as_str().unwrap_or_default().to_owned();
    (answer.status, kind, error["param"].clone())
}

#[tokio::test]
async fn completions_take_lists_of_prompts_choices_probabilities_and_echo() {
    let scene = Scene::start().await;
    scene.o1.default(Behaviour::chat("and so on").usage(9, 6));
    let body = json!({"model": "m", "prompt": ["one", "two"], "n": 2, "logprobs": 3, "echo": true,
        "suffix": "end", "max_tokens": 5, "stop": ["x"]});

    let answer = post(&scene.client, "/v1/completions", &body).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert_eq!(
        (&told["object"], &told["model"]),
        (&json!("text_completion"), &json!("m"))
    );
    let indexes: Vec<_> = told["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .map(|choice| (choice["index"].as_u64(), choice["text"].as_str()))
        .collect();
    let text = Some("and so on");
    assert_eq!(
        indexes,
        [(Some(0), text), (Some(1), text), (Some(2), text), (Some(3), text)]
    );
    let call = scene.o1.call(0).request;
    assert_eq!(call.target, "/v1/completions");
    assert_eq!(call.json(), body, "nothing of it is lost on the way");
    let row = scene.row(answer.request_id()).await;
    assert_eq!(
        (&row["surface"], &row["input_tokens"], &row["output_tokens"]),
        (&json!("completions"), &json!(9), &json!(6))
    );
    scene.finish().await;
}

#[tokio::test]
async fn completions_of_a_model_behind_messages_are_completions_and_what_it_cannot_is_named() {
    let scene = scene_of(|o1, _| {
        let model = Model::new("m").leg_at(&o1.root_url(), 0);
        vec![model.set_leg("kind", "anthropic")]
    })
    .await;
    scene.o1.default(Behaviour::chat("and so on").usage(9, 6));

    let body = json!({"model": "m", "prompt": ["once upon a time"], "max_tokens": 7});
    let answer = post(&scene.client, "/v1/completions", &body).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert_eq!(
        (
            &told["object"],
            &told["choices"][0]["text"],
            &told["choices"][0]["finish_reason"]
        ),
        (&json!("text_completion"), &json!("and so on"), &json!("stop"))
    );
    assert_eq!(
        (
            &told["usage"]["prompt_tokens"],
            &told["usage"]["completion_tokens"]
        ),
        (&json!(9), &json!(6))
    );
    let call = scene.o1.call(0).request;
    assert_eq!(call.target, "/v1/messages");
    let sent = call.json();
    assert_eq!(sent["max_tokens"], json!(7));
    assert!(
        sent["messages"].to_string().contains("once upon a time"),
        "{sent}"
    );
    for (name, value) in [
        ("prompt", json!(["one", "two"])),
        ("n", json!(2)),
        ("logprobs", json!(3)),
        ("echo", json!(true)),
        ("suffix", json!("end")),
    ] {
        let mut body = json!({"model": "m", "prompt": "one", "max_tokens": 7});
        body[name] = value;
        let refused = post(&scene.client, "/v1/completions", &body).await;
        let error = refused.json()["error"].clone();
        assert_eq!(
            (refused.status, &error["code"], &error["param"]),
            (400, &json!("unsupported_parameter"), &json!(name)),
            "{error}"
        );
    }
    assert_eq!(scene.o1.calls(), 1);
    scene.finish().await;
}

#[tokio::test]
async fn prompts_may_be_tokens_and_must_be_something() {
    let scene = Scene::start().await;

    for prompt in [
        json!("text"),
        json!(["text"]),
        json!([1, 2, 3]),
        json!([[1, 2], [3]]),
    ] {
        let body = json!({"model": "m", "prompt": prompt});
        let answer = post(&scene.client, "/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{prompt}: {}", answer.text());
        let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
        assert_eq!(sent["prompt"], prompt);
    }
    let calls = scene.o1.calls();
    for prompt in [json!([]), json!(null), json!(7)] {
        let body = json!({"model": "m", "prompt": prompt});
        let answer = post(&scene.client, "/v1/completions", &body).await;
        assert_eq!(
            error_of(&answer),
            (400, "invalid_request_error".to_owned(), json!("prompt"))
        );
    }
    assert_eq!(scene.o1.calls(), calls);
    scene.finish().await;
}

#[tokio::test]
async fn the_short_path_takes_prompts_and_messages_and_answers_in_kind() {
    let scene = Scene::start().await;

    let completed = post(
        &scene.client,
        "/completion",
        &json!({"model": "m", "prompt": "hi"}),
    )
    .await;
    let chatted = post(&scene.client, "/completion", &chat("m")).await;

    assert_eq!(completed.json()["object"], "text_completion");
    assert_eq!(chatted.json()["object"], "chat.completion");
    let targets = [0, 1].map(|number| scene.o1.call(number).request.target);
    assert_eq!(targets, ["/v1/completions", "/v1/chat/completions"]);
    scene.finish().await;
}

async fn embedding_scene() -> Scene {
    let mut scene = scene_of(|o1, o2| {
        let model = Model::new("e").set("model_type", "embedding");
        vec![model.leg(o1, 0).leg(o2, 1), Model::new("m").leg(o1, 0)]
    })
    .await;
    scene.price("e", Some(harness::PRICE));
    scene
}

#[tokio::test]
async fn embeddings_take_texts_and_tokens_and_answer_in_the_encoding_that_was_asked_for() {
    let scene = embedding_scene().await;
    // 0, 1/8, 2/8 and 3/8 as little-endian floats of 32 bits.
    let packed = "AAAAAAAAAD4AAIA+AADAPg==";

    for (input, count) in [
        (json!("one"), 1),
        (json!(["one", "two"]), 2),
        (json!([1, 2, 3]), 1),
        (json!([[1, 2], [3]]), 2),
    ] {
        for (encoding, vector) in [
            (json!(null), json!([0.0, 0.125, 0.25, 0.375])),
            (json!("float"), json!([0.0, 0.125, 0.25, 0.375])),
            (json!("base64"), json!(packed)),
        ] {
            let mut body = json!({"model": "e", "input": input, "dimensions": 4});
            if encoding.is_string() {
                body["encoding_format"] = encoding.clone();
            }
            let answer = post(&scene.client, "/v1/embeddings", &body).await;
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            let told = answer.json();
            assert_eq!((&told["object"], &told["model"]), (&json!("list"), &json!("e")));
            let entry = |index: usize| json!({"object": "embedding", "index": index, "embedding": vector});
            assert_eq!(told["data"], json!((0..count).map(entry).collect::<Vec<_>>()));
            let sent = scene.o1.call(scene.o1.calls() - 1).request.json();
            assert_eq!((&sent["input"], &sent["dimensions"]), (&input, &json!(4)));
        }
    }
    for input in [json!([]), json!(null)] {
        let body = json!({"model": "e", "input": input});
        let answer = post(&scene.client, "/v1/embeddings", &body).await;
        assert_eq!(
            error_of(&answer),
            (400, "invalid_request_error".to_owned(), json!("input"))
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn embeddings_fall_back_in_the_order_of_the_file_and_are_billed_as_input() {
    let scene = embedding_scene().await;
    scene.o1.default(Behaviour::error(500, "boom"));
    scene.o2.default(Behaviour::chat("").usage(1_000, 0));
    let body = json!({"model": "e", "input": "text"});

    let answer = post(&scene.client, "/v1/embeddings", &body).await;

    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (1, 1));
    let row = scene.row(answer.request_id()).await;
    assert_eq!(
        (&row["surface"], &row["input_tokens"], &row["output_tokens"]),
        (&json!("embeddings"), &json!(1_000), &json!(0))
    );
    assert_eq!(row["cost_nano_usd"], json!(2_000_000));
    scene.o2.default(Behaviour::error(500, "boom"));
    let failed = post(&scene.client, "/v1/embeddings", &body).await;
    assert_eq!(failed.status, 502, "{}", failed.text());
    scene.finish().await;
}

#[tokio::test]
async fn embeddings_of_which_some_are_missing_are_no_answer() {
    let scene = embedding_scene().await;
    let entry = |vector: Value| json!({"object": "embedding", "index": 0, "embedding": vector});
    let list = |entries: &[Value]| json!({"object": "list", "model": "u", "data": entries, "usage": {"prompt_tokens": 9, "total_tokens": 9}});
    let body = json!({"model": "e", "input": ["one", "two"]});

    for entries in [
        vec![entry(json!([0.5]))],
        vec![entry(json!([0.5])), entry(json!(null))],
        vec![entry(json!([])), entry(json!([0.5]))],
    ] {
        scene.o1.script([Behaviour::status(200, list(&entries))]);
        let answer = post(&scene.client, "/v1/embeddings", &body).await;

        assert_eq!(answer.status, 200, "{}", answer.text());
        let vectors = answer.json()["data"].as_array().map(Vec::len);
        assert_eq!(vectors, Some(2), "the next endpoint gave all: {}", answer.text());
        let row = scene.row(answer.request_id()).await;
        assert_eq!(row["attempts"][0]["outcome"], "upstream_error", "{row}");
    }
    scene.finish().await;
}

fn ids(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list");
    data.iter()
        .map(|model| model["id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test]
async fn models_are_listed_in_the_shape_of_the_client_on_every_path() {
    let scene = scene_of(|o1, _| {
        vec![
            Model::new("m").leg(o1, 0),
            Model::new("a/b").leg(o1, 0).set("name", "A B"),
            Model::new("hidden").leg(o1, 0).set("admin_only", true),
        ]
    })
    .await;
    let client = &scene.client;
    let of_anthropic = [
        client.with_header("anthropic-version", "2023-06-01"),
        client.with_header("user-agent", "Anthropic/Python 2.14.0"),
        client.with_header("user-agent", "claude-cli/2.1.197 (external, sdk-cli)"),
    ];

    for path in [
        "/v1/models",
        "/v1/models/",
        "//v1/models?limit=1000",
        "/models",
        "/openrouter/models",
    ] {
        let list = client.get(path).await.json();
        assert_eq!(
            (&list["object"], ids(&list)),
            (&json!("list"), vec!["m", "a/b"]),
            "{path}"
        );
    }
    let mut listed = vec![client.get("/anthropic/v1/models?limit=1000").await.json()];
    for client in &of_anthropic {
        listed.push(client.get("/v1/models?limit=1000").await.json());
    }
    for list in listed {
        assert_eq!(ids(&list), ["m", "a/b"]);
        assert_eq!(
            (&list["has_more"], &list["first_id"], &list["last_id"]),
            (&json!(false), &json!("m"), &json!("a/b"))
        );
        let shown = &list["data"][1];
        assert_eq!(
            (&shown["type"], &shown["display_name"]),
            (&json!("model"), &json!("A B"))
        );
    }
    for path in ["/v1/models/a%2Fb", "/v1/models/a/b", "/anthropic/v1/models/a%2fb"] {
        let shown = client.get(path).await;
        assert_eq!(
            (shown.status, &shown.json()["id"]),
            (200, &json!("a/b")),
            "{path}"
        );
    }
    let hidden = of_anthropic[0].get("/v1/models/hidden").await;
    assert_eq!((hidden.status, &hidden.json()["type"]), (404, &json!("error")));
    assert_eq!(
        client.get("/v1/models/hidden").await.error_code(),
        "model_not_found"
    );
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn hybrid_case_48_a_balance_has_its_shape_and_needs_a_key() {
    let scene = Scene::start().await;

    let own = scene.client.get("/anthropic/user/balance").await;
    let nobody = scene.client.with_key("").get("/anthropic/user/balance").await;

    assert_eq!(
        own.json(),
        json!({"is_available": true, "currency": "USD", "balance_usd": null, "daily_limit_usd": null,
            "spent_today_usd": null, "reset_at": null})
    );
    assert_eq!(
        (nobody.status, &nobody.json()["error"]["type"]),
        (401, &json!("authentication_error"))
    );
    scene.finish().await;
}

#[tokio::test]
async fn tokens_are_counted_while_no_provider_answers_and_never_for_a_model_that_is_not_there() {
    let mut scene = scene_of(|o1, _| {
        vec![
            Model::new("m").leg(o1, 0),
            Model::new("hidden").leg(o1, 0).set("admin_only", true),
        ]
    })
    .await;
    scene.o1.stop().await;
    let body = |model: &str| {
        json!({"model": model, "system": "be brief",
            "messages": [{"role": "user", "content": "how many tokens are these words"}],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}]})
    };

    for path in [
        "/v1/messages/count_tokens?beta=true",
        "/anthropic/v1/messages/count_tokens/",
    ] {
        let post = async |model| {
            let body = body(model).to_string().into();
            scene.client.call("POST", path, body).await.expect("an answer")
        };
        let counted = post("m").await;
        assert_eq!(counted.status, 200, "{}", counted.text());
        let tokens = counted.json()["input_tokens"].as_u64().expect("a number");
        assert!((15..80).contains(&tokens), "{tokens}");
        let (hidden, unknown) = (post("hidden").await, post("nothing").await);
        assert_eq!((hidden.status, unknown.status), (404, 404));
        let body = |answer: &Answer| answer.text().replace(answer.request_id(), "");
        assert_eq!(body(&hidden), body(&unknown));
        assert_eq!(hidden.json()["error"]["type"], "not_found_error");
    }
    scene.finish().await;
}

/// Paths on which a model is asked for something, each with the smallest body that is legal there.
fn calls(model: &str) -> Vec<(&'static str, Value)> {
    let messages = Surface::Messages.ask(model);
    vec![
        ("/v1/chat/completions", Surface::Chat.ask(model)),
        ("/v1/completions", Surface::Completions.ask(model)),
        ("/completion", Surface::Completions.ask(model)),
        ("/v1/responses", Surface::Responses.ask(model)),
        ("/v1/messages", messages.clone()),
        ("/anthropic/v1/messages", messages),
        ("/v1/embeddings", json!({"model": model, "input": "x"})),
    ]
}

#[tokio::test]
async fn a_forbidden_model_is_the_unknown_ones_404_on_every_form_of_every_path() {
    let scene = scene_of(|o1, _| {
        vec![
            Model::new("m").leg(o1, 0),
            Model::new("hidden").leg(o1, 0).set("admin_only", true),
            Model::new("of-zenith")
                .leg(o1, 0)
                .set("tenants", json!(["zenith"])),
        ]
    })
    .await;
    let refusal = |answer: &Answer| {
        let mut headers: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
        headers.sort();
        (
            answer.status,
            answer.text().replace(answer.request_id(), ""),
            headers,
        )
    };

    for (path, body) in calls("MODEL") {
        let mut seen = Vec::new();
        for form in [
            path.to_owned(),
            format!("{path}/"),
            format!("/{path}"),
            format!("{path}?beta=true"),
        ] {
            for model in ["hidden", "of-zenith", "nothing"] {
                let body = body.to_string().replace("MODEL", model);
                let answer = scene.client.post_inference(&form, body).await.expect("an answer");
                assert_eq!(answer.status, 404, "{form} {model}: {}", answer.text());
                seen.push(refusal(&answer));
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{path}: {seen:?}");
        let told: Value = serde_json::from_str(&seen[0].1).expect("JSON");
        let is_anthropic = path.ends_with("/messages");
        assert_eq!(told["type"] == "error", is_anthropic, "{path}: {told}");
    }
    assert_eq!(scene.o1.calls(), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_slash_too_many_means_nothing_and_what_is_no_call_calls_nobody() {
    let scene = embedding_scene().await;
    for (path, body) in calls("m") {
        if path == "/v1/embeddings" {
            continue;
        }
        let before = scene.o1.calls();
        for form in [
            format!("{path}/"),
            format!("/{path}"),
            path.replace("/v1/", "/v1//"),
        ] {
            let answer = post(&scene.client, &form, &body).await;
            assert_eq!(answer.status, 200, "{form}: {}", answer.text());
        }
        assert_eq!(scene.o1.calls(), before + 3);
    }
    let before = scene.o1.calls();
    for (path, body) in calls("m") {
        for method in ["GET", "HEAD", "PUT"] {
            let answer = scene
                .client
                .call(method, path, body.to_string().into())
                .await
                .expect("an answer");
            assert_eq!(answer.status, 405, "{method} {path}");
        }
        let upper = scene
            .client
            .call("POST", &path.to_uppercase(), body.to_string().into())
            .await
            .expect("an answer");
        assert_eq!(upper.status, 404, "{path}");
    }
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/anthropic",
        "/v1/models",
        "/anthropic/v1/models",
    ] {
        let head = scene
            .client
            .call("HEAD", path, bytes::Bytes::new())
            .await
            .expect("an answer");
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
    assert_eq!((scene.o1.calls(), scene.o2.calls()), (before, 0));
    scene.finish().await;
}

#[tokio::test]
async fn a_base_url_that_says_the_version_twice_gets_a_hint_in_the_words_of_the_client() {
    let scene = Scene::start().await;

    for (path, is_anthropic) in [
        ("/v1/v1/chat/completions", false),
        ("/v1/v1/models", false),
        ("/v1/v1/messages", true),
        ("/anthropic/v1/v1/messages", true),
    ] {
        let answer = scene
            .client
            .call("POST", path, "{}".into())
            .await
            .expect("an answer");
        let told = answer.json();
        assert_eq!(
            (answer.status, told["type"] == "error"),
            (404, is_anthropic),
            "{path}"
        );
        let message = told["error"]["message"].as_str().expect("a text");
        assert!(message.contains("base URL"), "{path}: {message}");
    }
    scene.finish().await;
}
