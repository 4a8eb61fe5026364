//! Who stays: sessions at every level on every surface, callers, and nobody else's.

use harness::{CALLER_KEY, Client, OTHER_KEY, PROMPT_CANARY, Scene, Surface, Upstream};
use serde_json::{Value, json};

use super::{alike, body, scene, scene_with, verdict};

/// How one session is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Header,
    /// What Claude Code sends.
    ClaudeCode,
    /// The same behind a proxy that drops headers.
    UserId,
    /// What Codex sends.
    Codex,
    /// What opencode sends.
    Opencode,
    CacheKey,
    User,
    /// What callers of Messages name their customers by.
    Customer,
    /// By what was said.
    Beginning,
}

impl By {
    const fn level(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::ClaudeCode | Self::UserId | Self::Codex | Self::Opencode => "hint",
            Self::CacheKey => "cache_key",
            Self::User | Self::Customer => "user",
            Self::Beginning => "l2",
        }
    }

    /// The ways that a surface has.
    fn of(surface: Surface) -> Vec<Self> {
        let mut ways = vec![Self::Header, Self::ClaudeCode, Self::Codex, Self::Opencode];
        ways.extend_from_slice(match surface {
            Surface::Chat | Surface::Responses => &[Self::CacheKey, Self::User, Self::Beginning],
            Surface::Messages => &[Self::UserId, Self::Customer, Self::Beginning],
            Surface::Completions => &[Self::CacheKey, Self::User],
        });
        ways
    }

    fn client(self, client: &Client, session: &str) -> Client {
        match self {
            Self::Header => client.with_header("X-Session-Id", session),
            Self::ClaudeCode => client.with_header("X-Claude-Code-Session-Id", session),
            Self::Codex => client.with_header("session-id", session),
            Self::Opencode => client.with_header("x-opencode-session", session),
            Self::UserId | Self::CacheKey | Self::User | Self::Customer | Self::Beginning => client.clone(),
        }
    }

    fn bend(self, body: &mut Value, session: &str) {
        match self {
            Self::UserId => {
                let user = json!({"device_id": "d", "account_uuid": "", "session_id": session});
                body["metadata"] = json!({"user_id": user.to_string()});
            }
            Self::Customer => body["metadata"] = json!({"user_id": session}),
            Self::CacheKey => body["prompt_cache_key"] = json!(session),
            Self::User => body["user"] = json!(session),
            Self::Header | Self::ClaudeCode | Self::Codex | Self::Opencode | Self::Beginning => {}
        }
    }
}

/// Ten turns of a conversation; gives the verdict about each and the id of the last.
async fn converse(scene: &Scene, surface: Surface, by: By) -> (Vec<String>, String) {
    let session = format!("{surface:?}-{by:?}").to_lowercase();
    let client = by.client(&scene.client, &session);
    let mut said = vec![format!("{session} begins, {PROMPT_CANARY}")];
    let (mut verdicts, mut last) = (Vec::new(), String::new());
    for turn in 0..10 {
        if by != By::Beginning {
            // Only the name is the same from turn to turn.
            said = vec![format!("{session} says {turn}, {PROMPT_CANARY}")];
        }
        let mut body = body(surface, &said);
        by.bend(&mut body, &session);
        if turn % 2 == 1 {
            body["stream"] = json!(true);
            let stream = client.stream(surface, &body).await;
            assert_eq!(stream.status, 200);
            verdicts.push(stream.header("x-session-affinity").to_owned());
            stream.request_id().clone_into(&mut last);
            said.push(stream.collect().await.whole());
        } else {
            let answer = client.post(surface, &body).await;
            verdicts.push(verdict(&answer));
            answer.request_id().clone_into(&mut last);
            said.push(answer.told(surface).text);
        }
        said.push(format!("and then {turn}"));
    }
    (verdicts, last)
}

