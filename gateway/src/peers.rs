//! What gateways ask one another: what each has settled or answered that the shared records and the books do not have
//! yet. So what a caller reads of any node is what every node has answered him. These are rare questions: whoever calls
//! a model waits for none of them.
//!
//! A node that does not answer in time, and one whose last words nobody has heard, make the answer partial, and it says
//! so. Of quotas that is so only where such a node has something in hand, by the shared record: it can have spent nothing
//! else. What sums of the books lack of a node that died nobody can know, however long it is silent: it may have gone on
//! to answer, cut off from all others, and what it answered is on its disk alone. So the doubt ends when its spool is
//! there again, by a start or by `waybill drain`, or when an operator says that it never will be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::Question;
use bus::waiting::once_there;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use schemas::id::SpoolId;
use schemas::limit::layers::{Bound, Name};
use schemas::limit::quota::Spent;
use schemas::node::{NodeRecord, NodeRole};
use schemas::query::{PEER_QUOTAS_MAX, PeerAnswer, PeerQuery};
use schemas::subject;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::limits::{Told, Usage};
use crate::state::Shared;

/// How long another node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long the books may take to hold what a node has answered.
const BOOKED_WITHIN: Duration = Duration::from_millis(500);
/// How often is looked whether they do.
const BOOKED_POLL: Duration = Duration::from_millis(2);
/// Questions that are answered at once.
const ANSWERS_MAX: usize = 64;

/// The other gateways.
struct Peers {
    /// Those that are there: their sources and their runs.
    live: Vec<(SpoolId, Arc<str>)>,
    /// There is one whose last words nobody has heard.
    is_partial: bool,
}

/// Answers other gateways until `stop`.
pub(crate) async fn serve(state: Shared, stop: CancellationToken) {
    let subject = subject::peer(&state.config.boot);
    let serving = async {
        let serve = || state.ports.bus.serve(&subject);
        let mut questions = match once_there("other gateways cannot ask this one", serve).await {
            Ok(questions) => questions,
            Err(problem) => {
                let error = &problem as &dyn std::error::Error;
                return warn!(error, "other gateways cannot ask this one");
            }
        };
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(()) = answers.next() => {}
                question = questions.recv(), if answers.len() < ANSWERS_MAX => match question {
                    Some(question) => answers.push(answer(&state, question)),
                    None => return,
                },
            }
        }
    };
    stop.run_until_cancelled(serving).await;
}

async fn answer(state: &Shared, question: Question) {
    let asked: Option<PeerQuery> = serde_json::from_slice(&question.payload).ok();
    let answer = match asked {
        Some(PeerQuery::Settled(names)) if names.len() <= PEER_QUOTAS_MAX => {
            PeerAnswer::Settled(state.ports.limits.settled(&names))
        }
        Some(PeerQuery::Booked) => PeerAnswer::Booked(own_booked(state).await),
        Some(PeerQuery::Recovered) => PeerAnswer::Recovered(own_recovered(state)),
        // Whoever asks something else is of another version, and is left to his timeout.
        Some(PeerQuery::Settled(_)) | None => return,
    };
    if let Ok(bytes) = serde_json::to_vec(&answer) {
        // An asker who has given up needs no answer.
        drop(question.reply.send(Bytes::from(bytes)));
    }
}

/// How much of each limit is used, over all nodes.
pub(crate) async fn usage_of(state: &Shared, bounds: &[Bound]) -> Vec<Usage> {
    let limits = &state.ports.limits;
    let told = settled(state, &limits.running(bounds)).await;
    limits.usage_of(bounds, &told).await
}

/// What the other nodes settled of these quotas.
async fn settled(state: &Shared, names: &[Name]) -> Told {
    let peers = peers(state);
    let questions = peers.live.iter().map(|(_, boot)| {
        let parts = names.chunks(PEER_QUOTAS_MAX);
        join_all(parts.map(move |part| settled_by(state, boot, part)))
    });
    let answers = join_all(questions).await;
    let mut told = Told::default();
    for ((source, _), answers) in peers.live.into_iter().zip(answers) {
        if answers.iter().all(Option::is_some) {
            told.heard.insert(source);
        }
        for (name, spent) in answers.into_iter().flatten().flatten() {
            told.quotas.entry(name).or_default().push(spent);
        }
    }
    told
}

