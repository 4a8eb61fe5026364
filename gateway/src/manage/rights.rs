//! Who may change what: pure. Nobody gives more than he has, and nobody takes from those above him. What a role counts
//! where a model asks for one is part of what he has: what an administrator of a tenant grants does not count there.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemas::catalog::user::{Maker, User};
use schemas::catalog::{Catalog, Key, Role};
use schemas::failure::Failure;
use schemas::id::{ModelName, TenantId, UserId};
use schemas::time::Timestamp;

use super::{invalid, scope};
use crate::caller::Caller;
use crate::gate;

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

/// What of a role counts where a model asks for one, when this caller grants it; `before` is what operators had granted.
pub(super) fn granted(caller: &Caller, role: Role, before: Option<Role>) -> Option<Role> {
    match operates(caller) {
        Ok(()) => Some(role),
        Err(_) => before,
    }
}

/// With whose rights what a caller makes is held together, where it is to be no member's: his own, or those of who made
/// the key that he calls with.
pub(super) fn maker(caller: &Caller, user: Option<&UserId>) -> Option<Maker> {
    let key = &caller.key;
    let own = key.user.as_ref().map(|user| Maker {
        tenant: key.tenant.clone(),
        user: user.clone(),
    });
    user.is_none()
        .then(|| own.or_else(|| key.maker.clone()))
        .flatten()
}

/// A credential whose secret a caller is shown: where it is another's, no more ever counts of it than of him. Somebody may
/// be low when others are given what is his, and be raised later.
fn seen(caller: &Caller, key: Key) -> Key {
    let user = key.user.as_ref();
    let is_own = user.is_none_or(|user| is_self(caller, &key.tenant, user));
    let seen_by = if is_own || operates(caller).is_ok() {
        caller.key.seen_by
    } else {
        Some(caller.key.counts())
    };
    Key { seen_by, ..key }
}

/// Refuses a credential of which more counts where a model asks for a role than of the caller.
fn may_count(caller: &Caller, catalog: &Catalog, key: &Key) -> Result<(), Failure> {
    if catalog.most_of(key).counts > caller.key.counts() {
        let text = "operators granted the credential's member a role that counts for more than the key's";
        return Err(scope(text).param("role"));
    }
    Ok(())
}

/// The credential as it is given another secret: whoever is told that has to be able to do as much as it, and answers
/// for it from then on.
pub(super) fn renewed(caller: &Caller, catalog: &Catalog, key: &Key) -> Result<Key, Failure> {
    let key = Key {
        maker: maker(caller, key.user.as_ref()),
        ..key.clone()
    };
    may_hold(caller, catalog, &key)?;
    Ok(seen(caller, key))
}

/// A new credential, if what would count of it does of the caller.
pub(super) fn minted(caller: &Caller, catalog: &Catalog, key: Key) -> Result<Key, Failure> {
    let key = Key {
        granted: granted(caller, key.role, None),
        maker: maker(caller, key.user.as_ref()),
        ..key
    };
    may_count(caller, catalog, &key)?;
    Ok(seen(caller, key))
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

/// Refuses a change of a member who may do more than the caller. What a key has lost to its end or its models is less:
/// of those with its role it changes nobody, whoever it is of, so that who finds it shuts nobody out.
pub(crate) fn may_touch(
    caller: &Caller,
    catalog: &Catalog,
    (tenant, user): (&TenantId, &UserId),
) -> Result<(), Failure> {
    let rank = catalog.rank_of(tenant, user);
    let key = &caller.key;
    let text = if rank > caller.role() {
        "the member may do more than the key"
    } else if rank == caller.role() && key.expires_at.is_some() {
        "the member has the role of the key, which expires"
    } else if rank == caller.role() && key.models.is_some() {
        "the member has the role of the key, which may not use every model"
    } else {
        return Ok(());
    };
    Err(scope(text).param("id"))
}

/// The models that are not there for a caller, whatever else he may: what he mints may not use them either.
pub(super) fn denied(caller: &Caller, catalog: &Catalog) -> Vec<ModelName> {
    let key = &caller.key;
    let user = key.user.as_ref().and_then(|id| catalog.user(&key.tenant, id));
    let user = user.or_else(|| catalog.maker_of(key));
    let of_user = user.map_or(&[][..], |user| &user.disabled_models);
    let all: BTreeSet<&ModelName> = key.denied.iter().chain(of_user).collect();
    all.into_iter().cloned().collect()
}

/// Refuses what is done with a credential that may do more than the caller: to change it or to be given its secret
/// would be to have that.
pub(super) fn may_hold(caller: &Caller, catalog: &Catalog, key: &Key) -> Result<(), Failure> {
    if key.role > caller.role() {
        return Err(scope("the credential may do more than the key").param("role"));
    }
    may_count(caller, catalog, key)?;
    may_last(caller, key.expires_at)?;
    if caller.key.expires_at.is_some() && key.expires_at.is_none() {
        return Err(scope("the credential lasts longer than the key").param("expires_at"));
    }
    let denied = denied(caller, catalog);
    let within = match &key.models {
        Some(models) => models.iter().all(|name| may_use(caller, catalog, &denied, name)),
        None => caller.key.models.is_none() && denied.iter().all(|name| key.denied.contains(name)),
    };
    if within {
        Ok(())
    } else {
        Err(scope("the credential may use models that the key may not").param("models"))
    }
}

/// Refuses to let a member sign in, by what `param` names: whoever signs in as him may do all that he may, for as long as
/// he is there, so that only those let him in who may do as much.
pub(crate) fn may_let_in(
    caller: &Caller,
    catalog: &Catalog,
    member: &User,
    param: &'static str,
) -> Result<(), Failure> {
    let key = &caller.key;
    let text = if key.expires_at.is_some() {
        "the member may sign in for longer than the key lasts"
    } else if key.models.is_some() {
        "the member may use models that the key may not"
    } else if !denied(caller, catalog)
        .iter()
        .all(|name| member.disabled_models.contains(name))
    {
        "the member may use models that are disabled for the key"
    } else if member.role.unwrap_or_default() > caller.role() || member.counts() > key.counts() {
        "the member may do more than the key"
    } else {
        return Ok(());
    };
    Err(scope(text).param(param))
}

/// The parameter that says where a member's letters go.
const EMAIL: &str = "email";

/// A member by whose change somebody comes to more than he had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Becoming<'a> {
    /// As he is.
    pub(crate) before: &'a User,
    /// As he is to be.
    pub(crate) after: &'a User,
    /// He has an account.
    pub(crate) signs_in: bool,
}

