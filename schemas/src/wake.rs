//! How a service that sleeps is woken: what operators say of it, what whoever wakes it is answered, and how long calls
//! wait for it. Pure.
//!
//! Secrets have no place in it, since it lies in the catalogue: a waker that has to prove who it is does so by the
//! endpoint's own credential, and only to the endpoint's own hosts. A command is named in files alone, and lies beside
//! the credentials that only routers hold.

pub mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::catalog::registered::HealthCheck;
use crate::catalog::{Backend, CredentialRef};
use crate::id::EndpointId;

/// The longest wait of a call.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The shortest.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// How long a call waits for a service of which nobody said how its health is looked at.
const WAIT_WITHOUT_CHECK: Duration = Duration::from_secs(30);
/// How long whoever is told to wake may take to answer, in seconds.
const TIMEOUT_SECONDS: u32 = 10;
/// The most that may be said.
const TIMEOUT_SECONDS_MAX: u32 = 60;
/// Longest address, body, header and word, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Most headers.
const HEADERS_MAX: usize = 16;
/// Most words of a command.
const COMMAND_WORDS_MAX: usize = 64;
/// Most statuses of a sign.
const STATUSES_MAX: usize = 16;
/// What a name of a header has in it that carries a secret.
const SECRETS: [&str; 8] = [
    "auth",
    "key",
    "token",
    "secret",
    "cookie",
    "password",
    "credential",
    "signature",
];
/// Headers that say where a message ends, to whom it goes and what becomes of its connection.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Words of an answer that say by themselves how things stand.
const QUEUED_WORD: &str = "wake_queued_gpu_borrowed";
const OFFLINE_WORD: &str = "wake_failed_node_offline";
/// How the body of a 503 says that its service sleeps, or is not up yet.
const ASLEEP_WORDS: [&str; 5] = ["sleep", "loading model", "is loading", "waking", "starting up"];
/// How much of such a body is looked at, in bytes.
const ASLEEP_BYTES_MAX: usize = 4 * 1_024;

/// How a service is woken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "Wake")]
pub enum Wake {
    /// Somebody is asked over HTTP to wake it.
    Http(Http),
    /// It is vLLM, which sleeps itself: `/is_sleeping`, `/wake_up`.
    VllmSleep(VllmSleep),
    /// A command on the router's machine wakes it; in files alone.
    Exec(Exec),
}

/// Somebody is asked over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WakeHttp")]
pub struct Http {
    /// Where.
    pub url: Arc<str>,
    /// By which method.
    #[serde(default)]
    pub method: Method,
    /// With which headers; none that carries a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// With which body; JSON, unless a header says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Arc<str>>,
    /// With the endpoint's credential; only where `url` is on a host of the endpoint's backends.
    #[serde(default)]
    pub credential: bool,
    /// What answer says that the service has to wait for its graphics processors.
    #[serde(default, skip_serializing_if = "Sign::is_none")]
    pub queued_when: Sign,
    /// What answer says that its machine is off.
    #[serde(default, skip_serializing_if = "Sign::is_none")]
    pub offline_when: Sign,
    /// Seconds that the answer may take.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u32,
}

/// vLLM, which sleeps itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WakeVllmSleep")]
pub struct VllmSleep {
    /// The root of its administrative paths; that of the backend, without `/v1`, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Arc<str>>,
    /// With the endpoint's credential; only on a host of the endpoint's backends.
    #[serde(default)]
    pub credential: bool,
}

/// A command on the router's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WakeExec")]
pub struct Exec {
    /// The program and its arguments. Not in the catalogue: only routers hold it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Seconds that it may take.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u32,
}

/// A method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WakeMethod")]
pub enum Method {
    /// GET
    #[serde(rename = "GET")]
    Get,
    /// POST
    #[default]
    #[serde(rename = "POST")]
    Post,
    /// PUT
    #[serde(rename = "PUT")]
    Put,
}

impl Method {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// What is looked for in an answer: one of the statuses, the words, or both where both are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WakeSign")]
pub struct Sign {
    /// Any of these statuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
    /// These words somewhere in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<Arc<str>>,
}

impl Sign {
    fn is_none(&self) -> bool {
        self.statuses.is_empty() && self.contains.is_none()
    }

    fn is_in(&self, status: u16, body: &str) -> bool {
        let by_status = self.statuses.is_empty() || self.statuses.contains(&status);
        let by_words = self.contains.as_deref().is_none_or(|words| body.contains(words));
        !self.is_none() && by_status && by_words
    }
}

const fn timeout_seconds() -> u32 {
    TIMEOUT_SECONDS
}

/// What whoever was told to wake a service said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It is being woken.
    Begun,
    /// Its graphics processors are lent to another one: it comes when they are back.
    Queued,
    /// Its machine is off, or nobody could wake it.
    Offline,
}

/// What is wrong with a description, at which of its members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Problem {
    /// The member, as a path; empty for the whole.
    pub at: String,
    /// What is expected.
    pub text: &'static str,
}

fn problem<T>(at: impl Into<String>, text: &'static str) -> Result<T, Problem> {
    Err(Problem { at: at.into(), text })
}

impl Wake {
    /// The word for its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::VllmSleep(_) => "vllm_sleep",
            Self::Exec(_) => "exec",
        }
    }

    /// Refuses what cannot be done, or would tell a secret. `backends` are those that it wakes.
    pub fn check(&self, backends: &[Backend]) -> Result<(), Problem> {
        match self {
            Self::Http(http) => http.check(backends),
            Self::VllmSleep(vllm) => {
                if let Some(url) = &vllm.url {
                    check_address(url, vllm.credential, backends)?;
                }
                Ok(())
            }
            Self::Exec(exec) => exec.check(),
        }
    }
}