async fn settled_by(state: &Shared, boot: &str, names: &[Name]) -> Option<BTreeMap<Name, Spent>> {
    match ask(state, boot, &PeerQuery::Settled(names.to_vec())).await? {
        PeerAnswer::Settled(settled) => Some(settled),
        PeerAnswer::Booked(_) | PeerAnswer::Recovered(_) => None,
    }
}

/// Waits a moment until the books hold what every node has answered so far, so that whoever reads them finds his own
/// calls there. True when they do; a ledger that is behind is no reason not to tell what it has.
pub(crate) async fn booked(state: &Shared) -> bool {
    let peers = peers(state);
    let others = join_all(peers.live.iter().map(|(_, boot)| booked_by(state, boot)));
    let (own, others) = tokio::join!(own_booked(state), others);
    own && !peers.is_partial && others.into_iter().all(|booked| booked)
}

async fn booked_by(state: &Shared, boot: &str) -> bool {
    matches!(
        ask(state, boot, &PeerQuery::Booked).await,
        Some(PeerAnswer::Booked(true))
    )
}

async fn own_booked(state: &Shared) -> bool {
    let spool = &state.ports.spool;
    let answered = spool.appended();
    let booked = async {
        while spool.marked() < answered {
            sleep(BOOKED_POLL).await;
        }
    };
    timeout(BOOKED_WITHIN, booked).await.is_ok()
}

/// True when the books have all that the run `boot` on this spool said before it ended: a later run on the same spool,
/// here or elsewhere, has seen to it. What they do not know of it had not begun.
pub(crate) async fn recovered(state: &Shared, spool: &SpoolId, boot: &str) -> bool {
    if spool == state.ports.spool.id() {
        return boot != &*state.config.boot && own_recovered(state);
    }
    let live = state.ports.nodes.live();
    // A spool is one process's: where there is another run on it, the one that is asked about is over.
    let mut later = live
        .iter()
        .filter(|node| node.spool == *spool && &*node.boot != boot);
    let Some(later) = later.next() else {
        return false;
    };
    let answer = ask(state, &later.boot, &PeerQuery::Recovered).await;
    matches!(answer, Some(PeerAnswer::Recovered(true)))
}

fn own_recovered(state: &Shared) -> bool {
    state.ports.spool.marked() >= state.keys.begun_at
}

/// Asks the gateway of this run; `None` without an answer in time.
async fn ask(state: &Shared, boot: &str, question: &PeerQuery) -> Option<PeerAnswer> {
    let question = serde_json::to_vec(question).ok()?;
    let subject = subject::peer(boot);
    let asked = state.ports.bus.ask(&subject, question.into(), ANSWER_WITHIN);
    serde_json::from_slice(&asked.await.ok()?).ok()
}

/// The other gateways that there are, and whether there were some that died: what those settled last is known once they
/// are back or declared gone.
fn peers(state: &Shared) -> Peers {
    let nodes = &state.ports.nodes;
    let own = state.ports.spool.id();
    let is_other = |node: &NodeRecord| node.roles.contains(&NodeRole::Gateway) && node.spool != *own;
    // Of several runs on one spool the last one is there; the others only have not been silent for long.
    let mut last: BTreeMap<SpoolId, NodeRecord> = BTreeMap::new();
    for node in nodes.live().into_iter().filter(is_other) {
        let known = last.get(&node.spool);
        if known.is_none_or(|known| known.started_at < node.started_at) {
            last.insert(node.spool.clone(), node);
        }
    }
    let all = nodes.all();
    let mut others = all.iter().map(|(node, _)| node).filter(|node| is_other(node));
    Peers {
        is_partial: others.any(|node| !last.contains_key(&node.spool) && !nodes.forgotten(&node.spool)),
        live: last
            .into_iter()
            .map(|(source, node)| (source, node.boot))
            .collect(),
    }
}