impl Becoming<'_> {
    /// What of the change gives whoever calls as him more than he had, or gives it to somebody else.
    fn widens(&self) -> Option<&'static str> {
        let (before, after) = (self.before, self.after);
        // Whoever has an address of mail comes in by it, if he has not yet: by a letter or by the provider's word.
        let is_let_in = self.signs_in || (after.email.is_some() && after.role.is_some());
        if is_let_in && before.email != after.email {
            Some(EMAIL)
        } else if self.rises() || after.counts() > before.counts() {
            Some("role")
        } else if before.disabled && !after.disabled {
            Some("disabled")
        } else {
            None
        }
    }

    /// Whether he may do more, with his keys or signed in.
    fn rises(&self) -> bool {
        let (before, after) = (self.before, self.after);
        let signed_in = after.role.unwrap_or_default() > before.role.unwrap_or_default();
        // Of whom no role is said, his keys alone say what he may.
        let by_keys = match (before.role, after.role) {
            (Some(before), Some(after)) => after > before,
            (before, None) => before.is_some(),
            (None, Some(_)) => false,
        };
        if self.signs_in {
            signed_in
        } else {
            by_keys || (signed_in && self.comes_in())
        }
    }

    /// He signs in, or could by his address of mail.
    fn comes_in(&self) -> bool {
        self.signs_in || self.after.email.is_some()
    }

    /// The models that come back to him.
    fn regains(&self) -> impl Iterator<Item = &ModelName> {
        let gone = |name: &&ModelName| !self.after.disabled_models.contains(name);
        self.before.disabled_models.iter().filter(gone)
    }
}

/// Refuses a change of a member that would have him do what the caller may not, whichever way it comes: said by the
/// caller, dropped, imported or put back.
pub(crate) fn may_become(caller: &Caller, catalog: &Catalog, becoming: &Becoming<'_>) -> Result<(), Failure> {
    let after = becoming.after;
    may_touch(caller, catalog, (&after.tenant, &after.id))?;
    if let Some(role) = after.role {
        may_give(caller, role)?;
    }
    // Nobody lets others use what he may not use.
    let hidden = |name: &ModelName| {
        catalog.model_anywhere(name.as_str()).is_some()
            && gate::visible(catalog, Some(&caller.key), name.as_str()).is_none()
    };
    if becoming.regains().any(hidden) {
        let text = "the key may not use all of the models that would be enabled";
        return Err(scope(text).param("disabled_models"));
    }
    let Some(param) = becoming.widens() else {
        return Ok(());
    };
    let most = after.role.unwrap_or(Role::Operator);
    let mut keys = catalog.keys_bound_to(&after.tenant, &after.id).peekable();
    if !becoming.comes_in() && keys.peek().is_none() {
        return Ok(());
    }
    may_let_in(caller, catalog, after, param)?;
    // What operators granted a key of his counts again.
    let counts = |key: &Arc<Key>| key.user.is_some() && key.counts().min(most) > caller.key.counts();
    if keys.any(counts) {
        return Err(scope("the member's keys may do more than the key").param(param));
    }
    Ok(())
}

/// Refuses to have others see a model that is not there for the caller himself.
pub(super) fn may_show(caller: &Caller, catalog: &Catalog, name: &ModelName) -> Result<(), Failure> {
    if may_use(caller, catalog, &denied(caller, catalog), name) {
        return Ok(());
    }
    Err(scope("the key may not use the model itself").param("id"))
}

/// May the caller have others use this model?
fn may_use(caller: &Caller, catalog: &Catalog, denied: &[ModelName], name: &ModelName) -> bool {
    let own = caller.key.models.as_ref();
    gate::visible(catalog, Some(&caller.key), name.as_str()).is_some()
        || (!denied.contains(name) && own.is_none_or(|own| own.contains(name)))
}

/// True when a member is the one who calls, or made the key of nobody's that is called with.
pub(super) fn is_behind(caller: &Caller, tenant: &TenantId, user: &UserId) -> bool {
    let maker = caller.key.maker.as_ref();
    let made = caller.key.user.is_none()
        && maker.is_some_and(|maker| maker.tenant == *tenant && maker.user == *user);
    made || is_self(caller, tenant, user)
}

/// True when a member is the one who calls.
fn is_self(caller: &Caller, tenant: &TenantId, user: &UserId) -> bool {
    caller.tenant() == tenant && caller.key.user.as_ref() == Some(user)
}

#[cfg(test)]
mod tests;
