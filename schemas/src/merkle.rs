//! Hashes over days of rows, pure: what is hashed of a row, the tree over a day's rows, and the chain of a tenant's
//! seals. All of it is written down in `docs/truth.md` for whoever verifies without this program.
//!
//! A tree is that of RFC 6962: leaves and inner nodes are hashed under different first bytes, and a node without a
//! neighbour goes up as it is.

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::event::ledger::{Adjusted, Sealed};
use crate::money::Price;
use crate::query::Row;

/// The form of seals over rows alone.
pub const FORMAT: u32 = 1;
/// The form of seals over rows and adjustments.
pub const FORMAT_ADJUSTED: u32 = 2;
/// First byte of what is hashed for a row.
const LEAF: u8 = 0;
/// First byte of what is hashed for two nodes.
const NODE: u8 = 1;
/// First byte of what is hashed for a seal.
const SEAL: u8 = 2;

/// A tree that grows by a leaf at a time; it holds one node per level.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// Whole subtrees from the largest to the smallest, each with its number of leaves.
    peaks: Vec<(u64, Digest)>,
    leaves: u64,
}

impl Tree {
    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Digest) {
        self.leaves += 1;
        let (mut size, mut hash) = (1, leaf);
        while let Some((left, of_left)) = self.peaks.pop_if(|(left, _)| *left == size) {
            hash = node(of_left, hash);
            size += left;
        }
        self.peaks.push((size, hash));
    }

    /// How many leaves it has.
    pub const fn leaves(&self) -> u64 {
        self.leaves
    }

    /// The root, `None` of a tree without leaves.
    pub fn root(&self) -> Option<Digest> {
        let mut peaks = self.peaks.iter().rev().map(|(_, hash)| *hash);
        let last = peaks.next()?;
        Some(peaks.fold(last, |right, left| node(left, right)))
    }
}

fn node(left: Digest, right: Digest) -> Digest {
    let hash = Sha256::new().chain_update([NODE]);
    Digest(hash.chain_update(left.0).chain_update(right.0).finalize().into())
}

/// Fields on their way into a hash, each with its length, so that no two lists of fields are the same bytes.
struct Fields(Sha256);

impl Fields {
    fn of(kind: u8, name: &str) -> Self {
        Self(Sha256::new().chain_update([kind]).chain_update(name))
    }

    fn text(&mut self, text: &str) {
        self.0.update(text.len().to_string());
        self.0.update(":");
        self.0.update(text);
    }

    fn maybe(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.0.update("-"),
        }
    }

    fn shown(&mut self, value: &impl ToString) {
        self.text(&value.to_string());
    }

    fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// The leaf of a row, and of the event that it came from.
pub fn leaf(row: &Row, event_id: &str) -> Digest {
    let settled = &row.settled;
    let mut fields = Fields::of(LEAF, "waybill.row.1\n");
    fields.shown(&settled.request_id);
    fields.maybe(settled.client_request_id.as_deref());
    fields.text(settled.tenant.as_str());
    fields.maybe(settled.user.as_ref().map(crate::id::UserId::as_str));
    fields.text(settled.key_id.as_str());
    fields.text(&settled.key_name);
    fields.maybe(settled.job_id.as_deref());
    fields.maybe(settled.end_user.as_deref());
    fields.text(settled.surface.as_str());
    fields.text(settled.model.as_str());
    fields.maybe(settled.served_model.as_deref());
    fields.maybe(settled.provider.as_deref());
    fields.maybe(settled.endpoint_id.as_ref().map(crate::id::EndpointId::as_str));
    fields.maybe(settled.backend.as_ref().map(crate::id::BackendId::as_str));
    fields.text(settled.outcome.as_str());
    fields.shown(&settled.status);
    fields.maybe(settled.error_code.map(crate::failure::FailureCode::as_str));
    fields.shown(&u8::from(settled.stream));
    fields.shown(&settled.started_at);
    fields.shown(&settled.ended_at);
    figures(&mut fields, row);
    fields.text(settled.node.as_str());
    fields.text(&settled.config_revision);
    fields.shown(&settled.waybill_day);
    fields.shown(&settled.billing_day);
    fields.shown(&settled.billing_month);
    fields.text(&row.source);
    fields.shown(&row.source_sequence);
    fields.text(event_id);
    fields.finish()
}

/// What was counted of a row, and what it costs.
fn figures(fields: &mut Fields, row: &Row) {
    let settled = &row.settled;
    for count in [
        settled.input_tokens,
        settled.cached_tokens,
        settled.cache_write_tokens,
        settled.output_tokens,
        settled.reasoning_tokens,
        settled.images,
    ] {
        fields.shown(&count);
    }
    fields.text(settled.usage_source.as_str());
    let flags: Vec<&str> = settled.usage_flags.iter().map(|flag| flag.as_str()).collect();
    fields.text(&flags.join(","));
    fields.text(&settled.price_version.0);
    let prices = settled.prices.as_ref().map(rates);
    fields.maybe(prices.as_deref());
    fields.shown(&settled.cost_nano_usd.0);
    fields.text(&settled.cost_usd);
    let upstream = settled.upstream_cost_nano_usd.map(|cost| cost.0.to_string());
    fields.maybe(upstream.as_deref());
    fields.shown(&settled.absorbed_nano_usd.0);
}

fn rates(price: &Price) -> String {
    let rates = [
        price.input,
        price.cached,
        price.cache_write,
        price.output,
        price.request,
        price.image,
    ];
    rates.map(|rate| rate.to_string()).join(",")
}

