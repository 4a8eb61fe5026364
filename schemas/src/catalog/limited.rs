//! Whose limits hold for a caller: records of roles, and all subjects of a key at once.

use serde::{Deserialize, Serialize};

use super::{Catalog, Key, Origin, Role};
use crate::id::{ModelName, UserId};
use crate::limit::layers::{Bound, Subjects};
use crate::limit::limits::Limits;
use crate::subject;

/// What a role allows: fills what a member leaves out, or a key that belongs to nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleLimits {
    /// The role.
    pub role: Role,
    /// What it allows.
    pub limits: Limits,
    /// Where it came from.
    pub origin: Origin,
}

impl Catalog {
    /// What a role allows.
    pub fn role_limits(&self, role: Role) -> &Limits {
        let laid_over = self.settings.role(role);
        laid_over
            .or_else(|| self.roles.get(&role))
            .map_or(Limits::NONE, |role| &role.limits)
    }

    /// The role whose limits fill what a key's member leaves out: of a grant his own, whatever the grant may do.
    fn role_of_limits(&self, key: &Key) -> Role {
        let user = key.user.as_ref().filter(|_| !key.reach.is_member());
        let user = user.and_then(|id| self.user(&key.tenant, id));
        user.and_then(|user| user.role).unwrap_or(key.role)
    }

    /// All that may bound the calls of a key.
    pub fn subjects<'c>(&'c self, key: &'c Key) -> Subjects<'c> {
        let tenant = self.tenant(&key.tenant);
        let limits_of = |id: &UserId| {
            self.user(&key.tenant, id)
                .map_or(Limits::NONE, |user| &user.limits)
        };
        Subjects {
            tenant: (&key.tenant, tenant.map_or(Limits::NONE, |tenant| &tenant.limits)),
            user: key.user.as_ref().map(|id| (id, limits_of(id))),
            key: (&key.id, &key.limits),
            role: self.role_limits(self.role_of_limits(key)),
        }
    }

    /// All that bounds the calls of a key for a model (the catalogue's name, or one that no model has), in order.
    pub fn bounds(&self, key: &Key, model: &ModelName) -> Vec<Bound> {
        let meant = |name: &ModelName| self.model_for(&key.tenant, name.as_str());
        let known = meant(model).filter(|known| known.id == *model);
        let aliases = known.map_or(&[][..], |known| &known.aliases);
        let leads_here = |alias: &&ModelName| meant(alias).is_some_and(|found| found.id == *model);
        let aliases: Vec<ModelName> = aliases.iter().filter(leads_here).cloned().collect();
        self.subjects(key).bounds(model, &aliases)
    }
}

/// The record key of what a role allows.
pub fn role_key(role: Role) -> String {
    format!("{}{}", subject::catalog::ROLE, word(role))
}

/// The role of a record key; `None` for a key that is none.
pub(super) fn role_of_key(key: &str) -> Option<Role> {
    const ROLES: [Role; 5] = [Role::Free, Role::Pro, Role::Internal, Role::Admin, Role::Operator];
    let name = key.strip_prefix(subject::catalog::ROLE)?;
    ROLES.into_iter().find(|role| word(*role) == name)
}

const fn word(role: Role) -> &'static str {
    match role {
        Role::Free => "free",
        Role::Pro => "pro",
        Role::Internal => "internal",
        Role::Admin => "admin",
        Role::Operator => "operator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tenant::{Tenant, tenant_key};
    use crate::catalog::user::{User, user_key};
    use crate::id::TenantId;

    fn limits(text: &str) -> Limits {
        serde_json::from_str(text).expect("limits")
    }

    fn apply<T: Serialize>(catalog: &mut Catalog, key: &str, value: &T) {
        let value = serde_json::to_vec(value).expect("serialize");
        catalog.apply(1, key, Some(&value)).expect("apply");
    }

    #[test]
    fn the_limits_of_tenant_member_key_and_role_all_reach_a_call() {
        let (tenant, user) = (TenantId::from("acme"), UserId::from("Ann B."));
        let mut catalog = Catalog::default();
        let mut key = crate::catalog::tests::key("k");
        key.user = Some(user.clone());
        key.limits = limits(r#"{"qps":3}"#);
        apply(
            &mut catalog,
            &tenant_key(&tenant),
            &Tenant {
                limits: limits(r#"{"qps":1}"#),
                ..Tenant::new(tenant.clone(), Origin::File)
            },
        );
        apply(
            &mut catalog,
            &user_key(&tenant, &user),
            &User {
                limits: limits(r#"{"qps":2}"#),
                ..User::new(tenant.clone(), user, Origin::File)
            },
        );
        apply(
            &mut catalog,
            &role_key(Role::Free),
            &RoleLimits {
                role: Role::Free,
                limits: limits(r#"{"qps":9,"rpm":4}"#),
                origin: Origin::File,
            },
        );

        let bounds = catalog.bounds(&key, &ModelName::from("m"));

        let limits: Vec<u64> = bounds.iter().map(|bound| bound.limit).collect();
        assert_eq!(limits, [1, 2, 3, 4]);
    }

    #[test]
    fn who_has_no_record_has_no_limit() {
        let catalog = Catalog::default();
        let mut key = crate::catalog::tests::key("k");
        key.user = Some(UserId::from("ann"));

        assert_eq!(catalog.bounds(&key, &ModelName::from("m")), []);
    }

    #[test]
    fn records_of_roles_are_told_by_their_keys() {
        assert_eq!(role_of_key(&role_key(Role::Internal)), Some(Role::Internal));
        let mut catalog = Catalog::default();
        assert!(catalog.apply(1, "role.king", None).is_err());
    }
}
