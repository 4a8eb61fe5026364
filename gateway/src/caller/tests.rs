//! Tests of credentials.

use schemas::catalog::key_key;
use schemas::catalog::tenant::tenant_key;

use super::*;

const SECRET: &[u8] = b"deployment";
const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

fn member(revoked: bool, expires_at: Option<Timestamp>) -> Key {
    Key {
        id: KeyId::from("k1"),
        tenant: TenantId::from("acme"),
        role: Role::Free,
        revoked,
        limits: schemas::limit::limits::Limits::default(),
        output_default_max: None,
        expires_at,
        ..admin()
    }
}

fn catalog(keys: &[(&str, Key)]) -> Catalog {
    let mut catalog = Catalog::default();
    for (text, key) in keys {
        let value = serde_json::to_vec(key).expect("serialize");
        catalog
            .apply(1, &key_key(&digest(SECRET, text)), Some(&value))
            .expect("apply");
    }
    let tenant = br#"{"id":"acme","origin":"file"}"#;
    catalog
        .apply(2, &tenant_key(&TenantId::from("acme")), Some(tenant))
        .expect("apply");
    catalog
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().expect("a value"));
    }
    headers
}

fn identify(lines: &[(&'static str, &str)]) -> Option<String> {
    let catalog = catalog(&[
        ("sk-good-and-long-key", member(false, None)),
        ("sk-revoked-and-long-key", member(true, None)),
        ("sk-expired-and-long-key", member(false, Some(NOON))),
    ]);
    let token = Secret::new("token-of-the-operator".to_owned());
    let doorkeeper = Doorkeeper::new(SECRET, Some(&token));
    let caller = doorkeeper.identify(&headers(lines), &catalog, NOON)?;
    Some(caller.key.id.as_str().to_owned())
}

#[test]
fn a_key_is_known_by_either_header() {
    let good = "Bearer sk-good-and-long-key";

    assert_eq!(identify(&[("authorization", good)]).as_deref(), Some("k1"));
    assert_eq!(
        identify(&[("x-api-key", "sk-good-and-long-key")]).as_deref(),
        Some("k1")
    );
    assert_eq!(
        identify(&[("authorization", "bearer  sk-good-and-long-key")]).as_deref(),
        Some("k1")
    );
}

#[test]
fn the_same_key_twice_is_one_credential_and_two_keys_are_none() {
    let good = ("authorization", "Bearer sk-good-and-long-key");

    assert_eq!(
        identify(&[good, ("x-api-key", "sk-good-and-long-key")]).as_deref(),
        Some("k1")
    );
    assert_eq!(identify(&[good, ("x-api-key", "sk-other-and-long-key")]), None);
    assert_eq!(
        identify(&[good, ("authorization", "Bearer sk-other-and-long-key")]),
        None
    );
}

#[test]
fn revoked_expired_unknown_and_malformed_credentials_are_nobody() {
    for line in [
        ("authorization", "Bearer sk-revoked-and-long-key"),
        ("authorization", "Bearer sk-expired-and-long-key"),
        ("authorization", "Bearer sk-unknown-and-long-key"),
        ("authorization", "Basic sk-good-and-long-key"),
        ("authorization", "sk-good-and-long-key"),
        ("authorization", "Bearer "),
        ("x-api-key", ""),
    ] {
        assert_eq!(identify(&[line]), None, "{line:?}");
    }
    assert_eq!(identify(&[]), None);
}

#[test]
fn the_administrators_token_is_an_operator_and_a_blank_one_is_nobody() {
    assert_eq!(
        identify(&[("authorization", "Bearer token-of-the-operator")]).as_deref(),
        Some("admin-token")
    );
    let blank = Doorkeeper::new(SECRET, Some(&Secret::new("  ".to_owned())));
    let found = blank.identify(&headers(&[("x-api-key", " ")]), &Catalog::default(), NOON);
    assert!(found.is_none());
}

#[test]
fn digests_depend_on_the_deployments_secret() {
    assert_eq!(digest(b"a", "key"), digest(b"a", "key"));
    assert_ne!(digest(b"a", "key"), digest(b"b", "key"));
}
