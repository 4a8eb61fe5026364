//! Limits of the file: of tenants, members, keys and roles. Whatever is wrong is named with its path and line.

use std::collections::BTreeSet;

use schemas::catalog::{Model, Role};
use schemas::id::{DEFAULT_TENANT, TenantId, UserId};
use schemas::limit::limits::{Limits, PER_MODEL, ProblemKind};
use serde_json::{Map, Value};

use super::Error;
use crate::keys;
use crate::settings::Settings;
use crate::yaml::{Document, Problem};

/// A tenant of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTenant {
    /// Its id.
    pub id: TenantId,
    /// What it may use.
    pub limits: Limits,
}

/// A member of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUser {
    /// Whose member.
    pub tenant: TenantId,
    /// The member.
    pub id: UserId,
    /// What he may use.
    pub limits: Limits,
}

/// Everybody whom the file gives limits, beside keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Tenants, also those without limits.
    pub tenants: Vec<FileTenant>,
    /// Members.
    pub users: Vec<FileUser>,
    /// What roles allow.
    pub roles: Vec<(Role, Limits)>,
    /// Where limits of single models stand, those of keys included.
    pub per_model: Vec<OfModel>,
}

/// A place of the file with limits of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfModel {
    /// The model, by the name that is written.
    pub name: String,
    /// The place, as the problem that it is while nobody knows the model.
    pub unknown: Problem,
}

impl OfModel {
    /// What is wrong with the place before these models: an alias bounds nothing, and must not stand there; a name
    /// that nobody knows may become known.
    pub fn check(&self, models: &[Model]) -> Result<Option<Problem>, Problem> {
        if models.iter().any(|model| model.id.as_str() == self.name) {
            return Ok(None);
        }
        let is_named = |model: &&Model| model.aliases.iter().any(|alias| alias.as_str() == self.name);
        let Some(model) = models.iter().find(is_named) else {
            return Ok(Some(self.unknown.clone()));
        };
        Err(Problem {
            message: format!("\"{}\" is an alias of the model \"{}\"", self.name, model.id),
            remedy: format!("write \"{}\": its aliases count with it", model.id),
            ..self.unknown.clone()
        })
    }
}

/// Everybody whom the file gives limits.
pub(super) fn read_all(settings: &Settings, document: &Document) -> Result<FileLimits, Error> {
    Ok(FileLimits {
        tenants: tenants(settings, document)?,
        users: users(settings, document)?,
        roles: roles(settings, document)?,
        per_model: per_model(settings, document),
    })
}

/// Where limits of single models stand.
fn per_model(settings: &Settings, document: &Document) -> Vec<OfModel> {
    let mut all: Vec<(String, &Map<String, Value>)> = Vec::new();
    let listed = |section: &str, n: usize| format!("{section}[{n}].limits");
    let tenants = settings.tenants.iter().enumerate();
    all.extend(tenants.map(|(n, tenant)| (listed("tenants", n), &tenant.limits)));
    let users = settings.users.iter().enumerate();
    all.extend(users.map(|(n, user)| (listed("users", n), &user.limits)));
    let roles = settings.role_limits.iter();
    all.extend(roles.map(|(word, limits)| (format!("role_limits.{word}"), limits)));
    let keys = settings.keys.iter().enumerate();
    all.extend(keys.map(|(n, key)| (listed("keys", n), &key.limits)));
    let mut found = Vec::new();
    for (path, limits) in all {
        let models = limits.get(PER_MODEL).and_then(Value::as_object);
        for name in models.into_iter().flat_map(Map::keys) {
            let path = format!("{path}.{PER_MODEL}.{name}");
            let message = format!("no model is named \"{name}\" so far");
            let remedy = "correct the name, unless the model comes later";
            found.push(OfModel {
                name: name.clone(),
                unknown: document.problem(&path, message, remedy),
            });
        }
    }
    found
}

/// Limits as they are written at `path`.
pub fn read(document: &Document, path: &str, written: &Map<String, Value>) -> Result<Limits, Error> {
    Limits::try_from(written.clone()).map_err(|problem| {
        let remedy = match problem.kind {
            ProblemKind::Key => "remove it or correct its name",
            ProblemKind::Count => "write a whole number that is not negative; 0 is unlimited",
            ProblemKind::Money => "write US dollars as text with at most nine decimals; \"0\" is unlimited",
            ProblemKind::Models | ProblemKind::TooMany => "write per_model: { MODEL: { rpm: 60 } }",
        };
        let path = format!("{path}.{}", problem.path);
        document.problem(&path, problem.kind.to_string(), remedy).into()
    })
}

/// The tenants of the file.
fn tenants(settings: &Settings, document: &Document) -> Result<Vec<FileTenant>, Error> {
    let mut tenants: Vec<FileTenant> = Vec::new();
    for (n, tenant) in settings.tenants.iter().enumerate() {
        let path = format!("tenants[{n}]");
        let wrong = |message: String, remedy: &str| document.problem(&format!("{path}.id"), message, remedy);
        let id = TenantId::parse(&tenant.id).ok_or_else(|| {
            let message = format!("\"{}\" is not a tenant id", tenant.id);
            let remedy =
                "use lower-case letters, digits and hyphens, at most 63, beginning with a letter or digit";
            wrong(message, remedy)
        })?;
        if tenants.iter().any(|known| known.id == id) {
            let message = format!("the tenant \"{id}\" is given twice");
            return Err(wrong(message, "give each tenant one entry").into());
        }
        let limits = read(document, &format!("{path}.limits"), &tenant.limits)?;
        tenants.push(FileTenant { id, limits });
    }
    Ok(tenants)
}

