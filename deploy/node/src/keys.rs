//! Keys of waybill.yaml: checked, and turned into catalogue records that hold a digest and never the key.

use schemas::catalog::Role;
use schemas::id::{DEFAULT_TENANT, ModelName, TenantId, UserId};
use schemas::limit::limits::Limits;
use schemas::secret::Secret;
use schemas::time::Timestamp;
use schemas::usage::TOKENS_MAX;

use crate::config::error::Error;
use crate::config::limits;
use crate::settings::{KeySettings, Settings};
use crate::yaml::{Document, Problem};

/// Longest name of a key, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// A key of the file.
#[derive(Debug, Clone)]
pub struct FileKey {
    /// The key itself.
    pub key: Secret<String>,
    /// Its name.
    pub name: String,
    /// Who pays.
    pub tenant: TenantId,
    /// The member it belongs to.
    pub user: Option<UserId>,
    /// What it may do.
    pub role: Role,
    /// Only these models.
    pub models: Option<Vec<ModelName>>,
    /// What it may use.
    pub limits: Limits,
    /// Most output tokens of a call that names no maximum.
    pub output_default_max: Option<u64>,
    /// Refused from then on.
    pub expires_at: Option<Timestamp>,
}

/// Roles by the word that operators write.
const ROLES: [(&str, Role); 5] = [
    ("free", Role::Free),
    ("pro", Role::Pro),
    ("internal", Role::Internal),
    ("admin", Role::Admin),
    ("operator", Role::Operator),
];

/// The role of a word.
pub fn role(word: &str) -> Option<Role> {
    ROLES
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, role)| *role)
}

/// True for a text that can name a key or its user.
pub fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// The word of a role.
pub fn word(role: Role) -> &'static str {
    ROLES
        .iter()
        .find(|(_, known)| *known == role)
        .map_or("-", |(word, _)| word)
}

/// Keys of the file; a key that expands to nothing is left out with a warning.
pub fn from_settings(
    settings: &Settings,
    document: &Document,
) -> Result<(Vec<FileKey>, Vec<Problem>), Error> {
    let mut keys: Vec<FileKey> = Vec::new();
    let mut warnings = Vec::new();
    for (n, key) in settings.keys.iter().enumerate() {
        let path = format!("keys[{n}]");
        if key.key.trim().is_empty() {
            let message = format!("the key \"{}\" is blank and is left out", key.name);
            warnings.push(document.problem(&format!("{path}.key"), message, "set the variable it refers to"));
            continue;
        }
        let key = read(key, &path, settings, document)?;
        if keys.iter().any(|known| known.key == key.key) {
            let message = "the same key is given twice";
            return Err(document
                .problem(
                    &format!("{path}.key"),
                    message,
                    "give each entry a key of its own",
                )
                .into());
        }
        if keys
            .iter()
            .any(|known| (&known.tenant, &known.name) == (&key.tenant, &key.name))
        {
            let message = format!("tenant \"{}\" has two keys named \"{}\"", key.tenant, key.name);
            let remedy = "give each key of a tenant a name of its own: rows and revocation go by it";
            return Err(document.problem(&format!("{path}.name"), message, remedy).into());
        }
        keys.push(key);
    }
    Ok((keys, warnings))
}

fn read(key: &KeySettings, path: &str, settings: &Settings, document: &Document) -> Result<FileKey, Error> {
    let wrong = |field: &str, message: String, remedy: &str| {
        Error::Wrong(document.problem(&format!("{path}.{field}"), message, remedy))
    };
    if !gateway::key::acceptable(&key.key) {
        return Err(wrong(
            "key",
            "a key has 16 to 256 printable characters without spaces".into(),
            "choose another key",
        ));
    }
    if !is_name(&key.name) {
        return Err(wrong(
            "name",
            "a name has 1 to 128 bytes of printable text".into(),
            "choose another name",
        ));
    }
    let tenant = key.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    let known = tenant == DEFAULT_TENANT || settings.tenants.iter().any(|known| known.id == tenant);
    let tenant = TenantId::parse(tenant).filter(|_| known).ok_or_else(|| {
        wrong(
            "tenant",
            format!("there is no tenant \"{tenant}\""),
            "add it under tenants",
        )
    })?;
    let word = key.role.as_deref().unwrap_or("free");
    let role = role(word).ok_or_else(|| {
        wrong(
            "role",
            format!("\"{word}\" is not a role"),
            "use free, pro, internal, admin or operator",
        )
    })?;
    let expires_at = match key.expires_at.as_deref() {
        None => None,
        Some(text) => Some(Timestamp::parse(text).ok_or_else(|| {
            wrong(
                "expires_at",
                format!("\"{text}\" is not a time"),
                "write it as RFC 3339",
            )
        })?),
    };
    Ok(FileKey {
        key: Secret::new(key.key.clone()),
        name: key.name.clone(),
        tenant,
        user: key.user.as_deref().map(UserId::from),
        role,
        models: key.models.as_ref().map(|models| {
            models
                .iter()
                .map(|model| ModelName::from(model.as_str()))
                .collect()
        }),
        limits: limits::read(document, &format!("{path}.limits"), &key.limits)?,
        output_default_max: output_default_max(key)
            .map_err(|(message, remedy)| wrong("output_default_max", message, remedy))?,
        expires_at,
    })
}

/// The most tokens of an answer to a call that names no maximum; 0 names none.
fn output_default_max(key: &KeySettings) -> Result<Option<u64>, (String, &'static str)> {
    match key.output_default_max {
        None | Some(0) => Ok(None),
        Some(tokens) if tokens <= TOKENS_MAX => Ok(Some(tokens)),
        Some(tokens) => Err((
            format!("{tokens} is more than any answer has"),
            "write at most 10000000",
        )),
    }
}
