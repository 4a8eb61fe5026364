//! Who may leave the choice, and who is chosen.

use bytes::Bytes;
use harness::{Behaviour, CALLER_KEY, Model, NodeBuilder, OTHER_KEY, Scene, Surface, Upstream, chat};
use serde_json::{Value, json};

use super::{choice_of, done, each, minted, operator, routed, say, scene, scene_with, set, until};
use crate::rows::{assert_row, endpoint};

#[tokio::test]
async fn off_it_is_the_name_of_nothing_and_on_the_bill_is_that_of_the_model_that_was_chosen() {
    let scene = scene().await;
    let first = Behaviour::chat("from the cheap one").usage(1_000, 100);
    scene.o1.default(first);
    let off = scene.client.post_chat(&chat("auto")).await;
    let nothing = scene.client.post_chat(&chat("nothing")).await;
    assert_eq!((off.status, off.error_code().as_str()), (404, "model_not_found"));
    let masked = |answer: &harness::Answer| answer.text().replace(answer.request_id(), "ID");
    assert_eq!(masked(&off), masked(&nothing));

    set(&scene, true, "cost").await;
    let answer = until(&scene.client, |answer| answer.status == 200).await.0;
    assert_eq!(
        (routed(&answer), answer.content().as_str()),
        ("cheap", "from the cheap one")
    );
    assert_eq!(answer.header("x-routing-purpose-fallback"), "unlabeled");
    assert_eq!(answer.json()["model"], "cheap");
    let row = scene.row(answer.request_id()).await;
    // 1,000 tokens at a dollar and 100 at two dollars a million.
    let expected = json!({
        "model": "auto", "served_model": "cheap", "endpoint_id": endpoint("cheap", &scene.o1),
        "cost_nano_usd": 1_200_000, "outcome": "ok",
    });
    assert_row(&row, &expected);
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        (&choice["strategy"], &choice["purpose"], &choice["model"]),
        (&json!("cost"), &json!("chat"), &json!("cheap"))
    );
    assert_eq!(
        each(&choice["candidates"], "model"),
        [json!("cheap"), json!("dear")]
    );
    assert_eq!(choice["candidates"][0]["scores"]["score_micro"], 1_000_000);
    let told = &choice["candidates"][1]["scores"];
    assert!(
        told["cost_nano_usd"].as_u64() > choice["candidates"][0]["scores"]["cost_nano_usd"].as_u64(),
        "{choice}"
    );
    rows_are_found_by_the_model_that_answered(&scene, &answer).await;
    let counted = scene.metric("waybill_auto_routing_total{outcome=\"first\",strategy=\"cost\"}");
    assert!(counted.await >= 1.0);
    scene.finish().await;
}

async fn rows_are_found_by_the_model_that_answered(scene: &Scene, answer: &harness::Answer) {
    let read = async |path: &str| {
        let read = scene.client.get(path).await;
        assert_eq!(read.status, 200, "{path}: {}", read.text());
        read.json()
    };
    let listed = read("/api/v1/logs?served_model=cheap").await;
    assert!(
        each(&listed["data"], "request_id").contains(&json!(answer.request_id())),
        "{listed}"
    );
    assert_eq!(read("/api/v1/logs?served_model=dear").await["data"], json!([]));
    let sums = read("/api/v1/usage?model=auto&group_by=served_model&interval=day").await;
    let of_cheap = sums["data"].as_array().into_iter().flatten();
    let of_cheap: Vec<_> = of_cheap.filter(|sum| sum["served_model"] == "cheap").collect();
    assert_eq!(
        (of_cheap.len(), &of_cheap[0]["ok"], &of_cheap[0]["cost_nano_usd"]),
        (1, &json!(1), &json!(1_200_000)),
        "{sums}"
    );
    assert_eq!(read("/api/v1/usage?served_model=dear").await["data"], json!([]));
}