/// The members of the file.
fn users(settings: &Settings, document: &Document) -> Result<Vec<FileUser>, Error> {
    let mut users = Vec::new();
    let mut seen = BTreeSet::new();
    for (n, user) in settings.users.iter().enumerate() {
        let path = format!("users[{n}]");
        let wrong = |field: &str, message: String, remedy: &str| {
            Error::Wrong(document.problem(&format!("{path}.{field}"), message, remedy))
        };
        let name = user.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        let known = name == DEFAULT_TENANT || settings.tenants.iter().any(|tenant| tenant.id == name);
        let tenant = TenantId::parse(name).filter(|_| known).ok_or_else(|| {
            let message = format!("there is no tenant \"{name}\"");
            wrong("tenant", message, "add it under tenants")
        })?;
        if !keys::is_name(&user.id) {
            let message = "the id of a member has 1 to 128 bytes of printable text".to_owned();
            return Err(wrong("id", message, "choose another id"));
        }
        if !seen.insert((name, user.id.as_str())) {
            let message = format!("the member \"{}\" of tenant \"{name}\" is given twice", user.id);
            return Err(wrong("id", message, "give each member one entry"));
        }
        let limits = read(document, &format!("{path}.limits"), &user.limits)?;
        let id = UserId::from(user.id.as_str());
        users.push(FileUser { tenant, id, limits });
    }
    Ok(users)
}

/// What roles allow, by the file.
fn roles(settings: &Settings, document: &Document) -> Result<Vec<(Role, Limits)>, Error> {
    let read_one = |(word, written): (&String, &Map<String, Value>)| {
        let path = format!("role_limits.{word}");
        let role = keys::role(word).ok_or_else(|| {
            let message = format!("\"{word}\" is not a role");
            document.problem(&path, message, "use free, pro, internal, admin or operator")
        })?;
        Ok((role, read(document, &path, written)?))
    };
    settings.role_limits.iter().map(read_one).collect()
}

#[cfg(test)]
mod tests {
    use schemas::limit::limits::LimitKey;

    use super::*;
    use crate::environment::Environment;

    fn file(text: &str) -> (Settings, Document) {
        let environment = Environment::from_pairs([("BUDGET", "2.50")]);
        let document = Document::parse("waybill.yaml", text, &environment).expect("parse");
        (document.read().expect("read"), document)
    }

    fn problem<T: std::fmt::Debug>(read: Result<T, Error>) -> String {
        read.expect_err("a problem").to_string()
    }

    #[test]
    fn limits_are_read_for_tenants_members_and_roles() {
        let (settings, document) = file(
            "tenants:\n  - { id: acme, limits: { monthly_usd: \"${BUDGET}\" } }\n\
             users:\n  - { tenant: acme, id: alice, limits: { rpm: 5, per_model: { gpt-4.1: { tpm: 7 } } } }\n\
             role_limits: { free: { concurrency: 3 } }\n",
        );

        let tenants = tenants(&settings, &document).expect("tenants");
        let users = users(&settings, &document).expect("users");
        let roles = roles(&settings, &document).expect("roles");

        assert_eq!(
            tenants[0].limits.own.written(LimitKey::MonthlyUsd),
            Some(2_500_000_000)
        );
        assert_eq!(users[0].limits.own.written(LimitKey::Rpm), Some(5));
        assert_eq!(users[0].limits.per_model.len(), 1);
        assert_eq!(roles[0].0, Role::Free);
        assert_eq!(roles[0].1.own.written(LimitKey::Concurrency), Some(3));
    }

    #[test]
    fn a_limit_that_is_none_is_named_with_its_path_and_line() {
        let (settings, document) = file(
            "tenants:\n  - id: acme\n    limits:\n      daily_usd: 0.5\n\
             users:\n  - id: bob\n    limits:\n      per_model:\n        gpt-4.1:\n          rpm: 3\n          tpm: -1\n\
             role_limits:\n  free:\n    qqs: 1\n",
        );

        assert!(
            problem(tenants(&settings, &document))
                .starts_with("waybill.yaml:4: tenants[0].limits.daily_usd: "),
            "{}",
            problem(tenants(&settings, &document))
        );
        assert!(
            problem(users(&settings, &document))
                .starts_with("waybill.yaml:11: users[0].limits.per_model.gpt-4.1.tpm: "),
            "{}",
            problem(users(&settings, &document))
        );
        assert!(
            problem(roles(&settings, &document))
                .starts_with("waybill.yaml:14: role_limits.free.qqs: there is no such limit; "),
            "{}",
            problem(roles(&settings, &document))
        );
    }

    #[test]
    fn who_is_given_twice_or_belongs_to_nobody_is_named() {
        let (settings, document) = file(
            "tenants:\n  - id: acme\n  - id: acme\nusers:\n  - { tenant: other, id: a }\n\
             role_limits: { king: {} }\n",
        );

        assert!(problem(tenants(&settings, &document)).contains("waybill.yaml:3: tenants[1].id"));
        assert!(
            problem(users(&settings, &document)).contains("users[0].tenant: there is no tenant \"other\"")
        );
        assert!(problem(roles(&settings, &document)).contains("role_limits.king: \"king\" is not a role"));
    }
}
