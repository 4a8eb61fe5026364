//! Members of tenants: what they may do and use over all their keys, and whether they may still call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::grant::Reach;
use super::{Catalog, Key, Origin, Role, Stored, from_hex, hex};
use crate::id::{ModelName, TenantId, UserId};
use crate::limit::limits::Limits;
use crate::subject;
use crate::time::Timestamp;

/// A member of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Whose member.
    pub tenant: TenantId,
    /// The member.
    pub id: UserId,
    /// The name people read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Where he is written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Arc<str>>,
    /// What he may do at most, whatever his keys say; `None` leaves it to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// What he may use, over all his keys.
    #[serde(default)]
    pub limits: Limits,
    /// His keys are refused.
    #[serde(default)]
    pub disabled: bool,
    /// An operator disabled him, and only one enables him again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled_by_operator: bool,
    /// Models that are not there for him, whatever his keys say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled_models: Vec<ModelName>,
    /// When he was made at run time; `None` for one of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Where the record came from.
    pub origin: Origin,
}

impl User {
    /// One of whom nothing is said.
    pub fn new(tenant: TenantId, id: UserId, origin: Origin) -> Self {
        Self {
            tenant,
            id,
            name: None,
            email: None,
            role: None,
            limits: Limits::default(),
            disabled: false,
            disabled_by_operator: false,
            disabled_models: Vec::new(),
            created_at: None,
            origin,
        }
    }

    /// Where he stands in the list of all members.
    pub fn cursor(&self) -> String {
        cursor(&self.tenant, &self.id)
    }
}

impl Catalog {
    /// A member.
    pub fn user(&self, tenant: &TenantId, id: &UserId) -> Option<&User> {
        self.stored_user(tenant, id).map(|stored| &*stored.record)
    }

    /// The same with its revision.
    pub fn stored_user(&self, tenant: &TenantId, id: &UserId) -> Option<&Stored<User>> {
        self.users.get(&(tenant.clone(), id.clone()))
    }

    /// Every member that comes after `after`, by tenant and id.
    pub fn users_after(&self, after: Option<&(TenantId, UserId)>) -> Vec<&Stored<User>> {
        let later =
            |(place, _): &(&(TenantId, UserId), &Stored<User>)| after.is_none_or(|after| *place > after);
        let mut users: Vec<_> = self.users.iter().filter(later).collect();
        users.sort_by(|a, b| a.0.cmp(b.0));
        users.into_iter().map(|(_, stored)| stored).collect()
    }

    /// What a key may do: never more than its member. `None` where its calls are not served, its tenant or its member
    /// being disabled.
    pub fn role_of(&self, key: &Key) -> Option<Role> {
        let user = key.user.as_ref().and_then(|id| self.user(&key.tenant, id));
        let tenant = self.tenant(&key.tenant);
        let disabled = tenant.is_some_and(|tenant| tenant.disabled) || user.is_some_and(|user| user.disabled);
        if disabled {
            return None;
        }
        match key.reach {
            // A grant is its owner's: it is nothing without him, and of one of whom no role is said it has the lowest.
            Reach::Grant(_) => user.map(|user| user.role.unwrap_or_default().min(key.role_most())),
            Reach::Member | Reach::Endpoint(_) => Some(at_most(key.role, user).min(key.role_most())),
        }
    }

    /// The most that a member may do, by his own role or by that of one of his keys that is not revoked; the lowest
    /// role for one of whom nothing is known.
    pub fn rank_of(&self, tenant: &TenantId, id: &UserId) -> Role {
        let user = self.user(tenant, id);
        let keys = self.keys.values().map(|stored| &stored.record).filter(|key| {
            !key.revoked && key.tenant == *tenant && key.user.as_ref().is_some_and(|user| user == id)
        });
        let roles = keys.map(|key| at_most(key.role, user));
        roles
            .chain(user.and_then(|user| user.role))
            .max()
            .unwrap_or_default()
    }
}

/// A role of a key, no higher than its member's.
fn at_most(role: Role, user: Option<&User>) -> Role {
    let most = user.and_then(|user| user.role);
    most.map_or(role, |most| most.min(role))
}

/// The record key of a member.
pub fn user_key(tenant: &TenantId, id: &UserId) -> String {
    format!("{}{}", subject::catalog::USER, cursor(tenant, id))
}

