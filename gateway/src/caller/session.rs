//! Members who signed in: an access token makes a caller with the member's own role, of his tenant, as the catalogue has
//! them at that moment. It never may do more than he.

use std::sync::Arc;

use schemas::catalog::user::User;
use schemas::catalog::{Catalog, Key, Origin, Role};
use schemas::failure::Failure;
use schemas::id::{KeyId, TenantId, UserId};
use schemas::time::Timestamp;

use super::Caller;
use crate::sign_in;
use crate::sign_in::token::{self, Claims, Read};
use crate::state::{Shared, State};

/// The id of such a caller: one for each member, and no key's, since no tenant's id has a colon.
fn id_of(tenant: &TenantId, user: &UserId) -> KeyId {
    KeyId::new(format!("session:{tenant}/{user}"))
}

/// Who brings a token.
#[derive(Debug)]
pub(crate) enum Bearer {
    /// A member who is signed in.
    Member(Caller),
    /// One who was, or who may not call any more.
    Over,
    /// Nobody: it is no token of ours.
    Nobody,
}

/// Who brings this credential.
pub(crate) async fn bearer(state: &Shared, credential: &str, now: Timestamp) -> Result<Bearer, Failure> {
    let claims = match claims(state, credential, now) {
        Read::Good(claims) => claims,
        Read::Over => return Ok(Bearer::Over),
        Read::Foreign => return Ok(Bearer::Nobody),
    };
    sign_in::member::known(state, (&claims.tenant, &claims.sub)).await;
    let Some(caller) = caller(&claims, &state.ports.catalog.load()) else {
        return Ok(Bearer::Over);
    };
    let who = (&claims.tenant, &claims.sub);
    let is_open = state.sign_in.followed.is_open(who, &claims.sid)
        || sign_in::is_open(state, who, &claims.sid, now).await?;
    Ok(if is_open {
        Bearer::Member(caller)
    } else {
        Bearer::Over
    })
}

/// What a credential says, if it is an access token.
pub(crate) fn claims(state: &State, credential: &str, now: Timestamp) -> Read {
    match &state.sign_in.signer {
        Some(signer) if token::is_like_one(credential) => signer.read(credential, now),
        _ => Read::Foreign,
    }
}

/// The member of a token, if he may call.
fn caller(claims: &Claims, catalog: &Catalog) -> Option<Caller> {
    let is_served = catalog
        .tenant(&claims.tenant)
        .is_some_and(|tenant| !tenant.disabled);
    let member = catalog.user(&claims.tenant, &claims.sub)?;
    (is_served && !member.disabled).then(|| Caller {
        key: Arc::new(key(member)),
    })
}

/// A member as the credential that he stands for.
fn key(member: &User) -> Key {
    Key {
        id: id_of(&member.tenant, &member.id),
        name: "session".into(),
        tenant: member.tenant.clone(),
        user: Some(member.id.clone()),
        role: member.role.unwrap_or_default(),
        granted: member.granted,
        created_at: member.created_at.unwrap_or_default(),
        origin: Origin::Runtime,
        // It does not expire: what he makes may outlast his session, as he does.
        ..super::admin()
    }
}

/// Whoever comes to a node that asks for no credential: an administrator of the operator's own tenant.
pub(super) fn anonymous() -> Caller {
    let key = Key {
        id: KeyId::from("anonymous"),
        name: "anonymous".into(),
        user: None,
        role: Role::Admin,
        ..super::admin()
    };
    Caller { key: Arc::new(key) }
}

/// The member that a caller is signed in as, if that is what he is.
pub(crate) fn member(caller: &Caller) -> Option<(&TenantId, &UserId)> {
    let user = caller.key.user.as_ref()?;
    let is_session = caller.key.id == id_of(&caller.key.tenant, user);
    is_session.then_some((&caller.key.tenant, user))
}

#[cfg(test)]
mod tests {
    use schemas::catalog::tenant::{Tenant, tenant_key};
    use schemas::catalog::user::user_key;
    use serde::Serialize;

    use super::*;
    use crate::sign_in::token::{Refresh, Signer};

    const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

    fn put<T: Serialize>(catalog: &mut Catalog, key: &str, record: &T) {
        let value = serde_json::to_vec(record).expect("serialize");
        catalog.apply(1, key, Some(&value)).expect("apply");
    }

    fn catalog(tenant_disabled: bool, change: impl FnOnce(&mut User)) -> Catalog {
        let mut catalog = Catalog::default();
        let tenant = Tenant {
            disabled: tenant_disabled,
            ..Tenant::new(TenantId::from("acme"), Origin::Runtime)
        };
        put(&mut catalog, &tenant_key(&tenant.id), &tenant);
        let mut user = User::new(tenant.id, UserId::from("ann"), Origin::Runtime);
        user.role = Some(Role::Admin);
        change(&mut user);
        put(&mut catalog, &user_key(&user.tenant, &user.id), &user);
        catalog
    }

    fn role(catalog: &Catalog, tenant: &str, user: &str) -> Option<Role> {
        let signer = Signer::new(b"secret", "local");
        let refresh = Refresh {
            tenant: TenantId::from(tenant),
            user: UserId::from(user),
            session: "s1".to_owned(),
            turn: 0,
        };
        let Read::Good(claims) = signer.read(&signer.access(&refresh, NOON, 60), NOON) else {
            panic!("a good token");
        };
        caller(&claims, catalog).map(|caller| caller.role())
    }

    #[test]
    fn a_member_may_do_what_the_catalogue_says_at_that_moment() {
        let now = |change: fn(&mut User)| role(&catalog(false, change), "acme", "ann");

        assert_eq!(now(|_| {}), Some(Role::Admin));
        assert_eq!(now(|user| user.role = Some(Role::Free)), Some(Role::Free));
        assert_eq!(now(|user| user.role = None), Some(Role::Free));
        assert_eq!(now(|user| user.disabled = true), None);
        assert_eq!(role(&catalog(true, |_| {}), "acme", "ann"), None);
        assert_eq!(role(&catalog(false, |_| {}), "acme", "bob"), None);
        assert_eq!(role(&catalog(false, |_| {}), "default", "ann"), None);
    }

    #[test]
    fn only_sessions_are_members_who_signed_in() {
        let user = User::new(TenantId::from("acme"), UserId::from("ann"), Origin::Runtime);
        let session = Caller {
            key: Arc::new(key(&user)),
        };
        assert_eq!(member(&session), Some((&user.tenant, &user.id)));
        let virtual_key = Caller {
            key: Arc::new(Key {
                id: KeyId::from("key-1"),
                ..key(&user)
            }),
        };
        assert_eq!(member(&virtual_key), None);
        assert_eq!(member(&anonymous()), None);
    }
}
