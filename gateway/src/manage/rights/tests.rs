//! Whatever is asked for, whoever asks: what is granted is no more than he has, and who is above him is not touched.

use std::sync::Arc;

use proptest::prelude::*;
use schemas::catalog::tenant::{Tenant, tenant_key};
use schemas::catalog::user::{User, user_key};
use schemas::catalog::{Key, Origin, key_key};
use schemas::id::{KeyId, ModelName};
use schemas::limit::limits::Limits;
use serde::Serialize;
use serde_json::json;

use super::super::{description, keys, users};
use super::*;

const TENANTS: [&str; 3] = ["default", "acme", "closed"];
const USERS: [&str; 2] = ["ann", "bob"];
const ROLES: [Role; 5] = [Role::Free, Role::Pro, Role::Internal, Role::Admin, Role::Operator];
const MODELS: [&str; 2] = ["m", "n"];

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// A key of a catalogue, before it has a place there.
#[derive(Debug, Clone)]
struct Held {
    tenant: &'static str,
    user: Option<&'static str>,
    role: Role,
    models: Option<Vec<&'static str>>,
    expires_at: Option<i64>,
    revoked: bool,
}

impl Held {
    fn key(&self) -> Key {
        Key {
            id: KeyId::from("k"),
            name: "k".into(),
            tenant: TenantId::from(self.tenant),
            user: self.user.map(UserId::from),
            role: self.role,
            models: self
                .models
                .as_ref()
                .map(|models| models.iter().map(|model| ModelName::from(*model)).collect()),
            limits: Limits::default(),
            output_default_max: None,
            expires_at: self.expires_at.map(at),
            revoked: self.revoked,
            created_at: Timestamp::default(),
            origin: Origin::Runtime,
            prefix: "".into(),
            reach: schemas::catalog::grant::Reach::Member,
            denied: Vec::new(),
            rotated_at: None,
            routing: None,
            granted: None,
            maker: None,
            seen_by: None,
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            key: Arc::new(self.key()),
        }
    }
}

fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
    let value = serde_json::to_vec(value).expect("serialize");
    catalog.apply(1, key, Some(&value)).expect("apply");
}

type Member = (&'static str, &'static str, Option<Role>, bool);

fn catalog(members: &[Member], held: &[Held]) -> Catalog {
    let mut catalog = Catalog::default();
    for id in TENANTS {
        let tenant = Tenant {
            disabled: id == "closed",
            ..Tenant::new(TenantId::from(id), Origin::Runtime)
        };
        put(&mut catalog, &tenant_key(&tenant.id), &tenant);
    }
    for (tenant, id, role, disabled) in members {
        let user = User {
            role: *role,
            disabled: *disabled,
            ..User::new(TenantId::from(*tenant), UserId::from(*id), Origin::Runtime)
        };
        put(&mut catalog, &user_key(&user.tenant, &user.id), &user);
    }
    for (place, held) in held.iter().enumerate() {
        let digest = [u8::try_from(place).expect("few keys"); 32];
        put(&mut catalog, &key_key(&digest), &held.key());
    }
    for name in MODELS {
        let model = json!({
            "id": name, "name": name, "aliases": [], "position": 0, "input_modalities": 1, "output_modalities": 1,
            "quantization": "", "context_length": 1, "max_output_length": 1, "supports_tools": false,
            "supports_structured_output": false, "supported_params": [], "required_role": "free", "tenants": null,
            "pricing": [], "created_at": "2026-11-30T00:00:00Z", "routes": [], "origin": "file",
        });
        put(
            &mut catalog,
            &schemas::catalog::model_key(&ModelName::from(name)),
            &model,
        );
    }
    catalog
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(&ROLES[..])
}

fn tenant_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&TENANTS[..])
}

fn user_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&USERS[..])
}

fn models() -> impl Strategy<Value = Option<Vec<&'static str>>> {
    prop::option::of(prop::sample::subsequence(&MODELS[..], 0..=MODELS.len()))
}

