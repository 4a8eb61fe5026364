//! Who may change what: pure. Nobody gives more than he has, and nobody takes from those above him.

use schemas::catalog::{Catalog, Role};
use schemas::failure::Failure;
use schemas::id::{TenantId, UserId};
use schemas::time::Timestamp;

use super::{invalid, scope};
use crate::caller::Caller;

/// Refuses what only administrators may do.
pub(super) fn administers(caller: &Caller) -> Result<(), Failure> {
    match caller.role() {
        Role::Operator | Role::Admin => Ok(()),
        Role::Free | Role::Pro | Role::Internal => Err(scope("only an administrator may do this")),
    }
}

/// Refuses what only operators may do.
pub(super) fn operates(caller: &Caller) -> Result<(), Failure> {
    match caller.role() {
        Role::Operator => Ok(()),
        Role::Admin | Role::Free | Role::Pro | Role::Internal => Err(scope("only an operator may do this")),
    }
}

/// True for a tenant whose records are the caller's to administer, if any are.
pub(super) fn reaches(caller: &Caller, tenant: &TenantId) -> bool {
    caller.role() == Role::Operator || tenant == caller.tenant()
}

/// The tenant that a caller names, or his own: one that he administers.
pub(super) fn tenant(caller: &Caller, named: Option<&str>) -> Result<TenantId, Failure> {
    administers(caller)?;
    let tenant = named.map_or_else(|| caller.tenant().clone(), TenantId::from);
    if reaches(caller, &tenant) {
        Ok(tenant)
    } else {
        Err(scope("the key may not administer other tenants").param("tenant"))
    }
}

/// The same, of a tenant that is there and not disabled: for what is new.
pub(super) fn living_tenant(
    caller: &Caller,
    catalog: &Catalog,
    named: Option<&str>,
) -> Result<TenantId, Failure> {
    let id = tenant(caller, named)?;
    match catalog.tenant(&id) {
        None => Err(invalid("tenant", "there is no such tenant")),
        Some(found) if found.disabled => Err(invalid("tenant", "the tenant is disabled")),
        Some(_) => Ok(id),
    }
}

/// Refuses a role above the caller's own.
pub(super) fn may_give(caller: &Caller, role: Role) -> Result<Role, Failure> {
    if role > caller.role() {
        return Err(scope("nobody may grant a role above his own").param("role"));
    }
    Ok(role)
}

/// Until when what a caller makes may last: no longer than the credential that he makes it with.
pub(super) fn may_last(caller: &Caller, wanted: Option<Timestamp>) -> Result<Option<Timestamp>, Failure> {
    match (caller.key.expires_at, wanted) {
        (Some(own), Some(wanted)) if wanted > own => {
            Err(scope("nobody may grant a time beyond his own").param("expires_at"))
        }
        (own, wanted) => Ok(wanted.or(own)),
    }
}

/// Refuses a change of a member who may do more than the caller.
pub(super) fn may_touch(
    caller: &Caller,
    catalog: &Catalog,
    (tenant, user): (&TenantId, &UserId),
) -> Result<(), Failure> {
    if catalog.rank_of(tenant, user) > caller.role() {
        return Err(scope("the member may do more than the key").param("id"));
    }
    Ok(())
}

/// True when a member is the one who calls.
pub(super) fn is_self(caller: &Caller, tenant: &TenantId, user: &UserId) -> bool {
    caller.tenant() == tenant && caller.key.user.as_ref() == Some(user)
}

#[cfg(test)]
mod tests;
