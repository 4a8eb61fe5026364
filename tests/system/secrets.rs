//! Nothing of a key, a prompt or our own insides stands in anything that is told or kept, whatever goes wrong.

use harness::{
    ARGUMENT_CANARY, Answer, Behaviour, CALLER_KEY, Client, FALSE_KEY, Model, PROMPT_CANARY, PROVIDER_KEY,
    Scene, Surface, Upstream, chat, chat_streamed, models_file, raw, refusing_addr,
};
use serde_json::{Value, json};

/// A credential that an upstream wants in its address; the files that name it are the operator's own.
const QUERY_KEY: &str = "sk-harness-canary-query-c0ffee";
/// Words of our insides that no body may hold.
const INSIDES: [&str; 14] = [
    "127.0.0.1",
    "localhost",
    "api_logs",
    "event_log",
    "sqlite",
    "hyper",
    "axum",
    "reqwest",
    "tokio",
    "serde",
    "panicked",
    ".rs",
    "canary",
    "upstream.internal",
];

fn tells_nothing(text: &str, case: &str) {
    let text = text.to_lowercase();
    for word in INSIDES {
        assert!(!text.contains(word), "{case}: {word} in {text}");
    }
}

/// A scene that logs all it can; model `away` has an upstream that cannot be reached and a key in its address.
async fn talkative_scene() -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let away = format!("http://{}/v1", refusing_addr());
    let query = json!({"key": QUERY_KEY});
    let models = [
        Model::new("m").leg(&o1, 0),
        Model::new("away").leg_at(&away, 0).set_leg("extra_query", query),
    ];
    let file = models_file(&models);
    Scene::start_on(o1, o2, move |node| {
        let node = node.models_yaml(&file).env("LOG_LEVEL", "debug");
        let node = node.env("CIRCUIT_FAILURE_THRESHOLD", "100");
        node.env("CIRCUIT_MIN_AVAILABILITY", "0")
    })
    .await
}

async fn assert_nothing_kept(scene: Scene) {
    let kept = [scene.node.logs().join("\n"), scene.node.metrics().await];
    assert!(kept.iter().all(|text| !text.contains(QUERY_KEY)));
    // The checker looks for every key, its digests and the prompt in the log, events, tables and files.
    scene.finish().await;
}

#[tokio::test]
async fn bug_case_18_an_upstream_that_echoes_our_credential_or_the_prompt_is_not_quoted() {
    let scene = talkative_scene().await;
    let echoed = format!("Incorrect API key provided: {PROVIDER_KEY}, see http://upstream.internal/keys");
    let prompt = format!("bad value in '{PROMPT_CANARY}' for {PROVIDER_KEY} at http://upstream.internal");
    let refusal = |code, text: &str| Behaviour::error(code, text).header("x-upstream-key", PROVIDER_KEY);
    let late = json!({"error": {"message": prompt, "type": PROVIDER_KEY}});
    scene.o1.script([
        refusal(401, &echoed),
        refusal(403, &echoed),
        refusal(400, &prompt),
        refusal(500, &echoed),
        Behaviour::error_in_200(json!({"error": {"message": echoed, "code": 401}})),
        Behaviour::chat("one two three").error_after(2, late),
    ]);

    for case in ["401", "403", "400", "500", "an error in a 200"] {
        let answer = scene.client.post_chat(&chat("m")).await;
        assert!(answer.status >= 400, "{case}: {}", answer.text());
        tells_nothing(&answer.text(), case);
        assert!(answer.header("x-upstream-key").is_empty());
    }
    let stream = scene.client.stream_chat(&chat_streamed("m")).await;
    let broken = stream.collect().await;
    assert_eq!(broken.text(), "one two ");
    tells_nothing(&String::from_utf8_lossy(&broken.raw), "an error in a stream");
    assert_nothing_kept(scene).await;
}

