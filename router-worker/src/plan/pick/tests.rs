//! Who is asked first: by session, by what there is to read, by weight.

use std::collections::HashMap;

use schemas::affinity::Level;
use schemas::affinity::prefill::{Prefill, Prompt, Terms};
use schemas::affinity::record::Record;
use schemas::balance::Algorithm;
use schemas::balance::decision::Decision;
use schemas::balance::snapshot::{self, Engine, Prefix};
use schemas::catalog::{Catalog, Endpoint, Route};
use schemas::id::EndpointId;
use schemas::time::Timestamp;

use crate::plan::outlook::Outlook;
use crate::plan::{Plan, Reading, Session, plan};
use crate::testing::{endpoint, model, offer, records, route};

use super::*;

/// Circuits that are open.
struct Open(Vec<&'static str>);

impl Admission for Open {
    fn admits(&self, backend: &BackendId) -> Result<(), u64> {
        if self.0.contains(&backend.as_str()) {
            Err(9)
        } else {
            Ok(())
        }
    }
}

/// Calls that run at backends.
struct Calls<'a>(&'a HashMap<&'static str, u64>);

impl Outlook for Calls<'_> {
    fn calls(&self, backend: &BackendId) -> u64 {
        self.0.get(backend.as_str()).copied().unwrap_or(0)
    }
}

/// Anything may be known of a backend, always the same.
struct Dice(u64);

impl Dice {
    fn of(&self, name: &str, salt: u64) -> u64 {
        let seed = name.bytes().fold(self.0 ^ salt, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Draws::new(seed).next()
    }
}

impl Outlook for Dice {
    fn calls(&self, backend: &BackendId) -> u64 {
        self.of(backend.as_str(), 1) % 4
    }

    fn engine(&self, backend: &BackendId) -> Option<Engine> {
        let draw = self.of(backend.as_str(), 2);
        (!draw.is_multiple_of(3)).then_some(Engine {
            waiting: draw % 4,
            sent: draw % 3,
            kv_percent_milli: draw % 100_001,
        })
    }

    fn ttft_us(&self, backend: &BackendId) -> Option<u64> {
        let draw = self.of(backend.as_str(), 3);
        (!draw.is_multiple_of(3)).then_some(draw % 1_000_000)
    }

    fn banned_ms(&self, backend: &BackendId) -> Option<u64> {
        self.of(backend.as_str(), 4).is_multiple_of(8).then_some(1_000)
    }

    fn turn(&self, endpoint: &EndpointId) -> u64 {
        self.of(endpoint.as_str(), 5) % 100
    }
}

/// What is known when somebody calls.
struct World {
    endpoints: Vec<Endpoint>,
    routes: Vec<Route>,
    calls: HashMap<&'static str, u64>,
    open: Open,
    prefill: Prefill,
    tokens: u64,
}

impl World {
    /// One endpoint `e` with three backends.
    fn group() -> Self {
        Self::of(
            vec![endpoint("e", &["http://0", "http://1", "http://2"])],
            vec![route("e", 0)],
        )
    }

    /// Endpoints `a` and `b` with the same weight, `c` behind them.
    fn legs() -> Self {
        let endpoints = ["a", "b", "c"].map(|id| endpoint(id, &["http://u"]));
        Self::of(
            endpoints.into(),
            vec![route("a", 0), route("b", 0), route("c", 1)],
        )
    }

    fn of(endpoints: Vec<Endpoint>, routes: Vec<Route>) -> Self {
        Self {
            endpoints,
            routes,
            calls: HashMap::new(),
            open: Open(Vec::new()),
            prefill: Prefill::new(Terms::default()),
            tokens: 10,
        }
    }

    /// The plan of a call whose session is at a backend, or nowhere.
    fn plan(&self, found: Option<&str>, draw: u64) -> Plan {
        self.plan_by(&Calls(&self.calls), found, draw)
    }

    /// The same by what somebody else knows of backends.
    fn plan_by(&self, outlook: &dyn Outlook, found: Option<&str>, draw: u64) -> Plan {
        let model = model(self.routes.clone());
        let mut catalog = Catalog::default();
        for record in records(&self.endpoints, &model) {
            let applied = catalog.apply(record.revision, &record.key, record.value.as_deref());
            applied.expect("a record");
        }
        let record = found.map(record);
        let prompt = Prompt {
            caller: "k".into(),
            conversation: None,
            tokens: self.tokens,
        };
        let sight = Sight {
            prefix: Some(Prefix {
                instructions: draw % 5,
                conversation: draw % 7,
            }),
            terms: &snapshot::Terms::default(),
            outlook,
            circuits: &self.open,
            session: Some(Session {
                found: record.as_ref().map(|record| (Level::L2, record)),
            }),
            reading: Some(Reading {
                prefill: &self.prefill,
                prompt: Some(&prompt),
                now_ms: 0,
            }),
        };
        plan(&catalog, &offer(&model), &sight, draw).expect("a plan")
    }

