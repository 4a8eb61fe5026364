//! Tests of how many grants there may be, and of which are taken away.

use schemas::catalog::user::{User, user_key};

use super::*;

const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);
const MINUTE_MICROS: i64 = 60 * 1_000_000;

fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
    let value = serde_json::to_vec(value).expect("serialize");
    catalog.apply(7, key, Some(&value)).expect("apply");
}

/// A catalogue with two members, and a grant for one that ends so many minutes after noon.
fn catalog() -> (Catalog, impl Fn(&str, i64) -> Key) {
    let mut catalog = Catalog::default();
    let tenant = schemas::catalog::tenant::Tenant::new(TenantId::from("acme"), Origin::Runtime);
    put(
        &mut catalog,
        &schemas::catalog::tenant::tenant_key(&tenant.id),
        &tenant,
    );
    for id in ["ann", "bob"] {
        let user = User::new(TenantId::from("acme"), UserId::from(id), Origin::Runtime);
        put(&mut catalog, &user_key(&user.tenant, &user.id), &user);
    }
    let of = catalog.clone();
    let grant = move |user: &str, minutes: i64| {
        let wanted = Wanted {
            user: user.to_owned(),
            tenant: Some("acme".to_owned()),
            external_job_id: "job".to_owned(),
            allowed_models: None,
            minutes: 1,
        };
        let mut grant = granted(&of, wanted, NOON).expect("a grant");
        grant.expires_at = Some(NOON.plus_micros(minutes * MINUTE_MICROS));
        grant
    };
    (catalog, grant)
}

fn place(n: usize) -> String {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&n.to_be_bytes());
    credential_key(&digest, &Reach::Grant("job".into()))
}

#[test]
fn a_member_has_so_many_good_grants_and_those_that_ended_count_no_more() {
    let (mut catalog, grant) = catalog();
    for n in 0..GRANTS_OF_MEMBER_MAX {
        let mut one = grant("ann", 5);
        one.id = KeyId::new(format!("grant-{n}"));
        put(&mut catalog, &place(n), &one);
    }

    let refused = has_room(&catalog, &grant("ann", 5), NOON).expect_err("one more");
    assert_eq!((refused.status, refused.param.as_deref()), (409, Some("user")));
    assert_eq!(has_room(&catalog, &grant("bob", 5), NOON), Ok(()));
    let later = NOON.plus_micros(5 * MINUTE_MICROS);
    assert_eq!(has_room(&catalog, &grant("ann", 9), later), Ok(()));
    let mut revoked = grant("ann", 5);
    (revoked.id, revoked.revoked) = (KeyId::from("grant-0"), true);
    put(&mut catalog, &place(0), &revoked);
    assert_eq!(has_room(&catalog, &grant("ann", 5), NOON), Ok(()));
}

#[test]
fn grants_are_taken_away_a_day_after_their_end_and_no_other_key_is() {
    let (mut catalog, grant) = catalog();
    let day = 24 * 60;
    put(&mut catalog, &place(1), &grant("ann", -day));
    put(&mut catalog, &place(2), &grant("ann", 1 - day));
    let mut forever = grant("ann", 0);
    forever.expires_at = None;
    put(&mut catalog, &place(3), &forever);
    let key = Key {
        reach: Reach::Member,
        ..grant("ann", -day)
    };
    put(&mut catalog, &credential_key(&[9; 32], &Reach::Member), &key);

    assert_eq!(ended(&catalog, NOON), [(place(1), 7)]);
}
