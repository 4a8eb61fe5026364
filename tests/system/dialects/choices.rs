//! Several prompts and several answers of one call: what an upstream tells of each is booked once and whole. The bodies
//! are llama-server's own, their texts and times shortened.

use harness::{Behaviour, Scene, Surface, Transcript, chat, chat_streamed_with_usage};
use serde_json::{Value, json};

use crate::rows::{assert_row, events, text_estimate};

/// Two prompts, the second of which ends first: 8 tokens of which 3 were cached, and 6 of which 1 was.
const TWO_PROMPTS: [&str; 6] = [
    "null",
    r#"{"choices":[{"text":" eight","index":1,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","object":"text_completion","id":"c"}"#,
    r#"{"choices":[{"text":" the","index":0,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","object":"text_completion","id":"c"}"#,
    r#"{"choices":[{"text":"","index":1,"logprobs":null,"finish_reason":"length"}],"created":1,"model":"m","object":"text_completion","usage":{"completion_tokens":7,"prompt_tokens":8,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":3}},"id":"c","timings":{"cache_n":3,"prompt_n":5,"predicted_n":7}}"#,
    r#"{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"created":1,"model":"m","object":"text_completion","usage":{"completion_tokens":6,"prompt_tokens":6,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":1}},"id":"c","timings":{"cache_n":1,"prompt_n":5,"predicted_n":6}}"#,
    "[DONE]",
];

/// Two answers of a chat: the usage of each stands without choices behind its end.
const TWO_ANSWERS: [&str; 7] = [
    r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Say"}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}"#,
    r#"{"choices":[{"finish_reason":null,"index":1,"delta":{"content":"Say"}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}"#,
    r#"{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}"#,
    r#"{"choices":[],"created":1,"id":"c","model":"m","object":"chat.completion.chunk","usage":{"completion_tokens":4,"prompt_tokens":26,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":21}},"timings":{"cache_n":21,"prompt_n":5,"predicted_n":4}}"#,
    r#"{"choices":[{"finish_reason":"length","index":1,"delta":{}}],"created":1,"id":"c","model":"m","object":"chat.completion.chunk"}"#,
    r#"{"choices":[],"created":1,"id":"c","model":"m","object":"chat.completion.chunk","usage":{"completion_tokens":5,"prompt_tokens":26,"total_tokens":31,"prompt_tokens_details":{"cached_tokens":21}},"timings":{"cache_n":21,"prompt_n":5,"predicted_n":5}}"#,
    "[DONE]",
];

/// The prompts of the recorded call.
fn prompts() -> Value {
    json!(["The capital of France is", "One two three four five six seven"])
}

