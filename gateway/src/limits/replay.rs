//! What the spool holds of quotas from the time before this process: waybills whose charges the records may not count
//! yet.

use std::collections::BTreeMap;

use bus::Message;
use bus::spool::{self, Spool};
use memchr::memmem;
use schemas::event::Fact as _;
use schemas::event::request::{QuotaCharge, RequestSettled};
use schemas::limit::layers::Name;
use schemas::limit::quota::Replayed;
use serde::Deserialize;

/// Events read at a time.
const BATCH_EVENTS: usize = 512;
/// What an event holds that charges a quota.
const MARK: &[u8] = br#""quotas":["#;

/// As much of a waybill's envelope as is read here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    data: Charged,
}

#[derive(Deserialize)]
struct Charged {
    #[serde(default)]
    quotas: Vec<QuotaCharge>,
}

/// The charges of all waybills in a spool, by quota. Fails when it cannot be read.
pub(super) fn of(spool: &Spool) -> Result<BTreeMap<Name, Vec<Replayed>>, spool::Error> {
    let mut replay: BTreeMap<Name, Vec<Replayed>> = BTreeMap::new();
    let mut next = 1;
    loop {
        let batch = spool.read(next, BATCH_EVENTS)?;
        let Some((last, _)) = batch.last() else {
            return Ok(replay);
        };
        next = last + 1;
        for (sequence, message) in &batch {
            for QuotaCharge { name, amount } in charges(message) {
                replay.entry(name).or_default().push(Replayed {
                    sequence: *sequence,
                    amount,
                });
            }
        }
    }
}

fn charges(message: &Message) -> Vec<QuotaCharge> {
    if memmem::find(&message.payload, MARK).is_none() {
        return Vec::new();
    }
    let envelope: Option<Envelope<'_>> = serde_json::from_slice(&message.payload).ok();
    let settled = envelope.filter(|envelope| envelope.kind == RequestSettled::KIND);
    settled.map_or_else(Vec::new, |envelope| envelope.data.quotas)
}