impl Http {
    fn check(&self, backends: &[Backend]) -> Result<(), Problem> {
        check_address(&self.url, self.credential, backends)?;
        check_timeout(self.timeout_seconds)?;
        if self
            .body
            .as_ref()
            .is_some_and(|body| body.len() > 4 * TEXT_BYTES_MAX)
        {
            return problem("body", "it is too long");
        }
        if self.headers.len() > HEADERS_MAX {
            return problem("headers", "there are too many");
        }
        for (name, value) in &self.headers {
            check_header(name, value)?;
        }
        for (at, sign) in [
            ("queued_when", &self.queued_when),
            ("offline_when", &self.offline_when),
        ] {
            let too_long = sign
                .contains
                .as_ref()
                .is_some_and(|words| words.len() > TEXT_BYTES_MAX);
            let is_blank = sign.contains.as_deref() == Some("");
            let odd = sign.statuses.iter().any(|status| !(100..600).contains(status));
            if too_long || is_blank || odd || sign.statuses.len() > STATUSES_MAX {
                return problem(at, "expected statuses of HTTP, words, or both");
            }
        }
        Ok(())
    }

    /// What an answer says.
    pub fn said(&self, status: u16, body: &[u8]) -> Said {
        let body = String::from_utf8_lossy(body);
        if body.contains(QUEUED_WORD) || self.queued_when.is_in(status, &body) {
            Said::Queued
        } else if body.contains(OFFLINE_WORD) || self.offline_when.is_in(status, &body) {
            Said::Offline
        } else if (200..300).contains(&status) {
            Said::Begun
        } else {
            Said::Offline
        }
    }
}

impl Exec {
    fn check(&self) -> Result<(), Problem> {
        check_timeout(self.timeout_seconds)?;
        let fits = |word: &String| word.len() <= TEXT_BYTES_MAX && !word.contains('\0');
        let is_program = self
            .command
            .first()
            .is_some_and(|program| program.starts_with('/'));
        if !is_program || self.command.len() > COMMAND_WORDS_MAX || !self.command.iter().all(fits) {
            return problem(
                "command",
                "expected the whole path of a program, and its arguments one by one",
            );
        }
        Ok(())
    }

    /// What the end of the command says: 0 that the service is being woken, 75 (`EX_TEMPFAIL`) that it waits for its
    /// graphics processors, everything else that nobody could wake it.
    pub const fn said(code: Option<i32>) -> Said {
        match code {
            Some(0) => Said::Begun,
            Some(75) => Said::Queued,
            _ => Said::Offline,
        }
    }
}

/// Where the command of an endpoint lies in the routers' book of secrets.
pub fn command_reference(endpoint: &EndpointId) -> CredentialRef {
    CredentialRef(format!("wake:{endpoint}"))
}

/// How long a call waits for a service that is looked at so.
pub fn wait(check: Option<&HealthCheck>) -> Duration {
    check.map_or(WAIT_WITHOUT_CHECK, |check| {
        Duration::from_secs(u64::from(check.start_period_seconds)).clamp(WAIT_MIN, WAIT_MAX)
    })
}

/// True when an answer says that its service sleeps, or is not up yet.
pub fn tells_of_sleep(status: u16, body: &[u8]) -> bool {
    if status != 503 {
        return false;
    }
    let body = body.get(..ASLEEP_BYTES_MAX).unwrap_or(body);
    let body = String::from_utf8_lossy(body).to_lowercase();
    ASLEEP_WORDS.iter().any(|word| body.contains(word))
}

/// Reads a description leniently: what an older version kept and nobody understands is none.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Wake>>, D::Error> {
    let told = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(told
        .and_then(|told| serde_json::from_value(told).ok())
        .map(Arc::new))
}

fn check_timeout(seconds: u32) -> Result<(), Problem> {
    if (1..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
        Ok(())
    } else {
        problem("timeout_seconds", "expected 1 to 60")
    }
}

fn check_address(url: &str, credential: bool, backends: &[Backend]) -> Result<(), Problem> {
    let Some(origin) = origin(url) else {
        return problem(
            "url",
            "expected an address such as https://host:8000/wake, without user and fragment",
        );
    };
    if credential
        && !backends
            .iter()
            .any(|backend| self::origin(&backend.base_url) == Some(origin))
    {
        return problem(
            "credential",
            "the endpoint's credential goes to hosts of its backends alone",
        );
    }
    Ok(())
}

fn check_header(name: &str, value: &str) -> Result<(), Problem> {
    let at = || format!("headers.{name}");
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) || FRAMING.contains(&name) {
        return problem(
            at(),
            "expected the name of a header in lower case, and none that frames a message",
        );
    }
    if SECRETS.iter().any(|word| name.contains(word)) {
        return problem(
            at(),
            "what is said here is shown to others: let credential: true send the endpoint's credential instead",
        );
    }
    let printable = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if value.len() > TEXT_BYTES_MAX || !printable {
        return problem(at(), "expected printable characters");
    }
    Ok(())
}

/// Scheme, and host with port, of an address; `None` for what is none, or says who calls.
pub fn origin(url: &str) -> Option<(&str, &str)> {
    let legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'#');
    if url.len() > TEXT_BYTES_MAX || !url.bytes().all(legal) {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let path = path.split('?').next().unwrap_or_default();
    let steps = path.split('/').any(|step| matches!(step, "." | ".."));
    let is_http = matches!(scheme, "http" | "https");
    (is_http && !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@') && !steps)
        .then_some((scheme, authority))
}

/// The root of an engine's own paths: its address without `/v1`.
pub fn root(base_url: &str) -> &str {
    let base = base_url.trim_end_matches('/');
    base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/')
}

#[cfg(test)]
mod tests;
