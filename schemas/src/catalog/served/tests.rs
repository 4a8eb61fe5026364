//! Tests of who is served what.

use super::*;
use crate::catalog::rates::price_key;
use crate::catalog::registered::Registered;
use crate::catalog::{Endpoint, ProviderKind, endpoint_key, model_key};

pub(crate) fn endpoint(id: &str, tenant: &str) -> Endpoint {
    Endpoint {
        single_backend_rescue: true,
        tenant: TenantId::from(tenant),
        origin: Origin::Runtime,
        registered: Some(Arc::new(Registered {
            name: id.into(),
            kind: "openai_compat".into(),
            hosts: Vec::new(),
            algorithm: crate::balance::Algorithm::RoundRobin,
            health_check: None,
            created_at: Timestamp::default(),
        })),
        ..Endpoint::of_file(EndpointId::from(id), ProviderKind::OpenaiCompat, "p".into())
    }
}

fn route(id: &str, (tenant, model): (&str, &str), endpoint: &str) -> RouteRecord {
    RouteRecord {
        id: id.into(),
        tenant: TenantId::from(tenant),
        model: ModelName::from(model),
        endpoint: EndpointId::from(endpoint),
        upstream_model: "up".into(),
        priority: 0,
        weight: 100,
        pool: PoolName::from("default"),
        context_length: None,
        max_output_length: None,
        input_modalities: None,
        supports_tools: false,
        supports_structured_output: false,
        embeds: false,
        created_at: Timestamp::default(),
        origin: Origin::Runtime,
    }
}

fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
    let revision = catalog.revision + 1;
    let value = serde_json::to_vec(value).expect("serialize");
    catalog.apply(revision, key, Some(&value)).expect("apply");
}

fn put_route(catalog: &mut Catalog, route: &RouteRecord) {
    put(catalog, &route_key(&route.tenant, &route.id), route);
}

/// `default` and two tenants, each with an endpoint of its own.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (id, tenant) in [("d", "default"), ("a", "acme"), ("b", "beta")] {
        put(
            &mut catalog,
            &endpoint_key(&EndpointId::from(id)),
            &endpoint(id, tenant),
        );
    }
    catalog
}

fn file(name: &str, tenants: Option<&[&str]>) -> Model {
    let first = route("f", ("default", name), "d");
    Model {
        tenants: tenants.map(|ids| ids.iter().map(|id| TenantId::from(*id)).collect()),
        routes: vec![Route {
            origin: Origin::File,
            price: Some(priced(9)),
            ..first.route((8, Modalities::TEXT))
        }],
        origin: Origin::File,
        aliases: vec![ModelName::new(format!("{name}-latest"))],
        ..of_routes(&first, &[])
    }
}

fn priced(input: i64) -> Price {
    Price {
        input,
        ..Price::default()
    }
}

/// The endpoints that serve a name to a tenant.
fn reached(catalog: &Catalog, tenant: &str, name: &str) -> Vec<String> {
    let tenant = TenantId::from(tenant);
    let model = catalog.model_for(&tenant, name);
    let routes = model.into_iter().flat_map(|model| model.routes.iter());
    routes.map(|route| route.endpoint_id.to_string()).collect()
}

#[test]
fn a_tenants_own_model_is_there_for_nobody_else() {
    let mut catalog = catalog();
    put_route(&mut catalog, &route("1", ("acme", "m"), "a"));
    put_route(&mut catalog, &route("2", ("beta", "m"), "b"));

    assert_eq!(reached(&catalog, "acme", "m"), ["a"]);
    assert_eq!(reached(&catalog, "beta", "m"), ["b"]);
    assert!(reached(&catalog, "default", "m").is_empty());
    assert_eq!(catalog.model_anywhere("m").expect("there").owner.as_str(), "acme");
    catalog.apply(99, "route.acme.1", None).expect("apply");
    assert!(reached(&catalog, "acme", "m").is_empty());
    assert_eq!(reached(&catalog, "beta", "m"), ["b"]);
}

#[test]
fn a_route_to_another_tenants_endpoint_leads_nowhere_whatever_its_record_says() {
    let mut catalog = catalog();
    put_route(&mut catalog, &route("1", ("acme", "m"), "b"));
    put_route(&mut catalog, &route("2", ("default", "n"), "b"));
    put_route(&mut catalog, &route("3", ("acme", "o"), "d"));

    assert!(catalog.model_anywhere("m").is_none());
    assert!(catalog.model_anywhere("n").is_none());
    assert_eq!(reached(&catalog, "acme", "o"), ["d"]);
    assert!(
        catalog
            .endpoint_for(&TenantId::from("acme"), &EndpointId::from("b"))
            .is_none()
    );
}

