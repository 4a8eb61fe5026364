//! Tokens and money: figures are found wherever an upstream puts them, each class at its own price, odd
//! numbers are marked, and nothing that costs is ever free in silence.

use harness::{
    Behaviour, Model, PRICE, Price, Scene, Upstream, chat, chat_streamed, chat_streamed_with_usage,
};
use serde_json::{Value, json};

use crate::rows::{
    assert_billed, assert_row, chunk, endpoint, events, finish, prompt_estimate, text_estimate, tried,
};

/// The counter of requests whose tokens have no price.
const UNPRICED: &str = "waybill_unpriced_requests_total";
/// What the log says of them.
const NO_PRICE: &str = "requests are served without a price";

#[tokio::test]
async fn bug_case_5_plain_and_streamed_calls_cost_the_same_by_any_name_of_the_model() {
    let mut scene = with_model(|model| model.set("aliases", json!(["m-latest"]))).await;
    scene.price("m-latest", Some(PRICE));
    scene.o1.default(Behaviour::chat("nine and twenty").usage(9, 20));

    for name in ["m", "m-latest"] {
        let plain = scene.client.post_chat(&chat(name)).await;
        let silent = scene
            .client
            .stream_chat(&chat_streamed(name))
            .await
            .collect()
            .await;
        let telling = chat_streamed_with_usage(name);
        let telling = scene.client.stream_chat(&telling).await.collect().await;

        assert_eq!(plain.json()["model"], name);
        assert_eq!(silent.whole(), "nine and twenty");
        assert_eq!(silent.usage(), None, "he did not ask");
        assert!(silent.chunks().iter().all(|chunk| chunk["choices"] != json!([])));
        telling.whole();
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29});
        assert_eq!(telling.usage(), Some(usage));
        for id in [plain.request_id(), silent.request_id(), telling.request_id()] {
            assert_billed(&scene.row(id).await, 9, 20, 178_000);
        }
    }
    let asked = |call: &harness::Call| call.request.json()["stream_options"]["include_usage"].clone();
    let calls: Vec<Value> = scene.o1.recorded().iter().map(asked).collect();
    assert_eq!(
        calls[..3],
        [Value::Null, json!(true), json!(true)],
        "asked on streams only"
    );
    scene.finish().await;
}

#[tokio::test]
async fn stream_options_of_the_caller_keep_their_other_members() {
    let scene = Scene::start().await;
    let mut body = chat_streamed("m");
    body["stream_options"] = json!({"include_usage": false, "include_obfuscation": false});

    let streamed = scene.client.stream_chat(&body).await.collect().await;

    streamed.whole();
    assert_eq!(streamed.usage(), None);
    assert_eq!(
        scene.o1.call(0).request.json()["stream_options"],
        json!({"include_usage": true, "include_obfuscation": false})
    );
    scene.finish().await;
}

#[tokio::test]
async fn each_class_of_tokens_has_its_own_price() {
    let scene = Scene::start().await;
    let usage = json!({
        "prompt_tokens": 4_500, "completion_tokens": 20, "total_tokens": 4_520,
        "prompt_tokens_details": {"cached_tokens": 1_000, "cache_write_tokens": 500},
        "completion_tokens_details": {"reasoning_tokens": 7},
    });
    scene
        .o1
        .default(Behaviour::chat("priced by class").usage_object(usage));

    let (plain, streamed) = both(&scene, "m").await;

    for id in [plain, streamed] {
        assert_row(
            &scene.row(&id).await,
            &json!({
                "input_tokens": 3_000, "cached_tokens": 1_000, "cache_write_tokens": 500, "output_tokens": 20,
                "reasoning_tokens": 7, "usage_source": "upstream", "usage_flags": [],
                "cost_nano_usd": 6_000_000 + 200_000 + 1_250_000 + 160_000, "cost_usd": "0.007610000",
            }),
        );
    }
    scene.finish().await;
}

/// Members of an answer that tell usage, and fresh, cached, written, output and reasoning tokens in them.
const PLACES: [(&str, [u64; 5]); 6] = [
    (
        r#""usage":{"prompt_tokens":9,"completion_tokens":20,"total_tokens":29}"#,
        [9, 0, 0, 20, 0],
    ),
    (
        r#""x_groq":{"id":"r","usage":{"prompt_tokens":9,"completion_tokens":20}}"#,
        [9, 0, 0, 20, 0],
    ),
    (
        r#""timings":{"prompt_n":7,"cache_n":2,"predicted_n":20,"predicted_ms":1.5}"#,
        [7, 2, 0, 20, 0],
    ),
    (
        r#""usage":{"completion_tokens":20,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}"#,
        [3, 6, 0, 20, 0],
    ),
    (
        r#""usage":{"prompt_tokens":9,"completion_tokens":20,"reasoning_tokens":4}"#,
        [9, 0, 0, 20, 4],
    ),
    (
        r#""usage":{"prompt_tokens":9,"completion_tokens":20},"timings":{"prompt_n":1,"predicted_n":1}"#,
        [9, 0, 0, 20, 0],
    ),
];

