//! Pools: groups of routers that stand apart, near engines that nobody else reaches, and that know of the catalogue
//! what their own calls need. A call whose routes name several pools goes to one after the other, on its **ways**; with a
//! way goes the **part** of the catalogue that the pool's routers must know to run it. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::auto::moves_on;
use crate::catalog::{Catalog, Endpoint, Model, Route};
use crate::frame::Report;
use crate::id::{EndpointId, ModelName, PoolName, TenantId};
use crate::outcome::Outcome;

/// The pool of routes that name none: whichever the gateway's own node is in.
pub const UNNAMED: &str = "default";

/// Where a gateway stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The pool of its node.
    pub pool: PoolName,
    /// A router of that pool is in the same process.
    pub has_router: bool,
}

/// The candidates of a call that one pool runs.
#[derive(Debug, Clone)]
pub struct Way {
    /// The pool.
    pub pool: PoolName,
    /// Its candidates.
    pub candidates: Arc<[EndpointId]>,
    /// What its routers must know; `None` where they follow the catalogue themselves.
    pub part: Option<Arc<Part>>,
}

/// What a pool's routers must know of the catalogue to run a call: the model with the routes that are theirs, and the
/// endpoints behind these. Nothing of tenants, keys, or other pools is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The model.
    pub model: Model,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Part {
    /// The part that calls to `candidates` of a model need.
    pub fn of(catalog: &Catalog, model: &Model, candidates: &[EndpointId]) -> Self {
        let mut part = Model {
            aliases: Vec::new(),
            pricing: Vec::new(),
            tenants: None,
            ..model.clone()
        };
        part.routes
            .retain(|route| candidates.contains(&route.endpoint_id));
        let endpoints = candidates.iter().filter_map(|id| catalog.endpoint(id));
        let told = endpoints.map(|endpoint| Endpoint {
            disabled: catalog.is_off(endpoint),
            ..Endpoint::clone(endpoint)
        });
        Self {
            model: part,
            endpoints: told.collect(),
        }
    }
}