#[test]
fn the_operators_model_counts_where_it_is_shared_and_hides_nothing_where_it_is_not() {
    let mut catalog = catalog();
    put_route(&mut catalog, &route("1", ("acme", "m"), "a"));
    put(
        &mut catalog,
        &model_key(&ModelName::from("m")),
        &file("m", Some(&["beta"])),
    );

    assert_eq!(reached(&catalog, "acme", "m"), ["a"]);
    assert_eq!(reached(&catalog, "beta", "m"), ["d"]);
    assert!(!catalog.is_taken(&TenantId::from("acme"), "m"));
    put(&mut catalog, &model_key(&ModelName::from("m")), &file("m", None));
    assert_eq!(reached(&catalog, "acme", "m"), ["d"]);
    assert!(catalog.is_taken(&TenantId::from("acme"), "m"));
    assert!(catalog.is_taken(&TenantId::from("acme"), "m-latest"));
}

#[test]
fn ways_of_run_time_stand_beside_those_of_a_file_and_inherit_its_room() {
    let mut catalog = catalog();
    put(&mut catalog, &model_key(&ModelName::from("m")), &file("m", None));
    let narrow = RouteRecord {
        context_length: Some(4_000),
        weight: 0,
        ..route("1", ("default", "m"), "d")
    };
    put_route(&mut catalog, &narrow);

    let model = catalog.model("m").expect("there");
    assert_eq!(model.routes.len(), 2);
    assert_eq!(model.context_length, 4_000);
    assert_eq!(
        (model.routes[1].weight_micro, model.routes[1].origin),
        (0, Origin::Runtime)
    );
}

#[test]
fn a_model_of_run_time_is_its_tenants_with_safe_limits_until_an_operator_shares_it() {
    let mut catalog = catalog();
    put_route(&mut catalog, &route("1", ("default", "m"), "d"));

    let model = catalog.model("m").expect("there");
    assert_eq!((model.context_length, model.max_output_length), (8_192, 4_096));
    assert!(reached(&catalog, "acme", "m").is_empty());
    let shared = Overlay {
        sharing: Some(Sharing::Everybody),
        ..Overlay::new(ModelName::from("m"), Timestamp::default())
    };
    put(&mut catalog, &overlay_key(&ModelName::from("m")), &shared);
    assert_eq!(reached(&catalog, "acme", "m"), ["d"]);
}

#[test]
fn what_an_operator_changes_of_a_model_of_a_file_goes_when_it_is_dropped() {
    let mut catalog = catalog();
    let name = ModelName::from("m");
    put(&mut catalog, &model_key(&name), &file("m", None));
    let off = Overlay {
        enabled: Some(false),
        required_role: Some(Role::Admin),
        ..Overlay::new(name.clone(), Timestamp::default())
    };
    put(&mut catalog, &overlay_key(&name), &off);

    assert!(catalog.model("m").is_none() && catalog.model("m-latest").is_none());
    assert_eq!(
        catalog.configured_model(&name).expect("there").required_role,
        Role::Admin
    );
    // The file is read again, and what was changed stays.
    put(&mut catalog, &model_key(&name), &file("m", None));
    assert!(catalog.model("m").is_none());
    catalog.apply(99, &overlay_key(&name), None).expect("apply");
    assert_eq!(catalog.model("m").expect("there").required_role, Role::Free);
}

#[test]
fn a_price_of_an_endpoint_counts_before_that_of_the_model_and_each_in_its_time() {
    let mut catalog = catalog();
    put(&mut catalog, &model_key(&ModelName::from("m")), &file("m", None));
    let price = |id: &str, endpoint: Option<&str>, (from, input): (i64, i64)| PriceRecord {
        id: id.into(),
        tenant: TenantId::from("default"),
        model: ModelName::from("m"),
        endpoint: endpoint.map(EndpointId::from),
        effective_from: Timestamp::from_micros(from),
        price: priced(input),
        schedule: None,
        created_at: Timestamp::default(),
        origin: Origin::Runtime,
    };
    for record in [
        price("1", None, (100, 1)),
        price("2", Some("d"), (200, 2)),
        price("3", None, (300, 3)),
        price("4", Some("elsewhere"), (0, 4)),
    ] {
        put(&mut catalog, &price_key(&record.tenant, &record.id), &record);
    }
    let costs = |catalog: &Catalog, at: i64| {
        let (model, since) = catalog
            .model("m")
            .expect("there")
            .priced(Timestamp::from_micros(at));
        (
            model.routes[0].price.expect("priced").input,
            since.map(Timestamp::micros),
        )
    };

    assert_eq!(costs(&catalog, 99), (9, None));
    assert_eq!(costs(&catalog, 100), (1, Some(100)));
    assert_eq!(costs(&catalog, 250), (2, Some(200)));
    assert_eq!(costs(&catalog, 400), (2, Some(200)));
    catalog.apply(99, "price.default.2", None).expect("apply");
    assert_eq!(costs(&catalog, 400), (3, Some(300)));
}