fn completions(more: &Value) -> Value {
    let mut body = json!({"model": "m", "prompt": prompts(), "max_tokens": 8});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

async fn streamed(scene: &Scene, body: &Value) -> Transcript {
    let streamed = scene
        .client
        .stream(Surface::Completions, body)
        .await
        .collect()
        .await;
    streamed.whole();
    streamed
}

/// Fresh, cached and output tokens with their cost, and whether a part was estimated.
async fn assert_tokens(scene: &Scene, id: &str, [input, cached, output]: [u64; 3], flags: Value) {
    assert_row(
        &scene.row(id).await,
        &json!({
            "outcome": "ok", "usage_source": "upstream", "usage_flags": flags, "input_tokens": input,
            "cached_tokens": cached, "output_tokens": output,
            "cost_nano_usd": input * 2_000 + cached * 200 + output * 8_000,
        }),
    );
}

#[tokio::test]
async fn streams_that_tell_each_choice_its_usage_are_booked_with_the_sum() {
    let scene = Scene::start().await;
    scene.o1.default(events(&TWO_PROMPTS));
    let ask = completions(&json!({"stream": true}));

    let two = streamed(&scene, &ask).await;
    assert_tokens(&scene, two.request_id(), [10, 4, 13], json!([])).await;

    let mut one_prompt = ask.clone();
    (one_prompt["prompt"], one_prompt["n"]) = (json!("One two"), json!(2));
    let shared = streamed(&scene, &one_prompt).await;
    assert_tokens(&scene, shared.request_id(), [5, 1, 13], json!([])).await;

    scene.o1.default(events(&TWO_ANSWERS));
    let mut ask = chat_streamed_with_usage("m");
    ask["n"] = json!(2);
    let answers = scene.client.stream_chat(&ask).await.collect().await;
    answers.whole();
    assert_tokens(&scene, answers.request_id(), [5, 21, 9], json!([])).await;
    scene.finish().await;
}

/// As vLLM tells it with `continuous_usage_stats`: every chunk what its choice has so far, the last one all.
#[tokio::test]
async fn a_figure_for_the_whole_stream_is_not_added_to_those_of_its_choices() {
    let scene = Scene::start().await;
    let piece = |index: u64, output: u64, end: Value| {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": output, "total_tokens": 9 + output});
        json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": usage,
            "choices": [{"index": index, "delta": {"content": "word"}, "finish_reason": end}],
        })
        .to_string()
    };
    let all = json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    });
    let told = [
        piece(0, 1, Value::Null),
        piece(1, 1, Value::Null),
        piece(1, 2, json!("stop")),
        piece(0, 3, json!("stop")),
        all.to_string(),
        "[DONE]".to_owned(),
    ];
    let mut ask = chat_streamed_with_usage("m");
    ask["n"] = json!(2);
    for without in [None, Some(4)] {
        let told: Vec<&str> = (told.iter().enumerate())
            .filter(|(place, _)| Some(*place) != without)
            .map(|(_, event)| event.as_str())
            .collect();
        scene.o1.script([events(&told)]);

        let answer = scene.client.stream_chat(&ask).await.collect().await;

        answer.whole();
        assert_tokens(&scene, answer.request_id(), [9, 0, 5], json!([])).await;
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_whole_answer_that_tells_its_first_choice_alone_is_estimated_for_the_others_and_says_so() {
    let scene = Scene::start().await;
    let timings = json!({"cache_n": 0, "prompt_n": 6, "predicted_n": 6, "predicted_ms": 147.681});
    let usage = json!({"completion_tokens": 6, "prompt_tokens": 6, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 0}});
    let (first, second) = (
        " the capital of the country of",
        " eight nine ten eleven twelve thirteen",
    );
    let texts = [first, second].into_iter().enumerate().map(
        |(index, text)| json!({"text": text, "index": index, "logprobs": null, "finish_reason": "length"}),
    );
    let whole = json!({
        "choices": texts.collect::<Value>(), "created": 1, "model": "m", "object": "text_completion",
        "usage": usage, "id": "c", "timings": timings,
    });
    scene.o1.default(Behaviour::status(200, whole));

    let two = scene
        .client
        .post(Surface::Completions, &completions(&json!({})))
        .await;

    let (input, output) = (
        6 + text_estimate("One two three four five six seven"),
        6 + text_estimate(second),
    );
    assert_eq!(two.status, 200, "{}", two.text());
    assert_tokens(&scene, two.request_id(), [input, 0, output], json!(["partial"])).await;
    let told = &two.json()["usage"];
    assert_eq!(
        [
            &told["prompt_tokens"],
            &told["completion_tokens"],
            &told["total_tokens"]
        ],
        [&json!(input), &json!(output), &json!(input + output)],
        "the caller is told what is booked"
    );

    let message = |index: u64| json!({"finish_reason": "length", "index": index, "message": {"role": "assistant", "content": "Say hi<|"}});
    scene.o1.default(Behaviour::status(
        200,
        json!({
            "choices": [message(0), message(1)], "created": 1, "model": "m", "object": "chat.completion",
            "usage": {"completion_tokens": 4, "prompt_tokens": 26, "total_tokens": 30}, "id": "c",
            "timings": {"cache_n": 0, "prompt_n": 26, "predicted_n": 4},
        }),
    ));
    let mut ask = chat("m");
    ask["n"] = json!(2);
    let answers = scene.client.post_chat(&ask).await;
    let output = 4 + text_estimate("Say hi<|");
    assert_tokens(&scene, answers.request_id(), [26, 0, output], json!(["partial"])).await;
    assert_eq!(answers.json()["usage"]["completion_tokens"], json!(output));
    scene.finish().await;
}
