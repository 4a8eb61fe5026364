//! `waybill node`: who is in the cluster, and the word of an operator that one of them will not come back. What is
//! told of a node is what it says itself; whether it lives is seen by whether it goes on saying so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::{Clock as _, SystemClock};
use bus::{Change, Entry, Expected, Kv};
use bytes::Bytes;
use reqwest::Method;
use schemas::id::SpoolId;
use schemas::node::{BEAT_SECONDS, NodeRecord, SILENCE_SECONDS_MAX};
use schemas::subject::{MARK_BUCKET, NODE_BUCKET, node};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::UsageError;
use crate::command_line::{Flags, NodeAction};
use crate::config::Config;
use crate::joining;
use crate::management::{self, OPERATOR, RunningNode};
use crate::records::{self, Column};

/// How long is watched before a node that said nothing is called silent in a list.
const LIST_WATCH: Duration = Duration::from_secs(2 * BEAT_SECONDS + 1);
/// How long is watched before a node may be declared gone.
const FORGET_WATCH: Duration = Duration::from_secs(SILENCE_SECONDS_MAX);
/// Where a node tells of the nodes that it knows.
const NODES: &str = "/api/v1/nodes";
/// How the node of an embedded bus is told: as those of a cluster are, without what is there to name one by.
const COLUMNS: [Column; 6] = [
    ("NODE", |node| records::text(&node["node"])),
    ("ROLES", |node| {
        let roles = node["roles"].as_array().into_iter().flatten();
        roles.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    }),
    ("POOL", |node| records::text(&node["pool"])),
    ("STATE", |node| {
        let is_live = node["is_live"] == true;
        if is_live { "alive" } else { "silent" }.to_owned()
    }),
    ("ADDRESS", |node| records::text(&node["address"])),
    ("VERSION", |node| records::text(&node["version"])),
];
/// Longest id of a spool, in bytes.
const SPOOL_ID_BYTES_MAX: usize = 64;

/// A node must not be declared gone.
#[derive(Debug, thiserror::Error)]
#[error(
    "{node} lives: it beat within the last seconds; stop it first, or say --force and have its open requests counted as \
     lost"
)]
pub struct Alive {
    node: String,
}

/// Carries out an action and returns what to print.
pub async fn run(
    action: NodeAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let flags = match &action {
        NodeAction::List { flags } | NodeAction::Forget { flags, .. } => flags,
    };
    let config = load(flags)?;
    if !config.bus.is_shared() {
        return alone(&action, &config, flags).await;
    }
    let carrier = joining::connect(&config).await?;
    let kv = carrier.kv();
    let told = match action {
        NodeAction::List { .. } => list(&*kv).await,
        NodeAction::Forget { id, force, .. } => forget(&*kv, &id, force).await,
    };
    carrier.close().await;
    told
}

/// The same on an embedded bus, which has one node: it is asked itself.
async fn alone(action: &NodeAction, config: &Config, flags: &Flags) -> anyhow::Result<String> {
    let refused = |text: &str| {
        let text = format!("{text}; name the bus of a cluster with --nats-url or NATS_URL");
        anyhow::Error::from(UsageError(text))
    };
    match action {
        NodeAction::Forget { .. } => Err(refused("an embedded bus has one node, and nobody else knows it")),
        NodeAction::List { .. } => match RunningNode::running(config, flags, OPERATOR) {
            Err(management::Error::NotRunning) => Err(refused("no node runs on the data directory")),
            node => {
                let told = node?.call(Method::GET, NODES, None).await?;
                let nodes = told["data"].as_array().cloned().unwrap_or_default();
                Ok(records::printed(&COLUMNS, &nodes, false))
            }
        },
    }
}

/// What a watch of the bucket has shown.
#[derive(Debug, Default)]
struct Watched {
    nodes: BTreeMap<String, Node>,
    forgotten: Vec<SpoolId>,
}

#[derive(Debug)]
struct Node {
    record: NodeRecord,
    revision: u64,
    beats: bool,
}

impl Watched {
    fn apply(&mut self, entry: Entry) {
        if let Some(spool) = entry.key.strip_prefix(node::GONE) {
            if entry.value.is_some() {
                self.forgotten.push(SpoolId::from(spool));
            }
            return;
        }
        let record = entry.value.as_deref().map(serde_json::from_slice::<NodeRecord>);
        match record {
            None => {
                self.nodes.remove(&entry.key);
            }
            Some(Ok(record)) => {
                let known = self.nodes.get(&entry.key).map(|node| node.revision);
                let beats = known.is_some_and(|revision| revision != entry.revision);
                let node = Node {
                    record,
                    revision: entry.revision,
                    beats,
                };
                self.nodes.insert(entry.key, node);
            }
            // A record of a newer version is somebody else's to read.
            Some(Err(_)) => {}
        }
    }