/// What decides between pools of one priority: the same for all calls of a session, so that it stays in one of them.
pub fn draw(session: Option<&str>, (tenant, model): (&TenantId, &ModelName), drawn: u64) -> u64 {
    let Some(session) = session else {
        return drawn;
    };
    let mut digest = Sha256::new();
    for part in [tenant.as_str(), model.as_str(), session] {
        digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let mut first = [0; 8];
    first
        .iter_mut()
        .zip(digest.finalize())
        .for_each(|(to, from)| *to = from);
    u64::from_be_bytes(first)
}

/// The ways of a call to `candidates` of a model, in the order in which they are tried; none where a router that knows
/// the whole catalogue runs all of them.
pub fn ways(
    (catalog, model): (&Catalog, &Model),
    candidates: &[EndpointId],
    home: &Home,
    draw: u64,
) -> Vec<Way> {
    let named = |route: &Route| route.pool.as_str() != UNNAMED && route.pool != home.pool;
    let is_told = !home.has_router && home.pool.as_str() != UNNAMED;
    let asked = |route: &&Route| candidates.contains(&route.endpoint_id);
    if !is_told && !model.routes.iter().filter(asked).any(named) {
        return Vec::new();
    }
    let routes: Vec<&Route> = model.routes.iter().filter(asked).collect();
    let pool = |route: &Route| if named(route) { &route.pool } else { &home.pool }.clone();
    let wishes: Vec<Wish> = routes
        .iter()
        .map(|route| Wish {
            pool: pool(route),
            priority: route.priority,
            weight: route.weight_micro,
        })
        .collect();
    let stages = stages(&wishes, draw).into_iter();
    let way = |(pool, places): (PoolName, Vec<usize>)| {
        let mut ids: Vec<EndpointId> = Vec::with_capacity(places.len());
        for route in places.iter().filter_map(|place| routes.get(*place)) {
            if !ids.contains(&route.endpoint_id) {
                ids.push(route.endpoint_id.clone());
            }
        }
        let knows = pool.as_str() == UNNAMED || (home.has_router && pool == home.pool);
        let part = (!knows).then(|| Arc::new(Part::of(catalog, model, &ids)));
        Way {
            pool,
            candidates: ids.into(),
            part,
        }
    };
    stages.map(way).collect()
}

/// What a route asks for.
#[derive(Debug, Clone)]
struct Wish {
    pool: PoolName,
    priority: i32,
    weight: u64,
}

/// Pools in the order in which they are asked, each with the places of its routes: by priority, within one by weight.
/// What stands next to each other in one pool is asked at once; the pool's routers order it themselves.
fn stages(wishes: &[Wish], draw: u64) -> Vec<(PoolName, Vec<usize>)> {
    let mut priorities: Vec<i32> = wishes.iter().map(|wish| wish.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let mut stages: Vec<(PoolName, Vec<usize>)> = Vec::new();
    for priority in priorities {
        let of_priority = |(_, wish): &(usize, &Wish)| wish.priority == priority;
        let mut left: Vec<(PoolName, u64, Vec<usize>)> = Vec::new();
        for (place, wish) in wishes.iter().enumerate().filter(of_priority) {
            match left.iter_mut().find(|(pool, ..)| *pool == wish.pool) {
                Some((_, weight, places)) => {
                    *weight = weight.saturating_add(wish.weight);
                    places.push(place);
                }
                None => left.push((wish.pool.clone(), wish.weight, vec![place])),
            }
        }
        while !left.is_empty() {
            let drawn = drawn(&left, draw);
            let (pool, _, mut places) = left.remove(drawn);
            match stages.last_mut() {
                Some((last, before)) if *last == pool => before.append(&mut places),
                _ => stages.push((pool, places)),
            }
        }
    }
    stages
}

/// The place of the pool that a draw falls on; those without weight come last.
fn drawn(left: &[(PoolName, u64, Vec<usize>)], draw: u64) -> usize {
    let whole: u128 = left.iter().map(|(_, weight, _)| u128::from(*weight)).sum();
    // A share of the whole, without the bias of a remainder.
    let mut at = (u128::from(draw) * whole) >> 64;
    for (place, (_, weight, _)) in left.iter().enumerate() {
        match at.checked_sub(u128::from(*weight)) {
            None => return place,
            Some(rest) => at = rest,
        }
    }
    0
}

/// Whether the next pool is asked after one ended so, given that nothing of an answer has left: where another model would
/// be, and where everybody here was tried without the request being at fault.
pub fn goes_on(report: &Report) -> bool {
    let is_exhausted = report.failure.as_ref().is_some_and(|failure| failure.exhausted);
    let failed = report.outcome == Outcome::UpstreamError && !report.delivered.content;
    moves_on(report) || (is_exhausted && failed)
}

/// The endpoints that named pools alone can call: all routes to them name one. Nobody else is where they are.
pub fn apart(catalog: &Catalog) -> HashSet<EndpointId> {
    let models = catalog.all_models();
    let routes = || models.iter().flat_map(|model| &model.routes);
    let is_named = |route: &&Route| route.pool.as_str() != UNNAMED;
    let mut apart: HashSet<EndpointId> = routes()
        .filter(is_named)
        .map(|route| route.endpoint_id.clone())
        .collect();
    for route in routes().filter(|route| !is_named(route)) {
        apart.remove(&route.endpoint_id);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ProviderKind, endpoint_key, served::RouteRecord, served::route_key};
    use crate::time::Timestamp;

    fn wish(pool: &str, priority: i32, weight: u64) -> Wish {
        Wish {
            pool: PoolName::from(pool),
            priority,
            weight,
        }
    }

    fn order(wishes: &[Wish], draw: u64) -> String {
        let stages = stages(wishes, draw);
        let told = stages.iter().map(|(pool, places)| format!("{pool}{places:?}"));
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pools_are_asked_by_priority_and_what_is_side_by_side_at_once() {
        let wishes = [
            wish("a", 2, 1),
            wish("gpu", 1, 1),
            wish("a", 0, 1),
            wish("a", 0, 1),
        ];
        assert_eq!(order(&wishes, 0), "a[2, 3] gpu[1] a[0]");
        let wishes = [wish("a", 0, 1), wish("a", 1, 1), wish("gpu", 2, 1)];
        assert_eq!(order(&wishes, 0), "a[0, 1] gpu[2]");
        assert_eq!(order(&[], 7), "");
    }

    #[test]
    fn pools_of_one_priority_are_drawn_by_weight_and_those_without_come_last() {
        let wishes = [wish("none", 0, 0), wish("a", 0, 3), wish("b", 0, 1)];
        let first = |draw| order(&wishes, draw);
        let quarter = u64::MAX / 4;
        assert_eq!(first(0), "a[1] b[2] none[0]");
        assert_eq!(first(quarter * 3 - 9), "a[1] b[2] none[0]");
        assert_eq!(first(quarter * 3 + 9), "b[2] a[1] none[0]");
        assert_eq!(first(u64::MAX), "b[2] a[1] none[0]");
        let nobody = [wish("a", 0, 0), wish("b", 0, 0)];
        assert_eq!(order(&nobody, u64::MAX), "a[0] b[1]");
    }

    #[test]
    fn shares_of_pools_follow_their_weights() {
        let wishes = [wish("a", 0, 9), wish("b", 0, 1)];
        let draws = (0..1_000_u64).map(|step| step * (u64::MAX / 1_000));
        let first_b = draws.filter(|draw| stages(&wishes, *draw)[0].0.as_str() == "b");
        assert!(first_b.count().abs_diff(100) <= 1);
    }

    #[test]
    fn a_session_stays_in_one_pool_and_calls_without_one_are_drawn() {
        let whose = (&TenantId::from("acme"), &ModelName::from("m"));
        let of = |session| draw(session, whose, 7);
        assert_eq!(of(None), 7);
        assert_eq!(of(Some("s1")), of(Some("s1")));
        assert_ne!(of(Some("s1")), of(Some("s2")));
    }

    fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
        let value = serde_json::to_vec(value).expect("JSON");
        catalog
            .apply(catalog.revision + 1, key, Some(&value))
            .expect("a record");
    }

    /// A catalogue whose model `m` has routes to endpoints in these pools, one priority after the other, and is shared
    /// with tenants.
    fn catalog(pools: &[(&str, &str)]) -> Catalog {
        let mut catalog = Catalog::default();
        for (at, (id, pool)) in pools.iter().enumerate() {
            let endpoint = EndpointId::from(*id);
            let record = Endpoint::of_file(endpoint.clone(), ProviderKind::OpenaiCompat, "p".into());
            put(&mut catalog, &endpoint_key(&endpoint), &record);
            let route = RouteRecord {
                id: (*id).into(),
                tenant: crate::catalog::operators(),
                model: ModelName::from("m"),
                endpoint,
                upstream_model: "up".into(),
                priority: i32::try_from(at).expect("few"),
                weight: 100,
                pool: PoolName::from(*pool),
                context_length: None,
                max_output_length: None,
                input_modalities: None,
                supports_tools: false,
                supports_structured_output: false,
                embeds: false,
                created_at: Timestamp::default(),
                origin: crate::catalog::Origin::Runtime,
            };
            put(&mut catalog, &route_key(&route.tenant, &route.id), &route);
        }
        catalog
    }

    fn home(pool: &str, has_router: bool) -> Home {
        Home {
            pool: PoolName::from(pool),
            has_router,
        }
    }

    fn told(catalog: &Catalog, home: &Home) -> Vec<(String, Vec<String>, bool)> {
        let model = catalog.model("m").expect("the model");
        let candidates: Vec<_> = model
            .routes
            .iter()
            .map(|route| route.endpoint_id.clone())
            .collect();
        let ways = ways((catalog, model), &candidates, home, 0);
        let told = ways.iter().map(|way| {
            let ids = way.candidates.iter().map(ToString::to_string).collect();
            (way.pool.to_string(), ids, way.part.is_some())
        });
        told.collect()
    }

    #[test]
    fn what_names_no_pool_runs_where_the_gateway_is_and_needs_no_ways() {
        let plain = catalog(&[("e1", "default"), ("e2", "default")]);
        assert!(told(&plain, &home("default", true)).is_empty());
        assert!(told(&plain, &home("default", false)).is_empty());
        assert!(told(&plain, &home("bench", true)).is_empty());
        let all = vec!["e1".to_owned(), "e2".to_owned()];
        assert_eq!(
            told(&plain, &home("bench", false)),
            [("bench".to_owned(), all, true)]
        );
    }

    #[test]
    fn a_named_pool_is_told_its_part_and_nothing_else() {
        let mixed = catalog(&[("e1", "default"), ("e2", "gpu"), ("e3", "other")]);
        let way = |pool: &str, id: &str, told| (pool.to_owned(), vec![id.to_owned()], told);
        let expected = [
            way("default", "e1", false),
            way("gpu", "e2", true),
            way("other", "e3", true),
        ];
        assert_eq!(told(&mixed, &home("default", true)), expected);
        assert_eq!(told(&mixed, &home("gpu", true))[1], way("other", "e3", true));

        let model = mixed.model("m").expect("the model");
        let part = Part::of(&mixed, model, &[EndpointId::from("e2")]);

        let text = serde_json::to_string(&part).expect("JSON");
        assert!(text.contains("e2"), "{text}");
        for foreign in ["e1", "e3", "other"] {
            assert!(!text.contains(&format!("\"{foreign}\"")), "{foreign}: {text}");
        }
        let mut learned = Catalog::default();
        learned.learn(9, serde_json::from_str(&text).expect("a part"));
        assert_eq!(learned.revision, 9);
        assert_eq!(learned.model("m").expect("learned").routes.len(), 1);
        assert!(learned.endpoint(&EndpointId::from("e2")).is_some());
        assert!(learned.endpoint(&EndpointId::from("e1")).is_none());
    }

    #[test]
    fn what_is_learned_again_and_has_not_changed_stays_the_same_record() {
        let catalog = catalog(&[("e2", "gpu")]);
        let model = catalog.model("m").expect("the model");
        let part = Part::of(&catalog, model, &[EndpointId::from("e2")]);
        let mut learned = Catalog::default();
        learned.learn(1, part.clone());
        let before = learned
            .endpoint(&EndpointId::from("e2"))
            .cloned()
            .expect("learned");

        learned.learn(2, part);

        let after = learned.endpoint(&EndpointId::from("e2")).expect("learned");
        assert!(Arc::ptr_eq(&before, after));
    }

    #[test]
    fn an_endpoint_is_apart_when_all_its_routes_name_a_pool() {
        let mixed = catalog(&[("e1", "default"), ("e2", "gpu"), ("e3", "other")]);
        let mut apart: Vec<String> = apart(&mixed).iter().map(ToString::to_string).collect();
        apart.sort();
        assert_eq!(apart, ["e2", "e3"]);
    }
}
