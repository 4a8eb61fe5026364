//! The credentials of a leg: in order, each once, and whom each is kept for.

use reqwest::header::HeaderValue;
use schemas::catalog::{CredentialRef, ProviderKind, Role};
use schemas::secret::Secret;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::address::Place;
use super::{Context, Held};
use crate::models::file::{ApiKey, Leg, Reserved};
use crate::yaml::Problem;
use dialects::provider::Kind;

/// The variable that Google's own tools read.
const APPLICATION_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Roles that a credential may be kept for.
const ROLES: &str = "use free, pro, internal or admin";

/// A credential of an endpoint.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    /// Its place in the list as it is written: the same for those who hold it and for those who do not.
    place: usize,
    pub(super) secret: Secret<String>,
    /// The lowest role that may use it.
    pub(super) role: Role,
}

impl Credential {
    /// What it is called at an endpoint.
    pub(super) fn reference(&self, endpoint: &str) -> CredentialRef {
        CredentialRef(format!("{endpoint}#{}", self.place))
    }
}

/// A credential as it is written.
struct Written {
    text: String,
    min_role: Option<String>,
    path: String,
}

impl Context<'_> {
    /// Credentials in order, each once; or what is blank.
    pub(super) fn credentials(
        &self,
        leg: &Leg,
        (kind, place): (&Kind<'_>, Option<&Place>),
        key: &str,
    ) -> Result<Result<Vec<Credential>, Problem>, Problem> {
        let written = match self.written(leg, key)? {
            written if !written.is_empty() => written,
            none => match (kind.api, place) {
                (ProviderKind::Vertex, Some(_)) => match self.of_file(leg, key)? {
                    Ok(one) => vec![one],
                    Err(problem) => return Ok(Err(problem)),
                },
                _ => none,
            },
        };
        let mut credentials: Vec<Credential> = Vec::new();
        for (place, one) in written.iter().enumerate() {
            let role = self.reserved(one)?;
            let secret = match (one.text.trim(), self.sources.held) {
                ("", Held::Here) => continue,
                // Only its place is of use: its holder has the value.
                ("", Held::Elsewhere) => Secret::new(format!("#{place}")),
                (text, _) => Secret::new(text.to_owned()),
            };
            self.check(&secret, kind, &one.path)?;
            match credentials.iter_mut().find(|known| known.secret == secret) {
                // Listed twice it is one, kept for the higher of the roles.
                Some(known) => known.role = known.role.max(role),
                None => credentials.push(Credential { place, secret, role }),
            }
        }
        if !written.is_empty() && credentials.is_empty() {
            let message = format!("the credential of \"{}\" is blank", self.entry.id);
            return Ok(Err(self.problem(key, message, "set the variable it refers to")));
        }
        Ok(Ok(credentials))
    }

    /// What is written at the leg, or else at its model.
    fn written(&self, leg: &Leg, key: &str) -> Result<Vec<Written>, Problem> {
        let own = leg.api_key.is_some() || leg.api_keys.is_some();
        let (one, many, prefix) = if own {
            (&leg.api_key, &leg.api_keys, format!("{key}."))
        } else {
            (&self.entry.api_key, &self.entry.api_keys, String::new())
        };
        if one.is_some() && many.is_some() {
            let at = if own { key } else { "api_keys" };
            return Err(self.problem(at, "`api_key` and `api_keys` are both given", "keep one of them"));
        }
        let single = one.iter().map(|text| Written {
            text: text.clone(),
            min_role: None,
            path: format!("{prefix}api_key"),
        });
        let listed = many
            .iter()
            .flatten()
            .enumerate()
            .map(|(n, ApiKey(Reserved { key, min_role }))| Written {
                text: key.clone(),
                min_role: min_role.clone(),
                path: format!("{prefix}api_keys[{n}]"),
            });
        Ok(single.chain(listed).collect())
    }

    /// The file with the key of a service account, which only those read who call upstreams.
    fn of_file(&self, leg: &Leg, key: &str) -> Result<Result<Written, Problem>, Problem> {
        let told = leg
            .credentials_file
            .as_ref()
            .or(self.entry.credentials_file.as_ref());
        let at = match told {
            Some(_) => self.at(key, &["credentials_file"]),
            None => key.to_owned(),
        };
        let blank = || {
            let message = format!("the credential of \"{}\" is blank", self.entry.id);
            let remedy = format!("add `credentials_file` or `api_key`, or set {APPLICATION_CREDENTIALS}");
            self.problem(&at, message, &remedy)
        };
        let mut written = Written {
            text: String::new(),
            min_role: None,
            path: at.clone(),
        };
        if self.sources.held == Held::Elsewhere {
            return Ok(Ok(written));
        }
        let path = match told {
            Some(path) => Some(path.trim()),
            None => self.sources.application_credentials,
        };
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Ok(Err(blank()));
        };
        written.text = (self.sources.read)(path).map_err(|error| {
            let message = format!("the file \"{path}\" cannot be read: {error}");
            self.problem(&at, message, "correct its name, or let the node read it")
        })?;
        if written.text.trim().is_empty() {
            return Err(self.problem(
                &at,
                format!("the file \"{path}\" is empty"),
                "put the key into it",
            ));
        }
        Ok(Ok(written))
    }

    fn reserved(&self, one: &Written) -> Result<Role, Problem> {
        let Some(word) = one.min_role.as_deref() else {
            return Ok(Role::Free);
        };
        crate::keys::role(word)
            .filter(|role| *role < Role::Operator)
            .ok_or_else(|| {
                let message = format!("\"{word}\" is not a role that a credential is kept for");
                self.problem(&format!("{}.min_role", one.path), message, ROLES)
            })
    }

    /// Refuses what can be no credential of this kind. Nothing of it is told.
    fn check(&self, secret: &Secret<String>, kind: &Kind<'_>, at: &str) -> Result<(), Problem> {
        let text = secret.reveal();
        if kind.api == ProviderKind::Vertex && text.starts_with('{') {
            let account: Result<Account, _> = serde_json::from_str(text);
            let complete =
                account.is_ok_and(|account| account.client_email.is_some() && account.private_key.is_some());
            return if complete {
                Ok(())
            } else {
                let message = "the credential is not the key of a service account";
                Err(self.problem(
                    at,
                    message,
                    "make a key of type JSON for a service account and give that",
                ))
            };
        }
        HeaderValue::from_str(text).map(drop).map_err(|_| {
            let message = "the credential has characters that no header can carry";
            self.problem(at, message, "give it without line breaks and control characters")
        })
    }
}

/// What a service account's key must have.
#[derive(Deserialize)]
struct Account {
    client_email: Option<IgnoredAny>,
    private_key: Option<IgnoredAny>,
}
