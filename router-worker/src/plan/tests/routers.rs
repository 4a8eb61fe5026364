//! How the router of a model shares its calls among its legs.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use schemas::balance::profile::{Mean, Profile, Times};
use schemas::balance::snapshot::Engine;
use schemas::catalog::router::{Fixed, Offload, RouteWise, Router};
use schemas::id::ModelName;
use schemas::money::Price;
use schemas::usage::Usage;

use super::*;
use crate::plan::market::nano_usd;
use crate::testing::MODEL;

/// What is learned, what is left of budgets, and how long queues are.
#[derive(Default)]
struct Learned {
    profile: Option<Arc<Profile>>,
    balance: RefCell<i64>,
    calls: HashMap<&'static str, u64>,
    queues: HashMap<&'static str, u64>,
}

impl Outlook for Learned {
    fn profile(&self, model: &ModelName) -> Option<Arc<Profile>> {
        assert_eq!(model.as_str(), MODEL);
        self.profile.clone()
    }

    fn balance(&self, _: &ModelName) -> i64 {
        *self.balance.borrow()
    }

    fn spend(&self, _: &ModelName, change_nano_usd: i64) {
        *self.balance.borrow_mut() += change_nano_usd;
    }

    fn calls(&self, backend: &BackendId) -> u64 {
        self.calls.get(backend.as_str()).copied().unwrap_or(0)
    }

    fn engine(&self, backend: &BackendId) -> Option<Engine> {
        let waiting = *self.queues.get(backend.as_str())?;
        Some(Engine {
            waiting,
            ..Engine::default()
        })
    }
}

/// Legs with what they charge for a million tokens of a prompt, in dollars.
fn priced(legs: &[(&str, i64)]) -> Vec<Route> {
    let priced = |(name, usd): &(&str, i64)| Route {
        price: Some(Price {
            input: usd * 1_000_000_000,
            output: 0,
            ..Price::default()
        }),
        ..route(name, 0)
    };
    legs.iter().map(priced).collect()
}

/// A model whose legs are chosen by `by`, each at an address of its own.
fn scene(by: Router, routes: Vec<Route>, urls: &[(&str, &str)]) -> (Catalog, Offer) {
    let endpoints: Vec<Endpoint> = urls.iter().map(|(name, url)| endpoint(name, &[url])).collect();
    let model = Model {
        router: Some(Arc::new(by)),
        ..model(routes)
    };
    let mut offer = offer(&model);
    offer.requirements.prompt_tokens = 1_000;
    (catalog(&endpoints, &model), offer)
}

/// Times to whole answers, in milliseconds, over a hundred calls each.
fn profile(legs: &[(&str, u64)]) -> Arc<Profile> {
    let legs = legs.iter().map(|(name, ms)| {
        let whole = Mean {
            count: 100,
            mean: ms * 1_000,
        };
        (
            EndpointId::from(*name),
            Times {
                whole,
                ..Times::default()
            },
        )
    });
    let known = Profile {
        legs: legs.collect(),
        ..Profile::new(ModelName::from(MODEL))
    };
    Arc::new(known)
}

const PUBLIC: [(&str, &str); 3] = [
    ("a", "https://a.example"),
    ("b", "https://b.example"),
    ("c", "https://c.example"),
];

fn order(catalog: &Catalog, offer: &Offer, outlook: &dyn Outlook, draw: u64) -> Plan {
    decide(catalog, offer, (&Open::default(), outlook), draw).expect("a plan")
}

#[test]
fn routewise_spends_its_budget_and_not_more_and_every_choice_is_made_again_from_its_event() {
    let legs = priced(&[("a", 1), ("b", 4)]);
    let (catalog, offer) = scene(Router::Routewise(RouteWise::default()), legs, &PUBLIC[..2]);
    let learned = Learned {
        profile: Some(profile(&[("a", 900), ("b", 300)])),
        ..Learned::default()
    };
    let mut firsts = Vec::new();
    for draw in 0..40 {
        let plan = order(&catalog, &offer, &learned, draw);
        let decision = plan.decision.as_deref().expect("there is a choice");
        assert_eq!(decision.replay().1, decision.order.first());
        assert!(plan.wager.is_some());
        assert!(learned.balance(&ModelName::from(MODEL)) >= 0);
        firsts.push(names(&plan).remove(0));
    }
    let dear = firsts.iter().filter(|first| *first == "b").count();
    assert_eq!(dear, 30, "three quarters of the way to four times the price");
    assert_eq!(*learned.balance.borrow(), 0);
}

