//! Tests of what calls need of their limits.

use dialects::skim::{Limits, skim};
use schemas::catalog::Route;
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::id::TenantId;
use schemas::limit::limits::LimitKey;
use schemas::money::Price;

use super::*;
use crate::gate::tests::{caller, model as any_model};
use crate::settle::tests::route;

fn priced(input: i64, output: i64) -> Route {
    route(Some(Price {
        input,
        output,
        ..Price::default()
    }))
}

fn model() -> Model {
    any_model(|model| {
        model.context_length = 8_192;
        model.max_output_length = 4_096;
        // Two dollars and eight per million tokens; four and one.
        model.routes = vec![
            priced(2_000_000_000, 8_000_000_000),
            priced(4_000_000_000, 1_000_000_000),
        ];
    })
}

fn used(surface: Surface, body: &str) -> (Most, u64) {
    let skimmed = skim(surface, body.as_bytes(), &Limits::default()).expect("a body");
    let most = most(&model(), surface, &skimmed, body.as_bytes());
    (most, skimmed.prompt_tokens_estimate)
}

#[test]
fn a_call_may_use_its_prompt_and_as_many_answers_as_it_asks_for() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello there"}],"max_tokens":100,"n":3}"#;

    let (most, prompt) = used(Surface::Chat, body);

    assert_eq!(most.output_tokens, 300);
    assert_eq!(most.tokens, prompt + 300);
    assert_eq!(most.nano_usd, prompt * 2_000 + 300 * 8_000);
}

