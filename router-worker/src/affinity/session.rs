//! The session of one request: how it is named, where it is found, where the request goes because of it, and what is
//! remembered of that.

use std::sync::Arc;

use bus::Kv;
use bytes::Buf as _;
use dialects::skim::Limits;
use dialects::skim::session::session as skim;
use futures_util::future::join_all;
use schemas::affinity::choice::{Found, Verdict, Written, forgotten, placed};
use schemas::affinity::hint::Facts;
use schemas::affinity::opening::Opening;
use schemas::affinity::prefill::{Prompt, Terms};
use schemas::affinity::record::Record;
use schemas::affinity::session::{Name, Names, Scope, names, told};
use schemas::affinity::{Level, Policy};
use schemas::balance::Algorithm;
use schemas::balance::draws::shortened;
use schemas::balance::snapshot::Prefix;
use schemas::catalog::{Catalog, Model, Origin};
use schemas::command::Offer;
use schemas::digest::Digest;
use schemas::event::request::Surface;
use schemas::id::{BackendId, EndpointId};
use schemas::subject::AFFINITY_BUCKET;
use schemas::time::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::Affinity;
use super::places::{Known, Places};
use crate::config;
use crate::plan::Session;

/// Prompts below this many tokens are read anew wherever they go: it is not worth knowing which conversation they
/// belong to.
const CONVERSATION_TOKENS_MIN: u64 = 1_024;

/// What a request says about where it should go.
#[derive(Debug, Default)]
pub(crate) struct Stay {
    /// How its session is looked for; `None` where nothing stays.
    looked: Option<Looked>,
    /// What backends have to read of it; `None` where nothing depends on that.
    prompt: Option<Prompt>,
    /// How its prompt begins; `None` where nothing depends on that.
    prefix: Option<Prefix>,
    /// Backends that failed it.
    failed: Vec<BackendId>,
}

#[derive(Debug)]
struct Looked {
    policy: Policy,
    names: Vec<Name>,
    /// What its caller is told as its session.
    token: Option<Arc<str>>,
    /// The place among the names, and the record.
    found: Option<(usize, Record)>,
    verdict: Option<Verdict>,
    /// Where the request went last.
    backend: Option<BackendId>,
}

/// How sessions of a model are kept.
#[derive(Debug, PartialEq, Eq)]
struct Keeping {
    policy: Policy,
    group: String,
    /// The most backends that a request can choose from.
    choices: usize,
    /// One of them schedules by priorities.
    prioritizes: bool,
    /// Some of them are chosen by how prompts begin.
    by_prefix: bool,
}

impl Stay {
    /// Reads what an offer and its body say of their session.
    pub(crate) fn of(settings: &config::Affinity, catalog: &Catalog, offer: &Offer, body: &[u8]) -> Self {
        let model = catalog.model_of(&offer.owner, offer.model.as_str());
        let chooses = offer.pin.is_none() && offer.surface != Surface::Embeddings;
        let Some(keeping) = model
            .filter(|_| chooses)
            .and_then(|model| keeping(settings, catalog, model, offer))
        else {
            return Self::default();
        };
        let reads = (keeping.choices > 1 || keeping.prioritizes) && settings.prefill.is_some();
        let tokens = offer.requirements.prompt_tokens;
        let is_read =
            keeping.policy.sessions || keeping.by_prefix || (reads && tokens >= CONVERSATION_TOKENS_MIN);
        // The gateway has bounded its nesting.
        let limits = Limits {
            depth_max: usize::MAX,
            ..Limits::default()
        };
        let told = is_read.then(|| skim(offer.surface, body, &limits));
        let facts = told.as_ref().map_or_else(Facts::default, |told| told.facts());
        let prompt = reads.then(|| Prompt {
            caller: format!("{}\n{}", offer.tenant, offer.caller).into(),
            conversation: facts.opening.l1(),
            tokens,
        });
        Self {
            looked: Looked::of(&keeping, offer, &facts),
            prompt,
            prefix: keeping.by_prefix.then(|| prefix(&facts.opening)).flatten(),
            failed: Vec::new(),
        }
    }

    /// Looks the session up: here, and for a moment in the bucket, under the names of which nothing is known here and
    /// which would count before the one that is.
    pub(crate) async fn find(&mut self, affinity: &Affinity, kv: Option<&Arc<dyn Kv>>) {
        let Some(looked) = &mut self.looked else {
            return;
        };
        let now = affinity.clock.now();
        looked.found = looked.known(affinity, now);
        let unknown = looked.unknown(affinity);
        if !unknown.is_empty()
            && let Some(kv) = affinity.bus(kv)
        {
            read(affinity, kv, &unknown).await;
            looked.found = looked.known(affinity, now);
        }
    }