#[tokio::test]
async fn the_policies_choose_and_where_they_leave_nobody_that_is_said() {
    let scene = scene().await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("hi").usage(1_000, 100));
    }
    say(&scene, "cheap", json!({"quality_weight": 0.2})).await;
    set(&scene, true, "quality").await;
    let answer = until(&scene.client, |answer| routed(answer) == "dear").await.0;
    assert_row(
        &scene.row(answer.request_id()).await,
        &json!({"model": "auto", "cost_nano_usd": 12_000_000, "endpoint_id": endpoint("dear", &scene.o2)}),
    );
    say(&scene, "dear", json!({"routing_enabled": false})).await;
    let answer = until(&scene.client, |answer| routed(answer) == "cheap").await.0;
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        choice["excluded"],
        json!([{"model": "dear", "reason": "routing_disabled"}])
    );
    say(&scene, "cheap", json!({"routing_enabled": false})).await;
    let (answer, _) = until(&scene.client, |answer| answer.status != 200).await;
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (503, "no_auto_candidates")
    );
    assert_ne!(answer.header("retry-after"), "");
    let row = scene.row(answer.request_id()).await;
    assert_row(
        &row,
        &json!({"model": "auto", "outcome": "rejected", "cost_nano_usd": 0}),
    );
    let choice = choice_of(&scene, &answer).await;
    assert_eq!(
        each(&choice["excluded"], "model"),
        [json!("dear"), json!("cheap")]
    );
    scene.finish().await;
}

#[tokio::test]
async fn what_a_key_says_counts_before_what_holds_for_all() {
    let scene = scene().await;
    scene.o1.default(Behaviour::chat("hi"));
    scene.o2.default(Behaviour::chat("hi"));
    say(&scene, "cheap", json!({"quality_weight": 0.2})).await;
    let (id, client) = minted(&scene, json!({})).await;
    let own = format!("/api/v1/tenant/api-keys/{id}/routing-policy");
    let policy = |body: Value| done_at(&scene, own.clone(), body);

    policy(json!({"auto_routing_enabled": true, "strategy": "quality"})).await;
    assert_eq!(
        routed(&until(&client, |answer| answer.status == 200).await.0),
        "dear"
    );
    let other = scene.client.post_chat(&chat("auto")).await;
    assert_eq!(other.status, 404, "for all it is off");
    let listed = |key: &str| {
        let client = scene.client.with_key(key);
        async move { each(&client.get("/v1/models").await.json()["data"], "id") }
    };
    assert_eq!(listed(CALLER_KEY).await, [json!("dear"), json!("cheap")]);

    set(&scene, true, "cost").await;
    until(&scene.client, |answer| routed(answer) == "cheap").await;
    assert_eq!(routed(&client.post_chat(&chat("auto")).await), "dear");
    policy(json!({"strategy": null})).await;
    until(&client, |answer| routed(answer) == "cheap").await;
    policy(json!({"auto_routing_enabled": false})).await;
    until(&client, |answer| answer.status == 404).await;
    let list = client.get("/v1/models").await.json();
    assert_eq!(each(&list["data"], "id"), [json!("dear"), json!("cheap")]);

    let list = scene.client.get("/v1/models").await.json();
    let first = json!({"id": "auto", "object": "model", "created": 0, "owned_by": "waybill-router"});
    assert_eq!(list["data"][0], first);
    assert_eq!(scene.client.get("/v1/models/auto").await.json(), first);
    assert_eq!(client.get("/v1/models/auto").await.status, 404);
    let anthropic = scene.client.with_header("anthropic-version", "2023-06-01");
    let page = anthropic.get("/v1/models?limit=2").await.json();
    assert_eq!(each(&page["data"], "id"), [json!("auto"), json!("dear")]);
    assert_eq!(page["has_more"], true);
    let body = json!({"model": "auto", "messages": [{"role": "user", "content": "hi"}]});
    let counted = |client: &harness::Client| {
        let client = client.clone();
        let body = Bytes::from(body.to_string());
        async move {
            client
                .call("POST", "/v1/messages/count_tokens", body)
                .await
                .expect("an answer")
                .status
        }
    };
    assert_eq!((counted(&scene.client).await, counted(&client).await), (200, 404));
    scene.finish().await;
}

async fn done_at(scene: &harness::Scene, path: String, body: Value) {
    done(&operator(scene), "PUT", &path, body).await;
}