#[test]
fn what_single_servers_take_in_the_place_of_maximum_and_choices_counts_where_it_is_more() {
    let chat = |members: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}]{members}}}"#);
        used(Surface::Chat, &body).0.output_tokens
    };
    let completions = |members: &str| {
        let body = format!(r#"{{"model":"m","prompt":["a","b"]{members}}}"#);
        used(Surface::Completions, &body).0.output_tokens
    };

    assert_eq!(chat(r#","max_tokens":1,"n_predict":900"#), 900);
    assert_eq!(chat(r#","n\u005fpredict":900.5,"max_tokens":1"#), 901);
    assert_eq!(chat(r#","max_tokens":100,"n_predict":9"#), 100);
    assert_eq!(chat(r#","max_tokens":100,"n_predict":null"#), 100);
    // A server that knows the name alone would be held by it, another one by its model.
    assert_eq!(chat(r#","n_predict":1"#), 4_096);
    for endless in ["-1", "1e30", r#""900""#] {
        assert_eq!(chat(&format!(r#","max_tokens":1,"n_predict":{endless}"#)), 8_192);
    }
    assert_eq!(chat(r#","max_tokens":10,"n":2,"n_cmpl":5"#), 50);
    assert_eq!(completions(r#","max_tokens":10,"n_predict":900"#), 1_800);
    assert_eq!(completions(r#","max_tokens":10,"best_of":20"#), 400);
    assert_eq!(completions(r#","max_tokens":10,"best_of":20,"n":5"#), 400);
    assert_eq!(completions(r#","max_tokens":10,"best_of":2,"n":5"#), 100);
    assert_eq!(completions(r#","max_tokens":10,"best_of":null,"n_cmpl":3"#), 60);
}

#[test]
fn a_maximum_of_none_is_reserved_as_no_maximum_is() {
    for members in ["", r#","echo":true,"logprobs":1"#] {
        let body = format!(r#"{{"model":"m","prompt":"x","max_tokens":0{members}}}"#);
        assert_eq!(
            used(Surface::Completions, &body).0.output_tokens,
            4_096,
            "{members}"
        );
    }
}

#[test]
fn prompts_that_are_no_text_are_answered_as_well_and_may_be_as_long_as_their_model_has_room_for() {
    let body = r#"{"model":"m","prompt":["a","b"],"prompt_embeds":["YQ==","YQ=="],"max_tokens":5,"n":2.0}"#;

    let (most, prompt) = used(Surface::Completions, body);

    assert_eq!(most.output_tokens, 40);
    assert_eq!(most.tokens, prompt + 2 * 8_192 + 40);
}

#[test]
fn an_answer_is_held_to_its_maximum_and_to_what_it_repeats() {
    let bounds = [Bound {
        key: LimitKey::DailyUsd,
        scope: Scope::Key,
        model: None,
        limit: 1,
        name: "acme.k.x".into(),
    }];
    let held = |members: &str| {
        let body = format!(r#"{{"model":"m","prompt":"x","n":2{members}}}"#);
        let skimmed = skim(Surface::Completions, body.as_bytes(), &Limits::default()).expect("a body");
        let held = held_of_answers(&bounds, &skimmed, body.as_bytes(), 10);
        held.map(|held| (held, u64::try_from(body.len()).expect("small")))
    };

    for members in [
        "",
        r#","echo":false"#,
        r#","echo" : null"#,
        r#","x":{"echo":true}"#,
        r#","user":"\"echo\"""#,
    ] {
        assert_eq!(held(members).map(|held| held.0), Some(10), "{members}");
    }
    for members in [r#","echo":true"#, r#","\u0065cho":true"#, r#","echo":"yes""#] {
        let (held, bytes) = held(members).expect("held");
        assert_eq!(held, 10 + 2 * bytes, "{members}");
    }
    let body = br#"{"model":"m","prompt":"x"}"#;
    let skimmed = skim(Surface::Completions, body, &Limits::default()).expect("a body");
    assert_eq!(held_of_answers(&[], &skimmed, body, 10), None);
}

#[test]
fn a_call_that_names_no_maximum_may_use_the_models() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#;

    assert_eq!(used(Surface::Chat, body).0.output_tokens, 4_096);
}

#[test]
fn no_answer_is_longer_than_its_model_has_room_for() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1000000}"#;

    assert_eq!(used(Surface::Chat, body).0.output_tokens, 8_192);
}

#[test]
fn every_prompt_of_completions_is_answered_and_vectors_are_no_tokens() {
    let body = r#"{"model":"m","prompt":["a","b"],"max_tokens":5,"n":2}"#;
    assert_eq!(used(Surface::Completions, body).0.output_tokens, 20);
    let body = r#"{"model":"m","input":"some text"}"#;
    let (most, prompt) = used(Surface::Embeddings, body);
    assert_eq!((most.output_tokens, most.tokens), (0, prompt));
    assert_eq!(most.nano_usd, prompt * 4_000, "the dearest route for this use");
}

fn sent(surface: Surface, default_max: Option<u64>, body: &'static str) -> Option<String> {
    let skimmed = skim(surface, body.as_bytes(), &Limits::default()).expect("a body");
    let caller = caller(|key| key.output_default_max = default_max);
    let changed = bounded(
        &caller.key,
        (&Catalog::default(), &model()),
        (surface, &skimmed),
        &Bytes::from_static(body.as_bytes()),
    )?;
    Some(String::from_utf8(changed.to_vec()).expect("text"))
}

#[test]
fn the_default_of_a_key_is_put_where_the_caller_names_none() {
    const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
    let with = |member: &str| Some(CHAT.replace("}]}", &format!("}}],{member}}}")));

    assert_eq!(sent(Surface::Chat, Some(50), CHAT), with("\"max_tokens\":50"));
    assert_eq!(
        sent(Surface::Chat, Some(9_999), CHAT),
        with("\"max_tokens\":4096")
    );
    assert_eq!(sent(Surface::Chat, None, CHAT), None);
    assert_eq!(
        sent(Surface::Responses, Some(50), r#"{"model":"m","input":"x"}"#).as_deref(),
        Some(r#"{"model":"m","input":"x","max_output_tokens":50}"#)
    );
    assert_eq!(
        sent(
            Surface::Completions,
            Some(50),
            r#"{"model":"m","prompt":"x","max_tokens":null}"#
        )
        .as_deref(),
        Some(r#"{"model":"m","prompt":"x","max_tokens":50}"#)
    );
    assert_eq!(
        sent(
            Surface::Chat,
            Some(50),
            r#"{"max_completion_tokens":null,"model":"m","messages":[{"role":"user","content":"x"}]}"#
        )
        .as_deref(),
        Some(r#"{"max_completion_tokens":50,"model":"m","messages":[{"role":"user","content":"x"}]}"#)
    );
    let named = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":7}"#;
    assert_eq!(sent(Surface::Chat, Some(50), named), None);
    assert_eq!(
        sent(Surface::Embeddings, Some(50), r#"{"model":"m","input":"x"}"#),
        None
    );
}

#[test]
fn bounds_follow_the_catalogue() {
    let kept = Kept::default();
    let caller = caller(|_| {});
    let mut catalog = Catalog::default();
    let bounds = |catalog: &Catalog| kept.bounds(catalog, &caller.key, &ModelName::from("m"));
    assert!(bounds(&catalog).is_none());
    for (revision, text) in [(1, r#"{"rpm":5}"#), (2, r#"{"rpm":6}"#)] {
        let tenant = Tenant {
            limits: serde_json::from_str(text).expect("limits"),
            ..Tenant::new(TenantId::from("acme"), schemas::catalog::Origin::File)
        };
        let value = serde_json::to_vec(&tenant).expect("serialize");
        let applied = catalog.apply(revision, &tenant_key(&tenant.id), Some(&value));
        applied.expect("apply");

        let found = bounds(&catalog).expect("bounds");

        assert_eq!(
            (found.len(), found[0].key, found[0].limit),
            (1, LimitKey::Rpm, 4 + revision)
        );
        assert!(
            bounds(&catalog).is_some_and(|again| Arc::ptr_eq(&found, &again)),
            "made once"
        );
    }
}
