//! The endpoint of a leg: addresses, credentials, headers and what its kind presets.

use schemas::catalog::{Backend, CredentialRef, Endpoint, ProviderKind};
use schemas::id::{BackendId, EndpointId};
use schemas::secret::Secret;

use super::{Context, Held};
use crate::models::file::Leg;
use crate::models::provider;
use crate::yaml::Problem;

impl Context<'_> {
    /// Base URLs without trailing slashes, or what is blank.
    pub(super) fn addresses(
        &self,
        leg: &Leg,
        api: ProviderKind,
        key: &str,
    ) -> Result<Result<Vec<String>, Problem>, Problem> {
        if api == ProviderKind::Echo {
            return Ok(Ok(Vec::new()));
        }
        let written: Vec<String> = match (&leg.backends, &leg.base_url, &self.entry.base_url) {
            (Some(backends), None, _) if !backends.is_empty() => {
                backends.iter().map(|backend| backend.url().to_owned()).collect()
            }
            (Some(_), _, _) => {
                return Err(self.problem(
                    key,
                    "give either one `base_url` or a list of `backends`",
                    "remove one of them",
                ));
            }
            (None, Some(url), _) | (None, None, Some(url)) => vec![url.clone()],
            (None, None, None) if api == ProviderKind::Openrouter => {
                vec!["https://openrouter.ai/api/v1".to_owned()]
            }
            (None, None, None) => return Err(self.problem(key, "the leg has no address", "add `base_url`")),
        };
        let mut addresses = Vec::new();
        for url in written {
            let url = url.trim().trim_end_matches('/').to_owned();
            if url.is_empty() {
                let message = format!("the address of \"{}\" is blank", self.entry.id);
                return Ok(Err(self.problem(key, message, "set the variable it refers to")));
            }
            if let Err((message, remedy)) = check_address(&url) {
                return Err(self.problem(key, message, remedy));
            }
            addresses.push(url);
        }
        Ok(Ok(addresses))
    }

    /// Credentials in order, each once; or what is blank.
    pub(super) fn secrets(
        &self,
        leg: &Leg,
        key: &str,
    ) -> Result<Result<Vec<Secret<String>>, Problem>, Problem> {
        if leg.api_key.is_some() && leg.api_keys.is_some() {
            return Err(self.problem(key, "`api_key` and `api_keys` are both given", "keep one of them"));
        }
        let own = leg.api_key.is_some() || leg.api_keys.is_some();
        let written: Vec<&String> = match (own, &leg.api_key, &leg.api_keys) {
            (true, Some(one), _) => vec![one],
            (true, None, Some(many)) => many.iter().collect(),
            _ => self
                .entry
                .api_key
                .iter()
                .chain(self.entry.api_keys.iter().flatten())
                .collect(),
        };
        let mut secrets: Vec<Secret<String>> = Vec::new();
        for (n, text) in written.iter().map(|text| text.trim()).enumerate() {
            let secret = match (text, self.held) {
                ("", Held::Here) => continue,
                // Only its place is of use: its holder has the value.
                ("", Held::Elsewhere) => Secret::new(format!("#{n}")),
                (text, _) => Secret::new(text.to_owned()),
            };
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
        if !written.is_empty() && secrets.is_empty() {
            let message = format!("the credential of \"{}\" is blank", self.entry.id);
            return Ok(Err(self.problem(key, message, "set the variable it refers to")));
        }
        Ok(Ok(secrets))
    }

    pub(super) fn endpoint(
        &self,
        leg: &Leg,
        (kind, api): (&str, ProviderKind),
        id: String,
        (addresses, secrets): (&[String], &[(CredentialRef, Secret<String>)]),
    ) -> Endpoint {
        let entry = self.entry;
        let first = addresses.first().map_or("", String::as_str);
        let profile = leg
            .provider_profile
            .as_deref()
            .or(entry.provider_profile.as_deref());
        let path = leg.chat_path.clone().or_else(|| entry.chat_path.clone());
        let headers = leg.extra_headers.as_ref().unwrap_or(&entry.extra_headers);
        let query = leg.extra_query.as_ref().unwrap_or(&entry.extra_query);
        let bearer = leg.use_bearer_auth.or(entry.use_bearer_auth).unwrap_or(true);
        let header = leg.auth_header_name.as_ref().or(entry.auth_header_name.as_ref());
        let format = leg.auth_format.as_ref().or(entry.auth_format.as_ref());
        let (default_header, default_format) = if bearer {
            ("authorization", "Bearer {api_key}")
        } else {
            ("x-api-key", "{api_key}")
        };
        Endpoint {
            kind: api,
            provider: leg
                .provider
                .as_deref()
                .unwrap_or_else(|| kind.split('[').next().unwrap_or(kind))
                .into(),
            backends: backends(&id, addresses),
            chat_path: path.unwrap_or_else(|| provider::chat_path(kind, profile, first)),
            embeddings_path: String::new(),
            responses: false,
            profile: String::new(),
            processor: String::new(),
            drop_params: false,
            query: query
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("&"),
            auth_header: header.map_or(default_header.to_owned(), |name| name.to_ascii_lowercase()),
            auth_format: format.map_or(default_format.to_owned(), Clone::clone),
            extra_headers: headers
                .iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
                .collect(),
            extra_body: self.extra_body(leg, kind),
            credentials: secrets.iter().map(|(reference, _)| reference.clone()).collect(),
            credential_roles: Vec::new(),
            single_backend_rescue: leg.single_backend_rescue.unwrap_or(false),
            http2: leg.http2.unwrap_or(false),
            disabled: false,
            id: EndpointId::new(id),
        }
    }

    pub(super) fn extra_body(&self, leg: &Leg, kind: &str) -> String {
        let sort = leg
            .openrouter_sort
            .as_deref()
            .or(self.entry.openrouter_sort.as_deref());
        let pinned = leg
            .openrouter_pinned_provider
            .as_deref()
            .or(self.entry.openrouter_pinned_provider.as_deref());
        let mut members = provider::extra_body(kind, sort, pinned);
        members.extend(
            leg.extra_body
                .clone()
                .unwrap_or_else(|| self.entry.extra_body.clone()),
        );
        if members.is_empty() {
            return String::new();
        }
        let text = serde_json::Value::Object(members).to_string();
        text[1..text.len() - 1].to_owned()
    }
}

/// The replicas of an endpoint: one bears its name, several are numbered.
pub(super) fn backends(id: &str, addresses: &[String]) -> Vec<Backend> {
    let name = |n: usize| {
        if addresses.len() == 1 {
            id.to_owned()
        } else {
            format!("{id}#{n}")
        }
    };
    let backend = |(n, url): (usize, &String)| Backend {
        id: BackendId::new(name(n)),
        base_url: url.clone(),
    };
    addresses.iter().enumerate().map(backend).collect()
}

/// Refuses what is no address, and an address that holds more: a path is put behind it, and secrets have
/// places where they are kept as such.
fn check_address(url: &str) -> Result<(), (&'static str, &'static str)> {
    let parsed = url.parse::<reqwest::Url>().ok();
    let Some(url) = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
        return Err((
            "the address is not an http or https URL",
            "write it as http://HOST:PORT/PATH",
        ));
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err((
            "the address holds a user or a password",
            "give it as `api_key` with `auth_format`",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err((
            "the address holds a query or a fragment",
            "give its parameters as `extra_query`",
        ));
    }
    Ok(())
}
