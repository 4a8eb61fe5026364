//! Trials: one real call to an endpoint for the smallest answer there is, to see whether it works. It takes the way of
//! every call, with the endpoint's first credential and in its own protocol; no circuit, no credential and no row hears
//! of it. What is told of a failure is said here: nothing of an upstream's own words.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, Question};
use bytes::Bytes;
use dialects::skim::{Limits, skim, splice_facts};
use schemas::affinity::hint::Spoken;
use schemas::catalog::{Catalog, Endpoint, Model, Role, Route};
use schemas::command::{Offer, Requirements, Told};
use schemas::event::request::Surface;
use schemas::id::{KeyId, PoolName};
use schemas::pool::Part;
use schemas::query::QueryError;
use schemas::subject;
use schemas::trial::{TrialAnswer, TrialQuery};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::attempt::{Call, Ending, Meter};
use crate::fault::Fault;
use crate::keypool::{Declared, Held};
use crate::plan::Candidate;
use crate::questions::{self, Asked};
use crate::relay::Relay;
use crate::session::{Preparation, tell_of_sealed};
use crate::state::Shared;

/// How long a trial may take in all.
const WITHIN: Duration = Duration::from_mins(1);
/// Trials at once; beyond, who asks is told to come back.
const TRIALS_MAX: usize = 16;
/// How long is waited for the catalogue that the asker has seen.
const CATALOG_WITHIN: Duration = Duration::from_secs(3);
/// How often is looked whether it is there.
const CATALOG_POLL: Duration = Duration::from_millis(20);

const UNREACHABLE: &str = "the endpoint cannot be reached, or its address is none that it may have";
const MISCONFIGURED: &str =
    "the endpoint cannot be called as it is configured, or its address is none that it may have";
const NO_ENDPOINT: &str = "there is no such endpoint";
const NO_ROUTE: &str = "no route leads to the endpoint, so there is no model to ask for";
const NO_CREDENTIAL: &str = "the router has no credential for the endpoint that it can use: give it anew";
const NOT_IN_TIME: &str = "the endpoint did not answer in time";
const BUSY: &str = "too many endpoints are tested at the moment";

/// Makes trials until `shutdown`.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    (bus, pool): (Arc<dyn Bus>, &PoolName),
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let asked = Asked {
        subject: &subject::trial(pool.as_str()),
        at_once_max: TRIALS_MAX,
        waiting: "the router cannot be asked for trials",
        refused: "endpoints cannot be tested through this router",
    };
    let answer = |question| answer(Arc::clone(shared), question);
    let busy = |question: Question| tell(question.reply, &Ok(TrialAnswer::failed(BUSY)));
    questions::serve(bus, asked, (answer, busy), shutdown).await
}

async fn answer(shared: Arc<Shared>, question: Question) {
    let answer = match serde_json::from_slice(&question.payload) {
        Ok(query) => Ok(Box::pin(tried(&shared, &query, WITHIN)).await),
        Err(_) => Err(QueryError::Invalid("the question does not parse".to_owned())),
    };
    tell(question.reply, &answer);
}

fn tell(reply: tokio::sync::oneshot::Sender<Bytes>, answer: &Result<TrialAnswer, QueryError>) {
    if let Ok(bytes) = serde_json::to_vec(answer) {
        // An asker who has given up needs no answer.
        let _ = reply.send(Bytes::from(bytes));
    }
}

/// Makes one call, and tells how it ended.
async fn tried(shared: &Shared, query: &TrialQuery, within: Duration) -> TrialAnswer {
    let catalog = match &query.part {
        Some(part) => learned(part, query.revision),
        None => seen(shared, query.revision).await,
    };
    let Some(endpoint) = catalog.endpoint(&query.endpoint) else {
        return TrialAnswer::failed(NO_ENDPOINT);
    };
    let Some((model, route)) = way_to(&catalog, endpoint) else {
        return TrialAnswer::failed(NO_ROUTE);
    };
    let candidate = Candidate {
        endpoint: Arc::clone(endpoint),
        backend: (!endpoint.backends.is_empty()).then_some(0),
        upstream_model: Arc::clone(&route.upstream_model),
        context_length: route.context_length,
        takes: Arc::clone(&route.takes),
        bypass: true,
    };
    let started = Instant::now();
    let mut meter = Meter {
        started_ms: shared.clock.monotonic_ms(),
        ..Meter::default()
    };
    let ended = timeout(within, call(shared, &model, &candidate, &mut meter)).await;
    let error = ended.unwrap_or(Some(NOT_IN_TIME));
    TrialAnswer {
        ok: error.is_none(),
        status: meter.status,
        latency_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        backend: Some(candidate.backend_id()),
        error: error.map(str::to_owned),
    }
}

/// What the asker tells of the catalogue.
fn learned(part: &Part, revision: u64) -> Arc<Catalog> {
    let mut catalog = Catalog::default();
    catalog.learn(revision, part.clone());
    Arc::new(catalog)
}