/// Ten turns at every level on every surface, each on one backend.
pub(super) async fn ten_turns_stay(scene: &Scene) {
    let mut turns = 0.0;
    for surface in Surface::ALL {
        for by in By::of(surface) {
            let before = [scene.o1.calls(), scene.o2.calls()];

            let (verdicts, last) = converse(scene, surface, by).await;
            turns += 10.0;

            let calls = [scene.o1.calls() - before[0], scene.o2.calls() - before[1]];
            assert!(
                calls == [10, 0] || calls == [0, 10],
                "{surface:?} {by:?}: {calls:?}"
            );
            let hit = format!("hit:{}", by.level());
            let mut expected = vec![hit.clone(); 10];
            "miss".clone_into(&mut expected[0]);
            if by == By::Beginning {
                // The model has not said anything when the second turn is told from others.
                "hit:l1".clone_into(&mut expected[1]);
            }
            assert_eq!(verdicts, expected, "{surface:?} {by:?}");
            assert_eq!(scene.row(&last).await["affinity"], hit, "{surface:?} {by:?}");
        }
    }
    let counted = scene.metric("waybill_session_affinity_total").await;
    assert!((counted - turns).abs() < 0.5, "{counted}, not {turns}");
}

#[tokio::test]
async fn ten_turns_stay_on_one_backend_at_every_level_and_on_every_surface() {
    let scene = scene().await;
    ten_turns_stay(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn callers_stay_on_every_surface_that_generates() {
    let scene = scene_with(alike, |node| node).await;
    for surface in Surface::ALL {
        for turn in 0..4 {
            let mut body = surface.ask("m");
            body["stream"] = json!(turn % 2 == 1);
            let answer = scene
                .client
                .post_inference(surface.path(), body.to_string())
                .await;
            let answer = answer.expect("an answer");
            let first = surface == Surface::ALL[0] && turn == 0;
            let expected = if first { "miss" } else { "hit:caller" };
            assert_eq!(verdict(&answer), expected, "{surface:?}");
        }
    }
    assert_eq!(scene.o1.calls().min(scene.o2.calls()), 0);
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_is_told_a_token_that_names_the_session_from_then_on() {
    let scene = scene().await;
    let begin = body(Surface::Chat, &["a conversation without a name".to_owned()]);

    let first = scene.client.post_chat(&begin).await;
    let token = first.header("x-session-id").to_owned();
    assert!(token.starts_with("wbs_"), "{token}");
    let named = scene.client.with_header("x-session-id", &token);
    let other = body(Surface::Chat, &["something else".to_owned()]);
    let second = named.post_chat(&other).await;
    let own = scene
        .client
        .with_header("x-session-id", " conv-7 ")
        .post_chat(&other)
        .await;

    assert_eq!(
        (verdict(&first), verdict(&second)),
        ("miss".into(), "hit:header".into())
    );
    assert_eq!(second.header("x-session-id"), token);
    assert_eq!(scene.row(first.request_id()).await["session_id"], token);
    assert_eq!(own.header("x-session-id"), "conv-7");
    assert_eq!(scene.row(own.request_id()).await["session_id"], "conv-7");
    scene.finish().await;
}

#[tokio::test]
async fn what_a_program_says_of_its_session_is_in_the_books_whether_sessions_stay_or_not() {
    let scene = Scene::start().await;
    let codex = scene.client.with_header("session-id", "0199-thread");

    let answer = codex.post_chat(&harness::chat("m")).await;

    assert_eq!(answer.header("x-session-affinity"), "");
    let row = scene.row(answer.request_id()).await;
    assert_eq!(row["session_id"], "0199-thread");
    assert_eq!(row["affinity"], Value::Null);
    scene.finish().await;
}

#[tokio::test]
async fn another_tenant_has_a_session_of_its_own_under_the_same_name() {
    let scene = scene().await;
    let ours = scene.client.with_header("x-session-id", "conv-1");
    let theirs = ours.with_key(OTHER_KEY);
    let body = body(Surface::Chat, &["the same words".to_owned()]);

    for round in 0..4 {
        let (one, other) = (ours.post_chat(&body).await, theirs.post_chat(&body).await);

        let expected = if round == 0 { "miss" } else { "hit:header" };
        assert_eq!([verdict(&one), verdict(&other)], [expected, expected]);
    }
    // Without a name as well: what they both say begins alike.
    let ours = scene.client.clone();
    let theirs = ours.with_key(OTHER_KEY);
    assert_eq!(verdict(&ours.post_chat(&body).await), "miss");
    assert_eq!(verdict(&theirs.post_chat(&body).await), "miss");
    // A token leads nobody but its own tenant anywhere.
    let own = super::body(Surface::Chat, &["words of their own".to_owned()]);
    let first = theirs.post_chat(&own).await;
    let token = first.header("x-session-id").to_owned();
    let stolen = ours.with_header("x-session-id", &token);
    let fresh = super::body(Surface::Chat, &["words of our own".to_owned()]);
    assert_eq!(verdict(&stolen.post_chat(&fresh).await), "miss");
    scene.finish().await;
}

#[tokio::test]
async fn callers_stay_where_a_file_gives_a_choice_and_are_spread_among_each_other() {
    let name = |number: usize| format!("sk-harness-canary-many-callers-{number:02}");
    let mut settings = harness::settings();
    for number in 0..24 {
        let key =
            json!({"name": format!("many-{number}"), "tenant": "acme", "key": name(number), "role": "free"});
        settings["keys"].as_array_mut().expect("a list").push(key);
    }
    let scene = scene_with(alike, |node| node.waybill_yaml(&settings.to_string())).await;

    for turn in 0..4 {
        let answer = scene.client.post_chat(&harness::chat("m")).await;
        let expected = if turn == 0 { "miss" } else { "hit:caller" };
        assert_eq!(verdict(&answer), expected);
        assert_eq!(answer.header("x-session-id"), "");
    }
    assert_eq!(scene.o1.calls().min(scene.o2.calls()), 0);
    for number in 0..24 {
        let other = scene.client.with_key(&name(number));
        assert_eq!(verdict(&other.post_chat(&harness::chat("m")).await), "miss");
    }
    assert!(scene.o1.calls().min(scene.o2.calls()) > 0);
    scene.finish().await;
}

#[tokio::test]
async fn callers_go_where_the_weights_say_when_they_are_not_to_stay() {
    let scene = scene_with(alike, |node| node.env("ROUTING_AFFINITY_ENABLED", "0")).await;

    for _ in 0..24 {
        let answer = scene.client.post_chat(&harness::chat("m")).await;
        assert_eq!(verdict(&answer), "");
    }

    assert!(scene.o1.calls().min(scene.o2.calls()) > 0);
    scene.finish().await;
}

#[tokio::test]
async fn replicas_of_one_endpoint_keep_sessions_and_so_do_all_models_of_it() {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = |id: &str| {
        harness::Model::new(id)
            .leg(&o1, 0)
            .set_leg("base_url", Value::Null)
            .set_leg("backends", json!([o1.url(), o2.url()]))
            .set_leg("endpoint", "engines")
            .set_leg("session_affinity", true)
    };
    let models = [model("m"), model("n").set("provider_model_id", "m")];
    let patient = |node: harness::NodeBuilder| node.models(&models).env("ROUTING_AFFINITY_WAIT_MS", "5000");
    let mut scene = Scene::start_on(o1, o2, patient).await;
    scene.price("n", Some(harness::PRICE));
    let client = scene.client.with_header("x-session-id", "conv-1");
    let ask = |model: &str| {
        let mut body = body(Surface::Chat, &["hi".to_owned()]);
        body["model"] = json!(model);
        body
    };

    assert_eq!(verdict(&client.post_chat(&ask("m")).await), "miss");
    for turn in 0..8 {
        let model = if turn % 2 == 0 { "n" } else { "m" };
        assert_eq!(verdict(&client.post_chat(&ask(model)).await), "hit:header");
    }

    assert_eq!(scene.o1.calls().min(scene.o2.calls()), 0);
    scene.finish().await;
}

#[tokio::test]
async fn sessions_are_found_again_after_every_gateway_was_killed() {
    let mut scene = scene().await;
    let named = |scene: &Scene| {
        scene
            .node
            .client(CALLER_KEY)
            .over(&[scene.node.addr()])
            .with_header("x-session-id", "conv-1")
    };
    scene.foreign_calls();
    let body = body(Surface::Chat, &["hi".to_owned()]);
    let before = named(&scene).post_chat(&body).await;
    assert_eq!(verdict(&before), "miss");
    let served = scene.row(before.request_id()).await["backend"].clone();

    scene.kill_and_restart().await;

    let after = named(&scene).post_chat(&body).await;
    assert_eq!(verdict(&after), "hit:header");
    assert_eq!(scene.row(after.request_id()).await["backend"], served);
    scene.finish().await;
}

#[tokio::test]
async fn a_models_file_says_where_sessions_stay_and_nothing_warns_of_it() {
    let scene = scene().await;

    let said = scene.logs();

    assert!(!said.contains("session_affinity"), "{said}");
    scene.finish().await;
}
