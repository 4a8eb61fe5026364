//! The snapshot, and a key for tests elsewhere.

use super::*;

pub(super) fn key(name: &str) -> Key {
    Key {
        id: KeyId::from(name),
        name: name.into(),
        tenant: TenantId::from("acme"),
        user: None,
        role: Role::Free,
        models: None,
        limits: Limits::default(),
        output_default_max: None,
        expires_at: None,
        revoked: false,
        created_at: Timestamp::default(),
        origin: Origin::File,
        prefix: "sk-".into(),
        reach: Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: None,
        maker: None,
        seen_by: None,
    }
}

#[test]
fn a_record_enters_the_snapshot_and_leaves_it_when_deleted() {
    let mut catalog = Catalog::default();
    let digest = [7; 32];
    let value = serde_json::to_vec(&key("k")).expect("serialize");

    catalog.apply(3, &key_key(&digest), Some(&value)).expect("apply");
    assert_eq!(catalog.key(&digest).expect("there").name.as_ref(), "k");
    catalog.apply(4, &key_key(&digest), None).expect("apply");

    assert!(catalog.key(&digest).is_none());
    assert_eq!(catalog.revision_text.as_ref(), "4");
}

#[test]
fn a_record_of_no_known_kind_is_an_error() {
    let mut catalog = Catalog::default();
    assert!(matches!(
        catalog.apply(1, "other.x", None),
        Err(RecordError::Kind(_))
    ));
    assert!(matches!(
        catalog.apply(1, "key.zz", None),
        Err(RecordError::Kind(_))
    ));
}
