//! Sessions of calls that leave the choice of a model: one that goes on stays with the model that answered it before, so
//! that a conversation does not change its voice, and what is cached of it is used again. Names are those of session
//! affinity, as far as they name a conversation and were given: one that is only guessed from its beginning, or its user,
//! would hold back every changed policy. What is kept is the model's name, for all nodes, and losing it costs a choice
//! and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bus::Expected;
use bytes::Bytes;
use dialects::skim::session::session as read;
use futures_util::future::join_all;
use schemas::affinity::hint::Spoken;
use schemas::affinity::session::{Name, Names, Scope, names};
use schemas::affinity::{Level, Policy};
use schemas::event::request::Surface;
use schemas::id::{ModelName, TenantId};
use schemas::subject::AFFINITY_BUCKET;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::debug;

use crate::caller::Caller;
use crate::dispatch::skim_limits;
use crate::idempotency::sha256;
use crate::state::{Shared, State};

/// Begins the scope of these sessions: no endpoint and no model is called so.
const SCOPE: &str = "\nauto";
/// How long a call waits to hear where its session is.
const WAIT: Duration = Duration::from_millis(250);
/// How long a session stays after its last call.
const LIFE: Duration = Duration::from_mins(30);
/// A record is written again when it is so old, in milliseconds.
const DUE_MS: u64 = 5 * 60_000;

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    model: ModelName,
    written_at: Timestamp,
}

/// The session of one call.
#[derive(Debug, Default)]
pub(crate) struct Stay {
    names: Vec<Name>,
    found: Option<Record>,
}

impl Stay {
    /// Looks up where the session of a call is. A bus that does not answer in time knows nothing.
    pub(crate) async fn find(
        state: &Shared,
        (caller, surface): (&Caller, Surface),
        (spoken, body): (&Spoken, &[u8]),
    ) -> Self {
        if surface == Surface::Embeddings {
            return Self::default();
        }
        let names = named(caller, surface, (spoken, body), &skim_limits(state));
        let kv = &state.ports.kv;
        let reads = names.iter().map(|name| kv.get(AFFINITY_BUCKET, &name.record_key));
        let read = timeout(WAIT, join_all(reads)).await.unwrap_or_default();
        let mut records = read.into_iter().filter_map(|entry| entry.ok()??.value);
        let found = records.find_map(|value| serde_json::from_slice(&value).ok());
        Self { names, found }
    }

    /// The model that its last call went to.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.found.as_ref().map(|record| &record.model)
    }

    /// Nobody answered the call: its session is nowhere.
    pub(crate) fn forget(&mut self, state: &Arc<State>) {
        if self.found.take().is_none() {
            return;
        }
        let (kv, keys) = (state.ports.kv.clone(), self.keys());
        state.leaving.spawn(async move {
            for key in keys {
                // One that stays is a model that is asked first once more.
                let _ = timeout(WAIT, kv.delete(AFFINITY_BUCKET, &key, Expected::Any)).await;
            }
        });
    }

    fn keys(&self) -> Vec<String> {
        self.names.iter().map(|name| name.record_key.clone()).collect()
    }

    /// The call goes to a model: the next one of its session does so too, on whatever node.
    pub(crate) fn go(&mut self, state: &Arc<State>, model: &ModelName) {
        let now = state.ports.clock.now();
        let is_known = self
            .found
            .as_ref()
            .is_some_and(|record| record.model == *model && now.millis_since(record.written_at) < DUE_MS);
        if self.names.is_empty() || is_known {
            return;
        }
        let record = Record {
            model: model.clone(),
            written_at: now,
        };
        let Ok(value) = serde_json::to_vec(&record).map(Bytes::from) else {
            return;
        };
        self.found = Some(record);
        let (kv, keys) = (state.ports.kv.clone(), self.keys());
        state.leaving.spawn(async move {
            for key in keys {
                let put = kv.put_for((AFFINITY_BUCKET, &key), value.clone(), Expected::Any, LIFE);
                if !matches!(timeout(WAIT, put).await, Ok(Ok(_))) {
                    debug!("a session of calls that leave the choice of a model cannot be remembered");
                    return;
                }
            }
        });
    }
}

/// The names of a call's session: what the caller or his program say.
fn named(
    caller: &Caller,
    surface: Surface,
    (spoken, body): (&Spoken, &[u8]),
    limits: &dialects::skim::Limits,
) -> Vec<Name> {
    let told = read(surface, body, limits);
    let facts = told.facts();
    let hint = spoken.hint(&facts);
    let policy = Policy {
        sessions: true,
        ..Policy::default()
    };
    let tenant: &TenantId = caller.tenant();
    let told = Names {
        session: spoken.session.as_deref(),
        hint: hint.as_deref(),
        facts: &facts,
        caller: caller.key.id.as_str(),
    };
    let mut names = names(Scope { tenant, group: SCOPE }, &told, &policy, sha256);
    names.retain(|name| matches!(name.level, Level::Header | Level::Hint | Level::CacheKey));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::tests::caller;

    #[test]
    fn a_session_has_a_name_of_its_own_for_each_tenant_and_none_where_nothing_names_it() {
        let body = br#"{"model":"auto","prompt":"hi"}"#;
        let spoken = |name: Option<&str>| {
            Spoken::read(|header| name.filter(|_| header == "x-session-id").map(str::as_bytes))
        };
        let limits = dialects::skim::Limits::default();
        let keys = |tenant: &str, name: Option<&str>| -> Vec<String> {
            let caller = caller(|key| key.tenant = TenantId::from(tenant));
            let names = named(&caller, Surface::Completions, (&spoken(name), body), &limits);
            names.into_iter().map(|name| name.record_key).collect()
        };

        assert_eq!(keys("acme", None), Vec::<String>::new());
        let (acme, zenith) = (keys("acme", Some("s1")), keys("zenith", Some("s1")));
        assert_eq!((acme.len(), zenith.len()), (1, 1));
        assert_ne!(acme, zenith);
        assert_eq!(acme, keys("acme", Some("s1")));
        assert_ne!(acme, keys("acme", Some("s2")));
    }
}
