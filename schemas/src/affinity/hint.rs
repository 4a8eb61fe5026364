//! What a caller's headers and body say of his session. A value is a session's name when it is a short plain text;
//! anything else is passed over, and the next place is looked at. Names decide about caches and nothing else: not about
//! rights, bills or limits.
//!
//! Of several places the first counts: Codex sends `session-id` and `thread-id`, opencode `x-session-id` and
//! `x-session-affinity`, Claude Code `x-claude-code-session-id` and, for those behind a proxy that drops headers, a
//! `metadata.user_id` that holds a session.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::opening::Opening;

/// Longest name of a session, in characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Longest `prompt_cache_key` or `user` that is taken for one, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;

/// The header in which a caller names his session, and in which he is told its token.
pub const SESSION_HEADER: &str = "x-session-id";
/// Headers in which programs name a session, those of the first kind.
const HEADERS_FIRST: [&str; 6] = [
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-session-affinity",
    "x-opencode-session",
];
/// The header that counts only after the body's own word.
const HEADER_LAST: &str = "x-claude-code-session-id";

/// What a skim has to deliver of a body, beside what admission needs. The texts are decoded.
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    /// `metadata.session_id`.
    pub metadata_session: Option<&'a str>,
    /// `client_metadata.session_id`.
    pub client_session: Option<&'a str>,
    /// `metadata.user_id`.
    pub user_id: Option<&'a str>,
    /// `prompt_cache_key`.
    pub cache_key: Option<&'a str>,
    /// `user`.
    pub user: Option<&'a str>,
    /// How the conversation begins.
    pub opening: Opening,
}

impl Facts<'_> {
    /// The key of the prompt's cache.
    pub(super) fn cache_key(&self) -> Option<&str> {
        value(self.cache_key?)
    }

    /// The caller's own customer.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.and_then(value).or_else(|| self.user_id.and_then(value))
    }
}

/// What the headers of a call say of its session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spoken {
    /// The session that the caller names himself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// One that his program names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Arc<str>>,
    /// One that counts only after the body's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Arc<str>>,
}

impl Spoken {
    /// Whether a header of this name, in lower case, may say something: without one there is nothing to read.
    pub fn is_told_by(header: &str) -> bool {
        header == SESSION_HEADER || header == HEADER_LAST || HEADERS_FIRST.contains(&header)
    }

    /// Reads headers: `header` gives the value of one, whose name is in lower case.
    pub fn read<'a>(header: impl Fn(&'static str) -> Option<&'a [u8]>) -> Self {
        let told = |name: &'static str| name_of(header(name)?).map(Arc::from);
        Self {
            session: told(SESSION_HEADER),
            program: HEADERS_FIRST.iter().copied().find_map(told),
            last: told(HEADER_LAST),
        }
    }

    /// What the session is called, as far as headers say it.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.session
            .as_ref()
            .or(self.program.as_ref())
            .or(self.last.as_ref())
    }

    /// The session that the caller's program names, in headers or in the body.
    pub fn hint(&self, facts: &Facts<'_>) -> Option<String> {
        let in_body = || {
            let in_metadata = facts.metadata_session.and_then(name);
            in_metadata.or_else(|| facts.client_session.and_then(name))
        };
        self.program
            .as_deref()
            .or_else(in_body)
            .or(self.last.as_deref())
            .map(str::to_owned)
            .or_else(|| session_of_user_id(facts.user_id?))
    }
}

/// The session inside a user id as Claude Code writes it: an object in JSON, or in older versions one text.
fn session_of_user_id(user_id: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Identity {
        session_id: String,
    }

    if user_id.len() > VALUE_BYTES_MAX {
        return None;
    }
    if user_id.starts_with('{') {
        let identity: Identity = serde_json::from_str(user_id).ok()?;
        return name(&identity.session_id).map(str::to_owned);
    }
    let (account, session) = user_id.strip_prefix("user_")?.rsplit_once("_session_")?;
    account.contains("_account_").then_some(())?;
    name(session).map(str::to_owned)
}

fn name_of(value: &[u8]) -> Option<&str> {
    name(std::str::from_utf8(value).ok()?)
}

/// A text as the name of a session.
fn name(text: &str) -> Option<&str> {
    let text = text.trim();
    let plain = !text.chars().any(char::is_control);
    let short = text.len() <= 4 * NAME_CHARS_MAX && text.chars().count() <= NAME_CHARS_MAX;
    (!text.is_empty() && plain && short).then_some(text)
}

/// A text that names something else and may be longer.
fn value(text: &str) -> Option<&str> {
    (!text.trim().is_empty() && text.len() <= VALUE_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests;
