//! The examples of `deploy/config`: HybridInference's registry, and a set-up as `HeteroFlow`'s: two replicas, a canary
//! of one in five, and what is fallen back to by priority.

use super::*;

/// Calls whose shares are judged.
const CALLS: usize = 1_000;
/// The 99.9 % quantile of chi-square with one degree of freedom: one run in a thousand may exceed it.
const CHI_SQUARE_MAX: f64 = 10.83;

fn example(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/config");
    std::fs::read_to_string(root.join(name)).expect("an example")
}

#[expect(clippy::cast_precision_loss, reason = "counts of a thousand")]
fn chi_square(found: [usize; 2], expected: [f64; 2]) -> f64 {
    let terms = found.iter().zip(expected);
    terms
        .map(|(found, expected)| (*found as f64 - expected).powi(2) / expected)
        .sum()
}

#[tokio::test]
async fn the_canary_gets_its_share_and_the_lower_priority_what_is_left_over() {
    let [stable, replica, canary, fallback] = std::array::from_fn(|_| Upstream::start());
    let text = example("models.canary.yaml");
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let mut scene = Scene::start_on(o1, o2, |node| {
        let node = node.models_yaml(&text).setting("attempts_max", 4);
        node.env("STABLE_1_URL", &stable.url())
            .env("STABLE_2_URL", &replica.url())
            .env("CANARY_URL", &canary.url())
            .env("FALLBACK_URL", &fallback.url())
            .env("CIRCUIT_COOLDOWN_SECONDS", "600")
            .env("ROUTING_AFFINITY_ENABLED", "0")
    })
    .await;
    scene.price("llama-3", None);
    scene.upstream_faults_allowed();
    // The shares are those of the fleet, whichever node is called.
    for _ in 0..CALLS {
        let answer = scene.client.post_chat(&chat("llama-3")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    let of_stable = [stable.calls(), replica.calls()];
    let shares = [of_stable[0] + of_stable[1], canary.calls()];
    assert_eq!((shares[0] + shares[1], fallback.calls()), (CALLS, 0));
    assert!(chi_square(shares, [800.0, 200.0]) < CHI_SQUARE_MAX, "{shares:?}");
    assert!(
        of_stable.iter().all(|calls| *calls > 0),
        "both replicas serve: {of_stable:?}"
    );

    scene.pin();
    for upstream in [&stable, &replica, &canary] {
        upstream.default(Behaviour::error(500, "down"));
    }
    for _ in 0..20 {
        let answer = scene.client.post_chat(&chat("llama-3")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(fallback.calls(), 20);
    scene.finish().await;
}

#[tokio::test]
async fn the_registry_of_a_hybrid_deployment_serves_locally_first_and_what_has_its_variables() {
    let (local, hosted) = (Upstream::start(), Upstream::start());
    let text = example("models.hybrid.yaml");
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let mut scene = Scene::start_on(o1, o2, |node| {
        node.models_yaml(&text)
            .env("LOCAL_BASE_URL", &local.url())
            .env("OPENROUTER_BASE_URL", &hosted.url())
            .env("OPENROUTER_API_KEY", "sk-harness-canary-provider-1b94c8")
    })
    .await;
    scene.pin();
    for model in ["llama-3.3-70b", "local-8b", "qwen3-coder"] {
        scene.price(model, None);
        let answer = scene.client.post_chat(&chat(model)).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    }
    scene.upstream_faults_allowed();
    let before = hosted.calls();
    for _ in 0..20 {
        assert_eq!(scene.client.post_chat(&chat("local-8b")).await.status, 200);
    }
    assert!(hosted.calls() - before <= 5, "one in a hundred goes there");
    local.default(Behaviour::error(500, "down"));
    for _ in 0..5 {
        assert_eq!(scene.client.post_chat(&chat("local-8b")).await.status, 200);
    }
    assert!(hosted.calls() > before);
    scene.finish().await;
}