    /// How often each backend is asked first in a thousand calls, and the one verdict about all.
    fn firsts(&self, found: Option<&str>) -> (HashMap<String, u32>, String) {
        let mut firsts = HashMap::new();
        let mut verdicts = Vec::new();
        for draw in 0..1_000 {
            let plan = self.plan(found, draw);
            *firsts.entry(order(&plan)[0].clone()).or_default() += 1;
            verdicts.push(plan.verdict.expect("a verdict").to_string());
        }
        verdicts.dedup();
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        (firsts, verdicts.remove(0))
    }

    /// A backend has a prompt to read.
    fn reads(&mut self, backend: &str, tokens: u64) {
        let prompt = Prompt {
            caller: "other".into(),
            conversation: None,
            tokens,
        };
        self.prefill.begin(prompt, &BackendId::from(backend), 0);
    }
}

fn record(backend: &str) -> Record {
    Record::new(
        EndpointId::from("e"),
        BackendId::from(backend),
        Timestamp::default(),
    )
}

fn order(plan: &Plan) -> Vec<String> {
    let candidates = plan.candidates.iter();
    candidates
        .map(|candidate| candidate.backend_id().to_string())
        .collect()
}

#[test]
fn a_session_goes_where_it_is_and_its_siblings_are_its_ways_out() {
    let world = World::group();

    let (firsts, verdict) = world.firsts(Some("e#1"));

    assert_eq!(firsts, HashMap::from([("e#1".to_owned(), 1_000)]));
    assert_eq!(verdict, "hit:l2");
    let mut all = order(&world.plan(Some("e#1"), 7));
    all.sort();
    assert_eq!(all, ["e#0", "e#1", "e#2"]);
}

#[test]
fn a_session_that_nobody_knows_goes_where_the_weights_say() {
    let (firsts, verdict) = World::group().firsts(None);

    assert_eq!(verdict, "miss");
    assert_eq!(firsts.len(), 3);
    assert!(
        firsts.values().all(|count| (270..400).contains(count)),
        "{firsts:?}"
    );
}

#[test]
fn a_session_is_moved_when_both_margins_are_reached_and_to_one_that_has_room() {
    let mut world = World::group();
    world.calls = HashMap::from([("e#0", 12), ("e#1", 8), ("e#2", 9)]);

    let (firsts, verdict) = world.firsts(Some("e#0"));

    assert_eq!(verdict, "overload:l2");
    assert!(!firsts.contains_key("e#0"), "{firsts:?}");
    assert_eq!(firsts.len(), 2);

    // Another one that has as much to do is no place to go to.
    world.calls = HashMap::from([("e#0", 12), ("e#1", 12), ("e#2", 8)]);
    let (firsts, _) = world.firsts(Some("e#0"));
    assert_eq!(firsts, HashMap::from([("e#2".to_owned(), 1_000)]));
    // Whom it left can still serve, if nobody else does.
    assert!(order(&world.plan(Some("e#0"), 1)).contains(&"e#0".to_owned()));
}

#[test]
fn one_margin_alone_moves_no_session() {
    let mut world = World::group();
    for (sticky, others) in [(3, 0), (11, 8), (40, 30)] {
        world.calls = HashMap::from([("e#0", sticky), ("e#1", others), ("e#2", others)]);

        let (firsts, verdict) = world.firsts(Some("e#0"));

        assert_eq!(
            (firsts.len(), verdict.as_str()),
            (1, "hit:l2"),
            "{sticky} {others}"
        );
    }
}

#[test]
fn a_session_whose_backend_has_too_much_to_read_is_moved() {
    let mut world = World::group();
    world.reads("e#0", 150_001);

    let (firsts, verdict) = world.firsts(Some("e#0"));

    assert_eq!(verdict, "overload:l2");
    assert!(!firsts.contains_key("e#0"), "{firsts:?}");
}

#[test]
fn a_session_whose_backend_cannot_be_asked_is_stale() {
    let mut world = World::group();
    world.open = Open(vec!["e#1"]);
    let (firsts, verdict) = world.firsts(Some("e#1"));
    assert_eq!((firsts.len(), verdict.as_str()), (2, "stale:l2"));

    let (_, verdict) = world.firsts(Some("gone#1"));
    assert_eq!(verdict, "stale:l2");
}

#[test]
fn a_way_out_is_no_place_to_stay_once_those_before_it_can_be_asked_again() {
    let mut world = World::legs();
    let (firsts, verdict) = world.firsts(Some("c"));
    assert_eq!(verdict, "stale:l2");
    assert!(!firsts.contains_key("c"), "{firsts:?}");

    world.open = Open(vec!["a", "b"]);
    let (firsts, verdict) = world.firsts(Some("c"));
    assert_eq!(firsts, HashMap::from([("c".to_owned(), 1_000)]));
    assert_eq!(verdict, "hit:l2");
}

#[test]
fn sessions_stay_among_legs_whatever_their_weights() {
    let mut world = World::legs();
    world.routes[0].weight_micro = 1;

    assert_eq!(order(&world.plan(Some("a"), 3)), ["a", "b", "c"]);
    assert_eq!(order(&world.plan(Some("b"), 3)), ["b", "a", "c"]);
}

#[test]
fn the_weights_are_of_legs_and_not_of_their_backends() {
    let endpoints = vec![
        endpoint("one", &["http://0"]),
        endpoint("many", &["http://0", "http://1", "http://2"]),
    ];
    let world = World::of(endpoints, vec![route("one", 0), route("many", 0)]);

    let (firsts, _) = world.firsts(None);

    assert!((430..570).contains(&firsts["one"]), "{firsts:?}");
    assert_eq!(firsts.len(), 4);
}

#[test]
fn of_two_that_were_drawn_the_one_with_less_to_read_is_asked_once_that_is_much() {
    let mut world = World::legs();
    world.reads("a", 49_999);
    let (even, _) = world.firsts(None);
    assert!((430..570).contains(&even["a"]), "{even:?}");

    world.reads("a", 1);
    let (uneven, _) = world.firsts(None);

    // Only when it is drawn twice.
    assert!((200..300).contains(&uneven["a"]), "{uneven:?}");
}

#[test]
fn an_elephant_does_not_queue_up_behind_another_unless_it_must() {
    let mut world = World::legs();
    world.reads("a", 200_000);
    world.tokens = 200_000;
    let (firsts, _) = world.firsts(None);
    assert_eq!(firsts, HashMap::from([("b".to_owned(), 1_000)]));

    world.reads("b", 200_000);
    let (firsts, _) = world.firsts(None);
    assert_eq!(firsts.len(), 2, "{firsts:?}");
}

#[test]
fn ten_thousand_plans_begin_with_what_their_events_say_again() {
    let names = ["e#0", "e#1", "f#0", "f#1", "f#2", "g"];
    let mut told = 0;
    for draw in 0..10_000_u64 {
        let mut dice = Draws::new(draw);
        let algorithm = |dice: &mut Draws| Algorithm::ALL[dice.below(Algorithm::ALL.len())];
        let mut endpoints = vec![
            endpoint("e", &["http://0", "http://1"]),
            endpoint("f", &["http://0", "http://1", "http://2"]),
            endpoint("g", &["http://0"]),
        ];
        for endpoint in &mut endpoints {
            endpoint.algorithm = algorithm(&mut dice);
        }
        let mut world = World::of(endpoints, vec![route("e", 0), route("f", 0), route("g", 1)]);
        world.routes[0].weight_micro = 1 + dice.next() % 1_000_000;
        world.open = Open(names.into_iter().filter(|_| dice.below(5) == 0).collect());
        let found = names.get(dice.below(12)).copied();
        if world.open.0.len() == names.len() {
            continue;
        }

        let plan = world.plan_by(&Dice(draw), found, dice.next());

        let Some(decision) = plan.decision.as_deref() else {
            continue;
        };
        let event = serde_json::to_string(decision).expect("plain data");
        let read: Decision = serde_json::from_str(&event).expect("as it was written");
        let first = plan.candidates[0].backend_id();
        let (choice, again) = read.replay();
        assert_eq!(again, Some(&first), "{event}");
        if decision.snapshot.is_some() {
            assert_eq!(choice.verdict, plan.verdict, "{event}");
        }
        told += 1;
    }
    assert!(told > 9_900, "{told}");
}