#[tokio::test]
async fn usage_is_found_wherever_an_upstream_puts_it() {
    let scene = Scene::start().await;
    for (members, counts) in PLACES {
        let more = format!(",{members}");
        let own_chunk = format!(
            r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]{more}}}"#
        );
        let forms = [
            events(&[&chunk("a", ""), &finish(&more), "[DONE]"]),
            events(&[&chunk("a", ""), &finish(""), &own_chunk, "[DONE]"]),
            events(&[&chunk("a", &more), &finish(""), "[DONE]"]),
        ];
        for (form, behaviour) in forms.into_iter().enumerate() {
            scene.o1.script([behaviour]);
            let streamed = scene
                .client
                .stream_chat(&chat_streamed("m"))
                .await
                .collect()
                .await;
            assert_eq!(streamed.whole(), "a", "{members} in form {form}");
            assert_counts(&scene.row(streamed.request_id()).await, counts, &json!([]));
        }
        scene.o1.script([whole(members)]);
        let plain = scene.client.post_chat(&chat("m")).await;
        assert_eq!(plain.content(), "a", "{members}");
        assert_counts(&scene.row(plain.request_id()).await, counts, &json!([]));
    }
    scene.finish().await;
}

#[tokio::test]
async fn usage_on_every_chunk_counts_once_by_its_last_word() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("one two three").usage(9, 20).usage_every_chunk());

    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(streamed.whole(), "one two three");
    assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    scene.finish().await;
}

