//! Which keys of a list are asked for.

use axum::extract::Query;
use schemas::catalog::Key;
use schemas::failure::Failure;
use schemas::id::{TenantId, UserId};

use crate::caller::Caller;
use crate::manage::openapi::Parameter;
use crate::manage::page::Asked;
use crate::manage::{Parameters, parameters, rights, word};

/// What a list may be narrowed by.
pub(super) const FILTERS: &[Parameter] = &[
    Parameter::new::<TenantId>("tenant", "Only keys of this tenant."),
    Parameter::new::<UserId>("user", "Only keys of this member."),
    Parameter::new::<String>("name", "Only keys that are called so."),
    Parameter::new::<bool>("revoked", "Only keys that are revoked, or only such as are not."),
];

/// Which keys are asked for.
#[derive(Debug, Default)]
pub(super) struct Filter {
    tenant: Option<TenantId>,
    user: Option<String>,
    name: Option<String>,
    revoked: Option<bool>,
}

impl Filter {
    /// Reads the parameters of a URL.
    pub(super) fn of(given: Parameters, caller: &Caller) -> Result<(Self, Asked), Failure> {
        let mut filter = Self::default();
        let mut rest = Vec::new();
        for (name, value) in parameters(given)? {
            match name.as_str() {
                "tenant" => filter.tenant = Some(rights::tenant(caller, Some(&value))?),
                "user" => filter.user = Some(value),
                "name" => filter.name = Some(value),
                "revoked" => filter.revoked = Some(truth(&name, &value)?),
                _ => rest.push((name, value)),
            }
        }
        Ok((filter, Asked::of(Ok(Query(rest)), false)?))
    }

    /// True for a key that is asked for.
    pub(super) fn takes(&self, key: &Key) -> bool {
        let user = key.user.as_ref().map(UserId::as_str);
        self.tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant)
            && self.user.as_deref().is_none_or(|wanted| Some(wanted) == user)
            && self.name.as_deref().is_none_or(|wanted| *key.name == *wanted)
            && self.revoked.is_none_or(|wanted| wanted == key.revoked)
    }
}

fn truth(name: &str, value: &str) -> Result<bool, Failure> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        True,
        False,
    }
    word::<Word>(name, value).map(|word| matches!(word, Word::True))
}