    /// What was found of the session; `None` where nothing is looked for.
    pub(crate) fn found(&self) -> Option<Session<'_>> {
        let found = self.looked.as_ref()?.found();
        Some(Session { found })
    }

    /// What backends have to read.
    pub(crate) const fn prompt(&self) -> Option<&Prompt> {
        self.prompt.as_ref()
    }

    /// How its prompt begins.
    pub(crate) const fn prefix(&self) -> Option<Prefix> {
        self.prefix
    }

    /// The priority of the request at a backend that schedules by it.
    pub(crate) fn priority(&self, affinity: &Affinity, backend: &BackendId) -> u8 {
        affinity.with_prefill(|prefill, now_ms| match (prefill, &self.prompt) {
            (Some(prefill), Some(prompt)) => prefill.priority(prompt, backend, now_ms),
            _ => Terms::default().priority(0),
        })
    }

    /// How affinity decided.
    pub(crate) fn decide(&mut self, verdict: Option<Verdict>) {
        if let Some(looked) = &mut self.looked {
            looked.verdict = verdict;
        }
    }

    /// The request goes to a backend, and its session with it.
    pub(crate) fn go(&mut self, affinity: &Affinity, (endpoint, backend): (&EndpointId, &BackendId)) {
        if let Some(looked) = &mut self.looked {
            looked.go(affinity, (endpoint, backend));
        }
    }

    /// A backend failed the request.
    pub(crate) fn failed(&mut self, affinity: &Affinity, backend: &BackendId) {
        affinity.failed(backend);
        self.failed.push(backend.clone());
    }

    /// Waits for a moment until other routers can know where the session is: whoever hears the end of an answer may
    /// call one of them at once.
    pub(crate) async fn spread(&self, affinity: &Affinity) {
        let Some(looked) = self.looked.as_ref().filter(|_| !affinity.settings.alone) else {
            return;
        };
        let written: Vec<_> = {
            let mut places = affinity.places.lock();
            let names = looked.names.iter();
            names.filter_map(|name| places.wait(&name.record_key)).collect()
        };
        if !written.is_empty() {
            // Who waits in vain has an answer all the same.
            let _ = timeout(affinity.settings.wait, join_all(written)).await;
        }
    }

    /// Nobody answered the request: its session is no longer where it was failed.
    pub(crate) fn give_up(&self, affinity: &Affinity) {
        let Some(looked) = self.looked.as_ref().filter(|_| !self.failed.is_empty()) else {
            return;
        };
        let mut places = affinity.places.lock();
        let known: Vec<(usize, Record)> = looked
            .names
            .iter()
            .enumerate()
            .filter_map(|(place, name)| match places.known(&name.record_key) {
                Known::At(record) => Some((place, record)),
                Known::Nowhere | Known::Nothing => None,
            })
            .collect();
        let known = known.iter().map(|(place, record)| (*place, record));
        for place in forgotten(known, &self.failed) {
            let Some(name) = looked.names.get(place) else {
                continue;
            };
            if places.forget(&name.record_key) {
                affinity.queue(&mut places, &name.record_key);
            }
        }
    }

    /// What the caller and the books are told: the session, and how affinity decided.
    pub(crate) fn told(&self) -> Option<(Option<&Arc<str>>, Verdict)> {
        let looked = self.looked.as_ref()?;
        Some((looked.token.as_ref(), looked.verdict?))
    }
}

impl Looked {
    fn of(keeping: &Keeping, offer: &Offer, facts: &Facts<'_>) -> Option<Self> {
        let hint = offer.spoken.hint(facts);
        let session = offer.spoken.session.as_deref();
        let said = Names {
            session,
            hint: hint.as_deref(),
            facts,
            caller: offer.caller.as_str(),
        };
        let scope = Scope {
            tenant: &offer.tenant,
            group: &keeping.group,
        };
        let names = names(scope, &said, &keeping.policy, sha256);
        (!names.is_empty()).then(|| Self {
            policy: keeping.policy,
            token: told(&names, session).map(Arc::from),
            names,
            found: None,
            verdict: None,
            backend: None,
        })
    }

    /// The first of the names under which a record is known that counts.
    fn known(&self, affinity: &Affinity, now: Timestamp) -> Option<(usize, Record)> {
        let places = affinity.places.lock();
        let mut names = self.names.iter().enumerate();
        names.find_map(|(place, name)| match places.known(&name.record_key) {
            Known::At(record) if record.is_alive(name.level, &self.policy, now) => Some((place, record)),
            _ => None,
        })
    }

    /// The names of which nothing is known here, as far as they count before the one that was found.
    fn unknown(&self, affinity: &Affinity) -> Vec<&Name> {
        let before = self.found.as_ref().map_or(self.names.len(), |(place, _)| *place);
        let places = affinity.places.lock();
        let names = self.names.iter().take(before);
        names
            .filter(|name| places.known(&name.record_key) == Known::Nothing)
            .collect()
    }

    fn found(&self) -> Option<(Level, &Record)> {
        let (place, record) = self.found.as_ref()?;
        Some((self.names.get(*place)?.level, record))
    }