fn held() -> impl Strategy<Value = Held> {
    (
        tenant_name(),
        prop::option::of(user_name()),
        role(),
        models(),
        prop::option::of(1..9_i64),
        any::<bool>(),
    )
        .prop_map(|(tenant, user, role, models, expires_at, revoked)| Held {
            tenant,
            user,
            role,
            models,
            expires_at,
            revoked,
        })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    prop::collection::vec(
        (
            tenant_name(),
            user_name(),
            prop::option::of(role()),
            any::<bool>(),
        ),
        0..5,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_minted_key_may_do_nothing_that_its_minter_may_not(
        members in members(),
        others in prop::collection::vec(held(), 0..6),
        minter in held(),
        tenant in prop::option::of(tenant_name()),
        (user, wanted_role) in (prop::option::of(user_name()), prop::option::of(role())),
        (models, expires_at) in (models(), prop::option::of(1..9_i64)),
    ) {
        let catalog = catalog(&members, &others);
        let caller = minter.caller();
        let mut body = json!({"name": "new"});
        let fields = [
            ("tenant", json!(tenant)),
            ("user", json!(user)),
            ("role", json!(wanted_role)),
            ("models", json!(models)),
            ("expires_at", json!(expires_at.map(at))),
        ];
        for (field, value) in fields {
            if !value.is_null() {
                body[field] = value;
            }
        }
        let wanted = description::read(body.to_string().as_bytes(), keys::WANTED).expect("a description");

        let Ok(granted) = keys::grant(&caller, &catalog, wanted) else {
            return Ok(());
        };

        prop_assert!(minter.role >= Role::Admin);
        prop_assert!(granted.role <= minter.role);
        prop_assert!(minter.role == Role::Operator || granted.tenant.as_str() == minter.tenant);
        prop_assert!(catalog.tenant(&granted.tenant).is_some_and(|tenant| !tenant.disabled));
        if let Some(own) = minter.expires_at {
            prop_assert!(granted.expires_at.is_some_and(|until| until <= at(own)));
        }
        if let Some(own) = &minter.models {
            let granted = granted.models.as_ref().expect("narrowed as its minter is");
            prop_assert!(granted.iter().all(|model| own.contains(&model.as_str())));
        }
        if let Some(member) = granted.user.as_ref().and_then(|id| catalog.user(&granted.tenant, id)) {
            prop_assert!(!member.disabled);
            prop_assert!(member.role.is_none_or(|most| granted.role <= most));
        }
    }

    #[test]
    fn a_member_is_made_and_changed_by_those_alone_who_may_do_as_much(
        members in members(),
        others in prop::collection::vec(held(), 0..6),
        changer in held(),
        (tenant, id) in (tenant_name(), user_name()),
        (wanted_role, disabled) in (prop::option::of(role()), prop::option::of(any::<bool>())),
    ) {
        let catalog = catalog(&members, &others);
        let caller = changer.caller();
        let (tenant_id, user_id) = (TenantId::from(tenant), UserId::from(id));
        let rank = catalog.rank_of(&tenant_id, &user_id);
        let is_less = changer.expires_at.is_some() || changer.models.is_some();
        let reaches = |rank: Role| rank < changer.role || (rank == changer.role && !is_less);
        let wanted = users::Wanted {
            tenant: Some(tenant.to_owned()),
            role: wanted_role,
            ..users::Wanted::default()
        };

        if let Ok(made) = users::wanted_user(&caller, &catalog, wanted, (id, at(1))) {
            prop_assert!(changer.role >= Role::Admin);
            prop_assert!(changer.role == Role::Operator || tenant == changer.tenant);
            prop_assert!(reaches(rank));
            prop_assert!(made.role.is_some_and(|role| role <= changer.role));
            prop_assert!(tenant != "closed");
        }

        let Some(user) = catalog.user(&tenant_id, &user_id) else {
            return Ok(());
        };
        let patch = users::Patch {
            role: wanted_role,
            disabled,
            ..users::Patch::default()
        };
        let Ok(after) = users::patched(&caller, &catalog, user, &patch) else {
            return Ok(());
        };
        prop_assert!(reaches(rank));
        prop_assert!(after.role == user.role || after.role.is_some_and(|role| role <= changer.role));
        prop_assert!(!(after.disabled && is_behind(&caller, &tenant_id, &user_id)));
    }
}

#[test]
fn what_others_may_not_do_is_told_by_its_field() {
    let catalog = catalog(&[("acme", "ann", Some(Role::Operator), false)], &[]);
    let admin = Held {
        tenant: "acme",
        user: Some("bob"),
        role: Role::Admin,
        models: None,
        expires_at: Some(5),
        revoked: false,
    }
    .caller();
    let ann = UserId::from("ann");

    let refused = |result: Result<(), Failure>| {
        let failure = result.expect_err("refused");
        (failure.status, failure.param.unwrap_or_default())
    };
    let acme = TenantId::from("acme");
    assert_eq!(
        refused(may_touch(&admin, &catalog, (&acme, &ann))),
        (403, "id".into())
    );
    assert_eq!(
        refused(may_give(&admin, Role::Operator).map(drop)),
        (403, "role".into())
    );
    assert_eq!(
        refused(may_last(&admin, Some(at(6))).map(drop)),
        (403, "expires_at".into())
    );
    assert_eq!(may_last(&admin, None), Ok(Some(at(5))));
    assert_eq!(
        refused(tenant(&admin, Some("default")).map(drop)),
        (403, "tenant".into())
    );
    assert_eq!(
        refused(living_tenant(&admin, &catalog, Some("default")).map(drop)),
        (403, "tenant".into())
    );
    assert_eq!(refused(operates(&admin)), (403, "".into()));
}

#[test]
fn a_member_is_let_in_by_those_alone_who_may_do_all_that_he_may() {
    let catalog = catalog(&[], &[]);
    let whole = Held {
        tenant: "acme",
        user: None,
        role: Role::Admin,
        models: None,
        expires_at: None,
        revoked: false,
    };
    let denied = Caller {
        key: Arc::new(Key {
            denied: vec![ModelName::from("m")],
            ..whole.key()
        }),
    };
    let of = |role, disabled: &[&str], caller: &Caller| {
        let member = User {
            role,
            disabled_models: disabled.iter().map(|name| ModelName::from(*name)).collect(),
            ..User::new(TenantId::from("acme"), UserId::from("ann"), Origin::Runtime)
        };
        may_let_in(caller, &catalog, &member, "password").map_err(|failure| (failure.status, failure.param))
    };
    let refused = Err((403, Some("password".into())));
    let of_model = Held {
        models: Some(vec!["m", "n"]),
        ..whole.clone()
    };
    let of_hour = Held {
        expires_at: Some(5),
        ..whole.clone()
    };

    assert_eq!(of(Some(Role::Admin), &[], &whole.caller()), Ok(()));
    assert_eq!(of(Some(Role::Operator), &[], &whole.caller()), refused);
    assert_eq!(of(None, &[], &of_model.caller()), refused);
    assert_eq!(of(Some(Role::Free), &["m"], &of_hour.caller()), refused);
    assert_eq!(of(Some(Role::Free), &["n"], &denied), refused);
    assert_eq!(of(Some(Role::Admin), &["m", "n"], &denied), Ok(()));
}

/// What of a change gives somebody more.
fn widens(before: &User, after: &User, signs_in: bool) -> Option<&'static str> {
    let becoming = Becoming {
        before,
        after,
        signs_in,
    };
    becoming.widens()
}

