//! Tests of what is considered, and of the walk from one model to the next.

mod moves;

use std::sync::Arc;

use dialects::skim::{Limits, Skim, skim};
use schemas::auto::choice::Considered;
use schemas::auto::record::Exclusion;
use schemas::catalog::modality::Modalities;
use schemas::catalog::policy::{KeyRouting, ModelPolicy, Purpose, Strategy, model_policy_key};
use schemas::catalog::{Catalog, Endpoint, Model, Origin, Role, Route, endpoint_key, model_key};
use schemas::command::Told;
use schemas::event::request::{Attempt, RequestSettled, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::frame::Report;
use schemas::id::{BackendId, EndpointId, ModelName, PoolName, TenantId};
use schemas::money::{NanoUsd, Price};
use schemas::outcome::Outcome;
use schemas::parameter::Takes;
use schemas::time::Timestamp;
use serde::Serialize;

use super::consider::{Known, consider};
use super::session::Stay;
use super::*;
use crate::caller::Caller;
use crate::gate::Wishes;
use crate::gate::tests::{caller, model};

const BODY: &str = r#"{"model":"auto","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#;

/// Nothing is known.
struct Nothing;

impl Known for Nothing {
    fn ttft_ms(&self, _: &EndpointId) -> Option<u64> {
        None
    }

    fn answer_tokens(&self, _: &Model) -> Option<u64> {
        None
    }
}

fn read(body: &str) -> Skim {
    skim(Surface::Chat, body.as_bytes(), &Limits::default()).expect("a good body")
}

/// A route to `{model}:o1`, at so many dollars a million tokens of answer.
fn route(model: &str, dollars: i64) -> Route {
    Route {
        endpoint_id: EndpointId::from(format!("{model}:o1").as_str()),
        upstream_model: "up".into(),
        priority: 0,
        weight_micro: 1_000_000,
        pool: PoolName::from("default"),
        context_length: 8_192,
        input_modalities: Modalities::TEXT,
        takes: Arc::new(Takes::default()),
        price: Some(Price {
            output: dollars * 1_000_000_000,
            ..Price::default()
        }),
        origin: Origin::File,
        rates: None,
    }
}

fn priced(name: &str, dollars: i64) -> Model {
    model(|model| {
        model.id = ModelName::from(name);
        model.aliases.clear();
        model.routes = vec![route(name, dollars)];
    })
}

fn endpoint(id: &EndpointId) -> Endpoint {
    let value = serde_json::json!({
        "id": id, "kind": "openai_compat", "provider": "o1", "backends": [], "chat_path": "/chat/completions",
        "query": "", "auth_header": "authorization", "auth_format": "Bearer {api_key}", "extra_headers": [],
        "extra_body": "", "credentials": [], "single_backend_rescue": false, "http2": false, "disabled": false,
    });
    serde_json::from_value(value).expect("an endpoint")
}

struct World {
    catalog: Catalog,
    revision: u64,
}

impl World {
    fn new(models: &[Model]) -> Self {
        let mut world = Self {
            catalog: Catalog::default(),
            revision: 0,
        };
        for model in models {
            world.put(&model_key(&model.id), model);
            for route in &model.routes {
                world.put(&endpoint_key(&route.endpoint_id), &endpoint(&route.endpoint_id));
            }
        }
        world
    }

    fn put(&mut self, key: &str, record: &impl Serialize) {
        self.revision += 1;
        let value = serde_json::to_vec(record).expect("serialize");
        self.catalog
            .apply(self.revision, key, Some(&value))
            .expect("apply");
    }

    fn say(&mut self, model: &str, change: impl FnOnce(&mut ModelPolicy)) {
        let mut policy = ModelPolicy::new(ModelName::from(model));
        change(&mut policy);
        self.put(&model_policy_key(&policy.model), &policy);
    }

    fn considered(&self, caller: &Caller, body: &str) -> Vec<(String, Considered)> {
        let by = (&self.catalog, &*caller.key);
        let (seen, considered) = consider(by, (Surface::Chat, &read(body)), Timestamp::default(), &Nothing);
        let names = seen.iter().map(|seen| seen.model.id.to_string());
        names.zip(considered).collect()
    }

    fn walk(&self, strategy: Strategy, attempts_max: u32) -> Walk {
        let call = Call {
            caller: caller(|_| {}),
            catalog: Arc::new(self.catalog.clone()),
            at: Timestamp::default(),
            surface: Surface::Chat,
            wishes: Wishes::default(),
            told: Told::default(),
            skim: read(BODY),
            body: BODY.into(),
        };
        let with = (Stay::default(), attempts_max);
        Walk::begin(call, strategy, with, &Nothing).unwrap_or_else(|(nobody, _)| panic!("{nobody:?}"))
    }
}

fn reason(all: &[(String, Considered)], name: &str) -> Option<Exclusion> {
    let (_, considered) = all.iter().find(|(seen, _)| seen == name).expect("it is seen");
    considered.offered.as_ref().err().copied()
}

#[test]
fn a_model_of_that_name_is_meant_where_the_caller_may_see_it() {
    let mut world = World::new(&[priced("auto", 1)]);
    let on = caller(|key| {
        key.routing = Some(KeyRouting {
            auto_routing_enabled: Some(true),
            strategy: None,
        });
    });
    assert_eq!(strategy(&world.catalog, Some(&on.key), "auto"), None);
    let hidden = model(|model| {
        model.id = ModelName::from("auto");
        model.required_role = Role::Admin;
    });
    world.put(&model_key(&hidden.id), &hidden);

    assert_eq!(
        strategy(&world.catalog, Some(&on.key), "auto"),
        Some(Strategy::Balanced)
    );
    assert_eq!(strategy(&world.catalog, Some(&on.key), "Auto"), None);
    assert_eq!(strategy(&world.catalog, Some(&caller(|_| {}).key), "auto"), None);
    assert_eq!(strategy(&world.catalog, None, "auto"), None);
}

#[test]
fn only_what_the_caller_may_see_is_considered_at_all() {
    let mut staff = priced("staff", 1);
    staff.required_role = Role::Internal;
    let mut foreign = priced("foreign", 1);
    foreign.tenants = Some(vec![TenantId::from("zenith")]);
    let world = World::new(&[staff, foreign, priced("a", 1), priced("b", 1)]);
    let names = |caller: &Caller| -> Vec<String> {
        let considered = world.considered(caller, BODY).into_iter();
        considered.map(|(name, _)| name).collect()
    };

    assert_eq!(names(&caller(|_| {})), ["a", "b"]);
    assert_eq!(
        names(&caller(|key| key.role = Role::Internal)),
        ["a", "b", "staff"]
    );
    assert_eq!(names(&caller(|key| key.models = Some(vec!["b".into()]))), ["b"]);
    assert_eq!(names(&caller(|key| key.denied = vec!["a".into()])), ["b"]);
}

#[test]
fn every_gate_of_a_named_model_holds_and_is_the_reason() {
    let change = |name: &str, change: &dyn Fn(&mut Model)| {
        let mut model = priced(name, 1);
        model.supports_tools = true;
        model.supports_structured_output = true;
        change(&mut model);
        model
    };
    let models = [
        change("embeds", &|model| model.embeds = true),
        change("toolless", &|model| model.supports_tools = false),
        change("formless", &|model| model.supports_structured_output = false),
        change("blind", &|_| {}),
        change("short", &|model| {
            model.input_modalities = Modalities::TEXT | Modalities::IMAGE;
            model.routes[0].input_modalities = model.input_modalities;
            model.routes[0].context_length = 110;
        }),
        change("blind leg", &|model| {
            model.input_modalities = Modalities::TEXT | Modalities::IMAGE;
        }),
        change("weightless", &|model| {
            model.input_modalities = Modalities::TEXT | Modalities::IMAGE;
            model.routes[0].weight_micro = 0;
        }),
        change("good", &|model| {
            model.input_modalities = Modalities::TEXT | Modalities::IMAGE;
            model.routes[0].input_modalities = model.input_modalities;
        }),
    ];
    let mut world = World::new(&models);
    let off = Endpoint {
        disabled: true,
        ..endpoint(&EndpointId::from("off:o1"))
    };
    world.put(
        &model_key(&ModelName::from("off")),
        &change("off", &|model| {
            model.input_modalities = Modalities::TEXT | Modalities::IMAGE;
        }),
    );
    world.put(&endpoint_key(&off.id), &off);
    let body = r#"{"model":"auto","max_tokens":100,"messages":[{"role":"user","content":[
        {"type":"text","text":"what is this, and what could it have been before it was this?"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}],
        "tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"}}"#;

    let all = world.considered(&caller(|_| {}), body);

    for (name, expected) in [
        ("embeds", Some(Exclusion::Purpose)),
        ("toolless", Some(Exclusion::Tools)),
        ("formless", Some(Exclusion::StructuredOutput)),
        ("blind", Some(Exclusion::Modality)),
        ("blind leg", Some(Exclusion::Modality)),
        ("short", Some(Exclusion::ContextLength)),
        ("weightless", Some(Exclusion::NoEndpoint)),
        ("off", Some(Exclusion::NoEndpoint)),
        ("good", None),
    ] {
        assert_eq!(reason(&all, name), expected, "{name}");
    }
}

