//! What must be true at every moment, and what once everything has come to rest.

use std::collections::BTreeMap;

use schemas::limit::holdings::steps::Ask;
use schemas::limit::layers::{Bound, Name};
use schemas::limit::limits::{Kind, LimitKey};
use schemas::limit::quota::record::Record;
use schemas::limit::shared::Step;

use crate::bus::Bus;
use crate::node::Node;

/// What was found wrong.
pub(crate) type Verdict = Result<(), String>;

/// The permits that were handed out, by limit and slice: by the counter, and by each node out of its share.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    counted: BTreeMap<(Name, i64), u64>,
    shares: BTreeMap<(Name, i64, usize), u64>,
}

/// The limit of a name, and for quotas of the name of any of its periods.
pub(crate) fn limit_of(bounds: &[Bound], name: &Name) -> u64 {
    let of = |bound: &&Bound| name.as_str().starts_with(bound.name.as_str());
    bounds
        .iter()
        .filter(of)
        .map(|bound| bound.limit)
        .max()
        .unwrap_or(u64::MAX)
}

/// A record was written: nobody may have raised what he holds beyond the limit.
pub(crate) fn written(bus: &Bus, nodes: &[Node], bounds: &[Bound], ask: &Ask) -> Verdict {
    match ask {
        Ask::Quota(name, Step::Write(_)) => {
            let taken = bus
                .quotas
                .get(name)
                .and_then(|past| past.newest())
                .map_or(0, Record::total);
            let limit = limit_of(bounds, name);
            if taken > u128::from(limit) {
                return Err(format!("{name}: {taken} taken of {limit}"));
            }
            nodes.iter().try_for_each(|node| told(bus, node, name))?;
        }
        Ask::Slots(name, Step::Write(write)) => {
            let total = write.record.total();
            let limit = limit_of(bounds, name);
            let before = bus
                .slots
                .get(name)
                .and_then(|past| past.previous())
                .cloned()
                .unwrap_or_default();
            // Whoever was cut off may say what he still has in use, and nobody may take more.
            let too_many = nodes.iter().find(|node| {
                let boot = boot(node);
                let held = write.record.holder(&boot).count;
                held > before.holder(&boot).count && held > in_use(node, name)
            });
            if total > limit
                && let Some(node) = too_many
            {
                return Err(format!(
                    "{name}: {total} slots held of {limit}, by node {} too many",
                    node.index
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

fn boot(node: &Node) -> String {
    format!("boot-{}-{}", node.index, node.boots)
}

fn in_use(node: &Node, name: &Name) -> u64 {
    let holdings = node.holdings.as_ref();
    let slots = holdings.and_then(|holdings| holdings.slots_in_use().find(|(of, _)| *of == name));
    slots.map_or(0, |(_, in_use)| in_use)
}

/// A request was admitted by `nodes[index]` under `grant`.
pub(crate) fn granted(bus: &Bus, nodes: &[Node], bounds: &[Bound], (index, grant): (usize, u64)) -> Verdict {
    let Some(node) = nodes.get(index) else {
        return Ok(());
    };
    let Some(holdings) = &node.holdings else {
        return Ok(());
    };
    for (name, _) in holdings.reserved() {
        spending(nodes, bounds, name)?;
    }
    let now = node.now(0, 1);
    let concurrencies = holdings.standings(grant, now, |bound| bound.key.kind() == Kind::Concurrency);
    for (bound, _) in concurrencies {
        let record = bus.slots.get(&bound.name).and_then(|past| past.newest());
        let held = record.map_or(0, |record| record.holder(&boot(node)).count);
        let in_use = in_use(node, &bound.name);
        if in_use > held {
            return Err(format!(
                "{}: node {index} admits {in_use}, it holds {held}",
                bound.name
            ));
        }
    }
    Ok(())
}

/// What all nodes have reserved or spent of a quota is within the limit.
fn spending(nodes: &[Node], bounds: &[Bound], name: &Name) -> Verdict {
    let limit = limit_of(bounds, name);
    let mut sum = 0;
    for node in nodes {
        let reserved = node.holdings.as_ref().map_or(0, |holdings| {
            holdings
                .reserved()
                .filter(|(of, _)| *of == name)
                .map(|(_, amount)| amount)
                .sum()
        });
        sum += node.charged(name) + reserved - node.unsettled(name).min(reserved);
    }
    if sum > limit {
        return Err(format!("{name}: {sum} spent or reserved of {limit}"));
    }
    Ok(())
}

/// A waybill of `nodes[index]` that charges a quota is in its spool.
pub(crate) fn charged(bus: &Bus, nodes: &[Node], bounds: &[Bound], (index, name): (usize, &Name)) -> Verdict {
    spending(nodes, bounds, name)?;
    nodes.get(index).map_or(Ok(()), |node| told(bus, node, name))
}

/// Of whom a record says that he has nothing in hand, it says all that he spent.
fn told(bus: &Bus, node: &Node, name: &Name) -> Verdict {
    let past = bus.quotas.get(name);
    let record = past.and_then(|past| past.newest()).cloned().unwrap_or_default();
    let spent = record.holders.get(&node.source).map_or(0, |holder| holder.spent);
    let gone = record.gone.get(&node.source).map_or(0, |gone| gone.spent);
    let charged = node.charged(name);
    if charged > spent + gone && !record.untold().any(|source| *source == node.source) {
        return Err(format!(
            "{name}: node {} has charged {charged} and nothing in hand: {record:?}",
            node.index
        ));
    }
    Ok(())
}

impl Permits {
    /// Notes the permits of a request that was admitted, or (`back`) gives them back.
    pub(crate) fn note(
        &mut self,
        node: &Node,
        grant: u64,
        bounds: &[Bound],
        (nodes, back): (u64, bool),
    ) -> Verdict {
        let Some(holdings) = &node.holdings else {
            return Ok(());
        };
        for (name, permit) in holdings.permits(grant) {
            let limit = limit_of(bounds, &name);
            let (handed, most) = if permit.share {
                let share = (name.clone(), permit.index, node.index);
                (self.shares.entry(share).or_default(), limit / nodes)
            } else {
                let slice = (name.clone(), permit.index);
                (self.counted.entry(slice).or_default(), limit)
            };
            if back {
                *handed = handed.saturating_sub(permit.amount);
                continue;
            }
            *handed += permit.amount;
            if *handed > most {
                return Err(format!("{name}: {handed} of {most} in a slice: {permit:?}"));
            }
        }
        Ok(())
    }
}

impl Permits {
    /// A request used so many tokens, and others may use the rest of its permits.
    pub(crate) fn used(&mut self, node: &Node, grant: u64, tokens: u64) {
        let permits = node.holdings.as_ref().map(|holdings| holdings.permits(grant));
        for (name, permit) in permits.into_iter().flatten() {
            if !name.as_str().ends_with(LimitKey::Tpm.as_str()) {
                continue;
            }
            let handed = if permit.share {
                self.shares.get_mut(&(name, permit.index, node.index))
            } else {
                self.counted.get_mut(&(name, permit.index))
            };
            if let Some(handed) = handed {
                *handed = handed.saturating_sub(permit.amount.saturating_sub(tokens));
            }
        }
    }
}

/// Everything has come to rest: nothing is held, and what the records count is what the waybills say.
pub(crate) fn at_rest(bus: &Bus, nodes: &[Node]) -> Verdict {
    for node in nodes {
        let Some(holdings) = &node.holdings else {
            continue;
        };
        if holdings.open() > 0 {
            return Err(format!(
                "node {}: {} requests are open",
                node.index,
                holdings.open()
            ));
        }
        if let Some((name, amount)) = holdings.reserved().next() {
            return Err(format!("node {}: {amount} of {name} is reserved", node.index));
        }
        if let Some((name, in_use)) = holdings.slots_in_use().find(|(_, in_use)| *in_use > 0) {
            return Err(format!("node {}: {in_use} of {name} are in use", node.index));
        }
    }
    for (name, past) in &bus.slots {
        let record = past.newest().cloned().unwrap_or_default();
        let watched = nodes.iter().any(|node| node.holdings.is_some());
        if watched && !record.holders.is_empty() {
            return Err(format!("{name}: at rest: {record:?}"));
        }
    }
    let mut names: Vec<&Name> = bus.quotas.keys().collect();
    names.extend(nodes.iter().flat_map(Node::names));
    names.sort();
    names.dedup();
    for name in names {
        let record = bus
            .quotas
            .get(name)
            .and_then(|past| past.newest())
            .cloned()
            .unwrap_or_default();
        let charged: u64 = nodes.iter().map(|node| node.charged(name)).sum();
        if record.spent() != u128::from(charged) {
            return Err(format!(
                "{name}: the record counts {}, the waybills say {charged}",
                record.spent()
            ));
        }
        if record.total() != record.spent() {
            return Err(format!("{name}: taken at rest: {record:?}"));
        }
    }
    Ok(())
}
