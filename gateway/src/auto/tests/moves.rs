//! Tests of moves from one model to the next: services that sleep, what changes meanwhile, and limits.

use schemas::failure::Exceeded;
use schemas::limit::Standing;
use schemas::limit::layers::Scope;
use schemas::limit::limits::LimitKey;

use super::*;

#[test]
fn a_model_that_sleeps_is_passed_over_while_others_are_left_and_then_waited_for_once() {
    let asleep = |attempts| report(Outcome::UpstreamError, Some(FailureCode::ServiceWaking), attempts);
    let mut walk = World::new(&[priced("a", 1), priced("b", 2)]).walk(Strategy::Cost, 4);
    assert_eq!(next(&mut walk).as_deref(), Some("a"));
    assert!(walk.passes_sleepers());
    walk.note(&mut asleep(1));
    assert_eq!(next(&mut walk).as_deref(), Some("b"));
    assert!(walk.passes_sleepers(), "the first is woken already");
    walk.note(&mut failed(1));
    assert_eq!(next(&mut walk).as_deref(), Some("a"));
    assert!(!walk.passes_sleepers());
    let mut served = report(Outcome::Ok, None, 1);
    walk.note(&mut served);
    assert!(walk.conclude(&mut served, (false, false)));
    let failed: Vec<_> = walk
        .record()
        .candidates
        .iter()
        .map(|asked| asked.failed)
        .collect();
    assert_eq!(failed, [None, Some(FailureCode::UpstreamError)]);

    let mut late = World::new(&[priced("a", 1), priced("b", 2)]).walk(Strategy::Cost, 4);
    for name in ["a", "b", "a"] {
        assert_eq!(next(&mut late).as_deref(), Some(name));
        late.note(&mut asleep(0));
    }
    assert_eq!(next(&mut late), None, "a call waits for one service");

    let mut alone = World::new(&[priced("a", 1)]).walk(Strategy::Cost, 4);
    next(&mut alone);
    assert!(!alone.passes_sleepers(), "nobody else is there");
}

#[test]
fn what_is_configured_when_a_models_turn_comes_is_what_may_be_asked() {
    let mut world = World::new(&[priced("a", 1), priced("b", 2), priced("c", 3)]);
    let mut walk = world.walk(Strategy::Cost, 4);
    assert_eq!(next(&mut walk).as_deref(), Some("a"));
    walk.note(&mut failed(1));
    let mut moved = priced("c", 3);
    moved.routes = vec![route("elsewhere", 7)];
    for model in [&moved, &priced("new", 5)] {
        world.put(&model_key(&model.id), model);
        let endpoint_id = &model.routes[0].endpoint_id;
        world.put(&endpoint_key(endpoint_id), &endpoint(endpoint_id));
    }
    world.revision += 1;
    let gone = model_key(&ModelName::from("b"));
    world.catalog.apply(world.revision, &gone, None).expect("apply");
    let dearer = priced("a", 100);
    world.put(&model_key(&dearer.id), &dearer);

    walk.renew(&Arc::new(world.catalog.clone()), &Nothing);

    let mut asked = Vec::new();
    while let Some(way) = walk.next().cloned() {
        asked.push((
            way.model.id.to_string(),
            way.model.routes[0].endpoint_id.to_string(),
        ));
        walk.note(&mut failed(0));
    }
    let wanted = [("new", "new:o1"), ("c", "elsewhere:o1")];
    assert_eq!(
        asked,
        wanted.map(|(model, endpoint)| (model.to_owned(), endpoint.to_owned()))
    );
    let told: Vec<_> = walk
        .record()
        .candidates
        .iter()
        .map(|asked| (asked.model.as_str(), asked.failed))
        .collect();
    let failed = Some(FailureCode::UpstreamError);
    assert_eq!(
        told,
        [
            ("a", failed),
            ("b", Some(FailureCode::ModelNotFound)),
            ("c", failed),
            ("new", failed)
        ]
    );
}

#[test]
fn a_limit_that_barred_a_model_is_told_where_none_served() {
    let limit = || {
        let mut failure = Failure::new(FailureCode::DailyLimitExceeded, "enough");
        failure.exceeded = Some(Box::new(Exceeded {
            key: LimitKey::DailyCalls,
            scope: Scope::Key,
            model: None,
            standing: Standing {
                limit: 2,
                current: 2,
                remaining: 0,
            },
            reset_at: None,
            reset_seconds: None,
            is_excessive: false,
        }));
        failure
    };
    for (attempts, outcome) in [(1, Outcome::UpstreamError), (0, Outcome::Rejected)] {
        let mut walk = World::new(&[priced("a", 1), priced("b", 2)]).walk(Strategy::Cost, 4);
        next(&mut walk);
        let mut last = failed(attempts);
        walk.note(&mut last);
        next(&mut walk);
        walk.barred(limit());
        assert_eq!(next(&mut walk), None);

        assert!(!walk.conclude(&mut last, (false, true)));

        let failure = last.failure.expect("it failed");
        assert_eq!(
            (failure.code, failure.status),
            (FailureCode::DailyLimitExceeded, 429)
        );
        assert!(failure.exceeded.is_some());
        assert_eq!(last.outcome, outcome);
    }
}