/// The catalogue as the asker has seen it, or what there is of it after a while.
async fn seen(shared: &Shared, revision: u64) -> Arc<Catalog> {
    let current = async {
        while shared.catalog.peek().revision < revision {
            sleep(CATALOG_POLL).await;
        }
    };
    let _ = timeout(CATALOG_WITHIN, current).await;
    shared.catalog.load()
}

/// The first route to an endpoint, and its model.
fn way_to(catalog: &Catalog, endpoint: &Endpoint) -> Option<(Arc<Model>, Route)> {
    catalog.all_models().into_iter().find_map(|model| {
        let mut routes = model.routes.iter();
        let route = routes.find(|route| route.endpoint_id == endpoint.id)?;
        Some((Arc::clone(model), route.clone()))
    })
}

/// Calls, and says what is wrong; `None` where all is well.
async fn call(
    shared: &Shared,
    model: &Model,
    candidate: &Candidate,
    meter: &mut Meter,
) -> Option<&'static str> {
    let Some((offer, body)) = offer(shared, model, candidate) else {
        return Some(MISCONFIGURED);
    };
    let held = match credential(shared, &candidate.endpoint) {
        Ok(held) => held,
        Err(problem) => return Some(problem),
    };
    let prepared = match Preparation::default().prepare(candidate, &offer, &body, &|| 1) {
        Ok(prepared) => prepared,
        Err(fault) => return Some(told(&fault)),
    };
    let visit = shared.affinity.visit(&candidate.backend_id(), None);
    let call = Call {
        shared,
        relay: &Relay::default(),
        offer: &offer,
        caller_body: prepared.fitted.as_ref().unwrap_or(&body),
        prepared: &prepared,
        model_json: b"\"trial\"",
        candidate,
        session: None,
        visit: &visit,
        stream_deadline: None,
    };
    let credential = held.as_ref().map(|held| held.declaration.secret.as_ref());
    match call.run(credential, meter).await {
        Ending::Whole { .. } => None,
        Ending::Failed(fault) => Some(told(&fault)),
        Ending::Told(failed) => Some(told(&failed.fault)),
        Ending::Stopped(_) => Some(NOT_IN_TIME),
    }
}

/// The endpoint's first credential, muted or not: whether it is good is what is asked.
fn credential(shared: &Shared, endpoint: &Arc<Endpoint>) -> Result<Option<Held>, &'static str> {
    let declared = shared.pools.first(endpoint, &shared.credentials);
    tell_of_sealed(shared, endpoint);
    match declared {
        Declared::Keyless => Ok(None),
        Declared::Key(held) => Ok(Some(held)),
        Declared::Lacking(_) | Declared::Unknown => Err(NO_CREDENTIAL),
    }
}

/// The smallest request that a model can be asked for.
fn offer(shared: &Shared, model: &Model, candidate: &Candidate) -> Option<(Offer, Bytes)> {
    let (surface, body) = if model.embeds {
        (Surface::Embeddings, json!({"model": "trial", "input": "ping"}))
    } else {
        let messages = json!([{"role": "user", "content": "ping"}]);
        let body = json!({"model": "trial", "messages": messages, "max_tokens": 1});
        (Surface::Chat, body)
    };
    let body = Bytes::from(body.to_string());
    let skim = skim(surface, &body, &Limits::default()).ok()?;
    let now = shared.clock.now();
    let offer = Offer {
        request_id: shared.mint.request_id(now),
        tenant: candidate.endpoint.tenant.clone(),
        surface,
        model: model.id.clone(),
        owner: model.owner.clone(),
        public_model: "trial".into(),
        candidates: [candidate.endpoint.id.clone()].into(),
        catalog_revision: shared.catalog.peek().revision,
        requirements: Requirements::default(),
        pin: None,
        splice: splice_facts(&skim),
        told: Told::default(),
        spoken: Spoken::default(),
        caller: KeyId::from(""),
        role: Role::Operator,
        started_at: now,
        attempts_max: 1,
        attempts_before: 0,
        passes_sleepers: false,
        raw: None,
    };
    Some((offer, body))
}

/// A fault in words of ours.
fn told(fault: &Fault) -> &'static str {
    match fault {
        Fault::Unreachable => UNREACHABLE,
        Fault::Misconfigured => MISCONFIGURED,
        Fault::Unconnected | Fault::TimedOut | Fault::Waited(_) => NOT_IN_TIME,
        Fault::Refused(refusal) => match refusal.status {
            401..=403 | 407 => "the endpoint does not accept the credential",
            404 => "the endpoint knows no such model or path",
            400 | 413 | 422 => "the endpoint refuses the request",
            429 => "the endpoint limits its rate",
            _ => "the endpoint failed",
        },
        Fault::Redirected => "the endpoint answered with a redirect",
        Fault::Cut => "the endpoint broke off its answer",
        Fault::Unusable(_) => "the endpoint answered in a form that is not understood",
        Fault::Unmappable(_) | Fault::Rejected(_) => "the endpoint's protocol cannot say what is asked for",
        Fault::Exhausted { .. } | Fault::Disowned | Fault::Saturated | Fault::Reserved => NO_CREDENTIAL,
    }
}

#[cfg(test)]
mod tests;