#[test]
fn others_are_asked_as_the_budget_and_their_speed_say() {
    let legs = priced(&[("a", 4), ("b", 1), ("c", 2)]);
    let (catalog, offer) = scene(Router::Routewise(RouteWise::default()), legs, &PUBLIC);
    let learned = Learned {
        profile: Some(profile(&[("a", 700), ("b", 900), ("c", 300)])),
        ..Learned::default()
    };
    for draw in 0..20 {
        let plan = order(&catalog, &offer, &learned, draw);
        assert_eq!(
            names(&plan),
            ["c", "b", "a"],
            "the dear one last, though it is quicker"
        );
    }
}

#[test]
fn a_leg_with_slots_costs_nothing_until_they_are_taken() {
    let terms = RouteWise {
        slots: [(EndpointId::from("b"), 2)].into(),
        ..RouteWise::default()
    };
    let (catalog, offer) = scene(
        Router::Routewise(terms),
        priced(&[("a", 1), ("b", 9)]),
        &PUBLIC[..2],
    );
    let first = |calls| {
        let learned = Learned {
            profile: Some(profile(&[("a", 900), ("b", 800)])),
            calls: HashMap::from([("b", calls)]),
            ..Learned::default()
        };
        let plan = order(&catalog, &offer, &learned, 1);
        let decision = plan.decision.as_deref().expect("there is a choice");
        let market = decision
            .snapshot
            .as_ref()
            .and_then(|snapshot| snapshot.market.as_ref());
        let slots = market.expect("costs decide").legs[1];
        assert_eq!(slots.cost_nano_usd, Some(0));
        (names(&plan).remove(0), slots.full)
    };
    assert_eq!(first(1), ("b".to_owned(), false));
    assert_eq!(first(2), ("a".to_owned(), true));
}

#[test]
fn what_a_call_costs_is_reckoned_with_what_its_answer_may_have() {
    let price = Price {
        input: 1_000_000_000,
        output: 2_000_000_000,
        ..Price::default()
    };
    let usage = Usage {
        input_tokens: 1_000,
        output_tokens: 512,
        ..Usage::default()
    };
    let routes = vec![
        Route {
            price: Some(price),
            ..route("a", 0)
        },
        Route {
            price: None,
            ..route("b", 0)
        },
    ];
    let (catalog, mut offer) = scene(Router::Routewise(RouteWise::default()), routes, &PUBLIC[..2]);
    let mut cost = |most: Option<u64>| {
        offer.requirements.output_tokens_max = most;
        let plan = order(&catalog, &offer, &Learned::default(), 3);
        let decision = plan.decision.expect("there is a choice");
        let market = decision
            .snapshot
            .and_then(|snapshot| snapshot.market)
            .expect("costs decide");
        [market.legs[0].cost_nano_usd, market.legs[1].cost_nano_usd]
    };
    assert_eq!(nano_usd(&price, &usage), Some(2_024_000));
    assert_eq!(cost(None), [Some(2_024_000), None]);
    assert_eq!(cost(Some(100)), [Some(1_200_000), None]);
}

/// Legs here and elsewhere.
const MIXED: [(&str, &str); 4] = [
    ("n1", "http://10.0.0.1"),
    ("f1", "https://f1.example"),
    ("n2", "http://10.0.0.2"),
    ("f2", "https://f2.example"),
];

