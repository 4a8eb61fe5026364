//! Members of tenants: what they may do and use over all their keys, and whether they may still call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::grant::Reach;
use super::{Catalog, Key, Origin, Role, Stored, from_hex, hex};
use crate::account::email::Email;
use crate::id::{ModelName, TenantId, UserId};
use crate::limit::limits::Limits;
use crate::subject;
use crate::time::Timestamp;

/// A member who made something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// Whose member.
    pub tenant: TenantId,
    /// The member.
    pub user: UserId,
}

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
    /// The most that operators granted him; `None` where a tenant's administrator alone did. See [`User::counts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Role>,
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
            granted: None,
            limits: Limits::default(),
            disabled: false,
            disabled_by_operator: false,
            disabled_models: Vec::new(),
            created_at: None,
            origin,
        }
    }

    /// What of his role counts where a model asks for one: no more than operators granted.
    pub fn counts(&self) -> Role {
        counted(self.role.unwrap_or_default(), self.granted)
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

    /// The members who have an address of mail, in no order: one, unless they were made before addresses were one
    /// member's.
    pub fn members_of_address<'c>(&'c self, email: &'c Email) -> impl Iterator<Item = &'c User> {
        let users = self.users.values().map(|stored| &*stored.record);
        users.filter(|user| user.email.as_deref().is_some_and(|own| email.is(own)))
    }

    /// What a key may do: never more than its member, or than who made it where it is no member's. `None` where its
    /// calls are not served, its tenant or its member being disabled.
    pub fn role_of(&self, key: &Key) -> Option<Role> {
        self.worth_of(key).map(|worth| worth.role)
    }

    /// The same with what of it counts where a model asks for a role.
    pub fn worth_of(&self, key: &Key) -> Option<Worth> {
        let user = key.user.as_ref().and_then(|id| self.user(&key.tenant, id));
        let tenant = self.tenant(&key.tenant);
        let disabled = tenant.is_some_and(|tenant| tenant.disabled) || user.is_some_and(|user| user.disabled);
        // A grant is its owner's: it is nothing without him.
        let is_lost = matches!(key.reach, Reach::Grant(_)) && user.is_none();
        (!disabled && !is_lost).then(|| self.most_of(key))
    }

    /// What a key may do at most while its calls are served.
    pub fn most_of(&self, key: &Key) -> Worth {
        let user = key.user.as_ref().and_then(|id| self.user(&key.tenant, id));
        let most = key.role_most();
        if matches!(key.reach, Reach::Grant(_)) {
            // Of one of whom no role is said it has the lowest.
            return Worth {
                role: user.and_then(|user| user.role).unwrap_or_default(),
                counts: user.map(User::counts).unwrap_or_default(),
            }
            .at_most(most, most);
        }
        let role = at_most(key.role, user);
        let worth = Worth {
            role,
            counts: counted(role, key.granted).max(user.map_or(Role::Free, User::counts).min(role)),
        };
        // Of a secret that somebody else was shown no more counts than of him.
        let worth = worth.at_most(most, key.seen_by.unwrap_or(most));
        match self.maker_of(key) {
            Some(maker) if maker.disabled => worth.at_most(Role::Free, Role::Free),
            Some(maker) => match maker.role {
                Some(role) => worth.at_most(role, maker.counts()),
                None => worth,
            },
            None => worth,
        }
    }

    /// With whose rights a key is held together with: those of who made it, while he is a member and it is nobody's.
    pub fn maker_of(&self, key: &Key) -> Option<&User> {
        let maker = key.maker.as_ref().filter(|_| key.user.is_none())?;
        self.user(&maker.tenant, &maker.user)
    }

    /// The keys that are not revoked whose worth follows a member's: his own, and those of nobody's that he made.
    pub fn keys_bound_to(&self, tenant: &TenantId, id: &UserId) -> impl Iterator<Item = &Arc<Key>> {
        let keys = self.keys.values().map(|stored| &stored.record);
        keys.filter(move |key| {
            let is_his = key.tenant == *tenant && key.user.as_ref().is_some_and(|user| user == id);
            let maker = key.maker.as_ref().filter(|_| key.user.is_none());
            let is_made = maker.is_some_and(|maker| maker.tenant == *tenant && maker.user == *id);
            !key.revoked && (is_his || is_made)
        })
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

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worth {
    /// His role.
    pub role: Role,
    /// What of it counts where a model asks for a role: no more than operators granted.
    pub counts: Role,
}

impl Worth {
    fn at_most(self, role: Role, counts: Role) -> Self {
        Self {
            role: self.role.min(role),
            counts: self.counts.min(counts),
        }
    }
}

impl Key {
    /// What of its role counts where a model asks for one: no more than operators granted.
    pub fn counts(&self) -> Role {
        counted(self.role, self.granted)
    }
}

/// What of a role counts of which operators granted so much. Nobody but operators makes operators.
fn counted(role: Role, granted: Option<Role>) -> Role {
    match role {
        Role::Operator => role,
        Role::Free | Role::Pro | Role::Internal | Role::Admin => granted.unwrap_or_default().min(role),
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
    fn roles_count_as_far_as_operators_granted_them() {
        let mut catalog = Catalog::default();
        let counts = |catalog: &Catalog, key: &Key| catalog.worth_of(key).map(|worth| worth.counts);
        let mut of_alice = key("k");
        (of_alice.user, of_alice.role) = (Some(UserId::from("alice")), Role::Internal);
        assert_eq!(
            counts(&catalog, &of_alice),
            Some(Role::Free),
            "nobody granted anything"
        );
        of_alice.granted = Some(Role::Admin);
        assert_eq!(counts(&catalog, &of_alice), Some(Role::Internal));
        of_alice.granted = None;

        let granted = |catalog: &mut Catalog, granted| {
            alice(catalog, |user| {
                (user.role, user.granted) = (Some(Role::Admin), granted);
            });
        };
        granted(&mut catalog, None);
        assert_eq!(counts(&catalog, &of_alice), Some(Role::Free));
        granted(&mut catalog, Some(Role::Pro));
        assert_eq!(counts(&catalog, &of_alice), Some(Role::Pro));
        granted(&mut catalog, Some(Role::Operator));
        assert_eq!(
            counts(&catalog, &of_alice),
            Some(Role::Internal),
            "no more than the key"
        );
        let grant = Key {
            reach: Reach::Grant("job".into()),
            ..of_alice
        };
        granted(&mut catalog, Some(Role::Pro));
        let worth = catalog.worth_of(&grant).expect("an owner");
        assert_eq!((worth.role, worth.counts), (Role::Internal, Role::Pro));
    }

    #[test]
    fn no_more_of_a_key_counts_than_of_whoever_was_shown_its_secret() {
        let mut catalog = Catalog::default();
        let mut of_alice = key("k");
        (of_alice.user, of_alice.role) = (Some(UserId::from("alice")), Role::Admin);
        of_alice.granted = Some(Role::Internal);
        alice(&mut catalog, |user| {
            (user.role, user.granted) = (Some(Role::Admin), Some(Role::Admin));
        });
        let worth = |catalog: &Catalog, seen_by| {
            let key = Key {
                seen_by,
                ..of_alice.clone()
            };
            let worth = catalog.worth_of(&key).expect("a member");
            (worth.role, worth.counts)
        };

        assert_eq!(worth(&catalog, None), (Role::Admin, Role::Admin));
        assert_eq!(worth(&catalog, Some(Role::Pro)), (Role::Admin, Role::Pro));
        assert_eq!(worth(&catalog, Some(Role::Operator)), (Role::Admin, Role::Admin));
        alice(&mut catalog, |user| user.role = Some(Role::Free));
        assert_eq!(worth(&catalog, Some(Role::Pro)), (Role::Free, Role::Free));
    }

    #[test]
    fn the_members_of_an_address_are_found_however_it_is_written() {
        let mut catalog = Catalog::default();
        alice(&mut catalog, |user| user.email = Some("Alice@Example.com".into()));
        let found = |text: &str| {
            let email = Email::parse(text).expect("an address");
            catalog.members_of_address(&email).count()
        };

        assert_eq!((found("alice@example.com"), found("bob@example.com")), (1, 0));
    }

    #[test]
    fn a_key_that_is_nobodys_may_do_no_more_than_who_made_it_while_he_is_a_member() {
        let mut catalog = Catalog::default();
        let mut made = key("k");
        (made.role, made.granted) = (Role::Admin, Some(Role::Admin));
        made.maker = Some(Maker {
            tenant: TenantId::from("acme"),
            user: UserId::from("alice"),
        });
        let role = |catalog: &Catalog, made: &Key| catalog.role_of(made);

        assert_eq!(role(&catalog, &made), Some(Role::Admin), "he is no member");
        alice(&mut catalog, |user| user.role = None);
        assert_eq!(
            role(&catalog, &made),
            Some(Role::Admin),
            "his keys alone say what he may"
        );
        alice(&mut catalog, |user| user.role = Some(Role::Pro));
        assert_eq!(role(&catalog, &made), Some(Role::Pro));
        assert_eq!(
            catalog.worth_of(&made).map(|worth| worth.counts),
            Some(Role::Free)
        );
        alice(&mut catalog, |user| {
            (user.role, user.disabled) = (Some(Role::Admin), true);
        });
        assert_eq!(
            role(&catalog, &made),
            Some(Role::Free),
            "it still calls, and administers nothing"
        );
        made.user = Some(UserId::from("bob"));
        assert_eq!(role(&catalog, &made), Some(Role::Admin), "it is bob's");
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
