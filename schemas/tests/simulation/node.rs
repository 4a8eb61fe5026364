//! One node: its machines, its clocks, its spool. The spool outlives the process, everything else dies with it.

use std::collections::BTreeMap;

use schemas::id::SpoolId;
use schemas::limit::Now;
use schemas::limit::holdings::Holdings;
use schemas::limit::holdings::demand::{Exit, Used};
use schemas::limit::holdings::steps::Ask;
use schemas::limit::layers::Name;
use schemas::limit::planted::Planted;
use schemas::limit::quota::Replayed;
use schemas::time::Timestamp;

use crate::random::Random;

/// Where the world's wall clock begins: ten seconds before a day and a month end.
const BEGINS_MICROS: i64 = 1_796_083_190_000_000;

/// A node.
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) source: SpoolId,
    pub(crate) boots: u64,
    /// The process; none while it is dead.
    pub(crate) holdings: Option<Holdings>,
    mono_offset_ms: u64,
    mono_permille: u64,
    pub(crate) wall_offset_micros: i64,
    /// Nothing that it sends or is sent arrives.
    pub(crate) partitioned: bool,
    /// It was told that it is cut off.
    pub(crate) told: bool,
    /// It never comes back.
    pub(crate) gone: bool,
    spool: Vec<Waybill>,
    /// Up to here it was trimmed.
    trimmed: u64,
    /// How often its process has noticed that the counters were made anew.
    pub(crate) noticed: u64,
    /// The sums of its charges.
    sums: BTreeMap<Name, u64>,
    /// Appended and not settled yet: the place in the spool, by grant.
    pub(crate) appended: BTreeMap<u64, u64>,
    pub(crate) running: BTreeMap<u64, Running>,
    /// Waiting requests, with the true time of their coming.
    pub(crate) waiting: BTreeMap<u64, (u64, Running)>,
    pub(crate) flights: BTreeMap<u64, Ask>,
}

/// A record of the spool.
#[derive(Debug, Clone)]
struct Waybill {
    sequence: u64,
    charges: Vec<(Name, u64)>,
}

/// A request that runs.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) lasts_ms: u64,
    pub(crate) used: Used,
    /// How it ends; none for one that is never sent.
    pub(crate) exit: Option<Exit>,
    /// Two parts of the node both say that it ended.
    pub(crate) twice: bool,
    /// How often it asks for what it used beyond its reservation.
    pub(crate) patience: u32,
    /// Milliseconds between the spool's append and the settlement.
    pub(crate) late_ms: u64,
}

impl Node {
    pub(crate) fn new(index: usize, random: &mut Random) -> Self {
        Self {
            index,
            source: SpoolId::from(format!("spool-{index}").as_str()),
            boots: 0,
            holdings: None,
            mono_offset_ms: 0,
            mono_permille: 1_000,
            // Within what synchronised clocks are apart.
            wall_offset_micros: i64::try_from(random.below(100_000)).unwrap_or(0),
            partitioned: false,
            told: false,
            gone: false,
            spool: Vec::new(),
            trimmed: 0,
            noticed: 0,
            sums: BTreeMap::new(),
            appended: BTreeMap::new(),
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            flights: BTreeMap::new(),
        }
    }

    /// Starts the process: what the spool holds is told to it.
    pub(crate) fn start(&mut self, random: &mut Random, planted: Planted) {
        self.boots += 1;
        self.mono_offset_ms = random.below(1_000_000);
        self.mono_permille = random.between(985, 1_015);
        self.told = false;
        self.noticed = 0;
        let mut replay: BTreeMap<Name, Vec<Replayed>> = BTreeMap::new();
        for waybill in self
            .spool
            .iter()
            .filter(|waybill| waybill.sequence > self.trimmed)
        {
            for (name, amount) in &waybill.charges {
                replay.entry(name.clone()).or_default().push(Replayed {
                    sequence: waybill.sequence,
                    amount: *amount,
                });
            }
        }
        let boot = format!("boot-{}-{}", self.index, self.boots);
        self.holdings = Some(Holdings::new(
            self.source.clone(),
            boot.as_str().into(),
            replay,
            planted,
        ));
    }

    /// Trims the spool as far as the records allow it.
    pub(crate) fn trim(&mut self) {
        if let Some(holdings) = &self.holdings {
            let told = holdings.told_up_to().unwrap_or(self.last());
            self.trimmed = self.trimmed.max(told);
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.holdings = None;
        self.appended.clear();
        self.running.clear();
        self.waiting.clear();
        self.flights.clear();
    }

    /// The last place in its spool.
    pub(crate) fn last(&self) -> u64 {
        self.spool.len() as u64
    }

    pub(crate) fn now(&self, true_ms: u64, nodes: u64) -> Now {
        let true_micros = i64::try_from(true_ms * 1_000).unwrap_or(0);
        Now {
            wall: Timestamp::from_micros(BEGINS_MICROS + true_micros + self.wall_offset_micros),
            mono_ms: self.mono_offset_ms + true_ms * self.mono_permille / 1_000,
            nodes,
        }
    }

    /// Appends a waybill to the spool and returns its place.
    pub(crate) fn append(&mut self, grant: u64, charges: Vec<(Name, u64)>) {
        let sequence = self.spool.len() as u64 + 1;
        for (name, amount) in &charges {
            *self.sums.entry(name.clone()).or_default() += amount;
        }
        self.spool.push(Waybill { sequence, charges });
        self.appended.insert(grant, sequence);
    }

    /// What its spool says was charged to a quota.
    pub(crate) fn charged(&self, name: &Name) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// The quotas that its spool says something about.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.sums.keys()
    }

    /// What of it the process has not settled yet, so that it is still reserved there.
    pub(crate) fn unsettled(&self, name: &Name) -> u64 {
        let places = self
            .appended
            .values()
            .filter_map(|place| usize::try_from(*place).ok());
        let open = places.filter_map(|place| self.spool.get(place - 1));
        let charges = open.flat_map(|waybill| &waybill.charges);
        charges
            .filter(|(of, _)| of == name)
            .map(|(_, amount)| amount)
            .sum()
    }
}