#[tokio::test]
async fn bug_case_18_what_a_caller_sends_and_what_fails_inside_is_not_quoted() {
    let scene = talkative_scene().await;
    let malformed = format!("{{\"model\":\"m\",\"key\":\"{CALLER_KEY}\" {PROMPT_CANARY}");
    let no_text = format!("{{\"model\":[\"{PROMPT_CANARY}\"]}}");
    let no_list = format!("{{\"model\":\"m\",\"messages\":\"{PROMPT_CANARY}\"}}");
    let stranger = scene.client.with_key(FALSE_KEY);

    let answers = [
        (
            "a refused connection",
            scene.client.post_chat(&chat("away")).await,
        ),
        ("a false key", stranger.post_chat(&chat("m")).await),
        ("malformed JSON", post(&scene.client, malformed).await),
        ("a model that is no text", post(&scene.client, no_text).await),
        ("messages that are no list", post(&scene.client, no_list).await),
    ];

    for (case, answer) in answers {
        assert!(answer.status >= 400, "{case}: {}", answer.text());
        tells_nothing(&answer.text(), case);
    }
    let key_in_path = format!(
        "POST /{CALLER_KEY} HTTP/1.1\r\nhost: a\r\ncookie: {CALLER_KEY}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let broken = format!("POST /v1/chat/completions HTTP/1.1\r\nauthorization Bearer {CALLER_KEY}\r\n\r\n");
    for (sent, status) in [(key_in_path, 404), (broken, 400)] {
        let answer = raw(scene.client.addr(), sent.as_bytes()).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
        tells_nothing(&answer.text(), "a raw request");
    }
    assert_nothing_kept(scene).await;
}

/// A chat body with these arguments of a call in its history.
fn after_call(arguments: &Value) -> Value {
    let mut body = chat("m");
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}});
    let turns = [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "seen"}),
    ];
    body["messages"].as_array_mut().expect("a list").extend(turns);
    body
}

#[tokio::test]
async fn arguments_of_tools_are_passed_on_and_kept_nowhere() {
    let scene = talkative_scene().await;
    let good = json!({"word": ARGUMENT_CANARY}).to_string();
    let broken = format!("{{\"word\": \"{ARGUMENT_CANARY}");
    let answering = Behaviour::chat("").tool_calls(&[("c1", "look", &good)]);
    scene.o1.default(answering);
    // Good ones, broken ones, and ones that are no object; all surfaces read what is answered.
    for arguments in [
        json!(good),
        json!(broken),
        json!(format!("[\"{ARGUMENT_CANARY}\"]")),
    ] {
        let mut body = after_call(&arguments);
        let plain = scene.client.post_chat(&body).await;
        assert_eq!(plain.told(Surface::Chat).calls[0].arguments, good);
        body["stream"] = json!(true);
        let streamed = scene.client.stream_chat(&body).await.collect().await;
        assert_eq!(streamed.told().calls[0].arguments, good);
    }
    for surface in Surface::RICH {
        let answer = scene.client.post(surface, &surface.ask("m")).await;
        assert_eq!(
            answer.told(surface).calls[0].input(),
            json!({"word": ARGUMENT_CANARY})
        );
    }
    // Where they make a call fail we quote nothing; what an upstream says of a request is for its caller alone.
    let unreadable = Behaviour::chat("").tool_calls(&[("c1", "look", &broken)]);
    for surface in Surface::RICH {
        scene.o1.script([unreadable.clone()]);
        let answer = scene.client.post(surface, &surface.ask("m")).await;
        if answer.status != 200 {
            tells_nothing(&answer.text(), "arguments that cannot be read");
        }
        scene.o1.script([Behaviour::error(
            400,
            &format!("bad arguments: {ARGUMENT_CANARY}"),
        )]);
        let answer = scene.client.post(surface, &surface.ask("m")).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert_nothing_kept(scene).await;
}

async fn post(client: &Client, body: String) -> Answer {
    let posted = client.post_inference("/v1/chat/completions", body).await;
    posted.expect("an answer")
}