    fn all_beat(&self) -> bool {
        self.nodes.values().all(|node| node.beats)
    }

    /// The spools that `id` names, be it a node's, a boot's or a spool's: each with whether a node publishes from it.
    fn spools(&self, id: &str) -> BTreeMap<SpoolId, bool> {
        let mut spools = BTreeMap::new();
        for node in self.nodes.values() {
            let record = &node.record;
            if [record.node.as_str(), record.spool.as_str(), &*record.boot].contains(&id) {
                *spools.entry(record.spool.clone()).or_default() |= node.beats;
            }
        }
        for (spool, lives) in &mut spools {
            // Another run on the same spool may be the one that lives.
            *lives |= self
                .nodes
                .values()
                .any(|node| node.record.spool == *spool && node.beats);
        }
        spools
    }
}

/// Watches until `enough`, at most `wait`.
async fn watch(kv: &dyn Kv, wait: Duration, enough: impl Fn(&Watched) -> bool) -> anyhow::Result<Watched> {
    let deadline = Instant::now() + wait;
    let mut changes = kv
        .watch(NODE_BUCKET)
        .await
        .context("cannot read who is in the cluster")?;
    let mut watched = Watched::default();
    let mut current = false;
    while !(current && enough(&watched)) {
        match timeout_at(deadline, changes.recv()).await {
            Ok(Some(Change::Entry(entry))) => watched.apply(entry),
            Ok(Some(Change::Current)) => current = true,
            Ok(None) | Err(_) => break,
        }
    }
    anyhow::ensure!(current, "the bus did not tell who is in the cluster");
    Ok(watched)
}

async fn list(kv: &dyn Kv) -> anyhow::Result<String> {
    let watched = watch(kv, LIST_WATCH, Watched::all_beat).await?;
    Ok(listed(&watched))
}

fn listed(watched: &Watched) -> String {
    let mut text = String::from("NODE\tROLES\tPOOL\tSTATE\tADDRESS\tVERSION\tSPOOL\tBOOT\n");
    for Node { record, beats, .. } in watched.nodes.values() {
        let roles: Vec<&str> = record.roles.iter().map(|role| role.word()).collect();
        let state = match (beats, watched.forgotten.contains(&record.spool)) {
            (true, _) => "alive",
            (false, true) => "forgotten",
            (false, false) => "silent",
        };
        let address = record
            .address
            .map_or("-".to_owned(), |address| address.to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}\t{}\t{}\t{state}\t{address}\t{}\t{}\t{}",
            record.node,
            roles.join(","),
            record.pool,
            record.version,
            record.spool,
            record.boot
        );
    }
    text
}

async fn forget(kv: &dyn Kv, id: &str, force: bool) -> anyhow::Result<String> {
    let known = |watched: &Watched| {
        let spools = watched.spools(id);
        force || spools.is_empty() || spools.values().all(|lives| *lives)
    };
    let watched = watch(kv, FORGET_WATCH, known).await?;
    let named = watched.spools(id);
    let mut gone: Vec<SpoolId> = named
        .iter()
        .filter(|(_, lives)| !**lives)
        .map(|(spool, _)| spool.clone())
        .collect();
    match (named.len(), gone.len()) {
        // The bucket is in memory: a source may be known by its mark alone.
        (0, _) if is_spool(kv, id, force).await? => gone.push(SpoolId::from(id)),
        (0, _) => {
            let text = format!("no node and no spool is called \"{id}\"; waybill node list shows them");
            return Err(UsageError(text).into());
        }
        (1, 0) if force => gone.extend(named.into_keys()),
        (_, 0) if force => {
            let text = format!("\"{id}\" has several spools; name one by its id");
            return Err(UsageError(text).into());
        }
        (_, 0) => return Err(Alive { node: id.to_owned() }.into()),
        _ => {}
    }
    let mut text = String::new();
    for spool in gone {
        let value = json!({ "declared_at": SystemClock::new().now() });
        let key = format!("{}{spool}", node::GONE);
        kv.put(NODE_BUCKET, &key, Bytes::from(value.to_string()), Expected::Any)
            .await
            .context("cannot declare the node gone")?;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "the source {spool} is declared gone; its open requests become lost. Should its disk come back: waybill replay \
             --spool DIR"
        );
    }
    Ok(text)
}

/// True for the id of a spool that the ledger has heard of, or, with `force`, for what may be one.
async fn is_spool(kv: &dyn Kv, id: &str, force: bool) -> anyhow::Result<bool> {
    let plain =
        (1..=SPOOL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !plain {
        return Ok(false);
    }
    let mark = kv.get(MARK_BUCKET, id).await.context("cannot read the marks")?;
    Ok(force || mark.is_some())
}

#[cfg(test)]
mod tests;