/// Where a member stands in the list of all members.
pub(crate) fn cursor(tenant: &TenantId, id: &UserId) -> String {
    format!("{}.{}", tenant.as_str(), hex(id.as_str().as_bytes()))
}

/// The member at a place in the list of all members; `None` for a text that is none.
pub fn user_of_cursor(cursor: &str) -> Option<(TenantId, UserId)> {
    let (tenant, id) = cursor.rsplit_once('.')?;
    let id = String::from_utf8(from_hex(id)?).ok()?;
    Some((TenantId::parse(tenant)?, UserId::new(id)))
}

/// The member of a record key; `None` for a key that is none.
pub(super) fn of_key(key: &str) -> Option<(TenantId, UserId)> {
    user_of_cursor(key.strip_prefix(subject::catalog::USER)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::key_key;
    use crate::catalog::tenant::{Tenant, tenant_key};
    use crate::catalog::tests::key;

    fn put<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
        let value = serde_json::to_vec(value).expect("serialize");
        catalog.apply(1, key, Some(&value)).expect("apply");
    }

    fn alice(catalog: &mut Catalog, change: impl FnOnce(&mut User)) {
        let mut user = User::new(TenantId::from("acme"), UserId::from("alice"), Origin::Runtime);
        change(&mut user);
        put(catalog, &user_key(&user.tenant, &user.id), &user);
    }

    #[test]
    fn records_of_members_are_told_by_their_keys() {
        let (tenant, user) = (TenantId::from("acme"), UserId::from("a.b/c"));
        assert_eq!(of_key(&user_key(&tenant, &user)), Some((tenant, user)));
        let mut catalog = Catalog::default();
        for key in ["user.acme", "user.acme.zz"] {
            assert!(catalog.apply(1, key, None).is_err(), "{key}");
        }
    }

    #[test]
    fn a_key_is_served_while_neither_its_tenant_nor_its_member_is_disabled() {
        let mut catalog = Catalog::default();
        let mut of_alice = key("k");
        of_alice.user = Some(UserId::from("alice"));
        let of_nobody = key("n");

        assert!(catalog.role_of(&of_alice).is_some(), "nothing is known of either");
        alice(&mut catalog, |user| user.disabled = true);
        assert_eq!(catalog.role_of(&of_alice), None);
        assert_eq!(catalog.role_of(&of_nobody), Some(Role::Free));
        alice(&mut catalog, |_| {});
        assert_eq!(catalog.role_of(&of_alice), Some(Role::Free));
        let tenant = Tenant {
            disabled: true,
            ..Tenant::new(TenantId::from("acme"), Origin::Runtime)
        };
        put(&mut catalog, &tenant_key(&tenant.id), &tenant);
        assert_eq!(catalog.role_of(&of_alice), None);
        assert_eq!(catalog.role_of(&of_nobody), None);
    }

    #[test]
    fn a_key_may_do_no_more_than_its_member() {
        let mut catalog = Catalog::default();
        let mut admin = key("k");
        admin.user = Some(UserId::from("alice"));
        admin.role = Role::Admin;

        assert_eq!(catalog.role_of(&admin), Some(Role::Admin));
        alice(&mut catalog, |user| user.role = Some(Role::Pro));
        assert_eq!(catalog.role_of(&admin), Some(Role::Pro));
        alice(&mut catalog, |user| user.role = Some(Role::Operator));
        assert_eq!(catalog.role_of(&admin), Some(Role::Admin));
    }

    #[test]
    fn the_rank_of_a_member_is_that_of_the_best_of_his_keys_that_are_good() {
        let (tenant, id) = (TenantId::from("acme"), UserId::from("alice"));
        let mut catalog = Catalog::default();
        assert_eq!(catalog.rank_of(&tenant, &id), Role::Free);
        for (place, role, revoked) in [(1, Role::Internal, false), (2, Role::Operator, true)] {
            let mut one = key("k");
            (one.user, one.role, one.revoked) = (Some(id.clone()), role, revoked);
            put(&mut catalog, &key_key(&[place; 32]), &one);
        }

        assert_eq!(catalog.rank_of(&tenant, &id), Role::Internal);
        alice(&mut catalog, |user| user.role = Some(Role::Admin));
        assert_eq!(catalog.rank_of(&tenant, &id), Role::Admin);
    }
}
