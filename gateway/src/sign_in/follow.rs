//! Which sessions are open, as a gateway knows it without asking: it follows the accounts and keeps of each the ids of
//! its sessions, nothing else. What is not known here is asked for, so that a session that began on another node a
//! moment ago is good at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{Change, Entry};
use parking_lot::RwLock;
use schemas::account::owner_of_key;
use schemas::id::{TenantId, UserId};
use schemas::subject::ACCOUNT_BUCKET;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::state::Shared;

/// The pause before the bucket is watched again.
const PAUSE: Duration = Duration::from_millis(250);

/// The sessions of each account.
type Sessions = HashMap<(TenantId, UserId), HashSet<Arc<str>>>;

/// What is known of accounts.
#[derive(Default)]
pub(crate) struct Followed {
    sessions: RwLock<Option<Sessions>>,
    revision: AtomicU64,
}

/// What is read of an account; its password is passed over.
#[derive(Deserialize)]
struct Seen {
    #[serde(default)]
    sessions: Vec<SeenSession>,
}

#[derive(Deserialize)]
struct SeenSession {
    id: Arc<str>,
}

impl Followed {
    /// True for a session that is known to be open.
    pub(crate) fn is_open(&self, (tenant, user): (&TenantId, &UserId), session: &str) -> bool {
        let sessions = self.sessions.read();
        let of_member = sessions
            .as_ref()
            .and_then(|sessions| sessions.get(&(tenant.clone(), user.clone())));
        of_member.is_some_and(|ids| ids.contains(session))
    }

    /// The newest change of the bucket that is known.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Listens until the watch ends.
    async fn listen(&self, changes: &mut mpsc::Receiver<Change>) {
        let (mut told, mut newest) = (Sessions::new(), 0);
        let mut is_current = false;
        while let Some(change) = changes.recv().await {
            match change {
                Change::Entry(entry) if is_current => {
                    if let Some(sessions) = &mut *self.sessions.write() {
                        apply(sessions, &entry);
                    }
                    self.revision.fetch_max(entry.revision, Ordering::Relaxed);
                }
                Change::Entry(entry) => {
                    newest = newest.max(entry.revision);
                    apply(&mut told, &entry);
                }
                Change::Current => {
                    is_current = true;
                    *self.sessions.write() = Some(std::mem::take(&mut told));
                    self.revision.fetch_max(newest, Ordering::Relaxed);
                }
            }
        }
        // Nothing is known any more of what changes from now on: it is asked for.
        *self.sessions.write() = None;
    }
}

fn apply(sessions: &mut Sessions, entry: &Entry) {
    let Some(member) = owner_of_key(&entry.key) else {
        return;
    };
    let seen = entry
        .value
        .as_deref()
        .and_then(|value| serde_json::from_slice::<Seen>(value).ok());
    match seen {
        Some(seen) => {
            let ids = seen.sessions.into_iter().map(|session| session.id);
            sessions.insert(member, ids.collect());
        }
        None => {
            sessions.remove(&member);
        }
    }
}

/// Follows the accounts until `stop`.
pub(crate) async fn run(state: Shared, stop: CancellationToken) {
    let followed = &state.sign_in.followed;
    let follow = async {
        let mut away = false;
        loop {
            match state.ports.kv.watch(ACCOUNT_BUCKET).await {
                Ok(mut changes) => {
                    if std::mem::take(&mut away) {
                        info!("accounts are watched again");
                    }
                    followed.listen(&mut changes).await;
                }
                Err(problem) => {
                    if !std::mem::replace(&mut away, true) {
                        warn!(
                            error = &problem as &dyn std::error::Error,
                            "accounts cannot be watched; who is signed in is asked for with each call"
                        );
                    }
                }
            }
            sleep(PAUSE).await;
        }
    };
    let _: Option<()> = stop.run_until_cancelled(follow).await;
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(key: &str, value: Option<&'static str>, revision: u64) -> Change {
        Change::Entry(Entry {
            key: key.to_owned(),
            value: value.map(|text| Bytes::from_static(text.as_bytes())),
            revision,
        })
    }

    #[tokio::test]
    async fn sessions_are_open_while_their_account_has_them_and_the_watch_goes_on() {
        let followed = Arc::new(Followed::default());
        let ann = (TenantId::from("acme"), UserId::from("ann"));
        let key = schemas::account::account_key(&ann.0, &ann.1);
        let open = |id: &str| followed.is_open((&ann.0, &ann.1), id);
        let (sender, mut changes) = mpsc::channel(8);
        let one = r#"{"email":"a@b","password":"$argon2id$x","sessions":[{"id":"s1"}]}"#;
        let listening = async {
            followed.listen(&mut changes).await;
        };
        let telling = async {
            let reached = |revision: u64| {
                let followed = Arc::clone(&followed);
                async move {
                    while followed.revision() < revision {
                        tokio::task::yield_now().await;
                    }
                }
            };
            sender.send(entry(&key, Some(one), 4)).await.expect("send");
            sender.send(entry("email.x", Some("{}"), 5)).await.expect("send");
            assert!(!open("s1"), "not all is told yet");
            sender.send(Change::Current).await.expect("send");
            reached(5).await;
            assert!(open("s1") && !open("s2"));
            let other = r#"{"sessions":[{"id":"s2"}]}"#;
            sender.send(entry(&key, Some(other), 6)).await.expect("send");
            reached(6).await;
            assert!(!open("s1") && open("s2"));
            sender.send(entry(&key, None, 7)).await.expect("send");
            reached(7).await;
            assert!(!open("s2"));
            sender.send(entry(&key, Some(one), 8)).await.expect("send");
            reached(8).await;
            drop(sender);
        };
        tokio::join!(listening, telling);

        assert!(!open("s1"), "what is not watched is not known");
    }
}