/// The leaf of an adjustment, and of the event that it came from: its place and its id.
pub fn leaf_of_adjustment(adjusted: &Adjusted, (source, place): (&str, u64), event_id: &str) -> Digest {
    let mut fields = Fields::of(LEAF, "waybill.adjustment.1\n");
    fields.shown(&adjusted.request_id);
    fields.shown(&adjusted.number);
    fields.text(adjusted.tenant.as_str());
    fields.maybe(adjusted.user.as_ref().map(crate::id::UserId::as_str));
    fields.text(adjusted.key_id.as_str());
    fields.maybe(adjusted.job_id.as_deref());
    fields.text(adjusted.model.as_str());
    fields.maybe(adjusted.served_model.as_deref());
    fields.maybe(adjusted.provider.as_deref());
    fields.maybe(adjusted.endpoint_id.as_ref().map(crate::id::EndpointId::as_str));
    fields.shown(&adjusted.started_at);
    fields.shown(&adjusted.billing_day);
    fields.shown(&adjusted.billing_month);
    fields.shown(&adjusted.was_nano_usd.0);
    fields.shown(&adjusted.cost_nano_usd.0);
    fields.shown(&adjusted.amount_nano_usd.0);
    fields.text(&rates(&adjusted.prices));
    fields.text(&adjusted.price_version.0);
    fields.text(adjusted.reason.as_str());
    fields.text(adjusted.actor.tenant.as_str());
    fields.maybe(adjusted.actor.user.as_ref().map(crate::id::UserId::as_str));
    fields.text(adjusted.actor.key_id.as_str());
    fields.text(&adjusted.actor.key_name);
    fields.shown(&adjusted.adjusted_at);
    fields.text(adjusted.node.as_str());
    fields.text(source);
    fields.shown(&place);
    fields.text(event_id);
    fields.finish()
}

/// The digest of a seal: what the next one of its tenant names as `previous`. When and by whom it was made is no part.
pub fn seal_digest(seal: &Sealed) -> Digest {
    let mut fields = Fields::of(SEAL, "waybill.seal.1\n");
    fields.shown(&seal.format);
    fields.text(seal.tenant.as_str());
    fields.shown(&seal.day);
    fields.shown(&seal.part);
    fields.shown(&seal.rows);
    fields.shown(&seal.sum_nano_usd.0);
    if seal.format >= FORMAT_ADJUSTED {
        fields.shown(&seal.adjustments);
        fields.shown(&seal.adjusted_nano_usd.0);
    }
    fields.shown(&seal.root);
    for (source, sequence) in &seal.through {
        fields.text(source);
        fields.shown(sequence);
    }
    let previous = seal.previous.map(|previous| previous.to_string());
    fields.maybe(previous.as_deref());
    fields.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaf_of(number: u64) -> Digest {
        let mut fields = Fields::of(LEAF, "test\n");
        fields.shown(&number);
        fields.finish()
    }

    fn root(leaves: &[Digest]) -> Option<Digest> {
        let mut tree = Tree::default();
        for leaf in leaves {
            tree.push(*leaf);
        }
        assert_eq!(tree.leaves(), leaves.len() as u64);
        tree.root()
    }

    /// Level by level over the whole list, as RFC 6962 says it: the last node of an odd level goes up as it is.
    fn level_by_level(mut level: Vec<Digest>) -> Option<Digest> {
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => node(*left, *right),
                    _ => pair[0],
                })
                .collect();
        }
        level.first().copied()
    }

    #[test]
    fn no_leaf_has_no_root_and_one_is_its_own() {
        assert_eq!(root(&[]), None);
        assert_eq!(root(&[leaf_of(1)]), Some(leaf_of(1)));
    }

    #[test]
    fn fields_are_told_apart() {
        let of = |texts: &[Option<&str>]| {
            let mut fields = Fields::of(LEAF, "test\n");
            for text in texts {
                fields.maybe(*text);
            }
            fields.finish()
        };
        let lists: [&[Option<&str>]; 5] = [
            &[Some("ab"), Some("c")],
            &[Some("a"), Some("bc")],
            &[Some("ab"), Some("c"), None],
            &[None, Some("ab"), Some("c")],
            &[Some("-"), Some("ab"), Some("c")],
        ];
        let mut hashes: Vec<Digest> = lists.iter().map(|list| of(list)).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), lists.len());
    }

    proptest! {
        #[test]
        fn a_tree_that_grows_is_the_tree_of_the_whole(count in 0u64..200) {
            let leaves: Vec<Digest> = (0..count).map(leaf_of).collect();
            prop_assert_eq!(root(&leaves), level_by_level(leaves));
        }

        #[test]
        fn a_leaf_that_is_changed_dropped_added_or_swapped_gives_another_root(
            count in 2u64..100,
            at in any::<prop::sample::Index>(),
            other in any::<prop::sample::Index>(),
        ) {
            let leaves: Vec<Digest> = (0..count).map(leaf_of).collect();
            let whole = root(&leaves);
            let at = at.index(leaves.len());
            let mut changed = leaves.clone();
            changed[at] = leaf_of(count);
            prop_assert_ne!(root(&changed), whole);
            let mut dropped = leaves.clone();
            dropped.remove(at);
            prop_assert_ne!(root(&dropped), whole);
            let mut added = leaves.clone();
            added.insert(at, leaf_of(count));
            prop_assert_ne!(root(&added), whole);
            let mut twice = leaves.clone();
            twice.push(leaves[leaves.len() - 1]);
            prop_assert_ne!(root(&twice), whole);
            let other = other.index(leaves.len());
            let mut swapped = leaves.clone();
            swapped.swap(at, other);
            prop_assert_eq!(root(&swapped) == whole, at == other);
        }
    }
}