#[tokio::test]
async fn a_usage_of_null_after_a_figure_does_not_take_it_back() {
    let scene = Scene::start().await;
    let told = r#","usage":{"prompt_tokens":9,"completion_tokens":20}"#;
    scene.o1.script([events(&[
        &chunk("a", told),
        &finish(r#","usage":null"#),
        "[DONE]",
    ])]);

    let streamed = scene
        .client
        .stream_chat(&chat_streamed("m"))
        .await
        .collect()
        .await;

    assert_eq!(streamed.whole(), "a");
    assert_billed(&scene.row(streamed.request_id()).await, 9, 20, 178_000);
    scene.finish().await;
}

#[tokio::test]
async fn odd_numbers_are_brought_into_range_or_estimated_and_marked() {
    let scene = Scene::start().await;
    let cases = [
        (
            r#"{"prompt_tokens":9.0,"completion_tokens":2e1}"#,
            [9, 0, 0, 20, 0],
            json!([]),
        ),
        (
            r#"{"prompt_tokens":"9","completion_tokens":20.9}"#,
            [9, 0, 0, 20, 0],
            json!(["clamped"]),
        ),
        (
            r#"{"prompt_tokens":-5,"completion_tokens":20}"#,
            [prompt_estimate(), 0, 0, 20, 0],
            json!(["malformed"]),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":99999999999999999999999}"#,
            [9, 0, 0, text_estimate("a"), 0],
            json!(["malformed"]),
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":9}}"#,
            [0, 9, 0, 20, 0],
            json!(["cache_exceeds_prompt"]),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":20,"completion_tokens_details":{"reasoning_tokens":30}}"#,
            [9, 0, 0, 20, 20],
            json!(["reasoning_exceeds_output"]),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":20,"total_tokens":31}"#,
            [9, 0, 0, 20, 0],
            json!(["total_mismatch"]),
        ),
        (
            r#"{"prompt_tokens":null,"completion_tokens":20}"#,
            [prompt_estimate(), 0, 0, 20, 0],
            json!(["partial"]),
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":"many"}"#,
            [9, 0, 0, text_estimate("a"), 0],
            json!(["malformed"]),
        ),
    ];
    for (usage, counts, flags) in cases {
        let members = format!(r#","usage":{usage}"#);
        scene
            .o1
            .script([events(&[&chunk("a", ""), &finish(&members), "[DONE]"])]);
        let streamed = scene
            .client
            .stream_chat(&chat_streamed("m"))
            .await
            .collect()
            .await;
        assert_eq!(streamed.whole(), "a", "{usage}");
        assert_counts(&scene.row(streamed.request_id()).await, counts, &flags);

        scene.o1.script([whole(&format!(r#""usage":{usage}"#))]);
        let plain = scene.client.post_chat(&chat("m")).await;
        assert_counts(&scene.row(plain.request_id()).await, counts, &flags);
    }
    scene.finish().await;
}

#[tokio::test]
async fn an_answer_without_usage_is_estimated_from_what_was_sent_and_delivered() {
    let scene = Scene::start().await;
    scene
        .o1
        .default(Behaviour::chat("twelve bytes and some more").no_usage());

    let (plain, streamed) = both(&scene, "m").await;

    let (input, output) = (prompt_estimate(), text_estimate("twelve bytes and some more"));
    for id in [plain, streamed] {
        assert_row(
            &scene.row(&id).await,
            &json!({
                "outcome": "ok", "usage_source": "estimated", "input_tokens": input, "output_tokens": output,
                "cached_tokens": 0, "cost_nano_usd": input * 2_000 + output * 8_000,
            }),
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_5_a_model_without_a_price_is_served_and_marked_and_counted_and_told_of_once() {
    let mut scene = with_model(|model| model.set("pricing", Value::Null)).await;
    scene.pin();
    scene.price("m", None);
    scene.o1.default(Behaviour::chat("for now").usage(9, 20));
    assert!(scene.metric(UNPRICED).await.abs() < f64::EPSILON);

    let (plain, streamed) = both(&scene, "m").await;

    for id in [plain, streamed] {
        assert_row(
            &scene.row(&id).await,
            &json!({
                "outcome": "ok", "input_tokens": 9, "output_tokens": 20, "cost_nano_usd": 0,
                "usage_flags": ["unpriced"],
            }),
        );
    }
    let page = scene.node.metrics().await;
    assert!(
        page.contains("waybill_unpriced_requests_total{model=\"m\"} 2\n"),
        "{page}"
    );
    let logs = scene.node.logs();
    let told: Vec<&String> = logs.iter().filter(|line| line.contains(NO_PRICE)).collect();
    assert_eq!(told.len(), 1, "one line a model: {told:?}");
    assert!(
        told[0].contains("WARN") && told[0].contains(&endpoint("m", &scene.o1)),
        "{told:?}"
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_price_of_nothing_is_a_price() {
    let free = Price {
        input: 0,
        cached: 0,
        cache_write: 0,
        output: 0,
    };
    let mut scene = with_model(|model| model.set("pricing", json!({"prompt": "0", "completion": "0"}))).await;
    scene.price("m", Some(free));

    let (plain, _) = both(&scene, "m").await;

    assert_row(
        &scene.row(&plain).await,
        &json!({"cost_nano_usd": 0, "usage_flags": []}),
    );
    assert!(scene.metric(UNPRICED).await.abs() < f64::EPSILON);
    assert!(!scene.node.logs().iter().any(|line| line.contains(NO_PRICE)));
    scene.finish().await;
}

#[tokio::test]
async fn the_price_of_the_endpoint_that_served_applies() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let dear = json!({"prompt": "20", "completion": "80.000001"});
    let model = Model::new("m").leg(&o1, 0).leg(&o2, 1).set_leg("pricing", dear);
    let mut scene = Scene::start_on(o1, o2, |node| node.models(&[model])).await;
    scene.price("m", None);
    scene.o1.script([Behaviour::error(500, "no")]);
    scene.o2.default(Behaviour::chat("dear").usage(9, 20));

    let answer = scene.client.post_chat(&chat("m")).await;

    let row = scene.row(answer.request_id()).await;
    // 9 x 20,000 and 20 x 80,000.001, half to even.
    assert_billed(&row, 9, 20, 1_780_000);
    let (first, second) = (endpoint("m", &scene.o1), endpoint("m", &scene.o2));
    assert_row(&row, &json!({"endpoint_id": second}));
    assert_eq!(
        tried(&row),
        json!([
            [first, 500, "upstream_error", "upstream_error"],
            [second, 200, "ok", null]
        ])
    );
    scene.finish().await;
}

/// A scene with one leg whose model is bent.
async fn with_model(bend: impl FnOnce(Model) -> Model) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = bend(Model::new("m").leg(&o1, 0));
    Scene::start_on(o1, o2, |node| node.models(&[model])).await
}

/// A plain and a streamed call; their request ids.
async fn both(scene: &Scene, model: &str) -> (String, String) {
    let plain = scene.client.post_chat(&chat(model)).await;
    assert_eq!(plain.status, 200, "{}", plain.text());
    let streamed = scene
        .client
        .stream_chat(&chat_streamed(model))
        .await
        .collect()
        .await;
    streamed.whole();
    (plain.request_id().to_owned(), streamed.request_id().to_owned())
}

/// A plain answer `a` with more members at its end.
fn whole(members: &str) -> Behaviour {
    let message = json!({"role": "assistant", "content": "a"});
    let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
    Behaviour::status(
        200,
        format!(
            r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":{choices},{members}}}"#
        ),
    )
}

fn assert_counts(row: &Value, [input, cached, written, output, reasoning]: [u64; 5], flags: &Value) {
    let cost = input * 2_000 + cached * 200 + written * 2_500 + output * 8_000;
    assert_row(
        row,
        &json!({
            "outcome": "ok", "usage_source": "upstream", "usage_flags": flags, "input_tokens": input,
            "cached_tokens": cached, "cache_write_tokens": written, "output_tokens": output,
            "reasoning_tokens": reasoning, "cost_nano_usd": cost,
        }),
    );
}