#[test]
fn where_letters_go_widens_who_may_come_in() {
    let before = User {
        email: Some("ann@example.com".into()),
        role: Some(Role::Pro),
        ..User::new(TenantId::from("acme"), UserId::from("ann"), Origin::Runtime)
    };
    let email = User {
        email: Some("bob@example.com".into()),
        ..before.clone()
    };
    let (signed, keyed) = (true, false);

    assert_eq!(widens(&before, &email, signed), Some("email"));
    assert_eq!(
        widens(&before, &email, keyed),
        Some("email"),
        "letters let him in"
    );
    let (of_none, no_address) = (
        User {
            role: None,
            ..before.clone()
        },
        User {
            email: None,
            ..before.clone()
        },
    );
    let to_none = User {
        email: email.email.clone(),
        ..of_none.clone()
    };
    assert_eq!(widens(&of_none, &to_none, keyed), None, "he was given nothing");
    assert_eq!(widens(&no_address, &email, keyed), Some("email"));
    assert_eq!(widens(&before, &no_address, keyed), None);
}

#[test]
fn only_what_widens_a_sign_in_is_judged_as_one() {
    let before = User {
        email: Some("ann@example.com".into()),
        role: Some(Role::Pro),
        ..User::new(TenantId::from("acme"), UserId::from("ann"), Origin::Runtime)
    };
    let out = User {
        disabled: true,
        ..before.clone()
    };
    let role = |role| User {
        role,
        ..before.clone()
    };
    let (signed, keyed) = (true, false);
    assert_eq!(widens(&before, &before, signed), None);
    assert_eq!(widens(&before, &out, signed), None);
    assert_eq!(widens(&out, &before, signed), Some("disabled"));
    assert_eq!(widens(&out, &before, keyed), Some("disabled"));
    assert_eq!(widens(&before, &role(Some(Role::Free)), signed), None);
    assert_eq!(widens(&before, &role(None), signed), None);
    assert_eq!(
        widens(&before, &role(None), keyed),
        Some("role"),
        "his keys alone say"
    );
    assert_eq!(widens(&before, &role(Some(Role::Internal)), keyed), Some("role"));
    assert_eq!(widens(&role(None), &before, signed), Some("role"));
    assert_eq!(
        widens(&role(None), &before, keyed),
        Some("role"),
        "his address lets him in"
    );
    let bare = |user: User| User { email: None, ..user };
    assert_eq!(widens(&bare(role(None)), &bare(before.clone()), keyed), None);
    let granted = User {
        granted: Some(Role::Pro),
        ..before.clone()
    };
    assert_eq!(
        widens(&before, &granted, keyed),
        Some("role"),
        "it counts for more"
    );
}