#[tokio::test]
async fn only_models_are_chosen_that_the_caller_may_use_and_that_can_take_the_call() {
    let scene = scene_with(
        |o1, _| {
            vec![
                Model::new("staff").set("required_role", "internal").leg(o1, 0),
                Model::new("of-zenith")
                    .set("tenants", json!(["zenith"]))
                    .leg(o1, 0),
                Model::new("toolless").set("supports_tools", false).leg(o1, 0),
                Model::new("short")
                    .set("context_length", 64)
                    .set("max_output_length", 32)
                    .leg(o1, 0),
                Model::new("sees")
                    .set("input_modalities", json!(["text", "image"]))
                    .leg(o1, 0),
            ]
        },
        |node| node,
    )
    .await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("hi"));
    }
    set(&scene, true, "balanced").await;
    let mut asks = chat("auto");
    asks["tools"] =
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    asks["max_tokens"] = json!(1_000);
    asks["messages"][0]["content"] = json!([
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]);

    let answer = scene.client.post_chat(&asks).await;

    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "sees"),
        "{}",
        answer.text()
    );
    let choice = choice_of(&scene, &answer).await;
    let excluded = |name: &str| {
        let list = choice["excluded"].as_array().expect("a list").clone();
        list.into_iter()
            .find(|left| left["model"] == name)
            .map(|left| left["reason"].clone())
    };
    assert_eq!(excluded("toolless"), Some(json!("tools")));
    assert_eq!(excluded("dear"), Some(json!("modality")));
    assert_eq!(
        excluded("short"),
        Some(json!("modality")),
        "the first reason is told"
    );
    assert!(
        !choice.to_string().contains("staff") && !choice.to_string().contains("of-zenith"),
        "what he may not see is not told to him: {choice}"
    );
    let mut long = chat("auto");
    long["max_tokens"] = json!(1_000);
    let choice = choice_of(&scene, &scene.client.post_chat(&long).await).await;
    assert_eq!(
        choice["excluded"],
        json!([{"model": "short", "reason": "context_length"}])
    );

    scene.finish().await;
}

#[tokio::test]
async fn a_tenant_and_a_key_are_confined_to_their_models() {
    let of_zenith = |o1: &Upstream, _: &Upstream| {
        vec![
            Model::new("of-zenith")
                .set("tenants", json!(["zenith"]))
                .leg(o1, 0),
        ]
    };
    let scene = scene_with(of_zenith, |node| node).await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("hi"));
    }
    set(&scene, true, "balanced").await;
    let zenith = scene.client.with_key(OTHER_KEY);
    say(&scene, "of-zenith", json!({"purpose": "chat"})).await;
    let answer = until(&zenith, |answer| routed(answer) == "of-zenith").await.0;
    assert_eq!(answer.header("x-routing-purpose-fallback"), "", "it is labeled");
    assert_ne!(routed(&scene.client.post_chat(&chat("auto")).await), "of-zenith");
    let (_, narrow) = minted(&scene, json!({"models": ["dear"]})).await;
    assert_eq!(
        routed(&until(&narrow, |answer| answer.status == 200).await.0),
        "dear"
    );
    scene.finish().await;
}

#[tokio::test]
async fn every_surface_has_it_each_for_its_purpose() {
    let scene = of_chat_and_vectors().await;
    for surface in [Surface::Chat, Surface::Responses, Surface::Messages] {
        let answer = scene.client.post(surface, &surface.ask("auto")).await;
        assert_eq!(
            (answer.status, routed(&answer)),
            (200, "cheap"),
            "{}",
            answer.text()
        );
        let transcript = scene
            .client
            .stream(surface, &surface.ask_streamed("auto"))
            .await
            .collect()
            .await;
        assert_eq!(transcript.whole(), "hi");
        let row = scene.row(transcript.request_id()).await;
        assert_row(
            &row,
            &json!({"model": "auto", "endpoint_id": endpoint("cheap", &scene.o1)}),
        );
    }
    let completions = scene
        .client
        .post(Surface::Completions, &Surface::Completions.ask("auto"))
        .await;
    assert_eq!(
        (completions.status, completions.error_code().as_str()),
        (503, "no_auto_candidates_for_purpose")
    );
    say(&scene, "dear", json!({"purpose": "completion"})).await;
    let path = Surface::Completions;
    let answer = scene.client.post(path, &path.ask("auto")).await;
    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "dear"),
        "{}",
        answer.text()
    );
    scene.finish().await;
}

/// A scene whose chat models are known to be such, and a model that embeds, of which nothing is said.
async fn of_chat_and_vectors() -> Scene {
    let scene = scene_with(
        |o1, _| vec![Model::new("vectors").set("model_type", "embedding").leg(o1, 0)],
        |node| node,
    )
    .await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::chat("hi"));
    }
    set(&scene, true, "cost").await;
    for model in ["cheap", "dear"] {
        say(&scene, model, json!({"purpose": "chat"})).await;
    }
    scene
}

