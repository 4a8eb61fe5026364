//! The endpoint of a leg: paths, headers and what its kind presets.

use reqwest::header::{HeaderName, HeaderValue};
use schemas::balance::Algorithm;
use schemas::catalog::replica::replicas;
use schemas::catalog::{Endpoint, Origin, ProviderKind, Role};
use schemas::id::{DEFAULT_TENANT, EndpointId, TenantId};

use super::Context;
use super::address::Place;
use super::credential::Credential;
use crate::models::file::Leg;
use crate::yaml::Problem;
use dialects::provider::{self, Kind, Proof};

/// What a credential is replaced by in `auth_format`.
const PLACEHOLDER: &str = "{api_key}";
/// Headers that say where a message ends, to whom it goes and how it is written: not for configuration.
const FRAMING: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What was found out about a leg.
pub(super) struct Found<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) place: Option<Place>,
    pub(super) addresses: Vec<String>,
    pub(super) credentials: Vec<Credential>,
}

impl Context<'_> {
    pub(super) fn endpoint(
        &self,
        leg: &Leg,
        id: String,
        found: &Found<'_>,
        key: &str,
    ) -> Result<Endpoint, Problem> {
        let entry = self.entry;
        let kind = &found.kind;
        let first = found.addresses.first().map_or("", String::as_str);
        let profile = self.profile(leg, (kind, first), key)?;
        let path = match self.path(
            leg.chat_path.as_ref().or(entry.chat_path.as_ref()),
            key,
            "chat_path",
        )? {
            Some(path) => path,
            None => found.place.as_ref().map_or_else(
                || provider::path(kind.api, profile, first),
                |place| provider::vertex_path(&place.project, &place.location),
            ),
        };
        let (auth_header, auth_format) = self.proof(leg, found, key)?;
        let credentials = found.credentials.iter().map(|one| one.reference(&id)).collect();
        let endpoint_id = EndpointId::new(id);
        Ok(Endpoint {
            kind: kind.api,
            provider: leg.provider.as_deref().unwrap_or_else(|| kind.label()).into(),
            backends: replicas(&endpoint_id, &found.addresses),
            chat_path: path,
            embeddings_path: self.embeddings_path(leg, key)?,
            responses: self.responses(leg, kind, key)?,
            profile: profile.map_or_else(String::new, |profile| profile.name.to_owned()),
            processor: self.processor(leg, kind, key)?.to_owned(),
            drop_params: leg.drop_params.or(entry.drop_params).unwrap_or(false),
            query: query(leg.extra_query.as_ref().unwrap_or(&entry.extra_query)),
            auth_header,
            auth_format,
            extra_headers: self.extra_headers(leg, key)?,
            extra_body: self.extra_body(leg, kind, key)?,
            credentials,
            credential_roles: roles(&found.credentials),
            session_affinity: leg.session_affinity.unwrap_or(false),
            priority_scheduling: leg
                .priority_scheduling
                .or(entry.priority_scheduling)
                .unwrap_or(false),
            single_backend_rescue: leg.single_backend_rescue.unwrap_or(false),
            http2: leg.http2.unwrap_or(false),
            disabled: false,
            tenant: TenantId::from(DEFAULT_TENANT),
            origin: Origin::File,
            sealed: Vec::new(),
            registered: None,
            wake: None,
            algorithm: self.algorithm(leg, key)?,
            watched: self.watched(leg, key)?,
            id: endpoint_id,
        })
    }

    /// What proves who calls: the header and its value.
    fn proof(&self, leg: &Leg, found: &Found<'_>, key: &str) -> Result<(String, String), Problem> {
        let entry = self.entry;
        let bearer = leg.use_bearer_auth.or(entry.use_bearer_auth);
        let Proof { header, format } = provider::proof(found.kind.api, bearer, found.place.is_some());
        let told = leg.auth_header_name.as_ref().or(entry.auth_header_name.as_ref());
        let name = told.map_or(header, String::as_str);
        self.check_header(&self.at(key, &["auth_header_name"]), name)?;
        let told = leg.auth_format.as_ref().or(entry.auth_format.as_ref());
        let format = told.map_or(format, String::as_str);
        if !format.contains(PLACEHOLDER) || HeaderValue::from_str(format).is_err() {
            return Err(self.problem(
                &self.at(key, &["auth_format"]),
                format!("`auth_format` has no {PLACEHOLDER} that the credential could stand for, or no header can carry it"),
                "write it like \"Bearer {api_key}\"",
            ));
        }
        Ok((name.to_ascii_lowercase(), format.to_owned()))
    }

    /// How the backends of a leg are chosen.
    fn algorithm(&self, leg: &Leg, key: &str) -> Result<Algorithm, Problem> {
        let Some(word) = &leg.algorithm else {
            return Ok(Algorithm::Weighted);
        };
        Algorithm::parse(word).ok_or_else(|| {
            self.problem(
                &self.at(key, &["algorithm"]),
                format!("\"{word}\" is no way to choose among backends"),
                &format!("write one of {}", Algorithm::words()),
            )
        })
    }

    fn extra_headers(&self, leg: &Leg, key: &str) -> Result<Vec<(String, String)>, Problem> {
        let headers = leg.extra_headers.as_ref().unwrap_or(&self.entry.extra_headers);
        let at = self.at(key, &["extra_headers"]);
        let mut checked = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let at = format!("{at}.{name}");
            self.check_header(&at, name)?;
            if HeaderValue::from_str(value).is_err() {
                let message = format!("the value of `{name}` has characters that no header can carry");
                return Err(self.problem(
                    &at,
                    message,
                    "write it without line breaks and control characters",
                ));
            }
            checked.push((name.to_ascii_lowercase(), value.clone()));
        }
        Ok(checked)
    }

    fn check_header(&self, at: &str, name: &str) -> Result<(), Problem> {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            let message = format!("\"{name}\" cannot be the name of a header");
            return Err(self.problem(at, message, "use letters, digits and `-`"));
        }
        if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
            let message = format!("`{name}` is said by the gateway itself");
            return Err(self.problem(at, message, "remove it"));
        }
        Ok(())
    }

    /// A path as it is put behind an address; `None` where it is blank.
    fn path(&self, told: Option<&String>, key: &str, name: &str) -> Result<Option<String>, Problem> {
        let Some(text) = told.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let steps = text.split('/').any(|step| matches!(step, "." | ".."));
        let legal =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>' | b'\\');
        if steps || !text.bytes().all(legal) {
            return Err(self.problem(
                &self.at(key, &[name]),
                format!("\"{text}\" is not a path"),
                "write it like /v1/chat/completions, without `..`, `?` and `#`",
            ));
        }
        Ok(Some(if text.starts_with('/') {
            text.to_owned()
        } else {
            format!("/{text}")
        }))
    }

    fn embeddings_path(&self, leg: &Leg, key: &str) -> Result<String, Problem> {
        let path = self.path(leg.embeddings_path.as_ref(), key, "embeddings_path")?;
        Ok(path.unwrap_or_default())
    }

    /// Refuses a leg of a model of embeddings whose kind makes none.
    pub(super) fn check_embeds(&self, kind: &Kind<'_>, key: &str) -> Result<(), Problem> {
        if !self.embeds() || kind.is_openai() {
            return Ok(());
        }
        let message = format!("servers of kind {} are not asked for embeddings", kind.word);
        Err(self.problem(key, message, "use a server of the OpenAI API"))
    }

    /// What a kind reads and this one does not.
    pub(super) fn check_openrouter(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<(), Problem> {
        let own = [
            ("openrouter_sort", leg.openrouter_sort.is_some()),
            (
                "openrouter_pinned_provider",
                leg.openrouter_pinned_provider.is_some(),
            ),
        ];
        let told = own.iter().find(|(_, told)| *told);
        match told.filter(|_| kind.api != ProviderKind::Openrouter) {
            None => Ok(()),
            Some((name, _)) => Err(self.problem(
                &format!("{key}.{name}"),
                format!(
                    "`{name}` belongs to legs of kind openrouter, and this one is of kind {}",
                    kind.word
                ),
                "remove it",
            )),
        }
    }
}

/// Roles by place; none where every credential is for everybody.
fn roles(credentials: &[Credential]) -> Vec<Role> {
    if credentials.iter().all(|one| one.role == Role::Free) {
        return Vec::new();
    }
    credentials.iter().map(|one| one.role).collect()
}

/// A query, every byte coded that could mean something in it.
fn query(parameters: &std::collections::BTreeMap<String, String>) -> String {
    let coded = |text: &str| -> String {
        let byte = |byte: u8| {
            if byte.is_ascii_alphanumeric() || b"-._~:@/,".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        };
        text.bytes().map(byte).collect()
    };
    let pairs = parameters
        .iter()
        .map(|(name, value)| format!("{}={}", coded(name), coded(value)));
    pairs.collect::<Vec<_>>().join("&")
}