/// What each way to the operators' `m` costs at a moment.
fn costs(catalog: &Catalog, at: i64) -> Vec<Option<i64>> {
    let (model, _) = catalog
        .model("m")
        .expect("there")
        .priced(Timestamp::from_micros(at));
    let routes = model.routes.iter();
    routes.map(|route| route.price.map(|price| price.input)).collect()
}

#[test]
fn a_way_of_run_time_costs_what_all_legs_of_the_file_cost_and_nothing_is_guessed() {
    let with = |prices: &[Option<i64>]| {
        let mut catalog = catalog();
        let one = file("m", None);
        let legs = prices.iter().map(|price| Route {
            price: price.map(priced),
            ..one.routes[0].clone()
        });
        let model = Model {
            routes: legs.collect(),
            ..one.clone()
        };
        put(&mut catalog, &model_key(&one.id), &model);
        put_route(&mut catalog, &route("1", ("default", "m"), "d"));
        catalog
    };
    for (legs, own) in [
        (&[Some(9)][..], Some(9)),
        (&[Some(9), Some(9)], Some(9)),
        (&[Some(0)], Some(0)),
        (&[Some(9), Some(8)], None),
        (&[Some(9), None], None),
        (&[None], None),
    ] {
        let catalog = with(legs);
        let told = catalog.is_priced(&route("1", ("default", "m"), "d"), Timestamp::default());
        assert_eq!(costs(&catalog, 0).last(), Some(&own), "{legs:?}");
        assert_eq!(told, own.is_some(), "{legs:?}");
    }
    // Nobody's own model takes a price from the operators' of that name.
    let catalog = with(&[Some(9)]);
    assert!(!catalog.is_priced(&route("2", ("acme", "m"), "a"), Timestamp::default()));
}

#[test]
fn a_way_of_run_time_has_the_schedule_of_the_file_and_a_version_counts_before_it() {
    let mut catalog = catalog();
    let mut model = file("m", None);
    model.routes[0].rates = Some(Arc::new(Rates(vec![
        Version {
            from: None,
            price: Some(priced(5)),
            schedule: None,
        },
        Version {
            from: Some(Timestamp::from_micros(50)),
            price: Some(priced(6)),
            schedule: None,
        },
    ])));
    put(&mut catalog, &model_key(&model.id), &model);
    let added = route("1", ("default", "m"), "d");
    put_route(&mut catalog, &added);
    let version = PriceRecord {
        id: "1".into(),
        tenant: TenantId::from("default"),
        model: ModelName::from("m"),
        endpoint: None,
        effective_from: Timestamp::from_micros(100),
        price: priced(1),
        schedule: None,
        created_at: Timestamp::default(),
        origin: Origin::Runtime,
    };
    put(&mut catalog, &price_key(&version.tenant, &version.id), &version);

    assert_eq!(costs(&catalog, 0), [Some(5), Some(5)]);
    assert_eq!(costs(&catalog, 50), [Some(6), Some(6)]);
    assert_eq!(costs(&catalog, 100), [Some(1), Some(1)]);
    // A model without a file is priced from its version on, also before there is a way to it.
    let later = PriceRecord {
        model: ModelName::from("n"),
        id: "2".into(),
        ..version
    };
    put(&mut catalog, &price_key(&later.tenant, &later.id), &later);
    let way = route("2", ("default", "n"), "d");
    assert!(!catalog.is_priced(&way, Timestamp::from_micros(99)));
    assert!(catalog.is_priced(&way, Timestamp::from_micros(100)));
    assert!(!catalog.is_known(&way.tenant, &way.model));
    assert!(catalog.is_known(&added.tenant, &added.model));
}

#[test]
fn an_endpoint_that_goes_takes_what_only_it_served_with_it() {
    let mut catalog = catalog();
    put_route(&mut catalog, &route("1", ("acme", "m"), "a"));
    catalog
        .apply(99, &endpoint_key(&EndpointId::from("a")), None)
        .expect("apply");
    assert!(catalog.model_for(&TenantId::from("acme"), "m").is_none());
}
