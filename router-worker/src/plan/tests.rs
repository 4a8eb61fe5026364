//! Whom a plan asks, and whom it leaves out.

use std::collections::HashMap;

use schemas::catalog::{Endpoint, Model, Route};
use schemas::id::EndpointId;

use crate::testing::{endpoint, model, offer, records, route};

use super::*;

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

/// The plan where nobody has anything to do and no session is looked for.
fn plan(catalog: &Catalog, offer: &Offer, circuits: &Open, draw: u64) -> Result<Plan, Failure> {
    let sight = Sight {
        circuits,
        session: None,
        margins: &Margins::default(),
        calls: &|_| 0,
        reading: None,
    };
    super::plan(catalog, offer, &sight, draw)
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
    assert_eq!(planned.excluded, [(1, Exclusion::Modality)]);
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
    assert_eq!(planned.excluded, [(0, Exclusion::Disabled)]);
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
