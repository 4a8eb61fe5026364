//! What everybody may do, by a few lines that know nothing of the gateway's own. Who holds what is told here call by call;
//! what it is worth is computed anew each time.

use std::collections::{BTreeMap, BTreeSet};

use schemas::catalog::Role;

/// The models that there are, and the role that each asks for.
pub(super) const MODELS: [(&str, Role); 2] = [("m", Role::Free), ("org/staff", Role::Internal)];

/// Later than everything.
pub(super) const NEVER: i64 = i64::MAX;

pub(super) type Names = BTreeSet<&'static str>;
/// A member: his tenant and his id.
pub(super) type Who = (&'static str, &'static str);

/// Rules that can be left out, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// All of them are kept.
    None,
    /// A key may do no more than its member.
    Members,
    /// A key that is nobody's may do no more than who made it.
    Makers,
    /// Models count the roles that operators granted.
    Grants,
    /// What is disabled for a member is disabled for his keys.
    Disabled,
}

/// A member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) role: Option<Role>,
    pub(super) granted: Option<Role>,
    pub(super) is_disabled: bool,
    pub(super) denied: Names,
    /// As his file has him, if one has.
    pub(super) of_file: Option<Box<Person>>,
    /// A file has him as he is.
    pub(super) is_as_filed: bool,
}

/// What a credential is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Key,
    Session,
    Grant,
}

/// A credential that somebody knows.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    pub(super) kind: Kind,
    /// Empty for what is no key's.
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) tenant: &'static str,
    pub(super) user: Option<&'static str>,
    pub(super) role: Role,
    pub(super) granted: Option<Role>,
    pub(super) models: Option<Names>,
    pub(super) denied: Names,
    pub(super) until: i64,
    pub(super) maker: Option<Who>,
    /// What counted of whoever was shown the secret, of somebody else's.
    pub(super) seen_by: Option<Role>,
    pub(super) is_revoked: bool,
}

/// What a credential is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) role: Role,
    /// What of it counts where a model asks for a role.
    pub(super) counts: Role,
    pub(super) models: Names,
    pub(super) until: i64,
}

/// Who there is, and what he holds.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) people: BTreeMap<Who, Person>,
    pub(super) credentials: Vec<Credential>,
    pub(super) without: Rule,
}

impl World {
    fn person(&self, tenant: &'static str, user: Option<&'static str>) -> Option<&Person> {
        self.people.get(&(tenant, user?))
    }

    /// The member by whom a credential is bounded although it is not his.
    fn maker(&self, held: &Credential) -> Option<&Person> {
        let is_bound = held.user.is_none() && self.without != Rule::Makers;
        held.maker
            .filter(|_| is_bound)
            .and_then(|who| self.people.get(&who))
    }

    /// What is not there for whoever calls with it.
    pub(super) fn denied(&self, held: &Credential) -> Names {
        let mut denied = held.denied.clone();
        let of = self.person(held.tenant, held.user).or_else(|| self.maker(held));
        if let Some(person) = of.filter(|_| self.without != Rule::Disabled) {
            denied.extend(&person.denied);
        }
        denied
    }

    /// What a credential is worth; `None` for one that is refused.
    pub(super) fn rights(&self, held: &Credential) -> Option<Rights> {
        let person = self.person(held.tenant, held.user);
        if held.is_revoked || person.is_some_and(|person| person.is_disabled) {
            return None;
        }
        let (own, own_counts) = match held.kind {
            Kind::Key => (held.role, held.granted.unwrap_or_default()),
            // They are his, and nothing without him.
            Kind::Session | Kind::Grant => {
                person?;
                (Role::Operator, Role::Free)
            }
        };
        let said = |person: &Person| match held.kind {
            Kind::Key => person.role.unwrap_or(Role::Operator),
            Kind::Session | Kind::Grant => person.role.unwrap_or_default(),
        };
        let counted = |person: &Person| match person.role {
            // Nobody but operators makes operators.
            Some(Role::Operator) => Role::Operator,
            role => person.granted.unwrap_or_default().min(role.unwrap_or_default()),
        };
        let most = if held.kind == Kind::Grant {
            Role::Internal
        } else {
            Role::Operator
        };
        let bound = person.filter(|_| self.without != Rule::Members);
        let mut role = own.min(bound.map_or(Role::Operator, said)).min(most);
        let mut counts = own_counts.max(person.map(counted).unwrap_or_default()).min(role);
        if role == Role::Operator || self.without == Rule::Grants {
            counts = role;
        }
        if let Some(seen_by) = held.seen_by.filter(|_| self.without != Rule::Grants) {
            counts = counts.min(seen_by);
        }
        if let Some(maker) = self.maker(held) {
            let (at_most, counting) = match (maker.is_disabled, maker.role) {
                (true, _) => (Role::Free, Role::Free),
                (false, Some(Role::Operator) | None) => (Role::Operator, Role::Operator),
                (false, Some(role)) => (role, counted(maker)),
            };
            role = role.min(at_most);
            counts = counts.min(if self.without == Rule::Grants {
                role
            } else {
                counting
            });
        }
        let denied = self.denied(held);
        let may_use = |(name, required): &(&'static str, Role)| {
            let is_named = held.models.as_ref().is_none_or(|models| models.contains(name));
            is_named && counts >= *required && !denied.contains(name)
        };
        let models = MODELS
            .iter()
            .filter(|model| may_use(model))
            .map(|(name, _)| *name);
        Some(Rights {
            role,
            counts,
            models: models.collect(),
            until: held.until,
        })
    }
}

/// What somebody came to by a call that neither he had nor who called.
pub(super) fn beyond(before: Option<&Rights>, after: Option<&Rights>, caller: &Rights) -> Option<String> {
    let after = after?;
    let sources = [before, Some(caller)];
    let has = |of: &dyn Fn(&Rights) -> bool| {
        let mut sources = sources.iter().flatten();
        sources.any(|source| of(source) && source.until >= after.until)
    };
    if !has(&|source| source.role >= after.role) {
        return Some(format!("role {:?} until {}", after.role, after.until));
    }
    let mut models = after.models.iter();
    let foreign = models.find(|name| !has(&|source| source.models.contains(*name)));
    foreign.map(|name| format!("model {name} until {}", after.until))
}

#[test]
fn what_neither_had_is_beyond_and_what_one_had_is_not() {
    let rights = |role, models: &[&'static str], until| Rights {
        role,
        counts: role,
        models: models.iter().copied().collect(),
        until,
    };
    let caller = rights(Role::Admin, &["m"], 5);
    let had = rights(Role::Free, &["org/staff"], NEVER);
    let judged = |after: &Rights| beyond(Some(&had), Some(after), &caller).is_some();

    assert!(!judged(&rights(Role::Free, &["org/staff"], NEVER)));
    assert!(!judged(&rights(Role::Admin, &["m", "org/staff"], 5)));
    assert!(judged(&rights(Role::Admin, &["m"], 6)), "for longer");
    assert!(judged(&rights(Role::Free, &["m"], NEVER)), "a model for longer");
    assert!(judged(&rights(Role::Operator, &[], 5)), "more than either");
    assert!(beyond(None, None, &caller).is_none());
    assert!(beyond(None, Some(&had), &caller).is_some(), "out of nothing");
}