    fn go(&mut self, affinity: &Affinity, (endpoint, backend): (&EndpointId, &BackendId)) {
        if self.backend.as_ref() == Some(backend) {
            return;
        }
        if let Some(Verdict::Hit { level, .. }) = self.verdict
            && self.found().is_some_and(|(_, record)| record.backend != *backend)
        {
            self.verdict = Some(Verdict::Stale { level });
        }
        self.backend = Some(backend.clone());
        let found = self
            .found
            .as_ref()
            .map(|(name, record)| Found { name: *name, record });
        let written = placed(
            &self.names,
            found,
            (endpoint, backend),
            &self.policy,
            affinity.clock.now(),
        );
        self.write(affinity, written);
    }

    fn write(&mut self, affinity: &Affinity, written: Vec<Written>) {
        let name = self.found.as_ref().map_or(0, |(name, _)| *name);
        let mut places = affinity.places.lock();
        if written.is_empty()
            && let Some(name) = self.names.get(name)
            && places.is_left_out(&name.record_key)
        {
            affinity.queue(&mut places, &name.record_key);
        }
        for Written { name: place, record } in written {
            let Some(of) = self.names.get(place) else {
                continue;
            };
            let life_ms = self.policy.life_ms(of.level);
            if places.put(&of.record_key, record.clone(), life_ms) {
                affinity.queue(&mut places, &of.record_key);
            }
            self.found = Some((name, record));
        }
    }
}

/// Reads what the bucket has under some names.
async fn read(affinity: &Affinity, kv: &Arc<dyn Kv>, names: &[&Name]) {
    let reads = names.iter().map(|name| kv.get(AFFINITY_BUCKET, &name.record_key));
    let Ok(read) = timeout(affinity.settings.wait, join_all(reads)).await else {
        affinity.is_away();
        return;
    };
    let mut places = affinity.places.lock();
    for (name, read) in names.iter().zip(read) {
        match read {
            Ok(Some(entry)) => {
                let record = entry.value.as_deref().and_then(Record::decode);
                places.learn(&name.record_key, entry.revision, record);
            }
            Ok(None) => {}
            Err(_) => affinity.is_away(),
        }
    }
}

impl Affinity {
    /// Has a record written. One for which there is no room is left out until its session is touched again.
    fn queue(&self, places: &mut Places, key: &str) {
        if self.queue.try_send(Arc::from(key)).is_err() {
            places.leave_out(key);
        }
    }
}

/// How sessions of a model are kept, and whether a request has a choice at all; `None` where nothing it says decides
/// anything.
fn keeping(settings: &config::Affinity, catalog: &Catalog, model: &Model, offer: &Offer) -> Option<Keeping> {
    let mut staying: Vec<&EndpointId> = Vec::new();
    let mut choices: Vec<(i32, usize)> = Vec::new();
    let mut prioritizes = false;
    let (mut by_prefix, mut is_drawn) = (false, true);
    let by_cost = model
        .router
        .as_ref()
        .is_some_and(|router| router.routewise().is_some());
    for route in &model.routes {
        let endpoint = catalog.endpoint_for(&model.owner, &route.endpoint_id);
        let Some(endpoint) = endpoint.filter(|endpoint| offer.candidates.contains(&endpoint.id)) else {
            continue;
        };
        if endpoint.session_affinity && !staying.contains(&&endpoint.id) {
            staying.push(&endpoint.id);
        }
        prioritizes |= endpoint.priority_scheduling;
        by_prefix |= endpoint.balancing() == Algorithm::PrefixAware;
        is_drawn &= endpoint.balancing().is_weighted() && !by_cost;
        if route.weight_micro > 0 {
            let backends = endpoint.backends.len().max(1);
            match choices
                .iter_mut()
                .find(|(priority, _)| *priority == route.priority)
            {
                Some((_, sum)) => *sum += backends,
                None => choices.push((route.priority, backends)),
            }
        }
    }
    let choices = choices.iter().map(|(_, sum)| *sum).max().unwrap_or(0);
    if staying.is_empty() && !prioritizes && choices < 2 {
        return None;
    }
    // An endpoint of one model alone is named after that and after its first address, which may go while the sessions
    // of the model stay what they are.
    let own = format!("{}:", model.id);
    let group = match staying.as_slice() {
        [endpoint] if !endpoint.as_str().starts_with(&own) => format!("endpoint {endpoint}"),
        _ => format!("model {}", model.id),
    };
    Some(Keeping {
        policy: Policy {
            sessions: !staying.is_empty(),
            // Whoever asks for an algorithm wants it to decide, and says which sessions stay.
            caller: settings.callers && model.origin == Origin::File && choices > 1 && is_drawn,
            ..settings.policy
        },
        group,
        choices,
        prioritizes,
        by_prefix: by_prefix && choices > 1,
    })
}

/// How a prompt begins, as two numbers.
fn prefix(opening: &Opening) -> Option<Prefix> {
    let number = |name: [u8; 16]| shortened(name.as_slice().get_u64_le());
    let conversation = number(opening.l1().or_else(|| opening.instructions())?);
    Some(Prefix {
        instructions: opening.instructions().map_or(conversation, number),
        conversation,
    })
}

fn sha256(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(hasher.finalize().into())
}

#[cfg(test)]
mod tests;
