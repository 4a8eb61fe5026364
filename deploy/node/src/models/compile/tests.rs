//! What a models file becomes.

mod legs;
mod providers;
mod router;
mod wake;
mod watched;

use schemas::balance::Algorithm;
use schemas::catalog::ProviderKind;

use super::*;
use crate::environment::Environment;

fn compiled(text: &str) -> Result<Compiled, Problem> {
    compiled_where(text, Held::Here)
}

/// The same by a node that holds credentials, or by one that does not. `account.json` is the one file there is.
fn compiled_where(text: &str, held: Held) -> Result<Compiled, Problem> {
    let secrets: &[(&str, &str)] = match held {
        Held::Here => &[("KEY", "secret-1"), ("OTHER_KEY", "secret-2")],
        Held::Elsewhere => &[],
    };
    let environment = Environment::from_pairs(secrets.iter().copied());
    let document = Document::parse("models.yaml", text, &environment)?;
    let file: ModelsFile = document.read()?;
    let read = |path: &str| match path {
        "account.json" => Ok(ACCOUNT.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let sources = Sources {
        held,
        application_credentials: None,
        read: &read,
    };
    compile(&file, &document, sources, Timestamp::default())
}

/// As much of a service account's key as is looked at.
const ACCOUNT: &str = r#"{"client_email":"a@b","private_key":"k"}"#;

const LOCAL_FIRST: &str = r"
models:
  - id: org/model
    name: Model
    provider: openrouter
    aliases: [model]
    pricing: { prompt: '2', completion: '8' }
    route:
      - { kind: openai_compat, weight: 1.0, base_url: 'http://localhost:11434/v1' }
      - { kind: openrouter, weight: 0.01, api_keys: ['${KEY}', '${KEY}'] }
";

#[test]
fn a_local_first_model_becomes_two_routes() {
    let compiled = compiled(LOCAL_FIRST).expect("compile");

    let model = &compiled.models[0];
    let legs: Vec<_> = model
        .routes
        .iter()
        .map(|route| (route.endpoint_id.as_str(), route.weight_micro))
        .collect();
    assert_eq!(
        legs,
        [
            ("org/model:local-11434", 1_000_000),
            ("org/model:openrouter-api", 10_000)
        ]
    );
    assert_eq!(compiled.endpoints[0].chat_path, "/chat/completions");
    assert_eq!(
        compiled.endpoints[1].credentials.len(),
        1,
        "a key listed twice is one key"
    );
    assert_eq!(compiled.endpoints[1].profile, "openrouter");
    assert!(compiled.problems.is_empty(), "{:?}", compiled.problems);
}

#[test]
fn a_blank_variable_leaves_the_model_out_and_says_so() {
    let text = LOCAL_FIRST.replace("${KEY}", "${ABSENT}");

    let compiled = compiled(&text).expect("compile");

    assert!(compiled.models.is_empty());
    assert!(
        compiled.problems[0]
            .message
            .contains("credential of \"org/model\" is blank")
    );
}

#[test]
fn a_credential_that_others_hold_leaves_nothing_out() {
    let text = LOCAL_FIRST.replace("['${KEY}', '${KEY}']", "['${KEY}']");
    let here = compiled(&text).expect("compile");

    let elsewhere = compiled_where(&text, Held::Elsewhere).expect("compile");

    assert_eq!(elsewhere.models, here.models);
    assert_eq!(elsewhere.endpoints, here.endpoints);
}

#[test]
fn an_optional_leg_is_left_out_alone() {
    let text = LOCAL_FIRST
        .replace("${KEY}", "${ABSENT}")
        .replace("weight: 0.01", "weight: 0.01, optional: true");

    let compiled = compiled(&text).expect("compile");

    assert_eq!(compiled.models[0].routes.len(), 1);
    assert_eq!(compiled.problems.len(), 1);
}

#[test]
fn a_model_of_which_every_leg_is_left_out_is_told_for_what_it_is() {
    let text = "
models:
  - id: m
    provider: groq
    route:
      - { optional: true, api_key: '${ABSENT}' }
";
    let compiled = compiled(text).expect("compile");

    assert!(compiled.models.is_empty());
    let told: Vec<&str> = compiled
        .problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[1], "every leg of \"m\" is left out, so it is not served");
}

#[test]
fn legs_that_would_collide_are_told_apart() {
    let text = "
models:
  - id: m
    provider: vllm
    route:
      - { base_url: 'http://10.0.0.5:8000' }
      - { base_url: 'http://10.0.0.6:8000' }
";
    let compiled = compiled(text).expect("compile");

    let ids: Vec<_> = compiled
        .endpoints
        .iter()
        .map(|endpoint| endpoint.id.as_str())
        .collect();
    assert_eq!(ids, ["m:10-api@10.0.0.5:8000", "m:10-api@10.0.0.6:8000"]);
    assert_eq!(compiled.problems.len(), 2);
}

#[test]
fn weights_that_are_all_zero_leave_the_model_out() {
    let text = "models: [{ id: m, provider: vllm, route: [{ base_url: 'http://h', weight: 0 }] }]";
    let compiled = compiled(text).expect("compile");
    assert!(compiled.models.is_empty());
    assert!(compiled.problems[0].message.contains("no leg with a weight"));
}

#[test]
fn what_cannot_be_understood_stops_the_start() {
    for (text, part) in [
        (
            "models: [{ id: m, provider: nonsense, base_url: 'http://h' }]",
            "not a kind",
        ),
        ("models: [{ id: m, provider: vllm }]", "no address"),
        (
            "models: [{ id: m, provider: vllm, route: [{ base_url: 'http://h', pool: 'a b/*.>' }] }]",
            "not the name of a pool",
        ),
        (
            "models: [{ id: m, provider: vllm, route: [{ base_url: 'http://h', pool: '' }] }]",
            "not the name of a pool",
        ),
        (
            "models: [{ id: m, provider: vllm, base_url: 'ftp://h' }]",
            "not an http",
        ),
        (
            "models: [{ id: m, provider: vllm, base_url: 'http://h', pricing: { prompt: 'x' } }]",
            "decimal",
        ),
        (
            "models: [{ id: m, provider: vllm, base_url: 'http://h' }, { id: m, provider: vllm, base_url: 'http://h' }]",
            "already taken",
        ),
        (
            "models: [{ id: m, provider: vllm, base_url: 'http://h', wieght: 1 }]",
            "unknown field",
        ),
        (
            "models: [{ id: m, provider: vllm, base_url: 'http://h', route: [{ api_key: a, api_keys: [b] }] }]",
            "both given",
        ),
        (
            "models: [{ id: m, provider: vllm, route: [{ backends: ['http://h', 'http://i'], algorithm: fastest }] }]",
            "no way to choose",
        ),
    ] {
        let problem = compiled(text).expect_err(text);
        assert!(problem.message.contains(part), "{text}: {problem}");
        assert!(problem.line > 0);
    }
}

#[test]
fn backends_of_one_endpoint_are_named_by_their_addresses() {
    let text = "models: [{ id: m, provider: vllm, route: [{ backends: ['http://localhost:1', { url: 'http://localhost:2/', node: gpu-1 }] }] }]";
    let compiled = compiled(text).expect("compile");
    let backends: Vec<_> = compiled.endpoints[0]
        .backends
        .iter()
        .map(|b| (b.id.as_str(), b.base_url.as_str()))
        .collect();
    assert_eq!(
        backends,
        [
            ("m:local-1#adddb243", "http://localhost:1"),
            ("m:local-1#3dae5291", "http://localhost:2")
        ]
    );
}

#[test]
fn backends_are_chosen_as_their_leg_says_and_drawn_where_it_says_nothing() {
    let algorithm = |said: &str| {
        let text = format!(
            "models: [{{ id: m, provider: vllm, route: [{{ backends: ['http://h', 'http://i']{said} }}] }}]"
        );
        let compiled = compiled(&text).expect("compile");
        assert_eq!(told_of_algorithm(&compiled), 0);
        compiled.endpoints[0].balancing()
    };

    assert_eq!(algorithm(""), Algorithm::Weighted);
    for word in Algorithm::ALL {
        assert_eq!(algorithm(&format!(", algorithm: {word}")), word);
    }
    let text = "models: [{ id: m, provider: vllm, route: [{ backends: ['http://h'], algorithm: x }] }]";
    let refused = compiled(text).expect_err("no such word");
    assert!(
        Algorithm::ALL
            .iter()
            .all(|word| refused.remedy.contains(word.as_str())),
        "{refused}"
    );
    let text =
        "models: [{ id: m, provider: vllm, route: [{ backends: ['http://h'], algorithm: round_robin }] }]";
    let alone = compiled(text).expect("compile");
    assert_eq!(told_of_algorithm(&alone), 1, "there is nothing to choose from");
}

fn told_of_algorithm(compiled: &Compiled) -> usize {
    let problems = compiled.problems.iter();
    problems
        .filter(|problem| problem.path.ends_with(".algorithm"))
        .count()
}

#[test]
fn a_small_weight_never_becomes_zero() {
    assert_eq!(weight_micro(1e-9), Some(1));
    assert_eq!(weight_micro(0.0), Some(0));
    assert_eq!(weight_micro(-1.0), None);
    assert_eq!(weight_micro(f64::NAN), None);
}

#[test]
fn words_of_parameters_that_nobody_knows_are_named_with_their_place() {
    let text = r"
models:
  - id: m
    name: M
    supported_params: [temperature, tools, max_tokens]
    route:
      - { kind: openai_compat, base_url: 'http://h/v1' }
      - { kind: openai_compat, base_url: 'http://i/v1', supported_params: [top_p,
          temprature] }
";

    let compiled = compiled(text).expect("compile");

    let told: Vec<_> = (compiled.problems.iter())
        .filter(|problem| problem.path.contains("supported_params"))
        .map(|problem| (problem.path.as_str(), problem.line))
        .collect();
    assert_eq!(told, [("models[0].route[1].supported_params[1]", 9)]);
    assert_eq!(compiled.models.len(), 1, "it is served");
}

#[test]
fn a_schedule_of_prices_is_served() {
    let of = |schedule: &str| {
        let text = format!(
            "models: [{{ id: m, provider: openai_compat, base_url: http://h, pricing: {{ prompt: \"0.27\" }}, \
             pricing_schedule: {schedule} }}]"
        );
        compiled(&text).expect("compile")
    };

    let read = of("{ windows: [{ start: \"16:30\", end: \"00:30\", pricing: { prompt: \"0.135\" } }] }");
    let rates = read.models[0].routes[0].rates.as_ref().expect("a schedule");
    let at = |text: &str| {
        let applied = rates.at(Timestamp::parse(text).expect("a time"));
        applied.and_then(|applied| applied.price).map(|price| price.input)
    };
    assert_eq!(at("2026-11-30T17:00:00Z"), Some(135_000_000));
    assert_eq!(at("2026-11-30T12:00:00Z"), Some(270_000_000));
    assert_eq!(read.problems, []);
}

#[test]
fn a_schedule_of_prices_that_is_not_understood_is_an_error_with_its_place() {
    let window = |window: &str| format!("{{ windows: [{{ {window} }}] }}");
    let right = "start: '16:30', end: '00:30', pricing: { prompt: '0.1' }";
    let at = "models[0].pricing_schedule";
    for (schedule, place) in [
        (
            window(&right.replace("0.1", "0.1O")),
            format!("{at}.windows[0].pricing"),
        ),
        (
            window(&right.replace("16:30", "25:00")),
            format!("{at}.windows[0].start"),
        ),
        (window(&right.replace("start", "from")), at.to_owned()),
        (format!("{{ windws: [{{ {right} }}] }}"), at.to_owned()),
        ("off-peak".to_owned(), at.to_owned()),
    ] {
        let of_model = format!(
            "models:\n  - id: m\n    provider: openai_compat\n    base_url: http://h\n    pricing: {{ prompt: '1' }}\n    \
             pricing_schedule: {schedule}\n"
        );
        let of_leg = format!(
            "models:\n  - id: m\n    provider: openai_compat\n    pricing: {{ prompt: '1' }}\n    route:\n      - base_url: \
             http://h\n        pricing_schedule: {schedule}\n"
        );
        let legs = place.replace(at, "models[0].route[0].pricing_schedule");
        for (text, place, line) in [(of_model, place, 6), (of_leg, legs, 7)] {
            let problem = compiled(&text).expect_err(&schedule);
            assert_eq!((problem.path, problem.line), (place, line), "{schedule}");
            assert!(problem.remedy.contains("windows"), "{}", problem.remedy);
        }
    }
}

#[test]
fn a_schedule_never_makes_free_what_has_no_price() {
    let of = |rest: &str| {
        compiled(&format!(
            "models: [{{ id: m, provider: openai_compat, base_url: http://h, pricing_schedule: {{ windows: [{{ start: \
             '16:30', end: '00:30', pricing: {{ prompt: '1' }} }}]{rest} }} }}]"
        ))
    };

    let refused = of("").expect_err("nothing holds outside of the windows");
    assert_eq!(refused.path, "models[0].pricing_schedule");

    let read = of(", effective_at: '2026-11-30T00:00:00Z', default: { prompt: '2' }").expect("compile");
    let rates = read.models[0].routes[0].rates.as_ref().expect("a schedule");
    let at = |text: &str| {
        let applied = rates
            .at(Timestamp::parse(text).expect("a time"))
            .expect("a version");
        applied.price.map(|price| price.input)
    };
    assert_eq!(at("2026-11-29T12:00:00Z"), None, "unpriced before it begins");
    assert_eq!(at("2026-11-30T12:00:00Z"), Some(2_000_000_000));
    assert_eq!(at("2026-11-30T17:00:00Z"), Some(1_000_000_000));
}