#[test]
fn what_a_call_would_cost_is_reckoned_at_the_endpoints_that_would_serve() {
    let mut spread = priced("spread", 4);
    let mut second = route("second", 8);
    second.weight_micro = 3_000_000;
    let mut fallback = route("fallback", 1_000);
    fallback.priority = 1;
    let mut unused = route("unused", 1_000);
    unused.weight_micro = 0;
    unused.origin = Origin::Runtime;
    spread.routes.extend([second, fallback, unused]);
    let mut unpriced = priced("unpriced", 1);
    unpriced.routes[0].price = None;
    let world = World::new(&[spread, unpriced, priced("plain", 2)]);
    let costs = |body: &str| -> Vec<Option<u64>> {
        let all = world.considered(&caller(|_| {}), body);
        let cost = |name: &str| {
            let (_, considered) = all.iter().find(|(seen, _)| seen == name).expect("it is seen");
            considered.offered.as_ref().expect("it is offered").cost_nano_usd
        };
        vec![cost("spread"), cost("unpriced"), cost("plain")]
    };

    // A hundred tokens of answer, a quarter of the calls at 4 dollars a million and the others at 8.
    assert_eq!(costs(BODY), [Some(700_000), None, Some(200_000)]);
    let open = BODY.replace(r#""max_tokens":100,"#, "");
    assert_eq!(costs(&open), [Some(7 * 512_000), None, Some(2 * 512_000)]);
}

/// Answers of the model `known` have ten tokens, and nothing else is known.
struct Short;

impl Known for Short {
    fn ttft_ms(&self, _: &EndpointId) -> Option<u64> {
        None
    }

    fn answer_tokens(&self, model: &Model) -> Option<u64> {
        (model.id.as_str() == "known").then_some(10)
    }
}

#[test]
fn a_model_of_whose_answers_nothing_is_known_is_taken_to_answer_as_others_do() {
    let world = World::new(&[priced("known", 4), priced("new", 2)]);
    let open = BODY.replace(r#""max_tokens":100,"#, "");
    let by = (&world.catalog, &*caller(|_| {}).key);
    let (_, considered) = consider(by, (Surface::Chat, &read(&open)), Timestamp::default(), &Short);

    let costs: Vec<_> = considered
        .iter()
        .map(|considered| considered.offered.as_ref().expect("it is offered").cost_nano_usd)
        .collect();
    assert_eq!(costs, [Some(40_000), Some(20_000)]);
}

fn attempt(outcome: Outcome) -> Attempt {
    Attempt {
        endpoint_id: EndpointId::from("m:o1"),
        backend: BackendId::new("m:o1"),
        provider: "o1".into(),
        status: Some(500),
        outcome,
        error_code: None,
        started_at: Timestamp::default(),
        first_byte_ms: None,
        latency_ms: 1,
    }
}

/// A report of so many attempts, of which one told its cost and the others did not.
fn report(outcome: Outcome, code: Option<FailureCode>, attempts: usize) -> Report {
    Report {
        outcome,
        failure: code.map(|code| Failure::new(code, "no")),
        attempts: vec![attempt(outcome); attempts],
        upstream_cost_nano_usd: (attempts > 0).then_some(NanoUsd(7)),
        attempts_of_unknown_cost: attempts.saturating_sub(1) as u64,
        passed: None,
        ..blank()
    }
}

fn blank() -> Report {
    crate::relay::unheard(Outcome::Ok)
}

fn failed(attempts: usize) -> Report {
    report(Outcome::UpstreamError, Some(FailureCode::UpstreamError), attempts)
}

fn next(walk: &mut Walk) -> Option<String> {
    walk.next().map(|way| way.model.id.to_string())
}

fn five() -> World {
    World::new(&["a", "b", "c", "d", "e"].map(|name| priced(name, i64::from(name.as_bytes()[0]))))
}

#[test]
fn three_models_are_sent_something_and_those_that_cannot_be_do_not_count() {
    let mut walk = five().walk(Strategy::Cost, 4);
    assert_eq!(next(&mut walk).as_deref(), Some("a"));
    assert_eq!(walk.attempts(), (0, 2), "one is left for each of two others");
    walk.note(&mut failed(1));
    assert_eq!(next(&mut walk).as_deref(), Some("b"));
    assert_eq!(walk.attempts(), (1, 3));
    walk.note(&mut failed(0));
    assert_eq!(next(&mut walk).as_deref(), Some("c"));
    walk.note(&mut failed(1));
    assert_eq!(next(&mut walk).as_deref(), Some("d"));
    assert_eq!(walk.attempts(), (2, 4), "nobody comes after the third");
    let mut last = failed(2);
    walk.note(&mut last);
    assert_eq!(next(&mut walk), None);

    assert!(!walk.conclude(&mut last, (false, true)));

    assert_eq!(last.attempts.len(), 4);
    assert_eq!(
        (last.upstream_cost_nano_usd, last.attempts_of_unknown_cost),
        (Some(NanoUsd(21)), 1)
    );
    let failure = last.failure.expect("it failed");
    assert_eq!(
        (failure.code, failure.status),
        (FailureCode::AutoRoutingAllFailed, 502)
    );
    let told = walk.record();
    assert_eq!(told.model, None);
    let failed: Vec<bool> = told
        .candidates
        .iter()
        .map(|asked| asked.failed.is_some())
        .collect();
    assert_eq!(failed, [true, true, true, true, false]);
    assert_eq!(walk.outcome(Outcome::UpstreamError), "all_failed");
}

#[test]
fn attempts_are_bounded_over_all_models() {
    let mut walk = five().walk(Strategy::Cost, 2);
    next(&mut walk);
    assert_eq!(walk.attempts(), (0, 1));
    walk.note(&mut failed(2));
    assert_eq!(next(&mut walk), None);
}

#[test]
fn where_nothing_was_sent_to_anybody_nobody_could_be_asked_unless_it_is_the_calls_own_matter() {
    let end = |first: Report| {
        let mut walk = five().walk(Strategy::Cost, 4);
        let mut report = first;
        while next(&mut walk).is_some() {
            walk.note(&mut report);
        }
        walk.conclude(&mut report, (false, true));
        let failure = report.failure.expect("it failed");
        (failure.code, report.outcome)
    };

    let open = report(Outcome::UpstreamError, Some(FailureCode::AllCircuitsOpen), 0);
    assert_eq!(end(open), (FailureCode::NoAutoCandidates, Outcome::UpstreamError));
    let unsaid = report(Outcome::Rejected, Some(FailureCode::UnsupportedParameter), 0);
    assert_eq!(
        end(unsaid),
        (FailureCode::UnsupportedParameter, Outcome::Rejected)
    );
}

#[test]
fn who_serves_is_told_with_all_attempts_and_how_far_down_it_was() {
    let mut walk = five().walk(Strategy::Cost, 4);
    next(&mut walk);
    walk.note(&mut failed(1));
    next(&mut walk);
    let mut served = report(Outcome::Ok, None, 1);
    walk.note(&mut served);

    assert!(walk.conclude(&mut served, (false, false)));

    assert_eq!((served.attempts.len(), served.failure.is_none()), (2, true));
    assert_eq!(walk.record().model, Some(ModelName::from("b")));
    assert_eq!(walk.outcome(Outcome::Ok), "fallback");
    let mut first = five().walk(Strategy::Cost, 4);
    next(&mut first);
    assert_eq!(first.outcome(Outcome::Ok), "first");
}

#[test]
fn a_stream_that_has_begun_tells_its_own_failure() {
    let mut walk = five().walk(Strategy::Cost, 4);
    next(&mut walk);
    let mut cut = failed(1);
    walk.note(&mut cut);

    assert!(walk.conclude(&mut cut, (true, true)));

    assert_eq!(
        cut.failure.map(|failure| failure.code),
        Some(FailureCode::UpstreamError)
    );
    assert_eq!(walk.record().model, Some(ModelName::from("a")));
}

#[test]
fn purposes_and_routing_disabled_come_from_the_policies() {
    let mut world = five();
    world.say("a", |policy| policy.routing_enabled = false);
    world.say("b", |policy| policy.purpose = Some(Purpose::Embedding));
    world.say("d", |policy| policy.purpose = Some(Purpose::Chat));
    let mut walk = world.walk(Strategy::Cost, 4);

    assert_eq!(next(&mut walk).as_deref(), Some("d"));
    assert!(!walk.current().expect("d").unlabeled);
    walk.note(&mut failed(1));
    assert_eq!(next(&mut walk).as_deref(), Some("c"));
    assert!(walk.current().expect("c").unlabeled);
    let told: Vec<_> = walk.record().excluded.iter().map(|left| left.reason).collect();
    assert_eq!(told, [Exclusion::RoutingDisabled, Exclusion::Purpose]);
}

/// A waybill with the choice reads back as it was written, and one of before has none.
#[test]
fn the_record_travels_with_the_waybill() {
    let walk = five().walk(Strategy::Balanced, 4);
    let settled = RequestSettled {
        auto: Some(Box::new(walk.record().clone())),
        ..crate::settle::tests::settled()
    };

    let text = serde_json::to_string(&settled).expect("serialize");

    assert_eq!(
        serde_json::from_str::<RequestSettled>(&text).expect("read"),
        settled
    );
    let before = serde_json::to_value(crate::settle::tests::settled()).expect("serialize");
    assert!(before.get("auto").is_none());
}