#[test]
fn a_call_stays_in_the_pool_that_was_drawn_until_nobody_there_serves() {
    let routes = || MIXED.map(|(name, _)| route(name, 0)).to_vec();
    let composed = Router::Fixed(Fixed {
        hybrid_composition: true,
        offload: None,
    });
    let (catalog, offer) = scene(composed, routes(), &MIXED);
    let (by_weights, _) = scene(Router::Fixed(Fixed::default()), routes(), &MIXED);
    let mut seen = HashMap::new();
    for draw in 0..200 {
        let plan = order(&catalog, &offer, &Nothing, draw);
        let names = names(&plan);
        let pools: Vec<char> = names.iter().filter_map(|name| name.chars().next()).collect();
        assert!(
            pools == ['n', 'n', 'f', 'f'] || pools == ['f', 'f', 'n', 'n'],
            "{names:?}"
        );
        *seen.entry(names[0].clone()).or_insert(0) += 1;
        // Who is drawn is the same.
        assert_eq!(
            super::names(&order(&by_weights, &offer, &Nothing, draw))[0],
            names[0]
        );
        let decision = plan.decision.as_deref().expect("there is a choice");
        assert_eq!(decision.replay().1, decision.order.first());
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

fn kept(input_tokens_max: Option<u64>, engine_queue_max: Option<u64>) -> Router {
    Router::Fixed(Fixed {
        hybrid_composition: false,
        offload: Some(Offload {
            endpoint: EndpointId::from("b"),
            wait_ms: 2_500,
            input_tokens_max,
            engine_queue_max,
        }),
    })
}

#[test]
fn a_leg_that_is_kept_for_calls_that_wait_is_asked_last_and_told() {
    let routes = || vec![route("a", 0), route("b", 0), route("c", 1)];
    let (catalog, offer) = scene(kept(None, None), routes(), &PUBLIC);
    for draw in 0..20 {
        let plan = order(&catalog, &offer, &Nothing, draw);
        assert_eq!(names(&plan), ["a", "c", "b"]);
        let offload = plan.offload.as_ref().expect("it may go there");
        assert_eq!(
            (offload.endpoint.as_str(), offload.wait),
            ("b", Duration::from_millis(2_500))
        );
        assert_eq!(
            excluded(plan.decision.as_deref()),
            [("b".to_owned(), Exclusion::KeptForWaiting)]
        );
    }
    // A prompt that is too long for it waits as ever.
    let (catalog, offer) = scene(kept(Some(999), None), routes(), &PUBLIC);
    assert!(order(&catalog, &offer, &Nothing, 1).offload.is_none());
    // Where nobody else is left, it takes calls like any.
    let open = Open(HashMap::from([("a", 9), ("c", 9)]));
    let plan = decide(&catalog, &offer, (&open, &Nothing), 1).expect("a plan");
    assert_eq!(names(&plan), ["b"]);
    assert!(plan.offload.is_none());
}

#[test]
fn an_engine_with_too_much_in_its_queue_is_not_waited_for() {
    let routes = || vec![route("a", 0), route("b", 0), route("c", 0)];
    let told = |queues: &[(&'static str, u64)]| {
        let (catalog, offer) = scene(kept(None, Some(3)), routes(), &PUBLIC);
        let learned = Learned {
            queues: queues.iter().copied().collect(),
            ..Learned::default()
        };
        let plan = order(&catalog, &offer, &learned, 5);
        let decision = plan.decision.as_deref().expect("somebody is left out");
        assert_eq!(decision.replay().1, decision.order.first());
        let full = excluded(Some(decision));
        let full = full
            .into_iter()
            .filter(|(_, reason)| *reason == Exclusion::EngineWait { after_ms: 0 });
        (names(&plan), full.map(|(name, _)| name).collect::<Vec<_>>())
    };
    let (names, full) = told(&[("a", 2)]);
    assert_eq!((names.len(), names[2].as_str(), full.len()), (3, "b", 0));
    let (names, full) = told(&[("a", 3)]);
    assert_eq!(
        (names, full),
        (
            vec!["c".to_owned(), "b".to_owned(), "a".to_owned()],
            vec!["a".to_owned()]
        )
    );
    let (names, full) = told(&[("a", 3), ("c", 7)]);
    assert_eq!((names[0].as_str(), full.len()), ("b", 2));
}
