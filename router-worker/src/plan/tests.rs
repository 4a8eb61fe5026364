//! Whom a plan asks, and whom it leaves out.

use std::cell::Cell;
use std::collections::HashMap;

use schemas::balance::Algorithm;
use schemas::catalog::{Endpoint, Model, Route};
use schemas::id::EndpointId;

use crate::testing::{endpoint, model, offer, records, route};

use super::outlook::Nothing;
use super::*;

mod routers;

/// Circuits that are open, with the milliseconds until they may be probed.
#[derive(Default)]
struct Open(HashMap<&'static str, u64>);

impl Admission for Open {
    fn admits(&self, backend: &BackendId) -> Result<(), u64> {
        self.0
            .get(backend.as_str())
            .map_or(Ok(()), |retry_in_ms| Err(*retry_in_ms))
    }
}

/// What is known of some backends.
#[derive(Default)]
struct Known {
    banned: Vec<&'static str>,
    spared: HashMap<&'static str, Spared>,
    turns: Cell<u64>,
}

impl Outlook for Known {
    fn banned_ms(&self, backend: &BackendId) -> Option<u64> {
        self.banned.contains(&backend.as_str()).then_some(14_000)
    }

    fn spared(&self, backend: &BackendId) -> Option<Spared> {
        self.spared.get(backend.as_str()).copied()
    }

    fn turn(&self, _: &EndpointId) -> u64 {
        self.turns.get()
    }

    fn take_turn(&self, _: &EndpointId, seen: u64) -> bool {
        let is_mine = self.turns.get() == seen;
        self.turns.set(seen + 1);
        is_mine
    }
}

/// The plan where nobody has anything to do and no session is looked for.
fn plan(catalog: &Catalog, offer: &Offer, circuits: &Open, draw: u64) -> Result<Plan, Failure> {
    decide(catalog, offer, (circuits, &Nothing), draw).map_err(|nobody| nobody.failure)
}

/// The same with what is known of backends.
fn decide(
    catalog: &Catalog,
    offer: &Offer,
    (circuits, outlook): (&Open, &dyn Outlook),
    draw: u64,
) -> Result<Plan, Box<Nobody>> {
    let sight = Sight {
        circuits,
        session: None,
        prefix: None,
        terms: &Terms::default(),
        outlook,
        reading: None,
    };
    super::plan(catalog, offer, &sight, draw)
}

/// Who was left out, and why.
fn excluded(decision: Option<&Decision>) -> Vec<(String, Exclusion)> {
    let excluded = decision.map_or(&[][..], |decision| &decision.excluded);
    let named = |one: &Excluded| {
        let name = one
            .backend
            .as_ref()
            .map_or(one.endpoint.as_str(), BackendId::as_str);
        (name.to_owned(), one.reason)
    };
    excluded.iter().map(named).collect()
}

fn catalog(endpoints: &[Endpoint], model: &Model) -> Catalog {
    let mut catalog = Catalog::default();
    for record in records(endpoints, model) {
        catalog
            .apply(record.revision, &record.key, record.value.as_deref())
            .expect("a record");
    }
    catalog
}

fn weighted(endpoint: &str, priority: i32, weight_micro: u64) -> Route {
    Route {
        weight_micro,
        ..route(endpoint, priority)
    }
}

/// The endpoints of the plan in order, for one draw.
fn order_of(routes: &[Route], open: &Open, draw: u64) -> Result<Vec<String>, Failure> {
    let endpoints: Vec<Endpoint> = routes
        .iter()
        .map(|route| endpoint(route.endpoint_id.as_str(), &["http://u"]))
        .collect();
    let model = model(routes.to_vec());
    let planned = plan(&catalog(&endpoints, &model), &offer(&model), open, draw)?;
    Ok(names(&planned))
}

fn names(plan: &Plan) -> Vec<String> {
    plan.candidates
        .iter()
        .map(|candidate| candidate.backend_id().as_str().to_owned())
        .collect()
}

#[test]
fn priority_groups_come_in_order_whatever_their_weights() {
    let routes = [weighted("c", 2, 9), weighted("a", 0, 1), weighted("b", 1, 5)];

    for draw in 0..50 {
        assert_eq!(
            order_of(&routes, &Open::default(), draw).expect("a plan"),
            ["a", "b", "c"]
        );
    }
}

#[test]
fn the_first_of_a_group_is_drawn_by_weight_and_the_rest_stay_in_their_order() {
    let routes = [
        weighted("a", 0, 900_000),
        weighted("b", 0, 100_000),
        weighted("c", 0, 0),
    ];
    let endpoints = ["a", "b", "c"].map(|id| endpoint(id, &["http://u"]));
    let model = model(routes.to_vec());
    let (catalog, offer) = (catalog(&endpoints, &model), offer(&model));
    let draws = 10_000;

    let mut first_b = 0;
    for draw in 0..draws {
        let order = names(&plan(&catalog, &offer, &Open::default(), draw).expect("a plan"));
        assert_eq!(order.len(), 2, "weight 0 is never used");
        if order == ["b", "a"] {
            first_b += 1;
        }
    }

    assert!((880..1_120).contains(&first_b), "{first_b} of {draws}");
}

#[test]
fn huge_weights_are_drawn_without_overflow() {
    let routes = [
        weighted("a", 0, u64::MAX),
        weighted("b", 0, u64::MAX),
        weighted("c", 0, u64::MAX),
    ];

    for draw in [0, 1, u64::MAX / 2, u64::MAX] {
        assert_eq!(
            order_of(&routes, &Open::default(), draw).expect("a plan").len(),
            3
        );
    }
}

#[test]
fn open_circuits_are_left_out_and_when_all_are_the_soonest_tells_when_to_return() {
    let routes = [weighted("a", 0, 1), weighted("b", 1, 1)];
    let one = Open(HashMap::from([("a", 20_000)]));
    let both = Open(HashMap::from([("a", 20_000), ("b", 4_100)]));

    assert_eq!(order_of(&routes, &one, 7).expect("a plan"), ["b"]);
    let refused = order_of(&routes, &both, 7).expect_err("all are open");

    assert_eq!(refused.code, FailureCode::AllCircuitsOpen);
    assert_eq!(refused.retry_after_seconds, Some(5));
}

#[test]
fn a_kind_of_input_that_a_route_does_not_take_excludes_it_even_as_a_fallback() {
    let mut seeing = route("vision", 0);
    seeing.input_modalities = Modalities::TEXT | Modalities::IMAGE;
    let model = model(vec![seeing, route("text", 1)]);
    let endpoints = [endpoint("vision", &["http://u"]), endpoint("text", &["http://u"])];
    let catalog = catalog(&endpoints, &model);
    let mut offer = offer(&model);
    offer.requirements.modalities = Modalities::TEXT | Modalities::IMAGE;

    let planned = plan(&catalog, &offer, &Open::default(), 1).expect("a plan");
    let down = Open(HashMap::from([("vision", 1_000)]));
    let refused = plan(&catalog, &offer, &down, 1).expect_err("the text route is no way out");

    assert_eq!(names(&planned), ["vision"]);
    assert_eq!(
        excluded(planned.decision.as_deref()),
        [("text".to_owned(), Exclusion::Modality)]
    );
    assert_eq!(refused.status, 503);
}

#[test]
fn a_switched_off_provider_is_neither_first_nor_fallback() {
    let mut off = endpoint("a", &["http://u"]);
    off.disabled = true;
    let model = model(vec![route("a", 0), route("b", 1)]);
    let catalog = catalog(&[off, endpoint("b", &["http://u"])], &model);

    let planned = plan(&catalog, &offer(&model), &Open::default(), 1).expect("a plan");

    assert_eq!(names(&planned), ["b"]);
    assert_eq!(
        excluded(planned.decision.as_deref()),
        [("a".to_owned(), Exclusion::EndpointDisabled)]
    );
}

#[test]
fn only_what_the_gate_admitted_is_asked() {
    let model = model(vec![route("a", 0), route("b", 0)]);
    let catalog = catalog(
        &[endpoint("a", &["http://u"]), endpoint("b", &["http://u"])],
        &model,
    );
    let mut offer = offer(&model);
    offer.candidates = [EndpointId::from("b"), EndpointId::from("gone")].into();

    let planned = plan(&catalog, &offer, &Open::default(), 1).expect("a plan");
    offer.candidates = [].into();
    let refused = plan(&catalog, &offer, &Open::default(), 1).expect_err("nothing is admitted");

    assert_eq!(names(&planned), ["b"]);
    assert_eq!(refused.code, FailureCode::NoBackendsAvailable);
}

#[test]
fn a_pin_passes_an_open_circuit_and_has_no_fallback() {
    let model = model(vec![route("a", 0), weighted("b", 1, 1), weighted("z", 1, 0)]);
    let endpoints = ["a", "b", "z"].map(|id| endpoint(id, &["http://u"]));
    let catalog = catalog(&endpoints, &model);
    let open = Open(HashMap::from([("b", 9)]));
    let pinned = |pin: &str| {
        let mut offer = offer(&model);
        offer.pin = Some(pin.into());
        plan(&catalog, &offer, &open, 1)
    };

    for pin in ["b", "provider-of-b"] {
        let planned = pinned(pin).expect("a plan");
        assert_eq!(names(&planned), ["b"]);
        assert!(planned.candidates[0].bypass);
    }
    for pin in ["z", "nobody"] {
        assert_eq!(
            pinned(pin).expect_err("no such pin").code,
            FailureCode::PinNotFound
        );
    }
}

#[test]
fn every_backend_of_an_endpoint_is_a_candidate_and_each_comes_first_about_as_often() {
    let model = model(vec![route("a", 0)]);
    let catalog = catalog(&[endpoint("a", &["http://u1", "http://u2", "http://u3"])], &model);
    let mut firsts: HashMap<String, u32> = HashMap::new();
    let offer = offer(&model);

    for draw in 0..3_000 {
        let order = names(&plan(&catalog, &offer, &Open::default(), draw).expect("a plan"));
        assert_eq!(order.len(), 3);
        *firsts.entry(order[0].clone()).or_default() += 1;
    }

    assert_eq!(firsts.len(), 3);
    assert!(
        firsts.values().all(|count| (850..1_150).contains(count)),
        "{firsts:?}"
    );
}

#[test]
fn a_last_backend_is_tried_although_its_circuit_is_open_where_that_is_configured() {
    let mut rescued = endpoint("a", &["http://u"]);
    rescued.single_backend_rescue = true;
    let model = model(vec![route("a", 0)]);
    let open = Open(HashMap::from([("a", 9)]));

    let planned = plan(&catalog(&[rescued], &model), &offer(&model), &open, 1).expect("a plan");

    assert_eq!(names(&planned), ["a"]);
    assert!(planned.candidates[0].bypass);
}

#[test]
fn an_offer_is_planned_with_what_it_was_admitted_to_where_the_newest_has_none_of_it() {
    let of = |routes: &[Route], endpoints: &[&str]| {
        let endpoints: Vec<Endpoint> = endpoints.iter().map(|id| endpoint(id, &["http://u"])).collect();
        Arc::new(catalog(&endpoints, &model(routes.to_vec())))
    };
    let admitted = [route("a", 0), route("b", 1)];
    let asked = offer(&model(admitted.to_vec()));
    let old = of(&admitted, &["a", "b"]);
    let chosen = |newest: &Arc<Catalog>, recent: &[&Arc<Catalog>], asked: &Offer| {
        let recent = || recent.iter().map(|one| Arc::clone(one)).collect();
        super::snapshot(Arc::clone(newest), recent, asked)
    };
    let is_old = |newest: &Arc<Catalog>, asked: &Offer| Arc::ptr_eq(&chosen(newest, &[&old], asked), &old);

    // Where anything is left of what was admitted, the newest counts.
    let less = of(&[route("b", 0), route("c", 0)], &["b", "c"]);
    assert!(!is_old(&less, &asked));
    // Nothing is: other ways, a model that is gone, an endpoint that is gone, a way that is to be used no more.
    let weightless = [weighted("a", 0, 0), route("c", 0)];
    let foreign = of(&[route("c", 0)], &["c"]);
    let lost = [
        Arc::clone(&foreign),
        Arc::new(Catalog::default()),
        of(&admitted, &[]),
        of(&weightless, &["a", "c"]),
    ];
    for newest in &lost {
        assert!(is_old(newest, &asked));
        assert!(Arc::ptr_eq(&chosen(newest, &[], &asked), newest));
        let nobody = chosen(newest, &[&foreign], &asked);
        assert!(
            Arc::ptr_eq(&nobody, newest),
            "who has nothing either is of no use"
        );
    }
    // Of those that have it, the newest.
    let older = of(&admitted, &["a", "b"]);
    assert!(Arc::ptr_eq(
        &chosen(&foreign, &[&foreign, &old, &older], &asked),
        &old
    ));

    let pinned = Offer {
        pin: Some("a".into()),
        ..asked
    };
    assert!(is_old(&less, &pinned), "a pin asks for one way alone");
}

#[test]
fn one_way_and_nobody_left_out_is_not_worth_a_word() {
    let model = model(vec![route("a", 0)]);
    let catalog = catalog(&[endpoint("a", &["http://u"])], &model);

    let planned = plan(&catalog, &offer(&model), &Open::default(), 1).expect("a plan");

    assert!(planned.decision.is_none());
}

#[test]
fn a_decision_tells_the_order_and_what_the_first_was_chosen_from() {
    let routes = [weighted("a", 0, 3), weighted("b", 0, 1), weighted("c", 1, 1)];
    let endpoints = ["a", "b", "c"].map(|id| endpoint(id, &["http://u"]));
    let model = model(routes.to_vec());
    let (catalog, offer) = (catalog(&endpoints, &model), offer(&model));

    for draw in 0..200 {
        let planned = plan(&catalog, &offer, &Open::default(), draw).expect("a plan");
        let decision = planned.decision.as_deref().expect("it is told");
        let order: Vec<&str> = decision.order.iter().map(BackendId::as_str).collect();
        assert_eq!(order, names(&planned));
        let snapshot = decision.snapshot.as_ref().expect("of two");
        assert_eq!(snapshot.candidates.len(), 2, "what is behind them is no choice");
        assert_eq!(decision.replay().1, decision.order.first());
    }
}

#[test]
fn whoever_could_not_be_connected_to_is_asked_after_all_others_unless_there_are_none() {
    let routes = [weighted("a", 0, 1), weighted("b", 0, 1), weighted("c", 1, 1)];
    let endpoints = ["a", "b", "c"].map(|id| endpoint(id, &["http://u"]));
    let model = model(routes.to_vec());
    let (catalog, offer) = (catalog(&endpoints, &model), offer(&model));
    let order = |banned: &[&'static str], draw| {
        let known = Known {
            banned: banned.to_vec(),
            ..Known::default()
        };
        let planned = decide(&catalog, &offer, (&Open::default(), &known), draw).expect("a plan");
        (names(&planned), excluded(planned.decision.as_deref()))
    };

    for draw in 0..50 {
        let ban = Exclusion::SoftBan { for_ms: 14_000 };
        let (names, told) = order(&["a"], draw);
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(told, [("a".to_owned(), ban)]);
        assert_eq!(order(&["a", "b"], draw).0, ["c", "a", "b"]);
        let (names, told) = order(&["a", "b", "c"], draw);
        assert_eq!((names.len(), names[2].as_str()), (3, "c"), "as if nobody were");
        assert!(told.is_empty());
    }
}

#[test]
fn every_reason_to_leave_somebody_out_is_told_also_when_nobody_is_left() {
    let mut off = endpoint("off", &["http://u"]);
    off.disabled = true;
    let routes = vec![
        route("gone", 0),
        route("off", 0),
        weighted("zero", 0, 0),
        weighted("sick", 0, 1),
        weighted("hot", 1, 1),
        weighted("open", 1, 1),
        weighted("well", 2, 1),
    ];
    let model = model(routes);
    let mut endpoints: Vec<Endpoint> = ["zero", "sick", "hot", "open", "well"]
        .map(|id| endpoint(id, &["http://u"]))
        .into();
    endpoints.push(off);
    let (catalog, offer) = (catalog(&endpoints, &model), offer(&model));
    let known = Known {
        spared: HashMap::from([("sick", Spared::Unhealthy), ("hot", Spared::HotGpu)]),
        ..Known::default()
    };
    let told = |open: &[&'static str]| {
        let open = Open(open.iter().map(|backend| (*backend, 900)).collect());
        match decide(&catalog, &offer, (&open, &known), 1) {
            Ok(planned) => (names(&planned), excluded(planned.decision.as_deref())),
            Err(nobody) => (Vec::new(), excluded(nobody.decision.as_deref())),
        }
    };
    let mut expected = vec![
        ("gone".to_owned(), Exclusion::UnknownEndpoint),
        ("off".to_owned(), Exclusion::EndpointDisabled),
        ("zero".to_owned(), Exclusion::ConfiguredZero),
        ("sick".to_owned(), Exclusion::Unhealthy),
        ("hot".to_owned(), Exclusion::HotGpu),
        ("open".to_owned(), Exclusion::CircuitOpen { retry_in_ms: 900 }),
    ];

    assert_eq!(told(&["open"]), (vec!["well".to_owned()], expected.clone()));
    expected.push(("well".to_owned(), Exclusion::CircuitOpen { retry_in_ms: 900 }));
    assert_eq!(told(&["open", "well"]), (Vec::new(), expected));
}

#[test]
fn what_is_too_hot_is_not_asked_even_when_nobody_else_is_left() {
    let mut rescued = endpoint("a", &["http://u"]);
    rescued.single_backend_rescue = true;
    let model = model(vec![route("a", 0)]);
    let (catalog, offer) = (catalog(&[rescued], &model), offer(&model));
    let with = |spared| {
        let known = Known {
            spared: HashMap::from([("a", spared)]),
            ..Known::default()
        };
        decide(&catalog, &offer, (&Open::default(), &known), 1)
    };

    let refused = with(Spared::HotGpu).expect_err("too hot");
    assert_eq!(refused.failure.code, FailureCode::NoBackendsAvailable);
    assert_eq!(names(&with(Spared::Unhealthy).expect("it may work")), ["a"]);
}

#[test]
fn backends_that_are_asked_in_turn_are_asked_in_turn_whatever_the_draws() {
    let mut in_turn = endpoint("a", &["http://0", "http://1", "http://2"]);
    in_turn.algorithm = Algorithm::RoundRobin;
    let model = model(vec![route("a", 0)]);
    let (catalog, offer) = (catalog(&[in_turn], &model), offer(&model));
    let known = Known::default();
    let order = |open: &Open, draw| {
        let planned = decide(&catalog, &offer, (open, &known), draw).expect("a plan");
        names(&planned)
    };

    let firsts: Vec<String> = (0..6)
        .map(|draw| order(&Open::default(), draw * 71).remove(0))
        .collect();
    assert_eq!(firsts, ["a#0", "a#1", "a#2", "a#0", "a#1", "a#2"]);

    let open = Open(HashMap::from([("a#1", 9)]));
    let firsts: Vec<String> = (0..4).map(|draw| order(&open, draw).remove(0)).collect();
    assert_eq!(firsts, ["a#0", "a#2", "a#0", "a#2"]);
}

#[test]
fn who_may_only_be_asleep_is_woken_though_nobody_asks_it_and_tried_when_nobody_else_is_left() {
    let mut asleep = endpoint("e1", &["http://u1"]);
    asleep.wake = Some(Arc::new(schemas::wake::Wake::VllmSleep(
        schemas::wake::VllmSleep::default(),
    )));
    let model = model(vec![route("e1", 0), route("e2", 1)]);
    let catalog = catalog(&[asleep, endpoint("e2", &["http://u2"])], &model);
    let sleeper = |open: &[(&'static str, u64)]| {
        let open = Open(open.iter().copied().collect());
        let plan = plan(&catalog, &offer(&model), &open, 7).expect("a plan");
        let first = plan.candidates[0].endpoint.id.to_string();
        (
            first,
            plan.sleeper.map(|candidate| candidate.endpoint.id.to_string()),
        )
    };

    assert_eq!(sleeper(&[]), ("e1".to_owned(), None));
    assert_eq!(sleeper(&[("e1", 9)]), ("e2".to_owned(), Some("e1".to_owned())));
    assert_eq!(sleeper(&[("e2", 9)]), ("e1".to_owned(), None));
    assert_eq!(sleeper(&[("e1", 9), ("e2", 9)]), ("e1".to_owned(), None));
}