#[tokio::test]
async fn embeddings_go_to_no_model_of_another_purpose() {
    let scene = of_chat_and_vectors().await;
    let body = json!({"model": "auto", "input": "hi"});
    let embed = || async {
        let answer = scene
            .client
            .post_inference("/v1/embeddings", body.to_string())
            .await;
        answer.expect("a whole answer")
    };
    let answer = embed().await;
    assert_eq!(
        (answer.status, routed(&answer)),
        (200, "vectors"),
        "{}",
        answer.text()
    );
    assert_eq!(answer.header("x-routing-purpose-fallback"), "unlabeled");
    say(&scene, "vectors", json!({"routing_enabled": false})).await;
    let answer = embed().await;
    assert_eq!(
        (answer.status, answer.error_code().as_str()),
        (503, "no_auto_candidates_for_purpose"),
        "{}",
        answer.text()
    );
    scene.finish().await;
}

#[tokio::test]
async fn a_model_that_is_really_called_so_is_meant() {
    let scene = scene_with(|_, o2| vec![Model::new("auto").leg(o2, 0)], |node| node).await;
    scene.o2.default(Behaviour::chat("from the one called so"));
    set(&scene, true, "cost").await;

    let answer = scene.client.post_chat(&chat("auto")).await;

    assert_eq!(
        (routed(&answer), answer.content().as_str()),
        ("", "from the one called so")
    );
    let list = scene.client.get("/v1/models").await.json();
    assert_eq!(
        each(&list["data"], "id"),
        [json!("dear"), json!("cheap"), json!("auto")]
    );
    assert_eq!(list["data"][2]["owned_by"], "waybill");
    scene.finish().await;
}

#[tokio::test]
async fn an_operators_prompt_goes_to_no_server_of_a_tenant_whatever_counts_and_whoever_fails() {
    let on_this_machine = |node: NodeBuilder| node.setting("egress", json!({"allow": ["127.0.0.0/8"]}));
    let mut scene = scene_with(|_, _| Vec::new(), on_this_machine).await;
    let own = Upstream::start();
    own.default(Behaviour::chat("from the tenant's"));
    for (upstream, text) in [(&scene.o1, "cheap"), (&scene.o2, "dear")] {
        upstream.default(Behaviour::chat(text));
    }
    let made = json!({"name": "of-acme", "tenant": "acme", "backends": [{"url": own.url()}]});
    done(&operator(&scene), "POST", "/api/v1/endpoints", made).await;
    let price =
        json!({"model": "of-acme", "tenant": "acme", "pricing": {"prompt": "0.01", "completion": "0.01"}});
    done(&operator(&scene), "POST", "/api/v1/prices", price).await;
    scene.price("of-acme", None);
    for model in ["cheap", "dear"] {
        say(&scene, model, json!({"quality_weight": 0.1})).await;
    }
    let operator = operator(&scene);

    for (strategy, chosen) in [
        ("quality", ["cheap", "dear"]),
        ("balanced", ["cheap", "dear"]),
        ("cost", ["cheap"; 2]),
    ] {
        set(&scene, true, strategy).await;
        // It is the best of all there is, for those who may choose it.
        until(&scene.client, |answer| routed(answer) == "of-acme").await;
        let before = own.calls();
        for _ in 0..10 {
            let answer = operator.post_chat(&chat("auto")).await;
            assert!(
                chosen.contains(&routed(&answer)),
                "{strategy}: {} {}",
                routed(&answer),
                answer.text()
            );
        }
        assert_eq!(own.calls(), before, "{strategy}");
    }
    for upstream in [&scene.o1, &scene.o2] {
        upstream.default(Behaviour::error(500, "boom"));
    }
    let before = own.calls();
    let failed = operator.post_chat(&chat("auto")).await;
    assert_eq!(
        (failed.status, failed.error_code().as_str()),
        (502, "auto_routing_all_failed"),
        "{}",
        failed.text()
    );
    assert_eq!(own.calls(), before, "nobody else was left");
    let of_acme = scene.client.post_chat(&chat("auto")).await;
    assert_eq!(
        (of_acme.status, routed(&of_acme)),
        (200, "of-acme"),
        "{}",
        of_acme.text()
    );
    // Whoever names it means it.
    assert_eq!(
        operator.post_chat(&chat("of-acme")).await.content(),
        "from the tenant's"
    );
    scene.finish().await;
}
